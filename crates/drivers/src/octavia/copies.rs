//! A listener that was deleted here, and that another made again under the name of this cluster: a copy of the cluster writes
//! there, too, and one of the two knows a port that the other does not. Who sees that deletes it no more, and says so.
//!
//! Each would else undo what the other did, at every audit. (What comes back by itself after it was deleted has the same id:
//! gone.rs. What was made here late, for a port that is not wished any more, has one that was never deleted here.)

use std::collections::BTreeSet;

use seaway_model::{Desired, L4, ListenerId, LoadBalancer as Wish, Owner, Problem, Reason, Unit};

use super::{
    Octavia,
    gone::Child,
    names::KEY,
    steps::{Observed, ObservedLoadBalancer, Step},
};

impl Octavia {
    /// What was deleted is remembered until it is made here again.
    pub(super) fn note_written(&self, unit: &Unit, step: &Step, removed: Option<&Child>) {
        self.past(unit, |past| match (step, removed) {
            (Step::RemoveListener(at), Some(Child::Listener(id))) => {
                past.deleted.insert(*at, id.clone());
            }
            (Step::AddListener(at, _), _) => _ = past.deleted.remove(at),
            _ => {}
        });
    }

    /// Listeners that nobody wishes here, and that another made again after they were deleted here.
    pub(super) fn made_by_a_copy(
        &self,
        unit: &Unit,
        desired: &Desired,
        observed: &Observed,
    ) -> BTreeSet<ListenerId> {
        let (Desired::LoadBalancer(wish), Some(balancer)) = (desired, &observed.balancer) else {
            return BTreeSet::new();
        };
        let metrics = wish.options.cloud.as_ref().and_then(|it| it.metrics);
        let is_wished = |at: &ListenerId| {
            wish.listeners.contains_key(at)
                || metrics.is_some_and(|port| *at == ListenerId { l4: L4::Tcp, port })
        };
        self.past(unit, |past| {
            past.deleted.retain(|at, _| !is_wished(at));
            let is_again = |at: &ListenerId| {
                let there = &balancer.branches.get(at)?.listener;
                let is_tagged = there.tags.iter().any(|it| it.starts_with(KEY));
                (past.deleted.get(at) != Some(&there.id) && is_tagged).then_some(*at)
            };
            past.deleted.keys().filter_map(is_again).collect()
        })
    }
}

/// Whether a step is of a listener that stays for that. Who goes elsewhere takes all that is its own.
pub(super) fn stays(observed: &Observed, steps: &[Step]) -> BTreeSet<ListenerId> {
    match steps.iter().any(|it| matches!(it, Step::Leave(..) | Step::Delete(_))) {
        true => BTreeSet::new(),
        false => observed.copied.clone(),
    }
}

pub(super) fn told(
    wish: &Wish,
    observed: &Observed,
    balancer: &ObservedLoadBalancer,
) -> Vec<(Owner, Problem)> {
    let owner = wish.listeners.values().map(|it| &it.owner).min();
    let problem = |(owner, at): (&Owner, &ListenerId)| {
        let message = format!(
            "load balancer {} of the Service has a listener of {at}, a port that the Service does not have: \
             Seaway deleted this listener, and another controller created it again in the name of this \
             cluster; the listener stays",
            balancer.it.id
        );
        let problem = Problem::new(owner.object(), Reason::OtherController, message).fix(
            "A copy of this cluster (restored from a backup?) writes to the same project: stop its controller, or give it other \
             credentials. If there is none, restart this one.",
        );
        (owner.clone(), problem)
    };
    owner
        .into_iter()
        .flat_map(|owner| observed.copied.iter().map(move |at| (owner, at)))
        .map(problem)
        .collect()
}
