//! Services that a cloud serves: what it is asked for, who its members are, and what their statuses say.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Fact, Kind, Name, ObjectRef, Outcome, Reason, Unit, WorkItem,
    announced::{AnnouncedReason, ConditionStatus},
    config::{
        CloudDefaults, CloudNetworks, FloatingSubnet, FrontDoor, OpenPolicy, OrphanPolicy,
        SharedLoadBalancerScope, Tenants,
    },
    fact::{Endpoint, FactRef, Meta, Node, Secret, Service},
    load_balancer::{Balance, Bind, CloudOptions, Family, LoadBalancer, Protocol},
    outcome::{ServingSocket, UnitState},
    unit::Place,
};
use seaway_plan::{Demand, Placement, Roles, World};
use seaway_testkit::facts::{endpoint, ip, owner, pool, put, put_slice, service, shop, slice, synced};

const CLASS: &str = "seaway.dev/somecloud";

pub(super) struct InCloud;

impl Placement for InCloud {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        let mut units: Vec<Unit> = demand.cloud.iter().map(|_| unit(&demand.owner)).collect();
        units.extend(demand.second_family().map(|it| second(&demand.owner, it)));
        units.extend(demand.is_opened().then(group));
        units
    }
}

pub(crate) fn unit(owner: &seaway_model::Owner) -> Unit {
    let place = Place::Cloud { name: "somecloud".into(), driver: "somecloud".into() };
    Unit::LoadBalancer(place, seaway_model::LbKey::Of(owner.clone()))
}

pub(crate) fn second(owner: &seaway_model::Owner, family: Family) -> Unit {
    let Unit::LoadBalancer(place, _) = unit(owner) else { panic!("it is one") };
    Unit::LoadBalancer(place, seaway_model::LbKey::Second(owner.clone(), family))
}

pub(crate) fn group() -> Unit {
    Unit::SecurityGroup { cloud: "somecloud".into(), class: CLASS.into() }
}

pub(crate) fn usual() -> CloudDefaults {
    let place = |network: &str, floating: &str| CloudNetworks {
        network: Some(network.into()),
        floating_network: Some(floating.into()),
        ..CloudNetworks::default()
    };
    CloudDefaults {
        place: place("usual", "usual-outside"),
        classes: [("gold".into(), place("golden", "golden-outside"))].into(),
        ..CloudDefaults::default()
    }
}

pub(crate) fn world(usual: CloudDefaults, changes: Vec<Change>) -> World {
    let config = Config { clouds: [(CLASS.into(), Arc::new(usual))].into(), ..Config::default() };
    let mut world =
        World::new(Roles { allocate: true, host: None }, vec![Arc::new(InCloud)], Arc::new(config));
    let pods = put_slice(&slice("shop", ("", 80), vec![endpoint("10.1.0.9")]));
    for change in [pods, node("zero", "10.0.0.9")].into_iter().chain(changes).chain(synced()) {
        world.apply(change);
    }
    world
}

pub(crate) fn node(name: &str, at: &str) -> Change {
    let meta = Meta { name: name.into(), ..Meta::default() };
    let node = Node { meta, addresses: vec![ip(at)], ready: true, ..Node::default() };
    Change::Put(Fact::Node(Arc::new(node)))
}

pub(crate) fn clouded(annotations: &[(&str, &str)]) -> Service {
    let mut shop = shop();
    shop.class = Some(CLASS.into());
    shop.ports[0].node_port = Some(30_080);
    shop.meta.annotations = annotations.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    shop
}

pub(crate) fn planned(world: &World, service: &Service) -> Arc<LoadBalancer> {
    match world.desire(&unit(&owner(service))) {
        Desired::LoadBalancer(it) => it,
        other => panic!("{other:?}"),
    }
}

fn asked(usual: CloudDefaults, annotations: &[(&str, &str)]) -> CloudOptions {
    let shop = clouded(annotations);
    planned(&world(usual, vec![put(&shop)]), &shop).options.cloud.clone().expect("a cloud is asked")
}

#[test]
fn which_load_balancers_may_be_joined_is_the_configurations_word_and_known_at_once() {
    let shop = clouded(&[]);
    let mut world = world(usual(), vec![put(&shop)]);
    let join = |world: &World| planned(world, &shop).options.cloud.as_ref().expect("a cloud is asked").join;
    assert_eq!(join(&world), SharedLoadBalancerScope::Namespace);
    let tenants = Tenants { join: SharedLoadBalancerScope::Any, ..Tenants::default() };
    let config = Config { clouds: [(CLASS.into(), Arc::new(usual()))].into(), tenants, ..Config::default() };
    let dirt = world.apply(Change::Config(Arc::new(config)));
    assert!(dirt.iter().any(|it| *it.unit() == unit(&owner(&shop))), "{dirt:?}");
    assert_eq!(join(&world), SharedLoadBalancerScope::Any);
}

#[test]
fn every_node_is_a_member_whether_or_not_it_has_pods() {
    let shop = clouded(&[]);
    let mut world = world(usual(), vec![put(&shop), node("one", "10.0.0.1"), node("two", "10.0.0.2")]);
    let members = |world: &World| -> Vec<String> {
        let it = planned(world, &shop);
        it.pools.values().flat_map(|it| &it.members).map(|it| it.at.to_string()).collect()
    };
    assert_eq!(members(&world), ["10.0.0.1:30080", "10.0.0.2:30080", "10.0.0.9:30080"]);
    let on = |at: &str| Endpoint { node: Some("one".into()), ..endpoint(at) };
    let dirt = world.apply(put_slice(&slice("shop", ("", 80), vec![on("10.1.0.1")])));
    assert!(!dirt.iter().any(|it| matches!(it.unit(), Unit::LoadBalancer(..))), "pods are no news: {dirt:?}");
    let dirt = world.apply(node("three", "10.0.0.3"));
    assert!(dirt.iter().any(|it| matches!(it, WorkItem::Pool(..))), "{dirt:?}");
    assert_eq!(members(&world).len(), 4);
    assert_eq!(planned(&world, &shop).binds, [Bind::Cloud(Family::V4)]);
}

#[test]
fn pods_are_members_where_they_are_asked_for() {
    let shop = clouded(&[("seaway.dev/members", "pods")]);
    let slice = put_slice(&slice("shop", ("", 80), vec![endpoint("10.1.0.1")]));
    let world = world(usual(), vec![put(&shop), node("one", "10.0.0.1"), slice]);
    let it = planned(&world, &shop);
    assert_eq!(it.pools.values().next().expect("a pool").members[0].at.to_string(), "10.1.0.1:80");
}

#[test]
fn what_is_said_in_several_places_is_asked_for_in_their_order() {
    let name = |it: &str| Some(Name::from(it));
    let gold = ("loadbalancer.openstack.org/class", "gold");
    let own = ("loadbalancer.openstack.org/network-id", "own");
    let internal = ("service.beta.kubernetes.io/openstack-internal-load-balancer", "true");
    let floating = ("loadbalancer.openstack.org/floating-network-id", "own-outside");
    assert_eq!(asked(usual(), &[]).network, name("usual"));
    assert_eq!(asked(usual(), &[own]).network, name("own"));
    assert_eq!(asked(usual(), &[own, gold]).network, name("golden"), "of what is outside the class decides");
    assert_eq!(asked(usual(), &[own, gold, internal]).network, name("own"), "of what is inside the Service");
    assert_eq!(asked(usual(), &[floating]).floating.network, name("own-outside"));
    assert_eq!(asked(usual(), &[floating, gold]).floating.network, name("golden-outside"));
    assert!(asked(CloudDefaults { internal: true, ..usual() }, &[("seaway.dev/internal", "false")]).internal);
    let port = asked(usual(), &[("loadbalancer.openstack.org/port-id", "p")]);
    assert_eq!((port.port, port.network), (name("p"), None));
    let by_id = asked(
        usual(),
        &[
            ("loadbalancer.openstack.org/floating-subnet-id", "it"),
            ("loadbalancer.openstack.org/floating-subnet", "public*"),
        ],
    );
    assert_eq!(by_id.floating.subnet, Some(FloatingSubnet::Id("it".into())));
}

#[test]
fn members_share_the_load_as_the_service_says_or_else_as_the_configuration_of_the_cloud_says() {
    let least = CloudDefaults { balance: Some(Balance::LeastConnections), ..usual() };
    for (usual, annotations, expected) in [
        (usual(), &[][..], Balance::RoundRobin),
        (least.clone(), &[], Balance::LeastConnections),
        (least.clone(), &[("loadbalancer.openstack.org/lb-method", "SOURCE_IP")], Balance::SourceHash),
        (least, &[("seaway.dev/balance", "round-robin")], Balance::RoundRobin),
    ] {
        let shop = clouded(annotations);
        let it = planned(&world(usual, vec![put(&shop)]), &shop);
        let balances: Vec<Balance> = it.pools.values().map(|it| it.balance).collect();
        assert_eq!(balances, [expected], "{annotations:?}");
    }
}

#[test]
fn the_words_of_the_other_controller_and_ours_mean_the_same() {
    for (theirs, ours, value) in [
        ("connection-limit", "max-connections", "7"),
        ("lb-method", "balance", "LEAST_CONNECTIONS"),
        ("proxy-protocol", "proxy-protocol", "true"),
        ("x-forwarded-for", "x-forwarded-for", "true"),
        ("timeout-client-data", "cloud-timeout-client", "1000"),
        ("enable-health-monitor", "cloud-monitor", "true"),
        ("keep-floatingip", "keep-floating-ip", "true"),
        ("flavor-id", "flavor", "f"),
        ("availability-zone", "availability-zone", "z"),
        ("member-subnet-id", "member-subnet", "m"),
    ] {
        let read = |name: &str| {
            let shop = clouded(&[(name, value)]);
            let world = world(usual(), vec![put(&shop)]);
            assert_eq!(world.problems(), [], "{name}");
            planned(&world, &shop)
        };
        let (theirs, ours) =
            (read(&format!("loadbalancer.openstack.org/{theirs}")), read(&format!("seaway.dev/{ours}")));
        assert_eq!(theirs, ours, "{value}");
        assert_ne!(*theirs, *planned(&world(usual(), vec![put(&clouded(&[]))]), &clouded(&[])));
    }
    let http = clouded(&[("loadbalancer.openstack.org/x-forwarded-for", "true")]);
    let it = planned(&world(usual(), vec![put(&http)]), &http);
    assert!(it.listeners.values().all(|it| it.protocol == Protocol::Http));
}

#[test]
fn its_address_is_what_the_cloud_gave_and_none_of_our_pools() {
    let mut shop = clouded(&[]);
    shop.published = vec![ip("203.0.113.9")];
    let mut world = world(usual(), vec![pool(("192.0.2.0", "192.0.2.15")), put(&shop)]);
    let status = |world: &World| world.status(&owner(&shop)).expect("it is ours");
    assert_eq!(status(&world).addresses, [ip("203.0.113.9")], "what was told before stays");
    assert!(!status(&world).ready);
    assert!(
        (0..16).all(|last| world.desire(&Unit::Address(ip(&format!("192.0.2.{last}")))) == Desired::Absent)
    );
    assert_eq!(world.desire(&Unit::Address(ip("203.0.113.9"))), Desired::Absent, "nor is it written down");
    let serving = vec![ServingSocket {
        ip: ip("203.0.113.10"),
        protocol: seaway_model::L4::Tcp,
        port: shop.ports[0].port,
    }];
    let outcome = Outcome {
        unit: unit(&owner(&shop)),
        state: UnitState::Done,
        facts: Vec::new(),
        problems: Vec::new(),
        serving,
    };
    let dirt = world.apply(Change::Outcome(outcome));
    assert!(dirt.contains(&WorkItem::Unit(Unit::Status(owner(&shop)))), "{dirt:?}");
    assert_eq!((status(&world).addresses, status(&world).ready), (vec![ip("203.0.113.10")], true));
    let announced = status(&world).announced.map(|it| (it.status, it.reason));
    assert_eq!(announced, Some((ConditionStatus::True, AnnouncedReason::Cloud)), "by the cloud");
}

#[test]
fn who_moves_to_a_cloud_gives_its_address_back() {
    let mut shop = clouded(&[]);
    shop.class = None;
    let mut world = world(usual(), vec![pool(("192.0.2.7", "192.0.2.7")), put(&shop)]);
    let held = |world: &World| matches!(world.desire(&Unit::Address(ip("192.0.2.7"))), Desired::Address(it) if !it.owners.is_empty());
    assert!(held(&world));
    let shop = clouded(&[]);
    world.apply(put(&shop));
    assert!(!held(&world));
    assert_eq!(planned(&world, &shop).binds, [Bind::Cloud(Family::V4)]);
}

#[test]
fn a_host_has_nothing_to_do_with_what_a_cloud_serves() {
    let config = Config { clouds: [(CLASS.into(), Arc::new(usual()))].into(), ..Config::default() };
    let roles = Roles { allocate: false, host: Some("one".into()) };
    let mut world = World::new(roles, vec![Arc::new(InCloud)], Arc::new(config));
    for change in [put(&clouded(&[]))].into_iter().chain(synced()) {
        world.apply(change);
    }
    assert!(world.status(&owner(&clouded(&[]))).is_none());
}

#[test]
fn what_cannot_be_is_told() {
    let reasons =
        |world: &World| -> Vec<Reason> { world.problems().into_iter().map(|it| it.reason).collect() };
    let classless = clouded(&[("loadbalancer.openstack.org/class", "silver")]);
    let told = world(usual(), vec![put(&classless)]);
    assert_eq!(reasons(&told), [Reason::BadAnnotation]);
    assert!(told.problems()[0].fix.contains("gold"), "{}", told.problems()[0].fix);
    let off = world(CloudDefaults { enabled: false, ..usual() }, vec![put(&clouded(&[]))]);
    assert_eq!(reasons(&off), [Reason::Unsupported]);
    let mut native = service("shop", &[("", 80, seaway_model::fact::TargetPort::Number(80))]);
    native.meta.annotations.insert("loadbalancer.openstack.org/flavor-id".into(), "x".into());
    let native = world(usual(), vec![pool(("192.0.2.0", "192.0.2.15")), put(&native)]);
    assert!(native.problems().iter().any(|it| it.message.contains("is for load balancers of a cloud")));
}

#[test]
fn only_who_leads_works_on_a_cloud_and_begins_with_a_look() {
    let config = Config { clouds: [(CLASS.into(), Arc::new(usual()))].into(), ..Config::default() };
    let mut world = World::new(Roles::default(), vec![Arc::new(InCloud)], Arc::new(config));
    let this = WorkItem::Unit(unit(&owner(&clouded(&[]))));
    let mut dirt: Vec<WorkItem> = Vec::new();
    for change in [put(&clouded(&[]))].into_iter().chain(synced()) {
        dirt.extend(world.apply(change));
    }
    assert!(!dirt.contains(&this), "{dirt:?}");
    assert!(world.apply(Change::Leads(true)).contains(&this));
    world.apply(Change::Leads(false));
    assert!(world.apply(Change::Leads(true)).contains(&this), "each time anew");
}

#[test]
fn what_is_found_of_a_service_that_is_gone_goes_where_that_is_asked_for_and_nothing_else_does() {
    let object = seaway_model::ObjectRef::new(seaway_model::Kind::Service, "default", "gone");
    let gone = unit(&seaway_model::Owner::Object { object, uid: "gone".into() });
    let shop = clouded(&[]);
    let there = unit(&owner(&shop));
    let clouds = [(CLASS.into(), Arc::new(usual()))].into();
    let config = Config { clouds, orphans: OrphanPolicy::Delete, ..Config::default() };
    let roles = Roles { allocate: true, host: None };
    let mut early = World::new(roles, vec![Arc::new(InCloud)], Arc::new(config));
    assert_eq!(early.apply(Change::FoundInCloud(gone.clone())), [], "who knows whether anybody wants it");
    let mut dirt = early.apply(put(&shop));
    synced().into_iter().for_each(|it| dirt.extend(early.apply(it)));
    assert!(dirt.contains(&WorkItem::Unit(gone.clone())), "{dirt:?}");
    assert_eq!(early.desire(&gone), Desired::Absent);
    assert_eq!(early.apply(Change::FoundInCloud(there)), [], "it was looked at when it was planned");
    assert_eq!(early.apply(Change::FoundInCloud(gone.clone())), [WorkItem::Unit(gone)]);
}

/// A cloud makes nothing of a listener whose certificate may come at any moment; and hears when it is known.
#[test]
fn a_secret_that_was_not_read_yet_is_awaited_and_nobody_is_told() {
    let secret = ObjectRef::new(Kind::Secret, "default", "shop-tls");
    let mut shop = clouded(&[]);
    let mut world = world(usual(), vec![put(&shop)]);
    // A controller shows no certificates itself.
    let front_door = FrontDoor { opens: OpenPolicy::Never, ..FrontDoor::default() };
    let clouds = [(CLASS.into(), Arc::new(usual()))].into();
    world.apply(Change::Config(Arc::new(Config { clouds, front_door, ..Config::default() })));
    world.apply(Change::NotWatched(Kind::Secret));
    shop.meta.annotations.insert("seaway.dev/tls".into(), "shop-tls".into());
    world.apply(put(&shop));
    let awaited = |world: &World| {
        let told = world.problems().iter().any(|it| it.reason == Reason::NoSuchSecret);
        (planned(world, &shop).awaited.iter().cloned().collect::<Vec<_>>(), told)
    };
    assert_eq!(awaited(&world), (vec![secret.clone()], false));
    world.apply(Change::Synced(Kind::Secret));
    assert_eq!(awaited(&world), (vec![secret.clone()], false));
    let dirt = world.apply(Change::Gone(FactRef::Object(secret.clone())));
    assert_eq!(awaited(&world), (vec![], true));
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&shop)))), "{dirt:?}");
    world.apply(Change::Put(Fact::Secret(Arc::new(Secret::withheld(secret.clone())))));
    assert_eq!(awaited(&world), (vec![secret], false), "it is there, and not read");
}

#[test]
fn who_waits_for_something_in_the_cloud_is_told_so_once_and_when_that_is_over() {
    let shop = clouded(&[]);
    let (its, status) = (unit(&owner(&shop)), WorkItem::Unit(Unit::Status(owner(&shop))));
    let mut world = world(usual(), vec![put(&shop)]);
    for (what, is_news) in [(None, false), (Some("a quota"), true), (Some("a quota"), false), (None, true)] {
        let dirt = world.apply(Change::PendingOn(its.clone(), what.map(Name::from)));
        assert_eq!(dirt, if is_news { vec![status.clone()] } else { vec![] }, "{what:?}");
        assert_eq!(world.status(&owner(&shop)).expect("it is ours").waits.as_deref(), what);
    }
}
