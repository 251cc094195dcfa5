//! OVN's driver says that a load balancer is ACTIVE while it has more to do of the same call: what needs that waits for it, and
//! nothing else waits.

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver};
use seaway_model::{
    Desired, L4, LoadBalancer,
    load_balancer::{Affinity, HealthCheck, NamedLoadBalancer},
};
use seaway_openstack::Clock;
use seaway_testkit::{
    cloud::{ChangeDuration, Fault},
    conformance::comes_to_rest,
};

use crate::scene::*;

/// How long the fake works on each request.
const EACH: Duration = Duration::from_millis(300);

fn probed(mut wish: LoadBalancer) -> LoadBalancer {
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).health = Some(HealthCheck::default());
    }
    wish
}

fn kept(mut wish: LoadBalancer) -> LoadBalancer {
    transport(&mut wish, L4::Udp);
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).affinity = Some(Affinity::ClientIp(Duration::from_secs(60)));
    }
    wish
}

type Wished = fn(&Scene) -> LoadBalancer;

/// From what, to what, and after how many milliseconds at most that is there.
const CHANGES: [(&str, Wished, Wished, u128); 8] = [
    ("a port comes: its members are one request", of_one, of_two, 2_500),
    ("a port goes, with its pool", of_two, of_one, 2_500),
    ("a port that is not probed goes", |it| it.wish(&[80, 443], &[1]), |it| it.wish(&[80], &[1]), 2_500),
    ("monitors come", |it| it.wish(&[80, 443], &[1]), of_two, 1_500),
    ("monitors go", of_two, |it| it.wish(&[80, 443], &[1]), 1_500),
    (
        "a Node comes: those that stay are a request of their own",
        of_two,
        |it| it.wish(&[80, 443], &[1, 2]),
        6_000,
    ),
    ("Nodes go", |it| it.wish(&[80, 443], &[1, 2]), |it| it.wish(&[80, 443], &[2]), 4_000),
    ("all Nodes come", |it| it.wish(&[80, 443], &[]), |it| it.wish(&[80, 443], &[1, 2]), 1_500),
];

fn of_one(scene: &Scene) -> LoadBalancer {
    probed(scene.wish(&[80], &[1]))
}

fn of_two(scene: &Scene) -> LoadBalancer {
    probed(scene.wish(&[80, 443], &[1]))
}

#[tokio::test]
async fn a_write_waits_for_the_last_one_only_where_that_left_something_to_do() {
    for (what, from, to, most) in CHANGES {
        let scene = Scene::with("ovn").await;
        scene.fake.pace(ChangeDuration::Time(EACH));
        scene.reach(&from(&scene)).await;
        scene.pass(Duration::from_secs(60));
        let began = scene.clock.now();
        scene.reach(&to(&scene)).await;
        let took = (scene.clock.now() - began).as_millis();
        assert_eq!(scene.fake.overlaps(), 0, "{what}");
        assert!(took <= most, "{what}: {took} ms");
        // Others are done when they say so.
        let scene = Scene::set().await;
        scene.fake.pace(ChangeDuration::Time(EACH));
        scene.reach(&from(&scene)).await;
        scene.fake.forget_requests();
        scene.reach(&to(&scene)).await;
        assert_eq!(scene.fake.count("GET */status"), 0, "{what}");
    }
}

#[tokio::test]
async fn what_comes_right_after_a_whole_creation_waits_for_all_of_it() {
    let affinity: Wished = |it| kept(it.wish(&[53, 54], &[1]));
    let after: [(&str, Wished, Option<Wished>); 3] = [
        ("affinity, said of pools alone", affinity, None),
        ("another port", of_one, Some(of_two)),
        ("a port less", of_two, Some(of_one)),
    ];
    let slow = Duration::from_secs(5);
    for (each, most) in [(EACH, 5_000), (slow, 90_000)] {
        for (what, made, then) in after {
            let scene = Scene::with("ovn").await;
            scene.fake.pace(ChangeDuration::Time(each));
            let began = scene.clock.now();
            scene.reach(&made(&scene)).await;
            if let Some(then) = then {
                scene.reach(&then(&scene)).await;
            }
            assert_eq!(scene.fake.overlaps(), 0, "{what}, {each:?}");
            let took = (scene.clock.now() - began).as_millis();
            assert!(took <= most, "{what}, {each:?}: {took} ms");
        }
    }
    // Nor is anything deleted while it is still made.
    let scene = Scene::with("ovn").await;
    scene.fake.pace(ChangeDuration::Time(EACH));
    scene.reach(&of_two(&scene)).await;
    scene.remove().await;
    assert_eq!((scene.fake.overlaps(), scene.balancers().await.len()), (0, 0));
}

/// A health monitor tells of its members, and says by the way that the load balancer is ACTIVE.
#[tokio::test]
async fn a_load_balancer_that_is_said_to_be_active_amid_a_write_takes_the_next_after_it() {
    let scene = Scene::with("ovn").await;
    scene.fake.pace(ChangeDuration::Time(EACH));
    scene.reach(&of_one(&scene)).await;
    scene.pass(Duration::from_secs(60));
    let id = scene.balancers().await.remove(0).id;
    let wish = Desired::LoadBalancer(Arc::new(of_two(&scene)));
    let told = |time| {
        scene.fake.set_provisioning_status(id.as_str(), "ACTIVE");
        scene.pass(time);
    };
    let done = comes_to_rest(&*scene.driver, &unit(), &wish, told).await;
    assert_eq!((done.len(), scene.fake.overlaps()), (4, 0), "{done:?}");
}

#[tokio::test]
async fn what_is_said_to_be_active_amid_its_deletion_is_deleted_again_only_if_it_stays() {
    for (stays, deletions) in [(false, 1), (true, 2)] {
        let scene = Scene::with("ovn").await;
        scene.fake.pace(ChangeDuration::Time(EACH));
        scene.reach(&of_one(&scene)).await;
        scene.pass(Duration::from_secs(60));
        let id = scene.balancers().await.remove(0).id;
        let mut observed =
            scene.driver.observe(&Context::default(), &unit(), &Desired::Absent).await.unwrap();
        for step in scene.driver.steps(&Desired::Absent, &observed) {
            scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await.unwrap();
        }
        scene.fake.set_provisioning_status(id.as_str(), "ACTIVE");
        scene.pass(Duration::from_millis(200));
        let observed = scene.driver.observe(&Context::default(), &unit(), &Desired::Absent).await.unwrap();
        assert!(observed.is_pending(), "{observed:?}");
        if !stays {
            scene.fake.set_provisioning_status(id.as_str(), "PENDING_DELETE");
        }
        scene.remove().await;
        assert_eq!(scene.fake.count("DELETE */lbaas/loadbalancers/*"), deletions);
        assert!(scene.balancers().await.is_empty());
    }
}

/// It is the load balancer that is not through, whoever wrote to it.
#[tokio::test]
async fn a_guest_waits_for_what_its_host_left_to_do() {
    let scene = Scene::with("ovn").await;
    scene.fake.pace(ChangeDuration::Time(EACH));
    scene.reach(&of_two(&scene)).await;
    let id = scene.balancers().await.remove(0).id;
    let mut guest = scene.wish_of("uid-2", &[8080], &[1]);
    let outside = guest.options.cloud.as_mut().unwrap();
    outside.named =
        Some(NamedLoadBalancer { id: id.as_str().into(), field: "a field".into(), by_name: false });
    outside.most_shared = 2;
    scene.reach_of("uid-2", &guest).await;
    assert_eq!((scene.fake.overlaps(), scene.listeners().await.len()), (0, 3));
}

/// What was deleted is asked for only once OVN had the time for it; it is deleted once, and looked at again soon.
#[tokio::test]
async fn a_pool_that_goes_step_by_step_is_deleted_once() {
    let scene = Scene::with("ovn").await;
    scene.fake.pace(ChangeDuration::Time(EACH));
    scene.reach(&of_two(&scene)).await;
    scene.pass(Duration::from_secs(60));
    scene.fake.forget_requests();
    scene.reach(&of_one(&scene)).await;
    assert_eq!(scene.fake.count("DELETE */lbaas/pools/*"), 1);
    assert_eq!(scene.pools().await.len(), 1);
    // A driver that never ends is not waited for without end.
    scene.fake.fail(Fault::on("DELETE */lbaas/pools/*").reply(204, serde_json::Value::Null));
    scene.reach(&of_two(&scene)).await;
    let began = scene.clock.now();
    scene.reach(&of_one(&scene)).await;
    assert_eq!(scene.pools().await.len(), 1);
    assert!(scene.clock.now() - began < Duration::from_secs(60));
}
