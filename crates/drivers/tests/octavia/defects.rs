//! What openstack-cloud-controller-manager does wrong and no other file here is about; docs/occm-defects.md has them all.

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure, Until};
use seaway_model::{
    Desired, LoadBalancer,
    load_balancer::{Affinity, HealthCheck, MemberState, NamedLoadBalancer, Protocol, ProxyVersion},
};
use seaway_openstack::{
    neutron::{Network, NewNetwork, Port},
    octavia::{HealthMonitor, HealthMonitorChange, Member, MemberChange, PersistenceType},
    resource::{Edit, Id, Query},
};
use seaway_testkit::cloud::{ChangeDuration, Fault};

use crate::scene::*;

const FIELD: &str = "metadata.annotations[loadbalancer.openstack.org/load-balancer-id]";

fn pools(mut wish: LoadBalancer, change: impl Fn(&mut seaway_model::Pool)) -> LoadBalancer {
    wish.pools.values_mut().for_each(|it| change(Arc::make_mut(it)));
    wish
}

fn probed(wish: LoadBalancer) -> LoadBalancer {
    pools(wish, |it| it.health = Some(HealthCheck::default()))
}

fn http(mut wish: LoadBalancer) -> LoadBalancer {
    wish.listeners.values_mut().for_each(|it| Arc::make_mut(it).protocol = Protocol::Http);
    wish
}

fn introduced(wish: LoadBalancer) -> LoadBalancer {
    pools(wish, |it| it.proxy = Some(ProxyVersion::V2))
}

fn outside(wish: &mut LoadBalancer) -> &mut seaway_model::load_balancer::CloudOptions {
    wish.options.cloud.as_mut().unwrap()
}

fn guest(scene: &Scene, ports: &[u16], of: &seaway_openstack::octavia::LoadBalancer) -> LoadBalancer {
    let mut wish = scene.wish_of("uid-2", ports, &[1, 2]);
    outside(&mut wish).named =
        Some(NamedLoadBalancer { id: of.id.as_str().into(), field: FIELD.into(), by_name: false });
    outside(&mut wish).most_shared = 2;
    wish
}

/// How many ports lead to members after each step.
async fn served_after_each(scene: &Scene, wish: &LoadBalancer) -> Vec<usize> {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let mut served = Vec::new();
    'looks: for _ in 0..100 {
        let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
        for step in scene.driver.steps(&desired, &observed) {
            match scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await {
                Ok(()) => served.push(led(scene).await),
                Err(Failure::Wait { until: Until::After(after), .. }) => {
                    scene.pass(after);
                    continue 'looks;
                }
                Err(error) => panic!("{step}: {error}"),
            }
        }
        match scene.driver.conclude(&unit(), &desired, &observed).again {
            Some(after) if after < Duration::from_secs(60) => scene.pass(after),
            _ => return served,
        }
    }
    panic!("it never comes to rest")
}

async fn led(scene: &Scene) -> usize {
    let mut led = 0;
    for listener in scene.listeners().await {
        if let Some(pool) = listener.default_pool_id {
            let members = scene.cloud.within::<Member>(&pool).list::<Member>(Query::all()).await.unwrap();
            led += usize::from(!members.is_empty());
        }
    }
    led
}

/// The pool was deleted first, and all below the new one made while nobody was served.
#[tokio::test]
async fn toggling_proxy_protocol_leaves_no_moment_without_members() {
    let mut scene = Scene::set().await;
    let plain = probed(scene.wish(&[80, 443], &[1, 2]));
    scene.reach(&plain).await;
    for wish in [introduced(plain.clone()), plain] {
        let served = served_after_each(&scene, &wish).await;
        assert!(served.len() >= 10 && served.iter().all(|it| *it == 2), "{served:?}");
        assert_eq!(scene.pools().await.len(), 2, "and the old ones go");
        scene.restarted();
        assert_eq!(scene.reach(&wish).await, [""; 0]);
    }
    scene.remove().await;
}

/// Octavia has one listener for a port: the gap lasts from its end until the next one is there, and no longer.
#[tokio::test]
async fn turning_on_x_forwarded_for_converges_and_nobody_is_served_for_one_step_only() {
    let scene = Scene::set().await;
    let plain = probed(scene.wish(&[80], &[1, 2]));
    scene.reach(&plain).await;
    for wish in [http(plain.clone()), plain] {
        let served = served_after_each(&scene, &wish).await;
        assert_eq!(served.iter().filter(|it| **it == 0).count(), 1, "{served:?}");
        assert_eq!((scene.listeners().await.len(), scene.pools().await.len()), (1, 1));
    }
}

/// Nobody changed it after the pool was made.
#[tokio::test]
async fn changing_session_affinity_changes_the_pool() {
    let scene = Scene::set().await;
    let plain = scene.wish(&[80], &[1]);
    scene.reach(&plain).await;
    let sticky =
        pools(plain.clone(), |it| it.affinity = Some(Affinity::ClientIp(Duration::from_secs(10_800))));
    assert_eq!(scene.reach(&sticky).await, ["change the pool of 80/TCP"]);
    let kind = scene.pools().await[0].session_persistence.as_ref().map(|it| it.kind.clone());
    assert_eq!(kind, Some(PersistenceType::SourceIp));
    assert_eq!(scene.reach(&plain).await, ["change the pool of 80/TCP"]);
    assert_eq!(scene.pools().await[0].session_persistence, None);
}

/// cloud-provider-openstack 2443. A floating IP is led there (floating.rs); a VIP comes only with a new load balancer.
#[tokio::test]
async fn changing_the_load_balancer_ip_of_an_internal_one_is_told_and_done_by_choice() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    outside(&mut wish).internal = true;
    scene.reach(&wish).await;
    let was = scene.balancers().await.remove(0);
    outside(&mut wish).requested = Some("10.0.0.200".parse().unwrap());
    scene.fake.forget_requests();
    let told = scene.reach_telling(&wish).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].message.contains("address 10.0.0.200"), "{}", told[0].message);
    assert!(told[0].fix.contains("rebuild-on-change"), "{}", told[0].fix);
    assert_eq!(scene.fake.count("DELETE *") + scene.fake.count("PUT *"), 0);
    outside(&mut wish).remake = true;
    assert_eq!(scene.reach_telling(&wish).await, []);
    let is = scene.balancers().await;
    assert_eq!((is.len(), is[0].vip_address.map(|it| it.to_string())), (1, Some("10.0.0.200".to_owned())));
    assert_ne!(is[0].id, was.id);
}

/// The same of all that is given at birth; VIP and floating IP stay.
#[tokio::test]
async fn what_only_a_new_load_balancer_can_have_is_told_and_done_by_choice_at_the_same_addresses() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let (was, floating) = (scene.balancers().await.remove(0), scene.floating().await.remove(0));
    outside(&mut wish).flavor = Some(scene.fake.add_flavor("large", "amphora").as_str().into());
    let told = scene.reach_telling(&wish).await;
    assert!(told.len() == 1 && told[0].message.contains("flavor"), "{told:?}");
    outside(&mut wish).remake = true;
    assert_eq!(scene.reach_telling(&wish).await, []);
    let (is, led) = (scene.balancers().await.remove(0), scene.floating().await);
    assert_ne!(is.id, was.id);
    assert_eq!((is.vip_address, is.flavor_id.is_some()), (was.vip_address, true));
    assert_eq!((led.len(), &led[0].id, &led[0].port_id), (1, &floating.id, &is.vip_port_id));
    assert_eq!(scene.reach(&wish).await, [""; 0], "once");
}

/// A file that names another network by now took the addresses of all.
#[tokio::test]
async fn another_network_of_floating_ips_takes_no_address_away_unless_that_is_wished() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let was = scene.floating().await.remove(0);
    let another = another_outside(&scene).await;
    outside(&mut wish).floating.network = Some(another.as_str().into());
    let told = scene.reach_telling(&wish).await;
    assert!(told.len() == 1 && told[0].message.contains("network of floating IPs"), "{told:?}");
    assert_eq!(scene.floating().await[0].id, was.id);
    outside(&mut wish).remake = true;
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps: Vec<String> =
        scene.driver.steps(&desired, &observed).iter().map(ToString::to_string).collect();
    let expected = [
        "allocate a floating IP".to_owned(),
        format!("associate the new floating IP with the VIP instead of {}", was.id),
        format!("delete floating IP {}", was.id),
    ];
    assert_eq!(steps, expected, "and the load balancer stays");
}

async fn another_outside(scene: &Scene) -> Id<Network> {
    let admin = scene.admin().await;
    let new = NewNetwork { name: "another".into(), external: Some(true).into(), ..NewNetwork::new() };
    admin.all::<Network>().create(&new).await.unwrap().id
}

/// The monitor of the second was renamed by every other reconcile.
#[tokio::test]
async fn monitors_on_a_shared_load_balancer_are_not_renamed_to_and_fro() {
    let mut scene = Scene::set().await;
    let first = probed(scene.wish(&[80], &[1, 2]));
    scene.reach(&first).await;
    let made = scene.balancers().await.remove(0);
    let second = probed(guest(&scene, &[443], &made));
    scene.reach_of("uid-2", &second).await;
    scene.fake.forget_requests();
    let more = pools(second.clone(), |it| {
        let at = it.members[0].at;
        let mut another = it.members[0].clone();
        another.at = std::net::SocketAddr::new([10, 0, 0, 9].into(), at.port());
        it.members.push(another);
    });
    for wish in [&more, &second, &more] {
        assert_eq!(scene.reach_of("uid-2", wish).await.len(), 1, "members alone");
        assert_eq!(scene.reach(&first).await, [""; 0]);
        scene.restarted();
    }
    assert_eq!(scene.fake.count("PUT */healthmonitors/*"), 0);
}

#[tokio::test]
async fn a_failed_list_of_members_causes_no_write() {
    for pattern in ["GET */lbaas/loadbalancers/*/status", "GET */lbaas/pools*"] {
        let mut scene = Scene::set().await;
        let wish = scene.wish(&[80], &[1, 2]);
        scene.reach(&wish).await;
        scene.restarted();
        scene.fake.forget_requests();
        scene.fake.fail(Fault::on(pattern).times(20).status(500));
        let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
        scene.driver.observe(&Context::default(), &unit(), &desired).await.expect_err(pattern);
        scene.fake.heal();
        scene.pass(Duration::from_secs(60));
        assert_eq!(scene.reach(&wish).await, [""; 0]);
        let writes = scene.fake.requests().into_iter().filter(|it| it.method != "GET").count();
        assert_eq!(writes, 0, "{pattern}");
    }
}

/// cloud-provider-openstack 2858 and 1214: 26 to 30 minutes for ten pools, as each change was waited for too long, and one
/// Service after the other.
#[tokio::test]
async fn a_node_that_comes_takes_ten_ports_as_long_as_ten_changes_take() {
    let scene = Scene::set().await;
    let ports: Vec<u16> = (8001..=8010).collect();
    let wish = |members: &[u8]| probed(scene.wish(&ports, members));
    scene.fake.forget_requests();
    scene.reach(&wish(&[1, 2])).await;
    assert_eq!(scene.fake.count("POST */lbaas/*"), 1, "all ten are made together");
    let takes = Duration::from_secs(3);
    scene.fake.pace(ChangeDuration::Time(takes));
    scene.fake.forget_requests();
    let began = scene.fake.now();
    assert_eq!(scene.reach(&wish(&[1, 2, 3])).await.len(), 10);
    let took = scene.fake.now().duration_since(began).unwrap();
    assert!(took <= 10 * (takes + Duration::from_secs(2)), "{took:?}");
    let writes = scene.fake.requests().into_iter().filter(|it| it.method != "GET").count();
    assert_eq!(writes, 10, "one for each port");
}

/// cloud-provider-openstack 1595.
#[tokio::test]
async fn a_creation_takes_as_many_calls_for_a_hundred_nodes_as_for_three() {
    let mut calls = Vec::new();
    for nodes in [3, 100] {
        let scene = Scene::set().await;
        let all: Vec<u8> = (1..=nodes).collect();
        scene.fake.forget_requests();
        scene.reach(&probed(scene.wish(&[80, 443], &all))).await;
        calls.push(scene.fake.requests().len());
    }
    assert_eq!(calls[0], calls[1]);
}

/// cloud-provider-openstack 1304: the answer came later than anybody waited, and all was written again.
#[tokio::test]
async fn members_of_160_nodes_whose_answer_is_lost_are_there_once() {
    let scene = Scene::set().await;
    let some: Vec<u8> = (1..160).collect();
    scene.reach(&scene.wish(&[80], &some)).await;
    let all: Vec<u8> = (1..=160).collect();
    let wish = scene.wish(&[80], &all);
    scene.fake.fail(Fault::on("PUT */members").lose_reply());
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = scene.driver.steps(&desired, &observed);
    let lost = scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await;
    scene.pass(Duration::from_secs(60));
    scene.balancers().await;
    let before = scene.fake.count("PUT */members");
    assert_eq!(scene.reach(&wish).await, [""; 0], "it was done: {lost:?}");
    assert_eq!(scene.fake.count("PUT */members"), before);
    let pool = scene.pools().await.remove(0);
    let members = scene.cloud.within::<Member>(&pool.id).list::<Member>(Query::all()).await.unwrap();
    assert_eq!(members.len(), 160);
}

/// cloud-provider-openstack 2756.
#[tokio::test]
async fn each_service_may_have_a_provider_of_its_own() {
    let mut scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let mut wish = scene.wish_of("uid-2", &[80], &[1]);
    outside(&mut wish).provider = Some("ovn".into());
    scene.reach_of("uid-2", &wish).await;
    let mut providers: Vec<_> = scene.balancers().await.into_iter().filter_map(|it| it.provider).collect();
    providers.sort();
    assert_eq!(providers, ["amphora", "ovn"]);
    scene.restarted();
    assert_eq!(scene.reach_of("uid-2", &wish).await, [""; 0]);
    let refused = scene.driver.refused_at_creation(&Desired::LoadBalancer(Arc::new(http(wish.clone()))));
    assert_eq!(refused.len(), 1, "what it can is what that one can: {refused:?}");
    // One that is there is treated as what it is, whatever would make it today.
    outside(&mut wish).provider = Some("amphora".into());
    let told = scene.reach_telling_of("uid-2", &wish).await;
    assert!(told.len() == 1 && told[0].message.contains("provider amphora (it has ovn)"), "{told:?}");
}

/// cloud-provider-openstack pull request 2008: the weight that a node was drained by stayed with its address.
#[tokio::test]
async fn a_drained_member_whose_address_is_used_again_takes_connections() {
    for serial in [false, true] {
        let mut scene = Scene::set().await;
        let mut plain = scene.wish(&[80], &[1, 2]);
        outside(&mut plain).serial = serial;
        let drained = pools(plain.clone(), |it| it.members[1].state = MemberState::Draining);
        scene.reach(&plain).await;
        scene.reach(&drained).await;
        let pool = scene.pools().await.remove(0);
        let members = scene.cloud.within::<Member>(&pool.id);
        let second = async || {
            let query = Query::all().with("address", "10.0.0.2");
            members.list::<Member>(query).await.unwrap().remove(0)
        };
        let it = second().await;
        assert_eq!(it.weight, Some(0));
        scene.fake.set_operating_status(it.id.as_str(), "DRAINING");
        // Who drained it is gone, and so is what he knew.
        scene.restarted();
        assert_eq!(scene.reach(&drained).await, [""; 0]);
        scene.restarted();
        assert_eq!(scene.reach(&plain).await.len(), 1);
        assert_eq!(second().await.weight, Some(1));
        // And by somebody's own hand.
        let change = MemberChange { weight: Edit::To(Some(0)), ..MemberChange::default() };
        members.change(&second().await.id, &change).await.unwrap();
        scene.fake.set_operating_status(second().await.id.as_str(), "DRAINING");
        scene.restarted();
        scene.reach(&plain).await;
        assert_eq!(second().await.weight, Some(1));
    }
}

/// cloud-provider-openstack 2675 and 2891; and 2174: what is to be internal is not shown outside.
#[tokio::test]
async fn internal_services_share_an_internal_load_balancer_and_none_that_the_outside_reaches() {
    let mut scene = Scene::set().await;
    let mut first = scene.wish(&[80], &[1]);
    outside(&mut first).internal = true;
    scene.reach(&first).await;
    let made = scene.balancers().await.remove(0);
    for internal in [true, false] {
        let mut second = guest(&scene, &[443], &made);
        outside(&mut second).internal = internal;
        scene.reach_of("uid-2", &second).await;
        assert_eq!(scene.served("uid-2", &second).await, [(made.vip_address.unwrap(), 443)]);
        assert!(scene.floating().await.is_empty(), "a guest leads nothing to it");
        scene.restarted();
        assert_eq!(scene.reach_of("uid-2", &second).await, [""; 0]);
    }
    // The first opens it to the outside.
    outside(&mut first).internal = false;
    scene.reach(&first).await;
    scene.restarted();
    let mut second = guest(&scene, &[443], &made);
    outside(&mut second).internal = true;
    let told = scene.reach_telling_of("uid-2", &second).await;
    assert!(
        told.len() == 1 && told[0].message.contains("an internal load balancer is requested"),
        "{told:?}"
    );
    let mut third = guest(&scene, &[8443], &made);
    outside(&mut third).internal = true;
    outside(&mut third).most_shared = 3;
    let desired = Desired::LoadBalancer(Arc::new(third));
    let refused =
        scene.driver.observe(&Context::default(), &unit_of(&owner_of("uid-3")), &desired).await.unwrap_err();
    assert!(matches!(refused, Failure::User(_)), "{refused}");
}

/// cloud-provider-openstack 2165: with some providers the whole is ACTIVE, and pools are PENDING_CREATE for ever.
#[tokio::test]
async fn a_pool_that_stays_pending_create_below_what_is_active_is_made_again() {
    let mut scene = Scene::with("ovn").await;
    let wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let pool = scene.pools().await.remove(0);
    scene.fake.set_provisioning_status(pool.id.as_str(), "PENDING_CREATE");
    // It takes no change, and nobody is at work on it.
    scene.restarted();
    assert_eq!(scene.reach(&wish).await.len(), 3, "pool and members are made anew");
    assert_ne!(scene.pools().await[0].id, pool.id);
    assert_eq!(scene.reach(&scene.wish(&[80], &[1, 2])).await.len(), 1);
    let pool = scene.pools().await.remove(0);
    scene.pass(Duration::from_secs(60));
    scene.fake.set_provisioning_status(pool.id.as_str(), "PENDING_UPDATE");
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.driver.audit(&"openstack".into()).await.unwrap().again, [unit()]);
    scene.reach(&scene.wish(&[80], &[1, 2])).await;
    assert_ne!(scene.pools().await[0].id, pool.id);
    scene.remove().await;
    assert!(scene.balancers().await.is_empty());
}

/// OVN's driver makes what is below one after the other, and the load balancer, ACTIVE meanwhile, says to the second when.
#[tokio::test]
async fn what_somebody_is_at_work_on_below_what_is_active_is_not_made_again() {
    let mut scene = Scene::with("ovn").await;
    let wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let (balancer, pool) = (scene.balancers().await.remove(0), scene.pools().await.remove(0));
    scene.fake.set_provisioning_status(pool.id.as_str(), "PENDING_CREATE");
    scene.restarted();
    let (so_far, moment) = (scene.clock.slept().len(), Duration::from_secs(2));
    let work = async {
        while !scene.clock.slept()[so_far..].iter().any(|it| *it >= moment) {
            tokio::task::yield_now().await;
        }
        scene.fake.advance(moment);
        for id in [pool.id.as_str(), balancer.id.as_str()] {
            scene.fake.set_provisioning_status(id, "ACTIVE");
        }
    };
    let (unit, desired) = (unit(), Desired::LoadBalancer(Arc::new(wish.clone())));
    let context = Context::default();
    let both = async { tokio::join!(scene.driver.observe(&context, &unit, &desired), work) };
    let both = tokio::time::timeout(Duration::from_secs(60), both).await;
    let observed = both.expect("it is looked at for a moment").0.unwrap();
    assert!(scene.driver.steps(&desired, &observed).is_empty());
    assert_eq!(scene.reach(&wish).await, [""; 0]);
    assert_eq!(scene.pools().await[0].id, pool.id);
}

/// A single 5xx while the other waited for the end of a load balancer left a security group, as the next look saw nothing.
#[tokio::test]
async fn a_5xx_while_a_deletion_is_waited_for_leaks_nothing() {
    for nth in 1..4 {
        let mut scene = Scene::set().await;
        scene.reach(&scene.wish(&[80], &[1])).await;
        let ports = scene.cloud.all::<Port>().list::<Port>(Query::all()).await.unwrap().len();
        scene.fake.pace(ChangeDuration::Time(Duration::from_secs(6)));
        scene.fake.fail(Fault::on("GET */lbaas/loadbalancers*").nth(nth).times(10).status(503));
        for turn in 0..100 {
            assert!(turn < 99, "it never ends");
            let gone = once(&scene, &Desired::Absent).await;
            if gone == Some(true) {
                break;
            }
            if turn == 5 {
                scene.restarted();
            }
            scene.pass(Duration::from_secs(5));
        }
        scene.fake.heal();
        assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
        let left = scene.cloud.all::<Port>().list::<Port>(Query::all()).await.unwrap().len();
        assert!(left < ports, "that of the VIP went");
    }
}

/// Whether there is nothing more to be done.
async fn once(scene: &Scene, desired: &Desired) -> Option<bool> {
    let mut observed = scene.driver.observe(&Context::default(), &unit(), desired).await.ok()?;
    for step in scene.driver.steps(desired, &observed) {
        scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await.ok()?;
    }
    Some(scene.driver.conclude(&unit(), desired, &observed).again.is_none())
}

/// Both controllers may name the provider's own timeouts of monitors; nobody writes them in turn.
#[tokio::test]
async fn a_monitor_that_others_changed_is_written_once() {
    let mut scene = Scene::set().await;
    let wish = probed(scene.wish(&[80], &[1]));
    scene.reach(&wish).await;
    let all = scene.cloud.all::<HealthMonitor>();
    let monitor = all.list::<HealthMonitor>(Query::all()).await.unwrap().remove(0);
    let change = HealthMonitorChange { delay: Edit::To(77), ..HealthMonitorChange::default() };
    all.change(&monitor.id, &change).await.unwrap();
    scene.restarted();
    assert_eq!(scene.reach(&wish).await, ["change the health monitor of 80/TCP"]);
    scene.restarted();
    assert_eq!(scene.reach(&wish).await, [""; 0]);
}
