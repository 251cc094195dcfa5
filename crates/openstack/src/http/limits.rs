//! How many requests a cloud gets from us: per second, and at once.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock::Clock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// On average; as many again may come at once after a pause.
    pub per_second: u32,
    pub in_flight: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { per_second: 50, in_flight: 32 }
    }
}

/// Lets requests through as the limits allow, in the order in which they came.
pub(crate) struct RequestLimiter {
    places: Semaphore,
    interval: Duration,
    burst: Duration,
    /// When the next request would be due, were all of them evenly spread (GCRA, the leaky bucket as a meter).
    due: Mutex<Option<Instant>>,
}

impl RequestLimiter {
    pub(crate) fn new(limits: Limits) -> RequestLimiter {
        let interval =
            Duration::from_secs(1).checked_div(limits.per_second).unwrap_or(Duration::from_secs(1));
        RequestLimiter {
            places: Semaphore::new(limits.in_flight.clamp(1, Semaphore::MAX_PERMITS)),
            interval,
            burst: Duration::from_secs(1).saturating_sub(interval),
            due: Mutex::new(None),
        }
    }

    /// Waits until one more request may leave. It counts as under way until what is returned is dropped.
    pub(crate) async fn acquire(&self, clock: &dyn Clock) -> SemaphorePermit<'_> {
        #[allow(clippy::expect_used, reason = "nothing closes it")]
        let place = self.places.acquire().await.expect("the semaphore is never closed");
        let wait = self.reserve(clock.now());
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
        place
    }

    fn reserve(&self, now: Instant) -> Duration {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = due.map_or(now, |due| due.max(now));
        *due = mine.checked_add(self.interval);
        mine.saturating_duration_since(now).saturating_sub(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_one_second_passes_and_the_rest_is_spread() {
        let gate = RequestLimiter::new(Limits { per_second: 10, in_flight: 1 });
        let start = Instant::now();
        let waits: Vec<u128> = (0..13).map(|_| gate.reserve(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 300]);
        let later = start + Duration::from_secs(60);
        assert_eq!(gate.reserve(later), Duration::ZERO, "a pause is forgiven");
    }
}
