//! Certificates that clients have to show, and several that are shown to them.

use std::sync::Arc;

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, LoadBalancer as Wish,
    load_balancer::{CloudClientAuth, CloudTls},
};
use seaway_openstack::{
    barbican::{NewSecret, Payload, Secret},
    octavia::{ClientAuthentication, Listener, ListenerChange},
    resource::Edit,
};
use secrecy::SecretString;

use crate::scene::*;

const NOWHERE: &str = "http://barbican/v1/secrets/00000000-0000-4000-8000-000000000003";

async fn secret(scene: &Scene, name: &str) -> String {
    let new = NewSecret {
        name: Edit::To(name.to_owned()),
        payload: Edit::To(Payload::from(SecretString::from("PEM".to_owned()))),
        payload_content_type: "text/plain".into(),
        ..NewSecret::new()
    };
    scene.cloud.all::<Secret>().create(&new).await.unwrap().secret_ref
}

/// TLS ends at 443, and 80 is in plaintext.
fn wish(scene: &Scene, shown: Option<&str>, others: &[&str], clients: CloudClientAuth) -> Wish {
    let mut wish = scene.wish(&[80, 443], &[1]);
    let outside = wish.options.cloud.as_mut().unwrap();
    outside.tls = shown.map(|reference| CloudTls {
        others: others.iter().map(|it| (*it).into()).collect(),
        references: [(tcp(443), reference.into())].into(),
        field: "metadata.annotations".into(),
        looked_up: true,
        by_default: false,
    });
    outside.clients = clients;
    wish
}

fn asking(authority: &str, optional: bool) -> CloudClientAuth {
    CloudClientAuth { authority: Some(authority.into()), optional, ..CloudClientAuth::default() }
}

async fn at(scene: &Scene, port: u16) -> Listener {
    scene.listeners().await.into_iter().find(|it| it.protocol_port == port).unwrap()
}

#[tokio::test]
async fn clients_have_to_show_certificates_where_tls_ends_as_long_as_that_is_asked() {
    let mut scene = Scene::set().await;
    let (shown, authority) = (secret(&scene, "shop").await, secret(&scene, "ca").await);
    for (optional, expected) in
        [(false, ClientAuthentication::Mandatory), (true, ClientAuthentication::Optional)]
    {
        let asked = wish(&scene, Some(&shown), &[], asking(&authority, optional));
        scene.reach(&asked).await;
        let tls = at(&scene, 443).await;
        assert_eq!(tls.client_authentication, Some(expected));
        assert_eq!(tls.client_ca_tls_container_ref.as_deref(), Some(authority.as_str()));
        assert_eq!(at(&scene, 80).await.client_ca_tls_container_ref, None);
        assert_eq!(scene.reach(&asked).await, [""; 0]);
    }
    let asked = wish(&scene, Some(&shown), &[], asking(&authority, false));
    scene.reach(&asked).await;
    // What somebody switches off comes back.
    let tls = at(&scene, 443).await;
    let change = ListenerChange {
        client_authentication: Edit::To(Some(ClientAuthentication::None)),
        ..ListenerChange::default()
    };
    scene.cloud.all::<Listener>().change(&tls.id, &change).await.unwrap();
    scene.pass(std::time::Duration::from_secs(60));
    scene.balancers().await;
    scene.restarted();
    assert_eq!(scene.reach(&asked).await, ["change the listener of 443/TCP"]);
    scene.restarted();
    let none = wish(&scene, Some(&shown), &[], CloudClientAuth::default());
    assert_eq!(scene.reach(&none).await, ["change the listener of 443/TCP"]);
    let tls = at(&scene, 443).await;
    assert_eq!(tls.client_authentication, Some(ClientAuthentication::None));
    assert_eq!(tls.client_ca_tls_container_ref, None);
    assert_eq!(scene.reach(&none).await, [""; 0]);
}

#[tokio::test]
async fn several_certificates_are_shown_and_one_that_is_not_there_is_told() {
    let scene = Scene::set().await;
    let (shown, other) = (secret(&scene, "shop").await, secret(&scene, "blog").await);
    scene.reach(&wish(&scene, Some(&shown), &[&other], CloudClientAuth::default())).await;
    assert_eq!(at(&scene, 443).await.sni_container_refs, [other.as_str()]);
    let told = scene
        .reach_telling(&wish(&scene, Some(&shown), &[&other, NOWHERE], CloudClientAuth::default()))
        .await;
    assert!(told.iter().any(|it| it.message.contains(NOWHERE)), "{told:?}");
    assert_eq!(at(&scene, 443).await.sni_container_refs, [other.as_str()], "what is shown stays");
    scene.reach(&wish(&scene, Some(&shown), &[], CloudClientAuth::default())).await;
    assert_eq!(at(&scene, 443).await.sni_container_refs, [""; 0]);
}

#[tokio::test]
async fn nothing_is_served_without_the_certificates_that_are_asked_for() {
    let by_secret = CloudClientAuth { by_secret: true, ..CloudClientAuth::default() };
    let revoked = CloudClientAuth { revoked: Some(NOWHERE.into()), ..CloudClientAuth::default() };
    let unvouched = CloudClientAuth { unvouched: true, ..CloudClientAuth::default() };
    for (provider, minor, ends_tls, clients, why) in [
        ("amphora", 30, true, unvouched.clone(), "no certificate authority is named"),
        ("amphora", 30, false, unvouched, "TLS ends at no port"),
        ("amphora", 30, false, revoked.clone(), "TLS ends at no port"),
        ("amphora", 30, true, by_secret.clone(), "a Secret with the certificate authorities of clients"),
        ("amphora", 30, true, revoked, "none is named"),
        ("amphora", 30, true, asking("my-ca", false), "is not a reference"),
        ("amphora", 7, true, asking(NOWHERE, false), "cannot request client certificates"),
        ("amphora", 30, false, asking(NOWHERE, false), "TLS ends at no port"),
        ("amphora", 30, false, by_secret, "TLS ends at no port"),
    ] {
        let scene = Scene::with(provider).await;
        scene.fake.octavia_speaks(minor);
        let shown = secret(&scene, "shop").await;
        let mut asked = wish(&scene, ends_tls.then_some(shown.as_str()), &[], clients);
        asked.listeners.remove(&tcp(80));
        let desired = Desired::LoadBalancer(Arc::new(asked));
        let Err(Failure::User(told)) = scene.driver.observe(&Context::default(), &unit(), &desired).await
        else {
            panic!("{why}: it should have been refused")
        };
        assert!(told.iter().any(|(_, it)| it.message.contains(why)), "{why}: {told:?}");
        assert!(scene.balancers().await.is_empty());
    }
}

#[tokio::test]
async fn a_port_without_tls_is_served_beside_one_whose_clients_cannot_be_verified() {
    let scene = Scene::set().await;
    let shown = secret(&scene, "shop").await;
    let by_secret = CloudClientAuth { by_secret: true, ..CloudClientAuth::default() };
    let told = scene.reach_telling(&wish(&scene, Some(&shown), &[], by_secret)).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let ports: Vec<u16> = scene.listeners().await.iter().map(|it| it.protocol_port).collect();
    assert_eq!(ports, [80]);
}
