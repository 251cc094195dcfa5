//! Members that are listeners of our own: whoever has some is planned again when what listens there changes.

use std::{collections::BTreeSet, net::IpAddr};

use seaway_model::{
    ListenerId, Outcome, Owner, Problem, Reason, Unit,
    unit::{LbKey, Place},
};

use super::{World, owners::add};
use crate::{
    demand::Demand, forward_auth::asked_by, front_door, index::ServiceKey, own_listeners::PoolOwner,
    tenant_shares::RequestedShare,
};

impl World {
    /// An owner may listen there from now on, and nowhere else. Where somebody else's process does, we do not.
    pub(super) fn listens(&mut self, owner: &Owner, mut at: Vec<(IpAddr, ListenerId)>) {
        if let Some(foreign) = self.foreign.get(owner) {
            at.retain(|place| !foreign.contains(place));
        }
        let mut dependents = self.index.own.set_listeners(owner, at);
        // It is being planned at this moment.
        dependents.remove(&PoolOwner::Owner(owner.clone()));
        self.replan_dependents(dependents);
    }

    /// Plans them again, one after the other: planning one may be a reason to look at another.
    pub(super) fn replan_dependents(&mut self, more: BTreeSet<PoolOwner>) {
        self.dependents_to_replan.extend(more);
        if std::mem::replace(&mut self.replans_dependents, true) {
            return;
        }
        while let Some(next) = self.dependents_to_replan.pop_first() {
            match next {
                PoolOwner::Owner(owner) => self.replan(&owner),
                PoolOwner::AtFrontDoor(key) => self.serve_again_at_door(&key),
            }
        }
        self.replans_dependents = false;
    }

    /// Ports that another process has on this host: whoever has them may be a member, as it may where we do not listen.
    pub(super) fn note_foreign(&mut self, outcome: &Outcome) {
        let Unit::LoadBalancer(Place::Host { .. }, LbKey::Of(owner)) = &outcome.unit else { return };
        let in_use = |(whose, it): &(Owner, Problem)| whose == owner && it.reason == Reason::PortInUse;
        let is_taken = outcome.problems.iter().any(in_use);
        if !is_taken && !self.foreign.contains_key(owner) {
            return;
        }
        let granted = match front_door::entrance_of(owner) {
            Some(None) => self.door_ports(),
            Some(Some(name)) => self.entrance_ports(&name),
            None => self.owners.get(owner).and_then(|it| it.grant.as_ref()).map_or(&[][..], |it| &it.ports),
        };
        let granted = granted.to_vec();
        let serves = |(ip, id): &(IpAddr, ListenerId)| {
            outcome.serving.iter().any(|it| (it.ip, it.protocol, it.port) == (*ip, id.l4, id.port))
        };
        let foreign: Vec<_> = granted.iter().filter(|it| is_taken && !serves(it)).copied().collect();
        if self.foreign.get(owner).map_or(&[][..], Vec::as_slice) == foreign {
            return;
        }
        match foreign.is_empty() {
            true => self.foreign.remove(owner),
            false => self.foreign.insert(owner.clone(), foreign),
        };
        self.listens(owner, granted);
        // Its own members, too.
        self.replan_dependents([PoolOwner::Owner(owner.clone())].into());
    }

    /// Which Service the owner asks about requests, before what it demands is noted.
    pub(super) fn note_auth_service(&mut self, owner: &Owner, now: Option<&Demand>) {
        let asked = |it: &Demand| asked_by(it).map(|(key, _)| key);
        let before = self.owners.get(owner).and_then(|it| it.demand.as_deref()).and_then(asked);
        let now = now.and_then(asked);
        if before == now {
            return;
        }
        if let Some(key) = before
            && let Some(owners) = self.asked_by.get_mut(&key)
        {
            owners.retain(|it| it != owner);
            if owners.is_empty() {
                self.asked_by.remove(&key);
            }
        }
        if let Some(key) = now {
            add(self.asked_by.entry(key).or_default(), owner);
        }
    }

    /// What an owner wants of what its namespace may have. Tells whose share is another for it.
    pub(super) fn note_share(&mut self, owner: &Owner) -> BTreeSet<PoolOwner> {
        let who = PoolOwner::Owner(owner.clone());
        let demand = self.owners.get(owner).and_then(|it| it.demand.clone());
        let wanted = demand.as_deref().map(|it| (it, RequestedShare::of(it, &self.index, true)));
        let mut others = self.index.shares.set(&who, wanted);
        // It is about to be planned anyway.
        others.remove(&who);
        others
    }

    /// The same of a Service that the front door leads to.
    pub(super) fn note_share_at_door(&mut self, key: &ServiceKey) {
        let demand = self.door.guests.demand(key, self.given());
        let wanted = demand.as_ref().map(|it| (it, RequestedShare::of(it, &self.index, false)));
        let changed = self.index.shares.set(&PoolOwner::AtFrontDoor(key.clone()), wanted);
        self.replan_dependents(changed);
    }

    pub(super) fn note_members(&mut self, owner: &Owner) {
        let state = self.owners.get(owner);
        let is_ours = |it: &&super::OwnerState| it.demand.as_ref().is_some_and(|it| it.cloud.is_none());
        let addresses = state.filter(is_ours).into_iter().flat_map(|it| it.planned.member_addresses());
        self.index.own.set_members(PoolOwner::Owner(owner.clone()), addresses);
    }

    pub(super) fn note_members_at_door(&mut self, key: &ServiceKey) {
        let addresses = self.door.guests.member_addresses(key);
        self.index.own.set_members(PoolOwner::AtFrontDoor(key.clone()), addresses);
    }
}
