//! Owners: what each asks, claims and gets; which Units follow from it.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use seaway_model::{
    AddressState, ListenerId, LoadBalancer, Name, ObjectRef, Owner, Problem, Reason, Unit, WorkItem,
    config::MemberSource,
    load_balancer::Bind,
    unit::{LbKey, Place},
};

use super::World;
use crate::{
    demand::{Demand, DemandPort},
    front_door,
    index::ServiceKey,
    ledger::{Claim, Grant},
    own_listeners::PoolOwner,
    service::{PlannedService, plan},
};

/// One owner, as far as it is planned.
#[derive(Debug, Default)]
pub(super) struct OwnerState {
    /// Nothing, while what it needs is not there; `planned.problems` says so.
    pub(super) demand: Option<Arc<Demand>>,
    pub(super) claim: Option<Claim>,
    pub(super) grant: Option<Grant>,
    pub(super) planned: PlannedService,
    /// Sorted. Nearly always one: a set's node would be ten times as large.
    pub(super) units: Vec<Unit>,
}

impl World {
    /// Everything again: at the start, and when the configuration changed.
    pub(super) fn refresh_all(&mut self) {
        if !self.settled {
            return;
        }
        let wanted: HashSet<Owner> =
            self.config.exposed.iter().map(|it| Owner::Config(it.key.clone())).collect();
        let stale: Vec<Owner> = self
            .owners
            .keys()
            .filter(|it| matches!(it, Owner::Config(_)) && !wanted.contains(it))
            .cloned()
            .collect();
        for owner in stale {
            self.forget(&owner);
        }
        // The configuration's own entries come first: a port that the operator wrote down is not lost to a Service.
        for exposed in self.config.clone().exposed.iter() {
            self.refresh_exposed(&Owner::Config(exposed.key.clone()));
        }
        self.refresh_door();
        let mut keys: Vec<_> =
            self.index.services().map(|(key, it)| (it.meta.created, key.clone())).collect();
        keys.sort();
        for (_, key) in keys {
            self.refresh_service(&key);
        }
        let routes: Vec<ObjectRef> = self.index.routes().cloned().collect();
        for route in routes {
            self.refresh_route(&route);
        }
    }

    /// A Service or its endpoints changed: everybody who serves it looks again.
    pub(super) fn refresh_service(&mut self, key: &ServiceKey) {
        if !self.settled {
            return;
        }
        self.note_secrets(key);
        self.look_at_adoption(key);
        let demand = self.index.service(key).and_then(|it| Demand::of_held(it, self.held(key), &self.config));
        let demand = demand.or_else(|| self.kept_native(key));
        // What another controller serves is left to it, and what was adopted in a cloud to its load balancer there.
        let demand = demand.filter(|it| {
            it.cloud.is_some()
                || self.awaits_adoption(&it.owner).is_none() && !self.is_left_in_cloud(key, &it.service)
        });
        // What a cloud serves is no host's business.
        let demand = demand.filter(|it| it.cloud.is_none() || self.roles.host.is_none());
        let known = self.of_service.get(key).cloned().unwrap_or_default();
        for owner in &known {
            if matches!(owner, Owner::Object { .. }) && demand.as_ref().is_none_or(|it| it.owner != *owner) {
                self.forget(owner);
            }
        }
        if let Some(demand) = demand {
            self.refresh(demand.owner.clone(), Ok(demand));
        }
        let exposed: Vec<Owner> = (self.config.exposed.iter())
            .filter(|it| it.namespace == key.namespace && it.service == key.name)
            .map(|it| Owner::Config(it.key.clone()))
            .collect();
        for owner in exposed {
            self.refresh_exposed(&owner);
        }
        // Others have its members as those whom they ask.
        for owner in self.asked_by.get(key).cloned().unwrap_or_default() {
            self.replan(&owner);
        }
        self.refresh_hold(key);
        self.look_at_released(key);
        self.refresh_guest(key);
    }

    fn refresh_exposed(&mut self, owner: &Owner) {
        let config = self.config.clone();
        let Owner::Config(key) = owner else { return };
        let Some(exposed) = config.exposed.iter().find(|it| it.key == *key) else { return };
        let demand = Demand::of_exposed(exposed, &self.index, &config);
        self.refresh(owner.clone(), demand);
    }

    fn refresh(&mut self, owner: Owner, demand: Result<Demand, Problem>) {
        let demand = match demand {
            Ok(demand) => demand,
            Err(problem) => {
                self.forget(&owner);
                let planned = PlannedService { problems: vec![problem], ..PlannedService::default() };
                self.owners.insert(owner.clone(), OwnerState { planned, ..OwnerState::default() });
                self.dirt.insert(WorkItem::Unit(Unit::Status(owner)));
                return;
            }
        };
        let key = ServiceKey::new(demand.service.meta.namespace.clone(), demand.service.meta.name.clone());
        // A cloud gives addresses itself.
        let claim = demand.cloud.is_none().then(|| self.claim(&demand));
        let mut units: Vec<Unit> = self.placements.iter().flat_map(|it| it.units(&demand)).collect();
        units.sort();
        units.dedup();
        add(self.of_service.entry(key).or_default(), &owner);
        self.note_auth_service(&owner, Some(&demand));
        let state = self.owners.entry(owner.clone()).or_default();
        let claimed = state.claim != claim;
        // By a name instead of its address, which nothing that is planned tells.
        let shown = state.demand.as_ref().is_some_and(|before| before.shown() != demand.shown());
        state.demand = Some(Arc::new(demand));
        state.claim = claim.clone();
        let before = std::mem::replace(&mut state.units, units.clone());
        self.claim_names(&owner);
        for unit in before.iter().filter(|unit| !units.contains(unit)) {
            self.disown(&owner, unit);
        }
        for unit in units.iter().filter(|unit| !before.contains(unit)) {
            add(self.unit_owners.entry(unit.clone()).or_default(), &owner);
            self.note_released(unit);
            self.note_wanted(unit);
            self.dirt.insert(WorkItem::Unit(unit.clone()));
            if matches!(unit, Unit::SecurityGroup { .. }) {
                // It stays, so nobody need wait for its end.
                self.went(unit);
            }
        }
        if claimed {
            let touched = match claim {
                Some(claim) => self.ledger.claim(claim),
                None => self.ledger.release(&owner),
            };
            self.regrant(touched);
        }
        let others = self.note_share(&owner);
        self.replan(&owner);
        self.replan_dependents(others);
        if shown {
            self.dirt.insert(WorkItem::Unit(Unit::Status(owner)));
        }
    }

    fn claim(&self, demand: &Demand) -> Claim {
        let service = &demand.service;
        Claim {
            owner: demand.owner.clone(),
            created: service.meta.created,
            namespace: service.meta.namespace.clone(),
            namespace_labels: self.index.namespace_labels(&service.meta.namespace),
            labels: service.meta.labels.clone(),
            families: service.families,
            ports: demand.ports.iter().map(DemandPort::id).collect(),
            requested: demand.wishes.requested.clone(),
            requested_field: demand.wishes.requested_field.clone(),
            pool: demand.wishes.pool.clone(),
            sharing: demand.wishes.sharing.clone(),
            across: demand.wishes.share_across.clone(),
            local_only: service.local_only,
            selector: service.selector.clone(),
            hosts_only: demand.hosts_only,
            exactly: demand.address.into_iter().collect(),
        }
    }

    /// Plans one owner anew from what is known, and marks what came out different.
    pub(super) fn replan(&mut self, owner: &Owner) {
        if front_door::entrance_of(owner).is_some() {
            return self.replan_door();
        }
        let Some(state) = self.owners.get(owner) else { return };
        let Some(demand) = &state.demand else { return };
        let (grant, mut ledger_problems) = match &demand.cloud {
            Some(_) => (None, Vec::new()),
            None => self.ledger.grant(owner),
        };
        let binds = match &demand.cloud {
            Some(_) => demand.cloud_binds(),
            None => grant.as_ref().map(|it| self.binds(owner, it)).unwrap_or_default(),
        };
        self.listens(owner, grant.as_ref().map(|it| it.ports.clone()).unwrap_or_default());
        let Some(state) = self.owners.get(owner) else { return };
        let Some(demand) = &state.demand else { return };
        // Whoever has more listeners than its namespace may have has none.
        let may_listen = self.index.shares.may_listen(&PoolOwner::Owner(owner.clone()));
        let mut spoiled: BTreeSet<ListenerId> =
            demand.ports.iter().filter(|_| !may_listen).map(DemandPort::id).collect();
        spoiled.extend(grant.iter().flat_map(|it| it.conflicts.iter().map(|(_, id, _)| *id)));
        spoiled.extend(grant.iter().flat_map(|it| &it.refused));
        let before = &state.planned.load_balancer;
        let mut planned =
            plan(demand, binds, &spoiled, self.given(), before).with_asked(demand, self.given(), before);
        planned.problems.append(&mut ledger_problems);
        if let Some(grant) = &grant {
            planned.problems.extend(conflicts(demand, grant, self.config.pools.cluster));
            planned.problems.extend(reserved(demand, grant));
        }
        let Some(state) = self.owners.get_mut(owner) else { return };
        let changed_grant = state.grant != grant;
        state.grant = grant;
        if state.planned == planned {
            if changed_grant {
                self.dirt.insert(WorkItem::Unit(Unit::Status(owner.clone())));
            }
            return;
        }
        let before = std::mem::replace(&mut state.planned, planned);
        let units = state.units.clone();
        let now = state.planned.load_balancer.clone();
        let names = state.planned.names.clone();
        let is_present_otherwise = before.nobody_here != state.planned.nobody_here;
        let is_opened_otherwise = before.openings != state.planned.openings;
        self.note_members(owner);
        if is_present_otherwise {
            self.presence_changed();
        }
        if is_opened_otherwise {
            self.groups_changed(&units);
        }
        self.mark(&units, &before.load_balancer, &now);
        self.rename(owner, &before.names, &names);
        self.dirt.insert(WorkItem::Unit(Unit::Status(owner.clone())));
    }

    /// Membership and configuration are two kinds of dirt.
    fn mark(&mut self, units: &[Unit], before: &LoadBalancer, now: &LoadBalancer) {
        let same_shape = before.binds == now.binds
            && before.listeners == now.listeners
            && before.options == now.options
            && before.awaited == now.awaited
            && before.pools.keys().eq(now.pools.keys());
        for unit in units.iter().filter(|it| !matches!(it, Unit::SecurityGroup { .. })) {
            if same_shape && before.certificates == now.certificates {
                let is_as_before = |id, pool| before.pools.get(id).is_some_and(|it| Arc::ptr_eq(it, pool));
                let changed = now.pools.iter().filter(|(id, pool)| !is_as_before(*id, *pool));
                self.dirt.extend(changed.map(|(id, _)| WorkItem::Pool(unit.clone(), id.clone())));
            } else {
                self.dirt.insert(WorkItem::Unit(unit.clone()));
            }
        }
    }

    fn rename(&mut self, owner: &Owner, before: &BTreeSet<Name>, now: &BTreeSet<Name>) {
        for name in now.difference(before) {
            let unit = Unit::Name(name.clone());
            add(self.unit_owners.entry(unit.clone()).or_default(), owner);
            self.dirt.insert(WorkItem::Unit(unit));
        }
        for name in before.difference(now) {
            self.disown(owner, &Unit::Name(name.clone()));
        }
    }

    /// A bind may be served once its Address is written down as this owner's.
    fn binds(&self, owner: &Owner, grant: &Grant) -> Vec<Bind> {
        let written = |ip: &std::net::IpAddr| {
            self.addresses
                .get(ip)
                .is_some_and(|it| it.state == AddressState::Held && it.owners.contains(owner))
        };
        match grant.from_hosts {
            true => grant.addresses.iter().copied().map(Bind::Host).collect(),
            false => grant.addresses.iter().filter(|ip| written(ip)).copied().map(Bind::Ledger).collect(),
        }
    }

    pub(super) fn disown(&mut self, owner: &Owner, unit: &Unit) {
        if let Some(owners) = self.unit_owners.get_mut(unit) {
            owners.retain(|it| it != owner);
            if owners.is_empty() {
                self.unit_owners.remove(unit);
            }
        }
        self.note_released(unit);
        self.note_given_up(owner, unit);
        self.dirt.insert(WorkItem::Unit(unit.clone()));
    }

    pub(super) fn forget(&mut self, owner: &Owner) {
        self.note_auth_service(owner, None);
        let Some(state) = self.owners.remove(owner) else { return };
        self.claim_names(owner);
        self.note_members(owner);
        self.foreign.remove(owner);
        self.listens(owner, Vec::new());
        let others = self.note_share(owner);
        self.replan_dependents(others);
        for unit in &state.units {
            self.disown(owner, unit);
        }
        for name in &state.planned.names {
            self.disown(owner, &Unit::Name(name.clone()));
        }
        if let Some(demand) = &state.demand {
            let key =
                ServiceKey::new(demand.service.meta.namespace.clone(), demand.service.meta.name.clone());
            if let Some(owners) = self.of_service.get_mut(&key) {
                owners.retain(|it| it != owner);
                if owners.is_empty() {
                    self.of_service.remove(&key);
                }
            }
            let touched = self.ledger.release(owner);
            self.regrant(touched);
        }
        self.dirt.insert(WorkItem::Unit(Unit::Status(owner.clone())));
    }

    /// A Node came, went, or is another: where members are pods, that of this host alone matters.
    pub(super) fn refresh_nodes(&mut self, node: &Name) {
        let known = self.index.node(node).cloned().unwrap_or_default();
        let dependents = self.index.own.set_node(node, &known.addresses, &known.pod_networks);
        self.note_host_node(node);
        let host = self.roles.host.as_ref();
        let nobody = self.index.nodes().next().is_none();
        let stands_in = |state: &OwnerState| {
            state.demand.as_ref().is_some_and(|it| it.wishes.members == MemberSource::Nodes)
        };
        if !self.settled {
        } else if host.is_none() {
            self.refresh_clouds();
            self.nodes_changed();
            self.refresh_statuses();
        } else if nobody
            || host == Some(node)
            || self.index.is_outside(host)
            || self.owners.values().any(stands_in)
        {
            self.refresh_all();
        }
        self.replan_dependents(dependents);
    }

    /// It may have been left behind, or come back. (One that is wanted was looked at when it was planned.)
    pub(super) fn find(&mut self, unit: Unit) {
        let uid = |owner: &Owner| match owner {
            Owner::Object { uid, .. } => Some(uid.clone()),
            Owner::Config(_) => None,
        };
        let wanted = match &unit {
            Unit::LoadBalancer(Place::Cloud { .. }, LbKey::Of(owner)) => {
                let is_it = |it: &Unit| matches!(it, Unit::LoadBalancer(Place::Cloud { .. }, LbKey::Of(_)));
                let mut its = self.owners.iter().filter(|(it, _)| uid(it).is_some() && uid(it) == uid(owner));
                its.any(|(_, state)| state.units.iter().any(is_it))
            }
            // Its owner's name may be cut, as above.
            Unit::LoadBalancer(Place::Cloud { .. }, LbKey::Second(owner, family)) => {
                let is_it =
                    |it: &Unit| matches!(it, Unit::LoadBalancer(_, LbKey::Second(_, its)) if its == family);
                let mut its = self.owners.iter().filter(|(it, _)| uid(it).is_some() && uid(it) == uid(owner));
                its.any(|(_, state)| state.units.iter().any(is_it))
            }
            _ => self.unit_owners.contains_key(&unit),
        };
        if !self.settled {
            self.found.insert(unit);
        } else if !wanted {
            self.note_released(&unit);
            self.note_orphan(&unit);
            self.dirt.insert(WorkItem::Unit(unit));
        }
    }

    /// Nodes are their members.
    pub(super) fn refresh_clouds(&mut self) {
        let in_cloud =
            |(_, state): &(&Owner, &OwnerState)| state.demand.as_ref().is_some_and(|it| it.cloud.is_some());
        let owners: Vec<Owner> =
            self.owners.iter().filter(in_cloud).map(|(owner, _)| owner.clone()).collect();
        for owner in owners {
            self.replan(&owner);
        }
    }

    pub(super) fn refresh_statuses(&mut self) {
        self.dirt.extend(self.owners.keys().map(|owner| WorkItem::Unit(Unit::Status(owner.clone()))));
        if self.settled {
            self.tell_guests();
        }
    }

    pub(super) fn owners_of(&self, object: &ObjectRef) -> Vec<Owner> {
        if *object == ObjectRef::certificate_copies_config() {
            return self.secrets_of.keys().flat_map(|key| self.owners_of(&key.object())).collect();
        }
        let key = ServiceKey::new(object.namespace.clone(), object.name.clone());
        let mut owners: Vec<Owner> = self.of_service.get(&key).into_iter().flatten().cloned().collect();
        owners.extend(self.door.guests.owner_of(object));
        owners
    }
}

/// A handful of owners at most, so a list is enough.
pub(super) fn add(owners: &mut Vec<Owner>, owner: &Owner) {
    if !owners.contains(owner) {
        owners.push(owner.clone());
    }
}

fn field_of(demand: &Demand, id: ListenerId) -> String {
    let field = demand.ports.iter().find(|it| it.id() == id).map_or("spec.ports", |it| it.field.as_str());
    if field.starts_with("spec.") { format!("{field}.port") } else { field.to_owned() }
}

/// Ports that the machines of a cluster need themselves.
fn reserved(demand: &Demand, grant: &Grant) -> Vec<Problem> {
    let told = |id: &ListenerId| {
        let (message, instead) = if grant.from_hosts {
            (
                format!("port {id} is reserved on hosts' own addresses: the machines need it themselves"),
                ", or take an address of an AddressPool with spec.addresses",
            )
        } else {
            (
                format!(
                    "port {id} is reserved: hosts would bind it at the Service's address, and no process of the machine \
                     could then bind it for all addresses"
                ),
                "",
            )
        };
        Problem::new(demand.owner.object(), Reason::PortReserved, message).at(field_of(demand, *id)).fix(
            format!(
                "Choose another port{instead}. To allow it: spec.reservedPorts: [{}] of AddressPool {}.",
                id.port, grant.pool
            ),
        )
    };
    grant.refused.iter().map(told).collect()
}

/// Ports that somebody else has on the host's own addresses: only those listeners are spoiled.
fn conflicts(demand: &Demand, grant: &Grant, is_cluster: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (ips, id, other) in grant.conflicts_by_port() {
        let field = field_of(demand, id);
        let other = other.named_for(&demand.owner, is_cluster);
        problems.push(
            Problem::new(demand.owner.object(), Reason::PortConflict, format!("port {id} on {ips} is already used by {other}"))
                .at(field)
                .fix("Choose another port, or write an AddressPool so that each Service has an address of its own. \
                    The Service that has the port keeps it; when Seaway starts, the older Service gets it, else the \
                    first by namespace and name."),
        );
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Service is planned again with each of its changes.
    #[test]
    fn an_owner_that_is_added_again_is_there_once() {
        let (one, two) = (Owner::Config("one".into()), Owner::Config("two".into()));
        let mut owners = Vec::new();
        for owner in [&one, &two, &one, &two] {
            add(&mut owners, owner);
        }
        assert_eq!(owners, [one, two]);
    }
}
