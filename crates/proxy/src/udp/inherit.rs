//! Both sides of a take-over: flows leave with their sockets, and arrive where their listening sockets are.

use std::{io, os::fd::AsFd};

use super::{DOOR, Udp, flows::FlowKey, forward::Flow};
use crate::{
    takeover::{FlowRecord, TransferredFlow},
    worker::{Kind, LoopIteration, Token},
};

impl Udp {
    /// Reads nothing from clients any more, and tells all flows. Replies still go through.
    pub(super) fn freeze(&mut self, turn: &mut LoopIteration) -> io::Result<Vec<TransferredFlow>> {
        self.frozen = true;
        for index in self.listening.indexes() {
            let token = self.token(index);
            if let Some(listening_socket) = self.listening.get_mut(index) {
                turn.epoll.pause(listening_socket.socket.as_fd(), token.into())?;
                listening_socket.rests = true;
            }
        }
        let (listening, now) = (&mut self.listening, turn.now);
        let flows = self.flows.iter_mut().filter_map(|(_, entry)| {
            let listening_socket = listening.get_mut(entry.key.socket)?.cookie;
            let flow = &entry.flow;
            let record = FlowRecord {
                listening_socket,
                client: entry.key.peer.socket_addr(),
                pool: flow.pool.id.clone(),
                member: flow.member.at,
                silent: now.saturating_sub(entry.last),
                answered: entry.answered,
                trusted: flow.trusted,
                header: flow.header.clone(),
            };
            Some(flow.socket.try_clone().map(|socket| (record, socket)))
        });
        flows.collect()
    }

    pub(super) fn thaw(&mut self, turn: &mut LoopIteration) {
        self.frozen = false;
        self.resume_listeners(turn);
    }

    /// Closing our descriptors ends nothing: the successor has the same sockets, so epoll is told to forget them.
    pub(super) fn relinquish(&mut self, turn: &mut LoopIteration) {
        for (_, entry) in self.flows.iter_mut() {
            let _ = turn.epoll.forget(entry.flow.socket.as_fd());
        }
        self.end_where(None, turn, |_, _| true);
        for index in self.listening.indexes() {
            if let Some(listening_socket) = self.listening.remove(index) {
                let _ = turn.epoll.forget(listening_socket.socket.as_fd());
            }
        }
        self.frozen = false;
    }

    /// Goes on with the flows that a predecessor had at this listening socket.
    pub(super) fn inherit(&mut self, listening_socket: u32, turn: &mut LoopIteration) {
        let Some(entry) = self.listening.get_mut(listening_socket) else { return };
        let (listener, cookie) = (entry.listener.clone(), entry.cookie);
        let config = listener.config();
        let idle = config.listener.timeouts.udp_idle.as_millis() as u64;
        for (record, socket) in turn.shared.transferred_state.flows_of(cookie) {
            let Some(pool) = config.pool_by_id(&record.pool) else {
                continue;
            };
            let live = pool.live();
            let key = FlowKey { peer: record.client.into(), socket: listening_socket };
            // A member that is gone by the new plan: its clients choose anew.
            let place = live.compiled.position(record.member);
            let Some(member) = place.and_then(|it| live.members.get(it)).cloned() else { continue };
            let id = self.flows.next_id();
            let token = Token::new(Kind::Datagrams, id.slot, id.generation);
            if self.flows.find(&key).is_some()
                || turn.epoll.watch_readable(socket.as_fd(), token.into()).is_err()
            {
                continue;
            }
            let as_client = live.compiled.pool().transparent;
            let own_socket = turn.shared.own_sockets.flow(socket.as_fd(), (0, as_client));
            let mut flow = Flow::new(listener.clone(), pool.clone(), member, socket);
            (flow.header, flow.trusted, flow.own_socket) = (record.header, record.trusted, own_socket);
            flow.began = turn.now;
            listener.inherit();
            turn.shared.flow_began();
            self.flows.insert(key, turn.now, idle.max(1), flow);
            if let Some(entry) = self.flows.of(id) {
                entry.last = turn.now.saturating_sub(record.silent);
                entry.answered = record.answered;
            }
        }
    }

    pub(super) fn resume_listeners(&mut self, turn: &mut LoopIteration) {
        for index in self.listening.indexes() {
            let token = self.token(index);
            let Some(listening_socket) =
                self.listening.get_mut(index).filter(|listening_socket| listening_socket.rests)
            else {
                continue;
            };
            listening_socket.rests = false;
            if let Err(error) = turn.epoll.resume(listening_socket.socket.as_fd(), token.into()) {
                tracing::error!(listener = %listening_socket.listener.at, %error, "a listening socket cannot be added to epoll again");
            }
        }
    }

    fn token(&self, listening_socket: u32) -> Token {
        Token::new(Kind::Datagrams, DOOR | listening_socket, self.listening.generation(listening_socket))
    }
}
