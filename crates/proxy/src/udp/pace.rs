//! Letting datagrams gather: what a network card does with its interrupts, done once more.
//!
//! At tens of thousands of datagrams per second, waking up for each of them costs more than forwarding it. A worker
//! that is this busy, and with nothing but datagrams, takes a breath of [`BREATH`] after each turn, and finds several
//! of them then. A datagram waits that long at most, on each of its two ways; where there are few, nobody waits.

use std::time::Duration;

pub(crate) const BREATH: Duration = Duration::from_micros(50);
/// Datagrams per millisecond, both ways together, from which on it is worth it.
const BRISK: u64 = 16;
/// A turn that had so many needs no more of them at once.
const ENOUGH: u32 = 32;
/// Milliseconds over which the rate is taken.
const WINDOW: u64 = 16;

#[derive(Default)]
pub(super) struct Pace {
    since: u64,
    count: u64,
    is_brisk: bool,
    /// In the last turn.
    last: u32,
}

impl Pace {
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

    pub(super) fn wants_a_breath(&self) -> bool {
        self.is_brisk && (1..ENOUGH).contains(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(per_millisecond: u32) -> Pace {
        let mut pace = Pace::default();
        for now in 1000..1100 {
            pace.note(per_millisecond, now);
        }
        pace
    }

    #[test]
    fn few_datagrams_never_wait() {
        assert!(!after(15).wants_a_breath());
    }

    #[test]
    fn many_gather_until_they_are_enough_at_once() {
        assert!(after(20).wants_a_breath());
        assert!(!after(40).wants_a_breath());
    }

    #[test]
    fn after_a_lull_nobody_waits() {
        let mut pace = after(20);
        pace.note(1, 1200);
        assert!(!pace.wants_a_breath());
        let mut pace = after(20);
        pace.note(0, 1100);
        assert!(!pace.wants_a_breath());
    }
}
