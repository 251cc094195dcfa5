//! TCP as clients and members see it, over real sockets on loopback.

mod gates;
mod headers;
mod lifecycle;
mod members;
mod relaying;
mod stage;
