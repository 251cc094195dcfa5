//! The thread, as others see it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seaway_watchdog::{Heartbeat, Part};

use super::settings::{PeerName, PeerState, Settings, Wanted};
use crate::Error;

/// Announces to all peers until it is dropped, which withdraws all at once.
pub struct Speaker {
    shared: Arc<Shared>,
    part: Part,
}

#[derive(Default)]
pub(super) struct Shared {
    pub(super) wanted: Mutex<Option<Wanted>>,
    pub(super) told: Mutex<BTreeMap<PeerName, PeerState>>,
}

impl Speaker {
    /// In the network namespace of the calling thread. `changed` is called from the thread, after states changed; it must not
    /// take long.
    pub fn start(_settings: Settings, _changed: impl Fn() + Send + 'static) -> Result<Speaker, Error> {
        let (_heartbeat, part) = Heartbeat::new("the BGP speaker");
        Ok(Speaker { shared: Arc::default(), part })
    }

    /// From now on.
    pub fn want(&self, wanted: Wanted) {
        *locked(&self.shared.wanted) = Some(wanted);
    }

    pub fn states(&self) -> BTreeMap<PeerName, PeerState> {
        locked(&self.shared.told).clone()
    }

    /// For the watchdog.
    pub fn part(&self) -> Part {
        self.part.clone()
    }

    /// For good: asks peers to prefer others for so long (RFC 8326), then withdraws all, and ends the sessions. It returns
    /// when that is done.
    pub fn shut_down(self, _graceful: Duration) {}

    /// Ends sessions so that peers which agreed to it keep our routes for the next process.
    pub fn restart(self) {}
}

/// No holder of these locks leaves what is in it half done.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
