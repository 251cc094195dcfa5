//! Services that are deleted before what another controller made for them was adopted: nothing of that stays, and nothing of
//! anybody else goes.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer as Wish, load_balancer::NamedLoadBalancer, unit::RemovedOwner};
use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange, NewSecurityGroup, SecurityGroup},
    octavia::{LoadBalancer, LoadBalancerChange},
    resource::{Edit, Query},
};
use seaway_testkit::cloud::Fault;

use crate::{occm::OccmObjects, scene::*};

fn node(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn theirs() -> OccmObjects {
    OccmObjects::new("nginxservice", &[(80, 30_080), (443, 30_443)], &[("one", node(1)), ("two", node(2))])
}

fn former(mut wish: Wish, annotation: Option<&str>, status: Option<IpAddr>) -> RemovedOwner {
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.named = annotation.map(|id| NamedLoadBalancer {
        id: id.into(),
        field: "an annotation".into(),
        by_name: false,
    });
    outside.published = status.into_iter().collect();
    RemovedOwner { load_balancer: Arc::new(wish), nodes: [node(1), node(2)].into(), by_another: true }
}

fn removed(former: &RemovedOwner) -> Desired {
    Desired::Removed(Arc::new(former.clone()))
}

async fn group(scene: &Scene, name: &str, words: &str) {
    let new = NewSecurityGroup { name: name.into(), description: words.into(), ..NewSecurityGroup::new() };
    scene.cloud.all::<SecurityGroup>().create(&new).await.unwrap();
}

async fn groups(scene: &Scene) -> BTreeSet<String> {
    let all = scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
    all.into_iter().map(|it| it.description).filter(|it| it.starts_with("Security Group for")).collect()
}

const NAME: &str = "lb-sg-uid-1-default-nginxservice";
const WORDS: &str = "Security Group for default/nginxservice Service LoadBalancer in cluster kubernetes";

#[tokio::test]
async fn what_another_controller_made_goes_with_its_service() {
    for by_status in [true, false] {
        let scene = Scene::set().await;
        let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
        let twin = OccmObjects { cluster: "another", ..theirs() };
        let (other, _) = twin.make(&scene.cloud, &scene.subnet).await;
        group(&scene, NAME, WORDS).await;
        let of_another = WORDS.replace("kubernetes", "another");
        group(&scene, NAME, &of_another).await;
        let address = floating.floating_ip_address.filter(|_| by_status);
        let former =
            former(scene.wish(&[80, 443], &[1, 2]), (!by_status).then_some(made.id.as_str()), address);
        let steps = scene.reach_unit(&unit(), &removed(&former)).await;
        assert_eq!(
            steps[..4],
            [
                format!("set the description of floating IP {}", floating.id),
                "change the load balancer".to_owned(),
                format!("delete floating IP {}", floating.id),
                format!("delete load balancer {} with everything in it", made.id),
            ]
        );
        assert_eq!(steps.len(), 5, "and its group: {steps:?}");
        let left = scene.balancers().await;
        assert_eq!((left.len(), &left[0].id), (1, &other.id));
        assert_eq!(scene.floating().await.len(), 1);
        assert_eq!(groups(&scene).await, [of_another].into());
    }
}

#[tokio::test]
async fn a_floating_ip_that_is_to_be_kept_stays() {
    let scene = Scene::set().await;
    let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
    let mut wish = scene.wish(&[80, 443], &[1, 2]);
    wish.options.cloud.as_mut().unwrap().floating.keep = true;
    scene.reach_unit(&unit(), &removed(&former(wish, Some(made.id.as_str()), None))).await;
    assert!(scene.balancers().await.is_empty());
    let left = scene.floating().await;
    assert_eq!((left.len(), &left[0].id, &left[0].port_id), (1, &floating.id, &None));
}

/// A Service that has another type has no node ports any more.
#[tokio::test]
async fn without_node_ports_the_addresses_of_nodes_tell_whose_members_they_are() {
    for (nodes, goes) in [([node(1), node(2)], true), ([node(1), node(9)], false)] {
        let mut scene = Scene::set().await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        scene.hear(&heard);
        let (made, _) = theirs().make(&scene.cloud, &scene.subnet).await;
        let mut former = former(scene.wish(&[80, 443], &[]), Some(made.id.as_str()), None);
        former.nodes = nodes.into();
        if goes {
            scene.reach_unit(&unit(), &removed(&former)).await;
            assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
        } else {
            waits(&scene, &former).await;
            let heard = heard.lock().unwrap();
            assert_eq!(heard.len(), 1, "{heard:?}");
            assert!(heard[0].text.contains(made.id.as_str()), "{heard:?}");
        }
    }
}

/// Nothing is written, and the Service is told what its deletion waits for.
async fn waits(scene: &Scene, former: &RemovedOwner) {
    scene.fake.forget_requests();
    for _ in 0..2 {
        let refused = scene.driver.observe(&Context::default(), &unit(), &removed(former)).await;
        assert!(matches!(refused, Err(Failure::User(told)) if told.len() == 1));
    }
    nothing_written(scene);
}

fn nothing_written(scene: &Scene) {
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(scene.fake.count(&format!("{method} */v2*")), 0, "{method}");
    }
}

#[tokio::test]
async fn what_an_adoption_would_not_take_stays() {
    let scene = Scene::set().await;
    let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
    let elsewhere = OccmObjects { service: "elsewhere".to_owned(), ..theirs() };
    let (other, to_other) = elsewhere.make(&scene.cloud, &scene.subnet).await;
    let wish = || scene.wish(&[80, 443], &[1, 2]);
    // A name alone; members of others; a cluster name that was another.
    waits(&scene, &former(wish(), None, None)).await;
    waits(&scene, &former(scene.wish(&[80, 443], &[7]), Some(made.id.as_str()), None)).await;
    let renamed = OccmObjects { cluster: "production", service: "nginxservice".to_owned(), ..theirs() };
    let (_, to_renamed) = renamed.make(&scene.cloud, &scene.subnet).await;
    waits(&scene, &former(wish(), None, to_renamed.floating_ip_address)).await;
    // Whom we held ourselves has nothing that has not our tags: nothing is waited for.
    let doubtful = [
        former(wish(), None, None),
        former(scene.wish(&[80, 443], &[7]), Some(made.id.as_str()), None),
        former(wish(), Some(other.id.as_str()), to_other.floating_ip_address),
    ];
    scene.fake.forget_requests();
    for former in doubtful {
        let steps = scene.reach_unit(&unit(), &removed(&RemovedOwner { by_another: false, ..former })).await;
        assert_eq!(steps, [""; 0]);
    }
    nothing_written(&scene);
    // That of another Service, which another controller held it by.
    let mut scene = scene;
    let tags = [made.name.clone(), "seaway.dev/cluster=9999".to_owned(), "seaway.dev/key=uid-1".to_owned()];
    let change = LoadBalancerChange { tags: Edit::To(tags.into()), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
    scene.restarted();
    let of_another_cluster = former(wish_of(&scene), Some(made.id.as_str()), floating.floating_ip_address);
    let of_another_service = former(wish_of(&scene), Some(other.id.as_str()), to_other.floating_ip_address);
    for former in [of_another_cluster, of_another_service] {
        let steps = scene.reach_unit(&unit(), &removed(&former)).await;
        assert_eq!(steps, [""; 0]);
    }
    assert_eq!((scene.balancers().await.len(), scene.floating().await.len()), (3, 3));
}

fn wish_of(scene: &Scene) -> Wish {
    scene.wish(&[80, 443], &[1, 2])
}

/// Whatever request fails or is lost, and whoever goes on after it.
#[tokio::test]
async fn trouble_at_any_request_leaves_nothing() {
    for lost in [false, true] {
        for nth in 1.. {
            let mut scene = Scene::set().await;
            let (_, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
            group(&scene, NAME, WORDS).await;
            let former = former(wish_of(&scene), None, floating.floating_ip_address);
            let desired = removed(&former);
            scene.fake.forget_requests();
            let mut struck = false;
            for method in ["PUT", "DELETE"] {
                let on = Fault::on(&format!("{method} *")).nth(nth);
                scene.fake.fail(if lost { on.lose_reply() } else { on.status(500) });
            }
            for _ in 0..20 {
                if let Ok(mut observed) = scene.driver.observe(&Context::default(), &unit(), &desired).await {
                    for step in scene.driver.steps(&desired, &observed) {
                        if scene
                            .driver
                            .apply(&Context::default(), &unit(), &step, &mut observed)
                            .await
                            .is_err()
                        {
                            break;
                        }
                    }
                }
                scene.pass(std::time::Duration::from_secs(70));
            }
            for method in ["PUT", "DELETE"] {
                struck |= scene.fake.count(&format!("{method} *")) >= nth;
            }
            scene.fake.heal();
            scene.restarted();
            scene.reach_unit(&unit(), &desired).await;
            assert!(scene.balancers().await.is_empty(), "{nth}");
            assert!(scene.floating().await.is_empty(), "{nth}");
            assert!(groups(&scene).await.is_empty(), "{nth}");
            if !struck {
                break;
            }
        }
    }
}

/// By the names of those that share it the other controller tells what is whose.
#[tokio::test]
async fn of_one_that_several_share_only_its_own_part_goes() {
    let scene = Scene::set().await;
    let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
    let guest = "kube_service_kubernetes_default_guest".to_owned();
    let tags = made.tags.iter().cloned().chain([guest.clone()]).collect();
    let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
    scene.cloud.all::<LoadBalancer>().change(&made.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    let former = former(wish_of(&scene), Some(made.id.as_str()), floating.floating_ip_address);
    scene.reach_unit(&unit(), &removed(&former)).await;
    let left = scene.balancers().await;
    assert_eq!((left.len(), left[0].tags.contains(&guest)), (1, true));
    assert!(!left[0].tags.contains(&made.name));
    let floating: Vec<FloatingIp> = scene.floating().await;
    assert!(floating[0].port_id.is_some(), "who is left is reached");
    assert!(scene.listeners().await.is_empty(), "they were its own");
}

/// Somebody may have led an address of his own to it.
#[tokio::test]
async fn a_floating_ip_with_other_words_on_it_stays_and_is_not_marked() {
    let scene = Scene::set().await;
    let (made, floating) = theirs().make(&scene.cloud, &scene.subnet).await;
    let change =
        FloatingIpChange { description: "of the shop".to_owned().into(), ..FloatingIpChange::default() };
    scene.cloud.all::<FloatingIp>().change(&floating.id, &change).await.unwrap();
    scene.reach_unit(&unit(), &removed(&former(wish_of(&scene), Some(made.id.as_str()), None))).await;
    assert!(scene.balancers().await.is_empty());
    let left = scene.floating().await;
    assert_eq!((left.len(), left[0].description.as_str(), &left[0].port_id), (1, "of the shop", &None));
}
