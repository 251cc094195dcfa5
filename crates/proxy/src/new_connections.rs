//! Limits new connections: where they become many in a second, no namespace takes all that a host can accept.
//!
//! As with descriptors, nobody is refused below four fifths of what is to be shared, and who is alone has all. From there on a
//! namespace has its share of the second: all, divided by those that ask in this second or did in the one before, and one more.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Milliseconds without which the next refusal is news.
const EPISODE: u64 = 60_000;

/// Of the whole process.
#[derive(Default)]
pub(crate) struct NewConnectionLimiter {
    /// In a second; 0: as many as come.
    most: AtomicU64,
    all: PerSecond,
    /// Namespaces that ask.
    asking: PerSecond,
    reported_at: AtomicU64,
}

/// How many there were in this second and in the one before, in one number: `second before now`.
#[derive(Default)]
pub(crate) struct PerSecond(AtomicU64);

const BITS: u32 = 22;
const MOST: u64 = (1 << BITS) - 1;

impl NewConnectionLimiter {
    pub(crate) fn set_limit(&self, most: u64) {
        self.most.store(most, Relaxed);
    }

    /// One more, of whoever `of` counts for. `now` is in milliseconds.
    pub(crate) fn admit(&self, of: &PerSecond, now: u64) -> bool {
        let most = self.most.load(Relaxed);
        if most == 0 {
            return true;
        }
        let second = now / 1000;
        let (own_before, own) = of.add(second);
        if own == 1 {
            self.asking.add(second);
        }
        let (_, all) = self.all.add(second);
        if all <= (most / 5).saturating_mul(4) {
            return true;
        }
        let (before, asking) = self.asking.at(second);
        let asking = asking.max(before.saturating_add(u64::from(own_before == 0)));
        asking < 2 || own <= most.checked_div(asking.saturating_add(1)).unwrap_or_default()
    }

    /// Whether to report that connections are refused.
    pub(crate) fn should_report(&self, now: u64) -> bool {
        let before = self.reported_at.swap(now, Relaxed);
        before == 0 || now.saturating_sub(before) > EPISODE
    }
}

impl PerSecond {
    /// Before and now, with this one.
    fn add(&self, second: u64) -> (u64, u64) {
        let add = |packed| {
            let (before, now) = PerSecond::read(packed, second);
            Some(PerSecond::packed(second) | before << BITS | now.saturating_add(1).min(MOST))
        };
        let packed = self.0.fetch_update(Relaxed, Relaxed, add).unwrap_or_else(|it| it);
        let (before, now) = PerSecond::read(packed, second);
        (before, now.saturating_add(1))
    }

    fn at(&self, second: u64) -> (u64, u64) {
        PerSecond::read(self.0.load(Relaxed), second)
    }

    fn read(packed: u64, second: u64) -> (u64, u64) {
        let (before, now) = (packed >> BITS & MOST, packed & MOST);
        let of = |second| packed & !(MOST << BITS | MOST) == PerSecond::packed(second);
        match (of(second), of(second.wrapping_sub(1))) {
            (true, _) => (before, now),
            (false, true) => (now, 0),
            (false, false) => (0, 0),
        }
    }

    /// It begins anew every twelve days.
    fn packed(second: u64) -> u64 {
        second << (2 * BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many come in.
    fn come(limiter: &NewConnectionLimiter, of: &PerSecond, count: usize, now: u64) -> usize {
        (0..count).filter(|_| limiter.admit(of, now)).count()
    }

    fn sharing(most: u64) -> NewConnectionLimiter {
        let limiter = NewConnectionLimiter::default();
        limiter.set_limit(most);
        limiter
    }

    #[test]
    fn nobody_is_counted_where_nothing_is_shared() {
        let (limiter, one, other) =
            (NewConnectionLimiter::default(), PerSecond::default(), PerSecond::default());
        assert_eq!(come(&limiter, &one, 10_000, 5_000) + come(&limiter, &other, 10_000, 5_000), 20_000);
    }

    #[test]
    fn who_is_alone_has_all() {
        let (limiter, one) = (sharing(100), PerSecond::default());
        assert_eq!(come(&limiter, &one, 1_000, 5_000), 1_000);
    }

    #[test]
    fn beside_one_who_floods_others_come_in_up_to_their_share() {
        let (limiter, flood, one) = (sharing(1_000), PerSecond::default(), PerSecond::default());
        assert_eq!(come(&limiter, &one, 1, 4_500), 1);
        for second in 5..20 {
            let flooded = come(&limiter, &flood, 50_000, second * 1_000);
            assert_eq!((flooded, come(&limiter, &one, 300, second * 1_000 + 900)), (800, 300), "{second}");
        }
        assert_eq!(come(&limiter, &one, 100, 20_000) + come(&limiter, &flood, 900, 20_100), 800);
        assert_eq!(come(&limiter, &one, 300, 20_200), 233, "a third");
        // The other has gone.
        assert_eq!(come(&limiter, &one, 5_000, 22_000), 5_000);
    }

    #[test]
    fn a_second_without_anybody_is_not_the_one_before() {
        let count = PerSecond::default();
        assert_eq!((count.add(7), count.add(7), count.at(8), count.at(9)), ((0, 1), (0, 2), (2, 0), (0, 0)));
        assert_eq!((count.add(8), count.add(11)), ((2, 1), (0, 1)));
        assert_eq!(
            (count.add(1 << 20), count.at(1 << 30)),
            ((0, 1), (0, 1)),
            "so far apart they are the same"
        );
    }
}
