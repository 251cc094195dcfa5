//! Services that another controller serves, and what our own data plane makes of them: nothing, until it is asked.

use std::sync::Arc;

use seaway_model::{
    AddressState, Change, Config, Desired, Kind, Reason, Unit,
    config::{AddressPoolRules, AdoptMode, AdoptionConfig, AdoptionSelector},
    fact::{FactRef, Service, TargetPort},
};
use seaway_plan::{NotAdopted, Roles, World};
use seaway_testkit::facts::{HOST, ip, owner, pool, put, service, synced};

use super::{
    pools::{status, tell},
    scene::{OnHost, PUBLIC, applied, heard, present, written},
};

const THEIRS: &str = "192.0.2.10";

fn named(name: &str) -> Service {
    service(name, &[("", 80, TargetPort::Number(80))])
}

/// As MetalLB left it, or k3s.
fn theirs(name: &str) -> Service {
    Service { published: vec![ip(THEIRS)], ..named(name) }
}

fn config(adopt: AdoptionConfig) -> Arc<Config> {
    Arc::new(Config { pools: AddressPoolRules::CLUSTER, adopt, ..Config::default() })
}

fn leader(adopt: AdoptionConfig, changes: Vec<Change>) -> World {
    let mut world = World::new(Roles::default(), Vec::new(), config(adopt));
    for change in changes.into_iter().chain(synced()) {
        world.apply(change);
    }
    tell(&mut world, Change::Leads(true));
    world
}

fn adopting(mode: AdoptMode) -> AdoptionConfig {
    AdoptionConfig { mode, native: mode, ..AdoptionConfig::default() }
}

fn why(world: &World) -> Vec<NotAdopted> {
    world.adoption().map(|it| it.waiting.iter().map(|it| it.why).collect()).unwrap_or_default()
}

#[test]
fn what_another_controller_published_is_left_to_it_and_given_to_nobody_else() {
    let (old, new) = (theirs("old"), named("new"));
    let mut world = leader(AdoptionConfig::default(), vec![pool(PUBLIC), put(&old), put(&new)]);
    assert!(world.status(&owner(&old)).is_none(), "nothing is planned for it");
    assert!(!matches!(world.desire(&Unit::Status(owner(&old))), Desired::Status(_)), "nor written");
    assert_eq!(status(&world, &new).addresses, [ip("192.0.2.11")]);
    let adoption = world.adoption().expect("it is told");
    assert_eq!((adoption.waiting[0].service.name.as_str(), why(&world)), ("old", vec![NotAdopted::Observed]));
    assert!(adoption.waiting[0].steps[0].contains(THEIRS));
    // Once the other took its address back, it is anybody's.
    tell(&mut world, put(&named("old")));
    assert_eq!(status(&world, &named("old")).addresses, [ip(THEIRS)]);
    assert!(world.adoption().is_none());
}

/// MetalLB serves Services without a class, from pools that Seaway reads; Seaway serves those of its class.
#[test]
fn nobody_is_given_an_address_that_another_controller_gave_to_a_service_of_no_interest_to_seaway() {
    let other = Service { class: Some("metallb.io/metallb".into()), ..theirs("other") };
    for theirs in [theirs("old"), other] {
        let none = Config { classless: false, pools: AddressPoolRules::CLUSTER, ..Config::default() };
        let mut new = named("new");
        new.class = none.classes.first().cloned();
        let start = |changes: Vec<Change>| {
            let mut world = World::new(Roles::default(), Vec::new(), Arc::new(none.clone()));
            for change in changes.into_iter().chain(synced()) {
                world.apply(change);
            }
            tell(&mut world, Change::Leads(true));
            world
        };
        // Known at the start, or heard before the other one.
        let mut world = start(vec![pool(PUBLIC), put(&theirs), put(&new)]);
        assert_eq!(status(&world, &new).addresses, [ip("192.0.2.11")]);
        let mut later = start(vec![pool(PUBLIC), put(&theirs)]);
        tell(&mut later, put(&new));
        assert_eq!(status(&later, &new).addresses, [ip("192.0.2.11")]);
        let mut wants = named("wants");
        (wants.class, wants.load_balancer_ip) = (new.class.clone(), Some(THEIRS.into()));
        tell(&mut world, put(&wants));
        let told = status(&world, &wants);
        assert!(told.addresses.is_empty() && !told.problems.is_empty(), "{:?}", told.problems);
        // One that Seaway gave out before is not taken away.
        let held = written(THEIRS, &[&new], AddressState::Held, 5);
        let kept = start(vec![pool(PUBLIC), put(&theirs), held, put(&new)]);
        assert_eq!(status(&kept, &new).addresses, [ip(THEIRS)]);
        // With its Service it is anybody's.
        tell(&mut world, Change::Gone(FactRef::Object(owner(&theirs).object())));
        assert_eq!(status(&world, &wants).addresses, [ip(THEIRS)]);
    }
}

#[test]
fn what_waits_for_adoption_is_anybodys_once_its_service_is_deleted() {
    let (old, new) = (theirs("old"), Service { load_balancer_ip: Some(THEIRS.into()), ..named("new") });
    let mut world = leader(AdoptionConfig::default(), vec![pool(PUBLIC), put(&old), put(&new)]);
    assert!(status(&world, &new).addresses.is_empty());
    tell(&mut world, Change::Gone(FactRef::Object(owner(&old).object())));
    assert_eq!(status(&world, &new).addresses, [ip(THEIRS)]);
}

#[test]
fn whoever_is_asked_for_takes_over_with_the_address_that_was_published() {
    let (old, new) = (theirs("old"), named("new"));
    let all = vec![put(&new), put(&old), pool(PUBLIC)];
    let only = |name: &str| AdoptionSelector {
        names: vec![("default".into(), name.into())],
        ..AdoptionSelector::default()
    };
    let table = [
        (adopting(AdoptMode::Observe), false),
        (adopting(AdoptMode::Ask), false),
        (adopting(AdoptMode::All), true),
        (AdoptionConfig { only: only("other"), ..adopting(AdoptMode::All) }, false),
        (AdoptionConfig { only: only("old"), ..adopting(AdoptMode::All) }, true),
    ];
    for (adopt, taken) in table {
        let mut world = leader(adopt.clone(), all.clone());
        assert_eq!(world.has_next_adoption(), taken, "{adopt:?}");
        if !taken {
            continue;
        }
        assert_eq!(world.adopt(0).0, 0);
        assert!(world.status(&owner(&old)).is_none(), "its turn has not come");
        let (begun, _) = world.adopt(5);
        assert_eq!(begun, 1);
        for at in [THEIRS, "192.0.2.11"] {
            let Desired::Address(it) = world.desire(&Unit::Address(ip(at))) else {
                panic!("{at} is written")
            };
            assert_eq!(it.owners, [owner(if at == THEIRS { &old } else { &new })]);
        }
        assert!(world.status(&owner(&old)).expect("it is ours").takes_over);
    }
    let mut asks = old.clone();
    asks.meta.annotations.insert("seaway.dev/adopt".into(), "true".into());
    let world = leader(adopting(AdoptMode::Ask), vec![put(&asks), pool(PUBLIC)]);
    assert!(world.has_next_adoption());
}

#[test]
fn a_setting_may_change_and_what_is_adopted_stays_so() {
    let old = theirs("old");
    let mut world = leader(AdoptionConfig::default(), vec![pool(PUBLIC), put(&old)]);
    tell(&mut world, Change::Config(config(adopting(AdoptMode::All))));
    assert_eq!(why(&world), [NotAdopted::Next]);
    assert_eq!(world.adopt(1).0, 1);
    tell(&mut world, Change::Config(config(AdoptionConfig::default())));
    assert!(world.status(&owner(&old)).is_some());
    // After a restart its Address tells, whatever its status says.
    let held = written(THEIRS, &[&old], AddressState::Held, 5);
    let world = leader(AdoptionConfig::default(), vec![pool(PUBLIC), put(&old), held]);
    assert_eq!(status(&world, &old).addresses, [ip(THEIRS)]);
    assert!(!status(&world, &old).takes_over, "but what the other wrote last is not overwritten");
}

#[test]
fn a_host_serves_what_was_taken_over_once_that_is_written() {
    let old = theirs("old");
    let roles = Roles { allocate: false, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], config(AdoptionConfig::default()));
    for change in [put(&old)].into_iter().chain(synced()) {
        world.apply(change);
    }
    assert!(world.status(&owner(&old)).is_none());
    world.apply(written(THEIRS, &[&old], AddressState::Held, 7));
    assert_eq!(status(&world, &old).addresses, [ip(THEIRS)]);
    assert_eq!(present(&world), [THEIRS]);
}

#[test]
fn what_seaway_published_itself_is_nobody_elses() {
    let own = Service { published_by_us: true, ..theirs("own") };
    let world = leader(AdoptionConfig::default(), vec![pool(PUBLIC), put(&own)]);
    let told = status(&world, &own);
    assert_eq!((told.addresses, told.takes_over), (vec![ip(THEIRS)], true));
}

#[test]
fn whoever_writes_after_us_takes_nothing_away() {
    let mut world =
        leader(AdoptionConfig::default(), vec![pool(PUBLIC), put(&named("own")), heard(applied("a", 9))]);
    assert!(status(&world, &named("own")).ready);
    let rival = Service { published: vec![ip("203.0.113.9")], ..named("own") };
    tell(&mut world, put(&rival));
    let told = status(&world, &rival);
    assert_eq!((told.addresses, told.ready, told.takes_over), (vec![ip(THEIRS)], true, false));
}

#[test]
fn who_has_an_address_is_served_though_no_default_driver_says_so_any_more() {
    let shop = named("shop");
    let none = Config { classless: false, pools: AddressPoolRules::CLUSTER, ..Config::default() };
    let mut world = leader(AdoptionConfig::default(), vec![pool(PUBLIC), put(&shop)]);
    tell(&mut world, Change::Config(Arc::new(none.clone())));
    let told = status(&world, &shop);
    assert_eq!(told.addresses, [ip(THEIRS)]);
    assert!(told.problems.iter().any(|it| it.reason == Reason::Released), "{:?}", told.problems);
    tell(&mut world, put(&named("new")));
    assert!(world.status(&owner(&named("new"))).is_none(), "a new one is none of ours");
    // The same at a start.
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(none));
    let held = written(THEIRS, &[&shop], AddressState::Held, 5);
    for change in [pool(PUBLIC), held, put(&shop)].into_iter().chain(synced()) {
        world.apply(change);
    }
    tell(&mut world, Change::Leads(true));
    assert_eq!(status(&world, &shop).addresses, [ip(THEIRS)]);
    tell(&mut world, Change::Gone(FactRef::Object(owner(&shop).object())));
    assert!(world.status(&owner(&shop)).is_none());
    let Desired::Address(it) = world.desire(&Unit::Address(ip(THEIRS))) else { return };
    assert_eq!(it.state, AddressState::Releasing);
    assert_eq!(owner(&shop).object().kind, Kind::Service);
}
