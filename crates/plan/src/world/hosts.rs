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
    Address, AddressState, Fact, ListenerId, LoadBalancer, Name, Owner, Problem, Reason, Unit, WorkItem,
    fact::{FamilyPolicy, HostReport, HostStatus, UnservedAddress},
    layer2::{Layer2Progress, Layer2State},
    load_balancer::{Bind, Family},
    outcome::ServingSocket,
    unit::Place,
};

use super::{World, owners::OwnerState, report_limit::limited};
use crate::{
    index::{EXCLUDED, ServiceKey, is_control_plane, is_excluded},
    ledger::{HostNode, LedgerChange},
    members::members,
    service::beside_nodes,
};

/// What a host of a cluster says before it has applied an Address: no object has so low a version.
pub(super) const NOTHING_APPLIED: u64 = 1;

/// Of each Service.
pub(super) type PublishedPorts = BTreeMap<ServiceKey, Vec<ServingSocket>>;

impl World {
    /// What the cluster says of a host's Node: which of its addresses are published follows from it.
    pub(super) fn note_host_node(&mut self, name: &Name) {
        let node = self.index.node(name).map(|node| HostNode {
            internal: node.addresses.iter().filter(|ip| !node.external.contains(ip)).copied().collect(),
            external: node.external.clone(),
            control_plane: is_control_plane(node),
            excluded: is_excluded(node),
        });
        let touched = self.ledger.put_node(name, node);
        self.regrant(touched);
    }

    /// Hosts' own addresses that Seaway published and that nothing is stored of: whoever has them keeps them, with their
    /// ports.
    pub(super) fn remember_hosts(&mut self) {
        if !self.config.pools.cluster {
            return;
        }
        let mut ports = Vec::new();
        for (key, said) in &self.published_by_us {
            let Some(ips) = self.published.get(key).filter(|_| self.had_hosts_addresses(key)) else {
                continue;
            };
            for owner in self.of_service.get(key).into_iter().flatten() {
                let claim = self.owners.get(owner).and_then(|it| it.claim.as_ref());
                let Some(claim) = claim.filter(|it| !it.hosts_only) else { continue };
                self.ledger.remember(owner.clone(), ips.clone());
                let said = said.iter().map(|at| (at.ip, ListenerId { l4: at.protocol, port: at.port }));
                let mut said: Vec<_> = said.collect();
                if said.is_empty() {
                    // Versions before wrote no ports: it may have had all of them.
                    let all = |ip: &IpAddr| claim.ports.iter().map(|id| (*ip, *id)).collect::<Vec<_>>();
                    said = ips.iter().flat_map(all).collect();
                }
                ports.push((owner.clone(), said));
            }
        }
        self.ledger.remember_ports(ports);
    }

    /// Where a running process says that owners are served, told before anything is planned: of those who ask for one port of
    /// the host, who has it keeps it.
    pub fn was_served(&mut self, owner: Owner, at: &ServingSocket) {
        self.ledger.answered(owner, at.ip, ListenerId { l4: at.protocol, port: at.port });
    }

    /// Whether Seaway published hosts' own addresses for it.
    pub(super) fn had_hosts_addresses(&self, key: &ServiceKey) -> bool {
        let published = || self.published.get(key).into_iter().flatten();
        let said = self.published_by_us.get(key);
        said.is_some_and(|ports| !ports.is_empty() || published().any(|ip| self.ledger.is_hosts_own(*ip)))
    }

    /// Whose status may be another by it.
    pub(super) fn host_changed(&mut self, before: Option<&HostReport>, now: &HostReport) {
        let whole = |it: &HostReport| (it.addresses.clone(), it.drain);
        let Some(before) = before.filter(|it| whole(it) == whole(now)) else {
            return self.refresh_statuses();
        };
        let mut ips: BTreeSet<IpAddr> = before.holds.symmetric_difference(&now.holds).copied().collect();
        ips.extend(before.not_served.symmetric_difference(&now.not_served));
        let said = before.layer2.keys().chain(now.layer2.keys());
        ips.extend(said.filter(|ip| before.layer2.get(ip) != now.layer2.get(ip)));
        ips.extend(self.bgp_news(before, now));
        ips.extend(self.written_between(before.applied.min(now.applied), before.applied.max(now.applied)));
        let addresses = ips.iter().filter_map(|ip| self.addresses.get(ip));
        let owners: BTreeSet<&Owner> = addresses.flat_map(|it| &it.owners).collect();
        self.dirt.extend(owners.into_iter().map(|owner| WorkItem::Unit(Unit::Status(owner.clone()))));
    }

    /// What a host says of itself.
    pub(super) fn put_report(&mut self, report: &Arc<HostReport>) {
        let before = self.index.host(&report.host).cloned();
        // Looked up before the last addresses were applied, and told after.
        let is_ours = self.roles.host.as_ref() == Some(&report.host);
        let report = &self.by_versions_of_now(report);
        let report = &self.without_old_news(report, is_ours);
        if is_ours && before.as_ref().is_some_and(|it| report.applied < it.applied) {
            return;
        }
        self.doubt(report);
        self.end_silence(&report.host);
        let touched = self.put_host(report);
        if !self.index.put(&Fact::Host(report.clone())).is_empty() {
            self.regrant(touched);
            self.forbid_host_addresses_as_members(report);
            self.host_changed(before.as_deref(), report);
            self.note_layer2(before.as_deref(), report);
        }
        // Somebody took an address away behind our back. (One that could never be put there is not lost.)
        let mut lost = before.iter().flat_map(|it| it.holds.difference(&report.holds)).peekable();
        if lost.peek().is_some() {
            let wanted = self.present().addresses;
            if lost.any(|ip| wanted.contains_key(ip)) {
                self.presence_changed();
            }
        }
        if let Some(before) = before {
            self.let_go(&before, report);
        }
    }

    /// Which of its addresses may be published.
    pub(super) fn put_host(&mut self, report: &HostReport) -> LedgerChange {
        let is_ours = self.roles.host.as_ref() == Some(&report.host);
        match &self.declared {
            Some(_) if is_ours => {
                let declared = self.declared.clone();
                self.ledger.put_host(&HostReport { declared, ..report.clone() })
            }
            _ => self.ledger.put_host(report),
        }
    }

    /// No member may be at its addresses. What this host says of itself it knows; nobody else has to believe it.
    pub(super) fn forbid_host_addresses_as_members(&mut self, report: &HostReport) {
        let is_ours = self.roles.host.as_ref() == Some(&report.host);
        let barred = if is_ours { report.addresses.clone() } else { report.own_addresses() };
        let dependents = self.index.own.set_host(&report.host, &barred);
        self.replan_dependents(dependents);
    }

    /// People wrote down which addresses this host has, or took that back.
    pub(super) fn declare(&mut self, addresses: Option<BTreeSet<IpAddr>>) {
        self.declared = addresses;
        let own = self.roles.host.as_ref().and_then(|host| self.index.host(host)).cloned();
        if let Some(own) = own {
            let touched = self.put_host(&own);
            self.regrant(touched);
        }
    }

    /// Sockets close or open, and nothing else: who is connected needs addresses and pools as they are.
    pub(super) fn drain(&mut self, drains: bool) {
        if std::mem::replace(&mut self.drains, drains) == drains {
            return;
        }
        let here = |unit: &&Unit| matches!(unit, Unit::LoadBalancer(Place::Host { .. }, _));
        self.dirt.extend(self.unit_owners.keys().filter(here).cloned().map(WorkItem::Unit));
        self.look_at_all_names();
    }

    /// As far as this host serves it at present.
    pub(super) fn here(&self, load_balancer: Arc<LoadBalancer>) -> Arc<LoadBalancer> {
        // Clients that still come are served: what is announced is withdrawn first.
        if !self.drains || self.still_announces() || self.still_published() {
            return load_balancer;
        }
        Arc::new(LoadBalancer { listeners: BTreeMap::new(), ..LoadBalancer::clone(&load_balancer) })
    }

    /// Some host has it present.
    pub(super) fn is_served(&self, ip: IpAddr) -> bool {
        let since = self.addresses.get(&ip).map(|it| self.versions.since_any(it));
        self.index.hosts().any(|host| self.has(host, ip, since))
    }

    pub(super) fn tells_all(&self, host: &HostReport) -> bool {
        host.applied == 0 || self.roles.host.as_ref() == Some(&host.host)
    }

    /// `since`: by which version it has to have it.
    fn has(&self, host: &HostReport, ip: IpAddr, since: Option<u64>) -> bool {
        if self.tells_all(host) {
            return host.holds.contains(&ip);
        }
        let is_held = self.addresses.get(&ip).is_some_and(|it| it.state == AddressState::Held);
        is_held && since.is_some_and(|it| it <= host.applied) && !host.not_served.contains(&ip)
    }

    /// What hosts serve of an owner, as far as they tell: who serves nothing itself has only their word.
    pub(super) fn served_by_hosts(&self, state: &OwnerState) -> Vec<ServingSocket> {
        let load_balancer = &state.planned.load_balancer;
        let hosts: Vec<&HostReport> = self.hosts_for(state).collect();
        let reached = |bind: &Bind| hosts.iter().any(|host| self.is_at(host, bind, state));
        let ips = load_balancer.binds.iter().filter(|bind| reached(bind)).filter_map(Bind::ip);
        let at = |ip| {
            load_balancer.listeners.keys().map(move |it| ServingSocket { ip, protocol: it.l4, port: it.port })
        };
        ips.flat_map(at).collect()
    }

    /// How many of its addresses are to be served before it is ready: nobody waits for hosts that are not to serve it, or
    /// for the other family of a Service that only prefers to have both.
    pub(super) fn wanted_binds(&self, state: &OwnerState, serving: &[ServingSocket]) -> usize {
        let binds = &state.planned.load_balancer.binds;
        let Some(demand) = state.demand.as_ref().filter(|_| self.roles.host.is_none()) else {
            return binds.len();
        };
        let hosts: Vec<&HostReport> = self.hosts_for(state).collect();
        let may_serve = |bind: &Bind| match bind {
            Bind::Host(ip) => hosts.iter().any(|host| host.addresses.contains(ip)),
            Bind::Ledger(_) | Bind::Cloud(_) => true,
        };
        let is_served = |family: Family| serving.iter().any(|it| Family::of(it.ip) == family);
        let prefers = demand.service.families.policy == FamilyPolicy::Prefer && !serving.is_empty();
        let is_missed = |bind: &Bind| bind.ip().is_none_or(|ip| !prefers || is_served(Family::of(ip)));
        binds.iter().filter(|bind| may_serve(bind) && is_missed(bind)).count()
    }

    /// That nobody serves it, as every host is a Node that is not to be sent anything.
    pub(super) fn told_of_excluded_hosts(&self, state: &OwnerState) -> Option<Problem> {
        let demand = state.demand.as_ref().filter(|it| self.roles.host.is_none() && it.cloud.is_none())?;
        let is_excluded =
            |host: &HostReport| self.index.node(&host.host).is_some_and(|node| is_excluded(node));
        let mut hosts = self.index.hosts().filter(|it| !it.drain).peekable();
        let first = hosts.peek()?.host.clone();
        if state.planned.load_balancer.binds.is_empty() || !hosts.all(|host| is_excluded(host)) {
            return None;
        }
        let message = format!("no host serves the Service: every host is a Node with the label {EXCLUDED}");
        let problem = Problem::new(demand.owner.object(), Reason::HostsExcluded, message);
        Some(problem.fix(format!("To have a Node serve: kubectl label node {first} {EXCLUDED}-")))
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
        let serves = |host: &&HostReport| binds.iter().any(|bind| self.is_at(host, bind, state));
        self.hosts_for(state).filter(serves).map(|it| it.host.clone()).collect()
    }

    fn hosts_for<'w>(&'w self, state: &'w OwnerState) -> impl Iterator<Item = &'w HostReport> {
        let left_out = |host: &HostReport| self.index.node(&host.host).is_some_and(|node| is_excluded(node));
        let hosts = self.index.hosts().map(|it| &**it).filter(|it| !it.drain);
        hosts.filter(move |host| !left_out(host) && self.has_members_for(state, host))
    }

    fn is_at(&self, host: &HostReport, bind: &Bind, state: &OwnerState) -> bool {
        let owner = state.demand.as_ref().map(|it| &it.owner);
        let since = |it: &Arc<Address>| owner.map_or(it.version, |owner| self.versions.since(it, owner));
        match bind {
            Bind::Ledger(ip) => self.has(host, *ip, self.addresses.get(ip).map(since)),
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
    pub fn said(&self) -> Option<HostStatus> {
        // While all is told again, nobody knows what is an exception.
        if !self.settled {
            return None;
        }
        let own = self.index.host(self.roles.host.as_ref()?)?;
        let wanted = self.present();
        let mut said =
            HostStatus { applied: own.applied, addresses: own.addresses.clone(), ..HostStatus::default() };
        // Hosts that only stand by say nothing: whoever announces does.
        let is_news = |it: &&Layer2State| it.what != Layer2Progress::Standby;
        let mut layer2: Vec<_> = own.layer2.iter().filter(|(_, it)| is_news(it)).collect();
        // Of many, what is wrong first.
        layer2.sort_by_key(|(_, it)| it.what.is_announcing());
        let layer2 = layer2.into_iter().take(HostStatus::MAX_LAYER2);
        said.layer2 = layer2.map(|(ip, it)| (*ip, it.clone())).collect();
        said.bgp = own.bgp.clone();
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
                Some((reason, message)) => {
                    said.not_served.push(UnservedAddress { address: *ip, reason, message })
                }
                // Under way.
                None => said.applied = said.applied.min(version.saturating_sub(1)),
            }
        }
        let version = |ip| self.addresses.get(&ip).map_or(0, |it| it.version);
        let mut said = limited(said, HostStatus::MAX_LISTED, version);
        // By 0 it would say that it tells all it holds, of an Address, too, that it has heard of and not yet said so.
        said.applied = said.applied.max(NOTHING_APPLIED);
        Some(said)
    }

    /// As [`World::said`]; or as it was said `before`, where this host is only further than it was and nobody waits for that:
    /// no address that it serves was written since, and none that is being released.
    pub fn said_after(&self, before: Option<&HostStatus>) -> Option<HostStatus> {
        let said = self.said()?;
        let Some(before) = before else { return Some(said) };
        let is_further = before.applied != 0
            && before.applied < said.applied
            && HostStatus { applied: said.applied, ..before.clone() } == said;
        if !is_further {
            return Some(said);
        }
        let serves = |address: &Address| address.owners.iter().any(|owner| !self.is_away(owner));
        let is_waited_for = |ip: IpAddr| {
            self.addresses.get(&ip).is_some_and(|it| it.state == AddressState::Releasing || serves(it))
        };
        let waited_for = self.written_between(before.applied, said.applied).any(is_waited_for);
        Some(if waited_for { said } else { before.clone() })
    }

    fn serves_here(&self, owner: &Owner, ip: IpAddr) -> bool {
        // Its `spec.drain` says so already, in one word for all.
        let Some(state) = self.owners.get(owner).filter(|_| !self.drains) else { return true };
        let load_balancer = &state.planned.load_balancer;
        let bound = load_balancer.binds.contains(&Bind::Ledger(ip));
        let serving = |unit: &Unit, at: &ServingSocket| {
            self.outcomes.get(unit).is_some_and(|it| it.serving.contains(at))
        };
        let open = |at: &ServingSocket| state.units.iter().any(|unit| serving(unit, at));
        let mut sockets =
            load_balancer.listeners.keys().map(|it| ServingSocket { ip, protocol: it.l4, port: it.port });
        !bound || sockets.all(|at| open(&at))
    }

    /// What drivers of this host told one of them.
    fn why_not<'a>(&self, owners: impl Iterator<Item = &'a Owner>) -> Option<(Reason, Name)> {
        let presence = self.roles.host.clone().map(Unit::HostAddresses);
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
