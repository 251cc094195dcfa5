//! Which bytes may stand where.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tables of 256 places are made by the compiler, and indexed by bytes"
)]

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const TARGET: u8 = 4;
const HOST: u8 = 8;

/// One look-up per byte says all.
static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let it = byte as u8;
        let alphanumeric = it.is_ascii_alphanumeric();
        if alphanumeric || is_one_of(it, b"!#$%&'*+-.^_`|~") {
            table[byte] |= TOKEN;
        }
        // Visible, space and tab; beyond ASCII everything, which is opaque (RFC 9110, section 5.5).
        if it == b'\t' || (it >= b' ' && it != 0x7f) {
            table[byte] |= VALUE;
        }
        // A fragment is never sent; a backslash is a slash to some and not to others.
        if it > b' ' && it < 0x7f && it != b'#' && it != b'\\' {
            table[byte] |= TARGET;
        }
        if alphanumeric || is_one_of(it, b"-._~") {
            table[byte] |= HOST;
        }
        byte += 1;
    }
    table
}

const fn is_one_of(byte: u8, all: &[u8]) -> bool {
    let mut at = 0;
    while at < all.len() {
        if all[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|byte| CLASS[usize::from(*byte)] & class != 0)
}

/// How many bytes at the start may stand in a token.
pub(crate) fn token_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| CLASS[usize::from(*byte)] & TOKEN == 0).unwrap_or(bytes.len())
}

const ONES: u64 = u64::MAX / 0xff;
const HIGH_BITS: u64 = ONES * 0x80;

/// How many bytes at the start are letters and hyphens, as in nearly all names of fields: eight at a time, while there are eight.
pub(crate) fn plain_name_length(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks();
    let mut length = 0;
    for word in words {
        let others = others_than_plain(*word);
        if others != 0 {
            return length + others.trailing_zeros() as usize / 8;
        }
        length += word.len();
    }
    length
}

/// The highest bit of each byte that is neither a letter nor a hyphen. (No sum carries into the next byte.)
const fn others_than_plain(bytes: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(bytes);
    let small = (word | (ONES * 0x20)) & !HIGH_BITS;
    let from_a = small + ONES * (0x80 - b'a' as u64);
    let beyond_z = small + ONES * (0x7f - b'z' as u64);
    let not_hyphen = word ^ (ONES * b'-' as u64);
    let other_than_hyphen = ((not_hyphen & !HIGH_BITS) + !HIGH_BITS) | not_hyphen;
    (!(from_a & !beyond_z) | word) & other_than_hyphen & HIGH_BITS
}

/// How many bytes at the start are neither control bytes nor DEL.
pub(crate) fn printable_length(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks();
    let mut length = 0;
    for word in words {
        let others = not_printable(*word);
        if others != 0 {
            // What comes before the first one is exact.
            return length + others.trailing_zeros() as usize / 8;
        }
        length += word.len();
    }
    let is_other = |byte: &u8| *byte < b' ' || *byte == 0x7f;
    length + rest.iter().position(is_other).unwrap_or(rest.len())
}

pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// A token without large letters, as HTTP/2 has them.
pub(crate) fn is_small_token(bytes: &[u8]) -> bool {
    is_token(bytes) && !bytes.iter().any(u8::is_ascii_uppercase)
}

/// Neither white space nor control bytes; beyond ASCII everything.
pub(crate) fn is_visible(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

/// A value without white space around it, which would be lost on the way.
pub(crate) fn is_trimmed_value(bytes: &[u8]) -> bool {
    is_value(bytes) && trimmed(bytes).len() == bytes.len()
}

/// Eight bytes at a time: nearly all values have neither tabs nor control bytes.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    words.iter().all(|word| is_printable(*word) || all(word, VALUE)) && all(rest, VALUE)
}

/// Whether none of the bytes is below the space, and none is DEL.
const fn is_printable(bytes: [u8; 8]) -> bool {
    not_printable(bytes) == 0
}

/// The highest bit of each such byte, and of some behind the first one. (A subtraction borrows from the next byte only where it
/// found one.)
const fn not_printable(bytes: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(bytes);
    let below_space = word.wrapping_sub(ONES * b' ' as u64) & !word;
    let not_del = word ^ (ONES * 0x7f);
    let del = not_del.wrapping_sub(ONES) & !not_del;
    (below_space | del) & HIGH_BITS
}

pub(crate) fn is_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TARGET)
}

pub(crate) fn is_reg_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, HOST)
}

/// Digits alone, without sign or space, and no more than 64 bits.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|it| *it < 10).map(u64::from)?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

pub(crate) fn trimmed(bytes: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let start = bytes.iter().position(|byte| !is_space(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last.saturating_add(1));
    bytes.get(start..end).unwrap_or_default()
}

/// The members of a comma-separated list; empty ones are skipped (RFC 9110, section 5.6.1).
pub(crate) fn list(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b',').map(trimmed).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_same_eight_bytes_at_a_time_and_one_by_one() {
        for length in 0..20 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    for others in [b'a', b' ', b'\t', 0x80, 0xff] {
                        let mut value = vec![others; length];
                        value[at] = byte;
                        let expected = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
                        assert_eq!(is_value(&value), expected, "{value:?}");
                        let one_by_one = |is: fn(u8) -> bool| value.iter().position(|it| !is(*it));
                        let printable = one_by_one(|it| it >= b' ' && it != 0x7f).unwrap_or(length);
                        assert_eq!(printable_length(&value), printable, "{value:?}");
                        let plain = one_by_one(|it| it.is_ascii_alphabetic() || it == b'-');
                        // What does not fill a word is left to others.
                        let plain = plain.unwrap_or(length).min(length / 8 * 8);
                        assert_eq!(plain_name_length(&value), plain, "{value:?}");
                    }
                }
            }
        }
        assert!(is_value(b""));
    }
}
