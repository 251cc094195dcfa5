//! Rarer wishes, each reached from each: `externalTrafficPolicy: Local`, limits, metrics, TLS, protocols and probes of single
//! ports, both families, and a load balancer that is shared. (The common ones: changes.rs.)

use std::sync::Arc;

use seaway_model::{
    Desired, LoadBalancer,
    load_balancer::{CloudHeaders, CloudProbe, HealthCheck, ProbeKind, Protocol, ProxyVersion},
};
use seaway_testkit::conformance::converges_in_time;

use crate::{
    local::local,
    scene::*,
    tls::{referred, theirs},
};

/// Each after each other, by a process that knows what it did, and by one that begins.
async fn from_each_to_each(scene: &mut Scene, uid: &str, all: &[LoadBalancer]) {
    for one in all {
        for other in all {
            scene.reach_of(uid, one).await;
            scene.reach_of(uid, other).await;
            scene.restarted();
            assert_eq!(scene.reach_of(uid, other).await, [""; 0], "fresh eyes see the same");
        }
    }
    let wanted: Vec<_> = all.iter().map(|it| Desired::LoadBalancer(Arc::new(it.clone()))).collect();
    let unit = unit_of(&owner_of(uid));
    converges_in_time(&*scene.driver, &unit, &wanted, |time| scene.pass(time)).await;
}

fn with(wish: &LoadBalancer, change: impl Fn(&mut LoadBalancer)) -> LoadBalancer {
    let mut wish = wish.clone();
    change(&mut wish);
    wish
}

fn limited(wish: &LoadBalancer) -> LoadBalancer {
    with(wish, |it| {
        for listener in it.listeners.values_mut() {
            Arc::make_mut(listener).limits.connections = Some(2_000);
        }
    })
}

fn measured(wish: &LoadBalancer) -> LoadBalancer {
    with(wish, |it| it.options.outside.as_mut().unwrap().metrics = Some(8_088))
}

/// 80 is HTTP, 443 has the PROXY protocol.
fn mixed(wish: &LoadBalancer) -> LoadBalancer {
    with(wish, |it| {
        let web = it.listeners.get_mut(&tcp(80)).unwrap();
        Arc::make_mut(web).protocol = Protocol::Http;
        let headers = CloudHeaders { proto: true, port: true };
        it.options.outside.as_mut().unwrap().headers = [(tcp(80), headers)].into();
        let pool = seaway_model::PoolId::clone(it.pools.keys().last().unwrap());
        Arc::make_mut(it.pools.get_mut(&pool).unwrap()).proxy = Some(ProxyVersion::V1);
    })
}

fn probed(wish: &LoadBalancer) -> LoadBalancer {
    with(wish, |it| {
        it.pools.values_mut().for_each(|it| Arc::make_mut(it).health = Some(HealthCheck::default()));
        let kinds = [(tcp(443), ProbeKind::TlsHello)].into();
        it.options.outside.as_mut().unwrap().probe = CloudProbe { kinds, ..CloudProbe::default() };
    })
}

#[tokio::test]
async fn rarer_wishes_are_reached_from_each_other() {
    let mut scene = Scene::set().await;
    let plain = scene.wish(&[80, 443], &[1, 2]);
    let reference = theirs(&scene).await;
    let tls = with(&referred(plain.clone(), &reference), |it| {
        it.options.outside.as_mut().unwrap().tls.as_mut().unwrap().references.remove(&tcp(80));
    });
    let local = local(&scene, true);
    let all = [limited(&plain), measured(&plain), mixed(&plain), probed(&plain), tls, local];
    from_each_to_each(&mut scene, "uid-1", &all).await;
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty(), "nothing is left");
}

#[tokio::test]
async fn so_they_are_where_it_has_both_families() {
    let mut scene = Scene::of_both(26).await;
    let plain = scene.wish_of_both(&[80, 443], &[1, 2]);
    let all = [plain.clone(), limited(&plain), mixed(&plain), scene.wish_of_both(&[443], &[2])];
    from_each_to_each(&mut scene, "uid-1", &all).await;
    assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty(), "nothing is left");
}

#[tokio::test]
async fn so_they_are_for_one_that_shares_anothers() {
    let mut scene = Scene::set().await;
    let sharing = |wish: &LoadBalancer| {
        with(wish, |it| {
            let outside = it.options.outside.as_mut().unwrap();
            (outside.group, outside.most_shared) = (Some("default/web".into()), 3);
        })
    };
    let first = sharing(&scene.wish_of("uid-1", &[8_080], &[1]));
    scene.reach_of("uid-1", &first).await;
    let plain = scene.wish_of("uid-2", &[80, 443], &[1, 2]);
    let all: Vec<_> =
        [plain.clone(), limited(&plain), mixed(&plain), probed(&plain)].iter().map(sharing).collect();
    from_each_to_each(&mut scene, "uid-2", &all).await;
    assert_eq!(scene.reach_of("uid-1", &first).await, [""; 0], "it lost nothing");
    let left: Vec<u16> = scene.listeners().await.iter().map(|it| it.protocol_port).collect();
    assert_eq!((left, scene.balancers().await.len()), (vec![8_080], 1));
}
