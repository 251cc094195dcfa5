//! What a cloud has for Services that live, and that no setting of ours wants any more.
//!
//! ```text
//!     a Service is deleted, or is no load balancer any more ──► what it had is removed
//!     anything else: a default, a class, a flag, a file    ──► what it has is left as it is, and a Problem
//!     its annotation gives that away, and nobody holds it    ──► the same, and then it is deleted or no load balancer any more: too
//! ```

use std::collections::{BTreeMap, BTreeSet};

use seaway_model::{
    Name, Owner, Problem, Reason, Status, Time, Unit,
    fact::{FinalizerOwner, Service, ServiceKind},
    outcome::PublishedAs,
    unit::{LbKey, Place},
};

use super::{
    World,
    orphans::{KEPT, MOST, identity, uid},
};
use crate::{demand::is_given_away, index::ServiceKey};

/// UIDs of Services whose load balancer is another controller's by now.
#[derive(Default)]
pub(super) struct GivenAway {
    there: BTreeSet<Name>,
    /// Those that were deleted since, and when: what the other controller still has for them is no orphan of ours. Bounded, or whoever
    /// makes and deletes Services makes this grow; what is forgotten has no recorded deletion, and so stays.
    deleted: BTreeMap<Name, Time>,
}

impl GivenAway {
    pub(super) fn contains(&self, uid: &Name) -> bool {
        self.there.contains(uid) || self.deleted.contains_key(uid)
    }

    fn insert(&mut self, uid: Name) {
        self.there.insert(uid);
    }

    fn remove(&mut self, uid: &Name) {
        self.there.remove(uid);
        self.deleted.remove(uid);
    }

    pub(super) fn note_deleted(&mut self, uid: &Name, now: Time) {
        if self.there.remove(uid) && self.deleted.len() < MOST {
            self.deleted.insert(uid.clone(), now);
        }
    }

    pub(super) fn age(&mut self, now: Time) {
        self.deleted.retain(|_, at| at.0.saturating_add(KEPT) > now.0);
    }
}

impl World {
    /// Load balancers in clouds that are left as they are: their Services live, and no setting wants them. By the Service's UID.
    pub fn released(&self) -> BTreeMap<Name, Unit> {
        let kept = self.owners.values().filter(|it| it.demand.as_ref().is_some_and(|it| it.released));
        let kept = kept.flat_map(|it| &it.units);
        let found = self.released.iter().filter(|(owner, _)| self.lives(owner)).flat_map(|(_, units)| units);
        let balancers =
            kept.chain(found).filter(|it| matches!(it, Unit::LoadBalancer(Place::Cloud { .. }, _)));
        balancers.filter_map(|it| Some((identity(it)?, it.clone()))).collect()
    }

    /// Whether what is at this Unit, which nobody wants, is used by a Service all the same.
    pub(super) fn is_released(&self, unit: &Unit) -> bool {
        match unit {
            Unit::LoadBalancer(Place::Cloud { .. }, key) => key.owner().is_some_and(|owner| {
                self.is_given_away(owner) || self.lives(owner) && !self.asked_for_its_end(key)
            }),
            // It lets through what goes to their members.
            Unit::SecurityGroup { .. } => self.released.keys().any(|it| self.lives(it)),
            _ => false,
        }
    }

    /// Whether its load balancer is another controller's by now, whatever becomes of the Service.
    pub(super) fn is_given_away(&self, owner: &Owner) -> bool {
        uid(owner).is_some_and(|it| self.given_away.contains(it))
    }

    /// Who is held by us still takes along what it had.
    pub(super) fn note_whether_given_away(&mut self, service: &Service) {
        let uid = &service.meta.uid;
        if is_given_away(service) && service.held == FinalizerOwner::No {
            self.given_away.insert(uid.clone());
        } else if service.kind == ServiceKind::LoadBalancer {
            self.given_away.remove(uid);
        }
    }

    /// Whether its Service is there, is to have a load balancer, and is not being deleted.
    pub(super) fn lives(&self, owner: &Owner) -> bool {
        let Owner::Object { object, uid } = owner else { return false };
        let named = self.index.service(&ServiceKey::new(object.namespace.clone(), object.name.clone()));
        // What a cloud tells of its owner's name may be cut.
        let service = named
            .filter(|it| it.meta.uid == *uid)
            .or_else(|| self.index.services().map(|(_, it)| it).find(|it| it.meta.uid == *uid));
        service.is_some_and(|it| it.kind == ServiceKind::LoadBalancer && !it.leaving)
    }

    /// Whether a Service that a cloud serves does not want its second family any more.
    pub(super) fn asked_for_its_end(&self, key: &LbKey) -> bool {
        let LbKey::Second(owner, family) = key else { return false };
        let Some(demand) = self.owners.get(owner).and_then(|it| it.demand.as_ref()) else { return false };
        demand.cloud.is_some() && demand.drops_second(*family)
    }

    /// Nothing we know of wants this Unit, or somebody does again.
    pub(super) fn note_released(&mut self, unit: &Unit) {
        let Unit::LoadBalancer(Place::Cloud { .. }, key) = unit else { return };
        let Some(owner) = key.owner() else { return };
        if !self.unit_owners.contains_key(unit) && self.is_released(unit) {
            self.released.entry(owner.clone()).or_default().insert(unit.clone());
        } else if let Some(units) = self.released.get_mut(owner) {
            units.remove(unit);
            if units.is_empty() {
                self.released.remove(owner);
                self.note_released_end(owner);
            }
        }
    }

    /// Its Service came, changed or went: what it does not use any more may be removed.
    pub(super) fn look_at_released(&mut self, key: &ServiceKey) {
        let object = key.object();
        let its = self.released.iter().filter(|(owner, _)| owner.object() == object);
        let units: Vec<Unit> = its.flat_map(|(_, units)| units).cloned().collect();
        for unit in units {
            self.note_released(&unit);
            self.note_orphan(&unit);
            if !self.unit_owners.contains_key(&unit) && !self.is_released(&unit) {
                self.dirt.insert(seaway_model::WorkItem::Unit(unit));
            }
        }
    }

    /// Of a Service that nothing of ours serves, and whose load balancer in the cloud serves on: who reads its addresses, as a
    /// controller of DNS records does, finds them there until another controller writes them.
    pub(super) fn left_status(&self, owner: &Owner) -> Option<Status> {
        let is_left =
            !self.owners.contains_key(owner) && self.released.contains_key(owner) && self.lives(owner);
        is_left.then(|| Status {
            owner: owner.clone(),
            addresses: Vec::new(),
            serving: Vec::new(),
            members: 0,
            ready: false,
            problems: Vec::new(),
            pool: None,
            announced: None,
            shown: PublishedAs::default(),
            waits: None,
            takes_over: false,
            unreported: false,
            replaced: None,
            ports: Vec::new(),
            left: true,
        })
    }

    /// Of those whose Service is nobody's by today's settings; of the others their own status tells.
    pub(super) fn released_problems(&self) -> Vec<Problem> {
        let is_told = |owner: &Owner| self.is_in_cloud(owner);
        let owners = self.released.keys().filter(|it| self.lives(it) && !is_told(it));
        let problem = |owner: &Owner| {
            let message = "Seaway leaves this load balancer in the cloud as it is: its Service exists, and \
                           no setting chooses the cloud for it";
            Problem::new(owner.object(), Reason::Released, message).fix(
                "To have Seaway serve the Service again, set defaultDriver: octavia. If another controller \
                 serves it, no action is needed.",
            )
        };
        owners.map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_are_made_and_deleted_without_end_are_not_all_remembered() {
        let mut given_away = GivenAway::default();
        let uid = |number: usize| Name::from(format!("uid-{number}"));
        for number in 0..3 * MOST {
            given_away.insert(uid(number));
            given_away.note_deleted(&uid(number), Time(1));
        }
        given_away.insert(uid(0));
        assert_eq!((given_away.deleted.len(), given_away.there.len()), (MOST, 1));
        assert!(given_away.contains(&uid(1)) && !given_away.contains(&uid(MOST + 1)));
        given_away.age(Time(KEPT));
        assert!(given_away.contains(&uid(1)), "for a day");
        given_away.age(Time(KEPT + 1));
        assert!(!given_away.contains(&uid(1)) && given_away.contains(&uid(0)), "those that are there stay");
    }
}
