//! A real API server, what it tells, and what is written there.

mod access;
mod equal;
mod hosts;
mod leases;
mod scene;
mod watching;
mod writing;
