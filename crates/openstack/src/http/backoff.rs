//! How long to wait before trying again.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Attempts of one call, the first included.
    pub attempts: u32,
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { attempts: 5, first: Duration::from_millis(500), longest: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// After so many attempts: twice as long each time, and between half and all of that, so that those who failed
    /// together do not come back together. `chance` is from 0 to 1.
    pub(super) fn pause(&self, attempts: u32, chance: f64) -> Duration {
        let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.longest);
        whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }

    /// The same, where the cloud asked for a pause: never less than that, nor without one of our own, for `0` is no
    /// leave to hammer; and up to a tenth more, for all its clients were asked the same.
    pub(super) fn pause_asked(&self, asked: Option<Duration>, attempts: u32, chance: f64) -> Duration {
        let asked = asked.unwrap_or_default();
        let spread = asked.mul_f64(chance.clamp(0.0, 1.0) / 10.0);
        asked.saturating_add(spread).saturating_add(self.pause(attempts, chance))
    }
}

/// Chance, good enough to spread retries and to tell requests apart.
#[derive(Debug, Default)]
pub(crate) struct RandomSource {
    seed: RandomState,
    rolls: AtomicU64,
}

impl RandomSource {
    pub(crate) fn roll(&self) -> u64 {
        self.seed.hash_one(self.rolls.fetch_add(1, Ordering::Relaxed))
    }

    /// From 0 to 1.
    pub(crate) fn chance(&self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_half_of_each_is_chance() {
        let backoff = Backoff { attempts: 9, ..Backoff::default() };
        let most: Vec<u128> = (1..8).map(|attempts| backoff.pause(attempts, 1.0).as_millis()).collect();
        assert_eq!(most, [500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(backoff.pause(1, 0.0), Duration::from_millis(250));
        assert_eq!(backoff.pause(u32::MAX, 0.0), Duration::from_secs(5), "no number is too large");
    }

    #[test]
    fn a_pause_that_is_asked_for_is_the_least_and_never_the_same_for_all() {
        let backoff = Backoff::default();
        for (asked, least, most) in [(None, 250, 500), (Some(0), 250, 500), (Some(20), 20_250, 22_500)] {
            let asked = asked.map(Duration::from_secs);
            let pause = |chance| backoff.pause_asked(asked, 1, chance).as_millis();
            assert_eq!((pause(0.0), pause(1.0)), (least, most), "{asked:?}");
        }
    }

    #[test]
    fn dice_do_not_repeat_themselves() {
        let random = RandomSource::default();
        let rolls: std::collections::HashSet<u64> = (0..100).map(|_| random.roll()).collect();
        assert_eq!(rolls.len(), 100);
        assert!((0..100).all(|_| (0.0..1.0).contains(&random.chance())));
    }
}
