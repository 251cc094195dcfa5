//! HTTP as clients and members see it, over real sockets on loopback.
#![allow(clippy::unwrap_used)]

mod access;
mod bodies;
mod changing;
mod framing;
mod heads;
mod interim;
mod introduced;
mod limits;
mod members;
mod members_tls;
mod peer;
mod rules;
mod scene;
#[path = "../tcp/stage.rs"]
mod stage;
mod sticky;
mod streams;
mod through;
mod times;
mod tls;
mod trunks;
mod tunnels;
