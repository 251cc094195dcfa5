//! Whatever goes wrong at whichever request while Services come to one load balancer and leave it, while one is taken over
//! from another controller, and while one in ERROR is made again: the end is the same, and nobody's is lost.

use std::{future::Future, net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure, Until};
use seaway_model::{
    Desired, LoadBalancer as Wish,
    load_balancer::{HealthCheck, NamedLoadBalancer},
};
use seaway_openstack::octavia::LoadBalancer;

use crate::{
    crash::{Inventory, RequestFault, TROUBLES, Written, inventory, strike, written},
    occm::OccmObjects,
    scene::*,
};

/// What is there before, by undisturbed hands.
type Before = for<'s> fn(&'s mut Scene) -> Pin<Box<dyn Future<Output = ()> + 's>>;
/// Who is worked on while something goes wrong, and all who want something in the end.
type Wished = fn(&Scene, &[LoadBalancer]) -> (&'static str, Option<Wish>, Vec<(&'static str, Wish)>);

fn first(scene: &Scene) -> Wish {
    probed(scene.wish(&[80], &[1, 2]))
}

fn probed(mut wish: Wish) -> Wish {
    wish.pools.values_mut().for_each(|it| Arc::make_mut(it).health = Some(HealthCheck::default()));
    wish
}

fn guest(scene: &Scene, on: &[LoadBalancer]) -> Wish {
    named(probed(scene.wish_of("uid-2", &[443, 8443], &[1, 2])), on)
}

fn named(mut wish: Wish, on: &[LoadBalancer]) -> Wish {
    let outside = wish.options.cloud.as_mut().unwrap();
    let field = "metadata.annotations[loadbalancer.openstack.org/load-balancer-id]".into();
    outside.named =
        on.first().map(|it| NamedLoadBalancer { id: it.id.as_str().into(), field, by_name: false });
    outside.most_shared = 2;
    wish
}

#[tokio::test]
async fn to_join_survives_trouble_at_every_request() {
    check(
        |scene| {
            Box::pin(async move {
                scene.reach(&first(scene)).await;
            })
        },
        |scene, on| {
            let guest = guest(scene, on);
            ("uid-2", Some(guest.clone()), vec![("uid-1", first(scene)), ("uid-2", guest)])
        },
    )
    .await;
}

/// A first one, and a guest with two ports.
fn two<'s>(scene: &'s mut Scene) -> Pin<Box<dyn Future<Output = ()> + 's>> {
    Box::pin(async move {
        scene.reach(&first(scene)).await;
        let on = scene.balancers().await;
        scene.reach_of("uid-2", &guest(scene, &on)).await;
    })
}

#[tokio::test]
async fn a_guest_that_leaves_survives_trouble_at_every_request() {
    check(two, |scene, _| ("uid-2", None, vec![("uid-1", first(scene))])).await;
}

#[tokio::test]
async fn the_first_that_leaves_survives_trouble_at_every_request() {
    check(two, |scene, on| ("uid-1", None, vec![("uid-2", guest(scene, on))])).await;
}

#[tokio::test]
async fn the_last_that_leaves_survives_trouble_at_every_request() {
    check(
        |scene| {
            Box::pin(async move {
                two(scene).await;
                scene.remove().await;
            })
        },
        |_, _| ("uid-2", None, Vec::new()),
    )
    .await;
}

#[tokio::test]
async fn to_take_over_survives_trouble_at_every_request() {
    check(
        |scene| {
            Box::pin(async move {
                let node = |last: u8| IpAddr::from([10, 0, 0, last]);
                let nodes = [("one", node(1)), ("two", node(2))];
                let theirs = OccmObjects::new("nginxservice", &[(80, 30_080), (443, 30_443)], &nodes);
                theirs.make(&scene.cloud, &scene.subnet).await;
            })
        },
        |scene, on| {
            // Another member, too.
            let wish = named(scene.wish(&[80, 443], &[1, 2, 3]), on);
            ("uid-1", Some(wish.clone()), vec![("uid-1", wish)])
        },
    )
    .await;
}

fn rebuilt(scene: &Scene) -> Wish {
    let mut wish = first(scene);
    wish.options.cloud.as_mut().unwrap().rebuild = true;
    wish
}

#[tokio::test]
async fn to_rebuild_what_is_in_error_survives_trouble_at_every_request() {
    check(
        |scene| {
            Box::pin(async move {
                scene.reach(&first(scene)).await;
                let id = scene.balancers().await.remove(0).id;
                scene.fake.set_provisioning_status(id.as_str(), "ERROR");
                scene.restarted();
            })
        },
        |scene, _| ("uid-1", Some(rebuilt(scene)), vec![("uid-1", rebuilt(scene))]),
    )
    .await;
}

/// With each trouble at each request that changes something.
async fn check(before: Before, wished: Wished) {
    let (clean, writes) = walk(before, wished, None).await;
    assert!(!writes.is_empty());
    for at in 0..writes.len() {
        for trouble in TROUBLES {
            let case = format!("{trouble:?} at {}: {}", at + 1, writes[at].0);
            let (there, _) = walk(before, wished, Some((trouble, &writes[..=at], &case))).await;
            assert_eq!(there, clean, "{case}");
        }
    }
}

/// What is there after all, and which requests changed something. In the end all leave, and nothing is left.
async fn walk(
    before: Before,
    wished: Wished,
    trouble: Option<(RequestFault, &[Written], &str)>,
) -> (Inventory, Vec<Written>) {
    let mut scene = Scene::set().await;
    let nothing = inventory(&scene).await;
    before(&mut scene).await;
    let on = scene.balancers().await;
    let at = addresses(&scene).await;
    let (uid, wish, all) = wished(&scene, &on);
    let desired = wish.map_or(Desired::Absent, wanted);
    scene.fake.forget_requests();
    let case = trouble.map_or("undisturbed", |it| it.2);
    match trouble {
        None => strive(&scene, uid, &desired).await,
        Some((trouble, writes, _)) => {
            strike(&scene, trouble, writes, strive(&scene, uid, &desired)).await;
            assert!(written(&scene).len() >= writes.len(), "{case}: nothing came to be struck");
        }
    }
    let writes = written(&scene);
    scene.restarted();
    strive(&scene, uid, &desired).await;
    reach_all(&scene, &all).await;
    let there = inventory(&scene).await;
    if !all.is_empty() {
        assert_eq!(addresses(&scene).await, at, "{case}: clients know it");
    }
    scene.restarted();
    scene.fake.forget_requests();
    reach_all(&scene, &all).await;
    assert_eq!(written(&scene), [], "{case}: fresh eyes see the same");
    for (uid, _) in &all {
        strive(&scene, uid, &Desired::Absent).await;
    }
    assert_eq!(inventory(&scene).await, nothing, "{case}: something is left");
    (there, writes)
}

async fn reach_all(scene: &Scene, all: &[(&str, Wish)]) {
    for (uid, wish) in all {
        strive(scene, uid, &wanted(wish.clone())).await;
    }
}

fn wanted(wish: Wish) -> Desired {
    Desired::LoadBalancer(Arc::new(wish))
}

async fn addresses(scene: &Scene) -> Vec<Option<IpAddr>> {
    scene.floating().await.into_iter().map(|it| it.floating_ip_address).collect()
}

/// As an engine would: what fails is tried again.
async fn strive(scene: &Scene, uid: &str, desired: &Desired) {
    let (unit, soon) = (unit_of(&owner_of(uid)), Duration::from_secs(5));
    let once = async || {
        let mut observed = scene.driver.observe(&Context::default(), &unit, desired).await?;
        for step in scene.driver.steps(desired, &observed) {
            scene.driver.apply(&Context::default(), &unit, &step, &mut observed).await?;
        }
        Ok(scene.driver.conclude(&unit, desired, &observed))
    };
    for _ in 0..100 {
        match once().await {
            Ok(told) => match told.again {
                Some(after) if after < 12 * soon => scene.pass(after),
                _ => return assert_eq!(told.problems, []),
            },
            Err(
                Failure::Wait { until: Until::After(after), .. } | Failure::Retry { after: Some(after), .. },
            ) => scene.pass(after),
            Err(Failure::Retry { .. }) => scene.pass(soon),
            Err(error) => panic!("{uid}: {error:?}"),
        }
    }
    panic!("{uid}: it never comes to rest");
}
