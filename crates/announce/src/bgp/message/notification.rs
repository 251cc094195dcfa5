//! Why a session ends, in numbers and in words.

use std::fmt;

use super::{NOTIFICATION, write};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) code: u8,
    pub(crate) subcode: u8,
    data: Vec<u8>,
}

/// What is kept of a peer's.
const MOST_DATA: usize = 256;
const CEASE: u8 = 6;
/// Of Cease: they carry a text (RFC 9003).
const SHUTDOWN: u8 = 2;
const RESET: u8 = 4;

impl Notification {
    pub(crate) const NOT_SYNCHRONIZED: Notification = Notification::new(1, 1);
    pub(crate) const BAD_OPEN: Notification = Notification::new(2, 0);
    pub(crate) const BAD_AS: Notification = Notification::new(2, 2);
    pub(crate) const BAD_IDENTIFIER: Notification = Notification::new(2, 3);
    pub(crate) const BAD_HOLD_TIME: Notification = Notification::new(2, 6);
    pub(crate) const MALFORMED_ATTRIBUTES: Notification = Notification::new(3, 1);
    pub(crate) const BAD_PREFIXES: Notification = Notification::new(3, 10);
    pub(crate) const HOLD_TIMER: Notification = Notification::new(4, 0);
    /// RFC 9687.
    pub(crate) const SEND_HOLD_TIMER: Notification = Notification::new(8, 0);
    pub(crate) const REMOVED: Notification = Notification::new(CEASE, 3);
    /// RFC 9384.
    pub(crate) const BFD_DOWN: Notification = Notification::new(CEASE, 10);
    pub(crate) const CHANGED: Notification = Notification::new(CEASE, 6);

    const fn new(code: u8, subcode: u8) -> Notification {
        Notification { code, subcode, data: Vec::new() }
    }

    pub(crate) fn with(code: u8, subcode: u8, data: &[u8]) -> Notification {
        Notification { code, subcode, data: data.to_vec() }
    }

    /// A message that was not expected: in OpenSent, OpenConfirm, or Established (RFC 6608).
    pub(crate) fn unexpected(state: u8) -> Notification {
        Notification::new(5, state)
    }

    pub(crate) fn shut_down(why: &str) -> Notification {
        let mut data = vec![u8::try_from(why.len()).unwrap_or(0)];
        if data != [0] {
            data.extend_from_slice(why.as_bytes());
        }
        Notification { code: CEASE, subcode: SHUTDOWN, data }
    }

    pub(super) fn read(body: &[u8]) -> Notification {
        let (code, subcode) = (body.first().copied().unwrap_or(0), body.get(1).copied().unwrap_or(0));
        let data = body.get(2..).unwrap_or_default();
        Notification { code, subcode, data: data.get(..MOST_DATA).unwrap_or(data).to_vec() }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write(NOTIFICATION, &[&[self.code, self.subcode], &self.data], out);
    }

    /// Of the peer's operator, as it is safe to print.
    fn text(&self) -> Option<String> {
        let is_with_text = self.code == CEASE && matches!(self.subcode, SHUTDOWN | RESET);
        let (length, text) = self.data.split_first().filter(|_| is_with_text)?;
        let text = text.get(..usize::from(*length)).filter(|it| !it.is_empty())?;
        let is_safe = |it: &char| !it.is_control();
        Some(String::from_utf8_lossy(text).chars().filter(is_safe).collect())
    }

    fn words(&self) -> (&'static str, &'static str) {
        match self.code {
            1 => (
                "message header error",
                match self.subcode {
                    1 => "connection not synchronized",
                    2 => "bad message length",
                    3 => "bad message type",
                    _ => "",
                },
            ),
            2 => (
                "OPEN message error",
                match self.subcode {
                    1 => "unsupported version number",
                    2 => "bad peer AS",
                    3 => "bad BGP identifier",
                    4 => "unsupported optional parameter",
                    5 => "authentication failure",
                    6 => "unacceptable hold time",
                    7 => "unsupported capability",
                    _ => "",
                },
            ),
            3 => (
                "UPDATE message error",
                match self.subcode {
                    1 => "malformed attribute list",
                    2 => "unrecognized well-known attribute",
                    3 => "missing well-known attribute",
                    4 => "attribute flags error",
                    5 => "attribute length error",
                    6 => "invalid ORIGIN",
                    8 => "invalid NEXT_HOP",
                    9 => "optional attribute error",
                    10 => "invalid network field",
                    11 => "malformed AS_PATH",
                    _ => "",
                },
            ),
            4 => ("hold timer expired", ""),
            5 => (
                "finite state machine error",
                match self.subcode {
                    1 => "unexpected message in OpenSent",
                    2 => "unexpected message in OpenConfirm",
                    3 => "unexpected message in Established",
                    _ => "",
                },
            ),
            CEASE => (
                "Cease",
                match self.subcode {
                    1 => "maximum number of prefixes reached",
                    2 => "administrative shutdown",
                    3 => "peer de-configured",
                    4 => "administrative reset",
                    5 => "connection rejected",
                    6 => "other configuration change",
                    7 => "connection collision resolution",
                    8 => "out of resources",
                    9 => "hard reset",
                    10 => "BFD down",
                    _ => "",
                },
            ),
            7 => ("ROUTE-REFRESH message error", ""),
            8 => ("send hold timer expired", ""),
            _ => ("unknown error", ""),
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, which) = self.words();
        f.write_str(kind)?;
        if !which.is_empty() {
            write!(f, ": {which}")?;
        }
        write!(f, " ({}/{})", self.code, self.subcode)?;
        match self.text() {
            Some(text) => write!(f, ": \"{text}\""),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_at_its_end_is_told_in_words() {
        let told = |body: &[u8]| Notification::read(body).to_string();
        assert_eq!(told(&[2, 2, 0, 7]), "OPEN message error: bad peer AS (2/2)");
        assert_eq!(told(&[4, 0]), "hold timer expired (4/0)");
        assert_eq!(
            told(b"\x06\x02\x08upgrade\x07and more"),
            "Cease: administrative shutdown (6/2): \"upgrade\"",
            "no control characters, and no more than it says"
        );
        assert_eq!(told(b"\x06\x02\xffcut"), "Cease: administrative shutdown (6/2)");
        assert_eq!(told(&[99, 1]), "unknown error (99/1)");
        let ours = Notification::shut_down("seaway stops");
        let mut sent = Vec::new();
        ours.write(&mut sent);
        assert_eq!(
            super::super::read(&sent),
            Ok(Some((super::super::Message::Notification(ours), sent.len())))
        );
    }
}
