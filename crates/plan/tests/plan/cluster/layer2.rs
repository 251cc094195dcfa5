//! Addresses that hosts announce by ARP and NDP: who offers which, and what is told of it.

use std::sync::Arc;

use seaway_model::{
    AddressState, AnnounceMode, Change, Config, Desired, Fact, Kind, ListenerId, ObjectRef, Outcome, Reason,
    Time, WorkItem,
    announced::{AnnouncedReason, ConditionStatus},
    fact::{AddressPool, FactRef, HostReport, HostStatus, Service, TargetPort},
    layer2::{Layer2, Layer2Peer, Layer2Progress, Layer2State},
    outcome::{ServingSocket, UnitState},
};
use seaway_plan::World;
use seaway_testkit::facts::{HOST, ip, owner, pool, put, put_slice, service, shop, slice};

use super::{
    pools::{leader, status, tell},
    scene::{PUBLIC, applied, heard, node, on_host, on_host_of, unit, written},
};

const AT: &str = "192.0.2.17";

fn layer2_pool() -> Change {
    let Change::Put(Fact::AddressPool(it)) = pool(PUBLIC) else { panic!("it is a pool") };
    let of = AddressPool { announce: Some(AnnounceMode::Layer2), ..AddressPool::clone(&it) };
    Change::Put(Fact::AddressPool(Arc::new(of)))
}

fn state(what: Layer2Progress) -> Layer2State {
    let detail = match what {
        Layer2Progress::Conflict | Layer2Progress::Contested => {
            "02:00:00:00:00:09; this host has 02:00:00:00:00:01"
        }
        _ => "",
    };
    Layer2State { what, interface: "eth0".into(), since: Time(1_795_798_984_000), detail: detail.into() }
}

fn says(host: &str, at: &str, what: Layer2Progress) -> Change {
    heard(HostReport { layer2: [(ip(at), state(what))].into(), ..applied(host, 9) })
}

/// This host, with the address on it.
fn here(layer2: Option<Layer2Progress>) -> HostReport {
    HostReport {
        host: HOST.into(),
        addresses: vec![ip("10.0.0.5")],
        holds: [ip(AT)].into(),
        applied: 5,
        layer2: layer2.into_iter().map(|what| (ip(AT), state(what))).collect(),
        ..HostReport::default()
    }
}

fn serving(service: &Service, more: Vec<Change>) -> World {
    let told =
        vec![layer2_pool(), put(service), written(AT, &[service], AddressState::Held, 5), heard(here(None))];
    let mut world = on_host(told.into_iter().chain(more).collect());
    open(&mut world, service);
    world
}

/// Its driver says that its sockets are open.
fn open(world: &mut World, service: &Service) {
    let unit = unit(&owner(service));
    let Desired::LoadBalancer(it) = world.desire(&unit) else { panic!("it is planned") };
    let at = |id: &ListenerId| ServingSocket { ip: ip(AT), protocol: id.l4, port: id.port };
    let serving = it.listeners.keys().map(at).collect();
    let (facts, problems) = (Vec::new(), Vec::new());
    let outcome = Outcome { unit, state: UnitState::Done, facts, problems, serving };
    world.apply(Change::Outcome(outcome));
}

fn offered(world: &World) -> Vec<String> {
    let wanted = world.layer2().expect("a host that knows all");
    wanted.offered.iter().map(ToString::to_string).collect()
}

#[test]
fn a_host_offers_what_it_serves_and_nothing_unless_a_pool_says_so() {
    let mut world = serving(&shop(), Vec::new());
    assert_eq!(offered(&world), [AT]);
    // It is not on this host any more.
    world.apply(heard(HostReport { holds: [].into(), ..here(None) }));
    assert_eq!(offered(&world), Vec::<String>::new());
    world.apply(heard(here(None)));
    assert_eq!(offered(&world), [AT]);
    // The machine has it itself: another program put it there.
    world.apply(heard(HostReport { addresses: vec![ip("10.0.0.5"), ip(AT)], ..here(None) }));
    assert_eq!(offered(&world), Vec::<String>::new());
    world.apply(heard(here(None)));

    assert!(world.has_layer2_pools());
    for announce in [None, Some(AnnounceMode::Static), Some(AnnounceMode::None)] {
        let Change::Put(Fact::AddressPool(it)) = pool(PUBLIC) else { panic!("it is a pool") };
        let of = AddressPool { announce, ..AddressPool::clone(&it) };
        world.apply(Change::Put(Fact::AddressPool(Arc::new(of))));
        assert!(!world.has_layer2_pools(), "{announce:?}");
        let wanted = world.layer2().expect("a host");
        assert!(!wanted.asked && wanted.offered.is_empty(), "{announce:?}: {wanted:?}");
    }
}

#[test]
fn a_host_serves_before_it_offers() {
    // No driver has said that the sockets are open.
    let mut world = on_host(vec![layer2_pool(), heard(here(None))]);
    world.apply(put(&shop()));
    world.apply(written(AT, &[&shop()], AddressState::Held, 5));
    assert_eq!(offered(&world), Vec::<String>::new());
    open(&mut world, &shop());
    assert_eq!(offered(&world), [AT]);
}

/// A port that no host can open does not take the others away.
#[test]
fn a_service_that_gets_a_port_is_offered_all_the_while() {
    let mut world = serving(&shop(), Vec::new());
    let more =
        service("shop", &[("main", 8080, TargetPort::Number(80)), ("more", 8081, TargetPort::Number(81))]);
    world.apply(put(&more));
    assert_eq!(offered(&world), [AT]);
}

/// Names of pools are often the same in a migration.
#[test]
fn an_address_of_a_pool_of_metallb_is_its_speakers() {
    let mut world = serving(&shop(), Vec::new());
    let Change::Put(Fact::AddressPool(it)) = pool(("192.0.2.10", "192.0.2.19")) else {
        panic!("it is a pool")
    };
    let object = ObjectRef::new(Kind::IPAddressPool, "metallb-system", "public");
    world.apply(Change::Put(Fact::AddressPool(Arc::new(AddressPool { object, ..AddressPool::clone(&it) }))));
    assert_eq!(offered(&world), Vec::<String>::new());
}

#[test]
fn a_node_that_is_excluded_offers_nothing() {
    let exclude = "node.kubernetes.io/exclude-from-external-load-balancers";
    let mut world = serving(&shop(), vec![node(HOST, "10.0.0.5", &[])]);
    assert_eq!(offered(&world), [AT]);
    world.apply(node(HOST, "10.0.0.5", &[exclude]));
    assert_eq!(offered(&world), Vec::<String>::new());
}

#[test]
fn with_local_traffic_only_a_host_with_members_offers() {
    let mut local = service("shop", &[("", 8080, TargetPort::Number(80))]);
    local.local_only = true;
    let on = |name: &str| {
        let mut endpoint = seaway_testkit::facts::endpoint("10.1.0.1");
        endpoint.node = Some(name.into());
        put_slice(&slice("shop", ("", 80), vec![endpoint]))
    };
    let mut world = serving(&local, vec![on(HOST)]);
    assert_eq!(offered(&world), [AT]);
    world.apply(on("another"));
    assert_eq!(offered(&world), Vec::<String>::new());
}

/// Its sockets close only after nobody is sent here any more.
#[test]
fn a_host_that_drains_withdraws_first_and_closes_its_sockets_then() {
    let shop = shop();
    let mut world = serving(&shop, vec![heard(here(Some(Layer2Progress::Announcing)))]);
    let is_open = |world: &World| match world.desire(&unit(&owner(&shop))) {
        Desired::LoadBalancer(it) => !it.listeners.is_empty(),
        other => panic!("no load balancer but {other:?}"),
    };
    world.apply(Change::HostDrains(true));
    assert_eq!(offered(&world), Vec::<String>::new(), "it is withdrawn at once");
    assert!(is_open(&world), "clients come until it is");
    let dirt = world.apply(heard(here(None)));
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&shop)))), "{dirt:?}");
    assert!(!is_open(&world));
    world.apply(Change::HostDrains(false));
    assert!(is_open(&world));
}

#[test]
fn a_pool_that_cannot_be_seen_withdraws_nothing() {
    let mut world = serving(&shop(), vec![heard(here(Some(Layer2Progress::Standby)))]);
    world.apply(Change::Gone(FactRef::Object(ObjectRef::new(Kind::AddressPool, "", "public"))));
    assert_eq!(offered(&world), [AT]);
    let never = {
        let mut world = serving(&shop(), Vec::new());
        world.apply(Change::Gone(FactRef::Object(ObjectRef::new(Kind::AddressPool, "", "public"))));
        world
    };
    assert_eq!(offered(&never), Vec::<String>::new(), "it was never announced");
}

#[test]
fn hosts_agree_with_all_others_by_the_addresses_of_their_nodes() {
    let other = |name: &str, at: &str| heard(HostReport { addresses: vec![ip(at)], ..applied(name, 5) });
    let config = Config {
        layer2: Layer2 {
            peers: vec![
                Layer2Peer { name: "z".into(), addresses: vec![ip("10.0.0.9")] },
                Layer2Peer { name: HOST.into(), addresses: vec![ip("10.0.0.5")] },
            ],
        },
        ..Config::default()
    };
    let told = vec![
        layer2_pool(),
        heard(here(None)),
        node("b", "10.0.0.7", &[]),
        other("b", "172.17.0.1"),
        other("c", "10.0.0.8"),
    ];
    let mut world = on_host_of(config, told);
    let peers = |world: &World| {
        let peers = world.layer2().expect("a host").peers;
        peers.iter().map(|it| format!("{} {}", it.name, it.addresses[0])).collect::<Vec<_>>()
    };
    assert_eq!(peers(&world), ["b 10.0.0.7", "c 10.0.0.8", "z 10.0.0.9"]);
    world.apply(Change::HostSilent("c".into()));
    assert_eq!(peers(&world), ["b 10.0.0.7", "c 10.0.0.8", "z 10.0.0.9"], "it may announce all the same");
    world.apply(Change::Gone(FactRef::Host("c".into())));
    assert_eq!(peers(&world), ["b 10.0.0.7", "z 10.0.0.9"]);
}

#[test]
fn it_is_announced_once_a_host_says_so() {
    let mut world = leader(vec![layer2_pool(), put(&shop())]);
    let told = |world: &World| {
        let told = status(world, &shop()).announced.expect("is told");
        (told.status, told.reason, told.message)
    };
    let at = "192.0.2.10";
    tell(&mut world, heard(applied("a", 5)));
    assert_eq!(
        told(&world),
        (
            ConditionStatus::Unknown,
            AnnouncedReason::Layer2Pending,
            format!("{at}: no host has reported yet that it announces this address (announce: l2)")
        )
    );
    let dirt = world.apply(says("a", at, Layer2Progress::Announcing));
    assert!(
        dirt.iter().any(|it| *it.unit() == seaway_model::Unit::Status(owner(&shop()))),
        "the Service is told: {dirt:?}"
    );
    let message = format!("{at}: host a announces this address on eth0 since 2026-11-27T17:03:04Z");
    assert_eq!(told(&world), (ConditionStatus::True, AnnouncedReason::Layer2, message));
    let object = ObjectRef::new(Kind::AddressPool, "", "public");
    let of_pool = world.pool_announced(&object).expect("it is there");
    assert_eq!(of_pool.reason, AnnouncedReason::Layer2);
    tell(&mut world, Change::Gone(FactRef::Host("a".into())));
    assert_eq!(told(&world).1, AnnouncedReason::Layer2Pending);
}

/// Without a cluster, hosts know of each other by heartbeats alone.
#[test]
fn a_host_that_stands_by_knows_who_announces() {
    let at = "192.0.2.10";
    let by = |detail: &str| {
        let standing = Layer2State { detail: detail.into(), ..state(Layer2Progress::Standby) };
        heard(HostReport { layer2: [(ip(at), standing)].into(), ..applied("a", 9) })
    };
    let mut world = leader(vec![layer2_pool(), put(&shop())]);
    tell(&mut world, by("b"));
    let announced = |world: &World| status(world, &shop()).announced.expect("is told");
    assert_eq!(announced(&world).reason, AnnouncedReason::Layer2);
    assert_eq!(announced(&world).message, format!("{at}: host b announces this address, reports host a"));
    tell(&mut world, by(""));
    assert_eq!(announced(&world).reason, AnnouncedReason::Layer2Pending);
}

#[test]
fn what_keeps_hosts_from_announcing_is_a_problem_with_its_fix() {
    for (what, reason, parts) in [
        (
            Layer2Progress::Conflict,
            Reason::AddressConflict,
            vec!["host a does not announce this address", "02:00:00:00:00:09", "02:00:00:00:00:01"],
        ),
        (
            Layer2Progress::Contested,
            Reason::AddressConflict,
            vec!["announces this address, and another machine"],
        ),
        (Layer2Progress::NoKey, Reason::Layer2Failed, vec!["no key", "openssl rand -hex 32"]),
        (Layer2Progress::NotPermitted, Reason::NotPermitted, vec!["NET_RAW"]),
        (
            Layer2Progress::NoInterface,
            Reason::Layer2Failed,
            vec!["no interface of the host", "announce: static"],
        ),
        (Layer2Progress::Isolated, Reason::Layer2Failed, vec!["no gateway"]),
    ] {
        let mut world = leader(vec![layer2_pool(), put(&shop())]);
        tell(&mut world, says("a", "192.0.2.10", what));
        let told = status(&world, &shop());
        let announced = told.announced.clone().expect("is told");
        assert_eq!(announced.reason, AnnouncedReason::Layer2Failed, "{what:?}");
        let problem = told.problems.iter().find(|it| it.reason == reason);
        let text = format!("{:?}", problem.expect("a Problem"));
        for part in parts {
            assert!(text.contains(part), "{what:?}: no {part}: {text}");
        }
        // Another host can.
        tell(&mut world, says("b", "192.0.2.10", Layer2Progress::Announcing));
        let told = status(&world, &shop());
        assert_eq!(told.announced.expect("is told").reason, AnnouncedReason::Layer2, "{what:?}");
        assert!(told.problems.iter().all(|it| it.reason != reason), "{what:?}: {:?}", told.problems);
    }
}

#[test]
fn a_pool_that_is_not_to_be_announced_says_so_and_advises_nothing() {
    let Change::Put(Fact::AddressPool(it)) = pool(PUBLIC) else { panic!("it is a pool") };
    let of = AddressPool { announce: Some(AnnounceMode::None), ..AddressPool::clone(&it) };
    let world = leader(vec![Change::Put(Fact::AddressPool(Arc::new(of))), put(&shop())]);
    let told = status(&world, &shop());
    let announced = told.announced.expect("is told");
    assert_eq!((announced.status, announced.reason), (ConditionStatus::False, AnnouncedReason::Disabled));
    assert!(announced.message.contains("announce: none"), "{}", announced.message);
}

#[test]
fn a_host_reports_what_it_announces_and_not_what_it_only_stands_by_for() {
    let states = [
        (ip(AT), state(Layer2Progress::Announcing)),
        (ip("192.0.2.18"), state(Layer2Progress::Standby)),
        (ip("192.0.2.19"), state(Layer2Progress::Conflict)),
    ];
    let world = on_host(vec![heard(HostReport { layer2: states.into(), ..here(None) })]);
    let said = world.said().expect("a host").layer2;
    assert_eq!(said.keys().copied().collect::<Vec<_>>(), [ip(AT), ip("192.0.2.19")]);

    let many = (0..2_000_u32)
        .map(|it| (ip(&format!("10.9.{}.{}", it / 250, it % 250)), state(Layer2Progress::Announcing)));
    let world = on_host(vec![heard(HostReport { layer2: many.collect(), ..here(None) })]);
    assert_eq!(world.said().expect("a host").layer2.len(), HostStatus::MAX_LAYER2);
}
