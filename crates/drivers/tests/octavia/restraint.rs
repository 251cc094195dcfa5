//! When nothing is written: a Service that is paused, a project that has no room.

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer, Reason};
use seaway_openstack::{neutron::FloatingIp, octavia::Listener, quota::Limits};

use crate::scene::*;

fn desired(wish: &LoadBalancer) -> Desired {
    Desired::LoadBalancer(Arc::new(wish.clone()))
}

fn writes(scene: &Scene) -> usize {
    scene.fake.requests().iter().filter(|it| it.method != "GET").count()
}

#[tokio::test]
async fn of_a_service_that_is_paused_nothing_is_written_until_it_is_no_more() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    scene.fake.forget_requests();
    let changed = scene.wish(&[80, 443], &[1, 2]);
    wish = changed.clone();
    wish.options.cloud.as_mut().unwrap().paused = true;
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired(&wish)).await.unwrap();
    assert!(scene.driver.steps(&desired(&wish), &observed).is_empty());
    let told = scene.conclude(&wish, &observed);
    assert_eq!(told.problems.len(), 1, "once, however many ports there are");
    assert_eq!(told.problems[0].1.reason, Reason::Paused);
    assert!(told.problems[0].1.fix.contains("seaway.dev/pause"));
    assert_eq!(told.serving.len(), 1, "what is served is served on");
    // What others do meanwhile is not put right either.
    let listener = scene.listeners().await.remove(0);
    scene.cloud.all::<Listener>().delete(&listener.id).await.unwrap();
    scene.pass(Duration::from_secs(300));
    scene.balancers().await;
    scene.fake.forget_requests();
    assert_eq!(scene.driver.audit(&"openstack".into()).await.unwrap().again, [unit()]);
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired(&wish)).await.unwrap();
    assert!(scene.driver.steps(&desired(&wish), &observed).is_empty());
    assert_eq!(writes(&scene), 0);
    scene.reach(&changed).await;
    assert_eq!(scene.listeners().await.len(), 2, "then all is done at once");
}

#[tokio::test]
async fn one_that_is_paused_from_the_first_is_not_made() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    wish.options.cloud.as_mut().unwrap().paused = true;
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired(&wish)).await.unwrap();
    assert!(scene.driver.steps(&desired(&wish), &observed).is_empty());
    assert_eq!(scene.conclude(&wish, &observed).problems[0].1.reason, Reason::Paused);
}

#[tokio::test]
async fn where_all_are_switched_off_what_is_there_stays_and_what_is_deleted_goes() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    scene.fake.forget_requests();
    let mut wish = scene.wish(&[80, 443], &[1, 2]);
    wish.options.cloud.as_mut().unwrap().off = true;
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired(&wish)).await.unwrap();
    assert!(scene.driver.steps(&desired(&wish), &observed).is_empty());
    let told = scene.conclude(&wish, &observed);
    assert_eq!((told.problems.len(), told.serving.len()), (0, 1), "it is told beside this, and serves on");
    assert_eq!(writes(&scene), 0);
    scene.remove().await;
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
}

#[tokio::test]
async fn what_no_quota_has_room_for_is_told_before_anything_is_made_and_made_when_there_is() {
    for (what, limit, command) in [
        ("load_balancer", 0, "openstack loadbalancer quota set --loadbalancer 1"),
        ("listener", 1, "--listener 2"),
        ("pool", 1, "--pool 2"),
        ("member", 5, "--member 6"),
        ("health_monitor", 1, "--healthmonitor 2"),
        ("port", 1, "openstack quota set --ports"),
        ("floatingip", 0, "openstack quota set --floating-ips"),
    ] {
        let scene = Scene::set().await;
        let operator = scene.operator().await;
        let project = scene.fake.project_id("demo").unwrap();
        let is_network = ["port", "floatingip"].contains(&what);
        let quotas = match is_network {
            true => operator.network_quotas(&project),
            false => operator.load_balancer_quotas(&project),
        };
        quotas.change(&Limits::from([(what.to_owned(), limit)])).await.unwrap();
        let mut wish = scene.wish(&[80, 443], &[1, 2, 3]);
        for pool in wish.pools.values_mut() {
            Arc::make_mut(pool).health = Some(seaway_model::load_balancer::HealthCheck::default());
        }
        scene.fake.forget_requests();
        let failed = scene.driver.observe(&Context::default(), &unit(), &desired(&wish)).await.unwrap_err();
        let Failure::User(told) = failed else { panic!("{what}: {failed}") };
        assert_eq!((told.len(), told[0].1.reason), (1, Reason::QuotaExceeded), "{what}: {told:?}");
        assert!(told[0].1.fix.contains(command), "{what}: {}", told[0].1.fix);
        assert_eq!(writes(&scene), 0, "{what}");
        let calls = scene.fake.requests().len();
        for _ in 0..20 {
            scene.driver.observe(&Context::default(), &unit(), &desired(&wish)).await.unwrap_err();
        }
        let more = scene.fake.requests().len() - calls;
        assert_eq!(more, 0, "{what}: nobody asks for ever");
        scene.pass(Duration::from_secs(60));
        assert_eq!(scene.driver.due(), [unit()], "{what}");
        quotas.change(&Limits::from([(what.to_owned(), 50)])).await.unwrap();
        scene.pass(Duration::from_secs(60));
        assert_eq!(scene.driver.due(), [unit()], "{what}");
        scene.reach(&wish).await;
        assert_eq!(scene.balancers().await.len(), 1, "{what}");
        scene.pass(Duration::from_secs(600));
        assert!(scene.driver.due().is_empty(), "{what}");
    }
}

#[tokio::test]
async fn what_was_made_since_the_last_list_counts() {
    let scene = Scene::set().await;
    let operator = scene.operator().await;
    let project = scene.fake.project_id("demo").unwrap();
    let quotas = operator.load_balancer_quotas(&project);
    quotas.change(&Limits::from([("load_balancer".to_owned(), 1)])).await.unwrap();
    scene.reach(&scene.wish(&[80], &[1])).await;
    let wish = desired(&scene.wish(&[80], &[1]));
    let failed = scene.driver.observe(&Context::default(), &other_unit(), &wish).await.unwrap_err();
    assert!(matches!(failed, Failure::User(_)), "{failed}");
    scene.remove().await;
    scene.pass(Duration::from_secs(60));
    scene.driver.observe(&Context::default(), &other_unit(), &wish).await.unwrap();
    assert!(scene.cloud.all::<FloatingIp>().list::<FloatingIp>(Default::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn one_load_balancer_that_is_slow_does_not_keep_others_waiting() {
    let scene = Scene::set().await;
    assert!(scene.driver.width() >= 16, "a cluster has hundreds, and each is pending for a minute");
}
