//! Moments and durations that no clock or cloud can make overflow.

use std::time::{Duration, Instant};

/// A year: for who must wait longer than a clock can tell.
const FAR: Duration = Duration::from_secs(365 * 86_400);

pub(super) fn later(moment: Instant, pause: Duration) -> Instant {
    moment.checked_add(pause).or_else(|| moment.checked_add(FAR)).unwrap_or(moment)
}

pub(super) fn half(duration: Duration) -> Duration {
    duration.checked_div(2).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_must_wait_for_ever_waits_for_long() {
        let now = Instant::now();
        assert_eq!(later(now, Duration::from_secs(5)), now + Duration::from_secs(5));
        assert!(later(now, Duration::MAX) > now + FAR / 2);
        assert_eq!(half(Duration::from_secs(3)), Duration::from_millis(1_500));
    }
}
