//! The clock that open-loop load runs on: nanoseconds since the process first asked.

use std::sync::OnceLock;
use std::time::Instant;

pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// When the next request is due. A request that could not be sent in time stays due, so its wait counts as latency.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    interval: f64,
    next: f64,
}

impl Pace {
    pub fn open_loop(per_second: f64, start: u64) -> Self {
        Self { interval: 1e9 / per_second, next: start as f64 }
    }

    /// As fast as answers come back.
    pub fn closed_loop() -> Self {
        Self { interval: 0.0, next: 0.0 }
    }

    /// The time at which the next request should go, if that time has come.
    pub fn due(&self, now: u64) -> Option<u64> {
        if self.interval == 0.0 {
            return Some(now);
        }
        (self.next as u64 <= now).then_some(self.next as u64)
    }

    pub fn advance(&mut self) {
        self.next += self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_request_keeps_the_time_it_was_due() {
        let mut pace = Pace::open_loop(1_000.0, 0);
        assert_eq!(pace.due(0), Some(0));
        pace.advance();
        assert_eq!(pace.due(999_999), None);
        assert_eq!(pace.due(5_000_000), Some(1_000_000));
        pace.advance();
        assert_eq!(pace.due(5_000_000), Some(2_000_000));
    }

    #[test]
    fn a_closed_loop_is_always_due_now() {
        assert_eq!(Pace::closed_loop().due(42), Some(42));
    }
}
