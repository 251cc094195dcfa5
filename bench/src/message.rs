//! What travels between generator and backend.
//!
//! A request begins with 24 bytes (magic, flags, sequence number, its length, the wanted length of the answer), an
//! answer with 16 (magic, length, the same sequence number). All that follows is one fixed pattern, so that either side
//! can tell a byte that was lost, doubled or moved.

pub mod frames;
pub mod grpc;
pub mod http;

use std::sync::LazyLock;

pub const REQUEST_HEAD: usize = 24;
pub const ANSWER_HEAD: usize = 16;
pub const LONGEST: usize = 1 << 20;

const MAGIC: u32 = 0x5EA5_1DE5;
const CLOSE: u32 = 1;

/// Byte `n` of any message beyond its head is `PATTERN[n]`. Its period is prime, so shifted data never matches.
pub static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| (0..LONGEST).map(|at| (at % 251) as u8).collect());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub sequence: u64,
    pub len: usize,
    pub answer_len: usize,
    /// The backend ends the connection once it has answered.
    pub close: bool,
}

impl Request {
    pub fn head(&self) -> [u8; REQUEST_HEAD] {
        let mut head = [0; REQUEST_HEAD];
        head[..4].copy_from_slice(&MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&(if self.close { CLOSE } else { 0 }).to_le_bytes());
        head[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        head[16..20].copy_from_slice(&(self.len as u32).to_le_bytes());
        head[20..].copy_from_slice(&(self.answer_len as u32).to_le_bytes());
        head
    }

    pub fn parse(head: &[u8]) -> Option<Self> {
        let request = Self {
            sequence: u64::from_le_bytes(head.get(8..16)?.try_into().ok()?),
            len: word(head, 16)? as usize,
            answer_len: word(head, 20)? as usize,
            close: word(head, 4)? & CLOSE != 0,
        };
        let fits = (REQUEST_HEAD..=LONGEST).contains(&request.len)
            && (ANSWER_HEAD..=LONGEST).contains(&request.answer_len);
        (word(head, 0)? == MAGIC && fits).then_some(request)
    }

    pub fn answer_head(&self) -> [u8; ANSWER_HEAD] {
        let mut head = [0; ANSWER_HEAD];
        head[..4].copy_from_slice(&MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&(self.answer_len as u32).to_le_bytes());
        head[8..].copy_from_slice(&self.sequence.to_le_bytes());
        head
    }
}

/// Whether `bytes`, which begin `at` bytes into a message and beyond its head, are what was sent.
pub fn intact(bytes: &[u8], at: usize) -> bool {
    PATTERN.get(at..at + bytes.len()) == Some(bytes)
}

fn word(head: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request { sequence: 7, len: 1024, answer_len: 4096, close: true };

    #[test]
    fn a_request_survives_the_wire() {
        assert_eq!(Request::parse(&REQUEST.head()), Some(REQUEST));
    }

    #[test]
    fn a_foreign_or_oversized_head_is_refused() {
        assert_eq!(Request::parse(b"GET / HTTP/1.1\r\nHost: example"), None);
        assert_eq!(Request::parse(&REQUEST.head()[..20]), None);
        assert_eq!(Request::parse(&Request { answer_len: LONGEST + 1, ..REQUEST }.head()), None);
    }

    #[test]
    fn a_shifted_or_changed_byte_is_noticed() {
        assert!(intact(&PATTERN[100..200], 100));
        assert!(!intact(&PATTERN[101..201], 100));
        assert!(!intact(&PATTERN[..10], LONGEST));
    }
}
