//! The queue of a pool: clients that wait while each member has as many connections as it may have.
//!
//! ```text
//!   no member has room ──► join ──► a connection of a member ends, or the pool changes:
//!                           │       the first that a member has room for gets it, and its worker is told
//!                           └──► its time is over: turned away
//! ```
//!
//! What a client gets is room that is taken already (see [`RunningMember::try_begin_connection`]), so nobody else can take it
//! meanwhile, and no member ever has more than it may. A client that ends without using it gives it back.
//!
//! [`RunningMember::try_begin_connection`]: super::RunningMember::try_begin_connection

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence},
    },
};

use seaway_snapshot::{Cursor, MemberCookie};

use super::RunningMember;
use crate::worker::{Mailbox, Token, WorkerCommand};

/// Clients that wait for one pool. More are turned away at once: their memory is bounded.
pub(super) const MOST_WAITING: usize = 1024;

#[derive(Default)]
pub(super) struct ClientQueue {
    list: Mutex<WaitList>,
    /// How many wait in the list, read without its lock.
    length: AtomicUsize,
}

#[derive(Default)]
pub(super) struct WaitList {
    pub(super) waiting: VecDeque<Arc<QueueTicket>>,
    /// Of these, those that want one member, or not all of them.
    pub(super) restricted: usize,
    pub(super) cursor: Cursor,
    /// When members were last looked at for them.
    pub(super) looked_at: u64,
}

pub(super) struct QueueTicket {
    pub(super) request: SelectionRequest,
    worker: Arc<Mailbox>,
    waiter: WaiterId,
    /// `None`: there is no member to wait for.
    outcome: OnceLock<Option<Arc<RunningMember>>>,
    is_used: AtomicBool,
}

/// What a client asks of a pool: any member, the one that its cookie names, or one that it has not tried.
pub(crate) struct SelectionRequest {
    pub(crate) client: IpAddr,
    /// Names the member that it keeps.
    pub(crate) cookie: Option<MemberCookie>,
    /// Members that did not answer it.
    pub(crate) tried: Vec<Arc<RunningMember>>,
}

impl SelectionRequest {
    /// Not every member that has room will do.
    pub(super) fn is_restricted(&self) -> bool {
        self.cookie.is_some() || !self.tried.is_empty()
    }
}

/// Which client of its worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterId {
    Connection(Token),
    /// A task of HTTP.
    Task(u32),
}

impl ClientQueue {
    pub(super) fn length(&self) -> usize {
        self.length.load(Relaxed)
    }

    /// The same for who has just left a member: whoever joins looks at the members after that, so that one sees the other.
    pub(super) fn has_waiting(&self) -> bool {
        fence(SeqCst);
        self.length() > 0
    }

    /// `None`: too many wait already.
    pub(super) fn join(
        &self,
        request: SelectionRequest,
        worker: Arc<Mailbox>,
        waiter: WaiterId,
    ) -> Option<Arc<QueueTicket>> {
        let mut list = self.lock();
        if list.waiting.len() >= MOST_WAITING {
            return None;
        }
        let (outcome, is_used) = (OnceLock::new(), AtomicBool::new(false));
        list.restricted = list.restricted.saturating_add(usize::from(request.is_restricted()));
        let ticket = Arc::new(QueueTicket { request, worker, waiter, outcome, is_used });
        list.waiting.push_back(ticket.clone());
        self.changed(&list);
        Some(ticket)
    }

    pub(super) fn leave(&self, ticket: &Arc<QueueTicket>) {
        if ticket.outcome.get().is_none() {
            let mut list = self.lock();
            if let Some(at) = list.waiting.iter().position(|it| Arc::ptr_eq(it, ticket)) {
                list.waiting.remove(at);
                list.restricted = list.restricted.saturating_sub(usize::from(ticket.request.is_restricted()));
            }
            self.changed(&list);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, WaitList> {
        // The list is whole after every operation on it.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changed(&self, list: &WaitList) {
        self.length.store(list.waiting.len(), SeqCst);
        fence(SeqCst);
    }
}

impl QueueTicket {
    /// Only with the list locked, and only once.
    pub(super) fn resolve(&self, outcome: Option<Arc<RunningMember>>) {
        let _ = self.outcome.set(outcome);
    }

    /// After that, without the lock.
    pub(super) fn tell_worker(&self) {
        self.worker.post([WorkerCommand::WakeWaiter(self.waiter)]);
    }

    /// Its member, on which it counts from then on; `Some(None)`: nobody serves.
    pub(super) fn outcome(&self) -> Option<Option<Arc<RunningMember>>> {
        let outcome = self.outcome.get()?.clone();
        self.is_used.store(true, SeqCst);
        Some(outcome)
    }

    pub(super) fn is_settled(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// What it was given and has not used.
    pub(super) fn unused(&self) -> Option<&Arc<RunningMember>> {
        self.outcome.get()?.as_ref().filter(|_| !self.is_used.load(SeqCst))
    }
}
