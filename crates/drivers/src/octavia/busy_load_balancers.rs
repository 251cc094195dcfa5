//! Services that wait for a load balancer, because other Services are on it or have their ports. When one of those leaves it, the
//! driver reconciles the Services that wait.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use seaway_model::{Desired, Name, Unit};
use seaway_openstack::{octavia::LoadBalancer, resource::Id};

use super::{
    Octavia,
    shares::Claims,
    steps::{Observed, Step},
};

/// By which load balancer they wait.
#[derive(Default)]
pub(super) struct BusyLoadBalancers(Mutex<HashMap<Unit, Name>>, Claims);

impl BusyLoadBalancers {
    pub(super) fn waits(&self, unit: &Unit, at: &str) {
        self.all().insert(unit.clone(), at.into());
    }

    pub(super) fn gone(&self, unit: &Unit) {
        self.all().remove(unit);
    }

    pub(super) fn claims(&self) -> &Claims {
        &self.1
    }

    fn freed(&self, at: &str, by: &Unit) -> Vec<Unit> {
        self.all().extract_if(|unit, waits| **waits == *at && unit != by).map(|(unit, _)| unit).collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Unit, Name>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Octavia {
    /// Whether others have a port that it wants.
    pub(super) fn note_crowd(&self, unit: &Unit, desired: &Desired, observed: &Observed) {
        match (desired, &observed.balancer) {
            (Desired::LoadBalancer(wish), Some(balancer))
                if observed.shared.taken.keys().any(|id| wish.listeners.contains_key(id)) =>
            {
                self.busy_load_balancers.waits(unit, balancer.it.id.as_str());
            }
            _ => self.busy_load_balancers.gone(unit),
        }
    }

    /// Something of one Service is gone there. What the others know of it is not so any more.
    pub(super) fn make_room(&self, step: &Step, at: Option<&Id<LoadBalancer>>, unit: &Unit, now: Instant) {
        let Some(at) = at.filter(|_| matches!(step, Step::RemoveListener(_) | Step::Leave(..))) else {
            return;
        };
        for waiting in self.busy_load_balancers.freed(at.as_str(), unit) {
            self.known().remove(&waiting);
            self.past(&waiting, |past| past.unsure = Some(now));
            self.refusals.free(waiting);
        }
    }
}
