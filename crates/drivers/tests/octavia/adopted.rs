//! Other people's.

use seaway_openstack::octavia::{LoadBalancer, NewLoadBalancer};

use crate::scene::*;

#[tokio::test]
async fn what_has_our_name_and_not_our_tag_is_never_touched() {
    let scene = Scene::set().await;
    let new = NewLoadBalancer {
        name: "kube_service_kubernetes_default_nginxservice".into(),
        vip_subnet_id: Some(scene.subnet.clone()).into(),
        ..NewLoadBalancer::new()
    };
    let theirs = scene.cloud.all::<LoadBalancer>().create(&new).await.unwrap();
    scene.reach(&scene.wish(&[80], &[1])).await;
    assert_eq!(scene.balancers().await.len(), 2, "ours is another");
    scene.remove().await;
    let left = scene.balancers().await;
    assert_eq!(left.len(), 1);
    assert_eq!((&left[0].id, left[0].tags.len()), (&theirs.id, 0));
}
