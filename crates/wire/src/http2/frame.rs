//! Frames: nine bytes that say what follows.

/// How a client begins (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const HEAD: usize = 9;
/// What everybody takes, and more than which nobody sends us.
pub(super) const LARGEST: usize = 16 << 10;
pub(super) const LARGEST_NUMBER: u32 = (1 << 31) - 1;

pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(super) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

pub(super) mod setting {
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MOST_STREAMS: u16 = 3;
    pub(crate) const FIRST_WINDOW: u16 = 4;
    pub(crate) const LARGEST_FRAME: u16 = 5;
    pub(crate) const LARGEST_HEAD: u16 = 6;
    /// RFC 8441.
    pub(crate) const CONNECT_PROTOCOL: u16 = 8;
}

/// Why a stream or a connection ends (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    pub const NONE: ErrorCode = ErrorCode(0);
    pub const PROTOCOL: ErrorCode = ErrorCode(1);
    pub const INTERNAL: ErrorCode = ErrorCode(2);
    pub const FLOW_CONTROL: ErrorCode = ErrorCode(3);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    pub const FRAME_SIZE: ErrorCode = ErrorCode(6);
    /// It was not looked at, and may be asked again.
    pub const REFUSED: ErrorCode = ErrorCode(7);
    pub const CANCEL: ErrorCode = ErrorCode(8);
    pub const COMPRESSION: ErrorCode = ErrorCode(9);
    pub const TOO_MUCH: ErrorCode = ErrorCode(11);
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'b> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: &'b [u8],
}

/// What is at the start of some bytes.
pub(super) enum FrameStart<'b> {
    More,
    TooLarge,
    Frame(Frame<'b>),
}

impl<'b> Frame<'b> {
    pub(super) fn first(bytes: &'b [u8]) -> FrameStart<'b> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return FrameStart::More };
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if length > LARGEST {
            return FrameStart::TooLarge;
        }
        let Some(payload) = rest.get(..length) else { return FrameStart::More };
        let stream = number(&head[5..]) & LARGEST_NUMBER;
        FrameStart::Frame(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Without what only fills it. `None`: there is more filling than frame.
    pub(super) fn without_padding(&self) -> Option<&'b [u8]> {
        if !self.has(flag::PADDED) {
            return Some(self.payload);
        }
        let (padding, rest) = self.payload.split_first()?;
        rest.get(..rest.len().checked_sub(usize::from(*padding))?)
    }
}

/// The first four bytes; fewer are none.
pub(super) fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

pub(super) fn put_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    debug_assert!(length <= LARGEST);
    let length = (length as u32).to_be_bytes();
    let id = stream.to_be_bytes();
    out.extend_from_slice(&[length[1], length[2], length[3], kind, flags, id[0], id[1], id[2], id[3]]);
}

pub(super) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    put_head(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

pub(super) fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    put_head(out, settings.len().saturating_mul(6), kind::SETTINGS, 0, 0);
    for (which, value) in settings {
        out.extend_from_slice(&which.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn put_reset(out: &mut Vec<u8>, stream: u32, reason: ErrorCode) {
    put(out, kind::RST_STREAM, 0, stream, &reason.0.to_be_bytes());
}

pub(super) fn put_goaway(out: &mut Vec<u8>, last: u32, reason: ErrorCode) {
    put_head(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Lets the peer send so much more; on stream 0, on all of them together.
pub(super) fn put_window_update(out: &mut Vec<u8>, stream: u32, by: u32) {
    put(out, kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
}
