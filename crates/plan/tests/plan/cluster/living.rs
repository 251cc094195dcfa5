//! What a cloud has for a Service that lives is never removed because of a setting.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Outcome, Owner, Reason, Unit, WorkItem,
    config::{AddressPoolRules, CloudDefaults, CloudNetworking, OrphanPolicy},
    fact::{FactRef, Families, FamilyPolicy, FinalizerOwner, Service, ServiceKind},
    load_balancer::Family,
    outcome::UnitState,
};
use seaway_plan::{GIVEN_AWAY, Roles, World};
use seaway_testkit::facts::{HOST, owner, put, synced};

use super::clouds::{InCloud, clouded, group, planned, second, unit};
use super::scene::OnHost;

const CLASS: &str = "seaway.dev/somecloud";

/// Without a class, as most are.
fn classless(held: FinalizerOwner) -> Service {
    Service { class: None, held, ..clouded(&[]) }
}

fn config(usual: CloudDefaults) -> Arc<Config> {
    Arc::new(Config { clouds: [(CLASS.into(), Arc::new(usual))].into(), ..Config::default() })
}

/// `defaultDriver: octavia`.
fn ours() -> CloudDefaults {
    CloudDefaults { classless: true, groups: true, ..CloudDefaults::default() }
}

/// A line of the configuration was lost.
fn nobodys() -> CloudDefaults {
    CloudDefaults { classless: false, ..ours() }
}

/// `defaultDriver: native`, with the same cloud.conf.
fn native() -> Arc<Config> {
    Arc::new(Config { classless: true, ..Config::clone(&config(nobodys())) })
}

/// `defaultDriver: none`.
fn nothing() -> Arc<Config> {
    Arc::new(Config { classless: false, ..Config::clone(&config(nobodys())) })
}

fn world(config: Arc<Config>, changes: Vec<Change>) -> World {
    let placements: Vec<Arc<dyn seaway_plan::Placement>> = vec![Arc::new(InCloud)];
    let mut world = World::new(Roles { allocate: true, host: None }, placements, config);
    for change in changes.into_iter().chain(synced()) {
        world.apply(change);
    }
    world
}

fn gone(service: &Service) -> Change {
    Change::Gone(FactRef::Object(owner(service).object()))
}

fn reasons(world: &World) -> Vec<Reason> {
    world.problems().iter().map(|it| it.reason).collect()
}

#[test]
fn a_default_that_is_lost_leaves_load_balancers_groups_finalizers_and_addresses_as_they_are() {
    let shop = Service {
        published: vec!["203.0.113.7".parse().expect("an address")],
        ..classless(FinalizerOwner::ByUs)
    };
    for after in [config(nobodys()), native()] {
        // While it runs, and by a restart.
        let mut running = world(config(ours()), vec![put(&shop)]);
        running.apply(Change::Config(after.clone()));
        for world in [running, world(after.clone(), vec![put(&shop)])] {
            let Desired::LoadBalancer(wish) = world.desire(&unit(&owner(&shop))) else {
                panic!("{:?}", world.desire(&unit(&owner(&shop))));
            };
            let outside = wish.options.cloud.as_ref().expect("a cloud has it");
            assert!(outside.paused && outside.released, "nothing of it is written");
            assert!(
                matches!(world.desire(&group()), Desired::SecurityGroup(_)),
                "it lets its traffic through"
            );
            assert_eq!(world.desire(&Unit::Finalizer(owner(&shop))), Desired::Finalizer);
            let status = world.status(&owner(&shop)).expect("it is told");
            assert_eq!(status.addresses, shop.published);
            let its = unit(&owner(&shop));
            assert_eq!(world.released().into_values().collect::<Vec<_>>(), [its], "it is listed");
            let problem = status.problems.iter().find(|it| it.reason == Reason::Released);
            assert!(
                problem.is_some_and(|it| it.fix.contains("kubectl seaway release")),
                "{:?}",
                status.problems
            );
        }
    }
}

#[test]
fn no_host_serves_it_beside_its_cloud() {
    let roles = Roles { allocate: false, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], native());
    let (shop, plain) = (
        classless(FinalizerOwner::ByUs),
        Service { held: FinalizerOwner::No, ..classless(FinalizerOwner::No) },
    );
    world.apply(put(&shop));
    for change in synced() {
        world.apply(change);
    }
    let here = super::scene::unit(&owner(&shop));
    assert_eq!(world.desire(&here), Desired::Absent);
    // Once it is released.
    world.apply(put(&plain));
    assert!(matches!(world.desire(&here), Desired::LoadBalancer(_)));
}

/// A load balancer that is left in the cloud serves on, also if hosts serve its Service now.
#[test]
fn what_is_left_in_a_cloud_keeps_its_node_ports_open_beside_others_that_use_the_group() {
    let shop = classless(FinalizerOwner::No);
    let mut mail = Service { class: Some(CLASS.into()), held: FinalizerOwner::ByUs, ..clouded(&[]) };
    (mail.meta.name, mail.meta.uid) = ("mail".into(), "mail".into());
    mail.ports[0].node_port = Some(30_025);
    let kept = |world: &World| match world.desire(&group()) {
        Desired::SecurityGroup(it) => it.kept.iter().map(|(_, port)| *port).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let placements: Vec<Arc<dyn seaway_plan::Placement>> = vec![Arc::new(InCloud), Arc::new(OnHost)];
    let mut world = World::new(Roles { allocate: true, host: None }, placements, native());
    for change in [put(&shop), put(&mail)].into_iter().chain(synced()) {
        world.apply(change);
    }
    assert_eq!(kept(&world), [30_080], "it is not known yet what the cloud has");
    let dirt = world.apply(Change::CloudInventory(vec![]));
    assert!(dirt.contains(&WorkItem::Unit(group())));
    assert_eq!(kept(&world), [0; 0]);
    world.apply(Change::FoundInCloud(unit(&owner(&shop))));
    assert_eq!(kept(&world), [30_080]);
    world.apply(gone(&shop));
    assert_eq!(kept(&world), [0; 0]);
    // Another process led meanwhile.
    world.apply(put(&shop));
    assert_eq!(kept(&world), [0; 0]);
    world.apply(Change::Leads(false));
    world.apply(Change::Leads(true));
    assert_eq!(kept(&world), [30_080], "it is not known any more what the cloud has");
}

#[test]
fn what_is_found_of_a_service_that_lives_stays_and_is_told() {
    // Another controller's finalizer: we took its load balancer over, and the default is gone.
    let shop = classless(FinalizerOwner::ByOthers);
    for config in [config(nobodys()), native()] {
        let mut world = world(config, vec![put(&shop)]);
        // Tags have room for the beginning of a name.
        let Owner::Object { object, uid } = owner(&shop) else { unreachable!("it is a Service") };
        let cut = Owner::Object { object: seaway_model::ObjectRef { name: "sh".into(), ..object }, uid };
        for unit in [unit(&owner(&shop)), unit(&cut), second(&owner(&shop), Family::V6), group()] {
            world.apply(Change::FoundInCloud(unit.clone()));
            assert_eq!(world.desire(&unit), Desired::Released, "{unit}");
        }
        assert!(reasons(&world).contains(&Reason::Released));
        let uid = &shop.meta.uid;
        let listed: Vec<String> = world.released().into_keys().map(|it| it.to_string()).collect();
        assert_eq!(listed, [uid.to_string(), format!("{uid}/IPv6")], "a cut name is the same load balancer");
        world.apply(gone(&shop));
        assert!(world.released().is_empty());
        assert!(!reasons(&world).contains(&Reason::Released));
        for unit in [unit(&owner(&shop)), unit(&cut), group()] {
            assert_eq!(world.desire(&unit), Desired::Absent, "{unit}: nobody uses it");
        }
    }
}

#[test]
fn what_was_ours_a_moment_ago_is_left_by_a_new_configuration_and_removed_with_its_service() {
    type Ends = fn(&Service) -> Change;
    let ends: [(&str, Ends); 3] = [
        ("deleted", gone),
        ("being deleted", |it| put(&Service { leaving: true, ..it.clone() })),
        ("no load balancer any more", |it| put(&Service { kind: ServiceKind::ClusterIp, ..it.clone() })),
    ];
    for held in [FinalizerOwner::ByUs, FinalizerOwner::ByOthers] {
        for (case, end) in ends {
            let shop = classless(held);
            let mut world = world(config(ours()), vec![put(&shop)]);
            world.apply(Change::Config(config(nobodys())));
            let it = world.desire(&unit(&owner(&shop)));
            assert!(it != Desired::Absent, "{held:?}");
            let dirt = world.apply(end(&shop));
            assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&shop)))), "{held:?}, {case}: {dirt:?}");
            assert!(world.desire(&unit(&owner(&shop))).is_absent(), "{held:?}, {case}");
        }
    }
}

#[test]
fn who_released_it_may_have_it_served_again() {
    let shop = classless(FinalizerOwner::ByOthers);
    let mut world = world(config(nobodys()), vec![put(&shop)]);
    world.apply(Change::FoundInCloud(unit(&owner(&shop))));
    world.apply(Change::Config(config(ours())));
    assert!(matches!(world.desire(&unit(&owner(&shop))), Desired::LoadBalancer(_)));
    assert!(!reasons(&world).contains(&Reason::Released));
    assert!(world.released().is_empty());
}

#[test]
fn who_is_released_keeps_the_addresses_that_were_published_until_another_writes_them() {
    let shop = classless(FinalizerOwner::ByUs);
    let mut world = world(nothing(), vec![put(&shop)]);
    let status = Unit::Status(owner(&shop));
    assert!(world.status(&owner(&shop)).is_some_and(|it| !it.left));
    let dirt = world.apply(put(&Service { held: FinalizerOwner::No, ..shop.clone() }));
    assert!(dirt.contains(&WorkItem::Unit(status.clone())), "its conditions are taken back: {dirt:?}");
    assert!(world.status(&owner(&shop)).is_some_and(|it| it.left && it.problems.is_empty()));
    assert_eq!(world.desire(&unit(&owner(&shop))), Desired::Released);
    world.apply(put(&Service { held: FinalizerOwner::No, kind: ServiceKind::ClusterIp, ..shop.clone() }));
    assert!(world.status(&owner(&shop)).is_none_or(|it| !it.left));
    // What no load balancer of ours serves was never ours to keep.
    let other = classless(FinalizerOwner::No);
    let world = self::world(nothing(), vec![put(&other)]);
    assert_eq!(world.desire(&status), Desired::Absent);
}

/// Its status is ours and its finalizer the cloud provider's controller's: no pool of ours has its address.
#[test]
fn what_was_adopted_in_a_cloud_keeps_its_address_when_native_becomes_the_default() {
    let in_cluster = Arc::new(Config { pools: AddressPoolRules::CLUSTER, ..Config::clone(&native()) });
    let adopted = Service {
        published: vec!["203.0.113.7".parse().expect("an address")],
        published_by_us: true,
        ..classless(FinalizerOwner::ByOthers)
    };
    let mut world = world(in_cluster.clone(), vec![put(&adopted)]);
    assert_eq!(world.status(&owner(&adopted)), None, "nothing is written over it");
    world.apply(Change::FoundInCloud(unit(&owner(&adopted))));
    assert!(world.status(&owner(&adopted)).is_some_and(|it| it.left), "its address stays published");
    // Without that finalizer it is one of our own data plane, whose address waits for a pool.
    let plain = Service { held: FinalizerOwner::No, ..adopted };
    let world = self::world(in_cluster, vec![put(&plain)]);
    assert!(world.status(&owner(&plain)).is_some_and(|it| !it.left));
}

#[test]
fn a_second_family_goes_when_its_service_says_so_and_not_because_of_the_configuration() {
    let both = Families { policy: FamilyPolicy::Prefer, first: Some(Family::V4), second: Some(Family::V6) };
    let shop = Service { families: both, ..classless(FinalizerOwner::ByUs) };
    let six = second(&owner(&shop), Family::V6);
    let mut world = world(config(ours()), vec![put(&shop)]);
    assert!(matches!(world.desire(&six), Desired::LoadBalancer(_)));
    let no_ipv6 = CloudDefaults {
        networking: CloudNetworking { no_ipv6: true, ..CloudNetworking::default() },
        ..ours()
    };
    world.apply(Change::Config(config(no_ipv6)));
    assert_eq!(world.desire(&six), Desired::Released);
    let single = Families { policy: FamilyPolicy::Single, first: Some(Family::V4), second: None };
    let dirt = world.apply(put(&Service { families: single, ..shop }));
    assert!(dirt.contains(&WorkItem::Unit(six.clone())), "{dirt:?}");
    assert_eq!(world.desire(&six), Desired::Absent);
    let outcome = Outcome {
        unit: six.clone(),
        state: UnitState::Absent,
        facts: vec![],
        problems: vec![],
        serving: vec![],
    };
    world.apply(Change::Outcome(outcome));
    assert!(!reasons(&world).contains(&Reason::Released));
}

/// The finalizer is that of the other controller, which nobody runs any more.
#[test]
fn who_was_adopted_and_is_deleted_without_a_default_driver_is_let_go_once_its_load_balancer_is_gone() {
    let gone = |unit: &Unit| {
        let (facts, problems, serving) = (Vec::new(), Vec::new(), Vec::new());
        Change::Outcome(Outcome { unit: unit.clone(), state: UnitState::Absent, facts, problems, serving })
    };
    for (known_before, config) in
        [(true, config(nobodys())), (false, config(nobodys())), (true, native()), (false, native())]
    {
        let shop = classless(FinalizerOwner::ByOthers);
        let its = unit(&owner(&shop));
        let mut world = world(config, vec![put(&shop)]);
        let listed = || [Change::CloudInventory(vec![its.clone()]), Change::FoundInCloud(its.clone())];
        let leaves = || put(&Service { leaving: true, ..shop.clone() });
        // What clouds have may be listed before its deletion, or after it.
        if known_before {
            listed().into_iter().for_each(|it| drop(world.apply(it)));
            assert_eq!(world.desire(&its), Desired::Released);
            world.apply(leaves());
        } else {
            world.apply(leaves());
            assert_ne!(
                world.desire(&Unit::Finalizer(owner(&shop))),
                Desired::Finalizer,
                "it is not known to be ours"
            );
            listed().into_iter().for_each(|it| drop(world.apply(it)));
        }
        assert!(world.desire(&its).is_absent());
        assert_eq!(
            world.desire(&Unit::Finalizer(owner(&shop))),
            Desired::Finalizer,
            "its load balancer is there"
        );
        let six = second(&owner(&shop), Family::V6);
        let mut dirt = Vec::new();
        for unit in [&its, &six, &group()] {
            dirt = world.apply(gone(unit));
        }
        assert!(dirt.contains(&WorkItem::Unit(Unit::Finalizer(owner(&shop)))), "{dirt:?}");
        assert_eq!(world.desire(&Unit::Finalizer(owner(&shop))), Desired::Absent);
    }
}

#[test]
fn what_another_controller_made_and_holds_is_left_to_it() {
    let shop = classless(FinalizerOwner::ByOthers);
    let mut world = world(config(nobodys()), vec![put(&shop)]);
    world.apply(Change::CloudInventory(Vec::new()));
    let dirt = world.apply(put(&Service { leaving: true, ..shop.clone() }));
    assert!(!dirt.contains(&WorkItem::Unit(Unit::Finalizer(owner(&shop)))), "{dirt:?}");
}

/// `kubectl seaway release` of a Service whose class cannot be changed.
#[test]
fn what_a_service_with_a_class_gave_away_is_left_as_it_is_and_stays_whatever_becomes_of_the_service() {
    type Becomes = fn(&Service) -> Change;
    let ends: [(&str, Becomes); 3] = [
        ("deleted", gone),
        ("being deleted, for another holds it", |it| put(&Service { leaving: true, ..it.clone() })),
        ("of another type, which has no class", |it| {
            put(&Service { kind: ServiceKind::NodePort, class: None, ..it.clone() })
        }),
    ];
    let away = |held, said: &str| Service {
        held,
        published: vec!["203.0.113.7".parse().expect("an address")],
        ..clouded(&[("seaway.dev/released", said), ("loadbalancer.openstack.org/load-balancer-id", "8c1f")])
    };
    for orphans in [OrphanPolicy::Report, OrphanPolicy::Delete] {
        let config = Arc::new(Config { orphans, ..Config::clone(&config(nobodys())) });
        for (case, end) in ends {
            let served = Service { held: FinalizerOwner::ByUs, ..clouded(&[]) };
            let mut world = world(config.clone(), vec![put(&served)]);
            let (its, hold) = (unit(&owner(&served)), Unit::Finalizer(owner(&served)));

            // It is left alone first, and held until nothing in the cloud is ours.
            world.apply(put(&away(FinalizerOwner::ByUs, "true")));
            let outside = || planned(&world, &served).options.cloud.clone().expect("a cloud has it");
            assert!(outside().paused && outside().released, "nothing of it is written");
            assert_eq!(world.desire(&hold), Desired::Finalizer);
            let told = world.status(&owner(&served)).expect("it is told").problems;
            let told = told.iter().find(|it| it.reason == Reason::Released).expect("it is released");
            assert!(
                told.message.contains(GIVEN_AWAY) && told.fix.contains("remove the annotation"),
                "{told:?}"
            );

            // Nobody holds it, and nobody does again; what Nodes let in for it stays.
            let mut free = away(FinalizerOwner::No, "true");
            world.apply(put(&free));
            assert_eq!(world.desire(&hold), Desired::Absent);
            assert!(planned(&world, &served).options.cloud.as_ref().is_some_and(|it| it.released));
            assert!(matches!(world.desire(&group()), Desired::SecurityGroup(_)));
            let status = world.status(&owner(&served)).expect("it is told");
            assert_eq!(status.addresses, free.published);
            world.apply(end(&free));
            assert_eq!(world.desire(&its), Desired::Released, "{case}, {orphans:?}");
            assert!(!world.saw_end_of(&its) && world.orphans().all(|it| *it != its), "{case}, {orphans:?}");

            // It is a load balancer again, and somebody wants it of us: from then on it is ours as any other.
            free.meta.annotations.clear();
            world.apply(put(&free));
            assert_eq!(world.desire(&hold), Desired::Finalizer);
            let held = Service { held: FinalizerOwner::ByUs, ..free };
            world.apply(put(&held));
            assert!(planned(&world, &served).options.cloud.as_ref().is_some_and(|it| !it.paused));
            world.apply(put(&Service { leaving: true, ..held.clone() }));
            assert!(world.desire(&its).is_absent() && world.saw_end_of(&its), "{case}, {orphans:?}");
        }
    }

    // Who is held still takes along what it has; and what is not understood, or without a class, gives nothing away.
    let held = away(FinalizerOwner::ByUs, "true");
    let mut world = world(config(nobodys()), vec![put(&held)]);
    world.apply(put(&Service { leaving: true, ..held.clone() }));
    assert!(world.desire(&unit(&owner(&held))).is_absent());
    for said in ["false", "sure"] {
        let it = away(FinalizerOwner::ByUs, said);
        let world = self::world(config(nobodys()), vec![put(&it)]);
        assert!(planned(&world, &it).options.cloud.as_ref().is_some_and(|it| !it.released), "{said}");
    }
    let plain = Service { class: None, ..away(FinalizerOwner::ByUs, "true") };
    let world = self::world(config(ours()), vec![put(&plain)]);
    assert!(planned(&world, &plain).options.cloud.as_ref().is_some_and(|it| !it.released));
}
