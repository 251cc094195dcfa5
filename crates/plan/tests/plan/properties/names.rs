//! Names of the front door: each is one namespace's, and nobody takes it from who is served by it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use proptest::prelude::*;
use seaway_model::{
    Change, Config, Desired, Fact, Kind, LbKey, Name, Owner, Time, Unit,
    config::{FrontDoor, HostOwners, UnlistedHosts},
    fact::{FactRef, NameOwner, Service, ServiceKind, TargetPort},
    load_balancer::{Action, HostPattern},
    unit::Place,
};
use seaway_plan::{Demand, Placement, Roles, World, host_pattern};
use seaway_testkit::{
    facts::{self, HOST, host, owner, put, synced},
    properties::cases,
};

use super::shuffled;

const NAMESPACES: [&str; 3] = ["bank", "evil", "shop"];
const NAMES: [&str; 3] = ["a.example", "b.example", "c.example"];

/// Keeps who owns the front door, who is named nowhere else.
#[derive(Clone, Default)]
struct OnHost(Arc<OnceLock<Owner>>);

fn unit(owner: &Owner) -> Unit {
    let place = Place::Host { name: HOST.into(), driver: "native".into() };
    Unit::LoadBalancer(place, LbKey::Of(owner.clone()))
}

impl Placement for OnHost {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        vec![unit(&demand.owner)]
    }

    fn front_door(&self, owner: &Owner) -> Vec<Unit> {
        vec![unit(self.0.get_or_init(|| owner.clone()))]
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// A Service of a namespace, as old as that, claims a name.
    Claims {
        namespace: usize,
        number: usize,
        age: u64,
        name: usize,
    },
    Gone {
        namespace: usize,
        number: usize,
    },
    /// The leader writes what a namespace is to have: all that it claims, and what it had before, for a while.
    Recorded {
        namespace: usize,
        keeps: bool,
    },
    /// Somebody deletes it.
    RecordLost {
        namespace: usize,
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    let claims = (0..3usize, 0..2usize, 0..6u64, 0..3usize)
        .prop_map(|(namespace, number, age, name)| Event::Claims { namespace, number, age, name });
    prop_oneof![
        6 => claims,
        3 => (0..3usize, 0..2usize).prop_map(|(namespace, number)| Event::Gone { namespace, number }),
        6 => (0..3usize, any::<bool>()).prop_map(|(namespace, keeps)| Event::Recorded { namespace, keeps }),
        1 => (0..3usize).prop_map(|namespace| Event::RecordLost { namespace }),
    ]
}

struct Cluster {
    world: World,
    door: OnHost,
    services: BTreeMap<(usize, usize), (Service, usize)>,
    records: BTreeMap<usize, NameOwner>,
    /// Whose names are, since that was recorded and for as long as they claim them without a break.
    has: BTreeMap<usize, usize>,
}

fn begun(door: &OnHost, told: Vec<Change>) -> World {
    let owners = HostOwners { others: UnlistedHosts::First, ..HostOwners::default() };
    let config = Config { front_door: FrontDoor { owners, ..FrontDoor::default() }, ..Config::default() };
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(door.clone())], Arc::new(config));
    let all = [Kind::HTTPRoute].map(Change::Synced);
    for change in [host(&["192.0.2.5"], &[])].into_iter().chain(told).chain(synced()).chain(all) {
        world.apply(change);
    }
    world
}

fn pattern(name: usize) -> HostPattern {
    host_pattern(NAMES[name]).expect("a host name")
}

impl Cluster {
    fn new() -> Cluster {
        let door = OnHost::default();
        let world = begun(&door, Vec::new());
        Cluster { world, door, services: BTreeMap::new(), records: BTreeMap::new(), has: BTreeMap::new() }
    }

    fn claims(&self, namespace: usize, name: usize) -> bool {
        self.services.iter().any(|((of, _), (_, its))| (*of, *its) == (namespace, name))
    }

    fn records(&self, namespace: usize, name: usize) -> bool {
        self.records.get(&namespace).is_some_and(|it| it.hosts.contains(&pattern(name)))
    }

    fn play(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Claims { namespace, number, age, name } => {
                let mut service = facts::service("s", &[("", 80, TargetPort::Number(80))]);
                service.kind = ServiceKind::ClusterIp;
                service.meta.namespace = NAMESPACES[namespace].into();
                service.meta.name = format!("s{number}").into();
                service.meta.uid = format!("uid-{namespace}-{number}").into();
                // An object is as old as it was when it came.
                let before = self.services.get(&(namespace, number)).and_then(|(it, _)| it.meta.created);
                service.meta.created = before.or(Some(Time(age)));
                service.meta.annotations.insert("seaway.dev/host".into(), NAMES[name].into());
                self.services.insert((namespace, number), (service.clone(), name));
                self.world.apply(put(&service));
            }
            Event::Gone { namespace, number } => {
                if let Some((service, _)) = self.services.remove(&(namespace, number)) {
                    self.world.apply(Change::Gone(FactRef::Object(owner(&service).object())));
                }
            }
            Event::Recorded { namespace, keeps } => self.record(namespace, keeps),
            Event::RecordLost { namespace } => {
                if let Some(record) = self.records.remove(&namespace) {
                    self.world.apply(Change::Gone(FactRef::Object(record.object())));
                }
            }
        }
        for name in 0..NAMES.len() {
            if let Some(namespace) = self.has.get(&name)
                && !self.claims(*namespace, name)
                && !self.records(*namespace, name)
            {
                self.has.remove(&name);
            }
            let theirs = (0..NAMESPACES.len()).find(|it| self.records(*it, name) && self.claims(*it, name));
            if let Some(namespace) = theirs {
                self.has.entry(name).or_insert(namespace);
            }
        }
        self.check()
    }

    /// As the leader does, with what the World says.
    fn record(&mut self, namespace: usize, keeps: bool) {
        let of = Name::from(NAMESPACES[namespace]);
        let claimed = self.world.first_claims().and_then(|it| it.claimed.get(&of).cloned());
        let mut record = claimed.unwrap_or(NameOwner { namespace: of, ..NameOwner::default() });
        if let Some(before) = self.records.get(&namespace).filter(|_| keeps) {
            record.hosts.extend(before.hosts.iter().cloned());
            record.paths.extend(before.paths.iter().cloned());
        }
        self.records.insert(namespace, record.clone());
        self.world.apply(Change::Put(Fact::NameOwner(Arc::new(record))));
    }

    fn check(&self) -> Result<(), String> {
        let claims = self.world.first_claims().ok_or("all was told")?;
        let mut owners: BTreeMap<HostPattern, BTreeSet<Name>> = BTreeMap::new();
        let recorded = claims.recorded.values().map(|it| &**it);
        for owner in claims.claimed.values().chain(recorded) {
            for host in &owner.hosts {
                owners.entry(host.clone()).or_default().insert(owner.namespace.clone());
            }
        }
        if let Some((host, several)) = owners.into_iter().find(|(_, it)| it.len() > 1) {
            return Err(format!("{host} is to be recorded as {several:?}'s"));
        }
        for (name, text) in NAMES.into_iter().enumerate() {
            let leads = self.leads(name);
            if leads.len() > 1 {
                return Err(format!("{} leads to {leads:?}", text));
            }
            let Some(namespace) = self.has.get(&name).copied() else { continue };
            let wanted = self.claims(namespace, name).then(|| NAMESPACES[namespace]);
            if !leads.iter().map(|it| it.as_str()).eq(wanted) {
                return Err(format!("{} is {}'s and leads to {leads:?}", text, NAMESPACES[namespace]));
            }
        }
        Ok(())
    }

    /// The namespaces to which requests for a name go.
    fn leads(&self, name: usize) -> BTreeSet<Name> {
        let Some(owner) = self.door.0.get() else { return BTreeSet::new() };
        let Desired::LoadBalancer(door) = self.world.desire(&unit(owner)) else { return BTreeSet::new() };
        let rules = door.listeners.values().flat_map(|it| it.rules.iter());
        let its = rules.filter(|it| it.hosts.contains(&pattern(name)));
        let forward = its.filter(|it| !matches!(it.action, Action::Respond { .. }));
        forward.map(|it| it.owner.object().namespace).collect()
    }

    fn everything(&self) -> Vec<Change> {
        let services = self.services.values().map(|(it, _)| put(it));
        let records = self.records.values().map(|it| Change::Put(Fact::NameOwner(Arc::new(it.clone()))));
        services.chain(records).collect()
    }

    fn plan(&self) -> Vec<BTreeSet<Name>> {
        (0..NAMES.len()).map(|it| self.leads(it)).collect()
    }
}

fn play(events: Vec<Event>) -> Result<Cluster, TestCaseError> {
    let mut cluster = Cluster::new();
    for event in events {
        let told = format!("{event:?}");
        cluster.play(event).map_err(|why| TestCaseError::fail(format!("at {told}: {why}")))?;
    }
    Ok(cluster)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(200), ..ProptestConfig::default() })]

    #[test]
    fn a_name_is_one_namespace_s_and_nobody_takes_it_from_who_has_it_and_claims_it(
        events in prop::collection::vec(any_event(), 0..40),
    ) {
        play(events)?;
    }

    #[test]
    fn what_is_recorded_leads_after_a_restart_to_where_it_led_before(
        events in prop::collection::vec(any_event(), 0..40), seed in any::<u64>(),
    ) {
        let mut cluster = play(events)?;
        for namespace in 0..NAMESPACES.len() {
            cluster.record(namespace, true);
        }
        let before = (cluster.plan(), cluster.world.first_claims().map(|it| it.claimed));
        let told = shuffled(cluster.everything(), seed);
        cluster.world = begun(&cluster.door, told);
        prop_assert_eq!((cluster.plan(), cluster.world.first_claims().map(|it| it.claimed)), before);
    }
}
