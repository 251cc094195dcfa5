//! From one wish to the next.

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, LoadBalancer,
    load_balancer::{Affinity, Balance, CloudTimeouts, HealthCheck, Protocol, ProxyVersion},
};
use seaway_openstack::octavia::{Algorithm, Protocol as Spoken, Provisioning};
use seaway_testkit::{
    cloud::{ChangeDuration, Fault},
    conformance::converges_in_time,
};

use crate::scene::*;

fn pools(wish: &mut LoadBalancer, change: impl Fn(&mut seaway_model::Pool)) {
    for pool in wish.pools.values_mut() {
        change(Arc::make_mut(pool));
    }
}

fn listeners(wish: &mut LoadBalancer, change: impl Fn(&mut seaway_model::Listener)) {
    for listener in wish.listeners.values_mut() {
        change(Arc::make_mut(listener));
    }
}

#[tokio::test]
async fn every_wish_is_reached_from_every_other() {
    let mut scene = Scene::set().await;
    let plain = scene.wish(&[80, 443], &[1, 2]);
    let mut probed = plain.clone();
    pools(&mut probed, |it| it.health = Some(HealthCheck::default()));
    let mut web = plain.clone();
    listeners(&mut web, |it| it.protocol = Protocol::Http);
    let mut introduced = plain.clone();
    pools(&mut introduced, |it| it.proxy = Some(ProxyVersion::V2));
    let mut sticky = plain.clone();
    pools(&mut sticky, |it| it.affinity = Some(Affinity::ClientIp(Duration::from_secs(60))));
    let mut even = plain.clone();
    pools(&mut even, |it| it.balance = Balance::LeastConnections);
    let mut guarded = plain.clone();
    listeners(&mut guarded, |it| it.sources = vec!["192.0.2.0/24".parse().unwrap()]);
    let mut hidden = plain.clone();
    hidden.options.cloud.as_mut().unwrap().internal = true;
    let mut patient = plain.clone();
    patient.options.cloud.as_mut().unwrap().timeouts =
        CloudTimeouts { client_data: Some(600_000), tcp_inspect: Some(100), ..CloudTimeouts::default() };
    let others = [
        probed,
        web,
        introduced,
        sticky,
        even,
        guarded,
        hidden,
        patient,
        scene.wish(&[443, 80, 25], &[2, 3]),
    ];
    let mut wanted = Vec::new();
    for (number, one) in others.iter().enumerate() {
        wanted.extend([&plain, one, &others[(number + 3) % others.len()]]);
    }
    for wish in &wanted {
        scene.reach(wish).await;
        let patience = wish.options.cloud.as_ref().unwrap().timeouts.client_data.unwrap_or(50_000);
        let all = scene.listeners().await;
        assert!(all.iter().all(|it| it.timeout_client_data == Some(patience.into())), "{all:?}");
        scene.restarted();
        assert_eq!(scene.reach(wish).await, [""; 0], "fresh eyes see the same");
    }
    let wanted: Vec<_> = wanted.iter().map(|it| Desired::LoadBalancer(Arc::new((*it).clone()))).collect();
    converges_in_time(&*scene.driver, &unit(), &wanted, |time| {
        scene.fake.advance(time);
        scene.clock.advance(time);
    })
    .await;
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty(), "nothing is left");
}

#[tokio::test]
async fn a_whole_load_balancer_takes_one_request_and_its_floating_ip_another() {
    let scene = Scene::set().await;
    scene.fake.pace(ChangeDuration::Time(Duration::from_secs(60)));
    scene.fake.forget_requests();
    let steps = scene.reach(&scene.wish(&[80, 443], &[1, 2, 3])).await;
    assert_eq!(
        steps,
        [
            "create load balancer kube_service_kubernetes_default_nginxservice",
            "associate a floating IP with the VIP"
        ]
    );
    assert_eq!((scene.fake.count("POST */lbaas/*"), scene.fake.count("POST */floatingips")), (1, 1));
    let looks = scene.fake.count("GET */lbaas/loadbalancers*");
    assert!(looks <= 44, "one list before, some soon after the write, then one every two seconds: {looks}");
    let all = scene.fake.requests().len();
    assert!(
        all - looks <= 11,
        "{all} requests, of them {looks} looks: lists of all and quotas are read once"
    );
    let made = scene.balancers().await.remove(0);
    assert!(made.tags.contains("seaway.dev/cluster=6c1d") && made.tags.contains("seaway.dev/key=uid-1"));
    assert_eq!(made.description, "Kubernetes external service default/nginxservice from cluster kubernetes");
}

#[tokio::test]
async fn what_is_as_it_should_be_is_not_asked_for_again() {
    let mut scene = Scene::set().await;
    let wish = scene.wish(&[80, 443], &[1, 2]);
    scene.reach(&wish).await;
    scene.fake.forget_requests();
    assert_eq!(scene.reach(&wish).await, [""; 0]);
    assert_eq!(scene.fake.requests().len(), 0, "what we made is known");
    scene.restarted();
    assert_eq!(scene.reach(&wish).await, [""; 0], "nor is there anything to do after a restart");
}

#[tokio::test]
async fn a_port_put_first_renames_nothing() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80, 443], &[1])).await;
    let steps = scene.reach(&scene.wish(&[25, 80, 443], &[1])).await;
    let new = "kube_service_kubernetes_default_nginxservice";
    assert_eq!(
        steps,
        [
            format!("create listener listener_2_{new} for 25/TCP"),
            format!("create pool pool_2_{new} for 25/TCP"),
            "set the 1 members of the pool of 25/TCP".to_owned()
        ]
    );
    let names: Vec<String> = scene.listeners().await.into_iter().map(|it| it.name).collect();
    assert!(names.contains(&format!("listener_0_{new}")) && names.contains(&format!("listener_1_{new}")));
}

#[tokio::test]
async fn another_node_is_one_write_for_each_port() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80, 443], &[1, 2])).await;
    let steps = scene.reach(&scene.wish(&[80, 443], &[1, 2, 3])).await;
    assert_eq!(
        steps,
        ["set the 3 members of the pool of 80/TCP", "set the 3 members of the pool of 443/TCP"]
    );
}

/// Another listener of the same port is refused while the first is there: the other controller asked for ever.
#[tokio::test]
async fn http_takes_the_place_of_tcp_on_a_port_that_is_served() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    listeners(&mut wish, |it| it.protocol = Protocol::Http);
    scene.reach(&wish).await;
    let there = scene.listeners().await;
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].protocol, Spoken::Http);
    assert_eq!(there[0].insert_headers.get("X-Forwarded-For").map(String::as_str), Some("true"));
    assert_eq!(scene.pools().await.len(), 1);
}

#[tokio::test]
async fn a_provider_that_has_no_round_robin_takes_what_it_has() {
    let scene = Scene::with("ovn").await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    assert_eq!(scene.pools().await[0].lb_algorithm, Algorithm::SourceIpPort);
    let mut wish = scene.wish(&[80], &[1]);
    listeners(&mut wish, |it| it.protocol = Protocol::Http);
    let refused = scene.driver.refused_at_creation(&Desired::LoadBalancer(Arc::new(wish)));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].1.message.contains("has no HTTP"), "{}", refused[0].1.message);
}

#[tokio::test]
async fn what_can_be_asked_for_is_what_the_provider_of_that_service_can() {
    for (usual, own, refused, algorithm) in
        [("ovn", "amphora", 0, Algorithm::RoundRobin), ("amphora", "ovn", 1, Algorithm::SourceIpPort)]
    {
        let scene = Scene::with(usual).await;
        let mut wish = scene.wish(&[80], &[1]);
        wish.options.cloud.as_mut().unwrap().provider = Some(own.into());
        scene.reach(&wish).await;
        assert_eq!(scene.balancers().await[0].provider.as_deref(), Some(own));
        assert_eq!(scene.pools().await[0].lb_algorithm, algorithm, "{own}");
        listeners(&mut wish, |it| it.protocol = Protocol::Http);
        let told = scene.driver.refused_at_creation(&Desired::LoadBalancer(Arc::new(wish)));
        assert_eq!(told.len(), refused, "{own}: {told:?}");
    }
}

/// Its driver breaks over a change of a pool that does not say whether the pool is up.
#[tokio::test]
async fn affinity_that_comes_and_goes_changes_a_pool_of_ovn_where_it_is() {
    let scene = Scene::with("ovn").await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let made = scene.pools().await.remove(0).id;
    let without = wish.clone();
    pools(&mut wish, |it| it.affinity = Some(Affinity::ClientIp(Duration::from_secs(3_600))));
    for wish in [wish, without] {
        scene.fake.forget_requests();
        // It is told that no client is kept there (affinity.rs).
        scene.reach_telling(&wish).await;
        assert_eq!(scene.fake.count("PUT */lbaas/pools/*"), 1);
        let now = scene.pools().await.remove(0);
        assert_eq!((now.id, now.provisioning_status), (made.clone(), Provisioning::Active));
        assert_eq!(now.session_persistence.is_some(), wish.pools.values().any(|it| it.affinity.is_some()));
        scene.reach_telling(&wish).await;
        assert_eq!(scene.fake.count("PUT */lbaas/pools/*"), 1);
    }
}

#[tokio::test]
async fn one_in_error_is_a_problem_of_its_service() {
    let mut scene = Scene::set().await;
    let wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let id = scene.balancers().await.remove(0).id;
    scene.fake.set_provisioning_status(id.as_str(), "ERROR");
    scene.restarted();
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let told = scene.conclude(&wish, &observed);
    assert_eq!(observed.balancer.unwrap().it.provisioning_status, Provisioning::Error);
    assert_eq!(told.problems.len(), 1);
    assert!(told.problems[0].1.message.contains("is in ERROR"));
}

#[tokio::test]
async fn a_request_that_only_its_user_can_mend_is_told_to_him() {
    let scene = Scene::set().await;
    scene.fake.fail(Fault::on("POST */lbaas/loadbalancers").always().reply(
        403,
        serde_json::json!({ "faultcode": "Client", "faultstring": "Quota has been met for resources: Load Balancer" }),
    ));
    let desired = Desired::LoadBalancer(Arc::new(scene.wish(&[80], &[1])));
    let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = scene.driver.steps(&desired, &observed);
    let failed =
        scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap_err();
    let Failure::User(told) = failed else { panic!("{failed}") };
    assert_eq!(told[0].0, owner());
    assert!(told[0].1.message.contains("Quota"), "{:?}", told[0].1);
    scene.fake.heal();
    scene.reach(&scene.wish(&[80], &[1])).await;
    assert_eq!(scene.balancers().await.len(), 1, "nothing is lost by it");
}
