//! Clients that want too much, say it too slowly, or take too little: each is ended or costs no more than its place,
//! memory stays where it was, and others are served.
#![allow(clippy::unwrap_used)]

mod floods;
mod ground;
mod many_connections;
mod slow;

#[path = "../smuggling/frames.rs"]
#[allow(dead_code)]
mod frames;
#[path = "../tcp/stage.rs"]
mod stage;

/// One after another; `walk_crowd` has more patience.
const CONNECTIONS: usize = 3_000;
