//! On OVN what has a monitor comes back after it was deleted, by a late status update: it is seen, and deleted again.

use std::time::Duration;

use super::{Event, SeededRandom, Setting, Walk};

/// As it was measured.
const LATE: Duration = Duration::from_secs(2);

async fn probed(names: &[&'static str]) -> Walk {
    let mut walk = Walk::begin(SeededRandom(1)).await;
    walk.happens(Event::Setting(Setting::Monitors)).await;
    for name in names {
        walk.happens(Event::Create(name, vec![80, 443])).await;
    }
    walk.passes(Duration::from_secs(60)).await;
    walk.scene.fake.revive_after(Some(LATE));
    walk
}

#[tokio::test(start_paused = true)]
async fn a_pool_and_a_listener_that_come_back_are_seen_by_an_audit_and_deleted_again() {
    for kind in ["pool", "both"] {
        let mut walk = probed(&["shop"]).await;
        // Without its monitor nothing comes back: one that is deleted first may be lost.
        walk.happens(Event::Ports("shop", vec![80])).await;
        if kind == "both" {
            walk.restart_both().await;
        }
        walk.passes(Duration::from_secs(700)).await;
        let (pools, listeners) = (walk.scene.pools().await, walk.scene.listeners().await);
        assert_eq!((pools.len(), listeners.len()), (1, 1), "{kind}: {pools:#?} {listeners:#?}");
        walk.ends().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_load_balancer_that_comes_back_goes_again_also_after_a_restart() {
    for dies in [false, true] {
        let mut walk = probed(&["shop", "mail"]).await;
        walk.happens(Event::Delete("shop")).await;
        walk.passes(Duration::from_secs(4)).await;
        if dies {
            walk.restart_both().await;
        }
        walk.passes(Duration::from_secs(700)).await;
        let left = walk.scene.balancers().await;
        assert_eq!(left.len(), 1, "dies: {dies}: {left:#?}");
        assert!(walk.api.service("shop").is_none());
        let leader = walk.controllers[walk.leader].as_ref().unwrap();
        assert_eq!(leader.handle.ask(|world| world.orphans().count()).await.unwrap(), 0);
        walk.ends().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_beside_its_service_that_was_made_again_is_not_taken_for_that_ones() {
    let mut walk = probed(&["shop"]).await;
    walk.happens(Event::Delete("shop")).await;
    walk.passes(Duration::from_secs(3)).await;
    walk.happens(Event::Create("shop", vec![80])).await;
    walk.passes(Duration::from_secs(700)).await;
    let all = walk.scene.balancers().await;
    assert_eq!(all.len(), 1, "{all:#?}");
    walk.ends().await;
}

/// Without the port of its VIP. Its Service wants a load balancer again by then.
#[tokio::test(start_paused = true)]
async fn one_that_comes_back_while_its_service_wants_one_again_is_made_anew() {
    let mut walk = probed(&["shop"]).await;
    let before = walk.scene.balancers().await.remove(0).id;
    walk.happens(Event::NoLoadBalancer("shop")).await;
    walk.passes(Duration::from_secs(6)).await;
    assert_eq!(walk.scene.balancers().await.len(), 1, "it came back");
    walk.happens(Event::LoadBalancer("shop")).await;
    walk.passes(Duration::from_secs(700)).await;
    let all = walk.scene.balancers().await;
    assert!(all.len() == 1 && all[0].id != before, "{all:#?}");
    walk.ends().await;
}
