//! Serving hosts: what they report of themselves, and what this one reports to others.
//!
//! Of this host `holds` lists every address. Another, in a cluster, says how far it is (`applied`) and tells exceptions
//! only: what it still holds, what it cannot serve.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    AddressState, Dirt, LoadBalancer, Name, Owner, Problem, Reason, Unit,
    fact::{HostReport, HostSays, NotServed},
    load_balancer::Bind,
    outcome::Serving,
    unit::Place,
};

use super::{World, owners::OwnerState};
use crate::{index::is_excluded, members::members, service::beside_nodes};

impl World {
    /// Whose status may be another by it.
    pub(super) fn host_changed(&mut self, before: Option<&HostReport>, now: &HostReport) {
        let whole = |it: &HostReport| (it.addresses.clone(), it.drain);
        let Some(before) = before.filter(|it| whole(it) == whole(now)) else {
            return self.refresh_statuses();
        };
        let mut ips: BTreeSet<IpAddr> = before.holds.symmetric_difference(&now.holds).copied().collect();
        ips.extend(before.not_served.symmetric_difference(&now.not_served));
        ips.extend(self.written_between(before.applied.min(now.applied), before.applied.max(now.applied)));
        let addresses = ips.iter().filter_map(|ip| self.addresses.get(ip));
        let owners: BTreeSet<&Owner> = addresses.flat_map(|it| &it.owners).collect();
        self.dirt.extend(owners.into_iter().map(|owner| Dirt::Unit(Unit::Status(owner.clone()))));
    }

    /// Sockets close or open, and nothing else: who is connected needs addresses and pools as they are.
    pub(super) fn drain(&mut self, drains: bool) {
        if std::mem::replace(&mut self.drains, drains) == drains {
            return;
        }
        let here = |unit: &&Unit| matches!(unit, Unit::LoadBalancer(Place::Host { .. }, _));
        self.dirt.extend(self.unit_owners.keys().filter(here).cloned().map(Dirt::Unit));
    }

    /// As far as this host serves it at present.
    pub(super) fn here(&self, load_balancer: Arc<LoadBalancer>) -> Arc<LoadBalancer> {
        if !self.drains {
            return load_balancer;
        }
        Arc::new(LoadBalancer { listeners: BTreeMap::new(), ..LoadBalancer::clone(&load_balancer) })
    }

    /// Some host has it present.
    pub(super) fn is_served(&self, ip: IpAddr) -> bool {
        self.index.hosts().any(|host| self.has(host, ip))
    }

    pub(super) fn tells_all(&self, host: &HostReport) -> bool {
        host.applied == 0 || self.roles.host.as_ref() == Some(&host.host)
    }

    fn has(&self, host: &HostReport, ip: IpAddr) -> bool {
        if self.tells_all(host) {
            return host.holds.contains(&ip);
        }
        let written = self.addresses.get(&ip);
        let applied = written.is_some_and(|it| it.state == AddressState::Held && it.version <= host.applied);
        applied && !host.not_served.contains(&ip)
    }

    /// What hosts serve of an owner, as far as they tell: who serves nothing itself has only their word.
    pub(super) fn served_by_hosts(&self, state: &OwnerState) -> Vec<Serving> {
        let load_balancer = &state.planned.load_balancer;
        let hosts: Vec<&HostReport> = self.hosts_for(state).collect();
        let reached = |bind: &Bind| hosts.iter().any(|host| self.is_at(host, bind));
        let ips = load_balancer.binds.iter().filter(|bind| reached(bind)).filter_map(Bind::ip);
        let at =
            |ip| load_balancer.listeners.keys().map(move |it| Serving { ip, protocol: it.l4, port: it.port });
        ips.flat_map(at).collect()
    }

    /// What hosts beside the Nodes cannot do for it, as far as they do not plan it themselves.
    pub(super) fn told_of_banks(&self, state: &OwnerState) -> Vec<Problem> {
        let Some(demand) = state.demand.as_ref().filter(|_| self.roles.host.is_none()) else {
            return Vec::new();
        };
        let beside = self.index.hosts().map(|it| &it.host).filter(|it| self.index.is_outside(Some(it)));
        beside_nodes(demand, &beside.collect::<Vec<_>>())
    }

    /// Those that take somebody new for an owner, as far as they tell.
    pub fn who_serves(&self, owner: &Owner) -> Vec<Name> {
        let Some(state) = self.owners.get(owner) else { return Vec::new() };
        let binds = &state.planned.load_balancer.binds;
        let serves = |host: &&HostReport| binds.iter().any(|bind| self.is_at(host, bind));
        self.hosts_for(state).filter(serves).map(|it| it.host.clone()).collect()
    }

    fn hosts_for<'w>(&'w self, state: &'w OwnerState) -> impl Iterator<Item = &'w HostReport> {
        let left_out = |host: &HostReport| self.index.node(&host.host).is_some_and(|node| is_excluded(node));
        let hosts = self.index.hosts().map(|it| &**it).filter(|it| !it.drain);
        hosts.filter(move |host| !left_out(host) && self.has_members_for(state, host))
    }

    fn is_at(&self, host: &HostReport, bind: &Bind) -> bool {
        match bind {
            Bind::Ledger(ip) => self.has(host, *ip),
            Bind::Host(ip) => host.addresses.contains(ip) && !host.not_served.contains(ip),
            Bind::Cloud(_) => false,
        }
    }

    /// With `externalTrafficPolicy: Local`, a host without a member does not serve.
    fn has_members_for(&self, state: &OwnerState, host: &HostReport) -> bool {
        let Some(demand) = state.demand.as_ref().filter(|it| it.service.local_only) else { return true };
        let from = demand.wishes.members;
        let here =
            |it| !members(&self.index, &demand.service, it, Some(&host.host), from, &[]).list.is_empty();
        demand.ports.iter().any(|it| here(&it.port))
    }

    /// Nothing, if this is no host.
    pub fn said(&self) -> Option<HostSays> {
        // While all is told again, nobody knows what is an exception.
        if !self.settled {
            return None;
        }
        let own = self.index.host(self.roles.host.as_ref()?)?;
        let wanted = self.present();
        let mut said =
            HostSays { applied: own.applied, addresses: own.addresses.clone(), ..HostSays::default() };
        said.held = own.holds.iter().copied().filter(|ip| !wanted.addresses.contains_key(ip)).collect();
        for (ip, owners) in &wanted.addresses {
            let version = self.addresses.get(ip).map_or(0, |it| it.version);
            if version > own.applied {
                continue;
            }
            let missing: Vec<&Owner> = owners.iter().filter(|owner| !self.serves_here(owner, *ip)).collect();
            if own.holds.contains(ip) && missing.is_empty() {
                continue;
            }
            match self.why_not(missing.into_iter().chain(owners)) {
                Some((reason, message)) => said.not_served.push(NotServed { address: *ip, reason, message }),
                // Under way.
                None => said.applied = said.applied.min(version.saturating_sub(1)),
            }
        }
        Some(said)
    }

    fn serves_here(&self, owner: &Owner, ip: IpAddr) -> bool {
        // Its `spec.drain` says so already, in one word for all.
        let Some(state) = self.owners.get(owner).filter(|_| !self.drains) else { return true };
        let load_balancer = &state.planned.load_balancer;
        let bound = load_balancer.binds.contains(&Bind::Ledger(ip));
        let serving =
            |unit: &Unit, at: &Serving| self.outcomes.get(unit).is_some_and(|it| it.serving.contains(at));
        let open = |at: &Serving| state.units.iter().any(|unit| serving(unit, at));
        let mut sockets =
            load_balancer.listeners.keys().map(|it| Serving { ip, protocol: it.l4, port: it.port });
        !bound || sockets.all(|at| open(&at))
    }

    /// What drivers of this host told one of them.
    fn why_not<'a>(&self, owners: impl Iterator<Item = &'a Owner>) -> Option<(Reason, Name)> {
        let presence = self.roles.host.clone().map(Unit::Presence);
        for owner in owners {
            let units = self.owners.get(owner).into_iter().flat_map(|it| &it.units).chain(&presence);
            let told = units.filter_map(|unit| self.outcomes.get(unit)).flat_map(|it| &it.problems);
            if let Some((_, problem)) = told.into_iter().find(|(whose, _)| whose == owner) {
                return Some((problem.reason, problem.message.as_str().into()));
            }
        }
        None
    }
}
