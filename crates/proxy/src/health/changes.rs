//! Telling what changed: one log line each.

use std::net::SocketAddr;

use seaway_model::{LbKey, PoolId};
use seaway_snapshot::MemberAvailability;

/// One member of one pool is used from now on, or is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HealthChange {
    pub(super) key: LbKey,
    pub(super) pool: PoolId,
    pub(super) member: SocketAddr,
    pub(super) from: MemberAvailability,
    pub(super) to: MemberAvailability,
    pub(super) reason: String,
}

impl HealthChange {
    pub(super) fn log(&self) {
        let HealthChange { key, pool, member, reason, .. } = self;
        let (from, to) = (word(self.from), word(self.to));
        if self.to == MemberAvailability::Usable {
            tracing::info!(%member, %pool, load_balancer = %key, from, to, %reason, "member state changed");
        } else {
            tracing::warn!(%member, %pool, load_balancer = %key, from, to, %reason, "member state changed");
        }
    }
}

fn word(standing: MemberAvailability) -> &'static str {
    match standing {
        MemberAvailability::Usable => "up",
        MemberAvailability::Ejected => "ejected",
        MemberAvailability::Failed => "down",
    }
}
