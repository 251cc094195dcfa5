//! The queue of a pool: clients that wait while each member has as many connections as it may have.
//!
//! ```text
//!   no member has room ──► join ──► called, in order, when a connection of a member ends ──► choose again
//!                            │                                                               │ another was faster
//!                            └──► its time is over: turned away                              └──► first in the queue
//! ```
//!
//! A call is a chance and no promise: room is taken by [`RunningMember::try_engage`] alone, so no member ever has more than it may.
//! One that is called and ends before it has used that calls the next.
//!
//! [`RunningMember::try_engage`]: super::RunningMember::try_engage

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence},
    },
};

use crate::worker::{Command, Mailbox, Token};

/// Clients that wait for one pool. More are turned away at once: their memory is bounded, and so is their patience.
const MOST_WAITING: usize = 1024;

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<Arc<Ticket>>>,
    /// Of `waiting`, read without its lock.
    length: AtomicUsize,
}

struct Ticket {
    worker: Arc<Mailbox>,
    place: Place,
    is_called: AtomicBool,
}

/// Where a client waits, at its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Connection(Token),
    /// A task of HTTP.
    Task(u32),
}

/// A client in the queue. Dropped, it leaves.
pub(crate) struct Waiting {
    queue: Arc<Queue>,
    ticket: Arc<Ticket>,
}

impl Queue {
    /// `None`: too many wait already.
    pub(crate) fn join(self: &Arc<Queue>, worker: Arc<Mailbox>, place: Place) -> Option<Waiting> {
        let mut waiting = self.lock();
        if waiting.len() >= MOST_WAITING {
            return None;
        }
        let ticket = Arc::new(Ticket { worker, place, is_called: AtomicBool::new(false) });
        waiting.push_back(ticket.clone());
        self.changed(&waiting);
        drop(waiting);
        Some(Waiting { queue: self.clone(), ticket })
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.length() > 0
    }

    pub(crate) fn length(&self) -> usize {
        self.length.load(Relaxed)
    }

    /// A member has one connection less.
    pub(super) fn one_ended(&self) {
        // Whoever joins looks at the members after that, and we at the queue after the member was left: one sees the other.
        fence(SeqCst);
        if self.has_waiting() {
            self.call();
        }
    }

    /// The first that waits tries again.
    pub(crate) fn call(&self) {
        let mut waiting = self.lock();
        let Some(ticket) = waiting.pop_front() else { return };
        self.changed(&waiting);
        drop(waiting);
        ticket.is_called.store(true, SeqCst);
        ticket.worker.post([Command::Called(ticket.place)]);
    }

    fn changed(&self, waiting: &VecDeque<Arc<Ticket>>) {
        self.length.store(waiting.len(), SeqCst);
        fence(SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Ticket>>> {
        // The list is whole after every operation on it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    pub(crate) fn is_called(&self) -> bool {
        self.ticket.is_called.load(SeqCst)
    }

    /// Another was faster: it is the next to be called again.
    pub(crate) fn rejoin(&self) {
        let mut waiting = self.queue.lock();
        if self.ticket.is_called.swap(false, SeqCst) {
            waiting.push_front(self.ticket.clone());
            self.queue.changed(&waiting);
        }
    }

    /// It has a member.
    pub(crate) fn served(self) {
        self.leave();
        // Nobody else is called for what it has taken.
        self.ticket.is_called.store(false, SeqCst);
    }

    fn leave(&self) {
        let mut waiting = self.queue.lock();
        waiting.retain(|it| !Arc::ptr_eq(it, &self.ticket));
        self.queue.changed(&waiting);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.leave();
        if self.is_called() {
            self.queue.call();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (Arc<Queue>, Arc<Mailbox>) {
        (Arc::default(), Arc::new(Mailbox::new().expect("a mailbox")))
    }

    fn called(mailbox: &Mailbox) -> Vec<Place> {
        let place = |it: Command| match it {
            Command::Called(place) => Some(place),
            _ => None,
        };
        mailbox.collect().into_iter().filter_map(place).collect()
    }

    #[test]
    fn clients_are_called_in_the_order_in_which_they_came() {
        let (queue, mailbox) = queue();
        let waiting: Vec<_> =
            (0..3).map(|it| queue.join(mailbox.clone(), Place::Task(it)).expect("there is room")).collect();
        assert_eq!(called(&mailbox), []);
        queue.one_ended();
        assert_eq!(called(&mailbox), [Place::Task(0)]);
        assert_eq!(waiting.iter().map(Waiting::is_called).collect::<Vec<_>>(), [true, false, false]);
        waiting[0].rejoin();
        queue.one_ended();
        queue.one_ended();
        assert_eq!(called(&mailbox), [Place::Task(0), Place::Task(1)], "who came too late keeps its place");
    }

    #[test]
    fn a_call_that_is_not_used_goes_to_the_next() {
        let (queue, mailbox) = queue();
        let join = |it| queue.join(mailbox.clone(), Place::Task(it)).expect("there is room");
        let (first, second, third) = (join(0), join(1), join(2));
        queue.one_ended();
        drop(first);
        assert_eq!(called(&mailbox), [Place::Task(0), Place::Task(1)]);
        second.served();
        assert_eq!(called(&mailbox), [], "what was used is nobody else's");
        drop(third);
        assert!(!queue.has_waiting());
        queue.one_ended();
        assert_eq!(called(&mailbox), []);
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let (queue, mailbox) = queue();
        let mut waiting: Vec<_> =
            (0..).map_while(|it| queue.join(mailbox.clone(), Place::Task(it))).collect();
        assert_eq!(waiting.len(), MOST_WAITING);
        waiting.pop();
        assert!(queue.join(mailbox, Place::Task(7)).is_some());
    }
}
