//! The code of RFC 7541, appendix B. It is canonical: the lengths of its words say everything.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tables of 256 places are indexed by bytes, those of 31 by lengths up to 30; a place in `bytes` is below the \
              sum of all counts; no more bits are taken than are held, which are at most 64"
)]

/// For each byte, how many bits its word has. The word for the end, of 30 bits, is the last one and never written.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

const LONGEST: usize = 30;
/// Words up to this long are looked up at once.
const SHORT: u32 = 8;

struct HuffmanCodes {
    /// By length: the first word, how many there are, and where their bytes begin.
    first: [u32; LONGEST + 1],
    count: [u32; LONGEST + 1],
    start: [u32; LONGEST + 1],
    bytes: [u8; 256],
    /// By eight bits: the byte that they begin with, and how many of them it took; 0: more than these.
    short: [(u8, u8); 256],
}

static WORDS: HuffmanCodes = words();

const fn words() -> HuffmanCodes {
    let mut words = HuffmanCodes {
        first: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
        start: [0; LONGEST + 1],
        bytes: [0; 256],
        short: [(0, 0); 256],
    };
    let (mut length, mut word, mut placed) = (1, 0_u32, 0);
    while length <= LONGEST {
        word <<= 1;
        words.first[length] = word;
        words.start[length] = placed as u32;
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as usize == length {
                words.bytes[placed] = byte as u8;
                placed += 1;
                words.count[length] += 1;
                if length <= SHORT as usize {
                    let spare = SHORT as usize - length;
                    let mut at = (word as usize) << spare;
                    while at < (word as usize + 1) << spare {
                        words.short[at] = (byte as u8, length as u8);
                        at += 1;
                    }
                }
                word += 1;
            }
            byte += 1;
        }
        length += 1;
    }
    words
}

/// Appends what is meant. `None`: nobody who keeps to the code has written that.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut bits, mut held) = (0_u64, 0_u32);
    let mut rest = coded.iter();
    loop {
        while held <= 56
            && let Some(byte) = rest.next()
        {
            bits = bits << 8 | u64::from(*byte);
            held += 8;
        }
        if held < SHORT {
            break;
        }
        held -= next(bits, held, out)?;
    }
    // A short word may be left, and then ones, fewer than would make a byte.
    while held > 0 {
        let padded = (bits << (SHORT - held) | ((1 << (SHORT - held)) - 1)) as u8;
        let (byte, length) = WORDS.short[usize::from(padded)];
        if length == 0 || u32::from(length) > held {
            return (padded == u8::MAX).then_some(());
        }
        out.push(byte);
        held -= u32::from(length);
    }
    Some(())
}

/// The first word of those bits, at least eight: how long it is.
fn next(bits: u64, held: u32, out: &mut Vec<u8>) -> Option<u32> {
    let (byte, length) = WORDS.short[usize::from((bits >> (held - SHORT)) as u8)];
    if length > 0 {
        out.push(byte);
        return Some(u32::from(length));
    }
    for length in SHORT + 1..=(LONGEST as u32).min(held) {
        let word = (bits >> (held - length)) as u32 & ((1 << length) - 1);
        let at = word.wrapping_sub(WORDS.first[length as usize]);
        if at < WORDS.count[length as usize] {
            out.push(WORDS.bytes[(WORDS.start[length as usize] + at) as usize]);
            return Some(length);
        }
    }
    // Ones up to the end of the text: they may be seven at most, as its filling.
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(plain: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for byte in plain {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let rank = (0..*byte).filter(|it| LENGTHS[usize::from(*it)] as usize == length).count() as u32;
            let word = WORDS.first[length] + rank;
            bits.extend((0..length).rev().map(|at| word >> at & 1 == 1));
        }
        bits.resize(bits.len().next_multiple_of(8), true);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | u8::from(*bit))).collect()
    }

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn words_are_those_of_the_rfc() {
        // RFC 7541, appendix C.4.1 and C.6.1.
        let coded = b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(decoded(coded).unwrap(), b"www.example.com");
        assert_eq!(encode(b"www.example.com"), coded);
        assert_eq!(encode(b"302"), b"\x64\x02");
        // Appendix B: the first of each kind, the last before the end.
        assert_eq!((encode(b"0"), encode(b"\x16")), (vec![0x07], vec![0xff, 0xff, 0xff, 0xfb]));
    }

    #[test]
    fn fillings_that_are_too_long_or_not_of_ones_are_refused() {
        assert_eq!(decoded(b"\x07\xff"), None, "eight ones");
        assert_eq!(decoded(b"\x00"), None, "a zero after the word");
        assert_eq!(decoded(b"\xff\xff\xff\xff"), None, "the word for the end");
        assert_eq!(decoded(b""), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(plain in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decoded(&encode(&plain)), Some(plain));
        }
    }
}
