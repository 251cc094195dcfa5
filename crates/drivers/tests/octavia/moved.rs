//! Members that stay at their address and change their port, as Nodes do whose Service has another node port.

use std::sync::Arc;

use seaway_engine::{Context, Driver};
use seaway_model::{Desired, LoadBalancer, load_balancer::HealthCheck};

use crate::scene::*;

const FEWER: &str = "set the 1 members of the pool of 80/TCP";
const NONE: &str = "set the 0 members of the pool of 80/TCP";
const TWO: &str = "set the 2 members of the pool of 80/TCP";
const THREE: &str = "set the 3 members of the pool of 80/TCP";

/// Members 1 and 2, at their first port or at another.
fn wish(scene: &Scene, moved: &[u8], all: &[u8], is_probed: bool) -> LoadBalancer {
    let mut wish = scene.wish(&[80], all);
    for pool in wish.pools.values_mut() {
        let pool = Arc::make_mut(pool);
        pool.health = is_probed.then(HealthCheck::default);
        for member in &mut pool.members {
            if moved.iter().any(|it| member.at.ip().to_string() == format!("10.0.0.{it}")) {
                member.at.set_port(31_000);
            }
        }
    }
    wish
}

/// The provider, whether members are probed, who changes the port, who is a member then, and what is written.
type Case = (&'static str, bool, &'static [u8], &'static [u8], &'static [&'static str]);

#[tokio::test]
async fn a_member_that_ovn_probes_is_removed_before_it_is_added_at_another_port() {
    let cases: [Case; 7] = [
        ("ovn", true, &[1, 2], &[1, 2], &[NONE, TWO]),
        ("ovn", true, &[1], &[1, 2], &[FEWER, TWO]),
        ("ovn", true, &[1], &[1, 2, 3], &[FEWER, THREE]),
        ("ovn", true, &[2], &[2], &[NONE, FEWER]),
        // No address comes again at another port.
        ("ovn", true, &[], &[1, 2, 3], &[THREE]),
        ("ovn", false, &[1, 2], &[1, 2], &[TWO]),
        ("amphora", true, &[1, 2], &[1, 2], &[TWO]),
    ];
    for (provider, is_probed, moved, all, steps) in cases {
        let scene = Scene::with(provider).await;
        scene.reach(&wish(&scene, &[], &[1, 2], is_probed)).await;
        let done = scene.reach(&wish(&scene, moved, all, is_probed)).await;
        assert_eq!(done, steps, "{provider}, probed: {is_probed}, {moved:?} of {all:?}");
    }
}

#[tokio::test]
async fn a_controller_that_starts_between_the_two_adds_the_members() {
    let mut scene = Scene::with("ovn").await;
    scene.reach(&wish(&scene, &[], &[1, 2], true)).await;
    let moved = wish(&scene, &[1, 2], &[1, 2], true);
    let desired = Desired::LoadBalancer(Arc::new(moved.clone()));
    let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = scene.driver.steps(&desired, &observed);
    scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap();
    scene.restarted();
    assert_eq!(scene.reach(&moved).await, [TWO]);
}
