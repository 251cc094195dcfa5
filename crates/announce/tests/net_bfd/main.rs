//! BFD with others' daemons, FRR's bfdd and BIRD, on a cable: up, down as soon as agreed, and down on purpose.
//!
//! They need root, and the packages frr and bird2. Elsewhere they say that they were skipped; with `CI=true` or
//! `SEAWAY_NET_TESTS=required` they fail instead.

#![allow(clippy::print_stdout, reason = "how soon a peer was lost, for who asks with --nocapture")]

mod cable;
mod daemons;
mod sessions;
