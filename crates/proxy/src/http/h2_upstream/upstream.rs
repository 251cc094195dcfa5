//! Connections of HTTP/2 to one member: how many there are, which takes the next request, and who gets a stream.
//!
//! A client connection may have more streams at a member as long as it has fewer than half of those that are free on the
//! usual connections. For those that have few, further connections are made: many that take all they can leave some for
//! others, and one alone gets nearly all that is usual. Those that have none yet go first. When there is nothing left at
//! all, a stream makes room that has not moved for longest, since its client or the member does not take what waits.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::poll_fn,
    rc::{Rc, Weak},
    sync::Arc,
    task::Poll,
};

use super::{
    super::{
        h2_connection::H2Connection, serve::DownstreamClient, task_state::TaskState,
        worker_context::WorkerContext,
    },
    handle::H2Handle,
    stalled::StalledConnections,
};
use crate::{memory::ConnectionMemory, running::RunningMember, worker::Slab};

/// Connections to one member that take requests, for all its clients; and for those that have few streams, while no
/// other has one free.
const USUAL_CONNECTIONS: usize = 8;
const MOST_CONNECTIONS: usize = 64;
/// What a client may have although the usual connections have none free.
const FEW_OF_MANY: u32 = 16;
/// Those that are stuck stay until their streams have ended, and are so many at most.
const MOST_STUCK: usize = 3 * USUAL_CONNECTIONS;
/// A connection with less of a window than this is none for another body.
const LOW_WINDOW: i64 = 16 << 10;
/// A client with more streams than this opens no further connection for the sake of windows.
const FEW_STREAMS: u32 = 2;
/// As the wire assumes of a member that has said nothing yet.
const USUAL_STREAMS: usize = 100;
/// In milliseconds: a stream that could not move for so long makes room for who has fewer.
const STALLED: u64 = 1_000;
/// All streams are looked at no more often than this, and so many make room at a time.
const RECLAIM_EVERY: u64 = 20;
const MOST_RECLAIMED: usize = 64;
const NEVER: u64 = u64::MAX;
/// Who waits looks again after so many milliseconds: by then a connection may be found to be stalled.
const LOOK_AGAIN: u64 = 1_000;

/// A worker's HTTP/2 connections to one member, the streams on them, and who waits for one.
pub(in super::super) struct Upstream {
    context: Weak<WorkerContext>,
    member: Arc<RunningMember>,
    connections: RefCell<Vec<H2Handle>>,
    /// Taken out of those above because they were stalled.
    stalled: StalledConnections,
    /// Connections that are being made.
    opening: Cell<usize>,
    /// Streams that a connection has, as far as any has said.
    usual: Cell<usize>,
    /// Streams that clients have, together and each, by the place of its memory.
    streams: Cell<usize>,
    by_client: RefCell<HashMap<usize, u32>>,
    claims: RefCell<Slab<StreamClaim>>,
    reclaims_at: Cell<u64>,
    /// Who waits for a connection and has a place, who has no stream yet, and who has some.
    placed: RefCell<VecDeque<Rc<TaskState>>>,
    newcomers: RefCell<VecDeque<Rc<TaskState>>>,
    others: RefCell<VecDeque<Rc<TaskState>>>,
}

/// Reserves a stream of a client at a member, from before it is opened until it is over.
pub(in super::super) struct StreamReservation {
    upstream: Rc<Upstream>,
    client: Rc<ConnectionMemory>,
    claim: u32,
}

/// What other clients need to know of a reserved stream.
struct StreamClaim {
    client: usize,
    /// Its task.
    task_state: Rc<TaskState>,
    /// Since when something waits that is not taken.
    stalled: u64,
    is_reclaimed: bool,
}

/// The connection by which the next request goes.
pub(super) enum NextConnection {
    Existing(H2Handle),
    Open(OpeningGuard),
    /// No connection is free in time.
    Unavailable,
    /// The client is gone.
    ClientGone,
}

/// Counts a connection that is being made.
pub(super) struct OpeningGuard(Rc<Upstream>);

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get().saturating_sub(1));
        self.0.wake_some(MOST_CONNECTIONS);
    }
}

/// Wakes those that wait when a connection has ended.
pub(super) struct ConnectionGuard(Rc<Upstream>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.wake_some(MOST_CONNECTIONS);
    }
}

impl Upstream {
    pub(super) fn new(context: &Rc<WorkerContext>, member: &Arc<RunningMember>) -> Rc<Upstream> {
        Rc::new(Upstream {
            context: Rc::downgrade(context),
            member: member.clone(),
            connections: RefCell::default(),
            stalled: StalledConnections::default(),
            opening: Cell::new(0),
            usual: Cell::new(USUAL_STREAMS),
            streams: Cell::new(0),
            by_client: RefCell::default(),
            claims: RefCell::default(),
            reclaims_at: Cell::new(0),
            placed: RefCell::default(),
            newcomers: RefCell::default(),
            others: RefCell::default(),
        })
    }

    pub(super) fn member(&self) -> &Arc<RunningMember> {
        &self.member
    }

    /// Its connections end when nobody asks by them any more.
    pub(super) fn close(&self) {
        let all = self.connections.take();
        drop(all);
    }

    pub(super) fn add(&self, h2: &H2Handle) {
        let mut all = self.connections.borrow_mut();
        // One that was made although there were enough is for its request alone.
        if all.len() < MOST_CONNECTIONS {
            all.push(h2.clone());
        }
        drop(all);
        self.wake_some(MOST_CONNECTIONS);
    }

    /// A connection is made whether or not there are enough.
    pub(super) fn opening_guard(self: &Rc<Self>) -> OpeningGuard {
        self.opening.set(self.opening.get().saturating_add(1));
        OpeningGuard(self.clone())
    }

    pub(super) fn connection_guard(self: &Rc<Self>) -> ConnectionGuard {
        ConnectionGuard(self.clone())
    }

    pub(super) fn forget(&self, h2: &Rc<H2Connection>) {
        let mut gone = None;
        let mut all = self.connections.borrow_mut();
        if let Some(at) = all.iter().position(|it| Rc::ptr_eq(it, h2)) {
            gone = Some(all.remove(at));
        }
        drop(all);
        drop(gone);
    }

    /// Streams that this member has for all clients, open or not.
    fn capacity(&self, connections: usize) -> usize {
        let all = self.connections.borrow();
        let heard = all.iter().filter(|h2| h2.state().has_heard());
        let (mut streams, mut known) = (0_usize, 0_usize);
        for h2 in heard {
            let most = h2.state().most_streams() as usize;
            // None for a moment is not none for ever: by the next connection it may say otherwise.
            self.usual.set(most.max(1));
            (streams, known) = (streams.saturating_add(most), known.saturating_add(1));
        }
        streams.saturating_add(self.usual.get().saturating_mul(connections.saturating_sub(known)))
    }

    fn streams_of(&self, client: usize) -> u32 {
        self.by_client.borrow().get(&client).copied().unwrap_or(0)
    }

    /// One who has so many may have another.
    fn admits(&self, has: u32) -> bool {
        let free = |connections| self.capacity(connections).saturating_sub(self.streams.get());
        (has as usize) < free(USUAL_CONNECTIONS) / 2 || (has < FEW_OF_MANY && free(MOST_CONNECTIONS) > 0)
    }

    /// Connections that may be made for a client with so many streams.
    fn most_connections(has: u32) -> usize {
        if has <= FEW_OF_MANY { MOST_CONNECTIONS } else { USUAL_CONNECTIONS }
    }

    /// This client does not have to wait for a stream.
    pub(super) fn is_free(&self, client: &DownstreamClient) -> bool {
        let has = self.streams_of(Rc::as_ptr(&client.downstream.memory) as usize);
        let open = || self.connections.borrow().len().saturating_add(self.opening.get());
        let may_open = || open() < Upstream::most_connections(has.saturating_add(1));
        self.admits(has) && (self.widest().is_some() || may_open())
    }

    /// Waits for a stream. `None`: none is free in time, or the client is gone.
    pub(super) async fn wait_for_stream(
        self: &Rc<Self>,
        client: &DownstreamClient,
        patience: u64,
    ) -> Option<StreamReservation> {
        let memory = &client.downstream.memory;
        let key = Rc::as_ptr(memory) as usize;
        let until = client.context.now().saturating_add(patience).min(client.limit.get());
        let free = poll_fn(|_| {
            let has = self.streams_of(key);
            if self.admits(has) {
                return Poll::Ready(true);
            }
            if client.is_gone() || client.context.now() >= until {
                return Poll::Ready(false);
            }
            self.reclaim(client.context.now(), has);
            let line = if has == 0 { &self.newcomers } else { &self.others };
            self.wait(client, line, until);
            Poll::Pending
        });
        let has_place = free.await;
        client.task_state.set_queued_for(None);
        if !has_place {
            return None;
        }
        let mut by_client = self.by_client.borrow_mut();
        let has = by_client.entry(key).or_default();
        *has = has.saturating_add(1);
        drop(by_client);
        self.streams.set(self.streams.get().saturating_add(1));
        // Where one gets on, the next one may, too.
        self.wake_some(1);
        let claim = StreamClaim {
            client: key,
            task_state: client.task_state.clone(),
            stalled: NEVER,
            is_reclaimed: false,
        };
        let claim = self.claims.borrow_mut().insert(claim);
        Some(StreamReservation { upstream: self.clone(), client: memory.clone(), claim })
    }

    /// Streams of clients that have more make room, if they have not moved for long: those of whom has most, the longest
    /// first. One on which nothing waits to be taken keeps its place, however silent it is.
    fn reclaim(&self, now: u64, has: u32) {
        if now < self.reclaims_at.get() {
            return;
        }
        self.reclaims_at.set(now.saturating_add(RECLAIM_EVERY));
        let Some(context) = self.context.upgrade() else { return };
        let mut claims = self.claims.borrow_mut();
        let mut keep = self.by_client.borrow().clone();
        let mut stalled = Vec::new();
        for index in claims.indexes() {
            let Some(claim) = claims.get_mut(index) else { continue };
            if claim.is_reclaimed {
                let has = keep.entry(claim.client).or_default();
                *has = has.saturating_sub(1);
            } else if claim.stalled.saturating_add(STALLED) <= now {
                let count = self.streams_of(claim.client);
                stalled.push((std::cmp::Reverse(count), claim.stalled, index));
            }
        }
        stalled.sort_unstable();
        // Each of those who have none needs one, and who has some gets one at a time.
        let newcomers =
            self.newcomers.borrow().iter().filter(|it| it.is_queued_for(self.place_in_memory())).count();
        let has = if newcomers > 0 { 0 } else { has };
        let mut wanted = newcomers.saturating_add(1).min(MOST_RECLAIMED);
        for (.., index) in stalled {
            let Some(claim) = claims.get_mut(index).filter(|_| wanted > 0) else { continue };
            let count = keep.entry(claim.client).or_default();
            if may_take_from(*count, has) {
                *count = count.saturating_sub(1);
                wanted = wanted.saturating_sub(1);
                claim.is_reclaimed = true;
                context.wake(&claim.task_state);
            }
        }
    }

    /// Chooses a connection for a request that has a place, or has one made. `body`: more is to be sent than its head.
    pub(super) async fn next_connection(
        self: &Rc<Self>,
        client: &DownstreamClient,
        body: bool,
        patience: u64,
    ) -> NextConnection {
        let key = Rc::as_ptr(&client.downstream.memory) as usize;
        let until = client.context.now().saturating_add(patience).min(client.limit.get());
        let next = poll_fn(|_| {
            self.part_with_stuck(client.context.now());
            if client.is_gone() {
                return Poll::Ready(NextConnection::ClientGone);
            }
            let memory = &client.downstream.memory;
            if let Some(h2) = if body { self.own_window(memory) } else { self.best() } {
                return Poll::Ready(NextConnection::Existing(h2));
            }
            let has = self.streams_of(key);
            // What is left are connections with little of a window, or with bodies of others.
            let any = if body { self.shared_window(memory, has) } else { self.widest() };
            let most = match &any {
                // A stream is what is missing.
                None => Upstream::most_connections(has),
                Some(_) if body && has <= FEW_STREAMS => MOST_CONNECTIONS,
                Some(_) => 0,
            };
            if self.may_open(most, client.context.now()) {
                return Poll::Ready(NextConnection::Open(self.opening_guard()));
            }
            // One that is being made is better than what is left.
            let comes = self.opening.get() > 0 && self.connections.borrow().len() < most;
            if let Some(h2) = any.filter(|_| !comes) {
                return Poll::Ready(NextConnection::Existing(h2));
            }
            if client.context.now() >= until {
                return Poll::Ready(NextConnection::Unavailable);
            }
            self.wait(client, &self.placed, until);
            Poll::Pending
        });
        let next = next.await;
        client.task_state.set_queued_for(None);
        if matches!(next, NextConnection::Existing(_)) {
            // Where one gets on, the next one may, too.
            self.wake_some(1);
        }
        next
    }

    /// One that takes another request now; those that were made first are asked first, so that few are in use.
    fn best(&self) -> Option<H2Handle> {
        let all = self.connections.borrow();
        let usable = || all.iter().filter(|h2| h2.takes_another());
        let wide = usable().find(|h2| h2.state().window() >= LOW_WINDOW);
        wide.or_else(|| usable().next()).cloned()
    }

    /// For a body: one with a window, by which no other client sends a body. What the member does not read of one
    /// client's fills the window for all.
    fn own_window(&self, client: &Rc<ConnectionMemory>) -> Option<H2Handle> {
        let all = self.connections.borrow();
        let mut usable = all.iter().filter(|h2| h2.takes_another());
        usable.find(|h2| h2.state().window() >= LOW_WINDOW && !h2.sends(client).1).cloned()
    }

    /// The same, where that cannot be had: who sends several bodies already waits for its own window.
    fn shared_window(&self, client: &Rc<ConnectionMemory>, has: u32) -> Option<H2Handle> {
        let all = self.connections.borrow();
        let mut usable = all.iter().filter(|h2| h2.takes_another());
        let own = if has > FEW_STREAMS { usable.find(|h2| h2.sends(client).0).cloned() } else { None };
        drop(all);
        own.or_else(|| self.widest())
    }

    /// The one with the widest window, however little that is.
    fn widest(&self) -> Option<H2Handle> {
        let all = self.connections.borrow();
        let usable = all.iter().filter(|h2| h2.takes_another());
        usable.max_by_key(|h2| h2.state().window()).cloned()
    }

    fn may_open(&self, most: usize, now: u64) -> bool {
        let open = self.connections.borrow().len().saturating_add(self.opening.get());
        // Beyond the usual ones each waits for the one before: that may have streams for all who wait.
        if open >= most || (open >= USUAL_CONNECTIONS && self.opening.get() > 0) {
            return false;
        }
        // One more would take the place of one that is stalled.
        self.stalled.cut_oldest(MOST_STUCK - 1, now);
        true
    }

    /// Connections that do not get on take no more requests; those who are on them go on as long as they may.
    fn part_with_stuck(&self, now: u64) {
        let mut all = self.connections.borrow_mut();
        if !all.iter().any(|h2| h2.is_over() || h2.is_stuck(now)) {
            return;
        }
        let (gone, rest) =
            std::mem::take(&mut *all).into_iter().partition(|h2| h2.is_over() || h2.is_stuck(now));
        *all = rest;
        drop(all);
        let gone: Vec<H2Handle> = gone;
        self.stalled.add(&gone);
        // One at a time, while others serve: not all of them at once, when a connection is needed.
        self.stalled.cut_oldest(MOST_STUCK, now);
    }

    fn wait(&self, client: &DownstreamClient, line: &RefCell<VecDeque<Rc<TaskState>>>, until: u64) {
        if client.task_state.set_queued_for(Some(self.place_in_memory())) {
            line.borrow_mut().push_back(client.task_state.clone());
        }
        client.task_state.set_deadline(until.min(client.context.now().saturating_add(LOOK_AGAIN)));
    }

    /// Lets some of those look again who wait.
    fn wake_some(&self, count: usize) {
        let Some(context) = self.context.upgrade() else { return };
        let mut woken = 0_usize;
        while woken < count {
            let lines = [&self.placed, &self.newcomers, &self.others];
            let Some(task) = lines.iter().find_map(|line| line.borrow_mut().pop_front()) else {
                return;
            };
            // Whoever waits no more, or elsewhere, is no reason to let another wait.
            if task.is_queued_for(self.place_in_memory()) {
                task.set_queued_for(None);
                context.wake(&task);
                woken = woken.saturating_add(1);
            }
        }
    }

    fn place_in_memory(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// One idle connection is enough for what comes next.
    fn part_with_idle(&self) {
        let mut all = self.connections.borrow_mut();
        let mut idle = all.iter().enumerate().filter(|(_, h2)| h2.state().held_streams() == 0);
        if let (Some(_), Some((second, _))) = (idle.next(), idle.next()) {
            let gone = all.remove(second);
            drop(all);
            drop(gone);
        }
    }
}

/// A client with so many streams gets one of a client with more only if it does not have more than that one then: clients
/// that are even would take streams from each other without end. Whoever has none gets one of anybody.
fn may_take_from(count: u32, has: u32) -> bool {
    count > has.saturating_add(has.min(1))
}

impl StreamReservation {
    /// Tells whether something waits on it that is not taken, after that has been looked at. `moved`: something was.
    pub(in super::super) fn note(&self, waits: bool, moved: bool, now: u64) {
        if let Some(claim) = self.upstream.claims.borrow_mut().get_mut(self.claim) {
            claim.stalled = match waits {
                true if moved => now,
                true => claim.stalled.min(now),
                false => NEVER,
            };
        }
    }

    /// It has to make room.
    pub(in super::super) fn is_reclaimed(&self) -> bool {
        self.upstream.claims.borrow_mut().get_mut(self.claim).is_some_and(|claim| claim.is_reclaimed)
    }
}

impl Drop for StreamReservation {
    fn drop(&mut self) {
        let claim = self.upstream.claims.borrow_mut().remove(self.claim);
        drop(claim);
        let key = Rc::as_ptr(&self.client) as usize;
        let upstream = &self.upstream;
        let mut by_client = upstream.by_client.borrow_mut();
        if let Some(has) = by_client.get_mut(&key) {
            *has = has.saturating_sub(1);
            if *has == 0 {
                by_client.remove(&key);
            }
        }
        drop(by_client);
        upstream.streams.set(upstream.streams.get().saturating_sub(1));
        upstream.part_with_idle();
        // Whoever cannot go on leaves the turn to another.
        upstream.wake_some(2);
    }
}
