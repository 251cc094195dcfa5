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

// Every byte here is somebody else's: what could end the process is asked for by `get` and checked, or has its reason.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub mod fuzz;
pub mod hello;
pub mod http;
pub mod http2;
pub mod proxy;
