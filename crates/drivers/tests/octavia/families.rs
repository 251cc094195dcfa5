//! Where load balancers are, and of which families their addresses.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use seaway_drivers::octavia::InCloud;
use seaway_engine::{Context, Driver, Failure, Until};
use seaway_model::{
    Config, Desired, LoadBalancer, Unit,
    config::CloudDefaults,
    fact::{Families, FamilyPolicy::Prefer, TargetPort},
    group::CloudNode,
    load_balancer::{CloudOptions, Family},
};
use seaway_openstack::{
    neutron::{
        FixedIp, HostRoute, Network, NewNetwork, NewPort, NewSubnet, Port, Route, Router, RouterChange,
        Subnet, SubnetChange,
    },
    octavia::LoadBalancer as Balancer,
    resource::{Id, Query},
};

use seaway_plan::{Demand, Placement};
use seaway_testkit::facts;

use crate::scene::*;

fn outside(wish: &mut LoadBalancer) -> &mut CloudOptions {
    wish.options.cloud.as_mut().unwrap()
}

async fn network(scene: &Scene) -> Id<Network> {
    scene.cloud.all::<Subnet>().read::<Subnet>(&scene.subnet).await.unwrap().network_id
}

async fn subnet(scene: &Scene, network: Id<Network>, cidr: &str) -> Id<Subnet> {
    let version = if cidr.contains(':') { 6 } else { 4 };
    let new = NewSubnet { cidr: Some(cidr.to_owned()).into(), ..NewSubnet::new(network, version) };
    scene.cloud.all::<Subnet>().create(&new).await.unwrap().id
}

async fn node(scene: &Scene, at: IpAddr) -> CloudNode {
    let fixed = FixedIp { ip_address: Some(at), ..FixedIp::on(scene.subnet.clone()) };
    let server = "00000000-0000-4000-8000-000000000011";
    let new = NewPort {
        fixed_ips: vec![fixed].into(),
        device_id: server.into(),
        device_owner: "compute:nova".into(),
        ..NewPort::new(network(scene).await)
    };
    scene.cloud.all::<Port>().create(&new).await.unwrap();
    let provider_id = Some(format!("openstack:///{server}").into());
    CloudNode { name: "one".into(), addresses: vec![at], provider_id }
}

/// What is told once it is there.
async fn told(scene: &Scene, wish: &LoadBalancer) -> (BTreeSet<IpAddr>, Vec<String>) {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    for _ in 0..100 {
        let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
        let mut waits = None;
        for step in scene.driver.steps(&desired, &observed) {
            match scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await {
                Ok(()) => {}
                Err(Failure::Wait { until: Until::After(after), .. }) => {
                    waits = Some(after);
                    break;
                }
                Err(failed) => panic!("{step}: {failed}"),
            }
        }
        let told = scene.conclude(wish, &observed);
        if waits.is_none() && !told.serving.is_empty() {
            let ips = told.serving.iter().map(|it| it.ip).collect();
            return (ips, told.problems.into_iter().map(|(_, it)| it.line()).collect());
        }
        let after = waits.or(told.again).unwrap_or_default();
        scene.fake.advance(after);
        scene.clock.advance(after);
    }
    panic!("it is never served");
}

async fn nowhere(scene: &Scene, wish: &LoadBalancer) -> String {
    nowhere_for(scene, &unit(), wish).await
}

async fn nowhere_for(scene: &Scene, unit: &Unit, wish: &LoadBalancer) -> String {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    match scene.driver.observe(&Context::default(), unit, &desired).await.unwrap_err() {
        Failure::User(told) => told[0].1.line(),
        other => panic!("{other}"),
    }
}

async fn made(scene: &Scene) -> Balancer {
    scene.cloud.all::<Balancer>().list::<Balancer>(Query::all()).await.unwrap().remove(0)
}

#[tokio::test]
async fn where_nobody_says_anything_it_is_in_the_subnet_of_the_nodes() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[11]);
    outside(&mut wish).subnet = None;
    assert!(nowhere(&scene, &wish).await.contains("there is no Node"));
    outside(&mut wish).beside = vec![CloudNode {
        name: "lost".into(),
        addresses: vec!["10.0.0.99".parse().unwrap()],
        provider_id: None,
    }];
    assert!(nowhere(&scene, &wish).await.contains("no port of this cloud has an address of lost"));
    let node = node(&scene, "10.0.0.11".parse().unwrap()).await;
    outside(&mut wish).beside.push(node);
    let (ips, problems) = told(&scene, &wish).await;
    assert_eq!((ips.len(), problems.len()), (1, 0), "{problems:?}");
    assert_eq!(made(&scene).await.vip_subnet_id, Some(scene.subnet.clone()));
}

/// cloud-provider-openstack 2638 and 3090.
#[tokio::test]
async fn a_subnet_that_was_picked_by_itself_and_does_not_lead_to_the_members_is_named() {
    let scene = Scene::set().await;
    let other = NewNetwork { name: "other".into(), ..NewNetwork::new() };
    let other = scene.cloud.all::<Network>().create(&other).await.unwrap().id;
    let theirs = subnet(&scene, other, "10.9.0.0/24").await;
    let mut wish = scene.wish(&[80], &[11]);
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).members[0].at.set_ip("10.9.0.7".parse().unwrap());
    }
    outside(&mut wish).subnet = None;
    outside(&mut wish).beside = vec![node(&scene, "10.0.0.11".parse().unwrap()).await];
    let (_, problems) = told(&scene, &wish).await;
    assert_eq!(problems.len(), 1);
    for words in [scene.subnet.as_str(), "10.0.0.0/24", "which Seaway chose", "10.9.0.7", "member-subnet-id"]
    {
        assert!(problems[0].contains(words), "{words}: {}", problems[0]);
    }
    scene.remove().await;
    // One that was named, too; and with a way between them all is well.
    outside(&mut wish).member_subnet = Some(scene.subnet.as_str().into());
    outside(&mut wish).subnet = Some(scene.subnet.as_str().into());
    let (_, problems) = told(&scene, &wish).await;
    assert!(problems.len() == 1 && !problems[0].contains("which Seaway chose"), "{problems:?}");
    scene.remove().await;
    let router = scene.cloud.all::<Router>().list::<Router>(Query::all()).await.unwrap().remove(0);
    interface("add", &scene.cloud, &router.id, &theirs).await;
    assert_eq!(told(&scene, &wish).await.1, [""; 0]);
}

#[tokio::test]
async fn members_that_nothing_leads_to_any_more_are_named_at_the_next_audit_until_a_route_does() {
    let mut scene = Scene::set().await;
    let other = NewNetwork { name: "other".into(), ..NewNetwork::new() };
    let other = scene.cloud.all::<Network>().create(&other).await.unwrap().id;
    let theirs = subnet(&scene, other, "10.9.0.0/24").await;
    let routers = scene.cloud.all::<Router>();
    let router = routers.list::<Router>(Query::all()).await.unwrap().remove(0).id;
    interface("add", &scene.cloud, &router, &theirs).await;
    let mut wish = scene.wish(&[80], &[11, 12]);
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).members[1].at.set_ip("10.9.0.7".parse().unwrap());
    }
    assert_eq!(told(&scene, &wish).await.1, [""; 0]);
    let audited = async |scene: &Scene| {
        scene.pass(std::time::Duration::from_secs(300));
        let (again, before) =
            (scene.driver.audit(&"openstack".into()).await.unwrap().again, scene.fake.requests());
        let problems = told(scene, &wish).await.1;
        assert_eq!(scene.fake.requests().len(), before.len(), "what is told was read for all");
        (again.len(), problems)
    };
    assert_eq!(audited(&scene).await, (0, vec![]));
    interface("remove", &scene.cloud, &router, &theirs).await;
    for restarted in [false, true] {
        if restarted {
            scene.restarted();
            scene.reach(&wish).await;
        }
        let (again, problems) = audited(&scene).await;
        assert_eq!((again, problems.len()), (1, 1), "{problems:?}");
        assert!(problems[0].contains("10.9.0.7") && !problems[0].contains("picked"), "{problems:?}");
        assert_eq!(audited(&scene).await.0, 0, "that is no news any more");
    }
    let route = Route {
        destination: "10.9.0.0/16".to_owned(),
        nexthop: "10.0.0.5".parse().unwrap(),
        rest: Default::default(),
    };
    routers
        .change(&router, &RouterChange { routes: vec![route].into(), ..Default::default() })
        .await
        .unwrap();
    assert_eq!(audited(&scene).await, (1, vec![]));
    // Or a route that the subnet itself tells.
    routers.change(&router, &RouterChange { routes: vec![].into(), ..Default::default() }).await.unwrap();
    assert_eq!(audited(&scene).await.1.len(), 1);
    let route = HostRoute {
        destination: "10.9.0.0/24".to_owned(),
        nexthop: "10.0.0.5".parse().unwrap(),
        rest: Default::default(),
    };
    let change = SubnetChange { host_routes: vec![route].into(), ..Default::default() };
    scene.cloud.all::<Subnet>().change(&scene.subnet, &change).await.unwrap();
    assert_eq!(audited(&scene).await, (1, vec![]));
}

#[tokio::test]
async fn of_two_families_it_has_two_addresses_and_only_the_first_a_floating_ip() {
    let mut scene = Scene::set().await;
    let six = subnet(&scene, network(&scene).await, "fd00::/64").await;
    let mut wish = scene.wish(&[80], &[1]);
    outside(&mut wish).families = vec![Family::V4, Family::V6];
    outside(&mut wish).both = true;
    let (ips, problems) = told(&scene, &wish).await;
    assert_eq!(problems, [""; 0]);
    let it = made(&scene).await;
    assert_eq!(it.additional_vips[0].subnet_id, Some(six));
    let floating = scene.floating().await;
    assert_eq!(floating.len(), 1);
    let expected = [it.additional_vips[0].ip_address, floating[0].floating_ip_address];
    assert_eq!(ips, expected.into_iter().flatten().collect());
    scene.restarted();
    assert_eq!(scene.reach(&wish).await, [""; 0]);
    outside(&mut wish).families.truncate(1);
    outside(&mut wish).both = false;
    assert_eq!(told(&scene, &wish).await.0.len(), 1, "what is not wanted is not told");
}

#[tokio::test]
async fn with_ipv6_first_its_ipv4_has_a_floating_ip_all_the_same() {
    let mut scene = Scene::set().await;
    subnet(&scene, network(&scene).await, "fd00::/64").await;
    let mut wish = scene.wish(&[80], &[1]);
    outside(&mut wish).network = Some(network(&scene).await.as_str().into());
    outside(&mut wish).subnet = None;
    outside(&mut wish).families = vec![Family::V6, Family::V4];
    outside(&mut wish).both = true;
    let (ips, problems) = told(&scene, &wish).await;
    assert_eq!(problems, [""; 0]);
    let (it, floating) = (made(&scene).await, scene.floating().await);
    assert_eq!(floating.len(), 1, "of its IPv4");
    assert_eq!(
        floating[0].fixed_ip_address, it.vip_address,
        "to IPv6 no floating IP leads, so IPv4 is the VIP"
    );
    let expected = [it.additional_vips[0].ip_address, floating[0].floating_ip_address];
    assert_eq!(ips, expected.into_iter().flatten().collect());
    scene.restarted();
    assert_eq!(scene.reach(&wish).await, [""; 0]);
    // One that is internal has its VIPs alone.
    outside(&mut wish).internal = true;
    told(&scene, &wish).await;
    assert!(scene.floating().await.is_empty());
}

#[tokio::test]
async fn who_needs_two_families_is_told_where_there_is_one_and_who_prefers_them_is_content() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    outside(&mut wish).families = vec![Family::V4, Family::V6];
    outside(&mut wish).both = true;
    assert!(nowhere(&scene, &wish).await.contains("no subnet of IPv6"));
    outside(&mut wish).both = false;
    let (ips, problems) = told(&scene, &wish).await;
    assert_eq!((ips.len(), problems.len()), (1, 0));
    // One that was made without gets none; there is to be another beside it.
    outside(&mut wish).both = true;
    assert_eq!(told(&scene, &wish).await.1, [""; 0]);
    assert!(nowhere_for(&scene, &second_unit(), &wish).await.contains("no subnet of IPv6"));
}

#[tokio::test]
async fn of_ipv6_alone_its_vip_is_its_address() {
    let scene = Scene::set().await;
    let network = network(&scene).await;
    let mut wish = scene.wish(&[80], &[1]);
    outside(&mut wish).subnet = None;
    outside(&mut wish).network = Some(network.as_str().into());
    outside(&mut wish).families = vec![Family::V6];
    assert!(nowhere(&scene, &wish).await.contains("has no subnet of IPv6"));
    let six = subnet(&scene, network, "fd00::/64").await;
    outside(&mut wish).requested = Some("fd00::7".parse().unwrap());
    let (ips, _) = told(&scene, &wish).await;
    assert_eq!(ips, BTreeSet::from(["fd00::7".parse().unwrap()]));
    assert_eq!(made(&scene).await.vip_subnet_id, Some(six));
    assert!(scene.floating().await.is_empty());
}

#[test]
fn a_service_has_a_load_balancer_of_its_own_and_with_all_others_the_group_of_nodes() {
    let mut shop = facts::service("shop", &[("", 80, TargetPort::Number(80))]);
    shop.class = Some("seaway.dev/octavia".into());
    shop.ports[0].node_port = Some(30_080);
    let group = Unit::SecurityGroup { cloud: "openstack".into(), class: "seaway.dev/octavia".into() };
    let place = InCloud { cloud: "openstack".into(), class: "seaway.dev/octavia".into() };
    let mut both = shop.clone();
    both.families = Families { policy: Prefer, first: Some(Family::V4), second: Some(Family::V6) };
    let mut named = both.clone();
    named.meta.annotations.insert("seaway.dev/load-balancer-id".into(), "one".into());
    for (shop, groups, absent, number) in [
        (&shop, false, false, 1),
        (&shop, true, false, 2),
        (&shop, true, true, 0),
        (&both, true, false, 3),
        (&both, true, true, 0),
        (&named, true, false, 3),
    ] {
        // What is there stays wanted where it is only switched off.
        let usual = CloudDefaults { groups, absent, enabled: false, ..CloudDefaults::default() };
        let clouds = [("seaway.dev/octavia".into(), Arc::new(usual))].into();
        let config = Config { clouds, ..Config::default() };
        let demand = Demand::of_service(&Arc::new(shop.clone()), &config).unwrap();
        let units = place.units(&demand);
        assert_eq!((units.len(), units.contains(&group)), (number, number >= 2), "{units:?}");
    }
}
