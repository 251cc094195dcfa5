//! The thread, as others see it.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use seaway_watchdog::{Heartbeat, WatchedPart};

use super::{
    settings::{AddressStatus, Counters, DesiredAnnouncements, Settings},
    worker::Worker,
};
use crate::Error;

/// Announces from its start until it is dropped.
pub struct Announcer {
    shared: Arc<AnnouncerShared>,
    part: WatchedPart,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner share.
pub(super) struct AnnouncerShared {
    pub(super) wanted: Mutex<Option<DesiredAnnouncements>>,
    pub(super) ended: AtomicBool,
    pub(super) wake: EventFd,
    pub(super) told: Mutex<(BTreeMap<IpAddr, AddressStatus>, Counters)>,
}

impl Announcer {
    /// In the network namespace of the calling thread. `changed` is called from the thread, after states changed; it must
    /// not take long, for nothing is announced meanwhile.
    pub fn start(
        settings: Settings,
        changed: impl FnMut(&BTreeMap<IpAddr, AddressStatus>) + Send + 'static,
    ) -> Result<Announcer, Error> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|error| Error::failed("making the announcer's event", error))?;
        let shared = Arc::new(AnnouncerShared {
            wanted: Mutex::default(),
            ended: AtomicBool::new(false),
            wake,
            told: Mutex::default(),
        });
        let (heartbeat, part) = Heartbeat::new("the announcer of addresses");
        let worker = Worker::new(settings, shared.clone(), Box::new(changed), heartbeat)?;
        let thread = thread::Builder::new()
            .name("announcer".into())
            .spawn(move || worker.run())
            .map_err(|error| Error::failed("starting the announcer's thread", error))?;
        Ok(Announcer { shared, part, thread: Some(thread) })
    }

    /// From now on; what was wanted before and is not in it is let go at once.
    pub fn set_desired(&self, wanted: DesiredAnnouncements) {
        *locked(&self.shared.wanted) = Some(wanted);
        self.wake();
    }

    pub fn states(&self) -> BTreeMap<IpAddr, AddressStatus> {
        locked(&self.shared.told).0.clone()
    }

    pub fn counters(&self) -> Counters {
        locked(&self.shared.told).1
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.part.clone()
    }

    /// Withdraws everything, and tells the peers, before it returns; so does dropping it.
    pub fn stop(self) {}

    fn wake(&self) {
        // It fails only if it was woken very often, and then it wakes.
        let _ = self.shared.wake.write(1);
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // It ends at once; a panic of it was told already.
            let _ = thread.join();
        }
    }
}

/// No holder of these locks leaves what is in it half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
