//! Whom a client stays with, where OVN's provider has one word for all of a transport, and Octavia tells what was asked for.
//! What OVN itself has is looked at on the real one (crates/cli/tests/openstack_octavia/affinity.rs).

use std::{sync::Arc, time::Duration};

use seaway_model::{
    Desired, L4, LoadBalancer, Reason,
    load_balancer::{Affinity, HealthCheck},
};

use crate::scene::*;

const HOUR: u64 = 3_600;

fn datagrams(scene: &Scene, ports: &[u16]) -> LoadBalancer {
    let mut wish = scene.wish(ports, &[1]);
    transport(&mut wish, L4::Udp);
    wish
}

fn kept(mut wish: LoadBalancer, seconds: u64) -> LoadBalancer {
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).affinity = Some(Affinity::ClientIp(Duration::from_secs(seconds)));
    }
    wish
}

/// How long clients are kept by each pool.
async fn times(scene: &Scene) -> Vec<Option<u64>> {
    let pools = scene.pools().await;
    pools.into_iter().map(|it| it.session_persistence.and_then(|it| it.persistence_timeout)).collect()
}

#[tokio::test]
async fn clients_that_send_datagrams_are_kept_for_as_long_as_their_service_says() {
    for provider in ["amphora", "ovn"] {
        let mut scene = Scene::with(provider).await;
        for seconds in [HOUR, 60] {
            let wish = kept(datagrams(&scene, &[53]), seconds);
            scene.reach(&wish).await;
            assert_eq!(times(&scene).await, [Some(seconds)], "{provider}");
            scene.restarted();
            assert_eq!(scene.reach(&wish).await, [""; 0], "{provider}");
        }
    }
}

/// Said within a whole load balancer, nobody hears it there.
#[tokio::test]
async fn to_ovn_it_is_said_of_the_pool_alone() {
    for (provider, writes) in [("ovn", 1), ("amphora", 0)] {
        let scene = Scene::with(provider).await;
        scene.reach(&kept(datagrams(&scene, &[53]), HOUR)).await;
        assert_eq!(scene.fake.count("PUT */lbaas/pools/*"), writes, "{provider}");
    }
}

/// Told that there is none any more, OVN's provider does nothing.
#[tokio::test]
async fn from_ovn_it_goes_with_its_pool_and_members_serve_on() {
    let mut scene = Scene::with("ovn").await;
    let mut without = datagrams(&scene, &[53]);
    for pool in without.pools.values_mut() {
        Arc::make_mut(pool).health = Some(HealthCheck::default());
    }
    scene.reach(&kept(without.clone(), HOUR)).await;
    let made = scene.pools().await.remove(0).id;
    let told = scene.reach(&without).await.join(", ");
    let in_order =
        ["to replace that of 53/UDP", "set the 1 members", "move the listener", "delete pool", "monitor"];
    let at: Vec<_> = in_order.iter().map(|it| told.find(it)).collect();
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{told}");
    let now = scene.pools().await;
    assert_eq!(now.len(), 1);
    assert!(now[0].id != made && now[0].session_persistence.is_none() && now[0].healthmonitor_id.is_some());
    scene.restarted();
    assert_eq!(scene.reach(&without).await, [""; 0]);
}

#[tokio::test]
async fn when_a_pool_of_ovn_goes_those_that_stay_say_theirs_again() {
    for (provider, writes) in [("ovn", 1), ("amphora", 0)] {
        let mut scene = Scene::with(provider).await;
        scene.reach(&kept(datagrams(&scene, &[53, 54]), HOUR)).await;
        scene.fake.forget_requests();
        let fewer = kept(datagrams(&scene, &[53]), HOUR);
        scene.reach(&fewer).await;
        let [told, gone] = ["PUT", "DELETE"].map(|it| scene.fake.count(&format!("{it} */lbaas/pools/*")));
        assert_eq!((told, gone), (writes, 1), "{provider}");
        scene.restarted();
        assert_eq!(scene.reach(&fewer).await, [""; 0]);
    }
}

#[tokio::test]
async fn that_ovn_keeps_no_client_of_tcp_is_told_and_it_is_served() {
    for (provider, problems) in [("ovn", 1), ("amphora", 0)] {
        let scene = Scene::with(provider).await;
        let wish = kept(scene.wish(&[80], &[1]), HOUR);
        let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
        assert_eq!(scene.driver.refused_at_creation(&desired), []);
        let told = scene.reach_telling(&wish).await;
        assert_eq!(told.len(), problems, "{provider}: {told:?}");
        assert_eq!(scene.listeners().await.len(), 1, "{provider}");
        for it in told {
            assert!(
                it.reason == Reason::Unsupported
                    && it.message.contains("80/TCP: OVN has no session affinity"),
                "{it:?}"
            );
        }
    }
}
