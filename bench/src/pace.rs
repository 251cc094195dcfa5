//! The clock that open-loop load runs on: nanoseconds since the process first asked.

use std::sync::OnceLock;
use std::time::Instant;

pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// How often a request is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    /// So many are due at once: one, where requests are spread evenly.
    pub burst: u32,
}

impl Rate {
    pub fn even(per_second: f64) -> Self {
        Self { per_second, burst: 1 }
    }
}

/// When the next request is due. A request that could not be sent in time stays due, so its wait counts as latency.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From one burst to the next.
    interval: f64,
    next: f64,
    burst: u32,
    /// Of the present burst.
    left: u32,
}

impl Pace {
    pub fn open_loop(rate: Rate, start: u64) -> Self {
        let burst = rate.burst.max(1);
        Self { interval: 1e9 * f64::from(burst) / rate.per_second, next: start as f64, burst, left: burst }
    }

    /// As fast as answers come back.
    pub fn closed_loop() -> Self {
        Self { interval: 0.0, next: 0.0, burst: 1, left: 1 }
    }

    /// The time at which the next request should go, if that time has come.
    pub fn due(&self, now: u64) -> Option<u64> {
        if self.interval == 0.0 {
            return Some(now);
        }
        (self.next as u64 <= now).then_some(self.next as u64)
    }

    pub fn advance(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.left = self.burst;
            self.next += self.interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_request_keeps_the_time_it_was_due() {
        let mut pace = Pace::open_loop(Rate::even(1_000.0), 0);
        assert_eq!(pace.due(0), Some(0));
        pace.advance();
        assert_eq!(pace.due(999_999), None);
        assert_eq!(pace.due(5_000_000), Some(1_000_000));
        pace.advance();
        assert_eq!(pace.due(5_000_000), Some(2_000_000));
    }

    #[test]
    fn requests_of_a_burst_are_due_at_once_and_the_mean_rate_stays() {
        let mut pace = Pace::open_loop(Rate { per_second: 1_000.0, burst: 50 }, 0);
        let times: Vec<u64> = (0..150)
            .map(|_| {
                let due = pace.due(u64::MAX).unwrap();
                pace.advance();
                due
            })
            .collect();
        assert!(times[..50].iter().all(|it| *it == 0), "{times:?}");
        assert!(times[50..100].iter().all(|it| *it == 50_000_000), "{times:?}");
        assert_eq!(times[100], 100_000_000);
    }

    #[test]
    fn a_closed_loop_is_always_due_now() {
        assert_eq!(Pace::closed_loop().due(42), Some(42));
    }
}
