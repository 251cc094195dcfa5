//! Facts in, plans out: no cluster, no clock, no socket.

mod cluster;
mod fuzz_seeds;
mod loops;
mod members;
mod sources;
mod world;
