//! Host names that belong to somebody: others take neither their paths nor their certificates.

use std::sync::Arc;

use seaway_model::{
    Change, Config, L4, ListenerId, Reason, Time,
    config::{FrontDoor, HostOwners, TlsSecrets, UnlistedHosts},
    fact::{FactRef, HttpRoute, Secret, Service},
    load_balancer::{Action, HostPattern, PathMatch, TlsByName},
};

use super::{routes, scene::*};
use crate::{World, certificates::tests::tls_secret};

pub(super) fn kept(names: &[(&str, &[&str])], others: UnlistedHosts) -> Config {
    let names = names.iter().map(|(host, its)| (pattern(host), its.iter().map(|it| (*it).into()).collect()));
    let owners = HostOwners { names: names.collect(), others };
    let mut config = with(FrontDoor { owners, ..FrontDoor::default() });
    config.front_door.tls.secrets = TlsSecrets::Named;
    config
}

pub(super) fn first() -> Config {
    kept(&[], UnlistedHosts::First)
}

pub(super) fn pattern(text: &str) -> HostPattern {
    crate::host_pattern(text).expect("a host name")
}

/// A Service that claims a host name, as old as that.
pub(super) fn claims(name: &str, at: u64, host: &str) -> Service {
    born(saying(service(name, &[80]), &[("seaway.dev/host", host)]), at)
}

/// A route for a path of a host name; for all of them, where none is said.
pub(super) fn route(name: &str, at: u64, host: Option<&str>, path: &str) -> HttpRoute {
    let (namespace, service) = name.split_once('/').expect("namespace/name");
    let mut route = routes::route_at(namespace, service, path);
    route.meta.created = Some(Time(at));
    route.hosts = host.into_iter().map(pattern).collect();
    route
}

/// To which namespaces a name leads, in the order of rules; `-` is an answer of our own.
pub(super) fn leads(world: &World, host: &str) -> Vec<String> {
    let host = pattern(host);
    let rules = listener(world).rules.clone();
    let its = rules.iter().filter(|it| it.hosts.contains(&host));
    its.map(|it| match &it.action {
        Action::Respond { code: 404, .. } => "-".to_owned(),
        _ => it.owner.object().namespace.to_string(),
    })
    .collect()
}

pub(super) fn refused(world: &World) -> Vec<String> {
    let all = world.problems().into_iter().filter(|it| it.reason == Reason::NotAllowed);
    all.map(|it| it.object.namespace.to_string()).collect()
}

#[test]
fn the_namespace_that_claims_a_name_first_keeps_it_with_all_its_paths() {
    let shop = claims("shop/web", 1, "shop.example");
    let (more, evil) = (
        route("shop/more", 9, Some("shop.example"), "/cart"),
        route("evil/login", 2, Some("shop.example"), "/login"),
    );
    let everywhere = route("evil/all", 2, None, "/login");
    let told = [put(&shop), put_route(&more), put_route(&evil), put_route(&everywhere)];
    for backwards in [false, true] {
        let mut told = told.to_vec();
        if backwards {
            told.reverse();
        }
        let mut world = world(first(), told);
        // The guard is last: what no rule of shop wants does not come to the rule for all names.
        assert_eq!(leads(&world, "shop.example"), ["shop", "shop", "-"]);
        assert_eq!(refused(&world), ["evil"]);
        let problem = world.problems().into_iter().find(|it| it.reason == Reason::NotAllowed).expect("told");
        assert!(
            problem.message.contains("shop.example belongs to another namespace, whose object is older"),
            "{problem}"
        );
        assert!(world.status(&whose_of(&evil)).expect("a guest").problems.contains(&problem));
        // With the last claim of shop, the next may have it.
        world.apply(gone(&shop));
        assert_eq!(leads(&world, "shop.example"), ["evil", "-"]);
        assert_eq!(refused(&world), ["shop"]);
        world.apply(put(&shop));
        assert_eq!(leads(&world, "shop.example"), ["shop", "shop", "-"]);
    }
}

fn gone_of(route: &HttpRoute) -> Change {
    Change::Gone(FactRef::Object(route.object()))
}

fn whose_of(route: &HttpRoute) -> seaway_model::Owner {
    seaway_model::Owner::Object { object: route.object(), uid: route.meta.uid.clone() }
}

#[test]
fn a_wildcard_owns_what_is_below_it_but_for_what_was_claimed_before() {
    for (table, expected, told) in [
        // The wildcard is older: nobody else may have a name below it.
        (
            [("shop/a", 1, "*.shop.example"), ("evil/b", 2, "a.shop.example")],
            [vec!["shop", "-"], vec![]],
            vec!["evil"],
        ),
        (
            [("shop/a", 1, "*.shop.example"), ("evil/b", 2, "*.a.shop.example")],
            [vec!["shop", "-"], vec![]],
            vec!["evil"],
        ),
        // The name is older: the wildcard does not take it.
        (
            [("evil/a", 2, "*.shop.example"), ("shop/b", 1, "a.shop.example")],
            [vec!["evil", "-"], vec!["shop", "-"]],
            vec![],
        ),
        // Of the same namespace, both are.
        (
            [("shop/a", 1, "*.shop.example"), ("shop/b", 2, "a.shop.example")],
            [vec!["shop", "-"], vec!["shop", "-"]],
            vec![],
        ),
        // It is not for the name at its end.
        (
            [("shop/a", 1, "*.shop.example"), ("evil/b", 2, "shop.example")],
            [vec!["shop", "-"], vec!["evil", "-"]],
            vec![],
        ),
    ] {
        let [one, two] = table.map(|(name, at, host)| claims(name, at, host));
        for told_first in [[&one, &two], [&two, &one]] {
            let world = world(first(), told_first.map(put));
            let [wide, narrow] = [table[0].2, table[1].2].map(|host| leads(&world, host));
            assert_eq!((wide, narrow), (owned(&expected[0]), owned(&expected[1])), "{table:?}");
            assert_eq!(refused(&world), told, "{table:?}");
        }
    }
}

/// Whose rules there are for all host names, in their order.
pub(super) fn everywhere(world: &World) -> Vec<String> {
    let rules = listener(world).rules.clone();
    let its = rules.iter().filter(|it| it.hosts.is_empty() && it.owner != crate::front_door::owner());
    its.map(|it| it.owner.object().namespace.to_string()).collect()
}

#[test]
fn the_namespace_that_claims_a_path_first_keeps_all_that_is_below_it() {
    let (shop, evil) = (route("shop/web", 1, None, "/shop"), route("evil/login", 2, None, "/shop/login"));
    let mut pattern = route("evil/pattern", 3, None, "/");
    pattern.rules[0].matches[0].path = Some(PathMatch::Regex("/.*".into()));
    let other = route("other/web", 4, None, "/other");
    let told = [put_route(&shop), put_route(&evil), put_route(&pattern), put_route(&other)];
    for backwards in [false, true] {
        let mut told = told.to_vec();
        if backwards {
            told.reverse();
        }
        let mut world = world(first(), told.clone());
        assert_eq!(everywhere(&world), ["shop", "other"]);
        assert_eq!(refused(&world), ["evil", "evil"]);
        let problem = world.problems().into_iter().find(|it| it.reason == Reason::NotAllowed).expect("told");
        assert!(problem.message.contains("path /shop/login belongs to another namespace"), "{problem}");
        // With the claims of others, it may be anybody's.
        world.apply(gone_of(&shop));
        assert_eq!(everywhere(&world), ["evil", "other"]);
        world.apply(gone_of(&other));
        assert_eq!(everywhere(&world), ["evil", "evil"]);
        world.apply(put_route(&shop));
        assert_eq!(everywhere(&world), ["shop"]);
    }
    // A folder is one tenant's, and so is a front door whose names are shared.
    for config in [kept(&[], UnlistedHosts::Shared), Config::default()] {
        let world = world(config, told.clone());
        assert_eq!(everywhere(&world).len(), 4);
    }
}

fn owned(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn what_the_configuration_lists_counts_and_it_may_be_all_there_is() {
    let list: &[(&str, &[&str])] = &[("shop.example", &["shop"]), ("*.shop.example", &["shop", "cart"])];
    for (others, name, host, may) in [
        (UnlistedHosts::First, "shop/x", "shop.example", true),
        (UnlistedHosts::First, "evil/x", "shop.example", false),
        (UnlistedHosts::First, "cart/x", "shop.example", false),
        (UnlistedHosts::First, "cart/x", "a.shop.example", true),
        (UnlistedHosts::First, "evil/x", "a.b.shop.example", false),
        (UnlistedHosts::First, "evil/x", "*.example", true),
        (UnlistedHosts::First, "evil/x", "other.example", true),
        (UnlistedHosts::Shared, "evil/x", "a.shop.example", false),
        (UnlistedHosts::Shared, "evil/x", "other.example", true),
        (UnlistedHosts::Refused, "shop/x", "shop.example", true),
        (UnlistedHosts::Refused, "evil/x", "other.example", false),
        (UnlistedHosts::Refused, "evil/x", "*.example", false),
    ] {
        let world = world(kept(list, others), [put(&claims(name, 1, host))]);
        let is_led = leads(&world, host).iter().any(|it| it != "-");
        assert_eq!(is_led, may, "{others:?} {name} {host}");
        assert_eq!(refused(&world).is_empty(), may, "{others:?} {name} {host}");
        // What is listed is kept for its owner, before there is anything of it.
        if host == "*.example" {
            assert_eq!(leads(&world, "shop.example"), ["-"]);
        }
    }
}

fn tls(world: &World) -> Option<Arc<TlsByName>> {
    load_balancer(world)?.listeners.get(&ListenerId { l4: L4::Tcp, port: 443 })?.tls.clone()
}

/// `"shop.example shop/pair"`, a line for each name.
fn shown(world: &World) -> Vec<String> {
    let named = |it: &seaway_model::ObjectRef| format!("{}/{}", it.namespace, it.name);
    let tls = tls(world);
    let names = tls.iter().flat_map(|it| &it.by_name);
    let lines = names.map(|(host, its)| {
        std::iter::once(host.to_string()).chain(its.iter().map(named)).collect::<Vec<_>>().join(" ")
    });
    lines.collect()
}

fn pair(namespace: &str, names: &[&str]) -> Secret {
    let mut secret = tls_secret("pair", names);
    secret.object.namespace = namespace.into();
    secret
}

fn certified(service: Service) -> Service {
    saying(service, &[("seaway.dev/tls", "pair")])
}

#[test]
fn a_certificate_is_shown_only_for_names_that_its_namespace_owns() {
    let shop = certified(claims("shop/web", 1, "shop.example"));
    // It sorts before, and is for the other's name.
    let evil = certified(claims("aaa/web", 2, "evil.example"));
    let told_of = [
        put(&shop),
        put(&evil),
        told(&pair("shop", &["shop.example", "*.shop.example"])),
        told(&pair("aaa", &["shop.example", "evil.example", "nobody.example"])),
    ];
    let mut world = world(first(), told_of);
    assert_eq!(shown(&world), ["evil.example aaa/pair", "shop.example shop/pair"]);
    assert_eq!(tls(&world).expect("TLS").default, [], "nobody's is shown to who asks for another name");
    // A wildcard is shown for the names below it that are owned.
    world.apply(put(&claims("shop/api", 3, "api.shop.example")));
    let expected = ["api.shop.example shop/pair", "evil.example aaa/pair", "shop.example shop/pair"];
    assert_eq!(shown(&world), expected);
    // With its claim, its certificate goes.
    world.apply(gone(&shop));
    assert_eq!(shown(&world), ["evil.example aaa/pair"]);
}

#[test]
fn a_wildcard_is_not_shown_for_a_name_below_it_that_is_another_s() {
    let shop = claims("shop/web", 1, "a.wide.example");
    let wide = certified(claims("wide/web", 2, "*.wide.example"));
    let world = world(first(), [put(&shop), put(&wide), told(&pair("wide", &["*.wide.example"]))]);
    assert_eq!(shown(&world), ["a.wide.example", "*.wide.example wide/pair"]);
}

#[test]
fn certificates_that_the_operator_chose_are_for_all_their_names() {
    let mut config = first();
    config.front_door.tls.certificates = vec![pair("infra", &[]).object];
    let own = certified(claims("shop/web", 1, "shop.example"));
    let pairs =
        [told(&pair("infra", &["shop.example", "all.example"])), told(&pair("shop", &["shop.example"]))];
    let world = world(config, [put(&own)].into_iter().chain(pairs));
    assert_eq!(shown(&world), ["all.example infra/pair", "shop.example infra/pair shop/pair"]);
    assert_eq!(tls(&world).expect("TLS").default.len(), 1);
}

#[test]
fn tls_that_is_passed_on_has_owners_too() {
    let through = ("seaway.dev/tls-passthrough", "true");
    let shop = saying(claims("shop/raw", 1, "*.shop.example"), &[through]);
    let evil = saying(claims("evil/raw", 2, "a.shop.example"), &[through]);
    let world = world(first(), [put(&shop), put(&evil)]);
    let to: Vec<String> = tls(&world).expect("TLS").through.keys().map(ToString::to_string).collect();
    assert_eq!((to, refused(&world)), (vec!["*.shop.example".to_owned()], vec!["evil".to_owned()]));
}

#[test]
fn rules_that_stay_are_the_very_same_and_so_are_guards() {
    let (one, two) = (claims("shop/web", 1, "shop.example"), claims("cart/web", 2, "cart.example"));
    let mut world = world(first(), [put(&one)]);
    let before = listener(&world);
    world.apply(put(&two));
    let after = listener(&world);
    let kept = before.rules.iter().all(|rule| after.rules.iter().any(|it| Arc::ptr_eq(it, rule)));
    assert!(kept, "{after:?}");
}

#[test]
fn without_owners_everything_is_as_it_was() {
    let config = Config::default();
    let shop = claims("shop/web", 1, "shop.example");
    let evil = route("evil/login", 2, Some("shop.example"), "/login");
    let mut world = world(config.clone(), [put(&shop), put_route(&evil)]);
    assert_eq!(leads(&world, "shop.example"), ["shop", "evil"]);
    // They begin to be kept, and end.
    world.apply(Change::Config(Arc::new(first())));
    assert_eq!(leads(&world, "shop.example"), ["shop", "-"]);
    world.apply(Change::Config(Arc::new(config)));
    assert_eq!((leads(&world, "shop.example"), refused(&world)), (owned(&["shop", "evil"]), vec![]));
}
