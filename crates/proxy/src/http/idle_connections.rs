//! Connections to members that wait for the next request: the last one used is the next one, so that the rest can grow
//! old.

use std::{
    collections::HashMap,
    rc::{Rc, Weak},
    sync::Arc,
};

use super::{arrival::ClientIdentity, reuse::NextUse, stream::Stream};
use crate::running::RunningMember;

#[derive(Default)]
pub(super) struct IdleConnections {
    /// By the member's own place in memory, which its `Arc` here keeps from being anybody else's.
    by_member: HashMap<usize, Waiting>,
    count: usize,
    /// No one of them is too old before.
    next: u64,
}

/// Those of one member.
#[derive(Default)]
struct Waiting {
    for_anyone: Vec<One>,
    /// Each belongs to one client.
    for_one: Vec<One>,
    /// For no client: the member was asked to close these.
    closing: Vec<One>,
}

struct One {
    stream: Stream,
    member: Arc<RunningMember>,
    until: u64,
    /// The client that it belongs to.
    client: Option<Weak<ClientIdentity>>,
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
        client: &Rc<ClientIdentity>,
        surely: bool,
    ) -> Option<(Stream, NextUse)> {
        let waiting = self.by_member.get_mut(&key(member))?;
        while let Some(one) = waiting.take(client) {
            self.count = self.count.saturating_sub(1);
            if one.stream.is_untouched() && (!surely || one.stream.is_silent()) {
                let is_own = one.client.is_some();
                return Some((one.stream, if is_own { NextUse::SameClient } else { NextUse::AnyClient }));
            }
        }
        None
    }

    pub(super) fn keep(
        &mut self,
        stream: Stream,
        member: &Arc<RunningMember>,
        (next, client): (NextUse, &Rc<ClientIdentity>),
        now: u64,
    ) {
        if next == NextUse::Closed || member.leaving_since().is_some() || !stream.is_untouched() {
            return;
        }
        let waiting = self.by_member.entry(key(member)).or_default();
        let client = (next == NextUse::SameClient).then(|| Rc::downgrade(client));
        let all = if client.is_some() { &mut waiting.for_one } else { &mut waiting.for_anyone };
        if all.len() == MOST && client.is_none() {
            return;
        }
        // The client of the oldest may never come back.
        let oldest = (all.len() == MOST).then(|| all.remove(0));
        stream.belong_to(None);
        all.push(One { stream, member: member.clone(), until: now.saturating_add(OLD), client });
        self.count(oldest.is_some(), now.saturating_add(OLD));
    }

    /// Waits until the member closes it. A port of ours is not free again for a minute where we close first.
    pub(super) fn part(&mut self, stream: Stream, member: &Arc<RunningMember>, now: u64) {
        if !stream.is_untouched() {
            return;
        }
        let closing = &mut self.by_member.entry(key(member)).or_default().closing;
        let oldest = (closing.len() == MOST).then(|| closing.remove(0));
        oldest.iter().for_each(|one| one.stream.reset());
        stream.belong_to(None);
        closing.push(One {
            stream,
            member: member.clone(),
            until: now.saturating_add(CLOSING),
            client: None,
        });
        self.count(oldest.is_some(), now.saturating_add(CLOSING));
    }

    /// One more, perhaps in the place of another.
    fn count(&mut self, replaces: bool, until: u64) {
        self.next = if self.count == 0 { until } else { self.next.min(until) };
        self.count = self.count.saturating_add(usize::from(!replaces));
    }

    /// Something happened on it, and be it that there is room again for what was written last.
    #[must_use = "streams are dropped when nothing is borrowed"]
    pub(super) fn doubt(&mut self, stream: u32) -> Option<impl Sized + use<>> {
        for waiting in self.by_member.values_mut() {
            for all in waiting.all() {
                if let Some(at) = all.iter().position(|one| one.stream.index() == stream) {
                    if all.get(at).is_some_and(|one| one.stream.is_untouched()) {
                        return None;
                    }
                    self.count = self.count.saturating_sub(1);
                    return Some(all.remove(at));
                }
            }
        }
        None
    }

    #[must_use = "streams are dropped when nothing is borrowed"]
    pub(super) fn without_those_that_leave(&mut self) -> Vec<impl Sized + use<>> {
        self.without(|one| one.member.leaving_since().is_some())
    }

    #[must_use = "streams are dropped when nothing is borrowed"]
    pub(super) fn without_the_old(&mut self, now: u64) -> Vec<impl Sized + use<>> {
        if self.count == 0 || now < self.next {
            return Vec::new();
        }
        for one in self.by_member.values().flat_map(|it| &it.closing).filter(|one| one.until <= now) {
            one.stream.reset();
        }
        let old = self.without(|one| one.until <= now);
        let waiting = self.by_member.values();
        let firsts = waiting.flat_map(|it| [it.for_anyone.first(), it.for_one.first(), it.closing.first()]);
        self.next = firsts.flatten().map(|one| one.until).min().unwrap_or(now);
        old
    }

    fn without(&mut self, which: impl Fn(&One) -> bool) -> Vec<One> {
        let mut gone = Vec::new();
        self.by_member.retain(|_, waiting| {
            for all in waiting.all() {
                gone.extend(all.extract_if(.., |one| which(one)));
            }
            waiting.all().iter().any(|all| !all.is_empty())
        });
        self.count = self.count.saturating_sub(gone.len());
        gone
    }

    pub(super) fn clear(&mut self) {
        self.by_member.clear();
        self.count = 0;
    }

    pub(super) fn patience(&self, now: u64) -> Option<u64> {
        (self.count > 0).then(|| self.next.saturating_sub(now))
    }
}

impl Waiting {
    fn all(&mut self) -> [&mut Vec<One>; 3] {
        [&mut self.for_anyone, &mut self.for_one, &mut self.closing]
    }

    /// The one that was used last by this client alone, or else by anyone.
    fn take(&mut self, client: &Rc<ClientIdentity>) -> Option<One> {
        let is_own = |one: &One| one.client.as_ref().is_some_and(|it| it.as_ptr() == Rc::as_ptr(client));
        // Most clients have none, and need not search.
        let own = (Rc::weak_count(client) > 0).then(|| self.for_one.iter().rposition(is_own)).flatten();
        match own {
            Some(at) => Some(self.for_one.remove(at)),
            None => self.for_anyone.pop(),
        }
    }
}
