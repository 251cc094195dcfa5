//! A Service that is guarded from elsewhere, or of which it is not known where it is to be, is not at the path of its name.

use std::sync::Arc;

use seaway_model::{
    Change, Config,
    config::{FrontDoor, FrontDoorRoutes},
    fact::{FactRef, Gateway, HttpRoute, Service, ServiceKind},
    load_balancer::HostPattern,
};

use super::{
    routes::{route_to, under},
    scene::*,
};
use crate::{World, dry_run, front_door};

pub(super) const RANGES: (&str, &str) = ("seaway.dev/source-ranges", "10.0.0.0/8");

fn route_saying(service: &str, say: &[(&str, &str)]) -> HttpRoute {
    let mut route = route_to(service, 80);
    route.meta.annotations = say.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    route
}

/// Whether the Service is at the path of its name.
pub(super) fn is_by_name(world: &World, service: &Service) -> bool {
    let path = format!("/{} -> ", service.meta.name);
    entrances(world).iter().any(|it| it.starts_with(&path))
}

fn why_not(world: &World, service: &Service) -> &'static str {
    front_door::why_not(service, world.given()).expect("it is not there")
}

#[test]
fn a_service_that_a_protected_route_leads_to_is_not_at_its_name_unless_it_asks() {
    for (of_route, of_service, expected) in [
        (&[][..], &[][..], true),
        (&[("seaway.dev/balance", "first")], &[], true),
        (&[("seaway.dev/https-redirect", "true")], &[], true),
        (&[RANGES], &[], false),
        (&[("seaway.dev/denied-source-ranges", "192.0.2.0/24")], &[], false),
        (&[("seaway.dev/requests-per-second-per-client", "10")], &[], false),
        (&[("seaway.dev/entrance", "internal")], &[], false),
        (&[("seaway.dev/internal", "true")], &[], false),
        (&[("seaway.dev/internal", "false")], &[], true),
        (&[("seaway.dev/basic-auth", "users")], &[], false),
        (&[("seaway.dev/source-range", "10.0.0.0/8")], &[], false),
        (&[("seaway.dev/source-ranges", "office")], &[], false),
        (&[RANGES], &[("seaway.dev/front-door", "true")], true),
        (&[RANGES], &[("seaway.dev/path", "/admin")], true),
    ] {
        let admin = saying(service("admin", &[80]), of_service);
        let route = route_saying("admin", of_route);
        let world = world(Config::default(), [put(&admin), backed(&admin), put_route(&route)]);
        assert_eq!(
            is_by_name(&world, &admin),
            expected,
            "{of_route:?} {of_service:?}: {:?}",
            entrances(&world)
        );
        if !expected {
            assert!(why_not(&world, &admin).contains("HTTPRoute"), "{}", why_not(&world, &admin));
        }
    }
}

#[test]
fn a_service_that_a_broken_route_was_to_protect_is_not_at_its_name_unless_it_asks() {
    for (of_service, expected) in [(&[][..], false), (&[("seaway.dev/front-door", "true")], true)] {
        let mut admin = saying(service("admin", &[80]), of_service);
        let world_of = |admin: &Service| world(Config::default(), [put(admin), backed(admin)]);
        assert!(is_by_name(&world_of(&admin), &admin));
        admin.unused_route = Some("web/admin.yaml:8".into());
        let world = world_of(&admin);
        assert_eq!(is_by_name(&world, &admin), expected, "{of_service:?}: {:?}", entrances(&world));
        let told =
            world.problems().iter().any(|it| it.message.starts_with("web/admin.yaml:8 may be a route"));
        assert_eq!(told, !expected);
        if !expected {
            assert!(why_not(&world, &admin).contains("HTTPRoute"), "{}", why_not(&world, &admin));
        }
    }
}

#[test]
fn whether_it_is_guarded_follows_the_routes() {
    let (admin, open) = (service("admin", &[80]), route_saying("admin", &[]));
    let guarding = route_saying("admin", &[RANGES]);
    let mut world = world(Config::default(), [put(&admin), backed(&admin), put_route(&open)]);
    assert!(is_by_name(&world, &admin));
    for (change, expected) in [
        (put_route(&guarding), false),
        (put_route(&open), true),
        (put_route(&guarding), false),
        (gone(&admin), false),
        (put(&admin), false),
        (Change::Gone(FactRef::Object(guarding.object())), true),
    ] {
        dry_run(&mut world, [change.clone()]);
        assert_eq!(is_by_name(&world, &admin), expected, "{change:?}: {:?}", entrances(&world));
    }
}

#[test]
fn routes_of_others_guard_nothing() {
    let admin = service("admin", &[80]);
    let mut of_others = route_saying("default/admin", &[RANGES]);
    of_others.meta.namespace = "tenant".into();
    let settings = FrontDoor {
        routes: FrontDoorRoutes::Of(Gateway { namespace: "infra".into(), name: "ours".into() }),
        ..FrontDoor::default()
    };
    for (config, route) in
        [(Config::default(), of_others), (with(settings), route_saying("admin", &[RANGES]))]
    {
        let world = world(config, [put(&admin), backed(&admin), put_route(&route)]);
        assert!(is_by_name(&world, &admin), "{route:?}");
    }
}

#[test]
fn a_route_that_takes_another_parent_guards_or_guards_no_more() {
    let gateway = |name: &str| Gateway { namespace: "infra".into(), name: name.into() };
    let settings = FrontDoor { routes: FrontDoorRoutes::Of(gateway("ours")), ..FrontDoor::default() };
    let shop = saying(service("shop", &[80]), &[("seaway.dev/host", "shop.example")]);
    let admin = service("admin", &[80]);
    let guarding = |parent: &str| {
        let mut route = route_saying("admin", &[RANGES]);
        route.parents = vec![gateway(parent)];
        route.hosts = vec![HostPattern::Exact("shop.example".into())];
        route.rules[0].matches = vec![under("/admin")];
        put_route(&route)
    };
    let services = [put(&shop), backed(&shop), put(&admin), backed(&admin)];
    let mut followed = world(with(settings.clone()), services.clone().into_iter().chain([guarding("old")]));
    for (parent, expected) in [("old", true), ("ours", false), ("old", true), ("ours", false)] {
        dry_run(&mut followed, [guarding(parent)]);
        let started = world(with(settings.clone()), services.clone().into_iter().chain([guarding(parent)]));
        for world in [&followed, &started] {
            let found = (is_by_name(world, &admin), is_by_name(world, &shop));
            assert_eq!(found, (expected, expected), "{parent}: {:?}", entrances(world));
        }
        assert_eq!(problems(&followed), problems(&started), "{parent}");
    }
    // So do the settings.
    for (routes, expected) in [(FrontDoorRoutes::Never, true), (FrontDoorRoutes::All, false)] {
        let config = with(FrontDoor { routes, ..FrontDoor::default() });
        dry_run(&mut followed, [Change::Config(Arc::new(config))]);
        let found = (is_by_name(&followed, &admin), is_by_name(&followed, &shop));
        assert_eq!(found, (expected, expected), "{:?}", entrances(&followed));
    }
}

#[test]
fn a_service_that_answers_for_others_is_not_at_its_name_unless_it_asks() {
    let shop = saying(service("shop", &[80]), &[("seaway.dev/forward-auth", "auth:80")]);
    let mut own = shop.clone();
    own.kind = ServiceKind::LoadBalancer;
    let auth = service("auth", &[80]);
    let asking = saying(auth.clone(), &[("seaway.dev/front-door", "true")]);
    for (asker, auth, expected) in [(&shop, &auth, false), (&own, &auth, false), (&shop, &asking, true)] {
        let world = world(Config::default(), [put(asker), backed(asker), put(auth), backed(auth)]);
        assert_eq!(is_by_name(&world, auth), expected, "{asker:?}: {:?}", entrances(&world));
        if !expected {
            assert!(why_not(&world, auth).contains("forward-auth"));
        }
    }
}

#[test]
fn a_service_of_which_the_place_is_not_understood_has_none() {
    for (say, expected) in [
        (("seaway.dev/host", "http://shop.example"), 0),
        (("seaway.dev/host", ""), 0),
        (("seaway.dev/hosts", "shop.example"), 0),
        (("seaway.dev/domain", "shop.example"), 0),
        (("seaway.dev/path", "shop"), 0),
        (("seaway.dev/front-door", "flase"), 0),
        (("seaway.dev/frontdoor", "false"), 0),
        (("seaway.dev/host", "shop.example"), 1),
        (("seaway.dev/balance", "fastest"), 1),
    ] {
        let web = saying(service("web", &[80]), &[say]);
        let mut world = world(Config::default(), [put(&web), backed(&web)]);
        assert_eq!(usize::from(is_by_name(&world, &web)), expected, "{say:?}: {:?}", entrances(&world));
        if expected == 0 {
            let problems = problems(&world).join("\n");
            assert!(
                problems.contains("the front door does not serve the Service until this is corrected"),
                "{problems}"
            );
        }
        // Its own address is no matter of that.
        let mut own = web.clone();
        own.kind = ServiceKind::LoadBalancer;
        dry_run(&mut world, [put(&own)]);
        assert!(expected == 1 || !is_by_name(&world, &own), "{say:?}");
    }
    let both = [("seaway.dev/hosts", "a.example"), ("seaway.dev/host", "shop.example")];
    let web = saying(service("web", &[80]), &both);
    let world = world(Config::default(), [put(&web), backed(&web)]);
    assert!(entrances(&world).iter().any(|it| it.starts_with("shop.example")), "{:?}", entrances(&world));
}
