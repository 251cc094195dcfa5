//! One process: its World, what it has marked, and what its drivers have made.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use seaway_model::{
    Change, Config, Desired, Fact, LbKey, Outcome, Owner, Unit,
    bgp::{BgpReport, DesiredBgp},
    config::{AddressPoolRules, CloudDefaults},
    fact::HostReport,
    load_balancer::Bind,
    outcome::{ServingSocket, Status, UnfinishedAttempt, UnitState},
    unit::{HostAddresses, Place},
};
use seaway_plan::{Demand, Layer2Wanted, Placement, Roles, World};
use seaway_testkit::facts::HOST;

use super::{Made, event::Answer};

pub(super) const CLASS: &str = "seaway.dev/somecloud";

struct Places;

impl Placement for Places {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        let [on_host, in_cloud] = units_of(&demand.owner);
        vec![if demand.cloud.is_some() { in_cloud } else { on_host }]
    }
}

/// On the host, and in the cloud.
pub(super) fn units_of(owner: &Owner) -> [Unit; 2] {
    let key = LbKey::Of(owner.clone());
    let host = Place::Host { name: HOST.into(), driver: "native".into() };
    let cloud = Place::Cloud { name: "somecloud".into(), driver: "somecloud".into() };
    [Unit::LoadBalancer(host, key.clone()), Unit::LoadBalancer(cloud, key)]
}

/// What is there after this is done.
pub(super) fn result(made: &mut Made, unit: &Unit, desired: &Desired) {
    match desired {
        Desired::Absent | Desired::Removed(_) => drop(made.remove(unit)),
        Desired::Released => {}
        it => drop(made.insert(unit.clone(), it.clone())),
    }
}

/// An Address that is written again counts as served nowhere until its host has heard of that. It is told then, and not
/// before: known, and open.
fn is_alike_but_for_serving(one: &Desired, other: &Desired) -> bool {
    match (one, other) {
        (Desired::Status(one), Desired::Status(other)) => {
            let (serving, ready) = (other.serving.clone(), other.ready);
            Status { serving, ready, ..Status::clone(one) } == **other
        }
        _ => one == other,
    }
}

pub(super) struct Process {
    world: World,
    is_host: bool,
    /// Marked, and not worked on since.
    dirty: BTreeSet<Unit>,
    /// All that were ever marked.
    known: BTreeSet<Unit>,
    /// Of a host; what controllers make outlives them.
    made: Made,
}

impl Process {
    pub(super) fn announced(&self) -> (Option<DesiredBgp>, Option<Layer2Wanted>) {
        (self.world.bgp(), self.world.layer2())
    }

    /// As its speaker says once all routes are with the peers.
    pub(super) fn announces(&self) -> BgpReport {
        let mut report = BgpReport::default();
        for session in self.world.bgp().iter().flat_map(|it| &it.sessions) {
            for route in &session.routes {
                report.routes.entry(route.prefix).or_default().insert(session.name.clone());
            }
        }
        report
    }

    /// What is announced is on this host, by its own word, and is to be there.
    pub(super) fn announces_what_it_serves(&self, report: &HostReport) -> Result<(), String> {
        let served: Vec<_> = {
            let present = self.present().addresses;
            report.holds.iter().copied().filter(|ip| present.contains_key(ip)).collect()
        };
        let (bgp, layer2) = self.announced();
        let routes = bgp.iter().flat_map(|it| &it.sessions).flat_map(|it| &it.routes).map(|it| it.prefix);
        let offered = layer2.iter().flat_map(|it| &it.offered).map(|ip| IpNet::from(*ip));
        for prefix in routes.chain(offered) {
            if !served.iter().any(|ip| prefix.contains(ip)) {
                return Err(format!("{prefix} is announced, and {served:?} are served"));
            }
        }
        Ok(())
    }

    pub(super) fn controller() -> Process {
        Process::with(Roles::default())
    }

    pub(super) fn host() -> Process {
        Process::with(Roles { allocate: false, host: Some(HOST.into()) })
    }

    fn with(roles: Roles) -> Process {
        let clouds = [(CLASS.into(), Arc::new(CloudDefaults::default()))].into();
        let config = Config { clouds, pools: AddressPoolRules::CLUSTER, ..Config::default() };
        let is_host = roles.host.is_some();
        let world = World::new(roles, vec![Arc::new(Places)], Arc::new(config));
        Process { world, is_host, dirty: BTreeSet::new(), known: BTreeSet::new(), made: Made::new() }
    }

    /// Told before anybody looks.
    pub(super) fn start(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            let dirt = self.world.apply(change);
            self.mark(dirt.iter().map(|it| it.unit().clone()));
        }
    }

    fn mark(&mut self, units: impl IntoIterator<Item = Unit>) {
        for unit in units {
            self.known.insert(unit.clone());
            self.dirty.insert(unit);
        }
    }

    pub(super) fn desire(&self, unit: &Unit) -> Desired {
        self.world.desire(unit)
    }

    fn wants(&self, more: &[Unit]) -> BTreeMap<Unit, Desired> {
        let all: BTreeSet<&Unit> = self.known.iter().chain(more).filter(|it| self.works_on(it)).collect();
        all.into_iter().map(|unit| (unit.clone(), self.desire(unit))).collect()
    }

    /// Every Unit that is to be another is marked, and of load balancers no other.
    pub(super) fn tell(&mut self, change: Change, more: &[Unit], leads: bool) -> Result<(), String> {
        // A Unit whose work ended may be looked at again.
        let own = match &change {
            Change::Outcome(it) => Some(it.unit.clone()),
            Change::Unfinished(it) => Some(it.unit.clone()),
            _ => None,
        };
        let of_address = match &change {
            Change::Put(fact) => matches!(fact, Fact::Address(_)),
            Change::Outcome(it) => matches!(it.unit, Unit::Address(_)),
            _ => false,
        };
        let before = self.wants(more);
        let dirt = self.world.apply(change);
        let marked: BTreeSet<Unit> = dirt.iter().map(|it| it.unit().clone()).collect();
        self.known.extend(marked.iter().cloned());
        // Who does not lead writes nothing, whatever it would want.
        let judged = if leads || self.is_host { self.wants(more) } else { BTreeMap::new() };
        for (unit, wanted) in judged {
            let (was, is_marked) = (before.get(&unit), marked.contains(&unit));
            if own.as_ref() == Some(&unit) {
                continue;
            }
            // What waits to be worked on need not be marked again.
            let waits = is_marked || self.dirty.contains(&unit);
            let is_another = was.is_some_and(|was| match of_address {
                true => !is_alike_but_for_serving(was, &wanted),
                false => *was != wanted,
            });
            if is_another && !waits {
                return Err(format!(
                    "{unit} is wanted otherwise and not marked: {was:#?} is now {wanted:#?}"
                ));
            }
            if is_marked && was == Some(&wanted) && matches!(unit, Unit::LoadBalancer(..)) {
                return Err(format!("{unit} is marked, and nothing about it is another: {wanted:#?}"));
            }
        }
        self.mark(marked);
        Ok(())
    }

    /// Who begins to lead looks at all again, as who led may have left something half done.
    pub(super) fn lead(&mut self, leads: bool) {
        let dirt = self.world.apply(Change::Leads(leads));
        self.mark(dirt.iter().map(|it| it.unit().clone()));
        if !leads {
            self.dirty.clear();
        }
    }

    /// A host's are its own, and all others the leader's.
    fn works_on(&self, unit: &Unit) -> bool {
        let of_host = matches!(unit, Unit::HostAddresses(_) | Unit::LoadBalancer(Place::Host { .. }, _));
        self.is_host == of_host
    }

    pub(super) fn tell_again(&mut self, change: Change) -> Result<(), String> {
        match self.world.apply(change.clone()) {
            dirt if dirt.is_empty() => Ok(()),
            dirt => Err(format!("{change:?} was known, and marks {dirt:?}")),
        }
    }

    pub(super) fn has_work(&self) -> bool {
        self.next(0).is_some()
    }

    pub(super) fn next(&self, which: usize) -> Option<Unit> {
        let all: Vec<&Unit> = self.dirty.iter().filter(|it| self.works_on(it)).collect();
        all.get(which % all.len().max(1)).map(|it| (*it).clone())
    }

    pub(super) fn fail(&mut self, unit: Unit, answer: Answer) -> Result<(), String> {
        let retry = Duration::from_secs(1);
        let state = match answer {
            Answer::Fails => UnitState::Failed { why: "it is away".into(), retry },
            _ => UnitState::Pending(retry),
        };
        self.unfinished(unit.clone(), state)?;
        // Seaway tries again.
        self.dirty.insert(unit);
        Ok(())
    }

    /// It waits for something that marks it once it has come.
    pub(super) fn park(&mut self, unit: Unit) -> Result<(), String> {
        self.dirty.remove(&unit);
        self.unfinished(unit, UnitState::Pending(Duration::from_secs(3_600)))
    }

    fn unfinished(&mut self, unit: Unit, state: UnitState) -> Result<(), String> {
        self.tell(Change::Unfinished(UnfinishedAttempt { unit, state, problems: None }), &[], true)
    }

    /// Tells that all is as desired.
    pub(super) fn report(&mut self, unit: Unit, desired: &Desired, facts: Vec<Fact>) -> Result<(), String> {
        self.dirty.remove(&unit);
        let state = if desired.is_absent() { UnitState::Absent } else { UnitState::Done };
        let mut serving = Vec::new();
        if let Desired::LoadBalancer(it) = desired {
            for id in it.listeners.keys() {
                serving.extend(it.binds.iter().filter_map(|bind| match bind {
                    Bind::Ledger(ip) => Some(ServingSocket { ip: *ip, protocol: id.l4, port: id.port }),
                    _ => None,
                }));
            }
        }
        let outcome = Outcome { unit, state, facts, problems: Vec::new(), serving };
        self.tell(Change::Outcome(outcome), &[], true)
    }

    pub(super) fn make(&mut self, unit: Unit, desired: Desired) -> Result<(), String> {
        result(&mut self.made, &unit, &desired);
        self.report(unit, &desired, Vec::new())
    }

    pub(super) fn made(&self) -> Made {
        self.made.clone()
    }

    /// What is on the host's `lo`.
    pub(super) fn present(&self) -> HostAddresses {
        match self.made.get(&Unit::HostAddresses(HOST.into())) {
            Some(Desired::HostAddresses(present)) => present.clone(),
            _ => HostAddresses::default(),
        }
    }

    pub(super) fn leave(&mut self, present: HostAddresses) {
        self.made.insert(Unit::HostAddresses(HOST.into()), Desired::HostAddresses(present));
    }
}
