//! Which clients rules let in, and how often: by the word of a Service, of a route, and of both.

use ipnet::IpNet;
use seaway_model::{
    Config, Desired,
    fact::{HttpRoute, Service, ServiceKind},
    load_balancer::{Action, Filter, Protocol, Rule},
};
use seaway_testkit::facts;

use super::{
    routes::{backend, route_to},
    scene::*,
};
use crate::World;

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
fn at_its_own_address_requests_are_counted_where_http_is_spoken() {
    for (say, counted, told) in [
        (&[("seaway.dev/protocol", "http")][..], &["Service default/web 10/20 address"][..], 0),
        (&[("seaway.dev/protocol", "tcp")], &[], 1),
    ] {
        let mut web = saying(service("web", &[80]), &[say, &[(RATE, "10")]].concat());
        web.kind = ServiceKind::LoadBalancer;
        let world = world(Config::default(), [put(&web), backed(&web)]);
        let Desired::LoadBalancer(it) = world.desire(&unit(&facts::owner(&web))) else {
            panic!("it is ours")
        };
        let listener = it.listeners.values().next().expect("it is open");
        assert_eq!(listener.protocol == Protocol::Http, told == 0);
        assert_eq!(limits(&listener.rules[0]), counted, "{say:?}");
        assert_eq!(problems(&world).len(), told, "{say:?}: {:?}", problems(&world));
    }
}
