//! What guards and limits the address of a load balancer.

use std::sync::Arc;

use ipnet::IpNet;
use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer as Wish};
use seaway_openstack::{
    neutron::{NewSecurityGroup, SecurityGroup},
    octavia::{LoadBalancer, LoadBalancerChange},
    resource::{Edit, Id},
};

use crate::scene::*;

const POLICY: &str = "00000000-0000-4000-8000-000000000009";

async fn group(scene: &Scene, name: &str) -> Id<SecurityGroup> {
    let new = NewSecurityGroup { name: name.into(), ..NewSecurityGroup::new() };
    scene.cloud.all::<SecurityGroup>().create(&new).await.unwrap().id
}

fn wish(scene: &Scene, groups: &[&Id<SecurityGroup>], qos: Option<&str>) -> Wish {
    let mut wish = scene.wish(&[80], &[1]);
    let vip = &mut wish.options.cloud.as_mut().unwrap().vip;
    vip.groups = groups.iter().map(|it| it.as_str().into()).collect();
    vip.qos = qos.map(Into::into);
    wish
}

#[tokio::test]
async fn groups_and_a_policy_are_at_the_vip_as_long_as_they_are_asked_for() {
    let mut scene = Scene::set().await;
    let (one, two) = (group(&scene, "one").await, group(&scene, "two").await);
    scene.reach(&wish(&scene, &[&one], None)).await;
    assert_eq!(scene.balancers().await.remove(0).vip_sg_ids, std::slice::from_ref(&one));
    let asked = wish(&scene, &[&one, &two], Some(POLICY));
    assert_eq!(scene.reach(&asked).await, ["change the load balancer"]);
    let now = scene.balancers().await.remove(0);
    assert_eq!((now.vip_sg_ids.len(), now.vip_qos_policy_id.as_deref()), (2, Some(POLICY)));
    scene.restarted();
    assert_eq!(scene.reach(&asked).await, [""; 0]);
    let none = wish(&scene, &[], None);
    assert_eq!(scene.reach(&none).await, ["change the load balancer"]);
    let now = scene.balancers().await.remove(0);
    assert_eq!((now.vip_sg_ids.len(), now.vip_qos_policy_id), (0, None));
    assert!(now.tags.iter().all(|it| !it.starts_with("seaway.dev/vip-")), "{:?}", now.tags);
    // What an operator gives stays.
    let change =
        LoadBalancerChange { vip_sg_ids: Edit::To(vec![two.clone()]), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&now.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    scene.restarted();
    assert_eq!(scene.reach(&none).await, [""; 0]);
    assert_eq!(scene.balancers().await.remove(0).vip_sg_ids, [two]);
}

#[tokio::test]
async fn nothing_is_made_that_would_be_open() {
    for (provider, minor, has_sources, why) in [
        ("amphora", 28, false, "the VIP would be open"),
        ("ovn", 30, false, "the VIP would be open"),
        ("amphora", 30, true, "source ranges would have no effect"),
    ] {
        let scene = Scene::with(provider).await;
        scene.fake.octavia_speaks(minor);
        let one = group(&scene, "one").await;
        let mut asked = wish(&scene, &[&one], None);
        if has_sources {
            let range: IpNet = "192.0.2.0/24".parse().unwrap();
            asked.listeners.values_mut().for_each(|it| Arc::make_mut(it).sources = vec![range]);
        }
        let desired = Desired::LoadBalancer(Arc::new(asked.clone()));
        let Err(Failure::User(told)) = scene.driver.observe(&Context::default(), &unit(), &desired).await
        else {
            panic!("{provider} 2.{minor}: it should have been refused")
        };
        assert!(told.iter().any(|(_, it)| it.message.contains(why)), "{told:?}");
        assert!(scene.balancers().await.is_empty());
        // One that serves goes on, and its members are followed.
        let mut plain = asked.clone();
        plain.options.cloud.as_mut().unwrap().vip = Default::default();
        plain.listeners.values_mut().for_each(|it| Arc::make_mut(it).sources.clear());
        scene.reach(&plain).await;
        let mut more = asked;
        more.listeners.values_mut().for_each(|it| Arc::make_mut(it).sources.clear());
        more.pools = scene.wish(&[80], &[1, 2]).pools;
        let told = scene.reach_telling(&more).await;
        let made = scene.balancers().await.remove(0);
        assert_eq!(
            made.vip_sg_ids.is_empty(),
            !has_sources,
            "only the API and the provider say whether it can be"
        );
        assert_eq!(told.iter().any(|it| it.message.contains("would be open")), !has_sources, "{told:?}");
        assert_eq!(scene.pools().await.remove(0).members.len(), 2);
    }
}

#[tokio::test]
async fn source_ranges_that_come_later_take_no_group_away() {
    let scene = Scene::set().await;
    let one = group(&scene, "one").await;
    let mut asked = wish(&scene, &[&one], None);
    scene.reach(&asked).await;
    let range: IpNet = "192.0.2.0/24".parse().unwrap();
    asked.listeners.values_mut().for_each(|it| Arc::make_mut(it).sources = vec![range]);
    asked.pools = scene.wish(&[80], &[1, 2]).pools;
    let told = scene.reach_telling(&asked).await;
    assert!(told.iter().any(|it| it.message.contains("source ranges would have no effect")), "{told:?}");
    assert_eq!(scene.balancers().await.remove(0).vip_sg_ids, [one]);
    assert_eq!(scene.pools().await.remove(0).members.len(), 2, "members follow");
}
