//! A lock around a list request whose reply several workers need: one of them sends it. A worker that finds the lock taken waits a
//! second, then does something else first: a slow list delays one worker and not all.

use std::time::Duration;

use seaway_engine::Failure;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

/// A list takes a fraction of this.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Held by the worker that sends the list request.
#[derive(Default)]
pub(super) struct ListRequestLock(Mutex<()>);

/// The lock was not free in time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListRequestTimeout;

impl ListRequestLock {
    /// Held while the list is asked for. Look again at what is kept then: another may have asked meanwhile.
    pub(super) async fn take(&self) -> Result<MutexGuard<'_, ()>, ListRequestTimeout> {
        timeout(PATIENCE, self.0.lock()).await.map_err(|_| ListRequestTimeout)
    }
}

impl From<ListRequestTimeout> for Failure {
    fn from(ListRequestTimeout: ListRequestTimeout) -> Failure {
        Failure::wait(
            "waiting for a slow list request to OpenStack that another load balancer has in flight"
                .to_owned(),
            PATIENCE,
        )
    }
}
