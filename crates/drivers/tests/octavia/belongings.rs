//! What a cluster has in a cloud, found and removed without its controller.

use seaway_drivers::octavia::{
    Cluster, Octavia,
    belongings::{Belonging, CloudObject, belongings, divided, orphans, released, remove},
};
use seaway_openstack::{
    barbican::{NewSecret, Secret},
    neutron::{NewSecurityGroup, SecurityGroup},
    octavia::{LoadBalancer, NewLoadBalancer},
    resource::Query,
};
use seaway_testkit::conformance::comes_to_rest;

use crate::scene::*;

fn quiet(_: &str) {}

async fn of(scene: &Scene, uid: &str) -> Vec<Belonging> {
    belongings(&scene.cloud, uid, &quiet).await.unwrap()
}

fn things(all: &[Belonging]) -> Vec<&'static str> {
    let word = |it: &Belonging| match it.thing {
        CloudObject::LoadBalancer(_) => "load balancer",
        CloudObject::Part(..) => "part",
        CloudObject::FloatingIp(_) => "floating IP",
        CloudObject::SecurityGroup(_) => "security group",
        CloudObject::Container(_) => "container",
        CloudObject::Secret(_) => "secret",
    };
    all.iter().map(word).collect()
}

/// A Service of ours, one of a cluster of the same name, and what somebody else has there.
async fn furnished() -> Scene {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let theirs = of_cluster(&scene, "6c1d-other");
    let wish = seaway_model::Desired::LoadBalancer(std::sync::Arc::new(scene.wish(&[80], &[1])));
    comes_to_rest(&theirs, &unit(), &wish, |time| scene.pass(time)).await;
    let foreign = NewLoadBalancer {
        name: "k8sclusterv1-x-api_pool".into(),
        vip_subnet_id: Some(scene.subnet.clone()).into(),
        ..NewLoadBalancer::new()
    };
    scene.cloud.all::<LoadBalancer>().create(&foreign).await.unwrap();
    for uid in ["6c1d", "6c1d-other"] {
        let group = NewSecurityGroup {
            name: "lb-sg".into(),
            description: format!("Security Group [seaway.dev/cluster={uid} seaway.dev/group=x]").into(),
            ..NewSecurityGroup::new()
        };
        scene.cloud.all::<SecurityGroup>().create(&group).await.unwrap();
        let secret = NewSecret {
            name: format!("seaway.dev/cluster={uid} seaway.dev/key=uid-1 key").into(),
            ..NewSecret::new()
        };
        scene.cloud.all::<Secret>().create(&secret).await.unwrap();
    }
    scene
}

fn of_cluster(scene: &Scene, uid: &'static str) -> Octavia {
    let cloud = scene.cloud.clone();
    let join = move || -> seaway_drivers::octavia::Joining {
        let cloud = cloud.clone();
        Box::pin(async move { Ok((cloud, Cluster { uid: uid.into(), name: "kubernetes".into() })) })
    };
    Octavia::new(Box::new(join), "amphora".into(), || true)
}

#[tokio::test]
async fn a_purge_removes_all_that_is_this_clusters_and_nothing_else() {
    let scene = furnished().await;
    let ours = of(&scene, "6c1d").await;
    assert_eq!(things(&ours), ["load balancer", "floating IP", "security group", "secret"]);
    assert!(of(&scene, "6c1").await.is_empty(), "the beginning of a UID is no UID");
    let theirs = of(&scene, "6c1d-other").await;
    assert_eq!(theirs.len(), 4);
    assert!(remove(&scene.cloud, "6c1d", &ours, &quiet).await.is_empty());
    assert!(of(&scene, "6c1d").await.is_empty());
    assert_eq!(of(&scene, "6c1d-other").await.len(), 4, "of one name, and another");
    let names: Vec<String> = scene.balancers().await.into_iter().map(|it| it.name).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"k8sclusterv1-x-api_pool".to_owned()), "{names:?}");
    assert!(remove(&scene.cloud, "6c1d", &ours, &quiet).await.is_empty(), "what is gone is removed");
}

#[tokio::test]
async fn orphans_are_what_no_service_has_any_more() {
    let scene = furnished().await;
    let service = |uid: &str, name: &str| (uid.to_owned(), "default".to_owned(), name.to_owned());
    let all = of(&scene, "6c1d").await;
    assert!(orphans(all.clone(), &[service("uid-1", "nginxservice")]).is_empty());
    let left = orphans(all.clone(), &[service("uid-9", "another")]);
    assert_eq!(things(&left), ["load balancer", "floating IP", "secret"], "the group is of all Services");
    let namesake = orphans(all, &[service("uid-9", "nginxservice")]);
    assert_eq!(things(&namesake), ["load balancer", "floating IP", "secret"], "it has one of its own");
}

#[tokio::test]
async fn what_the_controller_calls_released_is_listed_while_its_service_is_there() {
    let scene = furnished().await;
    let all = of(&scene, "6c1d").await;
    let services = [("uid-1".to_owned(), "default".to_owned(), "nginxservice".to_owned())];
    let listed = |uid: &str, services: &[_]| released(&all, &[uid.to_owned()].into(), services);
    assert_eq!(things(&listed("uid-1", &services)), ["load balancer", "floating IP", "secret"]);
    assert_eq!(things(&listed("uid-9", &services)), [""; 0], "nobody said so of this one");
    assert_eq!(things(&listed("uid-1", &[])), [""; 0], "it is gone by now: an orphan");
}

/// A load balancer of two Services, and the other's listeners on one that is somebody else's.
async fn shared() -> (Scene, Belonging) {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let made = scene.balancers().await.remove(0);
    let guest = |uid: &str, port| {
        let mut wish = scene.wish_of(uid, &[port], &[1]);
        let outside = wish.options.cloud.as_mut().unwrap();
        let field = "metadata.annotations[seaway.dev/load-balancer-id]".into();
        outside.named = Some(seaway_model::load_balancer::NamedLoadBalancer {
            id: made.id.as_str().into(),
            field,
            by_name: false,
        });
        outside.most_shared = 3;
        // One of them is another cluster's.
        outside.join = seaway_model::config::SharedLoadBalancerScope::Any;
        wish
    };
    scene.reach_of("uid-2", &guest("uid-2", 443)).await;
    let theirs = of_cluster(&scene, "6c1d-other");
    let wish = seaway_model::Desired::LoadBalancer(std::sync::Arc::new(guest("uid-3", 8443)));
    comes_to_rest(&theirs, &unit_of(&owner_of("uid-3")), &wish, |time| scene.pass(time)).await;
    let part = of(&scene, "6c1d-other").await.remove(0);
    (scene, part)
}

#[tokio::test]
async fn who_is_left_on_a_load_balancer_keeps_it_and_what_leads_there() {
    let (scene, theirs) = shared().await;
    let service = |uid: &str| (uid.to_owned(), "default".to_owned(), uid.to_owned());
    let all = of(&scene, "6c1d").await;
    assert_eq!(things(&all), ["part", "part", "floating IP"], "another cluster is on it");
    assert!(orphans(all.clone(), &[service("uid-1"), service("uid-2")]).is_empty());
    let left = orphans(all, &[service("uid-2")]);
    assert_eq!(things(&left), ["part"]);
    assert!(remove(&scene.cloud, "6c1d", &left, &quiet).await.is_empty());
    let ports = async || -> Vec<u16> {
        let mut ports: Vec<u16> = scene.listeners().await.iter().map(|it| it.protocol_port).collect();
        ports.sort_unstable();
        ports
    };
    assert_eq!((ports().await, scene.floating().await.len()), (vec![443, 8443], 1));
    // All of this cluster goes, and the other is served on.
    let (goes, stays) = divided(of(&scene, "6c1d").await);
    assert_eq!((things(&goes), things(&stays)), (vec!["part"], vec!["floating IP"]));
    assert!(remove(&scene.cloud, "6c1d", &goes, &quiet).await.is_empty());
    assert_eq!((ports().await, scene.floating().await.len()), (vec![8443], 1));
    assert_eq!(
        of(&scene, "6c1d-other").await,
        [Belonging { left: true, marks: scene.balancers().await.remove(0).tags, ..theirs }]
    );
}

#[tokio::test]
async fn a_load_balancer_that_its_first_has_left_and_its_guests_too_is_an_orphan() {
    let (scene, theirs) = shared().await;
    assert!(remove(&scene.cloud, "6c1d-other", &[theirs], &quiet).await.is_empty());
    assert_eq!(scene.listeners().await.len(), 2);
    scene.remove().await;
    let service = |uid: &str| (uid.to_owned(), "default".to_owned(), "else".to_owned());
    let all = of(&scene, "6c1d").await;
    assert_eq!(things(&all), ["load balancer", "part", "floating IP"]);
    assert!(orphans(all.clone(), &[service("uid-2")]).is_empty());
    // Its first has gone elsewhere, and its guest is no more.
    let left = orphans(all, &[service("uid-1")]);
    assert_eq!(things(&left), ["load balancer", "floating IP"]);
    assert!(remove(&scene.cloud, "6c1d", &left, &quiet).await.is_empty());
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
}

#[tokio::test]
async fn a_floating_ip_that_is_to_be_kept_is_told_as_such_and_is_no_orphan() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    wish.options.cloud.as_mut().unwrap().floating.keep = true;
    scene.reach(&wish).await;
    scene.remove().await;
    let all = of(&scene, "6c1d").await;
    assert_eq!(things(&all), ["floating IP"]);
    assert!(all[0].kept && !all[0].used);
    assert!(orphans(all, &[]).is_empty());
}

#[tokio::test]
async fn what_cannot_be_removed_is_told_and_the_rest_goes() {
    let scene = furnished().await;
    scene.fake.fail(seaway_testkit::cloud::Fault::on("DELETE */security-groups/*").always().status(403));
    let ours = of(&scene, "6c1d").await;
    let failed = remove(&scene.cloud, "6c1d", &ours, &quiet).await;
    assert_eq!(failed.len(), 1);
    assert!(matches!(failed[0].0.thing, CloudObject::SecurityGroup(_)));
    assert_eq!(things(&of(&scene, "6c1d").await), ["security group"]);
    assert_eq!(scene.cloud.all::<Secret>().list::<Secret>(Query::all()).await.unwrap().len(), 1);
}
