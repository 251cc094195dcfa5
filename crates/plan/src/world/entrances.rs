//! Further entrances of the front door in the World: each an owner of its own addresses and ports, with one Unit on each host.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use seaway_model::{
    LoadBalancer, Name, Owner, Problem, Reason, Status, Unit, WorkItem, config::OpenPolicy,
    load_balancer::Bind, outcome::ServingSocket,
};

use super::World;
use crate::{
    front_door,
    ledger::{Claim, Grant},
};

#[derive(Default)]
pub(super) struct EntranceState {
    grant: Option<Grant>,
    problems: Vec<Problem>,
    /// Something leads to it: a controller has no Units, and says all the same where hosts serve.
    is_open: bool,
    /// While it is open, on hosts.
    pub(super) units: Vec<Unit>,
}

impl EntranceState {
    fn binds(&self) -> Vec<Bind> {
        self.grant.iter().flat_map(|it| &it.addresses).copied().map(Bind::Host).collect()
    }
}

impl World {
    /// Units of all entrances.
    pub(super) fn all_door_units(&self) -> impl Iterator<Item = &Unit> {
        self.door.units.iter().chain(self.door.entrances.values().flat_map(|it| &it.units))
    }

    pub(super) fn is_door_unit(&self, unit: &Unit) -> bool {
        self.all_door_units().any(|it| it == unit)
    }

    pub(super) fn mark_doors(&mut self) {
        let units: Vec<WorkItem> = self.all_door_units().cloned().map(WorkItem::Unit).collect();
        self.dirt.extend(units);
        self.mark_door_statuses();
    }

    pub(super) fn mark_door_statuses(&mut self) {
        let owners = self.door_owners();
        self.dirt.extend(owners.into_iter().map(|owner| WorkItem::Unit(Unit::Status(owner))));
    }

    pub(super) fn door_owners(&self) -> Vec<Owner> {
        let others = self.door.entrances.keys().map(|name| front_door::owner_of(Some(name)));
        std::iter::once(front_door::owner()).chain(others).collect()
    }

    pub(super) fn open_or_close_entrances(&mut self) {
        let config = self.config.clone();
        let door = &config.front_door;
        let gone: Vec<Name> =
            self.door.entrances.keys().filter(|it| !door.entrances.contains_key(*it)).cloned().collect();
        for name in gone {
            self.close_entrance(&name);
            self.door.entrances.remove(&name);
            self.dirt.insert(WorkItem::Unit(Unit::Status(front_door::owner_of(Some(&name)))));
        }
        for (name, settings) in &door.entrances {
            let opens = match door.opens {
                OpenPolicy::Never => false,
                _ if !config.may_listen(&settings.addresses) => false,
                OpenPolicy::Always => true,
                OpenPolicy::WhenNeeded => self.door.guests.leads_at(Some(name)),
            };
            self.door.entrances.entry(name.clone()).or_default();
            if !opens {
                self.close_entrance(name);
                continue;
            }
            let owner = front_door::owner_of(Some(name));
            let claim = Claim {
                ports: self.door.guests.ids_at(name, settings, self.given()).into_iter().collect(),
                hosts_only: true,
                exactly: settings.addresses.clone(),
                ..Claim::new(owner.clone())
            };
            let touched = self.ledger.claim(claim);
            let mut units: Vec<Unit> = self.placements.iter().flat_map(|it| it.front_door(&owner)).collect();
            units.sort();
            let state = self.door.entrances.entry(name.clone()).or_default();
            state.is_open = true;
            let before = std::mem::replace(&mut state.units, units.clone());
            for unit in before.iter().filter(|unit| !units.contains(unit)) {
                self.disown(&owner, unit);
            }
            for unit in units.into_iter().filter(|unit| !before.contains(unit)) {
                super::owners::add(self.unit_owners.entry(unit.clone()).or_default(), &owner);
                self.dirt.insert(WorkItem::Unit(unit));
            }
            self.regrant(touched);
        }
    }

    fn close_entrance(&mut self, name: &Name) {
        let owner = front_door::owner_of(Some(name));
        let Some(state) = self.door.entrances.get_mut(name) else { return };
        if !std::mem::take(&mut state.is_open) {
            return;
        }
        let units = std::mem::take(&mut state.units);
        (state.grant, state.problems) = (None, Vec::new());
        for unit in units {
            self.disown(&owner, &unit);
        }
        let touched = self.ledger.release(&owner);
        self.regrant(touched);
        self.listens(&owner, Vec::new());
        self.dirt.insert(WorkItem::Unit(Unit::Status(owner)));
    }

    /// Their addresses may be others now.
    pub(super) fn replan_entrances(&mut self) {
        let config = self.config.clone();
        for (name, settings) in &config.front_door.entrances {
            let Some(state) = self.door.entrances.get(name).filter(|it| it.is_open) else { continue };
            let serves_here = !state.units.is_empty();
            let owner = front_door::owner_of(Some(name));
            let (grant, mut problems) = self.ledger.grant(&owner);
            let place = format!("frontDoor.entrances[{name}]");
            let missing = self.certificates.missing(&settings.tls, &owner.object());
            problems.extend(missing.into_iter().map(|it| {
                let field = it.field.strip_prefix("frontDoor").map(|rest| format!("{place}{rest}"));
                field.map_or_else(|| it.clone(), |field| it.clone().at(field))
            }));
            // Hosts tell it.
            let lacks = serves_here && self.door.guests.lacks_certificates_at(name, settings, self.given());
            if lacks && front_door::requires_client_certificates(settings) {
                let field = format!("{place}.tls.clients");
                problems.push(front_door::nobody_is_served(owner.object()).at(field));
            } else if lacks && self.door.guests.requires_certificates_at(name) {
                let field = format!("{place}.certificates");
                problems.push(front_door::nobody_is_served(owner.object()).at(field));
            } else if lacks && settings.tls.redirect && self.door.orders.are_none_at(Some(name)) {
                let field = format!("{place}.tls.redirect");
                problems.push(front_door::not_redirected(owner.object(), field.into()));
            }
            for (ips, id, other) in grant.iter().flat_map(|it| it.conflicts_by_port()) {
                let message = format!("port {id} on {ips} is already used by {other}");
                let key = if id.port == settings.tls.port { "tls.port" } else { "port" };
                let problem = Problem::new(owner.object(), Reason::PortConflict, message);
                let fix = "Give the entrance another port or address.";
                problems.push(problem.at(format!("{place}.{key}")).fix(fix));
            }
            self.listens(&owner, grant.as_ref().map(|it| it.ports.clone()).unwrap_or_default());
            let Some(state) = self.door.entrances.get_mut(name) else { continue };
            if state.grant != grant || state.problems != problems {
                (state.grant, state.problems) = (grant, problems);
                self.dirt.extend(state.units.iter().cloned().map(WorkItem::Unit));
                self.dirt.insert(WorkItem::Unit(Unit::Status(owner)));
            }
        }
    }

    pub(super) fn entrance_ports(&self, name: &Name) -> &[(std::net::IpAddr, seaway_model::ListenerId)] {
        let grant = self.door.entrances.get(name).and_then(|it| it.grant.as_ref());
        grant.map_or(&[], |it| &it.ports)
    }

    fn entrance_with(&self, unit: &Unit) -> Option<&Name> {
        let mut all = self.door.entrances.iter();
        all.find(|(_, state)| state.units.contains(unit)).map(|(name, _)| name)
    }

    pub(super) fn entrance_at(&self, unit: &Unit) -> Option<Arc<LoadBalancer>> {
        self.entrance_load_balancer(self.entrance_with(unit)?)
    }

    pub(super) fn entrance_load_balancer(&self, name: &Name) -> Option<Arc<LoadBalancer>> {
        let (given, door) = (self.given(), &self.config.front_door);
        let settings = door.entrances.get(name)?;
        let (listeners, certificates) = self.door.guests.listeners_at(name, settings, given);
        Some(Arc::new(LoadBalancer {
            binds: self.door.entrances.get(name)?.binds(),
            listeners,
            pools: self.door.guests.pools_at(Some(name), door),
            certificates,
            ..LoadBalancer::default()
        }))
    }

    /// A pool of the entrance whose Unit that is; `None`: it is none of theirs.
    pub(super) fn entrance_pool(
        &self,
        unit: &Unit,
        id: &seaway_model::PoolId,
    ) -> Option<Arc<seaway_model::Pool>> {
        let name = self.entrance_with(unit)?;
        let is_there = self.door.guests.leads_to_pool(Some(name), id, &self.config.front_door);
        self.door.guests.pools().get(id).filter(|_| is_there).cloned()
    }

    pub(super) fn entrance_serving(&self, name: &Name) -> Vec<ServingSocket> {
        let Some(state) = self.door.entrances.get(name) else { return Vec::new() };
        if self.roles.host.is_none() {
            // Who has no data plane has the word of hosts.
            if state.grant.is_none() || self.index.hosts().all(|it| it.drain) {
                return Vec::new();
            }
            let ports = state.grant.iter().flat_map(|it| &it.ports);
            return ports.map(|(ip, id)| ServingSocket { ip: *ip, protocol: id.l4, port: id.port }).collect();
        }
        let outcomes = state.units.iter().filter_map(|unit| self.outcomes.get(unit));
        let serving: BTreeSet<ServingSocket> = outcomes.flat_map(|it| it.serving.iter().cloned()).collect();
        serving.into_iter().collect()
    }

    pub(super) fn entrance_addresses(&self, name: &Name) -> Vec<std::net::IpAddr> {
        let binds = self.door.entrances.get(name).map(EntranceState::binds).unwrap_or_default();
        binds.iter().filter_map(Bind::ip).collect()
    }

    /// What an entrance itself is told, while it is open.
    pub(super) fn entrance_status(&self, name: &Name) -> Option<Status> {
        let state = self.door.entrances.get(name).filter(|it| !it.units.is_empty())?;
        let (units, own) = (state.units.iter(), state.problems.iter());
        let (addresses, serving) = (self.entrance_addresses(name), self.entrance_serving(name));
        let mut status = self.status_at(Some(name), units, own, addresses, serving);
        if self.door.units.is_empty() {
            // Else the main one says so.
            let problems: BTreeSet<Problem> =
                status.problems.into_iter().chain(self.order_problems()).collect();
            status.problems = problems.into_iter().collect();
        }
        Some(status)
    }

    pub(super) fn entrance_problems(&self) -> impl Iterator<Item = &Problem> {
        self.door.entrances.values().flat_map(|it| &it.problems)
    }

    /// For people: where the further ones are.
    pub(super) fn entrances_at(&self) -> Vec<(Name, Vec<SocketAddr>)> {
        let open = self.door.entrances.iter().filter(|(_, state)| !state.units.is_empty());
        let at = |name: &Name| {
            let settings = self.config.front_door.entrances.get(name);
            let ids = settings.map(|it| self.door.guests.ids_at(name, it, self.given())).unwrap_or_default();
            let ips = self.entrance_addresses(name);
            ids.iter().flat_map(|id| ips.iter().map(|ip| SocketAddr::new(*ip, id.port))).collect()
        };
        open.map(|(name, _)| (name.clone(), at(name))).collect()
    }
}
