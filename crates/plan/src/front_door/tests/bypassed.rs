//! What protects a part of a host name is not bypassed by the paths of a Service's name, nor, without a Problem, by a host name that
//! comes before a path of all host names.

use seaway_model::{
    Change, Config, L4,
    config::FrontDoor,
    fact::{FactRef, HttpRoute, Service, ServiceKind},
    load_balancer::{HostPattern, PathMatch},
};

use super::{
    guarded::{RANGES, is_by_name},
    routes::{route_to, under},
    scene::*,
    services::exposed,
};
use crate::{World, dry_run};

const INTERNAL: (&str, &str) = ("seaway.dev/internal", "true");

type Say<'a> = &'a [(&'a str, &'a str)];

fn host(of: &'static str) -> (&'static str, &'static str) {
    ("seaway.dev/host", of)
}

fn with_internal() -> Config {
    let mut config = Config::default();
    let internal = FrontDoor { port: 8080, ..config.front_door.clone() };
    config.front_door.entrances.insert("internal".into(), internal);
    config
}

fn beside(shop: &Service, others: impl IntoIterator<Item = Change>) -> World {
    world(with_internal(), [put(shop), backed(shop)].into_iter().chain(others))
}

/// The Problems that say so, by their objects.
fn told(world: &World, what: &str) -> Vec<String> {
    problems(world).into_iter().filter(|it| it.contains(what)).collect()
}

const BYPASS: &str = "would bypass that";

#[test]
fn a_service_is_not_at_its_name_where_an_object_beside_it_protects_a_part_of_its_host() {
    let shop_example = host("shop.example");
    let below = host("shop.example/admin");
    let cases: [(Say<'_>, Say<'_>, bool); 25] = [
        (&[shop_example], &[below, RANGES], false),
        (&[shop_example], &[host("shop.example/admin/"), RANGES], false),
        (&[host("other.example,shop.example")], &[below, RANGES], false),
        (&[shop_example], &[below, ("seaway.dev/denied-source-ranges", "192.0.2.0/24")], false),
        (&[shop_example], &[below, ("seaway.dev/basic-auth", "users")], false),
        (&[shop_example], &[below, ("seaway.dev/requests-per-second-per-client", "9")], false),
        (&[shop_example], &[below, ("seaway.dev/source-ranges", "office")], false),
        (&[shop_example], &[below, ("seaway.dev/source-range", "10.0.0.0/8")], false),
        (&[host("*.example")], &[below, RANGES], false),
        (&[host("*.example")], &[host("admin.example"), RANGES], false),
        (&[shop_example], &[below, INTERNAL], false),
        (&[shop_example, ("seaway.dev/front-door", "true")], &[below, RANGES], false),
        (&[shop_example], &[below, RANGES, ("seaway.dev/entrance", "intern")], false),
        (&[shop_example], &[below, RANGES, ("seaway.dev/entrance", "main,internal")], false),
        // Nothing is protected there, or not there.
        (&[shop_example], &[below], true),
        (&[shop_example], &[below, ("seaway.dev/max-connections", "9")], true),
        (&[shop_example], &[below, ("seaway.dev/internal", "false")], true),
        (&[shop_example], &[below, INTERNAL, ("seaway.dev/entrance", "internal")], true),
        (&[shop_example], &[host("other.example/admin"), RANGES], true),
        (&[shop_example], &[below, RANGES, ("seaway.dev/front-door", "false")], true),
        (&[shop_example], &[below, RANGES, ("seaway.dev/entrance", "internal")], true),
        // The exact name comes before a wildcard, which protects nothing of it.
        (&[shop_example], &[host("*.example/admin"), RANGES], true),
        (&[], &[below, RANGES], true),
        (&[("seaway.dev/front-door", "true")], &[below, RANGES], true),
        // It asks for just that.
        (&[shop_example, ("seaway.dev/path", "/shop")], &[below, RANGES], true),
    ];
    for (of_shop, of_admin, expected) in cases {
        let shop = saying(service("shop", &[80]), of_shop);
        let admin = saying(service("admin", &[80]), of_admin);
        let case = format!("{of_shop:?} {of_admin:?}");
        let world = beside(&shop, [put(&admin), backed(&admin)]);
        assert_eq!(is_by_name(&world, &shop), expected, "{case}: {:?}", entrances(&world));
        let said = told(&world, BYPASS);
        assert_eq!(said.len(), usize::from(!expected), "{case}: {said:?}");
        assert!(
            said.iter().all(|it| it.starts_with("Service default/shop: ") && it.contains("default/admin"))
        );
        // Only there: its host names are served.
        let by_host = entrances(&world).iter().any(|it| it.contains(".example") && it.ends_with("/shop:80"));
        assert_eq!(by_host, of_shop.iter().any(|it| it.0 == shop_example.0), "{case}");
        // Those of another namespace change nothing.
        let tenant = saying(service("tenant/admin", &[80]), of_admin);
        assert!(is_by_name(&beside(&shop, [put(&tenant)]), &shop), "{case}");
    }
    let slash = saying(service("shop", &[80]), &[host("shop.example/")]);
    let admin = saying(service("admin", &[80]), &[below, RANGES]);
    assert_eq!(told(&beside(&slash, [put(&admin)]), BYPASS), [""; 0]);
}

fn route(name: &str, service: &str, path: &str, say: Say<'_>) -> HttpRoute {
    let mut route = route_to(service, 80);
    route.meta.name = name.into();
    route.meta.annotations = say.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    route.hosts = vec![HostPattern::Exact("shop.example".into())];
    route.rules[0].matches = vec![under(path)];
    route
}

#[test]
fn routes_lead_to_host_names_and_protect_parts_of_them_as_services_do() {
    let own: Say<'_> = &[host("shop.example")];
    let asking: Say<'_> = &[("seaway.dev/front-door", "true")];
    for (of_shop, leads_at, protects, expected) in [
        (own, None, "/admin", false),
        (&[], Some("/"), "/admin", false),
        (&[], Some("/"), "/", false),
        (&[], Some("/api"), "/api/admin", false),
        (&[], Some("/api"), "/admin", true),
        (asking, Some("/"), "/admin", true),
        (&[], None, "/admin", true),
    ] {
        let shop = saying(service("shop", &[80]), of_shop);
        let admin = service("admin", &[80]);
        let guarding = route("adm", "admin", protects, &[RANGES]);
        let leading = leads_at.map(|path| put_route(&route("open", "shop", path, &[])));
        let world = beside(&shop, [put(&admin), put_route(&guarding)].into_iter().chain(leading));
        let case = format!("{of_shop:?} {leads_at:?} {protects}");
        assert_eq!(is_by_name(&world, &shop), expected, "{case}: {:?}", entrances(&world));
        let said = told(&world, BYPASS);
        assert_eq!(said.len(), usize::from(!expected), "{case}: {said:?}");
        assert!(said.iter().all(|it| it.contains("HTTPRoute default/adm restricts access")), "{said:?}");
    }
    // One that is to be internal, and is not.
    let shop = saying(service("shop", &[80]), own);
    let admin = service("admin", &[80]);
    let world = beside(&shop, [put(&admin), put_route(&route("adm", "admin", "/admin", &[INTERNAL]))]);
    assert!(!is_by_name(&world, &shop), "{:?}", entrances(&world));
    // Without host names: one that has none comes after those that have some.
    for (leads_everywhere, protects_everywhere, expected) in
        [(true, true, false), (false, true, true), (true, false, true)]
    {
        let shop = service("shop", &[80]);
        let mut guarding = route("adm", "admin", "/admin", &[RANGES]);
        let mut leading = route("open", "shop", "/", &[]);
        for (it, is_everywhere) in [(&mut leading, leads_everywhere), (&mut guarding, protects_everywhere)] {
            it.hosts.retain(|_| !is_everywhere);
        }
        let world = beside(&shop, [put(&service("admin", &[80])), put_route(&leading), put_route(&guarding)]);
        let case = format!("{leads_everywhere} {protects_everywhere}: {:?}", entrances(&world));
        assert_eq!(is_by_name(&world, &shop), expected, "{case}");
        let said = told(&world, "restricts access to /admin of all host names");
        assert_eq!(said.len(), usize::from(!expected), "{case}");
    }
    // Below which paths an expression matches is not known.
    for (leads_at, expression, expected) in [
        ("/api", "/(api|x)/admin.*", false),
        ("/api/admin", "/api/[a-z]+", false),
        ("/web", "/api/[a-z]+", true),
    ] {
        let shop = service("shop", &[80]);
        let mut guarding = route("adm", "admin", "/", &[RANGES]);
        guarding.rules[0].matches[0].path = Some(PathMatch::Regex(expression.into()));
        let leading = route("open", "shop", leads_at, &[]);
        let world = beside(&shop, [put(&service("admin", &[80])), put_route(&leading), put_route(&guarding)]);
        assert_eq!(is_by_name(&world, &shop), expected, "{leads_at} {expression}: {:?}", entrances(&world));
    }
    // A route that protects a part of the host name that the Service it leads to asks for itself.
    let shop = saying(service("shop", &[80]), own);
    let world = beside(&shop, [put_route(&route("adm", "shop", "/admin", &[RANGES]))]);
    assert!(!is_by_name(&world, &shop), "{:?}", entrances(&world));
}

#[test]
fn whether_it_is_at_its_name_follows_what_is_protected_beside_it() {
    let shop = saying(service("shop", &[80]), &[host("*.example")]);
    let hidden = service("cart", &[80]);
    let at = |say: Say<'_>| saying(service("admin", &[80]), say);
    let below = host("shop.example/admin");
    let (open, guarding) = (at(&[below]), at(&[below, RANGES]));
    let leading = route("open", "cart", "/", &[]);
    let mut world = beside(&shop, [put(&open), put(&hidden), backed(&hidden)]);
    for (change, of_shop, of_cart) in [
        (put(&guarding), false, true),
        (put(&open), true, true),
        (put(&guarding), false, true),
        (put_route(&leading), false, false),
        (put(&at(&[host("shop.test/admin"), RANGES])), true, true),
        (put(&guarding), false, false),
        (Change::Gone(FactRef::Object(leading.object())), false, true),
        (put_route(&leading), false, false),
        (put(&saying(guarding.clone(), &[("seaway.dev/entrance", "internal")])), true, true),
        (put(&guarding), false, false),
        (gone(&guarding), true, true),
    ] {
        dry_run(&mut world, [change.clone()]);
        let found = (is_by_name(&world, &shop), is_by_name(&world, &hidden));
        assert_eq!(found, (of_shop, of_cart), "{change:?}: {:?}", entrances(&world));
    }
}

const TAKEN: &str = "without the protection of this Service";

#[test]
fn a_protected_path_of_all_hosts_that_a_host_name_takes_away_is_a_problem() {
    let path = ("seaway.dev/path", "/admin");
    let shop_example = host("shop.example");
    let cases: [(Say<'_>, Say<'_>, Option<&str>); 13] = [
        (&[shop_example], &[path, RANGES], Some("shop.example/admin")),
        (&[host("shop.example/")], &[path, RANGES], Some("shop.example/admin")),
        (&[host("*.example")], &[path, RANGES], Some("*.example/admin")),
        // It answers 503 at all others.
        (&[shop_example], &[("seaway.dev/path", "admin"), RANGES], Some("shop.example/admin")),
        (&[shop_example], &[path, ("seaway.dev/source-ranges", "office")], Some("shop.example/admin")),
        (&[shop_example], &[path, INTERNAL], Some("shop.example/admin")),
        (&[shop_example], &[path], None),
        (&[shop_example, RANGES], &[path, RANGES], None),
        (&[shop_example], &[path, host("shop.example/admin"), RANGES], None),
        (&[host("shop.example/api")], &[path, RANGES], None),
        (&[host("shop.example,shop.example/admin")], &[path, RANGES], None),
        (&[shop_example], &[path, RANGES, ("seaway.dev/entrance", "internal")], None),
        (&[], &[path, RANGES], None),
    ];
    for (of_shop, of_admin, expected) in cases {
        let shop = saying(service("shop", &[80]), of_shop);
        let admin = saying(service("admin", &[80]), of_admin);
        let world = beside(&shop, [put(&admin), backed(&admin)]);
        let said = told(&world, TAKEN);
        assert_eq!(said.len(), usize::from(expected.is_some()), "{of_shop:?} {of_admin:?}: {said:?}");
        let names = |it: &String| {
            it.starts_with("Service default/admin: metadata.annotations")
                && expected.is_some_and(|place| it.contains(&format!("Service default/shop serves {place}")))
        };
        assert!(said.iter().all(names), "{said:?}");
    }
    // It follows what the others have.
    let (admin, mut shop) = (saying(service("admin", &[80]), &[path, RANGES]), service("shop", &[80]));
    let mut world = beside(&shop, [put(&admin), backed(&admin)]);
    for (of_shop, expected) in [(shop_example, 1), (host("shop.example/cart"), 0), (shop_example, 1)] {
        shop = saying(service("shop", &[80]), &[of_shop]);
        dry_run(&mut world, [put(&shop)]);
        assert_eq!(told(&world, TAKEN).len(), expected, "{of_shop:?}");
    }
    dry_run(&mut world, [gone(&shop)]);
    assert_eq!(told(&world, TAKEN), [""; 0]);
    dry_run(&mut world, [put_route(&route("open", "shop", "/", &[]))]);
    assert_eq!(told(&world, TAKEN).len(), 1, "{:?}", problems(&world));
}

#[test]
fn a_listener_beside_a_protected_route_is_named_unless_the_service_says_itself_who_may_connect() {
    let denied = ("seaway.dev/denied-source-ranges", "192.0.2.0/24");
    for (of_service, of_route, expected) in [
        (&[][..], &[RANGES][..], true),
        (&[], &[("seaway.dev/basic-auth", "users")], true),
        (&[denied], &[RANGES], true),
        (&[], &[], false),
        (&[RANGES], &[RANGES], false),
        (&[("seaway.dev/source-ranges", "office")], &[RANGES], false),
    ] {
        for is_exposed in [false, true] {
            let mut admin = saying(service("admin", &[80]), of_service);
            let mut config = Config::default();
            match is_exposed {
                true => config.exposed = vec![exposed(L4::Tcp, "admin", 80)],
                false => admin.kind = ServiceKind::LoadBalancer,
            }
            let guarding = route("adm", "admin", "/", of_route);
            let open = route("adm", "admin", "/", &[]);
            let mut world = world(config, [put(&admin), backed(&admin), put_route(&guarding)]);
            let what = "clients reach the Service without it at port 80/TCP";
            let said = told(&world, what);
            assert_eq!(said.len(), usize::from(expected), "{of_service:?} {of_route:?}: {said:?}");
            let way = if is_exposed { "(tcpServices[0])" } else { "own address" };
            let names = |it: &String| {
                it.starts_with("Service default/admin: ")
                    && it.contains(way)
                    && it.contains("HTTPRoute default/adm")
            };
            assert!(said.iter().all(names), "{said:?}");
            // It follows the route.
            dry_run(&mut world, [put_route(&open)]);
            assert_eq!(told(&world, what), [""; 0]);
            dry_run(&mut world, [put_route(&guarding)]);
            assert_eq!(told(&world, what).len(), usize::from(expected));
        }
    }
}

#[test]
fn a_host_and_a_path_of_a_service_that_restricts_access_are_named_as_two_places() {
    let path = ("seaway.dev/path", "/admin");
    let cases: [(Say<'_>, Option<&str>); 8] = [
        (&[host("shop.example"), path, RANGES], Some("seaway.dev/host: shop.example/admin,")),
        (&[host("shop.example,a.example/x"), path, RANGES], Some("seaway.dev/host: shop.example/admin,")),
        (&[host("shop.example"), path, ("seaway.dev/source-ranges", "office")], Some("shop.example/admin,")),
        // Both are meant, nothing is restricted, or it is one place.
        (&[host("shop.example/"), path, RANGES], None),
        (&[host("shop.example/admin"), RANGES], None),
        (&[host("shop.example"), path], None),
        (&[host("shop.example"), RANGES], None),
        (&[path, RANGES], None),
    ];
    for (say, fix) in cases {
        let admin = saying(service("admin", &[80]), say);
        let world = world(Config::default(), [put(&admin), backed(&admin)]);
        let all = world.problems();
        let told: Vec<_> = all.iter().filter(|it| it.message.contains("are two places")).collect();
        assert_eq!(told.len(), usize::from(fix.is_some()), "{say:?}: {told:?}");
        assert!(told.iter().all(|it| it.fix.contains(fix.unwrap_or_default())), "{say:?}: {told:?}");
    }
}
