//! Load balancers of Services that are not adopted: looked at, and left as they are.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer as Wish, Reason, load_balancer::NamedLoadBalancer};
use seaway_openstack::octavia::{Listener, LoadBalancer};

use crate::{occm::OccmObjects, scene::*};

fn theirs() -> OccmObjects {
    let node = |last: u8| IpAddr::from([10, 0, 0, last]);
    OccmObjects::new("nginxservice", &[(80, 30_080), (443, 30_443)], &[("one", node(1)), ("two", node(2))])
}

/// Of a Service that points at it.
fn pointing(scene: &Scene, made: &LoadBalancer) -> Wish {
    let mut wish = scene.wish(&[80, 443], &[1, 2]);
    wish.options.cloud.as_mut().unwrap().named = Some(NamedLoadBalancer {
        id: made.id.as_str().into(),
        field: "the annotation".into(),
        by_name: false,
    });
    wish
}

fn previewed(wish: &Wish) -> Desired {
    let mut wish = wish.clone();
    wish.options.cloud.as_mut().unwrap().preview = true;
    Desired::LoadBalancer(Arc::new(wish))
}

fn writes(scene: &Scene) -> usize {
    scene.fake.requests().iter().filter(|it| it.method != "GET").count()
}

#[tokio::test]
async fn what_an_adoption_would_do_is_told_and_each_look_is_a_first_one() {
    let mut scene = Scene::set().await;
    let heard = Arc::<Mutex<Vec<_>>>::default();
    scene.hear(&heard);
    let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
    let wish = pointing(&scene, &made);
    let desired = previewed(&wish);
    scene.fake.forget_requests();
    let look = async || {
        let observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
        assert!(!scene.driver.is_ours(&unit(), &observed));
        scene.driver.steps(&desired, &observed).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let adopt = [
        "change the load balancer".to_owned(),
        format!("set the description of floating IP {}", floating.id),
    ];
    assert_eq!(look().await, adopt);
    assert_eq!(writes(&scene), 0);
    // The other controller goes on with it: what was seen before says nothing.
    let listeners = scene.cloud.all::<Listener>();
    let gone = scene.listeners().await.into_iter().find(|it| it.protocol_port == 443).unwrap();
    listeners.delete(&gone.id).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    scene.fake.forget_requests();
    let steps = look().await;
    assert!(steps.len() > adopt.len(), "{steps:?}");
    assert_eq!(writes(&scene), 0);
    assert!(
        heard.lock().unwrap().is_empty(),
        "an event would be a write to the cluster: {:?}",
        heard.lock().unwrap()
    );
    // Its adoption begins with a look, too, and is as ever from then on.
    let steps = scene.reach(&wish).await;
    assert!(steps.contains(&adopt[0]) && steps.contains(&adopt[1]), "{steps:?}");
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    assert!(scene.driver.is_ours(&unit(), &observed));
    assert!(scene.driver.steps(&desired, &observed).is_empty());
}

#[tokio::test]
async fn what_would_be_refused_is_told_and_nothing_is_written() {
    let mut scene = Scene::set().await;
    let heard = Arc::<Mutex<Vec<_>>>::default();
    scene.hear(&heard);
    theirs().make(&scene.cloud, &scene.subnet).await;
    // Nothing of the Service points at it.
    let desired = previewed(&scene.wish(&[80, 443], &[1, 2]));
    scene.fake.forget_requests();
    let Err(Failure::User(told)) = scene.driver.observe(&Context::default(), &unit(), &desired).await else {
        panic!("it is refused")
    };
    assert_eq!(told[0].1.reason, Reason::OtherController);
    assert_eq!(writes(&scene), 0);
    assert!(heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_new_service_that_is_not_adopted_is_looked_at_and_nothing_is_made() {
    let scene = Scene::set().await;
    let desired = previewed(&scene.wish(&[80], &[1]));
    scene.fake.forget_requests();
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    assert!(!scene.driver.steps(&desired, &observed).is_empty(), "it would be made");
    assert!(!scene.driver.is_ours(&unit(), &observed));
    assert_eq!(writes(&scene), 0);
}
