//! Three machines and a client on one bridge: who answers for an address by ARP and NDP, and how soon another does.
//!
//! They need root. Elsewhere they say that they were skipped; with `CI=true` or `SEAWAY_NET_TESTS=required` they fail instead.

#![allow(clippy::print_stdout, reason = "what a fail-over took, for who asks with --nocapture")]

mod clients;
mod failover;
mod host;
mod lan;
mod manners;
