//! Passwords that wait to be hashed, and the thread that does it.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use seaway_model::{Name, ObjectRef};

use super::{
    Verdict, Verification, Waiter,
    fair_queue::{Clients, FairPasswordQueue},
    recent::RecentFingerprints,
};
use crate::sys;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    right: RecentFingerprints,
    wrong: RecentFingerprints,
    /// What waits, and what is hashed.
    waiting: HashMap<u128, Arc<Verification>>,
    fair_queue: FairPasswordQueue,
    clients: Clients,
    hashed: Option<u128>,
    thread: Option<JoinHandle<()>>,
    is_closed: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cached_result(&self, namespace: &Name, fingerprint: u128) -> Option<bool> {
        let mut state = self.state();
        if state.right.has(namespace, fingerprint) {
            return Some(true);
        }
        state.wrong.has(namespace, fingerprint).then_some(false)
    }

    /// Those who say the same wait for one.
    pub(super) fn submit(
        self: &Arc<Queue>,
        fingerprint: u128,
        service: &ObjectRef,
        client: IpAddr,
        cost: usize,
        verification: impl FnOnce() -> Verification,
        waiter: impl FnOnce() -> Waiter,
    ) -> Verdict {
        let mut state = self.state();
        // Between two looks it may have become known.
        if state.right.has(&service.namespace, fingerprint) {
            return Verdict::Right;
        }
        // Before the queue is looked at: what is in it waits for the thread.
        if !state.has_thread(self) {
            return Verdict::Busy;
        }
        if let Some(known) = state.waiting.get(&fingerprint).cloned() {
            known.awaited_by(waiter());
            return Verdict::Later(known);
        }
        if !state.admits(service, client, cost) {
            return Verdict::Busy;
        }
        let verification = Arc::new(verification());
        verification.awaited_by(waiter());
        state.waiting.insert(fingerprint, verification.clone());
        state.clients.add(client, &service.namespace);
        state.fair_queue.push(service, fingerprint, cost);
        drop(state);
        self.more.notify_one();
        Verdict::Later(verification)
    }

    /// Its thread does nothing.
    #[cfg(test)]
    pub(super) fn rest(self: &Arc<Queue>) {
        let queue = self.clone();
        let until_closed = move || drop(queue.more.wait_while(queue.state(), |it| !it.is_closed));
        self.state().thread = Some(thread::spawn(until_closed));
    }

    /// Its thread panics in the middle of a password, when so many wait.
    #[cfg(test)]
    pub(super) fn panics(self: &Arc<Queue>, number: usize) {
        let queue = self.clone();
        let panics = move || {
            drop(queue.more.wait_while(queue.state(), |it| it.waiting.len() < number));
            assert!(queue.next().is_none(), "as it is meant to");
        };
        self.state().thread = Some(thread::spawn(panics));
    }

    #[cfg(test)]
    pub(super) fn has_panicked(&self) -> bool {
        self.state().thread.as_ref().is_some_and(JoinHandle::is_finished)
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
            state.is_hashed();
            let known = if is_right { &mut state.right } else { &mut state.wrong };
            known.add(&verification.namespace, verification.fingerprint);
            drop(state);
            verification.finish(is_right);
        }
    }

    /// Waits for it. `None`: it is over.
    pub(super) fn next(&self) -> Option<Arc<Verification>> {
        let mut state = self.state();
        // The thread before this one may have panicked.
        state.is_hashed();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(verification) = state.pop() {
                return Some(verification);
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    fn admits(&self, service: &ObjectRef, client: IpAddr, cost: usize) -> bool {
        self.clients.admits(client, &service.namespace) && self.fair_queue.admits(service, cost)
    }

    fn pop(&mut self) -> Option<Arc<Verification>> {
        let State { fair_queue, waiting, clients, hashed, .. } = self;
        fair_queue.pop(|fingerprint| {
            let verification = waiting.get(&fingerprint)?.clone();
            // We have two: without a third, whoever waited has left.
            if Arc::strong_count(&verification) > 2 {
                *hashed = Some(fingerprint);
                return Some(verification);
            }
            waiting.remove(&fingerprint);
            clients.remove(verification.client, &verification.namespace);
            None
        })
    }

    fn is_hashed(&mut self) {
        let Some(verification) = self.hashed.take().and_then(|it| self.waiting.remove(&it)) else { return };
        self.clients.remove(verification.client, &verification.namespace);
    }

    /// It begins with the first password: who needs none has no thread for them.
    fn has_thread(&mut self, queue: &Arc<Queue>) -> bool {
        // One that has panicked is replaced.
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) && !self.is_closed {
            let queue = queue.clone();
            let begun = thread::Builder::new().name("passwords".to_owned()).spawn(move || queue.run());
            self.thread = begun.inspect_err(|error| tracing::error!(%error, "no thread for passwords")).ok();
        }
        self.thread.is_some()
    }
}
