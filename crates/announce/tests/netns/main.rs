//! Against the kernel, each test in a network namespace of its own, which ends with its thread.
//!
//! They need root. Elsewhere they say that they were skipped; with `CI=true` or
//! `SEAWAY_NET_TESTS=required` they fail instead.

mod addresses;
mod guard;
mod scene;
mod translation;
