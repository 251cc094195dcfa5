//! Whatever changes in whatever order: hosts, paths and protections of Services and routes of one namespace are served, and reported, as
//! by a process that starts with what is there now.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use seaway_model::{
    Change, Config, ObjectRef,
    config::{FrontDoor, FrontDoorRoutes},
    fact::{FactRef, Gateway},
    load_balancer::HostPattern,
};
use seaway_testkit::properties::cases;

use super::{
    routes::{route_to, under},
    scene::*,
};
use crate::{World, dry_run};

const SERVICES: [&str; 3] = ["shop", "admin", "cart"];
const ROUTES: [&str; 2] = ["adm", "open"];

#[derive(Clone, Debug)]
enum Event {
    Put(ObjectRef, Box<Change>),
    Gone(ObjectRef),
    /// Whether routes of another Gateway are served as well.
    ServesAll(bool),
}

fn gateway(name: &str) -> Gateway {
    Gateway { namespace: "infra".into(), name: name.into() }
}

fn config(serves_all: bool) -> Config {
    let mut config = Config::default();
    let internal = FrontDoor { port: 8080, ..config.front_door.clone() };
    config.front_door.entrances.insert("internal".into(), internal);
    if !serves_all {
        config.front_door.routes = FrontDoorRoutes::Of(gateway("ours"));
    }
    config
}

fn any_service() -> impl Strategy<Value = Event> {
    let place = prop::sample::select(vec![
        None,
        Some(("seaway.dev/host", "shop.example")),
        Some(("seaway.dev/host", "*.example")),
        Some(("seaway.dev/host", "shop.example/admin,a.example")),
        Some(("seaway.dev/host", "http://shop.example/admin")),
        Some(("seaway.dev/path", "/admin")),
    ]);
    let others = vec![
        ("seaway.dev/source-ranges", "10.0.0.0/8"),
        ("seaway.dev/internal", "true"),
        ("seaway.dev/entrance", "internal"),
        ("seaway.dev/front-door", "true"),
        ("seaway.dev/forward-auth", "cart:80"),
    ];
    let others = prop::sample::subsequence(others, 0..2);
    (prop::sample::select(SERVICES.to_vec()), place, others).prop_map(|(name, place, others)| {
        let service = saying(service(name, &[80]), &others);
        let service = saying(service, place.as_slice());
        Event::Put(seaway_testkit::facts::owner(&service).object(), Box::new(put(&service)))
    })
}

fn any_route() -> impl Strategy<Value = Event> {
    let hosts = vec![HostPattern::Exact("shop.example".into()), HostPattern::Under("example".into())];
    let say = vec![("seaway.dev/source-ranges", "10.0.0.0/8"), ("seaway.dev/internal", "true")];
    (
        (prop::sample::select(ROUTES.to_vec()), prop::sample::select(SERVICES.to_vec())),
        prop::sample::select(vec!["/", "/admin", "/admin/users"]),
        prop::sample::subsequence(hosts, 0..=2),
        prop::sample::subsequence(vec![gateway("ours"), gateway("old")], 0..=2),
        prop::sample::subsequence(say, 0..2),
    )
        .prop_map(|((name, to), path, hosts, parents, say)| {
            let mut route = route_to(to, 80);
            (route.meta.name, route.meta.uid) = (name.into(), format!("uid-{name}").into());
            route.meta.annotations = say.into_iter().map(|(key, text)| (key.into(), text.into())).collect();
            (route.hosts, route.parents) = (hosts, parents);
            route.rules[0].matches = vec![under(path)];
            Event::Put(route.object(), Box::new(put_route(&route)))
        })
}

fn any_event() -> impl Strategy<Value = Event> {
    let gone = prop_oneof![any_service(), any_route()].prop_map(|it| match it {
        Event::Put(object, _) => Event::Gone(object),
        other => other,
    });
    prop_oneof![
        6 => any_service(),
        6 => any_route(),
        2 => gone,
        1 => any::<bool>().prop_map(Event::ServesAll),
    ]
}

fn planned(world: &World) -> (Vec<String>, Vec<String>) {
    let mut problems = problems(world);
    problems.sort();
    (entrances(world), problems)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(150), ..ProptestConfig::default() })]

    #[test]
    fn what_follows_from_changes_is_what_a_start_makes_of_what_is_there(
        events in prop::collection::vec(any_event(), 1..25),
    ) {
        let members: Vec<Change> = SERVICES.iter().map(|it| backed(&service(it, &[80]))).collect();
        let (mut objects, mut serves_all) = (BTreeMap::new(), false);
        let mut world = world(config(serves_all), members.clone());
        for event in events {
            let change = match event.clone() {
                Event::Put(object, change) => {
                    objects.insert(object, Change::clone(&change));
                    *change
                }
                Event::Gone(object) => {
                    objects.remove(&object);
                    Change::Gone(FactRef::Object(object))
                }
                Event::ServesAll(all) => {
                    serves_all = all;
                    Change::Config(Arc::new(config(all)))
                }
            };
            dry_run(&mut world, [change]);
            let told = members.iter().chain(objects.values()).cloned();
            let started = super::scene::world(config(serves_all), told);
            prop_assert_eq!(planned(&world), planned(&started), "at {:?}", event);
        }
    }
}
