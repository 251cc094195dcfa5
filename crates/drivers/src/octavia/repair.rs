//! How a load balancer in ERROR is repaired, and what the driver remembers of each load balancer for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use seaway_model::ListenerId;
use seaway_openstack::{
    Class, Error,
    neutron::FloatingIp,
    octavia::{Listener, LoadBalancer, NewLoadBalancer},
    resource::{Edit, Id},
};

use super::{gone::Child, moment::later, steps::Step};

/// What the driver remembers of a load balancer beside what the cloud says of it.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadBalancerHistory {
    /// We made it, and it was never ACTIVE.
    pub(super) is_new: bool,
    /// How often in a row it was made again or failed over.
    tries: u32,
    failovers: u32,
    /// Nothing is tried before.
    not_before: Option<Instant>,
    /// Why there is no failover here.
    refused: Option<(String, Instant)>,
    /// When a write was lost, or refused: what was listed before tells nothing.
    pub(super) unsure: Option<Instant>,
    /// When who else is on it was asked for.
    pub(super) asked: Option<Instant>,
    /// What was found to be another than it was left; told once it is put right.
    pub(super) found: Vec<String>,
    /// What is asked for, and only a new one can have.
    pub(super) otherwise: Vec<String>,
    /// What it was made again for.
    pub(super) remade: Vec<String>,
    /// What was deleted below it, and not yet seen to be gone; how often in a row something was still there.
    pub(super) removed: Vec<Child>,
    pub(super) came_back: u32,
    /// Listeners that were deleted here and not made here again.
    pub(super) deleted: BTreeMap<ListenerId, Id<Listener>>,
    /// Members that were added here, and not written once more since then.
    pub(super) added: BTreeSet<SocketAddr>,
    /// No certificate is kept for it, as far as was seen.
    pub(super) has_none_kept: bool,
    /// A floating IP that was given up and could not be deleted yet.
    pub(super) leftover: Option<Id<FloatingIp>>,
    /// Its owner was told that its VIP is published.
    pub(super) is_forced_internal: bool,
    /// What its owner was told that its deletion waits for.
    pub(super) waits_for: Option<String>,
    /// Since when it is pending, on the wall.
    pub(super) pending_since: Option<std::time::SystemTime>,
    /// The one that never was ready, and beside which another was made.
    pub(super) abandoned: Option<Id<LoadBalancer>>,
    /// The one whose VIP has no port any more.
    pub(super) without_vip: Option<Id<LoadBalancer>>,
    /// Its owner was told that this is long.
    pub(super) is_told_stuck: bool,
    /// Its Service was not adopted when it was looked at last: it hears nothing of that.
    pub(super) previewed: bool,
}

/// What to do with one in ERROR.
#[derive(Clone, Debug, PartialEq)]
pub enum RepairAction {
    /// It is deleted, and made again where it was.
    Remake {
        why: &'static str,
        /// The configuration asks for it, not the Service: the deletion limit counts it.
        by_default: bool,
    },
    Failover,
    /// Not now.
    Later(Duration),
    /// Somebody else has to.
    Nothing {
        why: String,
    },
}

/// Whether one in ERROR that does not come back is made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rebuild {
    #[default]
    No,
    ByDefault,
    ByService,
}

/// Where a load balancer was that is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    was: Box<LoadBalancer>,
}

/// As the other controller waits.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);
/// After so many it is made again, where that is wished.
const FAILOVERS: u32 = 1;
/// After a refusal: somebody may have been given the role since.
const REFUSED: Duration = Duration::from_secs(1800);

impl LoadBalancerHistory {
    /// Nothing is kept of what was seen before.
    pub(super) fn of_preview(previewed: bool) -> LoadBalancerHistory {
        LoadBalancerHistory { previewed, ..LoadBalancerHistory::default() }
    }

    pub(super) fn repair(&self, rebuild: Rebuild, now: Instant) -> RepairAction {
        if let Some(left) = self.remaining_backoff(now) {
            return RepairAction::Later(left);
        }
        if self.is_new {
            return RepairAction::Remake {
                why: "the load balancer went to ERROR during its creation",
                by_default: false,
            };
        }
        if rebuild != Rebuild::No && (self.refused.is_some() || self.failovers >= FAILOVERS) {
            let by_default = rebuild == Rebuild::ByDefault;
            return RepairAction::Remake {
                why: "the load balancer is in ERROR and did not recover",
                by_default,
            };
        }
        match &self.refused {
            Some((why, at)) if now.saturating_duration_since(*at) < REFUSED => {
                RepairAction::Nothing { why: why.clone() }
            }
            _ => RepairAction::Failover,
        }
    }

    /// How long nothing is to be tried yet.
    pub(super) fn remaining_backoff(&self, now: Instant) -> Option<Duration> {
        let left = self.not_before?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn tried(&mut self, now: Instant) {
        let wait = FIRST.saturating_mul(1 << self.tries.min(16)).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        self.not_before = Some(later(now, wait));
    }

    pub(super) fn failed_over(&mut self, now: Instant) {
        self.failovers = self.failovers.saturating_add(1);
        self.tried(now);
    }

    /// Policy, or the provider, has no such thing. Whether it is so, and whether that is news.
    pub(super) fn refused(&mut self, error: &Error, now: Instant) -> (bool, bool) {
        let never = matches!(error.class(), Class::Forbidden | Class::Unsupported | Class::Invalid);
        let mut is_news = false;
        if never {
            let before = self.refused.replace((error.message().to_owned(), now));
            is_news = before.is_none_or(|(why, _)| why != error.message());
            // Nothing was done that would have to be waited for.
            self.not_before = None;
        }
        (never, is_news)
    }

    /// It serves.
    pub(super) fn is_well(&mut self) {
        (self.is_new, self.tries, self.failovers, self.not_before) = (false, 0, 0, None);
        (self.pending_since, self.is_told_stuck) = (None, false);
        self.refused = None;
    }
}

impl RepairAction {
    pub(super) fn step(&self, id: Id<LoadBalancer>) -> Option<Step> {
        match self {
            RepairAction::Failover => Some(Step::Failover(id)),
            RepairAction::Remake { .. } => Some(Step::Delete(id)),
            RepairAction::Later(_) | RepairAction::Nothing { .. } => None,
        }
    }
}

impl Place {
    pub(super) fn of(it: &LoadBalancer) -> Place {
        Place { was: Box::new(it.clone()) }
    }

    /// The same VIP, unless another place is wished for.
    pub(super) fn keep(&self, new: &mut NewLoadBalancer) {
        let Some(vip) = self.was.vip_address else { return };
        let subnet = new.vip_subnet_id.unless_equal(&self.was.vip_subnet_id).is_left();
        let same = subnet && new.vip_network_id.unless_equal(&self.was.vip_network_id).is_left();
        if same && new.vip_port_id.is_left() && new.vip_address.is_left() {
            new.vip_address = Edit::To(Some(vip));
            if new.vip_subnet_id.is_left() && new.vip_network_id.is_left() {
                new.vip_subnet_id = Edit::To(self.was.vip_subnet_id.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use seaway_openstack::resource::{Fields, View};

    use super::*;

    #[test]
    fn one_that_is_made_again_keeps_its_vip_unless_it_is_to_be_elsewhere() {
        let object = serde_json::json!({
            "id": "one", "vip_address": "10.0.0.7", "vip_subnet_id": "subnet", "vip_network_id": "network",
        });
        let was = LoadBalancer::read(Fields::of(object).expect("an object")).expect("a load balancer");
        let (vip, kept) = (was.vip_address, was.vip_subnet_id.clone());
        let named = |it: &str| Edit::To(Some(it.parse().expect("an id")));
        let in_network = |it: &str| Edit::To(Some(it.parse().expect("an id")));
        let as_asked = Edit::Leave;
        for (subnet, network, keeps, said) in [
            (Edit::Leave, Edit::Leave, true, Edit::To(kept.clone())),
            (named("subnet"), Edit::Leave, true, named("subnet")),
            // One of its subnets is chosen by the address.
            (Edit::Leave, in_network("network"), true, as_asked.clone()),
            (named("other"), Edit::Leave, false, named("other")),
            (Edit::Leave, in_network("other"), false, as_asked),
        ] {
            let mut new = NewLoadBalancer {
                vip_subnet_id: subnet.clone(),
                vip_network_id: network.clone(),
                ..NewLoadBalancer::new()
            };
            Place::of(&was).keep(&mut new);
            let expected = if keeps { Edit::To(vip) } else { Edit::Leave };
            assert_eq!((new.vip_address, new.vip_subnet_id), (expected, said), "{subnet:?} {network:?}");
        }
    }

    fn forbidden() -> Error {
        Error::new(Class::Forbidden, "policy says no")
    }

    #[test]
    fn one_that_never_served_is_made_again_after_longer_and_longer() {
        let mut now = Instant::now();
        let mut past = LoadBalancerHistory { is_new: true, ..LoadBalancerHistory::default() };
        let mut waits = Vec::new();
        for _ in 0..9 {
            assert!(matches!(past.repair(Rebuild::No, now), RepairAction::Remake { .. }));
            past.tried(now);
            let RepairAction::Later(wait) = past.repair(Rebuild::No, now) else { panic!("it does not wait") };
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        past.is_well();
        assert_eq!(past.remaining_backoff(now), None);
    }

    #[test]
    fn one_that_served_is_failed_over_and_rebuilt_only_by_choice() {
        let now = Instant::now();
        let mut past = LoadBalancerHistory::default();
        assert_eq!(past.repair(Rebuild::ByService, now), RepairAction::Failover, "the gentler first");
        assert_eq!(past.refused(&forbidden(), now), (true, true));
        assert_eq!(past.repair(Rebuild::No, now), RepairAction::Nothing { why: "policy says no".to_owned() });
        for (rebuild, by) in [(Rebuild::ByService, false), (Rebuild::ByDefault, true)] {
            assert!(
                matches!(past.repair(rebuild, now), RepairAction::Remake { by_default, .. } if by_default == by)
            );
        }
        assert_eq!(
            past.repair(Rebuild::No, now + REFUSED),
            RepairAction::Failover,
            "somebody may have the role by now"
        );
        assert_eq!(past.refused(&forbidden(), now), (true, false), "and that is no news");
        let mut past = LoadBalancerHistory::default();
        past.failed_over(now);
        let later = now + FIRST;
        assert_eq!(past.repair(Rebuild::No, later), RepairAction::Failover, "it is tried again");
        assert!(matches!(past.repair(Rebuild::ByService, later), RepairAction::Remake { .. }));
        assert_eq!(past.refused(&Error::new(Class::Broken, "500"), now), (false, false), "that passes");
    }
}
