//! Weights that an operator sets while the process runs: they change their members, and nothing else.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, MemberWeights, Name, Time, WeightOverride, WeightTarget, WorkItem,
    fact::TargetPort,
};
use seaway_plan::{Roles, World, dry_run};
use seaway_testkit::facts::{HOST, endpoint, host, owner, put, put_slice, service, slice, synced};

use crate::cluster::scene::{OnHost, unit};

fn world(services: &[&str]) -> World {
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config::default()));
    let ports = (1..).map(|it| 8_000 + it);
    let told = services.iter().zip(ports).flat_map(|(name, port)| {
        let members = vec![endpoint("10.0.0.1"), endpoint("10.0.0.2")];
        [
            put(&service(name, &[("", port, TargetPort::Number(80))])),
            put_slice(&slice(name, ("", 80), members)),
        ]
    });
    let told: Vec<Change> = told.collect();
    dry_run(&mut world, [host(&["192.0.2.5"], &[])].into_iter().chain(told).chain(synced()));
    world
}

fn members(world: &World, name: &str) -> Vec<(String, u32)> {
    match world.desire(&unit(&owner(&service(name, &[])))) {
        Desired::LoadBalancer(it) => {
            let members = it.pools.values().flat_map(|pool| &pool.members);
            members.map(|it| (it.at.to_string(), it.weight)).collect()
        }
        other => panic!("no load balancer but {other:?}"),
    }
}

fn weights(all: &[(Option<&str>, Option<&str>, u32)]) -> Change {
    let set = all.iter().map(|(service, member, weight)| WeightOverride {
        of: WeightTarget {
            service: service.map(|it| (Name::from("default"), Name::from(it))),
            member: member.map(|it| it.parse().expect("an address")),
        },
        weight: *weight,
        since: Time(1),
    });
    Change::Weights(Arc::new(MemberWeights(set.collect())))
}

fn of(one: u32, two: u32) -> Vec<(String, u32)> {
    vec![("10.0.0.1:80".into(), one), ("10.0.0.2:80".into(), two)]
}

#[test]
fn a_weight_changes_its_members_alone_and_the_folder_is_the_truth_again_without_it() {
    let mut world = world(&["web", "api"]);
    let pools = |dirt: &[WorkItem]| dirt.iter().filter(|it| matches!(it, WorkItem::Pool(..))).count();
    assert_eq!((members(&world, "web"), members(&world, "api")), (of(1, 1), of(1, 1)));

    let dirt = world.apply(weights(&[(None, Some("10.0.0.1:80"), 0)]));
    assert_eq!((members(&world, "web"), members(&world, "api")), (of(0, 1), of(0, 1)));
    assert_eq!(pools(&dirt), 2, "{dirt:?}");
    let whole = |it: &WorkItem| matches!(it, WorkItem::Unit(seaway_model::Unit::LoadBalancer(..)));
    assert!(!dirt.iter().any(whole), "listeners are not looked at: {dirt:?}");

    let dirt = world.apply(weights(&[(Some("web"), Some("10.0.0.1:80"), 5)]));
    assert_eq!((members(&world, "web"), members(&world, "api")), (of(5, 1), of(1, 1)));
    assert_eq!(pools(&dirt), 2, "{dirt:?}");

    let dirt = world.apply(weights(&[(Some("web"), Some("10.0.0.1:80"), 5), (Some("api"), None, 0)]));
    assert_eq!((members(&world, "web"), members(&world, "api")), (of(5, 1), of(0, 0)));
    assert_eq!(pools(&dirt), 1, "what stays is not looked at: {dirt:?}");

    // A changed folder does not take it back.
    world.apply(put_slice(&slice("api", ("", 80), vec![endpoint("10.0.0.3")])));
    assert_eq!(members(&world, "api"), [("10.0.0.3:80".to_owned(), 0)]);

    world.apply(weights(&[]));
    assert_eq!(members(&world, "web"), of(1, 1));
    assert_eq!(members(&world, "api"), [("10.0.0.3:80".to_owned(), 1)]);
    assert_eq!(world.apply(weights(&[(None, Some("10.9.9.9:80"), 0)])), [], "nobody has that member");
}
