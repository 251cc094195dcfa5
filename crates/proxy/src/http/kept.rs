//! Connections to members that wait for the next request: the last one used is the next one, so that the rest can grow
//! old.

use std::{collections::HashMap, sync::Arc};

use super::stream::Stream;
use crate::running::RunningMember;

#[derive(Default)]
pub(super) struct Kept {
    /// By the member's own place in memory, which its `Arc` here keeps from being anybody else's.
    by_member: HashMap<usize, Vec<One>>,
    count: usize,
    /// No one of them is too old before.
    next: u64,
}

struct One {
    stream: Stream,
    member: Arc<RunningMember>,
    since: u64,
}

/// Per member and worker.
const MOST: usize = 512;
/// Shorter than what servers wait (nginx 75 s, Node 5 s are the ends of what is usual): who closes first decides
/// whether a request can be lost.
const OLD: u64 = 4_000;

fn key(member: &Arc<RunningMember>) -> usize {
    Arc::as_ptr(member) as usize
}

impl Kept {
    /// `surely`: for what cannot be asked twice, the kernel is asked for an end that no event has told of yet.
    pub(super) fn take(&mut self, member: &Arc<RunningMember>, surely: bool) -> Option<Stream> {
        let all = self.by_member.get_mut(&key(member))?;
        while let Some(one) = all.pop() {
            self.count -= 1;
            if one.stream.is_untouched() && (!surely || one.stream.is_silent()) {
                return Some(one.stream);
            }
        }
        None
    }

    pub(super) fn keep(&mut self, stream: Stream, member: &Arc<RunningMember>, now: u64) {
        if member.leaving_since().is_some() || !stream.is_untouched() {
            return;
        }
        let all = self.by_member.entry(key(member)).or_default();
        if all.len() == MOST {
            return;
        }
        stream.belong_to(None);
        if self.count == 0 {
            self.next = now + OLD;
        }
        self.count += 1;
        all.push(One { stream, member: member.clone(), since: now });
    }

    /// Something happened on it, and be it that there is room again for what was written last.
    #[must_use = "streams are dropped when nothing is borrowed"]
    pub(super) fn doubt(&mut self, stream: u32) -> Option<impl Sized + use<>> {
        for all in self.by_member.values_mut() {
            if let Some(at) = all.iter().position(|one| one.stream.index() == stream) {
                if all[at].stream.is_untouched() {
                    return None;
                }
                self.count -= 1;
                return Some(all.remove(at));
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
        let old = self.without(|one| one.since + OLD <= now);
        let oldest = self.by_member.values().filter_map(|all| all.first()).map(|one| one.since).min();
        self.next = oldest.unwrap_or(now) + OLD;
        old
    }

    fn without(&mut self, which: impl Fn(&One) -> bool) -> Vec<One> {
        let mut gone = Vec::new();
        self.by_member.retain(|_, all| {
            gone.extend(all.extract_if(.., |one| which(one)));
            !all.is_empty()
        });
        self.count -= gone.len();
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
