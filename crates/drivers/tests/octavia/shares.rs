//! Services that share a load balancer by a word.

use std::sync::Arc;

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer as Wish, Reason};

use crate::scene::*;

fn wish(scene: &Scene, uid: &str, port: u16) -> Wish {
    let mut wish = scene.wish_of(uid, &[port], &[1]);
    let outside = wish.options.cloud.as_mut().unwrap();
    (outside.group, outside.most_shared) = (Some("default/web".into()), 3);
    wish
}

#[tokio::test]
async fn those_who_say_the_same_word_share_what_the_first_makes_and_it_goes_with_the_last() {
    let mut scene = Scene::set().await;
    let all =
        [("uid-1", 80), ("uid-2", 443), ("uid-3", 8080)].map(|(uid, port)| (uid, wish(&scene, uid, port)));
    for (uid, wish) in &all {
        scene.reach_of(uid, wish).await;
    }
    assert_eq!((scene.balancers().await.len(), scene.listeners().await.len()), (1, 3));
    scene.restarted();
    for (uid, wish) in &all {
        assert_eq!(scene.reach_of(uid, wish).await, [""; 0], "{uid}");
    }
    // The first goes, and who comes then finds it all the same.
    let address = scene.served("uid-2", &all[1].1).await[0].0;
    scene.remove_of("uid-1").await;
    scene.reach_of("uid-4", &wish(&scene, "uid-4", 80)).await;
    assert_eq!((scene.balancers().await.len(), scene.listeners().await.len()), (1, 3));
    assert_eq!(scene.served("uid-2", &all[1].1).await, [(address, 443)]);
    for uid in ["uid-2", "uid-3", "uid-4"] {
        scene.remove_of(uid).await;
    }
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
}

#[tokio::test]
async fn two_who_come_at_once_do_not_make_one_each() {
    let scene = Scene::set().await;
    let desired = |uid: &str, port| Desired::LoadBalancer(Arc::new(wish(&scene, uid, port)));
    let (first, second) = (desired("uid-1", 80), desired("uid-2", 443));
    let observed =
        scene.driver.observe(&Context::default(), &unit_of(&owner_of("uid-1")), &first).await.unwrap();
    assert!(!scene.driver.steps(&first, &observed).is_empty());
    let waits = scene.driver.observe(&Context::default(), &unit_of(&owner_of("uid-2")), &second).await.err();
    assert!(matches!(waits, Some(Failure::Wait { .. })), "{waits:?}");
    // One who never makes it keeps nobody waiting for long.
    scene.pass(std::time::Duration::from_secs(61));
    let observed =
        scene.driver.observe(&Context::default(), &unit_of(&owner_of("uid-2")), &second).await.unwrap();
    assert!(!scene.driver.steps(&second, &observed).is_empty());
}

#[tokio::test]
async fn a_port_that_another_has_is_told_and_one_with_its_own_stays_there() {
    let scene = Scene::set().await;
    let mut alone = wish(&scene, "uid-1", 80);
    alone.options.cloud.as_mut().unwrap().group = None;
    scene.reach_of("uid-1", &alone).await;
    scene.reach_of("uid-2", &wish(&scene, "uid-2", 80)).await;
    assert_eq!(scene.balancers().await.len(), 2);
    assert_eq!(scene.reach_of("uid-1", &wish(&scene, "uid-1", 80)).await, ["change the load balancer"]);
    assert_eq!(scene.balancers().await.len(), 2, "it says so, and stays where it is");
    let desired = Desired::LoadBalancer(Arc::new(wish(&scene, "uid-3", 80)));
    let Err(Failure::User(told)) =
        scene.driver.observe(&Context::default(), &unit_of(&owner_of("uid-3")), &desired).await
    else {
        panic!("the port is taken")
    };
    assert_eq!(told[0].1.reason, Reason::PortConflict);
}
