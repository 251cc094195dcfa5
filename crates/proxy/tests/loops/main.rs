//! Services that lead to themselves, directly or through others: what one client can make of them is bounded, it ends
//! with the client, and others are served meanwhile.
#![allow(clippy::unwrap_used)]

mod datagrams;
mod requests;
mod rings;
#[path = "../tcp/stage.rs"]
mod stage;
mod streams;
