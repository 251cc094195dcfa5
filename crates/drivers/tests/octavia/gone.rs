//! What is there though it was deleted, or though nobody asked for it twice; and what never becomes ready.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use prometheus_client::{encoding::text::encode, registry::Registry};
use seaway_engine::{Context, Driver, Failure};
use seaway_model::Desired;
use seaway_openstack::{
    octavia::{LoadBalancer as Balancer, LoadBalancerChange, NewLoadBalancer},
    resource::Edit,
};
use seaway_testkit::cloud::{ChangeDuration, Fault};

use crate::{opened::other_subnet, scene::*};

/// OVN does so: what was deleted is ACTIVE again by a late status update, or was never deleted at all.
#[tokio::test]
async fn what_was_deleted_and_is_still_there_is_deleted_again() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80, 443], &[1])).await;
    scene.fake.fail(Fault::on("DELETE */lbaas/pools/*").reply(204, serde_json::Value::Null));
    scene.reach(&scene.wish(&[80], &[1])).await;
    assert_eq!((scene.pools().await.len(), scene.listeners().await.len()), (1, 1));
    // One that can never be deleted is not asked for without end.
    scene.reach(&scene.wish(&[80, 443], &[1])).await;
    scene.fake.fail(Fault::on("DELETE */lbaas/pools/*").always().reply(204, serde_json::Value::Null));
    scene.fake.forget_requests();
    scene.reach(&scene.wish(&[80], &[1])).await;
    assert!(scene.fake.count("DELETE */lbaas/pools/*") <= 4);
    scene.fake.heal();
    scene.pass(Duration::from_secs(300));
    let audited = scene.driver.audit(&"openstack".into()).await.unwrap();
    assert_eq!(audited.again, [unit()]);
    scene.reach(&scene.wish(&[80], &[1])).await;
    assert_eq!(scene.pools().await.len(), 1);
}

/// A request that was repeated is done minutes later: what it makes is older by its date than what serves.
#[tokio::test]
async fn a_late_twin_goes_and_the_one_that_serves_stays_however_old_they_are() {
    for (restarts, elsewhere) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut scene = Scene::set().await;
        let wish = scene.wish(&[80], &[1]);
        // Nobody said where it is, and Nodes are in several subnets: a request that is repeated may say another.
        let subnet = if elsewhere { other_subnet(&scene).await } else { scene.subnet.clone() };
        let late = NewLoadBalancer {
            name: "late".into(),
            description: "Kubernetes external service default/nginxservice from cluster kubernetes".into(),
            vip_subnet_id: Some(subnet.clone()).into(),
            ..NewLoadBalancer::new()
        };
        let late = scene.cloud.all::<Balancer>().create(&late).await.unwrap().id;
        scene.pass(Duration::from_secs(60));
        scene.reach(&wish).await;
        let all = scene.balancers().await;
        let serves = all.iter().find(|it| it.id != late).unwrap().clone();
        assert_eq!(serves.vip_subnet_id != Some(subnet), elsewhere);
        let change = LoadBalancerChange {
            name: serves.name.as_str().into(),
            tags: Edit::To(serves.tags.clone()),
            ..LoadBalancerChange::default()
        };
        scene.cloud.all::<Balancer>().change(&late, &change).await.unwrap();
        scene.pass(Duration::from_secs(300));
        assert_eq!(scene.balancers().await.len(), 2);
        match restarts {
            true => scene.restarted(),
            false => {
                let audited = scene.driver.audit(&"openstack".into()).await.unwrap();
                assert_eq!(audited.again, [unit()]);
            }
        }
        let steps = scene.reach(&wish).await;
        assert_eq!(steps, [format!("delete load balancer {late}, a duplicate")]);
        let mut left = scene.balancers().await;
        for _ in 0..10 {
            scene.pass(Duration::from_secs(60));
            left = scene.balancers().await;
        }
        assert_eq!((left.len(), &left[0].id), (1, &serves.id));
        assert_eq!(scene.floating().await.remove(0).port_id, serves.vip_port_id);
    }
}

#[tokio::test]
async fn what_is_pending_for_too_long_is_told_once_and_is_a_problem_meanwhile() {
    let mut scene = Scene::set().await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    scene.hear(&heard);
    scene.fake.pace(ChangeDuration::Never);
    let desired = |ports: &[u16]| Desired::LoadBalancer(Arc::new(scene.wish(ports, &[1])));
    let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired(&[80])).await.unwrap();
    for step in scene.driver.steps(&desired(&[80]), &observed) {
        scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await.unwrap();
    }
    let stuck = || metric(&scene, "\nseaway_openstack_stuck_load_balancers ");
    for (seconds, is_long) in [(10, false), (800, false), (200, true), (600, true)] {
        scene.pass(Duration::from_secs(seconds));
        let observed = scene.driver.observe(&Context::default(), &unit(), &desired(&[80])).await.unwrap();
        let told = scene.driver.conclude(&unit(), &desired(&[80]), &observed).problems;
        assert_eq!(told.len(), usize::from(is_long), "{told:?}");
        assert!(told.iter().all(|(_, it)| it.message.contains("PENDING_CREATE since")), "{told:?}");
        assert_eq!(stuck(), if is_long { "1" } else { "0" });
    }
    // Who wants something else of it hears it as well.
    let mut observed =
        scene.driver.observe(&Context::default(), &unit(), &desired(&[80, 443])).await.unwrap();
    let steps = scene.driver.steps(&desired(&[80, 443]), &observed);
    let waits = scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap_err();
    assert!(matches!(waits, Failure::Retry { after: Some(_), .. }), "{waits}");
    assert_eq!(heard.lock().unwrap().iter().filter(|it| it.reason == "Stuck").count(), 1);
    // It becomes ready after all, or it goes.
    let id = scene.balancers().await.remove(0).id;
    scene.fake.set_provisioning_status(id.as_str(), "ACTIVE");
    scene.pass(Duration::from_secs(10));
    scene.driver.observe(&Context::default(), &unit(), &desired(&[80])).await.unwrap();
    scene.driver.audit(&"openstack".into()).await.unwrap();
    assert_eq!(stuck(), "0", "until the next audit it is counted");
    let help = metric(&scene, "# HELP seaway_openstack_stuck_load_balancers ");
    assert!(help.contains("pending-limit"), "which limit that is: {help}");
}

/// The rest of the line that begins so, as Prometheus reads it.
fn metric(scene: &Scene, begin: &str) -> String {
    let mut registry = Registry::default();
    scene.cloud.metrics().register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text.split_once(begin).unwrap_or_default().1.lines().next().unwrap_or_default().to_owned()
}

/// A request that was repeated may have made it; nobody has looked since.
#[tokio::test]
async fn what_is_deleted_while_it_changes_is_followed_by_its_twin_and_by_no_third() {
    let scene = Scene::set().await;
    // No floating IP is left that would lead there.
    let inside = |ports: &[u16]| {
        let mut wish = scene.wish(ports, &[1]);
        wish.options.cloud.as_mut().unwrap().internal = true;
        wish
    };
    scene.reach(&inside(&[80])).await;
    let first = scene.balancers().await.remove(0);
    let new = NewLoadBalancer {
        name: first.name.as_str().into(),
        description: first.description.as_str().into(),
        vip_subnet_id: Some(scene.subnet.clone()).into(),
        provider: Edit::To(first.provider.clone()),
        tags: Edit::To(first.tags.clone()),
        ..NewLoadBalancer::new()
    };
    let twin = scene.cloud.all::<Balancer>().create(&new).await.unwrap().id;
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.balancers().await.len(), 2);
    let wish = inside(&[80, 443]);
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = scene.driver.steps(&desired, &observed);
    scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap();
    assert!(observed.is_pending(), "{}", steps[0]);
    // Others see that it is done, and delete it.
    let others_look = async || {
        for _ in 0..5 {
            scene.balancers().await;
        }
    };
    others_look().await;
    scene.cloud.all::<Balancer>().delete_cascade(&first.id).await.unwrap();
    others_look().await;
    assert_eq!(scene.balancers().await.len(), 1);
    let steps = scene.reach(&wish).await;
    assert!(!steps.iter().any(|it| it.starts_with("create load balancer")), "{steps:?}");
    let left = scene.balancers().await;
    assert_eq!((left.len(), &left[0].id), (1, &twin));
    assert_eq!(scene.listeners().await.len(), 2);
}
