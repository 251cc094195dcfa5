//! Nodes: whose pods and node ports are members, and which hosts serve at all.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Fact, Kind, ObjectRef, Reason, Unit, WorkItem,
    config::{FrontDoor, OpenPolicy},
    fact::{Endpoint, FactRef, HostReport, Meta, Node, Service, TargetPort},
    load_balancer::{Bind, CheckKind, MemberState},
};
use seaway_plan::{Roles, World, dry_run};
use seaway_testkit::facts::{
    HOST, endpoint, host, ip, owner, pool, put, put_slice, service, shop, slice, synced,
};

use super::scene::{OnHost, unit};

fn node(name: &str, at: &[&str]) -> Node {
    Node {
        meta: Meta { name: name.into(), ..Meta::default() },
        addresses: at.iter().map(|it| ip(it)).collect(),
        ready: true,
        ..Node::default()
    }
}

fn labelled(mut node: Node, label: &str, value: &str) -> Node {
    node.meta.labels.insert(label.into(), value.into());
    node
}

fn put_node(node: &Node) -> Change {
    Change::Put(Fact::Node(Arc::new(node.clone())))
}

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const ZONE: &str = "topology.kubernetes.io/zone";

fn world(changes: Vec<Change>) -> World {
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let front_door = FrontDoor { opens: OpenPolicy::Never, ..FrontDoor::default() };
    let config = Config { front_door, ..Config::default() };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(config));
    dry_run(&mut world, changes.into_iter().chain([host(&["192.0.2.5"], &[])]).chain(synced()));
    world
}

fn on(node: &str, at: &str) -> Endpoint {
    Endpoint { node: Some(node.into()), ..endpoint(at) }
}

/// `shop` with a node port, on nodes `one` (two pods) and `two` (one).
fn with_node_ports() -> (Service, Change) {
    let mut shop = shop();
    shop.ports[0].node_port = Some(30_080);
    let pods = vec![on("one", "10.1.0.1"), on("one", "10.1.0.2"), on("two", "10.1.0.3")];
    (shop, put_slice(&slice("shop", ("", 80), pods)))
}

/// Who is asked, how much of it each gets, and who drains.
fn members(world: &World, service: &Service) -> Vec<String> {
    let Desired::LoadBalancer(it) = world.desire(&unit(&owner(service))) else { panic!("it is served") };
    let pool = it.pools.values().next().expect("a pool");
    let told = |it: &seaway_model::Member| {
        let drains = if it.state == MemberState::Draining { " drains" } else { "" };
        format!("{}*{}{drains}", it.at, it.weight)
    };
    pool.members.iter().map(told).collect()
}

fn reasons(world: &World, field: &str) -> Vec<Reason> {
    world.problems().into_iter().filter(|it| *it.field == *field).map(|it| it.reason).collect()
}

#[test]
fn members_are_pods_where_the_host_is_a_node_and_else_node_ports() {
    let pods = ["10.1.0.1:80*1", "10.1.0.2:80*1", "10.1.0.3:80*1"];
    let nodes = ["10.0.0.1:30080*1", "10.0.0.2:30080*1"];
    let table: [(&str, &str, &[&str]); 6] = [
        (HOST, "", &pods),
        ("elsewhere", "", &nodes),
        (HOST, "auto", &pods),
        (HOST, "nodes", &["10.0.0.1:30080*1", "10.0.0.2:30080*1", "10.0.0.9:30080*1"]),
        ("elsewhere", "pods", &pods),
        ("elsewhere", "auto", &nodes),
    ];
    for (third, asked, expected) in table {
        let (mut shop, slice) = with_node_ports();
        if !asked.is_empty() {
            shop.meta.annotations.insert("seaway.dev/members".into(), asked.into());
        }
        let mut third = node(third, &["10.0.0.9"]);
        if third.meta.name.as_str() != HOST {
            third = labelled(third, EXCLUDE, "");
        }
        let (one, two) = (node("one", &["10.0.0.1", "fd00::1"]), node("two", &["10.0.0.2"]));
        let world = world(vec![put(&shop), slice, put_node(&one), put_node(&two), put_node(&third)]);
        assert_eq!(members(&world, &shop), expected, "{} {asked}", third.meta.name);
    }
    let (shop, slice) = with_node_ports();
    assert_eq!(members(&world(vec![put(&shop), slice]), &shop), pods, "there are no Nodes at all");
}

#[test]
fn a_node_that_is_left_out_cordoned_or_not_ready_gets_nothing_new() {
    let (shop, slice) = with_node_ports();
    let two = || node("two", &["10.0.0.2"]);
    let drains = ["10.0.0.1:30080*1", "10.0.0.2:30080*1 drains"];
    let table: [(&str, Node, &[&str]); 4] = [
        ("not ready", Node { ready: false, ..two() }, &drains),
        ("cordoned", Node { unschedulable: true, ..two() }, &drains),
        ("left out", labelled(two(), EXCLUDE, ""), &["10.0.0.1:30080*1"]),
        (
            "left out, as it was called",
            labelled(two(), "alpha.service-controller.kubernetes.io/exclude-balancer", "x"),
            &["10.0.0.1:30080*1"],
        ),
    ];
    for (case, changed, expected) in table {
        let mut world =
            world(vec![put(&shop), slice.clone(), put_node(&node("one", &["10.0.0.1"])), put_node(&two())]);
        assert_eq!(members(&world, &shop), ["10.0.0.1:30080*1", "10.0.0.2:30080*1"]);
        let dirt = world.apply(put_node(&changed));
        assert!(dirt.iter().any(|it| matches!(it, WorkItem::Pool(..))), "{case}: {dirt:?}");
        assert_eq!(members(&world, &shop), expected, "{case}");
    }
}

#[test]
fn what_nothing_is_planned_from_dirties_nothing() {
    let (shop, slice) = with_node_ports();
    let one = node("one", &["10.0.0.1"]);
    let mut world = world(vec![put(&shop), slice, put_node(&one)]);
    assert_eq!(world.apply(put_node(&labelled(one, "kubelet/beats", "17"))), []);
}

#[test]
fn without_a_node_port_nodes_cannot_stand_in_and_it_is_told() {
    let (mut shop, slice) = with_node_ports();
    shop.ports[0].node_port = None;
    let world = world(vec![put(&shop), slice, put_node(&node("one", &["10.0.0.1"]))]);
    assert_eq!(members(&world, &shop), <[String; 0]>::default());
    let told = world.problems().remove(0);
    assert_eq!(told.reason, Reason::NoSuchPort);
    assert!(told.fix.contains("allocateLoadBalancerNodePorts"), "{}", told.fix);
}

#[test]
fn nobody_is_sent_to_nodes_while_no_pod_answers() {
    let (shop, _) = with_node_ports();
    let mut failed = on("one", "10.1.0.1");
    (failed.ready, failed.serving) = (false, false);
    let slice = put_slice(&slice("shop", ("", 80), vec![failed]));
    let world = world(vec![put(&shop), slice, put_node(&node("one", &["10.0.0.1"]))]);
    assert_eq!(members(&world, &shop), <[String; 0]>::default());
}

#[test]
fn local_traffic_beside_the_nodes_goes_to_those_with_pods_by_their_number_and_is_told() {
    let (mut shop, slice) = with_node_ports();
    shop.local_only = true;
    let nodes = [node("one", &["10.0.0.1"]), node("two", &["10.0.0.2"]), node("three", &["10.0.0.3"])];
    let world = world([put(&shop), slice].into_iter().chain(nodes.iter().map(put_node)).collect());
    assert_eq!(members(&world, &shop), ["10.0.0.1:30080*2", "10.0.0.2:30080*1"]);
    assert_eq!(reasons(&world, "spec.externalTrafficPolicy").len(), 2, "{:?}", world.problems());
}

#[test]
fn nodes_are_asked_whether_they_have_pods_where_they_tell() {
    let (mut shop, slice) = with_node_ports();
    shop.local_only = true;
    shop.health_check_node_port = Some(31_999);
    let check = |shop: &Service, host: &Node| {
        let nodes = [host.clone(), node("one", &["10.0.0.1"])];
        let pods = [put(shop), slice.clone()].into_iter().chain(nodes.iter().map(put_node));
        let Desired::LoadBalancer(it) = world(pods.collect()).desire(&unit(&owner(shop))) else {
            panic!("it is served")
        };
        let check = it.pools.values().next().and_then(|it| it.health.clone()).expect("a check");
        (check.kind, check.port)
    };
    let beside = node("two", &["10.0.0.2"]);
    assert_eq!(check(&shop, &beside), (CheckKind::http(), Some(31_999)));
    assert_eq!(check(&shop, &node(HOST, &["10.0.0.9"])), (CheckKind::Tcp, None), "of pods nobody tells that");
    let mut said = shop.clone();
    said.meta.annotations.insert("seaway.dev/health-check".into(), "tcp".into());
    assert_eq!(check(&said, &beside), (CheckKind::Tcp, None), "who says how to check is obeyed");
    shop.local_only = false;
    assert_eq!(check(&shop, &beside), (CheckKind::Tcp, None));
}

#[test]
fn checks_rest_only_of_pods_whose_kubelets_are_heard_and_where_nobody_asked_for_them() {
    let one = || put_node(&node("one", &["10.0.0.1"]));
    let here = || put_node(&node(HOST, &["10.0.0.9"]));
    let asked = |name: &str, value: &str| -> (Service, Change) {
        let (mut shop, slice) = with_node_ports();
        shop.meta.annotations.insert(format!("seaway.dev/{name}").into(), value.into());
        (shop, slice)
    };
    let unready = || {
        let (mut shop, slice) = with_node_ports();
        shop.publish_not_ready = true;
        (shop, slice)
    };
    let by_hand = || {
        let (shop, _) = with_node_ports();
        (shop, put_slice(&slice("shop", ("", 80), vec![on("one", "10.1.0.1"), endpoint("203.0.113.7")])))
    };
    let table = [
        ("pods", with_node_ports(), vec![one(), here()], true),
        ("of anybody's Service", asked("balance", "random-two"), vec![one(), here()], true),
        ("pods by name", asked("members", "pods"), vec![one()], true),
        ("a folder", with_node_ports(), vec![], false),
        ("Nodes", with_node_ports(), vec![one()], false),
        ("Nodes by name", asked("members", "nodes"), vec![one(), here()], false),
        ("asked for", asked("health-check", "tcp"), vec![one(), here()], false),
        ("asked for how", asked("health-check-interval", "5s"), vec![one(), here()], false),
        ("ready or not", unready(), vec![one(), here()], false),
        ("one outside", by_hand(), vec![one(), here()], false),
    ];
    for (case, (shop, slice), nodes, rests) in table {
        let world = world([put(&shop), slice].into_iter().chain(nodes).collect());
        let Desired::LoadBalancer(it) = world.desire(&unit(&owner(&shop))) else { panic!("it is served") };
        let check = it.pools.values().next().and_then(|it| it.health.clone()).expect("a check");
        assert_eq!(check.while_used, rests, "{case}");
    }
}

#[test]
fn what_a_host_beside_the_nodes_cannot_do_is_told_by_who_leads() {
    let mut shop = shop();
    shop.local_only = true;
    let roles = Roles { allocate: true, host: None };
    let mut world = World::new(roles, vec![], Arc::new(Config::default()));
    let nodes = [node("one", &["10.0.0.1"])];
    for change in [put(&shop)].into_iter().chain(nodes.iter().map(put_node)).chain(synced()) {
        world.apply(change);
    }
    let told = |world: &World| -> Vec<Reason> {
        let status = world.status(&owner(&shop)).expect("it is ours");
        let of = |it: &&seaway_model::Problem| {
            it.message.contains("not Nodes of the cluster") || it.message.contains("not a Node")
        };
        status.problems.iter().filter(of).map(|it| it.reason).collect()
    };
    let report = |name: &str| HostReport { host: name.into(), ..HostReport::default() };
    world.apply(Change::Put(Fact::Host(Arc::new(report("one")))));
    assert_eq!(told(&world), []);
    let dirt = world.apply(Change::Put(Fact::Host(Arc::new(report("bank")))));
    assert!(dirt.contains(&WorkItem::Unit(Unit::Status(owner(&shop)))), "{dirt:?}");
    assert_eq!(told(&world), [Reason::Unsupported, Reason::NoSuchPort]);
    world.apply(Change::Gone(FactRef::Host("bank".into())));
    assert_eq!(told(&world), []);
}

#[test]
fn a_host_without_a_local_pod_does_not_serve_until_it_has_one() {
    let (mut shop, slice) = with_node_ports();
    shop.local_only = true;
    let nodes = [node(HOST, &["10.0.0.9"]), node("one", &["10.0.0.1"])];
    let first = [pool(("192.0.2.10", "192.0.2.10")), put(&shop), slice];
    let mut world = world(first.into_iter().chain(nodes.iter().map(put_node)).collect());
    let present = |world: &World| match world.desire(&Unit::HostAddresses(HOST.into())) {
        Desired::HostAddresses(it) => it.addresses.len(),
        other => panic!("not present but {other:?}"),
    };
    let listeners = |world: &World| match world.desire(&unit(&owner(&shop))) {
        Desired::LoadBalancer(it) => (it.binds.clone(), it.listeners.len()),
        other => panic!("no load balancer but {other:?}"),
    };
    let binds = vec![Bind::Ledger(ip("192.0.2.10"))];
    assert_eq!((listeners(&world), present(&world)), ((binds.clone(), 0), 0));

    let mut second = seaway_testkit::facts::slice("shop", ("", 80), vec![on(HOST, "10.1.0.9")]);
    second.object.name = "shop-2".into();
    let dirt = world.apply(put_slice(&second));
    assert_eq!((listeners(&world), present(&world)), ((binds, 1), 1));
    assert!(dirt.contains(&WorkItem::Unit(Unit::HostAddresses(HOST.into()))), "{dirt:?}");
    assert_eq!(members(&world, &shop), ["10.1.0.9:80*1"]);

    let dirt = world.apply(Change::Gone(FactRef::Endpoints(second.object.clone(), 0)));
    assert_eq!((listeners(&world).1, present(&world)), (0, 0));
    assert!(dirt.contains(&WorkItem::Unit(Unit::HostAddresses(HOST.into()))), "{dirt:?}");
}

#[test]
fn local_traffic_that_hides_the_client_is_told() {
    let table: [(&[(&str, &str)], usize); 4] = [
        (&[], 1),
        (&[("seaway.dev/proxy-protocol", "v2")], 0),
        (&[("seaway.dev/protocol", "http")], 0),
        (&[("seaway.dev/proxy-protocol", "none")], 1),
    ];
    for (say, expected) in table {
        let mut shop = shop();
        shop.local_only = true;
        shop.meta.annotations = say.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let world = world(vec![put(&shop)]);
        assert_eq!(reasons(&world, "spec.externalTrafficPolicy").len(), expected, "{say:?}");
    }
}

#[test]
fn topology_hints_hold_where_everybody_has_one_and_somebody_is_meant() {
    let hinted = |at: &str, zone: &str, node: &str| Endpoint {
        for_zones: if zone.is_empty() { vec![] } else { vec![zone.into()] },
        for_nodes: if node.is_empty() { vec![] } else { vec![node.into()] },
        ..endpoint(at)
    };
    let (a, b) = ("10.1.0.1:80*1", "10.1.0.2:80*1");
    let table: [(&str, Endpoint, Endpoint, &[&str]); 6] = [
        ("none", hinted("10.1.0.1", "", ""), hinted("10.1.0.2", "", ""), &[a, b]),
        ("here and there", hinted("10.1.0.1", "z1", ""), hinted("10.1.0.2", "z2", ""), &[a]),
        ("one has none", hinted("10.1.0.1", "z1", ""), hinted("10.1.0.2", "", ""), &[a, b]),
        ("nobody for us", hinted("10.1.0.1", "z3", ""), hinted("10.1.0.2", "z2", ""), &[a, b]),
        ("this node", hinted("10.1.0.1", "z1", "n"), hinted("10.1.0.2", "z1", HOST), &[b]),
        ("other nodes", hinted("10.1.0.1", "z1", "n"), hinted("10.1.0.2", "z2", "n"), &[a]),
    ];
    for (case, first, second, expected) in table {
        let slice = put_slice(&slice("shop", ("", 80), vec![first, second]));
        let here = labelled(node(HOST, &["10.0.0.9"]), ZONE, "z1");
        let world = world(vec![put(&shop()), slice, put_node(&here)]);
        assert_eq!(members(&world, &shop()), expected, "{case}");
    }
}

#[test]
fn a_controller_counts_on_no_host_that_is_left_out_or_has_no_local_pod() {
    let table = [
        ("plain", node("a", &["10.0.0.1"]), false, true),
        ("left out", labelled(node("a", &["10.0.0.1"]), EXCLUDE, ""), false, false),
        ("no local pod", node("a", &["10.0.0.1"]), true, false),
        ("a local pod", node("one", &["10.0.0.1"]), true, true),
    ];
    for (case, of_host, local, served) in table {
        let (mut shop, slice) = with_node_ports();
        shop.local_only = local;
        let report = HostReport {
            host: of_host.meta.name.clone(),
            addresses: vec![ip("10.0.0.1")],
            ..HostReport::default()
        };
        let told = [put(&shop), slice, put_node(&of_host), Change::Put(Fact::Host(Arc::new(report)))];
        let mut world =
            World::new(Roles { allocate: true, host: None }, Vec::new(), Arc::new(Config::default()));
        for change in told.into_iter().chain(synced()) {
            world.apply(change);
        }
        assert_eq!(world.status(&owner(&shop)).expect("it is ours").ready, served, "{case}");
    }
}

#[test]
fn a_service_that_changes_its_type_or_class_is_left_and_taken_again() {
    let other = |change: fn(&mut Service)| {
        let mut it = service("shop", &[("", 8080, TargetPort::Number(80))]);
        change(&mut it);
        it
    };
    let table: [(&str, Service); 3] = [
        ("ClusterIP", other(|it| it.kind = seaway_model::fact::ServiceKind::ClusterIp)),
        ("NodePort", other(|it| it.kind = seaway_model::fact::ServiceKind::NodePort)),
        ("another's class", other(|it| it.class = Some("metallb.io/metallb".into()))),
    ];
    for (case, left) in table {
        let mut world = world(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop())]);
        dry_run(&mut world, vec![put(&left)]);
        assert_eq!(world.desire(&unit(&owner(&left))), Desired::Absent, "{case}");
        assert_eq!(world.status(&owner(&left)), None, "{case}");
        assert_eq!(
            world.desire(&Unit::Address(ip("192.0.2.10"))),
            Desired::Absent,
            "{case}: its address is free"
        );
        let mut ours = shop();
        ours.class = Some("seaway.dev/native".into());
        dry_run(&mut world, vec![put(&ours)]);
        assert_eq!(world.status(&owner(&ours)).expect("ours again").addresses, [ip("192.0.2.10")], "{case}");
    }
    let gone = Change::Gone(FactRef::Object(ObjectRef::new(Kind::Service, "default", "shop")));
    let mut world = world(vec![put(&shop())]);
    dry_run(&mut world, vec![gone]);
    assert_eq!(world.desire(&unit(&owner(&shop()))), Desired::Absent);
}

#[test]
fn a_service_without_a_class_is_ours_only_if_we_are_told_so() {
    for (classless, class, ours) in [
        (true, None, true),
        (false, None, false),
        (false, Some("seaway.dev/native"), true),
        (true, Some("seaway.dev/octavia"), false),
        (true, Some("somebody.else/lb"), false),
    ] {
        let mut shop = shop();
        shop.class = class.map(Into::into);
        let config = Config { classless, ..Config::default() };
        let roles = Roles { allocate: true, host: Some(HOST.into()) };
        let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(config));
        dry_run(&mut world, [put(&shop), host(&["192.0.2.5"], &[])].into_iter().chain(synced()));
        assert_eq!(world.status(&owner(&shop)).is_some(), ours, "{classless} {class:?}");
    }
}

#[test]
fn in_a_cluster_nobody_is_told_to_write_what_is_about_to_be_written() {
    let selecting = |mut it: Service| {
        it.selector.insert("app".into(), "shop".into());
        it
    };
    let told = |changes: Vec<Change>| reasons(&world(changes), "spec.ports[0]");
    let here = put_node(&node(HOST, &["10.0.0.1"]));
    let empty = put_slice(&slice("shop", ("", 80), vec![]));
    assert_eq!(told(vec![put(&selecting(shop()))]), [Reason::NoEndpoints], "in a folder it is");
    assert_eq!(told(vec![put(&selecting(shop())), here.clone()]), [], "a controller does it");
    assert_eq!(told(vec![put(&selecting(shop())), here.clone(), empty]), [Reason::NoEndpoints]);
    assert_eq!(told(vec![put(&shop()), here]), [Reason::NoEndpoints], "without a selector nobody does it");
}

#[test]
fn clients_are_shown_to_members_whose_answers_come_back_by_the_host() {
    let (mut shop, slice) = with_node_ports();
    shop.meta.annotations.insert("seaway.dev/transparent".into(), "true".into());
    let shows = |shop: &Service, nodes: &[Node]| {
        let pods = [put(shop), slice.clone()].into_iter().chain(nodes.iter().map(put_node));
        let world = world(pods.collect());
        let Desired::LoadBalancer(it) = world.desire(&unit(&owner(shop))) else { panic!("it is served") };
        let shows = it.pools.values().all(|it| it.transparent);
        (shows, reasons(&world, "metadata.annotations[seaway.dev/transparent]").len())
    };
    let here = [node(HOST, &["10.0.0.9"])];
    assert_eq!(shows(&shop, &[]), (true, 0), "in a folder, who says so knows");
    assert_eq!(shows(&shop, &here), (false, 1), "pods of other Nodes answer by their own way");
    assert_eq!(shows(&shop, &[node("one", &["10.0.0.1"])]), (true, 0), "beside the Nodes, too");
    shop.local_only = true;
    assert_eq!(shows(&shop, &here), (true, 0));
    let local = |shop: &Service| {
        let pods = [put(shop), slice.clone(), put_node(&here[0])];
        reasons(&world(pods.into()), "spec.externalTrafficPolicy").len()
    };
    assert_eq!(local(&shop), 0);
    shop.meta.annotations.insert("seaway.dev/protocol".into(), "http".into());
    assert_eq!(shows(&shop, &here), (false, 1), "of HTTP a header tells it");
    shop.meta.annotations.clear();
    assert_eq!(local(&shop), 1, "with neither it is told");
}
