//! Certificates: those of Secrets, kept in Barbican while they are shown, and those that are there already.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use seaway_engine::{Context, Driver, Failure, Until};
use seaway_model::{
    Desired, Kind, LoadBalancer, ObjectRef,
    load_balancer::{Certificate, CloudTls, Protocol, TlsByName},
};
use seaway_openstack::{
    barbican::{Container, ContainerType, NewContainer, NewSecret, Payload, Secret, SecretRef},
    octavia::{PoolProtocol, Protocol as Spoken},
    resource::UnknownFields,
};

use crate::scene::*;

/// Its TCP ports end TLS with these certificates, the first for whoever asks for no name.
pub(crate) fn secured(mut wish: LoadBalancer, names: &[&str]) -> LoadBalancer {
    let objects: Vec<ObjectRef> =
        names.iter().map(|it| ObjectRef::new(Kind::Secret, "default", *it)).collect();
    for listener in wish.listeners.values_mut().filter(|it| it.l4 == seaway_model::L4::Tcp) {
        let it = Arc::make_mut(listener);
        it.protocol = Protocol::Http;
        it.tls = Some(Arc::new(TlsByName { default: objects.clone(), ..TlsByName::default() }));
    }
    let held = objects.into_iter().map(|it| (it.clone(), certificate(&it.name)));
    wish.certificates = Arc::new(held.collect());
    wish
}

/// The same for the same name.
fn certificate(name: &str) -> Arc<Certificate> {
    static MADE: LazyLock<Mutex<BTreeMap<String, Arc<Certificate>>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap();
    let make = || {
        let one = || rcgen::generate_simple_self_signed(vec![format!("{name}.example")]).unwrap();
        let (leaf, authority) = (one(), one());
        Arc::new(Certificate {
            chain: format!("{}{}", leaf.cert.pem(), authority.cert.pem()).as_str().into(),
            key: leaf.signing_key.serialize_pem().into(),
            authorities: "".into(),
            staple: None,
            users: String::new().into(),
        })
    };
    made.entry(name.to_owned()).or_insert_with(make).clone()
}

pub(crate) fn referred(mut wish: LoadBalancer, reference: &str) -> LoadBalancer {
    let outside = wish.options.cloud.as_mut().unwrap();
    let ports = outside.ports.clone();
    let field = "metadata.annotations[loadbalancer.openstack.org/default-tls-container-ref]".into();
    let references = ports.into_iter().map(|it| (it, reference.into())).collect();
    outside.tls =
        Some(CloudTls { references, others: Vec::new(), field, looked_up: true, by_default: false });
    wish
}

/// One that somebody else put there.
pub(crate) async fn theirs(scene: &Scene) -> String {
    let new = NewSecret {
        name: "by hand".into(),
        payload: Payload::from(certificate("theirs").key.clone()).into(),
        payload_content_type: "text/plain".into(),
        ..NewSecret::new()
    };
    let secret = scene.cloud.all::<Secret>().create(&new).await.unwrap();
    let refs = ["certificate", "private_key"].map(|name| SecretRef {
        name: name.to_owned(),
        secret_ref: secret.secret_ref.clone(),
        rest: UnknownFields::new(),
    });
    let new = NewContainer {
        name: "by hand".into(),
        secret_refs: refs.to_vec().into(),
        ..NewContainer::new(ContainerType::Certificate)
    };
    scene.cloud.all::<Container>().create(&new).await.unwrap().container_ref
}

/// Another listener of the same port is refused while the first is there: the other controller asked for ever.
#[tokio::test]
async fn a_reference_turned_on_for_a_service_that_is_there_takes_the_place_of_tcp() {
    let mut scene = Scene::set().await;
    let (first, second) = (theirs(&scene).await, theirs(&scene).await);
    let plain = scene.wish(&[443], &[1]);
    scene.reach(&plain).await;
    scene.reach(&referred(plain.clone(), &first)).await;
    let there = scene.listeners().await.remove(0);
    assert_eq!(there.protocol, Spoken::TerminatedHttps);
    assert_eq!(there.default_tls_container_ref.as_deref(), Some(first.as_str()));
    assert!(there.insert_headers.is_empty());
    assert_eq!(scene.pools().await[0].protocol, PoolProtocol::Http);

    let mut told = referred(plain.clone(), &first);
    told.listeners.values_mut().for_each(|it| Arc::make_mut(it).protocol = Protocol::Http);
    assert_eq!(scene.reach(&told).await, ["change the listener of 443/TCP"]);
    assert_eq!(scene.listeners().await[0].insert_headers["X-Forwarded-For"], "true");
    assert_eq!(scene.reach(&referred(plain.clone(), &first)).await, ["change the listener of 443/TCP"]);
    assert!(scene.listeners().await[0].insert_headers.is_empty());

    assert_eq!(scene.reach(&referred(plain.clone(), &second)).await, ["change the listener of 443/TCP"]);
    scene.restarted();
    assert_eq!(scene.reach(&referred(plain.clone(), &second)).await, [""; 0]);
    scene.reach(&plain).await;
    assert_eq!(scene.listeners().await[0].protocol, Spoken::Tcp);
    scene.remove().await;
    assert_eq!((scene.containers().await.len(), scene.secrets().await.len()), (2, 2), "they are not ours");
}

#[tokio::test]
async fn a_reference_that_leads_nowhere_is_told_before_anything_is_touched() {
    let scene = Scene::set().await;
    let plain = scene.wish(&[443], &[1]);
    let desired = |wish: LoadBalancer| Desired::LoadBalancer(Arc::new(wish));
    let refused = scene.driver.refused_at_creation(&desired(referred(plain.clone(), "my-certificate")));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].1.message.contains("is not a reference"), "{}", refused[0].1.message);

    let nowhere = "http://barbican/v1/secrets/0f2b8f8e-6a55-4f3b-9d9e-3f1c9f8e0a71";
    let lost = desired(referred(plain.clone(), nowhere));
    scene.fake.forget_requests();
    let failed = scene.driver.observe(&Context::default(), &unit(), &lost).await.unwrap_err();
    let Failure::User(told) = failed else { panic!("{failed}") };
    assert!(told[0].1.message.contains("Barbican has no"), "{}", told[0].1.message);
    assert!(told[0].1.field.contains("default-tls-container-ref"), "{:?}", told[0].1);
    assert_eq!(scene.fake.count("POST */lbaas/*"), 0);

    // Whose store we cannot ask, is believed.
    let mut external = referred(plain, nowhere);
    external.options.cloud.as_mut().unwrap().tls.as_mut().unwrap().looked_up = false;
    scene.fake.forget_requests();
    scene.driver.observe(&Context::default(), &unit(), &desired(external)).await.unwrap();
    assert_eq!(scene.fake.count("GET */secrets/*"), 0);
}

/// Somebody who names another certificate by mistake loses neither the old one nor his Nodes.
#[tokio::test]
async fn a_reference_that_leads_nowhere_keeps_no_member_from_following() {
    let scene = Scene::set().await;
    let nowhere = "http://barbican/v1/secrets/0f2b8f8e-6a55-4f3b-9d9e-3f1c9f8e0a71";
    let plain = |members: &[u8]| scene.wish(&[443], members);
    scene.reach(&plain(&[1])).await;
    let lost = referred(plain(&[1, 2]), nowhere);
    let told = scene.reach_telling(&lost).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].message.contains("Barbican has no"), "{}", told[0].message);
    let pool = scene.pools().await.remove(0);
    assert_eq!((pool.members.len(), scene.listeners().await[0].protocol.clone()), (2, Spoken::Tcp));
}

/// At the start a Secret may come later than its Service; and somebody may delete it, or name another by mistake.
#[tokio::test]
async fn what_a_listener_shows_stays_in_barbican_while_nothing_takes_its_place() {
    let scene = Scene::set().await;
    let plain = scene.wish(&[443], &[1]);
    let shop = secured(plain.clone(), &["shop"]);
    scene.reach(&shop).await;
    let (shown, containers) = (scene.listeners().await.remove(0), scene.containers().await);
    let mut without = shop.clone();
    without.certificates = Arc::default();
    let nowhere = "http://barbican/v1/secrets/0f2b8f8e-6a55-4f3b-9d9e-3f1c9f8e0a71";
    for missing in [without, referred(plain, nowhere)] {
        scene.fake.forget_requests();
        scene.reach_telling(&missing).await;
        assert_eq!(scene.fake.count("DELETE *") + scene.fake.count("PUT */listeners/*"), 0);
        assert_eq!(scene.containers().await, containers);
        assert_eq!(scene.listeners().await[0], shown);
    }
    scene.reach(&secured(scene.wish(&[443], &[1]), &["blog"])).await;
    assert_eq!(scene.containers().await.len(), 1, "what is shown no more goes");
}

/// A controller asks for Secrets once somebody names one: until that is answered, nothing is made without it, and nothing
/// that is there is changed.
#[tokio::test]
async fn a_secret_that_was_not_read_yet_is_waited_for() {
    let mut scene = Scene::set().await;
    let shop = |members: &[u8]| secured(scene.wish(&[443], members), &["shop"]);
    let known = [shop(&[1]), shop(&[1, 2])];
    let awaited = |it: &LoadBalancer| {
        let awaited = it.certificates.keys().cloned().collect();
        LoadBalancer { certificates: Arc::default(), awaited, ..it.clone() }
    };
    let two = scene.wish(&[80, 443], &[1]);
    let beside_plain = |it: &LoadBalancer| {
        let mut both = two.clone();
        let secure: Vec<_> = it.listeners.iter().map(|(id, it)| (*id, it.clone())).collect();
        both.listeners.extend(secure);
        LoadBalancer { certificates: it.certificates.clone(), awaited: it.awaited.clone(), ..both }
    };
    let plain = scene.wish(&[443], &[1]);

    // Nothing is made, nobody is told.
    for it in [awaited(&known[0]), beside_plain(&awaited(&known[0]))] {
        scene.fake.forget_requests();
        let desired = Desired::LoadBalancer(Arc::new(it));
        assert_eq!(scene.driver.refused_at_creation(&desired), []);
        let failed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap_err();
        let Failure::Wait { why, until: Until::Marked } = failed else { panic!("{failed}") };
        assert!(why.contains("default/shop"), "{why}");
        assert_eq!(scene.fake.count("POST */lbaas/*") + scene.fake.count("PUT *"), 0);
    }

    // Once it is known, all is made at once: one call has the listener and its certificate.
    let both = beside_plain(&known[0]);
    scene.fake.forget_requests();
    scene.reach(&both).await;
    assert_eq!((scene.fake.count("POST */loadbalancers"), scene.fake.count("POST */listeners")), (1, 0));
    assert_eq!(scene.listeners().await.len(), 2);

    // What is there stays as it is, but for its members.
    scene.reach(&known[0]).await;
    let shown = scene.listeners().await.remove(0);
    scene.restarted();
    assert_eq!(scene.reach_telling(&awaited(&known[1])).await, []);
    assert_eq!(scene.listeners().await[0].default_tls_container_ref, shown.default_tls_container_ref);
    assert_eq!(scene.pools().await[0].members.len(), 2);
    assert_eq!(scene.containers().await.len(), 1);

    // A port that becomes one of TLS neither closes nor is made anew before; a new one is not opened in plain.
    scene.reach(&plain).await;
    assert_eq!(scene.reach_telling(&awaited(&known[0])).await, []);
    assert_eq!(scene.listeners().await[0].protocol, Spoken::Tcp);
    scene.remove().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    assert_eq!(scene.reach_telling(&beside_plain(&awaited(&known[0]))).await, []);
    assert_eq!(scene.listeners().await.iter().map(|it| it.protocol_port).collect::<Vec<_>>(), [80]);
}

#[tokio::test]
async fn a_secret_is_kept_shown_renewed_and_cleaned_up() {
    let mut scene = Scene::set().await;
    let plain = scene.wish(&[443], &[1]);
    let steps = scene.reach(&secured(plain.clone(), &["shop", "blog"])).await;
    assert!(
        steps[0].starts_with("store certificate") && steps[1].starts_with("store certificate"),
        "{steps:?}"
    );
    let listener = scene.listeners().await.remove(0);
    let containers = scene.containers().await;
    let shown = |names: &[&str]| -> Vec<String> {
        let of = |name: &&str| {
            let end = scene_name(name);
            containers.iter().find(|it| it.name.ends_with(&end)).unwrap().container_ref.clone()
        };
        names.iter().map(of).collect()
    };
    assert_eq!(listener.protocol, Spoken::TerminatedHttps);
    assert_eq!(listener.default_tls_container_ref, shown(&["shop"]).pop());
    assert_eq!(listener.sni_container_refs, shown(&["blog"]));
    assert_eq!(listener.insert_headers["X-Forwarded-For"], "true");
    assert_eq!(scene.secrets().await.len(), 6, "a certificate, its key and its chain, twice");
    assert!(containers.iter().all(|it| it.name.starts_with("seaway.dev/cluster=6c1d seaway.dev/key=uid-1 ")));

    scene.restarted();
    assert_eq!(scene.reach(&secured(plain.clone(), &["shop", "blog"])).await, [""; 0]);
    let renewed = scene.reach(&secured(plain.clone(), &["shop-renewed", "blog"])).await;
    let order: Vec<&str> = renewed.iter().map(|it| it.split(' ').next().unwrap()).collect();
    assert_eq!(order, ["store", "change", "delete"], "{renewed:?}");
    assert_eq!(scene.containers().await.len(), 2);

    scene.restarted();
    scene.reach(&plain).await;
    assert_eq!(scene.listeners().await[0].protocol, Spoken::Tcp);
    assert_eq!((scene.containers().await.len(), scene.secrets().await.len()), (0, 0));

    scene.reach(&secured(plain, &["shop"])).await;
    scene.restarted();
    scene.remove().await;
    assert_eq!((scene.containers().await.len(), scene.secrets().await.len()), (0, 0));
}

/// A project may have thousands of secrets, and a cluster hundreds of Services with some.
#[tokio::test]
async fn what_barbican_has_is_listed_once_for_all_who_look_after_a_restart() {
    let mut scene = Scene::set().await;
    let wish = |scene: &Scene, uid: &str| secured(scene.wish_of(uid, &[443], &[1]), &["shop"]);
    let uids = ["uid-2", "uid-3", "uid-4"];
    for uid in uids {
        scene.reach_of(uid, &wish(&scene, uid)).await;
    }
    scene.restarted();
    scene.fake.forget_requests();
    for uid in uids {
        assert_eq!(scene.reach_of(uid, &wish(&scene, uid)).await, [""; 0]);
    }
    assert_eq!(scene.fake.count("GET */secrets"), 1);
    assert_eq!(scene.fake.count("GET */containers"), 1);
}

/// How the name of a certificate ends.
fn scene_name(name: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(certificate(name).chain.as_bytes());
    digest[..16].iter().map(|it| format!("{it:02x}")).collect()
}

#[tokio::test]
async fn keys_are_in_no_text() {
    let scene = Scene::set().await;
    let wish = secured(scene.wish(&[443], &[1]), &["shop"]);
    let desired = Desired::LoadBalancer(Arc::new(wish));
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = scene.driver.steps(&desired, &observed);
    let text = format!("{steps:?} {desired:?} {observed:?}");
    assert!(text.contains("Keep(") && !text.contains("PRIVATE KEY") && !text.contains("-----BEGIN"));
}

#[tokio::test]
async fn what_cannot_be_shown_is_a_problem_and_nothing_is_touched() {
    let ovn = Scene::with("ovn").await;
    let plain = ovn.wish(&[443], &[1]);
    let amphora = Scene::set().await;
    let mut empty = secured(plain.clone(), &["shop"]);
    empty.certificates = Arc::default();
    let mut opaque = secured(plain.clone(), &["shop"]);
    opaque.listeners.values_mut().for_each(|it| Arc::make_mut(it).protocol = Protocol::Opaque);
    for (scene, wish, why) in [
        (&ovn, secured(plain.clone(), &["shop"]), "cannot end TLS"),
        (&ovn, referred(plain.clone(), "http://x/containers/1"), "cannot end TLS"),
        (&amphora, empty, "has no certificate; Seaway changes nothing"),
        (&amphora, opaque, "for HTTP only"),
    ] {
        let told = scene.driver.refused_at_creation(&Desired::LoadBalancer(Arc::new(wish)));
        assert!(told.iter().any(|(_, it)| it.message.contains(why)), "{why}: {told:?}");
    }
}

#[tokio::test]
async fn single_ports_show_certificates_of_their_own() {
    let mut scene = Scene::set().await;
    let (one, another) = (theirs(&scene).await, theirs(&scene).await);
    let showing = |of: &[(u16, &str)]| {
        let mut wish = referred(scene.wish(&[80, 443, 8443], &[1]), &one);
        let tls = wish.options.cloud.as_mut().unwrap().tls.as_mut().unwrap();
        tls.references = of.iter().map(|(port, it)| (tcp(*port), (*it).into())).collect();
        wish
    };
    let shown = async |scene: &Scene| -> Vec<(u16, Option<String>)> {
        let mut all: Vec<_> = scene.listeners().await;
        all.sort_by_key(|it| it.protocol_port);
        all.into_iter().map(|it| (it.protocol_port, it.default_tls_container_ref)).collect()
    };
    let both = showing(&[(443, &one), (8443, &another)]);
    scene.reach(&both).await;
    let expected = vec![(80, None), (443, Some(one.clone())), (8443, Some(another.clone()))];
    assert_eq!(shown(&scene).await, expected);
    scene.restarted();
    assert_eq!(scene.reach(&both).await, [""; 0]);
}

#[tokio::test]
async fn a_certificate_that_vanished_freezes_no_other_port() {
    let mut scene = Scene::set().await;
    let (one, another, renewed) = (theirs(&scene).await, theirs(&scene).await, theirs(&scene).await);
    let gone = "http://barbican/v1/containers/00000000-0000-4000-8000-000000000000";
    let showing = |scene: &Scene, ports: &[u16], members: &[u8], of: &[(u16, &str)]| {
        let mut wish = referred(scene.wish(ports, members), &one);
        let tls = wish.options.cloud.as_mut().unwrap().tls.as_mut().unwrap();
        tls.references = of.iter().map(|(port, it)| (tcp(*port), (*it).into())).collect();
        wish
    };
    scene.reach(&showing(&scene, &[80, 443, 8443], &[1], &[(443, &one), (8443, &another)])).await;
    for restarts in [false, true] {
        if restarts {
            scene.restarted();
        }
        // 443 turns to one that is not there, 8443 to one that is, 9443 comes with one that is not, 8080 without any.
        let members: &[u8] = if restarts { &[2, 3] } else { &[1, 2] };
        let shows = [(443, gone), (8443, &*renewed), (9443, gone)];
        let wrong = showing(&scene, &[80, 443, 8080, 8443, 9443], members, &shows);
        let told = scene.reach_telling(&wrong).await;
        assert!(told.len() == 1 && told[0].message.contains("Barbican has no"), "{told:?}");
        let mut shown: Vec<_> = scene.listeners().await;
        shown.sort_by_key(|it| it.protocol_port);
        let shown: Vec<_> =
            shown.into_iter().map(|it| (it.protocol_port, it.default_tls_container_ref)).collect();
        let expected = [(80, None), (443, Some(&one)), (8080, None), (8443, Some(&renewed))];
        assert_eq!(shown, expected.map(|(port, it)| (port, it.cloned())), "restarts: {restarts}");
        assert!(scene.pools().await.iter().all(|it| it.members.len() == 2), "members follow at all of them");
    }
}

/// Deleting one that never ended TLS asks Barbican nothing, once it was listed; and leaves nothing there that a crash had left.
#[tokio::test]
async fn a_deletion_lists_certificates_only_where_there_may_be_some() {
    let mut scene = Scene::set().await;
    let plain = scene.wish(&[443], &[1]);
    let shop = secured(plain.clone(), &["shop"]);
    let lists = |scene: &Scene| scene.fake.count("GET */secrets") + scene.fake.count("GET */containers");
    scene.reach(&plain).await;
    scene.reach_of("uid-2", &scene.wish_of("uid-2", &[443], &[1])).await;
    scene.restarted();
    // Nobody knows what a process before this one left.
    scene.fake.forget_requests();
    scene.remove_of("uid-2").await;
    assert_eq!(lists(&scene), 2);
    scene.pass(Duration::from_secs(600));
    scene.fake.forget_requests();
    scene.remove().await;
    assert_eq!(
        (lists(&scene), scene.balancers().await.len()),
        (0, 0),
        "what was listed says that there is none"
    );

    // What this process wrote counts, whatever was listed before.
    scene.reach(&shop).await;
    let name = scene.containers().await[0].name.clone();
    scene.remove().await;
    assert_eq!((scene.containers().await.len(), scene.secrets().await.len()), (0, 0));

    let left = NewSecret {
        name: format!("{name} certificate").into(),
        payload: Payload::from(certificate("shop").key.clone()).into(),
        payload_content_type: "text/plain".into(),
        ..NewSecret::new()
    };
    scene.cloud.all::<Secret>().create(&left).await.unwrap();
    scene.reach(&plain).await;
    scene.reach_of("uid-2", &scene.wish_of("uid-2", &[443], &[1])).await;
    scene.restarted();
    scene.remove_of("uid-2").await;
    scene.pass(Duration::from_secs(600));
    scene.remove().await;
    assert_eq!(scene.secrets().await.len(), 0, "what a crash left goes with it");
}

#[tokio::test]
async fn a_part_of_a_certificate_that_somebody_deleted_is_stored_again_and_nothing_is_there_twice() {
    let mut scene = Scene::set().await;
    let wish = secured(scene.wish(&[443], &[1]), &["shop"]);
    scene.reach(&wish).await;
    let all = scene.secrets().await;
    let part = all.iter().find(|it| it.name.ends_with("intermediates")).unwrap();
    scene.cloud.all::<Secret>().delete(&part.id).await.unwrap();
    scene.restarted();
    let steps = scene.reach(&wish).await;
    assert!(steps.len() == 1 && steps[0].starts_with("store certificate"), "{steps:?}");
    assert_eq!((scene.containers().await.len(), scene.secrets().await.len()), (1, 3));
    assert_eq!(scene.reach(&wish).await, [""; 0]);
}
