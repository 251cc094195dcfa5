//! Which clients rules let in, and how often: by the word of a Service, of a route, and of both.

use std::collections::BTreeMap;

use ipnet::IpNet;
use seaway_model::{
    Config, Desired, L4, Owner,
    fact::{HttpRoute, Service, ServiceKind, ServicePort},
    load_balancer::{Action, Filter, Rule},
};
use seaway_testkit::facts;

use super::{
    routes::{backend, route_to},
    scene::*,
    services::exposed,
};
use crate::{World, certificates::tests::tls_secret};

const ALLOWED: &str = "seaway.dev/source-ranges";
const DENIED: &str = "seaway.dev/denied-source-ranges";
/// Nobody comes from there.
const NOBODY: &[&str] = &["0.0.0.0/32", "::/128"];

fn nets(all: &[&str]) -> Vec<IpNet> {
    all.iter().map(|it| it.parse().expect("a network")).collect()
}

fn route_saying(route: &HttpRoute, say: &[(&str, &str)]) -> HttpRoute {
    let mut route = route.clone();
    route.meta.annotations.extend(say.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    route
}

/// Led to by routes alone.
fn hidden(name: &str, say: &[(&str, &str)]) -> Service {
    saying(service(name, &[80]), &[say, &[("seaway.dev/front-door", "false")]].concat())
}

/// The rule of the route.
fn led(world: &World) -> Rule {
    let rules = listener(world).rules.clone();
    let its = rules.iter().find(|it| it.owner.object().kind == seaway_model::Kind::HTTPRoute);
    Rule::clone(its.expect("it is there"))
}

#[test]
fn what_a_service_denies_is_denied_by_all_its_rules() {
    for (say, field, sources, denied) in [
        (vec![(DENIED, "192.0.2.7, 2001:db8::/32")], vec![], vec![], vec!["192.0.2.7/32", "2001:db8::/32"]),
        (
            vec![(ALLOWED, "10.0.0.0/8"), (DENIED, "10.1.0.0/16")],
            vec![],
            vec!["10.0.0.0/8"],
            vec!["10.1.0.0/16"],
        ),
        // The field of the spec says nothing of these: the annotation is heeded beside it.
        (vec![(DENIED, "10.1.0.0/16")], vec!["10.0.0.0/8"], vec!["10.0.0.0/8"], vec!["10.1.0.0/16"]),
    ] {
        let hosted = [&say[..], &[("seaway.dev/host", "a.example,b.example/api")]].concat();
        for say in [say, hosted] {
            let mut web = saying(service("web", &[80]), &say);
            web.source_ranges = nets(&field);
            let world = world(Config::default(), [put(&web), backed(&web)]);
            let rules = &listener(&world).rules;
            assert_eq!((rules.is_empty(), problems(&world)), (false, vec![]), "{say:?}");
            for rule in rules {
                assert_eq!((&rule.sources, &rule.denied), (&nets(&sources), &nets(&denied)), "{say:?}");
            }
        }
    }
}

#[test]
fn a_route_opens_no_service_and_a_service_opens_no_route() {
    for (route, service, sources, denied) in [
        (&[][..], &[][..], &[][..], &[][..]),
        (&[(ALLOWED, "10.0.0.0/8")], &[], &["10.0.0.0/8"], &[]),
        (&[], &[(ALLOWED, "10.0.0.0/8")], &["10.0.0.0/8"], &[]),
        (&[(ALLOWED, "0.0.0.0/0")], &[(ALLOWED, "10.0.0.0/8")], &["10.0.0.0/8"], &[]),
        (&[(ALLOWED, "10.1.0.0/16")], &[(ALLOWED, "10.0.0.0/8")], &["10.1.0.0/16"], &[]),
        (&[(ALLOWED, "192.0.2.0/24")], &[(ALLOWED, "10.0.0.0/8")], NOBODY, &[]),
        (&[(DENIED, "192.0.2.7")], &[(DENIED, "10.0.0.0/8")], &[], &["10.0.0.0/8", "192.0.2.7/32"]),
        (&[(ALLOWED, "10.0.0.0/8")], &[(DENIED, "10.1.0.0/16")], &["10.0.0.0/8"], &["10.1.0.0/16"]),
        // What is not understood of the Service, or nearly, lets nobody in.
        (&[], &[(ALLOWED, "10.0.0/8")], NOBODY, &[]),
        (&[], &[(DENIED, "10.0.0/8")], NOBODY, &[]),
        (&[], &[("seaway.dev/source-range", "10.0.0.0/8")], NOBODY, &[]),
        (&[(ALLOWED, "0.0.0.0/0")], &[(DENIED, "10.0.0/8")], &["0.0.0.0/32"], &[]),
    ] {
        let web = hidden("web", service);
        let route = route_saying(&route_to("web", 80), route);
        let world = world(Config::default(), [put(&web), backed(&web), put_route(&route)]);
        let rule = led(&world);
        let expected = (nets(sources), nets(denied));
        assert_eq!((rule.sources, rule.denied), expected, "{route:?} {service:?}");
        assert!(matches!(rule.action, Action::Forward(_)));
    }
}

#[test]
fn a_rule_lets_in_whom_all_let_in_that_it_leads_to_and_follows_when_they_change() {
    let (open, closed) = (hidden("open", &[]), hidden("closed", &[(ALLOWED, "10.0.0.0/8")]));
    let mut split = route_to("open", 80);
    split.rules[0].action = Action::Forward(vec![(backend("open", 80), 9), (backend("closed", 80), 1)]);
    let mut mirrored = route_to("open", 80);
    mirrored.rules[0].filters = vec![Filter::Mirror { to: backend("closed", 80), per_mille: 1000 }];
    for route in [split, mirrored] {
        let begin = [put(&open), put(&closed), backed(&open), backed(&closed), put_route(&route)];
        let mut world = world(Config::default(), begin);
        assert_eq!(led(&world).sources, nets(&["10.0.0.0/8"]));
        world.apply(put(&hidden("closed", &[(ALLOWED, "192.0.2.0/24")])));
        assert_eq!(led(&world).sources, nets(&["192.0.2.0/24"]));
        world.apply(put(&hidden("closed", &[])));
        assert_eq!(led(&world).sources, []);
    }
}

/// Who limits the rate, and how: `default/web 10/20 address`.
fn limits(rule: &Rule) -> Vec<String> {
    let limit = |it: &seaway_model::load_balancer::RateLimit| {
        format!("{} {}/{} {}", it.of, it.rate.per_second, it.rate.burst, it.rate.key)
    };
    rule.rates.iter().map(limit).collect()
}

const RATE: &str = "seaway.dev/requests-per-second-per-client";

#[test]
fn all_rules_of_a_service_count_its_clients_together_those_to_https_included() {
    let say = [
        (RATE, "10"),
        ("seaway.dev/requests-burst-per-client", "50"),
        ("seaway.dev/rate-limit-key", "header:X-Api-Key"),
        ("seaway.dev/host", "a.example,b.example/api"),
        ("seaway.dev/tls", "own"),
        ("seaway.dev/https-redirect", "true"),
    ];
    let web = saying(service("web", &[80]), &say);
    let pair = told(&crate::certificates::tests::tls_secret("own", &["a.example", "b.example"]));
    let world = world(Config::default(), [put(&web), backed(&web), pair]);
    assert_eq!(problems(&world), [""; 0]);
    let rules: Vec<_> =
        load_balancer(&world).expect("open").listeners.values().flat_map(|it| it.rules.clone()).collect();
    assert!(rules.iter().any(|it| matches!(it.action, Action::Redirect(_))), "{rules:?}");
    for rule in rules {
        assert_eq!(limits(&rule), ["Service default/web 10/50 header:x-api-key"], "{rule:?}");
    }
}

#[test]
fn limits_of_a_route_and_of_its_services_all_hold() {
    let (one, other) = (hidden("one", &[(RATE, "10")]), hidden("other", &[(RATE, "5")]));
    let unclear = hidden("unclear", &[(RATE, "ten")]);
    for (say, services, expected, sources) in [
        (&[][..], &["one"][..], &["Service default/one 10/20 address"][..], &[][..]),
        (
            &[(RATE, "100")],
            &["one", "other"],
            &[
                "HTTPRoute default/shop 100/200 address",
                "Service default/one 10/20 address",
                "Service default/other 5/10 address",
            ],
            &[],
        ),
        (&[], &["one", "one"], &["Service default/one 10/20 address"], &[]),
        (&[], &["unclear"], &[], NOBODY),
    ] {
        let mut route = route_saying(&route_to("one", 80), say);
        route.rules[0].action = Action::Forward(services.iter().map(|it| (backend(it, 80), 1)).collect());
        let all = [&one, &other, &unclear].into_iter().flat_map(|it| [put(it), backed(it)]);
        let world = world(Config::default(), all.chain([put_route(&route)]));
        let rule = led(&world);
        assert_eq!(limits(&rule), expected, "{say:?} {services:?}");
        assert_eq!(rule.sources, nets(sources), "{say:?} {services:?}");
    }
}

#[test]
fn at_its_own_address_requests_are_counted_and_what_has_none_is_not_opened() {
    let http = ("seaway.dev/protocol", "http");
    let tls = ("seaway.dev/front-door", "true");
    for (say, l4, open, told) in [
        (&[http][..], &[L4::Tcp][..], &["80/TCP"][..], 0),
        (&[("seaway.dev/protocol", "tcp")], &[L4::Tcp], &[], 1),
        (&[], &[L4::Udp], &[], 1),
        (&[http], &[L4::Tcp, L4::Udp], &["80/TCP"], 1),
        (&[tls], &[L4::Tcp], &[], 1),
    ] {
        let mut web = saying(service("web", &[80]), &[say, &[(RATE, "10")]].concat());
        web.kind = ServiceKind::LoadBalancer;
        let port = web.ports[0].clone();
        let of = |(number, l4): (u16, &L4)| ServicePort {
            name: format!("p{number}").into(),
            port: number,
            protocol: *l4,
            ..port.clone()
        };
        web.ports = (80..).zip(l4).map(of).collect();
        let world = world(Config::default(), [put(&web), backed(&web)]);
        let listeners = match world.desire(&unit(&facts::owner(&web))) {
            Desired::LoadBalancer(it) => it.listeners.clone(),
            _ => BTreeMap::new(),
        };
        let ports: Vec<String> = listeners.values().map(|it| format!("{}/{}", it.port, it.l4)).collect();
        assert_eq!(ports, open, "{say:?} {l4:?}");
        for listener in listeners.values() {
            assert_eq!(limits(&listener.rules[0]), ["Service default/web 10/20 address"], "{say:?}");
        }
        let all = problems(&world);
        assert_eq!(all.len(), told, "{say:?} {l4:?}: {all:?}");
        assert!(all.iter().all(|it| it.contains("no listener is opened at port")), "{all:?}");
    }
}

#[test]
fn what_the_configuration_serves_is_not_opened_without_the_limit_or_the_certificate_that_it_asks_for() {
    let tls = ("seaway.dev/tls", "own");
    let rate = (RATE, "10");
    let host = ("seaway.dev/host", "a.example");
    for (say, is_open) in
        [(&[][..], true), (&[rate], false), (&[tls], false), (&[rate, host], true), (&[tls, host], true)]
    {
        let web = saying(service("web", &[80]), say);
        let config = Config { exposed: vec![exposed(L4::Tcp, "web", 80)], ..Config::default() };
        let world =
            world(config, [put(&web), backed(&web), super::scene::told(&tls_secret("own", &["a.example"]))]);
        let owners = world.overview().into_iter().map(|it| it.status.owner);
        let mut its = owners.filter(|it| matches!(it, Owner::Config(key) if key.starts_with("tcpServices")));
        let is_there = its.any(|owner| match world.desire(&unit(&owner)) {
            Desired::LoadBalancer(it) => !it.listeners.is_empty(),
            _ => false,
        });
        assert_eq!(is_there, is_open, "{say:?}");
        let told = problems(&world).iter().any(|it| it.contains("no listener is opened at port"));
        assert_eq!(told, !is_open, "{say:?}: {:?}", problems(&world));
    }
}
