//! A load balancer that a Service names by what it is called.

use std::sync::Arc;

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer as Wish, load_balancer::NamedLoadBalancer};
use seaway_openstack::{
    octavia::{LoadBalancer, LoadBalancerChange},
    resource::Edit,
};

use crate::scene::*;

fn guest(scene: &Scene, uid: &str, name: &str) -> Wish {
    let mut wish = scene.wish_of(uid, &[443], &[1]);
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.named =
        Some(NamedLoadBalancer { id: name.into(), field: "metadata.annotations".into(), by_name: true });
    outside.most_shared = 2;
    wish
}

async fn refused(scene: &Scene, wish: &Wish) -> String {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    match scene.driver.observe(&Context::default(), &unit_of(&owner_of("uid-2")), &desired).await {
        Err(Failure::User(mut told)) => told.remove(0).1.message,
        other => panic!("it should have been refused: {:?}", other.err()),
    }
}

#[tokio::test]
async fn a_service_shares_the_load_balancer_that_it_calls_by_its_name_and_stays_when_that_is_renamed() {
    let mut scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let made = scene.balancers().await.remove(0);
    let wish = guest(&scene, "uid-2", &made.name);
    scene.reach_of("uid-2", &wish).await;
    assert_eq!((scene.balancers().await.len(), scene.listeners().await.len()), (1, 2));
    scene.restarted();
    assert_eq!(scene.reach_of("uid-2", &wish).await, [""; 0]);
    let change = LoadBalancerChange { name: Edit::To("renamed".to_owned()), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    scene.restarted();
    let told = scene.reach_telling_of("uid-2", &wish).await;
    assert!(told.iter().any(|it| it.message.contains("is called renamed")), "{told:?}");
    assert_eq!(scene.listeners().await.len(), 2, "it serves on");
    assert_eq!(scene.reach_of("uid-2", &guest(&scene, "uid-2", "renamed")).await, [""; 0]);
    scene.remove_of("uid-2").await;
    assert_eq!((scene.balancers().await.len(), scene.listeners().await.len()), (1, 1));
}

#[tokio::test]
async fn a_name_that_none_or_several_have_is_told_and_none_is_made() {
    let scene = Scene::set().await;
    assert!(
        refused(&scene, &guest(&scene, "uid-2", "shared"))
            .await
            .contains("no load balancer is called shared")
    );
    for _ in 0..2 {
        let new = seaway_openstack::octavia::NewLoadBalancer {
            name: "shared".into(),
            vip_subnet_id: Edit::To(Some(scene.subnet.clone())),
            ..seaway_openstack::octavia::NewLoadBalancer::new()
        };
        scene.cloud.all::<LoadBalancer>().create(&new).await.unwrap();
    }
    assert!(
        refused(&scene, &guest(&scene, "uid-2", "shared"))
            .await
            .contains("2 load balancers are called shared")
    );
    assert_eq!(scene.balancers().await.len(), 2);
}
