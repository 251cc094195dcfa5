//! What the status page, its guarded port and its probes answer, asked through real sockets.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../sample/api_server.rs"]
mod api_server;
#[path = "../sample/client.rs"]
mod client;
mod fuzz_seeds;
mod golden;
mod guarded;
mod metrics;
mod page;
mod paths;
mod probes;
#[path = "../sample/view.rs"]
mod view;
