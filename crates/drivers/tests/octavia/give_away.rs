//! What one Service has, given to another controller: it stays as it is, and nothing of ours finds it any more.

use std::collections::BTreeSet;

use seaway_drivers::octavia::{
    belongings::{Belonging, CloudObject, belongings, orphans},
    give_away::{GiveAway, give_away},
};
use seaway_openstack::{
    octavia::{LoadBalancer, LoadBalancerChange},
    resource::Edit,
};
use seaway_testkit::cloud::Fault;

use crate::scene::*;

const CLUSTER: &str = "6c1d";
const NAME: &str = "kube_service_kubernetes_default_nginxservice";
const WORDS: &str =
    "Floating IP for Kubernetes external service default/nginxservice from cluster kubernetes";

async fn found(scene: &Scene) -> Vec<Belonging> {
    belongings(&scene.cloud, CLUSTER, &|_| ()).await.unwrap()
}

async fn given(scene: &Scene) -> GiveAway {
    GiveAway::of(&found(scene).await, "uid-1").expect("it may").expect("it is there")
}

#[tokio::test]
async fn tags_and_a_description_are_all_that_is_written_and_who_starts_next_finds_nothing_to_delete() {
    for keep in [false, true] {
        let mut scene = Scene::set().await;
        let mut wish = scene.wish(&[80, 443], &[1]);
        wish.options.cloud.as_mut().unwrap().floating.keep = keep;
        scene.reach(&wish).await;
        let all = given(&scene).await;
        let (balancer, floating) = (scene.balancers().await.remove(0), scene.floating().await.remove(0));
        let (listeners, pools) = (scene.listeners().await, scene.pools().await);
        scene.fake.forget_requests();
        give_away(&scene.cloud, CLUSTER, &all).await.unwrap();
        let writes = scene.fake.requests().iter().filter(|it| it.method != "GET").count();
        assert_eq!(writes, 4, "itself, two listeners, a floating IP");

        let after = scene.balancers().await.remove(0);
        assert_eq!(after.tags, BTreeSet::from([NAME.to_owned()]), "the other controller's stays");
        assert_eq!((&after.id, &after.name), (&balancer.id, &balancer.name));
        let led = scene.floating().await.remove(0);
        assert_eq!(led.description, WORDS);
        assert_eq!((led.id, led.port_id), (floating.id, floating.port_id));
        let ids = |all: &[seaway_openstack::octavia::Listener]| -> BTreeSet<String> {
            all.iter().map(|it| it.id.to_string()).collect()
        };
        let now = scene.listeners().await;
        assert_eq!(ids(&now), ids(&listeners));
        assert!(now.iter().flat_map(|it| &it.tags).all(|it| !it.starts_with("seaway.dev/key=")), "{now:?}");
        assert_eq!(scene.pools().await.len(), pools.len());

        // Nothing is this cluster's any more.
        let left = found(&scene).await;
        assert_eq!(GiveAway::of(&left, "uid-1"), Ok(None));
        assert_eq!(orphans(left, &[]), []);
        // A process that knows it from before is told not to look for it (crates/plan/src/world/released.rs).
        scene.restarted();
        scene.remove().await;
        assert_eq!((scene.balancers().await.len(), scene.floating().await.len()), (1, 1));
    }
}

#[tokio::test]
async fn a_run_that_was_interrupted_anywhere_can_be_repeated() {
    for pattern in ["PUT */floatingips/*", "PUT */listeners/*", "PUT */loadbalancers/*", "GET */listeners*"] {
        let scene = Scene::set().await;
        scene.reach(&scene.wish(&[80, 443], &[1])).await;
        let all = given(&scene).await;
        scene.fake.fail(Fault::on(pattern).times(1).status(403));
        assert!(give_away(&scene.cloud, CLUSTER, &all).await.is_err(), "{pattern}");
        give_away(&scene.cloud, CLUSTER, &given(&scene).await).await.unwrap();
        assert_eq!(found(&scene).await, [], "{pattern}");
        assert_eq!(scene.floating().await[0].description, WORDS, "{pattern}");
    }
}

#[tokio::test]
async fn what_others_use_and_what_would_be_half_a_gift_is_refused() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let made = scene.balancers().await.remove(0);
    let guest = "seaway.dev/guest=6c1d/uid-2/default/other".to_owned();
    let tags = made.tags.iter().cloned().chain([guest]).collect();
    let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
    let all = found(&scene).await;
    for uid in ["uid-1", "uid-2"] {
        let why = GiveAway::of(&all, uid).expect_err("it is shared");
        assert!(why.contains("serves other Services, too"), "{why}");
    }

    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let one = found(&scene).await;
    for (thing, told) in [
        (CloudObject::LoadBalancer("second".parse().unwrap()), "one for each address family"),
        (CloudObject::Container("container".parse().unwrap()), "default-tls-container-ref"),
        (CloudObject::Secret("secret".parse().unwrap()), "default-tls-container-ref"),
    ] {
        let more = Belonging { thing, ..one[0].clone() };
        let all = [one.clone(), vec![more]].concat();
        let why = GiveAway::of(&all, "uid-1").expect_err("it is refused");
        assert!(why.contains(told), "{why}");
    }
    assert!(GiveAway::of(&one, "uid-1").unwrap().is_some());
    assert_eq!(GiveAway::of(&one, "uid-2"), Ok(None));
}
