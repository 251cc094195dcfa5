//! A watch that reports later what this process has written meanwhile, or what a leader before it wrote.

use seaway_model::{
    AddressState, Change, Desired, Fact, Outcome, Owner, Time, Unit, WorkItem,
    fact::{FactRef, Service},
    outcome::UnitState,
};
use seaway_plan::World;
use seaway_testkit::facts::{ip, owner, pool, put, service, shop};

use super::scene::{PUBLIC, applied, controller, heard, written};

const AT: &str = "192.0.2.10";

fn address(owners: &[&Service], version: u64) -> Fact {
    written_fact(AT, owners, AddressState::Held, version)
}

fn written_fact(at: &str, owners: &[&Service], state: AddressState, version: u64) -> Fact {
    match written(at, owners, state, version) {
        Change::Put(fact) => fact,
        other => panic!("{other:?}"),
    }
}

/// The driver has written it.
fn wrote(owners: &[&Service], version: u64) -> Change {
    let facts = vec![address(owners, version)];
    let unit = Unit::Address(ip(AT));
    Change::Outcome(Outcome { unit, state: UnitState::Done, facts, problems: vec![], serving: vec![] })
}

fn told(owners: &[&Service], version: u64) -> Change {
    Change::Put(address(owners, version))
}

fn marks_the_address(dirt: &[WorkItem]) -> bool {
    dirt.iter().any(|it| *it.unit() == Unit::Address(ip(AT)))
}

fn other() -> Service {
    let mut other = service("other", &[]);
    other.meta.created = Some(Time(9));
    other
}

/// One that leads, and has just written that the address is the shop's.
fn leader() -> World {
    let mut world = controller(vec![pool(PUBLIC), put(&shop())]);
    world.apply(Change::Leads(true));
    let Desired::Address(wanted) = world.desire(&Unit::Address(ip(AT))) else { panic!("it is given out") };
    assert_eq!(wanted.owners, [owner(&shop())]);
    world.apply(wrote(&[&shop()], 9));
    world
}

fn is_as_wanted(world: &mut World) -> bool {
    // Whatever is written otherwise than it is wanted is written again.
    let dirt = world.apply(Change::Time(Time(1)));
    !marks_the_address(&dirt)
}

#[test]
fn what_a_watch_reports_late_changes_nothing() {
    let mut world = leader();
    for version in [6, 7] {
        let dirt = world.apply(told(&[&other()], version));
        assert_eq!(dirt, [], "of before the write at 9");
    }
    let dirt = world.apply(told(&[&shop()], 9));
    assert!(!marks_the_address(&dirt), "{dirt:?}");
    // From now on it is believed: somebody else wrote it.
    assert!(marks_the_address(&world.apply(told(&[&other()], 11))));
}

#[test]
fn a_driver_that_reports_late_replaces_nothing_newer() {
    let mut world = leader();
    assert!(marks_the_address(&world.apply(told(&[&other()], 12))), "somebody else wrote it since");
    let dirt = world.apply(wrote(&[&shop()], 9));
    assert!(!marks_the_address(&dirt), "{dirt:?}");
    assert!(!marks_the_address(&world.apply(wrote(&[&shop()], 13))));
    assert!(is_as_wanted(&mut world));
}

#[test]
fn a_store_that_was_set_back_is_believed_at_once() {
    let mut world = leader();
    world.apply(Change::SourceRestored);
    world.apply(told(&[&shop()], 5));
    for change in seaway_testkit::facts::synced() {
        world.apply(change);
    }
    assert!(
        marks_the_address(&world.apply(told(&[&other()], 6))),
        "6 is later than 5, whatever was written at 9"
    );
    // Which the leader mends, and that write is the only one that counts.
    assert!(!marks_the_address(&world.apply(wrote(&[&shop()], 8))));
    assert_eq!(world.apply(told(&[&other()], 7)), []);
}

#[test]
fn what_nobody_confirms_counts_after_a_while() {
    let mut world = leader();
    // The answer to a write of before the store was set back, which came after that was over.
    world.apply(wrote(&[&shop()], 500));
    assert_eq!(world.apply(told(&[&other()], 21)), []);
    for now in 1..3 {
        assert!(!marks_the_address(&world.apply(Change::Time(Time(now)))));
    }
    assert!(marks_the_address(&world.apply(Change::Time(Time(3)))), "it is as the watch has it");
    assert!(!marks_the_address(&world.apply(told(&[&shop()], 22))));
}

#[test]
fn nothing_is_remembered_of_an_address_that_is_gone() {
    let mut world = leader();
    world.apply(Change::Gone(FactRef::Address(ip(AT))));
    assert!(marks_the_address(&world.apply(told(&[&other()], 7))), "it was made again by somebody else");
}

/// What is wanted of an address: who is to have it, and in which state.
fn wanted(world: &World, at: &str) -> Option<(AddressState, Vec<Owner>, u64)> {
    match world.desire(&Unit::Address(ip(at))) {
        Desired::Address(it) => Some((it.state, it.owners.clone(), it.version)),
        _ => None,
    }
}

/// One that has begun to lead, and has given the shop an address that nobody has written yet.
fn new_leader(more: Vec<Change>) -> World {
    let mut world = controller([vec![pool(PUBLIC), put(&shop())], more].concat());
    world.apply(Change::Leads(true));
    assert_eq!(wanted(&world, AT), Some((AddressState::Held, vec![owner(&shop())], 0)));
    world
}

#[test]
fn what_a_leader_before_gave_to_a_service_that_is_gone_is_released_before_anybody_else_has_it() {
    let mut world = new_leader(vec![heard(applied("far", 5))]);
    let dirt = world.apply(told(&[&other()], 7));
    assert!(marks_the_address(&dirt), "{dirt:?}");
    assert_eq!(wanted(&world, AT), Some((AddressState::Releasing, vec![], 7)), "hosts may serve it");
    let next = "192.0.2.11";
    assert_eq!(
        wanted(&world, next),
        Some((AddressState::Held, vec![owner(&shop())], 0)),
        "the shop has another"
    );
    // It is free once hosts have heard that, and not before.
    world.apply(written(AT, &[], AddressState::Releasing, 8));
    assert_eq!(wanted(&world, AT), Some((AddressState::Releasing, vec![], 8)));
    world.apply(heard(applied("far", 8)));
    assert_eq!(wanted(&world, AT), None);
}

#[test]
fn what_a_leader_before_gave_to_a_service_that_lives_is_kept_by_it() {
    let young = other();
    let mut world = new_leader(vec![put(&young)]);
    assert_eq!(wanted(&world, "192.0.2.11"), Some((AddressState::Held, vec![owner(&young)], 0)));
    world.apply(told(&[&young], 7));
    assert_eq!(wanted(&world, AT), Some((AddressState::Held, vec![owner(&young)], 7)));
    // What it was given here may be on its way, and is released before anybody else has it.
    assert_eq!(wanted(&world, "192.0.2.11"), Some((AddressState::Releasing, vec![], 0)));
    assert_eq!(wanted(&world, "192.0.2.12"), Some((AddressState::Held, vec![owner(&shop())], 0)));
    let unit = Unit::Address(ip("192.0.2.11"));
    let facts = vec![written_fact("192.0.2.11", &[&young], AddressState::Held, 8)];
    world.apply(Change::Outcome(Outcome {
        unit,
        state: UnitState::Done,
        facts,
        problems: vec![],
        serving: vec![],
    }));
    assert_eq!(wanted(&world, "192.0.2.11"), Some((AddressState::Releasing, vec![], 8)));
    assert_eq!(wanted(&world, AT), Some((AddressState::Held, vec![owner(&young)], 7)));
}

#[test]
fn an_address_that_is_written_is_not_exchanged_for_one_that_comes_late() {
    let young = other();
    let second = "192.0.2.11";
    let mut world = new_leader(vec![put(&young)]);
    world.apply(written(second, &[&young], AddressState::Held, 6));
    world.apply(told(&[&young], 7));
    assert_eq!(wanted(&world, AT), Some((AddressState::Releasing, vec![], 7)));
    assert_eq!(wanted(&world, second), Some((AddressState::Held, vec![owner(&young)], 6)));
    assert_eq!(wanted(&world, "192.0.2.12"), Some((AddressState::Held, vec![owner(&shop())], 0)));
}

#[test]
fn an_address_that_nobody_has_here_is_released_as_others_are() {
    let mut world = controller(vec![pool(PUBLIC), heard(applied("far", 5))]);
    world.apply(Change::Leads(true));
    world.apply(told(&[&other()], 7));
    assert_eq!(wanted(&world, AT), Some((AddressState::Releasing, vec![], 7)), "it is not just deleted");
}

#[test]
fn what_a_leader_before_released_and_gave_to_another_is_that_ones_though_the_release_was_not_heard() {
    let young = other();
    let mut world = new_leader(vec![put(&young)]);
    world.apply(told(&[&shop()], 6));
    world.apply(Change::Gone(FactRef::Object(owner(&shop()).object())));
    assert_eq!(wanted(&world, AT), Some((AddressState::Releasing, vec![], 6)));
    world.apply(told(&[&young], 9));
    assert_eq!(wanted(&world, AT), Some((AddressState::Held, vec![owner(&young)], 9)));
}
