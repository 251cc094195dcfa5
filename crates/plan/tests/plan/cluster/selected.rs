//! Which Nodes are members of load balancers in clouds, how they are asked, and what is told of their addresses.

use std::sync::Arc;

use seaway_model::{
    Change, Fact, Outcome, Unit, WorkItem,
    config::{CloudDefaults, CloudNetworking},
    fact::{Endpoint, Families, FamilyPolicy, Service},
    load_balancer::{CheckKind, Family, HealthCheck},
    outcome::{PublishedAs, ServingSocket, UnitState},
};
use seaway_plan::World;
use seaway_testkit::facts::{endpoint, ip, owner, put, put_slice, slice, synced};

use super::clouds::{clouded, node, planned, unit, usual, world};

fn labelled(name: &str, at: &str, labels: &[(&str, &str)]) -> Change {
    let Change::Put(Fact::Node(it)) = node(name, at) else { unreachable!("as it is written") };
    let mut it = (*it).clone();
    it.meta.labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    Change::Put(Fact::Node(Arc::new(it)))
}

fn members(world: &World, service: &Service) -> Vec<(String, u32)> {
    let it = planned(world, service);
    let named = |it: &seaway_model::Member| (it.node.clone().unwrap_or_default().to_string(), it.weight);
    it.pools.values().flat_map(|it| &it.members).map(named).collect()
}

fn names(world: &World, service: &Service) -> Vec<String> {
    members(world, service).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn nodes_are_chosen_by_their_labels_whenever_these_change() {
    let select = |text: &str| clouded(&[("loadbalancer.openstack.org/node-selector", text)]);
    let nodes = || {
        vec![
            labelled("one", "10.0.0.1", &[("role", "worker"), ("ssd", "")]),
            labelled("two", "10.0.0.2", &[("role", "worker")]),
        ]
    };
    for (text, expected) in [
        ("role=worker", &["one", "two"][..]),
        ("role=worker,ssd", &["one"]),
        // Of any value, as the cloud provider's controller reads it.
        ("role=", &["one", "two"]),
        ("role=master", &[]),
        ("", &["one", "two", "zero"]),
    ] {
        let shop = select(text);
        let world = world(usual(), nodes().into_iter().chain([put(&shop)]).collect());
        assert_eq!(names(&world, &shop), expected, "{text}");
    }
    let workers = CloudDefaults { nodes: vec![("role".into(), Some("worker".into()))], ..usual() };
    let shop = clouded(&[]);
    let mut world = world(workers, nodes().into_iter().chain([put(&shop)]).collect());
    assert_eq!(names(&world, &shop), ["one", "two"]);
    let dirt = world.apply(labelled("one", "10.0.0.1", &[("role", "else")]));
    assert!(dirt.iter().any(|it| matches!(it, WorkItem::Pool(Unit::LoadBalancer(..), _))), "{dirt:?}");
    assert_eq!(names(&world, &shop), ["two"]);
    // A Service that says something itself is not bound by what is usual.
    let own = select("role=else");
    world.apply(put(&own));
    assert_eq!(names(&world, &own), ["one"]);
}

/// Addresses, by name, of members that only the file leaves out.
fn passed_over(world: &World, service: &Service) -> Vec<String> {
    let it = planned(world, service);
    let outside = it.options.cloud.as_ref().expect("a cloud serves it");
    outside.passed_over.values().flatten().map(|it| it.node.clone().unwrap_or_default().to_string()).collect()
}

#[test]
fn nodes_that_only_the_file_leaves_out_are_told_apart_from_those_that_changed() {
    let workers = || CloudDefaults { nodes: vec![("role".into(), Some("worker".into()))], ..usual() };
    let nodes = || vec![labelled("one", "10.0.0.1", &[("role", "worker")]), labelled("two", "10.0.0.2", &[])];
    let build = |shop: &Service| world(workers(), nodes().into_iter().chain([put(shop)]).collect());
    let shop = clouded(&[]);
    let mut it = build(&shop);
    assert_eq!(
        (names(&it, &shop), passed_over(&it, &shop)),
        (vec!["one".to_owned()], vec!["two".to_owned(), "zero".to_owned()])
    );
    // A Node that lost its label is left out for that.
    it.apply(labelled("one", "10.0.0.1", &[("role", "else")]));
    assert_eq!(
        (names(&it, &shop), passed_over(&it, &shop)),
        (Vec::new(), vec!["two".to_owned(), "zero".to_owned()])
    );
    it.apply(labelled("one", "10.0.0.1", &[("role", "worker")]));
    assert_eq!(names(&it, &shop), ["one"]);
    // So is one that the Service itself leaves out, and all where it asks for the file to be applied.
    for annotation in [
        ("loadbalancer.openstack.org/node-selector", "role=worker"),
        ("seaway.dev/apply-configuration", "true"),
    ] {
        let shop = clouded(&[annotation]);
        let it = build(&shop);
        assert_eq!(
            (names(&it, &shop), passed_over(&it, &shop)),
            (vec!["one".to_owned()], Vec::new()),
            "{annotation:?}"
        );
    }
}

#[test]
fn local_asks_every_node_whether_it_has_pods_unless_somebody_wants_no_probes() {
    let local = |annotations: &[(&str, &str)]| {
        let mut shop = clouded(annotations);
        shop.local_only = true;
        shop.health_check_node_port = Some(31_000);
        let on = |at: &str| Endpoint { node: Some("one".into()), ..endpoint(at) };
        let slice = put_slice(&slice("shop", ("", 80), vec![on("10.1.0.1"), on("10.1.0.2")]));
        let it = world(usual(), vec![node("one", "10.0.0.1"), slice, put(&shop)]);
        assert_eq!(members(&it, &shop), [("one".to_owned(), 1), ("zero".to_owned(), 0)]);
        let it = planned(&it, &shop);
        let pool = it.pools.values().next().expect("a pool").clone();
        (pool.health.clone(), it.options.cloud.as_ref().is_some_and(|it| it.monitored))
    };
    let healthz = |it: &HealthCheck| {
        it.port == Some(31_000)
            && it.kind
                == CheckKind::Http { path: "/healthz".into(), host: None, status: (200, 200), expect: None }
    };
    let (check, asked) = local(&[]);
    assert!(check.as_ref().is_some_and(healthz) && !asked, "{check:?}");
    let (check, asked) = local(&[
        ("loadbalancer.openstack.org/enable-health-monitor", "true"),
        ("loadbalancer.openstack.org/health-monitor-delay", "9"),
    ]);
    assert!(check.as_ref().is_some_and(healthz) && asked, "{check:?}");
    assert_eq!(check.map(|it| it.interval.as_secs()), Some(9));
    assert_eq!(local(&[("loadbalancer.openstack.org/enable-health-monitor", "false")]).0, None);
}

#[test]
fn an_address_in_a_cloud_is_told_as_its_service_wants_it() {
    let suffixed = || CloudDefaults { hostname: Some("nip.io".into()), ..usual() };
    let proxy = ("loadbalancer.openstack.org/proxy-protocol", "true");
    let named = ("loadbalancer.openstack.org/hostname", "shop.example");
    for (usual, annotations, expected) in [
        (usual(), &[][..], PublishedAs::Vip),
        (usual(), &[proxy], PublishedAs::Proxy),
        (suffixed(), &[], PublishedAs::Vip),
        (suffixed(), &[proxy], PublishedAs::Suffixed("nip.io".into())),
        (suffixed(), &[proxy, named], PublishedAs::Name("shop.example".into())),
        (usual(), &[named], PublishedAs::Name("shop.example".into())),
    ] {
        let shop = clouded(annotations);
        let world = world(usual, vec![put(&shop)]);
        assert_eq!(world.problems(), []);
        assert_eq!(world.status(&owner(&shop)).map(|it| it.shown), Some(expected), "{annotations:?}");
    }
}

#[test]
fn a_name_that_is_to_be_told_later_is_told() {
    let mut world = world(usual(), vec![put(&clouded(&[]))]);
    for annotations in [&[("loadbalancer.openstack.org/hostname", "shop.example")][..], &[]] {
        let shop = clouded(annotations);
        let dirt = world.apply(put(&shop));
        assert!(dirt.contains(&WorkItem::Unit(Unit::Status(owner(&shop)))), "{annotations:?}: {dirt:?}");
    }
}

fn dual(policy: FamilyPolicy) -> Service {
    let mut shop = clouded(&[]);
    shop.families = Families { policy, first: Some(Family::V6), second: Some(Family::V4) };
    shop
}

#[test]
fn what_is_asked_of_both_families_follows_from_the_policy() {
    let no_v6 = || CloudDefaults {
        networking: CloudNetworking { no_ipv6: true, ..CloudNetworking::default() },
        ..usual()
    };
    let (both, six) = ([Family::V6, Family::V4], [Family::V6]);
    for (usual, policy, families, needed) in [
        (usual(), FamilyPolicy::Single, &six[..], 1),
        (usual(), FamilyPolicy::Prefer, &both, 1),
        (usual(), FamilyPolicy::Require, &both, 2),
        (no_v6(), FamilyPolicy::Prefer, &both, 1),
    ] {
        let shop = dual(policy);
        let it = world(usual, vec![put(&shop)]);
        let it = planned(&it, &shop);
        let outside = it.options.cloud.clone().expect("a cloud is asked");
        assert_eq!((&outside.families[..], it.binds.len()), (families, needed), "{policy:?}");
        assert_eq!(outside.both, policy == FamilyPolicy::Require);
    }
    let mut four_first = dual(FamilyPolicy::Prefer);
    four_first.families =
        Families { first: Some(Family::V4), second: Some(Family::V6), ..four_first.families };
    for policy in [FamilyPolicy::Prefer, FamilyPolicy::Require, FamilyPolicy::Single] {
        let shop = Service { families: Families { policy, ..four_first.families }, ..four_first.clone() };
        let it = world(no_v6(), vec![put(&shop)]);
        let it = planned(&it, &shop);
        let outside = it.options.cloud.clone().expect("a cloud is asked");
        assert_eq!((&outside.families[..], it.binds.len()), (&[Family::V4][..], 1), "{policy:?}");
        // What is there with both keeps both, while its Service wants them.
        let withheld = Some(Family::V6).filter(|_| policy != FamilyPolicy::Single);
        assert_eq!((outside.withheld, outside.both), (withheld, false), "{policy:?}");
    }
}

#[test]
fn a_node_of_two_families_is_a_member_by_both_where_both_are_wanted() {
    let Change::Put(Fact::Node(it)) = node("one", "10.0.0.1") else { unreachable!("as it is written") };
    let mut it = (*it).clone();
    it.addresses.push(ip("fd00::1"));
    let one = Change::Put(Fact::Node(Arc::new(it)));
    for (policy, expected) in
        [(FamilyPolicy::Single, &["one"][..]), (FamilyPolicy::Prefer, &["one", "one", "zero"])]
    {
        let shop = dual(policy);
        let it = world(usual(), vec![one.clone(), put(&shop)]);
        let mut names = names(&it, &shop);
        names.sort();
        assert_eq!(names, expected, "{policy:?}");
    }
}

#[test]
fn the_first_family_is_told_first_and_more_than_is_needed_is_well() {
    let shop = dual(FamilyPolicy::Prefer);
    let mut world = world(usual(), vec![put(&shop)]);
    let serving = |at: &str| ServingSocket { ip: ip(at), protocol: seaway_model::L4::Tcp, port: 8080 };
    let tell = |world: &mut World, serving: Vec<ServingSocket>| {
        let (unit, state) = (unit(&owner(&shop)), UnitState::Done);
        let outcome = Outcome { unit, state, facts: Vec::new(), problems: Vec::new(), serving };
        world.apply(Change::Outcome(outcome));
        world.status(&owner(&shop)).expect("it is ours")
    };
    let both = tell(&mut world, vec![serving("192.0.2.1"), serving("fd00::9")]);
    assert_eq!((both.addresses, both.ready), (vec![ip("fd00::9"), ip("192.0.2.1")], true));
    assert!(tell(&mut world, vec![serving("fd00::9")]).ready, "the other is only preferred");
    let needy = dual(FamilyPolicy::Require);
    world.apply(put(&needy));
    assert!(!tell(&mut world, vec![serving("fd00::9")]).ready);
}

#[test]
fn where_nobody_says_where_it_is_it_is_beside_its_nodes() {
    let beside = |usual: CloudDefaults, annotations: &[(&str, &str)]| -> Vec<String> {
        let shop = clouded(annotations);
        let world = world(usual, vec![labelled("one", "10.0.0.1", &[("ssd", "")]), put(&shop)]);
        let outside = planned(&world, &shop).options.cloud.clone().expect("a cloud is asked");
        outside.beside.iter().map(|it| it.name.to_string()).collect()
    };
    assert_eq!(beside(usual(), &[]), [""; 0]);
    assert_eq!(beside(CloudDefaults::default(), &[]), ["one", "zero"]);
    assert_eq!(beside(CloudDefaults::default(), &[("seaway.dev/node-selector", "ssd")]), ["one"]);
    assert_eq!(beside(CloudDefaults::default(), &[("seaway.dev/subnet", "it")]), [""; 0]);
}

#[test]
fn labels_that_change_while_all_is_told_again_count_when_it_was_told() {
    let shop = clouded(&[("loadbalancer.openstack.org/node-selector", "role=worker")]);
    let nodes = [("one", "10.0.0.1"), ("two", "10.0.0.2")]
        .map(|(name, at)| labelled(name, at, &[("role", "worker")]));
    let mut world = world(usual(), nodes.into_iter().chain([put(&shop)]).collect());
    world.apply(Change::SourceRestored);
    world.apply(labelled("two", "10.0.0.2", &[("role", "else")]));
    assert_eq!(names(&world, &shop), ["one", "two"]);
    synced().into_iter().for_each(|it| _ = world.apply(it));
    assert_eq!(names(&world, &shop), ["one"]);
}
