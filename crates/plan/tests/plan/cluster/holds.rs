//! Services stay until what a cloud has for them is gone.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Name, Outcome, Owner, Unit, WorkItem,
    config::CloudDefaults,
    fact::{FinalizerOwner, Service, ServiceKind},
    outcome::UnitState,
    unit::Place,
};
use seaway_plan::{Demand, Placement, Roles, World};
use seaway_testkit::facts::{owner, put, shop, synced};

const CLASS: &str = "seaway.dev/somecloud";

struct InCloud;

impl Placement for InCloud {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        demand.cloud.iter().map(|_| unit(&demand.owner)).collect()
    }
}

fn unit(owner: &Owner) -> Unit {
    let place = Place::Cloud { name: "somecloud".into(), driver: "somecloud".into() };
    Unit::LoadBalancer(place, seaway_model::LbKey::Of(owner.clone()))
}

fn world(classless: bool) -> World {
    let usual = CloudDefaults { classless, ..CloudDefaults::default() };
    let config = Config { clouds: [(CLASS.into(), Arc::new(usual))].into(), ..Config::default() };
    let mut world =
        World::new(Roles { allocate: true, host: None }, vec![Arc::new(InCloud)], Arc::new(config));
    for change in synced() {
        world.apply(change);
    }
    world
}

fn clouded() -> Service {
    Service { class: Some(CLASS.into()), ..shop() }
}

fn held(service: &Service, held: FinalizerOwner) -> Service {
    Service { held, ..service.clone() }
}

fn leaving(service: &Service) -> Service {
    Service { leaving: true, ..service.clone() }
}

fn marked(dirt: &[WorkItem]) -> (bool, bool) {
    let hold = dirt.iter().any(|it| matches!(it.unit(), Unit::Finalizer(_)));
    (hold, dirt.iter().any(|it| matches!(it.unit(), Unit::LoadBalancer(..))))
}

fn absent(world: &mut World, service: &Service) -> Vec<WorkItem> {
    let unit = unit(&owner(service));
    let outcome =
        Outcome { unit, state: UnitState::Absent, facts: vec![], problems: vec![], serving: vec![] };
    world.apply(Change::Outcome(outcome))
}

fn hold(world: &World, service: &Service) -> Desired {
    world.desire(&Unit::Finalizer(owner(service)))
}

fn is_unheld(world: &World, service: &Service) -> bool {
    match world.desire(&unit(&owner(service))) {
        Desired::LoadBalancer(it) => it.options.cloud.as_ref().expect("it is in a cloud").unheld,
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_nobody_knows_a_cloud_nobody_is_held_for_it_and_who_is_held_is_told_and_stays() {
    let usual = CloudDefaults { absent: true, enabled: false, ..CloudDefaults::default() };
    let config = Config { clouds: [(CLASS.into(), Arc::new(usual))].into(), ..Config::default() };
    let mut world = World::new(Roles { allocate: true, host: None }, Vec::new(), Arc::new(config));
    for change in synced() {
        world.apply(change);
    }
    let shop = clouded();
    let was_held = held(&shop, FinalizerOwner::ByUs);
    for (service, told) in [
        (&shop, "can be created"),
        (&was_held, "can be created"),
        (&leaving(&was_held), "deletion is pending"),
    ] {
        let (hold, _) = marked(&world.apply(put(service)));
        assert!(!hold, "{service:?}");
        let problems = world.status(&owner(service)).expect("it is ours").problems;
        assert!(
            problems.iter().any(|it| it.message.contains(told) && it.fix.contains("--cloud-config")),
            "{problems:?}"
        );
    }
    let plain = Service { kind: ServiceKind::ClusterIp, class: None, ..was_held };
    assert!(!marked(&world.apply(put(&plain))).0, "what was made for it may be there");
}

#[test]
fn a_service_is_held_before_anything_is_made_for_it() {
    let (mut world, shop) = (world(false), clouded());
    assert_eq!(marked(&world.apply(put(&shop))), (true, true));
    assert_eq!(hold(&world, &shop), Desired::Finalizer);
    assert!(is_unheld(&world, &shop), "and nothing is made for it yet");
    assert_eq!(
        marked(&world.apply(put(&held(&shop, FinalizerOwner::ByUs)))),
        (false, true),
        "whoever waits goes on"
    );
    assert!(!is_unheld(&world, &shop));
    assert_eq!(world.apply(put(&held(&shop, FinalizerOwner::ByUs))), [], "our own writing plans nothing");
    assert_eq!(marked(&world.apply(put(&shop))), (true, true), "somebody took it away");
}

#[test]
fn one_that_leaves_is_let_go_once_nothing_is_there_for_it() {
    for by in [FinalizerOwner::ByUs, FinalizerOwner::ByOthers] {
        let (mut world, shop) = (world(false), held(&clouded(), by));
        world.apply(put(&shop));
        assert!(marked(&world.apply(put(&leaving(&shop)))).1);
        assert!(world.desire(&unit(&owner(&shop))).is_absent());
        assert_eq!(hold(&world, &shop), Desired::Finalizer, "it is still there");
        assert!(marked(&absent(&mut world, &shop)).0);
        assert_eq!(hold(&world, &shop), Desired::Absent);
    }
}

#[test]
fn one_that_left_while_nobody_led_is_looked_for_before_it_is_let_go() {
    let (mut world, shop) = (world(false), leaving(&held(&clouded(), FinalizerOwner::ByOthers)));
    assert_eq!(marked(&world.apply(put(&shop))), (false, true));
    assert_eq!(hold(&world, &shop), Desired::Finalizer);
    assert!(marked(&absent(&mut world, &shop)).0);
    assert_eq!(hold(&world, &shop), Desired::Absent);
}

#[test]
fn one_that_is_no_load_balancer_any_more_is_let_go_too() {
    let (mut world, shop) = (world(false), held(&clouded(), FinalizerOwner::ByUs));
    let plain = Service { kind: ServiceKind::ClusterIp, class: None, ..shop.clone() };
    world.apply(put(&shop));
    assert_eq!(marked(&world.apply(put(&plain))), (false, true));
    assert_eq!(hold(&world, &plain), Desired::Finalizer);
    assert!(marked(&absent(&mut world, &plain)).0);
    assert_eq!(hold(&world, &plain), Desired::Absent);
    // And if it becomes one again, it is held again.
    assert!(marked(&world.apply(put(&shop))).1);
    assert_eq!(hold(&world, &shop), Desired::Finalizer);
}

/// Nothing tells of it but what its Service says: its tags are not ours.
#[test]
fn who_leaves_before_it_was_adopted_carries_what_finds_its_load_balancer() {
    let (mut world, mut shop) = (world(true), held(&shop(), FinalizerOwner::ByOthers));
    let id = "3f1c9f8e-0a71-4f3b-9d9e-0f2b8f8e6a55";
    let address = [203, 0, 113, 7].into();
    shop.meta.annotations.insert("loadbalancer.openstack.org/load-balancer-id".into(), id.into());
    shop.published = vec![address];
    for gone in [leaving(&shop), Service { kind: ServiceKind::ClusterIp, ..shop.clone() }, leaving(&shop)] {
        world.apply(put(&gone));
        let Desired::Removed(former) = world.desire(&unit(&owner(&gone))) else { panic!("{gone:?}") };
        let outside = former.load_balancer.options.cloud.as_ref().expect("it is in a cloud");
        assert_eq!(outside.named.as_ref().map(|it| it.id.as_str()), Some(id));
        assert_eq!(outside.published, [address]);
        assert!(former.by_another);
    }
    world.apply(put(&shop));
    assert!(matches!(world.desire(&unit(&owner(&shop))), Desired::LoadBalancer(_)), "it is wanted again");
}

/// They use the same finalizer.
#[test]
fn what_others_hold_is_left_to_them() {
    let other = |kind: ServiceKind, class: Option<Name>| Service {
        kind,
        class,
        ..held(&leaving(&shop()), FinalizerOwner::ByOthers)
    };
    for theirs in [
        other(ServiceKind::LoadBalancer, None),
        other(ServiceKind::LoadBalancer, Some("example.org/other".into())),
        other(ServiceKind::ClusterIp, None),
    ] {
        let mut world = world(false);
        assert_eq!(marked(&world.apply(put(&theirs))), (false, false), "{:?}", theirs.kind);
    }
    // Who has the other controller's place has what it held.
    let mut world = world(true);
    assert_eq!(marked(&world.apply(put(&other(ServiceKind::ClusterIp, None)))), (false, true));
}

#[test]
fn who_leads_next_goes_on_letting_go() {
    let (mut world, shop) = (world(false), leaving(&held(&clouded(), FinalizerOwner::ByUs)));
    world.apply(Change::Leads(false));
    assert_eq!(marked(&world.apply(put(&shop))), (false, false), "another's business");
    assert!(marked(&world.apply(Change::Leads(true))).1);
}
