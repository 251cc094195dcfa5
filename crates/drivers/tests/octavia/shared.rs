//! Several Services on one load balancer.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, L4, LoadBalancer as Wish, Problem, Reason,
    config::SharedLoadBalancerScope,
    load_balancer::{NamedLoadBalancer, Protocol},
};
use seaway_openstack::{
    octavia::{
        Algorithm, Listener, LoadBalancer, LoadBalancerChange, NewListener, NewMember, NewPool, PoolProtocol,
        Protocol as Spoken,
    },
    resource::Edit,
};

use crate::{occm::OccmObjects, scene::*};

const FIELD: &str = "metadata.annotations[loadbalancer.openstack.org/load-balancer-id]";

/// What a second Service wants on a load balancer that is there.
fn guest(scene: &Scene, uid: &str, ports: &[u16], of: &LoadBalancer) -> Wish {
    named(scene.wish_of(uid, ports, &[1, 2]), Some(of))
}

fn named(mut wish: Wish, of: Option<&LoadBalancer>) -> Wish {
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.named =
        of.map(|it| NamedLoadBalancer { id: it.id.as_str().into(), field: FIELD.into(), by_name: false });
    outside.most_shared = 2;
    wish
}

async fn refused(scene: &Scene, uid: &str, wish: &Wish) -> Problem {
    scene.fake.forget_requests();
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let Err(Failure::User(mut told)) =
        scene.driver.observe(&Context::default(), &unit_of(&owner_of(uid)), &desired).await
    else {
        panic!("it should have been refused")
    };
    assert_eq!(told.len(), 1, "{told:?}");
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(scene.fake.count(&format!("{method} */v2*")), 0, "{method}");
    }
    told.remove(0).1
}

async fn listener(scene: &Scene, port: u16) -> Listener {
    scene.listeners().await.into_iter().find(|it| it.protocol_port == port).expect("it is there")
}

async fn only(scene: &Scene) -> LoadBalancer {
    let mut all = scene.balancers().await;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[tokio::test]
async fn a_second_service_has_its_own_listeners_there_and_the_address_of_the_first() {
    let mut scene = Scene::set().await;
    let first = scene.wish(&[80], &[1, 2]);
    scene.reach(&first).await;
    let made = only(&scene).await;
    let second = guest(&scene, "uid-2", &[443], &made);
    let own = "kube_service_kubernetes_default_uid-2";
    assert_eq!(
        scene.reach_of("uid-2", &second).await,
        [
            "join the shared load balancer".to_owned(),
            format!("create listener listener_0_{own} for 443/TCP"),
            format!("create pool pool_0_{own} for 443/TCP"),
            "set the 2 members of the pool of 443/TCP".to_owned(),
        ]
    );
    let now = only(&scene).await;
    assert_eq!((&now.name, &now.description), (&made.name, &made.description));
    assert!(made.tags.is_subset(&now.tags) && now.tags.contains(own), "{:?}", now.tags);
    assert!(listener(&scene, 443).await.tags.contains(own));
    let floating = scene.floating().await;
    assert_eq!(floating.len(), 1, "it has none of its own");
    let served = scene.served("uid-2", &second).await;
    assert_eq!(served, [(floating[0].floating_ip_address.unwrap(), 443)]);
    for _ in 0..2 {
        assert_eq!(scene.reach(&first).await, [""; 0], "the first has nothing to do with it");
        assert_eq!(scene.reach_of("uid-2", &second).await, [""; 0]);
        scene.restarted();
    }
    // The guest leaves, and nothing of the first is another.
    let steps = scene.remove_of("uid-2").await;
    assert_eq!(steps.last().unwrap(), "leave the shared load balancer");
    assert_eq!(only(&scene).await.tags, made.tags);
    assert_eq!(scene.listeners().await.len(), 1);
    assert_eq!(scene.reach(&first).await, [""; 0]);
    scene.remove().await;
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
}

#[tokio::test]
async fn who_is_left_keeps_the_load_balancer_when_its_first_leaves_and_the_last_takes_it_down() {
    for restarts in [false, true] {
        let mut scene = Scene::set().await;
        scene.reach(&scene.wish(&[80, 81], &[1, 2])).await;
        let made = only(&scene).await;
        let second = guest(&scene, "uid-2", &[443], &made);
        scene.reach_of("uid-2", &second).await;
        if restarts {
            scene.restarted();
        }
        let steps = scene.remove().await;
        assert_eq!(steps.last().unwrap(), "leave the load balancer to the Services that share it");
        let left = only(&scene).await;
        assert_eq!((&left.id, &left.name), (&made.id, &made.name));
        assert!(left.tags.contains("seaway.dev/key=uid-1"), "its key is frozen: {:?}", left.tags);
        let ports: Vec<u16> = scene.listeners().await.iter().map(|it| it.protocol_port).collect();
        assert_eq!((ports, scene.floating().await.len()), (vec![443], 1));
        if restarts {
            scene.restarted();
        }
        assert_eq!(scene.reach_of("uid-2", &second).await, [""; 0]);
        // The first comes again, as another, and has one of its own.
        assert_eq!(scene.remove().await, [""; 0], "it is not there any more");
        scene.remove_of("uid-2").await;
        assert!(scene.balancers().await.is_empty(), "the last takes it down");
        assert!(scene.floating().await.is_empty());
    }
}

#[tokio::test]
async fn tcp_and_udp_of_one_port_are_no_conflict_and_one_port_of_one_transport_is() {
    let scene = Scene::set().await;
    let first = scene.wish(&[80], &[1, 2]);
    scene.reach(&first).await;
    let made = only(&scene).await;
    let second = guest(&scene, "uid-2", &[80, 443], &made);
    let problem = refused(&scene, "uid-2", &second).await;
    assert_eq!(problem.reason, Reason::PortConflict);
    assert!(problem.message.contains("80/TCP") && problem.message.contains("nginxservice"), "{problem}");
    let mut datagrams = guest(&scene, "uid-2", &[80], &made);
    transport(&mut datagrams, L4::Udp);
    scene.reach_of("uid-2", &datagrams).await;
    let mut spoken: Vec<Spoken> = scene.listeners().await.into_iter().map(|it| it.protocol).collect();
    spoken.sort_by_key(|it| it.to_string());
    assert_eq!(spoken, [Spoken::Tcp, Spoken::Udp]);
    assert_eq!(scene.reach(&first).await, [""; 0]);
}

#[tokio::test]
async fn whoever_has_a_port_is_named_within_its_namespace_alone() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1, 2])).await;
    let made = only(&scene).await;
    let by_hand = NewListener {
        name: Edit::To("listener_0_kube_service_production_hidden_web".into()),
        loadbalancer_id: Edit::To(made.id.clone()),
        ..NewListener::new(Spoken::Tcp, 81_u16)
    };
    scene.cloud.all::<Listener>().create(&by_hand).await.unwrap();
    let a_minute = std::time::Duration::from_secs(60);
    scene.cloud.all::<LoadBalancer>().until_ready(&made.id, a_minute).await.unwrap();
    for (uid, told) in
        [("uid-2", "nginxservice"), ("shop/uid-2", "a Service of another namespace (listener ")]
    {
        let of_any = |ports: &[u16]| {
            let mut wish = guest(&scene, uid, ports, &made);
            wish.options.cloud.as_mut().unwrap().join = SharedLoadBalancerScope::Any;
            wish
        };
        let is_said = |it: &Problem, told: &str| {
            let is_named = told == "nginxservice";
            let is_hidden = ["nginxservice", "default", "hidden", "production"]
                .iter()
                .all(|name| !it.message.contains(name));
            assert!(it.message.contains(told) && (is_named || is_hidden), "{uid}: {it}");
        };
        is_said(&refused(&scene, uid, &of_any(&[80])).await, told);
        is_said(
            &refused(&scene, uid, &of_any(&[81])).await,
            "which does not belong to a Service of this namespace",
        );
        // One that is on it already is told the same.
        scene.reach_of(uid, &of_any(&[443])).await;
        let both = scene.reach_telling_of(uid, &of_any(&[443, 80, 81])).await;
        assert_eq!(both.len(), 2, "{both:?}");
        is_said(&both[0], told);
        is_said(&both[1], "which does not belong to a Service of this namespace");
        scene.remove_of(uid).await;
    }
}

/// The conflict is missed, and the second takes the listener of the first over, with its members.
#[tokio::test]
async fn shared_load_balancer_port_conflicts_with_x_forwarded_for() {
    let mut scene = Scene::set().await;
    let web = |mut wish: Wish| {
        wish.listeners.values_mut().for_each(|it| Arc::make_mut(it).protocol = Protocol::Http);
        wish
    };
    let first = web(scene.wish(&[80], &[1]));
    scene.reach(&first).await;
    let made = only(&scene).await;
    let before = listener(&scene, 80).await;
    let second = web(guest(&scene, "uid-2", &[80], &made));
    assert_eq!(refused(&scene, "uid-2", &second).await.reason, Reason::PortConflict);
    assert_eq!(listener(&scene, 80).await.tags, before.tags);
    // A port that the guest takes later is told, and the rest is served.
    let second = web(guest(&scene, "uid-2", &[443], &made));
    scene.reach_of("uid-2", &second).await;
    let both = web(guest(&scene, "uid-2", &[443, 80], &made));
    for _ in 0..2 {
        let told = scene.reach_telling_of("uid-2", &both).await;
        assert_eq!(told.iter().map(|it| it.reason).collect::<Vec<_>>(), [Reason::PortConflict]);
        assert_eq!(scene.reach(&first).await, [""; 0]);
        scene.restarted();
    }
}

/// The second cluster renames the load balancer and its tags to its own, and the clusters rename back and forth.
#[tokio::test]
async fn cross_cluster_sharing_renames_nothing_and_deletes_nothing() {
    let mut scene = Scene::set().await;
    let node = IpAddr::from([10, 0, 0, 9]);
    for same_name in [false, true] {
        let cluster = if same_name { "kubernetes" } else { "production" };
        let theirs = OccmObjects { cluster, ..OccmObjects::new("theirs", &[(80, 31_080)], &[("x", node)]) };
        let (made, _) = theirs.make(&scene.cloud, &scene.subnet).await;
        let before = listener(&scene, 80).await;
        let mut wish = guest(&scene, "uid-2", &[443], &made);
        wish.options.cloud.as_mut().unwrap().join = SharedLoadBalancerScope::Any;
        scene.reach_of("uid-2", &wish).await;
        let now = only(&scene).await;
        assert_eq!((&now.name, &now.description), (&made.name, &made.description));
        assert!(made.tags.is_subset(&now.tags), "{:?}", now.tags);
        assert_eq!(scene.served("uid-2", &wish).await.len(), 1);
        scene.restarted();
        assert_eq!(scene.reach_of("uid-2", &wish).await, [""; 0]);
        scene.remove_of("uid-2").await;
        let left = only(&scene).await;
        assert_eq!((&left.id, &left.tags), (&made.id, &made.tags));
        let after = listener(&scene, 80).await;
        assert_eq!((&after.name, &after.tags), (&before.name, &before.tags));
        assert_eq!((scene.listeners().await.len(), scene.floating().await.len()), (1, 1));
        scene.cloud.all::<LoadBalancer>().delete_cascade(&made.id).await.unwrap();
        let id = scene.floating().await.remove(0).id;
        scene.cloud.all::<seaway_openstack::neutron::FloatingIp>().delete(&id).await.unwrap();
        while !scene.balancers().await.is_empty() {}
    }
}

#[tokio::test]
async fn who_may_not_share_is_told_why() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let made = only(&scene).await;
    let mut internal = guest(&scene, "uid-2", &[443], &made);
    internal.options.cloud.as_mut().unwrap().internal = true;
    assert!(refused(&scene, "uid-2", &internal).await.fix.contains("internal"));
    let mut elsewhere = guest(&scene, "uid-2", &[443], &made);
    elsewhere.options.cloud.as_mut().unwrap().requested = Some([192, 0, 2, 7].into());
    assert_eq!(refused(&scene, "uid-2", &elsewhere).await.reason, Reason::AddressTaken);
    let mut same = guest(&scene, "uid-2", &[443], &made);
    same.options.cloud.as_mut().unwrap().requested = scene.floating().await[0].floating_ip_address;
    scene.reach_of("uid-2", &same).await;
    let third = guest(&scene, "uid-3", &[8443], &made);
    let problem = refused(&scene, "uid-3", &third).await;
    assert!(problem.fix.contains("max-shared-lb"), "{problem:?}");
    assert_eq!(&*problem.field, FIELD);
}

#[tokio::test]
async fn a_guest_that_names_none_any_more_gets_one_of_its_own() {
    let scene = Scene::set().await;
    let first = scene.wish(&[80], &[1]);
    scene.reach(&first).await;
    let made = only(&scene).await;
    scene.reach_of("uid-2", &guest(&scene, "uid-2", &[443], &made)).await;
    let own = named(scene.wish_of("uid-2", &[443], &[1, 2]), None);
    scene.reach_of("uid-2", &own).await;
    let all = scene.balancers().await;
    assert_eq!(all.len(), 2);
    assert_eq!(all.iter().find(|it| it.id == made.id).unwrap().tags, made.tags);
    assert_eq!(scene.floating().await.len(), 2);
    // Who has one of its own stays there, whatever it names later.
    let told = scene.reach_telling_of("uid-2", &guest(&scene, "uid-2", &[443], &made)).await;
    assert_eq!(told.iter().map(|it| it.reason).collect::<Vec<_>>(), [Reason::BadAnnotation]);
    assert_eq!(scene.reach(&first).await, [""; 0]);
}

/// Both Services of a load balancer that the other controller had two on.
#[tokio::test]
async fn services_that_shared_before_us_share_on_and_nothing_is_made_or_deleted() {
    let mut scene = Scene::set().await;
    let node = |last: u8| IpAddr::from([10, 0, 0, last]);
    let theirs = OccmObjects::new("nginxservice", &[(80, 30_080)], &[("one", node(1)), ("two", node(2))]);
    let (made, floating) = theirs.make(&scene.cloud, &scene.subnet).await;
    let second = "kube_service_kubernetes_default_uid-2".to_owned();
    let members = [1, 2].map(|last| NewMember {
        subnet_id: Some(scene.subnet.clone()).into(),
        ..NewMember::new(node(last), 30_443_u16)
    });
    let balancers = scene.cloud.all::<LoadBalancer>();
    let rest = async || {
        balancers.until_ready(&made.id, std::time::Duration::from_secs(60)).await.unwrap();
    };
    let tags: BTreeSet<String> = made.tags.iter().cloned().chain([second.clone()]).collect();
    let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
    balancers.change(&made.id, &change).await.unwrap();
    rest().await;
    let new = NewListener {
        name: format!("listener_0_{second}").into(),
        tags: BTreeSet::from([second.clone()]).into(),
        loadbalancer_id: Edit::To(made.id.clone()),
        ..NewListener::new(Spoken::Tcp, 443_u16)
    };
    let listener = scene.cloud.all::<Listener>().create(&new).await.unwrap();
    rest().await;
    let new = NewPool {
        name: format!("pool_0_{second}").into(),
        listener_id: Edit::To(listener.id),
        ..NewPool::new(PoolProtocol::Tcp, Algorithm::RoundRobin)
    };
    let pool = scene.cloud.all::<seaway_openstack::octavia::Pool>().create(&new).await.unwrap();
    rest().await;
    scene.cloud.within::<seaway_openstack::octavia::Member>(&pool.id).replace(&members).await.unwrap();
    rest().await;

    let had = |mut wish: Wish| {
        wish.options.cloud.as_mut().unwrap().published = floating.floating_ip_address.into_iter().collect();
        wish
    };
    let first = had(named(scene.wish(&[80], &[1, 2]), Some(&made)));
    let guest = had(guest(&scene, "uid-2", &[443], &made));
    // In either order.
    for turn in 0..2 {
        scene.fake.forget_requests();
        assert_eq!(
            scene.reach_of("uid-2", &guest).await,
            match turn {
                0 => vec!["change the listener of 443/TCP", "join the shared load balancer"],
                _ => vec![],
            }
        );
        scene.reach(&first).await;
        assert_eq!(scene.fake.count("POST */v2*") + scene.fake.count("DELETE *"), 0);
        assert!(scene.fake.count("PUT */lbaas/*") <= 3, "tags of two objects, of one of them twice");
        assert_eq!(scene.fake.count("PUT */members*"), 0);
        scene.restarted();
    }
    scene.remove().await;
    assert_eq!(scene.listeners().await.len(), 1);
    assert_eq!(scene.served("uid-2", &guest).await, [(floating.floating_ip_address.unwrap(), 443)]);
    scene.remove_of("uid-2").await;
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
}
