//! Several processes with one plan: who leads, who follows, and hosts that have what is written.

use std::sync::Arc;

use seaway_model::{
    Address, AddressState, Change, Config, Desired, Dirt, Fact, Kind, ListenerId, Owner, Time, Unit,
    fact::{FactRef, Service, TargetPort},
    load_balancer::Bind,
    unit::{LbKey, Place},
};
use seaway_plan::{Demand, Placement, Roles, World, dry_run};
use seaway_testkit::facts::{HOST, host, ip, owner, pool, put, service, shop, synced};

struct OnHost;

impl Placement for OnHost {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        vec![unit(&demand.owner)]
    }
}

fn unit(owner: &Owner) -> Unit {
    Unit::LoadBalancer(Place::Host { name: HOST.into(), driver: "native".into() }, LbKey::Of(owner.clone()))
}

/// A host that gives nothing out.
fn on_host(changes: Vec<Change>) -> World {
    let roles = Roles { allocate: false, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config::default()));
    dry_run(&mut world, changes.into_iter().chain(synced()));
    world
}

/// A controller, which serves nothing.
fn controller(changes: Vec<Change>) -> World {
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(Config::default()));
    for change in changes.into_iter().chain(synced()) {
        world.apply(change);
    }
    world
}

fn written(at: &str, owners: &[&Service], state: AddressState, version: u64) -> Change {
    Change::Put(Fact::Address(Arc::new(Address {
        ip: ip(at),
        pool: "public".into(),
        sharing: None,
        owners: owners.iter().map(|it| owner(it)).collect(),
        plan_version: seaway_model::address::PLAN_VERSION,
        state,
        version,
    })))
}

fn held(at: &str, owners: &[&Service]) -> Change {
    written(at, owners, AddressState::Held, 0)
}

fn served(world: &World, service: &Service) -> (Vec<Bind>, Vec<ListenerId>) {
    match world.desire(&unit(&owner(service))) {
        Desired::LoadBalancer(it) => (it.binds.clone(), it.listeners.keys().copied().collect()),
        other => panic!("no load balancer but {other:?}"),
    }
}

fn present(world: &World) -> Vec<String> {
    match world.desire(&Unit::Presence(HOST.into())) {
        Desired::Presence(present) => present.keys().map(ToString::to_string).collect(),
        other => panic!("not present but {other:?}"),
    }
}

const PUBLIC: (&str, &str) = ("192.0.2.10", "192.0.2.19");

#[test]
fn a_host_has_the_addresses_that_are_written_and_gives_none() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&["10.0.0.5"], &[])]);
    assert_eq!(served(&world, &shop()).0, [], "nothing is written yet");

    let dirt = world.apply(held("192.0.2.17", &[&shop()]));
    assert_eq!(served(&world, &shop()).0, [Bind::Ledger(ip("192.0.2.17"))]);
    assert_eq!(present(&world), ["192.0.2.17"]);
    assert!(dirt.contains(&Dirt::Unit(unit(&owner(&shop())))), "{dirt:?}");
    let writes = |it: &&Dirt| matches!(it.unit(), Unit::Address(_) | Unit::Status(_));
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
fn whoever_begins_to_lead_goes_on_with_what_was_written() {
    let other = service("other", &[("", 80, TargetPort::Number(80))]);
    let mut world = controller(vec![
        pool(PUBLIC),
        put(&shop()),
        put(&other),
        held("192.0.2.17", &[&shop()]),
        held("192.0.2.18", &[&service("gone", &[])]),
    ]);
    assert_eq!(world.desire(&Unit::Address(ip("192.0.2.10"))), Desired::Absent, "only who leads claims");

    let dirt = world.apply(Change::Leads(true));
    let claims: Vec<&Unit> =
        dirt.iter().map(Dirt::unit).filter(|it| matches!(it, Unit::Address(_))).collect();
    assert_eq!(claims, [&Unit::Address(ip("192.0.2.10")), &Unit::Address(ip("192.0.2.18"))]);
    assert!(dirt.contains(&Dirt::Unit(Unit::Status(owner(&shop())))));
    let Desired::Address(kept) = world.desire(&Unit::Address(ip("192.0.2.17"))) else { panic!("it stays") };
    assert_eq!(kept.owners, [owner(&shop())]);

    // Deposed: what the next leader writes is so.
    assert_eq!(world.apply(Change::Leads(false)), []);
    assert_eq!(world.apply(held("192.0.2.12", &[&other])), []);
    let dirt = world.apply(Change::Leads(true));
    assert!(!dirt.contains(&Dirt::Unit(Unit::Address(ip("192.0.2.12")))), "{dirt:?}");
    let Desired::Address(taken) = world.desire(&Unit::Address(ip("192.0.2.12"))) else { panic!("it stays") };
    assert_eq!(taken.owners, [owner(&other)]);
}

#[test]
fn an_address_that_somebody_else_rewrote_is_written_again_by_who_leads() {
    let mut world = controller(vec![pool(PUBLIC), put(&shop()), held("192.0.2.17", &[&shop()])]);
    world.apply(Change::Leads(true));
    let dirt = world.apply(held("192.0.2.17", &[]));
    assert!(dirt.contains(&Dirt::Unit(Unit::Address(ip("192.0.2.17")))), "{dirt:?}");
}

#[test]
fn nothing_is_given_out_before_pools_and_hosts_were_told() {
    for late in [Kind::AddressPool, Kind::IPAddressPool, Kind::LoadBalancerHost] {
        let mut world =
            World::new(Roles { allocate: true, host: None }, Vec::new(), Arc::new(Config::default()));
        for change in synced().into_iter().filter(|it| !matches!(it, Change::Synced(kind) if *kind == late)) {
            world.apply(change);
        }
        assert!(!world.is_settled(), "{late:?}");
        world.apply(Change::Synced(late));
        assert!(world.is_settled(), "{late:?}");
    }
}
