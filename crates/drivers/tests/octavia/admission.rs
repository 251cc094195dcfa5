//! Which load balancers a Service may begin to share: those of its namespace, and others where the operator allows it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, LoadBalancer as Wish, Problem, Reason,
    config::SharedLoadBalancerScope,
    load_balancer::{CloudOptions, NamedLoadBalancer},
};
use seaway_openstack::{
    octavia::{LoadBalancer, LoadBalancerChange, NewLoadBalancer},
    resource::{Edit, Query},
};

use crate::{occm::OccmObjects, scene::*};

const FIELD: &str = "metadata.annotations[seaway.dev/load-balancer-id]";
const ANOTHER: &str = "a Service of another namespace owns the load balancer";

fn outside(wish: &mut Wish) -> &mut CloudOptions {
    wish.options.cloud.as_mut().expect("it is a cloud's")
}

/// What a Service wants on a load balancer that it names: by its id, or by what it is called.
fn on(scene: &Scene, whose: &str, port: u16, it: &LoadBalancer, by_name: bool) -> Wish {
    let mut wish = scene.wish_of(whose, &[port], &[1]);
    let id = if by_name { it.name.as_str() } else { it.id.as_str() };
    outside(&mut wish).named = Some(NamedLoadBalancer { id: id.into(), field: FIELD.into(), by_name });
    outside(&mut wish).most_shared = 9;
    wish
}

fn anywhere(mut wish: Wish) -> Wish {
    outside(&mut wish).join = SharedLoadBalancerScope::Any;
    wish
}

/// Nothing was written for it.
async fn refused(scene: &Scene, whose: &str, wish: &Wish) -> Problem {
    scene.fake.forget_requests();
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let Err(Failure::User(mut told)) =
        scene.driver.observe(&Context::default(), &unit_of(&owner_of(whose)), &desired).await
    else {
        panic!("it should have been refused")
    };
    wrote_nothing(scene);
    assert_eq!(told.len(), 1, "{told:?}");
    let problem = told.remove(0).1;
    assert_eq!((problem.reason, &*problem.field), (Reason::NotAllowed, FIELD), "{problem}");
    assert!(problem.fix.contains("tenants.joinLoadBalancers"), "{problem}");
    problem
}

fn wrote_nothing(scene: &Scene) {
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(scene.fake.count(&format!("{method} */v2*")), 0, "{method}");
    }
}

async fn of_shop(scene: &Scene) -> LoadBalancer {
    scene.reach_of("shop/web", &scene.wish_of("shop/web", &[80], &[1])).await;
    scene.balancers().await.remove(0)
}

async fn ports(scene: &Scene) -> Vec<u16> {
    let mut ports: Vec<u16> = scene.listeners().await.iter().map(|it| it.protocol_port).collect();
    ports.sort_unstable();
    ports
}

async fn by_hand(scene: &Scene, name: &str, tags: &[&str]) -> LoadBalancer {
    let new = NewLoadBalancer {
        name: name.into(),
        tags: tags.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>().into(),
        vip_subnet_id: Some(scene.subnet.clone()).into(),
        ..NewLoadBalancer::new()
    };
    let all = scene.cloud.all::<LoadBalancer>();
    let made = all.create(&new).await.expect("a load balancer");
    all.until_ready(&made.id, Duration::from_secs(60)).await.expect("it becomes ready")
}

async fn tag(scene: &Scene, it: &LoadBalancer, change: impl FnOnce(&mut BTreeSet<String>)) {
    let all = scene.cloud.all::<LoadBalancer>();
    let mut tags = all.read::<LoadBalancer>(&it.id).await.expect("it is there").tags;
    change(&mut tags);
    let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
    all.change(&it.id, &change).await.expect("is written");
    all.until_ready(&it.id, Duration::from_secs(60)).await.expect("it becomes ready");
}

#[tokio::test]
async fn another_namespace_comes_to_it_neither_by_id_nor_by_name_unless_the_operator_allows_it() {
    let mut scene = Scene::set().await;
    let made = of_shop(&scene).await;
    for by_name in [false, true] {
        let wish = on(&scene, "evil/uid-2", 443, &made, by_name);
        for _ in 0..2 {
            let told = refused(&scene, "evil/uid-2", &wish).await;
            assert!(told.message.contains(made.id.as_str()) && told.message.contains(ANOTHER), "{told}");
            assert!(!told.line().contains("shop"), "{told}");
            scene.restarted();
        }
        // A port that is taken there is not what it is told: whose that is, is nothing for it.
        let told = refused(&scene, "evil/uid-2", &on(&scene, "evil/uid-2", 80, &made, by_name)).await;
        assert!(told.message.contains(ANOTHER), "{told}");
    }
    assert_eq!(scene.balancers().await[0].tags, made.tags);
    scene.reach_of("evil/uid-2", &anywhere(on(&scene, "evil/uid-2", 443, &made, true))).await;
    assert_eq!(ports(&scene).await, [80, 443]);
}

#[tokio::test]
async fn its_own_namespace_comes_to_it_also_when_the_first_has_left() {
    let mut scene = Scene::set().await;
    let made = of_shop(&scene).await;
    for by_name in [false, true] {
        let whose = if by_name { "shop/uid-2" } else { "shop/uid-3" };
        let wish = on(&scene, whose, if by_name { 443 } else { 8443 }, &made, by_name);
        scene.reach_of(whose, &wish).await;
    }
    assert_eq!((scene.balancers().await.len(), ports(&scene).await), (1, vec![80, 443, 8443]));
    scene.remove_of("shop/web").await;
    scene.restarted();
    let later = on(&scene, "shop/uid-4", 90, &made, false);
    scene.reach_of("shop/uid-4", &later).await;
    assert_eq!(ports(&scene).await, [90, 443, 8443]);
    refused(&scene, "evil/uid-5", &on(&scene, "evil/uid-5", 91, &made, true)).await;
}

#[tokio::test]
async fn who_shares_one_stays_there_when_that_is_not_allowed_any_more() {
    let mut scene = Scene::set().await;
    let made = of_shop(&scene).await;
    let foreign = by_hand(&scene, "k8sclusterv1-x-api_pool", &[]).await;
    let wishes = [("evil/uid-2", 443, &made), ("shop/uid-3", 444, &foreign)];
    for (whose, port, it) in wishes {
        scene.reach_of(whose, &anywhere(on(&scene, whose, port, it, false))).await;
    }
    for restarts in [false, true] {
        if restarts {
            scene.restarted();
        }
        for (whose, port, it) in wishes {
            let wish = on(&scene, whose, port, it, false);
            assert_eq!(scene.reach_of(whose, &wish).await, [""; 0]);
            assert_eq!(scene.reach_telling_of(whose, &wish).await, []);
        }
    }
    // Terraform takes away what it does not know; listeners tell then.
    tag(&scene, &foreign, BTreeSet::clear).await;
    scene.restarted();
    scene.reach_of("shop/uid-3", &on(&scene, "shop/uid-3", 445, &foreign, false)).await;
    assert_eq!(ports(&scene).await, [80, 443, 445]);
    // A second one of its namespace does not come there, for the first of it is a guest itself.
    let told = refused(&scene, "shop/uid-4", &on(&scene, "shop/uid-4", 446, &foreign, false)).await;
    assert!(told.message.contains("no tag says"), "{told}");
    // Nor do others of a namespace to one that another is on.
    let told = refused(&scene, "shop/uid-5", &on(&scene, "shop/uid-5", 81, &made, false)).await;
    assert!(told.message.contains("a Service of another namespace shares the load balancer"), "{told}");
    scene.remove_of("evil/uid-2").await;
    scene.reach_of("shop/uid-5", &on(&scene, "shop/uid-5", 81, &made, false)).await;
    assert_eq!(ports(&scene).await, [80, 81, 445]);
}

#[tokio::test]
async fn what_is_nobodys_here_is_shared_only_where_the_operator_allows_it() {
    let mut scene = Scene::set().await;
    let hand = by_hand(&scene, "by hand", &["terraform"]).await;
    let other = by_hand(&scene, "kube_service_kubernetes_shop_web", &["seaway.dev/cluster=7f2e"]).await;
    let named = by_hand(&scene, "kube_service_production_shop_web", &[]).await;
    let (occm, _) =
        OccmObjects { namespace: "shop".to_owned(), ..OccmObjects::new("api", &[(80, 30_080)], &[]) }
            .make(&scene.cloud, &scene.subnet)
            .await;
    for (port, (it, why)) in (443_u16..).zip([
        (&hand, "no tag says"),
        (&other, "another cluster"),
        (&named, "another cluster"),
        // Its name tells the namespace, and not the cluster.
        (&occm, "no tag says"),
    ]) {
        let whose = "shop/uid-2";
        for by_name in [false, true] {
            let told = refused(&scene, whose, &on(&scene, whose, port, it, by_name)).await;
            assert!(told.message.contains(why), "{told}");
        }
        scene.reach_of(whose, &anywhere(on(&scene, whose, port, it, true))).await;
        assert_eq!(
            scene.balancers().await.iter().filter(|it| !it.listeners.is_empty()).count(),
            1 + usize::from(it.id != occm.id)
        );
        scene.remove_of(whose).await;
        scene.restarted();
    }
}

/// A name that the other controller wrote among its tags is all that tells it.
#[tokio::test]
async fn who_shared_before_us_is_no_newcomer() {
    let scene = Scene::set().await;
    let theirs =
        OccmObjects { namespace: "shop".to_owned(), ..OccmObjects::new("web", &[(80, 30_080)], &[]) };
    let (made, _) = theirs.make(&scene.cloud, &scene.subnet).await;
    let name = "kube_service_kubernetes_cart_uid-2";
    refused(&scene, "cart/uid-2", &on(&scene, "cart/uid-2", 443, &made, false)).await;
    tag(&scene, &made, |tags| _ = tags.insert(name.to_owned())).await;
    scene.reach_of("cart/uid-2", &on(&scene, "cart/uid-2", 443, &made, false)).await;
    assert_eq!(ports(&scene).await, [80, 443]);
    // That of a Service of another cluster that is called alike is none of ours.
    let guest = "seaway.dev/guest=7f2e/uid-9/cart/uid-3";
    let named = [guest, "kube_service_kubernetes_cart_uid-3"].map(str::to_owned);
    tag(&scene, &made, |tags| tags.extend(named)).await;
    refused(&scene, "cart/uid-3", &on(&scene, "cart/uid-3", 444, &made, false)).await;
}

#[tokio::test]
async fn a_guest_that_names_one_that_it_may_not_share_stays_where_it_is() {
    let mut scene = Scene::set().await;
    let made = of_shop(&scene).await;
    scene.reach_of("evil/uid-2", &scene.wish_of("evil/uid-2", &[80], &[1])).await;
    let own = scene.balancers().await.into_iter().find(|it| it.id != made.id).expect("it is there");
    scene.reach_of("evil/uid-3", &on(&scene, "evil/uid-3", 443, &own, false)).await;
    for by_name in [false, true] {
        let wish = on(&scene, "evil/uid-3", 443, &made, by_name);
        for _ in 0..2 {
            scene.fake.forget_requests();
            let told = scene.reach_telling_of("evil/uid-3", &wish).await;
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].message.contains(ANOTHER), "{told:?}");
            assert_eq!(scene.served("evil/uid-3", &wish).await.len(), 1, "it is served where it was");
            wrote_nothing(&scene);
            scene.restarted();
        }
    }
    let back = on(&scene, "evil/uid-3", 443, &own, false);
    assert_eq!(scene.reach_telling_of("evil/uid-3", &back).await, []);
    scene.reach_of("evil/uid-3", &anywhere(on(&scene, "evil/uid-3", 443, &made, false))).await;
    let query = Query::all().with("loadbalancer_id", &made.id);
    let on_it = scene.cloud.all::<seaway_openstack::octavia::Listener>();
    assert_eq!(on_it.list::<seaway_openstack::octavia::Listener>(query).await.expect("a list").len(), 2);
}

/// What was seen when more was allowed is not acted upon.
#[tokio::test]
async fn what_was_allowed_when_it_was_looked_at_is_judged_again_before_anything_is_written() {
    let scene = Scene::set().await;
    let made = of_shop(&scene).await;
    let mut paused = anywhere(on(&scene, "evil/uid-2", 443, &made, false));
    outside(&mut paused).paused = true;
    let told = scene.reach_telling_of("evil/uid-2", &paused).await;
    assert_eq!(told.iter().map(|it| it.reason).collect::<Vec<_>>(), [Reason::Paused]);
    refused(&scene, "evil/uid-2", &on(&scene, "evil/uid-2", 443, &made, false)).await;
}

#[tokio::test]
async fn a_word_of_a_namespace_leads_to_its_load_balancer_whoever_shares_that() {
    let mut scene = Scene::set().await;
    let said = |scene: &Scene, whose: &str, port: u16| {
        let mut wish = scene.wish_of(whose, &[port], &[1]);
        (outside(&mut wish).group, outside(&mut wish).most_shared) = (Some("shop/web".into()), 9);
        wish
    };
    scene.reach_of("shop/uid-2", &said(&scene, "shop/uid-2", 80)).await;
    let made = scene.balancers().await.remove(0);
    scene.reach_of("evil/uid-3", &anywhere(on(&scene, "evil/uid-3", 443, &made, false))).await;
    scene.restarted();
    scene.reach_of("shop/uid-4", &said(&scene, "shop/uid-4", 81)).await;
    assert_eq!((scene.balancers().await.len(), ports(&scene).await), (1, vec![80, 81, 443]));
}
