//! Pools that come, go and cannot be seen: what Services of a cluster have of them.

use std::sync::Arc;

use seaway_model::{
    Address, AddressState, Change, Config, Desired, Fact, Kind, ObjectRef, Outcome, Problem, Reason, Status,
    Time, Unit,
    config::AddressPoolRules,
    fact::{FactRef, FinalizerOwner, Service, TargetPort},
    outcome::UnitState,
};
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{ip, owner, pool, put, service, shop, synced};

use super::scene::{PUBLIC, applied, heard, written};

pub(super) fn cluster() -> Arc<Config> {
    Arc::new(Config { pools: AddressPoolRules::CLUSTER, ..Config::default() })
}

/// A controller of a cluster that leads, and has written what it has given.
pub(super) fn leader(changes: Vec<Change>) -> World {
    let mut world = World::new(Roles::default(), Vec::new(), cluster());
    world.apply(Change::Time(Time(0)));
    for change in changes.into_iter().chain(synced()) {
        world.apply(change);
    }
    tell(&mut world, Change::Leads(true));
    world
}

/// Tells it, and writes every Address that it wants.
pub(super) fn tell(world: &mut World, change: Change) {
    let mut dirt = world.apply(change);
    while let Some(it) = dirt.pop() {
        let unit = it.unit().clone();
        if !matches!(unit, Unit::Address(_)) {
            continue;
        }
        let (state, facts) = match world.desire(&unit) {
            Desired::Address(it) => {
                let version = 5;
                let it = Address { version, ..Address::clone(&it) };
                (UnitState::Done, vec![Fact::Address(Arc::new(it))])
            }
            _ => (UnitState::Absent, Vec::new()),
        };
        let outcome = Outcome { unit, state, facts, problems: Vec::new(), serving: Vec::new() };
        dirt.extend(world.apply(Change::Outcome(outcome)));
    }
}

pub(super) fn status(world: &World, service: &Service) -> Status {
    world.status(&owner(service)).expect("it is ours")
}

/// Problems of its addresses.
pub(super) fn problems(world: &World, service: &Service) -> Vec<Problem> {
    let mut all = status(world, service).problems;
    all.retain(|it| matches!(it.reason, Reason::PoolMissing | Reason::AddressExcluded | Reason::NoPool));
    all
}

fn gone(kind: Kind, name: &str) -> Change {
    Change::Gone(FactRef::Object(ObjectRef::new(kind, "", name)))
}

#[test]
fn the_last_pool_that_goes_moves_nobody() {
    let mut world = leader(vec![pool(PUBLIC), put(&shop())]);
    let has = ip("192.0.2.10");
    assert_eq!(status(&world, &shop()).addresses, [has]);
    let mut host = applied("a", 5);
    host.addresses = vec![ip("198.51.100.1")];
    tell(&mut world, heard(host));
    assert!(status(&world, &shop()).ready);
    tell(&mut world, gone(Kind::AddressPool, "public"));
    let told = status(&world, &shop());
    assert_eq!((told.addresses, told.ready), (vec![has], true), "the Service is served as before");
    let told = problems(&world, &shop());
    assert_eq!((told.len(), told[0].reason), (1, Reason::PoolMissing));
    assert!(told[0].message.contains("pool public cannot be seen"));
    tell(&mut world, pool(PUBLIC));
    assert_eq!(problems(&world, &shop()), []);
}

/// As a watch tells it that may not list, or finds no definition: that there are none.
#[test]
fn who_may_not_list_pools_at_the_start_releases_nothing() {
    let other = service("other", &[("", 80, TargetPort::Number(80))]);
    let held = |at, service: &Service| written(at, &[service], AddressState::Held, 5);
    let changes = vec![put(&shop()), put(&other), held("192.0.2.17", &shop()), held("192.0.2.18", &other)];
    for leads_late in [true, false] {
        let mut world = World::new(Roles::default(), Vec::new(), cluster());
        if !leads_late {
            world.apply(Change::Leads(true));
        }
        let mut dirt = Vec::new();
        for change in changes.clone().into_iter().chain(synced()).chain([Change::Leads(true)]) {
            dirt.extend(world.apply(change));
        }
        let written: Vec<&Unit> =
            dirt.iter().map(|it| it.unit()).filter(|it| matches!(it, Unit::Address(_))).collect();
        assert!(written.is_empty(), "no Address is another: {written:?}");
        for (service, at) in [(&shop(), "192.0.2.17"), (&other, "192.0.2.18")] {
            let told = status(&world, service);
            assert_eq!(told.addresses, [ip(at)]);
            assert!(told.problems.iter().any(|it| it.reason == Reason::PoolMissing), "{:?}", told.problems);
        }
    }
}

/// Somebody deleted definitions with all that is of them and applied them again, and the controller starts before the pools
/// are back. Only statuses say who has what.
#[test]
fn addresses_that_were_lost_together_with_their_pools_stay_with_whom_they_were_published_for() {
    let published = |name: &str, at: &str| Service {
        published: vec![ip(at)],
        published_by_us: true,
        ..service(name, &[("", 80, TargetPort::Number(80))])
    };
    let (old, young) = (published("old", "192.0.2.18"), published("young", "192.0.2.17"));
    // Another controller's word; and what is still held had its address from a cloud.
    let theirs = Service { published_by_us: false, ..published("theirs", "192.0.2.16") };
    let clouds = Service { held: FinalizerOwner::ByUs, ..published("clouds", "192.0.2.15") };
    let told = || vec![put(&old), put(&young), put(&theirs), put(&clouds), heard(applied("a", 9))];
    let has = |world: &World, it: &Service| status(world, it).addresses;
    let mut world = World::new(Roles::default(), Vec::new(), cluster());
    for change in told().into_iter().chain(synced()).chain([Change::Leads(true)]) {
        world.apply(change);
    }
    for service in [&old, &young] {
        // Hosts would let go by a status without it.
        assert_eq!(has(&world, service), service.published, "it is published before it is written again");
    }
    let mut world = leader(told());
    for service in [&old, &young] {
        assert_eq!(has(&world, service), service.published);
        let told = problems(&world, service);
        assert_eq!(told[0].reason, Reason::PoolMissing, "{told:?}");
        assert!(told[0].message.contains("Seaway sees no pool that has 192.0.2.1"), "{told:?}");
        let Desired::Address(written) = world.desire(&Unit::Address(service.published[0])) else {
            panic!("it is written again, for hosts to serve it")
        };
        assert_eq!((&written.owners[..], written.state), (&[owner(service)][..], AddressState::Held));
    }
    for nobodys in ["192.0.2.15", "192.0.2.16"] {
        assert!(world.desire(&Unit::Address(ip(nobodys))).is_absent(), "{nobodys}");
    }
    tell(&mut world, put(&shop()));
    assert!(has(&world, &shop()).is_empty(), "nothing is given out of what cannot be seen");

    tell(&mut world, pool(PUBLIC));
    for service in [&old, &young] {
        assert_eq!((has(&world, service), problems(&world, service)), (service.published.clone(), vec![]));
        let Desired::Address(written) = world.desire(&Unit::Address(service.published[0])) else {
            panic!("it is held")
        };
        assert_eq!(&*written.pool, "public", "from now on it is of the pool that gives it");
    }
    assert_eq!(has(&world, &shop()).len(), 1, "and others are given again");
}

/// It was of that pool, as far as is known: the pool excludes it now.
#[test]
fn an_address_that_was_lost_and_that_the_pool_does_not_have_that_is_asked_for_ends_after_the_grace_period() {
    let mut asking = shop();
    asking.meta.annotations = [("seaway.dev/address-pool".into(), "public".into())].into();
    let asking = Service { published: vec![ip("203.0.113.9")], published_by_us: true, ..asking };
    let mut world = leader(vec![put(&asking), pool(PUBLIC)]);
    assert_eq!(status(&world, &asking).addresses, [ip("203.0.113.9")]);
    assert_eq!(problems(&world, &asking)[0].reason, Reason::AddressExcluded);
    tell(&mut world, Change::Time(Time(601_000)));
    assert_eq!(status(&world, &asking).addresses, [ip("192.0.2.10")]);
}

#[test]
fn an_address_that_a_pool_excludes_ends_when_its_time_has_come_unless_the_edit_is_taken_back() {
    let less = ("192.0.2.15", "192.0.2.19");
    let mut world = leader(vec![pool(PUBLIC), put(&shop())]);
    tell(&mut world, pool(less));
    let told = status(&world, &shop());
    assert_eq!(told.addresses, [ip("192.0.2.10")]);
    let told = problems(&world, &shop());
    assert_eq!(told[0].reason, Reason::AddressExcluded);
    assert!(told[0].message.contains("1970-01-01T00:10:00Z"), "{}", told[0].message);
    tell(&mut world, Change::Time(Time(599_000)));
    tell(&mut world, pool(PUBLIC));
    tell(&mut world, Change::Time(Time(900_000)));
    assert_eq!(
        (status(&world, &shop()).addresses, problems(&world, &shop())),
        (vec![ip("192.0.2.10")], vec![])
    );
    tell(&mut world, pool(less));
    tell(&mut world, Change::Time(Time(1_499_000)));
    assert_eq!(status(&world, &shop()).addresses, [ip("192.0.2.10")]);
    tell(&mut world, Change::Time(Time(1_500_000)));
    assert_eq!(status(&world, &shop()).addresses, [ip("192.0.2.15")]);
}
