//! Moments that are not there yet.

use std::time::Duration;

use tokio::time::Instant;

/// So much later than now; at once, if no clock goes that far.
pub(crate) fn later(pause: Duration) -> Instant {
    later_than(Instant::now(), pause)
}

pub(crate) fn later_than(moment: Instant, pause: Duration) -> Instant {
    moment.checked_add(pause).unwrap_or(moment)
}
