//! When an API server's refusals count.
//!
//! An API server that has just begun knows no definitions and has read no rights: it answers that a kind is not there, or
//! is not for us, and would have us plan without pools a moment before it lists our Addresses. So refusals count only
//! once it has listed what we cannot do without, which is defined and permitted in the same manifests as the rest.

use seaway_model::Kind;
use tokio::sync::{Mutex, watch};

/// The kind that an API server must have listed before its refusals count.
pub(super) const READINESS_KIND: Kind = Kind::Address;

#[derive(Default)]
pub(super) struct ApiReadiness {
    ready: watch::Sender<bool>,
    /// A kind is permitted that was forbidden before: others may be permitted now, too.
    permitted: watch::Sender<()>,
    /// How often the store was restored to an older state.
    pub(super) epoch: watch::Sender<u64>,
    /// Held while a watch reports that it was.
    pub(super) telling: Mutex<()>,
}

impl ApiReadiness {
    /// The API server has listed Addresses: from now on its refusals count.
    pub(super) fn set_ready(&self) {
        self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(super) async fn until_ready(&self) {
        // The sender is ours, so it waits for ever rather than fail.
        let _ = self.ready.subscribe().wait_for(|it| *it).await;
    }

    pub(super) fn note_permission(&self) {
        self.permitted.send_replace(());
    }

    /// Returns when something else is permitted from now on that was forbidden.
    pub(super) async fn until_permission(&self) {
        let _ = self.permitted.subscribe().changed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{future::ready, pin::pin, time::Duration};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_is_refused_hears_that_another_is_permitted_from_now_on() {
        let readiness = ApiReadiness::default();
        readiness.note_permission();
        let mut permitted = pin!(readiness.until_permission());
        tokio::select! {
            biased;
            () = &mut permitted => panic!("that was before"),
            () = ready(()) => {}
        }
        readiness.note_permission();
        timeout(Duration::from_secs(1), permitted).await.expect("it is heard");
    }
}
