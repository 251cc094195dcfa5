//! Telling others what changed: one log line each, and subscribers that may be slow.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::Duration,
};

use seaway_model::{LbKey, PoolId};
use seaway_snapshot::Standing;

/// One member of one pool is used from now on, or is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthChange {
    pub key: LbKey,
    pub pool: PoolId,
    pub member: SocketAddr,
    pub from: Standing,
    pub to: Standing,
    pub reason: String,
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

/// Changes that were not taken yet, the latest of each member: a slow reader misses steps, never the outcome.
pub struct HealthChanges(Arc<Inbox>);

impl HealthChanges {
    /// What changed since last time; waits for something up to `patience`.
    pub fn wait(&self, patience: Duration) -> Vec<HealthChange> {
        let pending = self.0.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut pending, _) = self
            .0
            .arrived
            .wait_timeout_while(pending, patience, |pending| pending.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *pending).into_values().collect()
    }
}

type CheckedMembers = BTreeMap<(LbKey, PoolId, SocketAddr), HealthChange>;

#[derive(Default)]
struct Inbox {
    pending: Mutex<CheckedMembers>,
    arrived: Condvar,
}

#[derive(Default)]
pub(super) struct Subscribers(Mutex<Vec<Weak<Inbox>>>);

impl Subscribers {
    pub(super) fn subscribe(&self) -> HealthChanges {
        let inbox = Arc::new(Inbox::default());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&inbox));
        HealthChanges(inbox)
    }

    pub(super) fn publish(&self, changes: Vec<HealthChange>) {
        let mut subscribers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|inbox| inbox.strong_count() > 0);
        for inbox in subscribers.iter().filter_map(Weak::upgrade) {
            let mut pending = inbox.pending.lock().unwrap_or_else(PoisonError::into_inner);
            for change in &changes {
                let whom = (change.key.clone(), change.pool.clone(), change.member);
                let from = pending.get(&whom).map_or(change.from, |earlier| earlier.from);
                pending.insert(whom, HealthChange { from, ..change.clone() });
            }
            inbox.arrived.notify_all();
        }
    }
}
