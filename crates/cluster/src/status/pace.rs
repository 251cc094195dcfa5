//! How often a status is looked at. Each of 500 hosts says by itself that it serves a Service, and each of these words may make
//! the status another: what comes in quick succession is looked at together.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::time::Instant;

/// So many looks in a row cost no pause: a Service that is made is told at once what becomes of it.
const AT_ONCE: u32 = 6;
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// Without a look for so long, all is as at the start.
const CALM: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct ReadHistory<K>(HashMap<K, Reads>);

#[derive(Debug)]
struct Reads {
    last: Instant,
    in_a_row: u32,
}

impl<K> Default for ReadHistory<K> {
    fn default() -> Self {
        ReadHistory(HashMap::new())
    }
}

impl<K: Eq + Hash + Clone> ReadHistory<K> {
    /// It was looked at just now: how long it is left alone.
    pub(super) fn pause_after_read(&mut self, of: &K, now: Instant) -> Duration {
        let look = self.0.entry(of.clone()).or_insert(Reads { last: now, in_a_row: 0 });
        let is_calm = now.duration_since(look.last) > CALM;
        look.in_a_row = if is_calm { 1 } else { look.in_a_row.saturating_add(1) };
        look.last = now;
        match look.in_a_row.checked_sub(AT_ONCE.saturating_add(1)) {
            Some(more) => FIRST.saturating_mul(1_u32.checked_shl(more).unwrap_or(u32::MAX)).min(LONGEST),
            None => Duration::ZERO,
        }
    }

    pub(super) fn forget(&mut self, of: &K) {
        self.0.remove(of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something is said so often, each time after this: how often it is looked at.
    fn looks(words: u32, apart: Duration) -> u32 {
        let mut looks = ReadHistory::default();
        let (mut now, mut looked, mut rests_until) = (Instant::now(), 0, None);
        let mut waits = false;
        let mut look = |now: Instant, rests_until: &mut Option<Instant>| {
            looked += 1;
            let rest = looks.pause_after_read(&"shop", now);
            *rests_until = (!rest.is_zero()).then(|| now + rest);
        };
        for _ in 0..words {
            match rests_until {
                Some(until) if now < until => waits = true,
                _ => {
                    look(now, &mut rests_until);
                    waits = false;
                }
            }
            now += apart;
        }
        if waits {
            look(now, &mut rests_until);
        }
        looked
    }

    #[test]
    fn what_500_hosts_say_within_seconds_is_looked_at_a_few_times() {
        for (apart, most) in [(1, 16), (2, 16), (10, 20), (20, 30)] {
            let looked = looks(500, Duration::from_millis(apart));
            assert!(looked <= most, "{looked} looks at 500 words within {} s", apart as f32 / 2.0);
        }
    }

    #[test]
    fn what_a_few_say_is_looked_at_at_once() {
        assert_eq!(looks(6, Duration::from_millis(1)), 6);
        assert_eq!(looks(1_000, Duration::from_secs(4)), 1_000, "each by itself");
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let mut looks = ReadHistory::default();
        looks.pause_after_read(&"shop", Instant::now());
        looks.forget(&"shop");
        assert!(looks.0.is_empty());
    }
}
