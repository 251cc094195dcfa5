//! The thread, as others see it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use seaway_watchdog::{Heartbeat, WatchedPart};

use super::{
    settings::{BfdStatus, Key, Profile},
    worker::Worker,
};
use crate::{Error, layer2::locked};

/// Keeps sessions from its start until it is dropped.
pub struct Bfd {
    shared: Arc<DetectorShared>,
    part: WatchedPart,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner share.
pub(super) struct DetectorShared {
    pub(super) wanted: Mutex<Option<BTreeMap<Key, Profile>>>,
    ended: AtomicU8,
    pub(super) wake: EventFd,
    pub(super) told: Mutex<BTreeMap<Key, BfdStatus>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownMode {
    No,
    /// The next process goes on: peers are told nothing.
    Silently,
    /// Peers are told that nothing has failed.
    Told,
}

impl DetectorShared {
    pub(super) fn ended(&self) -> ShutdownMode {
        match self.ended.load(Ordering::Relaxed) {
            0 => ShutdownMode::No,
            1 => ShutdownMode::Silently,
            _ => ShutdownMode::Told,
        }
    }

    fn end(&self, how: ShutdownMode) {
        self.ended.store(how as u8, Ordering::Relaxed);
        // It fails only if it was woken very often, and then it wakes.
        let _ = self.wake.write(1);
    }
}

impl Bfd {
    /// In the network namespace of the calling thread. Without wanted sessions no port is taken. `changed` is called from the
    /// thread, after states changed; it must not take long, for no packet is sent meanwhile.
    pub fn start(changed: impl FnMut(&BTreeMap<Key, BfdStatus>) + Send + 'static) -> Result<Bfd, Error> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|error| Error::failed("making the event of BFD", error))?;
        let shared = Arc::new(DetectorShared {
            wanted: Mutex::default(),
            ended: AtomicU8::new(ShutdownMode::No as u8),
            wake,
            told: Mutex::default(),
        });
        let (heartbeat, part) = Heartbeat::new("BFD");
        let worker = Worker::new(shared.clone(), Box::new(changed), heartbeat);
        let thread = thread::Builder::new()
            .name("bfd".into())
            .spawn(move || worker.run())
            .map_err(|error| Error::failed("starting the thread of BFD", error))?;
        Ok(Bfd { shared, part, thread: Some(thread) })
    }

    /// From now on. A session that is not in it any more ends, and its peer is told that this is on purpose (AdminDown).
    pub fn set_desired(&self, wanted: BTreeMap<Key, Profile>) {
        *locked(&self.shared.wanted) = Some(wanted);
        // It fails only if it was woken very often, and then it wakes.
        let _ = self.shared.wake.write(1);
    }

    pub fn states(&self) -> BTreeMap<Key, BfdStatus> {
        locked(&self.shared.told).clone()
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.part.clone()
    }

    /// Tells all peers that this is on purpose (AdminDown), before it returns.
    pub fn shut_down(self) {
        self.shared.end(ShutdownMode::Told);
    }
}

impl Drop for Bfd {
    /// Without a word: a process that starts on this machine within the detection time goes on with the sessions.
    fn drop(&mut self) {
        if self.shared.ended() == ShutdownMode::No {
            self.shared.end(ShutdownMode::Silently);
        }
        if let Some(thread) = self.thread.take() {
            // It ends at once; a panic of it was told already.
            let _ = thread.join();
        }
    }
}
