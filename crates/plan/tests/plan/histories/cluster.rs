//! A small cluster: what its API server has, who plans, and what drivers have made.

mod event;
mod process;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Address, Change, Desired, Fact, Owner, Unit,
    bgp::DesiredBgp,
    fact::{FactRef, FinalizerOwner, HostReport, Service},
    unit::{HostAddresses, Place},
};
use seaway_plan::Layer2Wanted;
use seaway_testkit::facts::{HOST, ip, owner, put, synced};

pub(super) use self::event::{Event, any_event};
use self::{
    event::Answer,
    process::{Process, result},
};

/// What is there for each Unit, as its driver left it.
pub(super) type Made = BTreeMap<Unit, Desired>;

/// What hosts say that they have applied before the first Address.
const FIRST: u64 = 1;

pub(super) struct Cluster {
    /// Services, slices, pools and Nodes.
    objects: BTreeMap<String, Fact>,
    addresses: BTreeMap<IpAddr, Arc<Address>>,
    version: u64,
    report: HostReport,
    /// Two controllers; one of them leads.
    controllers: [Process; 2],
    leads: usize,
    host: Process,
    /// Told to the controllers, and not yet to the host.
    unheard: VecDeque<Change>,
    /// What all controllers have made.
    made: Made,
    /// Makes the uid of each Service another.
    created: u64,
    /// Names of Services that agreed to share at any time.
    sharing: BTreeSet<seaway_model::Name>,
}

impl Cluster {
    /// All of it is up, and nothing is in it.
    pub(super) fn new() -> Cluster {
        let mut cluster = Cluster {
            objects: BTreeMap::new(),
            addresses: BTreeMap::new(),
            version: FIRST,
            report: HostReport { host: HOST.into(), applied: FIRST, ..HostReport::default() },
            controllers: [Process::controller(), Process::controller()],
            leads: 0,
            host: Process::host(),
            unheard: VecDeque::new(),
            made: Made::new(),
            created: 0,
            sharing: BTreeSet::new(),
        };
        cluster.restart_all(0);
        cluster
    }

    pub(super) fn play(&mut self, event: Event) -> Result<(), String> {
        self.play_one(event)?;
        self.host.announces_what_it_serves(&self.report)
    }

    /// What the host is to announce, now.
    pub(super) fn announced(&self) -> (Option<DesiredBgp>, Option<Layer2Wanted>) {
        self.host.announced()
    }

    fn play_one(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Service(number, wish) => {
                let service = match self.service(number) {
                    // Who is on his way out is not changed any more, but by us.
                    Some(it) if it.leaving => return Ok(()),
                    Some(it) => wish.of(&it),
                    None => {
                        self.created += 1;
                        wish.of(&event::new_service(number, self.created))
                    }
                };
                self.put_service(service)
            }
            Event::NoService(number) => match self.service(number) {
                Some(it) if it.held == FinalizerOwner::No => self.delete_service(&it),
                Some(it) => self.put_service(Service { leaving: true, ..it }),
                None => Ok(()),
            },
            Event::Object(key, fact) => self.put(key, fact),
            Event::NoObject(key) => match self.objects.remove(&key) {
                Some(fact) => self.tell_all(Change::Gone(fact.reference())),
                None => Ok(()),
            },
            Event::Work(which, answer) => self.work(which, answer),
            Event::HostHears(count) => self.host_hears(count),
            Event::HostWorks(which, answer) => self.host_works(which, answer),
            Event::HostReports => self.host_reports(),
            Event::ControllerRestarts(seed) => {
                self.start_controller(self.leads, seed);
                self.controllers[self.leads].lead(true);
                Ok(())
            }
            Event::OtherLeads => {
                self.controllers[self.leads].lead(false);
                self.leads = 1 - self.leads;
                self.controllers[self.leads].lead(true);
                Ok(())
            }
            Event::HostRestarts(seed) => {
                self.start_host(seed);
                Ok(())
            }
            Event::Again(key) => match self.objects.get(&key).cloned() {
                Some(fact) => self.tell_nothing_new(Change::Put(fact)),
                None => Ok(()),
            },
        }
    }

    fn service(&self, number: usize) -> Option<Service> {
        match self.objects.get(&event::service_key(number))? {
            Fact::Service(it) => Some(Service::clone(it)),
            _ => None,
        }
    }

    fn put_service(&mut self, service: Service) -> Result<(), String> {
        if service.meta.annotations.contains_key("seaway.dev/share") {
            self.sharing.insert(service.meta.name.clone());
        }
        let key = format!("service {}", service.meta.name);
        let Change::Put(fact) = put(&service) else { return Ok(()) };
        self.put(key, fact)
    }

    fn delete_service(&mut self, service: &Service) -> Result<(), String> {
        self.objects.remove(&format!("service {}", service.meta.name));
        // They are in its object.
        let of = owner(service);
        self.made.remove(&Unit::Status(of.clone()));
        self.made.remove(&Unit::Finalizer(of));
        self.tell_all(Change::Gone(FactRef::Object(owner(service).object())))
    }

    fn put(&mut self, key: String, fact: Fact) -> Result<(), String> {
        self.objects.insert(key, fact.clone());
        self.tell_all(Change::Put(fact))
    }

    fn tell_all(&mut self, change: Change) -> Result<(), String> {
        self.unheard.push_back(change.clone());
        self.tell_controllers(&change)
    }

    fn tell_controllers(&mut self, change: &Change) -> Result<(), String> {
        let made: Vec<Unit> = self.made.keys().cloned().collect();
        let leads = self.leads;
        let mut all = self.controllers.iter_mut().enumerate();
        all.try_for_each(|(at, it)| it.tell(change.clone(), &made, at == leads))
    }

    /// What is known already marks nothing.
    fn tell_nothing_new(&mut self, change: Change) -> Result<(), String> {
        self.controllers.iter_mut().try_for_each(|it| it.tell_again(change.clone()))
    }

    /// The leader's driver works on one Unit that is marked.
    fn work(&mut self, which: usize, answer: Answer) -> Result<(), String> {
        let Some(unit) = self.controllers[self.leads].next(which) else { return Ok(()) };
        if answer != Answer::Done {
            return self.controllers[self.leads].fail(unit, answer);
        }
        let desired = self.controllers[self.leads].desire(&unit);
        match (&unit, &desired) {
            (Unit::Address(ip), _) => return self.write_address(*ip, desired),
            (Unit::Status(owner), _) => {
                let addresses = match &desired {
                    Desired::Status(status) => status.addresses.clone(),
                    _ => Vec::new(),
                };
                self.report_made(unit.clone(), desired)?;
                if let Some(service) = self.service_of(owner)
                    && service.published != addresses
                {
                    self.put_service(Service { published: addresses, published_by_us: true, ..service })?;
                }
                return Ok(());
            }
            (Unit::Finalizer(owner), _) => {
                let held =
                    if desired == Desired::Finalizer { FinalizerOwner::ByUs } else { FinalizerOwner::No };
                self.report_made(unit.clone(), desired)?;
                match self.service_of(owner) {
                    Some(it) if it.leaving && held == FinalizerOwner::No => self.delete_service(&it)?,
                    Some(it) if it.held != held => self.put_service(Service { held, ..it })?,
                    _ => {}
                }
                return Ok(());
            }
            // Nothing is made for whom nobody holds.
            (Unit::LoadBalancer(..), Desired::LoadBalancer(it))
                if it.options.cloud.as_ref().is_some_and(|it| it.unheld) =>
            {
                return self.controllers[self.leads].park(unit);
            }
            _ => {}
        }
        self.report_made(unit, desired)
    }

    fn service_of(&self, of: &Owner) -> Option<Service> {
        self.objects.values().find_map(|fact| match fact {
            Fact::Service(it) if owner(it) == *of => Some(Service::clone(it)),
            _ => None,
        })
    }

    fn report_made(&mut self, unit: Unit, desired: Desired) -> Result<(), String> {
        result(&mut self.made, &unit, &desired);
        self.controllers[self.leads].report(unit, &desired, Vec::new())
    }

    fn write_address(&mut self, ip: IpAddr, desired: Desired) -> Result<(), String> {
        let unit = Unit::Address(ip);
        let Desired::Address(wanted) = &desired else {
            self.made.remove(&unit);
            self.controllers[self.leads].report(unit, &desired, Vec::new())?;
            return match self.addresses.remove(&ip) {
                Some(_) => self.tell_all(Change::Gone(FactRef::Address(ip))),
                None => Ok(()),
            };
        };
        self.version += 1;
        let written = Arc::new(Address { version: self.version, ..Address::clone(wanted) });
        self.may_be_written(&written)?;
        self.addresses.insert(ip, written.clone());
        self.made.insert(unit.clone(), desired.clone());
        let fact = Fact::Address(written);
        self.controllers[self.leads].report(unit, &desired, vec![fact.clone()])?;
        self.tell_all(Change::Put(fact))
    }

    /// An address is one owner's, and nobody's for as long as the host serves it for another.
    fn may_be_written(&self, now: &Address) -> Result<(), String> {
        let owners: BTreeSet<&Owner> = now.owners.iter().collect();
        if owners.len() > 1 && now.sharing.is_none() {
            return Err(format!("{} has several owners: {owners:?}", now.ip));
        }
        let before = self.addresses.get(&now.ip).map(|it| &it.owners[..]).unwrap_or_default();
        // Another may have come while both shared, and one have left since: both may be written at once.
        let mut all = before.iter().chain(&now.owners);
        if !before.is_empty() && all.all(|it| self.sharing.contains(&it.object().name)) {
            return Ok(());
        }
        if !before.is_empty() && !owners.is_empty() && !before.iter().any(|it| owners.contains(it)) {
            return Err(format!("{} was {before:?}'s and is {owners:?}'s", now.ip));
        }
        let served = self.host.present().addresses.remove(&now.ip).unwrap_or_default();
        // An owner comes back to what the host, which is behind, still serves for it and for who shared it with it then.
        let shared = served.iter().all(|it| self.sharing.contains(&it.object().name));
        if shared && !owners.is_empty() && owners.iter().all(|it| served.contains(it)) {
            return Ok(());
        }
        let for_others = served.iter().any(|it| !owners.contains(it) && !before.contains(it));
        if for_others && !owners.is_empty() {
            return Err(format!("{} is {owners:?}'s, and {HOST} serves {served:?}", now.ip));
        }
        Ok(())
    }

    fn host_hears(&mut self, count: usize) -> Result<(), String> {
        for _ in 0..count {
            let Some(change) = self.unheard.pop_front() else { break };
            self.host.tell(change, &[], false)?;
        }
        Ok(())
    }

    fn host_works(&mut self, which: usize, answer: Answer) -> Result<(), String> {
        let Some(unit) = self.host.next(which) else { return Ok(()) };
        if answer != Answer::Done {
            return self.host.fail(unit, answer);
        }
        let desired = self.host.desire(&unit);
        self.host.make(unit, desired)
    }

    /// The host says what it has put there.
    fn host_reports(&mut self) -> Result<(), String> {
        let present = self.host.present();
        let now = HostReport {
            holds: present.addresses.keys().copied().collect(),
            applied: present.as_of.max(FIRST),
            addresses: vec![ip("198.51.100.1")],
            bgp: self.host.announces(),
            ..self.report.clone()
        };
        if now == self.report {
            return Ok(());
        }
        self.report = now.clone();
        let told = Change::Put(Fact::Host(Arc::new(now)));
        self.host.tell(told.clone(), &[], false)?;
        self.tell_controllers(&told)
    }

    /// All there is, in any order.
    fn everything(&self, seed: u64) -> Vec<Change> {
        let facts = self.objects.values().cloned();
        let facts = facts.chain(self.addresses.values().cloned().map(Fact::Address));
        let mut all: Vec<Change> =
            facts.chain([Fact::Host(Arc::new(self.report.clone()))]).map(Change::Put).collect();
        let mut state = seed | 1;
        for at in (1..all.len()).rev() {
            // xorshift
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            all.swap(at, (state % (at as u64 + 1)) as usize);
        }
        all.extend(synced());
        all
    }

    fn start_controller(&mut self, which: usize, seed: u64) {
        let mut process = Process::controller();
        process.start(self.everything(seed));
        let clouds: Vec<Unit> = self
            .made
            .keys()
            .filter(|it| matches!(it, Unit::LoadBalancer(Place::Cloud { .. }, _)))
            .cloned()
            .collect();
        process.start([Change::CloudInventory(clouds.clone())]);
        process.start(clouds.into_iter().map(Change::FoundInCloud));
        self.controllers[which] = process;
    }

    /// Its sockets end with it; what is on its `lo` stays.
    fn start_host(&mut self, seed: u64) {
        let left = self.host.present();
        let mut process = Process::host();
        process.leave(left);
        process.start(self.everything(seed));
        // It hears first of all that there is.
        self.unheard.clear();
        self.host = process;
    }

    /// Everything ends and begins again.
    pub(super) fn restart_all(&mut self, seed: u64) {
        for which in 0..2 {
            self.start_controller(which, seed.wrapping_add(which as u64));
        }
        self.controllers[self.leads].lead(true);
        self.start_host(seed.rotate_left(9));
    }

    /// Nothing fails any more, and all is heard, until nothing is left to do.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        for round in 0..2_000 {
            self.host_hears(usize::MAX)?;
            if self.controllers[self.leads].has_work() {
                self.work(round, Answer::Done)?;
            } else if self.host.has_work() {
                self.host_works(round, Answer::Done)?;
            } else {
                let before = self.report.clone();
                self.host_reports()?;
                if before == self.report {
                    return Ok(());
                }
            }
        }
        Err(format!("it does not come to rest: {:?}", self.controllers[self.leads].next(0)))
    }

    /// What drivers have made, of the leader and of the host.
    pub(super) fn made(&self) -> Made {
        let all = self.made.clone().into_iter().chain(self.host.made());
        all.map(|(unit, it)| (unit, without_versions(it))).collect()
    }

    /// What should be there.
    pub(super) fn wanted(&self) -> Made {
        let mut wanted = Made::new();
        for (unit, desired) in self.plans() {
            result(&mut wanted, &unit, &desired);
        }
        wanted
    }

    /// What the leader and the host want, of all Units that are there or could be.
    pub(super) fn plans(&self) -> Made {
        let mut units: BTreeSet<Unit> = self.made().into_keys().collect();
        units.insert(Unit::HostAddresses(HOST.into()));
        units.extend((10..20).map(|last| Unit::Address(ip(&format!("192.0.2.{last}")))));
        for fact in self.objects.values() {
            if let Fact::Service(it) = fact {
                let owner = owner(it);
                units.extend(process::units_of(&owner));
                units.extend([Unit::Status(owner.clone()), Unit::Finalizer(owner)]);
            }
        }
        let of_host =
            |unit: &Unit| matches!(unit, Unit::HostAddresses(_) | Unit::LoadBalancer(Place::Host { .. }, _));
        let of = |unit: &Unit| match of_host(unit) {
            true => self.host.desire(unit),
            false => self.controllers[self.leads].desire(unit),
        };
        // What is left as it is, whatever that is, is no plan.
        let is_plan = |it: &Desired| !it.is_absent() && *it != Desired::Released;
        let all = units.into_iter().map(|unit| (of(&unit), unit)).filter(|(it, _)| is_plan(it));
        all.map(|(it, unit)| (unit, without_versions(it))).collect()
    }
}

/// By which writing of Addresses a host knows what it does is no part of what it does.
fn without_versions(desired: Desired) -> Desired {
    match desired {
        Desired::HostAddresses(it) => Desired::HostAddresses(HostAddresses { as_of: 0, ..it }),
        it => it,
    }
}
