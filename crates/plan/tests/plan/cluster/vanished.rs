//! Addresses whose objects were deleted by hand, or all at once with their definition.

use seaway_model::{
    AddressState, Change, Desired, Unit, WorkItem,
    fact::{FactRef, Service},
};
use seaway_plan::World;
use seaway_testkit::facts::{host, ip, owner, pool, put, shop};

use super::{
    pools::{leader, status, tell},
    scene::{PUBLIC, applied, heard, on_host, present, written},
};

const AT: &str = "192.0.2.10";

fn published() -> Service {
    Service { published: vec![ip(AT)], published_by_us: true, ..shop() }
}

fn vanished() -> Change {
    Change::Gone(FactRef::Address(ip(AT)))
}

fn held() -> Change {
    written(AT, &[&shop()], AddressState::Held, 5)
}

fn serving_host() -> World {
    let mut world = on_host(vec![pool(PUBLIC), put(&published()), host(&["10.0.0.5"], &[]), held()]);
    assert_eq!(present(&world), [AT]);
    assert!(world.apply(vanished()).is_empty(), "nothing is another");
    assert_eq!(present(&world), [AT]);
    world
}

#[test]
fn a_host_keeps_an_address_that_vanished_until_its_service_publishes_it_no_more() {
    let mut moved = published();
    moved.published = vec![ip("192.0.2.11")];
    let table: [(&str, Change); 3] = [
        ("it has another", put(&moved)),
        ("it has none", put(&shop())),
        ("it is deleted", Change::Gone(FactRef::Object(owner(&shop()).object()))),
    ];
    for (case, change) in table {
        let mut world = serving_host();
        world.apply(change);
        assert!(present(&world).is_empty(), "{case}: {:?}", present(&world));
    }

    // It is written again, and then goes the way that addresses go.
    let mut world = serving_host();
    world.apply(written(AT, &[&shop()], AddressState::Held, 9));
    assert_eq!(present(&world), [AT]);
    world.apply(written(AT, &[], AddressState::Releasing, 10));
    assert!(present(&world).is_empty());
    world.apply(vanished());
    assert!(present(&world).is_empty());
}

#[test]
fn a_host_lets_go_of_an_address_that_vanished_and_that_nothing_publishes() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&["10.0.0.5"], &[]), held()]);
    world.apply(vanished());
    assert!(present(&world).is_empty());
}

#[test]
fn the_leader_writes_it_again_and_publishes_it_meanwhile() {
    let mut world = leader(vec![pool(PUBLIC), put(&published()), held()]);
    tell(&mut world, heard(applied("a", 5)));
    assert_eq!(status(&world, &shop()).addresses, [ip(AT)]);
    let dirt = world.apply(vanished());
    assert!(dirt.contains(&WorkItem::Unit(Unit::Address(ip(AT)))), "{dirt:?}");
    match world.desire(&Unit::Address(ip(AT))) {
        Desired::Address(it) => assert_eq!(it.owners, [owner(&shop())]),
        other => panic!("no Address but {other:?}"),
    }
    assert_eq!(status(&world, &shop()).addresses, [ip(AT)]);

    // Its Service goes before that was possible: hosts are told to let go.
    world.apply(Change::Gone(FactRef::Object(owner(&shop()).object())));
    match world.desire(&Unit::Address(ip(AT))) {
        Desired::Address(it) => assert_eq!(it.state, AddressState::Releasing),
        other => panic!("no Address but {other:?}"),
    }
}
