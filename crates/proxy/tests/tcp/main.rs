//! TCP as clients and members see it, over real sockets on loopback.
#![allow(clippy::unwrap_used)]

mod access;
mod gates;
mod headers;
mod lifecycle;
mod members;
mod queues;
mod relaying;
mod stage;
