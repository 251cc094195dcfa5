//! Hosts that give nothing out: they have what is written, and say how far they are.

use std::{net::IpAddr, sync::Arc};

use seaway_model::{
    Address, AddressState, Change, Desired, Fact, L4, ListenerId, Name, Outcome, Problem, Reason, Time, Unit,
    WorkItem,
    fact::{Endpoint, FactRef, HostReport, HostStatus, Service, TargetPort},
    load_balancer::Bind,
    outcome::{ServingSocket, UnitState},
};
use seaway_plan::World;
use seaway_testkit::facts::{HOST, endpoint, host, ip, owner, pool, put, put_slice, service, shop, slice};

use super::scene::{PUBLIC, controller, heard, held, on_host, present, unit, written};

fn served(world: &World, service: &Service) -> (Vec<Bind>, Vec<ListenerId>) {
    match world.desire(&unit(&owner(service))) {
        Desired::LoadBalancer(it) => (it.binds.clone(), it.listeners.keys().copied().collect()),
        other => panic!("no load balancer but {other:?}"),
    }
}

#[test]
fn a_host_has_the_addresses_that_are_written_and_gives_none() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&["10.0.0.5"], &[])]);
    assert_eq!(served(&world, &shop()).0, [], "nothing is written yet");

    let dirt = world.apply(held("192.0.2.17", &[&shop()]));
    assert_eq!(served(&world, &shop()).0, [Bind::Ledger(ip("192.0.2.17"))]);
    assert_eq!(present(&world), ["192.0.2.17"]);
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&shop())))), "{dirt:?}");
    let writes = |it: &&WorkItem| matches!(it.unit(), Unit::Address(_) | Unit::Status(_));
    assert_eq!(dirt.iter().find(writes), None, "another writes");

    world.apply(held("192.0.2.18", &[&shop()]));
    world.apply(Change::Gone(FactRef::Address(ip("192.0.2.17"))));
    assert_eq!(served(&world, &shop()).0, [Bind::Ledger(ip("192.0.2.18"))]);
    world.apply(written("192.0.2.18", &[], AddressState::Releasing, 0));
    assert_eq!((served(&world, &shop()).0, present(&world)), (vec![], vec![]));
}

#[test]
fn a_host_serves_pools_of_hosts_without_anything_written() {
    let world = on_host(vec![put(&shop()), host(&["10.0.0.5"], &[])]);
    assert_eq!(served(&world, &shop()).0, [Bind::Host(ip("10.0.0.5"))]);
}

#[test]
fn services_that_share_an_address_have_their_ports_on_a_host_the_older_first() {
    let mut young =
        service("young", &[("a", 8080, TargetPort::Number(80)), ("b", 8081, TargetPort::Number(80))]);
    young.meta.created = Some(Time(5));
    let told =
        [pool(PUBLIC), held("192.0.2.17", &[&shop(), &young]), put(&shop()), put(&young), host(&[], &[])];
    for turn in 0..told.len() {
        let mut changes = told.to_vec();
        changes.rotate_left(turn);
        let mut world = on_host(changes);
        let ports =
            |world: &World, it: &Service| served(world, it).1.iter().map(|it| it.port).collect::<Vec<_>>();
        assert_eq!((ports(&world, &shop()), ports(&world, &young)), (vec![8080], vec![8081]));

        world.apply(held("192.0.2.17", &[&young]));
        assert_eq!((served(&world, &shop()).0, ports(&world, &young)), (vec![], vec![8080, 8081]));
    }
}

#[test]
fn a_host_says_how_far_it_is_and_only_exceptions() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&["10.0.0.5"], &[])]);
    world.apply(written("192.0.2.17", &[&shop()], AddressState::Held, 5));
    let here = |holds: &[&str], applied| {
        heard(HostReport {
            host: HOST.into(),
            addresses: vec![ip("10.0.0.5")],
            holds: holds.iter().map(|it| ip(it)).collect(),
            applied,
            ..HostReport::default()
        })
    };
    let told = |world: &World| world.said().expect("a host");
    assert_eq!(told(&world).applied, 1, "0 would say that it tells all it holds");
    world.apply(here(&["192.0.2.17"], 5));
    assert_eq!(told(&world).applied, 4, "it is present, and nobody answers there yet");

    let concluded = |serving: Vec<ServingSocket>, problems| {
        let unit = unit(&owner(&shop()));
        Change::Outcome(Outcome { unit, state: UnitState::Done, facts: vec![], problems, serving })
    };
    let taken = Problem::new(owner(&shop()).object(), Reason::PortInUse, "nginx listens there");
    world.apply(concluded(vec![], vec![(owner(&shop()), taken)]));
    let said = told(&world);
    assert_eq!((said.applied, said.not_served.len()), (5, 1));
    assert_eq!(
        (said.not_served[0].address, said.not_served[0].reason),
        (ip("192.0.2.17"), Reason::PortInUse)
    );

    world.apply(concluded(
        vec![ServingSocket { ip: ip("192.0.2.17"), protocol: L4::Tcp, port: 8080 }],
        vec![],
    ));
    let well = HostStatus { applied: 5, addresses: vec![ip("10.0.0.5")], ..HostStatus::default() };
    assert_eq!(told(&world), well);

    world.apply(written("192.0.2.17", &[], AddressState::Releasing, 7));
    world.apply(here(&["192.0.2.17"], 7));
    assert_eq!((told(&world).applied, told(&world).held), (7, vec![ip("192.0.2.17")]));
    world.apply(here(&[], 7));
    assert_eq!(told(&world), HostStatus { applied: 7, ..well });
}

#[test]
fn what_a_host_says_is_as_long_with_a_hundred_services_as_with_one() {
    let said = |count: u8| {
        let services: Vec<Service> = (0..count)
            .map(|it| service(&format!("shop-{it}"), &[("a", 8080, TargetPort::Number(80))]))
            .collect();
        let mut world = on_host(vec![pool(PUBLIC), host(&["10.0.0.5"], &[])]);
        let mut holds = std::collections::BTreeSet::new();
        for (service, last) in services.iter().zip(1..) {
            let at = format!("192.0.2.{last}");
            world.apply(put(service));
            world.apply(written(&at, &[service], AddressState::Held, 5));
            let serving = vec![ServingSocket { ip: ip(&at), protocol: L4::Tcp, port: 8080 }];
            let (unit, state) = (unit(&owner(service)), UnitState::Done);
            world.apply(Change::Outcome(Outcome { unit, state, facts: vec![], problems: vec![], serving }));
            holds.insert(ip(&at));
        }
        let (host, addresses) = (HOST.into(), vec![ip("10.0.0.5")]);
        world.apply(heard(HostReport { host, addresses, holds, applied: 5, ..HostReport::default() }));
        world.said().expect("a host")
    };
    let well = HostStatus { applied: 5, addresses: vec![ip("10.0.0.5")], ..HostStatus::default() };
    assert_eq!((said(1), said(100)), (well.clone(), well));
}

/// 0 is the first that is written.
fn numbered(at: usize) -> IpAddr {
    IpAddr::from((0xfd00 << 112 | at as u128).to_be_bytes())
}

#[test]
fn a_host_that_serves_none_of_thousands_of_addresses_is_believed_to_serve_none() {
    const ALL: usize = HostStatus::MAX_LISTED + 500;
    let shop = shop();
    let address =
        |at: usize| written(&numbered(at).to_string(), &[&shop], AddressState::Held, at as u64 + 10);
    let all = || (0..ALL).map(address);
    let here = HostReport { host: HOST.into(), applied: ALL as u64 + 10, ..HostReport::default() };
    let facts = [pool(PUBLIC), put(&shop)].into_iter();
    let mut world = on_host(facts.clone().chain(all()).chain([heard(here)]).collect());
    let taken = Problem::new(owner(&shop).object(), Reason::PortInUse, "nginx listens there");
    let (unit, problems) = (unit(&owner(&shop)), vec![(owner(&shop), taken)]);
    world.apply(Change::Outcome(Outcome {
        unit,
        state: UnitState::Done,
        facts: vec![],
        problems,
        serving: vec![],
    }));
    let said = world.said().expect("a host");
    assert_eq!(said.not_served.len(), HostStatus::MAX_LISTED);
    assert_eq!(said.not_served.len() + said.unlisted, ALL);

    let read = HostReport {
        host: HOST.into(),
        applied: said.applied,
        not_served: said.not_served.iter().map(|it| it.address).collect(),
        ..HostReport::default()
    };
    let who = |host: HostReport| {
        let reader = controller(facts.clone().chain(all()).chain([heard(host)]).collect());
        reader.who_serves(&owner(&shop))
    };
    assert!(who(read.clone()).is_empty());
    // As if the list alone were shorter.
    assert_eq!(who(HostReport { applied: ALL as u64 + 10, ..read }), [Name::from(HOST)]);
}

#[test]
fn a_host_goes_on_with_what_an_address_said_before_a_newer_plan() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&[], &[])]);
    world.apply(written("192.0.2.17", &[&shop()], AddressState::Held, 5));
    let newer = |change: Change| match change {
        Change::Put(Fact::Address(it)) => {
            Change::Put(Fact::Address(Arc::new(Address { plan_version: 99, ..Address::clone(&it) })))
        }
        other => other,
    };
    world.apply(newer(written("192.0.2.17", &[], AddressState::Releasing, 7)));
    world.apply(written("192.0.2.18", &[], AddressState::Held, 9));
    assert_eq!(served(&world, &shop()).0, [Bind::Ledger(ip("192.0.2.17"))]);
    let Desired::HostAddresses(present) = world.desire(&Unit::HostAddresses(HOST.into())) else {
        panic!("present")
    };
    assert_eq!(present.as_of, 6, "it does not say that it applied what it did not understand");
    let told = world.problems().into_iter().find(|it| it.reason == Reason::NewerPlan).expect("it is told");
    assert_eq!(told.object.name.as_str(), "192.0.2.17");

    world.apply(written("192.0.2.17", &[], AddressState::Releasing, 11));
    assert_eq!(served(&world, &shop()).0, []);
    assert!(world.problems().iter().all(|it| it.reason != Reason::NewerPlan));
}

#[test]
fn what_was_looked_up_before_the_last_change_is_not_believed_after_it() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop())]);
    world.apply(written("192.0.2.17", &[], AddressState::Releasing, 9));
    let at = |applied, holds: &[&str]| {
        let holds = holds.iter().map(|it| ip(it)).collect();
        heard(HostReport { host: HOST.into(), applied, holds, ..HostReport::default() })
    };
    world.apply(at(9, &[]));
    world.apply(at(8, &["192.0.2.17"]));
    let said = world.said().expect("a host");
    assert_eq!((said.applied, said.held), (9, vec![]));
}

/// 500 hosts do not write 500 times that they do not serve something.
#[test]
fn a_host_that_is_only_further_writes_nothing_while_nobody_waits_for_it() {
    let near = Service { local_only: true, ..service("near", &[("", 80, TargetPort::Number(80))]) };
    let elsewhere = Endpoint { node: Some("b".into()), ..endpoint("10.244.1.7") };
    let pods = put_slice(&slice("near", ("", 80), vec![elsewhere]));
    let mut world = on_host(vec![pool(PUBLIC), put(&near), pods, host(&["10.0.0.5"], &[])]);
    let applied = |applied| {
        let addresses = vec![ip("10.0.0.5")];
        heard(HostReport { host: HOST.into(), addresses, applied, ..HostReport::default() })
    };
    world.apply(applied(5));
    let said = world.said().expect("a host");
    assert_eq!(said.applied, 5);

    world.apply(written("192.0.2.18", &[&near], AddressState::Held, 6));
    assert_eq!(present(&world), [""; 0], "no pod of it is here");
    world.apply(applied(6));
    assert_eq!(world.said().map(|it| it.applied), Some(6));
    assert_eq!(world.said_after(Some(&said)), Some(said.clone()), "and nobody has to know");
    assert_eq!(world.said_after(None).map(|it| it.applied), Some(6), "at the first time all is said");
    // By 0 a host says that it tells all it holds: what is told in its stead is said.
    let all = HostStatus { applied: 0, ..said.clone() };
    assert_eq!(world.said_after(Some(&all)).map(|it| it.applied), Some(6));

    // Whoever gives it to another Service waits for all hosts.
    world.apply(written("192.0.2.18", &[], AddressState::Releasing, 7));
    world.apply(applied(7));
    assert_eq!(world.said_after(Some(&said)).map(|it| it.applied), Some(7));

    // What it serves is waited for.
    let shop = shop();
    world.apply(put(&shop));
    world.apply(written("192.0.2.17", &[&shop], AddressState::Held, 8));
    let said = world.said_after(Some(&said)).expect("a host");
    let holds = [ip("192.0.2.17")].into();
    let addresses = vec![ip("10.0.0.5")];
    let now = HostReport { host: HOST.into(), addresses, holds, applied: 8, ..HostReport::default() };
    world.apply(heard(now));
    let serving = vec![ServingSocket { ip: ip("192.0.2.17"), protocol: L4::Tcp, port: 8080 }];
    let unit = unit(&owner(&shop));
    let outcome = Outcome { unit, state: UnitState::Done, facts: vec![], problems: vec![], serving };
    world.apply(Change::Outcome(outcome));
    assert_eq!(world.said_after(Some(&said)).map(|it| it.applied), Some(8));
}
