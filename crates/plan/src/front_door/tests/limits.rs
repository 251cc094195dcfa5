//! One namespace takes no more of the front door than it may.

use seaway_model::{
    Change, Config, Reason, Time,
    config::{TenantLimits, Tenants},
    fact::{self, FactRef, HttpRoute},
    load_balancer::{Action, HostPattern, Match, PathMatch, TextMatch},
};

use super::{
    routes,
    scene::{self, *},
};
use crate::{World, front_door::patterns::COMPILED};

fn limited(rules: u32, expressions: u32) -> Config {
    let limits =
        TenantLimits { rules: Some(rules), expressions: Some(expressions), ..TenantLimits::default() };
    Config { tenants: Tenants { limits, ..Tenants::default() }, ..Config::default() }
}

/// With one match for each pattern, at a host of its own.
fn patterns(name: &str, at: u64, patterns: &[&str]) -> HttpRoute {
    let (namespace, plain) = name.split_once('/').expect("namespace/name");
    let mut route = routes::route_at(namespace, plain, "/");
    route.meta.created = Some(Time(at));
    route.hosts = vec![HostPattern::Exact(format!("{plain}.example").into())];
    let asked = |text: &&str| Match { path: Some(PathMatch::Regex((*text).into())), ..Match::default() };
    route.rules[0].matches = patterns.iter().map(asked).collect();
    route
}

fn gone(route: &HttpRoute) -> Change {
    Change::Gone(FactRef::Object(route.object()))
}

/// The host names that lead somewhere.
fn served(world: &World) -> Vec<String> {
    let mut hosts: Vec<String> =
        listener(world).rules.iter().flat_map(|rule| &rule.hosts).map(ToString::to_string).collect();
    hosts.sort();
    hosts
}

fn limits_told(world: &World) -> Vec<String> {
    let all = world.problems().into_iter().filter(|it| it.reason == Reason::LimitReached);
    all.map(|it| format!("{}/{}", it.object.namespace, it.object.name)).collect()
}

#[test]
fn the_oldest_routes_of_a_namespace_are_served_and_those_of_others_too() {
    let a = [
        patterns("a/first", 1, &["/1", "/2"]),
        patterns("a/second", 2, &["/3", "/4"]),
        patterns("a/small", 3, &["/5"]),
    ];
    let b = patterns("b/other", 9, &["/6", "/7", "/8"]);
    let all: Vec<Change> = a.iter().chain([&b]).map(put_route).collect();
    let mut orders = [all.clone(), all.clone(), all];
    orders[1].reverse();
    orders[2].rotate_left(2);
    for order in orders {
        let mut world = world(limited(100, 3), order);
        assert_eq!(served(&world), ["first.example", "other.example", "small.example"]);
        assert_eq!(limits_told(&world), ["a/second"]);
        // Room for the next one, in the place of which the smaller one was served.
        let told = world.apply(gone(&a[0]));
        assert_eq!(served(&world), ["other.example", "second.example", "small.example"]);
        assert!(limits_told(&world).is_empty() && !told.is_empty());
    }
}

#[test]
fn rules_count_for_each_of_their_host_names() {
    let mut wide = patterns("a/wide", 1, &["/1", "/2"]);
    wide.hosts = ["x.example", "y.example"].map(|it| HostPattern::Exact(it.into())).into();
    let narrow = patterns("a/narrow", 2, &["/3"]);
    for (most, expected) in [
        (5, &["narrow.example", "x.example", "y.example"][..]),
        (4, &["x.example", "y.example"]),
        (3, &["narrow.example"]),
    ] {
        let world = world(limited(most, 100), [put_route(&wide), put_route(&narrow)]);
        assert_eq!(served(&world), expected, "{most}");
    }
}

#[test]
fn what_is_left_out_takes_nothing_from_others() {
    let mut greedy = patterns("a/greedy", 1, &["/1", "/2", "/3", "/4"]);
    let mut other = patterns("b/other", 2, &["/1"]);
    greedy.hosts = vec![HostPattern::Exact("shared.example".into())];
    other.hosts.clone_from(&greedy.hosts);
    let mut world = world(limited(100, 3), [put_route(&greedy), put_route(&other)]);
    let owners = |world: &World| -> Vec<String> {
        listener(world).rules.iter().map(|rule| rule.owner.object().namespace.to_string()).collect()
    };
    assert_eq!(owners(&world), ["b"]);
    assert_eq!(limits_told(&world), ["a/greedy"]);
    assert!(problems(&world).iter().all(|it| !it.contains("already")), "{:?}", problems(&world));
    // As soon as it is within the limit, it is the elder again.
    greedy.rules[0].matches.truncate(1);
    world.apply(put_route(&greedy));
    assert_eq!(owners(&world), ["a", "b"]);
    assert!(problems(&world).iter().any(|it| it.contains("b/other") && it.contains("already")));
}

#[test]
fn expressions_that_are_too_many_or_too_large_are_not_compiled() {
    let broken = patterns("a/broken", 1, &["(", "(", "("]);
    let large = patterns("b/large", 1, &[r"\w{1,20}"]);
    let world = world(limited(100, 2), [put_route(&broken), put_route(&large)]);
    let of = |namespace: &str| -> Vec<Reason> {
        let all = world.problems().into_iter().filter(|it| &*it.object.namespace == namespace);
        all.map(|it| it.reason).collect()
    };
    assert_eq!(of("a"), [Reason::LimitReached], "nobody looked whether they are right");
    assert_eq!(of("b"), [Reason::Invalid]);
    let alone = super::scene::world(Config::default(), [put_route(&large)]);
    assert!(alone.problems().is_empty(), "in a folder it may be as large: {:?}", problems(&alone));
}

#[test]
fn an_expression_is_compiled_once_however_often_its_route_is_planned() {
    let all: Vec<String> =
        (0..64).map(|it| format!("/shop{it}/[^/]+/(?:items|carts)(?:/[a-z0-9-]{{1,20}})?")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let (web, mut route) = (service("web", &[80]), patterns("default/web", 1, &all));
    route.rules[0].action = routes::route_to("web", 80).rules[0].action.clone();
    let compiled = || COMPILED.get();
    let before = compiled();
    let mut world = world(limited(100, 64), [put(&web), backed(&web), put_route(&route)]);
    assert_eq!(compiled() - before, 64);
    // Whatever makes it be planned again: another name, members that come and go, a Service that was made again.
    route.hosts = vec![HostPattern::Exact("other.example".into())];
    world.apply(put_route(&route));
    for _ in 0..10 {
        world.apply(scene::gone(&web));
        world.apply(put(&web));
        world.apply(backed(&web));
    }
    assert_eq!(compiled() - before, 64);
    // Of one that changed, that one alone; what nobody has any more is forgotten.
    route.rules[0].matches[0] = patterns("default/web", 1, &["/new.*"]).rules[0].matches[0].clone();
    world.apply(put_route(&route));
    assert_eq!(compiled() - before, 65);
    world.apply(gone(&route));
    world.apply(put_route(&route));
    assert_eq!(compiled() - before, 65 + 64);
}

/// One after the other on 16 KiB of a field, 64 of them would take a worker half a minute.
#[test]
fn rules_with_expressions_that_take_too_long_answer_500_where_many_share_the_front_door() {
    let slow = "(?:a|b)*a(?:a|b){1500}";
    let mut route = patterns("a/slow", 1, &["/right"]);
    let asked = |change: fn(&mut Match, TextMatch)| {
        let mut asked = Match::default();
        change(&mut asked, TextMatch::Regex(slow.into()));
        asked
    };
    let right = route.rules[0].clone();
    let matches = [
        Match { path: Some(PathMatch::Regex(slow.into())), ..Match::default() },
        asked(|it, text| it.headers = vec![("x".into(), text)]),
        asked(|it, text| it.query = vec![("x".into(), text)]),
    ];
    route.rules.extend(matches.map(|it| fact::RouteRule { matches: vec![it], ..right.clone() }));
    let world = world(limited(100, 64), [put_route(&route)]);
    let told: Vec<_> = world.problems().into_iter().filter(|it| it.reason == Reason::LimitReached).collect();
    let fields: Vec<String> = told.iter().map(|it| it.field.to_string()).collect();
    let expected = ["path", "headers[0]", "queryParams[0]"];
    let expected: Vec<String> =
        (1..).zip(expected).map(|(rule, it)| format!("spec.rules[{rule}].matches[0].{it}.value")).collect();
    assert_eq!(fields, expected, "{told:?}");
    let broken = |world: &World| -> Vec<bool> {
        let rules = &listener(world).rules;
        rules.iter().map(|it| matches!(it.action, Action::Respond { code: 500, .. })).collect()
    };
    assert_eq!(broken(&world), [false, true, true, true]);
    let alone = super::scene::world(Config::default(), [put_route(&route)]);
    assert_eq!(broken(&alone), [false; 4], "in a folder: {:?}", problems(&alone));
}

/// `^(?:/a)|(/b)$` is one, and speaks of less than the whole path.
#[test]
fn what_is_an_expression_only_within_the_parentheses_around_it_is_none() {
    for (pattern, is_one) in [("/a)|(/b", false), ("/a)(?:/b", false), ("(/a)|(/b)", true), (r"/a\)", true)] {
        let world = super::scene::world(Config::default(), [put_route(&patterns("a/one", 1, &[pattern]))]);
        assert_eq!(world.problems().is_empty(), is_one, "{pattern}: {:?}", problems(&world));
    }
}

#[test]
fn members_at_the_front_door_count_among_those_of_their_namespace() {
    let limits = TenantLimits { members: Some(1), ..TenantLimits::default() };
    let config = Config { tenants: Tenants { limits, ..Tenants::default() }, ..Config::default() };
    let (old, young) = (born(service("a/old", &[80]), 1), born(service("a/young", &[80]), 2));
    let other = born(service("b/other", &[80]), 3);
    let all = [&young, &old, &other].into_iter().flat_map(|it| [put(it), backed(it)]);
    let mut world = world(config, all);
    let members = |world: &World| -> Vec<(String, usize)> {
        let pools = &load_balancer(world).expect("the front door is open").pools;
        pools.iter().map(|(id, pool)| (id.0.to_string(), pool.members.len())).collect()
    };
    let expected = [("a/old:80", 1), ("a/young:80", 0), ("b/other:80", 1)];
    assert_eq!(members(&world), expected.map(|(id, count)| (id.to_owned(), count)));
    assert_eq!(limits_told(&world), ["a/young"]);
    world.apply(super::scene::gone(&old));
    assert_eq!(members(&world), [("a/young:80".to_owned(), 1), ("b/other:80".to_owned(), 1)]);
    assert!(limits_told(&world).is_empty());
}
