//! Telling what changed: one log line each.

use std::net::SocketAddr;

use seaway_model::{LbKey, PoolId};
use seaway_snapshot::Standing;

/// One member of one pool is used from now on, or is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HealthChange {
    pub(super) key: LbKey,
    pub(super) pool: PoolId,
    pub(super) member: SocketAddr,
    pub(super) from: Standing,
    pub(super) to: Standing,
    pub(super) reason: String,
}

impl HealthChange {
    pub(super) fn log(&self) {
        let HealthChange { key, pool, member, reason, .. } = self;
        let (from, to) = (word(self.from), word(self.to));
        if self.to == Standing::Usable {
            tracing::info!(%member, %pool, load_balancer = %key, from, to, %reason, "member state changed");
        } else {
            tracing::warn!(%member, %pool, load_balancer = %key, from, to, %reason, "member state changed");
        }
    }
}

fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Usable => "up",
        Standing::Ejected => "ejected",
        Standing::Failed => "down",
    }
}
