//! Services with addresses of two families, where a load balancer has one: two of them.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use seaway_drivers::octavia::belongings::{belongings, orphans};
use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer, load_balancer::Family};
use seaway_openstack::octavia::{Member, Provisioning};
use seaway_openstack::resource::Query;

use crate::{adopted::pointing, occm::OccmObjects, scene::*};

/// The last without additional VIPs.
const OLD: usize = 25;
const NEW: usize = 30;

const FIRST: &str = "kube_service_kubernetes_default_nginxservice";
const SECOND: &str = "kube_service_kubernetes_default_nginxservice_ipv6";

fn wanted(wish: &LoadBalancer) -> Desired {
    Desired::LoadBalancer(Arc::new(wish.clone()))
}

/// The steps of the first, and of the second.
async fn reach(scene: &Scene, wish: &LoadBalancer) -> [Vec<String>; 2] {
    let first = scene.reach(wish).await;
    [first, scene.reach_unit(&second_unit(), &wanted(wish)).await]
}

async fn remove(scene: &Scene) {
    scene.remove().await;
    scene.reach_unit(&second_unit(), &Desired::Absent).await;
}

async fn names(scene: &Scene) -> BTreeSet<String> {
    scene.balancers().await.into_iter().map(|it| it.name).collect()
}

/// Where the members of all pools of a load balancer are.
async fn members(scene: &Scene, name: &str) -> BTreeSet<IpAddr> {
    let balancer = scene.balancers().await.into_iter().find(|it| it.name == name).unwrap();
    let mut found = BTreeSet::new();
    for pool in scene.pools().await.iter().filter(|it| it.loadbalancers.iter().any(|it| it.id == balancer.id))
    {
        let members = scene.cloud.within::<Member>(&pool.id).list::<Member>(Query::all()).await.unwrap();
        found.extend(members.into_iter().map(|it| it.address));
    }
    found
}

async fn addresses(scene: &Scene, wish: &LoadBalancer) -> BTreeSet<IpAddr> {
    let mut all = BTreeSet::new();
    for unit in [unit(), second_unit()] {
        all.extend(scene.concluded_of(&unit, wish).await.serving.iter().map(|it| it.ip));
    }
    all
}

#[tokio::test]
async fn before_2_26_each_family_has_a_load_balancer_with_its_own_members() {
    let mut scene = Scene::of_both(OLD).await;
    let wish = scene.wish_of_both(&[80, 443], &[1, 2]);
    reach(&scene, &wish).await;
    assert_eq!(names(&scene).await, [FIRST, SECOND].map(str::to_owned).into());
    assert_eq!(members(&scene, FIRST).await, ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap()).into());
    assert_eq!(members(&scene, SECOND).await, ["fd00::1", "fd00::2"].map(|it| it.parse().unwrap()).into());
    let floating = scene.floating().await;
    assert_eq!(floating.len(), 1, "there are none of IPv6");
    let balancers = scene.balancers().await;
    let second = balancers.iter().find(|it| it.name == SECOND).unwrap();
    assert!(second.tags.contains("seaway.dev/key=uid-1:IPv6"), "{:?}", second.tags);
    let expected = [floating[0].floating_ip_address, second.vip_address].into_iter().flatten().collect();
    assert_eq!(addresses(&scene, &wish).await, expected);
    scene.restarted();
    assert_eq!(reach(&scene, &wish).await, [[""; 0]; 2], "it finds both again");
    let changed = scene.wish_of_both(&[80, 8080], &[2, 3]);
    reach(&scene, &changed).await;
    assert_eq!(members(&scene, SECOND).await, ["fd00::2", "fd00::3"].map(|it| it.parse().unwrap()).into());
    let ports: Vec<u16> = scene.listeners().await.iter().map(|it| it.protocol_port).collect();
    assert_eq!(ports.iter().filter(|it| **it == 8080).count(), 2);
    remove(&scene).await;
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty());
}

#[tokio::test]
async fn of_ipv6_first_the_second_has_the_floating_ip() {
    let scene = Scene::of_both(OLD).await;
    let mut wish = scene.wish_of_both(&[80], &[1]);
    let six = scene.subnet_of_ipv6().await;
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.families.reverse();
    outside.subnet = Some(six.as_str().into());
    scene.reach(&wish).await;
    let seaway_model::Unit::LoadBalancer(place, _) = unit() else { panic!("it is one") };
    let second = seaway_model::Unit::LoadBalancer(place, seaway_model::LbKey::Second(owner(), Family::V4));
    scene.reach_unit(&second, &wanted(&wish)).await;
    let told = scene.concluded_of(&second, &wish).await;
    let floating = scene.floating().await.remove(0);
    assert_eq!(told.serving[0].ip, floating.floating_ip_address.unwrap());
    assert!(floating.description.ends_with("seaway.dev/key=uid-1:IPv4]"), "{}", floating.description);
}

#[tokio::test]
async fn who_asks_for_one_family_and_for_two_again_has_the_second_taken_and_made() {
    let scene = Scene::of_both(OLD).await;
    let both = scene.wish_of_both(&[80], &[1]);
    reach(&scene, &both).await;
    let id = scene.balancers().await.into_iter().find(|it| it.name == FIRST).unwrap().id;
    let mut one = scene.wish(&[80], &[1]);
    one.options.cloud.as_mut().unwrap().families = vec![Family::V4];
    assert_eq!(scene.reach(&one).await, [""; 0], "its first stays as it is");
    let steps = scene.reach_unit(&second_unit(), &Desired::Absent).await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert_eq!(names(&scene).await, [FIRST.to_owned()].into());
    let [first, second] = reach(&scene, &both).await;
    assert_eq!((first, second), (vec![], vec![format!("create load balancer {SECOND}")]));
    assert!(scene.balancers().await.iter().any(|it| it.id == id), "it was never touched");
}

#[tokio::test]
async fn since_2_26_one_has_both_and_the_second_costs_nothing() {
    let mut scene = Scene::of_both(NEW).await;
    let wish = scene.wish_of_both(&[80], &[1]);
    let waits = scene.driver.observe(&Context::default(), &second_unit(), &wanted(&wish)).await;
    assert!(matches!(waits, Err(Failure::Wait { .. })), "whether it is needed is not known yet");
    scene.reach(&wish).await;
    for restarted in [false, true] {
        if restarted {
            scene.restarted();
            scene.reach(&wish).await;
        }
        let before = scene.fake.requests().len();
        assert_eq!(scene.reach_unit(&second_unit(), &wanted(&wish)).await, [""; 0]);
        scene.pass(Duration::from_secs(200));
        assert_eq!(scene.reach_unit(&second_unit(), &wanted(&wish)).await, [""; 0]);
        assert_eq!(scene.fake.requests().len() - before, 0);
    }
    assert_eq!((names(&scene).await.len(), addresses(&scene, &wish).await.len()), (1, 2));
}

/// It gets no second VIP any more.
#[tokio::test]
async fn one_that_was_made_with_one_address_gets_a_second_beside_it() {
    let mut scene = Scene::of_both(NEW).await;
    let mut one = scene.wish(&[80], &[1]);
    one.options.cloud.as_mut().unwrap().families = vec![Family::V4];
    scene.reach(&one).await;
    let both = scene.wish_of_both(&[80], &[1]);
    let [first, second] = reach(&scene, &both).await;
    assert_eq!((first.len(), second.len()), (0, 1), "{second:?}");
    assert_eq!(addresses(&scene, &both).await.len(), 2);
    scene.restarted();
    assert_eq!(reach(&scene, &both).await, [[""; 0]; 2]);
    // So does one of ours that its Service names; also by an id that is gone.
    let id = scene.balancers().await.into_iter().find(|it| it.name == FIRST).unwrap().id;
    for id in [id.as_str(), "00000000-0000-4000-8000-00000000dead"] {
        let mut named = both.clone();
        let field = "seaway.dev/load-balancer-id".into();
        named.options.cloud.as_mut().unwrap().named =
            Some(seaway_model::load_balancer::NamedLoadBalancer { id: id.into(), field, by_name: false });
        assert_eq!(reach(&scene, &named).await, [[""; 0]; 2], "{id}");
        assert_eq!(names(&scene).await.len(), 2);
        let told = scene.concluded_of(&unit(), &named).await.problems;
        assert!(told.is_empty(), "{told:?}");
    }
}

/// It knows the first family alone.
#[tokio::test]
async fn what_another_controller_made_stays_the_only_one_until_an_annotation_asks_for_a_second() {
    for (minor, required, by_status) in
        [(OLD, false, false), (NEW, false, false), (OLD, true, false), (OLD, false, true), (NEW, false, true)]
    {
        let mut scene = Scene::of_both(minor).await;
        let theirs =
            OccmObjects::new("nginxservice", &[(80, 30_080)], &[("one", IpAddr::from([10, 0, 0, 1]))]);
        let (made, floating) = theirs.make(&scene.cloud, &scene.subnet).await;
        let status = floating.floating_ip_address.filter(|_| by_status);
        let annotation = (!by_status).then_some(made.id.as_str());
        let mut wish = pointing(scene.wish_of_both(&[80], &[1]), annotation, status);
        wish.options.cloud.as_mut().unwrap().both = required;
        let waits = scene.driver.observe(&Context::default(), &second_unit(), &wanted(&wish)).await;
        assert!(matches!(waits, Err(Failure::Wait { .. })), "whose its first is, is not known yet");
        for _ in 0..2 {
            assert_eq!(scene.reach_telling(&wish).await, [], "once is enough");
            let told = scene.concluded_of(&second_unit(), &wish).await.problems;
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].1.fix.contains("seaway.dev/second-family"), "{told:?}");
            let at = floating.floating_ip_address.into_iter().collect();
            assert_eq!(addresses(&scene, &wish).await, at, "no other address is published");
            assert_eq!(names(&scene).await, [FIRST.to_owned()].into());
            scene.restarted();
        }
        let mut asked = wish.clone();
        asked.options.cloud.as_mut().unwrap().explicit.second_family = true;
        let [first, second] = reach(&scene, &asked).await;
        assert_eq!((first, second), (vec![], vec![format!("create load balancer {SECOND}")]));
        assert_eq!(addresses(&scene, &asked).await.len(), 2);
        // What was made stays, whatever becomes of the annotation.
        for _ in 0..2 {
            assert_eq!(reach(&scene, &wish).await, [[""; 0]; 2]);
            assert_eq!(addresses(&scene, &wish).await.len(), 2);
            let told = scene.concluded_of(&second_unit(), &wish).await.problems;
            assert!(told.is_empty(), "{told:?}");
            scene.restarted();
        }
    }
}

/// `ipv6-support-disabled`, of a Service that prefers two families.
#[tokio::test]
async fn a_family_that_the_configuration_takes_away_is_of_no_new_one_and_stays_with_one_that_has_it() {
    for provider in ["amphora", "ovn"] {
        let scene = Scene::of_both_with(provider, NEW).await;
        let mut withheld = scene.wish_of_both(&[80], &[1, 2]);
        let outside = withheld.options.cloud.as_mut().unwrap();
        outside.provider = Some(provider.into());
        (outside.families, outside.both, outside.withheld) = (vec![Family::V4], false, Some(Family::V6));
        let four: BTreeSet<IpAddr> = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap()).into();
        let mut guarded = withheld.clone();
        for listener in guarded.listeners.values_mut().filter(|_| provider == "amphora") {
            let both = ["192.0.2.0/24", "2001:db8::/32"].map(|it| it.parse().unwrap());
            Arc::make_mut(listener).sources = both.into();
        }
        scene.reach(&guarded).await;
        assert_eq!(members(&scene, FIRST).await, four, "{provider}: its only VIP is of IPv4");
        let cidrs = scene.listeners().await.remove(0).allowed_cidrs.unwrap_or_default();
        assert!(cidrs.iter().all(|it| it == "192.0.2.0/24"), "{cidrs:?}");

        let mut scene = Scene::of_both_with(provider, NEW).await;
        let mut both = scene.wish_of_both(&[80], &[1, 2]);
        both.options.cloud.as_mut().unwrap().provider = Some(provider.into());
        scene.reach(&both).await;
        let (before, at) = (members(&scene, FIRST).await, addresses(&scene, &both).await);
        assert_eq!((before.len(), at.len()), (if provider == "ovn" { 4 } else { 2 }, 2));
        let mut withheld = withheld.clone();
        withheld.options.cloud.as_mut().unwrap().subnet = Some(scene.subnet.as_str().into());
        for _ in 0..2 {
            assert_eq!(scene.reach(&withheld).await, [""; 0], "{provider}: no setting takes its members");
            assert_eq!(addresses(&scene, &withheld).await, at, "{provider}: nor its address");
            scene.restarted();
        }
    }
}

#[tokio::test]
async fn without_a_subnet_of_the_family_who_needs_it_is_told_and_who_prefers_it_is_content() {
    let scene = Scene::set().await;
    scene.fake.octavia_speaks(OLD);
    let mut wish = scene.wish_of_both(&[80], &[1]);
    let failed = scene.driver.observe(&Context::default(), &unit(), &wanted(&wish)).await;
    let Err(Failure::User(told)) = failed else { panic!("nobody is told") };
    assert!(told[0].1.message.contains("no subnet of IPv6"), "{told:?}");
    let failed = scene.driver.observe(&Context::default(), &second_unit(), &wanted(&wish)).await;
    assert!(matches!(failed, Err(Failure::Wait { .. })), "once is enough");
    wish.options.cloud.as_mut().unwrap().both = false;
    let [first, second] = reach(&scene, &wish).await;
    assert_eq!((first.len(), second.len()), (2, 0), "{first:?} {second:?}");
    assert_eq!(members(&scene, FIRST).await, ["10.0.0.1".parse().unwrap()].into());
}

#[tokio::test]
async fn what_is_taken_or_broken_behind_our_back_is_made_again_and_what_is_left_is_found() {
    let mut scene = Scene::of_both(OLD).await;
    let wish = scene.wish_of_both(&[80], &[1]);
    reach(&scene, &wish).await;
    let cloud = "openstack".into();
    scene.driver.audit(&cloud).await.unwrap();
    let second = scene.balancers().await.into_iter().find(|it| it.name == SECOND).unwrap();
    scene.cloud.all::<seaway_openstack::octavia::LoadBalancer>().delete_cascade(&second.id).await.unwrap();
    scene.pass(Duration::from_secs(60));
    scene.balancers().await;
    assert_eq!(scene.driver.audit(&cloud).await.unwrap().again, [second_unit()]);
    let [first, steps] = reach(&scene, &wish).await;
    assert_eq!((first.len(), steps), (0, vec![format!("create load balancer {SECOND}")]));
    let again = scene.balancers().await.into_iter().find(|it| it.name == SECOND).unwrap();
    assert_eq!((again.vip_address, again.provisioning_status), (second.vip_address, Provisioning::Active));
    // A process that knows nothing of it finds it by what is written on it, and so does who cleans up.
    scene.restarted();
    let found = scene.driver.audit(&cloud).await.unwrap().found;
    assert!(found.contains(&second_unit()) && found.contains(&unit()), "{found:?}");
    let all = belongings(&scene.cloud, "6c1d", &|_| {}).await.unwrap();
    assert_eq!(all.len(), 3);
    let there = [("uid-1".to_owned(), "default".to_owned(), "nginxservice".to_owned())];
    assert_eq!(orphans(all.clone(), &there), []);
    assert_eq!(orphans(all, &[]).len(), 3);
}

/// An empty list would let in everybody.
#[tokio::test]
async fn who_lets_in_clients_of_one_family_lets_in_none_of_the_other() {
    let scene = Scene::of_both(OLD).await;
    let mut wish = scene.wish_of_both(&[80], &[1]);
    for listener in wish.listeners.values_mut() {
        Arc::make_mut(listener).sources = vec!["192.0.2.0/24".parse().unwrap()];
    }
    reach(&scene, &wish).await;
    let cidrs: BTreeSet<_> = scene.listeners().await.into_iter().map(|it| it.allowed_cidrs).collect();
    let expected = ["192.0.2.0/24", "::1/128"].map(|it| Some(vec![it.to_owned()]));
    assert_eq!(cidrs, expected.into());
    assert_eq!(reach(&scene, &wish).await, [[""; 0]; 2]);
}

/// What it shares is another's, with the families that the other asked for.
#[tokio::test]
async fn a_service_on_the_load_balancer_of_another_gets_no_second_one() {
    for minor in [OLD, NEW] {
        let mut scene = Scene::of_both(minor).await;
        let mut first = scene.wish_of("uid-2", &[443], &[1]);
        first.options.cloud.as_mut().unwrap().families = vec![Family::V4];
        scene.reach_of("uid-2", &first).await;
        let made = scene.balancers().await.remove(0);
        let mut wish = pointing(scene.wish_of_both(&[80], &[1]), Some(made.id.as_str()), None);
        let outside = wish.options.cloud.as_mut().unwrap();
        (outside.most_shared, outside.both) = (2, false);
        for _ in 0..2 {
            scene.reach(&wish).await;
            assert_eq!(scene.reach_unit(&second_unit(), &wanted(&wish)).await, [""; 0], "2.{minor}");
            assert_eq!((scene.balancers().await.len(), scene.listeners().await.len()), (1, 2), "2.{minor}");
            scene.restarted();
        }
    }
}
