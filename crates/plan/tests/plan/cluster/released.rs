//! Addresses that were somebody's, until they are free again.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use seaway_model::{
    Address, AddressState, Change, Desired, Fact, L4, Outcome, Owner, Unit,
    fact::{FactRef, HostReport, Service, TargetPort},
    outcome::{ServingSocket, UnitState},
};
use seaway_plan::World;
use seaway_testkit::facts::{ip, owner, pool, put, service, shop};

use super::scene::{applied, controller, heard, unit, written};

#[test]
fn an_address_is_free_when_every_live_host_applied_its_release_and_holds_it_no_more() {
    let at = ip("192.0.2.10");
    let still = |it: HostReport| HostReport { holds: [at].into(), ..it };
    let gone = || Change::Gone(FactRef::Host("b".into()));
    // It is released at version 7.
    let table: [(&str, Vec<Change>, bool); 7] = [
        ("nobody heard of it", vec![heard(applied("a", 6)), heard(applied("b", 6))], false),
        ("one did not", vec![heard(applied("a", 7)), heard(applied("b", 6))], false),
        ("both applied it", vec![heard(applied("a", 7)), heard(applied("b", 8))], true),
        ("one still holds it", vec![heard(applied("a", 7)), heard(still(applied("b", 8)))], false),
        ("the other died", vec![heard(applied("a", 7)), heard(applied("b", 6)), gone()], true),
        (
            "who still holds it died",
            vec![heard(applied("a", 9)), heard(still(applied("b", 9))), gone()],
            true,
        ),
        ("one just came and holds it", vec![heard(applied("a", 7)), heard(still(applied("c", 0)))], false),
    ];
    for (case, reports, free) in table {
        let mut world = controller(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop())]);
        world.apply(Change::Leads(true));
        world.apply(written("192.0.2.10", &[&shop()], AddressState::Held, 5));
        for name in ["a", "b"] {
            world.apply(heard(applied(name, 5)));
        }
        world.apply(Change::Gone(FactRef::Object(owner(&shop()).object())));
        assert!(matches!(world.desire(&Unit::Address(at)), Desired::Address(_)), "{case}: too early");
        world.apply(written("192.0.2.10", &[], AddressState::Releasing, 7));
        for report in reports {
            world.apply(report);
        }
        assert_eq!(world.desire(&Unit::Address(at)) == Desired::Absent, free, "{case}");
    }
}

#[test]
fn an_address_on_its_way_to_one_is_not_given_to_another_before_it_is_known_what_came_of_it() {
    let at = ip("192.0.2.10");
    let other = service("other", &[("", 80, TargetPort::Number(80))]);
    for failed in [false, true] {
        let mut world = controller(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop()), put(&other)]);
        world.apply(Change::Leads(true));
        let wanted = |world: &World| match world.desire(&Unit::Address(at)) {
            Desired::Address(it) => it.owners.clone(),
            _ => Vec::new(),
        };
        let first = if wanted(&world) == [owner(&shop())] { shop() } else { other.clone() };
        world.apply(Change::Gone(FactRef::Object(owner(&first).object())));
        assert_eq!(wanted(&world), [], "it may be written as theirs at this moment");
        if failed {
            let state = UnitState::Failed { why: "no answer".into(), retry: Duration::from_secs(1) };
            let unit = Unit::Address(at);
            let outcome =
                Outcome { unit, state, facts: Vec::new(), problems: Vec::new(), serving: Vec::new() };
            world.apply(Change::Outcome(outcome));
            assert_eq!(wanted(&world), [], "it may have been written all the same");
        }
        world.apply(written("192.0.2.10", &[&first], AddressState::Held, 5));
        assert_eq!(wanted(&world), []);
        world.apply(written("192.0.2.10", &[], AddressState::Releasing, 6));
        assert_eq!(wanted(&world).len(), 1, "now the other may have it");
    }
}

/// A controller that gave an address to each of so many, with a host that has all of them.
fn with_many(many: u64) -> (World, Vec<(IpAddr, Owner)>) {
    let named = |n: u64| service(&format!("s{n}"), &[("", 80, TargetPort::Number(80))]);
    let told = [pool(("10.1.0.0", "10.1.255.255"))].into_iter().chain((0..many).map(|n| put(&named(n))));
    let mut world = controller(told.collect());
    world.apply(Change::Leads(true));
    let mut given = Vec::new();
    for version in 1..=many {
        let at = IpAddr::from(Ipv4Addr::from_bits(0x0a01_0000 + u32::try_from(version - 1).expect("few")));
        let Desired::Address(it) = world.desire(&Unit::Address(at)) else { panic!("it is given out") };
        given.push((at, it.owners[0].clone()));
        world.apply(Change::Put(Fact::Address(Arc::new(Address { version, ..Address::clone(&it) }))));
    }
    world.apply(heard(applied("a", many)));
    (world, given)
}

fn is_free(world: &World, ip: IpAddr) -> bool {
    world.desire(&Unit::Address(ip)) == Desired::Absent
}

/// The Service is gone, its Address is written as released, and drivers say what became of both.
fn release(world: &mut World, owner: &Owner, at: IpAddr, version: u64) {
    world.apply(Change::Gone(FactRef::Object(owner.object())));
    world.apply(written(&at.to_string(), &[], AddressState::Releasing, version));
    for (unit, state) in
        [(Unit::Address(at), UnitState::Done), (Unit::Status(owner.clone()), UnitState::Absent)]
    {
        world.apply(concluded(unit, state, Vec::new()));
    }
}

fn concluded(unit: Unit, state: UnitState, serving: Vec<ServingSocket>) -> Change {
    Change::Outcome(Outcome { unit, state, facts: Vec::new(), problems: Vec::new(), serving })
}

/// To look at all of them each time, and at all Outcomes for each, would take hours.
#[test]
fn thousands_that_are_released_while_a_host_says_nothing_are_not_all_looked_at_for_each() {
    let many = 3_000;
    let (mut world, given) = with_many(many);
    for ((at, owner), n) in given.iter().zip(1..) {
        release(&mut world, owner, *at, many + n);
    }
    let ips: Vec<IpAddr> = given.into_iter().map(|(at, _)| at).collect();
    assert!(ips.iter().all(|at| !is_free(&world, *at)), "the host did not say that it heard");
    world.apply(heard(applied("a", many + 1)));
    assert_eq!(ips.iter().filter(|at| is_free(&world, **at)).count(), 1, "it heard of the first");
    world.apply(heard(applied("a", many * 2)));
    assert!(ips.iter().all(|at| is_free(&world, *at)));
}

#[test]
fn an_address_is_free_once_the_last_who_serves_it_says_that_he_serves_it_no_more() {
    let at = ip("192.0.2.10");
    let other = service("other", &[("", 80, TargetPort::Number(80))]);
    let socket = |port| ServingSocket { ip: at, protocol: L4::Tcp, port };
    let mut world = controller(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop())]);
    world.apply(Change::Leads(true));
    world.apply(written("192.0.2.10", &[&shop()], AddressState::Held, 5));
    let serve = |world: &mut World, who: &Service, serving| {
        world.apply(concluded(unit(&owner(who)), UnitState::Done, serving));
    };
    serve(&mut world, &shop(), vec![socket(80), socket(81)]);
    serve(&mut world, &other, vec![socket(82)]);
    release(&mut world, &owner(&shop()), at, 6);
    serve(&mut world, &shop(), vec![socket(81)]);
    serve(&mut world, &shop(), vec![]);
    assert!(!is_free(&world, at), "somebody else serves there");
    world.apply(concluded(unit(&owner(&other)), UnitState::Absent, vec![]));
    assert!(is_free(&world, at));
}
