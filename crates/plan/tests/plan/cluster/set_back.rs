//! A cluster whose store was set back to a backup while every process ran: all is as it says then, and nothing is given twice.

use seaway_model::{
    AddressState, Change, Desired, ObjectRef, Unit,
    fact::{FactRef, HostReport, Service},
};
use seaway_plan::World;
use seaway_testkit::facts::{HOST, ip, owner, pool, put, service, shop, synced};

use super::scene::{PUBLIC, applied, controller, heard, on_host, present, written};

pub(crate) fn missing(service: &Service) -> Change {
    Change::Missing(FactRef::Object(ObjectRef::new(
        seaway_model::Kind::Service,
        service.meta.namespace.clone(),
        service.meta.name.clone(),
    )))
}

pub(crate) fn owners(world: &World, at: &str) -> Vec<seaway_model::Owner> {
    match world.desire(&Unit::Address(ip(at))) {
        Desired::Address(it) => it.owners.clone(),
        _ => Vec::new(),
    }
}

pub(crate) fn tell(world: &mut World, changes: Vec<Change>) {
    for change in changes {
        world.apply(change);
    }
}

pub(crate) fn other() -> Service {
    service("other", &[])
}

/// One that leads. The address was the shop's when the backup was made; then the shop was deleted, and the other has it.
pub(crate) fn after_the_backup() -> World {
    let mut world = controller(vec![pool(PUBLIC), put(&other())]);
    tell(
        &mut world,
        vec![
            Change::Leads(true),
            written("192.0.2.10", &[&other()], AddressState::Held, 500),
            heard(applied("a", 500)),
        ],
    );
    assert_eq!(owners(&world, "192.0.2.10"), [owner(&other())]);
    world
}

#[test]
fn what_the_restored_cluster_says_counts_in_whatever_order_it_is_told() {
    let address = || vec![written("192.0.2.10", &[&shop()], AddressState::Held, 80)];
    let services = || vec![put(&shop()), missing(&other())];
    for told in [[address(), services()], [services(), address()]] {
        let mut world = after_the_backup();
        tell(&mut world, vec![Change::SourceRestored]);
        assert!(!world.is_settled(), "nothing is planned before all was told");
        tell(&mut world, told.concat());
        assert!(!world.is_settled());
        tell(&mut world, synced());
        assert!(world.is_settled());
        assert_eq!(owners(&world, "192.0.2.10"), [owner(&shop())]);
        let others: Vec<u8> =
            (11..=19).filter(|it| !owners(&world, &format!("192.0.2.{it}")).is_empty()).collect();
        assert_eq!(others, [0; 0], "nobody has a second one");
    }
}

#[test]
fn whoever_is_there_still_keeps_an_address_of_his_own_and_not_the_one_that_is_another_s_again() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), put(&other())]);
    tell(&mut world, vec![written("192.0.2.10", &[&shop()], AddressState::Held, 80)]);
    tell(&mut world, synced());
    assert_eq!(owners(&world, "192.0.2.10"), [owner(&shop())]);
    assert_eq!(owners(&world, "192.0.2.11"), [owner(&other())]);
}

#[test]
fn what_a_host_applied_before_is_not_taken_for_the_release_of_an_address_since() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), missing(&other())]);
    tell(&mut world, vec![written("192.0.2.10", &[&shop()], AddressState::Held, 80)]);
    // As it was told last, or is told by a host that has not noticed yet.
    tell(&mut world, vec![heard(applied("a", 500))]);
    tell(&mut world, synced());
    // Now the shop is deleted: its address is released, and free when the host has heard of it.
    world.apply(Change::Gone(FactRef::Object(owner(&shop()).object())));
    tell(&mut world, vec![written("192.0.2.10", &[], AddressState::Releasing, 81)]);
    let is_free = |world: &World| world.desire(&Unit::Address(ip("192.0.2.10"))).is_absent();
    assert!(!is_free(&world), "500 is of a time that never was");
    tell(&mut world, vec![heard(applied("a", 80))]);
    assert!(!is_free(&world));
    tell(&mut world, vec![heard(applied("a", 81))]);
    assert!(is_free(&world));
}

/// A host may be faster than who leads.
#[test]
fn what_a_host_heard_first_counts_as_soon_as_it_is_heard_by_who_leads() {
    let mut world = controller(vec![pool(PUBLIC), put(&shop())]);
    tell(&mut world, vec![Change::Leads(true), Change::SourceRestored]);
    tell(&mut world, vec![written("192.0.2.10", &[&shop()], AddressState::Held, 4), heard(applied("a", 4))]);
    tell(&mut world, synced());
    tell(&mut world, vec![heard(applied("a", 9)), Change::Gone(FactRef::Object(owner(&shop()).object()))]);
    tell(&mut world, vec![written("192.0.2.10", &[], AddressState::Releasing, 5)]);
    let is_free = |world: &World| world.desire(&Unit::Address(ip("192.0.2.10"))).is_absent();
    assert!(!is_free(&world));
    tell(&mut world, vec![written("192.0.2.12", &[], AddressState::Releasing, 9)]);
    assert!(is_free(&world));
}

#[test]
fn a_host_says_from_then_on_how_far_it_is_by_the_versions_of_the_restored_cluster() {
    let mut world = on_host(vec![pool(PUBLIC), put(&other())]);
    let here = |version: u64, epoch: u64| heard(HostReport { epoch, ..applied(HOST, version) });
    tell(&mut world, vec![written("192.0.2.10", &[], AddressState::Releasing, 500), here(500, 0)]);
    assert_eq!(world.said().map(|it| it.applied), Some(500));
    tell(&mut world, vec![Change::SourceRestored]);
    assert_eq!(world.said(), None, "nothing is said while all is told again");
    tell(&mut world, vec![written("192.0.2.10", &[], AddressState::Releasing, 80)]);
    tell(&mut world, synced());
    assert!(world.said().is_some_and(|it| it.applied <= 80), "{:?}", world.said());
    let Desired::HostAddresses(wanted) = world.desire(&Unit::HostAddresses(HOST.into())) else {
        panic!("a host")
    };
    assert_eq!(wanted.as_of, 80);
    // What began before the store was set back ends, or is told again.
    let late = HostReport { holds: [ip("192.0.2.10")].into(), ..applied(HOST, 500) };
    tell(&mut world, vec![heard(late)]);
    let said = world.said().expect("all is told");
    assert_eq!((said.applied, said.held), (1, vec![ip("192.0.2.10")]));
    tell(&mut world, vec![here(80, wanted.epoch), here(500, 0)]);
    assert_eq!(world.said().map(|it| it.applied), Some(80));
    // A second time, before all was told again.
    tell(&mut world, vec![Change::SourceRestored, Change::SourceRestored, here(80, 1)]);
    tell(&mut world, synced());
    assert_eq!(world.said().map(|it| it.applied), Some(1));
    assert_eq!(present(&world), [""; 0]);
}
