//! Nodes let in what comes from where a load balancer is: where it was made, or another's, of whatever namespace, that it shares.

use std::{collections::BTreeSet, sync::Arc};

use seaway_drivers::octavia::groups::Groups;
use seaway_model::{
    Desired, Kind, L4, LoadBalancer as Wish, NodeSecurityGroup, ObjectRef, Owner, Unit,
    group::{NodeAccess, SourceNetwork},
    load_balancer::{Family, NamedLoadBalancer},
};
use seaway_openstack::{
    neutron::{Direction, NewSubnet, Router, SecurityGroup, Subnet},
    octavia::{LoadBalancer, NewLoadBalancer},
    resource::{Edit, Id, Query},
};
use seaway_testkit::conformance::comes_to_rest;

use crate::scene::*;

const FIELD: &str = "metadata.annotations[loadbalancer.openstack.org/load-balancer-id]";

/// Of another namespace.
fn guest() -> Owner {
    Owner::Object { object: ObjectRef::new(Kind::Service, "other", "uid-2"), uid: "uid-2".into() }
}

fn of_guest(mut wish: Wish, named: Option<&LoadBalancer>) -> Wish {
    for listener in wish.listeners.values_mut() {
        let listener = Arc::make_mut(listener);
        listener.owner = guest();
        listener.rules.iter_mut().for_each(|it| Arc::make_mut(it).owner = guest());
    }
    wish.pools.values_mut().for_each(|it| Arc::make_mut(it).owner = guest());
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.named =
        named.map(|it| NamedLoadBalancer { id: it.id.as_str().into(), field: FIELD.into(), by_name: false });
    outside.most_shared = 2;
    outside.join = seaway_model::config::SharedLoadBalancerScope::Any;
    wish
}

fn class() -> Unit {
    Unit::SecurityGroup { cloud: "openstack".into(), class: "seaway.dev/octavia".into() }
}

/// As the plan has it for a Service that says that subnet, and whose members name none of their own.
fn opened(owner: Owner, port: u16, subnet: &Id<Subnet>) -> (Owner, Arc<NodeAccess>) {
    let openings = NodeAccess {
        ports: vec![(L4::Tcp, port)],
        families: vec![Family::V4],
        provider: Some("amphora".into()),
        from: SourceNetwork::Subnet(subnet.as_str().into()),
        at_vip: true,
        ..NodeAccess::default()
    };
    (owner, Arc::new(openings))
}

async fn reach(scene: &Scene, of: &[(Owner, Arc<NodeAccess>)]) -> Vec<String> {
    let group = NodeSecurityGroup { openings: of.iter().cloned().collect(), ..NodeSecurityGroup::default() };
    let groups = Groups::new(scene.driver.clone());
    comes_to_rest(&groups, &class(), &Desired::SecurityGroup(Arc::new(group)), |time| scene.pass(time)).await
}

/// `30080 10.0.0.0/24`
async fn rules(scene: &Scene) -> BTreeSet<String> {
    let all = scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
    let ours = all.into_iter().filter(|it| it.name.starts_with("lb-sg-"));
    let rules = ours.flat_map(|it| it.security_group_rules.0);
    rules
        .filter(|it| it.direction == Direction::Ingress)
        .map(|it| format!("{} {}", it.port_range_min.unwrap(), it.remote_ip_prefix.unwrap_or_default()))
        .collect()
}

fn set(rules: &[&str]) -> BTreeSet<String> {
    rules.iter().map(|it| (*it).to_owned()).collect()
}

/// Behind the same router.
pub(crate) async fn other_subnet(scene: &Scene) -> Id<Subnet> {
    let network = scene.cloud.all::<Subnet>().read::<Subnet>(&scene.subnet).await.unwrap().network_id;
    let new = NewSubnet { cidr: Some("10.0.7.0/24".to_owned()).into(), ..NewSubnet::new(network, 4) };
    let subnet = scene.cloud.all::<Subnet>().create(&new).await.unwrap().id;
    let routers = scene.cloud.all::<Router>();
    let router = routers.list::<Router>(Query::all()).await.unwrap().remove(0).id;
    interface("add", &scene.cloud, &router, &subnet).await;
    subnet
}

#[tokio::test]
async fn one_that_is_elsewhere_than_it_would_be_made_now_is_not_shut_out() {
    for restarts in [false, true] {
        let mut scene = Scene::set().await;
        scene.reach(&scene.wish(&[80], &[1])).await;
        assert_eq!(reach(&scene, &[opened(owner(), 30_080, &scene.subnet)]).await.len(), 2);
        let there = set(&["30080 10.0.0.0/24"]);
        assert_eq!(rules(&scene).await, there);
        // The file says another by now; it stays where it is (born.rs).
        let other = other_subnet(&scene).await;
        if restarts {
            scene.restarted();
        }
        let moved = opened(owner(), 30_080, &other);
        assert_eq!(
            reach(&scene, std::slice::from_ref(&moved)).await,
            ["allow 30080/TCP from 10.0.7.0/24 to Nodes"]
        );
        assert_eq!(rules(&scene).await, set(&["30080 10.0.0.0/24", "30080 10.0.7.0/24"]));
        // Whose members say a subnet of their own come from there, and from nowhere else.
        let mut named = NodeAccess::clone(&moved.1);
        named.at_vip = false;
        reach(&scene, &[(owner(), Arc::new(named))]).await;
        assert_eq!(rules(&scene).await, set(&["30080 10.0.7.0/24"]));
    }
}

#[tokio::test]
async fn a_service_that_shares_one_of_another_namespace_is_reached_from_where_that_is() {
    let mut scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let first = scene.balancers().await.remove(0);
    let other = other_subnet(&scene).await;
    let both = [opened(owner(), 30_080, &scene.subnet), opened(guest(), 30_443, &other)];
    reach(&scene, &both).await;
    assert!(!rules(&scene).await.contains("30443 10.0.0.0/24"), "it is not there yet");
    assert_eq!(scene.driver.due(), []);
    let wish = of_guest(scene.wish_of("uid-2", &[443], &[1]), Some(&first));
    let desired = Desired::LoadBalancer(Arc::new(wish));
    scene.reach_unit(&unit_of(&guest()), &desired).await;
    assert_eq!(scene.driver.due(), [class()], "it is looked at at once");
    assert_eq!(reach(&scene, &both).await, ["allow 30443/TCP from 10.0.0.0/24 to Nodes"]);
    let all = set(&["30080 10.0.0.0/24", "30443 10.0.0.0/24", "30443 10.0.7.0/24"]);
    assert_eq!(rules(&scene).await, all);
    // Whoever begins looks at the group first.
    scene.restarted();
    assert_eq!(reach(&scene, &both).await, [""; 0]);
    scene.reach_unit(&unit_of(&guest()), &desired).await;
    assert_eq!(reach(&scene, &both).await, [""; 0]);
    // It goes, and so does what was opened for it; the first stays open.
    scene.reach_unit(&unit_of(&guest()), &Desired::Absent).await;
    reach(&scene, &both[..1]).await;
    assert_eq!(rules(&scene).await, set(&["30080 10.0.0.0/24"]));
}

#[tokio::test]
async fn so_is_one_on_a_load_balancer_that_is_nobodys_of_ours() {
    let mut scene = Scene::set().await;
    let new = NewLoadBalancer {
        name: "by hand".into(),
        provider: Edit::To(Some("amphora".to_owned())),
        vip_subnet_id: Edit::To(Some(scene.subnet.clone())),
        ..NewLoadBalancer::new()
    };
    scene.cloud.all::<LoadBalancer>().create(&new).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    let theirs = scene.balancers().await.remove(0);
    let other = other_subnet(&scene).await;
    let wish = of_guest(scene.wish_of("uid-2", &[443], &[1]), Some(&theirs));
    let desired = Desired::LoadBalancer(Arc::new(wish));
    scene.reach_unit(&unit_of(&guest()), &desired).await;
    let its = [opened(guest(), 30_443, &other)];
    reach(&scene, &its).await;
    let all = set(&["30443 10.0.0.0/24", "30443 10.0.7.0/24"]);
    assert_eq!(rules(&scene).await, all);
    scene.restarted();
    assert_eq!(reach(&scene, &its).await, [""; 0], "nothing is closed before it was looked for");
    assert_eq!(rules(&scene).await, all);
}

#[tokio::test]
async fn each_family_is_reached_from_where_its_address_is() {
    for (minor, units) in [(26, &[unit()][..]), (25, &[unit(), second_unit()])] {
        let mut scene = Scene::of_both(minor).await;
        let desired = Desired::LoadBalancer(Arc::new(scene.wish_of_both(&[80], &[1])));
        let (its, mut opened) = opened(owner(), 30_080, &scene.subnet);
        Arc::make_mut(&mut opened).families = vec![Family::V4, Family::V6];
        let opened = [(its, opened)];
        reach(&scene, &opened).await;
        assert_eq!(rules(&scene).await, set(&["30080 10.0.0.0/24"]), "2.{minor}");
        for unit in units {
            scene.reach_unit(unit, &desired).await;
        }
        assert_eq!(scene.driver.due(), [class()], "2.{minor}");
        reach(&scene, &opened).await;
        assert_eq!(rules(&scene).await, set(&["30080 10.0.0.0/24", "30080 fd00::/64"]), "2.{minor}");
        scene.restarted();
        assert_eq!(reach(&scene, &opened).await, [""; 0], "2.{minor}");
    }
}
