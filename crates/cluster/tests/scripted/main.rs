//! Answers that no real API server gives on demand, given by a scripted one.

mod copies;
mod fuzz_seeds;
mod late_writes;
mod leases;
mod names;
mod needs;
mod reports;
mod server;
mod slices;
mod watches;
