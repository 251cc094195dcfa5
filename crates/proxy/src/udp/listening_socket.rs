//! Doors: the listening sockets of one worker, by which clients come and replies leave.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    running::{ListenerConfig, RunningListener},
    sys::{self, Outbox},
    worker::Slab,
};

/// What may wait for a worker that is busy, or for a successor to take over: bytes, as the kernel counts them.
const QUEUE: i32 = 4 << 20;

pub(super) struct ListeningSocket {
    pub(super) listener: Arc<RunningListener>,
    pub(super) socket: Arc<OwnedFd>,
    /// Datagrams of one client may come as trains.
    pub(super) coalesces: bool,
    /// The same in every process that has the socket.
    pub(super) cookie: u64,
    /// Not read at the moment, on either side of a take-over.
    pub(super) rests: bool,
    /// It is read when it is its turn.
    pub(super) waits: bool,
}

impl ListeningSocket {
    pub(super) fn new(listener: Arc<RunningListener>, socket: Arc<OwnedFd>) -> ListeningSocket {
        let alone = listener.config().listener.proxy_from.is_empty();
        let coalesces = sys::coalesce(socket.as_fd(), alone);
        sys::widen(socket.as_fd(), QUEUE);
        let cookie = sys::cookie(socket.as_fd()).unwrap_or(0);
        ListeningSocket { listener, socket, coalesces, cookie, rests: false, waits: false }
    }

    /// A PROXY header makes the first datagram of a train unlike the others, so those must come one by one.
    pub(super) fn suit(&mut self, config: &ListenerConfig) {
        if self.coalesces && !config.listener.proxy_from.is_empty() {
            self.coalesces = sys::coalesce(self.socket.as_fd(), false);
        }
    }
}

/// Sends what waits in the outbox, each by the listening socket that its client came in.
pub(super) fn flush(outbox: &mut Outbox, listening: &mut Slab<ListeningSocket>) {
    let lost = outbox.flush(|listening_socket| {
        listening.get_mut(listening_socket).map(|listening_socket| listening_socket.socket.clone())
    });
    if lost > 0 {
        tracing::debug!(lost, "replies could not be sent");
    }
}

pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}
