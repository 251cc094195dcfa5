use std::time::Duration;

use seaway_model::{
    Config, Reason, Time,
    fact::{BackendRef, HttpRoute, RouteRule, UnsupportedField},
    load_balancer::{Action, Filter, HeaderChange, HostPattern, Match, PathMatch, Redirect, TextMatch},
};

use super::scene::*;

pub(super) fn backend(service: &str, port: u16) -> BackendRef {
    let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
    BackendRef {
        namespace: namespace.into(),
        service: name.into(),
        port,
        field: "spec.rules[0].backendRefs[0]".into(),
    }
}

pub(super) fn under(path: &str) -> Match {
    Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }
}

fn rule(path: &str, action: Action<BackendRef>) -> RouteRule {
    RouteRule {
        matches: vec![under(path)],
        filters: Vec::new(),
        action,
        timeout: None,
        attempt_timeout: None,
        retries: None,
        unsupported: Vec::new(),
    }
}

fn to(service: &str, port: u16) -> Action<BackendRef> {
    Action::Forward(vec![(backend(service, port), 1)])
}

pub(super) fn route_at(namespace: &str, name: &str, path: &str) -> HttpRoute {
    let to = Action::Respond { code: 204, body: "".into() };
    route(&format!("{namespace}/{name}"), vec![rule(path, to)])
}

pub(super) fn route_to(service: &str, port: u16) -> HttpRoute {
    route("shop", vec![rule("/", to(service, port))])
}

const BROKEN: u16 = 500;

#[test]
fn a_route_leads_by_weight_to_ports_of_services_that_may_be_hidden_otherwise() {
    let hidden = |name| saying(service(name, &[80, 81]), &[("seaway.dev/front-door", "false")]);
    let (old, new) = (hidden("old"), hidden("new"));
    let split = Action::Forward(vec![(backend("old", 80), 9), (backend("new", 81), 1)]);
    let mut shop = route("shop", vec![rule("/", split)]);
    shop.hosts = vec![HostPattern::Exact("shop.example".into())];
    shop.rules[0].timeout = Some(Duration::from_secs(9));
    let world =
        world(Config::default(), [put(&old), put(&new), backed(&old), backed(&new), put_route(&shop)]);
    let listener = listener(&world);
    assert_eq!(listener.rules.len(), 1);
    assert_eq!(
        forwards(&listener.rules[0]),
        [("default/old:80".to_owned(), 9), ("default/new:81".to_owned(), 1)]
    );
    assert_eq!(listener.rules[0].hosts, shop.hosts);
    assert_eq!(listener.rules[0].timeout, Some(Duration::from_secs(9)));
    let pools: Vec<String> =
        load_balancer(&world).expect("open").pools.keys().map(ToString::to_string).collect();
    assert_eq!(pools, ["default/new:81", "default/old:80"], "no others are there");
    assert_eq!(problems(&world), [""; 0]);
}

#[test]
fn filters_and_redirects_arrive_as_they_were_written() {
    let web = service("web", &[80]);
    let change = HeaderChange { set: vec![("a".into(), "b".into())], ..HeaderChange::default() };
    let mut changed = rule("/a", to("web", 80));
    changed.filters = vec![
        Filter::RequestHeaders(change.clone()),
        Filter::RewriteHost("inner.example".into()),
        Filter::Mirror { to: backend("web", 80), per_mille: 100 },
    ];
    let redirect = Redirect { scheme: Some("https".into()), code: 301, ..Redirect::default() };
    let rules = vec![changed, rule("/b", Action::Redirect(redirect.clone()))];
    let world = world(Config::default(), [put(&web), put_route(&route("r", rules))]);
    let rules = &listener(&world).rules;
    assert_eq!(
        rules[0].filters,
        [
            Filter::RequestHeaders(change),
            Filter::RewriteHost("inner.example".into()),
            Filter::Mirror { to: seaway_model::PoolId("default/web:80".into()), per_mille: 100 },
        ]
    );
    assert_eq!(rules[1].action, Action::Redirect(redirect));
}

#[test]
fn who_is_not_there_spoils_its_own_share_and_nobody_at_all_is_an_error() {
    let web = service("web", &[80]);
    let table = [
        ("no such Service", to("nowhere", 80), Reason::NoSuchService, true),
        ("no such port", to("web", 81), Reason::NoSuchPort, true),
        ("another namespace", to("other/web", 80), Reason::Unsupported, true),
        ("nothing", Action::Forward(Vec::new()), Reason::NoSuchService, true),
        (
            "one of two",
            Action::Forward(vec![(backend("web", 80), 1), (backend("nowhere", 80), 1)]),
            Reason::NoSuchService,
            false,
        ),
    ];
    for (name, action, reason, broken) in table {
        let world = world(
            Config::default(),
            [put(&web), backed(&web), put_route(&route("r", vec![rule("/x", action)]))],
        );
        let told: Vec<Reason> = world.problems().iter().map(|it| it.reason).collect();
        assert_eq!(told, [reason], "{name}");
        let rules = &listener(&world).rules;
        let rule =
            rules.iter().find(|rule| rule.owner.to_string().contains("HTTPRoute")).expect("it is there");
        match broken {
            true => assert_eq!(rule.action, Action::Respond { code: BROKEN, body: "".into() }, "{name}"),
            false => assert_eq!(forwards(rule).len(), 2, "{name}"),
        }
    }
}

#[test]
fn a_service_that_comes_later_is_led_to_then() {
    let web = service("web", &[80]);
    let routed = route("r", vec![rule("/x", to("web", 80))]);
    let mut world = world(Config::default(), [put_route(&routed)]);
    assert!(matches!(listener(&world).rules[0].action, Action::Respond { code: BROKEN, .. }));
    world.apply(put(&web));
    world.apply(backed(&web));
    let rules = listener(&world).rules.clone();
    assert!(rules.iter().any(|rule| rule.owner.to_string().contains("HTTPRoute")
        && forwards(rule) == [("default/web:80".to_owned(), 1)]));
    assert_eq!(problems(&world), [""; 0]);
    world.apply(gone(&web));
    assert!(matches!(listener(&world).rules[0].action, Action::Respond { code: BROKEN, .. }));
    assert_eq!(load_balancer(&world).expect("open").pools.len(), 0);
}

#[test]
fn what_is_not_understood_spoils_its_rule_alone_and_is_told_at_its_field() {
    let web = service("web", &[80]);
    let mut extended = rule("/a", to("web", 80));
    extended.unsupported = vec![UnsupportedField {
        field: "spec.rules[0].filters[0]".into(),
        what: "a filter of type ExtensionRef".into(),
    }];
    let mut unclear = rule("/b", to("web", 80));
    unclear.matches[0].path = Some(PathMatch::Regex("/(b".into()));
    unclear.matches.push(Match {
        headers: vec![
            ("a".into(), TextMatch::Exact("x".into())),
            ("b".into(), TextMatch::Regex("(?=b)".into())),
        ],
        ..under("/b")
    });
    let good = rule("/c", to("web", 80));
    let routed = route("r", vec![extended, unclear, good]);
    let world = world(Config::default(), [put(&web), backed(&web), put_route(&routed)]);
    let told: Vec<(Reason, String)> =
        world.problems().into_iter().map(|it| (it.reason, it.field.to_string())).collect();
    assert_eq!(
        told,
        [
            (Reason::Unsupported, "spec.rules[0].filters[0]".to_owned()),
            (Reason::Invalid, "spec.rules[1].matches[0].path.value".to_owned()),
            (Reason::Invalid, "spec.rules[1].matches[1].headers[1].value".to_owned()),
        ]
    );
    let rules = &listener(&world).rules;
    let of_route: Vec<bool> = rules
        .iter()
        .filter(|rule| rule.owner.to_string().contains("HTTPRoute"))
        .map(|rule| matches!(rule.action, Action::Forward(_)))
        .collect();
    assert_eq!(of_route, [false, false, true]);
}

/// To a listener, a rule without matches is for everything.
#[test]
fn a_rule_none_of_whose_matches_can_be_read_takes_no_request() {
    let web = service("web", &[80]);
    let mut unread = rule("/a", to("web", 80));
    unread.matches.clear();
    unread.unsupported = vec![UnsupportedField {
        field: "spec.rules[0].matches[0].path.type".into(),
        what: "what this version of Seaway cannot read (...)".into(),
    }];
    let routed = route("r", vec![unread, rule("/c", to("web", 80))]);
    let world = world(Config::default(), [put(&web), backed(&web), put_route(&routed)]);
    let rules = &listener(&world).rules;
    let of_route: Vec<_> = rules.iter().filter(|it| it.owner.object() == routed.object()).collect();
    assert_eq!(of_route.len(), 1, "{of_route:?}");
    assert!(matches!(of_route[0].action, Action::Forward(_)));
    let told = world.problems();
    assert_eq!((told.len(), told[0].reason), (1, Reason::Unsupported), "{told:?}");
    assert!(told[0].fix.contains("this match takes no request"), "{told:?}");
}

#[test]
fn routes_and_services_claim_by_the_same_rule_and_a_route_to_the_service_itself_takes_nothing_away() {
    let named = |name: &str, created: Option<u64>, leads: &str| {
        let mut it = route(name, vec![rule("/web", to(leads, 80))]);
        it.meta.created = created.map(Time);
        it
    };
    let (web, other) = (service("web", &[80]), service("other", &[80]));
    let table = [
        ("by name", named("a", None, "other"), web.clone(), Some("Service default/web")),
        ("by name, the other way", named("x", None, "other"), web.clone(), Some("HTTPRoute default/x")),
        ("the same name", named("web", None, "other"), web.clone(), Some("Service default/web")),
        ("by age", named("a", Some(9), "other"), born(web.clone(), 5), Some("HTTPRoute default/a")),
        ("to itself", named("web", None, "web"), web.clone(), None),
    ];
    for (name, routed, service, loser) in table {
        let world = world(
            Config::default(),
            [put(&service), put(&other), backed(&service), backed(&other), put_route(&routed)],
        );
        let problems = world.problems();
        let losers: Vec<String> = problems
            .iter()
            .filter(|it| it.reason == Reason::RouteConflict)
            .map(|it| it.object.to_string())
            .collect();
        assert_eq!(losers, loser.into_iter().collect::<Vec<_>>(), "{name}: {problems:?}");
    }
}
