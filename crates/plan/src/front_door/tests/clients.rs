//! Which clients rules let in: by the word of a Service, of a route, and of both.

use ipnet::IpNet;
use seaway_model::{
    Config,
    fact::{HttpRoute, Service},
    load_balancer::{Action, Filter, Rule},
};

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
