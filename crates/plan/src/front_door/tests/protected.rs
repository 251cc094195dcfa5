//! What protects a Service and is not understood, was never there, or cannot be had: nothing is open instead.

use seaway_model::{
    Config, Kind, ObjectRef, Problem,
    fact::{Secret, Service, ServiceKind},
    load_balancer::{Action, Certificate, ClientAuth, Trust},
};
use seaway_testkit::facts;

use super::{routes::route_to, scene::*};
use crate::{
    World,
    certificates::tests::{secret, tls_secret},
};

/// A LoadBalancer of its own.
fn own(ports: &[u16], say: &[(&str, &str)]) -> Service {
    let mut shop = saying(service("shop", ports), say);
    shop.kind = ServiceKind::LoadBalancer;
    shop
}

pub(super) fn authorities(name: &str) -> Secret {
    Secret { kind: "Opaque".into(), ..secret(name, &[("ca.crt", CA)]) }
}

/// Ports that are listened at.
pub(super) fn open(world: &World, service: &Service) -> Vec<u16> {
    match world.desire(&unit(&facts::owner(service))) {
        seaway_model::Desired::LoadBalancer(it) => it.listeners.keys().map(|id| id.port).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_protects_and_is_not_understood_opens_no_listener() {
    for (option, value) in [
        ("seaway.dev/source-ranges", "10.0.0/8"),
        ("service.beta.kubernetes.io/load-balancer-source-ranges", "office"),
        ("seaway.dev/denied-source-ranges", "10.0.0/8"),
        ("seaway.dev/denied-source-ranges", ""),
        ("seaway.dev/requests-per-second-per-client", "10/s"),
        ("seaway.dev/tls", ""),
        ("seaway.dev/tls", "Own_Certificate"),
        ("seaway.dev/tls-passthrough", "ture"),
        ("seaway.dev/client-authorities", "My_CA"),
        ("seaway.dev/client-certificates", "requird"),
        ("seaway.dev/backend-tls", "ture"),
        ("seaway.dev/backend-tls-name", "*.example"),
        ("seaway.dev/backend-tls-authorities", "My_CA"),
        ("seaway.dev/backend-tls-verify", "of"),
        ("seaway.dev/proxy-protocol-from", "10.0.0/8"),
        ("seaway.dev/source-range", "10.0.0.0/8"),
        ("seaway.dev/denied-source-range", "10.0.0.0/8"),
        ("seaway.dev/request-per-second-per-client", "10"),
        ("seaway.dev/client-authority", "ca"),
        ("seaway.dev/basic-auth-secret", "users"),
        ("seaway.dev/allowed-source-ranges", "10.0.0.0/8"),
        ("seaway.dev.source-ranges", "10.0.0.0/8"),
        ("seaway.dev/max-connections", "ten"),
        ("seaway.dev/max-new-connections-per-second", "ten"),
        ("seaway.dev/maxconn", "10"),
    ] {
        let shop = own(&[80, 443], &[(option, value)]);
        let world =
            world(Config::default(), [put(&shop), backed(&shop), told(&tls_secret("own", &["a.example"]))]);
        assert_eq!(open(&world, &shop), [0; 0], "{option}: {value}");
        let told = world.status(&facts::owner(&shop)).expect("it is ours");
        let named = told
            .problems
            .iter()
            .any(|it| it.field.contains(option) && (it.fix.contains(':') || it.fix.contains("Did you mean")));
        assert!(named, "{option}: {told:?}");
    }
    // What does not protect leaves its default, as ever.
    let shop = own(&[80], &[("seaway.dev/balance", "fastest")]);
    let world = world(Config::default(), [put(&shop), backed(&shop)]);
    assert_eq!(open(&world, &shop), [80]);
}

#[test]
fn certificates_and_authorities_that_were_never_there_open_no_listener() {
    let (tls, ca) = (("seaway.dev/tls", "own"), ("seaway.dev/client-authorities", "ca"));
    let pair = || told(&tls_secret("own", &["a.example"]));
    let wrong = || told(&secret("own", &[("tls.crt", "nonsense"), ("tls.key", "")]));
    let vouching = || told(&authorities("ca"));
    for (say, there, expected) in [
        (vec![tls], vec![], vec![]),
        (vec![tls], vec![wrong()], vec![]),
        (vec![tls], vec![pair()], vec![443]),
        (vec![tls, ca], vec![pair()], vec![]),
        (vec![tls, ca], vec![vouching()], vec![]),
        (vec![tls, ca], vec![pair(), vouching()], vec![443]),
        (vec![tls, ca, ("seaway.dev/client-certificates", "optional")], vec![pair()], vec![]),
        (vec![("seaway.dev/tls", "other,own")], vec![pair()], vec![443]),
    ] {
        let shop = own(&[443], &say);
        let world = world(Config::default(), [put(&shop), backed(&shop)].into_iter().chain(there));
        assert_eq!(open(&world, &shop), expected, "{say:?}");
        let told = world.status(&facts::owner(&shop)).expect("it is ours").problems;
        assert_eq!(told.is_empty(), expected == [443] && say[0].1 == "own", "{say:?}: {told:?}");
    }
}

#[test]
fn ports_where_nobody_asks_clients_for_their_certificate_are_not_opened() {
    let (tls, ca) = (("seaway.dev/tls", "own"), ("seaway.dev/client-authorities", "ca"));
    let (required, optional) =
        (("seaway.dev/client-certificates", "required"), ("seaway.dev/client-certificates", "optional"));
    for (say, expected) in [
        (vec![ca], vec![]),
        (vec![required], vec![]),
        (vec![tls, required], vec![]),
        (vec![tls, ca], vec![443]),
        (vec![tls, ca, required], vec![443]),
        (vec![tls, ca, ("seaway.dev/https-redirect", "true")], vec![80, 443]),
        (vec![tls, ca, ("seaway.dev/tls-ports", "443")], vec![80, 443]),
        (vec![tls, ca, optional], vec![80, 443]),
        (vec![optional], vec![80, 443]),
        (vec![tls], vec![80, 443]),
    ] {
        let shop = own(&[80, 443], &say);
        let there = [told(&tls_secret("own", &["a.example"])), told(&authorities("ca"))];
        let world = world(Config::default(), [put(&shop), backed(&shop)].into_iter().chain(there));
        assert_eq!(open(&world, &shop), expected, "{say:?}");
        let told = world.status(&facts::owner(&shop)).expect("it is ours").problems;
        assert_eq!(told.is_empty(), expected.len() == 2, "{say:?}: {told:?}");
    }
}

/// `443,933` where 993 was meant: 993 was served in the clear, without certificates of clients and without a Problem.
#[test]
fn a_port_where_tls_may_have_been_meant_to_end_is_not_opened() {
    let (tls, ca) = (("seaway.dev/tls", "own"), ("seaway.dev/client-authorities", "ca"));
    let redirect = ("seaway.dev/https-redirect", "true");
    let at = |ports| ("seaway.dev/tls-ports", ports);
    for (say, expected, told) in [
        (vec![tls, at("443,993")], vec![80, 443, 993], ""),
        (vec![tls, at("443,933")], vec![443], "port 80/TCP, 993/TCP"),
        (vec![tls, ca, at("443,933")], vec![443], "port 80/TCP, 993/TCP"),
        (vec![tls, at("443,imaps")], vec![443], "port imaps"),
        (vec![tls, at("4433")], vec![], "port 4433"),
        (vec![tls, at("443")], vec![80, 443, 993], ""),
        (vec![tls, at("443,993,8443")], vec![443, 993], "port 80/TCP"),
        (vec![tls, redirect, at("443,933")], vec![80, 443, 993], "port 933"),
        (vec![at("4433")], vec![80, 443, 993], ""),
    ] {
        let shop = own(&[80, 443, 993], &say);
        let there = [self::told(&tls_secret("own", &["a.example"])), self::told(&authorities("ca"))];
        let world = world(Config::default(), [put(&shop), backed(&shop)].into_iter().chain(there));
        assert_eq!(open(&world, &shop), expected, "{say:?}");
        let problems = world.status(&facts::owner(&shop)).expect("it is ours").problems;
        let of_ports = |it: &&Problem| it.message.contains("which the Service does not have");
        let found: Vec<&Problem> = problems.iter().filter(of_ports).collect();
        assert_eq!(found.len(), usize::from(!told.is_empty()), "{say:?}: {problems:?}");
        assert!(found.iter().all(|it| it.message.contains(told)), "{say:?}: {found:?}");
    }
}

#[test]
fn a_secret_that_vanishes_stays_in_use_until_nobody_names_it() {
    let say = [("seaway.dev/tls", "own"), ("seaway.dev/client-authorities", "ca")];
    let shop = own(&[443], &say);
    let (pair, ca) = (tls_secret("own", &["a.example"]), authorities("ca"));
    let mut world = world(Config::default(), [put(&shop), backed(&shop), told(&pair), told(&ca)]);
    let held = |world: &World| match world.desire(&unit(&facts::owner(&shop))) {
        seaway_model::Desired::LoadBalancer(it) => it.certificates.clone(),
        other => panic!("{other:?}"),
    };
    let before = held(&world);
    assert_eq!((open(&world, &shop), before.len(), problems(&world)), (vec![443], 2, vec![]));
    world.apply(took(&pair));
    world.apply(took(&ca));
    assert_eq!((open(&world, &shop), held(&world)), (vec![443], before));
    let told_of = world.status(&facts::owner(&shop)).expect("it is ours").problems;
    let named: Vec<&str> = told_of.iter().map(|it| it.object.name.as_str()).collect();
    assert_eq!(named, ["ca", "own"], "{told_of:?}");
    assert!(told_of.iter().all(|it| it.message.contains("stays in use")), "{told_of:?}");
    // An empty one in its place is no better.
    world.apply(told(&Secret { kind: "Opaque".into(), ..secret("ca", &[("other", "")]) }));
    assert_eq!(open(&world, &shop), [443]);
    world.apply(told(&ca));
    world.apply(told(&pair));
    assert_eq!(problems(&world), [""; 0]);
    world.apply(took(&pair));
    world.apply(put(&own(&[443], &[])));
    assert_eq!(problems(&world), [""; 0], "nobody names it any more");
    world.apply(put(&shop));
    assert_eq!(open(&world, &shop), [0; 0], "it was given up, and never there since");
}

/// Whatever protects and names a Secret.
struct Named {
    say: Vec<(&'static str, &'static str)>,
    /// As it should be.
    whole: Secret,
    /// There, and not to be read.
    unread: Secret,
}

fn named() -> Vec<Named> {
    let opaque = |it: Secret| Secret { kind: "Opaque".into(), ..it };
    let unread = || opaque(secret("ca", &[("ca.crt", "nonsense")]));
    let pair = ("seaway.dev/tls", "own");
    let members = ("seaway.dev/backend-tls-authorities", "ca");
    let ca = |say| Named { say, whole: authorities("ca"), unread: unread() };
    vec![
        Named {
            say: vec![pair],
            whole: tls_secret("own", &["a.example"]),
            unread: secret("own", &[("tls.crt", "nonsense"), ("tls.key", "")]),
        },
        ca(vec![pair, ("seaway.dev/client-authorities", "ca")]),
        ca(vec![pair, members]),
        // Whoever says whom members have to be is not led to others in the open.
        ca(vec![("seaway.dev/protocol", "http"), members]),
        ca(vec![("seaway.dev/protocol", "http"), members, ("seaway.dev/backend-tls", "true")]),
        ca(vec![("seaway.dev/front-door", "true"), ("seaway.dev/protocol", "http"), members]),
    ]
}

/// Who is let in, with what, and which members are believed: of its own listeners, and of the front door's.
fn guarded(world: &World, service: &Service) -> (Vec<u16>, Vec<Certificate>, Vec<Option<Trust>>) {
    let seaway_model::Desired::LoadBalancer(own) = world.desire(&unit(&facts::owner(service))) else {
        panic!("it is ours")
    };
    let door = load_balancer(world);
    let of_door = door.iter().flat_map(|it| it.pools.values().filter(|it| it.id.0.contains("/shop:")));
    let pools = own.pools.values().chain(of_door);
    (
        own.listeners.keys().map(|id| id.port).collect(),
        own.certificates.values().map(|it| Certificate::clone(it)).collect(),
        pools.map(|it| it.tls.as_ref().map(|tls| tls.trust.clone())).collect(),
    )
}

#[test]
fn whatever_protects_and_names_a_secret_is_closed_before_it_is_there_and_stays_as_it_was_when_it_vanishes() {
    for Named { say, whole, unread } in named() {
        let shop = own(&[443], &say);
        let is_of_members = say.iter().any(|it| it.0.contains("backend"));
        let ends_tls = tls_secret("own", &["a.example"]);
        let begin = || {
            let beside = (*whole.object.name == *"ca").then(|| told(&ends_tls));
            world(Config::default(), [put(&shop), backed(&shop)].into_iter().chain(beside))
        };
        let is_told =
            |world: &World| !world.status(&facts::owner(&shop)).expect("it is ours").problems.is_empty();
        for before in [None, Some(&unread)] {
            let mut world = begin();
            before.into_iter().for_each(|it| drop(world.apply(told(it))));
            let (open, _, trust) = guarded(&world, &shop);
            let nobody = |it: &Option<Trust>| *it == Some(Trust::CaBundle("".into()));
            let closed = if is_of_members { trust.iter().all(nobody) } else { open.is_empty() };
            assert!(closed && is_told(&world), "{say:?} {before:?}: {open:?} {trust:?}");
        }
        let mut world = begin();
        world.apply(told(&whole));
        let as_it_was = guarded(&world, &shop);
        assert_eq!(as_it_was.0, [443], "{say:?}");
        let believed = |it: &Option<Trust>| *it == Some(Trust::CaBundle(CA.into()));
        assert!(!is_of_members || as_it_was.2.iter().all(believed), "{say:?}: {as_it_was:?}");
        assert!(!is_told(&world), "{say:?}: {:?}", problems(&world));
        for now in [took(&whole), told(&unread)] {
            world.apply(told(&whole));
            world.apply(now);
            assert_eq!(guarded(&world, &shop), as_it_was, "{say:?}");
            assert!(is_told(&world), "{say:?}");
        }
    }
}

#[test]
fn authorities_that_cannot_be_read_take_no_certificate_away_beside_which_they_stand() {
    let whole = tls_secret("own", &["a.example"]);
    let with = |ca: &str| {
        let mut it = whole.clone();
        it.values.insert("ca.crt".into(), ca.to_owned().into());
        it
    };
    let shop = own(&[443], &[("seaway.dev/tls", "own"), ("seaway.dev/client-authorities", "own")]);
    let mut world = world(Config::default(), [put(&shop), backed(&shop), told(&with("nonsense"))]);
    assert_eq!(open(&world, &shop), [0; 0], "nobody vouches for clients");
    world.apply(told(&with(CA)));
    let as_it_was = guarded(&world, &shop);
    assert_eq!((&as_it_was.0[..], problems(&world)), (&[443][..], vec![]));
    world.apply(told(&with("nonsense")));
    assert_eq!(guarded(&world, &shop), as_it_was);
    assert!(problems(&world)[0].contains("no PEM certificate"), "{:?}", problems(&world));
}

#[test]
fn a_vanished_secret_that_the_configuration_names_is_shown_on_and_others_are_not() {
    let mut config = Config::default();
    config.front_door.tls.certificates = vec![ObjectRef::new(Kind::Secret, "default", "own")];
    let (named, other) = (tls_secret("own", &["a.example"]), tls_secret("other", &["b.example"]));
    let shop = service("shop", &[80]);
    let mut world = world(config, [put(&shop), backed(&shop), told(&named), told(&other)]);
    let shown = |world: &World| -> Vec<String> {
        load_balancer(world).expect("open").certificates.keys().map(|it| it.name.to_string()).collect()
    };
    assert_eq!(shown(&world), ["other", "own"]);
    world.apply(took(&named));
    world.apply(took(&other));
    assert_eq!(shown(&world), ["own"]);
    assert!(problems(&world)[0].contains("stays in use"), "{:?}", problems(&world));
}

#[test]
fn what_protects_and_cannot_be_had_at_the_front_door_keeps_a_service_out() {
    let (asks, host) = (("seaway.dev/front-door", "true"), ("seaway.dev/host", "a.example"));
    for option in [
        ("seaway.dev/client-authorities", "ca"),
        ("seaway.dev/client-certificates", "required"),
        ("seaway.dev/client-authorities", "My_CA"),
        ("seaway.dev/backend-tls-authorities", "My_CA"),
        ("seaway.dev/source-ranges", "10.0.0/8"),
        ("seaway.dev/denied-source-ranges", "10.0.0/8"),
        ("seaway.dev/requests-per-second-per-client", "ten"),
    ] {
        for say in
            [vec![option], vec![option, asks], vec![option, host, ("seaway.dev/tls-passthrough", "true")]]
        {
            let shop = saying(service("shop", &[80]), &say);
            let world = world(Config::default(), [put(&shop), backed(&shop), told(&authorities("ca"))]);
            assert_eq!(served(&world), [""; 0], "{say:?}");
            assert_ne!(problems(&world), [""; 0], "{say:?}");
        }
    }
    for (option, told) in [
        (("seaway.dev/max-connections", "0"), 0),
        (("seaway.dev/max-connections", "5"), 0),
        (("loadbalancer.openstack.org/connection-limit", "5"), 0),
        (("seaway.dev/client-certificates", "optional"), 1),
    ] {
        let shop = saying(service("shop", &[80]), &[option]);
        let world = world(Config::default(), [put(&shop), backed(&shop)]);
        assert_eq!((entrances(&world).len(), problems(&world).len()), (4, told), "{option:?}");
    }
}

#[test]
fn where_the_operator_requires_client_certificates_nobody_is_served_over_http() {
    let ca = authorities("ca");
    for (required, certified, wish, served, told_of) in [
        (true, true, None, false, None),
        (true, true, Some("true"), false, None),
        (true, true, Some("false"), false, Some("in spite of this annotation")),
        (true, false, None, false, Some("no client is served")),
        (false, true, None, true, None),
        (false, true, Some("true"), false, None),
    ] {
        let mut config = Config::default();
        let authorities = ca.object.clone();
        config.front_door.tls.terms.clients = Some(ClientAuth { authorities, required });
        let wish: Vec<(&str, &str)> = wish.iter().map(|it| ("seaway.dev/https-redirect", *it)).collect();
        let shop = saying(service("shop", &[80]), &wish);
        let pair = certified.then(|| told(&tls_secret("own", &["a.example"])));
        let world = world(config, [put(&shop), backed(&shop), told(&ca)].into_iter().chain(pair));
        let open = listener(&world);
        let serves = open.rules.iter().any(|it| matches!(it.action, Action::Forward(_)));
        assert_eq!(serves, served, "{required} {certified} {wish:?}: {:?}", open.rules);
        let all = problems(&world);
        assert_eq!(
            all.iter().filter(|it| told_of.is_some_and(|text| it.contains(text))).count(),
            all.len(),
            "{all:?}"
        );
        assert_eq!(all.is_empty(), told_of.is_none(), "{required} {certified} {wish:?}: {all:?}");
    }
}

#[test]
fn a_route_that_asks_for_such_protection_answers_nobody() {
    let web = service("web", &[80]);
    let plain = super::routes::route_to("web", 80);
    for (option, open) in [
        (("seaway.dev/client-authorities", "ca"), false),
        (("seaway.dev/max-connections", "5"), false),
        (("seaway.dev/source-ranges", "10.0.0/8"), false),
        (("seaway.dev/source-ranges", "10.0.0.0/8"), true),
        (("seaway.dev/denied-source-ranges", "10.0.0/8"), false),
        (("seaway.dev/denied-source-ranges", "10.0.0.0/8"), true),
        (("seaway.dev/requests-per-second-per-client", "ten"), false),
        (("seaway.dev/requests-per-second-per-client", "10"), true),
        (("seaway.dev/tls", ""), false),
        (("seaway.dev/tls", "own"), true),
    ] {
        let mut route = plain.clone();
        route.meta.annotations.insert(option.0.into(), option.1.into());
        let pair = told(&tls_secret("own", &["a.example"]));
        let world = world(Config::default(), [put(&web), backed(&web), put_route(&route), pair]);
        let rules = listener(&world).rules.clone();
        let its = rules.iter().find(|it| it.owner.object() == route.object()).expect("it is there");
        assert_eq!(matches!(its.action, Action::Forward(_)), open, "{option:?}: {:?}", its.action);
        let is_for_some = option.0 == "seaway.dev/source-ranges";
        assert_eq!(!its.sources.is_empty(), is_for_some, "{option:?}: {:?}", its.sources);
        assert_eq!(problems(&world).is_empty(), open, "{option:?}: {:?}", problems(&world));
    }
}

#[test]
fn no_route_leads_past_the_certificates_that_a_service_asks_its_clients_for() {
    let shop = own(&[443], &[("seaway.dev/tls", "own"), ("seaway.dev/client-authorities", "ca")]);
    let shown = route_to("shop", 443);
    let told_all = [
        put(&shop),
        backed(&shop),
        told(&tls_secret("own", &["a.example"])),
        told(&authorities("ca")),
        put_route(&shown),
    ];
    let world = world(Config::default(), told_all);
    assert!(
        listener(&world).rules.iter().all(|it| !matches!(it.action, Action::Forward(_))),
        "it answers 500"
    );
    let said = problems(&world);
    assert!(
        said.iter().any(|it| it.contains("HTTPRoute default/shop") && it.contains("with a certificate")),
        "{said:?}"
    );
}
