//! A Service comes to a load balancer at the moment at which the last one there leaves it.

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer as Wish, load_balancer::NamedLoadBalancer};

use seaway_openstack::{
    octavia::{LoadBalancer, LoadBalancerChange},
    resource::Edit,
};
use seaway_testkit::cloud::{Fault, RequestHold};

use crate::scene::*;

/// A load balancer of one Service, what a second wants there, and what is to be done so that the first is gone.
struct Meeting {
    scene: Scene,
    guest: Wish,
    observed: seaway_drivers::octavia::Observed,
    leaving: Vec<seaway_drivers::octavia::Step>,
}

impl Meeting {
    async fn of(uid: &str) -> Meeting {
        let scene = Scene::set().await;
        scene.reach(&scene.wish(&[80], &[1])).await;
        let made = scene.balancers().await.remove(0);
        let named = |uid: &str, port| {
            let mut wish = scene.wish_of(uid, &[port], &[1]);
            let outside = wish.options.cloud.as_mut().unwrap();
            outside.named = Some(NamedLoadBalancer {
                id: made.id.as_str().into(),
                field: "metadata.annotations".into(),
                by_name: false,
            });
            outside.most_shared = 2;
            wish
        };
        let guest = named("uid-3", 443);
        if uid != "uid-1" {
            // It is the last of those that its first has left it to.
            scene.reach_of(uid, &named(uid, 8080)).await;
            scene.remove().await;
        }
        let unit = unit_of(&owner_of(uid));
        let observed = scene.driver.observe(&Context::default(), &unit, &Desired::Absent).await.unwrap();
        let leaving = scene.driver.steps(&Desired::Absent, &observed);
        let printed: Vec<String> = leaving.iter().map(ToString::to_string).collect();
        assert!(printed[0].starts_with("delete floating IP"), "{printed:?}");
        assert!(printed[1].starts_with("delete load balancer"), "{printed:?}");
        Meeting { scene, guest, observed, leaving }
    }
}

#[tokio::test]
async fn who_comes_before_the_floating_ip_is_deleted_keeps_it() {
    for uid in ["uid-1", "uid-2"] {
        let Meeting { scene, guest, mut observed, leaving } = Meeting::of(uid).await;
        let address = scene.floating().await.remove(0).floating_ip_address;
        scene.reach_of("uid-3", &guest).await;
        let unit = unit_of(&owner_of(uid));
        let refused = scene.driver.apply(&Context::default(), &unit, &leaving[0], &mut observed).await;
        assert!(refused.is_err(), "{uid}: it leads to another now");
        scene.remove_of(uid).await;
        assert_eq!(scene.served("uid-3", &guest).await, [(address.unwrap(), 443)], "{uid}");
        scene.remove_of("uid-3").await;
        assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty(), "{uid}");
    }
}

/// What was read before it came cannot name it, however late the answer was.
#[tokio::test]
async fn who_comes_while_it_is_asked_who_else_is_there_keeps_it() {
    let Meeting { scene, guest, .. } = Meeting::of("uid-1").await;
    let id = scene.floating().await.remove(0).id;
    let (unit, hold) = (unit(), RequestHold::new());
    scene.fake.fail(Fault::on("GET */lbaas/loadbalancers/*").hold_reply(&hold));
    let context = Context::default();
    let (observed, ()) = tokio::join!(scene.driver.observe(&context, &unit, &Desired::Absent), async {
        hold.reached(1).await;
        scene.reach_of("uid-3", &guest).await;
        scene.pass(Duration::from_millis(1));
        hold.release();
    });
    let mut observed = observed.unwrap();
    for step in scene.driver.steps(&Desired::Absent, &observed) {
        if scene.driver.apply(&Context::default(), &unit, &step, &mut observed).await.is_err() {
            break;
        }
    }
    assert_eq!(scene.floating().await.remove(0).id, id, "it leads to another now");
    assert_eq!(scene.balancers().await.len(), 1);
    scene.remove_of("uid-1").await;
    assert_eq!(scene.served("uid-3", &guest).await.len(), 1);
}

#[tokio::test]
async fn who_comes_after_it_is_deleted_is_not_let_in() {
    for uid in ["uid-1", "uid-2"] {
        let Meeting { scene, guest, mut observed, leaving } = Meeting::of(uid).await;
        let (unit, other) = (unit_of(&owner_of(uid)), unit_of(&owner_of("uid-3")));
        let desired = Desired::LoadBalancer(Arc::new(guest.clone()));
        scene.driver.apply(&Context::default(), &unit, &leaving[0], &mut observed).await.unwrap();
        let mut there = scene.driver.observe(&Context::default(), &other, &desired).await.unwrap();
        let join = scene.driver.steps(&desired, &there).remove(0);
        let refused = scene.driver.apply(&Context::default(), &other, &join, &mut there).await;
        assert!(matches!(refused, Err(Failure::Retry { .. } | Failure::Wait { .. })), "{uid}: {refused:?}");
        scene.driver.apply(&Context::default(), &unit, &leaving[1], &mut observed).await.unwrap();
        scene.remove_of(uid).await;
        assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty(), "{uid}");
        // What it names is not there any more: it gets one of its own.
        let told = scene.reach_telling_of("uid-3", &guest).await;
        assert!(told.iter().all(|it| it.reason == seaway_model::Reason::BadAnnotation), "{told:?}");
        assert_eq!(scene.served("uid-3", &guest).await.len(), 1);
    }
}

#[tokio::test]
async fn a_load_balancer_that_is_wanted_again_lets_others_in() {
    let Meeting { scene, guest, mut observed, leaving } = Meeting::of("uid-1").await;
    scene.driver.apply(&Context::default(), &unit(), &leaving[0], &mut observed).await.unwrap();
    scene.reach(&scene.wish(&[80], &[1])).await;
    scene.reach_of("uid-3", &guest).await;
    assert_eq!((scene.balancers().await.len(), scene.floating().await.len()), (1, 1));
    assert_eq!(scene.served("uid-3", &guest).await.len(), 1);
}

#[tokio::test]
async fn a_port_that_is_free_again_is_had_by_who_waits_for_it() {
    let scene = Scene::set().await;
    let first = |ports: &[u16]| scene.wish(ports, &[1]);
    scene.reach(&first(&[80, 443, 8080])).await;
    let made = scene.balancers().await.remove(0);
    let named = |ports: &[u16]| {
        let mut wish = scene.wish_of("uid-2", ports, &[1]);
        let outside = wish.options.cloud.as_mut().unwrap();
        outside.named = Some(NamedLoadBalancer {
            id: made.id.as_str().into(),
            field: "metadata.annotations".into(),
            by_name: false,
        });
        outside.most_shared = 2;
        wish
    };
    let (guest, other) = (named(&[80]), unit_of(&owner_of("uid-2")));
    let desired = Desired::LoadBalancer(Arc::new(guest.clone()));
    let refused = scene.driver.observe(&Context::default(), &other, &desired).await;
    assert!(matches!(refused, Err(Failure::User(_))), "it is the first's");
    assert!(scene.driver.due().is_empty());
    scene.reach(&first(&[443, 8080])).await;
    assert_eq!(scene.driver.due(), std::slice::from_ref(&other), "at once");
    scene.reach_of("uid-2", &guest).await;
    // What it wants later, too.
    for (ports, all) in [(Some(&[8080][..]), &[80, 443][..]), (None, &[80, 443, 8080])] {
        let guest = named(all);
        assert_eq!(scene.reach_telling_of("uid-2", &guest).await.len(), 1);
        assert!(scene.driver.due().is_empty());
        match ports {
            Some(ports) => scene.reach(&first(ports)).await,
            None => scene.remove().await,
        };
        assert_eq!(scene.driver.due(), std::slice::from_ref(&other), "at once");
        assert!(scene.reach_telling_of("uid-2", &guest).await.is_empty());
        assert_eq!(scene.served("uid-2", &guest).await.len(), all.len());
    }
}

/// Tags are one field: who writes them by what was read before takes away those of who came since.
#[tokio::test]
async fn who_comes_while_the_first_writes_its_tags_keeps_his() {
    let mut scene = Scene::set().await;
    let wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let made = scene.balancers().await.remove(0);
    let tags = made.tags.iter().filter(|it| !it.starts_with("kube_service_")).cloned().collect();
    let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
    scene.pass(Duration::from_secs(60));
    scene.restarted();
    let desired = Desired::LoadBalancer(Arc::new(wish));
    let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = scene.driver.steps(&desired, &observed);
    assert_eq!(steps[0].to_string(), "change the load balancer");
    let mut guest = scene.wish_of("uid-3", &[443], &[1]);
    let outside = guest.options.cloud.as_mut().unwrap();
    outside.named = Some(NamedLoadBalancer {
        id: made.id.as_str().into(),
        field: "metadata.annotations".into(),
        by_name: false,
    });
    outside.most_shared = 2;
    scene.reach_of("uid-3", &guest).await;
    scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap();
    scene.pass(Duration::from_secs(60));
    let now = scene.balancers().await.remove(0).tags;
    assert!(now.iter().any(|it| it.starts_with("seaway.dev/guest=")), "{now:?}");
    assert!(made.tags.is_subset(&now), "{now:?}");
}
