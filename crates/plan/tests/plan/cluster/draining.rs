//! A host that is to serve nobody new.

use std::{net::IpAddr, sync::Arc};

use seaway_model::{
    AddressState, Change, Config, Desired, Fact, Kind, WorkItem,
    config::{AddressPoolRules, MemberRules, Tenants},
    fact::{AddressPool, HostReport},
    load_balancer::Bind,
};
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{HOST, endpoint, host, ip, owner, pool, put, put_slice, shop, slice, synced};

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

    let dirt = world.apply(Change::HostDrains(true));
    assert_eq!(dirt, [WorkItem::Unit(unit(&owner(&shop())))]);
    let (Desired::LoadBalancer(before), Desired::LoadBalancer(drained)) =
        (before, world.desire(&unit(&owner(&shop()))))
    else {
        panic!("it is not a load balancer any more")
    };
    assert!(!before.listeners.is_empty() && drained.listeners.is_empty());
    assert_eq!((&drained.pools, &drained.binds), (&before.pools, &before.binds));
    assert_eq!(present(&world), ["192.0.2.17"]);
    let said = world.said().expect("a host");
    assert_eq!((said.applied, said.not_served), (5, vec![]), "one word says it for all");
    assert_eq!(world.apply(Change::HostDrains(true)), []);

    assert_eq!(world.apply(Change::HostDrains(false)), [WorkItem::Unit(unit(&owner(&shop())))]);
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
    world.apply(Change::HostDrains(true));
    for change in hosts {
        world.apply(change);
    }
    assert!(world.is_settled());
    match world.desire(&unit(&owner(&shop()))) {
        Desired::LoadBalancer(it) => assert!(it.listeners.is_empty()),
        other => panic!("no load balancer but {other:?}"),
    }
}

/// It is no Node, and its own process publishes nothing that people did not write down either.
#[test]
fn a_host_beside_the_nodes_serves_at_its_own_addresses_once_people_wrote_them_down() {
    let roles = Roles { allocate: false, host: Some(HOST.into()) };
    let members = MemberRules { machines: false, names: false };
    let tenants = Tenants { members, ..Tenants::default() };
    let config = Config { pools: AddressPoolRules::CLUSTER, tenants, ..Config::default() };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(config));
    let Change::Put(Fact::AddressPool(public)) = pool(PUBLIC) else { unreachable!() };
    let of_hosts = AddressPool { hosts: true, ranges: Vec::new(), ..AddressPool::clone(&public) };
    let on_bridge = put_slice(&slice("shop", ("", 80), vec![endpoint("172.17.0.1"), endpoint("10.0.0.1")]));
    let told = [
        Change::Put(Fact::AddressPool(Arc::new(of_hosts))),
        put(&shop()),
        on_bridge,
        host(&["192.0.2.7", "172.17.0.1"], &[]),
    ];
    for change in told.into_iter().chain(synced()).chain([Change::Leads(false)]) {
        world.apply(change);
    }
    let shop = shop();
    let binds = |world: &World| match world.desire(&unit(&owner(&shop))) {
        Desired::LoadBalancer(it) => it.binds.iter().filter_map(Bind::ip).collect(),
        _ => Vec::new(),
    };
    assert_eq!(binds(&world), Vec::<IpAddr>::new());
    world.apply(Change::DeclaredAddresses(Some([ip("192.0.2.7")].into())));
    assert_eq!(binds(&world), [ip("192.0.2.7")]);
    let Desired::LoadBalancer(it) = world.desire(&unit(&owner(&shop))) else { panic!("it is served") };
    let members: Vec<IpAddr> = it.pools.values().flat_map(|it| &it.members).map(|it| it.at.ip()).collect();
    assert_eq!(members, [ip("10.0.0.1")], "its bridge is its own, whatever is published");
    // What is there stays, as with any host that nobody wrote anything down of.
    world.apply(Change::DeclaredAddresses(None));
    assert_eq!(binds(&world), [ip("192.0.2.7")]);
}
