//! Members of OVN that are replaced by others of the same addresses, as when a node port changes: its driver deletes what
//! monitors need, unless they are written once more.

use std::{sync::Arc, time::Duration};

use seaway_engine::Driver;
use seaway_model::{Desired, LoadBalancer, load_balancer::HealthCheck};
use seaway_testkit::cloud::Fault;

use crate::scene::*;

const ALL: &str = "PUT */pools/*/members";

fn wish(scene: &Scene, nodes: &[u8], monitored: bool) -> LoadBalancer {
    let mut wish = scene.wish(&[80, 443], nodes);
    for pool in wish.pools.values_mut().filter(|_| monitored) {
        Arc::make_mut(pool).health = Some(HealthCheck::default());
    }
    wish
}

/// Port 80 has another node port.
fn moved(mut wish: LoadBalancer) -> LoadBalancer {
    for pool in wish.pools.values_mut().filter(|it| &*it.id.0 == "80/TCP") {
        Arc::make_mut(pool).members.iter_mut().for_each(|it| it.at.set_port(31_080));
    }
    wish
}

/// How often all members of a pool are written.
async fn writes(provider: &'static str, from: &LoadBalancer, to: &LoadBalancer, scene: &Scene) -> usize {
    scene.reach(from).await;
    scene.fake.forget_requests();
    let steps = scene.reach(to).await;
    let writes = scene.fake.count(ALL);
    let again = steps.iter().filter(|it| it.contains("once more")).count();
    assert_eq!(again, writes.saturating_sub(1), "{provider}: {steps:?}");
    assert_eq!(scene.reach(to).await, [""; 0], "{provider}: one time only");
    writes
}

#[tokio::test]
async fn members_whose_ports_change_at_their_addresses_are_written_once_more_and_no_others() {
    for (provider, monitored, all) in [("ovn", true, 2), ("ovn", false, 1), ("amphora", true, 1)] {
        let scene = Scene::with(provider).await;
        let from = wish(&scene, &[1, 2], monitored);
        let to = moved(from.clone());
        assert_eq!(writes(provider, &from, &to, &scene).await, all, "{provider}, monitored: {monitored}");
        let now = scene.pools().await.len();
        assert_eq!((now, scene.fake.overlaps()), (2, 0), "{provider}: nothing is written amid another write");
    }
    // Other Nodes, the same node port: what goes has no address that stays.
    let scene = Scene::with("ovn").await;
    let (from, to) = (wish(&scene, &[1, 2], true), wish(&scene, &[2, 3], true));
    scene.reach(&from).await;
    scene.fake.forget_requests();
    let steps = scene.reach(&to).await;
    assert_eq!(scene.fake.count(ALL), 2, "once for each pool: {steps:?}");
}

/// The members are as they should be, as far as a new look tells, and yet they are written once more.
#[tokio::test]
async fn they_are_also_if_the_answer_of_the_first_write_is_lost() {
    let scene = Scene::with("ovn").await;
    let from = wish(&scene, &[1, 2], true);
    let desired = Desired::LoadBalancer(Arc::new(moved(from.clone())));
    scene.reach(&from).await;
    scene.pass(Duration::from_secs(60));
    scene.fake.fail(Fault::on(ALL).always().lose_reply());
    let mut observed = scene.driver.observe(&unit(), &desired).await.unwrap();
    let step = scene.driver.steps(&desired, &observed).remove(0);
    let done = scene.driver.apply(&unit(), &step, &mut observed).await;
    assert!(done.is_err(), "{done:?}");
    scene.fake.heal();
    scene.pass(Duration::from_secs(60));
    scene.fake.forget_requests();
    let steps = scene.reach(&moved(from)).await;
    let again = steps.iter().filter(|it| it.contains("once more")).count();
    assert_eq!(again, 1, "{steps:?}");
    assert!(scene.fake.requests().iter().any(|it| it.fits(ALL)), "{steps:?}");
}
