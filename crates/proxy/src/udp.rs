//! UDP: flows of datagrams, each kept at one member.
//!
//! ```text
//!   clients ──recvmmsg──► listening socket ──► flow (client + listening socket) ──send──► member
//!           ◄─sendmmsg─── outbox, once per turn   ◄── the flow's own connected socket ◄──┘
//! ```
//! A flow has a connected socket of its own: replies find their client without being looked into, and a dead port
//! is told by the kernel. Its datagrams cost one `send` and one `recv`; reading clients and answering them is done in
//! batches, and trains (GRO) stay whole on their way through (GSO).
//!
//! Where others have much to do, too, reading a listening socket and reading replies of a flow wait for their turn among them
//! (`worker/fair_queue.rs`); what is not read yet waits in the kernel.
//!
//! A closed listener ends its flows at once: a socket kept for them would go on to get datagrams of whoever binds
//! the port next.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod datagram_rate;
mod flows;
mod forward;
mod inherit;
mod listening_socket;

use std::{collections::HashMap, io, os::fd::AsFd, sync::Arc};

use seaway_model::L4;
use seaway_snapshot::Cursor;

use self::{
    datagram_rate::DatagramRate,
    flows::{FlowId, Flows},
    forward::Flow,
    listening_socket::ListeningSocket,
};
use crate::{
    access::{ConnectionEnd, ConnectionLogLine, LogBuffer},
    running::{RunningListener, RunningPool},
    sys::{self, Event, Inbox, Outbox},
    worker::{
        Budget, DrainSweeps, EventSource, FairQueue, FairnessKey, Kind, LoopIteration, Slab, Token,
        WorkerCommand,
    },
};

/// Flows of a process. Each has a descriptor and a few hundred bytes, in the kernel about two thousand.
pub(crate) const MOST_FLOWS: usize = if cfg!(test) { 500 } else { 65_536 };
/// An index of a listening socket, not of a flow.
const DOOR: u32 = 1 << 31;
/// A flow that had replies in so many turns without a pause gets them read in batches.
const BUSY: u8 = 4;
const READS: usize = 8;
/// Datagrams of a listening socket that are read at once where others have much to do.
const BESIDE_OTHERS: usize = 8;
/// After a drain, in milliseconds.
const LAST_REPLIES: u64 = 1_000;

pub(crate) use self::datagram_rate::BATCH_DELAY;

pub(crate) struct Udp {
    worker: usize,
    /// Made with the first listening socket: a process without UDP has no buffers for it.
    buffers: Option<Box<Buffers>>,
    listening: Slab<ListeningSocket>,
    flows: Flows<Flow>,
    waiting: FairQueue<Token>,
    cursors: HashMap<usize, Cursor>,
    sweeps: DrainSweeps,
    datagram_rate: DatagramRate,
    /// Datagrams of this turn.
    handled: u32,
    accepts: bool,
    /// A successor has descriptors of the same sockets: nothing may end here that would not end there.
    frozen: bool,
    /// The header of the flow that is being opened.
    header: Vec<u8>,
    log_buffer: LogBuffer,
}

struct Buffers {
    inbox: Inbox,
    outbox: Outbox,
}

impl Udp {
    pub(crate) fn new(worker: usize, now: u64) -> Udp {
        Udp {
            worker,
            buffers: None,
            listening: Slab::default(),
            flows: Flows::new(now),
            waiting: FairQueue::default(),
            cursors: HashMap::new(),
            sweeps: DrainSweeps::default(),
            datagram_rate: DatagramRate::default(),
            handled: 0,
            accepts: true,
            frozen: false,
            header: Vec::new(),
            log_buffer: LogBuffer::default(),
        }
    }

    /// Datagrams come so fast that it pays to let some gather: see [`datagram_rate`].
    pub(crate) fn should_batch(&self) -> bool {
        self.datagram_rate.should_batch() && !self.is_behind()
    }

    /// Something was too much for the turn before.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whose it is, if that is still there.
    fn fairness_key(&mut self, token: Token) -> Option<FairnessKey> {
        let (index, generation) = (token.index(), token.generation());
        match index & DOOR {
            0 => self
                .flows
                .of(FlowId { slot: index, generation })
                .map(|entry| entry.flow.listener.fairness_key),
            _ => self
                .listening
                .of_generation(index & !DOOR, generation)
                .map(|listening_socket| listening_socket.listener.fairness_key),
        }
    }

    /// Whether it waits for its turn already; from now on it does, or no more.
    fn is_noted(&mut self, token: Token, waits: bool) -> bool {
        let (index, generation) = (token.index(), token.generation());
        let noted = match index & DOOR {
            0 => self.flows.of(FlowId { slot: index, generation }).map(|entry| &mut entry.flow.waits),
            _ => self
                .listening
                .of_generation(index & !DOOR, generation)
                .map(|listening_socket| &mut listening_socket.waits),
        };
        noted.is_some_and(|noted| std::mem::replace(noted, waits))
    }

    fn run_waiting(&mut self, turn: &mut LoopIteration) {
        let mut budget = Budget::timed();
        while budget.is_left()
            && let Some((fairness_key, token)) = self.waiting.pop()
        {
            self.is_noted(token, false);
            self.handle(token, turn);
            self.waiting.charge(fairness_key, budget.spend_time());
        }
    }

    fn handle(&mut self, token: Token, turn: &mut LoopIteration) {
        if token.index() & DOOR == 0 {
            self.reply(FlowId { slot: token.index(), generation: token.generation() }, turn);
            return;
        }
        let index = token.index() & !DOOR;
        // The event of a listening socket that was put to rest in this very turn is for who reads it next.
        if self
            .listening
            .of_generation(index, token.generation())
            .is_some_and(|listening_socket| !listening_socket.rests)
        {
            self.receive(index, turn);
        }
    }

    /// A client, or several, have sent something.
    fn receive(&mut self, listening_socket: u32, turn: &mut LoopIteration) {
        let Some(mut buffers) = self.buffers.take() else { return };
        if let Some(entry) = self.listening.get_mut(listening_socket) {
            let (listener, socket) = (entry.listener.clone(), entry.socket.clone());
            let config = listener.config();
            entry.suit(&config);
            let most = if turn.is_contended() { BESIDE_OTHERS } else { sys::BATCH };
            match buffers.inbox.receive(socket.as_fd(), most, entry.coalesces) {
                Ok(count) => {
                    self.handled = self.handled.saturating_add(count as u32);
                    let mut bytes = 0_u64;
                    for index in 0..count {
                        if let Some((peer, datagram, segment)) = buffers.inbox.datagram(index) {
                            bytes = bytes.saturating_add(datagram.len() as u64);
                            self.forward(
                                listening_socket,
                                &listener,
                                &config,
                                (peer, datagram, segment),
                                turn,
                            );
                        }
                    }
                    listening_socket::count(&listener.bytes_in, bytes);
                }
                // Level-triggered: whatever it was comes again, or was for nobody.
                Err(error) if sys::would_block(&error) => {}
                Err(error) => tracing::debug!(listener = %listener.at, %error, "receiving datagrams failed"),
            }
        }
        self.buffers = Some(buffers);
    }

    /// A member has answered, or its host has refused.
    fn reply(&mut self, id: FlowId, turn: &mut LoopIteration) {
        let Some(buffers) = self.buffers.as_mut() else { return };
        let Some(entry) = self.flows.of(id) else { return };
        let (key, flow) = (entry.key, &mut entry.flow);
        let busy = flow.notice(turn.number);
        let reads = if busy { READS } else { 1 };
        if buffers.outbox.is_full(reads) {
            listening_socket::flush(&mut buffers.outbox, &mut self.listening);
        }
        let received = if busy {
            flow.coalesce();
            buffers
                .outbox
                .receive_many(flow.socket.as_fd(), key.peer, key.socket, READS)
                .map(|(_, bytes)| bytes)
        } else {
            buffers.outbox.receive(flow.socket.as_fd(), key.peer, key.socket)
        };
        match received {
            Ok(bytes) => {
                self.handled = self.handled.saturating_add(1);
                entry.last = turn.now;
                entry.answered = true;
                flow.member.served();
                flow.sent = flow.sent.saturating_add(bytes as u64);
                listening_socket::count(&flow.member.bytes_out, bytes as u64);
                listening_socket::count(&flow.listener.bytes_out, bytes as u64);
            }
            Err(error) if sys::would_block(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => flow.failed(&error, turn.now),
        }
    }

    /// What was read for clients leaves by the listening sockets that they came in.
    fn flush(&mut self) {
        if let Some(buffers) = self.buffers.as_mut()
            && !buffers.outbox.is_empty()
        {
            listening_socket::flush(&mut buffers.outbox, &mut self.listening);
        }
    }

    fn open(&mut self, mut listening_socket: ListeningSocket, turn: &mut LoopIteration) {
        let (index, generation) = self.listening.next();
        let token = Token::new(Kind::Datagrams, DOOR | index, generation);
        listening_socket.rests = self.frozen || turn.shared.transferred_state.is_awaited();
        let watched = turn.epoll.watch_readable(listening_socket.socket.as_fd(), token.into());
        let paused = if listening_socket.rests {
            turn.epoll.pause(listening_socket.socket.as_fd(), token.into())
        } else {
            Ok(())
        };
        if let Err(error) = watched.and(paused) {
            tracing::error!(listener = %listening_socket.listener.at, %error, "a listening socket cannot be added to epoll");
            return;
        }
        self.buffers.get_or_insert_with(|| Box::new(Buffers { inbox: Inbox::new(), outbox: Outbox::new() }));
        let rests = listening_socket.rests;
        self.listening.insert(listening_socket);
        if !rests {
            self.inherit(index, turn);
        }
    }

    fn close(&mut self, listener: &Arc<RunningListener>, turn: &mut LoopIteration) {
        for index in self.listening.indexes() {
            let is_its = self
                .listening
                .get_mut(index)
                .is_some_and(|listening_socket| Arc::ptr_eq(&listening_socket.listener, listener));
            if is_its && let Some(listening_socket) = self.listening.remove(index) {
                // Others may hold this socket, so closing ours is not enough for epoll to forget it.
                let _ = turn.epoll.forget(listening_socket.socket.as_fd());
                self.end_where(Some(ConnectionEnd::Drained), turn, |flow, _| {
                    Arc::ptr_eq(&flow.listener, listener)
                });
            }
        }
    }

    /// Flows whose member has drained for long enough look for another at their next datagram. Until then, but not
    /// for long, what is on its way back still arrives.
    fn sweep(&mut self, turn: &mut LoopIteration) {
        let now = turn.now;
        if !self.sweeps.are_due(now) {
            return;
        }
        let mut over = Vec::new();
        for (id, entry) in self.flows.iter_mut().filter(|(_, entry)| !entry.flow.moves) {
            match entry.flow.drained_at() {
                Some(at) if at <= now => {
                    entry.flow.moves = true;
                    over.push(id);
                }
                Some(at) => self.sweeps.at(at),
                None => {}
            }
        }
        for id in over {
            self.flows.end_by(id, now.saturating_add(LAST_REPLIES), now);
        }
    }

    /// `None`: they go on elsewhere.
    fn end_where(
        &mut self,
        how: Option<ConnectionEnd>,
        turn: &mut LoopIteration,
        over: impl Fn(&Flow, u64) -> bool,
    ) {
        let now = turn.now;
        let ended: Vec<u32> = self
            .flows
            .iter_mut()
            .filter(|(_, entry)| over(&entry.flow, now))
            .map(|(id, _)| id.slot)
            .collect();
        for slot in ended {
            self.end(slot, how, turn);
        }
    }

    fn end(&mut self, slot: u32, how: Option<ConnectionEnd>, turn: &mut LoopIteration) {
        if let Some(entry) = self.flows.remove(slot) {
            turn.shared.flow_ended();
            if let Some(ending) = how
                && let Some(sink) = turn.shared.access.sink_of_flows(|| self.flows.draw())
            {
                let flow = &entry.flow;
                let line = ConnectionLogLine {
                    client: entry.key.peer.socket_addr(),
                    listener: &flow.listener,
                    pool: &flow.pool.id.0,
                    member: Some(flow.member.at),
                    sent: flow.sent,
                    received: flow.received,
                    connect: None,
                    took: turn.now.saturating_sub(flow.began),
                    ending,
                };
                self.log_buffer.add(&sink, &line, turn.now);
            }
            entry.flow.end();
        }
    }

    fn cursor(&mut self, pool: &Arc<RunningPool>) -> &mut Cursor {
        if self.cursors.len() > 20_000 {
            // Pools come and go; losing one's turn is nothing.
            self.cursors.clear();
        }
        let seed = self.worker as u64;
        self.cursors.entry(Arc::as_ptr(pool).addr()).or_insert_with(|| Cursor::new(seed))
    }
}

impl EventSource for Udp {
    fn event(&mut self, token: Token, _event: Event, turn: &mut LoopIteration) {
        let Some(fairness_key) = self.fairness_key(token) else { return };
        if !turn.must_wait(fairness_key) {
            return self.handle(token, turn);
        }
        if !self.is_noted(token, true) {
            self.waiting.push(fairness_key, token.index() as usize, token);
        }
    }

    fn command(&mut self, command: &WorkerCommand, turn: &mut LoopIteration) {
        // Replies of this turn still wait, and a command may close their listening socket, or put another in its place.
        self.flush();
        match command {
            WorkerCommand::Open(listener, socket) if listener.id.l4 == L4::Udp => {
                self.open(ListeningSocket::new(listener.clone(), socket.clone()), turn);
            }
            WorkerCommand::Close(listener) if listener.id.l4 == L4::Udp => self.close(listener, turn),
            WorkerCommand::Open(..) | WorkerCommand::Close(_) => {}
            WorkerCommand::SweepAt(at) => self.sweeps.at(*at),
            WorkerCommand::StopAccepting(_) => self.accepts = false,
            WorkerCommand::Cut => self.end_where(Some(ConnectionEnd::Drained), turn, |_, _| true),
            WorkerCommand::Freeze(export) => {
                let exported = self.freeze(turn);
                // Nobody waits for it any more: then a thaw follows.
                let _ = export.send(exported);
            }
            WorkerCommand::WakeWaiter(_) => {}
            WorkerCommand::Thaw => self.thaw(turn),
            WorkerCommand::Relinquish => self.relinquish(turn),
            WorkerCommand::Inherit => {
                for listening_socket in self.listening.indexes() {
                    self.inherit(listening_socket, turn);
                }
                self.resume_listeners(turn);
            }
            WorkerCommand::Quit => {}
            #[cfg(test)]
            WorkerCommand::Do(_) => {}
        }
    }

    fn tick(&mut self, turn: &mut LoopIteration) {
        turn.note_backlog(&self.waiting);
        if self.is_behind() {
            self.run_waiting(turn);
        }
        self.datagram_rate.note(self.handled, turn.now);
        self.handled = 0;
        self.flush();
        if self.frozen {
            return;
        }
        for slot in self.flows.expired(turn.now) {
            let is_drained = self.flows.at(slot).is_some_and(|entry| entry.until <= turn.now);
            let how = if is_drained { ConnectionEnd::Drained } else { ConnectionEnd::IdleTimeout };
            self.end(slot, Some(how), turn);
        }
        self.log_buffer.tick(turn.now);
        self.sweep(turn);
    }

    fn next_timeout(&self, now: u64) -> Option<u64> {
        if self.is_behind() {
            return Some(0);
        }
        if self.frozen {
            return None;
        }
        let flows = self.flows.wake_at().map(|at| at.saturating_sub(now));
        self.sweeps.next_timeout(now).into_iter().chain(flows).chain(self.log_buffer.next_timeout(now)).min()
    }
}

#[cfg(test)]
mod tests;
