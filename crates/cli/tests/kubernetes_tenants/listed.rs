//! A front door of names that the operator lists, and of which each namespace has a share.

use seaway_testkit::topology::until;

use crate::{
    cluster::Shared,
    front_door::{is_evil, routed, squatter},
};

const CONFIGURATION: &str = "
defaultDriver: native
admin: {listen: [\"127.0.0.1:0\"]}
frontDoor:
  enabled: true
  port: 8000
  tls: {port: 8443}
  parentRef: infra/public
  hostOwners: {names: {shop.example: shop, \"*.evil.test\": evil}, others: refuse}
tenants: {limits: {rules: 40, expressions: 2}}
";

/// So many paths of a kind, in as many matches.
fn paths(kind: &str, count: usize) -> String {
    let all: Vec<String> =
        (0..count).map(|at| format!("{{path: {{type: {kind}, value: \"/{at}\"}}}}")).collect();
    all.join(", ")
}

#[test]
fn names_that_nobody_lists_are_refused_and_who_is_beyond_its_share_of_the_front_door_takes_nothing() {
    let Some(shared) = Shared::by(CONFIGURATION) else { return };
    shared.applies(
        &[
            squatter("unlisted", "seaway.dev/host: unlisted.example"),
            squatter("squatter", "seaway.dev/host: shop.example"),
            squatter("listed", "seaway.dev/host: listed.evil.test"),
            routed("unlisted", "unlisted-by-route.example", &paths("PathPrefix", 1)),
            routed("listed", "by-route.evil.test", &paths("PathPrefix", 1)),
        ]
        .join("---"),
    );
    let door = |host: &str, path: &str| shared.asks_door(host, path, &[]);
    let own_are_served =
        || is_evil(&door("listed.evil.test", "/")) && is_evil(&door("by-route.evil.test", "/0"));
    until("what is listed for its namespace is served", own_are_served);
    let why = "is not among the host names that the configuration lists";
    shared.is_refused("unlisted", &format!("unlisted.example {why}"));
    shared.is_refused("squatter", "shop.example belongs to another namespace");
    ["unlisted", "squatter"].iter().for_each(|it| shared.is_refused(it, "NotAllowed: "));
    let says = |route: &str, why: &str| shared.told_of_route(route).iter().any(|it| it.contains(why));
    until("the route is refused, too", || {
        says("unlisted", &format!("NotAllowed: unlisted-by-route.example {why}"))
    });

    shared.applies(
        &[
            routed("many", "many.evil.test", &paths("Exact", 41)),
            routed("clever", "clever.evil.test", &paths("RegularExpression", 3)),
        ]
        .join("---"),
    );
    until("too many rules are left out", || {
        says("many", "LimitReached: ") && says("many", "rules (the limit is 40)")
    });
    until("too many expressions are left out", || {
        says("clever", "LimitReached: ") && says("clever", "regular expressions (the limit is 2)")
    });
    for (host, path) in [
        ("unlisted.example", "/"),
        ("unlisted-by-route.example", "/0"),
        ("many.evil.test", "/0"),
        ("clever.evil.test", "/0"),
    ] {
        assert!(!is_evil(&door(host, path)), "{host}{path} is served");
    }
    assert!(own_are_served(), "what the namespace had before is");
    assert!(shared.door_answers("shop.example", "/", "shop-"), "and so is the other namespace");

    // With less it is within its share.
    shared.applies(&routed("many", "many.evil.test", &paths("Exact", 2)));
    shared.applies(&routed("clever", "clever.evil.test", &paths("RegularExpression", 2)));
    until("what is within the limits is served", || {
        is_evil(&door("many.evil.test", "/0")) && is_evil(&door("clever.evil.test", "/1"))
    });
    assert_eq!((shared.told_of_route("many"), shared.told_of_route("clever")), (vec![], vec![]));
}
