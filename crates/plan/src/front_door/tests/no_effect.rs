//! What is written for the front door, is valid, and does not do what it was probably meant to: a Problem each.

use seaway_model::{
    Config, Reason,
    load_balancer::{HostPattern, Match, PathMatch},
};

use super::{routes::route_to, scene::*};
use crate::{World, certificates::tests::tls_secret};

/// The Problems with that in their message or what to do.
fn said(world: &World, what: &str) -> Vec<String> {
    let all = world.problems().into_iter().map(|it| format!("{it} {}", it.fix));
    all.filter(|it| it.contains(what)).collect()
}

#[test]
fn a_path_of_a_route_that_is_a_pattern_to_other_proxies_is_named() {
    let prefix: fn(&str) -> PathMatch = |path| PathMatch::Prefix(path.into());
    let exact: fn(&str) -> PathMatch = |path| PathMatch::Exact(path.into());
    let regex: fn(&str) -> PathMatch = |path| PathMatch::Regex(path.into());
    for (of, path, meant) in [
        (prefix, "/admin/*", Some("Write /admin with")),
        (prefix, "/admin.*", Some("Write /admin with")),
        (prefix, "/*", Some("Write / with")),
        (exact, "/admin$", Some("Write /admin with")),
        (prefix, "/(a|b)", Some("Write type: RegularExpression")),
        (prefix, "/admin", None),
        (exact, "/a+b/~c", None),
        (regex, "/admin/.*", None),
    ] {
        for guard in [None, Some("10.0.0.0/8")] {
            let web = service("web", &[80]);
            let mut route = route_to("web", 80);
            route.hosts = vec![HostPattern::Exact("shop.example".into())];
            route.rules[0].matches = vec![Match { path: Some(of(path)), ..Match::default() }];
            let ranges = guard.map(|it| ("seaway.dev/source-ranges".into(), it.into()));
            route.meta.annotations.extend(ranges);
            let world = world(Config::default(), [put(&web), backed(&web), put_route(&route)]);
            let found = said(&world, "is matched as it is written");
            assert_eq!(found.len(), usize::from(meant.is_some()), "{path}: {found:?}");
            let names = |it: &String| {
                it.contains("spec.rules[0].matches[0].path.value")
                    && meant.is_some_and(|meant| it.contains(meant))
                    && it.contains("without the protection of this route") == guard.is_some()
            };
            assert!(found.iter().all(names), "{path}: {found:?}");
            // It is served as before.
            assert!(
                entrances(&world).iter().any(|it| it.starts_with("shop.example") && it.ends_with("/web:80"))
            );
        }
    }
}

#[test]
fn hsts_without_https_is_named_until_there_is_a_certificate() {
    let hsts = ("seaway.dev/hsts", "9h");
    for (say, expected) in [
        (vec![hsts], 1),
        (vec![hsts, ("seaway.dev/host", "a.example")], 1),
        (vec![("seaway.dev/hsts", "off")], 0),
        (vec![], 0),
    ] {
        let web = saying(service("web", &[80]), &say);
        let mut world = world(Config::default(), [put(&web), backed(&web)]);
        let found = || "browsers heed it only over https";
        let problems = said(&world, found());
        assert_eq!(problems.len(), expected, "{say:?}: {problems:?}");
        assert!(
            problems.iter().all(|it| it.contains("metadata.annotations[seaway.dev/hsts]")),
            "{problems:?}"
        );
        world.apply(told(&tls_secret("own", &["a.example"])));
        assert_eq!(said(&world, found()), [""; 0], "{say:?}");
    }
}

#[test]
fn a_service_that_decides_about_its_own_requests_is_named() {
    for (asked, expected) in [("web:80/verify", true), ("auth:80/verify", false)] {
        let web = saying(service("web", &[80]), &[("seaway.dev/forward-auth", asked)]);
        let auth = service("auth", &[80]);
        let world = world(Config::default(), [put(&web), backed(&web), put(&auth), backed(&auth)]);
        let found = world.problems().into_iter().filter(|it| it.message.contains("the Service names itself"));
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), usize::from(expected), "{asked}: {found:?}");
        assert!(found.iter().all(|it| it.reason == Reason::Unsupported && !it.fix.is_empty()));
        assert!(listener(&world).rules.iter().any(|it| !it.asks.is_empty()), "it is asked: {asked}");
    }
}
