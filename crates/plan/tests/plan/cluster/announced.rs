//! Whether addresses are announced, which is another question than whether a host serves them.

use std::sync::Arc;

use seaway_model::{
    AnnounceMode, Change, Fact, IpRange, Kind, ObjectRef, Unit,
    announced::{AnnouncedReason, ConditionStatus},
    fact::{AddressPool, FactRef, HostReport, TargetPort},
};
use seaway_plan::World;
use seaway_testkit::facts::{ip, owner, pool, put, service, shop};

use super::{
    pools::{leader, status, tell},
    scene::{PUBLIC, applied, heard},
};

/// A pool like [`pool`], of another kind or with something else said of it.
fn other_pool(change: impl Fn(&mut AddressPool)) -> Change {
    let Change::Put(Fact::AddressPool(it)) = pool(PUBLIC) else { panic!("it is a pool") };
    let mut it = AddressPool::clone(&it);
    change(&mut it);
    Change::Put(Fact::AddressPool(Arc::new(it)))
}

fn announced(world: &World) -> (ConditionStatus, AnnouncedReason, String) {
    let told = status(world, &shop()).announced.expect("a Service is told whether it is announced");
    (told.status, told.reason, told.message)
}

fn is(world: &World) -> (ConditionStatus, AnnouncedReason) {
    let (status, reason, _) = announced(world);
    (status, reason)
}

#[test]
fn what_a_host_serves_is_not_announced_before_somebody_says_so() {
    let mut world = leader(vec![pool(PUBLIC), put(&shop())]);
    tell(&mut world, heard(applied("a", 5)));
    assert!(status(&world, &shop()).ready, "a host serves it");
    let (is_so, reason, message) = announced(&world);
    assert_eq!((is_so, reason), (ConditionStatus::False, AnnouncedReason::NotAnnounced));
    for part in [
        "192.0.2.10",
        "announce: l2 in AddressPool public",
        "announce: static",
        "MetalLB's speaker",
        "hosts: true",
    ] {
        assert!(message.contains(part), "no {part}: {message}");
    }

    let object = ObjectRef::new(Kind::AddressPool, "", "public");
    let of_pool = |world: &World| world.pool_announced(&object).expect("it is there").reason;
    assert_eq!(of_pool(&world), AnnouncedReason::NotAnnounced);

    // A router has a route: the Service is told, though it has the same address as before.
    let dirt = world.apply(other_pool(|it| it.announce = Some(AnnounceMode::Static)));
    let told = Unit::Status(owner(&shop()));
    assert!(dirt.iter().any(|it| *it.unit() == told), "{dirt:?}");
    assert_eq!(is(&world), (ConditionStatus::True, AnnouncedReason::StaticRoute));
    assert_eq!(of_pool(&world), AnnouncedReason::StaticRoute);
    let dirt = world.apply(other_pool(|it| it.announce = Some(AnnounceMode::Static)));
    assert!(dirt.is_empty(), "nothing is another: {dirt:?}");
}

#[test]
fn what_cannot_be_known_is_said_to_be_unknown() {
    let none = leader(vec![put(&shop())]);
    assert_eq!(is(&none), (ConditionStatus::Unknown, AnnouncedReason::NoAddress));

    let of_metallb = |it: &mut AddressPool| {
        it.object = ObjectRef::new(Kind::IPAddressPool, "metallb-system", "public");
    };
    let mut world = leader(vec![other_pool(of_metallb), put(&shop())]);
    assert_eq!(is(&world), (ConditionStatus::Unknown, AnnouncedReason::Metallb));
    let object = ObjectRef::new(Kind::IPAddressPool, "metallb-system", "public");
    tell(&mut world, Change::Gone(FactRef::Object(object)));
    assert_eq!(status(&world, &shop()).addresses, [ip("192.0.2.10")]);
    assert_eq!(is(&world), (ConditionStatus::Unknown, AnnouncedReason::PoolMissing));
}

#[test]
fn hosts_answer_for_their_own_addresses() {
    let of_hosts = other_pool(|it| (it.hosts, it.ranges) = (true, Vec::new()));
    let declared = Some([ip("198.51.100.7")].into());
    let host = heard(HostReport { addresses: vec![ip("198.51.100.7")], declared, ..applied("a", 5) });
    let world = leader(vec![of_hosts, host, put(&shop())]);
    assert_eq!(status(&world, &shop()).addresses, [ip("198.51.100.7")]);
    assert_eq!(is(&world), (ConditionStatus::True, AnnouncedReason::HostAddress));
}

#[test]
fn of_two_addresses_the_one_that_is_not_announced_counts() {
    let range = |it: &str| IpRange::new(ip(it), ip(it)).expect("a range");
    let mut both = service("shop", &[("", 8080, TargetPort::Number(80))]);
    both.families.policy = seaway_model::fact::FamilyPolicy::Require;
    let four = other_pool(|it| it.announce = Some(AnnounceMode::Static));
    let six = other_pool(|it| {
        it.object = ObjectRef::new(Kind::AddressPool, "", "six");
        it.ranges = vec![range("2001:db8::7")];
    });
    let world = leader(vec![four, six, put(&both)]);
    let told = status(&world, &both);
    assert_eq!(told.addresses.len(), 2, "{told:?}");
    let announced = told.announced.expect("is told");
    assert_eq!(announced.reason, AnnouncedReason::NotAnnounced);
    assert!(announced.message.starts_with("2001:db8::7: "), "{}", announced.message);
}
