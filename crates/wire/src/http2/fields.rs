//! Blocks of fields: what the peer says, and what we say.

use super::{
    frame::LARGEST,
    huffman,
    table::{self, DynamicTable},
};

#[derive(Debug, Default)]
pub(super) struct Decoder {
    table: DynamicTable,
    /// The field that is read, name before value.
    field: Vec<u8>,
}

const KEPT: usize = 1 << 10;

/// The block is none; nothing after it can be understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidFieldBlock;

impl Decoder {
    /// Hands each field over, in order.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), InvalidFieldBlock> {
        let mut rest = block;
        let mut begun = false;
        while let Some(first) = rest.first().copied() {
            match first {
                0x80.. => {
                    let number = integer(&mut rest, 7)?;
                    let (name, value) = self.table.field(number).ok_or(InvalidFieldBlock)?;
                    each(name, value);
                }
                0x20..0x40 if !begun => {
                    let most = integer(&mut rest, 5)?;
                    self.table.limit(most).ok_or(InvalidFieldBlock)?;
                    continue;
                }
                0x20..0x40 => return Err(InvalidFieldBlock),
                0x40..0x80 => {
                    let name = self.literal(&mut rest, 6)?;
                    let (said, value) = self.field.split_at_checked(name).ok_or(InvalidFieldBlock)?;
                    each(said, value);
                    self.table.remember(&self.field, name);
                }
                ..0x20 => {
                    let name = self.literal(&mut rest, 4)?;
                    let (said, value) = self.field.split_at_checked(name).ok_or(InvalidFieldBlock)?;
                    each(said, value);
                }
            }
            begun = true;
        }
        // What the longest field needed is not kept for as long as the connection is.
        if self.field.capacity() > KEPT {
            self.field = Vec::new();
        }
        Ok(())
    }

    /// Reads a field that is spelled out, and tells where its name ends.
    fn literal(&mut self, rest: &mut &[u8], prefix: u32) -> Result<usize, InvalidFieldBlock> {
        self.field.clear();
        match integer(rest, prefix)? {
            0 => text(rest, &mut self.field)?,
            number => self.field.extend_from_slice(self.table.field(number).ok_or(InvalidFieldBlock)?.0),
        }
        let name = self.field.len();
        text(rest, &mut self.field)?;
        Ok(name)
    }
}

/// RFC 7541, section 5.1. Nothing that is meant here needs more than 28 bits.
#[allow(clippy::arithmetic_side_effects, reason = "`prefix` is 4 to 7, and no more than 28 bits are added")]
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, InvalidFieldBlock> {
    let (first, mut bytes) = rest.split_first().ok_or(InvalidFieldBlock)?;
    let most = (1 << prefix) - 1;
    let mut number = usize::from(*first) & most;
    if number == most {
        let mut shift = 0;
        loop {
            let (byte, after) = bytes.split_first().ok_or(InvalidFieldBlock)?;
            bytes = after;
            number += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 21 {
                return Err(InvalidFieldBlock);
            }
        }
    }
    *rest = bytes;
    Ok(number)
}

fn text(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), InvalidFieldBlock> {
    let coded = rest.first().ok_or(InvalidFieldBlock)? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (text, after) = rest.split_at_checked(length).ok_or(InvalidFieldBlock)?;
    *rest = after;
    if coded {
        return huffman::decode(text, out).ok_or(InvalidFieldBlock);
    }
    out.extend_from_slice(text);
    Ok(())
}

/// A block of fields that is being written.
#[derive(Debug)]
pub struct FieldBlock<'o> {
    out: &'o mut Vec<u8>,
    /// It is a question to which there is no body in the answer.
    pub(super) asks_head: bool,
}

impl<'o> FieldBlock<'o> {
    /// `first`: nothing was said on this connection before. Its table is of no use to us, and gone from then on.
    pub(super) fn new(out: &'o mut Vec<u8>, first: bool) -> FieldBlock<'o> {
        if first {
            out.push(0x20);
        }
        FieldBlock { out, asks_head: false }
    }

    pub fn status(&mut self, status: u16) {
        let number = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digits = digits(status);
                return self.named(8, &digits);
            }
        };
        self.out.push(0x80 | number);
    }

    pub fn method(&mut self, name: &[u8]) {
        match name {
            b"GET" => self.out.push(0x82),
            b"POST" => self.out.push(0x83),
            _ => {
                self.asks_head = name == b"HEAD";
                self.named(2, name);
            }
        }
    }

    pub fn scheme(&mut self, secure: bool) {
        self.out.push(if secure { 0x87 } else { 0x86 });
    }

    pub fn authority(&mut self, authority: &[u8]) {
        self.named(1, authority);
    }

    pub fn path(&mut self, path: &[u8]) {
        match path {
            b"/" => self.out.push(0x84),
            _ => self.named(4, path),
        }
    }

    /// What is spoken in a tunnel (RFC 8441).
    pub fn protocol(&mut self, name: &[u8]) {
        self.field(b":protocol", name);
    }

    /// The name may have large letters; they become small ones.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        const ROOM: usize = 32;
        let mut small = [0; ROOM];
        let number = small.get_mut(..name.len()).and_then(|small| {
            small.copy_from_slice(name);
            small.make_ascii_lowercase();
            table::number_of(small)
        });
        match number {
            // Whoever goes on from here is to keep them out of tables, too (RFC 7541, section 7.1.3).
            Some(number @ (23 | 32 | 55)) => put_integer(self.out, 4, 0x10, usize::from(number)),
            Some(number) => put_integer(self.out, 4, 0, usize::from(number)),
            None => {
                self.out.push(0);
                put_integer(self.out, 7, 0, name.len());
                let start = self.out.len();
                self.out.extend_from_slice(name);
                self.out.get_mut(start..).unwrap_or_default().make_ascii_lowercase();
            }
        }
        self.text(value);
    }

    /// With one of the first names.
    fn named(&mut self, number: u8, value: &[u8]) {
        debug_assert!(number < 15);
        self.out.push(number);
        self.text(value);
    }

    fn text(&mut self, text: &[u8]) {
        put_integer(self.out, 7, 0, text.len());
        self.out.extend_from_slice(text);
    }
}

/// Three.
#[allow(clippy::arithmetic_side_effects, reason = "a digit is below 10, and nothing is divided by 0")]
pub(super) fn digits(status: u16) -> [u8; 3] {
    [100, 10, 1].map(|place| b'0' + (status / place % 10) as u8)
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "`prefix` is 4 to 7, and `number` no less than `most` then"
)]
fn put_integer(out: &mut Vec<u8>, prefix: u32, high: u8, number: usize) {
    let most = (1 << prefix) - 1;
    if number < most {
        return out.push(high | number as u8);
    }
    out.push(high | most as u8);
    let mut rest = number - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

const _: () = assert!(LARGEST < 1 << 28);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<String, InvalidFieldBlock> {
        let mut all = String::new();
        decoder.decode(block, |name, value| {
            all += &format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        })?;
        Ok(all)
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn requests_of_the_rfc_are_understood() {
        let mut decoder = Decoder::default();
        let first = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
        // RFC 7541, appendix C.4.
        let block = hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff");
        assert_eq!(decoded(&mut decoder, &block).unwrap(), first);
        let block = hex("8286 84be 5886 a8eb 1064 9cbf");
        assert_eq!(decoded(&mut decoder, &block).unwrap(), format!("{first}cache-control: no-cache\n"));
        let block = hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf");
        let third = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
            custom-key: custom-value\n";
        assert_eq!(decoded(&mut decoder, &block).unwrap(), third);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for block in [
            &b"\x80"[..],
            b"\xbe",
            b"\x82\x20",
            b"\x3f\xe2\x1f",
            b"\x40\x01a",
            b"\x00\x01a\x7f\xff\xff\xff\xff\xff\x01",
            b"\x00\x81\xff\x01a",
            b"\x40",
            b"\x3f",
        ] {
            assert_eq!(decoded(&mut Decoder::default(), block), Err(InvalidFieldBlock), "{block:x?}");
        }
        assert_eq!(decoded(&mut Decoder::default(), b"\x20\x3f\xe1\x1f\x82").unwrap(), ":method: GET\n");
    }

    #[test]
    fn what_a_long_field_needed_is_not_kept() {
        let mut decoder = Decoder::default();
        let mut block = Vec::new();
        FieldBlock::new(&mut block, false).field(b"x", &[b'y'; 50_000]);
        decoded(&mut decoder, &block).unwrap();
        assert!(decoder.field.capacity() <= KEPT, "{}", decoder.field.capacity());
    }

    #[test]
    fn integers_of_the_rfc_are_written_as_it_says() {
        for (prefix, number, expected) in
            [(5, 10, &[0x0a][..]), (5, 1337, &[0x1f, 0x9a, 0x0a]), (8, 42, &[0x2a])]
        {
            let mut out = Vec::new();
            put_integer(&mut out, prefix, 0, number);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn what_everybody_knows_is_written_short() {
        let mut out = Vec::new();
        let mut block = FieldBlock::new(&mut out, true);
        block.status(200);
        block.status(503);
        block.method(b"POST");
        block.scheme(true);
        block.path(b"/");
        assert_eq!(out, b"\x20\x88\x08\x03503\x83\x87\x84");
    }

    proptest! {
        #[test]
        fn what_is_written_is_understood(
            fields in prop::collection::vec(("[a-zA-Z-]{1,40}", prop::collection::vec(any::<u8>(), 0..300)), 0..12),
            status in 100..1000_u16,
        ) {
            let mut out = Vec::new();
            let mut block = FieldBlock::new(&mut out, false);
            block.status(status);
            fields.iter().for_each(|(name, value)| block.field(name.as_bytes(), value));
            let mut heard = Vec::new();
            let decoded =
                Decoder::default().decode(&out, |name, value| heard.push((name.to_vec(), value.to_vec())));
            prop_assert_eq!(decoded, Ok(()));
            let (first, rest) = heard.split_first().unwrap();
            prop_assert_eq!(first, &(b":status".to_vec(), status.to_string().into_bytes()));
            let expected: Vec<_> =
                fields.into_iter().map(|(name, value)| (name.to_lowercase().into_bytes(), value)).collect();
            prop_assert_eq!(rest, &expected[..]);
        }
    }
}
