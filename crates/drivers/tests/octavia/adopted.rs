//! Other people's: what is taken over, and what is not.

use std::{net::IpAddr, sync::Arc};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, L4, LoadBalancer as Wish, Reason,
    load_balancer::{Affinity, HealthCheck, NamedLoadBalancer},
    outcome::ReplacedLoadBalancer,
};
use seaway_openstack::{
    neutron::{FloatingIp, Network, NewFloatingIp},
    octavia::{
        Listener, ListenerChange, LoadBalancer, LoadBalancerChange, Persistence, PersistenceType, Pool,
        PoolChange,
    },
    resource::{Edit, Query},
};

use crate::{occm::OccmObjects, scene::*};

/// Two ports and two nodes, as `Scene::wish` wants them.
fn theirs() -> OccmObjects {
    let node = |last: u8| IpAddr::from([10, 0, 0, last]);
    OccmObjects::new("nginxservice", &[(80, 30_080), (443, 30_443)], &[("one", node(1)), ("two", node(2))])
}

pub(crate) fn pointing(mut wish: Wish, annotation: Option<&str>, status: Option<IpAddr>) -> Wish {
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.named = annotation.map(|id| NamedLoadBalancer {
        id: id.into(),
        field: "metadata.annotations[loadbalancer.openstack.org/load-balancer-id]".into(),
        by_name: false,
    });
    outside.published = status.into_iter().collect();
    wish
}

/// What the user is told, and nothing was written.
async fn refused(scene: &Scene, wish: &Wish) -> seaway_model::Problem {
    scene.fake.forget_requests();
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let Err(Failure::User(mut told)) = scene.driver.observe(&Context::default(), &unit(), &desired).await
    else {
        panic!("it should have been refused")
    };
    assert_eq!(told.len(), 1);
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(scene.fake.count(&format!("{method} */v2*")), 0, "{method}");
    }
    told.remove(0).1
}

#[tokio::test]
async fn a_live_tree_is_taken_over_by_one_write_of_tags_and_one_of_a_description() {
    for (serial, legacy, monitored) in [
        (false, None, false),
        (true, None, true),
        (false, Some("uid-1-22222222-3333-4444-555566667777"), false),
    ] {
        for by_status in [true, false] {
            let mut scene = Scene::set().await;
            let theirs = OccmObjects { serial, legacy: legacy.map(str::to_owned), monitored, ..theirs() };
            // Of long ago, the name is made of the UID.
            let uid = legacy.unwrap_or("uid-1");
            let (made, floating) = theirs.make(&scene.cloud, &scene.subnet).await;
            let marks = ["by hand".to_owned()];
            let tags = made.tags.iter().cloned().chain(marks).collect();
            let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
            scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
            let mut wish = scene.wish_of(uid, &[80, 443], &[1, 2]);
            if monitored {
                let check = seaway_model::config::CloudDefaults::default().check;
                wish.pools.values_mut().for_each(|it| {
                    Arc::make_mut(it).health = Some(HealthCheck { ..check.clone() });
                });
            }
            let at = if by_status { floating.floating_ip_address } else { None };
            let id = made.id.as_str();
            let wish = pointing(wish, (!by_status).then_some(id), at);
            scene.fake.forget_requests();
            let steps = scene.reach_of(uid, &wish).await;
            assert_eq!(
                steps,
                [
                    "change the load balancer".to_owned(),
                    format!("set the description of floating IP {}", floating.id)
                ]
            );
            assert_eq!(scene.fake.count("PUT */lbaas/*"), 1, "tags alone");
            assert_eq!(scene.fake.count("PUT */floatingips/*"), 1);
            assert_eq!(scene.fake.count("POST */lbaas/*") + scene.fake.count("POST */floatingips*"), 0);
            assert_eq!(scene.fake.count("DELETE *"), 0);
            let now = scene.balancers().await.remove(0);
            assert_eq!((&now.name, &now.description), (&made.name, &made.description));
            let own = theirs.own();
            let key = format!("seaway.dev/key={uid}");
            for tag in [own.as_str(), "by hand", "seaway.dev/cluster=6c1d", &key] {
                assert!(now.tags.contains(tag), "{tag}: {:?}", now.tags);
            }
            let text = scene.floating().await.remove(0).description;
            assert!(text.starts_with(&floating.description) && text.contains(&key), "{text}");
            scene.restarted();
            assert_eq!(scene.reach_of(uid, &wish).await, [""; 0], "and it stays so");
            scene.remove_of(uid).await;
            assert!(
                scene.balancers().await.is_empty() && scene.floating().await.is_empty(),
                "all of it goes"
            );
        }
    }
}

/// The other controller writes Octavia's own over what is not asked for.
#[tokio::test]
async fn timeouts_of_a_live_tree_that_nobody_asks_for_any_more_are_reset_and_ours_by_hand_stay() {
    let scene = Scene::set().await;
    let (made, _) = theirs().make(&scene.cloud, &scene.subnet).await;
    let all = scene.cloud.all::<Listener>();
    let change = ListenerChange { timeout_client_data: Some(600_000).into(), ..ListenerChange::default() };
    let first = scene.listeners().await.remove(0);
    all.change(&first.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    let wish = pointing(scene.wish(&[80, 443], &[1, 2]), Some(made.id.as_str()), None);
    let steps = scene.reach(&wish).await;
    assert_eq!(steps.iter().filter(|it| it.starts_with("change the listener")).count(), 1, "{steps:?}");
    assert!(scene.listeners().await.iter().all(|it| it.timeout_client_data == Some(50_000)));

    // What a cloud's operator set as usual, or somebody by hand, nobody asked us for.
    let mut scene = Scene::set().await;
    let wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let ours = scene.listeners().await.remove(0).id;
    scene.cloud.all::<Listener>().change(&ours, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.restarted();
    assert_eq!(scene.reach(&wish).await, [""; 0]);
}

#[tokio::test]
async fn a_name_alone_is_a_problem_that_names_the_fix_and_touches_nothing() {
    let scene = Scene::set().await;
    let (made, _) = theirs().make(&scene.cloud, &scene.subnet).await;
    let wish = scene.wish(&[80, 443], &[1, 2]);
    let problem = refused(&scene, &wish).await;
    assert_eq!(problem.reason, Reason::OtherController);
    assert!(problem.fix.contains(&format!("load-balancer-id={}", made.id)), "{}", problem.fix);
    let id = made.id.as_str();
    assert_eq!(scene.reach(&pointing(wish, Some(id), None)).await.len(), 2, "as the fix says");
}

#[tokio::test]
async fn an_address_that_leads_to_what_is_called_otherwise_is_a_problem() {
    let scene = Scene::set().await;
    let other = OccmObjects { cluster: "production", ..theirs() };
    let (_, floating) = other.make(&scene.cloud, &scene.subnet).await;
    let wish = pointing(scene.wish(&[80, 443], &[1, 2]), None, floating.floating_ip_address);
    let problem = refused(&scene, &wish).await;
    assert!(problem.fix.contains("--cluster-name"), "{}", problem.fix);
}

/// The second takes the load balancer of the first over, with its members.
#[tokio::test]
async fn two_clusters_with_one_cluster_name_never_touch_each_other_s() {
    let scene = Scene::set().await;
    let wish = scene.wish(&[80, 443], &[1, 2]);
    // The other has Seaway, too: its tags say whose it is, so nobody has to be asked.
    let other = driver_of(&scene.cloud, "amphora", "9999");
    scene.reach_by(&other, &wish).await;
    let before = scene.balancers().await.remove(0);
    scene.reach(&wish).await;
    assert_eq!(scene.balancers().await.len(), 2);
    scene.remove().await;
    let left = scene.balancers().await;
    assert_eq!((left.len(), &left[0].id, &left[0].tags), (1, &before.id, &before.tags));
    assert_eq!(scene.floating().await.len(), 1);

    // The other has not, and its Service was copied here with its annotation.
    let scene = Scene::set().await;
    let node = |last: u8| IpAddr::from([10, 0, 0, last]);
    let elsewhere = OccmObjects { nodes: vec![("one".to_owned(), node(101))], ..theirs() };
    let (made, _) = elsewhere.make(&scene.cloud, &scene.subnet).await;
    let id = made.id.as_str();
    let problem = refused(&scene, &pointing(wish, Some(id), None)).await;
    assert!(problem.message.contains("another cluster"), "{}", problem.message);
    assert!(problem.field.contains("load-balancer-id"), "{}", problem.field);
}

/// <https://github.com/kubernetes/cloud-provider-openstack/issues/2751>
#[tokio::test]
async fn a_stale_annotation_does_not_block_re_creation() {
    let scene = Scene::set().await;
    let gone = "3f1c9f8e-0a71-4f3b-9d9e-0f2b8f8e6a55";
    let wish = pointing(scene.wish(&[80], &[1]), Some(gone), None);
    let told = scene.reach_telling(&wish).await;
    let own = scene.balancers().await;
    assert_eq!(own.len(), 1, "it has one of its own");
    assert_eq!(told, [], "what names nothing says nothing");
    let desired = |wish: &Wish| Desired::LoadBalancer(Arc::new(wish.clone()));
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired(&wish)).await.unwrap();
    let replaced = scene.driver.conclude(&unit(), &desired(&wish), &observed).replaced;
    let by = own[0].id.as_str().into();
    assert_eq!(
        replaced,
        Some(ReplacedLoadBalancer { gone: gone.into(), by }),
        "the annotation may be corrected"
    );
    // One that is there and that it is not on is told, as long as it is named.
    let there = scene.reach_telling_of("uid-2", &scene.wish_of("uid-2", &[25], &[1])).await;
    assert_eq!(there, []);
    let other = scene.balancers().await.into_iter().find(|it| it.name.ends_with("uid-2")).unwrap().id;
    let wish = pointing(scene.wish(&[80], &[1]), Some(other.as_str()), None);
    for _ in 0..2 {
        let told = scene.reach_telling(&wish).await;
        assert_eq!(told.len(), 1, "{told:?}");
        let observed = scene.driver.observe(&Context::default(), &unit(), &desired(&wish)).await.unwrap();
        assert_eq!(scene.driver.conclude(&unit(), &desired(&wish), &observed).replaced, None);
        assert!(told[0].message.contains(other.as_str()) && told[0].fix.contains("Remove"), "{:?}", told[0]);
    }
}

/// They block its ensure and its delete.
#[tokio::test]
async fn duplicate_load_balancer_names_block_neither_creation_nor_deletion() {
    let scene = Scene::set().await;
    let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
    let (twin, kept) = theirs().make(&scene.cloud, &scene.subnet).await;
    let wish = pointing(scene.wish(&[80, 443], &[1, 2]), None, floating.floating_ip_address);
    assert_eq!(scene.reach(&wish).await.len(), 2, "its address tells which is meant");
    scene.remove().await;
    let left = scene.balancers().await;
    assert_eq!((left.len(), &left[0].id), (1, &twin.id), "and not {}", made.id);
    let floating: Vec<FloatingIp> = scene.floating().await;
    assert_eq!((floating.len(), &floating[0].id), (1, &kept.id));
}

/// Tags and a description, since requests were forgotten.
fn was_adopted_alone(scene: &Scene) {
    let all = |method: &str| scene.fake.count(&format!("{method} */v2*"));
    let [tags, descriptions] = ["lbaas", "floatingips"].map(|it| scene.fake.count(&format!("PUT */{it}/*")));
    assert_eq!((tags, descriptions, all("PUT"), all("POST"), all("DELETE")), (1, 1, 2, 0, 0));
}

/// One that leads nowhere.
async fn spare_floating(scene: &Scene) -> IpAddr {
    let query = Query::all().with("router:external", true);
    let network = scene.cloud.all::<Network>().list::<Network>(query).await.unwrap().remove(0).id;
    let new = scene.cloud.all::<FloatingIp>().create(&NewFloatingIp::new(network)).await.unwrap();
    new.floating_ip_address.unwrap()
}

/// <https://github.com/kubernetes/cloud-provider-openstack/issues/2443>: it keeps what is on the VIP's port.
#[tokio::test]
async fn a_floating_ip_stays_though_the_spec_asks_for_another_until_an_annotation_does() {
    let field = "spec.loadBalancerIP";
    let asking = |mut wish: Wish, asked: IpAddr| {
        let outside = wish.options.cloud.as_mut().unwrap();
        (outside.requested, outside.requested_field) = (Some(asked), field.into());
        wish
    };
    let leads = |all: Vec<FloatingIp>| -> Vec<_> {
        all.into_iter().filter(|it| it.port_id.is_some()).filter_map(|it| it.floating_ip_address).collect()
    };
    let mut scene = Scene::set().await;
    let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
    let (there, asked) = (floating.floating_ip_address.unwrap(), spare_floating(&scene).await);
    let wish = asking(pointing(scene.wish(&[80, 443], &[1, 2]), Some(made.id.as_str()), None), asked);
    // Other ports, which are ours, and what else is asked for change nothing of it.
    let mut moved = asking(scene.wish(&[8080], &[1, 2]), asked);
    moved.options.cloud.as_mut().unwrap().remake = true;
    scene.fake.forget_requests();
    for (round, wish) in [&wish, &wish, &moved].into_iter().enumerate() {
        let told = scene.reach_telling(wish).await;
        if round == 0 {
            was_adopted_alone(&scene);
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].reason, &*told[0].field), (Reason::Unsupported, field));
        assert!(told[0].message.contains(&there.to_string()), "{:?}", told[0]);
        assert!(told[0].fix.contains(&format!("seaway.dev/address: \"{asked}\"")), "{:?}", told[0]);
        let now = scene.floating().await;
        assert_eq!((now.len(), leads(now)), (2, vec![there]));
        scene.restarted();
    }
    let mut explicit = moved.clone();
    explicit.options.cloud.as_mut().unwrap().explicit.address = true;
    assert_eq!(scene.reach_telling(&explicit).await, []);
    let now = scene.floating().await;
    assert_eq!((now.len(), leads(now)), (1, vec![asked]), "the old one is given up");

    // Of what Seaway made, the field is followed.
    let scene = Scene::set().await;
    let own = scene.wish(&[80], &[1]);
    scene.reach(&own).await;
    let asked = spare_floating(&scene).await;
    assert_eq!(scene.reach_telling(&asking(own, asked)).await, []);
    assert_eq!(leads(scene.floating().await), [asked]);
}

#[tokio::test]
async fn who_shares_theirs_and_asks_for_another_address_in_the_spec_shares_it_on() {
    let scene = Scene::set().await;
    let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
    let tags = made.tags.iter().cloned().chain(["kube_service_kubernetes_default_uid-2".to_owned()]);
    let change = LoadBalancerChange { tags: Edit::To(tags.collect()), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    let mut wish = pointing(scene.wish_of("uid-2", &[25], &[1]), Some(made.id.as_str()), None);
    let outside = wish.options.cloud.as_mut().unwrap();
    (outside.requested, outside.most_shared) = (Some("203.0.113.77".parse().unwrap()), 2);
    let told = scene.reach_telling_of("uid-2", &wish).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].message.contains("203.0.113.77") && told[0].fix.contains("share"), "{:?}", told[0]);
    let at = floating.floating_ip_address.unwrap();
    assert_eq!(scene.served("uid-2", &wish).await, [(at, 25)]);
}

async fn persistences(scene: &Scene) -> Vec<Option<PersistenceType>> {
    scene.pools().await.into_iter().map(|it| it.session_persistence.map(|it| it.kind)).collect()
}

/// It says so to a pool when it makes it, and never after.
#[tokio::test]
async fn session_affinity_stays_as_it_was_created_until_an_annotation_asks_for_the_field() {
    for was_kept in [false, true] {
        let mut scene = Scene::set().await;
        let one = OccmObjects::new("nginxservice", &[(80, 30_080)], &[("one", IpAddr::from([10, 0, 0, 1]))]);
        let (made, _) = one.make(&scene.cloud, &scene.subnet).await;
        if was_kept {
            let by_address = Persistence { kind: PersistenceType::SourceIp, ..Persistence::default() };
            let change =
                PoolChange { session_persistence: Edit::To(Some(by_address)), ..PoolChange::default() };
            let pool = scene.pools().await.remove(0).id;
            scene.cloud.all::<Pool>().change(&pool, &change).await.unwrap();
            scene.pass(std::time::Duration::from_secs(60));
        }
        let mut wish = pointing(scene.wish(&[80], &[1]), Some(made.id.as_str()), None);
        let affinity = Affinity::ClientIp(std::time::Duration::from_secs(10_800));
        for pool in wish.pools.values_mut().filter(|_| !was_kept) {
            Arc::make_mut(pool).affinity = Some(affinity.clone());
        }
        let before = persistences(&scene).await;
        scene.fake.forget_requests();
        for round in 0..2 {
            let told = scene.reach_telling(&wish).await;
            if round == 0 {
                was_adopted_alone(&scene);
            }
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].fix.contains("follow-session-affinity"), "{:?}", told[0]);
            assert_eq!(persistences(&scene).await, before);
            scene.restarted();
        }
        // A port that comes later is ours, and as the field says.
        let mut more = scene.wish(&[80, 81], &[1]);
        for pool in more.pools.values_mut().filter(|_| !was_kept) {
            Arc::make_mut(pool).affinity = Some(affinity.clone());
        }
        assert_eq!(scene.reach_telling(&more).await.len(), 1);
        let after: Vec<_> = persistences(&scene).await.into_iter().map(|it| it.is_some()).collect();
        assert!(after.contains(&true) && after.contains(&false), "{after:?}");
        let mut explicit = more.clone();
        explicit.options.cloud.as_mut().unwrap().explicit.affinity = true;
        assert_eq!(scene.reach_telling(&explicit).await, []);
        assert!(persistences(&scene).await.iter().all(|it| it.is_some() != was_kept));
    }
}

/// Octavia takes a time for datagrams, and the other controller gives none.
#[tokio::test]
async fn clients_of_datagrams_are_kept_for_as_long_as_they_were() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[53], &[1]);
    transport(&mut wish, L4::Udp);
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).affinity = Some(Affinity::ClientIp(std::time::Duration::from_secs(60)));
    }
    scene.reach(&wish).await;
    // As if another had made it.
    let listener = scene.listeners().await.remove(0);
    let tags = listener.tags.iter().filter(|it| !it.starts_with("seaway.dev/")).cloned().collect();
    let change = ListenerChange { tags: Edit::To(tags), ..ListenerChange::default() };
    scene.cloud.all::<Listener>().change(&listener.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    let scene = {
        let mut scene = scene;
        scene.restarted();
        scene
    };
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).affinity = Some(Affinity::ClientIp(std::time::Duration::from_secs(10_800)));
    }
    let told = scene.reach_telling(&wish).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(scene.fake.count("PUT */lbaas/pools/*"), 0);
}
