//! Members that are listeners of our own: left out, told, and looked at again when what listens there changes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use seaway_model::{
    Change, Config, Desired, Fact, Kind, L4, ObjectRef, Outcome, Owner, Problem, Reason, Unit,
    config::{ExposedPort, FrontDoor, OpenPolicy},
    fact::{FactRef, HostReport, ResolvedName, Service, ServiceKind, TargetPort},
    outcome::{ServingSocket, UnitState},
    unit::{LbKey, Place},
};
use seaway_plan::{Demand, FRONT_DOOR, Placement, Roles, World, dry_run};
use seaway_testkit::facts::{HOST, endpoint, host, ip, owner, pool, put, put_slice, service, slice, synced};

struct OnHost;

impl Placement for OnHost {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        vec![unit(demand.owner.clone())]
    }

    fn front_door(&self, owner: &Owner) -> Vec<Unit> {
        vec![unit(owner.clone())]
    }
}

fn unit(owner: Owner) -> Unit {
    Unit::LoadBalancer(Place::Host { name: HOST.into(), driver: "native".into() }, LbKey::Of(owner))
}

fn world_with(config: Config, changes: Vec<Change>) -> World {
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(config));
    dry_run(&mut world, changes.into_iter().chain(synced()));
    world
}

fn shut() -> Config {
    Config { front_door: FrontDoor { opens: OpenPolicy::Never, ..FrontDoor::default() }, ..Config::default() }
}

fn open(port: u16) -> Config {
    Config {
        front_door: FrontDoor { opens: OpenPolicy::Always, port, ..FrontDoor::default() },
        ..Config::default()
    }
}

fn world(changes: Vec<Change>) -> World {
    world_with(shut(), changes)
}

/// Listens at that port, and has a member of the same name at each of these.
fn leads(name: &str, port: u16, members: &[&str]) -> [Change; 2] {
    let members: Vec<SocketAddr> = members.iter().map(|it| it.parse().expect("an address")).collect();
    let target = members.first().map_or(80, SocketAddr::port);
    let endpoints = members.iter().map(|at| endpoint(&at.ip().to_string())).collect();
    [
        put(&service(name, &[("", port, TargetPort::Number(target))])),
        put_slice(&slice(name, ("", target), endpoints)),
    ]
}

fn pools(world: &World, owner: Owner) -> Vec<String> {
    match world.desire(&unit(owner)) {
        Desired::LoadBalancer(it) => {
            it.pools.values().flat_map(|pool| &pool.members).map(|it| it.at.to_string()).collect()
        }
        other => panic!("no load balancer but {other:?}"),
    }
}

fn members(world: &World, name: &str) -> Vec<String> {
    pools(world, owner(&service(name, &[])))
}

fn loops(world: &World) -> Vec<Problem> {
    world.problems().into_iter().filter(|it| it.reason == Reason::Loop).collect()
}

#[test]
fn a_service_that_is_its_own_member_is_told_so_and_its_other_members_serve() {
    let world = world(
        [host(&[], &[]), pool(("192.0.2.10", "192.0.2.19"))]
            .into_iter()
            .chain(leads("a", 8080, &["192.0.2.10:8080", "10.0.0.1:8080"]))
            .collect(),
    );
    assert_eq!(members(&world, "a"), ["10.0.0.1:8080"]);
    let told = loops(&world);
    let [problem] = &told[..] else { panic!("{told:?}") };
    assert_eq!(problem.object, ObjectRef::new(Kind::Service, "default", "a"));
    assert_eq!(&*problem.field, "spec.ports[0]");
    assert_eq!(
        problem.message,
        "192.0.2.10:8080 (from EndpointSlice default/a-1) is the listener of this Service itself: Seaway sends nothing to \
         its own listeners, where it could go round in a loop; left out as members"
    );
    assert_eq!(
        problem.fix,
        "In EndpointSlice default/a-1, name the servers themselves instead of 192.0.2.10:8080."
    );
    let status = world.status(&owner(&service("a", &[]))).expect("it is ours");
    assert!(status.problems.contains(problem), "{status:?}");
}

#[test]
fn services_that_lead_to_each_other_lead_nowhere_in_whatever_order_they_come() {
    let ring: Vec<Change> = [("a", "192.0.2.11:1"), ("b", "192.0.2.12:1"), ("c", "192.0.2.10:1")]
        .into_iter()
        .flat_map(|(name, next)| leads(name, 1, &[next]))
        .collect();
    let first = || vec![host(&[], &[]), pool(("192.0.2.10", "192.0.2.19"))];
    for backwards in [false, true] {
        let mut ring = ring.clone();
        if backwards {
            ring.reverse();
        }
        let whole = world(first().into_iter().chain(ring.clone()).collect());
        let mut grown = world(first());
        dry_run(&mut grown, ring);
        for world in [&whole, &grown] {
            for name in ["a", "b", "c"] {
                assert_eq!(members(world, name), [""; 0], "{name}");
            }
            assert_eq!(loops(world).len(), 3, "{:?}", loops(world));
        }
    }
}

#[test]
fn a_member_serves_as_soon_as_nothing_of_ours_listens_there() {
    let mut world = world(
        [host(&[], &[]), pool(("192.0.2.10", "192.0.2.19"))]
            .into_iter()
            .chain(leads("a", 80, &["10.0.0.1:80"]))
            .chain(leads("b", 80, &["192.0.2.10:80"]))
            .collect(),
    );
    assert_eq!(members(&world, "b"), [""; 0]);
    assert_eq!(loops(&world)[0].object.name.as_str(), "b");
    // Another port there is nobody's of ours.
    dry_run(&mut world, leads("a", 81, &["10.0.0.1:80"]).to_vec());
    assert_eq!((members(&world, "b"), loops(&world)), (vec!["192.0.2.10:80".to_owned()], vec![]));
    dry_run(&mut world, leads("a", 80, &["10.0.0.1:80"]).to_vec());
    assert_eq!((members(&world, "b").len(), loops(&world).len()), (0, 1));
    dry_run(&mut world, vec![Change::Gone(FactRef::Object(ObjectRef::new(Kind::Service, "default", "a")))]);
    assert_eq!((members(&world, "b"), loops(&world)), (vec!["192.0.2.10:80".to_owned()], vec![]));
}

#[test]
fn other_protocols_and_other_ports_of_an_address_of_ours_are_members() {
    let mut dns = service("dns", &[("", 53, TargetPort::Number(53))]);
    dns.ports[0].protocol = L4::Udp;
    let of_dns = slice("dns", ("", 53), vec![endpoint("192.0.2.5")]);
    let mut of_dns = of_dns;
    of_dns.ports[0].protocol = L4::Udp;
    // A Node that serves, and has a member of its own at another port; a server that the host itself runs on loopback.
    let world = world(
        [host(&["192.0.2.5"], &[]), put(&dns), put_slice(&of_dns)]
            .into_iter()
            .chain(leads("a", 80, &["192.0.2.5:8080"]))
            .chain(leads("b", 53, &["192.0.2.5:5353"]))
            .chain(leads("c", 6379, &["127.0.0.1:6379"]))
            .collect(),
    );
    assert_eq!(members(&world, "a"), ["192.0.2.5:8080"]);
    assert_eq!(members(&world, "b"), ["192.0.2.5:5353"]);
    assert_eq!(members(&world, "c"), ["127.0.0.1:6379"], "we do not listen there, only at 192.0.2.5");
    assert_eq!(members(&world, "dns"), [""; 0], "its own listener");
    assert_eq!(loops(&world).len(), 1);
}

#[test]
fn an_address_that_another_cluster_publishes_is_a_member() {
    let world = world(
        [host(&["192.0.2.5"], &[]), pool(("192.0.2.10", "192.0.2.19"))]
            .into_iter()
            .chain(leads("a", 443, &["203.0.113.7:443", "192.0.2.19:443"]))
            .collect(),
    );
    // Of our pools, but nobody's.
    assert_eq!(members(&world, "a"), ["192.0.2.19:443", "203.0.113.7:443"]);
    assert_eq!(loops(&world), []);
}

#[test]
fn what_listens_at_all_addresses_is_reached_at_each_of_them() {
    let named = [
        "127.0.0.1:80",
        "127.9.9.9:80",
        "0.0.0.0:80",
        "[::1]:80",
        "[::ffff:127.0.0.1]:80",
        "192.0.2.5:80",
        "192.0.2.10:80",
        "10.0.0.1:80",
    ];
    let changes: Vec<Change> = [host(&["192.0.2.5"], &[]), pool(("192.0.2.10", "192.0.2.19"))]
        .into_iter()
        .chain(leads("a", 8080, &named))
        .collect();
    let mut world = world_with(open(80), changes.clone());
    assert_eq!(members(&world, "a"), ["10.0.0.1:80"]);
    let told = loops(&world);
    assert_eq!(told.len(), 1, "one for a port: {told:?}");
    assert!(
        told[0].message.contains("Seaway's own front door") && told[0].message.contains("and 4 more"),
        "{told:?}"
    );
    // Shut, or at another port, it is in nobody's way.
    for config in [shut(), open(81)] {
        world.apply(Change::Config(Arc::new(config)));
        dry_run(&mut world, vec![]);
        assert_eq!((members(&world, "a").len(), loops(&world)), (8, vec![]));
    }
    world.apply(Change::Config(Arc::new(open(80))));
    dry_run(&mut world, vec![]);
    assert_eq!(members(&world, "a"), ["10.0.0.1:80"]);
}

#[test]
fn a_host_that_gets_an_address_listens_there_too() {
    let mut world = world_with(
        open(80),
        [host(&["192.0.2.5"], &[])].into_iter().chain(leads("a", 8080, &["198.51.100.1:80"])).collect(),
    );
    assert_eq!(members(&world, "a"), ["198.51.100.1:80"]);
    let another = |addresses: &[&str]| {
        Change::Put(Fact::Host(Arc::new(HostReport {
            host: "edge-2".into(),
            addresses: addresses.iter().map(|it| ip(it)).collect(),
            ..HostReport::default()
        })))
    };
    dry_run(&mut world, vec![another(&["198.51.100.1"])]);
    assert_eq!((members(&world, "a").len(), loops(&world).len()), (0, 1));
    dry_run(&mut world, vec![another(&["198.51.100.2"])]);
    assert_eq!((members(&world, "a").len(), loops(&world).len()), (1, 0));
    dry_run(&mut world, vec![another(&["198.51.100.1"]), Change::Gone(FactRef::Host("edge-2".into()))]);
    assert_eq!((members(&world, "a").len(), loops(&world).len()), (1, 0));
}

/// What a host says of itself it knows. Another one could say that any address is its own, and so take members from Services.
#[test]
fn an_address_that_nobody_declared_of_another_host_stays_a_member() {
    let says = |name: &str, declared: &[&str]| {
        Change::Put(Fact::Host(Arc::new(HostReport {
            host: name.into(),
            addresses: vec![ip("198.51.100.1")],
            declared: Some(declared.iter().map(|it| ip(it)).collect()),
            ..HostReport::default()
        })))
    };
    for (name, declared, members_left) in
        [("edge-2", &[][..], 1), ("edge-2", &["198.51.100.1"], 0), (HOST, &[], 0)]
    {
        let members_of = leads("a", 8080, &["198.51.100.1:80"]);
        let world = world_with(open(80), [says(name, declared)].into_iter().chain(members_of).collect());
        assert_eq!(members(&world, "a").len(), members_left, "{name} {declared:?}");
    }
}

#[test]
fn a_service_at_the_front_door_is_not_led_back_to_it() {
    let mut web = service("web", &[("", 80, TargetPort::Number(80))]);
    web.kind = ServiceKind::ClusterIp;
    let behind = put_slice(&slice("web", ("", 80), vec![endpoint("192.0.2.5"), endpoint("10.0.0.1")]));
    let mut world = world_with(open(80), vec![host(&["192.0.2.5"], &[]), put(&web), behind]);
    let door = || Owner::Config(FRONT_DOOR.into());
    assert_eq!(pools(&world, door()), ["10.0.0.1:80"]);
    assert_eq!(loops(&world).len(), 1);
    let status = world.status(&owner(&web)).expect("a guest has one");
    assert!(status.problems.iter().any(|it| it.reason == Reason::Loop), "{status:?}");
    world.apply(Change::Config(Arc::new(open(81))));
    dry_run(&mut world, vec![]);
    assert_eq!(pools(&world, door()), ["10.0.0.1:80", "192.0.2.5:80"]);
    assert_eq!(loops(&world), []);
}

#[test]
fn a_dns_answer_is_refused_like_any_other_member() {
    let mut external = service("db", &[]);
    external.kind = ServiceKind::ExternalName("db.example".into());
    let exposed = ExposedPort {
        key: "tcpServices[0]".into(),
        l4: L4::Tcp,
        namespace: "default".into(),
        service: "db".into(),
        port: TargetPort::Number(5432),
        listen: None,
        address: None,
    };
    let config = Config { exposed: vec![exposed], ..shut() };
    let mut world = world_with(config, vec![put(&external), host(&["192.0.2.5"], &[])]);
    let answered = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|it| ip(it)).collect();
        let answer = ResolvedName { name: "db.example".into(), addresses };
        Change::Outcome(Outcome {
            unit: Unit::Name("db.example".into()),
            state: UnitState::Pending(Duration::from_secs(9)),
            facts: vec![Fact::Name(Arc::new(answer))],
            problems: vec![],
            serving: vec![],
        })
    };
    let asked = || Owner::Config("tcpServices[0]".into());
    dry_run(&mut world, vec![answered(&["192.0.2.5", "198.51.100.1"])]);
    assert_eq!(pools(&world, asked()), ["198.51.100.1:5432"]);
    let told = loops(&world);
    assert!(told[0].message.contains("192.0.2.5:5432 (from the name db.example)"), "{told:?}");
    dry_run(&mut world, vec![answered(&["198.51.100.1"])]);
    assert_eq!(loops(&world), []);
}

#[test]
fn the_status_page_is_refused_as_a_member() {
    let page = |at: &str| Config { status_page: vec![at.parse().expect("an address")], ..shut() };
    let changes: Vec<Change> = [host(&["192.0.2.5"], &[])]
        .into_iter()
        .chain(leads("a", 80, &["127.0.0.1:9090", "10.0.0.1:9090"]))
        .collect();
    for (at, serve) in [("127.0.0.1:9090", 1), ("[::]:9090", 1), ("127.0.0.1:9091", 2), ("[::1]:9090", 2)] {
        let world = world_with(page(at), changes.clone());
        assert_eq!(members(&world, "a").len(), serve, "{at}");
        assert_eq!(loops(&world).len(), 2 - serve, "{at}");
    }
}

#[test]
fn a_port_that_another_process_has_may_be_a_member() {
    let changes: Vec<Change> = [host(&["192.0.2.5"], &[])]
        .into_iter()
        .chain(leads("a", 80, &["127.0.0.1:80", "192.0.2.5:80"]))
        .collect();
    let mut world = world_with(open(80), changes);
    let concluded = |owner: Owner, taken: bool, serving: &[&str]| {
        let problem = Problem::new(owner.object(), Reason::PortInUse, "80/TCP is taken by nginx");
        let serving = serving.iter().map(|it| ServingSocket { ip: ip(it), protocol: L4::Tcp, port: 80 });
        Change::Outcome(Outcome {
            unit: unit(owner.clone()),
            state: UnitState::Done,
            facts: vec![],
            problems: taken.then_some((owner, problem)).into_iter().collect(),
            serving: serving.collect(),
        })
    };
    let (door, own) = (|| Owner::Config(FRONT_DOOR.into()), || owner(&service("a", &[])));
    assert_eq!(members(&world, "a"), [""; 0]);
    world.apply(concluded(door(), true, &[]));
    assert_eq!(members(&world, "a"), ["127.0.0.1:80"], "it is not the front door that answers there");
    world.apply(concluded(own(), true, &[]));
    assert_eq!(members(&world, "a"), ["127.0.0.1:80", "192.0.2.5:80"]);
    world.apply(concluded(own(), false, &["192.0.2.5"]));
    world.apply(concluded(door(), false, &["0.0.0.0", "::"]));
    assert_eq!((members(&world, "a").len(), loops(&world).len()), (0, 1));
}

#[test]
fn a_thousand_services_in_a_row_are_replanned_one_by_one() {
    // A thousand Services in a row, each with the next as its member: planned one by one, from either end.
    let row = |number: u32| {
        let next = std::net::Ipv4Addr::from(u32::from(std::net::Ipv4Addr::new(10, 9, 0, 0)) + number + 1);
        leads(&format!("s{number:04}"), 80, &[&format!("{next}:80")])
    };
    let numbers: Vec<u32> = (0..1000).rev().collect();
    let mut world = world(vec![host(&[], &[]), pool(("10.9.0.0", "10.9.15.255"))]);
    dry_run(&mut world, numbers.iter().flat_map(|it| row(*it)).collect::<Vec<_>>());
    assert!(loops(&world).len() >= 998, "{}", loops(&world).len());
    let gone: Vec<Change> = (numbers.iter())
        .map(|it| {
            Change::Gone(FactRef::Object(ObjectRef::new(Kind::Service, "default", format!("s{it:04}"))))
        })
        .collect();
    dry_run(&mut world, gone);
    assert_eq!(loops(&world), []);
}

#[test]
fn a_service_that_keeps_traffic_local_does_not_flicker() {
    let mut local = service("a", &[("", 80, TargetPort::Number(80))]);
    local.local_only = true;
    let behind = put_slice(&slice("a", ("", 80), vec![endpoint("192.0.2.10")]));
    let world = world(vec![host(&[], &[]), pool(("192.0.2.10", "192.0.2.19")), put(&local), behind]);
    assert_eq!(members(&world, "a"), [""; 0]);
    assert_eq!(loops(&world).len(), 1);
    let _: Service = local;
}
