//! Load balancers of a cluster that is gone, given to the one that was rebuilt from its backup.

use std::{collections::BTreeSet, sync::Arc};

use seaway_drivers::octavia::retag::{Present, Retag, retag, retags};
use seaway_model::{Desired, LoadBalancer as Wish};
use seaway_openstack::{
    octavia::{LoadBalancer, LoadBalancerChange},
    resource::Edit,
};
use seaway_testkit::{cloud::Fault, conformance::comes_to_rest};

use crate::scene::*;

const OLD: &str = "6c1d";
const NEW: &str = "new-1";

fn present(uid: &str, name: &str) -> Present {
    Present { uid: uid.into(), namespace: "default".into(), name: name.into() }
}

/// The same Service by its name; `uid-1…` are all called `nginxservice`.
fn services() -> Vec<Present> {
    vec![present("uid-1-rebuilt", "nginxservice")]
}

async fn listed(scene: &Scene, services: &[Present]) -> Vec<Retag> {
    retags(&scene.cloud, OLD, NEW, services).await.unwrap()
}

async fn reach_by_rebuilt(scene: &Scene, wish: &Wish) -> Vec<String> {
    let driver = driver_of(&scene.cloud, "amphora", NEW);
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    comes_to_rest(&driver, &unit_of(&owner_of("uid-1-rebuilt")), &desired, |time| scene.pass(time)).await
}

fn writes(scene: &Scene) -> usize {
    scene.fake.requests().iter().filter(|it| it.method != "GET").count()
}

async fn tag(scene: &Scene, it: &LoadBalancer, more: &[&str]) {
    let tags: BTreeSet<String> =
        it.tags.iter().cloned().chain(more.iter().map(|it| (*it).to_owned())).collect();
    let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&it.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
}

fn why(it: &Retag) -> &str {
    it.verdict.as_ref().expect_err("it is refused")
}

#[tokio::test]
async fn the_rebuilt_cluster_serves_what_the_old_one_had_without_another_write() {
    for keep in [false, true] {
        let scene = Scene::set().await;
        let mut wish = scene.wish(&[80, 443], &[1]);
        wish.options.cloud.as_mut().unwrap().floating.keep = keep;
        scene.reach(&wish).await;
        let (before, address) =
            (scene.balancers().await.remove(0), scene.floating().await.remove(0).floating_ip_address);
        scene.fake.forget_requests();
        let all = listed(&scene, &services()).await;
        assert_eq!(writes(&scene), 0, "it only tells");
        assert_eq!((all.len(), all[0].service.as_deref()), (1, Some("default/nginxservice")));
        assert_eq!(all[0].verdict.as_ref().unwrap().count(), 4, "itself, two listeners, a floating IP");
        retag(&scene.cloud, &all[0]).await.unwrap();
        assert_eq!(writes(&scene), 4);
        assert!(listed(&scene, &services()).await.is_empty(), "nothing is the old one's any more");

        let mut wish = scene.wish_of("uid-1-rebuilt", &[80, 443], &[1]);
        wish.options.cloud.as_mut().unwrap().floating.keep = keep;
        assert_eq!(reach_by_rebuilt(&scene, &wish).await, [""; 0], "{keep}");
        let after = scene.balancers().await;
        assert_eq!((after.len(), &after[0].id), (1, &before.id));
        assert_eq!(scene.floating().await[0].floating_ip_address, address);
        for was in ["seaway.dev/cluster=6c1d", "seaway.dev/key=uid-1"] {
            assert!(!after[0].tags.contains(was), "{after:?}");
        }
    }
}

#[tokio::test]
async fn a_run_that_was_interrupted_anywhere_can_be_repeated() {
    for failing in 0..4 {
        let scene = Scene::set().await;
        scene.reach(&scene.wish(&[80, 443], &[1])).await;
        let all = listed(&scene, &services()).await;
        let pattern =
            ["PUT */floatingips/*", "PUT */listeners/*", "PUT */loadbalancers/*", "GET */listeners*"]
                [failing];
        scene.fake.fail(Fault::on(pattern).times(1).status(403));
        assert!(retag(&scene.cloud, &all[0]).await.is_err(), "{pattern}");
        let again = listed(&scene, &services()).await;
        assert_eq!(again.len(), 1, "{pattern}: it is found by the old tags");
        retag(&scene.cloud, &again[0]).await.unwrap();
        let wish = scene.wish_of("uid-1-rebuilt", &[80, 443], &[1]);
        assert_eq!(reach_by_rebuilt(&scene, &wish).await, [""; 0], "{pattern}");
    }
}

#[tokio::test]
async fn what_tags_do_not_tell_for_certain_stays_as_it_is() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let made = scene.balancers().await.remove(0);
    assert!(why(&listed(&scene, &[]).await[0]).contains("no Service default/nginxservice"));
    let elsewhere = Present { namespace: "elsewhere".into(), ..present("uid-9", "nginxservice") };
    assert!(why(&listed(&scene, &[elsewhere]).await[0]).contains("no Service"));
    for (more, told) in [
        (vec!["seaway.dev/cluster=third"], "the cluster third as the owner"),
        (vec!["seaway.dev/cluster=new-1"], "this cluster as the owner"),
        (vec!["seaway.dev/guest=6c1d/uid-2/default/other"], "several Services"),
        (vec!["seaway.dev/guests-of=third"], "several Services"),
        (vec!["seaway.dev/left"], "several Services"),
        (vec!["kube_service_kubernetes_default_other"], "several Services"),
    ] {
        tag(&scene, &made, &more).await;
        scene.fake.forget_requests();
        let all = listed(&scene, &services()).await;
        assert!(why(&all[0]).contains(told), "{more:?}: {:?}", all[0]);
        retag(&scene.cloud, &all[0]).await.unwrap();
        assert_eq!(writes(&scene), 0, "{more:?}");
    }
    // A cluster whose UID begins alike is another.
    assert!(retags(&scene.cloud, "6c1", NEW, &services()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_service_that_has_one_already_gets_no_second_and_tags_that_changed_are_left() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let told = listed(&scene, &services()).await;
    let made = scene.balancers().await.remove(0);
    reach_by_rebuilt(&scene, &scene.wish_of("uid-1-rebuilt", &[80], &[1])).await;
    assert!(
        why(&listed(&scene, &services()).await[0]).contains("has a load balancer for the Service already")
    );
    // Another took it between the list and the write.
    let change = LoadBalancerChange {
        tags: Edit::To(BTreeSet::from(["seaway.dev/cluster=third".to_owned()])),
        ..LoadBalancerChange::default()
    };
    scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    scene.fake.forget_requests();
    assert!(retag(&scene.cloud, &told[0]).await.is_err());
    assert_eq!(writes(&scene), 0);
}

#[tokio::test]
async fn of_two_that_have_the_same_tags_none_is_taken() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let made = scene.balancers().await.remove(0);
    let double = seaway_openstack::octavia::NewLoadBalancer {
        name: made.name.as_str().into(),
        description: made.description.as_str().into(),
        tags: made.tags.clone().into(),
        vip_subnet_id: Some(scene.subnet.clone()).into(),
        ..seaway_openstack::octavia::NewLoadBalancer::new()
    };
    scene.cloud.all::<LoadBalancer>().create(&double).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    let all = listed(&scene, &services()).await;
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|it| why(it).contains("same tags")), "{all:?}");
}

/// Another controller serves by it now, or whoever did that means to.
#[tokio::test]
async fn whose_tags_were_taken_off_meanwhile_stays_when_its_service_is_deleted() {
    for restarts in [false, true] {
        let mut scene = Scene::set().await;
        scene.reach(&scene.wish(&[80], &[1])).await;
        let made = scene.balancers().await.remove(0);
        let tags = made.tags.iter().filter(|it| !it.starts_with("seaway.dev/")).cloned().collect();
        let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
        scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
        scene.pass(std::time::Duration::from_secs(60));
        scene.balancers().await;
        if restarts {
            scene.restarted();
        }
        scene.remove().await;
        let left: Vec<_> = scene.balancers().await.into_iter().map(|it| it.id).collect();
        assert_eq!(left, [made.id], "restarts: {restarts}");
        let leads: Vec<_> = scene.floating().await.into_iter().map(|it| it.port_id).collect();
        assert_eq!(leads, [made.vip_port_id], "restarts: {restarts}");
    }
}
