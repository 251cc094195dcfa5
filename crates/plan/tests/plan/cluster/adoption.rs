//! Services that another controller serves: when they are adopted, and what stays as it is until then.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Name, OtherControllerSigns, Outcome, Problem, Reason, Time, Unit, WorkItem,
    config::{AdoptMode, AdoptionConfig, AdoptionSelector, CloudDefaults},
    fact::{FactRef, FinalizerOwner, OtherControllerWrite, Service, ServiceKind},
    outcome::UnitState,
};
use seaway_plan::{NotAdopted, Roles, World};
use seaway_testkit::facts::{endpoint, ip, owner, put, put_slice, slice, synced};

use super::clouds::{InCloud, clouded, group, node, unit};

const CLASS: &str = "seaway.dev/somecloud";
const OCCM: &str = "openstack-cloud-controller-manager";
const MINUTE: u64 = 60_000;
/// By the clock of the tests.
const NOW: u64 = 1_000 * MINUTE;

fn named(name: &str) -> Service {
    let mut service = Service { class: None, ..clouded(&[]) };
    service.meta.name = name.into();
    service.meta.uid = format!("uid-{name}").into();
    service
}

/// Another controller made its load balancer.
fn theirs(name: &str) -> Service {
    Service { held: FinalizerOwner::ByOthers, published: vec![ip("203.0.113.7")], ..named(name) }
}

fn asking(service: Service, value: &str) -> Service {
    let mut service = service;
    service.meta.annotations.insert("seaway.dev/adopt".into(), value.into());
    service
}

fn wrote(service: Service, at: u64) -> Service {
    Service { other_write: Some(OtherControllerWrite { by: OCCM.into(), at: Time(at) }), ..service }
}

fn config(adopt: AdoptionConfig) -> Arc<Config> {
    let usual = CloudDefaults { classless: true, groups: true, ..CloudDefaults::default() };
    Arc::new(Config { clouds: [(CLASS.into(), Arc::new(usual))].into(), adopt, ..Config::default() })
}

fn observe() -> AdoptionConfig {
    AdoptionConfig { mode: AdoptMode::Observe, ..AdoptionConfig::default() }
}

/// As a controller that leads and has not listed the cloud yet.
fn unlisted(adopt: AdoptionConfig, services: &[&Service]) -> World {
    let mut world = World::new(Roles { allocate: true, host: None }, vec![Arc::new(InCloud)], config(adopt));
    world.apply(Change::Time(Time(NOW)));
    let pods = put_slice(&slice("shop", ("", 80), vec![endpoint("10.1.0.9")]));
    let told = services.iter().map(|it| put(it)).chain([pods, node("zero", "10.0.0.9")]);
    for change in told.chain(synced()) {
        world.apply(change);
    }
    world
}

/// `ours`: what the cloud has with our tags.
fn world(adopt: AdoptionConfig, services: &[&Service], ours: &[&Service]) -> World {
    let mut world = unlisted(adopt, services);
    world.apply(Change::CloudInventory(ours.iter().map(|it| unit(&owner(it))).collect()));
    world
}

fn is_preview(world: &World, service: &Service) -> bool {
    world.desire(&unit(&owner(service))).is_preview()
}

fn is_served(world: &World, service: &Service) -> bool {
    let it = world.desire(&unit(&owner(service)));
    matches!(it, Desired::LoadBalancer(_)) && !it.is_preview()
}

/// No driver may write anything of it, in the cloud or in the cluster.
#[track_caller]
fn assert_left(world: &World, service: &Service) {
    let of = owner(service);
    let it = world.desire(&unit(&of));
    assert!(it == Desired::Released || it.is_preview(), "{it:?}");
    assert_eq!(world.desire(&Unit::Finalizer(of.clone())), Desired::Released);
    assert_eq!(world.desire(&Unit::Status(of)), Desired::Released);
}

fn why(world: &World, service: &Service) -> Option<NotAdopted> {
    let adoption = world.adoption()?;
    adoption.waiting.into_iter().find(|it| it.service.name == service.meta.name).map(|it| it.why)
}

fn came(world: &mut World, service: &Service, state: UnitState, reason: Option<Reason>) {
    let of = owner(service);
    let problem = |it| (of.clone(), Problem::new(of.object(), it, "as the test says"));
    let problems = reason.into_iter().map(problem).collect();
    let serving = Vec::new();
    world.apply(Change::Outcome(Outcome { unit: unit(&of), state, facts: Vec::new(), problems, serving }));
}

#[test]
fn by_default_no_service_waits() {
    let (shop, new) = (theirs("shop"), named("new"));
    let world = unlisted(AdoptionConfig::default(), &[&shop, &new]);
    assert!(is_served(&world, &shop) && is_served(&world, &new));
    assert_eq!(world.adoption(), None);
    assert!(!world.has_next_adoption());
}

#[test]
fn observing_leaves_a_service_alone_in_all_that_may_become_of_it() {
    let (shop, new) = (theirs("shop"), named("new"));
    let mut world = world(observe(), &[&shop, &new], &[]);
    for service in [&shop, &new] {
        assert_left(&world, service);
        assert!(is_preview(&world, service), "and its driver looks at what would be done");
        assert_eq!(why(&world, service), Some(NotAdopted::Observed));
    }
    assert_eq!(world.desire(&group()), Desired::Released, "no group is made for them");
    // The other controller deletes what it made, and takes its finalizer away.
    for end in [
        Service { leaving: true, ..shop.clone() },
        Service { kind: ServiceKind::ClusterIp, ..shop.clone() },
        Service { kind: ServiceKind::ClusterIp, leaving: true, ..shop.clone() },
    ] {
        world.apply(put(&end));
        assert_eq!(world.desire(&unit(&owner(&end))), Desired::Released, "{end:?}");
        assert_eq!(world.desire(&Unit::Finalizer(owner(&end))), Desired::Released);
        assert_eq!(world.desire(&group()), Desired::Released);
        world.apply(put(&shop));
        assert_left(&world, &shop);
    }
    world.apply(Change::Gone(FactRef::Object(owner(&shop).object())));
    world.apply(Change::Gone(FactRef::Object(owner(&new).object())));
    assert_eq!(world.desire(&group()), Desired::Released, "it was none of theirs");
    // Looked for by our tags alone, which it does not have.
    assert_eq!(world.desire(&unit(&owner(&shop))), Desired::Absent);
    assert!(world.problems().is_empty(), "{:?}", world.problems());
}

#[test]
fn what_is_ours_is_served_whatever_is_configured() {
    let (adopted, made, other) =
        (theirs("adopted"), Service { held: FinalizerOwner::ByUs, ..named("made") }, theirs("other"));
    let mut world = unlisted(observe(), &[&adopted, &made, &other]);
    assert_eq!(why(&world, &adopted), Some(NotAdopted::Unlisted));
    assert!(!is_preview(&world, &adopted), "the list tells it, and costs less than a look");
    assert_eq!(world.desire(&group()), Desired::Released, "who needs its rules is not known yet");
    assert!(is_served(&world, &made), "our finalizer is enough");
    let dirt = world.apply(Change::CloudInventory(vec![unit(&owner(&adopted))]));
    for unit in [unit(&owner(&adopted)), Unit::Status(owner(&adopted)), group()] {
        assert!(dirt.contains(&WorkItem::Unit(unit.clone())), "{unit}: {dirt:?}");
    }
    assert!(is_served(&world, &adopted) && is_served(&world, &made));
    assert_left(&world, &other);
    let Desired::SecurityGroup(opened) = world.desire(&group()) else { panic!("two of ours need it") };
    assert!(!opened.openings[&owner(&adopted)].frozen && !opened.openings[&owner(&made)].frozen);
    assert!(opened.openings[&owner(&other)].frozen, "nothing is opened for it, and nothing closed");
    // A list may lack what a look finds.
    let dirt = world.apply(Change::AdoptedBefore(unit(&owner(&other))));
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&other)))) && is_served(&world, &other));
}

#[test]
fn only_who_asks_is_adopted_and_only_who_is_chosen() {
    let ask = AdoptionConfig { mode: AdoptMode::Ask, ..AdoptionConfig::default() };
    let (shop, bank) = (theirs("shop"), theirs("bank"));
    let mut asks = world(ask.clone(), &[&shop, &bank], &[]);
    for value in ["false", "perhaps", ""] {
        asks.apply(put(&asking(shop.clone(), value)));
        assert_eq!(why(&asks, &shop), Some(NotAdopted::NotAsked), "{value:?}");
    }
    asks.apply(put(&asking(shop.clone(), "true")));
    assert_eq!(why(&asks, &shop), Some(NotAdopted::Next));
    assert_eq!(asks.adopt(usize::MAX).0, 1);
    assert!(is_served(&asks, &asking(shop.clone(), "true")));
    assert_left(&asks, &bank);
    asks.apply(put(&shop));
    assert!(is_served(&asks, &shop), "what was adopted stays adopted");

    for only in [
        AdoptionSelector { names: vec![("default".into(), "shop".into())], ..AdoptionSelector::default() },
        AdoptionSelector { labels: [("canary".into(), "yes".into())].into(), ..AdoptionSelector::default() },
    ] {
        let mut labelled = shop.clone();
        labelled.meta.labels.insert("canary".into(), "yes".into());
        for mode in [AdoptMode::All, AdoptMode::Ask, AdoptMode::Observe] {
            let adopt = AdoptionConfig { mode, only: only.clone(), ..AdoptionConfig::default() };
            let mut world = world(adopt, &[&labelled, &bank, &named("new")], &[]);
            world.adopt(usize::MAX);
            assert_eq!(is_served(&world, &labelled), mode == AdoptMode::All, "{mode:?}");
            assert_left(&world, &bank);
            assert_left(&world, &named("new"));
            assert_eq!(why(&world, &bank), Some(NotAdopted::NotChosen), "{mode:?}");
            assert!(world.problems().is_empty(), "{:?}", world.problems());
        }
    }
    let elsewhere = AdoptionSelector { namespaces: vec!["elsewhere".into()], ..AdoptionSelector::default() };
    let none = world(AdoptionConfig { only: elsewhere, ..AdoptionConfig::default() }, &[&shop], &[]);
    assert_left(&none, &shop);
}

#[test]
fn a_new_configuration_takes_nothing_from_those_that_are_served() {
    let (shop, late) = (theirs("shop"), theirs("late"));
    let mut world = world(AdoptionConfig::default(), &[&shop], &[]);
    world.apply(Change::Config(config(observe())));
    assert!(is_served(&world, &shop), "its adoption had begun");
    world.apply(put(&late));
    assert_left(&world, &late);
    world.apply(Change::Config(config(AdoptionConfig::default())));
    assert!(is_served(&world, &late));
    assert_eq!(world.adoption(), None);
}

#[test]
fn a_configuration_that_brings_services_and_observes_them_adopts_none() {
    let shop = theirs("shop");
    let none = Config { clouds: Default::default(), ..Config::clone(&config(AdoptionConfig::default())) };
    let mut world = World::new(
        Roles { allocate: true, host: None },
        vec![Arc::new(InCloud)],
        Arc::new(Config { classless: false, ..none }),
    );
    for change in [Change::Time(Time(NOW)), put(&shop)].into_iter().chain(synced()) {
        world.apply(change);
    }
    world.apply(Change::CloudInventory(Vec::new()));
    world.apply(Change::Config(config(observe())));
    assert_left(&world, &shop);
    assert_eq!(why(&world, &shop), Some(NotAdopted::Observed));
}

#[test]
fn who_leads_next_adopts_nothing_before_it_has_listed_what_is_ours() {
    let (shop, bank) = (theirs("shop"), theirs("bank"));
    let mut world =
        world(AdoptionConfig { per_minute: Some(1), ..AdoptionConfig::default() }, &[&shop, &bank], &[]);
    world.apply(Change::Leads(false));
    assert!(!world.has_next_adoption());
    world.apply(Change::Leads(true));
    assert_eq!(why(&world, &shop), Some(NotAdopted::Unlisted));
    assert_eq!(world.adopt(usize::MAX).0, 0);
    // The leader before had adopted one of them.
    world.apply(Change::CloudInventory(vec![unit(&owner(&shop))]));
    assert!(is_served(&world, &shop));
    assert_eq!(why(&world, &bank), Some(NotAdopted::Next));
}

#[test]
fn beside_a_controller_that_wrote_lately_nothing_is_adopted_or_made() {
    let served = theirs("served");
    let (shop, new) = (wrote(theirs("shop"), NOW - MINUTE), named("new"));
    let mut world = world(AdoptionConfig::default(), &[&served, &shop, &new], &[&served]);
    world.adopt(usize::MAX);
    assert!(is_served(&world, &served), "what is ours is served on");
    for service in [&shop, &new] {
        assert_left(&world, service);
        assert_eq!(why(&world, service), Some(NotAdopted::OtherController));
    }
    let problems = world.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].reason, Reason::OtherController);
    assert!(problems[0].message.contains(OCCM) && problems[0].message.contains("default/shop"));
    assert!(problems[0].fix.contains("-service-lb-controller") && problems[0].fix.contains("besideOccm"));
    // It goes on writing.
    world.apply(Change::Time(Time(NOW + 5 * MINUTE)));
    world.apply(put(&wrote(theirs("shop"), NOW + 5 * MINUTE)));
    world.apply(Change::Time(Time(NOW + 14 * MINUTE)));
    assert_left(&world, &shop);
    let dirt = world.apply(Change::Time(Time(NOW + 16 * MINUTE)));
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&shop)))), "{dirt:?}");
    assert!(is_served(&world, &shop) && is_served(&world, &new), "it has ended");
    assert!(world.problems().is_empty(), "{:?}", world.problems());
}

/// What its Lease and its events say, in minutes from now.
fn signs(leads_since: Option<i64>, event: Option<i64>) -> Change {
    let at =
        |minutes: i64| Time(NOW.saturating_add_signed(minutes * i64::try_from(MINUTE).expect("it is small")));
    let event = event.map(|it| OtherControllerWrite { by: "service-controller".into(), at: at(it) });
    Change::OtherSigns(Some(OtherControllerSigns { leads_since: leads_since.map(at), event }))
}

#[test]
fn a_controller_is_noticed_by_its_lease_and_events_though_it_wrote_nothing_for_long() {
    // Since when its process leads, when that reported an event, when it wrote; whether it is noticed.
    let table = [
        ("its Lease says that it runs", Some(-60), None, Some(-50), true),
        ("another process holds the Lease by now", Some(-40), None, Some(-50), false),
        ("nobody renews the Lease", None, None, Some(-50), false),
        ("it started, and had nothing to write", Some(-60), Some(-59), None, true),
        ("the process before reported it", Some(-40), Some(-59), None, false),
        ("it elects no leader", None, Some(-8), None, true),
        ("and ended", None, Some(-11), None, false),
        ("a Lease alone: other controllers hold it, too", Some(-60), None, None, false),
    ];
    for (case, leads_since, event, write, is_noticed) in table {
        let minutes = |it: i64| NOW.saturating_add_signed(it * 60_000);
        let shop = write.map_or(theirs("shop"), |it| wrote(theirs("shop"), minutes(it)));
        let mut world = World::new(
            Roles { allocate: true, host: None },
            vec![Arc::new(InCloud)],
            config(AdoptionConfig::default()),
        );
        world.apply(Change::Time(Time(NOW)));
        world.apply(Change::OtherSigns(None));
        for change in [put(&shop), node("zero", "10.0.0.9")].into_iter().chain(synced()) {
            world.apply(change);
        }
        world.apply(signs(leads_since, event));
        world.apply(Change::CloudInventory(Vec::new()));
        assert_eq!(is_served(&world, &shop), !is_noticed, "{case}");
        assert_eq!(
            world.problems().iter().any(|it| it.reason == Reason::OtherController),
            is_noticed,
            "{case}"
        );
        // Its controller of Services is ended: other pods of it hold the Lease.
        world.apply(signs(Some(0), event));
        world.apply(Change::Time(Time(NOW + MINUTE)));
        let since_then = event.is_some_and(|it| it > -10);
        assert_eq!(is_served(&world, &shop), !since_then, "{case}");
    }
}

#[test]
fn a_service_that_is_seen_late_tells_at_once_that_the_process_that_leads_wrote_it() {
    let (shop, late) = (named("shop"), wrote(theirs("late"), NOW - 50 * MINUTE));
    let mut world = unlisted(AdoptionConfig::default(), &[]);
    world.apply(Change::CloudInventory(Vec::new()));
    world.apply(signs(Some(-60), None));
    world.apply(put(&late));
    world.apply(put(&shop));
    for service in [&late, &shop] {
        assert_left(&world, service);
        assert_eq!(why(&world, service), Some(NotAdopted::OtherController));
    }
}

#[test]
fn nothing_is_adopted_or_made_before_it_is_known_whether_another_runs() {
    let (served, shop, new) =
        (Service { held: FinalizerOwner::ByUs, ..named("served") }, theirs("shop"), named("new"));
    let begin = |adopt: AdoptionConfig| {
        let mut world =
            World::new(Roles { allocate: true, host: None }, vec![Arc::new(InCloud)], config(adopt));
        world.apply(Change::Time(Time(NOW)));
        world.apply(Change::OtherSigns(None));
        for change in
            [put(&served), put(&shop), put(&new), node("zero", "10.0.0.9")].into_iter().chain(synced())
        {
            world.apply(change);
        }
        world.apply(Change::CloudInventory(Vec::new()));
        world
    };
    let mut world = begin(AdoptionConfig::default());
    assert!(is_served(&world, &served), "what is ours is served");
    for service in [&shop, &new] {
        assert_left(&world, service);
        assert_eq!(why(&world, service), Some(NotAdopted::Unlisted));
    }
    assert!(world.problems().is_empty(), "{:?}", world.problems());
    let dirt = world.apply(Change::OtherSigns(Some(OtherControllerSigns::default())));
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&shop)))), "{dirt:?}");
    assert!(is_served(&world, &shop) && is_served(&world, &new));
    let beside = begin(AdoptionConfig { beside_occm: true, ..AdoptionConfig::default() });
    assert!(is_served(&beside, &shop), "an operator wants both");
}

#[test]
fn a_controller_that_begins_to_write_stops_what_has_not_begun() {
    let (shop, late) = (theirs("shop"), named("late"));
    let mut world = world(AdoptionConfig::default(), &[&shop], &[]);
    assert!(is_served(&world, &shop));
    world.apply(put(&wrote(late.clone(), NOW)));
    assert!(is_served(&world, &shop), "it is ours");
    assert_left(&world, &late);
    // An operator may want both.
    world.apply(Change::Config(config(AdoptionConfig { beside_occm: true, ..AdoptionConfig::default() })));
    assert!(is_served(&world, &late));
    assert!(world.problems().is_empty(), "{:?}", world.problems());
}

#[test]
fn what_a_controller_wrote_long_ago_says_nothing() {
    let shop = wrote(theirs("shop"), NOW - 11 * MINUTE);
    let old = world(AdoptionConfig::default(), &[&shop], &[]);
    assert!(is_served(&old, &shop) && old.adoption().is_none());
    // A clock that is ahead of ours.
    let ahead = wrote(theirs("shop"), NOW + 600 * MINUTE);
    let mut ahead_of_us = world(AdoptionConfig::default(), &[&ahead], &[]);
    assert_left(&ahead_of_us, &ahead);
    ahead_of_us.apply(Change::Time(Time(NOW + 11 * MINUTE)));
    assert!(is_served(&ahead_of_us, &ahead));
}

#[test]
fn adoptions_begin_with_the_oldest_and_new_services_do_not_wait() {
    let mut services: Vec<Service> = (0..5).map(|it| theirs(&format!("s{it}"))).collect();
    for (at, service) in services.iter_mut().enumerate() {
        service.meta.created = Some(Time(100 - at as u64));
    }
    let new = named("new");
    let all: Vec<&Service> = services.iter().chain([&new]).collect();
    let mut world = world(AdoptionConfig { per_minute: Some(2), ..AdoptionConfig::default() }, &all, &[]);
    assert!(world.has_next_adoption() && !is_served(&world, &new), "the engine begins them");
    assert_eq!(world.adopt(0).0, 0);
    assert!(is_served(&world, &new), "nobody else made anything for it");
    let (begun, dirt) = world.adopt(2);
    assert_eq!(begun, 2);
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&services[4])))), "{dirt:?}");
    let served = |world: &World| -> Vec<bool> { services.iter().map(|it| is_served(world, it)).collect() };
    assert_eq!(served(&world), [false, false, false, true, true]);
    let adoption = world.adoption().expect("some wait");
    assert_eq!((adoption.adopted, adoption.services), (3, 6));
    assert_eq!(world.adopt(9).0, 3);
    assert!(!world.has_next_adoption());
    let adoption = world.adoption().expect("it is told to the end");
    assert_eq!((adoption.adopted, adoption.services, adoption.waiting.len()), (6, 6, 0));
}

#[test]
fn adoption_stops_before_more_services_can_have_problems_than_allowed() {
    let services: Vec<Service> = (0..6).map(|it| theirs(&format!("s{it}"))).collect();
    let all: Vec<&Service> = services.iter().collect();
    let mut world = world(AdoptionConfig { stop_after: Some(2), ..AdoptionConfig::default() }, &all, &[]);
    let well = || UnitState::Pending(std::time::Duration::from_secs(300));
    assert_eq!(world.adopt(9).0, 2, "what becomes of them is not known yet");
    assert_eq!(world.adopt(9).0, 0);
    came(&mut world, &services[0], well(), None);
    assert_eq!(world.adopt(9).0, 1);
    came(&mut world, &services[1], UnitState::UserMustFix, Some(Reason::OtherController));
    came(&mut world, &services[2], well(), Some(Reason::MembersDown));
    assert_eq!(world.adopt(9).0, 0);
    let adoption = world.adoption().expect("some wait");
    assert!(adoption.stopped && adoption.troubled == 2, "{adoption:?}");
    // Mended: it goes on by itself.
    came(&mut world, &services[1], well(), None);
    assert!(!world.adoption().expect("some wait").stopped);
    assert_eq!(world.adopt(9).0, 1);
    // After a restart those that are ours count again.
    let mut again = self::world(
        AdoptionConfig { stop_after: Some(1), ..AdoptionConfig::default() },
        &all,
        &[&services[0]],
    );
    came(&mut again, &services[0], UnitState::UserMustFix, Some(Reason::OtherController));
    assert_eq!(again.adopt(9).0, 0);
}

#[test]
fn what_waits_for_its_turn_and_is_deleted_goes_at_once() {
    let shop = theirs("shop");
    let mut world = world(AdoptionConfig { per_minute: Some(1), ..AdoptionConfig::default() }, &[&shop], &[]);
    assert_left(&world, &shop);
    let end = Service { leaving: true, ..shop.clone() };
    let dirt = world.apply(put(&end));
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&shop)))), "{dirt:?}");
    assert!(matches!(world.desire(&unit(&owner(&shop))), Desired::Removed(_)), "nothing of it is leaked");
    assert_eq!(world.desire(&Unit::Finalizer(owner(&shop))), Desired::Finalizer);
}

#[test]
fn what_would_be_done_is_told_with_why_it_is_not() {
    let shop = theirs("shop");
    let mut world = world(observe(), &[&shop], &[]);
    let steps: Vec<Name> = vec!["change the load balancer".into()];
    world.apply(Change::Previewed(unit(&owner(&shop)), steps.clone()));
    came(&mut world, &shop, UnitState::UserMustFix, Some(Reason::OtherController));
    assert!(world.problems().is_empty(), "it is no Problem before it is to be adopted");
    let adoption = world.adoption().expect("it waits");
    assert_eq!((adoption.adopted, adoption.services, adoption.mode), (0, 1, AdoptMode::Observe));
    assert_eq!(adoption.waiting[0].steps, steps);
    assert_eq!(adoption.waiting[0].problems.len(), 1);
    let status = world.status(&owner(&shop)).expect("it is planned");
    assert_eq!(status.waits.as_deref(), Some("not adopted: adopt.mode is observe"));
    assert_eq!(world.balancers_in_clouds(), 0, "it is none of ours");
}

#[test]
fn what_its_own_controller_deletes_is_no_longer_reported() {
    let shop = theirs("shop");
    let mut world = world(observe(), &[&shop], &[]);
    assert_eq!(world.adoption().expect("it waits").waiting.len(), 1);
    world.apply(put(&Service { leaving: true, ..shop.clone() }));
    let adoption = world.adoption();
    assert!(adoption.as_ref().is_none_or(|it| it.waiting.is_empty()), "{adoption:?}");
}
