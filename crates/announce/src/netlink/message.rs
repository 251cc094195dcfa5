//! Netlink messages as bytes: a header, a fixed part, attributes; all in the byte order of the host.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::io;

use crate::uapi::{NLA_F_NESTED, NLA_TYPE_MASK};

const HEADER: usize = 16;
const ALIGNMENT: usize = 4;

/// A message being written.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    kind: u16,
    bytes: Vec<u8>,
}

impl Request {
    /// `fixed` is the structure that messages of this kind begin with.
    pub(crate) fn new(kind: u16, fixed: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER];
        bytes.extend_from_slice(fixed);
        let mut request = Request { kind, bytes };
        request.pad();
        request
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        self.bytes.extend_from_slice(&self::value(kind, value));
        self
    }

    #[allow(
        clippy::indexing_slicing,
        clippy::expect_used,
        reason = "it is our own, and begins with a header"
    )]
    pub(crate) fn finish(mut self, flags: i32, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("our messages are short");
        let flags = u16::try_from(flags).expect("message flags have sixteen bits");
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[4..6].copy_from_slice(&self.kind.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

/// An attribute within another.
#[allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "it is our own, and short")]
pub(crate) fn value(kind: u16, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + bytes.len()).expect("our attributes are short");
    let mut attribute = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    attribute.extend_from_slice(bytes);
    attribute.resize(attribute.len().next_multiple_of(ALIGNMENT), 0);
    attribute
}

/// One that holds others.
pub(crate) fn nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    value(kind | NLA_F_NESTED, attributes)
}

/// A message that was received.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Data {
        kind: u16,
        payload: &'a [u8],
        /// The kernel's tables changed while this dump was read.
        overtaken: bool,
    },
    /// The end of a dump, or the acknowledgement of a change.
    Done { result: io::Result<()>, overtaken: bool },
    /// An answer to an earlier question, that nobody waits for any more.
    Foreign,
}

/// The messages of one datagram.
#[derive(Debug)]
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
    sequence: Option<u32>,
}

impl<'a> Messages<'a> {
    /// Answers to the request with that sequence number.
    pub(crate) fn of(datagram: &'a [u8], sequence: u32) -> Messages<'a> {
        Messages { rest: datagram, sequence: Some(sequence) }
    }

    /// Notifications of the kernel, which answer no request.
    pub(crate) fn notifications(datagram: &'a [u8]) -> Messages<'a> {
        Messages { rest: datagram, sequence: None }
    }

    fn take(&mut self) -> Option<Message<'a>> {
        let length = usize::try_from(u32_at(self.rest, 0)?).ok()?;
        let (kind, flags) = (u16_at(self.rest, 4)?, i32::from(u16_at(self.rest, 6)?));
        let sequence = u32_at(self.rest, 8)?;
        let payload = self.rest.get(HEADER..length)?;
        let next = length.next_multiple_of(ALIGNMENT).min(self.rest.len());
        self.rest = self.rest.get(next..).unwrap_or_default();
        if self.sequence.is_some_and(|asked| asked != sequence) {
            return Some(Message::Foreign);
        }
        let overtaken = flags & libc::NLM_F_DUMP_INTR != 0;
        Some(match i32::from(kind) {
            libc::NLMSG_NOOP => Message::Foreign,
            libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                // Both may carry an error as a negated number; a dump's end may carry nothing.
                let result = match i32_at(payload, 0).unwrap_or(0) {
                    0 => Ok(()),
                    code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                };
                Message::Done { result, overtaken }
            }
            _ => Message::Data { kind, payload, overtaken },
        })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = io::Result<Message<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = self.take();
        if message.is_none() {
            self.rest = &[];
        }
        Some(message.ok_or_else(malformed))
    }
}

/// The attributes behind a fixed part; ends at the first one that does not fit.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & NLA_TYPE_MASK;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(crate) fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Text as the kernel writes it, with a NUL at its end.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(end.and_then(|end| bytes.get(..end)).unwrap_or(bytes)).into_owned()
}
