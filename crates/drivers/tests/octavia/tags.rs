//! Tags that a user asks for: on all that is made, beside others', and gone when they are not asked for any more.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use seaway_model::{
    LoadBalancer as Wish, Name,
    load_balancer::{CloudTags, NamedLoadBalancer},
};
use seaway_openstack::{
    neutron::{FloatingIp, Network, NewFloatingIp},
    octavia::{Listener, ListenerChange, LoadBalancer, LoadBalancerChange, Pool, PoolChange},
    resource::{Edit, Query},
};

use crate::{occm::OccmObjects, scene::*};

/// The same of each kind, with a letter for the kind.
fn asking(mut wish: Wish, tags: &[&str]) -> Wish {
    let of = |kind: &str| tags.iter().map(|it| Name::from(format!("{kind}-{it}"))).collect::<BTreeSet<_>>();
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.tags = CloudTags { balancer: of("b"), listener: of("l"), pool: of("p"), floating: of("f") };
    wish
}

/// Load balancer, listener, pool and floating IP.
async fn tags(scene: &Scene) -> [BTreeSet<String>; 4] {
    [
        scene.balancers().await.remove(0).tags,
        scene.listeners().await.remove(0).tags,
        scene.pools().await.remove(0).tags,
        scene.floating().await.remove(0).tags,
    ]
}

/// Those that begin with the letter of their kind.
async fn asked(scene: &Scene) -> Vec<String> {
    let all = tags(scene).await;
    let of_kind = all.iter().zip(["b-", "l-", "p-", "f-"]);
    of_kind.flat_map(|(tags, kind)| tags.iter().filter(move |it| it.starts_with(kind)).cloned()).collect()
}

/// Somebody tags each of the four.
async fn by_hand(scene: &Scene, tag: &str) {
    let [balancer, listener, pool, floating] = tags(scene).await.map(|mut it| {
        it.insert(tag.to_owned());
        it
    });
    let it = scene.balancers().await.remove(0).id;
    let change = LoadBalancerChange { tags: Edit::To(balancer), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&it, &change).await.unwrap();
    scene.pass(Duration::from_secs(60));
    scene.balancers().await;
    let it = scene.listeners().await.remove(0).id;
    let change = ListenerChange { tags: Edit::To(listener), ..ListenerChange::default() };
    scene.cloud.all::<Listener>().change(&it, &change).await.unwrap();
    scene.pass(Duration::from_secs(60));
    scene.balancers().await;
    let it = scene.pools().await.remove(0).id;
    let change = PoolChange { tags: Edit::To(pool), ..PoolChange::default() };
    scene.cloud.all::<Pool>().change(&it, &change).await.unwrap();
    scene.pass(Duration::from_secs(60));
    scene.balancers().await;
    let it = scene.floating().await.remove(0).id;
    scene.cloud.all::<FloatingIp>().replace_tags(&it, &floating).await.unwrap();
}

#[tokio::test]
async fn what_is_made_has_the_tags_that_are_asked_for_and_follows_them() {
    for serial in [false, true] {
        let mut scene = Scene::set().await;
        let with = |tags: &[&str]| {
            let mut wish = asking(scene.wish(&[80], &[1]), tags);
            wish.options.cloud.as_mut().unwrap().serial = serial;
            wish
        };
        let (first, second, none) = (with(&["a", "b"]), with(&["b", "c"]), with(&[]));
        scene.reach(&first).await;
        assert_eq!(asked(&scene).await, ["b-a", "b-b", "l-a", "l-b", "p-a", "p-b", "f-a", "f-b"]);
        let made = tags(&scene).await;
        assert!(made[0].contains("seaway.dev/key=uid-1") && made[1].contains("seaway.dev/key=uid-1"));
        // Another's stay, after a restart, too.
        by_hand(&scene, "by hand").await;
        scene.restarted();
        assert_eq!(scene.reach(&first).await, [""; 0]);
        let steps = scene.reach(&second).await;
        assert_eq!(
            steps,
            [
                "change the load balancer",
                "change the listener of 80/TCP",
                "change the pool of 80/TCP",
                "tag the floating IP"
            ]
        );
        assert_eq!(asked(&scene).await, ["b-b", "b-c", "l-b", "l-c", "p-b", "p-c", "f-b", "f-c"]);
        scene.reach(&none).await;
        assert_eq!(asked(&scene).await, [""; 0]);
        let left = tags(&scene).await;
        assert!(left.iter().all(|it| it.contains("by hand")), "{left:?}");
        assert!(left.iter().flatten().all(|it| !it.starts_with("seaway.dev/tag=")), "{left:?}");
        scene.restarted();
        assert_eq!(scene.reach(&none).await, [""; 0]);
        scene.remove().await;
        assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
    }
}

#[tokio::test]
async fn a_tag_that_was_there_before_it_was_asked_for_stays_when_it_is_not() {
    let mut scene = Scene::set().await;
    let plain = scene.wish(&[80], &[1]);
    scene.reach(&plain).await;
    for tag in ["b-a", "l-a", "p-a", "f-a"] {
        by_hand(&scene, tag).await;
    }
    scene.restarted();
    assert_eq!(scene.reach(&asking(plain.clone(), &["a"])).await, [""; 0], "all is there");
    assert_eq!(scene.reach(&plain).await, [""; 0], "and stays");
    assert_eq!(asked(&scene).await, ["b-a", "l-a", "p-a", "f-a"]);
}

#[tokio::test]
async fn tags_that_somebody_takes_away_come_back_after_an_audit() {
    let scene = Scene::set().await;
    let wish = asking(scene.wish(&[80], &[1]), &["a"]);
    scene.reach(&wish).await;
    scene.pass(Duration::from_secs(60));
    let floating = scene.floating().await.remove(0);
    scene.cloud.all::<FloatingIp>().replace_tags(&floating.id, &BTreeSet::new()).await.unwrap();
    let listener = scene.listeners().await.remove(0);
    let tags = listener.tags.iter().filter(|it| *it != "l-a").cloned().collect();
    let change = ListenerChange { tags: Edit::To(tags), ..ListenerChange::default() };
    scene.cloud.all::<Listener>().change(&listener.id, &change).await.unwrap();
    scene.pass(Duration::from_secs(300));
    scene.balancers().await;
    let audited = scene.driver.audit(&"openstack".into()).await.unwrap();
    assert_eq!(audited.again, [unit()]);
    assert_eq!(scene.reach(&wish).await, ["change the listener of 80/TCP", "tag the floating IP"]);
    assert_eq!(asked(&scene).await, ["b-a", "l-a", "p-a", "f-a"]);
}

/// The cloud provider's controller of July 2026 wrote what the annotations ask for, and nobody can tell that it did.
#[tokio::test]
async fn a_live_tree_with_the_tags_that_are_asked_for_is_taken_over_without_a_write_of_them() {
    let scene = Scene::set().await;
    let theirs = OccmObjects::new("nginxservice", &[(80, 30_080)], &[("one", IpAddr::from([10, 0, 0, 1]))]);
    let (made, _) = theirs.make(&scene.cloud, &scene.subnet).await;
    for tag in ["b-a", "l-a", "p-a"] {
        by_hand(&scene, tag).await;
    }
    let mut wish = asking(scene.wish(&[80], &[1]), &["a"]);
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.tags.floating.clear();
    outside.named = Some(NamedLoadBalancer {
        id: made.id.as_str().into(),
        field: "metadata.annotations".into(),
        by_name: false,
    });
    let steps = scene.reach(&wish).await;
    assert_eq!(steps.len(), 2, "tags of the load balancer and a description: {steps:?}");
    assert_eq!(steps[0], "change the load balancer");
    // One that is not there yet comes beside those that are.
    wish.options.cloud.as_mut().unwrap().tags.listener.insert("l-b".into());
    assert_eq!(scene.reach(&wish).await, ["change the listener of 80/TCP"]);
    let own = theirs.own();
    let tags = scene.listeners().await.remove(0).tags;
    for tag in [own.as_str(), "l-a", "l-b", "seaway.dev/key=uid-1"] {
        assert!(tags.contains(tag), "{tag}: {tags:?}");
    }
    scene.remove().await;
    assert!(scene.balancers().await.is_empty());
}

#[tokio::test]
async fn a_floating_ip_that_the_user_brought_and_a_load_balancer_of_another_are_not_tagged() {
    let scene = Scene::set().await;
    let query = Query::all().with("router:external", true);
    let outside = scene.cloud.all::<Network>().list::<Network>(query).await.unwrap().remove(0).id;
    let theirs = scene.cloud.all::<FloatingIp>().create(&NewFloatingIp::new(outside)).await.unwrap();
    let mut wish = asking(scene.wish(&[80], &[1]), &["a"]);
    wish.options.cloud.as_mut().unwrap().requested = theirs.floating_ip_address;
    let told = scene.reach_telling(&wish).await;
    assert_eq!(scene.floating().await.remove(0).tags, BTreeSet::new());
    assert!(told.iter().any(|it| it.message.contains("was not created for this Service")), "{told:?}");
    let made = scene.balancers().await.remove(0);
    let mut guest = asking(scene.wish_of("uid-2", &[443], &[1]), &["guest"]);
    let outside = guest.options.cloud.as_mut().unwrap();
    outside.named = Some(NamedLoadBalancer {
        id: made.id.as_str().into(),
        field: "metadata.annotations".into(),
        by_name: false,
    });
    outside.most_shared = 2;
    let told = scene.reach_telling_of("uid-2", &guest).await;
    assert!(told.iter().any(|it| it.message.contains("another Service: the requested tags")), "{told:?}");
    let tags = scene.balancers().await.remove(0).tags;
    assert!(tags.contains("b-a") && !tags.contains("b-guest"), "{tags:?}");
    let of_guest = scene.listeners().await.into_iter().find(|it| it.protocol_port == 443).unwrap();
    assert!(of_guest.tags.contains("l-guest"), "its own listener has them: {:?}", of_guest.tags);
}
