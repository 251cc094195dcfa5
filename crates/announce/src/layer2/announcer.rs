//! The thread.

use std::{collections::BTreeMap, net::IpAddr};

use seaway_watchdog::{Heartbeat, Part};

use super::settings::{Counters, Settings, State, Wanted};
use crate::Error;

/// Announces from its start until it is dropped.
pub struct Announcer {
    part: Part,
    _heartbeat: Heartbeat,
}

impl Announcer {
    /// In the network namespace of the calling thread. `changed` is called from the thread, after states changed.
    pub fn start(
        _settings: Settings,
        _changed: impl FnMut(&BTreeMap<IpAddr, State>) + Send + 'static,
    ) -> Result<Announcer, Error> {
        let (heartbeat, part) = Heartbeat::new("the announcer of addresses");
        Ok(Announcer { part, _heartbeat: heartbeat })
    }

    pub fn want(&self, _wanted: Wanted) {}

    pub fn states(&self) -> BTreeMap<IpAddr, State> {
        BTreeMap::new()
    }

    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// For the watchdog.
    pub fn part(&self) -> Part {
        self.part.clone()
    }

    /// Withdraws everything, and tells the peers, before it returns; so does dropping it.
    pub fn stop(self) {}
}
