//! Services that say the same word share a load balancer: who comes first makes it, and the others come to it as guests.
//!
//! A tag of the load balancer has the word. Before there is one, a claim keeps two from making one each; it lapses, so that nobody
//! waits for one who never makes it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use seaway_engine::Failure;
use seaway_model::{Desired, LoadBalancer as Wish, Name, Owner, Problem, Reason, Unit};
use seaway_openstack::octavia::LoadBalancer;

use super::{
    LOOK, Octavia,
    steps::{Observed, ObservedLoadBalancer},
};

/// Who claims a word looks more often than this.
const LAPSES: Duration = Duration::from_secs(60);

/// By word, who is about to make one, and when that was last said.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<Name, (Unit, Instant)>>);

impl Claims {
    fn is_given(&self, word: &Name, unit: &Unit, now: Instant) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (_, at)| now.saturating_duration_since(*at) < LAPSES);
        let (whose, at) = all.entry(word.clone()).or_insert_with(|| (unit.clone(), now));
        if whose == unit {
            *at = now;
        }
        whose == unit
    }
}

impl Octavia {
    /// Another may be making the one that this Service will share.
    pub(super) fn claim(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Result<(), Failure> {
        let Desired::LoadBalancer(wish) = desired else { return Ok(()) };
        match word(wish).filter(|_| observed.balancer.is_none()) {
            Some(word) if !self.busy_load_balancers.claims().is_given(word, unit, self.now()) => {
                // What the other made is found by a look.
                self.known().remove(unit);
                let why =
                    "another Service with the same seaway.dev/share is creating the load balancer".to_owned();
                Err(Failure::wait(why, LOOK))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn word(wish: &Wish) -> Option<&Name> {
    wish.options.cloud.as_ref()?.group.as_ref()
}

pub(super) fn tag(word: &str) -> String {
    format!("seaway.dev/share={word}")
}

/// Whether a load balancer is for those who say this.
pub(super) fn is_of(it: &LoadBalancer, word: &str) -> bool {
    it.tags.contains(&tag(word))
}

/// A guest stays where it is, also if that is not for its word any more: its address is known.
pub(super) fn told(
    owner: &Owner,
    wish: &Wish,
    observed: &Observed,
    balancer: &ObservedLoadBalancer,
) -> Option<Problem> {
    let word = word(wish).filter(|it| observed.shared.guest && !is_of(&balancer.it, it))?;
    let message = format!(
        "load balancer {} does not have seaway.dev/share={word}; the Service stays on it",
        balancer.it.id
    );
    let problem = Problem::new(owner.object(), Reason::BadAnnotation, message);
    Some(problem.fix("To move the Service to another load balancer, delete the Service and create it again."))
}
