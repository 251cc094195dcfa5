//! What belongs to the whole process: the registry, the workers' mailboxes, how many connections there are.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use seaway_announce::Steering;

use crate::{
    access::AccessLogger,
    client_rates::ClientRates,
    descriptors::Descriptors,
    http::LoopMarker,
    latency::Stopwatch,
    memory::{MemoryBudget, MemoryLimits},
    open::{ClosingSockets, InheritedSockets, WildcardSockets},
    own_sockets::{MOST_PASSES, OwnSockets},
    passwords::Passwords,
    running::Registry,
    sys,
    takeover::TransferredState,
    tls::Tickets,
    worker::{Mailbox, WorkerCommand},
};

/// Milliseconds without a shortage after which the next one is news.
const EPISODE: u64 = 10_000;
/// The same of loops.
const LOOP_EPISODE: u64 = 60_000;
/// A worker that does not obey within this time is not waited for.
const OBEYED: Duration = Duration::from_secs(5);

/// What the workers, the prober and the handle [`crate::Proxy`] share.
pub(crate) struct ProxyState {
    pub(crate) registry: Registry,
    pub(crate) tickets: Option<Arc<Tickets>>,
    pub(crate) access: AccessLogger,
    pub(crate) client_rates: ClientRates,
    pub(crate) passwords: Passwords,
    pub(crate) workers: Vec<Arc<Mailbox>>,
    /// Sockets of a predecessor that wait to be opened here.
    pub(crate) inherited: InheritedSockets,
    pub(crate) transferred_state: TransferredState,
    /// Sockets of listeners that were closed, as long as a worker has not let go of them.
    pub(crate) closing: ClosingSockets,
    pub(crate) wildcard: WildcardSockets,
    /// How addresses of pools take no port from the machine, where that is asked for.
    pub(crate) steering: OnceLock<Arc<Steering>>,
    /// What we have sent ourselves.
    pub(crate) own_sockets: Arc<OwnSockets>,
    pub(crate) descriptors: Arc<Descriptors>,
    /// Of requests that have come through this process.
    pub(crate) loop_marker: LoopMarker,
    looped_at: AtomicU64,
    pub(crate) memory: Arc<MemoryBudget>,
    /// Connections of all workers; UDP flows do not count.
    connections: AtomicUsize,
    /// How long members take is measured.
    measures: AtomicBool,
    /// UDP flows that were ended for others.
    pub(crate) flows_evicted: AtomicU64,
    flows: AtomicUsize,
    draining: AtomicBool,
    ended: Mutex<()>,
    one_ended: Condvar,
    /// Episodes in which the process was out of descriptors.
    pub(crate) exhausted: AtomicU64,
    starved_at: AtomicU64,
}

impl ProxyState {
    pub(crate) fn new(workers: Vec<Arc<Mailbox>>) -> ProxyState {
        ProxyState {
            registry: Registry::default(),
            tickets: Tickets::new(),
            access: AccessLogger::default(),
            client_rates: ClientRates::new(),
            passwords: Passwords::default(),
            workers,
            inherited: Mutex::default(),
            closing: ClosingSockets::default(),
            wildcard: WildcardSockets::default(),
            steering: OnceLock::new(),
            memory: Arc::new(MemoryBudget::new(MemoryLimits::default())),
            transferred_state: TransferredState::default(),
            own_sockets: Arc::default(),
            descriptors: Arc::new(Descriptors::new()),
            // The standard library asks the kernel for the keys of its hash tables: randomness without a crate.
            loop_marker: LoopMarker::new(RandomState::new().hash_one(std::process::id())),
            looped_at: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            measures: AtomicBool::new(false),
            flows_evicted: AtomicU64::new(0),
            flows: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            ended: Mutex::default(),
            one_ended: Condvar::new(),
            exhausted: AtomicU64::new(0),
            starved_at: AtomicU64::new(0),
        }
    }

    pub(crate) fn measure(&self, on: bool) {
        self.measures.store(on, Relaxed);
    }

    /// For what begins now.
    pub(crate) fn started(&self) -> Stopwatch {
        if self.measures.load(Relaxed) { Stopwatch::now() } else { Stopwatch::NEVER }
    }

    pub(crate) fn send_to_workers(&self, command: &WorkerCommand) {
        for worker in &self.workers {
            worker.post([command.clone()]);
        }
    }

    /// Returns when all workers have let in those who waited: from then on they count.
    pub(crate) fn stop_accepting(&self) {
        let (working, done) = mpsc::channel();
        self.send_to_workers(&WorkerCommand::StopAccepting(working));
        // An error is what is waited for: nobody has it any more.
        let _ = done.recv_timeout(OBEYED);
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    pub(crate) fn connection_began(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn connection_ended(&self) {
        let before = self.connections.fetch_sub(1, Relaxed);
        if before == 1 && self.draining.load(Relaxed) {
            self.one_ended.notify_all();
        }
    }

    /// UDP flows of all workers, which are limited together.
    pub(crate) fn flows(&self) -> usize {
        self.flows.load(Relaxed)
    }

    pub(crate) fn flow_began(&self) {
        self.flows.fetch_add(1, Relaxed);
    }

    pub(crate) fn flow_ended(&self) {
        self.flows.fetch_sub(1, Relaxed);
    }

    /// Waits until no connection is left, or until the deadline; tells how many are.
    pub(crate) fn wait_for_the_last(&self, deadline: Instant) -> usize {
        self.draining.store(true, Relaxed);
        let mut guard = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = self.connections();
            let time = deadline.saturating_duration_since(Instant::now());
            if left == 0 || time.is_zero() {
                return left;
            }
            // Counting is not done under the lock, so a notice may be missed: look again soon anyway.
            let time = time.min(Duration::from_millis(20));
            guard = self.one_ended.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Something came back to us too often. One line per episode.
    pub(crate) fn report_loop(&self, listener: SocketAddr) {
        let now = sys::millis();
        let before = self.looped_at.swap(now, Relaxed);
        if before == 0 || now.saturating_sub(before) > LOOP_EPISODE {
            tracing::warn!(
                %listener,
                "refused: this connection came through this process {MOST_PASSES} times before, so its \
                 Service sends to itself, perhaps through other proxies",
            );
        }
    }

    /// Only the descriptors are left that are kept for what runs: who is not in yet waits.
    pub(crate) fn report_scarcity(&self) {
        self.starved(|connections| {
            tracing::error!(
                connections,
                reserve = self.descriptors.reserve(),
                "nearly out of file descriptors: the last ones are reserved for open connections, new \
                 connections wait; raise the limit of open files",
            );
        });
    }

    /// Somebody got no descriptor. One line per episode, however many workers and connections suffer from it, and even
    /// if some get one now and then.
    pub(crate) fn out_of_descriptors(&self, error: &std::io::Error) {
        self.starved(|connections| {
            tracing::error!(
                %error, connections,
                "out of file descriptors: open connections continue, new ones wait; raise the limit of open files",
            );
        });
    }

    fn starved(&self, tell: impl FnOnce(usize)) {
        let now = sys::millis();
        let before = self.starved_at.swap(now, Relaxed);
        if before == 0 || now.saturating_sub(before) > EPISODE {
            self.exhausted.fetch_add(1, Relaxed);
            tell(self.connections());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn whoever_stops_accepting_waits_until_those_at_the_doors_count() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let shared = Arc::new(ProxyState::new(vec![mailbox.clone()]));
        let stops = thread::spawn({
            let shared = shared.clone();
            move || {
                shared.stop_accepting();
                shared.connections()
            }
        });
        let commands = loop {
            let commands = mailbox.collect();
            if !commands.is_empty() {
                break commands;
            }
            thread::yield_now();
        };
        assert!(!stops.is_finished(), "the worker is not through");
        shared.connection_began();
        drop(commands);
        assert_eq!(stops.join().unwrap(), 1);
    }
}
