//! One namespace has no more listeners and members than it may.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Kind, ObjectRef, Problem, Reason, Time, Unit,
    config::{TenantLimits, Tenants},
    fact::{EndpointPort, FactRef, FamilyPolicy, Service, TargetPort},
    load_balancer::Family,
};
use seaway_plan::{Roles, World, dry_run};
use seaway_testkit::facts::{self, endpoint, host, owner, put, put_slice, slice, synced};

use crate::cluster::scene::{on_host_of, unit};

fn limited(listeners: Option<u32>, members: Option<u32>) -> Config {
    let limits = TenantLimits { listeners, members, ..TenantLimits::default() };
    Config { tenants: Tenants { limits, ..Tenants::default() }, ..Config::default() }
}

fn service(name: &str, created: u64, ports: &[u16]) -> Service {
    let named: Vec<String> = ports.iter().map(|it| format!("p{it}")).collect();
    let ports: Vec<_> =
        named.iter().zip(ports).map(|(name, at)| (name.as_str(), *at, TargetPort::Number(80))).collect();
    let mut service = facts::service(name, &ports);
    service.meta.created = Some(Time(created));
    service
}

/// Behind each of its ports.
fn backed(service: &Service, endpoints: &[&str]) -> Change {
    let all = endpoints.iter().map(|it| endpoint(it)).collect();
    let mut slice = slice(&service.meta.name, ("", 80), all);
    slice.object.namespace = service.meta.namespace.clone();
    let port = slice.ports[0].clone();
    slice.ports =
        service.ports.iter().map(|it| EndpointPort { name: it.name.clone(), ..port.clone() }).collect();
    put_slice(&slice)
}

fn world(config: Config, changes: Vec<Change>) -> World {
    on_host_of(config, [host(&["192.0.2.5", "2001:db8::5"], &[])].into_iter().chain(changes).collect())
}

fn listens(world: &World, service: &Service) -> usize {
    match world.desire(&unit(&owner(service))) {
        Desired::LoadBalancer(it) => it.listeners.len(),
        other => panic!("no load balancer but {other:?}"),
    }
}

fn members(world: &World, service: &Service) -> Vec<String> {
    match world.desire(&unit(&owner(service))) {
        Desired::LoadBalancer(it) => {
            it.pools.values().flat_map(|pool| &pool.members).map(|it| it.at.ip().to_string()).collect()
        }
        other => panic!("no load balancer but {other:?}"),
    }
}

fn told(world: &World) -> Vec<String> {
    let all = world.problems().into_iter().filter(|it| it.reason == Reason::LimitReached);
    all.map(|it| format!("{}: {}", it.object.name, it.message)).collect()
}

#[test]
fn the_oldest_services_of_a_namespace_listen_and_those_of_others_too() {
    let first = service("first", 1, &[1001, 1002]);
    let second = service("second", 2, &[2001, 2002]);
    let small = service("a-small", 3, &[3001]);
    let mut other = service("other", 9, &[4001, 4002, 4003]);
    other.meta.namespace = "other".into();
    let all: Vec<Change> = [&first, &second, &small, &other].into_iter().map(put).collect();
    let mut orders = [all.clone(), all.clone(), all];
    orders[1].reverse();
    orders[2].rotate_left(2);
    for order in orders {
        let mut world = world(limited(Some(3), None), order);
        let counts = |world: &World| [&first, &second, &small, &other].map(|it| listens(world, it));
        assert_eq!(counts(&world), [2, 0, 1, 3]);
        let expected = "second: namespace default has 5 listeners (ports, for each family of addresses) and may have 3: none is \
                        opened for this Service";
        assert_eq!(told(&world), [expected]);
        // One more, which is younger, takes nothing from those that are there; nor does the same fact again.
        let more = service("a-first-by-name", 4, &[5001]);
        world.apply(put(&more));
        world.apply(put(&small));
        assert_eq!((counts(&world), listens(&world, &more)), ([2, 0, 1, 3], 0));
        world.apply(Change::Gone(FactRef::Object(owner(&first).object())));
        let counts = [&second, &small, &more].map(|it| listens(&world, it));
        assert_eq!((counts, told(&world).len()), ([2, 1, 0], 1));
        // A limit that is lowered leaves the youngest out; one that is raised lets all in.
        world.apply(Change::Config(Arc::new(limited(Some(2), None))));
        assert_eq!([&second, &small, &more].map(|it| listens(&world, it)), [2, 0, 0]);
        world.apply(Change::Config(Arc::new(limited(None, None))));
        assert_eq!([&second, &small, &more].map(|it| listens(&world, it)), [2, 1, 1]);
        assert!(told(&world).is_empty());
    }
}

#[test]
fn a_port_counts_for_each_family_of_addresses() {
    let mut dual = service("dual", 1, &[1001, 1002]);
    dual.families.policy = FamilyPolicy::Prefer;
    (dual.families.first, dual.families.second) = (Some(Family::V4), Some(Family::V6));
    for (most, expected) in [(4, 2), (3, 0)] {
        let world = world(limited(Some(most), None), vec![put(&dual)]);
        assert_eq!((listens(&world, &dual), told(&world).is_empty()), (expected, expected > 0), "{most}");
    }
}

#[test]
fn members_that_do_not_fit_are_left_out_of_the_youngest_and_none_that_serves_for_one_that_comes() {
    let first = service("first", 1, &[1001]);
    let second = service("second", 2, &[2001]);
    let three = ["10.0.0.4", "10.0.0.5", "10.0.0.6"];
    let all = vec![put(&second), put(&first), backed(&second, &three), backed(&first, &three)];
    let mut world = world(limited(None, Some(5)), all);
    assert_eq!(members(&world, &first), three);
    assert_eq!(members(&world, &second), ["10.0.0.4", "10.0.0.5"]);
    let expected = "second: namespace default has 6 members (endpoints, for each port) and may have 5: 1 of this Service are left \
                    out";
    assert_eq!(told(&world), [expected]);
    world.apply(backed(&second, &["10.0.0.1", "10.0.0.5", "10.0.0.4"]));
    assert_eq!(members(&world, &second), ["10.0.0.4", "10.0.0.5"], "they were there before");
    world.apply(backed(&second, &["10.0.0.1", "10.0.0.5", "10.0.0.6"]));
    assert_eq!(members(&world, &second), ["10.0.0.1", "10.0.0.5"]);
    // What the older one has more, the younger one has less, down to nobody.
    world.apply(backed(&first, &["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"]));
    assert_eq!((members(&world, &first).len(), members(&world, &second).len()), (5, 0));
    world.apply(backed(&first, &["10.0.0.4"]));
    assert_eq!((members(&world, &first).len(), members(&world, &second).len()), (1, 3));
    assert!(told(&world).is_empty());
}

#[test]
fn members_count_for_each_port_and_no_port_is_left_with_none() {
    let wide = service("wide", 1, &[1001, 1002]);
    let world =
        world(limited(None, Some(4)), vec![put(&wide), backed(&wide, &["10.0.0.1", "10.0.0.2", "10.0.0.3"])]);
    assert_eq!(members(&world, &wide), ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2"]);
    assert!(told(&world)[0].ends_with("2 of this Service are left out"), "{:?}", told(&world));
}

#[test]
fn who_names_a_secret_that_is_not_copied_for_hosts_is_told() {
    let (mut naming, other) = (service("naming", 1, &[1001]), service("other", 2, &[2001]));
    naming.meta.annotations.insert("seaway.dev/tls".into(), "pair".into());
    let roles = Roles { allocate: true, host: None };
    let mut world = World::new(roles, Vec::new(), Arc::new(Config::default()));
    dry_run(&mut world, [put(&naming), put(&other)].into_iter().chain(synced()));
    let told = |world: &World, service: &Service| {
        let problems = world.status(&owner(service)).expect("it is ours").problems;
        problems.iter().any(|it| it.reason == Reason::LimitReached)
    };
    let secret = ObjectRef::new(Kind::Secret, "default", "pair");
    let problem = Problem::new(secret, Reason::LimitReached, "it is not copied");
    for (problems, expected) in [(vec![problem], true), (vec![], false)] {
        let dirt = world.apply(Change::Reported(ObjectRef::certificate_copies_config(), problems));
        assert_eq!((told(&world, &naming), told(&world, &other)), (expected, false));
        assert!(dirt.iter().any(|it| *it.unit() == Unit::Status(owner(&naming))), "{dirt:?}");
    }
}
