//! The front door of a cluster: who did not ask is not there, and nothing is told of what is not ours.

use std::{collections::BTreeSet, sync::Arc};

use seaway_model::{
    Change, Config, Fact, Kind, ObjectRef, Problem, Reason, Unit,
    config::{FrontDoor, FrontDoorRoutes, FrontDoorServices, OpenPolicy},
    fact::{Gateway, HostReport, HttpRoute},
};
use seaway_testkit::facts::{self, ip, synced};

use super::{routes::route_to, scene::*};
use crate::{Roles, World, dry_run};

fn gateway(namespace: &str, name: &str) -> Gateway {
    Gateway { namespace: namespace.into(), name: name.into() }
}

fn in_cluster(opens: OpenPolicy, routes: FrontDoorRoutes) -> Config {
    with(FrontDoor { opens, routes, services: FrontDoorServices::Annotated, ..FrontDoor::default() })
}

/// Of somebody else's Gateway, and wrong in every way that is told.
fn foreign() -> HttpRoute {
    let mut route = route_to("nowhere", 80);
    route.parents = vec![gateway("istio-system", "mesh")];
    route.meta.annotations.insert("seaway.dev/tls".into(), "My_Secret".into());
    route.meta.annotations.insert("seaway.dev/nonsense".into(), "x".into());
    route
}

#[test]
fn routes_are_here_only_if_they_name_the_gateway_that_the_front_door_stands_for() {
    let ours = FrontDoorRoutes::Of(gateway("infra", "public"));
    let web = service("web", &[80]);
    for (opens, routes, parents, here) in [
        (OpenPolicy::Always, ours.clone(), vec![gateway("infra", "public")], true),
        (OpenPolicy::Always, ours.clone(), vec![gateway("other", "x"), gateway("infra", "public")], true),
        (OpenPolicy::Always, ours.clone(), vec![gateway("other", "public")], false),
        (OpenPolicy::Always, ours.clone(), vec![], false),
        (OpenPolicy::Always, FrontDoorRoutes::Never, vec![gateway("infra", "public")], false),
        (OpenPolicy::Always, FrontDoorRoutes::All, vec![], true),
        (OpenPolicy::Never, ours, vec![gateway("infra", "public")], false),
        (OpenPolicy::Never, FrontDoorRoutes::All, vec![], false),
    ] {
        let mut route = route_to("web", 80);
        route.parents = parents;
        let config = in_cluster(opens, routes);
        let world = world(config, [put(&web), backed(&web), put_route(&route)]);
        let led = entrances(&world) == ["/ -> default/web:80"];
        assert_eq!(led, here, "{opens:?} {:?}: {:?}", route.parents, entrances(&world));
    }
}

#[test]
fn nothing_is_done_for_what_is_not_ours_and_nothing_is_told_of_it() {
    let silent = service("web", &[80]);
    let other = service("other/web", &[80]);
    for opens in [OpenPolicy::Never, OpenPolicy::Always] {
        let config = in_cluster(opens, FrontDoorRoutes::Of(gateway("infra", "public")));
        let mut world = world(config, [put(&silent), put(&other), backed(&silent)]);
        let dirt = world.apply(put_route(&foreign()));
        assert_eq!(dirt, [], "{opens:?}");
        assert_eq!((problems(&world), entrances(&world)), (vec![], vec![]), "{opens:?}");
        for service in [&silent, &other] {
            assert_eq!(world.status(&facts::owner(service)), None, "{opens:?}");
        }
        let object = ObjectRef::new(Kind::HTTPRoute, "default", "shop");
        let owner = seaway_model::Owner::Object { object, uid: "uid-default-shop".into() };
        assert!(!dirt.iter().any(|it| *it.unit() == Unit::Status(owner.clone())));
    }
}

/// `seaway_problems` counts what `World::problems` has.
#[test]
fn what_a_source_says_of_a_route_is_a_problem_where_the_route_is_ours() {
    let object = ObjectRef::new(Kind::HTTPRoute, "default", "shop");
    let told = Problem::new(object.clone(), Reason::Invalid, "this filter is not understood");
    let ours = || FrontDoorRoutes::Of(gateway("infra", "public"));
    let mut at_ours = foreign();
    at_ours.parents = vec![gateway("infra", "public")];
    for (routes, opens, route, counts) in [
        (ours(), OpenPolicy::Always, Some(foreign()), 0),
        (ours(), OpenPolicy::Always, Some(at_ours.clone()), 1),
        (ours(), OpenPolicy::Never, Some(at_ours.clone()), 0),
        (FrontDoorRoutes::Never, OpenPolicy::Always, Some(at_ours), 0),
        // Nothing of it can be read: which Gateway it names is not known.
        (ours(), OpenPolicy::Always, None, 1),
        (ours(), OpenPolicy::Never, None, 0),
        (FrontDoorRoutes::Never, OpenPolicy::Always, None, 0),
        // A folder.
        (FrontDoorRoutes::All, OpenPolicy::Never, Some(foreign()), 1),
        (FrontDoorRoutes::All, OpenPolicy::Never, None, 1),
    ] {
        let case = format!("{routes:?} {opens:?} {}", route.is_some());
        let mut world = world(in_cluster(opens, routes), route.iter().map(put_route));
        world.apply(Change::Reported(object.clone(), vec![told.clone()]));
        let counted = world.problems().iter().filter(|it| **it == told).count();
        assert_eq!(counted, counts, "{case}");
    }
}

#[test]
fn a_route_that_takes_another_parent_leaves() {
    let web = service("web", &[80]);
    let mut route = route_to("web", 80);
    route.parents = vec![gateway("infra", "public")];
    let config = in_cluster(OpenPolicy::Always, FrontDoorRoutes::Of(gateway("infra", "public")));
    let mut world = world(config.clone(), [put(&web), backed(&web), put_route(&route)]);
    assert_eq!(entrances(&world).len(), 1);
    route.parents = vec![gateway("infra", "internal")];
    world.apply(put_route(&route));
    assert_eq!(entrances(&world), [""; 0]);
    let mut moved = config;
    moved.front_door.routes = FrontDoorRoutes::Of(gateway("infra", "internal"));
    world.apply(Change::Config(Arc::new(moved)));
    assert_eq!(entrances(&world).len(), 1);
}

#[test]
fn a_controller_says_of_a_service_at_the_front_door_what_hosts_do_and_publishes_no_address() {
    let mut config = in_cluster(OpenPolicy::WhenNeeded, FrontDoorRoutes::Never);
    let internal = FrontDoor { port: 8080, addresses: vec![ip("192.0.2.5")], ..config.front_door.clone() };
    config.front_door.entrances.insert("internal".into(), internal);
    let config = Arc::new(config);
    for (entrance, ports) in [("main", &[80][..]), ("internal", &[8080]), ("internal,main", &[80, 8080])] {
        let say = [("seaway.dev/host", "shop.example"), ("seaway.dev/entrance", entrance)];
        let asks = saying(service("web", &[80]), &say);
        let mut world = World::new(Roles::default(), Vec::new(), config.clone());
        dry_run(&mut world, [put(&asks), backed(&asks)].into_iter().chain(synced()));
        let status = |world: &World| world.status(&facts::owner(&asks)).expect("it asked");
        assert!(!status(&world).ready, "there is no host");
        let report = |drain| {
            let report = HostReport { host: "a".into(), drain, ..HostReport::default() };
            Change::Put(Fact::Host(Arc::new(report)))
        };
        dry_run(&mut world, [report(false)]);
        let told = status(&world);
        assert!(told.ready && told.addresses.is_empty() && told.problems.is_empty(), "{entrance}: {told:?}");
        let at: BTreeSet<u16> = told.serving.iter().map(|it| it.port).collect();
        assert_eq!(at.into_iter().collect::<Vec<_>>(), ports, "{entrance}");
        dry_run(&mut world, [report(true)]);
        assert!(!status(&world).ready, "it takes nobody new");
    }
}
