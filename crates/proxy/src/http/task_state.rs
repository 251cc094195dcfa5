//! One task of a worker, as it is known from outside: whose it is, what it waits for, and when it has to end.

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use seaway_model::Owner;

use crate::{
    memory::ConnectionMemory,
    running::{RunningListener, RunningMember},
    worker::FairnessKey,
};

pub(super) struct TaskState {
    pub(super) index: Cell<u32>,
    pub(super) is_woken: Cell<bool>,
    deadline: Cell<u64>,
    /// `None`: of the worker itself.
    listener: Option<Arc<RunningListener>>,
    /// Of whom was asked last, where several share the listener.
    route_owner: Cell<Option<FairnessKey>>,
    member: RefCell<Option<Arc<RunningMember>>>,
    /// The member for which it waits, by its place in memory.
    waits_at: Cell<Option<usize>>,
    /// Of the client connection that ends with this task.
    memory: OnceCell<Rc<ConnectionMemory>>,
    /// The client whose stream this is, by the place of its memory.
    client: Option<usize>,
    /// When it began, or was last led to a member.
    pub(super) engaged: Cell<u64>,
    /// How long it may finish, in milliseconds, where that is not as its listener says.
    drain: Cell<Option<u64>>,
    /// How often what it is about has come through here.
    passes: u8,
}

/// Its task has no place yet.
pub(super) const NOWHERE: u32 = u32::MAX;
impl TaskState {
    pub(super) fn new(listener: Option<Arc<RunningListener>>, now: u64) -> TaskState {
        TaskState {
            index: Cell::new(NOWHERE),
            is_woken: Cell::new(false),
            deadline: Cell::new(u64::MAX),
            listener,
            route_owner: Cell::new(None),
            member: RefCell::new(None),
            waits_at: Cell::new(None),
            memory: OnceCell::new(),
            client: None,
            engaged: Cell::new(now),
            drain: Cell::new(None),
            passes: 0,
        }
    }

    pub(super) fn passed(mut self, passes: u8) -> TaskState {
        self.passes = passes;
        self
    }

    /// A stream of that client.
    pub(super) fn of_client(mut self, memory: &Rc<ConnectionMemory>) -> TaskState {
        self.client = Some(Rc::as_ptr(memory) as usize);
        self
    }

    /// All tasks of one client have the same; what has no client is one by itself.
    pub(super) fn client(&self) -> usize {
        let whole = || self.memory.get().map(|memory| Rc::as_ptr(memory) as usize);
        self.client.or_else(whole).unwrap_or(std::ptr::from_ref(self) as usize)
    }

    /// Whose time it uses.
    pub(super) fn fairness_key(&self) -> FairnessKey {
        self.route_owner.get().unwrap_or_else(|| self.key_of_listener())
    }

    fn key_of_listener(&self) -> FairnessKey {
        self.listener.as_ref().map_or_else(FairnessKey::default, |it| it.fairness_key)
    }

    /// What it does from now on, it does for them.
    pub(super) fn charge_to(&self, owner: &Owner) {
        self.route_owner.set(Some(self.key_of_listener().of_route_owner(owner)));
    }

    /// Whether it waits for its turn, as it does from now on.
    pub(super) fn is_woken(&self) -> bool {
        self.is_woken.replace(true)
    }

    pub(super) fn passes(&self) -> u8 {
        self.passes
    }

    /// When too much is held, this task may be the one that has to end.
    pub(super) fn hold(&self, memory: Rc<ConnectionMemory>) {
        // A task has one client at most.
        let _ = self.memory.set(memory);
    }

    /// Notes the member in whose queue the task waits from now on, if any, by its place in memory; `true` if that changed.
    pub(super) fn set_queued_for(&self, place: Option<usize>) -> bool {
        self.waits_at.replace(place) != place
    }

    pub(super) fn is_queued_for(&self, place: usize) -> bool {
        self.waits_at.get() == Some(place)
    }

    /// It has to end: it holds too much.
    pub(super) fn is_evicted(&self) -> bool {
        self.memory.get().is_some_and(|memory| memory.is_evicted())
    }

    /// Where its task is.
    pub(super) fn index(&self) -> u32 {
        self.index.get()
    }

    pub(super) fn set_index(&self, index: u32) {
        self.index.set(index);
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline.get()
    }

    pub(super) fn set_deadline(&self, at: u64) {
        self.deadline.set(at);
    }

    /// It is the one that was counted for this member, until another or none is named.
    pub(super) fn is_on(&self, member: &Arc<RunningMember>) {
        if let Some(before) = self.member.replace(Some(member.clone())) {
            before.end_connection();
        }
    }

    pub(super) fn end_connection(&self) {
        if let Some(before) = self.member.take() {
            before.end_connection();
        }
    }

    /// How long it may finish from now on, if the pool that it is led to says so.
    pub(super) fn drain_within(&self, time: Option<Duration>) {
        self.drain.set(time.map(|it| it.as_millis() as u64));
    }

    /// When its time to finish is over, if its listener was closed, or its member leaves.
    pub(super) fn drained_at(&self) -> Option<u64> {
        let listener = self.listener.as_ref()?;
        let member = self.member.borrow().as_ref().and_then(|member| member.draining_since());
        let since = [member.map(|since| since.max(self.engaged.get())), listener.closed_at()];
        let since = since.into_iter().flatten().min()?;
        let usual = || listener.config().listener.timeouts.drain.as_millis() as u64;
        Some(since.saturating_add(self.drain.get().unwrap_or_else(usual)))
    }
}

impl Drop for TaskState {
    fn drop(&mut self) {
        self.end_connection();
    }
}
