//! Further entrances of the front door: who is there, and where else nobody is.

use std::{collections::BTreeSet, sync::Arc};

use seaway_model::{
    Change, Config, Desired, LoadBalancer, Name, Owner, Unit, WorkItem,
    config::{FrontDoor, TlsSecrets},
    fact::Service,
    load_balancer::{Action, HostPattern},
};
use seaway_testkit::facts::{self, ip};

use super::{routes::route_to, scene::*};
use crate::{World, certificates::tests::tls_secret, front_door};

const INTERNAL: (&str, &str) = ("seaway.dev/entrance", "internal");

fn host(name: &str) -> (&str, &str) {
    ("seaway.dev/host", name)
}

fn config() -> Config {
    let mut config = Config::default();
    config.front_door.tls.secrets = TlsSecrets::Named;
    let own = FrontDoor { addresses: vec![ip("192.0.2.5")], port: 8080, ..config.front_door.clone() };
    config.front_door.entrances.insert(
        "internal".into(),
        FrontDoor { tls: seaway_model::config::FrontDoorTls { port: 8443, ..own.tls.clone() }, ..own },
    );
    config
}

fn entrance(name: Option<&str>) -> Unit {
    unit(&front_door::owner_of(name.map(Name::from).as_ref()))
}

fn at(world: &World, name: Option<&str>) -> Option<Arc<LoadBalancer>> {
    match world.desire(&entrance(name)) {
        Desired::LoadBalancer(it) => Some(it),
        _ => None,
    }
}

/// Services that something leads to there, by host names.
fn led_to(world: &World, name: Option<&str>) -> Vec<String> {
    let Some(it) = at(world, name) else { return Vec::new() };
    let rules = it.listeners.values().flat_map(|it| &it.rules);
    let led: BTreeSet<String> = rules
        .filter(|rule| !matches!(rule.action, Action::Respond { .. }))
        .map(|rule| {
            let hosts: Vec<String> = rule.hosts.iter().map(ToString::to_string).collect();
            format!("{} {}", rule.owner.object().name, hosts.join(","))
        })
        .collect();
    let pools: BTreeSet<String> = it.pools.keys().map(|id| id.0.to_string()).collect();
    let ports: Vec<String> = it.listeners.keys().map(ToString::to_string).collect();
    led.into_iter().chain(pools).chain([ports.join(" ")]).collect()
}

fn planned(services: &[Service]) -> World {
    world(config(), services.iter().flat_map(|it| [put(it), backed(it)]))
}

#[test]
fn a_service_is_at_the_entrances_that_it_names_and_nowhere_else() {
    let hosts = |say: &[(&str, &str)]| planned(&[saying(service("shop", &[80]), say)]);
    let shop = ["shop a.example", "default/shop:80", "80/TCP"];
    let inside = ["shop a.example", "default/shop:80", "8080/TCP"];
    let named = |all: &[&str]| {
        let mut all: Vec<String> = all.iter().map(|it| (*it).to_owned()).collect();
        // Paths of its name.
        all.insert(0, "shop ".to_owned());
        all
    };
    let say = |entrance| vec![host("a.example"), ("seaway.dev/entrance", entrance)];
    for (say, main, internal) in [
        (vec![host("a.example")], named(&shop), vec![]),
        (say("main"), named(&shop), vec![]),
        (say("internal"), vec![], named(&inside)),
        (say("internal,main"), named(&shop), named(&inside)),
    ] {
        let world = hosts(&say);
        assert_eq!(led_to(&world, None), main, "{say:?}");
        assert_eq!(led_to(&world, Some("internal")), internal, "{say:?}");
        assert_eq!(problems(&world), [""; 0], "{say:?}");
    }
}

#[test]
fn an_entrance_that_is_not_known_publishes_nothing() {
    for (value, told) in [
        ("intern", "no entrance intern"),
        ("internal,elsewhere", "no entrance elsewhere"),
        ("In ternal", "no listener is opened"),
        ("", "no listener is opened"),
    ] {
        for through in [None, Some(("seaway.dev/tls-passthrough", "true"))] {
            let mut say = vec![host("a.example"), ("seaway.dev/entrance", value)];
            say.extend(through);
            let world = planned(&[saying(service("shop", &[80]), &say)]);
            assert_eq!(led_to(&world, None), [""; 0], "{value:?} {through:?}");
            let is_there = !led_to(&world, Some("internal")).is_empty();
            assert_eq!(is_there, value.starts_with("internal"), "{value:?} {through:?}");
            assert!(problems(&world).iter().any(|it| it.contains(told)), "{value:?}: {:?}", problems(&world));
        }
    }
    // A name that is nearly that of the annotation.
    let world = planned(&[saying(service("shop", &[80]), &[("seaway.dev/entrances", "internal")])]);
    assert_eq!((led_to(&world, None), led_to(&world, Some("internal"))), (vec![], vec![]));
    assert_ne!(problems(&world), [""; 0]);
}

#[test]
fn a_route_leads_to_no_service_at_an_entrance_that_the_service_does_not_name() {
    let shop = |say: &[(&str, &str)]| {
        let hidden = [("seaway.dev/front-door", "false")];
        saying(service("shop", &[80]), &[&hidden, say].concat())
    };
    let both = ("seaway.dev/entrance", "internal,main");
    for (of_service, of_route, main, internal) in [
        (&[][..], None, true, false),
        (&[], Some("internal"), false, true),
        (&[INTERNAL], None, false, false),
        (&[INTERNAL], Some("internal"), false, true),
        (&[INTERNAL], Some("internal,main"), false, false),
        (&[both], None, true, false),
        (&[both], Some("internal,main"), true, true),
        (&[], Some("elsewhere"), false, false),
        (&[], Some("Else where"), false, false),
        (&[("seaway.dev/entrance", "Else where")], None, false, false),
    ] {
        let shop = shop(of_service);
        let mut route = route_to("shop", 80);
        route.hosts = vec![HostPattern::Exact("a.example".into())];
        route.meta.annotations.extend(of_route.map(|it| ("seaway.dev/entrance".into(), it.into())));
        let world = world(config(), [put(&shop), backed(&shop), put_route(&route)]);
        let leads = |name| {
            let it = at(&world, name);
            let rules = it.iter().flat_map(|it| it.listeners.values()).flat_map(|it| &it.rules);
            let mut led = rules.filter(|it| matches!(it.action, Action::Forward(_)));
            led.any(|it| it.sources.is_empty())
        };
        let case = format!("{of_service:?} {of_route:?}: {:?}", problems(&world));
        assert_eq!((leads(None), leads(Some("internal"))), (main, internal), "{case}");
        assert_eq!(problems(&world).is_empty(), main || internal, "{case}");
    }
}

#[test]
fn two_entrances_have_a_host_name_each_and_certificates_of_their_own() {
    let web = saying(service("web", &[80]), &[host("a.example"), ("seaway.dev/tls", "own")]);
    let admin =
        [host("a.example"), INTERNAL, ("seaway.dev/tls", "other"), ("seaway.dev/https-redirect", "true")];
    let admin = saying(service("admin", &[80]), &admin);
    let secrets = ["own", "other"].map(|it| told(&tls_secret(it, &["a.example"])));
    let services = [&web, &admin].into_iter().flat_map(|it| [put(it), backed(it)]);
    let mut world = world(config(), services.chain(secrets));
    assert_eq!(problems(&world), [""; 0]);
    let shown = |world: &World, name| -> Vec<String> {
        at(world, name).expect("open").certificates.keys().map(|it| it.name.to_string()).collect()
    };
    assert_eq!(
        (shown(&world, None), shown(&world, Some("internal"))),
        (vec!["own".to_owned()], vec!["other".to_owned()])
    );
    let internal = at(&world, Some("internal")).expect("open");
    assert_eq!(internal.listeners.keys().map(|it| it.port).collect::<Vec<_>>(), [8080, 8443]);
    let redirects = |port: u16| {
        let listener = internal.listeners.values().find(|it| it.port == port).expect("open");
        let to = |action: &Action| match action {
            Action::Redirect(it) => it.port,
            _ => None,
        };
        listener.rules.iter().filter_map(|it| to(&it.action)).collect::<BTreeSet<u16>>()
    };
    assert_eq!((redirects(8080), redirects(8443)), ([8443].into(), [].into()));
    let names: Vec<String> = internal.listeners.values().map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["frontDoor.internal:http", "frontDoor.internal:https"]);
    // Each has its own status, and its Service hears where it is.
    for owner in [front_door::owner(), front_door::owner_of(Some(&"internal".into()))] {
        assert!(world.status(&owner).is_some(), "{owner:?}");
    }
    let addresses = world.status(&facts::owner(&admin)).expect("it is there").addresses;
    assert_eq!(addresses, [ip("192.0.2.5")]);
    // A member that changes swaps its pool where it is, and a Service that goes takes the entrance with it.
    let mut slice = facts::slice("admin", ("", 80), vec![facts::endpoint("10.0.0.9")]);
    slice.object.namespace = "default".into();
    slice.ports[0].name = "p80".into();
    let dirt = world.apply(facts::put_slice(&slice));
    let pools: Vec<&Unit> = dirt
        .iter()
        .filter_map(|it| match it {
            WorkItem::Pool(unit, _) => Some(unit),
            _ => None,
        })
        .collect();
    assert_eq!(pools, [&entrance(Some("internal"))]);
    world.apply(gone(&admin));
    assert!(at(&world, Some("internal")).is_none() && at(&world, None).is_some());
    assert_eq!(world.status(&front_door::owner_of(Some(&"internal".into()))).map(|it| it.owner), None);
    world.apply(put(&admin));
    assert!(at(&world, Some("internal")).is_some());
}

#[test]
fn what_nobody_has_is_answered_by_each_entrance_for_itself() {
    let mut config = config();
    let unmatched = |code| Some(seaway_model::config::UnmatchedResponse { code, page: None });
    config.front_door.unmatched = unmatched(410);
    let internal = config.front_door.entrances.get_mut("internal").expect("there");
    internal.unmatched = unmatched(418);
    let web = saying(service("web", &[80]), &[host("a.example"), ("seaway.dev/entrance", "internal,main")]);
    let changes: [Change; 2] = [put(&web), backed(&web)];
    let world = world(config, changes);
    for (name, expected) in [(None, 410), (Some("internal"), 418)] {
        let it = at(&world, name).expect("open");
        let last = it.listeners.values().next().expect("one").rules.last().cloned().expect("one");
        assert!(matches!(last.action, Action::Respond { code, .. } if code == expected), "{last:?}");
    }
    let view = world.front_door().expect("open");
    assert_eq!(view.others.len(), 1);
    let leads: Vec<&str> = view.entrances[0].leads.iter().map(|it| it.at.as_str()).collect();
    assert!(leads.contains(&"a.example/") && leads.contains(&"a.example/ at entrance internal"), "{leads:?}");
    let owners: Vec<Owner> = world.overview().into_iter().map(|it| it.status.owner).collect();
    assert!(owners.contains(&front_door::owner_of(Some(&"internal".into()))), "{owners:?}");
}

#[test]
fn an_entrance_may_have_the_port_of_the_main_one_at_an_address_of_its_own() {
    let mut config = config();
    let internal = config.front_door.entrances.get_mut("internal").expect("there");
    (internal.port, internal.tls.port) = (80, 443);
    let say = [host("a.example"), ("seaway.dev/entrance", "internal,main")];
    let web = saying(service("web", &[80]), &say);
    let world = world(config, [put(&web), backed(&web)]);
    assert_eq!(problems(&world), [""; 0]);
    let binds = |name| at(&world, name).expect("open").binds.clone();
    assert_eq!(binds(Some("internal")), [seaway_model::load_balancer::Bind::Host(ip("192.0.2.5"))]);
    assert!(!binds(None).is_empty());
}

#[test]
fn what_is_at_an_entrance_alone_has_no_listeners_of_its_own() {
    for (say, open, told) in [
        (vec![], true, 0),
        (vec![INTERNAL], false, 1),
        (vec![host("a.example"), INTERNAL], false, 1),
        (vec![host("a.example"), ("seaway.dev/entrance", "main")], false, 1),
    ] {
        let mut shop = saying(service("shop", &[80]), &say);
        shop.kind = seaway_model::fact::ServiceKind::LoadBalancer;
        let pool = facts::pool(("192.0.2.10", "192.0.2.19"));
        let world = world(config(), [pool, put(&shop), backed(&shop)]);
        let Desired::LoadBalancer(own) = world.desire(&unit(&facts::owner(&shop))) else {
            panic!("it is ours")
        };
        assert_eq!(!own.listeners.is_empty(), open, "{say:?}");
        assert_eq!(problems(&world).len(), told, "{say:?}: {:?}", problems(&world));
    }
}

#[test]
fn who_is_redirected_at_another_entrance_is_not_told_that_the_main_one_has_no_certificate() {
    let say = [host("a.example"), INTERNAL, ("seaway.dev/tls", "own"), ("seaway.dev/https-redirect", "true")];
    let admin = saying(service("admin", &[80]), &say);
    let web = saying(service("web", &[80]), &[host("b.example")]);
    let services = [&web, &admin].into_iter().flat_map(|it| [put(it), backed(it)]);
    let world = world(config(), services.chain([told(&tls_secret("own", &["a.example"]))]));
    assert_eq!(problems(&world), [""; 0]);
}

#[test]
fn what_is_at_an_entrance_alone_is_named_where_a_broader_place_opens_it_at_the_main_one() {
    let open = |world: &World| {
        let all = problems(world).into_iter().filter(|it| it.contains("an entrance keeps no client away"));
        all.collect::<Vec<_>>()
    };
    let admin = |place: &'static str| saying(service("admin", &[80]), &[host(place), INTERNAL]);
    let shop = |say: &[(&str, &str)]| saying(service("shop", &[80]), say);
    let ranges = ("seaway.dev/source-ranges", "10.0.0.0/8");
    for (place, say, expected) in [
        ("shop.example/admin", vec![host("shop.example")], Some("shop.example/")),
        ("shop.example/admin/x", vec![host("shop.example/admin")], Some("shop.example/admin")),
        ("adm.shop.example", vec![host("*.shop.example")], Some("*.shop.example/")),
        ("adm.example", vec![("seaway.dev/path", "/")], Some("/")),
        ("shop.example/admin", vec![host("shop.example/administrator")], None),
        ("shop.example/admin", vec![host("shop.example/admin")], None),
        ("shop.example/admin", vec![host("shop.example"), ranges], None),
        ("shop.example/admin", vec![host("shop.example"), INTERNAL], None),
    ] {
        for both in [[admin(place), shop(&say)], [shop(&say), admin(place)]] {
            let mut world = planned(&both);
            let said = open(&world);
            assert_eq!(said.len(), usize::from(expected.is_some()), "{place} {say:?}: {said:?}");
            if let Some(by) = expected {
                let end = format!("Service default/shop serves {place}");
                assert!(said[0].starts_with("Service default/admin: ") && said[0].contains(&end), "{said:?}");
                assert!(said[0].ends_with(&format!("at the main entrance, by {by}")), "{said:?}");
                // Its status follows what changes at the main one.
                let dirt = world.apply(gone(&shop(&say)));
                let status = seaway_model::Unit::Status(seaway_testkit::facts::owner(&admin(place)));
                assert!(dirt.contains(&seaway_model::WorkItem::Unit(status)), "{dirt:?}");
                assert_eq!(open(&world), [""; 0]);
            }
        }
    }
    // The Service of another tenant is not named.
    let mut config = config();
    config.pools.cluster = true;
    let other = saying(service("other/shop", &[80]), &[host("shop.example")]);
    let both = world(config, [put(&admin("shop.example/admin")), put(&other)]);
    assert_eq!(open(&both), [""; 0]);
}

#[test]
fn an_entrance_of_which_no_address_may_be_used_listens_nowhere() {
    let shop = saying(service("shop", &[80]), &[host("shop.example"), INTERNAL]);
    for (only, is_open) in [("192.0.2.5", true), ("192.0.2.6", false)] {
        let config = Config { listen_only: vec![ip(only)], ..config() };
        let world = world(config, [put(&shop), backed(&shop)]);
        assert_eq!(at(&world, Some("internal")).is_some(), is_open, "{only}");
        assert!(at(&world, None).is_none(), "{only}");
    }
}
