//! What a load balancer was like when it was read or written last, and when that was.

use std::time::Instant;

use super::steps::Observed;

/// What there was after the last call that was answered.
#[derive(Clone)]
pub(super) struct LastObservation {
    pub(super) observed: Observed,
    /// When the last change was asked for, on the cloud's clock.
    pub(super) since: Instant,
    /// And when it was answered.
    pub(super) until: Instant,
    /// When all of it was read.
    pub(super) read: Instant,
    pub(super) writing: bool,
}

impl LastObservation {
    pub(super) fn of(observed: Observed, now: Instant) -> LastObservation {
        LastObservation { observed, since: now, until: now, read: now, writing: false }
    }

    /// Nothing was under way then, nor is it now.
    pub(super) fn is_at_rest(&self, then: Instant) -> bool {
        !self.writing && self.until < then && !self.observed.is_pending()
    }
}
