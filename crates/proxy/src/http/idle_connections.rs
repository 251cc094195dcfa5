//! Connections to members that wait for the next request: the last one used is the next one, so that the rest can grow
//! old.

mod queues;

use std::{
    rc::{Rc, Weak},
    sync::Arc,
};

use self::queues::{IdleQueues, ReuseClass};
use super::{downstream::DownstreamConnection, reuse::NextUse, stream::Stream};
use crate::running::RunningMember;

#[derive(Default)]
pub(super) struct IdleConnections {
    /// By the member's own place in memory, which its `Arc` here keeps from being anybody else's.
    kept: IdleQueues<IdleConnection>,
    /// No one of them is too old before.
    next: u64,
}

struct IdleConnection {
    stream: Stream,
    member: Arc<RunningMember>,
    until: u64,
    /// The client that it belongs to.
    client: Option<Weak<DownstreamConnection>>,
}

/// Of either kind, per member and worker.
const MOST: usize = 512;
/// Shorter than what servers wait (nginx 75 s, Node 5 s are the ends of what is usual): who closes first decides
/// whether a request can be lost.
const OLD: u64 = 4_000;
/// A member closes sooner, and its side of the connection then waits out the minute that TCP asks for.
const CLOSING: u64 = 1_000;

fn key(member: &Arc<RunningMember>) -> usize {
    Arc::as_ptr(member) as usize
}

impl IdleConnections {
    /// The client's own connection first. Also which client may use it afterwards: one that belongs to a client stays
    /// with it, for what that client left there may show later. `surely`: for what cannot be asked twice, the kernel is
    /// asked for an end that no event has told of yet.
    pub(super) fn take(
        &mut self,
        member: &Arc<RunningMember>,
        client: &Rc<DownstreamConnection>,
        surely: bool,
    ) -> Option<(Stream, NextUse)> {
        while let Some(one) = self.newest(key(member), client) {
            if one.stream.is_idle_and_open() && (!surely || one.stream.is_silent()) {
                let is_own = one.client.is_some();
                return Some((one.stream, if is_own { NextUse::SameClient } else { NextUse::AnyClient }));
            }
        }
        None
    }

    /// The one that was used last by this client alone, or else by anyone.
    fn newest(&mut self, member: usize, client: &Rc<DownstreamConnection>) -> Option<IdleConnection> {
        let is_own =
            |one: &IdleConnection| one.client.as_ref().is_some_and(|it| it.as_ptr() == Rc::as_ptr(client));
        // Most clients have none, and need not search.
        let own = (Rc::weak_count(client) > 0)
            .then(|| self.kept.remove_newest(member, ReuseClass::ForOne, is_own))
            .flatten();
        own.or_else(|| self.kept.pop_newest(member, ReuseClass::ForAnyone))
    }

    pub(super) fn keep(
        &mut self,
        stream: Stream,
        member: &Arc<RunningMember>,
        (next, client): (NextUse, &Rc<DownstreamConnection>),
        now: u64,
    ) {
        if next == NextUse::Closed || member.draining_since().is_some() || !stream.is_idle_and_open() {
            return;
        }
        let client = (next == NextUse::SameClient).then(|| Rc::downgrade(client));
        let queue = if client.is_some() { ReuseClass::ForOne } else { ReuseClass::ForAnyone };
        if self.kept.len_of(key(member), queue) == MOST {
            if queue == ReuseClass::ForAnyone {
                return;
            }
            // The client of the oldest may never come back.
            drop(self.kept.pop_oldest(key(member), queue));
        }
        self.push(
            queue,
            IdleConnection { stream, member: member.clone(), until: now.saturating_add(OLD), client },
        );
    }

    /// Waits until the member closes it. A port of ours is not free again for a minute where we close first.
    pub(super) fn part(&mut self, stream: Stream, member: &Arc<RunningMember>, now: u64) {
        if !stream.is_idle_and_open() {
            return;
        }
        if self.kept.len_of(key(member), ReuseClass::Closing) == MOST
            && let Some(oldest) = self.kept.pop_oldest(key(member), ReuseClass::Closing)
        {
            oldest.stream.reset();
        }
        let until = now.saturating_add(CLOSING);
        self.push(
            ReuseClass::Closing,
            IdleConnection { stream, member: member.clone(), until, client: None },
        );
    }

    fn push(&mut self, queue: ReuseClass, one: IdleConnection) {
        self.next = if self.kept.is_empty() { one.until } else { self.next.min(one.until) };
        one.stream.set_task(None);
        self.kept.push(key(&one.member), queue, one.stream.index(), one);
    }

    /// Removes a kept connection if anything happened on it, and be it that there is room again for what was written last. The caller
    /// drops it.
    #[must_use = "streams are dropped when nothing is borrowed"]
    pub(super) fn remove_if_touched(&mut self, stream: u32) -> Option<impl Sized + use<>> {
        self.kept.remove(stream, |one| !one.stream.is_idle_and_open())
    }

    #[must_use = "streams are dropped when nothing is borrowed"]
    pub(super) fn take_of_draining_members(&mut self) -> Vec<impl Sized + use<>> {
        self.kept.remove_all(|one| one.member.draining_since().is_some())
    }

    #[must_use = "streams are dropped when nothing is borrowed"]
    pub(super) fn without_the_old(&mut self, now: u64) -> Vec<impl Sized + use<>> {
        if self.kept.is_empty() || now < self.next {
            return Vec::new();
        }
        for one in self.kept.connections_in(ReuseClass::Closing).filter(|one| one.until <= now) {
            one.stream.reset();
        }
        let old = self.kept.remove_all(|one| one.until <= now);
        self.next = self.kept.oldest().map(|one| one.until).min().unwrap_or(now);
        old
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    pub(super) fn next_timeout(&self, now: u64) -> Option<u64> {
        (!self.kept.is_empty()).then(|| self.next.saturating_sub(now))
    }
}
