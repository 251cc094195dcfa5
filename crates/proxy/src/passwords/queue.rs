//! Passwords that wait to be hashed, and the thread that does it.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use seaway_model::ObjectRef;

use super::{Known, Verdict, Verification, Waiter};
use crate::sys;

/// Passwords that wait, in all, for one Service, and of one client there: at 50 ms each, the last of a Service waits for 3 seconds.
const MOST: usize = 1024;
pub(super) const MOST_OF_SERVICE: usize = 64;
pub(super) const MOST_OF_CLIENT: usize = 4;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    right: Known,
    wrong: Known,
    waiting: HashMap<u128, Arc<Verification>>,
    /// Each with those of it, the first first. Services take turns.
    turns: VecDeque<(ObjectRef, VecDeque<u128>)>,
    thread: Option<JoinHandle<()>>,
    is_closed: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known(&self, fingerprint: u128) -> Option<bool> {
        let mut state = self.state();
        if state.right.has(fingerprint) {
            return Some(true);
        }
        state.wrong.has(fingerprint).then_some(false)
    }

    /// Those who say the same wait for one.
    pub(super) fn submit(
        self: &Arc<Queue>,
        fingerprint: u128,
        service: &ObjectRef,
        client: IpAddr,
        verification: impl FnOnce() -> Verification,
        waiter: impl FnOnce() -> Waiter,
    ) -> Verdict {
        let mut state = self.state();
        // Between two looks it may have become known.
        if state.right.has(fingerprint) {
            return Verdict::Right;
        }
        if let Some(known) = state.waiting.get(&fingerprint).cloned() {
            known.awaited_by(waiter());
            return Verdict::Later(known);
        }
        if !state.admits(service, client) || !state.has_thread(self) {
            return Verdict::Busy;
        }
        let verification = Arc::new(verification());
        verification.awaited_by(waiter());
        state.waiting.insert(fingerprint, verification.clone());
        match state.turns.iter_mut().find(|(of, _)| of == service) {
            Some((_, its)) => its.push_back(fingerprint),
            None => state.turns.push_back((service.clone(), [fingerprint].into())),
        }
        drop(state);
        self.more.notify_one();
        Verdict::Later(verification)
    }

    /// Its thread does nothing.
    #[cfg(test)]
    pub(super) fn rest(&self) {
        self.state().thread = Some(thread::spawn(|| {}));
    }

    /// The thread ends.
    pub(super) fn close(&self) {
        let thread = {
            let mut state = self.state();
            state.is_closed = true;
            state.thread.take()
        };
        self.more.notify_all();
        // It fails only if the thread has panicked, and then it has ended, too.
        thread.into_iter().for_each(|it| drop(it.join()));
    }

    fn run(&self) {
        sys::give_way();
        while let Some(verification) = self.next() {
            let is_right = verification.is_right();
            let mut state = self.state();
            state.waiting.remove(&verification.fingerprint);
            if is_right { &mut state.right } else { &mut state.wrong }.add(verification.fingerprint);
            drop(state);
            verification.tell(is_right);
        }
    }

    /// Waits for it. `None`: it is over.
    pub(super) fn next(&self) -> Option<Arc<Verification>> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            let Some(fingerprint) = state.pop() else {
                state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let verification = state.waiting.get(&fingerprint).cloned();
            // We have two: without a third, whoever waited has left.
            match verification.filter(|it| Arc::strong_count(it) > 2) {
                Some(verification) => return Some(verification),
                None => drop(state.waiting.remove(&fingerprint)),
            }
        }
    }
}

impl State {
    fn admits(&self, service: &ObjectRef, client: IpAddr) -> bool {
        let its = self.turns.iter().find(|(of, _)| of == service).map(|(_, its)| its);
        let of_client = |its: &VecDeque<u128>| {
            let all = its.iter().filter_map(|it| self.waiting.get(it));
            all.filter(|it| it.client == client).count()
        };
        let fits = |its: &VecDeque<u128>| its.len() < MOST_OF_SERVICE && of_client(its) < MOST_OF_CLIENT;
        self.waiting.len() < MOST && its.is_none_or(fits)
    }

    fn pop(&mut self) -> Option<u128> {
        let (service, mut its) = self.turns.pop_front()?;
        let first = its.pop_front();
        if !its.is_empty() {
            self.turns.push_back((service, its));
        }
        first
    }

    /// It begins with the first password: who needs none has no thread for them.
    fn has_thread(&mut self, queue: &Arc<Queue>) -> bool {
        if self.thread.is_none() && !self.is_closed {
            let queue = queue.clone();
            let begun = thread::Builder::new().name("passwords".to_owned()).spawn(move || queue.run());
            self.thread = begun.inspect_err(|error| tracing::error!(%error, "no thread for passwords")).ok();
        }
        self.thread.is_some()
    }
}
