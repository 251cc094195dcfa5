//! Requests and replies.

/// Counts and times of calls.
#[derive(Clone, Debug, Default)]
pub struct Metrics {}
