//! The thread, as others see it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use seaway_model::{Name, bgp::DesiredBgp};
use seaway_watchdog::{Heartbeat, WatchedPart};

use super::{
    settings::{PeerState, Settings},
    worker::Worker,
};
use crate::{Error, layer2::locked};

/// Announces to all peers until it is dropped, which withdraws all at once.
pub struct Speaker {
    shared: Arc<SpeakerShared>,
    part: WatchedPart,
    last: Mutex<Option<DesiredBgp>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner share.
pub(super) struct SpeakerShared {
    pub(super) wanted: Mutex<Option<DesiredBgp>>,
    pub(super) told: Mutex<BTreeMap<Name, PeerState>>,
    pub(super) bfd: Mutex<Option<WatchedPart>>,
    pub(super) wake: EventFd,
    ended: Mutex<ShutdownMode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownMode {
    No,
    /// Without a word: peers that agreed to it keep our routes.
    Restarting,
    Leaving(Duration),
}

impl SpeakerShared {
    pub(super) fn ended(&self) -> ShutdownMode {
        *locked(&self.ended)
    }

    fn wake(&self) {
        // It fails only if it was woken very often, and then it wakes.
        let _ = self.wake.write(1);
    }
}

impl Speaker {
    /// In the network namespace of the calling thread. `changed` is called from the thread, after states changed; it must not
    /// take long.
    pub fn start(settings: Settings, changed: impl Fn() + Send + 'static) -> Result<Speaker, Error> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|error| Error::failed("making the event of the BGP speaker", error))?;
        let shared = Arc::new(SpeakerShared {
            wanted: Mutex::default(),
            told: Mutex::default(),
            bfd: Mutex::default(),
            wake,
            ended: Mutex::new(ShutdownMode::No),
        });
        let (heartbeat, part) = Heartbeat::new("the BGP speaker");
        let waker = shared.clone();
        let part = part.woken_by(move || waker.wake());
        let worker = Worker::new(settings, shared.clone(), Box::new(changed), heartbeat);
        let thread = thread::Builder::new()
            .name("bgp".into())
            .spawn(move || worker.run())
            .map_err(|error| Error::failed("starting the thread of the BGP speaker", error))?;
        Ok(Speaker { shared, part, last: Mutex::default(), thread: Some(thread) })
    }

    /// All of it, from now on. The first one has all that a process of before announced: what is not in it is withdrawn.
    pub fn set_desired(&self, wanted: DesiredBgp) {
        let mut last = locked(&self.last);
        if last.as_ref() == Some(&wanted) {
            return;
        }
        *last = Some(wanted.clone());
        *locked(&self.shared.wanted) = Some(wanted);
        self.shared.wake();
    }

    pub fn states(&self) -> BTreeMap<Name, PeerState> {
        locked(&self.shared.told).clone()
    }

    /// For the watchdog; BFD is one more, once a session has it.
    pub fn parts(&self) -> Vec<WatchedPart> {
        [self.part.clone()].into_iter().chain(locked(&self.shared.bfd).clone()).collect()
    }

    /// For good: asks peers to prefer others for so long (RFC 8326), then withdraws all, and ends the sessions. It returns
    /// when that is done.
    pub fn shut_down(mut self, graceful: Duration) {
        self.end(ShutdownMode::Leaving(graceful));
    }

    /// Ends sessions so that peers which agreed to it keep our routes for the next process (RFC 4724).
    pub fn restart(mut self) {
        self.end(ShutdownMode::Restarting);
    }

    fn end(&mut self, how: ShutdownMode) {
        let Some(thread) = self.thread.take() else { return };
        *locked(&self.shared.ended) = how;
        self.shared.wake();
        // It ends soon; a panic of it was told already.
        let _ = thread.join();
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.end(ShutdownMode::Leaving(Duration::ZERO));
    }
}
