//! Answers that no real API server gives on demand, given by a scripted one.

mod needs;
mod reports;
mod server;
mod watches;
