//! Deleted means seen to be gone: a provider may answer that it deletes something, and leave it, or write a late status over
//! what was deleted, so that it is ACTIVE again.
//!
//! What was deleted below a load balancer is asked for once that is ready again; what comes back after that, audits see.

use seaway_model::Unit;
use seaway_openstack::{
    Cloud, Error,
    octavia::{HealthMonitor, Listener, Pool},
    resource::Id,
};

use super::{
    Joined, Octavia,
    steps::{Observed, Step},
    told::Note,
};

/// Something below a load balancer that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Child {
    Listener(Id<Listener>),
    Pool(Id<Pool>),
    Monitor(Id<HealthMonitor>),
}

/// After so many times in a row it is left to the next audit.
const TIMES: u32 = 3;

impl Child {
    /// What a step deletes.
    pub(super) fn of(step: &Step, observed: &Observed) -> Option<Child> {
        let balancer = observed.balancer.as_ref()?;
        let pool = |at| balancer.branches.get(at)?.pool.as_ref();
        match step {
            Step::RemoveListener(at) => Some(Child::Listener(balancer.branches.get(at)?.listener.id.clone())),
            Step::RemovePool(at) => Some(Child::Pool(pool(at)?.pool.id.clone())),
            Step::RemoveUnusedPool(id) => Some(Child::Pool(id.clone())),
            Step::RemoveDuplicateListener(id) => Some(Child::Listener(id.clone())),
            Step::RemoveMonitor(at) => Some(Child::Monitor(pool(at)?.monitor.as_ref()?.id.clone())),
            _ => None,
        }
    }

    async fn is_there(&self, cloud: &Cloud) -> Result<bool, Error> {
        Ok(match self {
            Child::Listener(id) => cloud.all::<Listener>().find::<Listener>(id).await?.is_some(),
            Child::Pool(id) => cloud.all::<Pool>().find::<Pool>(id).await?.is_some(),
            Child::Monitor(id) => cloud.all::<HealthMonitor>().find::<HealthMonitor>(id).await?.is_some(),
        })
    }

    fn words(&self) -> String {
        match self {
            Child::Listener(id) => format!("listener {id}"),
            Child::Pool(id) => format!("pool {id}"),
            Child::Monitor(id) => format!("health monitor {id}"),
        }
    }
}

impl Octavia {
    pub(super) fn note_removed(&self, unit: &Unit, child: Option<Child>) {
        if let Some(child) = child {
            self.past(unit, |past| past.removed.push(child));
        }
    }

    /// Whether something is there again, so that all has to be read.
    pub(super) async fn came_back(&self, joined: &Joined, unit: &Unit) -> Result<bool, Error> {
        let removed = self.past(unit, |past| past.removed.clone());
        if removed.is_empty() {
            return Ok(false);
        }
        let mut back = None;
        for child in &removed {
            if child.is_there(&joined.cloud).await? {
                back = Some(child.words());
                break;
            }
        }
        let times = self.past(unit, |past| {
            past.removed.retain(|it| !removed.contains(it));
            past.came_back = if back.is_some() { past.came_back.saturating_add(1) } else { 0 };
            past.came_back
        });
        let Some(back) = back else { return Ok(false) };
        if times == TIMES {
            let text = format!(
                "{back} was deleted {times} times, and still exists; the next drift check tries again"
            );
            self.tell(unit, Note { warning: true, reason: "NotDeleted", text });
        }
        Ok(times < TIMES)
    }
}
