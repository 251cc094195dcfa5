//! `cascade-delete=false`: what is below a load balancer goes before it, one by one.

use std::time::Duration;

use seaway_drivers::octavia::belongings::{RemovalOptions, belongings, remove_by};
use seaway_openstack::{
    neutron::FloatingIp,
    octavia::{Listener, LoadBalancer as Balancer, LoadBalancerChange},
    resource::Edit,
};

use crate::{scene::*, serial::serial};

#[tokio::test]
async fn without_cascade_what_is_below_a_load_balancer_goes_before_it_one_by_one() {
    let mut scene = Scene::set().await;
    let wish = serial(scene.wish(&[80, 443], &[1, 2]));
    scene.reach(&wish).await;
    scene.restarted();
    scene.driver.set_cascade(false);
    scene.fake.forget_requests();
    let steps = scene.remove().await;
    let below: Vec<&str> = steps.iter().map(String::as_str).filter(|it| !it.contains("floating")).collect();
    let of = |port: u16| {
        [
            format!("delete the health monitor of {port}/TCP"),
            format!("delete the pool of {port}/TCP"),
            format!("delete the listener of {port}/TCP"),
        ]
    };
    let expected = [of(80).to_vec(), of(443).to_vec()].concat();
    assert_eq!(below[..6], expected);
    assert!(below.len() == 7 && below[6].starts_with("delete load balancer "), "{below:?}");
    let cascades =
        |it: &seaway_testkit::cloud::Recorded| it.method == "DELETE" && it.query.contains("cascade");
    assert!(!scene.fake.requests().iter().any(cascades));
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
}

#[tokio::test]
async fn without_cascade_nothing_that_gc_and_purge_find_goes_in_one_call() {
    let mut scene = Scene::set().await;
    let wish = serial(scene.wish(&[80, 443], &[1, 2]));
    scene.reach(&wish).await;
    scene.restarted();
    scene.fake.forget_requests();
    let all = belongings(&scene.cloud, "6c1d", &|_| {}).await.unwrap();
    let how = RemovalOptions { uid: "6c1d", cascades: false };
    assert!(remove_by(&scene.cloud, how, &all, &|_| {}).await.is_empty());
    assert!(scene.balancers().await.is_empty() && scene.pools().await.is_empty());
    let cascades =
        |it: &seaway_testkit::cloud::Recorded| it.method == "DELETE" && it.query.contains("cascade");
    let all = scene.fake.requests();
    let told: Vec<_> = all.iter().filter(|it| cascades(it)).map(|it| &it.path).collect();
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn without_cascade_a_second_load_balancer_goes_one_by_one() {
    let mut scene = Scene::set().await;
    let wish = serial(scene.wish(&[80, 443], &[1, 2]));
    scene.reach(&wish).await;
    let first = scene.balancers().await.remove(0);
    // The same request was done twice.
    let other = scene.reach_of("uid-2", &scene.wish_of("uid-2", &[80], &[1])).await;
    assert!(!other.is_empty());
    let twin = scene.balancers().await.into_iter().find(|it| it.id != first.id).unwrap();
    for it in scene.floating().await.into_iter().filter(|it| it.port_id == twin.vip_port_id) {
        scene.cloud.all::<FloatingIp>().delete(&it.id).await.unwrap();
    }
    let change = LoadBalancerChange {
        name: first.name.as_str().into(),
        description: first.description.as_str().into(),
        tags: Edit::To(first.tags.clone()),
        ..LoadBalancerChange::default()
    };
    scene.cloud.all::<Balancer>().change(&twin.id, &change).await.unwrap();
    scene.pass(Duration::from_secs(600));
    scene.balancers().await;
    scene.restarted();
    scene.driver.set_cascade(false);
    scene.fake.forget_requests();
    scene.reach(&wish).await;
    scene.pass(Duration::from_secs(60));
    scene.balancers().await;
    let left: Vec<_> = scene.balancers().await.into_iter().map(|it| it.id).collect();
    assert_eq!(left, [first.id]);
    let cascades =
        |it: &seaway_testkit::cloud::Recorded| it.method == "DELETE" && it.query.contains("cascade");
    assert!(!scene.fake.requests().iter().any(cascades));
}

/// Octavia lets nothing below it go: there is no other way.
#[tokio::test]
async fn one_in_error_goes_with_all_below_it_in_one_call_whatever_cascade_delete_says() {
    let mut scene = Scene::set().await;
    scene.reach(&serial(scene.wish(&[80], &[1]))).await;
    let id = scene.balancers().await.remove(0).id;
    scene.fake.set_provisioning_status(id.as_str(), "ERROR");
    let listener = scene.listeners().await.remove(0).id;
    assert!(scene.cloud.all::<Listener>().delete(&listener).await.is_err(), "it is immutable");
    scene.restarted();
    scene.driver.set_cascade(false);
    scene.remove().await;
    assert!(scene.balancers().await.is_empty());
}
