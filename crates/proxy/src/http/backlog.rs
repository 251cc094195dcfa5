//! Tasks that were too many for their turn: the next one is of the client that has waited for longest, so that one with
//! thousands delays another by one task.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

pub(super) struct Backlog<T> {
    /// Each client that has any, once.
    clients: VecDeque<usize>,
    waiting: HashMap<usize, VecDeque<T>>,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { clients: VecDeque::new(), waiting: HashMap::new() }
    }
}

impl<T> Backlog<T> {
    pub(super) fn push(&mut self, client: usize, task: T) {
        let waiting = self.waiting.entry(client).or_default();
        if waiting.is_empty() {
            self.clients.push_back(client);
        }
        waiting.push_back(task);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let client = self.clients.pop_front()?;
        let waiting = self.waiting.get_mut(&client)?;
        let task = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.clients.push_back(client);
        }
        task
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

/// What tasks of one kind may take of a turn, before events are looked at again.
pub(super) struct Budget {
    left: usize,
    spent: usize,
    until: Instant,
}

/// Most tasks take a few microseconds; those that open or close a connection take ten times as long.
const TIME: Duration = Duration::from_micros(500);
/// The clock is read after so many of them: it costs as much as a short one.
const UNSEEN: usize = 8;

impl Budget {
    pub(super) fn of(tasks: usize) -> Self {
        Self { left: tasks, spent: 0, until: Instant::now() + TIME }
    }

    /// One has run.
    pub(super) fn spend(&mut self) {
        self.spent += 1;
        let is_over = self.spent.is_multiple_of(UNSEEN) && Instant::now() >= self.until;
        self.left = if is_over { 0 } else { self.left.saturating_sub(1) };
    }

    pub(super) fn is_left(&self) -> bool {
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_many_tasks_delays_others_by_one() {
        let mut backlog = Backlog::default();
        (0..1_000).for_each(|number| backlog.push(1, (1, number)));
        backlog.push(2, (2, 0));
        backlog.push(2, (2, 1));
        backlog.push(3, (3, 0));
        let first: Vec<_> = std::iter::from_fn(|| backlog.pop()).take(7).collect();
        assert_eq!(first, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2), (1, 3)]);
        assert!(!backlog.is_empty());
        assert_eq!(std::iter::from_fn(|| backlog.pop()).count(), 996);
        assert!(backlog.is_empty() && backlog.waiting.is_empty());
    }

    #[test]
    fn tasks_run_until_their_number_or_their_time_is_spent() {
        let ran = |mut budget: Budget| {
            std::iter::from_fn(|| budget.is_left().then(|| budget.spend())).take(1_000).count()
        };
        assert_eq!(
            ran(Budget { left: 64, spent: 0, until: Instant::now() }),
            UNSEEN,
            "the clock is read then"
        );
        let in_time = Instant::now() + Duration::from_secs(3_600);
        assert_eq!(ran(Budget { left: 64, spent: 0, until: in_time }), 64);
        assert_eq!(ran(Budget { left: 0, spent: 0, until: in_time }), 0);
    }
}
