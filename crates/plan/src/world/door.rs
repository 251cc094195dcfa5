//! The front door in the World: one more owner, named in the configuration, with one Unit on each host.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use seaway_model::{
    Kind, LoadBalancer, Name, ObjectRef, Owner, PoolId, Problem, Reason, Status, Unit, WorkItem,
    config::{FrontDoorRoutes, OpenPolicy, UnlistedHosts},
    fact::NameOwner,
    load_balancer::{Bind, HostPattern},
    outcome::ServingSocket,
};

use super::{World, announced::by_hosts, entrances::EntranceState, orders::Orders};
use crate::{
    front_door::{self, FirstClaims, FrontDoor, FrontDoorChange, FrontDoorView},
    index::{PlanContext, ServiceKey},
    ledger::{Claim, Grant},
};

/// What of the front door is not its guests'.
#[derive(Default)]
pub(super) struct FrontDoorState {
    pub(super) guests: FrontDoor,
    grant: Option<Grant>,
    problems: Vec<Problem>,
    /// While it is open.
    pub(super) units: Vec<Unit>,
    /// Further ones, by their names.
    pub(super) entrances: BTreeMap<Name, EntranceState>,
    /// It is open, and has no certificate.
    pub(super) lacks_certificates: bool,
    /// Host names whose certificates are ordered, and where.
    pub(super) orders: Orders,
}

impl World {
    pub(crate) fn given(&self) -> PlanContext<'_> {
        PlanContext {
            index: &self.index,
            config: &self.config,
            host: self.roles.host.as_ref(),
            certificates: &self.certificates,
        }
    }

    pub(super) fn refresh_guest(&mut self, key: &ServiceKey) {
        self.guests_changed(|door, given| door.refresh_service(key, given));
        self.note_share_at_door(key);
    }

    pub(super) fn refresh_route(&mut self, route: &ObjectRef) {
        if self.settled {
            self.guests_changed(|door, given| door.refresh_route(route, given));
        }
    }

    /// Who claimed a name first is written down, or no more.
    pub(super) fn record_names(&mut self, namespace: &Name, now: Option<Arc<NameOwner>>) {
        if self.settled {
            self.guests_changed(|door, _| door.record(namespace, now));
        } else {
            self.door.guests.record(namespace, now);
        }
    }

    /// What is to be written down of names at the front door. Nothing, before all that may claim one was told, while the
    /// front door is closed, and where the configuration says whose all names are.
    pub fn first_claims(&self) -> Option<FirstClaims> {
        let settings = &self.config.front_door;
        let told = [Kind::HTTPRoute, Kind::NameOwner].iter().all(|kind| self.synced.contains(kind));
        let is_kept = settings.opens != OpenPolicy::Never && settings.owners.others == UnlistedHosts::First;
        (self.settled && told && is_kept).then(|| self.door.guests.first_claims())
    }

    pub(super) fn refresh_name_at_door(&mut self, name: &Name) {
        self.guests_changed(|door, given| door.refresh_name(name, given));
    }

    /// Some of its members may be listeners of our own, or no more.
    pub(super) fn serve_again_at_door(&mut self, key: &ServiceKey) {
        self.guests_changed(|door, given| door.serve_again(key, given));
    }

    fn with_guests<T>(&mut self, change: impl FnOnce(&mut FrontDoor, PlanContext<'_>) -> T) -> T {
        let given = PlanContext {
            index: &self.index,
            config: &self.config,
            host: self.roles.host.as_ref(),
            certificates: &self.certificates,
        };
        change(&mut self.door.guests, given)
    }

    fn guests_changed(&mut self, change: impl FnOnce(&mut FrontDoor, PlanContext<'_>) -> FrontDoorChange) {
        let effects = self.with_guests(change);
        if effects == FrontDoorChange::default() {
            return;
        }
        for key in &effects.served {
            self.note_members_at_door(key);
            self.note_share_at_door(key);
        }
        self.dirt.extend(effects.told.into_iter().map(|owner| WorkItem::Unit(Unit::Status(owner))));
        let owner = front_door::owner();
        for name in effects.names {
            let unit = Unit::Name(name.clone());
            if self.door.guests.wants_name(&name) {
                super::owners::add(self.unit_owners.entry(unit.clone()).or_default(), &owner);
                self.dirt.insert(WorkItem::Unit(unit));
            } else {
                self.disown(&owner, &unit);
            }
        }
        if effects.shape {
            self.door.orders.are_stale = true;
            self.open_or_close_door();
            self.mark_doors();
        } else {
            let units: Vec<Unit> = self.all_door_units().cloned().collect();
            for unit in units {
                let its = effects.pools.iter().filter(|id| self.door_pool(&unit, id).is_some());
                let its: Vec<WorkItem> = its.map(|id| WorkItem::Pool(unit.clone(), id.clone())).collect();
                self.dirt.extend(its);
            }
            self.mark_door_statuses();
        }
        self.give_up_vanished();
    }

    /// The configuration is another, or is heard for the first time.
    pub(super) fn refresh_door(&mut self) {
        self.door.guests.forget_certificates();
        self.door.orders.are_stale = true;
        self.look_at_door();
    }

    /// One certificate came, went, or is for other names than those that it had.
    pub(super) fn rename_at_door(&mut self, object: &ObjectRef, had: &[HostPattern]) {
        // One that is ordered is no reason to order another one, or none.
        self.door.orders.are_stale |= object.kind != Kind::Certificate;
        self.with_guests(|door, given| door.rename(object, had, given));
        self.look_at_door();
    }

    pub(super) fn look_at_door(&mut self) {
        self.open_or_close_door();
        self.mark_doors();
    }

    fn open_or_close_door(&mut self) {
        self.open_or_close();
        self.open_or_close_entrances();
        self.note_lack_at_door();
    }

    /// Who asks for a redirect to https hears whether there can be one.
    pub(super) fn note_lack_at_door(&mut self) {
        self.replan_entrances();
        let lacks = !self.door.units.is_empty() && self.door.guests.lacks_certificates(self.given());
        if self.door.lacks_certificates != lacks {
            self.door.lacks_certificates = lacks;
            self.tell_guests();
            if !self.door.units.is_empty() {
                self.replan_door();
            }
        }
    }

    fn open_or_close(&mut self) {
        let owner = front_door::owner();
        let settings = &self.config.front_door;
        if !self.door.guests.is_to_open(&self.config) {
            for unit in std::mem::take(&mut self.door.units) {
                self.disown(&owner, &unit);
            }
            let touched = self.ledger.release(&owner);
            self.regrant(touched);
            (self.door.grant, self.door.problems) = (None, Vec::new());
            self.listens(&owner, Vec::new());
            return;
        }
        let claim = Claim {
            ports: self.door.guests.ids(self.given()).into_iter().collect(),
            hosts_only: true,
            exactly: settings.addresses.clone(),
            ..Claim::new(owner.clone())
        };
        let touched = self.ledger.claim(claim);
        let mut units: Vec<Unit> = self.placements.iter().flat_map(|it| it.front_door(&owner)).collect();
        units.sort();
        let before = std::mem::replace(&mut self.door.units, units.clone());
        for unit in before.iter().filter(|unit| !units.contains(unit)) {
            self.disown(&owner, unit);
        }
        for unit in units.into_iter().filter(|unit| !before.contains(unit)) {
            super::owners::add(self.unit_owners.entry(unit.clone()).or_default(), &owner);
            self.dirt.insert(WorkItem::Unit(unit));
        }
        self.regrant(touched);
        self.replan_door();
    }

    /// Its addresses may be others now.
    pub(super) fn replan_door(&mut self) {
        self.replan_entrances();
        let owner = front_door::owner();
        let (grant, mut problems) = self.ledger.grant(&owner);
        problems.extend(self.certificates.missing(&self.config.front_door.tls, &owner.object()));
        let settings = &self.config.front_door;
        if self.door.lacks_certificates && front_door::requires_client_certificates(settings) {
            problems.push(front_door::nobody_is_served(owner.object()));
        } else if self.door.lacks_certificates && settings.tls.redirect && self.door.orders.are_none_at(None)
        {
            problems.push(front_door::not_redirected(owner.object(), "frontDoor.tls.redirect".into()));
        }
        for (ips, id, other) in grant.iter().flat_map(|it| it.conflicts_by_port()) {
            let message = format!("port {id} on {ips} is already used by {other}");
            problems.push(
                Problem::new(owner.object(), Reason::PortConflict, message)
                    .at(if id.port == self.config.front_door.tls.port {
                        "frontDoor.tls.port"
                    } else {
                        "frontDoor.port"
                    })
                    .fix("Give the front door another port or address: frontDoor: {port: 8080}."),
            );
        }
        self.listens(&owner, grant.as_ref().map(|it| it.ports.clone()).unwrap_or_default());
        if self.door.grant != grant || self.door.problems != problems {
            (self.door.grant, self.door.problems) = (grant, problems);
            self.dirt.extend(self.door.units.iter().cloned().map(WorkItem::Unit));
            self.dirt.insert(WorkItem::Unit(Unit::Status(owner)));
        }
    }

    pub(super) fn door_ports(&self) -> &[(std::net::IpAddr, seaway_model::ListenerId)] {
        self.door.grant.as_ref().map_or(&[], |it| &it.ports)
    }

    fn door_binds(&self) -> Vec<Bind> {
        self.door.grant.iter().flat_map(|it| &it.addresses).copied().map(Bind::Host).collect()
    }

    pub(super) fn door_load_balancer(&self) -> Arc<LoadBalancer> {
        let given = self.given();
        Arc::new(LoadBalancer {
            binds: self.door_binds(),
            listeners: self.door.guests.listeners(given),
            pools: self.door.guests.pools_at(None, &self.config.front_door),
            certificates: self.door.guests.certificates(given),
            ..LoadBalancer::default()
        })
    }

    pub(super) fn door_pool(&self, unit: &Unit, id: &PoolId) -> Option<Arc<seaway_model::Pool>> {
        if !self.door.units.contains(unit) {
            return self.entrance_pool(unit, id);
        }
        let is_there = self.door.guests.leads_to_pool(None, id, &self.config.front_door);
        self.door.guests.pools().get(id).filter(|_| is_there).cloned()
    }

    pub(super) fn door_serving(&self) -> Vec<ServingSocket> {
        if self.roles.host.is_none() {
            return self.door_served_by_hosts();
        }
        let outcomes = self.door.units.iter().filter_map(|unit| self.outcomes.get(unit));
        let mut serving: Vec<ServingSocket> = outcomes.flat_map(|it| it.serving.iter().cloned()).collect();
        serving.sort();
        serving.dedup();
        serving
    }

    /// Who has no data plane has the word of hosts: each that takes somebody new has a front door.
    fn door_served_by_hosts(&self) -> Vec<ServingSocket> {
        if self.door.grant.is_none() || self.index.hosts().all(|it| it.drain) {
            return Vec::new();
        }
        let ids = self.door.guests.ids(self.given());
        let ips = self.door_binds().into_iter().filter_map(|it| Bind::ip(&it));
        ips.flat_map(|ip| ids.iter().map(move |it| ServingSocket { ip, protocol: it.l4, port: it.port }))
            .collect()
    }

    /// What the front door itself is told, while it is open.
    pub(super) fn door_status(&self) -> Option<Status> {
        if self.door.units.is_empty() {
            return None;
        }
        let (units, own) = (self.door.units.iter(), self.door.problems.iter());
        let addresses = self.door_binds().iter().filter_map(Bind::ip).collect();
        let mut status = self.status_at(None, units, own, addresses, self.door_serving());
        // A name without a certificate is no reason to call the others unready.
        let problems: BTreeSet<Problem> = status.problems.into_iter().chain(self.order_problems()).collect();
        status.problems = problems.into_iter().collect();
        Some(status)
    }

    /// Of the front door itself, or of a further entrance: with what drivers say of its Units, and what is wrong with it by planning.
    pub(super) fn status_at<'w>(
        &'w self,
        entrance: Option<&Name>,
        units: impl Iterator<Item = &'w Unit>,
        own: impl Iterator<Item = &'w Problem>,
        addresses: Vec<std::net::IpAddr>,
        serving: Vec<ServingSocket>,
    ) -> Status {
        let owner = front_door::owner_of(entrance);
        let told = units.filter_map(|unit| self.outcomes.get(unit)).flat_map(|it| &it.problems);
        let told = told.filter(|(whose, _)| *whose == owner).map(|(_, problem)| problem);
        let problems: BTreeSet<Problem> = told.chain(own).cloned().collect();
        let pools = self.door.guests.pools_at(entrance, &self.config.front_door);
        Status {
            owner,
            addresses,
            ready: !serving.is_empty() && problems.is_empty(),
            serving,
            members: pools.values().map(|pool| pool.members.len()).sum(),
            problems: problems.into_iter().collect(),
            pool: None,
            announced: Some(by_hosts()),
            shown: seaway_model::outcome::PublishedAs::default(),
            waits: None,
            takes_over: true,
            unreported: false,
            replaced: None,
            ports: Vec::new(),
            left: false,
        }
    }

    /// What somebody is told who is there only through the front door; or what that adds to what it is told anyway.
    pub(super) fn guest_status(&self, owner: &Owner, own: Option<Status>) -> Option<Status> {
        let Some(told) = self.door.guests.status_of(owner) else { return own };
        let mut status = own.unwrap_or_else(|| {
            let entrances = if told.leads { self.door.guests.entrances_of(owner) } else { Vec::new() };
            let serving: BTreeSet<ServingSocket> = entrances
                .iter()
                .flat_map(|it| {
                    it.as_ref().map_or_else(|| self.door_serving(), |it| self.entrance_serving(it))
                })
                .collect();
            let serving: Vec<ServingSocket> = serving.into_iter().collect();
            let main = || self.door_binds().iter().filter_map(Bind::ip).collect();
            let addresses = entrances
                .iter()
                .flat_map(|it| it.as_ref().map_or_else(main, |it| self.entrance_addresses(it)));
            Status {
                owner: owner.clone(),
                // In a cluster it has none of its own, and those of all hosts are no address to publish.
                addresses: addresses.filter(|_| self.roles.host.is_some()).collect(),
                ready: !serving.is_empty() && told.members > 0,
                serving,
                members: told.members,
                problems: self.reported.get(&owner.object()).into_iter().flatten().cloned().collect(),
                pool: None,
                announced: told.leads.then(by_hosts),
                shown: seaway_model::outcome::PublishedAs::default(),
                waits: None,
                takes_over: true,
                unreported: false,
                replaced: None,
                ports: Vec::new(),
                left: false,
            }
        });
        let mut problems: BTreeSet<Problem> = status.problems.into_iter().collect();
        problems.extend(told.problems);
        problems.extend(self.not_redirected(owner));
        problems.extend(self.told_of_copies(owner));
        status.problems = problems.into_iter().collect();
        Some(status)
    }

    fn not_redirected(&self, owner: &Owner) -> Option<Problem> {
        let lacks = self.door.lacks_certificates
            && self.door.orders.are_none_at(None)
            && !front_door::requires_client_certificates(&self.config.front_door);
        lacks.then(|| self.door.guests.not_redirected(owner)).flatten()
    }

    /// The door's Unit came out otherwise: everybody who is there hears of it.
    pub(super) fn tell_guests(&mut self) {
        let owners = self.door.guests.owners().into_iter().chain(self.door_owners());
        self.dirt.extend(owners.map(|owner| WorkItem::Unit(Unit::Status(owner))));
    }

    pub(super) fn door_problems(&self) -> BTreeSet<Problem> {
        let mut problems = self.door.guests.problems();
        problems.extend(self.door.guests.owners().iter().filter_map(|it| self.not_redirected(it)));
        problems.extend(self.door.problems.iter().chain(self.entrance_problems()).cloned());
        problems.extend(self.order_problems());
        problems
    }

    /// What is wrong with a route of another Gateway is no Problem of ours.
    pub(super) fn is_foreign_route(&self, object: &ObjectRef) -> bool {
        let settings = &self.config.front_door;
        // A route that cannot be read names no Gateway: it concerns whoever reads routes at all.
        let read = || settings.routes == FrontDoorRoutes::Never || settings.opens == OpenPolicy::Never;
        object.kind == Kind::HTTPRoute
            && settings.routes != FrontDoorRoutes::All
            && self.index.route(object).map_or_else(read, |it| !front_door::is_here(it, settings))
    }

    pub(crate) fn pools_at_door(&self, key: &ServiceKey) -> Vec<Arc<seaway_model::Pool>> {
        self.door.guests.pools_of(key)
    }

    /// The front door for people; nothing, while it is shut.
    pub fn front_door(&self) -> Option<FrontDoorView> {
        let others = self.entrances_at();
        if self.door.units.is_empty() && others.is_empty() {
            return None;
        }
        let ids = self.door.guests.ids(self.given());
        let ips: Vec<_> = self.door_binds().iter().filter_map(Bind::ip).collect();
        let at = ids.iter().flat_map(|id| ips.iter().map(|ip| SocketAddr::new(*ip, id.port))).collect();
        Some(FrontDoorView { at, others, entrances: self.door.guests.entrances() })
    }
}
