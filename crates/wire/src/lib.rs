//! Bytes to meaning and back.
//!
//! ```text
//!   bytes from a socket ──► parse ──► Need(n) | Header | Invalid(reason)
//!   bytes for a socket  ◄── encode ◄── Origin
//! ```
//!
//! Everything here is pure: a parser looks at a slice and says what it means, and it says the same
//! however the slice was cut on its way. Memory is bounded by the caller's buffer and by limits
//! that are checked as soon as a length is announced, never by what a peer sends.
//!
//! What this crate does not know: sockets, timers, who is trusted to send a PROXY header, and what
//! happens to a connection whose header is invalid.

pub mod fuzz;
pub mod hello;
pub mod http;
pub mod http2;
pub mod proxy;
