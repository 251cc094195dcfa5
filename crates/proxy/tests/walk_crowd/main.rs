//! A hundred thousand connections, which take most of a minute.
#![allow(clippy::unwrap_used)]

#[path = "../smuggling/frames.rs"]
#[allow(dead_code)]
mod frames;
#[path = "../floods/ground.rs"]
#[allow(dead_code)]
mod ground;
#[path = "../floods/many_connections.rs"]
mod many_connections;
#[path = "../tcp/stage.rs"]
mod stage;

const CONNECTIONS: usize = 100_000;
