//! How much work is done before events are looked at again.

use std::time::{Duration, Instant};

/// What tasks of one kind may take of a turn, before events are looked at again.
pub(crate) struct Budget {
    left: usize,
    spent: usize,
    until: Instant,
    /// When the piece that runs began, where each is timed.
    began: Option<Instant>,
}

/// Most tasks take a few microseconds; those that open or close a connection take ten times as long.
const TIME: Duration = Duration::from_micros(500);
/// Where several share a worker: what comes meanwhile waits for it, each time that one of its events does.
const SHARED: Duration = Duration::from_micros(100);
/// The clock is read after so many of them: it costs as much as a short one.
const UNSEEN: usize = 8;

#[allow(clippy::arithmetic_side_effects, reason = "the clock has room for a millisecond more")]
impl Budget {
    pub(crate) fn of(tasks: usize) -> Self {
        Self { left: tasks, spent: 0, until: Instant::now() + TIME, began: None }
    }

    /// Of work of several who are told apart by the time that they use: as much as there is time for.
    pub(crate) fn timed() -> Self {
        let now = Instant::now();
        Self { left: usize::MAX, spent: 0, until: now + SHARED, began: Some(now) }
    }

    /// One has run, for so long.
    pub(crate) fn spend_time(&mut self) -> Duration {
        let now = Instant::now();
        if now >= self.until {
            self.left = 0;
        }
        self.began.replace(now).map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }

    /// One has run.
    pub(crate) fn spend(&mut self) {
        self.spent = self.spent.saturating_add(1);
        let is_over = self.spent.is_multiple_of(UNSEEN) && Instant::now() >= self.until;
        self.left = if is_over { 0 } else { self.left.saturating_sub(1) };
    }

    pub(crate) fn is_left(&self) -> bool {
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_until_their_number_or_their_time_is_spent() {
        let ran = |mut budget: Budget| {
            std::iter::from_fn(|| budget.is_left().then(|| budget.spend())).take(1_000).count()
        };
        assert_eq!(
            ran(Budget { left: 64, spent: 0, until: Instant::now(), began: None }),
            UNSEEN,
            "the clock is read then"
        );
        let in_time = Instant::now() + Duration::from_secs(3_600);
        assert_eq!(ran(Budget { left: 64, spent: 0, until: in_time, began: None }), 64);
        assert_eq!(ran(Budget { left: 0, spent: 0, until: in_time, began: None }), 0);
    }
}
