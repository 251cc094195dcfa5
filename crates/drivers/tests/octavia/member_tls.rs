//! TLS with members.

use std::sync::Arc;

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, LoadBalancer as Wish,
    load_balancer::{BackendTls, CloudMemberTls, Protocol, Trust},
};
use seaway_openstack::{
    barbican::{NewSecret, Payload, Secret},
    octavia::{Pool, PoolChange},
    resource::Edit,
};
use secrecy::SecretString;

use crate::scene::*;

fn wish(scene: &Scene, trust: Option<Trust>, refs: CloudMemberTls) -> Wish {
    let mut wish = scene.wish(&[80], &[1]);
    for it in wish.listeners.values_mut() {
        Arc::make_mut(it).protocol = Protocol::Http;
    }
    let tls = trust.map(|trust| Arc::new(BackendTls { name: None, usual: "shop.default.svc".into(), trust }));
    wish.pools.values_mut().for_each(|it| Arc::make_mut(it).tls.clone_from(&tls));
    wish.options.cloud.as_mut().unwrap().member_tls = refs;
    wish
}

async fn secret(scene: &Scene, name: &str) -> String {
    let new = NewSecret {
        name: Edit::To(name.to_owned()),
        payload: Edit::To(Payload::from(SecretString::from("PEM".to_owned()))),
        payload_content_type: "text/plain".into(),
        ..NewSecret::new()
    };
    scene.cloud.all::<Secret>().create(&new).await.unwrap().secret_ref
}

async fn refused(scene: &Scene, wish: &Wish) -> String {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    match scene.driver.observe(&Context::default(), &unit(), &desired).await {
        Err(Failure::User(told)) => told.into_iter().map(|(_, it)| it.message).collect::<Vec<_>>().join("; "),
        other => panic!("it should have been refused: {:?}", other.err()),
    }
}

#[tokio::test]
async fn members_are_spoken_to_by_tls_as_long_as_it_is_asked_for() {
    let mut scene = Scene::set().await;
    let (authority, shown) = (secret(&scene, "ca").await, secret(&scene, "mine").await);
    let refs = CloudMemberTls {
        authorities: Some(authority.as_str().into()),
        revoked: None,
        certificate: Some(shown.as_str().into()),
    };
    let (tls, plain) =
        (wish(&scene, Some(Trust::SystemRoots), refs), wish(&scene, None, CloudMemberTls::default()));
    scene.reach(&tls).await;
    let pool = scene.pools().await.remove(0);
    assert_eq!(pool.tls_enabled, Some(true));
    assert_eq!(pool.ca_tls_container_ref.as_deref(), Some(authority.as_str()));
    assert_eq!(pool.tls_container_ref.as_deref(), Some(shown.as_str()));
    // What somebody takes away comes back.
    let change = PoolChange { tls_enabled: Edit::To(Some(false)), ..PoolChange::default() };
    scene.cloud.all::<Pool>().change(&pool.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    scene.restarted();
    assert_eq!(scene.reach(&tls).await, ["change the pool of 80/TCP"]);
    scene.restarted();
    assert_eq!(scene.reach(&plain).await, ["change the pool of 80/TCP"], "it is the same pool");
    let pool = scene.pools().await.remove(0);
    assert_eq!((pool.tls_enabled, pool.ca_tls_container_ref), (Some(false), None));
    assert!(!pool.tags.contains("seaway.dev/backend-tls"), "{:?}", pool.tags);
    assert_eq!(scene.reach(&plain).await, [""; 0]);
}

#[tokio::test]
async fn tls_that_somebody_else_switched_on_stays() {
    let mut scene = Scene::set().await;
    let plain = wish(&scene, None, CloudMemberTls::default());
    scene.reach(&plain).await;
    let pool = scene.pools().await.remove(0).id;
    let change = PoolChange { tls_enabled: Edit::To(Some(true)), ..PoolChange::default() };
    scene.cloud.all::<Pool>().change(&pool, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    scene.restarted();
    assert_eq!(scene.reach(&plain).await, [""; 0]);
    assert_eq!(scene.pools().await.remove(0).tls_enabled, Some(true));
}

#[tokio::test]
async fn what_cannot_be_promised_is_refused_before_anything_is_made() {
    let none = CloudMemberTls::default;
    let named = |it: &str| CloudMemberTls { authorities: Some(it.into()), ..none() };
    let revoked = CloudMemberTls { revoked: Some("http://b/v1/secrets/x".into()), ..none() };
    for (provider, minor, trust, refs, why) in [
        (
            "amphora",
            30,
            Trust::SystemRoots,
            none(),
            "no certificate authority is named to verify the certificates of members",
        ),
        (
            "amphora",
            30,
            Trust::CaBundle("PEM".into()),
            none(),
            "a Secret with the certificate authorities of members",
        ),
        ("amphora", 30, Trust::SystemRoots, named("my-ca"), "is not a reference"),
        ("amphora", 30, Trust::InsecureSkipVerify, revoked, "none is named"),
        ("amphora", 7, Trust::InsecureSkipVerify, none(), "has no TLS to members"),
        ("ovn", 30, Trust::InsecureSkipVerify, none(), "has no TLS to members"),
    ] {
        let scene = Scene::with(provider).await;
        scene.fake.octavia_speaks(minor);
        let told = refused(&scene, &wish(&scene, Some(trust), refs)).await;
        assert!(told.contains(why), "{provider} 2.{minor}: {told}");
        assert!(scene.balancers().await.is_empty());
    }
    let scene = Scene::set().await;
    scene.reach(&wish(&scene, Some(Trust::InsecureSkipVerify), none())).await;
    assert_eq!(scene.pools().await.remove(0).tls_enabled, Some(true), "by choice members may be anybody");
}

#[tokio::test]
async fn a_port_that_serves_stays_as_it_is_when_tls_with_its_members_is_refused() {
    let scene = Scene::set().await;
    scene.reach(&wish(&scene, None, CloudMemberTls::default())).await;
    let mut asked = wish(&scene, Some(Trust::SystemRoots), CloudMemberTls::default());
    let told = scene.reach_telling(&asked).await;
    assert!(
        told.iter().any(|it| it
            .message
            .contains("no certificate authority is named to verify the certificates of members")),
        "{told:?}"
    );
    assert_ne!(scene.pools().await.remove(0).tls_enabled, Some(true));
    // Its members are followed all the same.
    let other = scene.wish(&[80], &[1, 2]);
    for (pool, new) in asked.pools.values_mut().zip(other.pools.values()) {
        Arc::make_mut(pool).members.clone_from(&new.members);
    }
    scene.reach_telling(&asked).await;
    let pool = scene.pools().await.remove(0);
    assert_eq!(pool.members.len(), 2);
    assert_ne!(pool.tls_enabled, Some(true));
}
