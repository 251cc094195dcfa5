//! Versions of TLS, HSTS, and who is sent to https: asked for, taken away, and where they cannot be had.

use std::sync::Arc;

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, LoadBalancer as Wish,
    load_balancer::{CloudTlsOptions, TlsByName, TlsProfile},
};
use seaway_openstack::{
    octavia::{Listener, ListenerChange},
    resource::Edit,
};

use crate::{
    scene::*,
    tls::{referred, secured, theirs},
};

const MODERN: [&str; 1] = ["TLSv1.3"];
const USUAL: [&str; 2] = ["TLSv1.2", "TLSv1.3"];
const TERMS: CloudTlsOptions = CloudTlsOptions { profile: TlsProfile::Modern, hsts: Some(3_600) };

fn asking(mut wish: Wish, terms: CloudTlsOptions) -> Wish {
    for listener in wish.listeners.values_mut() {
        let tls = Arc::make_mut(listener).tls.as_mut();
        tls.into_iter().for_each(|it| {
            let now = TlsByName { profile: terms.profile, hsts: terms.hsts, ..(**it).clone() };
            *it = Arc::new(now);
        });
    }
    wish.options.cloud.as_mut().unwrap().tls_terms = terms;
    wish
}

async fn listener(scene: &Scene) -> Listener {
    let mut all = scene.listeners().await;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn words(all: &[&str]) -> Option<Vec<String>> {
    Some(all.iter().map(|it| (*it).to_owned()).collect())
}

#[tokio::test]
async fn versions_and_hsts_are_asked_for_wherever_tls_ends_and_go_when_nobody_asks() {
    for by_reference in [true, false] {
        let mut scene = Scene::set().await;
        let reference = theirs(&scene).await;
        let plain = match by_reference {
            true => referred(scene.wish(&[443], &[1]), &reference),
            false => secured(scene.wish(&[443], &[1]), &["shop"]),
        };
        for (terms, versions, seconds) in [
            (TERMS, &MODERN[..], Some(3_600)),
            (CloudTlsOptions { hsts: Some(60), ..TERMS }, &MODERN, Some(60)),
            (CloudTlsOptions { hsts: None, ..TERMS }, &MODERN, None),
            (CloudTlsOptions { hsts: Some(60), ..CloudTlsOptions::default() }, &USUAL, Some(60)),
            (CloudTlsOptions::default(), &USUAL, None),
        ] {
            let wish = asking(plain.clone(), terms);
            scene.reach(&wish).await;
            let there = listener(&scene).await;
            assert_eq!((&there.tls_versions, there.hsts_max_age), (&words(versions), seconds), "{terms:?}");
            scene.restarted();
            assert_eq!(scene.reach(&wish).await, [""; 0], "{terms:?}");
        }
        assert!(
            !listener(&scene).await.tags.iter().any(|it| it.contains("hsts") || it.contains("tls-profile"))
        );
    }
}

#[tokio::test]
async fn what_somebody_else_gave_a_listener_stays_until_the_service_asks() {
    let mut scene = Scene::set().await;
    let plain = referred(scene.wish(&[443], &[1]), &theirs(&scene).await);
    scene.reach(&plain).await;
    let change = ListenerChange {
        tls_versions: Edit::To(words(&MODERN)),
        hsts_max_age: Edit::To(Some(7)),
        ..ListenerChange::default()
    };
    let id = listener(&scene).await.id;
    scene.cloud.all::<Listener>().change(&id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    scene.restarted();
    assert_eq!(scene.reach(&plain).await, [""; 0]);
    // One of the two is asked for, and then is not: the other was never ours.
    let hsts = asking(plain.clone(), CloudTlsOptions { hsts: Some(60), ..CloudTlsOptions::default() });
    assert_eq!(scene.reach(&hsts).await, ["change the listener of 443/TCP"]);
    assert_eq!(scene.reach(&plain).await, ["change the listener of 443/TCP"]);
    let there = listener(&scene).await;
    assert_eq!((there.tls_versions, there.hsts_max_age), (words(&MODERN), None));
}

#[tokio::test]
async fn an_api_without_versions_of_tls_makes_no_such_port_and_one_without_hsts_leaves_it_out() {
    for (minor, refused, told) in
        [(16, true, false), (17, false, true), (26, false, true), (27, false, false)]
    {
        let scene = Scene::set().await;
        scene.fake.octavia_speaks(minor);
        let reference = theirs(&scene).await;
        let wish = asking(referred(scene.wish(&[443], &[1]), &reference), TERMS);
        if refused {
            let desired = Desired::LoadBalancer(Arc::new(wish));
            let Err(Failure::User(why)) = scene.driver.observe(&Context::default(), &unit(), &desired).await
            else {
                panic!("2.{minor}: it should have been refused")
            };
            assert!(why[0].1.message.contains("selectable TLS versions"), "{why:?}");
            assert!(scene.balancers().await.is_empty());
            continue;
        }
        let problems = scene.reach_telling(&wish).await;
        assert_eq!(problems.iter().any(|it| it.message.contains("HSTS")), told, "2.{minor}: {problems:?}");
        assert_eq!(listener(&scene).await.hsts_max_age.is_none(), told, "2.{minor}");
    }
}

/// A port in plaintext whose clients are to be sent to https is not made; one that serves stays, with its members.
#[tokio::test]
async fn nothing_is_made_in_plaintext_where_https_is_asked_for() {
    let scene = Scene::set().await;
    let reference = theirs(&scene).await;
    let two = |members: &[u8]| {
        let mut wish = referred(scene.wish(&[80, 443], members), &reference);
        wish.options.cloud.as_mut().unwrap().tls.as_mut().unwrap().references.remove(&tcp(80));
        wish
    };
    let sent = |members: &[u8]| {
        let mut wish = two(members);
        wish.options.cloud.as_mut().unwrap().to_https = [tcp(80)].into();
        wish
    };
    let ports = |all: Vec<Listener>| {
        let mut ports: Vec<u16> = all.iter().map(|it| it.protocol_port).collect();
        ports.sort_unstable();
        ports
    };
    let told = scene.reach_telling(&sent(&[1])).await;
    assert!(
        told.iter().any(|it| it.message.contains("80/TCP: redirects to https are not supported")),
        "{told:?}"
    );
    assert_eq!(ports(scene.listeners().await), [443]);
    scene.reach(&two(&[1])).await;
    assert_eq!(ports(scene.listeners().await), [80, 443]);
    let told = scene.reach_telling(&sent(&[1, 2])).await;
    assert!(told.iter().any(|it| it.message.contains("an existing one stays")), "{told:?}");
    assert_eq!(ports(scene.listeners().await), [80, 443]);
    assert!(scene.pools().await.iter().all(|it| it.members.len() == 2), "members follow");
}
