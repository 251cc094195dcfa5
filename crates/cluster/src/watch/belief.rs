//! Whether a refusal is believed.
//!
//! An API server that has just begun knows no definitions and has read no rights: it answers that a kind is not there, or
//! is not for us, and would have us plan without pools a moment before it lists our Addresses. So refusals count only
//! once it has listed what we cannot do without, which is defined and permitted in the same manifests as the rest.

use seaway_model::Kind;
use tokio::sync::watch;

/// What must have been listed.
pub(super) const WITNESS: Kind = Kind::Address;

#[derive(Default)]
pub(super) struct Belief(watch::Sender<bool>);

impl Belief {
    pub(super) fn earn(&self) {
        self.0.send_if_modified(|earned| !std::mem::replace(earned, true));
    }

    pub(super) fn is_earned(&self) -> bool {
        *self.0.borrow()
    }

    pub(super) async fn earned(&self) {
        // The sender is ours, so it waits for ever rather than fail.
        let _ = self.0.subscribe().wait_for(|it| *it).await;
    }
}
