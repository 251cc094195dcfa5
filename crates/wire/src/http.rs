//! HTTP/1.1 (RFC 9110, RFC 9112), strictly: what two readers might understand in two ways is refused here, so that
//! nobody behind us is asked to.
//!
//! ```text
//!   bytes ─► Request::read  ─► More | Whole: method, target, fields, body | Refused(400, 414, 431, 501, 505)
//!   bytes ─► Response::read ─► the same, of a backend
//!   bytes ─► Chunks::next   ─► Data | Trailers | More | Refused
//! ```
//!
//! A head is read into a value that its connection keeps, as places in the bytes: nothing is copied, and nothing is
//! allocated from the second request on.
//!
//! Refused, though others take it: a line that ends with LF alone; a folded field; white space before a colon;
//! Content-Length with Transfer-Encoding, or twice, even if they agree; any coding but `chunked`; a field or a target
//! with control bytes; a path with dot segments, however they are spelled; more than one Host, or none.
//!
//! Not passed on, though it is read: what is for one hop; `Content_Length` and its like, which some take for another
//! field; trailers that frame, lead or identify; an upgrade to HTTP/2, or one with a body.

pub(crate) mod bytes;
mod chunked;
mod field;
mod framing;
mod head;
mod request;
mod response;
mod status;
mod target;

pub use chunked::{ChunkPiece, ChunkedDecoder};
pub use field::{Field, KnownHeader, may_trail};
pub use framing::BodyFraming;
pub use head::{ByteRange, HeadError, Limits, ReadProgress, Version};
pub use request::{Method, Request};
pub use response::Response;
pub use status::{STATUS_LINE_MAX, StatusLine, status};
