//! A real API server, what it tells, and what is written there.

mod access;
mod copies;
mod equal;
mod external_ips;
mod holds;
mod hosts;
mod known_fields;
mod layer2_key;
mod leases;
mod many_hosts;
mod names;
mod policies;
mod restarts;
mod scene;
mod streams;
mod watching;
mod writing;
