//! TCP: everything one worker does for its listeners and connections.
//!
//! ```text
//!   listening socket ──accept──► Header? ──► choose a member ──► Connecting ──► Open ──► gone
//!   ../listening_sockets.rs     header.rs   connect.rs       ◄── another one      relay.rs
//! ```
//!
//! Sockets are watched for edges, once, and never changed again. What was read goes out at once from the worker's one
//! buffer; only what could not be written is kept, and then nothing more is read from that side.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod accept;
mod connect;
mod connection;
mod header;
mod relay;

use std::{os::fd::AsFd, sync::Arc};

use seaway_model::L4;

use self::connection::{Connection, Phase, Side};
use crate::{
    access::{ConnectionEnd, ConnectionLogLine, LogBuffer, RefusedClient},
    listening_sockets::ListeningSockets,
    pipes::Pipes,
    reach::Cursors,
    running::{RefusalReason, RunningListener, WaiterId},
    sys::{self, Event},
    worker::{
        Budget, DrainSweeps, EventSource, FairQueue, Kind, LoopIteration, Slab, TimerLink, TimerWheel, Token,
        WorkerCommand,
    },
};

pub(crate) struct Tcp {
    listening: ListeningSockets,
    connections: Slab<Connection>,
    wheel: TimerWheel,
    /// Had more to move than is fair in one turn.
    unfinished: Vec<Token>,
    /// What is done as is fair, where others have much to do, too.
    waiting: FairQueue<PendingWork>,
    pipes: Pipes,
    cursors: Cursors,
    sweeps: DrainSweeps,
    log_buffer: LogBuffer,
}

enum PendingWork {
    /// With how many members had been tried by then.
    Event(Token, Event, usize),
    Unfinished(Token),
    /// Clients wait there.
    ListeningSocket(Token),
}

impl Tcp {
    pub(crate) fn new(worker: usize) -> Tcp {
        Tcp {
            listening: ListeningSockets::new(Kind::Listener),
            connections: Slab::default(),
            wheel: TimerWheel::new(sys::millis()),
            unfinished: Vec::new(),
            waiting: FairQueue::default(),
            pipes: Pipes::default(),
            cursors: Cursors::new(worker),
            sweeps: DrainSweeps::default(),
            log_buffer: LogBuffer::default(),
        }
    }

    /// Something was too much for the turn before.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// At once, or among the others who have much to do.
    fn happen(&mut self, token: Token, event: Event, turn: &mut LoopIteration) {
        let (index, _) = Side::of(token.index());
        let Some(connection) = self.connections.of_generation(index, token.generation()) else { return };
        let fairness_key = connection.listener.fairness_key;
        if !turn.must_wait(fairness_key) {
            return self.connection_event(token, event, turn);
        }
        let waiting = PendingWork::Event(token, event, connection.tried());
        self.waiting.push(fairness_key, index as usize, waiting);
    }

    fn come(&mut self, token: Token, turn: &mut LoopIteration) {
        let Some(fairness_key) = self.listening.fairness_key(token) else { return };
        if !turn.must_wait(fairness_key) {
            return self.accept(token, turn);
        }
        if self.listening.wait(token.index()) {
            self.waiting.push(
                fairness_key,
                usize::MAX.saturating_sub(token.index() as usize),
                PendingWork::ListeningSocket(token),
            );
        }
    }

    fn run_waiting(&mut self, turn: &mut LoopIteration) {
        let mut budget = Budget::timed();
        while budget.is_left()
            && let Some((fairness_key, waiting)) = self.waiting.pop()
        {
            match waiting {
                PendingWork::Event(token, event, tried) => {
                    let (index, side) = Side::of(token.index());
                    let connection = self.connections.of_generation(index, token.generation());
                    // It may be of a member that was given up meanwhile.
                    if connection.is_some_and(|it| side == Side::Client || it.tried() == tried) {
                        self.connection_event(token, event, turn);
                    }
                }
                PendingWork::Unfinished(token) => self.finish(token, turn),
                PendingWork::ListeningSocket(token) => self.accept(token, turn),
            }
            self.waiting.charge(fairness_key, budget.spend_time());
        }
    }

    fn finish(&mut self, token: Token, turn: &mut LoopIteration) {
        let (index, side) = Side::of(token.index());
        if let Some(connection) = self.connections.of_generation(index, token.generation()) {
            connection.unfinished = false;
            self.relay(index, side, turn);
        }
    }

    fn connection_event(&mut self, token: Token, event: Event, turn: &mut LoopIteration) {
        let (index, side) = Side::of(token.index());
        let Some(connection) = self.connections.of_generation(index, token.generation()) else { return };
        match side {
            Side::Client => connection.client.note(event),
            Side::Member => {
                // Of a member that was given up; its number may be another's now.
                let Some(member) = &mut connection.member else { return };
                member.note(event);
            }
        }
        match (connection.phase, side) {
            (Phase::Header, Side::Client) => self.read_header(index, turn),
            (Phase::Connecting, Side::Member) => self.connected(index, event, turn),
            (Phase::Queued | Phase::Connecting, Side::Client) if event.failed() => {
                self.end(index, ConnectionEnd::ClientReset, turn);
            }
            (Phase::Open, _) => {
                self.relay(index, side, turn);
                if event.failed() {
                    self.broken(index, token.generation(), side, turn);
                }
            }
            (Phase::Header | Phase::Queued, Side::Member)
            | (Phase::Queued | Phase::Connecting, Side::Client) => {}
        }
    }

    /// Looks at a connection again no later than at its present deadline.
    fn schedule(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let deadline = connection.deadline();
        if deadline < connection.due {
            connection.due = deadline;
            self.wheel.set(index, deadline, links(&mut self.connections));
        }
    }

    fn expire(&mut self, turn: &mut LoopIteration) {
        while let Some(index) = self.wheel.due(turn.now) {
            let Some(connection) = self.connections.get_mut(index) else {
                // Cannot be: whoever leaves the slab leaves the wheel first.
                debug_assert!(false, "an entry of the wheel is not in the slab");
                return;
            };
            connection.report_bytes(turn.now);
            let deadline = connection.deadline();
            if deadline > turn.now {
                connection.due = deadline;
                self.wheel.set(index, deadline, links(&mut self.connections));
                continue;
            }
            // What follows may set a new deadline; the old one is over in any case.
            connection.due = u64::MAX;
            let phase = connection.phase;
            self.wheel.drop(index, links(&mut self.connections));
            match phase {
                Phase::Header => self.refuse(index, RefusalReason::Header, turn),
                Phase::Queued => self.poll_queue(index, turn),
                Phase::Connecting => self.unreachable(index, "no answer in time", turn),
                Phase::Open => self.end(index, ConnectionEnd::IdleTimeout, turn),
            }
        }
    }

    /// Ends connections whose time to drain is over.
    fn sweep(&mut self, turn: &mut LoopIteration) {
        if !self.sweeps.are_due(turn.now) {
            return;
        }
        for index in self.connections.indexes() {
            match self.connections.get_mut(index).and_then(|connection| connection.drained_at()) {
                Some(at) if at <= turn.now => self.end(index, ConnectionEnd::Drained, turn),
                Some(at) => self.sweeps.at(at),
                None => {}
            }
        }
    }

    /// Turns a client away.
    fn refuse(&mut self, index: u32, why: RefusalReason, turn: &mut LoopIteration) {
        if let Some(connection) = self.connections.get_mut(index) {
            connection.listener.refuse(why);
        }
        self.end(index, ConnectionEnd::Refused(why), turn);
    }

    fn end(&mut self, index: u32, how: ConnectionEnd, turn: &mut LoopIteration) {
        self.wheel.drop(index, links(&mut self.connections));
        let Some(mut connection) = self.connections.remove(index) else { return };
        let undelivered = connection.ends().any(|end| end.carries());
        if how.is_failure() || (how.is_ended_by_proxy() && undelivered) {
            for end in connection.ends() {
                // If it fails the peer sees an end instead; there is nobody to tell.
                let _ = sys::reset_when_closed(end.fd.as_fd());
            }
        }
        for end in connection.ends() {
            if let Some(pipe) = end.take_pipe() {
                self.pipes.give_back(pipe);
            }
        }
        connection.report_bytes(turn.now);
        self.log(&connection, how, turn);
        drop(connection);
        turn.shared.connection_ended();
        self.listening.connection_closed(turn.now);
    }

    /// What became of it, where anybody wants to know.
    fn log(&mut self, of: &Connection, ending: ConnectionEnd, turn: &LoopIteration) {
        let sink = turn.shared.access.sink_of_connections(|| self.cursors.draw());
        let Some(sink) = sink else { return };
        let line = ConnectionLogLine {
            client: of.peer,
            listener: &of.listener,
            pool: of.pool.as_ref().map_or("", |it| &it.id.0),
            member: of.target.as_ref().map(|it| it.at),
            sent: of.reported_out,
            received: of.reported_in,
            connect: of.connect.map(u64::from),
            took: turn.now.saturating_sub(of.began),
            ending,
        };
        self.log_buffer.add(&sink, &line, turn.now);
    }

    fn turned_away(&mut self, client: &RefusedClient, turn: &LoopIteration) {
        if let Some(sink) = turn.shared.access.sink_of_connections(|| self.cursors.draw()) {
            self.log_buffer.add(&sink, &client.line(), turn.now);
        }
    }

    fn token_of(&self, index: u32, side: Side) -> Token {
        Token::new(Kind::Connection, side.with(index), self.connections.generation(index))
    }
}

/// How the wheel reaches the links of connections.
fn links(connections: &mut Slab<Connection>) -> impl FnMut(u32, &mut dyn FnMut(&mut TimerLink)) {
    |index, change| {
        if let Some(connection) = connections.get_mut(index) {
            change(&mut connection.link);
        }
    }
}

impl EventSource for Tcp {
    fn event(&mut self, token: Token, event: Event, turn: &mut LoopIteration) {
        if token.kind() == Kind::Connection {
            self.happen(token, event, turn);
        } else {
            self.come(token, turn);
        }
    }

    fn command(&mut self, command: &WorkerCommand, turn: &mut LoopIteration) {
        match command {
            WorkerCommand::Open(listener, socket)
                if listener.id.l4 == L4::Tcp && !listener.needs_parsing() =>
            {
                self.listening.open(listener.clone(), socket.clone(), turn);
            }
            WorkerCommand::Close(listener) => {
                self.accept_pending_and_close(turn, |of| Arc::ptr_eq(of, listener))
            }
            WorkerCommand::Relinquish => self.listening.leave(turn),
            WorkerCommand::StopAccepting(_) => {
                self.accept_pending_and_close(turn, |_: &Arc<RunningListener>| true)
            }
            WorkerCommand::SweepAt(at) => {
                self.sweeps.at(*at);
                self.cursors.forget_gone();
            }
            WorkerCommand::WakeWaiter(WaiterId::Connection(token)) => self.on_queue_result(*token, turn),
            WorkerCommand::Cut => {
                for index in self.connections.indexes() {
                    self.end(index, ConnectionEnd::Drained, turn);
                }
            }
            // The rest is about flows.
            _ => {}
        }
    }

    fn tick(&mut self, turn: &mut LoopIteration) {
        turn.note_backlog(&self.waiting);
        for token in std::mem::take(&mut self.unfinished) {
            let (index, _) = Side::of(token.index());
            let Some(connection) = self.connections.of_generation(index, token.generation()) else {
                continue;
            };
            let fairness_key = connection.listener.fairness_key;
            match turn.must_wait(fairness_key) {
                true => self.waiting.push(fairness_key, index as usize, PendingWork::Unfinished(token)),
                false => self.finish(token, turn),
            }
        }
        if !self.waiting.is_empty() {
            self.run_waiting(turn);
        }
        self.expire(turn);
        self.sweep(turn);
        self.listening.tick(turn);
        self.log_buffer.tick(turn.now);
    }

    fn next_timeout(&self, now: u64) -> Option<u64> {
        if !self.unfinished.is_empty() || self.is_behind() {
            return Some(0);
        }
        let patiences = [
            self.wheel.next_timeout(now),
            self.sweeps.next_timeout(now),
            self.listening.next_timeout(now),
            self.log_buffer.next_timeout(now),
        ];
        patiences.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
