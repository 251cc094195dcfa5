//! What listeners of HTTP tell members of their clients.

use std::{collections::BTreeMap, sync::Arc};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, LoadBalancer as Wish,
    load_balancer::{CloudHeaders, Protocol},
};

use crate::scene::*;

/// HTTP at 80, and something else at 5432.
fn wish(scene: &Scene, headers: CloudHeaders) -> Wish {
    let mut wish = scene.wish(&[80, 5432], &[1]);
    let listener = Arc::make_mut(wish.listeners.get_mut(&tcp(80)).unwrap());
    listener.protocol = Protocol::Http;
    wish.options.cloud.as_mut().unwrap().headers = [80, 5432].map(|it| (tcp(it), headers)).into();
    wish
}

async fn inserted(scene: &Scene) -> BTreeMap<u16, Vec<String>> {
    let all = scene.listeners().await.into_iter();
    all.map(|it| (it.protocol_port, it.insert_headers.into_keys().collect())).collect()
}

#[tokio::test]
async fn headers_come_and_go_at_listeners_of_http_and_nowhere_else() {
    let scene = Scene::set().await;
    for (proto, port, expected) in [
        (true, false, &["X-Forwarded-For", "X-Forwarded-Proto"][..]),
        (true, true, &["X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Proto"]),
        (false, false, &["X-Forwarded-For"]),
    ] {
        scene.reach(&wish(&scene, CloudHeaders { proto, port })).await;
        let inserted = inserted(&scene).await;
        assert_eq!(inserted[&80], expected);
        assert_eq!(inserted[&5432], [""; 0], "a database hears of no headers");
    }
    assert_eq!(scene.fake.count("DELETE */lbaas/listeners/*"), 0, "it is changed as it serves");
}

#[tokio::test]
async fn a_provider_without_http_refuses_that_port_alone() {
    let scene = Scene::with("ovn").await;
    let wish = wish(&scene, CloudHeaders { proto: true, port: true });
    let told = scene.reach_telling(&wish).await;
    assert!(told.iter().any(|it| it.message.contains("80/TCP") && it.message.contains("HTTP")), "{told:?}");
    assert_eq!(inserted(&scene).await.keys().copied().collect::<Vec<_>>(), [5432]);
    let mut alone = wish.clone();
    alone.listeners.remove(&tcp(5432));
    let other = unit_of(&owner_of("uid-2"));
    let desired = Desired::LoadBalancer(Arc::new(alone));
    assert!(matches!(
        scene.driver.observe(&Context::default(), &other, &desired).await,
        Err(Failure::User(_))
    ));
}
