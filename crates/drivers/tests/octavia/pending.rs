//! A load balancer that Octavia never finishes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use seaway_drivers::octavia::Note;
use seaway_engine::{Context, Driver};
use seaway_model::{Desired, LoadBalancer as Wish};
use seaway_testkit::cloud::ChangeDuration;

use crate::scene::*;

type OwnerEvents = Arc<Mutex<Vec<Note>>>;

/// It was asked for, and is PENDING_CREATE for ever; those that come after it are made within one look.
async fn stuck(change: impl Fn(&mut Wish)) -> (Scene, Wish, OwnerEvents) {
    let mut scene = Scene::set().await;
    let heard = OwnerEvents::default();
    scene.hear(&heard);
    let mut wish = scene.wish(&[80], &[1]);
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.pending.rebuild = true;
    outside.pending.limit = Some(Duration::from_secs(300));
    change(&mut wish);
    scene.fake.pace(ChangeDuration::Never);
    look(&scene, &wish).await;
    // From now on it is known that it is pending.
    look(&scene, &wish).await;
    scene.fake.pace(ChangeDuration::Looks(1));
    (scene, wish, heard)
}

/// One turn of the engine: what was done.
async fn look(scene: &Scene, wish: &Wish) -> Vec<String> {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let Ok(mut observed) = scene.driver.observe(&Context::default(), &unit(), &desired).await else {
        return Vec::new();
    };
    let mut done = Vec::new();
    for step in scene.driver.steps(&desired, &observed) {
        if scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await.is_err() {
            break;
        }
        done.push(step.to_string());
    }
    done
}

fn reasons(heard: &OwnerEvents) -> Vec<&'static str> {
    heard.lock().unwrap().iter().map(|it| it.reason).collect()
}

#[tokio::test]
async fn one_that_is_never_ready_is_given_up_by_choice_and_another_serves_with_its_floating_ip() {
    let (scene, wish, heard) = stuck(|_| {}).await;
    let first = scene.balancers().await.remove(0);
    let address = scene.floating().await.remove(0).floating_ip_address;
    scene.pass(Duration::from_secs(290));
    assert_eq!(look(&scene, &wish).await, [""; 0], "not yet");
    scene.pass(Duration::from_secs(20));
    let done = look(&scene, &wish).await;
    assert!(done[0].starts_with("detach floating IP") && done[1].starts_with("abandon"), "{done:?}");
    let served = scene.served("uid-1", &wish).await;
    assert_eq!(served.iter().map(|it| Some(it.0)).collect::<Vec<_>>(), [address]);
    assert_eq!(reasons(&heard), ["Creating", "Stuck", "Rebuilding", "Creating"]);
    let all = scene.balancers().await;
    assert_eq!(all.len(), 2, "nothing was deleted");
    let floating = scene.floating().await.remove(0);
    let serves = all.iter().find(|it| it.vip_port_id == floating.port_id).unwrap().id.clone();
    assert_ne!(serves, first.id);
    // Once Octavia is done with it after all, it goes as one too many, and the other serves.
    scene.fake.set_provisioning_status(first.id.as_str(), "ACTIVE");
    scene.pass(Duration::from_secs(300));
    let audited = scene.driver.audit(&"openstack".into()).await.unwrap();
    assert_eq!(audited.again, [unit()]);
    let steps = scene.reach(&wish).await;
    assert_eq!(steps, [format!("delete load balancer {}, a duplicate", first.id)]);
    // One look sees it going.
    scene.balancers().await;
    let left = scene.balancers().await;
    assert_eq!(left.iter().map(|it| &it.id).collect::<Vec<_>>(), [&serves]);
}

#[tokio::test]
async fn after_a_restart_the_one_that_is_ready_serves_and_no_third_is_made() {
    let (mut scene, wish, _) = stuck(|_| {}).await;
    scene.pass(Duration::from_secs(310));
    look(&scene, &wish).await;
    // The second is begun, and does not end either.
    scene.fake.pace(ChangeDuration::Never);
    look(&scene, &wish).await;
    assert_eq!(scene.balancers().await.len(), 2);
    for _ in 0..3 {
        scene.restarted();
        for _ in 0..3 {
            scene.pass(Duration::from_secs(310));
            look(&scene, &wish).await;
        }
    }
    assert_eq!(scene.balancers().await.len(), 2, "there are two of them, and no more");
}

#[tokio::test]
async fn one_that_may_serve_or_that_nobody_chose_to_give_up_stays() {
    type Change = fn(&mut Wish);
    let cases: [(&str, Change); 3] = [
        ("not wished", |wish| wish.options.cloud.as_mut().unwrap().pending.rebuild = false),
        ("its address is published", |wish| {
            wish.options.cloud.as_mut().unwrap().published = vec!["172.24.4.9".parse().unwrap()];
        }),
        ("it is paused later", |_| {}),
    ];
    for (what, change) in cases {
        let (scene, mut wish, _) = stuck(change).await;
        wish.options.cloud.as_mut().unwrap().paused = what.starts_with("it is paused");
        for _ in 0..3 {
            scene.pass(Duration::from_secs(310));
            look(&scene, &wish).await;
        }
        assert_eq!(scene.balancers().await.len(), 1, "{what}");
    }
    // One that was ready, and is PENDING_UPDATE for ever.
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    wish.options.cloud.as_mut().unwrap().pending.rebuild = true;
    scene.reach(&wish).await;
    scene.fake.pace(ChangeDuration::Never);
    let mut more = scene.wish(&[80, 443], &[1]);
    more.options.cloud.as_mut().unwrap().pending.rebuild = true;
    for _ in 0..3 {
        look(&scene, &more).await;
        scene.pass(Duration::from_secs(910));
    }
    assert_eq!(scene.balancers().await.len(), 1);
}
