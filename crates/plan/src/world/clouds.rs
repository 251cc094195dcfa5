//! Services of a cloud: what its driver is told beside the plan, and who may vanish when.
//!
//! ```text
//!     wanted ─► held by a finalizer ─► made ─► leaves, or is no load balancer any more ─► seen absent ─► let go
//! ```

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use seaway_model::{
    Desired, LoadBalancer, Owner, Unit, WorkItem,
    fact::{Families, FamilyPolicy, FinalizerOwner, Service, ServiceKind},
    load_balancer::Family,
    unit::{LbKey, Place, RemovedOwner},
};

use super::World;
use crate::{
    demand::{Demand, cloud_of, whose},
    index::ServiceKey,
    service::plan,
};

#[derive(Default)]
pub(super) struct Holds {
    /// What Services say; those that nobody holds are not here.
    said: HashMap<ServiceKey, FinalizerOwner>,
    /// What no cloud is to serve any more, with what was not seen absent yet.
    going: HashMap<Owner, BTreeSet<Unit>>,
}

impl Holds {
    /// Whether a Service that is deleted waits for the end of this Unit.
    pub(super) fn awaits(&self, unit: &Unit) -> bool {
        self.going.values().any(|it| it.contains(unit))
    }
}

impl World {
    /// With the addresses that its status has.
    pub(super) fn in_cloud(&self, owner: &Owner, load_balancer: Arc<LoadBalancer>) -> Arc<LoadBalancer> {
        let object = owner.object();
        let key = ServiceKey::new(object.namespace, object.name);
        let Some(mut outside) = load_balancer.options.cloud.clone() else { return load_balancer };
        outside.published = self.published.get(&key).cloned().unwrap_or_default();
        outside.unheld = !self.holds.said.contains_key(&key);
        let mut told = LoadBalancer::clone(&load_balancer);
        told.options.cloud = Some(outside);
        Arc::new(told)
    }

    /// Whether a Service is to be held.
    pub(super) fn hold(&self, owner: &Owner) -> Desired {
        let awaited = self.holds.going.get(owner).is_some_and(|it| self.is_awaited(it));
        let holds = self.is_in_cloud(owner) && !self.is_given_away(owner);
        if awaited || holds { Desired::Finalizer } else { Desired::Absent }
    }

    /// Who holds it, as the Service says.
    pub(super) fn held(&self, key: &ServiceKey) -> FinalizerOwner {
        self.holds.said.get(key).copied().unwrap_or_default()
    }

    /// Keeps apart who holds it: we write that ourselves. True if it is another than before.
    pub(super) fn note_held(&mut self, key: &ServiceKey, held: FinalizerOwner) -> bool {
        let before = match held {
            FinalizerOwner::No => self.holds.said.remove(key),
            _ => self.holds.said.insert(key.clone(), held),
        };
        before.unwrap_or_default() != held
    }

    /// Those whose end is awaited.
    pub(super) fn going_owners(&self) -> impl Iterator<Item = &Owner> {
        self.holds.going.keys()
    }

    /// Nobody waits for what may go now.
    pub(super) fn held_otherwise(&mut self, key: &ServiceKey) {
        self.look_at_adoption(key);
        let owner = self.index.service(key).map(|it| whose(it));
        if let Some(state) = owner.and_then(|it| self.owners.get(&it)) {
            self.dirt.extend(state.units.iter().cloned().map(WorkItem::Unit));
        }
        // Whether a cloud has something for it is known by that alone.
        if self.index.service(key).is_some_and(|it| cloud_of(it, &self.config).is_none()) {
            self.refresh_service(key);
        }
        self.refresh_hold(key);
    }

    /// Nobody waits for the end of what a Service of this name had, but for that of this owner.
    fn await_no_other(&mut self, key: &ServiceKey, owner: Option<&Owner>) {
        let object = key.object();
        let others = self.holds.going.keys().filter(|it| Some(*it) != owner && it.object() == object);
        for other in others.cloned().collect::<Vec<_>>() {
            self.holds.going.remove(&other);
            self.dirt.insert(WorkItem::Unit(Unit::Finalizer(other)));
        }
    }

    /// A Service came, changed or went.
    pub(super) fn refresh_hold(&mut self, key: &ServiceKey) {
        if !self.settled || self.roles.host.is_some() {
            return;
        }
        let Some(service) = self.index.service(key).cloned() else {
            self.holds.said.remove(key);
            return self.await_no_other(key, None);
        };
        let owner = whose(&service);
        // One that was made again under its name is another.
        self.await_no_other(key, Some(&owner));
        let held = self.held(key);
        if self.is_in_cloud(&owner) {
            self.holds.going.remove(&owner);
            if held == FinalizerOwner::No {
                self.dirt.insert(WorkItem::Unit(Unit::Finalizer(owner)));
            }
        } else if self.is_ours_to_let_go(&service, held) && !self.holds.going.contains_key(&owner) {
            let units = self.might_have(&service);
            self.holds.going.insert(owner.clone(), units);
            self.mark_going(&owner);
        }
    }

    /// Some are known to be ours now: of those that are being deleted, the finalizer is ours to take off.
    pub(super) fn look_at_ends(&mut self) {
        let leaving = self.index.services().filter(|(_, it)| it.leaving);
        let keys: Vec<ServiceKey> = leaving.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.refresh_hold(key));
    }

    /// A Unit was seen absent: who waited for it may go.
    pub(super) fn went(&mut self, unit: &Unit) {
        self.forget_name(unit);
        let mut fewer = Vec::new();
        for (owner, units) in &mut self.holds.going {
            if units.remove(unit) {
                fewer.push(owner.clone());
            }
        }
        fewer.retain(|owner| !self.holds.going.get(owner).is_some_and(|it| self.is_awaited(it)));
        self.dirt.extend(fewer.into_iter().map(|owner| WorkItem::Unit(Unit::Finalizer(owner))));
    }

    /// Nobody waits for a group that is left to orphans.
    fn is_awaited(&self, units: &BTreeSet<Unit>) -> bool {
        let is_left = |it: &Unit| matches!(it, Unit::SecurityGroup { .. }) && self.has_orphaned_balancers();
        units.iter().any(|it| !is_left(it))
    }

    /// Whoever led before may have left something half done.
    pub(super) fn mark_holds(&mut self) {
        let going: Vec<Owner> = self.holds.going.keys().cloned().collect();
        going.iter().for_each(|owner| self.mark_going(owner));
        let wanted: Vec<Owner> = self.owners.keys().filter(|it| self.is_in_cloud(it)).cloned().collect();
        self.dirt.extend(wanted.into_iter().map(|owner| WorkItem::Unit(Unit::Finalizer(owner))));
    }

    fn mark_going(&mut self, owner: &Owner) {
        let units = self.holds.going.get(owner).cloned().unwrap_or_default();
        if !self.is_awaited(&units) {
            self.dirt.insert(WorkItem::Unit(Unit::Finalizer(owner.clone())));
        }
        self.dirt.extend(units.into_iter().map(WorkItem::Unit));
    }

    pub(super) fn is_in_cloud(&self, owner: &Owner) -> bool {
        let demand = self.owners.get(owner).and_then(|it| it.demand.as_ref());
        demand.and_then(|it| it.cloud.as_ref()).is_some_and(|(_, it)| !it.absent)
    }

    /// Others hold their Services by the same word: what is not known to be of our clouds is left to them.
    fn is_ours_to_let_go(&self, service: &Service, held: FinalizerOwner) -> bool {
        if self.config.clouds.values().any(|it| it.absent) || self.is_left_to_others(service) {
            return false;
        }
        let in_cloud = cloud_of(service, &self.config).is_some();
        match (held, &service.kind) {
            (FinalizerOwner::No, _) => false,
            (_, ServiceKind::LoadBalancer) if in_cloud => service.leaving,
            (FinalizerOwner::ByUs, _) => true,
            // Its load balancer is removed by its tags; without us, nobody would take the finalizer off.
            (FinalizerOwner::ByOthers, ServiceKind::LoadBalancer) => {
                service.leaving && self.adoption.ours.contains(&service.meta.uid)
            }
            // Without a class it was the other controller's, whose place we have.
            (FinalizerOwner::ByOthers, _) => self.config.clouds.values().any(|it| it.classless),
        }
    }

    /// Nothing; and for a Service, what tells which load balancer another controller made for it, if one did.
    pub(super) fn removed(&self, unit: &Unit) -> Desired {
        let former = match unit {
            Unit::LoadBalancer(Place::Cloud { .. }, LbKey::Of(owner)) => self.former(unit, owner),
            _ => None,
        };
        former.map_or(Desired::Absent, |it| Desired::Removed(Arc::new(it)))
    }

    fn former(&self, unit: &Unit, owner: &Owner) -> Option<RemovedOwner> {
        let object = owner.object();
        let key = ServiceKey::new(object.namespace, object.name);
        let service = self.index.service(&key).filter(|it| whose(it) == *owner)?;
        let asks = |demand: &Demand| self.placements.iter().any(|it| it.units(demand).contains(unit));
        let demand = self.demands_as_load_balancer(service).find(asks)?;
        let before = LoadBalancer::default();
        let planned = plan(&demand, demand.cloud_binds(), &BTreeSet::new(), self.given(), &before);
        let load_balancer = self.in_cloud(owner, planned.load_balancer);
        let by_another = self.held(&key) == FinalizerOwner::ByOthers;
        let outside = load_balancer.options.cloud.as_ref()?;
        let is_told = by_another || outside.named.is_some() || !outside.published.is_empty();
        let nodes = self.index.nodes().flat_map(|it| it.addresses.iter().copied()).collect();
        is_told.then_some(RemovedOwner { load_balancer, nodes, by_another })
    }

    /// What it would ask of each of our clouds, if it were a load balancer there.
    fn demands_as_load_balancer<'w>(
        &'w self,
        service: &'w Arc<Service>,
    ) -> impl Iterator<Item = Demand> + 'w {
        self.config.clouds.keys().filter_map(|class| {
            let class = Some(class.clone());
            let kind = ServiceKind::LoadBalancer;
            // It may have been of both families once.
            let first = service.families.first.unwrap_or(Family::V4);
            let families =
                Families { policy: FamilyPolicy::Prefer, first: Some(first), second: Some(first.other()) };
            let wanted = Service { kind, class, families, leaving: false, ..Service::clone(service) };
            Demand::of_service(&Arc::new(wanted), &self.config)
        })
    }

    /// In all our clouds, if it were a load balancer there.
    fn might_have(&self, service: &Arc<Service>) -> BTreeSet<Unit> {
        let units = self
            .demands_as_load_balancer(service)
            .flat_map(|demand| self.placements.iter().flat_map(|it| it.units(&demand)).collect::<Vec<_>>());
        // What others want, too, stays without it.
        let last = |it: &Unit| !self.unit_owners.contains_key(it);
        let awaited = |it: &Unit| match it {
            Unit::LoadBalancer(Place::Cloud { .. }, _) => true,
            Unit::SecurityGroup { .. } => last(it),
            _ => false,
        };
        units.filter(awaited).collect()
    }
}
