//! A controller that leads and writes every Address that it wants, and hosts that hear of these late or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Address, AddressState, Change, Config, Desired, Fact, Outcome, Owner, Status, Time, Unit, WorkItem,
    config::AddressPoolRules,
    fact::{FactRef, HostReport, Service},
    outcome::UnitState,
};
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{ip, owner, pool, put, synced};

use super::shuffled;

const POOL: (&str, &str) = ("192.0.2.10", "192.0.2.13");
/// What hosts say that they have applied before the first Address.
const FIRST: u64 = 1;

pub(super) fn all_addresses() -> impl Iterator<Item = IpAddr> {
    (10..16).map(|last| ip(&format!("192.0.2.{last}")))
}

/// What a host does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Host {
    /// Of what was written, so much has been heard.
    heard: usize,
    silent: bool,
    /// What it said last to have applied.
    said: u64,
    /// What it serves on since before the store was set back, of which it has not heard.
    before: Option<BTreeMap<IpAddr, Vec<Owner>>>,
}

/// What a store may be set back to.
#[derive(Clone, Default)]
struct Backup {
    services: BTreeMap<usize, Service>,
    addresses: BTreeMap<IpAddr, Arc<Address>>,
    /// What each host said.
    said: BTreeMap<usize, u64>,
    version: u64,
}

pub(super) struct Leader {
    pub(super) world: World,
    pub(super) services: BTreeMap<usize, Service>,
    pub(super) pool_is_seen: bool,
    hosts: BTreeMap<usize, Host>,
    addresses: BTreeMap<IpAddr, Arc<Address>>,
    /// What became of Addresses, in the order in which it did.
    written: Vec<(IpAddr, Option<Arc<Address>>)>,
    version: u64,
    /// How often the store was set back: no version of one epoch is one of another.
    epoch: u64,
    backup: Backup,
    /// What the store has of hosts.
    said: BTreeMap<usize, u64>,
    /// Whose addresses are by the backup, whoever served there before.
    restored: BTreeMap<IpAddr, Vec<Owner>>,
}

fn new_world() -> World {
    let config = Config { pools: AddressPoolRules::CLUSTER, ..Config::default() };
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(config));
    world.apply(Change::Time(Time(0)));
    world
}

impl Leader {
    /// It has a pool of four addresses.
    pub(super) fn new() -> Leader {
        let mut leader = Leader {
            world: new_world(),
            services: BTreeMap::new(),
            pool_is_seen: true,
            hosts: BTreeMap::new(),
            addresses: BTreeMap::new(),
            written: Vec::new(),
            version: FIRST,
            epoch: 0,
            backup: Backup { version: FIRST, ..Backup::default() },
            restored: BTreeMap::new(),
            said: BTreeMap::new(),
        };
        leader.restart(0).expect("nothing is there yet");
        leader
    }

    /// Another begins to lead, who is told all that is there, in any order.
    pub(super) fn restart(&mut self, seed: u64) -> Result<(), String> {
        self.world = new_world();
        let services = self.services.values().map(put);
        let addresses = self.addresses.values().map(|it| Change::Put(Fact::Address(it.clone())));
        let hosts = self.hosts.keys().map(|it| self.report(*it));
        let pool = self.pool_is_seen.then(|| pool(POOL));
        let all = services.chain(addresses).chain(hosts).chain(pool).collect();
        for change in shuffled(all, seed).into_iter().chain(synced()) {
            self.world.apply(change);
        }
        self.tell(Change::Leads(true))?;
        let silent: Vec<usize> = self.hosts.iter().filter(|(_, it)| it.silent).map(|(at, _)| *at).collect();
        silent.into_iter().try_for_each(|it| self.tell(Change::HostSilent(name(it).into())))
    }

    /// Tells it, and writes what is wanted since.
    pub(super) fn tell(&mut self, change: Change) -> Result<(), String> {
        let dirt = self.world.apply(change);
        self.work(dirt)
    }

    fn work(&mut self, mut dirt: Vec<WorkItem>) -> Result<(), String> {
        for _ in 0..10_000 {
            let Some(next) = dirt.pop() else { return Ok(()) };
            let Unit::Address(ip) = *next.unit() else { continue };
            let unit = Unit::Address(ip);
            let (state, facts) = match self.world.desire(&unit) {
                Desired::Address(wanted) => {
                    self.may_be_written(&wanted)?;
                    self.version = (self.version / 10 + 1) * 10 + self.epoch;
                    let now = Arc::new(Address { version: self.version, ..Address::clone(&wanted) });
                    self.addresses.insert(ip, now.clone());
                    self.written.push((ip, Some(now.clone())));
                    (UnitState::Done, vec![Fact::Address(now)])
                }
                _ => {
                    if self.addresses.remove(&ip).is_some() {
                        self.written.push((ip, None));
                        dirt.extend(self.world.apply(Change::Gone(FactRef::Address(ip))));
                    }
                    (UnitState::Absent, Vec::new())
                }
            };
            let told = facts.clone();
            let outcome = Outcome { unit, state, facts, problems: Vec::new(), serving: Vec::new() };
            dirt.extend(self.world.apply(Change::Outcome(outcome)));
            dirt.extend(told.into_iter().flat_map(|it| self.world.apply(Change::Put(it))));
        }
        Err("it does not come to rest".to_owned())
    }

    /// An address is one owner's, and nobody's for as long as a host may serve it for another.
    fn may_be_written(&self, now: &Address) -> Result<(), String> {
        let owners: BTreeSet<&Owner> = now.owners.iter().collect();
        if owners.len() > 1 && now.sharing.is_none() {
            return Err(format!("{} has several owners: {owners:?}", now.ip));
        }
        let restored = self.restored.get(&now.ip);
        if restored.is_some_and(|it| owners.iter().all(|owner| it.contains(owner))) {
            return Ok(());
        }
        for (at, host) in &self.hosts {
            let served = self.serves(host).remove(&now.ip).unwrap_or_default();
            let for_others = served.iter().any(|it| !owners.contains(it));
            if for_others && !owners.is_empty() && now.state == AddressState::Held {
                let host = (name(*at), host);
                return Err(format!("{} becomes {owners:?}'s, and {host:?} serves {served:?} there", now.ip));
            }
        }
        Ok(())
    }

    fn serves(&self, host: &Host) -> BTreeMap<IpAddr, Vec<Owner>> {
        if let Some(before) = &host.before {
            return before.clone();
        }
        let mut serves = BTreeMap::new();
        for (ip, now) in &self.written[..host.heard] {
            match now {
                Some(it) if it.state == AddressState::Held => serves.insert(*ip, it.owners.clone()),
                _ => serves.remove(ip),
            };
        }
        serves
    }

    fn report(&self, at: usize) -> Change {
        report(at, self.applied(at))
    }

    fn applied(&self, at: usize) -> u64 {
        let host = &self.hosts[&at];
        if host.before.is_some() {
            return host.said;
        }
        let heard = self.written[..host.heard].iter().filter_map(|(_, it)| it.as_ref());
        heard.map(|it| it.version).max().unwrap_or(FIRST)
    }

    pub(super) fn back_up(&mut self) {
        self.backup = Backup {
            services: self.services.clone(),
            addresses: self.addresses.clone(),
            said: self.said.clone(),
            version: self.version,
        };
    }

    /// The leader notices at once, and is told all that there is, in any order; hosts notice when they hear of something. `bumped`:
    /// versions are greater than before.
    pub(super) fn set_back(&mut self, bumped: bool, seed: u64) -> Result<(), String> {
        let Backup { services, addresses, said, version } = self.backup.clone();
        let serves: BTreeMap<usize, _> = self.hosts.iter().map(|(at, it)| (*at, self.serves(it))).collect();
        for (at, serves) in serves {
            if let Some(host) = self.hosts.get_mut(&at) {
                host.before = Some(serves);
            }
        }
        let lost = self.services.iter().filter(|(at, _)| !services.contains_key(*at));
        let lost = lost.map(|(_, it)| Change::Missing(FactRef::Object(owner(it).object())));
        let unlisted = self.addresses.keys().filter(|it| !addresses.contains_key(*it));
        let mut all: Vec<Change> =
            lost.chain(unlisted.map(|it| Change::Gone(FactRef::Address(*it)))).collect();
        all.extend(services.values().map(put));
        all.extend(addresses.values().map(|it| Change::Put(Fact::Address(it.clone()))));
        // Of one that is silent, what it said is told when it is heard of again.
        all.extend(self.hosts.iter().filter(|(_, it)| !it.silent).map(|(at, _)| match said.get(at) {
            Some(said) => report(*at, *said),
            None => Change::Missing(FactRef::Host(name(*at).into())),
        }));
        self.written = addresses.iter().map(|(ip, it)| (*ip, Some(it.clone()))).collect();
        self.restored = addresses.iter().map(|(ip, it)| (*ip, it.owners.clone())).collect();
        (self.services, self.addresses, self.said) = (services, addresses, said);
        self.epoch += 1;
        self.version = if bumped { self.version + 1_000 } else { version };
        let all = [Change::SourceRestored].into_iter().chain(shuffled(all, seed)).chain(synced());
        let dirt: Vec<WorkItem> = all.flat_map(|it| self.world.apply(it)).collect();
        self.work(dirt)
    }

    /// It says again what it said last.
    pub(super) fn host_repeats(&mut self, at: usize) -> Result<(), String> {
        match self.hosts.get_mut(&at) {
            Some(host) if host.before.is_some() => {
                host.silent = false;
                let said = host.said;
                self.say(at, said)
            }
            _ => Ok(()),
        }
    }

    /// It comes, or is heard of again, and has heard of so much more.
    pub(super) fn host_says(&mut self, at: usize, more: usize) -> Result<(), String> {
        let last = self.written.len();
        // A new one is told all there is before it says anything, and one that was away all that came meanwhile. That a watch which
        // goes on tells one after the other, within moments, is not played.
        let new = Host { heard: last, silent: false, said: FIRST, before: None };
        let host = self.hosts.entry(at).or_insert(new);
        let has_not_noticed = host.before.take().is_some();
        let more = if host.silent || has_not_noticed { last } else { more };
        host.heard = host.heard.saturating_add(more).min(last);
        host.silent = false;
        let said = self.applied(at);
        self.hosts.entry(at).and_modify(|it| it.said = said);
        self.say(at, said)
    }

    fn say(&mut self, at: usize, applied: u64) -> Result<(), String> {
        self.said.insert(at, applied);
        self.tell(report(at, applied))
    }

    pub(super) fn is_heard(&self, at: usize) -> bool {
        self.hosts.get(&at).is_some_and(|it| !it.silent)
    }

    /// It serves on, for all that is known.
    pub(super) fn host_falls_silent(&mut self, at: usize) -> Result<(), String> {
        match self.hosts.get_mut(&at) {
            Some(host) if !host.silent => {
                host.silent = true;
                self.tell(Change::HostSilent(name(at).into()))
            }
            _ => Ok(()),
        }
    }

    /// It is off, as somebody has said.
    pub(super) fn host_goes(&mut self, at: usize) -> Result<(), String> {
        match self.hosts.remove(&at) {
            Some(_) => {
                self.said.remove(&at);
                self.tell(Change::Gone(FactRef::Host(name(at).into())))
            }
            None => Ok(()),
        }
    }

    pub(super) fn put_service(&mut self, number: usize, service: Service) -> Result<(), String> {
        self.services.insert(number, service.clone());
        self.tell(put(&service))
    }

    pub(super) fn delete_service(&mut self, number: usize) -> Result<(), String> {
        match self.services.remove(&number) {
            Some(service) => self.tell(Change::Gone(FactRef::Object(owner(&service).object()))),
            None => Ok(()),
        }
    }

    pub(super) fn see_pool(&mut self, seen: bool) -> Result<(), String> {
        if std::mem::replace(&mut self.pool_is_seen, seen) == seen {
            return Ok(());
        }
        let Change::Put(fact) = pool(POOL) else { return Ok(()) };
        self.tell(if seen { pool(POOL) } else { Change::Gone(fact.reference()) })
    }

    /// All hosts answer, and have heard of everything, until nothing is written any more.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        for _ in 0..100 {
            let before = self.written.len();
            let hosts: Vec<usize> = self.hosts.keys().copied().collect();
            hosts.into_iter().try_for_each(|it| self.host_says(it, usize::MAX))?;
            if self.written.len() == before {
                return Ok(());
            }
        }
        Err("it does not come to rest".to_owned())
    }

    pub(super) fn status(&self, service: &Service) -> Option<Arc<Status>> {
        match self.world.desire(&Unit::Status(owner(service))) {
            Desired::Status(it) => Some(it),
            _ => None,
        }
    }

    /// Of each Service what is published.
    pub(super) fn published(&self) -> BTreeMap<usize, Vec<IpAddr>> {
        let addresses = |it| self.status(it).map(|it| it.addresses.clone()).unwrap_or_default();
        self.services.iter().map(|(number, it)| (*number, addresses(it))).collect()
    }

    /// Of each address what is to be written.
    pub(super) fn planned(&self) -> BTreeMap<IpAddr, (AddressState, Vec<Owner>)> {
        let wanted = |ip| match self.world.desire(&Unit::Address(ip)) {
            Desired::Address(it) => Some((ip, (it.state, it.owners.clone()))),
            _ => None,
        };
        all_addresses().filter_map(wanted).collect()
    }
}

fn report(at: usize, applied: u64) -> Change {
    Change::Put(Fact::Host(Arc::new(HostReport {
        host: name(at).into(),
        applied,
        addresses: vec![ip(&format!("198.51.100.{}", at + 1))],
        ..HostReport::default()
    })))
}

fn name(at: usize) -> String {
    format!("host-{at}")
}
