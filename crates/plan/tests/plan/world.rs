//! The World, told facts and asked what should be: no cluster, no clock, no socket.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use seaway_model::{
    Address, Change, Config, Desired, Fact, Kind, L4, Name, ObjectRef, Outcome, Owner, Problem, Reason, Unit,
    WorkItem,
    config::ExposedPort,
    fact::{Endpoints, FactRef, ResolvedName, Service, ServiceKind, TargetPort},
    load_balancer::{Bind, MemberState},
    outcome::{ServingSocket, UnitState},
    unit::{LbKey, Place},
};
use seaway_plan::{Demand, Placement, Roles, ServiceKey, World, dry_run, explain::explain};
use seaway_testkit::facts::{
    HOST, endpoint, host, ip, owner, pool, put, put_slice, service, shop, slice, synced,
};

struct OnHost;

impl Placement for OnHost {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        vec![unit(demand.owner.clone())]
    }
}

fn unit(owner: Owner) -> Unit {
    Unit::LoadBalancer(Place::Host { name: HOST.into(), driver: "native".into() }, LbKey::Of(owner))
}

fn world_with(config: Config) -> World {
    World::new(Roles { allocate: true, host: Some(HOST.into()) }, vec![Arc::new(OnHost)], Arc::new(config))
}

/// A World that was told `changes`, then that this is all, its addresses written as they are claimed.
fn world(changes: Vec<Change>) -> World {
    let mut world = world_with(Config::default());
    dry_run(&mut world, changes.into_iter().chain(synced()));
    world
}

fn load_balancer(world: &World, owner: &Owner) -> Arc<seaway_model::LoadBalancer> {
    match world.desire(&unit(owner.clone())) {
        Desired::LoadBalancer(it) => it,
        other => panic!("no load balancer but {other:?}"),
    }
}

fn members(world: &World, service: &Service) -> Vec<(String, MemberState)> {
    let pools = &load_balancer(world, &owner(service)).pools;
    pools.values().flat_map(|pool| pool.members.iter().map(|it| (it.at.to_string(), it.state))).collect()
}

fn reasons(world: &World) -> BTreeSet<Reason> {
    world.problems().into_iter().map(|it| it.reason).collect()
}

#[test]
fn nothing_is_planned_before_everything_was_told() {
    let mut world = world_with(Config::default());
    let before: Vec<WorkItem> =
        [put(&shop()), host(&["192.0.2.5"], &[])].into_iter().flat_map(|it| world.apply(it)).collect();
    assert_eq!(before, []);
    assert!(!world.is_settled());
    let kinds: Vec<Change> = synced();
    let dirt: Vec<WorkItem> = kinds.into_iter().flat_map(|it| world.apply(it)).collect();
    assert!(dirt.contains(&WorkItem::Unit(unit(owner(&shop())))), "{dirt:?}");
}

#[test]
fn without_a_pool_a_service_is_on_the_hosts_own_addresses() {
    let world = world(vec![
        put(&shop()),
        put_slice(&slice("shop", ("", 80), vec![endpoint("10.0.0.1")])),
        host(&["192.0.2.5"], &[]),
    ]);
    let lb = load_balancer(&world, &owner(&shop()));
    assert_eq!(lb.binds, [Bind::Host(ip("192.0.2.5"))]);
    assert_eq!(members(&world, &shop()), [("10.0.0.1:80".to_owned(), MemberState::Ready)]);
    assert_eq!(world.problems(), []);
}

#[test]
fn an_address_of_a_pool_is_used_only_once_it_is_written() {
    let mut world = world_with(Config::default());
    let changes = vec![pool(("192.0.2.10", "192.0.2.11")), put(&shop()), host(&[], &[])];
    let dirt: Vec<WorkItem> = changes.into_iter().chain(synced()).flat_map(|it| world.apply(it)).collect();
    let claim = Unit::Address(ip("192.0.2.10"));
    assert!(dirt.contains(&WorkItem::Unit(claim.clone())));
    assert_eq!(load_balancer(&world, &owner(&shop())).binds, []);

    let Desired::Address(address) = world.desire(&claim) else { panic!("claimed") };
    let dirt = world.apply(Change::Put(Fact::Address(address)));
    assert_eq!(load_balancer(&world, &owner(&shop())).binds, [Bind::Ledger(ip("192.0.2.10"))]);
    assert!(dirt.contains(&WorkItem::Unit(Unit::HostAddresses(HOST.into()))), "{dirt:?}");
    let Desired::HostAddresses(present) = world.desire(&Unit::HostAddresses(HOST.into())) else {
        panic!("present")
    };
    assert_eq!(present.addresses.into_keys().collect::<Vec<_>>(), [ip("192.0.2.10")]);
}

#[test]
fn a_claim_that_cannot_be_written_is_told_in_the_status_of_who_made_it() {
    let mut world = world_with(Config::default());
    let first = vec![pool(("192.0.2.5", "192.0.2.5")), put(&shop()), host(&[], &[])];
    for change in first.into_iter().chain(synced()) {
        world.apply(change);
    }
    let whose = owner(&shop());
    let problem = Problem::new(whose.object(), Reason::StateUnwritable, "the disk is full");
    let dirt = world.apply(Change::Outcome(Outcome {
        unit: Unit::Address(ip("192.0.2.5")),
        state: UnitState::Done,
        facts: vec![],
        problems: vec![(whose.clone(), problem.clone())],
        serving: vec![],
    }));
    assert!(dirt.contains(&WorkItem::Unit(Unit::Status(whose.clone()))), "{dirt:?}");
    let status = world.status(&whose).expect("it is ours");
    assert!(status.problems.contains(&problem), "{status:?}");
}

#[test]
fn an_endpoint_that_changes_dirties_its_pool_alone() {
    let mut world = world(vec![
        put(&shop()),
        put_slice(&slice("shop", ("", 80), vec![endpoint("10.0.0.1")])),
        host(&["192.0.2.5"], &[]),
    ]);
    let dirt =
        world.apply(put_slice(&slice("shop", ("", 80), vec![endpoint("10.0.0.1"), endpoint("10.0.0.2")])));
    let (pools, others): (Vec<&WorkItem>, Vec<&WorkItem>) =
        dirt.iter().partition(|it| matches!(it, WorkItem::Pool(..)));
    assert_eq!(pools.len(), 1);
    assert_eq!(others, [&WorkItem::Unit(Unit::Status(owner(&shop())))]);
    let WorkItem::Pool(unit, id) = pools[0] else { unreachable!() };
    assert_eq!(world.member_pool(unit, id).expect("it is there").members.len(), 2);
}

#[test]
fn what_is_told_again_unchanged_dirties_nothing() {
    let slice = slice("shop", ("", 80), vec![endpoint("10.0.0.1")]);
    let mut world = world(vec![put(&shop()), put_slice(&slice), host(&["192.0.2.5"], &[])]);
    for change in [put(&shop()), put_slice(&slice), host(&["192.0.2.5"], &[])] {
        assert_eq!(world.apply(change), []);
    }
}

#[test]
fn endpoints_are_joined_by_port_name_then_by_target_port() {
    /// The target, the Service's port name, a slice's port, and what they come to.
    type Case = (TargetPort, &'static str, (&'static str, u16), Option<u16>);
    let table: [Case; 6] = [
        (TargetPort::Number(80), "", ("", 8000), Some(8000)),
        (TargetPort::Number(80), "http", ("http", 8000), Some(8000)),
        (TargetPort::Number(80), "http", ("", 80), Some(80)),
        (TargetPort::Name("web".into()), "http", ("web", 8000), Some(8000)),
        (TargetPort::Number(80), "http", ("other", 8000), None),
        (TargetPort::Name("web".into()), "http", ("other", 80), None),
    ];
    for (target, name, has, expected) in table {
        let service = service("shop", &[(name, 8080, target.clone())]);
        let world = world(vec![
            put(&service),
            put_slice(&slice("shop", has, vec![endpoint("10.0.0.1")])),
            host(&["192.0.2.5"], &[]),
        ]);
        let found: Vec<String> = members(&world, &service).into_iter().map(|it| it.0).collect();
        let expected: Vec<String> = expected.iter().map(|port| format!("10.0.0.1:{port}")).collect();
        assert_eq!(found, expected, "port {name:?} to {target:?}, slice has {has:?}");
        assert_eq!(reasons(&world).contains(&Reason::NoSuchPort), expected.is_empty());
    }
}

#[test]
fn a_weight_that_is_none_is_a_problem_and_not_just_another_weight() {
    let table = [
        ("5", 5, false),
        ("0", 0, false),
        ("1000000", 1_000_000, false),
        ("-1", 1, true),
        ("abc", 1, true),
        ("0.5", 1, true),
        ("90%", 1, true),
        ("", 1, true),
        ("1000001", 1_000_000, true),
        ("99999999999", 1_000_000, true),
    ];
    for (text, weight, is_problem) in table {
        let mut weighed = slice("shop", ("", 80), vec![endpoint("10.0.0.1")]);
        weighed.annotations.insert("seaway.dev/weight".into(), text.into());
        let world = world(vec![put(&shop()), put_slice(&weighed), host(&["192.0.2.5"], &[])]);
        let pools = &load_balancer(&world, &owner(&shop())).pools;
        let weights: Vec<u32> = pools.values().flat_map(|it| &it.members).map(|it| it.weight).collect();
        assert_eq!(weights, [weight], "{text:?}");
        let problems = world.problems();
        let told = problems.iter().find(|it| it.reason == Reason::BadAnnotation).map(|it| it.message.clone());
        assert_eq!(told.is_some(), is_problem, "{text:?}: {problems:?}");
        assert!(
            told.is_none_or(|it| it.contains("EndpointSlice shop-1") && it.contains(&format!("{text:?}")))
        );
    }
}

/// As a cluster writes them where the selector finds no pod.
#[test]
fn slices_without_endpoints_and_ports_are_nobody_and_no_wrong_port() {
    let nobody = Endpoints { ports: Vec::new(), ..slice("shop", ("", 80), vec![]) };
    let world = world(vec![put(&shop()), put_slice(&nobody), host(&["192.0.2.5"], &[])]);
    assert_eq!(reasons(&world), [Reason::NoEndpoints].into());
}

#[test]
fn terminating_members_drain_and_the_not_ready_are_left_out() {
    let mut terminating = endpoint("10.0.0.2");
    (terminating.ready, terminating.terminating) = (false, true);
    let mut failed = endpoint("10.0.0.3");
    (failed.ready, failed.serving) = (false, false);
    let slice = slice("shop", ("", 80), vec![endpoint("10.0.0.1"), terminating, failed]);
    let world_of =
        |service: &Service| world(vec![put(service), put_slice(&slice), host(&["192.0.2.5"], &[])]);
    let found = members(&world_of(&shop()), &shop());
    assert_eq!(
        found,
        [("10.0.0.1:80".to_owned(), MemberState::Ready), ("10.0.0.2:80".to_owned(), MemberState::Draining)]
    );

    let mut all = shop();
    all.publish_not_ready = true;
    assert_eq!(members(&world_of(&all), &all).len(), 3);
}

#[test]
fn several_slices_are_one_pool_and_an_address_in_two_counts_once() {
    let mut second = slice("shop", ("", 80), vec![endpoint("10.0.0.1"), endpoint("10.0.0.2")]);
    second.object.name = "shop-2".into();
    let first = slice("shop", ("", 80), vec![endpoint("10.0.0.1")]);
    let mut world =
        world(vec![put(&shop()), put_slice(&first), put_slice(&second), host(&["192.0.2.5"], &[])]);
    assert_eq!(members(&world, &shop()).len(), 2);
    world.apply(Change::Gone(FactRef::Endpoints(second.object.clone(), 0)));
    assert_eq!(members(&world, &shop()).len(), 1);
}

#[test]
fn a_selector_without_slices_is_a_problem_that_prints_the_slice_to_write() {
    let mut service = shop();
    service.selector.insert("app".into(), "shop".into());
    let world = world(vec![put(&service), host(&["192.0.2.5"], &[])]);
    let problem = world.problems().remove(0);
    assert_eq!(problem.reason, Reason::NoEndpoints);
    assert!(problem.fix.contains("kubernetes.io/service-name: shop"), "{}", problem.fix);
    assert!(problem.fix.contains("port: 80"), "{}", problem.fix);
}

#[test]
fn a_port_that_the_configuration_names_is_served_without_being_a_load_balancer() {
    let mut mysql = service("mysql", &[("", 3306, TargetPort::Number(3306))]);
    mysql.kind = ServiceKind::NodePort;
    let exposed = |service: &str| ExposedPort {
        key: "tcpServices[0]".into(),
        l4: L4::Tcp,
        namespace: "default".into(),
        service: service.into(),
        port: TargetPort::Number(3306),
        listen: Some(13306),
        address: None,
    };
    let mut world = world_with(Config { exposed: vec![exposed("mysql")], ..Config::default() });
    let slice = slice("mysql", ("", 3306), vec![endpoint("10.0.0.1")]);
    dry_run(
        &mut world,
        vec![put(&mysql), put_slice(&slice), host(&["192.0.2.5"], &[])].into_iter().chain(synced()),
    );
    let asked = Owner::Config("tcpServices[0]".into());
    let lb = load_balancer(&world, &asked);
    assert_eq!(lb.listeners.keys().map(ToString::to_string).collect::<Vec<_>>(), ["13306/TCP"]);
    assert_eq!(lb.pools.values().next().expect("a pool").members.len(), 1);

    world.apply(Change::Gone(FactRef::Object(ObjectRef::new(Kind::Service, "default", "mysql"))));
    assert_eq!(reasons(&world), BTreeSet::from([Reason::NoSuchService]));
    assert_eq!(world.desire(&unit(asked.clone())), Desired::Absent);
    dry_run(&mut world, vec![put(&mysql)]);
    assert_eq!(load_balancer(&world, &asked).listeners.len(), 1);
}

#[test]
fn a_name_outside_is_resolved_and_its_last_answer_kept() {
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
    let mut world = world_with(Config { exposed: vec![exposed], ..Config::default() });
    let dirt: Vec<WorkItem> = vec![put(&external), host(&["192.0.2.5"], &[])]
        .into_iter()
        .chain(synced())
        .flat_map(|it| world.apply(it))
        .collect();
    let asked = Unit::Name("db.example".into());
    assert!(dirt.contains(&WorkItem::Unit(asked.clone())), "{dirt:?}");
    assert_eq!(reasons(&world), BTreeSet::from([Reason::NameUnresolved]));

    let answer =
        ResolvedName { name: "db.example".into(), addresses: vec![ip("198.51.100.1"), ip("2001:db8::1")] };
    let facts = vec![Fact::Name(Arc::new(answer))];
    let outcome = Outcome {
        unit: asked.clone(),
        state: UnitState::Pending(Duration::from_secs(9)),
        facts,
        problems: vec![],
        serving: vec![],
    };
    world.apply(Change::Outcome(outcome.clone()));
    let pool = || {
        load_balancer(&world, &Owner::Config("tcpServices[0]".into()))
            .pools
            .values()
            .next()
            .expect("a pool")
            .clone()
    };
    assert_eq!(
        pool().members.iter().map(|it| it.at.to_string()).collect::<Vec<_>>(),
        ["198.51.100.1:5432", "[2001:db8::1]:5432"]
    );
    assert_eq!(world.problems(), []);

    let failed = UnitState::Failed { why: "no answer".into(), retry: Duration::from_secs(1) };
    world.apply(Change::Outcome(Outcome { state: failed, facts: vec![], ..outcome }));
    assert_eq!(
        load_balancer(&world, &Owner::Config("tcpServices[0]".into()))
            .pools
            .values()
            .next()
            .expect("a pool")
            .members
            .len(),
        2
    );
}

#[test]
fn two_services_that_want_one_port_of_the_host_spoil_only_the_younger() {
    let mut other =
        service("other", &[("a", 8080, TargetPort::Number(80)), ("b", 8081, TargetPort::Number(80))]);
    other.meta.created = Some(seaway_model::Time(5));
    let world = world(vec![put(&shop()), put(&other), host(&["192.0.2.5"], &[])]);
    assert_eq!(load_balancer(&world, &owner(&shop())).listeners.len(), 1);
    let spoiled = load_balancer(&world, &owner(&other));
    assert_eq!(spoiled.listeners.keys().map(|it| it.port).collect::<Vec<_>>(), [8081]);
    let conflict =
        world.problems().into_iter().find(|it| it.reason == Reason::PortConflict).expect("it is told");
    assert_eq!(conflict.object.name.as_str(), "other");
    assert_eq!(conflict.field.as_str(), "spec.ports[0].port");
    assert!(conflict.message.contains("default/shop"), "{}", conflict.message);
}

#[test]
fn a_released_address_is_given_again_only_after_the_host_let_it_go() {
    let mut world = world(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop()), host(&[], &["192.0.2.10"])]);
    let lb = unit(owner(&shop()));
    let serving = vec![ServingSocket { ip: ip("192.0.2.10"), protocol: L4::Tcp, port: 8080 }];
    let told = |unit: &Unit, state, serving| {
        Change::Outcome(Outcome { unit: unit.clone(), state, facts: vec![], problems: vec![], serving })
    };
    world.apply(told(&lb, UnitState::Done, serving));

    let second = service("second", &[("", 8080, TargetPort::Number(80))]);
    dry_run(&mut world, vec![put(&second)]);
    assert!(reasons(&world).contains(&Reason::PoolExhausted), "{:?}", world.problems());
    dry_run(
        &mut world,
        vec![Change::Gone(FactRef::Object(ObjectRef::new(Kind::Service, "default", "shop")))],
    );
    assert_eq!(load_balancer(&world, &owner(&second)).binds, [], "its host still serves and holds it");
    dry_run(&mut world, vec![told(&lb, UnitState::Absent, vec![])]);
    assert_eq!(load_balancer(&world, &owner(&second)).binds, [], "its host still holds it");
    dry_run(&mut world, vec![host(&[], &[])]);
    assert_eq!(load_balancer(&world, &owner(&second)).binds, [Bind::Ledger(ip("192.0.2.10"))]);
}

#[test]
fn addresses_stay_over_a_restart_in_whatever_order_things_are_told() {
    let first = service("first", &[("", 80, TargetPort::Number(80))]);
    let second = service("second", &[("", 80, TargetPort::Number(80))]);
    let stored = |owner: Owner, at: &str| {
        Change::Put(Fact::Address(Arc::new(Address {
            ip: ip(at),
            pool: "public".into(),
            sharing: None,
            owners: vec![owner],
            plan_version: seaway_model::address::PLAN_VERSION,
            ends: None,
            conflicts: Vec::new(),
            state: seaway_model::AddressState::Held,
            version: 0,
        })))
    };
    let told = [
        pool(("192.0.2.10", "192.0.2.20")),
        stored(owner(&first), "192.0.2.15"),
        stored(owner(&second), "192.0.2.12"),
        put(&first),
        put(&second),
        host(&[], &[]),
    ];
    for turn in 0..told.len() {
        let mut changes = told.to_vec();
        changes.rotate_left(turn);
        let world = world(changes);
        assert_eq!(load_balancer(&world, &owner(&first)).binds, [Bind::Ledger(ip("192.0.2.15"))]);
        assert_eq!(load_balancer(&world, &owner(&second)).binds, [Bind::Ledger(ip("192.0.2.12"))]);
    }
}

#[test]
fn a_status_says_ready_when_every_port_answers_on_a_present_address() {
    let mut world = world(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop()), host(&[], &[])]);
    let status = |world: &World| world.status(&owner(&shop())).expect("a status");
    assert!(!status(&world).ready);
    let serving = vec![ServingSocket { ip: ip("192.0.2.10"), protocol: L4::Tcp, port: 8080 }];
    let done = Outcome {
        unit: unit(owner(&shop())),
        state: UnitState::Done,
        facts: vec![],
        problems: vec![],
        serving,
    };
    let dirt = world.apply(Change::Outcome(done));
    assert!(dirt.contains(&WorkItem::Unit(Unit::Status(owner(&shop())))));
    assert!(!status(&world).ready, "nobody holds the address yet");
    world.apply(host(&[], &["192.0.2.10"]));
    assert!(status(&world).ready);
    assert_eq!(status(&world).addresses, [ip("192.0.2.10")]);
}

#[test]
fn a_service_of_another_class_is_left_alone_and_explained() {
    let mut other = shop();
    other.class = Some("somebody.else/lb".into());
    let world = world(vec![put(&other), host(&["192.0.2.5"], &[])]);
    assert_eq!(world.desire(&unit(owner(&other))), Desired::Absent);
    assert_eq!(world.problems(), []);
    let told = explain(&world, &ServiceKey::new("default", "shop")).expect("it is there");
    assert!(told.contains("the loadBalancerClass of the Service belongs to another controller"), "{told}");
    let unknown = explain(&world, &ServiceKey::new("default", "shpo")).expect_err("it is not there");
    assert!(unknown.contains("did you mean default/shop?"), "{unknown}");
}

#[test]
fn an_object_made_again_under_its_name_is_another_owner() {
    let mut world = world(vec![put(&shop()), host(&["192.0.2.5"], &[])]);
    let mut again = shop();
    again.meta.uid = "another".into();
    let dirt = world.apply(put(&again));
    assert_eq!(world.desire(&unit(owner(&shop()))), Desired::Absent);
    assert!(
        dirt.contains(&WorkItem::Unit(unit(owner(&shop()))))
            && dirt.contains(&WorkItem::Unit(unit(owner(&again))))
    );
    assert_eq!(load_balancer(&world, &owner(&again)).listeners.len(), 1);
}

#[test]
fn one_broken_service_spoils_only_itself() {
    let mut broken = service("broken", &[("", 9000, TargetPort::Name("nowhere".into()))]);
    broken.load_balancer_ip = Some("not an address".into());
    broken.meta.annotations.insert(Name::from("seaway.dev/balance"), Name::from("fastest"));
    let world = world(vec![
        put(&broken),
        put(&shop()),
        put_slice(&slice("shop", ("", 80), vec![endpoint("10.0.0.1")])),
        host(&["192.0.2.5"], &[]),
    ]);
    assert!(world.problems().iter().all(|it| it.object.name.as_str() == "broken"), "{:?}", world.problems());
    assert_eq!(world.problems().len(), 3);
    assert_eq!(members(&world, &shop()).len(), 1);
}

#[test]
fn an_address_that_is_asked_for_twice_is_told_unless_it_is_the_same() {
    for (field, told) in [("192.0.2.5", 0), ("192.0.2.6", 1)] {
        let mut shop = shop();
        shop.load_balancer_ip = Some(field.into());
        shop.meta.annotations.insert(Name::from("seaway.dev/address"), Name::from("192.0.2.5"));
        let world = world(vec![put(&shop), host(&["192.0.2.5"], &[])]);
        let problems = world.problems();
        let its = problems.iter().filter(|it| it.field.as_str() == "spec.loadBalancerIP");
        assert_eq!(its.count(), told, "{problems:?}");
    }
}

#[test]
fn with_local_traffic_only_the_hosts_own_endpoints_are_members() {
    let mut local = shop();
    local.local_only = true;
    let (mut here, mut there) = (endpoint("10.0.0.1"), endpoint("10.0.0.2"));
    here.node = Some(HOST.into());
    there.node = Some("edge-2".into());
    let world = world(vec![
        put(&local),
        put_slice(&slice("shop", ("", 80), vec![here, there])),
        host(&["192.0.2.5"], &[]),
    ]);
    assert_eq!(members(&world, &local), [("10.0.0.1:80".to_owned(), MemberState::Ready)]);
}
