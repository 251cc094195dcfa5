//! HAProxy while it runs: what it is told through its sockets, and what it says.
//!
//! ```text
//!     Command ─► Line, Line, … ─► RuntimeApiConnection ─► HAProxy
//!                  └─ Expected ◄─ replies()
//! ```
//! HAProxy has no status codes: whether a command did anything is in the words of its reply, and each command has its own.

pub mod commands;
pub mod observed;
pub mod reply;
pub mod socket;
pub mod statistics;

pub use commands::Command;
pub use socket::{RuntimeApiConnection, SocketError};
pub use statistics::{Counters, Statistics};
