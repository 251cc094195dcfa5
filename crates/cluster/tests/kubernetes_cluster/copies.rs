//! Copies of certificates, on a real API server: what the leader makes of them, and what a host's stolen token reads.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use seaway_cluster::{
    Cluster, ClusterAccess, CopyTimings, CopyWriter, CredentialSource, LEADER, LeaderElection, LeaseTimings,
    NamedCertificates, WantedSecrets,
};
use seaway_model::{Change, Fact, Kind, ObjectRef, fact::FactRef, load_balancer::Certificate};
use seaway_testkit::kubernetes::client;
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    policies::{SYSTEM, by_token, connect, installed, manifest, refused},
    scene::{Heard, PACE, PATIENCE, eventually},
};

const COPIES: &str = "seaway-certificates";
const SOON: CopyTimings = CopyTimings {
    // What nothing names goes in the same turn in which that is seen.
    keep: Duration::ZERO,
    look: Duration::from_secs(300),
    pause: Duration::from_millis(20),
};

fn secret(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Secret, "shop", name)
}

fn certificate(chain: &str) -> Option<Arc<Certificate>> {
    let chain = format!("-----BEGIN CERTIFICATE-----\n{chain}\n-----END CERTIFICATE-----\n").into();
    let key = "a key".to_owned().into();
    Some(Arc::new(Certificate {
        chain,
        key,
        authorities: "".into(),
        staple: None,
        users: String::new().into(),
    }))
}

fn named(all: &[(&str, &str)]) -> NamedCertificates {
    let certificates = all.iter().map(|(name, chain)| (secret(name), certificate(chain))).collect();
    NamedCertificates {
        certificates,
        namespace: true,
        complete: true,
        limit: None,
        configured: BTreeSet::new(),
    }
}

/// Reads copies, as a host does.
async fn host(kubeconfig: &Path) -> Cluster {
    let credentials = CredentialSource::Kubeconfig { path: kubeconfig.to_owned(), context: None };
    let (namespace, copies) = (Some(SYSTEM.into()), Some(COPIES.into()));
    let access = ClusterAccess { credentials, namespace, copies, pace: PACE, ..ClusterAccess::default() };
    Cluster::connect(access).await.expect("the kubeconfig is good")
}

#[tokio::test]
async fn a_stolen_host_token_reads_copies_of_named_certificates_and_no_other_secret() {
    let Some(scene) = installed() else { return };
    scene.apply(&manifest("components/certificates/certificates.yaml"));
    scene.apply("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n");
    for namespace in ["shop", "bank"] {
        scene.kubectl(&["create", "namespace", namespace]);
        scene.kubectl(&["create", "secret", "generic", "password", "-n", namespace, "--from-literal=a=b"]);
    }
    // Not ours, and in the way of a copy.
    scene.kubectl(&["create", "secret", "generic", "shop.taken", "-n", COPIES, "--from-literal=a=b"]);
    let admin = client(&scene.kubeconfig).await;
    let copies: Api<Secret> = Api::namespaced(admin.clone(), COPIES);
    let taken = copies.get("shop.taken").await.expect("is there");

    let folder = tempfile::tempdir().expect("a folder");
    let control = connect(&by_token(&scene, folder.path(), "seaway-controller", &[])).await;
    let campaign = LeaderElection::start(&control, LEADER, "test", LeaseTimings::LEADER);
    campaign.leadership().changed_from(false).await;
    let (tell, mut told) = mpsc::channel(64);
    let keeper = CopyWriter::start(&control, campaign.leadership(), COPIES.into(), SOON, tell.clone());
    // Another who does not lead.
    let second = LeaderElection::start(&control, LEADER, "second", LeaseTimings::LEADER);
    let idle = CopyWriter::start(&control, second.leadership(), COPIES.into(), SOON, tell);
    idle.set_wanted(named(&[("rival", "one")]));
    keeper.set_wanted(named(&[("tls", "one"), ("taken", "one")]));
    let copy = eventually("it is copied", async || copies.get("shop.tls").await.ok()).await;
    let keys = |it: &Secret| it.data.iter().flatten().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&copy), ["tls.crt", "tls.key"]);
    let system = scene.kubectl(&["get", "namespace", SYSTEM, "-o", "jsonpath={.metadata.uid}"]);
    assert_eq!(copy.metadata.labels.as_ref().expect("labels")["seaway.dev/copied-by"], system);
    let change = timeout(PATIENCE, told.recv()).await.expect("it is told").expect("it goes on");
    let Change::Reported(_, problems) = change else { panic!("{change:?}") };
    assert!(
        problems[0].message.contains("shop.taken exists and is not marked as a copy of Seaway"),
        "{problems:?}"
    );

    let bound = &["--bound-object-kind=Node", "--bound-object-name=a"];
    let stolen = by_token(&scene, folder.path(), "seaway-node", bound);
    let mut heard = Heard::of(&host(&stolen).await);
    heard.want(WantedSecrets::These([secret("tls")].into()));
    let fact = FactRef::Object(secret("tls"));
    let key = |it: &Heard| match it.facts.get(&fact) {
        Some(Fact::Secret(it)) => it.values.get("tls.crt").map(|it| it.expose_secret().to_owned()),
        _ => None,
    };
    heard.until("a host has the certificate", |it| key(it).is_some_and(|it| it.contains("one"))).await;

    let thief = client(&stolen).await;
    let of = |namespace: &str| Api::<Secret>::namespaced(thief.clone(), namespace);
    // Controllers read no Secret either, before a namespace lets them.
    let controller = client(&by_token(&scene, folder.path(), "seaway-controller", &[])).await;
    let of_controller = |namespace: &str| Api::<Secret>::namespaced(controller.clone(), namespace);
    refused(Api::<Secret>::all(controller.clone()).list(&ListParams::default()).await);
    refused(of_controller("shop").list(&ListParams::default()).await);
    let account = format!("--serviceaccount={SYSTEM}:seaway-controller");
    let bind =
        ["create", "rolebinding", "seaway-certificates", "--clusterrole=seaway-certificates", &account];
    scene.kubectl(&[&bind[..], &["-n", "shop"]].concat());
    eventually("shop lets them", async || of_controller("shop").list(&ListParams::default()).await.ok())
        .await;
    refused(of_controller("bank").list(&ListParams::default()).await);
    refused(Api::<Secret>::all(controller.clone()).list(&ListParams::default()).await);

    let all = of(COPIES).list(&ListParams::default()).await.expect("copies are a host's to read");
    assert_eq!(all.items.len(), 2);
    refused(Api::<Secret>::all(thief.clone()).list(&ListParams::default()).await);
    for namespace in ["shop", "bank", SYSTEM, "kube-system", "default"] {
        refused(of(namespace).list(&ListParams::default()).await);
        refused(of(namespace).get("password").await);
    }
    let new = PostParams::default();
    let mut other = copy.clone();
    (other.metadata.name, other.metadata.resource_version) = (Some("shop.more".to_owned()), None);
    refused(of(COPIES).create(&new, &other).await);
    refused(of(COPIES).replace("shop.tls", &new, &copy).await);
    refused(of(COPIES).delete("shop.tls", &Default::default()).await);
    let patch = Patch::Merge(json!({"data": {"tls.key": ""}}));
    refused(of(COPIES).patch("shop.tls", &PatchParams::default(), &patch).await);

    // Renewed, and what somebody wrote over it is mended with it.
    keeper.set_wanted(named(&[("tls", "two"), ("taken", "one")]));
    heard.until("it is renewed", |it| key(it).is_some_and(|it| it.contains("two"))).await;

    // The source cannot be seen, or who names it: nothing is deleted.
    let mut unseen = named(&[("shown", "one"), ("taken", "one")]);
    unseen.complete = false;
    keeper.set_wanted(unseen);
    eventually("one more is copied", async || copies.get("shop.shown").await.ok()).await;
    let mut vanished = named(&[("more", "one"), ("shown", "one"), ("taken", "one")]);
    vanished.certificates.insert(secret("tls"), None);
    keeper.set_wanted(vanished);
    eventually("another is copied", async || copies.get("shop.more").await.ok()).await;
    // The turn before is over by now.
    copies.get("shop.tls").await.expect("it is named still");

    keeper.set_wanted(named(&[("taken", "one")]));
    for name in ["shop.tls", "shop.more", "shop.shown"] {
        eventually("nothing names it any more", async || {
            copies.get_opt(name).await.expect("is answered").is_none().then_some(())
        })
        .await;
    }
    heard.until("hosts hear it", |it| key(it).is_none()).await;
    keeper.set_wanted(named(&[]));
    keeper.set_wanted(named(&[("last", "one")]));
    eventually("the last is copied", async || copies.get("shop.last").await.ok()).await;
    let left = copies.get("shop.taken").await.expect("it is not ours");
    assert_eq!((left.metadata.uid, left.data), (taken.metadata.uid, taken.data));
    let rival = copies.get_opt("shop.rival").await.expect("is answered");
    assert!(rival.is_none(), "who does not lead copies nothing");
    drop(idle);
    second.resign().await;
    campaign.resign().await;
}
