//! Certificates at the front door, and at LoadBalancers of their own.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Kind, L4, Listener, ListenerId, LoadBalancer, ObjectRef, Outcome, Problem,
    Reason, Time, WorkItem,
    config::{FrontDoorTls, TlsSecrets},
    fact::{Secret, Service, ServiceKind},
    load_balancer::{Action, BackendProtocol, Bind, ClientAuth, HostPattern, Protocol, TlsProfile, Trust},
    outcome::UnitState,
};
use seaway_testkit::facts;

use super::scene::*;
use crate::{
    World,
    certificates::tests::{secret, tls_secret},
    front_door,
};

fn ports(balancer: &LoadBalancer) -> Vec<u16> {
    balancer.listeners.keys().map(|id| id.port).collect()
}

fn names(all: &[ObjectRef]) -> Vec<&str> {
    all.iter().map(|it| it.name.as_str()).collect()
}

fn at(balancer: &LoadBalancer, port: u16) -> Arc<Listener> {
    balancer.listeners[&ListenerId { l4: L4::Tcp, port }].clone()
}

fn of(world: &World, service: &Service) -> Arc<LoadBalancer> {
    match world.desire(&unit(&facts::owner(service))) {
        Desired::LoadBalancer(it) => it,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_door_for_tls_is_open_while_there_is_a_certificate() {
    let shop = service("shop", &[80]);
    let mut world = world(Config::default(), [put(&shop), backed(&shop)]);
    assert_eq!(ports(&load_balancer(&world).expect("open")), [80]);
    let pair = tls_secret("shop-tls", &["shop.example", "*.shop.example"]);
    let dirt = world.apply(told(&pair));
    assert!(dirt.contains(&WorkItem::Unit(door())), "{dirt:?}");
    let balancer = load_balancer(&world).expect("open");
    assert_eq!(ports(&balancer), [80, 443]);
    assert_eq!(at(&balancer, 80).rules, at(&balancer, 443).rules);
    let tls = at(&balancer, 443).tls.clone().expect("it speaks TLS");
    assert_eq!(names(&tls.default), ["shop-tls"]);
    let asked: Vec<String> = tls.by_name.keys().map(ToString::to_string).collect();
    assert_eq!(asked, ["shop.example", "*.shop.example"]);
    assert!(balancer.certificates.contains_key(&pair.object));
    let view = world.front_door().expect("open");
    assert!(view.at.iter().any(|at| at.port() == 443), "{:?}", view.at);
    world.apply(took(&pair));
    assert_eq!(ports(&load_balancer(&world).expect("open")), [80]);
}

#[test]
fn a_renewed_certificate_changes_nothing_but_itself() {
    let shop = service("shop", &[80]);
    let first = tls_secret("a", &["shop.example"]);
    let mut world = world(Config::default(), [put(&shop), told(&first)]);
    let before = load_balancer(&world).expect("open");
    assert!(world.apply(told(&first)).is_empty(), "nothing is new");
    let conclude = |world: &mut World, problems| {
        let (unit, state) = (door(), UnitState::Done);
        let outcome = Outcome { unit, state, facts: Vec::new(), problems, serving: Vec::new() };
        world.apply(Change::Outcome(outcome));
    };
    conclude(&mut world, Vec::new());
    let dirt = world.apply(told(&tls_secret("a", &["shop.example"])));
    let renewed = WorkItem::Certificate(door(), first.object.clone());
    assert!(dirt.contains(&renewed) && !dirt.contains(&WorkItem::Unit(door())), "{dirt:?}");
    let after = load_balancer(&world).expect("open");
    assert!(Arc::ptr_eq(&at(&before, 443), &at(&after, 443)));
    assert!(before.certificates != after.certificates);
    assert_eq!(world.certificate(&door(), &first.object), after.certificates.get(&first.object).cloned());
    let wrong = Problem::new(first.object.clone(), Reason::BadCertificate, "its key is another's");
    conclude(&mut world, vec![(front_door::owner(), wrong)]);
    let dirt = world.apply(told(&first));
    assert!(dirt.contains(&WorkItem::Unit(door())), "what was told holds no more: {dirt:?}");
}

#[test]
fn secrets_that_the_configuration_names_in_vain_are_told_until_they_come() {
    let shop = service("shop", &[80]);
    let named = |name: &str| ObjectRef::new(Kind::Secret, "default", name);
    let mut config = Config::default();
    config.front_door.tls.certificates = vec![named("a")];
    config.front_door.tls.terms.clients = Some(ClientAuth { authorities: named("ca"), required: true });
    let mut world = world(config, [put(&shop), backed(&shop)]);
    assert_eq!(
        problems(&world),
        [
            "Config frontDoor.certificates[0].secret: Secret default/a has no certificate",
            "Config frontDoor.tls.clients: no client is served: the front door requires client certificates and has no certificate of its own",
            "Config frontDoor.tls.clients.secret: Secret default/ca has no ca.crt, so no client certificate can be verified: no client is served",
        ]
    );
    let mut ca = secret("ca", &[("ca.crt", CA)]);
    ca.kind = "Opaque".into();
    world.apply(told(&ca));
    world.apply(told(&tls_secret("a", &["shop.example"])));
    assert_eq!(problems(&world), [""; 0]);
    assert_eq!(load_balancer(&world).expect("open").certificates.len(), 2);
}

#[test]
fn names_are_put_together_once_for_all_changes_of_rules() {
    let pair = tls_secret("a", &["shop.example"]);
    let mut world = world(Config::default(), [put(&service("shop", &[80])), told(&pair)]);
    let tls = |world: &World| at(&load_balancer(world).expect("open"), 443).tls.clone().expect("TLS");
    let before = tls(&world);
    world.apply(put(&service("other", &[80])));
    assert!(Arc::ptr_eq(&before, &tls(&world)));
    world.apply(told(&tls_secret("b", &["other.example"])));
    assert_eq!(tls(&world).by_name.len(), 2);
}

#[test]
fn one_rule_that_changes_leaves_every_other_the_very_same() {
    let mut config = Config::default();
    config.front_door.tls.redirect = true;
    let says = |path| {
        saying(service("shop", &[80]), &[("seaway.dev/host", "shop.example"), ("seaway.dev/path", path)])
    };
    let others: Vec<Service> = (0..100).map(|it| service(&format!("other-{it}"), &[80])).collect();
    let told = others.iter().map(put).chain([put(&says("/old")), told(&tls_secret("a", &["shop.example"]))]);
    let mut world = world(config.clone(), told);
    let before = load_balancer(&world).expect("open");
    world.apply(put(&says("/new")));
    let after = load_balancer(&world).expect("open");
    let made = |before: &LoadBalancer, after: &LoadBalancer, port: u16| {
        let (known, rules) = (at(before, port).rules.clone(), at(after, port).rules.clone());
        let made = rules.iter().filter(|rule| !known.iter().any(|it| Arc::ptr_eq(it, rule)));
        (rules.len(), made.count())
    };
    assert_eq!(made(&before, &after, 443), (102, 1));
    // Who is sent to TLS is so by all rules of the guest.
    assert_eq!(made(&before, &after, 80), (102, 2));

    config.front_door.tls.port = 8443;
    world.apply(Change::Config(Arc::new(config)));
    let moved = load_balancer(&world).expect("open");
    assert_eq!((made(&after, &moved, 80), at(&moved, 8443).rules.len()), ((102, 102), 102));
}

#[test]
fn the_configuration_says_which_certificates_are_shown_and_how() {
    let shop = service("shop", &[80]);
    let file =
        Secret { object: ObjectRef::new(Kind::File, "", "/etc/a.pem"), ..tls_secret("x", &["file.example"]) };
    let (a, b) = (tls_secret("a", &["a.example"]), tls_secret("b", &["b.example"]));
    for (secrets, named, expected) in [
        (TlsSecrets::All, vec![], vec!["a", "b"]),
        (TlsSecrets::All, vec![&b, &file], vec!["b", "/etc/a.pem", "a"]),
        (TlsSecrets::Named, vec![&b], vec!["b"]),
        (TlsSecrets::Named, vec![], vec![]),
    ] {
        let mut config = Config::default();
        let certificates = named.iter().map(|it| it.object.clone()).collect();
        config.front_door.tls = FrontDoorTls { secrets, certificates, port: 8443, ..config.front_door.tls };
        config.front_door.tls.terms.profile = TlsProfile::Modern;
        let world = world(config, [put(&shop), told(&file), told(&a), told(&b)]);
        let balancer = load_balancer(&world).expect("open");
        let shown: Vec<&str> = balancer.certificates.keys().map(|it| it.name.as_str()).collect();
        let mut all = expected.clone();
        all.sort_unstable_by_key(|it| (it.starts_with('/'), *it));
        assert_eq!(shown, all);
        assert_eq!(ports(&balancer), if expected.is_empty() { vec![80] } else { vec![80, 8443] });
        if let Some(first) = expected.first() {
            let tls = at(&balancer, 8443).tls.clone().expect("TLS");
            assert_eq!((names(&tls.default), tls.profile), (vec![*first], TlsProfile::Modern));
        }
    }
}

#[test]
fn a_guest_may_bring_its_own_certificate_and_hears_what_is_wrong_with_it() {
    let say = [("seaway.dev/host", "shop.example"), ("seaway.dev/tls", "own")];
    let shop = saying(service("shop", &[80]), &say);
    let mut config = Config::default();
    config.front_door.tls.secrets = TlsSecrets::Named;
    let mut world = world(config, [put(&shop), backed(&shop)]);
    let missing = "Service default/shop: metadata.annotations[seaway.dev/tls]: there is no Secret default/own with a certificate";
    assert_eq!(problems(&world), [missing]);
    world.apply(told(&tls_secret("own", &["other.example"])));
    assert_eq!(
        problems(&world),
        [
            "Service default/shop: metadata.annotations[seaway.dev/tls]: the certificate is not for shop.example"
        ]
    );
    world.apply(told(&tls_secret("own", &["*.example"])));
    assert_eq!(problems(&world), [""; 0]);
    assert_eq!(ports(&load_balancer(&world).expect("open")), [80, 443]);
    world.apply(Change::Time(Time(u64::MAX / 2)));
    assert!(problems(&world)[0].contains("expired on 2027-01-01"), "{:?}", problems(&world));
    let told = world.status(&facts::owner(&shop)).expect("it is there").problems;
    assert_eq!(told.len(), 1, "its Service hears of it, too");
    world.apply(put(&service("shop", &[80])));
    assert_eq!(ports(&load_balancer(&world).expect("open")), [80], "nobody names it any more");
}

#[test]
fn what_is_asked_for_in_the_open_is_sent_to_tls_if_so_wished() {
    let (shop, open) =
        (service("shop", &[80]), saying(service("open", &[80]), &[("seaway.dev/https-redirect", "false")]));
    let wanted = saying(service("wanted", &[80]), &[("serviceloadbalancer/lb.sslTerm", "true")]);
    let pair = tls_secret("a", &["shop.example"]);
    for (everybody, expected) in [(true, [true, false, true]), (false, [false, false, true])] {
        let mut config = Config::default();
        config.front_door.tls.redirect = everybody;
        let changes = [put(&shop), put(&open), put(&wanted)];
        let mut world = world(config, changes);
        let sent_on = |world: &World, port| {
            let balancer = load_balancer(world).expect("open");
            let listener = at(&balancer, port);
            [&shop, &open, &wanted].map(|it| {
                let rules = listener.rules.iter().filter(|rule| rule.owner == facts::owner(it));
                rules.clone().count() > 0
                    && rules.into_iter().all(|rule| matches!(rule.action, Action::Redirect(_)))
            })
        };
        assert_eq!(sent_on(&world, 80), [false; 3], "not before there is somewhere to be sent to");
        let why =
            "requests are answered over http and not redirected to https: the front door has no certificate";
        let told_why =
            |world: &World| problems(world).into_iter().filter(|it| it.ends_with(why)).collect::<Vec<_>>();
        let asked = "Service default/wanted: metadata.annotations[serviceloadbalancer/lb.sslTerm]";
        let by_all = everybody.then_some("Config frontDoor.tls.redirect");
        let places: Vec<_> = [asked].into_iter().chain(by_all).map(|it| format!("{it}: {why}")).collect();
        assert_eq!(told_why(&world), places);
        let status = world.status(&facts::owner(&wanted)).expect("it is there");
        assert!(status.problems.iter().any(|it| it.message == why), "{status:?}");
        world.apply(told(&pair));
        assert_eq!(told_why(&world), [""; 0]);
        assert_eq!(sent_on(&world, 80), expected);
        assert_eq!(sent_on(&world, 443), [false; 3]);
    }
}

#[test]
fn a_load_balancer_of_its_own_ends_tls_where_it_says() {
    let pair = tls_secret("own", &["shop.example"]);
    let tls = ("seaway.dev/tls", "own");
    let (http, tcp) = (Protocol::Http, Protocol::Opaque);
    for (say, ports, expected) in [
        (vec![tls], &[443][..], vec![(443, true, http)]),
        (vec![tls], &[80], vec![(80, true, http)]),
        (vec![tls], &[80, 443], vec![(80, false, http), (443, true, http)]),
        (vec![tls], &[80, 443, 993], vec![(80, false, http), (443, true, http), (993, true, http)]),
        (
            vec![tls, ("seaway.dev/tls-ports", "p443")],
            &[443, 993],
            vec![(443, true, http), (993, false, http)],
        ),
        (
            vec![tls, ("seaway.dev/tls-ports", "993")],
            &[443, 993],
            vec![(443, false, http), (993, true, http)],
        ),
        (vec![tls, ("seaway.dev/protocol", "tcp")], &[993], vec![(993, true, tcp)]),
        (vec![], &[443], vec![(443, false, tcp)]),
    ] {
        let mut shop = saying(service("shop", ports), &say);
        shop.kind = ServiceKind::LoadBalancer;
        let world = world(Config::default(), [put(&shop), backed(&shop), told(&pair)]);
        let balancer = of(&world, &shop);
        let found: Vec<_> =
            balancer.listeners.values().map(|it| (it.port, it.tls.is_some(), it.protocol)).collect();
        assert_eq!(found, expected, "{say:?} {ports:?}");
        assert_eq!(balancer.certificates.len(), usize::from(!say.is_empty()));
    }
}

#[test]
fn a_load_balancer_without_its_certificate_opens_no_listener_for_tls() {
    let mut shop = saying(
        service("shop", &[80, 443]),
        &[
            ("seaway.dev/tls", "own"),
            ("seaway.dev/https-redirect", "true"),
            ("seaway.dev/hsts", "1h"),
            ("seaway.dev/client-authorities", "ca"),
            ("seaway.dev/client-certificates", "optional"),
        ],
    );
    shop.kind = ServiceKind::LoadBalancer;
    let mut world = world(Config::default(), [put(&shop), backed(&shop)]);
    assert_eq!(ports(&of(&world, &shop)), [80]);
    assert!(matches!(at(&of(&world, &shop), 80).rules[0].action, Action::Redirect(_)));
    assert_eq!(problems(&world).len(), 2, "{:?}", problems(&world));
    world.apply(told(&tls_secret("own", &["shop.example"])));
    let mut ca = secret("ca", &[("ca.crt", CA)]);
    ca.kind = "Opaque".into();
    world.apply(told(&ca));
    assert_eq!(problems(&world), [""; 0]);
    let balancer = of(&world, &shop);
    assert_eq!(balancer.certificates.len(), 2);
    let tls = at(&balancer, 443).tls.clone().expect("TLS");
    assert_eq!((names(&tls.default), tls.hsts), (vec!["own"], Some(3600)));
    let clients = tls.clients.clone().expect("they are asked");
    assert_eq!((clients.authorities.name.as_str(), clients.required), ("ca", false));
    assert!(tls.by_name.contains_key(&HostPattern::Exact("shop.example".into())));
    assert!(balancer.binds.iter().all(|it| matches!(it, Bind::Host(_))));
}

#[test]
fn members_are_spoken_to_by_tls_where_their_port_or_service_says_so() {
    let (on, off) = (("seaway.dev/backend-tls", "true"), ("seaway.dev/backend-tls", "false"));
    let (authorities, name) =
        (("seaway.dev/backend-tls-authorities", "ca"), ("seaway.dev/backend-tls-name", "A.example"));
    let lax = ("seaway.dev/backend-tls-verify", "off");
    let machine = || Trust::SystemRoots;
    for (protocol, say, expected) in [
        ("http", vec![], None),
        ("https", vec![], Some((None, machine()))),
        ("kubernetes.io/wss", vec![], Some((None, machine()))),
        ("grpcs", vec![], Some((None, machine()))),
        ("https", vec![off], None),
        ("grpc", vec![on, name], Some((Some("a.example"), machine()))),
        ("http", vec![on, authorities], Some((None, Trust::CaBundle(CA.into())))),
        ("http", vec![authorities], Some((None, Trust::CaBundle(CA.into())))),
        ("http", vec![name], Some((Some("a.example"), machine()))),
        ("http", vec![off, authorities], None),
        ("http", vec![on, lax, authorities], Some((None, Trust::InsecureSkipVerify))),
    ] {
        let shop = speaking(saying(service("shop", &[80]), &say), 0, protocol);
        let mut ca = secret("ca", &[("ca.crt", CA)]);
        ca.kind = "Opaque".into();
        let world = world(Config::default(), [put(&shop), backed(&shop), told(&ca)]);
        assert_eq!(problems(&world), [""; 0], "{protocol} {say:?}");
        let balancer = load_balancer(&world).expect("open");
        let tls = balancer.pools.values().next().expect("a pool").tls.clone();
        let found = tls.as_deref().map(|it| (it.name.as_deref(), it.trust.clone()));
        assert_eq!(found, expected, "{protocol} {say:?}");
        assert!(tls.is_none_or(|it| *it.usual == *"shop.default.svc"));
    }
}

#[test]
fn members_whose_authorities_are_missing_are_not_believed_until_they_come() {
    let say = [("seaway.dev/backend-tls-authorities", "ca")];
    let shop = speaking(saying(service("shop", &[80]), &say), 0, "https");
    let mut world = world(Config::default(), [put(&shop), backed(&shop)]);
    let trust = |world: &World| {
        let balancer = load_balancer(world).expect("open");
        balancer.pools.values().next().expect("a pool").tls.clone().expect("TLS").trust.clone()
    };
    assert_eq!(trust(&world), Trust::CaBundle("".into()));
    assert!(
        problems(&world)[0].contains("so no TLS connection to a member is trusted"),
        "{:?}",
        problems(&world)
    );
    let mut ca = secret("ca", &[("ca.crt", CA)]);
    ca.kind = "Opaque".into();
    let dirt = world.apply(told(&ca));
    assert!(dirt.iter().any(|it| matches!(it, WorkItem::Pool(..))), "{dirt:?}");
    assert_eq!(trust(&world), Trust::CaBundle(CA.into()));
    assert_eq!(problems(&world), [""; 0]);
}

#[test]
fn bytes_that_are_merely_passed_on_are_not_wrapped() {
    let mut shop = speaking(service("shop", &[443]), 0, "https");
    shop.kind = ServiceKind::LoadBalancer;
    let world = world(Config::default(), [put(&shop), backed(&shop)]);
    assert!(of(&world, &shop).pools.values().all(|pool| pool.tls.is_none()));
}

#[test]
fn tls_of_some_hosts_goes_on_untouched_beside_that_of_others() {
    let say = [("seaway.dev/host", "raw.example,*.raw.example"), ("seaway.dev/tls-passthrough", "true")];
    let raw = saying(service("raw", &[80, 443]), &say);
    let mut world = world(Config::default(), [put(&raw), backed(&raw)]);
    assert_eq!(problems(&world), [""; 0]);
    let balancer = load_balancer(&world).expect("open");
    assert_eq!(ports(&balancer), [80, 443], "it needs no certificate");
    let tls = at(&balancer, 443).tls.clone().expect("TLS");
    let led: Vec<String> = tls.through.iter().map(|(host, to)| format!("{host} {}", to[0].0)).collect();
    assert_eq!(led, ["raw.example default/raw:443", "*.raw.example default/raw:443"]);
    assert!(!tls.terminates_tls());
    let pool = balancer.pools.values().next().expect("a pool");
    assert_eq!((pool.protocol, pool.members.len()), (BackendProtocol::Opaque, 1));
    assert_eq!(
        entrances(&world),
        ["raw.example/ -> default/raw:443 by TLS", "*.raw.example/ -> default/raw:443 by TLS"]
    );
    let shop = saying(service("shop", &[80]), &[("seaway.dev/host", "raw.example")]);
    world.apply(put(&shop));
    world.apply(told(&tls_secret("own", &["own.example"])));
    assert!(problems(&world)[0].contains("raw.example/ leads to Service default/raw already"));
    let tls = at(&load_balancer(&world).expect("open"), 443).tls.clone().expect("TLS");
    assert!(tls.terminates_tls() && tls.through.len() == 2);
    world.apply(gone(&raw));
    assert_eq!(problems(&world).len(), 1, "who has it now has nobody ready: {:?}", problems(&world));
    let tls = at(&load_balancer(&world).expect("open"), 443).tls.clone().expect("TLS");
    assert!(tls.through.is_empty());
}

#[test]
fn who_cannot_be_passed_on_is_told_why() {
    for (ports, more, expected) in [
        (&[443][..], vec![], "no host name says which TLS connections are passed through to this Service"),
        (
            &[443],
            vec![("seaway.dev/host", "a.example"), ("seaway.dev/source-ranges", "10.0.0.0/8")],
            "source ranges",
        ),
    ] {
        let say = [&[("seaway.dev/tls-passthrough", "true")][..], &more].concat();
        let raw = saying(service("raw", ports), &say);
        let world = world(Config::default(), [put(&raw), backed(&raw)]);
        assert!(problems(&world)[0].contains(expected), "{:?}", problems(&world));
        assert!(load_balancer(&world).is_none());
    }
}
