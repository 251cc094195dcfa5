//! Clients that do the worst to what they share with others: what one of them can hold has a bound, and others are
//! served.
#![allow(clippy::unwrap_used)]

mod apart;
mod attacker;
mod crowds;
mod member;
mod memory;
mod sharing;
mod tunnels;
mod turns;

#[path = "../smuggling/frames.rs"]
#[allow(dead_code)]
mod frames;
#[path = "../floods/ground.rs"]
#[allow(dead_code)]
mod ground;
#[path = "../tcp/stage.rs"]
mod stage;
