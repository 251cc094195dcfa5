//! `externalTrafficPolicy: Local`: Nodes without pods get nobody.

use std::{net::IpAddr, sync::Arc, time::Duration};

use seaway_engine::{Context, Driver};
use seaway_model::{
    Desired, L4, LoadBalancer,
    load_balancer::{CheckKind, HealthCheck},
};
use seaway_openstack::octavia::{HealthMonitor, Member, MonitorType, Pool};
use seaway_openstack::resource::Query;
use seaway_testkit::cloud::Fault;

use crate::{adopted::pointing, occm::OccmObjects, scene::*};

const HEALTH: u16 = 31_000;

/// Of three Nodes, the last has no pods; as the plan has it, `asked` where probes are usual.
fn local(scene: &Scene, asked: bool) -> LoadBalancer {
    let mut wish = scene.wish(&[80], &[1, 2, 3]);
    ask(&mut wish, asked);
    wish
}

/// The last of its Nodes has no pods.
pub(crate) fn ask(wish: &mut LoadBalancer, asked: bool) {
    wish.options.local_only = true;
    wish.options.health_check_node_port = Some(HEALTH);
    wish.options.cloud.as_mut().unwrap().monitored = asked;
    for pool in wish.pools.values_mut() {
        let pool = Arc::make_mut(pool);
        pool.members.last_mut().unwrap().weight = 0;
        let kind = CheckKind::Http { path: "/healthz".into(), host: None, status: (200, 200), expect: None };
        pool.health = Some(HealthCheck { kind, port: Some(HEALTH), ..HealthCheck::default() });
    }
}

async fn members(scene: &Scene) -> Vec<Member> {
    let pool: Pool = scene.cloud.all::<Pool>().list(Query::all()).await.unwrap().remove(0);
    scene.cloud.within::<Member>(&pool.id).list(Query::all()).await.unwrap()
}

async fn monitors(scene: &Scene) -> Vec<HealthMonitor> {
    scene.cloud.all::<HealthMonitor>().list(Query::all()).await.unwrap()
}

/// cloud-provider-openstack 2866: without `create-monitor`, Nodes without pods got their share.
#[tokio::test]
async fn nodes_are_asked_whether_they_have_pods_though_nobody_asked_for_probes() {
    let mut scene = Scene::set().await;
    let wish = local(&scene, false);
    scene.reach(&wish).await;
    let monitor = monitors(&scene).await.remove(0);
    assert_eq!(monitor.r#type, MonitorType::Http);
    assert_eq!(
        (monitor.url_path.as_deref(), monitor.expected_codes.as_deref()),
        (Some("/healthz"), Some("200"))
    );
    let members = members(&scene).await;
    assert_eq!(members.len(), 3, "a pod that moves is no change here");
    assert!(members.iter().all(|it| it.monitor_port == Some(HEALTH) && it.weight == Some(1)), "{members:?}");
    scene.restarted();
    assert_eq!(scene.reach(&wish).await, [""; 0]);
    // A pod moves.
    let mut moved = wish.clone();
    for pool in moved.pools.values_mut() {
        let members = &mut Arc::make_mut(pool).members;
        (members[0].weight, members[2].weight) = (0, 1);
    }
    assert_eq!(scene.reach(&moved).await, [""; 0]);
}

#[tokio::test]
async fn of_datagrams_they_are_asked_by_http_too() {
    let scene = Scene::set().await;
    let mut wish = local(&scene, false);
    transport(&mut wish, L4::Udp);
    scene.reach(&wish).await;
    assert_eq!(monitors(&scene).await.remove(0).r#type, MonitorType::Http);
}

/// occm.md, defects found: "OVN + Local + monitor: member PUT on every reconcile".
#[tokio::test]
async fn ovn_has_only_nodes_with_pods_and_is_not_written_to_again_and_again() {
    for (asked, monitor) in [(false, None), (true, Some(MonitorType::Tcp))] {
        let mut scene = Scene::with("ovn").await;
        let wish = local(&scene, asked);
        let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
        assert_eq!(scene.driver.refused_at_creation(&desired), [], "it has another way to do it");
        scene.reach(&wish).await;
        let found = members(&scene).await;
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|it| it.monitor_port.is_none()), "{found:?}");
        assert_eq!(monitors(&scene).await.first().map(|it| it.r#type.clone()), monitor);
        scene.fake.forget_requests();
        assert_eq!(scene.reach(&wish).await, [""; 0]);
        scene.restarted();
        assert_eq!(scene.reach(&wish).await, [""; 0]);
        assert_eq!(scene.fake.count("PUT *"), 0);
    }
}

#[tokio::test]
async fn who_wants_no_probes_has_only_nodes_with_pods() {
    let scene = Scene::set().await;
    let mut wish = local(&scene, false);
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).health = None;
    }
    scene.reach(&wish).await;
    assert_eq!((members(&scene).await.len(), monitors(&scene).await.len()), (2, 0));
}

/// What a status tree does not tell, weights and ports that are probed, is known before a monitor is written: a monitor asks
/// every member for `/healthz`, and where it asks a node port, nobody answers and nobody is served.
async fn are_asked_where_somebody_answers(scene: &Scene, port: Option<u16>) {
    let (members, monitors) = (members(scene).await, monitors(scene).await);
    assert!(
        !members.is_empty() && members.iter().all(|it| it.monitor_port == port),
        "{members:?} {monitors:?}"
    );
    let kind = if port.is_some() { MonitorType::Http } else { MonitorType::Tcp };
    assert!(monitors.iter().all(|it| it.r#type == kind), "{monitors:?}");
}

fn cluster_wide(scene: &Scene, probed: bool) -> LoadBalancer {
    let mut wish = scene.wish(&[80], &[1, 2, 3]);
    wish.options.cloud.as_mut().unwrap().monitored = probed;
    for pool in wish.pools.values_mut().filter(|_| probed) {
        let check = HealthCheck { kind: CheckKind::Tcp, ..HealthCheck::default() };
        Arc::make_mut(pool).health = Some(check);
    }
    wish
}

#[tokio::test]
async fn who_becomes_local_or_is_local_no_more_after_a_restart_is_asked_at_the_right_port() {
    for probed in [false, true] {
        let mut scene = Scene::set().await;
        let (wide, local) = (cluster_wide(&scene, probed), local(&scene, probed));
        scene.reach(&wide).await;
        scene.restarted();
        scene.reach(&local).await;
        are_asked_where_somebody_answers(&scene, Some(HEALTH)).await;
        scene.restarted();
        scene.reach(&wide).await;
        are_asked_where_somebody_answers(&scene, None).await;
        // The port that is asked is another.
        scene.reach(&local).await;
        scene.restarted();
        let mut moved = local.clone();
        moved.options.health_check_node_port = Some(HEALTH + 1);
        for pool in moved.pools.values_mut() {
            Arc::make_mut(pool).health.as_mut().unwrap().port = Some(HEALTH + 1);
        }
        scene.reach(&moved).await;
        are_asked_where_somebody_answers(&scene, Some(HEALTH + 1)).await;
        // What is right is not written again.
        scene.restarted();
        assert_eq!(scene.reach(&moved).await, [""; 0]);
    }
}

/// A write of members that failed leaves nobody knowing what they are.
#[tokio::test]
async fn after_a_write_of_members_that_failed_no_monitor_asks_at_node_ports() {
    let scene = Scene::set().await;
    let (wide, local) = (cluster_wide(&scene, false), local(&scene, false));
    scene.reach(&wide).await;
    scene.fake.fail(Fault::on("PUT */members").status(500));
    let desired = Desired::LoadBalancer(Arc::new(local.clone()));
    let mut failed = false;
    for _ in 0..3 {
        let Ok(mut observed) = scene.driver.observe(&Context::default(), &unit(), &desired).await else {
            continue;
        };
        for step in scene.driver.steps(&desired, &observed) {
            if scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await.is_err() {
                failed = true;
                break;
            }
        }
        assert_eq!(monitors(&scene).await.len(), 0, "members are not asked before they are as wished");
    }
    assert!(failed, "the write was tried");
    scene.fake.heal();
    scene.pass(Duration::from_secs(600));
    scene.reach(&local).await;
    are_asked_where_somebody_answers(&scene, Some(HEALTH)).await;
}

/// As OCCM leaves it: all three Nodes are members, the last one without pods.
fn of_another(provider: &'static str, monitored: bool) -> OccmObjects {
    let nodes = [("one", 1), ("two", 2), ("three", 3)].map(|(name, at)| (name, IpAddr::from([10, 0, 0, at])));
    OccmObjects { provider, monitored, ..OccmObjects::new("nginxservice", &[(80, 30_080)], &nodes) }
}

fn by_nodes(scene: &Scene, asked: bool) -> LoadBalancer {
    let mut wish = local(scene, asked);
    wish.options.cloud.as_mut().unwrap().by_nodes = true;
    wish
}

#[tokio::test]
async fn what_another_made_without_monitors_stays_so_until_its_service_asks_for_them() {
    for (provider, monitor) in [("amphora", MonitorType::Http), ("ovn", MonitorType::Tcp)] {
        let mut scene = Scene::with(provider).await;
        let (made, _) = of_another(provider, false).make(&scene.cloud, &scene.subnet).await;
        let wish = pointing(by_nodes(&scene, false), Some(made.id.as_str()), None);
        for _ in 0..2 {
            let told = scene.reach_telling(&wish).await;
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].fix.contains("enable-health-monitor"), "{:?}", told[0]);
            assert_eq!((members(&scene).await.len(), monitors(&scene).await.len()), (3, 0), "{provider}");
            scene.restarted();
        }
        assert_eq!(scene.fake.count("PUT */members") + scene.fake.count("DELETE *"), 0, "{provider}");
        // It is asked for.
        let asked = pointing(by_nodes(&scene, true), Some(made.id.as_str()), None);
        assert_eq!(scene.reach_telling(&asked).await, [], "{provider}");
        assert_eq!(members(&scene).await.len(), 3);
        assert_eq!(monitors(&scene).await.remove(0).r#type, monitor);
        scene.restarted();
        assert_eq!(scene.reach(&asked).await, [""; 0]);
    }
}

#[tokio::test]
async fn where_another_checked_them_by_ovn_nodes_without_pods_stay_members() {
    let scene = Scene::with("ovn").await;
    let (made, _) = of_another("ovn", true).make(&scene.cloud, &scene.subnet).await;
    let wish = pointing(by_nodes(&scene, true), Some(made.id.as_str()), None);
    assert_eq!(scene.reach_telling(&wish).await, []);
    assert_eq!((members(&scene).await.len(), monitors(&scene).await.len()), (3, 1));
    assert_eq!(scene.fake.count("PUT */members") + scene.fake.count("DELETE *"), 0);
}
