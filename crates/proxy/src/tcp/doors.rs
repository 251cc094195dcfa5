//! Listening sockets and who comes in through them.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use super::{
    Tcp,
    connection::{Connection, Phase, Side},
};
use crate::{
    running::{Refusal, RunningListener},
    shared::Shared,
    sys::{self, Waker},
    worker::{Kind, Slab, Token, Turn},
};

#[derive(Default)]
pub(super) struct Doors {
    doors: Slab<Door>,
    /// Not watched at the moment, for want of descriptors.
    shut: Vec<(u32, u32)>,
    reopen_at: u64,
    /// Held so that a newcomer who got the last descriptor can still get one for its member.
    spare: Option<Waker>,
}

struct Door {
    listener: Arc<RunningListener>,
    socket: Arc<OwnedFd>,
    /// How many are let in per event. One, unless more keep waiting: asking in vain is the dearest answer.
    burst: u32,
    last_turn: u64,
}

const MOST_AT_ONCE: u32 = 64;
/// Milliseconds between attempts to let somebody in while nobody leaves.
const REOPEN_AFTER: u64 = 100;

impl Doors {
    pub(super) fn somebody_left(&mut self, now: u64) {
        if !self.shut.is_empty() {
            self.reopen_at = now;
        }
    }

    pub(super) fn tick(&mut self, turn: &mut Turn) {
        if self.shut.is_empty() || turn.now < self.reopen_at {
            return;
        }
        for (index, generation) in std::mem::take(&mut self.shut) {
            if let Some(door) = self.doors.of_generation(index, generation) {
                let token = Token::new(Kind::Listener, index, generation);
                if let Err(error) = turn.epoll.resume(door.socket.as_fd(), token.into()) {
                    tracing::error!(listener = %door.listener.at, %error, "a listener cannot be watched again");
                }
            }
        }
    }

    pub(super) fn patience(&self, now: u64) -> Option<u64> {
        (!self.shut.is_empty()).then(|| self.reopen_at.saturating_sub(now))
    }

    fn shut(&mut self, index: u32, turn: &Turn) {
        let generation = self.doors.generation(index);
        let Some(door) = self.doors.get_mut(index) else { return };
        let token = Token::new(Kind::Listener, index, generation);
        if turn.epoll.pause(door.socket.as_fd(), token.into()).is_ok() {
            self.shut.push((index, generation));
        }
        self.reopen_at = turn.now + REOPEN_AFTER;
    }

    /// Whether a newcomer could be given a second descriptor.
    fn has_spare(&mut self, shared: &Shared) -> bool {
        if self.spare.is_none() {
            match Waker::new() {
                Ok(spare) => self.spare = Some(spare),
                Err(error) => {
                    shared.out_of_descriptors(&error);
                    return false;
                }
            }
        }
        true
    }

    /// Frees a descriptor for the member of a newcomer who was let in. `false`: there is none.
    pub(super) fn give_up_spare(&mut self) -> bool {
        self.spare.take().is_some()
    }
}

impl Tcp {
    pub(super) fn open(&mut self, listener: Arc<RunningListener>, socket: Arc<OwnedFd>, turn: &mut Turn) {
        if listener.id.l4 != seaway_model::L4::Tcp {
            return;
        }
        let (index, generation) = self.doors.doors.next();
        let token = Token::new(Kind::Listener, index, generation);
        if let Err(error) = turn.epoll.watch_readable(socket.as_fd(), token.into()) {
            tracing::error!(listener = %listener.at, worker = turn.worker, %error, "a listener cannot be watched");
            return;
        }
        self.doors.doors.insert(Door { listener, socket, burst: 1, last_turn: 0 });
    }

    /// Whoever has connected already is let in, then the sockets are closed.
    pub(super) fn close_doors(&mut self, turn: &mut Turn, which: impl Fn(&Arc<RunningListener>) -> bool) {
        for index in self.doors.doors.indexes() {
            if !self.doors.doors.get_mut(index).is_some_and(|door| which(&door.listener)) {
                continue;
            }
            while self.admit(index, turn) {}
            if let Some(door) = self.doors.doors.remove(index) {
                // Others may hold the socket, so that closing ours would not end the watch.
                let _ = turn.epoll.forget(door.socket.as_fd());
            }
        }
    }

    pub(super) fn accept(&mut self, token: Token, turn: &mut Turn) {
        let Some(door) = self.doors.doors.of_generation(token.index(), token.generation()) else { return };
        let waited_on = door.last_turn + 1 == turn.number;
        door.burst = if waited_on { (door.burst * 2).min(MOST_AT_ONCE) } else { 1 };
        door.last_turn = turn.number;
        for _ in 0..door.burst {
            if !self.admit(token.index(), turn) {
                return;
            }
        }
    }

    /// Lets one in. `false`: nobody is waiting, or nobody can come in now.
    fn admit(&mut self, door: u32, turn: &mut Turn) -> bool {
        if !self.doors.has_spare(&turn.shared) {
            self.doors.shut(door, turn);
            return false;
        }
        let Some(Door { listener, socket, .. }) = self.doors.doors.get_mut(door) else { return false };
        let (fd, peer) = match sys::accept(socket.as_fd()) {
            Ok(newcomer) => newcomer,
            Err(error) if sys::would_block(&error) => return false,
            Err(error) if sys::out_of_descriptors(&error) => {
                turn.shared.out_of_descriptors(&error);
                self.doors.shut(door, turn);
                return false;
            }
            // Of this newcomer's network, says accept(2); the next one may be well.
            Err(error) => return error.kind() != io::ErrorKind::InvalidInput,
        };
        let listener = listener.clone();
        let tuned = listener.tuned();
        let trusted = tuned.trusts(peer.ip());
        let refusal = if !trusted && !tuned.admits(peer.ip()) {
            Some(Refusal::Source)
        } else {
            listener.enter(&tuned, turn.now).err()
        };
        if let Some(refusal) = refusal {
            listener.refuse(refusal);
            // If it fails the client sees an end instead of a reset.
            let _ = sys::reset_when_closed(fd.as_fd());
            return true;
        }
        drop(tuned);
        turn.shared.connection_began();
        let index = self.connections.insert(Connection::new(fd, peer, listener, turn.now));
        if trusted {
            self.schedule(index);
        } else {
            self.onward(index, turn);
        }
        self.watch_client(index, turn);
        true
    }

    fn watch_client(&mut self, index: u32, turn: &mut Turn) {
        let token = self.token_of(index, Side::Client);
        // It may be gone already: nobody to serve it.
        let Some(connection) = self.connections.get_mut(index) else { return };
        debug_assert!(connection.phase != Phase::Open);
        if let Err(error) = turn.epoll.watch_edges(connection.client.fd.as_fd(), token.into()) {
            turn.shared.out_of_descriptors(&error);
            self.refuse(index, Refusal::Resources, turn);
        }
    }
}
