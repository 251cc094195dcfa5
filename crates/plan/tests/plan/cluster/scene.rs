//! What these tests begin with: hosts and controllers, what is written, and what hosts say.

use std::sync::Arc;

use seaway_model::{
    Address, AddressState, Change, Config, Desired, Fact, Owner, Unit,
    fact::{HostReport, Meta, Node, Service},
    unit::{LbKey, Place},
};
use seaway_plan::{Demand, Placement, Roles, World, dry_run};
use seaway_testkit::facts::{HOST, ip, owner, synced};

pub(crate) const PUBLIC: (&str, &str) = ("192.0.2.10", "192.0.2.19");

pub(crate) struct OnHost;

impl Placement for OnHost {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        vec![unit(&demand.owner)]
    }
}

pub(crate) fn unit(owner: &Owner) -> Unit {
    Unit::LoadBalancer(Place::Host { name: HOST.into(), driver: "native".into() }, LbKey::Of(owner.clone()))
}

/// A host that gives nothing out.
pub(crate) fn on_host(changes: Vec<Change>) -> World {
    on_host_of(Config::default(), changes)
}

pub(crate) fn on_host_of(config: Config, changes: Vec<Change>) -> World {
    let roles = Roles { allocate: false, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(config));
    dry_run(&mut world, changes.into_iter().chain(synced()));
    world
}

/// A controller, which serves nothing.
pub(crate) fn controller(changes: Vec<Change>) -> World {
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(Config::default()));
    for change in changes.into_iter().chain(synced()) {
        world.apply(change);
    }
    world
}

pub(crate) fn written(at: &str, owners: &[&Service], state: AddressState, version: u64) -> Change {
    Change::Put(Fact::Address(Arc::new(Address {
        ip: ip(at),
        pool: "public".into(),
        sharing: None,
        owners: owners.iter().map(|it| owner(it)).collect(),
        plan_version: seaway_model::address::PLAN_VERSION,
        ends: None,
        conflicts: Vec::new(),
        state,
        version,
    })))
}

pub(crate) fn held(at: &str, owners: &[&Service]) -> Change {
    written(at, owners, AddressState::Held, 0)
}

/// What another host says.
pub(crate) fn heard(report: HostReport) -> Change {
    Change::Put(Fact::Host(Arc::new(report)))
}

pub(crate) fn applied(name: &str, applied: u64) -> HostReport {
    HostReport { host: name.into(), applied, ..HostReport::default() }
}

pub(crate) fn present(world: &World) -> Vec<String> {
    match world.desire(&Unit::HostAddresses(HOST.into())) {
        Desired::HostAddresses(present) => present.addresses.keys().map(ToString::to_string).collect(),
        other => panic!("not present but {other:?}"),
    }
}

/// Ready, with labels that say nothing more.
pub(crate) fn node(name: &str, at: &str, labels: &[&str]) -> Change {
    let labels = labels.iter().map(|it| ((*it).into(), "".into())).collect();
    Change::Put(Fact::Node(Arc::new(Node {
        meta: Meta { name: name.into(), labels, ..Meta::default() },
        addresses: vec![ip(at)],
        ready: true,
        ..Node::default()
    })))
}
