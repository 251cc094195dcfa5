//! Accepts connections of TCP, and those that still wait when a listening socket is closed.

use std::{os::fd::AsFd, sync::Arc};

use super::{
    Tcp,
    connection::{Connection, Phase, Side},
};
use crate::{
    listening_sockets::{AcceptOutcome, AcceptedConnection},
    running::{RefusalReason, RunningListener},
    worker::{LoopIteration, Token},
};

impl Tcp {
    pub(super) fn accept(&mut self, token: Token, turn: &mut LoopIteration) {
        for _ in 0..self.listening.burst(token, turn) {
            if !self.admit(token.index(), turn) {
                return;
            }
        }
    }

    /// Accepts the clients that have connected already, then closes the sockets.
    pub(super) fn accept_pending_and_close(
        &mut self,
        turn: &mut LoopIteration,
        which: impl Fn(&Arc<RunningListener>) -> bool,
    ) {
        for index in self.listening.of(which) {
            while self.admit(index, turn) {}
            self.listening.close(index, turn);
        }
    }

    fn admit(&mut self, listening_socket: u32, turn: &mut LoopIteration) -> bool {
        match self.listening.admit(listening_socket, turn) {
            AcceptOutcome::None => return false,
            AcceptOutcome::Refused(client) => client.iter().for_each(|it| self.turned_away(it, turn)),
            AcceptOutcome::Accepted(accepted) => self.start_connection(accepted, turn),
        }
        true
    }

    fn start_connection(&mut self, accepted: AcceptedConnection, turn: &mut LoopIteration) {
        let AcceptedConnection { fd, peer, listener, trusted, passes } = accepted;
        let mut connection = Connection::new(fd, (peer, passes), listener, turn.now);
        connection.came = turn.shared.started();
        let index = self.connections.insert(connection);
        if trusted {
            self.schedule(index);
        } else {
            self.select_and_connect(index, turn);
        }
        self.watch_client(index, turn);
    }

    fn watch_client(&mut self, index: u32, turn: &mut LoopIteration) {
        let token = self.token_of(index, Side::Client);
        // It may be gone already: nobody to serve it.
        let Some(connection) = self.connections.get_mut(index) else { return };
        debug_assert!(connection.phase != Phase::Open);
        if let Err(error) = turn.epoll.watch_edges(connection.client.fd.as_fd(), token.into()) {
            turn.shared.out_of_descriptors(&error);
            self.refuse(index, RefusalReason::Resources, turn);
        }
    }
}
