//! How a cloud is talked to, apart from who we are.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::{Clock, RealClock},
    http::{Backoff, Limits, Metrics},
};

#[derive(Clone)]
pub struct Settings {
    pub timing: Timing,
    pub limits: Limits,
    pub backoff: Backoff,
    /// Reads are done, writes are refused and listed.
    pub dry_run: bool,
    pub metrics: Metrics,
    pub clock: Arc<dyn Clock>,
    pub fence: Fence,
}

/// Asked right before each attempt of each write, also of one that is repeated: who leads no more writes nothing.
#[derive(Clone, Default)]
pub struct Fence(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Fence {
    /// Writes go while `leads` says so.
    pub fn new(leads: impl Fn() -> bool + Send + Sync + 'static) -> Fence {
        Fence(Some(Arc::new(leads)))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.as_ref().is_none_or(|leads| leads())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub connect: Duration,
    /// One request, from the first byte sent to the last byte read.
    pub attempt: Duration,
    /// One call, with all its attempts and the pauses between them.
    pub call: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            timing: Timing::default(),
            limits: Limits::default(),
            backoff: Backoff::default(),
            dry_run: false,
            metrics: Metrics::default(),
            clock: Arc::new(RealClock),
            fence: Fence::default(),
        }
    }
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            connect: Duration::from_secs(5),
            attempt: Duration::from_secs(60),
            call: Duration::from_secs(120),
        }
    }
}

impl Timing {
    /// With what the credentials say of one request (`api_timeout`): any number, of which a day is as good as for ever.
    pub(crate) fn within(self, attempt: Option<Duration>) -> Timing {
        let attempt = attempt.unwrap_or(self.attempt).min(Duration::from_secs(24 * 3600));
        Timing { attempt, call: self.call.max(attempt), connect: self.connect }
    }
}
