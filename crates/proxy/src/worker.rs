//! One worker: a thread with an epoll of its own, that waits, lets sources handle what happened, and waits again.
//!
//! ```text
//!     wait ──► read the clock once ──► events, each to the source of its token ──► tick of every source ──┐
//!       ▲                                       commands, if the waker was one of them                    │
//!       └─────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod budget;
mod fair_queue;
mod mailbox;
mod slab;
mod sweeps;
mod timer_wheel;
mod token;

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread,
};

use seaway_watchdog::{Heartbeat, WatchedPart};

pub(crate) use budget::Budget;
pub(crate) use fair_queue::{FairQueue, FairnessKey};
pub(crate) use mailbox::Mailbox;
pub(crate) use slab::Slab;
pub(crate) use sweeps::DrainSweeps;
pub(crate) use timer_wheel::{TimerLink, TimerWheel};
pub(crate) use token::{Kind, Token};

use crate::{
    http::Http,
    latency::WorkerNumber,
    proxy_state::ProxyState,
    running::{RunningListener, WaiterId},
    sys::{self, Alarm, Epoll, Event, Events},
    takeover::TransferredFlow,
    tcp::Tcp,
    udp::{self, Udp},
};

/// Something that has descriptors in a worker's epoll: see "another kind of source" in `lib.rs`.
pub(crate) trait EventSource {
    /// One of its descriptors is ready. The token may be stale: of something that ended earlier in this turn.
    fn event(&mut self, token: Token, event: Event, turn: &mut LoopIteration);

    /// Every source gets every command, in the order in which they were given.
    fn command(&mut self, command: &WorkerCommand, turn: &mut LoopIteration);

    /// After the events of a turn: what is due by the clock, and what was put off.
    fn tick(&mut self, turn: &mut LoopIteration);

    /// For how many milliseconds it can do without a tick.
    fn next_timeout(&self, now: u64) -> Option<u64>;
}

/// What a worker has that its sources share, and what is the same throughout one turn of its loop.
pub(crate) struct LoopIteration {
    /// By [`sys::millis`], read once per turn.
    pub(crate) now: u64,
    /// Of this turn; the next has the next number.
    pub(crate) number: u64,
    pub(crate) epoll: Arc<Epoll>,
    /// What was read and goes out at once: no connection has a buffer of its own while it is idle.
    pub(crate) buffer: Box<[u8]>,
    pub(crate) worker: usize,
    pub(crate) shared: Arc<ProxyState>,
    /// More events came than one can wait for.
    crowded: bool,
    /// For whom the last event was, and in which turn it was another than the one before.
    fairness_key: FairnessKey,
    mixed: u64,
    /// When that was.
    mixed_at: u64,
    /// TCP or UDP had more to do than fits the turn before.
    pub(crate) transport_is_behind: bool,
}

/// More events at once than these, and it matters who is first.
const CROWD: usize = 8;
/// Turns in which only one had events, before the worker is all its own.
const ALONE: u64 = 16;
/// Milliseconds without events of others, after which what was put off for them is no reason to put off more.
const ALONE_FOR: u64 = 100;

impl LoopIteration {
    pub(crate) fn new(
        worker: usize,
        epoll: Arc<Epoll>,
        buffer: Box<[u8]>,
        shared: Arc<ProxyState>,
    ) -> LoopIteration {
        let now = sys::millis();
        LoopIteration {
            now,
            number: 0,
            epoll,
            buffer,
            worker,
            shared,
            crowded: false,
            fairness_key: FairnessKey::default(),
            mixed: 0,
            mixed_at: 0,
            transport_is_behind: false,
        }
    }

    pub(crate) fn number_of_worker(&self) -> WorkerNumber {
        WorkerNumber { index: self.worker, of: self.shared.workers.len() }
    }

    /// Begins a turn with so many events. `behind`: some work was too much for the turn before.
    pub(crate) fn begin(&mut self, events: usize, behind: bool) {
        self.crowded = events > CROWD || self.crowded && behind;
    }

    /// Something is to be done for that load balancer. `true`: others have a lot to do, too, so it takes its place among
    /// them (see [`FairQueue`]); else it is done at once.
    pub(crate) fn must_wait(&mut self, fairness_key: FairnessKey) -> bool {
        if self.fairness_key != fairness_key {
            self.fairness_key = fairness_key;
            self.mixed = self.number;
            self.mixed_at = self.now;
        }
        self.is_contended()
    }

    /// What waits since earlier turns goes on: whoever waits for long, as one does whose last piece took long, has no events
    /// meanwhile, and is there all the same.
    pub(crate) fn note_backlog<T>(&mut self, waiting: &FairQueue<T>) {
        if waiting.has_others_than(self.fairness_key) {
            self.mixed = self.number;
            self.mixed_at = self.now;
        }
    }

    /// What was put off for the sake of others is not done yet: done by the worker now, it would delay the next of them.
    pub(crate) fn note_deferred(&mut self) {
        if self.now.saturating_sub(self.mixed_at) < ALONE_FOR {
            self.mixed = self.number;
        }
    }

    pub(crate) fn is_contended(&self) -> bool {
        self.crowded && self.number.saturating_sub(self.mixed) < ALONE
    }
}

#[derive(Clone)]
pub(crate) enum WorkerCommand {
    /// Serve this socket.
    Open(Arc<RunningListener>, Arc<OwnedFd>),
    /// Stop accepting there; what runs goes on.
    Close(Arc<RunningListener>),
    /// At that time, end what was to be drained by then. Comes after the change by which a member leaves.
    SweepAt(u64),
    /// All listeners. Dropped by everybody who has let in who waited.
    StopAccepting(mpsc::Sender<()>),
    /// Wakes a client: there may be room for it in the queue of a pool, or its password was verified.
    WakeWaiter(WaiterId),
    /// End everything.
    Cut,
    /// A successor is about to take over: UDP rests, and its flows are told.
    Freeze(mpsc::Sender<io::Result<Vec<TransferredFlow>>>),
    /// It did not: go on.
    Thaw,
    /// It did: what it has now is nothing of ours any more.
    Relinquish,
    /// A predecessor's flows have come.
    Inherit,
    Quit,
    /// Has a worker fail as a test wants it.
    #[cfg(test)]
    Do(Arc<dyn Fn() + Send + Sync>),
}

pub(crate) struct Worker {
    mailbox: Arc<Mailbox>,
    alarm: Alarm,
    turn: LoopIteration,
    heartbeat: Option<Heartbeat>,
}

/// Made on the worker's own thread, which they never leave.
struct EventSources {
    tcp: Tcp,
    udp: Udp,
    http: Http,
}

/// Events taken from the kernel at once.
const BATCH: usize = 256;
const BUFFER: usize = 64 * 1024;

impl Worker {
    pub(crate) fn new(index: usize, mailbox: Arc<Mailbox>, shared: Arc<ProxyState>) -> io::Result<Worker> {
        let epoll = Arc::new(Epoll::new()?);
        epoll.watch_readable(mailbox.fd(), Token::new(Kind::Waker, 0, 0).into())?;
        let alarm = Alarm::new()?;
        epoll.watch_edges(alarm.fd(), Token::new(Kind::Alarm, 0, 0).into())?;
        let buffer = vec![0; BUFFER].into_boxed_slice();
        let turn = LoopIteration::new(index, epoll, buffer, shared);
        Ok(Worker { mailbox, alarm, turn, heartbeat: None })
    }

    /// For the watchdog: each turn is a beat, and who is idle has one when it is woken.
    pub(crate) fn watched(mut self) -> (Worker, WatchedPart) {
        let (heartbeat, part) = Heartbeat::new(format!("worker {} of the data plane", self.turn.worker));
        self.heartbeat = Some(heartbeat);
        let mailbox = self.mailbox.clone();
        (self, part.woken_by(move || mailbox.wake()))
    }

    /// Until it is told to end. It fails where it cannot wait for events: only a broken descriptor can be the reason, and without it
    /// there is nothing to go on with.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_room_for(BATCH);
        sys::sleep_exactly();
        self.heartbeat.iter().for_each(Heartbeat::enter_thread);
        let mut sources = EventSources::new(&self.turn);
        loop {
            if let Err(error) = self.wait(&sources, &mut events)
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(error);
            }
            self.heartbeat.iter().for_each(Heartbeat::beat);
            self.turn.now = sys::millis();
            self.turn.number = self.turn.number.wrapping_add(1);
            self.turn.shared.memory.look_at_groups(self.turn.now);
            self.turn.begin(events.len(), sources.are_behind());
            self.turn.transport_is_behind = sources.tcp.is_behind() || sources.udp.is_behind();
            let mut only_datagrams = true;
            for index in 0..events.len() {
                let event = events.at(index);
                let token = Token::from(event.token);
                only_datagrams &= token.kind() == Kind::Datagrams;
                match token.kind() {
                    Kind::Listener | Kind::Connection => sources.tcp.event(token, event, &mut self.turn),
                    Kind::Datagrams => sources.udp.event(token, event, &mut self.turn),
                    Kind::HttpListener | Kind::HttpStream => sources.http.event(token, event, &mut self.turn),
                    Kind::Alarm => self.alarm.rang(),
                    Kind::Waker => {
                        if !self.obey(&mut sources) {
                            return Ok(());
                        }
                    }
                }
            }
            sources.all().into_iter().for_each(|source| source.tick(&mut self.turn));
            if only_datagrams && sources.udp.should_batch() {
                thread::sleep(udp::BATCH_DELAY);
            }
        }
    }

    fn wait(&mut self, sources: &EventSources, events: &mut Events) -> io::Result<()> {
        let now = self.turn.now;
        let patiences =
            [sources.tcp.next_timeout(now), sources.udp.next_timeout(now), sources.http.next_timeout(now)];
        match patiences.into_iter().flatten().min() {
            Some(0) => return self.turn.epoll.wait(events, Some(0)),
            Some(patience) => self.alarm.set(now.saturating_add(patience), now)?,
            None => {}
        }
        self.turn.epoll.wait(events, None)
    }

    /// `false`: it is over.
    fn obey(&mut self, sources: &mut EventSources) -> bool {
        for command in self.mailbox.collect() {
            if matches!(command, WorkerCommand::Quit) {
                return false;
            }
            sources.all().into_iter().for_each(|source| source.command(&command, &mut self.turn));
            // Who waited is let in, and counts: see `ProxyState::stop_accepting`.
            match command {
                WorkerCommand::StopAccepting(working) => drop(working),
                #[cfg(test)]
                WorkerCommand::Do(it) => it(),
                _ => {}
            }
        }
        true
    }
}

impl EventSources {
    fn new(turn: &LoopIteration) -> EventSources {
        EventSources {
            tcp: Tcp::new(turn.worker),
            udp: Udp::new(turn.worker, turn.now),
            http: Http::new(turn),
        }
    }

    /// Some work was too much for the turn before.
    fn are_behind(&self) -> bool {
        self.tcp.is_behind() || self.udp.is_behind() || self.http.is_behind()
    }

    fn all(&mut self) -> [&mut dyn EventSource; 3] {
        [&mut self.tcp, &mut self.udp, &mut self.http]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_cannot_wait_for_events_fails() {
        let mailbox = Arc::new(Mailbox::new().expect("a mailbox"));
        let shared = Arc::new(ProxyState::new(vec![mailbox.clone()]));
        let mut worker = Worker::new(0, mailbox, shared).expect("a worker");
        worker.turn.epoll = Arc::new(Epoll::broken().expect("a file"));
        let error = worker.run().expect_err("it cannot wait");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
