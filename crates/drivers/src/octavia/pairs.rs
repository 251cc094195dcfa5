//! Of a Service with addresses of two families: one load balancer with both, or two with one each.
//!
//! ```text
//!     API 2.26 and later   Of: a VIP of each family, all members     Second: nothing
//!     before               Of: the first family, its members         Second: the other, its members
//! ```
//! Each is a Unit of its own: made, changed, audited and deleted as any other. What one has of the wish follows from what
//! is there, not from what the cloud can by now: one that was made with one VIP has one, whoever made it.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use seaway_engine::Failure;
use seaway_model::{
    Desired, LbKey, LoadBalancer as Wish, Owner, Problem, Reason, Unit,
    load_balancer::{CloudOptions, Family},
};
use seaway_openstack::survey::{Abilities, Ability};

use super::{
    AUDIT, Joined, LOOK, Octavia,
    adopted::is_adopted,
    place,
    service_backoffs::Requester,
    steps::{Observed, ObservedLoadBalancer},
};

/// Whether one of a second family is to be there.
enum SecondFamilyRequirement {
    Yes,
    No,
    /// Not before its Service asks for it.
    Unrequested,
}

/// Which part of a wish a load balancer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// Of its first family, or its second: another has the other.
    One(Family),
    /// Of its first family, and there is none beside it.
    Only(Family),
    /// It was made with both, and the configuration takes this one away from those that come.
    Both(Family),
}

impl Part {
    pub(super) fn of(key: &LbKey, wish: &Wish, observed: &Observed, can: &Abilities) -> Part {
        let usual = CloudOptions::default();
        let outside = wish.options.cloud.as_ref().unwrap_or(&usual);
        let has_both = observed.balancer.as_ref().is_some_and(|it| !it.it.additional_vips.is_empty());
        let first = match (key, &outside.families[..]) {
            (LbKey::Second(_, family), _) => return Part::One(*family),
            (_, [first, _, ..]) => *first,
            (_, [only]) => match outside.withheld {
                Some(second) if has_both => return Part::Both(second),
                Some(_) => return Part::Only(*only),
                None => return Part::Whole,
            },
            _ => return Part::Whole,
        };
        let both = match &observed.balancer {
            Some(_) => has_both,
            None => can.has(Ability::AdditionalVips) && observed.placed.second.is_some(),
        };
        match both {
            true => Part::Whole,
            false if has_one_only(outside, observed.shared.guest) => Part::Only(first),
            false => Part::One(first),
        }
    }

    /// What it has of the wish.
    pub(super) fn cut(self, key: &LbKey, wish: &Wish) -> Wish {
        let mut wish = wish.clone();
        if let (Part::Both(second), Some(outside)) = (self, &mut wish.options.cloud) {
            outside.families.push(second);
            outside.withheld = None;
        }
        let (Part::One(family) | Part::Only(family), Some(outside)) = (self, &mut wish.options.cloud) else {
            return wish;
        };
        let is_its = |ip: &IpAddr| Family::of(*ip) == family;
        // Of another that is beside it, nobody has to be told that it lacks a second.
        outside.both &= outside.families.len() > 1 && matches!(self, Part::Only(_));
        outside.families = vec![family];
        outside.requested = outside.requested.filter(is_its);
        if matches!(key, LbKey::Second(..)) {
            // Those are of the first.
            (outside.subnet, outside.network, outside.member_subnet) = (None, None, None);
            (outside.named, outside.group, outside.published) = (None, None, Vec::new());
        }
        for pool in wish.pools.values_mut() {
            if !pool.members.iter().all(|it| is_its(&it.at.ip())) {
                Arc::make_mut(pool).members.retain(|it| is_its(&it.at.ip()));
            }
        }
        for listener in wish.listeners.values_mut() {
            if !listener.sources.iter().all(|it| is_its(&it.addr())) {
                let sources = &mut Arc::make_mut(listener).sources;
                sources.retain(|it| is_its(&it.addr()));
                if sources.is_empty() {
                    // Who lets some of the other family in lets nobody of this one in; no sources at all would be all.
                    sources.push(nobody(family));
                }
            }
        }
        wish
    }
}

/// Another's has the addresses that it has, and so has a port that somebody names: nothing is made beside it.
fn has_one_only(outside: &CloudOptions, guest: bool) -> bool {
    outside.port.is_some() || (outside.named.is_some() || outside.group.is_some()) && guest
}

fn nobody(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::from(IpAddr::from([127, 0, 0, 1])),
        Family::V6 => IpNet::from(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])),
    }
}

impl Octavia {
    /// Where it is to be, if it is not there yet; and whether it is to be at all.
    pub(super) async fn locate(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        let is_there = observed.balancer.is_some();
        observed.unrequested = false;
        observed.needless = match self.needs_second(unit, desired, is_there) {
            Some(SecondFamilyRequirement::No) => true,
            Some(SecondFamilyRequirement::Unrequested) => {
                observed.unrequested = true;
                true
            }
            Some(SecondFamilyRequirement::Yes) => false,
            None if observed.balancer.is_some() => false,
            None => {
                let why = "the first load balancer does not exist yet; once it does, Seaway decides whether a second one is needed".to_owned();
                return Err(Failure::wait(why, LOOK.saturating_mul(5)));
            }
        };
        if let (None, Desired::LoadBalancer(wish), false) = (&observed.balancer, desired, observed.needless) {
            let second = match unit {
                Unit::LoadBalancer(_, key) => key.second_family(),
                _ => None,
            };
            let placed = place::placed(&joined.cloud, wish, second).await;
            let failed = |error| self.failed(&Requester::of(unit), &error);
            match (placed.map_err(failed)?, second) {
                (Ok(mut placed), None) => {
                    placed.second.take_if(|_| !self.abilities(wish, None).has(Ability::AdditionalVips));
                    place::lead_by_ipv4(wish, &mut placed);
                    observed.placed = placed;
                }
                (Ok(mut placed), Some(_)) => {
                    placed.first = placed.second.take();
                    // Who only prefers two is content.
                    observed.needless = placed.first.is_none();
                    observed.placed = placed;
                }
                (Err(nowhere), None) => return Err(place::failed(wish, &nowhere)),
                (Err(nowhere), Some(_)) if self.has_first(unit) => {
                    return Err(place::failed(wish, &nowhere));
                }
                // That is told of its first, which is not made without it.
                (Err((why, _)), Some(_)) => return Err(Failure::wait(why, AUDIT)),
            }
        }
        Ok(())
    }

    /// Whether one of a second family is to be there. Nothing, where that follows from its first, which is not known yet.
    /// `is_there`: one that was made stays, whatever is asked for by now.
    fn needs_second(
        &self,
        unit: &Unit,
        desired: &Desired,
        is_there: bool,
    ) -> Option<SecondFamilyRequirement> {
        let (Unit::LoadBalancer(_, LbKey::Second(..)), Desired::LoadBalancer(wish)) = (unit, desired) else {
            return Some(SecondFamilyRequirement::Yes);
        };
        let Some(outside) = &wish.options.cloud else { return Some(SecondFamilyRequirement::No) };
        if outside.port.is_some() {
            return Some(SecondFamilyRequirement::No);
        }
        // One that it names may be its own, or another's.
        if (outside.named.is_some() || outside.group.is_some()) && self.is_guest(unit)? {
            return Some(SecondFamilyRequirement::No);
        }
        // Nothing else tells of one that another controller made.
        let may_be_adopted = outside.named.is_some() || !outside.published.is_empty();
        let is_asked = is_there || outside.explicit.second_family || !may_be_adopted;
        if !is_asked && self.of_first(unit, |it| is_adopted(it) && it.it.additional_vips.is_empty())? {
            return Some(SecondFamilyRequirement::Unrequested);
        }
        if !self.abilities(wish, None).has(Ability::AdditionalVips) {
            return Some(SecondFamilyRequirement::Yes);
        }
        self.of_first(unit, |it| {
            if it.it.additional_vips.is_empty() {
                SecondFamilyRequirement::Yes
            } else {
                SecondFamilyRequirement::No
            }
        })
    }

    /// Whether what it is the second of is there.
    fn has_first(&self, unit: &Unit) -> bool {
        self.of_first(unit, |_| ()).is_some()
    }

    fn of_first<T>(&self, unit: &Unit, tell: impl FnOnce(&ObservedLoadBalancer) -> T) -> Option<T> {
        self.known().get(&first_of(unit)?)?.observed.balancer.as_ref().map(tell)
    }

    /// Whether its first is on another's; nothing where that is not there yet.
    fn is_guest(&self, unit: &Unit) -> Option<bool> {
        let known = self.known();
        let first = &known.get(&first_of(unit)?)?.observed;
        first.balancer.as_ref().map(|_| first.shared.guest)
    }
}

/// That there is no second one, though its Service has two families.
pub(super) fn told(unit: &Unit, desired: &Desired, observed: &Observed) -> Vec<(Owner, Problem)> {
    let (Unit::LoadBalancer(_, LbKey::Second(owner, family)), Desired::LoadBalancer(_), true) =
        (unit, desired, observed.unrequested)
    else {
        return Vec::new();
    };
    let family = family.as_str();
    let message = format!(
        "spec.ipFamilies has {family}, and another controller made the load balancer with one address: Seaway creates no second load balancer"
    );
    let fix = format!(
        "To have one with an address of {family}, annotate the Service: seaway.dev/second-family: \"true\". Otherwise \
         set spec.ipFamilyPolicy: SingleStack."
    );
    let problem = Problem::new(owner.object(), Reason::Unsupported, message).at("spec.ipFamilies").fix(fix);
    vec![(owner.clone(), problem)]
}

fn first_of(unit: &Unit) -> Option<Unit> {
    let Unit::LoadBalancer(place, LbKey::Second(owner, _)) = unit else { return None };
    Some(Unit::LoadBalancer(place.clone(), LbKey::Of(owner.clone())))
}
