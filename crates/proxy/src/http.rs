//! HTTP: everything one worker does for its clients and the members that answer them.
//!
//! ```text
//!   event ──► stream (readable? writable?) ──► its task goes on                    stream.rs, worker_context.rs
//!
//!   one task per client:   downstream.rs  PROXY header, TLS, which HTTP
//!                            └ handshakes.rs   TLS handshakes, beside others who have much to do
//!                          serve.rs       HTTP/1.1: await a head, answer it, again
//!                          streams.rs     HTTP/2: a task of its own for every stream
//!                            └ client_tls.rs  whether the connection is as the host asks
//!                            └ guard.rs    who may ask, and how often
//!                            └ credentials.rs, forward_auth.rs   which users, and whether another Service agrees
//!                            └ exchange.rs  route, choose a member (sticky.rs), ask it (upstream_request.rs), or another
//!                            └ relay.rs     its answer back to the client
//!                          passthrough.rs or what is not HTTP, as it is
//!                                └ request_head.rs, heads.rs   what is changed on the way, there and back
//!                                └ compression.rs   whether the client gets it compressed
//!                                └ grpc.rs    what calls of gRPC say of the member
//!                                └ body_relay.rs    bodies, however they are framed
//!                                    └ gzip.rs    and compressed
//!                                └ idle_connections.rs   those to members that wait for the next request
//!                                    └ reuse.rs   whose request that may be
//!                                └ h2_upstream.rs   connections of HTTP/2 to members, which requests share
//!                                    └ switch.rs   other protocols in their streams
//!                                └ body_pipe.rs   large ones, past our memory
//!   an end of an exchange:   transport.rs  a connection (stream.rs, session.rs)
//!                            or a stream of one of HTTP/2 (h2_stream.rs, h2_connection.rs)
//! ```
//!
//! A task is a future that only ever runs on its worker, and awaits only streams and its own deadline: an event leads
//! straight to it, no waker is asked. Streams of HTTP/2 share a connection, and wake whoever drives it. Nothing is
//! allocated for a request on a connection of HTTP/1.1 that is kept alive: what a request needs ([`scratch::Scratch`])
//! comes from a pool of its worker and goes back there.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod access_record;
mod body_pipe;
mod body_relay;
mod client_tls;
mod compression;
mod cors;
mod credentials;
mod downstream;
mod exchange;
mod forward_auth;
pub(crate) mod fuzz;
mod grpc;
mod guard;
mod gzip;
mod h2_connection;
mod h2_stream;
mod h2_upstream;
mod handshakes;
mod heads;
mod idle_connections;
mod idle_timeouts;
mod local_reply;
mod loop_marker;
mod mirror;
mod passthrough;
mod queue;
mod relay;
mod request_head;
mod request_id;
mod reuse;
mod rules;
mod scratch;
mod serve;
mod session;
mod sticky;
mod stream;
mod stream_inbox;
mod streams;
mod switch;
mod task_state;
mod transport;
mod trusted_client;
mod upstream_request;
mod worker_context;

use std::{
    future::Future,
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, Waker},
};

use seaway_model::L4;

pub(crate) use self::loop_marker::LoopMarker;
use self::{
    handshakes::CompletedStep,
    task_state::TaskState,
    worker_context::{NewTask, Runnable, WorkerContext},
};
use crate::{
    access::RefusedClient,
    listening_sockets::{AcceptOutcome, AcceptedConnection},
    proxy_state::ProxyState,
    running::{RefusalReason, RunningListener, WaiterId},
    sys::{self, Event},
    worker::{
        Budget, EventSource, FairnessKey, Kind, LoopIteration, Slab, TimerLink, TimerWheel, Token,
        WorkerCommand,
    },
};

pub(crate) struct Http {
    context: Rc<WorkerContext>,
    tasks: Slab<Task>,
    wheel: TimerWheel,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    task_state: Rc<TaskState>,
    link: TimerLink,
    /// When the wheel looks at it.
    due: u64,
}

impl Http {
    pub(crate) fn new(turn: &LoopIteration) -> Http {
        Http { context: WorkerContext::new(turn), tasks: Slab::default(), wheel: TimerWheel::new(turn.now) }
    }

    /// Something was too much for the turn before.
    pub(crate) fn is_behind(&self) -> bool {
        self.context.has_backlog() || self.context.handshakes.are_behind()
    }

    /// At once, or among the others who have much to do.
    fn come(&mut self, token: Token, turn: &mut LoopIteration) {
        let fairness_key = self.context.listening().fairness_key(token);
        let Some(fairness_key) = fairness_key else { return };
        if !turn.must_wait(fairness_key) {
            return self.accept(token, turn);
        }
        if self.context.listening().wait(token.index()) {
            self.context.postpone(fairness_key, token.index() as usize, Runnable::ListeningSocket(token));
        }
    }

    fn happen(&mut self, index: u32, turn: &mut LoopIteration) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        if !turn.must_wait(task.task_state.fairness_key()) {
            return self.run(index);
        }
        if !task.task_state.is_woken() {
            self.context.postpone(
                task.task_state.fairness_key(),
                task.task_state.client(),
                Runnable::Woken(index),
            );
        }
    }

    fn accept(&mut self, token: Token, turn: &mut LoopIteration) {
        let burst = self.context.listening().burst(token, turn);
        for _ in 0..burst {
            if !self.admit(token.index(), turn) {
                return;
            }
        }
    }

    fn admit(&mut self, listening_socket: u32, turn: &mut LoopIteration) -> bool {
        let admission = self.context.listening().admit(listening_socket, turn);
        match admission {
            AcceptOutcome::None => return false,
            AcceptOutcome::Refused(client) => client.iter().for_each(|it| self.context.turned_away(it)),
            AcceptOutcome::Accepted(accepted) => self.start_connection(accepted, turn),
        }
        true
    }

    fn start_connection(&mut self, accepted: AcceptedConnection, turn: &LoopIteration) {
        if turn.shared.memory.is_far_beyond() {
            turn_away(&accepted, &turn.shared);
            let AcceptedConnection { peer, listener, .. } = accepted;
            return self.context.turned_away(&RefusedClient {
                peer,
                listener,
                why: RefusalReason::Resources,
            });
        }
        let task_state =
            Rc::new(TaskState::new(Some(accepted.listener.clone()), turn.now).passed(accepted.passes));
        let future =
            Box::pin(downstream::serve_connection(self.context.clone(), task_state.clone(), accepted));
        // It registers its stream, and awaits the first bytes.
        self.begin((task_state, future));
    }

    fn begin(&mut self, (task_state, future): NewTask) {
        let index = self.tasks.next().0;
        task_state.set_index(index);
        self.tasks.insert(Task { future, task_state, link: TimerLink::default(), due: u64::MAX });
        self.run(index);
    }

    /// Lets tasks go on that others have woken, and those that others have begun. Where they are too many, the rest goes
    /// on in later turns, as is fair, and what is woken by new events goes first: thousands of streams that begin or end at
    /// once delay nobody else.
    fn run_runnable(&mut self, turn: &mut LoopIteration) {
        self.context.begin_turn(turn);
        if !turn.is_contended() {
            let mut fresh = Budget::of(MOST_IN_A_TURN);
            while fresh.is_left()
                && let Some(runnable) = self.context.next_runnable()
            {
                self.go_on(runnable, turn);
                fresh.spend();
            }
        }
        while let Some(runnable) = self.context.next_runnable() {
            let of = match &runnable {
                Runnable::Woken(index) => self
                    .tasks
                    .get_mut(*index)
                    .map(|it| (it.task_state.fairness_key(), it.task_state.client())),
                Runnable::Begun((task_state, _)) => Some((task_state.fairness_key(), task_state.client())),
                Runnable::ListeningSocket(_) => None,
            };
            // One that has ended meanwhile is woken in vain.
            if let Some((fairness_key, client)) = of {
                self.context.postpone(fairness_key, client, runnable);
            }
        }
        let is_contended = turn.is_contended();
        let mut older = if is_contended { Budget::timed() } else { Budget::of(MOST_IN_A_TURN) };
        while older.is_left()
            && let Some((fairness_key, runnable)) = self.context.next_of_backlog()
        {
            self.dispatch_for(fairness_key, runnable, turn);
            match is_contended {
                true => self.context.charge(fairness_key, older.spend_time()),
                // A single one is charged nothing: reading the clock costs as much as a short task.
                false => older.spend(),
            }
        }
        let computed = self.context.handshakes.advance(&self.context);
        self.has_computed(computed);
        for (_, token) in self.context.handshakes.released() {
            self.context.listening().let_go(token, turn);
        }
    }

    fn has_computed(&self, computed: Option<CompletedStep>) {
        let Some(CompletedStep { of, took, is_awaited }) = computed else { return };
        self.context.charge(of.fairness_key(), took);
        if is_awaited {
            self.context.wake(&of);
        }
    }

    fn dispatch_for(&mut self, fairness_key: FairnessKey, runnable: Runnable, turn: &mut LoopIteration) {
        match runnable {
            Runnable::ListeningSocket(token)
                if self.context.listening().is_secure(token)
                    && self.context.handshakes.hold_back(fairness_key, token) =>
            {
                self.context.listening().hold(token, turn);
            }
            runnable => self.go_on(runnable, turn),
        }
    }

    fn go_on(&mut self, runnable: Runnable, turn: &mut LoopIteration) {
        match runnable {
            Runnable::Woken(index) => self.run(index),
            Runnable::Begun(task) => self.begin(task),
            Runnable::ListeningSocket(token) => self.accept(token, turn),
        }
    }

    fn run_unfinished(&mut self, turn: &mut LoopIteration) {
        // Those that run may have more to do again, in the next turn.
        let mut budget = Budget::of(self.context.unfinished());
        while budget.is_left()
            && let Some(index) = self.context.next_unfinished()
        {
            budget.spend();
            let Some(task) = self.tasks.get_mut(index) else { continue };
            if !turn.must_wait(task.task_state.fairness_key()) {
                self.run(index);
            } else if !task.task_state.is_woken() {
                self.context.postpone(
                    task.task_state.fairness_key(),
                    task.task_state.client(),
                    Runnable::Woken(index),
                );
            }
        }
    }

    /// Lets a task go on as far as it can.
    fn run(&mut self, index: u32) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        self.context.enter(&task.task_state);
        if task.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()) {
            return self.end(index);
        }
        let deadline = task.task_state.deadline();
        if deadline < task.due {
            task.due = deadline;
            self.wheel.set(index, deadline, links(&mut self.tasks));
        }
    }

    /// Whatever the task holds is closed.
    fn end(&mut self, index: u32) {
        self.wheel.drop(index, links(&mut self.tasks));
        if self.tasks.remove(index).is_some() {
            self.context.leave();
            self.context.listening().connection_closed(self.context.now());
        }
    }

    fn accept_pending_and_close(
        &mut self,
        turn: &mut LoopIteration,
        which: impl Fn(&Arc<RunningListener>) -> bool,
    ) {
        let listening = self.context.listening().of(which);
        for index in listening {
            while self.admit(index, turn) {}
            self.context.listening().close(index, turn);
        }
        // Who is idle there notices that nothing more is to come.
        for index in self.tasks.indexes() {
            self.run(index);
        }
    }

    fn sweep(&mut self, now: u64) {
        if !self.context.sweeps().are_due(now) {
            return;
        }
        for index in self.tasks.indexes() {
            match self.tasks.get_mut(index).and_then(|task| task.task_state.drained_at()) {
                Some(at) if at <= now => self.end(index),
                Some(at) => self.context.sweeps().at(at),
                None => {}
            }
        }
    }

    /// Lets those go on that have to end.
    fn run_evicted(&mut self) {
        for index in self.tasks.indexes() {
            if self.tasks.get_mut(index).is_some_and(|task| task.task_state.is_evicted()) {
                self.run(index);
            }
        }
    }

    fn expire(&mut self, now: u64) {
        let mut budget = Budget::of(MOST_IN_A_TURN);
        while budget.is_left()
            && let Some(index) = self.wheel.due(now)
        {
            let Some(task) = self.tasks.get_mut(index) else {
                // Cannot be: whoever leaves the slab leaves the wheel first.
                debug_assert!(false, "an entry of the wheel is not in the slab");
                return;
            };
            let deadline = task.task_state.deadline();
            task.due = deadline;
            if deadline > now && deadline < u64::MAX {
                self.wheel.set(index, deadline, links(&mut self.tasks));
                continue;
            }
            task.due = u64::MAX;
            self.wheel.drop(index, links(&mut self.tasks));
            if deadline <= now {
                self.run(index);
                budget.spend();
            }
        }
    }
}

/// Runnable tasks that run before events are looked at again, and tasks whose deadline has passed.
const MOST_IN_A_TURN: usize = 64;

/// Nothing is held for a client that came when too much was held already.
fn turn_away(accepted: &AcceptedConnection, shared: &ProxyState) {
    shared.memory.refused.fetch_add(1, Relaxed);
    accepted.listener.refuse(RefusalReason::Resources);
    accepted.listener.leave();
    shared.connection_ended();
    // If it fails the client sees an end instead of a reset.
    let _ = sys::reset_when_closed(accepted.fd.as_fd());
}

/// How the wheel reaches the links of tasks.
fn links(tasks: &mut Slab<Task>) -> impl FnMut(u32, &mut dyn FnMut(&mut TimerLink)) {
    |index, change| {
        if let Some(task) = tasks.get_mut(index) {
            change(&mut task.link);
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.context.drop_runnable();
    }
}

impl EventSource for Http {
    fn event(&mut self, token: Token, event: Event, turn: &mut LoopIteration) {
        self.context.begin_turn(turn);
        if token.kind() == Kind::HttpListener {
            return self.come(token, turn);
        }
        // It is noted in its own turn: see `Ready::note`.
        if let Some(task) = self.context.note(token, event) {
            self.happen(task, turn);
        }
    }

    fn command(&mut self, command: &WorkerCommand, turn: &mut LoopIteration) {
        self.context.begin_turn(turn);
        match command {
            WorkerCommand::Open(listener, socket)
                if listener.id.l4 == L4::Tcp && listener.needs_parsing() =>
            {
                self.context.listening().open(listener.clone(), socket.clone(), turn);
            }
            WorkerCommand::Close(listener) => {
                self.accept_pending_and_close(turn, |of| Arc::ptr_eq(of, listener))
            }
            WorkerCommand::Relinquish => self.context.listening().leave(turn),
            WorkerCommand::StopAccepting(_) => {
                self.context.stop();
                self.accept_pending_and_close(turn, |_: &Arc<RunningListener>| true);
            }
            WorkerCommand::SweepAt(at) => {
                self.context.sweeps().at(*at);
                self.context.forget_gone();
            }
            WorkerCommand::WakeWaiter(WaiterId::Task(index)) => self.happen(*index, turn),
            WorkerCommand::Cut => {
                for index in self.tasks.indexes() {
                    self.end(index);
                }
                // Nor does anybody begin.
                self.context.drop_runnable();
            }
            // The rest is about flows.
            _ => {}
        }
    }

    fn tick(&mut self, turn: &mut LoopIteration) {
        self.context.continue_backlog(turn);
        let computed = self.context.handshakes.collect();
        self.has_computed(computed);
        self.run_unfinished(turn);
        if self.context.memory.evict(turn.now) > 0 {
            self.run_evicted();
        }
        self.expire(turn.now);
        self.sweep(turn.now);
        self.run_runnable(turn);
        self.context.tick(turn);
    }

    fn next_timeout(&self, now: u64) -> Option<u64> {
        let sweep = self.context.sweeps().next_timeout(now);
        [self.wheel.next_timeout(now), sweep, self.context.next_timeout(now)].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
