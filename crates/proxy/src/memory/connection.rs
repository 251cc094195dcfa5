//! The memory of one worker, of one client connection, and of one thing that it holds.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use super::{BATCH, MemoryBudget};
use crate::worker::Slab;

/// Of one thread.
pub(crate) struct WorkerMemory {
    pub(crate) budget: Arc<MemoryBudget>,
    held: Cell<i64>,
    /// What the process knows of it.
    reported: Cell<i64>,
    connections: RefCell<Slab<Rc<ConnectionMemory>>>,
    /// Before that no connection is looked for that holds too much.
    evicts_at: Cell<u64>,
}

/// Of one client connection, all its streams together.
pub(crate) struct ConnectionMemory {
    worker: Rc<WorkerMemory>,
    held: Cell<usize>,
    most: usize,
    /// Bytes that members may send beyond what each stream has from the start.
    windows: Cell<u32>,
    /// When the client last took something, or something was taken from it.
    progressed: Cell<u64>,
    is_evicted: Cell<bool>,
    /// Where the worker has it; `None`: it is the worker's own, or the client is gone.
    place: Cell<Option<u32>>,
}

/// What one thing holds; it is given back with it.
pub(crate) struct Reservation {
    of: Rc<ConnectionMemory>,
    bytes: Cell<usize>,
}

/// A client that takes something every now and then is not the first to go.
const STALLED: u64 = 500;
/// Looking at all connections costs time: not in every turn.
const EVICT_EVERY: u64 = 50;
const MOST_EVICTED: usize = 64;

impl WorkerMemory {
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Rc<WorkerMemory> {
        Rc::new(WorkerMemory {
            budget,
            held: Cell::new(0),
            reported: Cell::new(0),
            connections: RefCell::default(),
            evicts_at: Cell::new(0),
        })
    }

    fn add(&self, bytes: i64) {
        let held = self.held.get().saturating_add(bytes);
        self.held.set(held);
        let change = held.saturating_sub(self.reported.get());
        if change.abs() >= BATCH {
            self.reported.set(held);
            self.budget.add(change);
        }
    }

    /// For a client that has just come.
    pub(crate) fn connection(self: &Rc<Self>, now: u64) -> Rc<ConnectionMemory> {
        let memory = Rc::new(self.unlisted(self.budget.per_connection() as usize, now));
        let mut connections = self.connections.borrow_mut();
        memory.place.set(Some(connections.insert(memory.clone())));
        memory
    }

    /// For what all clients of the worker share.
    pub(crate) fn shared(self: &Rc<Self>) -> Rc<ConnectionMemory> {
        Rc::new(self.unlisted(usize::MAX, 0))
    }

    fn unlisted(self: &Rc<Self>, most: usize, now: u64) -> ConnectionMemory {
        ConnectionMemory {
            worker: self.clone(),
            held: Cell::new(0),
            most,
            windows: Cell::new(0),
            progressed: Cell::new(now),
            is_evicted: Cell::new(false),
            place: Cell::new(None),
        }
    }

    /// Chooses connections that have to end, while more is held than may be: those that hold most and have taken
    /// nothing for longest. Tells how many; they find out by [`ConnectionMemory::is_evicted`].
    pub(crate) fn evict(&self, now: u64) -> usize {
        let excess = self.budget.excess();
        if excess == 0 || now < self.evicts_at.get() {
            return 0;
        }
        self.evicts_at.set(now.saturating_add(EVICT_EVERY));
        let mut connections = self.connections.borrow_mut();
        let indexes = connections.indexes();
        let all: usize = indexes.iter().filter_map(|it| Some(connections.get_mut(*it)?.held.get())).sum();
        let half_of_usual = all.checked_div(indexes.len()).unwrap_or_default() / 2;
        let mut worst: Vec<(u64, u32)> = Vec::new();
        for index in indexes {
            let Some(memory) = connections.get_mut(index) else { continue };
            let stalled = now.saturating_sub(memory.progressed.get());
            let is_small = memory.held.get() < half_of_usual;
            if stalled >= STALLED && !is_small && !memory.is_evicted.get() {
                worst.push((stalled.saturating_mul(memory.held.get() as u64), index));
            }
        }
        worst.sort_unstable_by(|a, b| b.cmp(a));
        let (mut freed, mut count) = (0_u64, 0_usize);
        for (_, index) in worst.into_iter().take(MOST_EVICTED) {
            let Some(memory) = connections.get_mut(index) else { continue };
            memory.is_evicted.set(true);
            self.budget.evicted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            count = count.saturating_add(1);
            freed = freed.saturating_add(memory.held.get() as u64);
            if freed >= excess {
                break;
            }
        }
        count
    }

    /// For how many milliseconds the worker can do without a look at it.
    pub(crate) fn next_timeout(&self, now: u64) -> Option<u64> {
        if self.budget.excess() > 0 {
            return Some(EVICT_EVERY);
        }
        self.budget.trims_at(now).map(|at| at.saturating_sub(now).max(1))
    }
}

impl Drop for WorkerMemory {
    fn drop(&mut self) {
        self.budget.add(self.reported.get().saturating_neg());
    }
}

impl ConnectionMemory {
    /// The client is gone; what it holds yet goes with those that have it.
    pub(crate) fn leave(&self) {
        if let Some(place) = self.place.take() {
            self.worker.connections.borrow_mut().remove(place);
        }
    }

    pub(crate) fn reserve(self: &Rc<Self>, bytes: usize) -> Reservation {
        let reservation = Reservation { of: self.clone(), bytes: Cell::new(0) };
        reservation.set(bytes);
        reservation
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// It has room for so much more, and so has the process.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        let most = self.most.saturating_add(self.most / 16);
        self.held.get().saturating_add(bytes) <= most && !self.worker.budget.is_used_up()
    }

    /// Half of what it may hold is held: from now on every byte counts.
    pub(crate) fn is_tight(&self) -> bool {
        self.held.get() > self.most / 2
    }

    /// More is held than it may, by what nothing else bounds.
    pub(crate) fn is_over(&self) -> bool {
        self.held.get() > self.most.saturating_add(self.most / 4)
    }

    /// A quarter of what it may hold is held: it gets no room that is larger than it needs.
    pub(crate) fn is_filling(&self) -> bool {
        self.held.get() > self.most / 4
    }

    pub(crate) fn progressed(&self, now: u64) {
        self.progressed.set(now);
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.is_evicted.get()
    }

    /// More of a window for one of its streams at a member, as far as there is any: never all that is left, since
    /// others may come.
    pub(crate) fn lend_window(&self, wanted: u32) -> u32 {
        let all = u32::try_from(self.most / 8).unwrap_or(u32::MAX);
        let left = all.saturating_sub(self.windows.get());
        let lent = wanted.min(left / 4);
        self.windows.set(self.windows.get().saturating_add(lent));
        lent
    }

    pub(crate) fn return_window(&self, lent: u32) {
        self.windows.set(self.windows.get().saturating_sub(lent));
    }
}

impl Reservation {
    /// From now on it is so much.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.bytes.replace(bytes);
        if bytes != before {
            self.of.held.set(self.of.held.get().saturating_add(bytes).saturating_sub(before));
            self.of.worker.add((bytes as i64).saturating_sub(before as i64));
        }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.set(self.bytes.get().saturating_add(bytes));
    }

    pub(crate) fn of(&self) -> &Rc<ConnectionMemory> {
        &self.of
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{MemoryBudget, MemoryLimits},
        *,
    };

    fn worker(total: u64) -> Rc<WorkerMemory> {
        let limits = MemoryLimits { total: Some(total), per_connection: None };
        WorkerMemory::new(Arc::new(MemoryBudget::new(limits)))
    }

    #[test]
    fn what_is_held_is_counted_and_given_back() {
        let worker = worker(1 << 30);
        let one = worker.connection(0);
        let held = one.reserve(1 << 20);
        assert_eq!(worker.budget.used(), 1 << 20);
        assert!(one.is_tight() && !one.is_over() && !one.admits(129 << 10));
        held.set(300 << 10);
        assert_eq!((worker.budget.used(), one.is_tight(), one.admits(1)), (300 << 10, false, true));
        drop(held);
        assert_eq!(worker.budget.used(), 0);
    }

    #[test]
    fn small_changes_are_no_concern_of_other_threads() {
        let worker = worker(1 << 30);
        let one = worker.connection(0);
        let small = one.reserve(10 << 10);
        assert_eq!(worker.budget.used(), 0);
        let more = one.reserve(60 << 10);
        assert_eq!(worker.budget.used(), 70 << 10);
        drop((small, more));
        assert_eq!(worker.budget.used(), 0);
    }

    #[test]
    fn those_that_hold_most_for_longest_go_first() {
        let worker = worker(1 << 20);
        let (large, small, busy) = (worker.connection(0), worker.connection(0), worker.connection(0));
        let held = [large.reserve(900 << 10), small.reserve(100 << 10), busy.reserve(900 << 10)];
        busy.progressed(9_900);
        assert_eq!(worker.evict(10_000), 1, "the others may stay once it is gone");
        assert!(large.is_evicted() && !small.is_evicted() && !busy.is_evicted());
        assert_eq!(worker.evict(10_001), 0, "it takes a moment");
        drop(held);
        assert_eq!(worker.evict(20_000), 0);
        [large, small, busy].iter().for_each(|it| it.leave());
    }

    #[test]
    fn windows_are_never_all_lent() {
        let worker = worker(1 << 30);
        let one = worker.connection(0);
        let lent: Vec<u32> = (0..200).map(|_| one.lend_window(64 << 10)).collect();
        assert_eq!(lent[0], 32 << 10);
        assert!(lent.iter().sum::<u32>() <= 128 << 10 && lent[5] > 4 << 10, "{lent:?}");
        one.return_window(lent[0]);
        assert!(one.lend_window(64 << 10) > 7 << 10);
    }
}
