use seaway_model::{
    Config, L4, PoolId, Reason,
    config::{ExposedPort, FrontDoor, FrontDoorServices, OpenPolicy, UnmatchedResponse},
    fact::{ServiceKind, TargetPort},
    load_balancer::{Action, Affinity, BackendProtocol, Bind, CookieMode, Filter, Protocol},
};
use seaway_testkit::facts::{self, ip};

use super::scene::*;
use crate::certificates::tests::tls_secret;

pub(super) fn exposed(l4: L4, service: &str, port: u16) -> ExposedPort {
    ExposedPort {
        key: "tcpServices[0]".into(),
        l4,
        namespace: "default".into(),
        service: service.into(),
        port: TargetPort::Number(port),
        listen: None,
        address: None,
    }
}

/// The entrances of one Service, told alone.
fn alone(config: Config, service: &seaway_model::fact::Service) -> Vec<String> {
    entrances(&world(config, [put(service), backed(service)]))
}

#[test]
fn a_service_is_at_its_name_and_below_its_namespace_with_and_without_its_port() {
    assert_eq!(
        alone(Config::default(), &service("shop/cart", &[80])),
        [
            "/cart -> shop/cart:80",
            "/shop/cart -> shop/cart:80",
            "/cart:80 -> shop/cart:80",
            "/shop/cart:80 -> shop/cart:80",
        ]
    );
}

#[test]
fn of_several_ports_80_has_the_name_alone_and_else_the_first() {
    let table: [(&[u16], u16); 4] =
        [(&[80, 443], 80), (&[443, 80], 80), (&[8080], 8080), (&[8080, 9090], 8080)];
    for (ports, first) in table {
        let found = alone(Config::default(), &service("web", ports));
        assert!(found.contains(&format!("/web -> default/web:{first}")), "{ports:?}: {found:?}");
        for port in ports {
            assert!(found.contains(&format!("/web:{port} -> default/web:{port}")), "{ports:?}: {found:?}");
            assert!(found.contains(&format!("/default/web:{port} -> default/web:{port}")), "{found:?}");
        }
        assert_eq!(found.len(), 2 + 2 * ports.len(), "{found:?}");
    }
}

#[test]
fn what_speaks_something_else_is_not_there() {
    let with = |exposed: &[ExposedPort]| Config { exposed: exposed.to_vec(), ..Config::default() };
    let web = service("web", &[80]);
    let mut udp = web.clone();
    udp.ports[0].protocol = L4::Udp;
    let none: [&str; 0] = [];
    let table = [
        ("plain", Config::default(), web.clone(), true),
        ("http", Config::default(), speaking(web.clone(), 0, "kubernetes.io/h2c"), true),
        ("https", Config::default(), speaking(web.clone(), 0, "https"), true),
        ("mysql", Config::default(), speaking(web.clone(), 0, "mysql"), false),
        ("udp", Config::default(), udp, false),
        ("in tcpServices", with(&[exposed(L4::Tcp, "web", 80)]), web.clone(), false),
        ("in udpServices", with(&[exposed(L4::Udp, "web", 80)]), web.clone(), false),
        ("another port in tcpServices", with(&[exposed(L4::Tcp, "web", 81)]), web.clone(), true),
        ("another Service there", with(&[exposed(L4::Tcp, "db", 80)]), web.clone(), true),
        ("in tcpServices, but HTTP", with(&[exposed(L4::Tcp, "web", 80)]), speaking(web, 0, "http"), true),
    ];
    for (name, config, service, there) in table {
        let found = alone(config, &service);
        assert_eq!(found != none, there, "{name}: {found:?}");
    }
}

#[test]
fn the_old_bank_s_example_comes_out_as_it_did() {
    // Two Services with ports 10 and 20, one of them in --tcp-services: three entrances are left.
    let config = Config { exposed: vec![exposed(L4::Tcp, "svc1", 20)], ..Config::default() };
    let (one, two) = (service("svc1", &[10, 20]), service("svc2", &[10, 20]));
    let world = world(config, [put(&one), put(&two), backed(&one), backed(&two)]);
    let found = entrances(&world);
    for (claim, there) in [("/svc1:10", true), ("/svc1:20", false), ("/svc2:10", true), ("/svc2:20", true)] {
        assert_eq!(found.iter().any(|it| it.starts_with(&format!("{claim} "))), there, "{claim}: {found:?}");
    }
    assert_eq!(problems(&world), [""; 0]);
}

#[test]
fn who_is_let_in_is_asked_of_type_annotations_and_configuration() {
    let annotated = || with(FrontDoor { services: FrontDoorServices::Annotated, ..FrontDoor::default() });
    let of = |kind: ServiceKind, annotations: &[(&str, &str)]| {
        let mut service = saying(service("web", &[80]), annotations);
        service.kind = kind;
        service
    };
    let outside = || ServiceKind::ExternalName("web.example".into());
    let (asks, hides) = (("seaway.dev/front-door", "true"), ("seaway.dev/front-door", "false"));
    let hosted = ("seaway.dev/host", "a.example");
    let table = [
        ("ClusterIP", Config::default(), of(ServiceKind::ClusterIp, &[]), true),
        ("NodePort", Config::default(), of(ServiceKind::NodePort, &[]), true),
        ("outside", Config::default(), of(outside(), &[]), true),
        ("LoadBalancer", Config::default(), of(ServiceKind::LoadBalancer, &[]), false),
        ("LoadBalancer that asks", Config::default(), of(ServiceKind::LoadBalancer, &[asks]), true),
        ("LoadBalancer with a host", Config::default(), of(ServiceKind::LoadBalancer, &[hosted]), true),
        ("hidden", Config::default(), of(ServiceKind::ClusterIp, &[hides]), false),
        ("hidden with a host", Config::default(), of(ServiceKind::ClusterIp, &[hides, hosted]), false),
        ("annotated only", annotated(), of(ServiceKind::ClusterIp, &[]), false),
        ("annotated only, and it asks", annotated(), of(ServiceKind::ClusterIp, &[asks]), true),
        ("annotated only, with a host", annotated(), of(ServiceKind::ClusterIp, &[hosted]), true),
    ];
    for (name, config, service, there) in table {
        let found = alone(config, &service);
        assert_eq!(!found.is_empty(), there, "{name}: {found:?}");
    }
}

#[test]
fn who_may_not_connect_at_its_own_address_gets_403_by_all_rules_of_the_service() {
    let networks =
        |all: &[&str]| -> Vec<ipnet::IpNet> { all.iter().map(|it| it.parse().expect("a network")).collect() };
    let ranges = ("seaway.dev/source-ranges", "10.0.0.0/8");
    let (host, placed) = (("seaway.dev/host", "a.example"), ("seaway.dev/host", "a.example,b.example/api"));
    for (say, field, expected) in [
        (vec![], vec![], vec![]),
        (vec![ranges], vec![], vec!["10.0.0.0/8"]),
        (vec![ranges, host], vec![], vec!["10.0.0.0/8"]),
        (vec![ranges, placed], vec![], vec!["10.0.0.0/8"]),
        (vec![ranges, ("seaway.dev/path", "/shop")], vec![], vec!["10.0.0.0/8"]),
        (vec![host], vec!["192.0.2.0/24"], vec!["192.0.2.0/24"]),
        // An annotation opens nothing that the field closes.
        (vec![("seaway.dev/source-ranges", "0.0.0.0/0"), host], vec!["192.0.2.0/24"], vec!["192.0.2.0/24"]),
    ] {
        let mut web = saying(service("web", &[80]), &say);
        web.source_ranges = networks(&field);
        let world = world(Config::default(), [put(&web), backed(&web)]);
        let rules = &listener(&world).rules;
        let is_ignored = |it: &String| it.ends_with("this annotation is ignored");
        assert!(!rules.is_empty() && problems(&world).iter().all(is_ignored), "{:?}", problems(&world));
        assert!(rules.iter().all(|rule| rule.sources == networks(&expected)), "{say:?} {field:?}: {rules:?}");
    }
    // Nobody is sent to https who may not ask there.
    let tls = [ranges, host, ("seaway.dev/tls", "own"), ("seaway.dev/https-redirect", "true")];
    let web = saying(service("web", &[80]), &tls);
    let pair = told(&tls_secret("own", &["a.example"]));
    let world = world(Config::default(), [put(&web), backed(&web), pair]);
    let sent = &listener(&world).rules;
    assert!(sent.iter().any(|it| matches!(it.action, Action::Redirect(_))), "{sent:?}");
    assert!(sent.iter().all(|rule| rule.sources == networks(&["10.0.0.0/8"])), "{sent:?}");
}

#[test]
fn tls_is_not_passed_on_to_a_service_with_source_ranges() {
    let through = [("seaway.dev/host", "a.example"), ("seaway.dev/tls-passthrough", "true")];
    for (say, field) in [
        (vec![("seaway.dev/source-ranges", "10.0.0.0/8")], vec![]),
        (vec![("seaway.dev/denied-source-ranges", "10.0.0.0/8")], vec![]),
        (vec![], vec!["10.0.0.0/8"]),
    ] {
        let mut web = saying(service("web", &[443]), &[&say[..], &through].concat());
        web.source_ranges = field.iter().map(|it: &&str| it.parse().expect("a network")).collect();
        let world = world(Config::default(), [put(&web), backed(&web)]);
        assert!(served(&world).is_empty());
        let problem = world.problems().remove(0);
        assert_eq!(
            (problem.reason, problem.field.as_str()),
            (Reason::Unsupported, "metadata.annotations[seaway.dev/tls-passthrough]")
        );
    }
}

#[test]
fn hosts_and_paths_of_its_own_lead_to_its_first_port_as_they_are() {
    let hosted = saying(service("web", &[8080, 80]), &[("seaway.dev/host", "shop.example,*.shop.example")]);
    let found = alone(Config::default(), &hosted);
    assert!(found.contains(&"shop.example/ -> default/web:80".to_owned()), "{found:?}");
    assert!(found.contains(&"*.shop.example/ -> default/web:80".to_owned()), "{found:?}");
    assert!(found.contains(&"/web -> default/web:80".to_owned()), "{found:?}");

    let placed = saying(service("web", &[80]), &[("serviceloadbalancer/lb.aclMatch", "/shop,/")]);
    let world = world(Config::default(), [put(&placed), backed(&placed)]);
    assert_eq!(entrances(&world), ["/shop -> default/web:80", "/ -> default/web:80"]);
    assert_eq!(listener(&world).rules[0].filters, []);
}

#[test]
fn prefixes_are_taken_away_unless_the_configuration_or_the_service_says_otherwise() {
    let table =
        [(true, None, true), (true, Some("false"), false), (false, None, false), (false, Some("true"), true)];
    for (strip_prefix, said, stripped) in table {
        let said: Vec<(&str, &str)> = said.iter().map(|value| ("seaway.dev/strip-prefix", *value)).collect();
        let web = saying(service("web", &[80]), &said);
        let config = with(FrontDoor { strip_prefix, ..FrontDoor::default() });
        let listener = listener(&world(config, [put(&web)]));
        let expected = if stripped { vec![Filter::RewritePrefix("/".into())] } else { Vec::new() };
        assert_eq!(listener.rules[0].filters, expected, "{strip_prefix} {said:?}");
    }
}

#[test]
fn it_opens_as_soon_as_somebody_is_there_unless_told_otherwise() {
    let web = service("web", &[80]);
    let table = [
        (OpenPolicy::Never, false, false),
        (OpenPolicy::Never, true, false),
        (OpenPolicy::WhenNeeded, false, false),
        (OpenPolicy::WhenNeeded, true, true),
        (OpenPolicy::Always, false, true),
        (OpenPolicy::Always, true, true),
    ];
    for (opens, somebody, open) in table {
        let changes = somebody.then(|| put(&web));
        let world = world(with(FrontDoor { opens, ..FrontDoor::default() }), changes);
        assert_eq!(load_balancer(&world).is_some(), open, "{opens:?} {somebody}");
        assert_eq!(world.front_door().is_some(), open, "{opens:?} {somebody}");
    }
}

#[test]
fn it_stands_on_all_addresses_and_is_not_in_the_way_of_others() {
    let mut other = facts::service("other", &[("", 80, TargetPort::Number(80))]);
    other.kind = ServiceKind::LoadBalancer;
    let web = service("web", &[80]);
    let world = world(Config::default(), [put(&web), put(&other), backed(&web)]);
    let door = load_balancer(&world).expect("it is open");
    assert_eq!(door.binds, [Bind::Host(ip("::")), Bind::Host(ip("0.0.0.0"))]);
    let listener = listener(&world);
    assert_eq!((listener.port, listener.protocol), (80, Protocol::Http));
    let seaway_model::Desired::LoadBalancer(beside) = world.desire(&unit(&facts::owner(&other))) else {
        panic!("it is served");
    };
    assert_eq!(beside.listeners.len(), 1, "{:?}", world.problems());
}

#[test]
fn an_address_and_port_that_a_service_has_is_a_problem_of_the_younger_alone() {
    let mut other = facts::service("other", &[("", 80, TargetPort::Number(80))]);
    other.kind = ServiceKind::LoadBalancer;
    let web = service("web", &[80]);
    let at_one = FrontDoor { addresses: vec![ip("192.0.2.5")], ..FrontDoor::default() };
    let world = world(with(at_one), [put(&web), put(&other), backed(&web)]);
    assert_eq!(load_balancer(&world).expect("open").binds, [Bind::Host(ip("192.0.2.5"))]);
    let conflicts: Vec<String> = world
        .problems()
        .iter()
        .filter(|it| it.reason == Reason::PortConflict)
        .map(ToString::to_string)
        .collect();
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert!(conflicts[0].contains("is already used by configuration frontDoor"), "{conflicts:?}");
}

#[test]
fn pools_speak_what_their_port_speaks_and_stick_as_they_are_asked_to() {
    let grpc = speaking(service("grpc", &[80]), 0, "grpc");
    let plain = saying(
        service("web", &[80]),
        &[("seaway.dev/sticky-cookie", "id"), ("seaway.dev/sticky-cookie-mode", "rewrite")],
    );
    let world = world(Config::default(), [put(&grpc), put(&plain), backed(&grpc), backed(&plain)]);
    let pools = &load_balancer(&world).expect("open").pools;
    let pool = |id: &str| pools.get(&PoolId(id.into())).expect("it is there");
    assert_eq!(pool("default/grpc:80").protocol, BackendProtocol::Http2);
    assert_eq!(pool("default/web:80").protocol, BackendProtocol::Http1);
    assert_eq!(
        pool("default/web:80").affinity,
        Some(Affinity::Cookie { name: "id".into(), mode: CookieMode::Rewrite, key: None })
    );
    assert_eq!(pool("default/web:80").members.len(), 1);
}

#[test]
fn what_nobody_wants_is_answered_as_the_configuration_says() {
    let web = service("web", &[80]);
    let page = FrontDoor {
        unmatched: Some(UnmatchedResponse { code: 410, page: Some("gone".into()) }),
        ..FrontDoor::default()
    };
    let rules = listener(&world(with(page), [put(&web)])).rules.clone();
    assert_eq!(rules.last().expect("it is there").action, Action::Respond { code: 410, body: "gone".into() });
    let usual = listener(&world(Config::default(), [put(&web)]));
    assert!(usual.rules.iter().all(|rule| matches!(rule.action, Action::Forward(_))));
}

#[test]
fn a_load_balancer_speaks_http_only_if_it_says_so() {
    let table = [
        (None, None, Protocol::Opaque, BackendProtocol::Opaque),
        (None, Some("http"), Protocol::Opaque, BackendProtocol::Opaque),
        (Some("http"), None, Protocol::Http, BackendProtocol::Http1),
        (Some("http"), Some("kubernetes.io/h2c"), Protocol::Http, BackendProtocol::Http2),
        (Some("http"), Some("mysql"), Protocol::Opaque, BackendProtocol::Opaque),
        (Some("tcp"), Some("http"), Protocol::Opaque, BackendProtocol::Opaque),
    ];
    for (said, spoken, protocol, backend) in table {
        let mut shop = facts::shop();
        shop.ports[0].app_protocol = spoken.map(Into::into);
        shop.meta.annotations.extend(said.map(|it| ("seaway.dev/protocol".into(), it.into())));
        let world = world(Config::default(), [put(&shop), backed(&shop)]);
        let seaway_model::Desired::LoadBalancer(it) = world.desire(&unit(&facts::owner(&shop))) else {
            panic!("it is served");
        };
        let listener = it.listeners.values().next().expect("one");
        let pool = it.pools.values().next().expect("one");
        assert_eq!((listener.protocol, pool.protocol), (protocol, backend), "{said:?} {spoken:?}");
        assert!(world.front_door().is_none());
    }
}

#[test]
fn a_host_with_a_path_is_one_entrance_and_the_only_one() {
    let host = |name: &str, value: &str| {
        let mut web = service(name, &[80]);
        web.meta.annotations.insert("seaway.dev/host".into(), value.into());
        web
    };
    let at = |value: &str| alone(Config::default(), &host("web", value));
    let to = |at: &str| format!("{at} -> default/web:80");
    assert_eq!(at("shop.example/api"), [to("shop.example/api")]);
    assert_eq!(at("shop.example/"), [to("shop.example/")], "and not /web");
    assert_eq!(
        at("shop.example/api,*.shop.example/api/v2/, a.example"),
        [to("a.example/"), to("shop.example/api"), to("*.shop.example/api/v2")]
    );
    // Without a path, as ever.
    assert!(at("shop.example").contains(&to("/web")));
    // Beside it, paths at any host are asked for by themselves.
    let mut both = host("web", "shop.example/api");
    both.meta.annotations.insert("seaway.dev/path".into(), "/cart".into());
    assert_eq!(alone(Config::default(), &both), [to("/cart"), to("shop.example/api")]);

    let (api, rest) = (host("web", "shop.example/api"), host("rest", "shop.example/"));
    let world = world(Config::default(), [put(&api), backed(&api), put(&rest), backed(&rest)]);
    assert!(world.problems().is_empty(), "{:?}", world.problems());
}

#[test]
fn the_prefix_of_a_host_is_stripped_if_that_is_asked_for() {
    let mut web = service("web", &[80]);
    web.meta.annotations.insert("seaway.dev/host".into(), "shop.example/api".into());
    let strips = |web: &seaway_model::fact::Service| {
        let world = world(Config::default(), [put(web), backed(web)]);
        listener(&world).rules.iter().any(|rule| rule.filters == [Filter::RewritePrefix("/".into())])
    };
    assert!(!strips(&web));
    web.meta.annotations.insert("seaway.dev/strip-prefix".into(), "true".into());
    assert!(strips(&web));
}

#[test]
fn where_tls_is_passed_through_a_host_has_no_path() {
    let mut web = service("web", &[443]);
    web.meta.annotations.insert("seaway.dev/host".into(), "shop.example/api".into());
    web.meta.annotations.insert("seaway.dev/tls-passthrough".into(), "true".into());
    let world = world(Config::default(), [put(&web), backed(&web)]);
    let told = world.problems();
    assert!(told.iter().any(|it| it.message.contains("path of a request is encrypted")), "{told:?}");
    assert!(entrances(&world).is_empty(), "{:?}", entrances(&world));
}

#[test]
fn what_cannot_be_had_where_listeners_are_shared_is_told_unless_the_service_has_its_own() {
    let web = saying(service("web", &[80, 81]), &[("seaway.dev/timeout-udp", "7s")]);
    for (namespace, name, is_told) in
        [("default", "web", false), ("elsewhere", "web", true), ("default", "other", true)]
    {
        let its = ExposedPort { namespace: namespace.into(), ..exposed(L4::Tcp, name, 81) };
        let config = Config { exposed: vec![its], ..Config::default() };
        let world = world(config, [put(&web), backed(&web)]);
        let told = problems(&world);
        let found = told.iter().any(|it| it.contains("no effect at the front door"));
        assert_eq!(found, is_told, "{namespace}/{name}: {told:?}");
    }
}

#[test]
fn a_port_of_the_configuration_listens_nowhere_where_its_address_may_not_be_used() {
    use seaway_testkit::facts::ip;
    let db = service("db", &[5432]);
    for (only, is_told) in [("192.0.2.5", false), ("192.0.2.6", true)] {
        let port = ExposedPort { address: Some(ip("192.0.2.5")), ..exposed(L4::Tcp, "db", 5432) };
        let config = Config { exposed: vec![port], listen_only: vec![ip(only)], ..Config::default() };
        let world = world(config, [put(&db), backed(&db)]);
        let all = world.problems();
        let told = all.iter().find(|it| it.message.contains("it listens nowhere"));
        assert_eq!(told.is_some(), is_told, "{only}: {all:?}");
        assert!(told.is_none_or(|it| it.fix.contains("--address 192.0.2.5")), "{told:?}");
        // It is no port of HTTP for that.
        assert_eq!(entrances(&world), [""; 0], "{only}");
    }
}

#[test]
fn a_service_with_a_host_name_misses_no_path_of_its_name() {
    for (hosts, is_told) in [(None, true), (Some(["a.example", "b.example"]), false)] {
        let web = |namespace: &str, index: usize| {
            let it = service(&format!("{namespace}/web"), &[80]);
            match hosts {
                Some(hosts) => saying(it, &[("seaway.dev/host", hosts[index])]),
                None => it,
            }
        };
        let (one, two) = (web("aa", 0), web("bb", 1));
        let world = world(Config::default(), [put(&one), backed(&one), put(&two), backed(&two)]);
        let told: Vec<String> =
            problems(&world).into_iter().filter(|it| it.contains("/web") && it.contains("already")).collect();
        assert_eq!(told.len(), usize::from(is_told), "{told:?}");
    }
}
