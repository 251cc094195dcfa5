//! When a Service of a cluster is ready: nobody waits for what is not to come.

use std::sync::Arc;

use seaway_model::{
    AddressState, Change, Fact, Kind, L4, ObjectRef, Reason,
    fact::{AddressPool, Endpoint, EndpointAddress, FamilyPolicy, HostReport, Service, TargetPort},
};
use seaway_plan::World;
use seaway_testkit::facts::{endpoint, ip, pool, put, put_slice, service, slice};

use super::{
    pools::{leader, status, tell},
    scene::{PUBLIC, applied, heard, node, written},
};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

fn host(name: &str, addresses: &[&str]) -> Change {
    let addresses = addresses.iter().map(|it| ip(it)).collect();
    heard(HostReport { addresses, ..applied(name, 9) })
}

pub(super) fn of_hosts(controls: bool) -> Change {
    Change::Put(Fact::AddressPool(Arc::new(AddressPool {
        object: ObjectRef::new(Kind::AddressPool, "", "ours"),
        created: None,
        labels: Default::default(),
        ranges: Vec::new(),
        hosts: true,
        control_planes: controls,
        reserved_ports: [].into(),
        announce: None,
        auto_assign: true,
        avoid_buggy: false,
        priority: 0,
        namespaces: Vec::new(),
        namespace_selectors: Vec::new(),
        service_selectors: Vec::new(),
    })))
}

fn web() -> Service {
    service("web", &[("", 80, TargetPort::Number(80))])
}

/// A cluster as kubeadm makes it: a control plane, which is excluded, and two workers.
fn kubeadm(pool: Change, service: &Service) -> World {
    leader(vec![
        pool,
        node("control", "192.0.2.1", &[EXCLUDE, CONTROL_PLANE]),
        node("one", "192.0.2.2", &[]),
        node("two", "192.0.2.3", &[]),
        host("control", &["192.0.2.1", "10.244.0.1"]),
        host("one", &["192.0.2.2", "10.244.1.1"]),
        host("two", &["192.0.2.3", "10.244.2.1"]),
        put(service),
    ])
}

#[test]
fn a_control_plane_that_is_excluded_does_not_keep_services_from_being_ready() {
    let world = kubeadm(of_hosts(false), &web());
    let told = status(&world, &web());
    assert_eq!((told.addresses, told.ready), (vec![ip("192.0.2.2"), ip("192.0.2.3")], true));
    let world = kubeadm(pool(PUBLIC), &web());
    let told = status(&world, &web());
    assert_eq!((told.addresses.len(), told.ready), (1, true));
}

#[test]
fn addresses_of_hosts_without_a_pool_that_an_excluded_node_has_are_no_reason_to_wait() {
    let before = Service {
        published: ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(ip).into(),
        published_by_us: true,
        ..web()
    };
    let mut changes = vec![
        node("control", "192.0.2.1", &[EXCLUDE, CONTROL_PLANE]),
        node("one", "192.0.2.2", &[]),
        host("control", &["192.0.2.1"]),
        host("one", &["192.0.2.2"]),
        put(&before),
    ];
    for _ in 0..changes.len() {
        changes.rotate_left(1);
        let told = status(&leader(changes.clone()), &web());
        assert_eq!(
            told.addresses, before.published,
            "it keeps what it had, that of a host that is gone, too"
        );
        assert!(told.ready && told.problems.iter().any(|it| it.reason == Reason::PoolMissing), "{told:?}");
    }
}

#[test]
fn a_host_without_pods_is_no_reason_to_wait_where_traffic_stays_local() {
    let service = Service { local_only: true, ..web() };
    let mut world = kubeadm(of_hosts(false), &service);
    let told = status(&world, &service);
    assert!(!told.ready, "no host has a pod: {told:?}");
    let here = Endpoint {
        node: Some("one".into()),
        at: EndpointAddress::Ip(ip("10.244.1.7")),
        ..endpoint("10.244.1.7")
    };
    tell(&mut world, put_slice(&slice("web", ("", 80), vec![here])));
    let told = status(&world, &service);
    assert!(told.ready, "{told:?}");
    let served: Vec<_> = told.serving.iter().map(|it| (it.ip, it.protocol)).collect();
    assert_eq!(served, [(ip("192.0.2.2"), L4::Tcp)]);
}

#[test]
fn a_family_that_is_only_preferred_is_no_reason_to_wait() {
    let mut service = web();
    service.families.policy = FamilyPolicy::Prefer;
    let world = kubeadm(pool(PUBLIC), &service);
    assert!(status(&world, &service).ready, "no pool has the other");
    // A pool has it, and no host can serve it.
    let mut world = kubeadm(pool(PUBLIC), &service);
    tell(&mut world, Change::Put(Fact::AddressPool(Arc::new(six()))));
    let told = status(&world, &service);
    assert_eq!(told.addresses.len(), 2);
    for name in ["control", "one", "two"] {
        let not_served = told.addresses.iter().copied().filter(|it| it.is_ipv6()).collect();
        tell(&mut world, heard(HostReport { not_served, ..applied(name, 10) }));
    }
    assert!(status(&world, &service).ready, "{:?}", status(&world, &service));
    // Whoever requires both waits.
    service.families.policy = FamilyPolicy::Require;
    tell(&mut world, put(&service));
    assert!(!status(&world, &service).ready);
}

fn six() -> AddressPool {
    let Change::Put(Fact::AddressPool(pool)) = pool(("2001:db8::10", "2001:db8::19")) else { unreachable!() };
    let object = ObjectRef::new(Kind::AddressPool, "", "six");
    AddressPool { object, ..AddressPool::clone(&pool) }
}

#[test]
fn where_every_host_is_excluded_the_label_to_take_away_is_told() {
    let mut world = leader(vec![
        pool(PUBLIC),
        node("only", "192.0.2.1", &[EXCLUDE, CONTROL_PLANE]),
        host("only", &["192.0.2.1"]),
        put(&web()),
    ]);
    let told = status(&world, &web());
    let problem = told.problems.iter().find(|it| it.reason == Reason::HostsExcluded).expect("it is told");
    assert!(
        !told.ready && problem.fix.contains(&format!("kubectl label node only {EXCLUDE}-")),
        "{problem:?}"
    );
    tell(&mut world, node("only", "192.0.2.1", &[CONTROL_PLANE]));
    let told = status(&world, &web());
    assert!(told.ready && told.problems.iter().all(|it| it.reason != Reason::HostsExcluded));
}

/// Its status said for a moment that it was served nowhere, each time another Service joined its address.
#[test]
fn who_shares_an_address_is_served_there_while_hosts_have_yet_to_hear_of_whoever_joined() {
    let shared = |name: &str, port: u16| {
        let mut it = service(name, &[("", port, TargetPort::Number(port))]);
        it.meta.annotations.insert("metallb.universe.tf/allow-shared-ip".into(), "k".into());
        it
    };
    let (first, second) = (shared("first", 80), shared("second", 81));
    let is_ready = |world: &World| [&first, &second].map(|it| status(world, it).ready);
    let mut world = leader(vec![pool(PUBLIC), host("one", &["198.51.100.1"]), put(&first)]);
    assert!(status(&world, &first).ready);
    world.apply(put(&second));
    assert_eq!(status(&world, &first).addresses, [ip("192.0.2.10")]);
    let write = |world: &mut World, version| {
        world.apply(written("192.0.2.10", &[&first, &second], AddressState::Held, version));
    };
    write(&mut world, 12);
    assert_eq!(is_ready(&world), [true, false], "the host has applied what was written up to 9");
    write(&mut world, 20);
    world.apply(heard(applied("one", 15)));
    assert_eq!(is_ready(&world), [true, true], "both have it since 12");
    // The second leaves, comes back, and has it since then.
    world.apply(written("192.0.2.10", &[&first], AddressState::Held, 21));
    write(&mut world, 22);
    world.apply(heard(applied("one", 21)));
    assert_eq!(is_ready(&world), [true, false]);
    world.apply(heard(applied("one", 22)));
    assert_eq!(is_ready(&world), [true, true]);
}
