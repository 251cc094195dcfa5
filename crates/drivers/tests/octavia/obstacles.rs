//! A load balancer that serves is not deleted for another that could not be made.

use std::{net::IpAddr, sync::Arc};

use seaway_engine::{Context, Driver};
use seaway_model::{
    Desired, LoadBalancer as Wish,
    load_balancer::{CloudOptions, NamedLoadBalancer},
};
use seaway_openstack::{
    neutron::{FixedIp, Network, NewPort, NewSubnet, Port, Subnet},
    octavia::LoadBalancer,
    resource::Id,
};

use crate::scene::*;

/// Made again for it, if need be.
fn wish(scene: &Scene, set: impl FnOnce(&mut CloudOptions)) -> Wish {
    let mut wish = scene.wish(&[80, 443], &[1, 2]);
    let outside = wish.options.cloud.as_mut().unwrap();
    set(outside);
    outside.remake = true;
    wish
}

async fn network(scene: &Scene) -> Id<Network> {
    scene.cloud.all::<Subnet>().read::<Subnet>(&scene.subnet).await.unwrap().network_id
}

async fn only(scene: &Scene) -> LoadBalancer {
    let mut all = scene.balancers().await;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// It stays, and its owner is told why.
async fn stays(scene: &Scene, wish: &Wish, why: &str) {
    let before = only(scene).await;
    scene.fake.forget_requests();
    let told = scene.reach_telling(wish).await;
    assert!(told.iter().any(|it| it.message.contains(why)), "{why}: {told:?}");
    assert_eq!(only(scene).await.id, before.id);
    assert_eq!(scene.fake.count("DELETE *") + scene.fake.count("P* */lbaas/*"), 0, "nothing is tried");
}

#[tokio::test]
async fn what_cannot_be_made_is_told_and_nothing_is_deleted_until_it_can() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80, 443], &[1, 2])).await;
    let before = only(&scene).await.id;
    let nowhere = "11111111-2222-4333-8444-555555555555";
    for (what, set) in [
        (
            "flavor",
            (|it: &mut CloudOptions, id: &str| it.flavor = Some(id.into())) as fn(&mut CloudOptions, &str),
        ),
        ("port", |it, id| it.port = Some(id.into())),
        ("subnet", |it, id| it.subnet = Some(id.into())),
        ("provider", |it, _| it.provider = Some("nobody".into())),
        ("availability zone", |it, id| it.zone = Some(id.into())),
    ] {
        let lacking = wish(&scene, |it| set(it, nowhere));
        stays(&scene, &lacking, &format!("the cloud has no {what}")).await;
    }
    let other =
        NewSubnet { cidr: Some("10.9.0.0/24".to_owned()).into(), ..NewSubnet::new(network(&scene).await, 4) };
    let other = scene.cloud.all::<Subnet>().create(&other).await.unwrap().id;
    let moved = wish(&scene, |it| (it.internal, it.subnet) = (true, Some(other.as_str().into())));
    scene.reach(&moved).await;
    let after = only(&scene).await;
    assert!(after.id != before && after.vip_subnet_id == Some(other));
}

#[tokio::test]
async fn an_internal_one_moves_to_the_address_that_is_asked_for_if_nobody_has_it() {
    let scene = Scene::set().await;
    let at = |ip: &str| -> Wish {
        let ip: IpAddr = ip.parse().unwrap();
        wish(&scene, |it| (it.internal, it.requested) = (true, Some(ip)))
    };
    scene.reach(&at("10.0.0.50")).await;
    let fixed =
        FixedIp { ip_address: Some("10.0.0.60".parse().unwrap()), ..FixedIp::on(scene.subnet.clone()) };
    let port = NewPort { fixed_ips: vec![fixed].into(), ..NewPort::new(network(&scene).await) };
    let port = scene.cloud.all::<Port>().create(&port).await.unwrap().id;
    stays(&scene, &at("10.0.0.60"), &format!("port {port} has 10.0.0.60")).await;
    stays(&scene, &at("192.0.2.9"), "192.0.2.9 is not in subnet").await;
    scene.reach(&at("10.0.0.70")).await;
    assert_eq!(only(&scene).await.vip_address, Some("10.0.0.70".parse().unwrap()));
    assert_eq!(scene.served("uid-1", &at("10.0.0.70")).await[0].0.to_string(), "10.0.0.70");
}

#[tokio::test]
async fn one_that_others_are_on_stays() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80, 443], &[1, 2])).await;
    let mut guest = scene.wish_of("uid-2", &[25], &[1]);
    let outside = guest.options.cloud.as_mut().unwrap();
    outside.named = Some(NamedLoadBalancer {
        id: only(&scene).await.id.as_str().into(),
        field: "x".into(),
        by_name: false,
    });
    outside.most_shared = 2;
    scene.reach_of("uid-2", &guest).await;
    let flavor = scene.fake.add_flavor("large", "amphora");
    let large = wish(&scene, |it| it.flavor = Some(flavor.as_str().into()));
    // What it knew of it is from before; to delete it would be refused, too.
    scene.driver.forget();
    stays(&scene, &large, "other Services use this load balancer").await;
    scene.remove_of("uid-2").await;
    scene.driver.forget();
    scene.reach(&large).await;
    assert_eq!(only(&scene).await.flavor_id.unwrap().as_str(), flavor);
    let desired = Desired::LoadBalancer(Arc::new(large));
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    assert!(scene.driver.conclude(&unit(), &desired, &observed).problems.is_empty());
}
