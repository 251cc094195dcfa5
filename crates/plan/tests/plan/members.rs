//! Members that a tenant of a cluster names, and that would lead to the machines: they are left out and told.

use std::{ops::RangeInclusive, sync::Arc};

use seaway_model::{
    Change, Config, Desired, Fact, Name, Problem, Reason, Unit,
    config::{MemberRules, ReservedPorts, Tenants},
    fact::{
        Endpoint, EndpointAddress, FactRef, HostReport, Meta, Node, ResolvedName, ServiceKind, TargetPort,
    },
    load_balancer::{CheckKind, HealthCheck},
};
use seaway_plan::{Roles, World, dry_run};
use seaway_testkit::facts::{HOST, endpoint, host, ip, owner, put, put_slice, service, slice, synced};

use crate::cluster::scene::{OnHost, held, unit};

fn world(rules: MemberRules, changes: Vec<Change>) -> World {
    let roles = Roles { allocate: false, host: Some(HOST.into()) };
    let tenants = Tenants { members: rules, ..Tenants::default() };
    let mut world =
        World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config { tenants, ..Config::default() }));
    let first =
        [host(&["192.0.2.5", "172.17.0.1"], &[]), node(HOST, &["192.0.2.5"]), node("b", &["192.0.2.6"])];
    dry_run(&mut world, first.into_iter().chain(changes).chain(synced()));
    world
}

const CLUSTER: MemberRules = MemberRules { machines: false, names: false };
const WITH_NAMES: MemberRules = MemberRules { machines: false, names: true };

fn node(name: &str, addresses: &[&str]) -> Change {
    Change::Put(Fact::Node(Arc::new(Node {
        meta: Meta { name: name.into(), ..Meta::default() },
        addresses: addresses.iter().map(|it| ip(it)).collect(),
        ready: true,
        ..Node::default()
    })))
}

/// With pods in these networks.
fn with_pods(name: &str, address: &str, networks: &[&str]) -> Change {
    let Change::Put(Fact::Node(it)) = node(name, &[address]) else { unreachable!() };
    let pod_networks = networks.iter().map(|it| it.parse().expect("a network")).collect();
    Change::Put(Fact::Node(Arc::new(Node { pod_networks, ..(*it).clone() })))
}

fn shop() -> Change {
    put(&service("shop", &[("", 80, TargetPort::Number(80))]))
}

fn on(node: &str, at: &str) -> Endpoint {
    Endpoint { node: Some(node.into()), ..endpoint(at) }
}

fn named(name: &str) -> Endpoint {
    Endpoint { at: EndpointAddress::Name(name.into()), ..endpoint("192.0.2.99") }
}

fn answered(name: &str, addresses: &[&str]) -> Change {
    let addresses = addresses.iter().map(|it| ip(it)).collect();
    Change::Put(Fact::Name(Arc::new(ResolvedName { name: name.into(), addresses })))
}

fn members(world: &World) -> Vec<String> {
    match world.desire(&unit(&owner(&service("shop", &[])))) {
        Desired::LoadBalancer(it) => {
            it.pools.values().flat_map(|pool| &pool.members).map(|it| it.at.to_string()).collect()
        }
        other => panic!("no load balancer but {other:?}"),
    }
}

fn check(world: &World) -> HealthCheck {
    match world.desire(&unit(&owner(&service("shop", &[])))) {
        Desired::LoadBalancer(it) => {
            it.pools.values().find_map(|pool| pool.health.clone()).expect("it is checked")
        }
        other => panic!("no load balancer but {other:?}"),
    }
}

fn barred(world: &World) -> Vec<Problem> {
    world.problems().into_iter().filter(|it| it.reason == Reason::NotAllowed).collect()
}

/// Services at ClusterIPs: another namespace's, the API server's, and one of the same namespace.
fn in_cluster() -> [Change; 3] {
    let at = |namespace: &str, name: &str, ips: &[&str]| {
        let mut it = service(name, &[("", 80, TargetPort::Number(80))]);
        it.kind = ServiceKind::ClusterIp;
        it.meta.namespace = namespace.into();
        it.cluster_ips = ips.iter().map(|it| ip(it)).collect();
        put(&it)
    };
    [
        at("other", "web", &["10.96.7.7", "fd00:96::7"]),
        at("default", "kubernetes", &["10.96.0.1"]),
        at("default", "own", &["10.96.9.9"]),
    ]
}

/// What its endpoints are, kube-proxy alone decides: by a Service of one's own, a member might be the kubelet of a Node.
#[test]
fn the_cluster_ip_of_a_service_is_no_member_until_that_service_is_gone() {
    let its =
        slice("shop", ("", 9090), vec![endpoint("10.96.9.9"), endpoint("10.96.7.7"), endpoint("10.0.0.1")]);
    let mut world = world(CLUSTER, in_cluster().into_iter().chain([shop(), put_slice(&its)]).collect());
    assert_eq!(members(&world), ["10.0.0.1:9090"]);
    let [theirs, ..] = in_cluster();
    let Change::Put(fact) = &theirs else { unreachable!() };
    world.apply(Change::Gone(fact.reference()));
    assert_eq!(members(&world), ["10.0.0.1:9090", "10.96.7.7:9090"]);
    world.apply(theirs);
    assert_eq!(members(&world), ["10.0.0.1:9090"]);
}

#[test]
fn an_address_that_is_the_machine_itself_is_no_member_whoever_names_it() {
    let mine = service("vip", &[("", 443, TargetPort::Number(443))]);
    for (at, told) in [
        ("127.0.0.1", "a loopback address"),
        ("127.8.8.8", "a loopback address"),
        ("0.0.0.0", "a loopback address"),
        ("::1", "a loopback address"),
        ("::", "a loopback address"),
        ("::ffff:127.0.0.1", "a loopback address"),
        ("::127.0.0.1", "a loopback address"),
        ("64:ff9b::7f00:1", "a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("64:ff9b::a9fe:a9fe", "a link-local address"),
        ("fe80::a9fe:a9fe", "a link-local address"),
        ("fd00:ec2::254", "a cloud's metadata service"),
        ("224.0.0.1", "not the address of a single machine"),
        ("192.0.2.10", "an address that Seaway publishes"),
        ("172.17.0.1", "an address that host edge-1 reports as its own"),
        ("192.0.2.5", "an address of Node edge-1, and the endpoint does not have its nodeName"),
        ("192.0.2.6", "an address of Node b, and the endpoint does not have its nodeName"),
        ("10.96.7.7", "the ClusterIP of a Service of another namespace;"),
        ("fd00:96::7", "the ClusterIP of a Service of another namespace;"),
        ("10.96.0.1", "the ClusterIP of Service default/kubernetes;"),
        ("10.96.9.9", "the ClusterIP of Service default/own;"),
    ] {
        for by_name in [false, true] {
            let naming = if by_name { named("evil.example") } else { endpoint(at) };
            let mut its = slice("shop", ("", 9090), vec![naming, endpoint("10.0.0.1")]);
            let vip = [put(&mine), held("192.0.2.10", &[&mine])];
            let changes = [shop(), put_slice(&its), answered("evil.example", &[at])];
            let changes = changes.into_iter().chain(vip).chain(in_cluster());
            let world = world(WITH_NAMES, changes.collect());
            // Whoever allows names allows what ExternalName is for.
            if by_name && told.starts_with("the ClusterIP") && !told.contains("kubernetes") {
                assert_eq!((members(&world).len(), barred(&world).len()), (2, 0), "{at}");
                continue;
            }
            assert_eq!(members(&world), ["10.0.0.1:9090"], "{at} by name: {by_name}");
            let problems = barred(&world);
            let told = problems.len() == 1 && problems[0].message.contains(told);
            assert!(told && !problems[0].fix.is_empty(), "{at} by name: {by_name}: {problems:?}");
            // Alone, it leaves nobody.
            its.endpoints.truncate(1);
            let mut world = world;
            dry_run(&mut world, vec![put_slice(&its)]);
            assert_eq!(members(&world), [""; 0], "{at} by name: {by_name}");
        }
    }
}

#[test]
fn pods_in_the_network_of_their_node_are_members_but_not_at_ports_that_are_the_nodes_own() {
    for (number, there) in [
        (9090, true),
        (21, true),
        (22, false),
        (23, true),
        (1936, false),
        (2379, false),
        (2380, false),
        (6443, false),
        (10_247, true),
        (10_248, false),
        (10_250, false),
        (10_259, false),
        (10_260, true),
    ] {
        let its = slice("shop", ("", number), vec![on("b", "192.0.2.6")]);
        let world = world(CLUSTER, vec![shop(), put_slice(&its)]);
        let expected = if there { vec![format!("192.0.2.6:{number}")] } else { Vec::new() };
        assert_eq!(members(&world), expected);
        assert_eq!(barred(&world).is_empty(), there, "{number}: {:?}", barred(&world));
    }
    let of_another = slice("shop", ("", 9090), vec![on(HOST, "192.0.2.6")]);
    let world = world(CLUSTER, vec![shop(), put_slice(&of_another)]);
    assert_eq!(members(&world), [""; 0], "it is not on that Node");
}

#[test]
fn nodes_stay_members_at_their_node_ports() {
    let mut shop = service("shop", &[("", 80, TargetPort::Number(80))]);
    shop.ports[0].node_port = Some(30_080);
    shop.meta.annotations.insert("seaway.dev/members".into(), "nodes".into());
    let its = slice("shop", ("", 80), vec![on("b", "10.0.0.1")]);
    let world = world(CLUSTER, vec![put(&shop), put_slice(&its)]);
    assert_eq!(members(&world), ["192.0.2.5:30080", "192.0.2.6:30080"]);
    assert_eq!(barred(&world), []);
    // kube-proxy would lead from the node port to a Node's own port, too.
    for at in ["192.0.2.6", "169.254.169.254", "10.96.7.7"] {
        let its = slice("shop", ("", 80), vec![on("b", "10.0.0.1"), endpoint(at)]);
        let there = in_cluster().into_iter().chain([put(&shop), put_slice(&its)]);
        let world = self::world(CLUSTER, there.collect());
        assert_eq!((members(&world), barred(&world).len()), (Vec::new(), 1), "{at}");
    }
}

#[test]
fn no_health_check_dials_a_nodes_own_port() {
    let allowed = |port: u16| Some(port);
    // The member's own.
    let barred_port = None;
    for (members_are, port, at, told) in [
        ("nodes", 10_250, barred_port, "not a node port of this Service"),
        ("nodes", 22, barred_port, "not a node port of this Service"),
        ("nodes", 9_100, barred_port, "not a node port of this Service"),
        ("nodes", 30_999, barred_port, "not a node port of this Service"),
        ("nodes", 30_080, allowed(30_080), ""),
        ("nodes", 31_000, allowed(31_000), ""),
        ("pods", 10_250, barred_port, "reserved for the Node"),
        ("pods", 9_100, allowed(9_100), ""),
    ] {
        let mut shop = service("shop", &[("", 80, TargetPort::Number(80))]);
        shop.ports[0].node_port = Some(30_080);
        shop.local_only = true;
        shop.health_check_node_port = Some(31_000);
        for (key, value) in [
            ("members", members_are),
            ("health-check-port", &port.to_string()),
            ("health-check-path", "/stats"),
            ("health-check-expect", "secret"),
        ] {
            shop.meta.annotations.insert(format!("seaway.dev/{key}").as_str().into(), value.into());
        }
        let its = slice("shop", ("", 9090), vec![on(HOST, "192.0.2.5")]);
        let world = world(CLUSTER, vec![put(&shop), put_slice(&its)]);
        assert!(!members(&world).is_empty(), "{members_are} {port}: {:?}", world.problems());
        let check = check(&world);
        let is_asked = matches!(check.kind, CheckKind::Http { .. });
        let expected = if members_are == "nodes" && at.is_none() { Some(31_000) } else { at };
        assert_eq!((check.port, is_asked), (expected, expected.is_some()), "{members_are} {port}");
        let problems = barred(&world);
        assert_eq!(problems.len(), usize::from(at.is_none()), "{members_are} {port}: {problems:?}");
        for it in problems {
            assert!(it.message.contains(told) && !it.fix.is_empty(), "{it:?}");
            assert_eq!(it.field.as_str(), "metadata.annotations[seaway.dev/health-check-port]");
        }
    }
}

#[test]
fn pods_and_machines_of_a_folder_are_checked_at_the_port_that_their_service_names() {
    let mut shop = service("shop", &[("", 80, TargetPort::Number(80))]);
    shop.meta.annotations.insert("seaway.dev/health-check-port".into(), "10250".into());
    let of_pods = slice("shop", ("", 80), vec![on(HOST, "10.0.0.1")]);
    let cluster = world(CLUSTER, vec![put(&shop), put_slice(&of_pods)]);
    let on_machine = slice("shop", ("", 80), vec![endpoint("192.0.2.6")]);
    let folder = world(MemberRules::default(), vec![put(&shop), put_slice(&on_machine)]);
    for world in [cluster, folder] {
        assert_eq!((check(&world).port, barred(&world)), (Some(10_250), vec![]));
    }
}

#[test]
fn a_member_is_looked_at_again_when_a_machine_gets_or_loses_its_address() {
    let its = slice("shop", ("", 80), vec![endpoint("192.0.2.7")]);
    let mut world = world(CLUSTER, vec![shop(), put_slice(&its)]);
    let there = |world: &World| members(world).len();
    assert_eq!(there(&world), 1);
    dry_run(&mut world, vec![node("c", &["192.0.2.7"])]);
    assert_eq!(there(&world), 0);
    let gone = FactRef::Object(seaway_model::ObjectRef::new(seaway_model::Kind::Node, "", "c"));
    dry_run(&mut world, vec![Change::Gone(gone)]);
    assert_eq!(there(&world), 1);
    let report = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|it| ip(it)).collect();
        let report = HostReport { host: "outside".into(), addresses, ..HostReport::default() };
        Change::Put(Fact::Host(Arc::new(report)))
    };
    dry_run(&mut world, vec![report(&["192.0.2.7"])]);
    assert_eq!(there(&world), 0);
    dry_run(&mut world, vec![report(&["192.0.2.8"])]);
    assert_eq!(there(&world), 1);
    let vip = service("vip", &[("", 443, TargetPort::Number(443))]);
    dry_run(&mut world, vec![put(&vip), held("192.0.2.7", &[&vip])]);
    assert_eq!(there(&world), 0, "{:?}", world.problems());
}

#[test]
fn a_name_is_not_even_looked_up_where_the_configuration_does_not_allow_it() {
    let its = slice("shop", ("", 80), vec![named("db.example")]);
    let name = || Unit::Name(Name::from("db.example"));
    let changes = || vec![shop(), put_slice(&its), answered("db.example", &["10.0.0.1"])];
    let shut = world(CLUSTER, changes());
    assert_eq!((members(&shut), shut.desire(&name())), (vec![], Desired::Absent));
    let told = barred(&shut);
    assert!(told.len() == 1 && told[0].fix.contains("membersByName"), "{told:?}");
    let open = world(WITH_NAMES, changes());
    assert_eq!(members(&open), ["10.0.0.1:80"]);
    assert!(matches!(open.desire(&name()), Desired::Name(_)));
}

#[test]
fn in_a_folder_the_machine_may_be_a_member() {
    let its = slice("shop", ("", 9090), vec![endpoint("127.0.0.1"), endpoint("192.0.2.6")]);
    let world = world(MemberRules::default(), vec![shop(), put_slice(&its)]);
    assert_eq!((members(&world).len(), barred(&world)), (2, vec![]));
}

#[test]
fn the_bridge_of_a_node_without_a_host_is_a_member_only_as_a_pod_and_at_no_reserved_port() {
    let pods = &["10.244.7.0/24", "fd00:10:244:7::/64"];
    let told = "10.244.7.1:9090 (from EndpointSlice default/shop-1) is the first address of the pod network of Node c, which is its \
                bridge, and the endpoint has no nodeName";
    for (rules, port, endpoint, expected) in [
        (CLUSTER, 9090, endpoint("10.244.7.1"), Err(told)),
        (CLUSTER, 9090, endpoint("10.244.7.2"), Ok("10.244.7.2:9090")),
        (CLUSTER, 9090, on("c", "10.244.7.1"), Ok("10.244.7.1:9090")),
        // Where a CNI goes by other networks than those of Nodes.
        (CLUSTER, 9090, on("b", "10.244.7.1"), Ok("10.244.7.1:9090")),
        (CLUSTER, 9090, on("nowhere", "10.244.7.1"), Err(told)),
        (CLUSTER, 10250, on("c", "10.244.7.1"), Err("a port that is reserved for Node c itself")),
        (CLUSTER, 9090, endpoint("fd00:10:244:7::1"), Err("the first address of the pod network of Node c")),
        (CLUSTER, 9090, endpoint("::ffff:10.244.7.1"), Err("the first address of the pod network of Node c")),
        (MemberRules::default(), 10250, endpoint("10.244.7.1"), Ok("10.244.7.1:10250")),
    ] {
        let its = slice("shop", ("", port), vec![endpoint.clone()]);
        let all = vec![with_pods("c", "192.0.2.7", pods), shop(), put_slice(&its)];
        let mut world = world(rules, all);
        let bars = barred(&world).iter().map(|it| it.message.clone()).collect::<String>();
        match expected {
            Ok(member) => assert_eq!((members(&world), &*bars), (vec![member.to_owned()], "")),
            Err(told) => {
                assert!(members(&world).is_empty() && bars.contains(told), "{endpoint:?}: {bars}");
                world.apply(with_pods("c", "192.0.2.7", &["10.244.9.0/24"]));
                assert_eq!(members(&world).len(), 1, "the Node has other pods now");
            }
        }
    }
}

#[test]
fn ports_that_the_operator_reserves_are_no_members_at_nodes_like_those_that_are_known() {
    let of = |port: u16, reserved: &[RangeInclusive<u16>]| {
        let mut world =
            world(CLUSTER, vec![shop(), put_slice(&slice("shop", ("", port), vec![on("b", "192.0.2.6")]))]);
        let reserved_ports = ReservedPorts::with_additional(reserved.to_vec());
        let tenants = Tenants { members: CLUSTER, reserved_ports, ..Tenants::default() };
        world.apply(Change::Config(Arc::new(Config { tenants, ..Config::default() })));
        members(&world).len()
    };
    for (port, reserved, expected) in [
        (9345, &[][..], 1),
        (9345, &[9345..=9345], 0),
        (16443, &[9345..=9345, 16000..=17000], 0),
        (17001, &[9345..=9345, 16000..=17000], 1),
        (6443, &[9345..=9345], 0),
    ] {
        assert_eq!(of(port, reserved), expected, "{port} {reserved:?}");
    }
}
