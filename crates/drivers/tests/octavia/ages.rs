//! What an older API of Octavia, or a provider, has no word for: not asked for, and told.

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, L4, ListenerId, LoadBalancer, load_balancer::HealthCheck};

use crate::scene::*;

const ID: &str = "00000000-0000-4000-8000-000000000001";

/// What is told once there is one; and the request that made it.
async fn made(scene: &Scene, wish: &LoadBalancer) -> (Vec<String>, serde_json::Value) {
    let told = scene.reach_telling(wish).await.into_iter().map(|it| it.message).collect();
    let requests = scene.fake.requests();
    let made = requests.iter().find(|it| it.method == "POST" && it.path.ends_with("/loadbalancers"));
    (told, made.and_then(|it| it.body.clone()).expect("it was made")["loadbalancer"].clone())
}

#[tokio::test]
async fn without_tags_nothing_is_made_since_nobody_would_find_it_again() {
    let scene = Scene::set().await;
    scene.fake.octavia_speaks(4);
    let desired = Desired::LoadBalancer(Arc::new(scene.wish(&[80], &[1])));
    // Before it is joined, no version is known.
    let Some(Failure::User(told)) = scene.driver.observe(&Context::default(), &unit(), &desired).await.err()
    else {
        panic!("it is refused")
    };
    assert!(told[0].1.message.contains("older than 2.5"), "{told:?}");
    assert!(scene.balancers().await.is_empty());
}

#[tokio::test]
async fn flavors_and_zones_are_left_out_where_there_are_none_and_that_is_told() {
    for (provider, minor) in [("ovn", 30), ("amphora", 5)] {
        let scene = Scene::with(provider).await;
        scene.fake.octavia_speaks(minor);
        let mut wish = scene.wish(&[80], &[1]);
        let outside = wish.options.cloud.as_mut().unwrap();
        (outside.flavor, outside.zone) = (Some(ID.into()), Some("z".into()));
        outside.timeouts.client_data = Some(7);
        let (told, made) = made(&scene, &wish).await;
        assert!(made.get("flavor_id").is_none() && made.get("availability_zone").is_none(), "{made}");
        for (what, is_told) in
            [("flavors", true), ("availability zones", true), ("timeouts", provider == "ovn")]
        {
            assert_eq!(told.iter().any(|it| it.contains(&format!("has no {what}"))), is_told, "{told:?}");
        }
    }
}

#[tokio::test]
async fn two_transports_share_a_port_only_where_the_api_lets_them() {
    for (minor, expected) in [(12, 1), (13, 2)] {
        let scene = Scene::set().await;
        scene.fake.octavia_speaks(minor);
        let mut wish = scene.wish(&[53], &[1]);
        let mut other = scene.wish(&[53], &[1]);
        transport(&mut other, L4::Udp);
        wish.listeners.extend(other.listeners);
        let id = ListenerId { l4: L4::Udp, port: 53 };
        wish.options.cloud.as_mut().unwrap().ports.push(id);
        // Each has a pool of its own.
        let mut pool = (**wish.pools.values().next().unwrap()).clone();
        (pool.id, pool.l4) = (seaway_model::PoolId("53/UDP".into()), L4::Udp);
        let listener = Arc::make_mut(wish.listeners.get_mut(&id).unwrap());
        listener.rules =
            vec![seaway_model::load_balancer::Rule::forward_all(owner(), pool.id.clone()).into()];
        wish.pools.insert(pool.id.clone(), Arc::new(pool));
        let (told, _) = made(&scene, &wish).await;
        assert_eq!(scene.listeners().await.len(), expected, "2.{minor}");
        assert_eq!(told.iter().any(|it| it.contains("53/UDP")), expected == 1, "{told:?}");
    }
}

#[tokio::test]
async fn probes_that_are_not_as_somebody_said_are_told() {
    let check = |interval, timeout, rise, fall| HealthCheck {
        interval: Duration::from_millis(interval),
        timeout: Duration::from_millis(timeout),
        rise,
        fall,
        ..HealthCheck::default()
    };
    for (l4, check, expected) in [
        (L4::Tcp, check(5_000, 3_000, 2, 3), None),
        (L4::Tcp, check(5_000, 9_000, 2, 3), Some("may last 5 seconds, not 9")),
        (L4::Udp, check(1_000, 1_000, 2, 3), Some("come every 3 seconds, not every 1")),
        (L4::Udp, check(5_000, 3_000, 2, 3), None),
        (L4::Tcp, check(300, 1_000, 2, 3), Some("probes come every 1 seconds, not 300ms")),
        (L4::Tcp, check(2_500, 1_000, 2, 3), Some("probes come every 3 seconds, not 2.5s")),
        (L4::Tcp, check(7_200_000, 1_000, 2, 3), Some("probes come every 3600 seconds, not 7200s")),
        (L4::Tcp, check(5_000, 900, 2, 3), Some("may last 1 seconds, not 900ms")),
        (L4::Tcp, check(5_000, 3_000, 10, 10), None),
        (L4::Tcp, check(5_000, 3_000, 11, 10), Some("10 successes in a row are required, not 11")),
        (L4::Tcp, check(5_000, 3_000, 10, 255), Some("10 failures in a row are required, not 255")),
    ] {
        let scene = Scene::set().await;
        let mut wish = scene.wish(&[53], &[1]);
        transport(&mut wish, l4);
        for pool in wish.pools.values_mut() {
            Arc::make_mut(pool).health = Some(check.clone());
        }
        let (told, _) = made(&scene, &wish).await;
        match expected {
            Some(expected) => assert!(told.len() == 1 && told[0].contains(expected), "{told:?}"),
            None => assert_eq!(told, [""; 0]),
        }
    }
}

#[tokio::test]
async fn weights_that_are_cut_are_told() {
    for (weight, expected) in [(256, None), (257, Some("256 at most: 10.0.0.2:30080 has 257"))] {
        let scene = Scene::set().await;
        let mut wish = scene.wish(&[80], &[1, 2]);
        let pool = Arc::make_mut(wish.pools.values_mut().next().unwrap());
        pool.members[1].weight = weight;
        let at = pool.members[1].at;
        let (told, made) = made(&scene, &wish).await;
        let members = &made["listeners"][0]["default_pool"]["members"];
        assert_eq!(members[1]["weight"], 256, "{members}");
        let expected: Vec<String> =
            expected.iter().map(|it| it.replace("10.0.0.2:30080", &at.to_string())).collect();
        assert_eq!(told.len(), expected.len(), "{told:?}");
        assert!(expected.iter().all(|it| told[0].contains(it)), "{told:?}");
    }
}
