//! Kinds of health monitors, by choice.

use std::sync::Arc;

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, L4, LoadBalancer as Wish,
    load_balancer::{CheckKind, CloudHealthMonitor, CloudHealthMonitorType, HealthCheck},
};
use seaway_openstack::{octavia::HealthMonitor, resource::Query};

use crate::scene::*;

fn wish(scene: &Scene, kind: Option<CloudHealthMonitorType>, is_own: bool) -> Wish {
    let mut wish = scene.wish(&[80], &[1, 2]);
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).health = Some(HealthCheck::default());
    }
    let path = Some("/healthz".into());
    let probe = CloudHealthMonitor { kind, path, is_own, ..CloudHealthMonitor::default() };
    wish.options.cloud.as_mut().unwrap().probe = probe;
    wish
}

async fn monitor(scene: &Scene) -> HealthMonitor {
    let mut all = scene.cloud.all::<HealthMonitor>().list::<HealthMonitor>(Query::all()).await.unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[tokio::test]
async fn members_of_tcp_are_probed_by_the_kind_that_is_chosen_and_it_may_change() {
    let scene = Scene::set().await;
    for (kind, http) in [
        (CloudHealthMonitorType::Http, Some(("/healthz", "200"))),
        (CloudHealthMonitorType::Https, Some(("/healthz", "200"))),
        (CloudHealthMonitorType::TlsHello, None),
        (CloudHealthMonitorType::Ping, None),
        (CloudHealthMonitorType::Tcp, None),
    ] {
        scene.reach(&wish(&scene, Some(kind), true)).await;
        let now = monitor(&scene).await;
        let asked = now.url_path.as_deref().zip(now.expected_codes.as_deref());
        assert_eq!((now.r#type.as_str(), asked), (kind.as_str(), http));
        assert_eq!(scene.reach(&wish(&scene, Some(kind), true)).await, [""; 0], "{kind:?}: it is as wished");
    }
    let mut other = wish(&scene, Some(CloudHealthMonitorType::Http), true);
    let outside = other.options.cloud.as_mut().unwrap();
    (outside.probe.path, outside.probe.codes) = (Some("/ready".into()), Some("200-204".into()));
    scene.reach(&wish(&scene, Some(CloudHealthMonitorType::Http), true)).await;
    assert_eq!(scene.reach(&other).await, ["change the health monitor of 80/TCP"]);
    assert_eq!(monitor(&scene).await.expected_codes.as_deref(), Some("200-204"));
}

#[tokio::test]
async fn a_kind_that_does_not_suit_a_transport_leaves_its_usual_probe_and_is_told_if_the_service_says_it() {
    for is_own in [true, false] {
        let scene = Scene::set().await;
        let mut wish = wish(&scene, Some(CloudHealthMonitorType::Https), is_own);
        transport(&mut wish, L4::Udp);
        let told = scene.reach_telling(&wish).await;
        assert_eq!(monitor(&scene).await.r#type.as_str(), "UDP-CONNECT");
        assert_eq!(told.iter().any(|it| it.message.contains("by HTTPS")), is_own, "{told:?}");
    }
}

#[tokio::test]
async fn a_provider_that_only_connects_refuses_what_a_service_asks_and_connects_where_a_file_does() {
    for is_own in [true, false] {
        let scene = Scene::with("ovn").await;
        let connects = wish(&scene, None, false);
        scene.reach(&connects).await;
        let asked = wish(&scene, Some(CloudHealthMonitorType::Http), is_own);
        let told = scene.reach_telling(&asked).await;
        assert_eq!(monitor(&scene).await.r#type.as_str(), "TCP", "it serves as it did");
        assert!(told.iter().any(|it| it.message.contains("health check by HTTP")), "{told:?}");
    }
}

#[tokio::test]
async fn nodes_are_asked_for_their_pods_whatever_kind_is_chosen() {
    let scene = Scene::set().await;
    let mut wish = wish(&scene, Some(CloudHealthMonitorType::Ping), true);
    wish.options.local_only = true;
    wish.options.health_check_node_port = Some(32_000);
    for pool in wish.pools.values_mut() {
        let kind = CheckKind::Http { path: "/healthz".into(), host: None, status: (200, 200), expect: None };
        Arc::make_mut(pool).health = Some(HealthCheck { kind, port: Some(32_000), ..HealthCheck::default() });
    }
    scene.reach(&wish).await;
    let now = monitor(&scene).await;
    assert_eq!((now.r#type.as_str(), now.url_path.as_deref()), ("HTTP", Some("/healthz")));
}

/// 80 speaks plaintext, 443 TLS, 22 neither.
#[tokio::test]
async fn single_ports_are_probed_by_kinds_of_their_own() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[22, 80, 443], &[1]);
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).health = Some(HealthCheck::default());
    }
    let kinds =
        [(tcp(80), CloudHealthMonitorType::Http), (tcp(443), CloudHealthMonitorType::TlsHello)].into();
    wish.options.cloud.as_mut().unwrap().probe =
        CloudHealthMonitor { kinds, ..CloudHealthMonitor::default() };
    scene.reach(&wish).await;
    let all = scene.cloud.all::<HealthMonitor>().list::<HealthMonitor>(Query::all()).await.unwrap();
    let mut kinds: Vec<_> = all.iter().map(|it| it.r#type.as_str().to_owned()).collect();
    kinds.sort();
    assert_eq!(kinds, ["HTTP", "TCP", "TLS-HELLO"]);
    assert_eq!(scene.reach(&wish).await, [""; 0]);
}

/// Where nobody asks members how they are, those that are down would get their share.
#[tokio::test]
async fn a_port_whose_probe_the_provider_does_not_have_is_not_made() {
    let by_http = "health check by HTTP";
    for (provider, minor, l4, told) in [
        ("amphora", 30, L4::Tcp, None),
        ("amphora", 30, L4::Udp, None),
        ("amphora", 15, L4::Tcp, None),
        ("amphora", 15, L4::Udp, Some("HTTP health checks of UDP members")),
        ("ovn", 30, L4::Tcp, Some(by_http)),
        ("ovn", 30, L4::Udp, Some(by_http)),
    ] {
        let scene = Scene::with(provider).await;
        scene.fake.octavia_speaks(minor);
        let mut wish = scene.wish(&[53], &[1]);
        transport(&mut wish, l4);
        for pool in wish.pools.values_mut() {
            let health = HealthCheck { kind: CheckKind::http(), ..HealthCheck::default() };
            Arc::make_mut(pool).health = Some(health);
        }
        let desired = Desired::LoadBalancer(Arc::new(wish));
        let case = format!("{provider} 2.{minor} {l4}");
        match (scene.driver.observe(&Context::default(), &unit(), &desired).await, told) {
            (Ok(_), None) => {}
            (Err(Failure::User(found)), Some(told)) => {
                assert!(found.iter().any(|(_, it)| it.message.contains(told)), "{case}: {found:?}");
            }
            (found, _) => panic!("{case}: {:?}", found.map(|it| it.state())),
        }
    }
}
