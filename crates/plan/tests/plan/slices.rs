//! EndpointSlices that lead nowhere, in a folder and in a cluster.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Fact, Kind, L4, ObjectRef, PoolId, Reason,
    config::{ExposedPort, OpenPolicy},
    fact::{
        Endpoint, EndpointAddress, EndpointPort, Endpoints, Meta, Node, Service, ServiceKind, TargetPort,
    },
};
use seaway_plan::{
    ServiceKey,
    explain::{MemberStatuses, explain, explain_running},
    slices_without_service,
};
use seaway_testkit::facts::{endpoint, host, owner, put, put_slice, service, slice};

use crate::cluster::scene::{on_host, on_host_of};

fn named(slice: Endpoints, name: &str) -> Change {
    put_slice(&Endpoints { object: ObjectRef::new(Kind::EndpointSlice, "default", name), ..slice })
}

/// What is told of a Service with the ports `web` and `admin`, beside a slice of `web`.
fn told(more: Vec<Change>) -> Vec<(Reason, String)> {
    let shop =
        service("shop", &[("web", 80, TargetPort::Number(8080)), ("admin", 81, TargetPort::Number(8081))]);
    let good = [put(&shop), put_slice(&slice("shop", ("web", 8080), vec![endpoint("10.1.0.1")]))];
    let first = std::iter::once(host(&["192.0.2.5"], &[])).chain(good);
    let world = on_host(first.chain(more).collect());
    let problems = world.status(&owner(&shop)).expect("it is ours").problems;
    let of_slices = problems.into_iter().filter(|it| it.message.contains("shop-2"));
    of_slices.map(|it| (it.reason, format!("{} {}", it.message, it.fix))).collect()
}

#[test]
fn a_slice_without_any_port_of_its_service_is_told_once_and_only_where_people_write_slices() {
    let other = |port| named(slice("shop", (port, 9000), vec![endpoint("10.1.0.2")]), "shop-2");
    let [(reason, words)] = &told(vec![other("wbe")])[..] else {
        panic!("once: {:?}", told(vec![other("wbe")]))
    };
    assert_eq!(*reason, Reason::NoSuchPort);
    assert!(words.contains("not used") && words.contains("this slice has 9000/TCP \"wbe\""), "{words}");
    assert!(words.contains("\"web\" with target port 8080, \"admin\" with target port 8081"), "{words}");
    assert_eq!(told(vec![other("admin")]), [], "it is that of the other port");
    let node = Node { meta: Meta { name: "a".into(), ..Meta::default() }, ..Node::default() };
    let node = Change::Put(Fact::Node(Arc::new(node)));
    // Pods may name a port otherwise for a while, and controllers know it.
    assert_eq!(told(vec![node, other("wbe")]), []);
}

#[test]
fn an_annotation_without_meaning_on_a_slice_is_told_with_the_one_that_was_meant() {
    let mut of_web = slice("shop", ("web", 8080), vec![endpoint("10.1.0.2")]);
    of_web.annotations =
        [("seaway.dev/wieght".into(), "2".into()), ("other.example/x".into(), "y".into())].into();
    let said = told(vec![named(of_web.clone(), "shop-2")]);
    assert!(
        said.iter()
            .all(|it| it.0 == Reason::BadAnnotation && it.1.contains("Did you mean seaway.dev/weight?"))
    );
    assert_eq!(said.len(), 1, "{said:?}");
    of_web.annotations = [("seaway.dev/weight".into(), "2".into())].into();
    assert_eq!(told(vec![named(of_web, "shop-2")]), []);
}

#[test]
fn slices_of_services_that_are_not_there_are_told_with_the_nearest_name() {
    let shop = service("shop", &[("", 80, TargetPort::Number(8080))]);
    let at = |name: &str| slice(name, ("", 8080), vec![endpoint("10.1.0.1")]);
    let world =
        on_host(vec![host(&["192.0.2.5"], &[]), put(&shop), put_slice(&at("shop")), put_slice(&at("shpo"))]);
    let [problem] = &slices_without_service(&world)[..] else { panic!("one of them") };
    assert_eq!((&*problem.object.name, problem.reason), ("shpo-1", Reason::NoSuchService));
    assert_eq!(problem.fix, "Did you mean shop?");
}

#[test]
fn explain_says_of_each_slice_whether_it_is_used() {
    let shop = service("shop", &[("web", 80, TargetPort::Number(8080))]);
    let good = slice("shop", ("web", 8080), vec![endpoint("10.1.0.1")]);
    let bad = named(slice("shop", ("wbe", 9000), vec![endpoint("10.1.0.2")]), "shop-2");
    let world = on_host(vec![host(&["192.0.2.5"], &[]), put(&shop), put_slice(&good), bad]);
    let text = explain(&world, &ServiceKey::new("default", "shop")).expect("it is there");
    assert!(text.contains("EndpointSlice default/shop-1: 1 endpoints\n"), "{text}");
    let unused = "EndpointSlice default/shop-2: 1 endpoints, not used: the slice lists no port of this Service, only 9000/TCP \"wbe\"\n";
    assert!(text.contains(unused), "{text}");
    assert!(text.contains("10.1.0.1:8080  listed as ready"), "{text}");
    let two =
        service("shop", &[("web", 80, TargetPort::Number(8080)), ("admin", 81, TargetPort::Number(81))]);
    let world = on_host(vec![host(&["192.0.2.5"], &[]), put(&two), put_slice(&good)]);
    let text = explain(&world, &ServiceKey::new("default", "shop")).expect("it is there");
    let partly = "EndpointSlice default/shop-1: 1 endpoints, not used for 81/TCP: the slice lists only 8080/TCP \"web\"\n";
    assert!(text.contains(partly), "{text}");
}

/// As `tcpServices` asks for one port of a Service.
#[test]
fn a_slice_of_a_port_that_nobody_asks_for_is_used_by_its_service_all_the_same() {
    let shop =
        service("shop", &[("web", 80, TargetPort::Number(8080)), ("admin", 81, TargetPort::Number(8081))]);
    let shop = Service { kind: ServiceKind::ClusterIp, class: None, ..shop };
    let exposed = ExposedPort {
        key: "tcpServices[0]".into(),
        l4: L4::Tcp,
        namespace: "default".into(),
        service: "shop".into(),
        port: TargetPort::Name("web".into()),
        listen: None,
        address: None,
    };
    let mut config = Config { exposed: vec![exposed], ..Config::default() };
    config.front_door.opens = OpenPolicy::Never;
    let world = on_host_of(
        config,
        vec![
            host(&["192.0.2.5"], &[]),
            put(&shop),
            put_slice(&slice("shop", ("web", 8080), vec![endpoint("10.1.0.1")])),
            named(slice("shop", ("admin", 8081), vec![endpoint("10.1.0.1")]), "shop-2"),
        ],
    );
    assert_eq!(world.problems(), []);
}

#[test]
fn a_port_of_a_slice_that_is_nearly_one_that_it_lacks_is_told() {
    let with = |ports: &[(&str, u16)]| {
        let mut slice = slice("shop", ("web", 0), vec![endpoint("10.1.0.2")]);
        slice.ports = ports
            .iter()
            .map(|(name, port)| EndpointPort { name: (*name).into(), protocol: L4::Tcp, port: Some(*port) })
            .collect();
        named(slice, "shop-2")
    };
    let said = told(vec![with(&[("wbe", 9000), ("admin", 8081)])]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].1.contains("shop-2 has no port \"web\"") && said[0].1.contains("Did you mean \"web\"?"),
        "{said:?}"
    );
    // More than the Service uses is no mistake, nor is a slice for each port.
    for ports in
        [&[("web", 8080), ("metrics", 9)][..], &[("admin", 8081)], &[("admin", 8081), ("metrics", 9)]]
    {
        assert_eq!(told(vec![with(ports)]), [], "{ports:?}");
    }
}

#[test]
fn each_slice_and_endpoint_that_is_not_used_is_explained_and_each_member_as_it_stands() {
    let port = |name: &str, port| service(name, &[("web", port, TargetPort::Number(8080))]);
    let (web, shop) = (port("web", 80), port("shop", 81));
    let not_ready = Endpoint { ready: false, serving: false, ..endpoint("10.1.0.2") };
    let leaving = Endpoint { terminating: true, ready: false, serving: false, ..endpoint("10.1.0.3") };
    let name = Endpoint { at: EndpointAddress::Name("a.example".into()), ..endpoint("10.1.0.4") };
    let all = vec![endpoint("10.1.0.1"), not_ready, leaving, name, endpoint("192.0.2.5")];
    let loops = Endpoints { service: "web".into(), ..slice("web", ("web", 81), all) };
    let world = on_host(vec![
        host(&["192.0.2.5"], &[]),
        put(&web),
        put(&shop),
        put_slice(&loops),
        named(slice("web", ("wbe", 9), vec![endpoint("10.1.0.9")]), "web-2"),
        named(slice("wbe", ("web", 81), vec![endpoint("10.1.0.8")]), "lost"),
    ]);
    let key = ServiceKey::new("default", "web");
    let text = explain(&world, &key).expect("it is there");
    for line in [
        "  10.1.0.1:81  listed as ready\n",
        "  10.1.0.2  not used: it is not ready\n",
        "  10.1.0.3  not used: it is terminating\n",
        "  a.example  not used yet: the name has no answer; seaway run resolves it\n",
        "  192.0.2.5  not used: Seaway itself listens there, which would make a loop\n",
        "EndpointSlice default/web-2: 1 endpoints, not used: the slice lists no port of this Service, only 9/TCP \"wbe\"\n",
        "EndpointSlice default/lost: not used: its label kubernetes.io/service-name is \"wbe\", and there is no such",
    ] {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
    let standings = |at: &str, how: &str| -> MemberStatuses {
        [((PoolId("80/TCP".into()), at.parse().expect("an address")), how.to_owned())].into()
    };
    let told = |at: &str, how: &str| explain_running(&world, &key, &standings(at, how)).expect("it is there");
    let text = told("10.1.0.1:81", "down: refused");
    assert!(text.contains("  10.1.0.1:81  listed as ready; now down: refused\n"), "{text}");
    let text = told("10.1.0.7:81", "draining, with 3 connections");
    assert!(text.contains("  10.1.0.1:81  listed as ready; now not known to the process yet\n"), "{text}");
    assert!(
        text.contains("  10.1.0.7:81  not a member any more; now draining, with 3 connections\n"),
        "{text}"
    );
}

#[test]
fn a_backend_that_is_named_twice_is_told_and_one_that_two_slices_have_is_not() {
    let shop = service("shop", &[("", 80, TargetPort::Number(8080))]);
    let said = |kind: Kind| {
        let part = |part, weight: &str, ips: &[&str]| {
            let endpoints = ips.iter().map(|ip| endpoint(ip)).collect();
            let object = match kind {
                Kind::Service => ObjectRef::new(kind, "default", "shop"),
                _ => ObjectRef::new(kind, "default", format!("shop-{part}")),
            };
            let annotations = [("seaway.dev/weight".into(), weight.into())].into();
            put_slice(&Endpoints { object, part, annotations, ..slice("shop", ("", 8080), endpoints) })
        };
        let parts = [part(0, "3", &["10.0.0.1", "10.0.0.2"]), part(1, "5", &["10.0.0.1"])];
        let world = on_host([host(&["192.0.2.5"], &[]), put(&shop)].into_iter().chain(parts).collect());
        let problems = world.status(&owner(&shop)).expect("it is ours").problems;
        let twice = problems.into_iter().filter(|it| it.reason == Reason::Duplicate);
        twice.map(|it| format!("{}: {}", it.field, it.message)).collect::<Vec<_>>()
    };
    assert_eq!(
        said(Kind::Service),
        [
            "metadata.annotations[seaway.dev/backends]: 10.0.0.1:8080 is written twice: it counts once, with weight 3"
        ]
    );
    // Controllers move an endpoint from one slice to another.
    assert_eq!(said(Kind::EndpointSlice), [""; 0]);
}
