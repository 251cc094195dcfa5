//! Our own connections as they look from the other end: by that a listener knows what this process itself has sent,
//! and how often it has come through here already. So a loop ends after a few rounds, whoever made it, while Services
//! may still lead to one another.
//!
//! ```text
//!     a worker connects to a member ─► written down: (own address, member's) came through so many times
//!     a worker accepts ──────────────► is (client's address, where it arrived) one of those? once more, or too often
//! ```
//!
//! Both ends of a TCP connection are compared: the kernel gives one own port to connections to different members, and
//! to those of other processes of this machine. What was translated on its way to us (`kube-proxy`) is found by where
//! it was meant to go. A socket of UDP has its port to itself.
//!
//! What comes back from another machine, or with another's address, is not found here: see `http/loop_marker.rs` for HTTP,
//! and `descriptors.rs` for what one load balancer may take at most.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    io,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;

use crate::{
    reach::local_destination,
    sys::{self, KernelAddress},
};

/// So often something may come through this process. Chains of Services are shorter; a loop of one, two or three takes
/// at most twice as many descriptors for each client.
pub(crate) const MOST_PASSES: u8 = 8;
const SHARDS: usize = 16;
/// Beyond so many own addresses every client may be ourselves.
const MOST_SOURCES: usize = 1024;

#[derive(Default)]
pub(crate) struct OwnSockets {
    /// Held for reading from before a connection begins until it is written down: who must know whether one is missing
    /// waits for those that have begun.
    begins: RwLock<()>,
    /// How often it has come through, by what both ends hash to.
    shards: [Mutex<HashMap<u64, u8>>; SHARDS],
    keys: RandomState,
    /// Addresses that we connect from.
    sources: ArcSwap<HashSet<IpAddr>>,
    /// Any address may be one of those: some connect as their clients.
    any_source: AtomicBool,
    /// Members that were ever connected to, and how often each is somebody's.
    targets: RwLock<HashMap<SocketAddr, u32>>,
}

/// A connection or a flow that is written down, as long as it is open.
pub(crate) struct OwnSocket {
    sockets: Arc<OwnSockets>,
    key: u64,
}

/// A member that was connected to, as long as it is there.
pub(crate) struct RegisteredMember {
    sockets: Arc<OwnSockets>,
    at: SocketAddr,
}

impl OwnSockets {
    /// Connects for something that has come through `passes` times.
    pub(crate) fn connect(
        self: &Arc<OwnSockets>,
        fd: BorrowedFd<'_>,
        (to, address): (SocketAddr, &KernelAddress),
        (passes, as_client): (u8, bool),
    ) -> io::Result<Option<OwnSocket>> {
        let _begins = self.begins.read().unwrap_or_else(PoisonError::into_inner);
        sys::connect(fd, address)?;
        Ok(sys::local_address(fd).map(|own| self.note(own, Some(to), passes, as_client)))
    }

    /// Of UDP; connected already.
    pub(crate) fn flow(
        self: &Arc<OwnSockets>,
        fd: BorrowedFd<'_>,
        (passes, as_client): (u8, bool),
    ) -> Option<OwnSocket> {
        sys::local_address(fd).map(|own| self.note(own, None, passes, as_client))
    }

    /// A member is about to be connected to for the first time.
    pub(crate) fn target(self: &Arc<OwnSockets>, at: SocketAddr) -> RegisteredMember {
        let at = plain(at);
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        let count = targets.entry(at).or_default();
        *count = count.saturating_add(1);
        drop(targets);
        RegisteredMember { sockets: self.clone(), at }
    }

    fn note(
        self: &Arc<OwnSockets>,
        own: SocketAddr,
        to: Option<SocketAddr>,
        passes: u8,
        as_client: bool,
    ) -> OwnSocket {
        if as_client {
            // Written only once: it is read with every newcomer.
            if !self.any_source.load(Relaxed) {
                self.any_source.store(true, Relaxed);
            }
        } else {
            self.note_source(own.ip().to_canonical());
        }
        let key = self.key(own, to);
        self.shard(key).insert(key, passes.saturating_add(1));
        OwnSocket { sockets: self.clone(), key }
    }

    fn note_source(&self, ip: IpAddr) {
        let known = self.sources.load();
        if known.contains(&ip) || known.len() > MOST_SOURCES {
            return;
        }
        self.sources.rcu(|known| known.iter().copied().chain([ip]).collect::<HashSet<_>>());
    }

    /// How often what comes by this connection has come through here.
    pub(crate) fn passes(&self, fd: BorrowedFd<'_>, peer: SocketAddr, listener: SocketAddr) -> u8 {
        if !self.may_be_ours(peer.ip()) {
            return 0;
        }
        let arrived = local_destination(fd, listener);
        let found = self.find(peer, arrived);
        let meant = || sys::meant_for(fd).filter(|meant| *meant != arrived);
        found.or_else(|| self.find(peer, meant()?)).unwrap_or(0)
    }

    /// The same of a datagram: flows write themselves down before they send anything.
    pub(crate) fn passes_of_flow(&self, peer: SocketAddr) -> u8 {
        if !self.may_be_ours(peer.ip()) {
            return 0;
        }
        let key = self.key(peer, None);
        self.shard(key).get(&key).copied().unwrap_or(0)
    }

    fn may_be_ours(&self, ip: IpAddr) -> bool {
        let sources = self.sources.load();
        sources.contains(&ip.to_canonical()) || sources.len() > MOST_SOURCES || self.any_source.load(Relaxed)
    }

    fn find(&self, peer: SocketAddr, arrived: SocketAddr) -> Option<u8> {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        if !targets.contains_key(&plain(arrived)) {
            return None;
        }
        drop(targets);
        let key = self.key(peer, Some(arrived));
        let known = || self.shard(key).get(&key).copied();
        known().or_else(|| {
            // It may be one that a worker is about to write down.
            drop(self.begins.write().unwrap_or_else(PoisonError::into_inner));
            known()
        })
    }

    fn key(&self, own: SocketAddr, to: Option<SocketAddr>) -> u64 {
        let ends = |at: SocketAddr| (at.ip().to_canonical(), at.port());
        self.keys.hash_one((ends(own), to.map(ends)))
    }

    #[allow(clippy::indexing_slicing, reason = "a remainder of how many there are")]
    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, u8>> {
        // Entries are written in one go, so a table is whole even if a thread died over it.
        self.shards[key as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without what an address of a link has beside its number.
fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        self.sockets.shard(self.key).remove(&self.key);
    }
}

impl Drop for RegisteredMember {
    fn drop(&mut self) {
        let mut targets = self.sockets.targets.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = targets.get_mut(&self.at) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                targets.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_connection_is_ours_if_both_its_ends_are() {
        let sockets = Arc::new(OwnSockets::default());
        let (member, own) = (at("192.0.2.1:80"), at("10.0.0.5:40000"));
        let _target = sockets.target(member);
        let socket = sockets.note(own, Some(member), 2, false);
        assert_eq!(sockets.find(own, member), Some(3));
        // A process beside us that the kernel gave the same port, on its way to a listener of ours.
        assert_eq!(sockets.find(own, at("192.0.2.7:80")), None);
        assert_eq!(sockets.find(at("10.0.0.5:40001"), member), None);
        drop(socket);
        assert_eq!(sockets.find(own, member), None);
        assert_eq!(sockets.shards.iter().map(|it| it.lock().unwrap().len()).sum::<usize>(), 0);
    }

    #[test]
    fn who_comes_from_elsewhere_is_not_looked_for() {
        let sockets = Arc::new(OwnSockets::default());
        let _flow = sockets.note(at("10.0.0.5:40000"), None, 0, false);
        assert!(sockets.may_be_ours(at("10.0.0.5:1").ip()) && !sockets.may_be_ours(at("10.0.0.6:1").ip()));
        assert_eq!(sockets.passes_of_flow(at("10.0.0.5:40000")), 1);
        assert_eq!(sockets.passes_of_flow(at("10.0.0.5:40001")), 0);
        // Who appears as its client may be anybody.
        let _as_client = sockets.note(at("198.51.100.1:5"), None, 0, true);
        assert!(sockets.may_be_ours(at("203.0.113.1:1").ip()));
        assert_eq!(sockets.passes_of_flow(at("198.51.100.1:5")), 1);
    }

    #[test]
    fn members_that_are_gone_are_forgotten() {
        let sockets = Arc::new(OwnSockets::default());
        let (one, other) = (sockets.target(at("[::ffff:192.0.2.1]:80")), sockets.target(at("192.0.2.1:80")));
        drop(one);
        assert_eq!(sockets.targets.read().unwrap().len(), 1);
        drop(other);
        assert!(sockets.targets.read().unwrap().is_empty());
    }
}
