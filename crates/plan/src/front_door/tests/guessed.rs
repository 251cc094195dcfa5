//! A place that a Service was probably meant to have takes nothing from a place that is understood, and claims nothing.

use seaway_model::{
    Change, Config, Kind, Name,
    config::{TenantLimits, Tenants},
    fact::Service,
    load_balancer::{Action, HostPattern, PathMatch},
};

use super::{
    orders::{ordering, wanted},
    owners::{claims, first, leads, refused, route},
    scene::*,
};
use crate::World;

const RANGES: (&str, &str) = ("seaway.dev/source-ranges", "10.0.0.0/8");

fn restricted(name: &str, annotation: (&str, &str)) -> Service {
    saying(service(name, &[80]), &[annotation, RANGES])
}

/// What the rules of a place answer; nothing, where they send requests to members.
fn answers(world: &World, host: Option<&str>, path: &str) -> Vec<Option<u16>> {
    let hosts: Vec<HostPattern> = host.map(super::owners::pattern).into_iter().collect();
    let path = Some(PathMatch::Prefix(path.into()));
    let rules = listener(world).rules.clone();
    let its = rules.iter().filter(|it| it.hosts == hosts && it.matches.iter().any(|it| it.path == path));
    its.map(|it| match it.action {
        Action::Respond { code, .. } if code >= 400 => Some(code),
        _ => None,
    })
    .collect()
}

#[test]
fn a_guessed_place_takes_nothing_from_one_that_is_understood_whatever_is_older_or_comes_first() {
    let shop = put(&service("shop", &[80]));
    let admin = put(&restricted("shop-admin", ("seaway.dev/host", "shop.example/admin")));
    let by_route = put_route(&route("default/way", 5, Some("shop.example"), "/admin"));
    let host = ("seaway.dev/host", "http://shop.example/admin");
    let at_admin = (Some("shop.example"), "/admin");
    let cases = [
        (("seaway.dev/path", "shop"), &shop, (None, "/shop")),
        (host, &admin, at_admin),
        (host, &by_route, at_admin),
    ];
    // Something is served, so that the front door is open.
    let open = service("open", &[80]);
    for (annotation, right, (host, path)) in cases {
        for namespace in ["default", "another"] {
            for age in [None, Some(1), Some(9)] {
                let mut slipped = restricted(&format!("{namespace}/a-admin"), annotation);
                slipped.meta.created = age.map(seaway_model::Time);
                let (slipped, right) = (put(&slipped), right.clone());
                for both in [[slipped.clone(), right.clone()], [right, slipped.clone()]] {
                    let world = world(Config::default(), [put(&open)].into_iter().chain(both));
                    let found = answers(&world, host, path);
                    assert_eq!(found, [None], "{annotation:?} {namespace} {age:?}: {:?}", entrances(&world));
                    assert!(
                        entrances(&world).iter().all(|it| !it.contains("503")),
                        "{:?}",
                        entrances(&world)
                    );
                }
                let alone = world(Config::default(), [put(&open), slipped]);
                assert_eq!(answers(&alone, host, path), [Some(503)], "{annotation:?} {namespace}: alone");
            }
        }
    }
}

#[test]
fn a_guessed_place_answers_503_again_when_the_other_is_gone() {
    let slipped = restricted("a-admin", ("seaway.dev/host", "http://shop.example/admin"));
    let (shop, right) = (claims("default/shop", 1, "shop.example"), service("shop-admin", &[80]));
    let right = saying(right, &[("seaway.dev/host", "shop.example/admin"), RANGES]);
    let mut world = world(Config::default(), [put(&slipped), put(&shop)]);
    let at = |world: &World| answers(world, Some("shop.example"), "/admin");
    assert_eq!(at(&world), [Some(503)]);
    world.apply(put(&right));
    assert_eq!(at(&world), [None]);
    world.apply(gone(&right));
    assert_eq!(at(&world), [Some(503)]);
    // A place that is understood beside it is the Service's own.
    let both = [("seaway.dev/host", "shop.example/admin"), ("seaway.dev/path", "/x/*"), RANGES];
    world.apply(put(&saying(service("a-admin", &[80]), &both)));
    world.apply(put(&born(right, 9)));
    assert_eq!(at(&world).first(), Some(&Some(503)), "the older one has it");
}

#[test]
fn a_guessed_place_owns_no_name_and_orders_no_certificate() {
    let at = |service: Service| born(service, 1);
    let slipped = at(restricted("evil/admin", ("seaway.dev/host", "http://shop.example/admin")));
    let path = at(restricted("evil/path", ("seaway.dev/path", "login")));
    let shop = claims("shop/web", 5, "shop.example");
    let login = put_route(&route("shop/login", 5, None, "/login"));
    for mut told in [
        vec![put(&slipped), put(&path), put(&shop), login.clone()],
        vec![put(&shop), login.clone(), put(&path), put(&slipped)],
    ] {
        told.push(put(&at(service("evil/open", &[80]))));
        told.extend([Kind::HTTPRoute, Kind::NameOwner].map(Change::Synced));
        let world = world(first(), told);
        assert_eq!(leads(&world, "shop.example"), ["shop", "-"]);
        assert_eq!(answers(&world, None, "/login"), [None]);
        assert_eq!(refused(&world), [""; 0]);
        let all = world.first_claims().expect("all is known").claimed;
        let evil = all.get(&Name::from("evil")).cloned().unwrap_or_default();
        assert!(evil.hosts.is_empty() && !evil.paths.contains("/login"), "{evil:?}");
    }
    let host = "status.vendor.example";
    let page = restricted("page", ("seaway.dev/url", "https://status.vendor.example/x"));
    let closed = world(ordering(), [put(&page), put(&service("open", &[80]))]);
    assert_eq!(answers(&closed, Some(host), "/x"), [Some(503)]);
    assert!(wanted(&closed, host).is_none(), "a certificate is ordered for a guess");
    let page = restricted("page", ("seaway.dev/host", "status.vendor.example/x"));
    assert!(wanted(&world(ordering(), [put(&page)]), host).is_some());
}

#[test]
fn guessed_places_have_what_is_left_of_the_limit_and_take_nothing_from_others() {
    let slipped = born(restricted("a/admin", ("seaway.dev/host", "http://x.example/admin")), 1);
    let routes = ["/1", "/2"].map(|path| put_route(&route(&format!("a/r{}", &path[1..]), 5, None, path)));
    for (most, expected) in [(2, vec![]), (3, vec![Some(503)])] {
        let limits = TenantLimits { rules: Some(most), ..TenantLimits::default() };
        let config = Config { tenants: Tenants { limits, ..Tenants::default() }, ..Config::default() };
        let world = world(config, [put(&slipped)].into_iter().chain(routes.clone()));
        assert_eq!(answers(&world, None, "/1"), [None], "{most}");
        assert_eq!(answers(&world, None, "/2"), [None], "{most}");
        assert_eq!(answers(&world, Some("x.example"), "/admin"), expected, "{most}");
    }
}

#[test]
fn a_word_is_a_path_under_the_key_for_paths_alone() {
    for (key, text, expected) in [
        ("seaway.dev/path", "orders", vec!["/orders"]),
        ("seaway.dev/paths", "orders", vec!["/orders"]),
        ("seawy.dev/path", "orders", vec!["/orders"]),
        ("seaway.dev/prefix", "orders", vec![]),
        ("seaway.dev/location", "orders", vec![]),
        ("seaway.dev/route", "orders", vec![]),
        ("seaway.dev/url", "orders", vec![]),
        ("serviceloadbalancer/lb.aclMatch", "orders", vec![]),
        ("seaway.dev/prefix", "/orders", vec!["/orders"]),
    ] {
        let admin = put(&restricted("admin", (key, text)));
        let world = world(Config::default(), [put(&service("open", &[80])), admin]);
        let view = entrances(&world);
        let closed: Vec<&str> = view.iter().filter_map(|it| it.strip_suffix(" -> answer 503")).collect();
        assert_eq!(closed, expected, "{key}: {text}");
        let said = problems(&world).join("\n");
        assert_eq!(
            said.contains("a broader host name or path may serve"),
            expected.is_empty(),
            "{key}: {said}"
        );
    }
}
