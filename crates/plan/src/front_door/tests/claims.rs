use seaway_model::{Config, Reason, Time};

use super::{routes, scene::*};
use crate::World;

fn conflicts(world: &World) -> Vec<String> {
    let problems = world.problems();
    problems.iter().filter(|it| it.reason == Reason::RouteConflict).map(ToString::to_string).collect()
}

#[test]
fn same_named_services_are_kept_apart_by_their_namespaces() {
    let (one, two) = (service("one/web", &[80]), service("two/web", &[80]));
    let found = entrances(&world(Config::default(), [put(&one), put(&two)]));
    assert!(found.contains(&"/one/web -> one/web:80".to_owned()), "{found:?}");
    assert!(found.contains(&"/two/web -> two/web:80".to_owned()), "{found:?}");
}

#[test]
fn a_claim_made_twice_is_the_older_one_s_then_by_namespace_and_name() {
    let (a, b) = (|| service("a/web", &[80]), || service("b/web", &[80]));
    let table = [
        ("both without a time", a(), b(), "a/web"),
        ("the second is older", born(a(), 9), born(b(), 5), "b/web"),
        ("the first is older", born(a(), 5), born(b(), 9), "a/web"),
        ("no time is oldest", born(a(), 5), b(), "b/web"),
        ("equal times", born(a(), 5), born(b(), 5), "a/web"),
    ];
    for (name, first, second, winner) in table {
        for told in [[put(&first), put(&second)], [put(&second), put(&first)]] {
            let world = world(Config::default(), told);
            let found = entrances(&world);
            assert!(found.contains(&format!("/web -> {winner}:80")), "{name}: {found:?}");
            let (loser, to) = if winner == "a/web" { ("b", "a") } else { ("a", "b") };
            let conflicts = conflicts(&world);
            assert_eq!(conflicts.len(), 1, "{name}: {conflicts:?}");
            let start =
                format!("Service {loser}/web: metadata.name: /web, /web:80 lead to Service {to}/web already");
            assert!(conflicts[0].starts_with(&start), "{name}: {conflicts:?}");
        }
    }
}

#[test]
fn in_a_cluster_the_winner_is_named_within_its_namespace_alone() {
    let mut config = Config::default();
    config.pools.cluster = true;
    let (first, second) = (born(service("a/web", &[80]), 5), born(service("b/web", &[80]), 9));
    let mut route = routes::route_at("a", "web", "/b/web");
    route.meta.created = Some(Time(4));
    for (is_cluster, service, other) in [
        (false, "Service a/web", "HTTPRoute a/web"),
        (true, "a Service of another namespace", "an HTTPRoute of another namespace"),
    ] {
        config.pools.cluster = is_cluster;
        let world = world(config.clone(), [put(&first), put(&second), put_route(&route)]);
        let conflicts = conflicts(&world);
        for (claims, to) in [("/web, /web:80 lead", service), ("/b/web leads", other)] {
            let told = format!("Service b/web: metadata.name: {claims} to {to} already, which is older");
            assert!(conflicts.contains(&told), "{conflicts:?}");
        }
    }
}

#[test]
fn the_rule_of_who_has_a_claim_comes_first() {
    let (young, old) = (born(service("a/web", &[80]), 9), born(service("b/web", &[80]), 5));
    let listener = listener(&world(Config::default(), [put(&young), put(&old)]));
    let owners: Vec<String> = listener.rules.iter().map(|rule| rule.owner.to_string()).collect();
    assert_eq!(owners, ["Service b/web", "Service a/web"]);
}

#[test]
fn the_loser_is_told_where_it_is_all_the_same_and_gets_the_claim_when_it_is_free() {
    let (young, old) = (born(service("a/web", &[80]), 9), born(service("b/web", &[80]), 5));
    let mut world = world(Config::default(), [put(&young), put(&old)]);
    let problem = world.problems().into_iter().find(|it| it.reason == Reason::RouteConflict).expect("told");
    assert!(problem.message.ends_with("which is older"), "{}", problem.message);
    assert!(problem.fix.starts_with("Send requests for it to /a/web,"), "{}", problem.fix);
    let status = world.status(&seaway_testkit::facts::owner(&young)).expect("it is there");
    assert!(status.problems.contains(&problem), "{status:?}");

    let dirt = world.apply(gone(&old));
    let told = seaway_model::WorkItem::Unit(seaway_model::Unit::Status(seaway_testkit::facts::owner(&young)));
    assert!(dirt.contains(&told), "{dirt:?}");
    assert!(conflicts(&world).is_empty());
    assert!(entrances(&world).contains(&"/web -> a/web:80".to_owned()));
}

#[test]
fn a_host_name_is_claimed_once_in_whatever_case_it_is_written() {
    let first = saying(service("a", &[80]), &[("seaway.dev/host", "shop.example")]);
    let second = saying(service("b", &[80]), &[("serviceloadbalancer/lb.host", "Shop.Example.,b.example")]);
    let world = world(Config::default(), [put(&first), put(&second)]);
    let conflicts = conflicts(&world);
    assert_eq!(
        conflicts,
        [
            "Service default/b: metadata.annotations[serviceloadbalancer/lb.host]: shop.example/ leads to Service \
             default/a already, whose name comes first"
        ]
    );
    let found = entrances(&world);
    assert!(found.contains(&"shop.example/ -> default/a:80".to_owned()), "{found:?}");
    assert!(found.contains(&"b.example/ -> default/b:80".to_owned()), "{found:?}");
}

const RANGES: (&str, &str) = ("seaway.dev/source-ranges", "10.0.0.0/8");

/// A Service or an HTTPRoute, at one place.
fn at_admin(kind: &str, name: &str, is_protected: bool, age: Option<u64>) -> seaway_model::Change {
    let ranges: &[(&str, &str)] = if is_protected { &[RANGES] } else { &[] };
    let age = age.map(Time);
    if kind == "HTTPRoute" {
        let mut route = super::owners::route(&format!("default/{name}"), 1, Some("shop.example"), "/admin");
        route.meta.created = age;
        let said = ranges.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        route.meta.annotations.extend(said);
        return put_route(&route);
    }
    let place = [("seaway.dev/host", "shop.example/admin")];
    let mut it = saying(saying(service(name, &[80]), &place), ranges);
    it.meta.created = age;
    put(&it)
}

#[test]
fn without_an_age_what_restricts_access_comes_before_what_does_not_and_then_the_name() {
    for winner in ["Service", "HTTPRoute"] {
        for loser in ["Service", "HTTPRoute"] {
            let (right, open) = (at_admin(winner, "zzz", true, None), at_admin(loser, "aaa", false, None));
            for both in [[right.clone(), open.clone()], [open, right]] {
                let world = world(Config::default(), both);
                let told = conflicts(&world);
                assert_eq!(told.len(), 1, "{told:?}");
                let start = format!("{loser} default/aaa: ");
                let end = format!(
                    "shop.example/admin leads to {winner} default/zzz already, which restricts access"
                );
                assert!(told[0].starts_with(&start) && told[0].ends_with(&end), "{told:?}");
                assert_eq!(listener(&world).rules[0].owner.to_string(), format!("{winner} default/zzz"));
            }
        }
    }
    // The path of a name.
    let (right, open) = (saying(service("zz/web", &[80]), &[RANGES]), service("aa/web", &[80]));
    let mut world = world(Config::default(), [put(&open), put(&right)]);
    assert!(entrances(&world).contains(&"/web -> zz/web:80".to_owned()));
    // It is planned as after a restart.
    world.apply(put(&service("zz/web", &[80])));
    assert!(entrances(&world).contains(&"/web -> aa/web:80".to_owned()));
    world.apply(put(&right));
    assert!(entrances(&world).contains(&"/web -> zz/web:80".to_owned()));
}

#[test]
fn with_an_age_the_older_one_has_it_and_its_openness_is_named() {
    let young = at_admin("Service", "shop-admin", true, Some(9));
    let old = at_admin("Service", "aaa", false, Some(5));
    let told = conflicts(&world(Config::default(), [young, old]));
    let end = "Service default/aaa already, which is older; Service default/aaa is open to all clients there";
    assert!(told.len() == 1 && told[0].ends_with(end), "{told:?}");
    let both = [at_admin("Service", "b", true, Some(9)), at_admin("Service", "a", true, Some(5))];
    let told = conflicts(&world(Config::default(), both));
    assert!(told.len() == 1 && told[0].ends_with("which is older"), "{told:?}");
}

#[test]
fn a_route_to_a_protected_service_is_no_weaker_than_the_service() {
    let shop = saying(service("shop", &[80]), &[RANGES]);
    let mut route = routes::route_to("shop", 80);
    route.rules[0].matches[0].path = Some(seaway_model::load_balancer::PathMatch::Prefix("/shop".into()));
    let world = world(Config::default(), [put(&shop), put_route(&route)]);
    assert!(conflicts(&world).is_empty(), "{:?}", conflicts(&world));
}
