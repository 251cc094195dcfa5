//! Services of a cluster that another controller gave an address, and those that no setting gives to our own data plane
//! any more.
//!
//! ```text
//!     its status has addresses that Seaway did not write ─► left to whoever wrote them, until `adopt` chooses it;
//!                                                           nobody else gets those addresses meanwhile
//!     it has an Address of ours ──────────────────────────► served, whatever defaultDriver says now
//! ```

use std::net::IpAddr;

use seaway_model::{
    AddressState, Owner, Problem, Reason, Status,
    config::AdoptMode,
    fact::{FinalizerOwner, Service, ServiceKind},
};

use super::{World, adopt::NotAdopted};
use crate::{
    annotations::asks_for_adoption,
    demand::{Demand, cloud_of, is_native, whose},
    index::ServiceKey,
};

impl World {
    /// What a Service asks for that has an address of ours, though no setting gives it to us any more.
    pub(super) fn kept_native(&self, key: &ServiceKey) -> Option<Demand> {
        let service = self.index.service(key)?;
        let kept = self.config.pools.cluster
            && service.kind == ServiceKind::LoadBalancer
            && service.class.is_none()
            && cloud_of(service, &self.config).is_none()
            && (self.holders.contains_key(&whose(service)) || self.had_hosts_addresses(key));
        let mut demand = kept.then(|| Demand::of_native(service, &self.config))?;
        let message = "the Service has an address of Seaway, and defaultDriver is not native any more; the \
                       Service is served as before";
        demand.problems.push(Problem::new(demand.owner.object(), Reason::Released, message).fix(
            "To keep it so, set defaultDriver: native in seaway.yaml of controller and nodes. Otherwise \
             delete the Service, or change its type to ClusterIP and back.",
        ));
        Some(demand)
    }

    /// Why a Service that our own data plane would serve is left to whoever published its addresses.
    pub(super) fn native_not_adopted(&self, key: &ServiceKey, service: &Service) -> Option<NotAdopted> {
        if !self.is_anothers(key, service) {
            return None;
        }
        if self.roles.host.is_some() {
            // Whoever leads decides; what it gives out is written.
            return Some(NotAdopted::OtherController);
        }
        let adopt = &self.config.adopt;
        match adopt.native {
            _ if !adopt.only.matches(&service.meta) => Some(NotAdopted::NotChosen),
            AdoptMode::Observe => Some(NotAdopted::Observed),
            AdoptMode::Ask if !asks_for_adoption(&service.meta.annotations) => Some(NotAdopted::NotAsked),
            _ => Some(NotAdopted::Next),
        }
    }

    /// Whether a cloud serves it, though no setting names that cloud any more: Seaway adopted it there and wrote its status, it
    /// has the finalizer of the cloud provider's controller still, and no pool or host of ours has its address.
    pub(super) fn is_left_in_cloud(&self, key: &ServiceKey, service: &Service) -> bool {
        let owner = whose(service);
        let is_ours = |ip: &IpAddr| self.ledger.is_hosts_own(*ip) || self.ledger.is_in_pool(*ip);
        self.config.pools.cluster
            && service.class.is_none()
            && self.held(key) == FinalizerOwner::ByOthers
            && self.published_by_us.contains_key(key)
            && !self.published.get(key).into_iter().flatten().any(is_ours)
            && !self.holders.contains_key(&owner)
            && self.owners.get(&owner).is_none_or(|it| it.grant.is_none())
    }

    fn is_anothers(&self, key: &ServiceKey, service: &Service) -> bool {
        let owner = whose(service);
        self.config.pools.cluster
            && service.kind == ServiceKind::LoadBalancer
            && cloud_of(service, &self.config).is_none()
            && is_native(service, &self.config)
            && self.is_published_by_another(key)
            && !self.holders.contains_key(&owner)
            && !self.adoption.ours.contains(&service.meta.uid)
            && self.owners.get(&owner).is_none_or(|it| it.grant.is_none())
    }

    fn is_published_by_another(&self, key: &ServiceKey) -> bool {
        self.published.contains_key(key) && !self.published_by_us.contains_key(key)
    }

    /// Whether what another controller published may be replaced by this status.
    pub(super) fn takes_over(&self, owner: &Owner) -> bool {
        let object = owner.object();
        let key = ServiceKey::new(object.namespace, object.name);
        if !self.config.pools.cluster || !self.is_published_by_another(&key) {
            return true;
        }
        let Some(service) = self.index.service(&key) else { return true };
        let adopt = &self.config.adopt;
        let asks = match adopt.native {
            AdoptMode::Observe => false,
            AdoptMode::Ask => asks_for_adoption(&service.meta.annotations),
            AdoptMode::All => true,
        };
        self.is_in_cloud(owner)
            || self.adoption.ours.contains(&service.meta.uid)
            || asks && adopt.only.matches(&service.meta)
    }

    /// It has an Address now: whoever gives them out has taken it over.
    pub(super) fn note_taken_over(&mut self, owner: &Owner) {
        if self.awaits_adoption(owner).is_some() {
            let object = owner.object();
            self.look_at_adoption(&ServiceKey::new(object.namespace, object.name));
        }
    }

    /// Nobody is given what another controller has given a Service; one that may be adopted finds it there.
    pub(super) fn reserve_published(&mut self, key: &ServiceKey, owner: &Owner) {
        let published: Vec<IpAddr> =
            match self.awaits_adoption(owner).is_some() || self.is_served_by_another(key) {
                true => self.published.get(key).cloned().unwrap_or_default(),
                false => Vec::new(),
            };
        let touched = self.ledger.reserve(owner, published);
        self.regrant(touched);
    }

    /// Whether another controller gave this Service its addresses, be it one that Seaway would serve or not.
    fn is_served_by_another(&self, key: &ServiceKey) -> bool {
        let Some(service) = self.index.service(key) else { return false };
        self.config.pools.cluster
            && self.roles.host.is_none()
            && service.kind == ServiceKind::LoadBalancer
            && self.is_published_by_another(key)
            && !self.holders.contains_key(&whose(service))
            && !self.adoption.ours.contains(&service.meta.uid)
    }

    /// Its Service is gone.
    pub(super) fn end_reservation(&mut self, owner: &Owner) {
        let touched = self.ledger.reserve(owner, Vec::new());
        self.regrant(touched);
    }

    /// Who holds an Address as it is written.
    pub(super) fn note_holders(
        &mut self,
        before: Option<&seaway_model::Address>,
        now: Option<&seaway_model::Address>,
    ) {
        let holders = |it: Option<&seaway_model::Address>| {
            it.filter(|it| it.state == AddressState::Held).map(|it| it.owners.clone()).unwrap_or_default()
        };
        for owner in holders(now) {
            let count = self.holders.entry(owner).or_default();
            *count = count.saturating_add(1);
        }
        for owner in holders(before) {
            if let Some(count) = self.holders.get_mut(&owner) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.holders.remove(&owner);
                }
            }
        }
    }

    pub(super) fn with_permission(&self, status: Status) -> Status {
        Status { takes_over: self.takes_over(&status.owner), ..status }
    }
}
