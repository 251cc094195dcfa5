//! Floating IPs: reused, asked for, kept.

use seaway_model::LoadBalancer;
use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange, NewFloatingIp},
    octavia::LoadBalancer as Balancer,
    resource::Edit,
};

use crate::scene::*;

#[tokio::test]
async fn one_that_somebody_else_made_is_used_and_stays() {
    let scene = Scene::set().await;
    let wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let ours = scene.floating().await.remove(0);
    let new = NewFloatingIp {
        description: "by hand".into(),
        ..NewFloatingIp::new(ours.floating_network_id.clone())
    };
    let theirs = scene.cloud.all::<FloatingIp>().create(&new).await.unwrap();
    let mut wish = wish;
    wish.options.outside.as_mut().unwrap().requested = theirs.floating_ip_address;
    let steps = scene.reach(&wish).await;
    assert_eq!(
        steps,
        [format!("delete floating IP {}", ours.id), "lead a floating IP to the VIP".to_owned()],
        "an address that is asked for later is taken, too"
    );
    let all = scene.floating().await;
    assert_eq!(all.len(), 1);
    assert_eq!((&all[0].id, all[0].port_id.is_some()), (&theirs.id, true));
    scene.remove().await;
    let all = scene.floating().await;
    assert_eq!(all.len(), 1, "it is not ours to delete");
    assert_eq!((all[0].description.as_str(), &all[0].port_id), ("by hand", &None));
}

/// Nobody has looked since: the next audit would have told.
#[tokio::test]
async fn one_that_was_led_elsewhere_meanwhile_stays_there() {
    let scene = Scene::set().await;
    let mut other = scene.wish_of("uid-2", &[443], &[1]);
    other.options.outside.as_mut().unwrap().internal = true;
    scene.reach_of("uid-2", &other).await;
    let elsewhere = scene.balancers().await.remove(0).vip_port_id;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    wish.options.outside.as_mut().unwrap().floating.keep = true;
    scene.reach(&wish).await;
    let id = scene.floating().await.remove(0).id;
    let led = FloatingIpChange { port_id: Edit::To(elsewhere.clone()), ..FloatingIpChange::default() };
    scene.cloud.all::<FloatingIp>().change(&id, &led).await.unwrap();
    scene.remove().await;
    assert_eq!(scene.floating().await.remove(0).port_id, elsewhere);
    assert_eq!(scene.balancers().await.len(), 1);
}

#[tokio::test]
async fn who_becomes_internal_lets_its_own_go() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    assert_eq!(scene.floating().await.len(), 1);
    wish.options.outside.as_mut().unwrap().internal = true;
    scene.reach(&wish).await;
    assert!(scene.floating().await.is_empty());
    assert_eq!(scene.balancers().await.len(), 1, "the load balancer stays");
}

#[tokio::test]
async fn one_that_is_to_be_kept_outlives_its_service() {
    let mut scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let id = scene.floating().await.remove(0).id;
    let keep = |wish: &mut LoadBalancer, keep| {
        wish.options.outside.as_mut().unwrap().floating.keep = keep;
    };
    for kept in [true, false, true] {
        keep(&mut wish, kept);
        assert_eq!(scene.reach(&wish).await, [format!("describe floating IP {id}")]);
        scene.restarted();
        assert_eq!(scene.reach(&wish).await, [""; 0]);
    }
    scene.restarted();
    assert_eq!(scene.remove().await[0], format!("detach floating IP {id}"), "nobody is left to ask");
    assert_eq!(scene.floating().await.remove(0).port_id, None);
}

/// The other controller loses sight of it: it looks for the load balancer first.
#[tokio::test]
async fn a_load_balancer_that_was_taken_from_behind_leaves_no_floating_ip() {
    let mut scene = Scene::set().await;
    let wish = scene.wish(&[80], &[1]);
    for is_wanted in [true, false] {
        scene.reach(&wish).await;
        let (ours, there) = (scene.balancers().await.remove(0), scene.floating().await.remove(0));
        scene.cloud.all::<Balancer>().delete_cascade(&ours.id).await.unwrap();
        scene.restarted();
        if is_wanted {
            let steps = scene.reach(&wish).await;
            assert_eq!(
                steps[1..],
                [format!("lead floating IP {} to the VIP", there.id)],
                "the address stays"
            );
        } else {
            assert_eq!(scene.remove().await, [format!("delete floating IP {}", there.id)]);
        }
    }
    assert!(scene.floating().await.is_empty());
}
