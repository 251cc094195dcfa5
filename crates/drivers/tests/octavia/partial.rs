//! What a provider cannot do is refused for what is new: what serves stays as it is, and its members are followed.

use std::sync::Arc;

use seaway_drivers::octavia::groups::Groups;
use seaway_engine::{Context, Driver, Failure, dry_run};
use seaway_model::{
    Desired, L4, LoadBalancer, NodeSecurityGroup, Reason, Unit,
    group::{NodeAccess, SourceNetwork},
    load_balancer::{Family, Protocol},
};
use seaway_testkit::conformance::comes_to_rest;

use crate::scene::*;

/// Only these may come to that port, which `ovn` cannot see to by itself.
fn guarded(mut wish: LoadBalancer, port: u16) -> LoadBalancer {
    let listener = wish.listeners.get_mut(&tcp(port)).unwrap();
    Arc::make_mut(listener).sources = vec!["192.0.2.0/24".parse().unwrap()];
    wish
}

fn http(mut wish: LoadBalancer) -> LoadBalancer {
    wish.listeners.values_mut().for_each(|it| Arc::make_mut(it).protocol = Protocol::Http);
    wish
}

fn by(mut wish: LoadBalancer, provider: &str) -> LoadBalancer {
    wish.options.cloud.as_mut().unwrap().provider = Some(provider.into());
    wish
}

/// The steps that it took, whatever is told meanwhile.
pub(crate) async fn reach(scene: &Scene, wish: &LoadBalancer) -> Vec<String> {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let mut done = Vec::new();
    for _ in 0..100 {
        let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
        let mut waits = observed.is_pending();
        for step in scene.driver.steps(&desired, &observed) {
            match scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await {
                Ok(()) => done.push(step.to_string()),
                Err(Failure::Wait { .. }) => {
                    waits = true;
                    break;
                }
                Err(error) => panic!("{step}: {error}"),
            }
        }
        if !waits && !observed.is_pending() {
            return done;
        }
        scene.pass(std::time::Duration::from_secs(2));
    }
    panic!("it never comes to rest")
}

#[tokio::test]
async fn source_ranges_that_ovn_cannot_keep_freeze_no_member() {
    let mut scene = Scene::with("ovn").await;
    reach(&scene, &scene.wish(&[80], &[1])).await;
    for restarts in [false, true] {
        if restarts {
            scene.restarted();
        }
        let members: &[u8] = if restarts { &[2, 3] } else { &[1, 2] };
        let wish = guarded(scene.wish(&[80], members), 80);
        assert_eq!(reach(&scene, &wish).await, ["set the 2 members of the pool of 80/TCP"]);
        assert_eq!(reach(&scene, &wish).await, [""; 0]);
        let told = scene.reach_telling(&wish).await;
        let refused: Vec<_> = told.iter().filter(|it| it.reason == Reason::Unsupported).collect();
        assert!(refused.len() == 1 && refused[0].message.contains("source ranges"), "{told:?}");
    }
}

#[tokio::test]
async fn one_refused_port_neither_stops_another_nor_is_made() {
    let scene = Scene::with("ovn").await;
    let wish = guarded(scene.wish(&[80, 443], &[1]), 443);
    reach(&scene, &wish).await;
    let all = scene.listeners().await;
    assert_eq!(all.iter().map(|it| it.protocol_port).collect::<Vec<_>>(), [80]);
    let told = scene.reach_telling(&wish).await;
    assert!(told.iter().any(|it| it.message.contains("443")), "{told:?}");
    // The rest is followed: one port more, another member.
    reach(&scene, &guarded(scene.wish(&[80, 443, 8080], &[1, 2]), 443)).await;
    assert_eq!(scene.listeners().await.len(), 2);
    // With nothing else to serve, nothing is begun.
    let scene = Scene::with("ovn").await;
    let desired = Desired::LoadBalancer(Arc::new(guarded(scene.wish(&[443], &[1]), 443)));
    let failed = scene.driver.observe(&Context::default(), &unit(), &desired).await.err();
    assert!(matches!(failed, Some(Failure::User(_))), "{failed:?}");
    assert!(scene.balancers().await.is_empty());
}

#[tokio::test]
async fn a_living_load_balancer_follows_the_provider_that_it_has() {
    let scene = Scene::set().await;
    reach(&scene, &http(scene.wish(&[80], &[1]))).await;
    // The file says another by now, which speaks no HTTP.
    let wish = by(http(scene.wish(&[80], &[1, 2])), "ovn");
    assert_eq!(reach(&scene, &wish).await, ["set the 2 members of the pool of 80/TCP"]);
    let told = scene.reach_telling(&wish).await;
    assert!(told.iter().all(|it| it.message.contains("requested: provider ovn")), "{told:?}");
}

#[tokio::test]
async fn without_any_node_members_stay_as_they_are() {
    let mut scene = Scene::set().await;
    let by_nodes = |mut wish: LoadBalancer| {
        wish.options.cloud.as_mut().unwrap().by_nodes = true;
        wish
    };
    scene.reach(&by_nodes(scene.wish(&[80, 443], &[1, 2]))).await;
    for restarts in [false, true] {
        if restarts {
            scene.restarted();
        }
        assert_eq!(scene.reach(&by_nodes(scene.wish(&[80, 443], &[]))).await, [""; 0]);
    }
    let less = scene.reach(&by_nodes(scene.wish(&[80], &[]))).await;
    assert_eq!(less.len(), 2, "a port that goes, goes: {less:?}");
    assert_eq!(scene.reach(&by_nodes(scene.wish(&[80], &[3]))).await.len(), 1);
    // Pods may all go.
    assert_eq!(scene.reach(&scene.wish(&[80], &[])).await.len(), 1);
}

/// What Nodes let in at that port, for a load balancer by one provider while another is asked for.
async fn let_in(there: &'static str, asked: &str, restarts: bool) -> (Vec<String>, Vec<String>) {
    let mut scene = Scene::with(there).await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let unit = Unit::SecurityGroup { cloud: "openstack".into(), class: "seaway.dev/octavia".into() };
    let desired = |provider: &str| {
        let openings = NodeAccess {
            ports: vec![(L4::Tcp, 30_080)],
            families: vec![Family::V4],
            provider: Some(provider.into()),
            from: SourceNetwork::Subnet(scene.subnet.as_str().into()),
            ..NodeAccess::default()
        };
        let openings = [(owner(), Arc::new(openings))].into();
        Desired::SecurityGroup(Arc::new(NodeSecurityGroup { openings, ..NodeSecurityGroup::default() }))
    };
    let (first, then) = (desired(there), desired(asked));
    let groups = Groups::new(scene.driver.clone());
    let made = comes_to_rest(&groups, &unit, &first, |time| scene.pass(time)).await;
    if restarts {
        scene.restarted();
    }
    let groups = Groups::new(scene.driver.clone());
    let changed = comes_to_rest(&groups, &unit, &then, |time| scene.pass(time)).await;
    (made.into_iter().filter(|it| it.contains("from")).collect(), changed)
}

#[tokio::test]
async fn nodes_are_opened_as_the_provider_needs_it_that_a_load_balancer_has() {
    for (there, asked, expected) in [
        ("ovn", "amphora", "allow 30080/TCP from 0.0.0.0/0 to Nodes"),
        ("amphora", "ovn", "allow 30080/TCP from 10.0.0.0/24 to Nodes"),
    ] {
        for restarts in [false, true] {
            let (made, changed) = let_in(there, asked, restarts).await;
            assert_eq!(made, [expected], "{there}");
            assert_eq!(changed, [""; 0], "{there}, then {asked} is asked for");
        }
    }
}

/// As `seaway plan --cloud` asks: nothing is applied.
async fn shown(scene: &Scene, wish: &LoadBalancer) -> (Vec<String>, Vec<String>) {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let shown = dry_run(&*scene.driver, &unit(), &desired).await.unwrap().unwrap();
    let steps = shown.steps.iter().map(ToString::to_string).collect();
    (steps, shown.report.problems.into_iter().map(|(_, it)| it.message).collect())
}

#[tokio::test]
async fn what_is_shown_before_it_is_done_is_refused_by_the_provider_that_a_load_balancer_has() {
    let mut scene = Scene::set().await;
    reach(&scene, &http(scene.wish(&[80], &[1]))).await;
    scene.restarted();
    let wish = by(http(scene.wish(&[80], &[1, 2])), "ovn");
    let (steps, problems) = shown(&scene, &wish).await;
    assert_eq!(steps, ["set the 2 members of the pool of 80/TCP"]);
    assert!(problems.iter().all(|it| it.contains("requested: provider ovn")), "{problems:?}");
    assert_eq!(problems.len(), 1, "{problems:?}");
    // What does not live yet is refused by the provider that is asked for.
    let new = by(http(scene.wish_of("uid-2", &[80], &[1])), "ovn");
    let desired = Desired::LoadBalancer(Arc::new(new));
    let failed =
        scene.driver.observe(&Context::default(), &unit_of(&owner_of("uid-2")), &desired).await.err();
    let Some(Failure::User(refused)) = failed else { panic!("{failed:?}") };
    assert!(refused[0].1.message.contains("has no HTTP"), "{refused:?}");
}
