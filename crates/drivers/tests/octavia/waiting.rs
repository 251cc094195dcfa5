//! A cloud that answers slowly: who need not wait for it does not.

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer, Unit, load_balancer::NamedLoadBalancer};
use seaway_openstack::octavia::{LoadBalancer as Balancer, NewLoadBalancer};
use seaway_testkit::cloud::{ChangeDuration, Fault, RequestHold};

use crate::{scene::*, tls::secured};

/// A test is not to wait for ever.
const IN_VAIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_list_that_is_slow_keeps_one_worker_and_not_all() {
    let scene = Scene::set().await;
    let pending = ["uid-1", "uid-2"].map(|uid| {
        (unit_of(&owner_of(uid)), Desired::LoadBalancer(Arc::new(scene.wish_of(uid, &[80], &[1]))))
    });
    for (unit, wanted) in &pending {
        let mut observed = scene.driver.observe(&Context::default(), unit, wanted).await.unwrap();
        let steps = scene.driver.steps(wanted, &observed);
        scene.driver.apply(&Context::default(), unit, &steps[0], &mut observed).await.unwrap();
    }
    assert_eq!(scene.balancers().await.len(), 2);
    let hold = RequestHold::new();
    scene.fake.fail(Fault::on("GET */lbaas/loadbalancers").always().hold(&hold));
    let [(first, its), (second, of_second)] = pending;
    let asks = tokio::spawn({
        let driver = scene.driver.clone();
        async move { driver.observe(&Context::default(), &first, &its).await.map(drop) }
    });
    tokio::time::timeout(IN_VAIN, hold.reached(1)).await.expect("one asks for the list");
    let other =
        tokio::time::timeout(IN_VAIN, scene.driver.observe(&Context::default(), &second, &of_second)).await;
    other.expect("nobody waits for the list of another").expect("and nothing is wrong");
    assert!(!asks.is_finished(), "who asked waits");
    hold.release();
    asks.await.unwrap().unwrap();
}

/// The first Service asks for a list that does not come; the second is told to come back, and is served once it came.
async fn keeps_one_worker(slow: &str) {
    keeps_one_worker_of(slow, |wish| wish).await;
}

async fn keeps_one_worker_of(slow: &str, change: impl Fn(LoadBalancer) -> LoadBalancer) {
    let scene = Scene::set().await;
    let hold = RequestHold::new();
    scene.fake.fail(Fault::on(slow).always().hold(&hold));
    let [(first, its), (second, of_second)]: [(Unit, Desired); 2] = ["uid-1", "uid-2"].map(|uid| {
        let wish = change(scene.wish_of(uid, &[80], &[1]));
        (unit_of(&owner_of(uid)), Desired::LoadBalancer(Arc::new(wish)))
    });
    let asks = tokio::spawn({
        let driver = scene.driver.clone();
        async move { driver.observe(&Context::default(), &first, &its).await.map(drop) }
    });
    tokio::time::timeout(IN_VAIN, hold.reached(1)).await.expect("one asks for the list");
    let other =
        tokio::time::timeout(IN_VAIN, scene.driver.observe(&Context::default(), &second, &of_second)).await;
    let other = other.expect("nobody waits for the list of another").map(drop);
    assert!(matches!(other, Err(Failure::Wait { .. })), "{slow}: {other:?}");
    assert!(!asks.is_finished(), "who asked waits");
    hold.release();
    asks.await.unwrap().unwrap();
    scene.driver.observe(&Context::default(), &second, &of_second).await.map(drop).unwrap();
}

#[tokio::test]
async fn a_slow_list_at_a_start_keeps_one_worker_and_not_all() {
    keeps_one_worker("GET */lbaas/listeners").await;
}

#[tokio::test]
async fn a_slow_quota_keeps_one_worker_and_not_all() {
    keeps_one_worker("GET */lbaas/quotas/*").await;
    keeps_one_worker("GET */v2.0/quotas/*").await;
}

#[tokio::test]
async fn a_slow_list_of_certificates_keeps_one_worker_and_not_all() {
    for kind in ["secrets", "containers"] {
        keeps_one_worker_of(&format!("GET */v1/{kind}*"), |wish| secured(wish, &["shop"])).await;
    }
}

#[tokio::test]
async fn a_slow_list_of_external_networks_keeps_one_worker_and_not_all() {
    keeps_one_worker("GET */networks*").await;
}

/// A floating IP is made while the load balancer is: the list that tells of it was due before that was done.
#[tokio::test]
async fn a_list_that_is_due_is_asked_for_at_once() {
    let scene = Scene::set().await;
    scene.fake.pace(ChangeDuration::Never);
    let wanted = Desired::LoadBalancer(Arc::new(scene.wish(&[80], &[1])));
    let mut observed = scene.driver.observe(&Context::default(), &unit(), &wanted).await.unwrap();
    for step in scene.driver.steps(&wanted, &observed) {
        scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await.unwrap();
        scene.pass(Duration::from_secs(1));
    }
    let again = |observed: &_| scene.driver.conclude(&unit(), &wanted, observed).again.unwrap();
    assert_eq!(again(&observed), Duration::ZERO);
    // And then it is not due.
    let observed = scene.driver.observe(&Context::default(), &unit(), &wanted).await.unwrap();
    assert!(observed.is_pending() && again(&observed) >= Duration::from_millis(150));
}

/// One that is not in our list is asked for by itself, no more often.
#[tokio::test]
async fn what_another_made_is_not_asked_for_without_a_pause() {
    let scene = Scene::set().await;
    scene.reach_of("uid-2", &scene.wish_of("uid-2", &[80], &[1])).await;
    scene.fake.pace(ChangeDuration::Never);
    let theirs = NewLoadBalancer {
        name: "theirs".into(),
        vip_subnet_id: Some(scene.subnet.clone()).into(),
        ..NewLoadBalancer::new()
    };
    let theirs = scene.cloud.all::<Balancer>().create(&theirs).await.unwrap();
    let mut wish = scene.wish(&[80], &[1]);
    let id = theirs.id.as_str().into();
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.named = Some(NamedLoadBalancer { id, field: "a field".into(), by_name: false });
    outside.most_shared = 2;
    outside.join = seaway_model::config::SharedLoadBalancerScope::Any;
    let wanted = Desired::LoadBalancer(Arc::new(wish));
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let observed = scene.driver.observe(&Context::default(), &unit(), &wanted).await.unwrap();
        assert!(observed.is_pending());
        pauses.push(scene.driver.conclude(&unit(), &wanted, &observed).again.unwrap());
        scene.pass(*pauses.last().unwrap());
    }
    let pauses = &pauses[1..];
    assert!(!pauses[0].is_zero() && pauses.is_sorted(), "{pauses:?}");
}
