//! Facts in, plans out: no cluster, no clock, no socket.

mod checks;
mod cluster;
mod fuzz_seeds;
mod histories;
mod loops;
mod members;
mod properties;
mod served_before;
mod shares;
mod slices;
mod sources;
mod weights;
mod world;
