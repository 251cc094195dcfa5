//! HTTP as clients and members see it, over real sockets on loopback.
#![allow(clippy::unwrap_used)]

mod access;
mod bodies;
mod changing;
mod client_rates;
mod client_tls;
mod ends;
mod forward_auth;
#[path = "../smuggling/frames.rs"]
#[allow(dead_code)]
mod frames;
mod framing;
mod guards;
mod handshakes;
mod heads;
mod interim;
mod introduced;
mod latency;
mod limits;
mod members;
mod members_tls;

mod passwords;
mod peer;
mod queues;
mod raw;
mod reuse;
mod rules;
mod scene;
mod shares;
#[path = "../tcp/stage.rs"]
mod stage;
mod sticky;
mod streams;
mod through;
mod times;
mod tls;
mod trunks;
mod tunnels;
mod validations;
