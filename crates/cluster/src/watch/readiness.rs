//! Whether a refusal is believed.
//!
//! An API server that has just begun knows no definitions and has read no rights: it answers that a kind is not there, or
//! is not for us, and would have us plan without pools a moment before it lists our Addresses. So refusals count only
//! once it has listed what we cannot do without, which is defined and permitted in the same manifests as the rest.

use seaway_model::Kind;
use tokio::sync::{Mutex, watch};

/// What must have been listed.
pub(super) const WITNESS: Kind = Kind::Address;

#[derive(Default)]
pub(super) struct ApiReadiness {
    earned: watch::Sender<bool>,
    /// Somebody was permitted what was forbidden before: the same hand may have permitted more.
    permitted: watch::Sender<()>,
    /// How often the store was set back.
    pub(super) epoch: watch::Sender<u64>,
    /// Held by whoever tells that it was.
    pub(super) telling: Mutex<()>,
}

impl ApiReadiness {
    /// The API server has listed Addresses: from now on its refusals count.
    pub(super) fn set_ready(&self) {
        self.earned.send_if_modified(|earned| !std::mem::replace(earned, true));
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.earned.borrow()
    }

    pub(super) async fn until_ready(&self) {
        // The sender is ours, so it waits for ever rather than fail.
        let _ = self.earned.subscribe().wait_for(|it| *it).await;
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
