//! When somebody last wanted something, told by many threads at next to no cost; and that nobody does.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Relaxed},
};

/// Without use for so long, it is at rest (milliseconds).
const IDLE: u64 = 60_000;
/// So often at most a use is written down.
const EXACTNESS: u64 = 1_000;
/// Instead of a time.
const AT_REST: u64 = u64::MAX;
const NEVER: u64 = 0;

/// One user of many who come at once learns that he has ended a rest: it is one number, and changes in whole.
pub(super) struct LastUse(AtomicU64);

impl LastUse {
    pub(super) fn never() -> LastUse {
        LastUse(AtomicU64::new(NEVER))
    }

    /// Whether this is the use that ends a rest.
    pub(super) fn is_now(&self, now: u64) -> bool {
        let before = self.0.load(Relaxed);
        let is_told = before != AT_REST && now < before.saturating_add(EXACTNESS);
        !is_told && self.0.swap(now, AcqRel) == AT_REST
    }

    /// Begins a rest if the time has come for it and nobody `goes_on`; tells whether it is at rest.
    pub(super) fn suspend_if_idle(&self, now: u64, goes_on: impl FnOnce() -> bool) -> bool {
        let before = self.0.load(Relaxed);
        if before == AT_REST {
            return true;
        }
        if before != NEVER && now < before.saturating_add(IDLE) {
            return false;
        }
        if goes_on() {
            self.0.fetch_max(now, Relaxed);
            return false;
        }
        // Whoever comes at this moment wins.
        self.0.compare_exchange(before, AT_REST, AcqRel, Relaxed).is_ok()
    }

    pub(super) fn are_checks_suspended(&self) -> bool {
        self.0.load(Relaxed) == AT_REST
    }
}
