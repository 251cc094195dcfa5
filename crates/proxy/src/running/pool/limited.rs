//! Members that are given no more connections at the same time than they may have, and who waits for them.

use std::sync::Arc;

use seaway_model::load_balancer::{Affinity, MemberLimit};
use seaway_snapshot::Cursor;

use super::{PickContext, PoolGeneration, RunningMember, RunningPool, is_full};
use crate::{
    running::{
        member::CapacityWatcher,
        queue::{QueueTicket, SelectionRequest, WaiterId},
    },
    sys,
    worker::Mailbox,
};

/// How often another is chosen where somebody else was faster.
const ROUNDS: usize = 8;
/// Milliseconds after which members are looked at though nothing was told: nothing tells that an ejection is over.
const LOOK_AGAIN: u64 = 250;

pub(crate) enum MemberSelection {
    /// A connection counts for this member from now on.
    Reserved(Arc<RunningMember>),
    /// Those that serve have as many connections as they may have.
    Full,
    NoMember,
}

enum Selected {
    Member(usize),
    Full,
    NoMember,
}

/// A client in the queue. Dropped, it leaves, and gives back what it was given.
pub(crate) struct QueuedClient {
    pool: Arc<RunningPool>,
    ticket: Arc<QueueTicket>,
}

impl RunningPool {
    pub(crate) fn member_limit(&self) -> Option<MemberLimit> {
        self.live.load().compiled.pool().member_limit
    }

    /// Newcomers wait behind others.
    pub(crate) fn has_waiting(&self) -> bool {
        self.queue.has_waiting()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.length()
    }

    /// Selects a member with room for this client, and counts a connection on it.
    pub(crate) fn reserve_member(
        &self,
        request: &SelectionRequest,
        cursor: &mut Cursor,
        now: u64,
    ) -> MemberSelection {
        let live = self.live.load();
        let limit = live.compiled.pool().member_limit;
        for _ in 0..ROUNDS {
            let index = match self.select(&live, request, cursor, now) {
                Selected::Member(index) => index,
                Selected::Full => return MemberSelection::Full,
                Selected::NoMember => return MemberSelection::NoMember,
            };
            let Some(member) = live.members.get(index) else { return MemberSelection::NoMember };
            if member.try_begin_connection(limit) {
                self.keep_by_address(&live, request.client, index, now);
                return MemberSelection::Reserved(member.clone());
            }
        }
        MemberSelection::Full
    }

    /// The member for a client that does not wait, as one of UDP; several workers may choose at the same time.
    pub(super) fn select_only(
        &self,
        live: &PoolGeneration,
        request: &SelectionRequest,
        cursor: &mut Cursor,
        now: u64,
    ) -> Option<usize> {
        match self.select(live, request, cursor, now) {
            Selected::Member(index) => {
                self.keep_by_address(live, request.client, index, now);
                Some(index)
            }
            Selected::Full | Selected::NoMember => None,
        }
    }

    fn select(
        &self,
        live: &PoolGeneration,
        request: &SelectionRequest,
        cursor: &mut Cursor,
        now: u64,
    ) -> Selected {
        self.used(now);
        let limit = live.compiled.pool().member_limit;
        let is_full = |index: usize| live.members.get(index).is_none_or(|it| is_full(it, limit));
        let mut scene = self.scene(live, &request.tried, now);
        let kept = request.cookie.and_then(|cookie| self.index_by_cookie(&scene, cookie));
        // It waits for the one that it keeps.
        if let Some(index) = kept.or_else(|| self.kept_by_address(&scene, request.client)) {
            return if is_full(index) { Selected::Full } else { Selected::Member(index) };
        }
        let mut pick = |scene: &PickContext<'_>| live.compiled.pick(|| request.client, cursor, scene);
        let Some(first) = pick(&scene) else { return Selected::NoMember };
        if !is_full(first) {
            return Selected::Member(first);
        }
        scene.skips_full = true;
        // Such as a backup: it serves where the better ones fail, and not where they are full.
        match pick(&scene).filter(|it| scene.rank(*it) <= scene.rank(first)) {
            Some(other) => Selected::Member(other),
            None => Selected::Full,
        }
    }

    /// `None`: too many wait already.
    pub(crate) fn wait(
        self: &Arc<Self>,
        request: SelectionRequest,
        worker: Arc<Mailbox>,
        waiter: WaiterId,
    ) -> Option<QueuedClient> {
        let ticket = self.queue.join(request, worker, waiter)?;
        let waiting = QueuedClient { pool: self.clone(), ticket };
        // A connection may have ended before it was seen in the queue.
        self.serve_waiting(sys::millis());
        Some(waiting)
    }

    /// Gives what room there is to those that wait, in their order.
    pub(crate) fn serve_waiting(&self, now: u64) {
        if !self.queue.has_waiting() {
            return;
        }
        let mut guard = self.queue.lock();
        let list = &mut *guard;
        list.looked_at = now;
        let by_address = matches!(self.live.load().compiled.pool().affinity, Some(Affinity::ClientIp(_)));
        // Whoever takes any member finds what the last one has found.
        let (mut is_full, mut at, mut served) = (false, 0, Vec::new());
        while let Some(ticket) = list.waiting.get(at) {
            let is_restricted = ticket.request.is_restricted();
            if is_full && !is_restricted && !by_address {
                if list.restricted == 0 {
                    break;
                }
                at = at.saturating_add(1);
                continue;
            }
            match self.reserve_member(&ticket.request, &mut list.cursor, now) {
                MemberSelection::Full => {
                    is_full |= !is_restricted;
                    at = at.saturating_add(1);
                    continue;
                }
                MemberSelection::Reserved(member) => ticket.resolve(Some(member)),
                MemberSelection::NoMember => ticket.resolve(None),
            }
            list.restricted = list.restricted.saturating_sub(usize::from(is_restricted));
            served.extend(list.waiting.remove(at));
        }
        self.queue.changed(list);
        drop(guard);
        served.iter().for_each(|it| it.tell_worker());
    }
}

impl CapacityWatcher for RunningPool {
    fn capacity_freed(&self) {
        if self.queue.has_waiting() {
            self.serve_waiting(sys::millis());
        }
    }
}

impl QueuedClient {
    /// Its member, on which it counts from now on; `Some(None)`: nobody serves. Asked for once.
    pub(crate) fn outcome(&self) -> Option<Option<Arc<RunningMember>>> {
        self.ticket.outcome()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.ticket.is_settled()
    }

    /// It has waited for a while: members are looked at, unless somebody has just done that.
    pub(crate) fn poll(&self, now: u64) {
        let looked_at = self.pool.queue.lock().looked_at;
        if now >= looked_at.saturating_add(LOOK_AGAIN / 2) {
            self.pool.serve_waiting(now);
        }
    }

    /// Milliseconds until it is to do so.
    pub(crate) const fn poll_interval() -> u64 {
        LOOK_AGAIN
    }
}

impl Drop for QueuedClient {
    fn drop(&mut self) {
        self.pool.queue.leave(&self.ticket);
        if let Some(member) = self.ticket.unused() {
            member.end_connection();
        }
    }
}
