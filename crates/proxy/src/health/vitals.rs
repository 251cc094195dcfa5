//! What is known of one member's health: a few atomics that the data path reads and reports to.

use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Something with a health of its own: the runtime state of a member embeds its [`Vitals`], so that a picker
/// finds them in the cache line it reads anyway.
pub trait Patient: Send + Sync {
    fn vitals(&self) -> &Vitals;
}

/// One member's health in one pool. It outlives swaps of the pool, and only the prober's thread changes its verdict.
#[derive(Debug)]
pub struct Vitals {
    /// Which one the data path means when it complains.
    id: u64,
    verdict: AtomicU8,
    /// Failures in a row on the data path.
    failures: AtomicU32,
    /// When it last came back, in milliseconds of [`super::millis`]; 0 if it never fell.
    back_at: AtomicU64,
    ejections: AtomicU64,
    falls: AtomicU64,
}

const DOWN: u8 = 1;
const EJECTED: u8 = 2;

/// Why a member is used or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Nothing speaks against it: a new member serves at once.
    Up,
    /// Its checks failed.
    Down,
    /// The traffic itself failed.
    Ejected,
}

impl Health {
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Up => "up",
            Health::Down => "down",
            Health::Ejected => "ejected",
        }
    }
}

impl Default for Vitals {
    fn default() -> Vitals {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Vitals {
            id: NEXT.fetch_add(1, Relaxed),
            verdict: AtomicU8::new(0),
            failures: AtomicU32::new(0),
            back_at: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            falls: AtomicU64::new(0),
        }
    }
}

impl Vitals {
    /// May it get something new?
    #[inline]
    pub fn usable(&self) -> bool {
        self.verdict.load(Acquire) == 0
    }

    pub fn health(&self) -> Health {
        let verdict = self.verdict.load(Acquire);
        if verdict & DOWN != 0 {
            Health::Down
        } else if verdict & EJECTED != 0 {
            Health::Ejected
        } else {
            Health::Up
        }
    }

    /// When it last became usable again (slow start counts from here), if it ever was not.
    pub fn back_at(&self) -> Option<u64> {
        match self.back_at.load(Relaxed) {
            0 => None,
            at => Some(at),
        }
    }

    /// How often its checks took it down.
    pub fn falls(&self) -> u64 {
        self.falls.load(Relaxed)
    }

    /// How often the traffic got it ejected.
    pub fn ejections(&self) -> u64 {
        self.ejections.load(Relaxed)
    }

    /// The data path reached it. One relaxed load while all is well.
    #[inline]
    pub fn succeeded(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// The data path failed at it (refused, timed out, reset before an answer). True when this completes
    /// `limit` failures in a row: exactly one caller is then told so, and reports it by [`super::Prober::suspect`].
    #[inline]
    pub fn failed(&self, limit: u8) -> bool {
        let limit = u32::from(limit);
        let before = self.failures.fetch_add(1, Relaxed);
        if limit == 0 || before + 1 < limit || !self.usable() {
            return false;
        }
        // Counting begins anew, so a report that the prober declines (the last one standing) is repeated.
        self.failures.swap(0, AcqRel) >= limit
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn set_down(&self, down: bool, now: u64) {
        if down {
            self.falls.fetch_add(1, Relaxed);
        }
        self.set(DOWN, down, now);
    }

    pub(super) fn set_ejected(&self, ejected: bool, now: u64) {
        if ejected {
            self.ejections.fetch_add(1, Relaxed);
        }
        self.set(EJECTED, ejected, now);
    }

    /// Only the prober's thread comes here.
    fn set(&self, bit: u8, on: bool, now: u64) {
        let before = self.verdict.load(Acquire);
        let after = if on { before | bit } else { before & !bit };
        if before != 0 && after == 0 {
            self.back_at.store(now.max(1), Relaxed);
            self.failures.store(0, Relaxed);
        }
        self.verdict.store(after, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_member_is_usable_and_never_came_back() {
        let vitals = Vitals::default();
        assert!(vitals.usable());
        assert_eq!(vitals.health(), Health::Up);
        assert_eq!(vitals.back_at(), None);
    }

    #[test]
    fn it_is_usable_again_only_when_nothing_speaks_against_it() {
        let vitals = Vitals::default();
        vitals.set_down(true, 1);
        vitals.set_ejected(true, 2);
        vitals.set_down(false, 3);
        assert_eq!(vitals.health(), Health::Ejected);
        assert_eq!(vitals.back_at(), None);
        vitals.set_ejected(false, 4);
        assert!(vitals.usable());
        assert_eq!(vitals.back_at(), Some(4));
        assert_eq!((vitals.falls(), vitals.ejections()), (1, 1));
    }

    #[test]
    fn only_failures_in_a_row_count() {
        let vitals = Vitals::default();
        assert!(!vitals.failed(3));
        assert!(!vitals.failed(3));
        vitals.succeeded();
        assert!(!vitals.failed(3));
        assert!(!vitals.failed(3));
        assert!(vitals.failed(3));
        assert!(!vitals.failed(3), "counting begins anew");
    }

    #[test]
    fn without_a_limit_nothing_is_ever_reported() {
        let vitals = Vitals::default();
        assert!((0..1000).all(|_| !vitals.failed(0)));
    }
}
