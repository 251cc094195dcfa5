//! The speaker beside routers of other projects, in networks of their own: what they have of us, and what is said of them.
//!
//! They need root, FRR, BIRD and GoBGP. Elsewhere they say that they were skipped; with `CI=true` or `SEAWAY_NET_TESTS=required`
//! they fail instead.

#![allow(clippy::print_stdout, reason = "what was measured, for who asks with --nocapture")]

mod cable;
mod changes;
mod failover;
mod faults;
mod interop;
mod memory;
mod protection;
mod restart;
mod script;
