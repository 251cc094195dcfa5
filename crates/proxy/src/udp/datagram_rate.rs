//! Letting datagrams gather: what a network card does with its interrupts, done once more.
//!
//! At tens of thousands of datagrams per second, waking up for each of them costs more than forwarding it. A worker
//! that is this busy, and with nothing but datagrams, waits for [`BATCH_DELAY`] after each turn, and finds several
//! of them then. A datagram waits that long at most, on each of its two ways; where there are few, nobody waits.

use std::time::Duration;

pub(crate) const BATCH_DELAY: Duration = Duration::from_micros(50);
/// Datagrams per millisecond, both ways together, from which on it is worth it.
const BRISK: u64 = 16;
/// A turn that had so many needs no more of them at once.
const ENOUGH: u32 = 32;
/// Milliseconds over which the rate is taken.
const WINDOW: u64 = 16;

#[derive(Default)]
pub(super) struct DatagramRate {
    since: u64,
    count: u64,
    is_brisk: bool,
    /// In the last turn.
    last: u32,
}

impl DatagramRate {
    /// A turn has ended.
    pub(super) fn note(&mut self, datagrams: u32, now: u64) {
        self.last = datagrams;
        self.count = self.count.saturating_add(u64::from(datagrams));
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= WINDOW {
            self.is_brisk = self.count >= elapsed.saturating_mul(BRISK);
            (self.since, self.count) = (now, 0);
        }
    }

    pub(super) fn should_batch(&self) -> bool {
        self.is_brisk && (1..ENOUGH).contains(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(per_millisecond: u32) -> DatagramRate {
        let mut rate = DatagramRate::default();
        for now in 1000..1100 {
            rate.note(per_millisecond, now);
        }
        rate
    }

    #[test]
    fn few_datagrams_never_wait() {
        assert!(!after(15).should_batch());
    }

    #[test]
    fn many_gather_until_they_are_enough_at_once() {
        assert!(after(20).should_batch());
        assert!(!after(40).should_batch());
    }

    #[test]
    fn after_a_lull_nobody_waits() {
        let mut rate = after(20);
        rate.note(1, 1200);
        assert!(!rate.should_batch());
        let mut rate = after(20);
        rate.note(0, 1100);
        assert!(!rate.should_batch());
    }
}
