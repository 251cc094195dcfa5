//! Take-over: a new process goes on with the sockets of the old one, and nobody outside notices.
//!
//! ```text
//!   old: hand_over                                  new: take
//!      ◄── Hello(versions, introduction) ───────────────┤
//!      │   judges it; from Asked on, changes nothing    │
//!      ├── Lock + descriptor, where one is needed ─────►│
//!      ├── Sockets + descriptors ──────────────────────►│ opens what it plans, adopting them;
//!      │   serves on                                    │ TCP serves at once, UDP sockets wait
//!      ◄── Ready ───────────────────────────────────────┤ confirm
//!      ├── Flows + descriptors (its UDP sockets rest) ─►│
//!      ◄── Received ────────────────────────────────────┤
//!      ├── Yours ──────────────────────────────────────►│ UDP sockets open
//!      │   closes its copies, ends what one alone does  │ serves
//!      ├── (closes the line) ──────────────────────────►│ does what one alone may do
//!      │   drains TCP, exits                            │
//! ```
//! Queues of connections and of datagrams live in the sockets, which both have: nothing is refused or lost while
//! they change hands. Until `Yours` the old process can go on as if nothing had happened, and does so when the new
//! one dies or dawdles; if the old one dies, the new one has all it needs. Health is found out anew.
//!
//! The two may be of different versions, in any order: each says what it speaks, unknown fields are passed over, and records of an
//! unknown kind are left out and counted in the log.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub(crate) mod fuzz;
mod message;
mod predecessor;
mod successor;

pub(crate) use message::FlowRecord;
pub use {
    message::Introduction,
    predecessor::{HandoverListener, HandoverPhase, Predecessor, STOPS_WITHIN},
    successor::{ANSWERS_WITHIN, Takeover, TakeoverError, take, take_as},
};

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use crate::Proxy;

impl Proxy {
    /// Waits at `path` for a successor, until the answer is dropped, and tells every turn. After
    /// [`HandoverPhase::Over`] this process has its TCP connections left to [`Proxy::drain`], and must keep its hands off
    /// everything else that the successor has now, such as presence.
    pub fn hand_over(&self, path: &Path, predecessor: impl Predecessor) -> io::Result<HandoverListener> {
        HandoverListener::begin(self.shared().clone(), path, predecessor)
    }

    /// Before anything is opened: opening then adopts the predecessor's sockets. UDP is served only from
    /// [`Proxy::confirm`] on.
    pub fn adopt(&self, taken: &mut Takeover) {
        taken.adopt(self.shared());
    }

    /// Everything is open: UDP flows come over and the predecessor lets go. An error means that it serves on, and
    /// this process must not.
    pub fn confirm(&self, taken: &mut Takeover) -> Result<(), TakeoverError> {
        taken.confirm(self.shared())
    }
}

/// What came from a predecessor and waits for the workers.
#[derive(Default)]
pub(crate) struct TransferredState {
    awaited: AtomicBool,
    /// By the cookie of the listening socket that they came in.
    flows: Mutex<HashMap<u64, Vec<TransferredFlow>>>,
}

/// A flow with its socket to its member.
pub(crate) type TransferredFlow = (FlowRecord, OwnedFd);

impl TransferredState {
    /// UDP listening sockets must not open yet: the flows of their clients are still to come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(SeqCst)
    }

    pub(crate) fn flows_of(&self, cookie: u64) -> Vec<TransferredFlow> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner).remove(&cookie).unwrap_or_default()
    }

    fn await_it(&self) {
        self.awaited.store(true, SeqCst);
    }

    fn arrived(&self, flows: Vec<TransferredFlow>) {
        let mut known = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        for flow in flows {
            known.entry(flow.0.listening_socket).or_default().push(flow);
        }
        drop(known);
        self.awaited.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests;
