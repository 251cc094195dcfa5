//! Names of Services in DNS: who has each, and with which addresses it is published.
//!
//! ```text
//!     annotations of Services ─► claims: who has it keeps it, ────┐
//!                                else it is the oldest one's      │
//!     its status: what answers now ───────────────────────────────┼─► Unit::DnsName ─► driver
//!     zones of the configuration ─────────────────────────────────┘
//! ```
//! What is taken out of DNS is what a Service gave up, or lost with its life: not what a setting or a late watch hides.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Config, Desired, Name, Owner, Problem, Reason, Time, Unit, WorkItem,
    dns::{DnsName, DnsZone, MAX_ADDRESSES},
    fact::{Service, ServiceKind},
    outcome::UnitState,
    unit::Place,
};

use super::{World, owners::OwnerState};
use crate::{
    annotations::{DNS_NAMES, DNS_TTL, has_hostname, hostnames},
    index::ServiceKey,
};

#[derive(Debug, Default)]
pub(super) struct DnsNames {
    /// By age.
    claims: BTreeMap<Name, BTreeSet<(Option<Time>, Owner)>>,
    /// Who has each, here or by its marker: an older Service that begins to ask for it does not get it.
    held: BTreeMap<Name, Owner>,
    of: HashMap<Owner, Vec<Name>>,
    /// As drivers were told to make them.
    told: BTreeMap<Name, DnsName>,
    /// To be looked at, whatever their Services are.
    stale: BTreeSet<Name>,
    /// Some Service was seen to give these up, and none asks for them.
    ended: BTreeSet<Name>,
    /// Attempts that failed, by zone.
    failures: BTreeMap<Name, u64>,
}

/// How many names of a zone are in which state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsZoneCounts {
    pub zone: Name,
    pub published: u64,
    /// A Problem says why.
    pub failed: u64,
    /// Nothing was heard of them yet, or a server does not answer.
    pub waiting: u64,
    /// Attempts that failed, since the start.
    pub failures: u64,
}

/// A name that a Service asks for, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsNameView {
    pub name: Name,
    /// None: it is not published, and a Problem says why, if Seaway is to do that.
    pub zone: Option<Arc<DnsZone>>,
    pub ttl: u32,
}

/// Why a name is not published.
enum Unpublished {
    NoZones,
    OtherZone,
    OtherNamespace(Name),
    Taken(Owner),
}

/// Whether a Service names it, whoever serves that. Of what is not understood, one that is not this name takes nothing hostage.
pub(crate) fn names(service: &Service, name: &Name) -> bool {
    service.kind == ServiceKind::LoadBalancer
        && !service.leaving
        && has_hostname(&service.meta.annotations, name)
}

/// Whether Services of a namespace may have a name, as far as its zone says.
pub(crate) fn may_have(config: &Config, name: &str, namespace: &Name) -> bool {
    let zone = config.dns.as_ref().and_then(|it| it.zone_of(name));
    zone.is_none_or(|it| it.namespaces.is_empty() || it.namespaces.contains(namespace))
}

impl World {
    /// An owner was planned, or is no more.
    pub(super) fn claim_names(&mut self, owner: &Owner) {
        let demand = self.owners.get(owner).and_then(|it| it.demand.as_ref());
        let demand = demand.filter(|it| {
            let is_object = matches!(owner, Owner::Object { .. });
            is_object && !it.service.leaving && self.awaits_adoption(owner).is_none()
        });
        let created = demand.and_then(|it| it.service.meta.created);
        let names = match demand.map(|it| hostnames(&it.service.meta.annotations)) {
            Some(Some(names)) => names,
            // What it asked for before it was misspelt stays.
            Some(None) => return,
            None => Vec::new(),
        };
        let before = self.dns_names.of.get(owner).cloned().unwrap_or_default();
        for name in before.iter().filter(|it| !names.contains(it)) {
            if let Some(all) = self.dns_names.claims.get_mut(name) {
                all.retain(|(_, it)| it != owner);
                if all.is_empty() {
                    self.dns_names.claims.remove(name);
                }
            }
            self.look_at_name(name);
        }
        for name in names.iter().filter(|it| !before.contains(it)) {
            if may_have(&self.config, name, &owner.object().namespace) {
                self.dns_names.ended.remove(name);
            }
            self.dns_names.claims.entry(name.clone()).or_default().insert((created, owner.clone()));
            self.look_at_name(name);
        }
        match names.is_empty() {
            true => self.dns_names.of.remove(owner),
            false => self.dns_names.of.insert(owner.clone(), names),
        };
    }

    /// With all that ask for it.
    fn look_at_name(&mut self, name: &Name) {
        self.dns_names.stale.insert(name.clone());
        let owners = self.dns_names.claims.get(name).into_iter().flatten();
        self.dirt.extend(owners.map(|(_, owner)| WorkItem::Unit(Unit::Status(owner.clone()))));
    }

    /// Who led meanwhile may have changed them.
    pub(super) fn look_at_names_anew(&mut self) {
        self.look_at_all_names();
        self.dns_names.told.clear();
        self.dns_names.held.clear();
    }

    /// The configuration, or whether this host drains, is another.
    pub(super) fn look_at_all_names(&mut self) {
        let known = self.dns_names.claims.keys().chain(self.dns_names.told.keys());
        self.dns_names.stale.extend(known.cloned().collect::<Vec<_>>());
    }

    /// A machine is gone: its addresses do not stay.
    pub(super) fn look_at_kept_names(&mut self) {
        let kept = self.dns_names.told.iter().filter(|(_, it)| it.addresses.is_empty());
        self.dns_names.stale.extend(kept.map(|(name, _)| name.clone()).collect::<Vec<_>>());
    }

    /// A Service is about to be another, or no more: what it gave up was asked for.
    pub(super) fn note_names(&mut self, key: &ServiceKey, now: Option<&Service>) {
        let Some(before) = self.index.service(key).filter(|_| self.roles.allocate) else { return };
        let asks = |it: &&Service| it.kind == ServiceKind::LoadBalancer && !it.leaving;
        if now.filter(asks).is_some_and(|it| hostnames(&it.meta.annotations).is_none()) {
            // A slip of the pen gives nothing up.
            return;
        }
        let owners = self.of_service.get(key).into_iter().flatten();
        let claimed = owners.filter_map(|it| self.dns_names.of.get(it)).flatten().cloned();
        let asked = hostnames(&before.meta.annotations).unwrap_or_default().into_iter().chain(claimed);
        let is_in_zone = |name: &Name| self.config.dns.as_ref().is_some_and(|it| it.zone_of(name).is_some());
        let given_up = asked.filter(|name| is_in_zone(name) && now.is_none_or(|it| !names(it, name)));
        self.dns_names.ended.extend(given_up.collect::<Vec<_>>());
    }

    /// It is out of DNS.
    pub(super) fn forget_name(&mut self, unit: &Unit) {
        if let Unit::DnsName(name) = unit
            && !self.dns_names.claims.contains_key(name)
        {
            self.dns_names.ended.remove(name);
            self.dns_names.held.remove(name);
        }
    }

    pub(super) fn note_failed_name(&mut self, unit: &Unit) {
        if let Unit::DnsName(name) = unit
            && let Some(zone) = self.dns_names.told.get(name).map(|it| it.zone.name.clone())
        {
            let count = self.dns_names.failures.entry(zone).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Of each zone of the configuration, where this process publishes.
    pub fn dns_zones(&self) -> Vec<DnsZoneCounts> {
        let zones = self.config.dns.iter().filter(|_| self.roles.allocate).flat_map(|it| &it.zones);
        zones.map(|zone| self.count_names(&zone.name)).collect()
    }

    fn count_names(&self, zone: &Name) -> DnsZoneCounts {
        let failures = self.dns_names.failures.get(zone).copied().unwrap_or_default();
        let mut counts = DnsZoneCounts { zone: zone.clone(), failures, ..DnsZoneCounts::default() };
        for (name, _) in self.dns_names.told.iter().filter(|(_, it)| it.zone.name == *zone) {
            let outcome = self.outcomes.get(&Unit::DnsName(name.clone()));
            let count = match outcome.map(|it| (&it.state, it.problems.is_empty())) {
                Some((UnitState::Done | UnitState::Pending(_) | UnitState::PendingChange, true)) => {
                    &mut counts.published
                }
                Some((_, false)) => &mut counts.failed,
                _ => &mut counts.waiting,
            };
            *count = count.saturating_add(1);
        }
        counts
    }

    /// Its marker says that it is published for this one (`default/shop`).
    pub(super) fn note_holder(&mut self, name: &Name, service: &str) {
        let holder = self.eligible(name).find(|it| service_of(it).as_str() == service).cloned();
        if let Some(holder) = holder.filter(|it| self.dns_names.held.get(name) != Some(it)) {
            self.dns_names.held.insert(name.clone(), holder);
            self.look_at_name(name);
        }
    }

    /// Who asks for it and may have it, by age.
    fn eligible(&self, name: &str) -> impl Iterator<Item = &Owner> {
        let all = self.dns_names.claims.get(name).into_iter().flatten().map(|(_, owner)| owner);
        all.filter(|owner| self.zone_of(name, owner).is_ok())
    }

    fn owner_of_name(&self, name: &str) -> Option<&Owner> {
        let held = self.dns_names.held.get(name);
        self.eligible(name).find(|it| Some(*it) == held).or_else(|| self.eligible(name).next())
    }

    pub(super) fn saw_end_of_name(&self, name: &Name) -> bool {
        self.dns_names.ended.contains(name)
    }

    /// Whatever changes what a status says may change what is in DNS.
    pub(super) fn refresh_dns_names(&mut self) {
        if !self.settled || !self.roles.allocate {
            return;
        }
        let mut names = std::mem::take(&mut self.dns_names.stale);
        if !self.dns_names.of.is_empty() {
            let owners = self.dirt.iter().filter_map(|it| match it {
                WorkItem::Unit(Unit::Status(owner)) => self.dns_names.of.get(owner),
                _ => None,
            });
            names.extend(owners.flatten().cloned());
        }
        for name in names {
            let now = self.dns_name(&name);
            if self.dns_names.told.get(&name) == now.as_ref() {
                if now.is_none() && !self.dns_names.claims.contains_key(&name) {
                    // It was never in DNS.
                    self.dns_names.ended.remove(&name);
                }
                continue;
            }
            if let Some(now) = &now {
                self.dns_names.held.insert(name.clone(), now.owner.clone());
            }
            match now {
                Some(now) => self.dns_names.told.insert(name.clone(), now),
                None => self.dns_names.told.remove(&name),
            };
            self.dirt.insert(WorkItem::Unit(Unit::DnsName(name)));
        }
    }

    pub(super) fn desired_dns_name(&self, name: &Name) -> Desired {
        match self.dns_name(name) {
            _ if !self.roles.allocate => Desired::Released,
            Some(it) => Desired::DnsName(Arc::new(it)),
            None => {
                // A setting takes nothing away; one that may not have it keeps nothing of others.
                let held = self.dns_names.held.get(name);
                let may = |namespace: &Name| may_have(&self.config, name, namespace);
                let mut claims = self.dns_names.claims.get(name).into_iter().flatten().map(|(_, it)| it);
                let is_claimed =
                    claims.any(|it| held.is_none_or(|held| held == it) || may(&it.object().namespace));
                let is_named = || {
                    let mut all = self.index.services().map(|(_, it)| it);
                    all.any(|it| may(&it.meta.namespace) && names(it, name))
                };
                if is_claimed || is_named() { Desired::Released } else { Desired::Absent }
            }
        }
    }

    fn dns_name(&self, name: &Name) -> Option<DnsName> {
        let dns = self.config.dns.as_ref()?;
        let owner = self.owner_of_name(name)?;
        let zone = self.zone_of(name, owner).ok()?;
        let withdraws = self.roles.host.is_some() && self.drains;
        let addresses = if withdraws { BTreeSet::new() } else { self.published_addresses(owner) };
        Some(DnsName {
            name: name.clone(),
            zone: zone.clone(),
            installation: dns.owner.clone(),
            host: self.roles.host.clone().filter(|_| !self.config.pools.cluster),
            owner: owner.clone(),
            ttl: self.ttl_of(owner, zone),
            keeps: if addresses.is_empty() { self.kept_addresses(owner) } else { BTreeSet::new() },
            withdraws,
            rivals: self.eligible(name).filter(|it| *it != owner).map(service_of).collect(),
            addresses,
        })
    }

    /// Those that answer now, and that somebody beyond this machine reaches.
    pub(super) fn published_addresses(&self, owner: &Owner) -> BTreeSet<IpAddr> {
        let serving = self.own_status(owner).map(|it| it.serving).unwrap_or_default();
        within_an_answer(serving.iter().map(|it| it.ip).filter(is_publishable).collect())
    }

    /// Those that it still has, answering or not, and those of hosts and Nodes that are there. What another has by now is none.
    fn kept_addresses(&self, owner: &Owner) -> BTreeSet<IpAddr> {
        let state = self.owners.get(owner);
        let is_in_cloud = state.and_then(|it| it.demand.as_ref()).is_some_and(|it| it.cloud.is_some());
        let cloud = self.own_status(owner).filter(|_| is_in_cloud).map(|it| it.addresses);
        // Of hosts, the ledger remembers those that are gone.
        let grant = state.and_then(|it| it.grant.as_ref()).filter(|it| !it.from_hosts);
        let own = cloud.iter().flatten().chain(grant.into_iter().flat_map(|it| &it.addresses));
        let hosts = self.index.hosts().flat_map(|it| it.addresses.iter());
        let nodes = self.index.nodes().flat_map(|it| it.addresses.iter());
        let all = own.chain(hosts).chain(nodes).copied();
        let is_of_another = |ip: IpAddr| {
            self.ledger.address(ip).is_some_and(|it| !it.owners.is_empty() && !it.owners.contains(owner))
        };
        all.filter(|ip| !is_of_another(*ip)).collect()
    }

    fn ttl_of(&self, owner: &Owner, zone: &DnsZone) -> u32 {
        let demand = self.owners.get(owner).and_then(|it| it.demand.as_ref());
        demand.and_then(|it| it.wishes.hostname_ttl).unwrap_or(zone.ttl)
    }

    fn zone_of(&self, name: &str, owner: &Owner) -> Result<&Arc<DnsZone>, Unpublished> {
        let dns = self.config.dns.as_ref().ok_or(Unpublished::NoZones)?;
        let zone = dns.zone_of(name).ok_or(Unpublished::OtherZone)?;
        let namespace = owner.object().namespace;
        match zone.namespaces.is_empty() || zone.namespaces.contains(&namespace) {
            true => Ok(zone),
            false => Err(Unpublished::OtherNamespace(zone.name.clone())),
        }
    }

    fn zone_if_first(&self, name: &str, owner: &Owner) -> Result<&Arc<DnsZone>, Unpublished> {
        let zone = self.zone_of(name, owner)?;
        match self.owner_of_name(name).filter(|first| *first != owner) {
            Some(first) => Err(Unpublished::Taken(first.clone())),
            None => Ok(zone),
        }
    }

    /// What of an owner's names is not in DNS, and why, as far as planning knows.
    pub(super) fn name_problems(&self, owner: &Owner, state: &OwnerState) -> Vec<Problem> {
        // Hosts of a cluster, and who stands by, publish nothing.
        let Some(demand) = state.demand.as_ref().filter(|_| self.roles.allocate) else { return Vec::new() };
        let Some(names) = self.dns_names.of.get(owner) else {
            let field = demand.wishes.written.get(DNS_TTL);
            let message =
                "the Service has no names in DNS (seaway.dev/dns-names): this annotation does nothing";
            let problem = |field: &Name| {
                let problem = Problem::new(owner.object(), Reason::NameNotPublished, message);
                problem.at(field.clone()).fix("Remove the annotation, or write seaway.dev/dns-names.")
            };
            return field.map(problem).into_iter().collect();
        };
        let asks_us = demand.wishes.written.contains_key(DNS_NAMES);
        let told = |name: &Name| {
            let why = self.zone_if_first(name, owner).err()?;
            let (why, fix) = match why {
                // It may be external-dns's to publish it.
                Unpublished::NoZones | Unpublished::OtherZone if !asks_us => return None,
                Unpublished::NoZones => (
                    "no zone is configured".to_owned(),
                    "Write dns.zones into seaway.yaml (docs/dns-names.md), or remove the annotation.",
                ),
                Unpublished::OtherZone => (
                    "no zone of dns.zones contains this name".to_owned(),
                    "Add its zone to dns.zones in seaway.yaml, or correct the name.",
                ),
                Unpublished::OtherNamespace(zone) => (
                    format!("Services of this namespace may have no names in the zone {zone}"),
                    "Add the namespace to the zone (dns.zones[].namespaces), or choose another name.",
                ),
                Unpublished::Taken(first) => {
                    let is_older = self.eligible(name).next() == Some(&first);
                    let why = if is_older { "is older" } else { "had the name first" };
                    let first = first.named_for(owner, self.config.pools.cluster);
                    (
                        format!("{first} also requests this DNS name, and {why}"),
                        "Choose another name for one of the two.",
                    )
                }
            };
            let message = format!("{name} is not published in DNS for this Service: {why}");
            let problem = Problem::new(owner.object(), Reason::NameNotPublished, message);
            Some(problem.at(demand.wishes.field_of(DNS_NAMES)).fix(fix))
        };
        names.iter().filter_map(told).collect()
    }

    /// What drivers say of an owner's names.
    pub(super) fn units_of_names<'w>(&'w self, owner: &'w Owner) -> impl Iterator<Item = Unit> + 'w {
        self.dns_names.of.get(owner).into_iter().flatten().cloned().map(Unit::DnsName)
    }

    /// All that an owner asks for, with where they are published.
    pub fn dns_names(&self, owner: &Owner) -> Vec<DnsNameView> {
        let names = self.dns_names.of.get(owner).into_iter().flatten();
        let view = |name: &Name| {
            let zone = self.zone_if_first(name, owner).ok().cloned();
            let ttl = zone.as_ref().map_or(0, |zone| self.ttl_of(owner, zone));
            DnsNameView { name: name.clone(), zone, ttl }
        };
        names.map(view).collect()
    }

    /// Whether clients may still be sent here by DNS: sockets of a host that drains stay open so long. A driver that has taken
    /// all of this host out of DNS says that it is done; one that fails keeps no drain waiting.
    pub fn still_published(&self) -> bool {
        self.drains
            && self.dns_names.told.keys().any(|name| {
                let outcome = self.outcomes.get(&Unit::DnsName(name.clone()));
                outcome.is_some_and(|it| matches!(it.state, UnitState::Pending(_) | UnitState::PendingChange))
            })
    }

    /// Whether this host was told to drain, and none is sent here by DNS any more.
    pub fn has_left_dns(&self) -> bool {
        self.drains && !self.still_published()
    }

    /// The last name of this host is out of DNS.
    pub(super) fn note_withdrawn_name(&mut self, unit: &Unit) {
        if matches!(unit, Unit::DnsName(_)) && self.drains && !self.still_published() {
            let here = |unit: &&Unit| matches!(unit, Unit::LoadBalancer(Place::Host { .. }, _));
            self.dirt.extend(self.unit_owners.keys().filter(here).cloned().map(WorkItem::Unit));
        }
    }
}

/// As a marker says it.
fn service_of(owner: &Owner) -> Name {
    let object = owner.object();
    format!("{}/{}", object.namespace, object.name).into()
}

/// Of too many, as many of each family as there are.
fn within_an_answer(all: BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = all.into_iter().partition(IpAddr::is_ipv4);
    let of_v6 = v6.len().min(MAX_ADDRESSES / 2);
    let of_v4 = v4.len().min(MAX_ADDRESSES.saturating_sub(of_v6));
    let of_v6 = MAX_ADDRESSES.saturating_sub(of_v4);
    v4.into_iter().take(of_v4).chain(v6.into_iter().take(of_v6)).collect()
}

fn is_publishable(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified() && !ip.is_multicast()
        }
        IpAddr::V6(ip) => {
            !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified() && !ip.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_addresses_each_family_has_some() {
        let v4 = |count: u8| (0..count).map(|it| IpAddr::from([192, 0, 2, it]));
        let v6 = |count: u16| (0..count).map(|it| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, it]));
        for (given, expected) in
            [((20, 20), (8, 8)), ((20, 2), (14, 2)), ((3, 20), (3, 13)), ((4, 5), (4, 5))]
        {
            let kept = within_an_answer(v4(given.0).chain(v6(given.1)).collect());
            let of_v4 = kept.iter().filter(|it| it.is_ipv4()).count();
            assert_eq!((of_v4, kept.len() - of_v4), expected, "{given:?}");
        }
    }

    #[test]
    fn addresses_that_only_a_host_itself_reaches_are_not_published() {
        for ip in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"] {
            assert!(is_publishable(&ip.parse().expect("an address")), "{ip}");
        }
        for ip in ["127.0.0.1", "169.254.1.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1", "::", "ff02::1"] {
            assert!(!is_publishable(&ip.parse().expect("an address")), "{ip}");
        }
    }
}
