//! Load balancers of Services that are not adopted: they are looked at, and nothing is kept of that.
//!
//! Another controller changes them. So each look is a first one, also the one that begins an adoption; and nobody is told of
//! what was found: an event is written to the cluster.

use std::sync::PoisonError;

use seaway_model::{Desired, Unit};

use super::{Octavia, repair::LoadBalancerHistory, shared::marks, steps::Observed};

impl Octavia {
    pub(super) fn begin_preview(&self, unit: &Unit, desired: &Desired) {
        let previewed = desired.is_preview();
        if !previewed && !self.is_previewed(unit) {
            return;
        }
        self.known().remove(unit);
        let past = LoadBalancerHistory::of_preview(previewed);
        self.past.lock().unwrap_or_else(PoisonError::into_inner).insert(unit.clone(), past);
    }

    pub(super) fn is_previewed(&self, unit: &Unit) -> bool {
        let all = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(unit).is_some_and(|it| it.previewed)
    }

    /// By its tags, as the first on it or as one that shares it.
    pub(super) fn has_our_marks(&self, unit: &Unit, observed: &Observed) -> bool {
        let (Unit::LoadBalancer(_, key), Some(joined)) = (unit, self.joined.get()) else { return false };
        let (Some(marks), Some(balancer)) = (marks(&joined.cluster, key), &observed.balancer) else {
            return false;
        };
        marks.is_first(&balancer.it.tags) || marks.is_guest(&balancer.it.tags)
    }
}

/// Nothing of it is written.
pub(super) fn is_paused(desired: &Desired) -> bool {
    match desired {
        Desired::LoadBalancer(wish) => wish.options.cloud.as_ref().is_some_and(|it| it.paused || it.off),
        _ => false,
    }
}
