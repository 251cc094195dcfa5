//! Services of a real cluster, served by hosts that are its nodes: from `kubectl create` to an answer outside.

// Logs of processes whose test failed.
#![allow(clippy::print_stderr)]

mod claims;
mod crashes;
mod credentials;
mod deaths;
mod draining;
mod honoured;
mod leaders;
mod load;
mod looking;
mod mistakes;
mod octavia;
mod pods;
mod policies;
mod refusals;
mod restarts;
mod rolling;
mod scene;
mod snapshot;
mod walks;
mod witness;
