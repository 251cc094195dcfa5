//! Our security group, given up once the other controller's let the same through at the same ports.

use std::collections::BTreeSet;

use ipnet::IpNet;
use seaway_drivers::octavia::group_release::{OurGroup, our_groups, release};
use seaway_model::L4;
use seaway_openstack::{
    neutron::{
        Direction, EtherType, NewPort, NewSecurityGroup, NewSecurityGroupRule, Port, PortChange,
        SecurityGroup, SecurityGroupRule, Subnet,
    },
    resource::{Edit, Id, Query},
};
use seaway_testkit::cloud::Fault;

use crate::scene::*;

const OURS: &str =
    "Security Group in cluster kubernetes [seaway.dev/cluster=6c1d seaway.dev/group=seaway.dev/octavia]";
const ANOTHERS: &str =
    "Security Group in cluster kubernetes [seaway.dev/cluster=6c1 seaway.dev/group=seaway.dev/octavia]";

async fn group(scene: &Scene, name: &str, words: &str) -> Id<SecurityGroup> {
    let new = NewSecurityGroup { name: name.into(), description: words.into(), ..NewSecurityGroup::new() };
    scene.cloud.all::<SecurityGroup>().create(&new).await.unwrap().id
}

async fn opens(scene: &Scene, group: &Id<SecurityGroup>, port: u16, from: &str) {
    let new = NewSecurityGroupRule {
        protocol: Some("tcp".to_owned()).into(),
        port_range_min: Some(port).into(),
        port_range_max: Some(port).into(),
        remote_ip_prefix: Some(from.parse::<IpNet>().unwrap().to_string()).into(),
        ..NewSecurityGroupRule::new(group.clone(), Direction::Ingress, EtherType::V4)
    };
    scene.cloud.all::<SecurityGroupRule>().create(&new).await.unwrap();
}

async fn port(scene: &Scene, groups: &[&Id<SecurityGroup>]) -> Id<Port> {
    let subnet: Subnet = scene.cloud.all().read(&scene.subnet).await.unwrap();
    let groups: Vec<_> = groups.iter().map(|it| (*it).clone()).collect();
    let new = NewPort { security_groups: groups.into(), ..NewPort::new(subnet.network_id) };
    scene.cloud.all::<Port>().create(&new).await.unwrap().id
}

async fn put(scene: &Scene, port: &Id<Port>, groups: &[&Id<SecurityGroup>]) {
    let groups: Vec<_> = groups.iter().map(|it| (*it).clone()).collect();
    let change = PortChange { security_groups: Edit::To(groups), ..PortChange::default() };
    scene.cloud.all::<Port>().change(port, &change).await.unwrap();
}

async fn groups_at(scene: &Scene, port: &Id<Port>) -> Vec<Id<SecurityGroup>> {
    scene.cloud.all::<Port>().read::<Port>(port).await.unwrap().security_groups
}

async fn names(scene: &Scene) -> BTreeSet<String> {
    let all = scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
    all.into_iter().map(|it| it.name).filter(|it| it != "default").collect()
}

async fn the_one(scene: &Scene, used: &BTreeSet<(L4, u16)>) -> OurGroup {
    let mut all = our_groups(&scene.cloud, "6c1d", used).await.unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[tokio::test]
async fn our_group_goes_where_others_let_the_same_through_and_stays_at_every_port_else() {
    let scene = Scene::set().await;
    let ours = group(&scene, "ours", OURS).await;
    let anothers = group(&scene, "another cluster's", ANOTHERS).await;
    let theirs = group(&scene, "theirs", "theirs").await;
    // Services use 30080 and 30090; none uses 30099 any more.
    for port in [30_080, 30_090, 30_099] {
        opens(&scene, &ours, port, "10.0.0.0/24").await;
    }
    opens(&scene, &anothers, 30_099, "10.0.0.0/24").await;
    opens(&scene, &theirs, 30_080, "0.0.0.0/0").await;
    opens(&scene, &theirs, 30_090, "10.0.0.0/25").await;
    let used = BTreeSet::from([(L4::Tcp, 30_080), (L4::Tcp, 30_090)]);
    let (one, two) = (port(&scene, &[&ours, &theirs, &anothers]).await, port(&scene, &[&ours]).await);

    let it = the_one(&scene, &used).await;
    assert_eq!((&it.id, it.ports.len()), (&ours, 2));
    // At one, a part of what uses 30090 would be cut off; at two, all.
    let told = it.needed.join("\n");
    assert_eq!(it.needed.len(), 3, "{told}");
    assert!(told.contains(one.as_str()) && told.contains("30090") && told.contains(two.as_str()), "{told}");
    assert!(!told.contains("30099"), "{told}");
    scene.fake.forget_requests();
    assert!(release(&scene.cloud, &it, &used).await.unwrap().is_err(), "it is looked at again");
    assert_eq!(scene.fake.count("PUT *") + scene.fake.count("DELETE *"), 0);

    // The other controller opens what is missing.
    opens(&scene, &theirs, 30_090, "10.0.0.0/24").await;
    put(&scene, &two, &[&ours, &theirs]).await;
    let it = the_one(&scene, &used).await;
    assert_eq!(it.needed, [""; 0]);
    // Meanwhile, one port lost theirs: what was seen is not what is there.
    put(&scene, &two, &[&ours]).await;
    let why = release(&scene.cloud, &it, &used).await.unwrap().unwrap_err();
    assert!(why.contains(two.as_str()), "{why}");
    assert_eq!(groups_at(&scene, &two).await, std::slice::from_ref(&ours));
    put(&scene, &two, &[&ours, &theirs]).await;
    let it = the_one(&scene, &used).await;
    assert_eq!(release(&scene.cloud, &it, &used).await.unwrap(), Ok(()));
    assert_eq!(groups_at(&scene, &two).await, std::slice::from_ref(&theirs));
    let left: BTreeSet<_> = groups_at(&scene, &one).await.into_iter().collect();
    assert_eq!(left, [theirs, anothers].into(), "nothing else is taken from a port");
    assert_eq!(names(&scene).await, ["another cluster's".to_owned(), "theirs".to_owned()].into());
    assert!(our_groups(&scene.cloud, "6c1d", &used).await.unwrap().is_empty());
    assert_eq!(release(&scene.cloud, &it, &used).await.unwrap(), Ok(()), "it is gone already");
}

#[tokio::test]
async fn a_port_that_somebody_changes_meanwhile_keeps_it_and_no_service_needs_none() {
    let scene = Scene::set().await;
    let ours = group(&scene, "ours", OURS).await;
    opens(&scene, &ours, 30_080, "0.0.0.0/0").await;
    let at = port(&scene, &[&ours]).await;
    let it = the_one(&scene, &BTreeSet::new()).await;
    assert_eq!(it.needed, [""; 0], "no Service uses that port");
    scene.fake.fail(Fault::on("PUT */ports/*").status(412));
    let why = release(&scene.cloud, &it, &BTreeSet::new()).await.unwrap().unwrap_err();
    assert!(why.contains("run the command again"), "{why}");
    assert_eq!(groups_at(&scene, &at).await, [ours]);
    scene.fake.heal();
    assert_eq!(release(&scene.cloud, &it, &BTreeSet::new()).await.unwrap(), Ok(()));
    assert!(names(&scene).await.is_empty());
}
