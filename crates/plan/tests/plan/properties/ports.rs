//! Who has which port of hosts' own addresses: a controller and a host that start are told what statuses say, and then have it
//! as the controller had it that ran until now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;
use seaway_model::{
    Change, Config, Fact, Owner, Time,
    config::AddressPoolRules,
    fact::{AddressPool, FactRef, HostReport, Meta, Node, Service, TargetPort},
    outcome::{PortStatus, ServingSocket},
};
use seaway_plan::{Roles, World};
use seaway_testkit::{
    facts::{ip, owner, pool, put, service, synced},
    properties::cases,
};

use super::shuffled;

const PORTS: [u16; 3] = [80, 81, 82];

#[derive(Clone, Debug)]
enum Event {
    /// It comes, or asks for other ports. Those of a higher number are older.
    Asks(usize, Vec<u16>),
    Deleted(usize),
    HostComes(usize),
    HostGoes(usize),
    Restart(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let ports = prop::sample::subsequence(PORTS.to_vec(), 1..=PORTS.len());
    prop_oneof![
        8 => (0..4usize, ports).prop_map(|(number, ports)| Event::Asks(number, ports)),
        2 => (0..4usize).prop_map(Event::Deleted),
        4 => (0..3usize).prop_map(Event::HostComes),
        1 => (0..3usize).prop_map(Event::HostGoes),
        1 => any::<u64>().prop_map(Event::Restart),
    ]
}

fn of_hosts() -> Change {
    let Change::Put(Fact::AddressPool(ranges)) = pool(("192.0.2.10", "192.0.2.13")) else {
        panic!("is a pool")
    };
    let ours = AddressPool { hosts: true, ranges: Vec::new(), ..AddressPool::clone(&ranges) };
    Change::Put(Fact::AddressPool(Arc::new(ours)))
}

fn name(at: usize) -> String {
    format!("host-{at}")
}

struct Cluster {
    controller: World,
    services: BTreeMap<usize, Service>,
    hosts: BTreeSet<usize>,
}

impl Cluster {
    fn tell(&mut self, change: Change) {
        self.controller.apply(change);
        self.write();
    }

    /// Statuses are written, and read.
    fn write(&mut self) {
        loop {
            let said = |it: &Service| {
                let status = self.controller.status(&owner(it));
                let published = status.as_ref().map(|it| it.addresses.clone()).unwrap_or_default();
                let is_published = |it: &PortStatus| it.lacks.is_none() && published.contains(&it.at.ip);
                let ports = status.iter().flat_map(|it| &it.ports).filter(|it| is_published(it));
                let published_ports = ports.map(|it| it.at.clone()).collect();
                Service { published, published_ports, published_by_us: true, ..it.clone() }
            };
            let written: BTreeMap<usize, Service> =
                self.services.iter().map(|(number, it)| (*number, said(it))).collect();
            if written == self.services {
                return;
            }
            written.values().for_each(|it| drop(self.controller.apply(put(it))));
            self.services = written;
        }
    }

    fn of_host(at: usize) -> [Change; 2] {
        let address = ip(&format!("198.51.100.{}", at + 1));
        let meta = Meta { name: name(at).as_str().into(), ..Meta::default() };
        let node = Node { meta, addresses: vec![address], ..Node::default() };
        let report =
            HostReport { host: name(at).as_str().into(), addresses: vec![address], ..HostReport::default() };
        [Change::Put(Fact::Node(Arc::new(node))), Change::Put(Fact::Host(Arc::new(report)))]
    }

    /// One that begins now, and is told all in any order.
    fn started(&self, host: Option<usize>, seed: u64) -> World {
        let config = Config { pools: AddressPoolRules::CLUSTER, ..Config::default() };
        let host_name = host.map(|at| name(at).as_str().into());
        let mut world = World::new(Roles { allocate: false, host: host_name }, Vec::new(), Arc::new(config));
        world.apply(Change::Time(Time(0)));
        let hosts = self.hosts.iter().flat_map(|at| Cluster::of_host(*at));
        let all = self.services.values().map(put).chain(hosts).chain([of_hosts()]).collect();
        for change in shuffled(all, seed).into_iter().chain(synced()) {
            world.apply(change);
        }
        if host.is_none() {
            world.apply(Change::Leads(true));
        }
        world
    }

    fn happens(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match event {
            Event::Asks(number, ports) => {
                let ports: Vec<_> = ports.iter().map(|it| ("", *it, TargetPort::Number(*it))).collect();
                let mut asking = service(&format!("s{number}"), &ports);
                asking.meta.created = Some(Time(10 - *number as u64));
                if let Some(before) = self.services.get(number) {
                    let ports = asking.ports;
                    asking = Service { ports, ..before.clone() };
                }
                self.services.insert(*number, asking.clone());
                self.tell(put(&asking));
            }
            Event::Deleted(number) => {
                if let Some(gone) = self.services.remove(number) {
                    self.tell(Change::Gone(FactRef::Object(owner(&gone).object())));
                }
            }
            Event::HostComes(at) => {
                self.hosts.insert(*at);
                // It knows what was written until now.
                let joining = self.started(Some(*at), 7);
                Cluster::of_host(*at).into_iter().for_each(|it| self.tell(it));
                prop_assert_eq!(&self.who(&joining), &self.who(&self.controller), "host {} joins", at);
            }
            Event::HostGoes(at) => {
                if self.hosts.remove(at) {
                    self.tell(Change::Gone(FactRef::Host(name(*at).as_str().into())));
                }
            }
            Event::Restart(seed) => {
                self.controller = self.started(None, *seed);
                self.write();
            }
        }
        Ok(())
    }

    fn who(&self, world: &World) -> BTreeMap<ServingSocket, Owner> {
        let owners = self.services.values().map(owner);
        let ports = owners.flat_map(|owner| {
            let ports = world.status(&owner).map(|it| it.ports).unwrap_or_default();
            let has = |it: PortStatus| it.lacks.is_none().then_some(it.at);
            ports.into_iter().filter_map(has).map(move |at| (at, owner.clone())).collect::<Vec<_>>()
        });
        ports.collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(200), ..ProptestConfig::default() })]

    #[test]
    fn who_starts_gives_each_port_of_hosts_addresses_to_whom_it_was_given(
        events in prop::collection::vec(any_event(), 0..40), seed in any::<u64>(),
    ) {
        let config = Config { pools: AddressPoolRules::CLUSTER, ..Config::default() };
        let controller = World::new(Roles::default(), Vec::new(), Arc::new(config));
        let mut cluster = Cluster { controller, services: BTreeMap::new(), hosts: BTreeSet::new() };
        cluster.happens(&Event::Restart(0))?;
        events.iter().try_for_each(|it| cluster.happens(it))?;
        let before = cluster.who(&cluster.controller);
        let asked = cluster.services.values().flat_map(|it| &it.ports).map(|it| it.port);
        let asked = asked.collect::<BTreeSet<_>>().len() * cluster.hosts.len();
        prop_assert!(before.len() >= asked, "each port is had at each host that is there: {:?}", before);
        prop_assert_eq!(&cluster.who(&cluster.started(None, seed)), &before, "a controller");
        for at in cluster.hosts.iter().copied() {
            prop_assert_eq!(&cluster.who(&cluster.started(Some(at), seed)), &before, "host {}", at);
        }
    }
}
