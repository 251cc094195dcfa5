//! As little of HTTP/2 (RFC 9113) and its fields (RFC 7541) as it takes to ask and to answer: a contender does the rest.
//!
//! Fields are written with a table of their own making, as programs do that say the same ones again and again. Those
//! that come are not decoded, but for the status.

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

const INITIAL_WINDOW_SIZE: u16 = 4;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// What a connection may carry before anybody has said more.
pub const FIRST_WINDOW: i64 = 65_535;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'b> {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: &'b [u8],
}

impl<'b> Frame<'b> {
    /// The first frame in `bytes`, with what comes after it, if it is whole.
    pub fn first(bytes: &'b [u8]) -> Option<(Self, &'b [u8])> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (payload, rest) = rest.split_at_checked(length)?;
        let stream = word(&head[5..])? & LARGEST_WINDOW;
        Some((Self { kind: head[3], flags: head[4], stream, payload }, rest))
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.has(END_STREAM)
    }

    /// None of ours, nor any that a contender has a reason for.
    pub fn is_strange(&self) -> bool {
        let padded = matches!(self.kind, DATA | HEADERS) && self.has(PADDED);
        let split = self.kind == HEADERS && !self.has(END_HEADERS);
        padded || split || self.kind == CONTINUATION
    }

    /// What the settings say of the window of each new stream.
    pub fn first_window(&self) -> Option<i64> {
        let settings = self.payload.chunks_exact(6).rev();
        let mut windows = settings.filter(|setting| setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes());
        windows.next().and_then(|setting| word(&setting[2..])).map(i64::from)
    }

    pub fn increment(&self) -> i64 {
        word(self.payload).map_or(0, |number| i64::from(number & LARGEST_WINDOW))
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
}

pub fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// What either side begins with: nothing is pushed, and all that comes is taken at once.
pub fn begin(out: &mut Vec<u8>, client: bool) {
    const NO_PUSH: [u8; 6] = [0, 2, 0, 0, 0, 0];
    put(out, SETTINGS, 0, 0, if client { &[&NO_PUSH] } else { &[] });
    widen(out, LARGEST_WINDOW - FIRST_WINDOW as u32);
}

/// Opens the connection's window by what was taken.
pub fn widen(out: &mut Vec<u8>, by: u32) {
    put(out, WINDOW_UPDATE, 0, 0, &[&by.to_be_bytes()]);
}

/// Taken before the window is opened again.
pub const MOST_TAKEN: u32 = 1 << 30;

/// A field by the number of its name in the static table, to be remembered (RFC 7541, section 6.2.1).
pub fn remember(out: &mut Vec<u8>, name: u8, value: &[u8]) {
    out.push(0x40 | name);
    text(out, value);
}

/// A field that no table knows, to be remembered.
pub fn remember_new(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0x40);
    text(out, name);
    text(out, value);
}

/// A field that is another in each request.
pub fn say(out: &mut Vec<u8>, name: u8, value: &[u8]) {
    debug_assert!(name < 15, "more needs a second byte");
    out.push(name);
    text(out, value);
}

fn text(out: &mut Vec<u8>, value: &[u8]) {
    debug_assert!(value.len() < 127, "more needs a second byte");
    out.push(value.len() as u8);
    out.extend_from_slice(value);
}

/// Whether fields begin with `:status: 200`, as everybody writes that.
pub fn is_ok(fields: &[u8]) -> bool {
    // Changes of the table's size go before it.
    fields.iter().find(|byte| **byte & 0xe0 != 0x20) == Some(&0x88)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_the_wire_and_half_of_one_is_none() {
        let mut out = Vec::new();
        put(&mut out, DATA, END_STREAM, 5, &[b"ab", b"c"]);
        put(&mut out, PING, 0, 0, &[b"12345678"]);
        let (frame, rest) = Frame::first(&out).unwrap();
        assert_eq!(frame, Frame { kind: DATA, flags: END_STREAM, stream: 5, payload: b"abc" });
        assert!(frame.ends_stream());
        assert_eq!(Frame::first(rest).unwrap().0.kind, PING);
        assert_eq!(Frame::first(&rest[..rest.len() - 1]), None);
    }

    #[test]
    fn ok_is_known_behind_changes_of_the_table() {
        assert!(is_ok(&[0x88, 0x40]));
        assert!(is_ok(&[0x20, 0x3f, 0x88]) || !is_ok(&[0x8d]));
        assert!(!is_ok(&[0x8d]));
    }
}
