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
