//! What Nodes let in for load balancers of a cloud: one Unit for all of them.

use std::{collections::BTreeSet, sync::Arc};

use seaway_model::{
    Change, Desired, Fact, L4, NodeSecurityGroup, ObjectRef, Outcome, Unit, WorkItem,
    config::CloudDefaults,
    fact::{FactRef, FinalizerOwner, Service, ServiceKind},
    group::SourceNetwork,
    load_balancer::Family,
    outcome::UnitState,
};
use seaway_plan::World;
use seaway_testkit::facts::{owner, put};

use super::clouds::{clouded, group, node, planned, second, unit, usual, world};

fn opened() -> CloudDefaults {
    CloudDefaults { groups: true, ..usual() }
}

fn desired(world: &World) -> Arc<NodeSecurityGroup> {
    match world.desire(&group()) {
        Desired::SecurityGroup(it) => it,
        other => panic!("{other:?}"),
    }
}

fn another(name: &str, node_port: u16) -> Service {
    let mut service = clouded(&[]);
    service.meta.name = name.into();
    service.meta.uid = name.into();
    service.ports[0].node_port = Some(node_port);
    service
}

fn groups(dirt: &[WorkItem]) -> usize {
    dirt.iter().filter(|it| matches!(it.unit(), Unit::SecurityGroup { .. })).count()
}

#[test]
fn all_services_open_nodes_together_and_the_last_one_closes_them() {
    let (mut shop, mail) =
        (clouded(&[("loadbalancer.openstack.org/member-subnet-id", "m")]), another("mail", 30_025));
    shop.local_only = true;
    shop.health_check_node_port = Some(31_000);
    let mut world = world(opened(), vec![put(&shop), put(&mail), node("one", "10.0.0.1")]);
    let it = desired(&world);
    assert_eq!(
        it.openings.keys().cloned().collect::<BTreeSet<_>>(),
        BTreeSet::from([owner(&shop), owner(&mail)])
    );
    let of_shop = &it.openings[&owner(&shop)];
    assert_eq!((&of_shop.ports[..], of_shop.health), (&[(L4::Tcp, 30_080)][..], Some(31_000)));
    assert_eq!(of_shop.from, SourceNetwork::Subnet("m".into()));
    assert_eq!(it.openings[&owner(&mail)].from, SourceNetwork::Network("usual".into()));
    assert_eq!(it.nodes.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["one", "zero"]);
    assert!(planned(&world, &shop).options.cloud.as_ref().is_some_and(|it| it.opened));
    let gone = |service: &Service| {
        Change::Gone(FactRef::Object(ObjectRef::new(
            seaway_model::Kind::Service,
            "default",
            service.meta.name.clone(),
        )))
    };
    assert_eq!(groups(&world.apply(gone(&mail))), 1);
    assert_eq!(desired(&world).openings.len(), 1);
    assert_eq!(groups(&world.apply(gone(&shop))), 1);
    assert_eq!(world.desire(&group()), Desired::Absent);
}

#[test]
fn only_what_changes_who_is_let_in_is_news() {
    let shop = clouded(&[]);
    let mut world = world(opened(), vec![put(&shop), node("one", "10.0.0.1")]);
    assert_eq!(groups(&world.apply(put(&clouded(&[("seaway.dev/max-connections", "7")])))), 0);
    assert_eq!(groups(&world.apply(node("one", "10.0.0.1"))), 0, "a heartbeat");
    assert_eq!(groups(&world.apply(node("two", "10.0.0.2"))), 1);
    let Change::Put(Fact::Node(two)) = node("two", "10.0.0.2") else { unreachable!("as it is written") };
    let known = seaway_model::fact::Node { provider_id: Some("openstack:///2".into()), ..(*two).clone() };
    assert_eq!(
        groups(&world.apply(Change::Put(Fact::Node(Arc::new(known))))),
        1,
        "a Node says which machine it is"
    );
    assert_eq!(groups(&world.apply(put(&another("shop", 30_081)))), 1);
    assert_eq!(groups(&world.apply(Change::FoundInCloud(group()))), 0, "it is wanted");
}

/// A Service whose load balancer was released is still served by it, and by no group but ours until another controller has its own.
#[test]
fn node_ports_of_a_service_that_is_released_stay_open_while_others_use_the_group() {
    let (shop, mail) = (clouded(&[]), another("mail", 30_025));
    let mut world = world(opened(), vec![put(&shop), put(&mail), node("one", "10.0.0.1")]);
    assert!(desired(&world).kept.is_empty());
    let foreign = Service { class: Some("example.org/other".into()), ..mail.clone() };
    assert_eq!(groups(&world.apply(put(&foreign))), 1);
    let it = desired(&world);
    assert_eq!(it.openings.keys().cloned().collect::<Vec<_>>(), [owner(&shop)]);
    assert_eq!(it.kept, BTreeSet::from([(L4::Tcp, 30_025)]));
    for end in [
        Change::Gone(FactRef::Object(ObjectRef::new(seaway_model::Kind::Service, "default", "mail"))),
        put(&Service { leaving: true, ..foreign.clone() }),
        put(&Service { kind: ServiceKind::NodePort, ..foreign.clone() }),
    ] {
        assert_eq!(groups(&world.apply(put(&foreign))), 0);
        assert_eq!(desired(&world).kept.len(), 1);
        assert_eq!(groups(&world.apply(end)), 1, "its ports may be closed now");
        assert!(desired(&world).kept.is_empty());
    }
    // Its class goes with its type, as docs/from-occm-back.md says.
    let annotations = [("seaway.dev/released".into(), "true".into())].into();
    let meta = seaway_model::fact::Meta { annotations, ..foreign.meta.clone() };
    world.apply(put(&Service { kind: ServiceKind::NodePort, class: None, meta, ..foreign.clone() }));
    assert_eq!(desired(&world).kept.len(), 1);
    // It is ours again, and opens what it needs.
    world.apply(put(&foreign));
    assert_eq!(groups(&world.apply(put(&mail))), 1);
    assert!(desired(&world).kept.is_empty() && desired(&world).openings.len() == 2);
}

/// Nodes that nobody selects any more stay in the group as long as a Service that is not ours may have them as members.
#[test]
fn nodes_stay_in_the_group_beside_a_service_that_is_released() {
    let (shop, mail) = (clouded(&[]), another("mail", 30_025));
    let foreign = Service { class: Some("example.org/other".into()), ..mail };
    let excluded = |name: &str, ip: &str| {
        let Change::Put(Fact::Node(it)) = node(name, ip) else { unreachable!("as it is written") };
        let mut it = seaway_model::fact::Node::clone(&it);
        it.meta.labels.insert("node.kubernetes.io/exclude-from-external-load-balancers".into(), "".into());
        Change::Put(Fact::Node(Arc::new(it)))
    };
    let mut world = world(opened(), vec![put(&shop), excluded("two", "10.0.0.2")]);
    assert!(desired(&world).passed_over.is_empty());
    world.apply(put(&foreign));
    assert_eq!(desired(&world).passed_over, ["10.0.0.2".parse::<std::net::IpAddr>().expect("an address")]);
}

#[test]
fn nobody_is_let_in_where_that_is_not_asked_for_or_pods_are_the_members() {
    for (usual, annotations) in [(usual(), &[][..]), (opened(), &[("seaway.dev/members", "pods")])] {
        let shop = clouded(annotations);
        let mut world = world(usual, vec![put(&shop)]);
        assert_eq!(world.desire(&group()), Desired::Absent);
        assert!(!planned(&world, &shop).options.cloud.as_ref().is_some_and(|it| it.opened));
        assert_eq!(
            world.apply(Change::FoundInCloud(group())),
            [WorkItem::Unit(group())],
            "what is left of it goes"
        );
    }
}

#[test]
fn the_last_service_waits_until_the_group_is_gone_and_nobody_else_does() {
    let leaving =
        |service: &Service| Service { leaving: true, held: FinalizerOwner::ByUs, ..service.clone() };
    let hold = |world: &World, service: &Service| world.desire(&Unit::Finalizer(owner(service)));
    let seen_absent = |world: &mut World, unit: Unit| {
        let state = UnitState::Absent;
        let outcome = Outcome { unit, state, facts: vec![], problems: vec![], serving: vec![] };
        world.apply(Change::Outcome(outcome));
    };
    let absent = |world: &mut World, service: &Service| {
        seen_absent(world, unit(&owner(service)));
        seen_absent(world, second(&owner(service), Family::V6));
    };
    let held = |service: Service| Service { held: FinalizerOwner::ByUs, ..service };
    let (shop, mail) = (held(clouded(&[])), held(another("mail", 30_025)));
    let mut world = world(opened(), vec![put(&shop), put(&mail)]);
    world.apply(put(&leaving(&shop)));
    assert_eq!(hold(&world, &shop), Desired::Finalizer);
    absent(&mut world, &shop);
    assert_eq!(hold(&world, &shop), Desired::Absent, "the other one wants the group");
    world.apply(put(&leaving(&mail)));
    absent(&mut world, &mail);
    assert_eq!(hold(&world, &mail), Desired::Finalizer, "and now nobody does");
    // One that comes keeps the group.
    let late = held(another("late", 30_026));
    world.apply(put(&late));
    assert_eq!(hold(&world, &mail), Desired::Absent);
    world.apply(put(&leaving(&late)));
    absent(&mut world, &late);
    assert_eq!(hold(&world, &late), Desired::Finalizer);
    seen_absent(&mut world, group());
    assert_eq!(hold(&world, &late), Desired::Absent);
}

#[test]
fn rules_are_closed_for_what_services_were_seen_to_give_up_and_for_nothing_else() {
    let closes = |world: &World, port| world.asked_for(&group()).node_port(L4::Tcp, port);
    let started = |services: &[&Service]| world(opened(), services.iter().map(|it| put(it)).collect());
    let (shop, mail) = (clouded(&[]), another("mail", 30_025));
    let mut now = started(&[&shop, &mail]);
    assert!(!closes(&now, 30_080) && !closes(&now, 30_025), "who begins has seen nothing change");
    now.apply(put(&shop));
    now.apply(Change::Missing(FactRef::Object(owner(&mail).object())));
    assert!(
        !closes(&now, 30_080) && !closes(&now, 30_025),
        "a list that lacks a Service did not see its end"
    );
    type Edit = fn(&mut Service);
    let changes: [(&str, Edit); 5] = [
        ("another node port", |it| it.ports[0].node_port = Some(31_080)),
        ("no port", |it| it.ports.clear()),
        ("source ranges", |it| it.source_ranges = vec!["192.0.2.0/24".parse().expect("a network")]),
        ("no load balancer", |it| it.kind = seaway_model::fact::ServiceKind::ClusterIp),
        ("deleted", |it| it.leaving = true),
    ];
    for (what, change) in changes {
        let mut now = started(&[&shop, &mail]);
        let mut changed = shop.clone();
        change(&mut changed);
        now.apply(put(&changed));
        assert!(closes(&now, 30_080) && !closes(&now, 30_025), "{what}");
        now.apply(Change::Time(seaway_model::Time(3_700_000)));
        assert!(!closes(&now, 30_080), "{what}: an hour later it is as good as not seen");
    }
    let mut now = started(&[&shop, &mail]);
    now.apply(Change::Gone(FactRef::Object(owner(&mail).object())));
    assert!(closes(&now, 30_025) && !closes(&now, 30_080));
    // Who begins while one is deleted sees that as well.
    let leaving = Service { leaving: true, held: FinalizerOwner::ByUs, ..mail.clone() };
    assert!(closes(&started(&[&shop, &leaving]), 30_025));
    let no_balancer = Service { kind: seaway_model::fact::ServiceKind::NodePort, ..mail.clone() };
    assert!(!closes(&started(&[&shop, &no_balancer]), 30_025), "it never had one that we know of");
}

#[test]
fn only_a_change_of_what_a_service_asks_for_may_delete_anything_beside_ports() {
    let shop = clouded(&[]);
    type Edit = fn(&mut Service);
    let edits: [(&str, Edit, bool); 6] = [
        ("nothing", |_| (), false),
        ("a port", |it| it.ports[0].port = 81, false),
        ("our finalizer", |it| it.held = FinalizerOwner::ByUs, false),
        ("its status", |it| it.published = vec!["203.0.113.7".parse().expect("an address")], false),
        ("traffic policy", |it| it.local_only = true, true),
        ("an annotation", |it| drop(it.meta.annotations.insert("seaway.dev/x".into(), "y".into())), true),
    ];
    for (what, edit, expected) in edits {
        let mut world = world(opened(), vec![put(&shop)]);
        let mut changed = shop.clone();
        edit(&mut changed);
        world.apply(put(&changed));
        assert_eq!(world.asked_for(&unit(&owner(&shop))).others(), expected, "{what}");
    }
}

#[test]
fn the_group_may_be_deleted_if_the_end_of_its_last_service_was_seen() {
    let shop = clouded(&[]);
    let object = || FactRef::Object(owner(&shop).object());
    let mail = another("mail", 30_025);
    for (what, others, change, expected) in [
        ("it lives", None, put(&shop), false),
        ("it was deleted", None, Change::Gone(object()), true),
        ("a list lacks it", None, Change::Missing(object()), false),
        ("another one uses the group", Some(&mail), Change::Gone(object()), false),
    ] {
        let told = others.into_iter().map(put).chain([put(&shop)]).collect();
        let mut world = world(opened(), told);
        world.apply(change);
        assert_eq!(world.asked_for(&group()).others(), expected, "{what}");
    }
}
