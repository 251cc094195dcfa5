//! Providers that take one object at a time, and listeners of rarer kinds.

use std::sync::Arc;

use seaway_model::{
    Desired, L4, ListenerId, LoadBalancer,
    load_balancer::{HealthCheck, MemberState},
};
use seaway_openstack::{
    octavia::{HealthMonitor, MonitorType, Protocol},
    resource::Query,
};
use seaway_testkit::cloud::Fault;

use crate::scene::*;

pub(crate) fn serial(mut wish: LoadBalancer) -> LoadBalancer {
    wish.options.cloud.as_mut().unwrap().serial = true;
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).health = Some(HealthCheck::default());
    }
    wish
}

#[tokio::test]
async fn a_provider_that_wants_it_gets_one_object_at_a_time() {
    let mut scene = Scene::set().await;
    // What such a provider refuses: children in the request of their parents, and members in a batch.
    scene.fake.fail(Fault::on("PUT */members").always().status(501));
    scene.fake.forget_requests();
    let steps = scene.reach(&serial(scene.wish(&[80], &[1, 2]))).await;
    let name = "kube_service_kubernetes_default_nginxservice";
    assert_eq!(
        steps,
        [
            format!("create load balancer {name}"),
            format!("create listener listener_0_{name} for 80/TCP"),
            format!("create pool pool_0_{name} for 80/TCP"),
            "add member 10.0.0.1:30080 to the pool of 80/TCP".to_owned(),
            "add member 10.0.0.2:30080 to the pool of 80/TCP".to_owned(),
            "create the health monitor of 80/TCP".to_owned(),
            "associate a floating IP with the VIP".to_owned(),
        ]
    );
    let populated = |it: &seaway_testkit::cloud::Recorded| {
        it.body.as_ref().is_some_and(|it| !it["loadbalancer"]["listeners"].is_null())
    };
    assert!(!scene.fake.requests().iter().any(populated));
    let steps = scene.reach(&serial(scene.wish(&[80], &[2, 3]))).await;
    assert_eq!(
        steps,
        [
            "add member 10.0.0.3:30080 to the pool of 80/TCP",
            "remove member 10.0.0.1:30080 of the pool of 80/TCP"
        ]
    );
    scene.restarted();
    assert_eq!(scene.reach(&serial(scene.wish(&[80], &[2, 3]))).await, [""; 0]);
    // Its terms are known of one that we have put there ourselves.
    scene.reach(&serial(scene.wish(&[80], &[2]))).await;
    scene.reach(&serial(scene.wish(&[80], &[2, 3]))).await;
    let mut drained = serial(scene.wish(&[80], &[2, 3]));
    for pool in drained.pools.values_mut() {
        Arc::make_mut(pool).members[1].state = MemberState::Draining;
    }
    assert_eq!(scene.reach(&drained).await, ["change member 10.0.0.3:30080 of the pool of 80/TCP"]);
    scene.remove().await;
    assert!(scene.balancers().await.is_empty());
}

#[tokio::test]
async fn prometheus_finds_its_figures_at_a_port_of_their_own() {
    let mut scene = Scene::set().await;
    let plain = scene.wish(&[80], &[1]);
    let measured = |port| {
        let mut wish = plain.clone();
        wish.options.cloud.as_mut().unwrap().metrics = Some(port);
        wish
    };
    let ports = |all: Vec<seaway_openstack::octavia::Listener>| -> Vec<u16> {
        let metrics = all.into_iter().filter(|it| it.protocol == Protocol::Prometheus);
        metrics.map(|it| it.protocol_port).collect()
    };
    scene.reach(&measured(8088)).await;
    assert_eq!(ports(scene.listeners().await), [8088]);
    scene.restarted();
    assert_eq!(scene.reach(&measured(8088)).await, [""; 0]);
    let steps = scene.reach(&measured(9100)).await;
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert_eq!(ports(scene.listeners().await), [9100]);
    let mut guarded = measured(9100);
    for listener in guarded.listeners.values_mut() {
        Arc::make_mut(listener).sources = vec!["192.0.2.0/24".parse().unwrap()];
    }
    scene.reach(&guarded).await;
    let all = scene.listeners().await;
    assert!(all.iter().all(|it| it.allowed_cidrs.as_deref() == Some(&["192.0.2.0/24".to_owned()])));
    scene.reach(&plain).await;
    assert_eq!(ports(scene.listeners().await), [0; 0]);
    let same = scene.driver.refused_at_creation(&Desired::LoadBalancer(Arc::new(measured(80))));
    assert_eq!(same.len(), 1, "{same:?}");
    let ovn = Scene::with("ovn").await;
    let told = ovn.driver.refused_at_creation(&Desired::LoadBalancer(Arc::new(measured(8088))));
    assert!(told[0].1.message.contains("Prometheus"), "{told:?}");
}

#[tokio::test]
async fn sctp_is_served_and_probed() {
    let mut scene = Scene::set().await;
    let mut wish = scene.wish(&[3868], &[1, 2]);
    let mut listener = wish.listeners.remove(&tcp(3868)).unwrap();
    Arc::make_mut(&mut listener).l4 = L4::Sctp;
    let id = ListenerId { l4: L4::Sctp, port: 3868 };
    wish.listeners.insert(id, listener);
    wish.options.cloud.as_mut().unwrap().ports = vec![id];
    for pool in wish.pools.values_mut() {
        let pool = Arc::make_mut(pool);
        (pool.l4, pool.health) = (L4::Sctp, Some(HealthCheck::default()));
    }
    scene.reach(&wish).await;
    assert_eq!(scene.listeners().await[0].protocol, Protocol::Sctp);
    let monitors = scene.cloud.all::<HealthMonitor>().list::<HealthMonitor>(Query::all()).await.unwrap();
    assert_eq!(monitors[0].r#type, MonitorType::Sctp);
    scene.restarted();
    assert_eq!(scene.reach(&wish).await, [""; 0]);
    scene.remove().await;
}
