//! HTTP/2 byte by byte: what no library would send.

use std::io::Read;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Its first field is `:status: 200`, the eighth of the static table; changes of a table's size go before it.
    pub(crate) fn is_ok(&self) -> bool {
        self.payload.iter().find(|byte| **byte & 0xe0 != 0x20) == Some(&0x88)
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The preface, and settings that say nothing.
pub(crate) fn hello() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &[])[..]].concat()
}

/// Fields as they are, in no table and not compressed (RFC 7541, section 6.2.2).
pub(crate) fn block<'f>(fields: impl IntoIterator<Item = &'f (&'f [u8], &'f [u8])>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "one byte is enough for the length");
            bytes.push(text.len() as u8);
            bytes.extend_from_slice(text);
        }
    }
    bytes
}

/// `None`: the connection has ended.
pub(crate) fn next(line: &mut impl Read) -> Option<Frame> {
    let mut head = [0; 9];
    line.read_exact(&mut head).ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    line.read_exact(&mut payload).ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some(Frame { kind: head[3], stream, payload })
}
