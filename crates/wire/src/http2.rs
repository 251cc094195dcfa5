//! HTTP/2 (RFC 9113): frames, fields (HPACK, RFC 7541), streams and windows, without a socket.
//!
//! ```text
//!   bytes ─► Connection::read ─► FrameEvent: a head as lines of HTTP/1.1, data, an end, room to write
//!   head, data, reset         ─► Connection ─► out: frames to be written
//! ```
//!
//! Heads come out as HTTP/1.1 would have said them, for the one strict reader of this crate; what could mean something
//! else there than here (a line's end in a value, a space in a path) is refused before. What we write ourselves uses no
//! table that changes: a field costs its own bytes and no look-up.
//!
//! Memory is bounded by what we allow: streams at a time, bytes of a head, and windows, which open again only as the
//! caller takes what came ([`Connection::release`]). Answers to frames pile up in `out`: who reads on although nobody
//! takes them gets what it deserves.

mod connection;
mod fields;
mod frame;
mod head;
mod huffman;
mod stream_table;
mod table;

pub use connection::{Connection, ConnectionError, FrameEvent, LocalSettings, RequestInfo};
pub use fields::FieldBlock;
pub use frame::{ErrorCode, PREFACE};
pub use stream_table::StreamKey;
