//! HTTP/2 that a client says byte by byte.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
};

use crate::{frames::*, stage::connect};

pub(crate) const WINDOW_UPDATE: u8 = 8;
/// A setting of the first window: no stream waits for one.
const WIDE: [u8; 6] = [0, 4, 0x7f, 255, 255, 255];

/// A question, byte by byte.
pub(crate) fn asked(method: &'static [u8], path: &[u8], flags: u8, stream: u32) -> Vec<u8> {
    let fields = [(&b":method"[..], method), (b":scheme", b"http"), (b":authority", b"a"), (b":path", path)];
    frame(HEADERS, END_HEADERS | flags, stream, &block(&fields))
}

/// A connection that takes all there is, by its windows.
pub(crate) fn wide(at: SocketAddr) -> TcpStream {
    let mut stream = connect(at);
    let more = frame(WINDOW_UPDATE, 0, 0, &(i32::MAX as u32 - (1 << 20)).to_be_bytes());
    stream.write_all(&[&hello()[..], &frame(SETTINGS, 0, 0, &WIDE), &more].concat()).unwrap();
    stream
}
