//! A host that is to serve nobody new.

use std::sync::Arc;

use seaway_model::{AddressState, Change, Config, Desired, Dirt, Kind, fact::HostReport};
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{HOST, host, ip, owner, pool, put, shop, synced};

use super::scene::{OnHost, PUBLIC, controller, heard, on_host, present, unit, written};

#[test]
fn a_host_that_drains_closes_its_sockets_and_keeps_what_open_connections_need() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&["10.0.0.5"], &[])]);
    world.apply(written("192.0.2.17", &[&shop()], AddressState::Held, 5));
    let before = world.desire(&unit(&owner(&shop())));
    let here = heard(HostReport {
        host: HOST.into(),
        holds: [ip("192.0.2.17")].into(),
        applied: 5,
        ..HostReport::default()
    });
    world.apply(here);

    let dirt = world.apply(Change::Drains(true));
    assert_eq!(dirt, [Dirt::Unit(unit(&owner(&shop())))]);
    let (Desired::LoadBalancer(before), Desired::LoadBalancer(drained)) =
        (before, world.desire(&unit(&owner(&shop()))))
    else {
        panic!("it is no load balancer any more")
    };
    assert!(!before.listeners.is_empty() && drained.listeners.is_empty());
    assert_eq!((&drained.pools, &drained.binds), (&before.pools, &before.binds));
    assert_eq!(present(&world), ["192.0.2.17"]);
    let said = world.said().expect("a host");
    assert_eq!((said.applied, said.not_served), (5, vec![]), "one word says it for all");
    assert_eq!(world.apply(Change::Drains(true)), []);

    assert_eq!(world.apply(Change::Drains(false)), [Dirt::Unit(unit(&owner(&shop())))]);
    assert_eq!(world.desire(&unit(&owner(&shop()))), Desired::LoadBalancer(before));
}

#[test]
fn nobody_new_is_sent_to_a_host_that_drains_while_there_is_another() {
    let mut world = controller(vec![put(&shop())]);
    world.apply(Change::Leads(true));
    let of = |name: &str, at: &str, drain| {
        heard(HostReport { host: name.into(), addresses: vec![ip(at)], drain, ..HostReport::default() })
    };
    let addresses = |world: &World| world.status(&owner(&shop())).expect("it is ours").addresses;
    world.apply(of("a", "10.0.0.1", false));
    world.apply(of("b", "10.0.0.2", false));
    assert_eq!(addresses(&world), [ip("10.0.0.1"), ip("10.0.0.2")]);
    world.apply(of("a", "10.0.0.1", true));
    assert_eq!(addresses(&world), [ip("10.0.0.2")]);
    world.apply(of("b", "10.0.0.2", true));
    assert_eq!(addresses(&world), [ip("10.0.0.1"), ip("10.0.0.2")], "nobody could take over");
    world.apply(of("a", "10.0.0.1", false));
    assert_eq!(addresses(&world), [ip("10.0.0.1")]);
}

#[test]
fn a_host_opens_nothing_before_it_knows_whether_it_drains() {
    let roles = Roles { allocate: false, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config::default()));
    let told = [pool(PUBLIC), put(&shop()), host(&["10.0.0.5"], &[])];
    let (hosts, others): (Vec<Change>, Vec<Change>) =
        synced().into_iter().partition(|it| matches!(it, Change::Synced(Kind::LoadBalancerHost)));
    for change in told.into_iter().chain(others) {
        world.apply(change);
    }
    assert!(!hosts.is_empty() && !world.is_settled());
    world.apply(Change::Drains(true));
    for change in hosts {
        world.apply(change);
    }
    assert!(world.is_settled());
    match world.desire(&unit(&owner(&shop()))) {
        Desired::LoadBalancer(it) => assert!(it.listeners.is_empty()),
        other => panic!("no load balancer but {other:?}"),
    }
}
