//! Who claimed a name of the front door first, on a real API server: written by the leader, read by hosts.

use std::{sync::Arc, time::Duration};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use seaway_cluster::{FirstClaims, LEADER, LeaderElection, LeaseTimings, NameOwnerTimings, NameOwnerWriter};
use seaway_model::{
    Change, Fact,
    fact::{FactRef, NameOwner},
    load_balancer::HostPattern,
};
use seaway_testkit::kubernetes::client;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    policies::{by_token, connect, installed, refused},
    scene::{Heard, PATIENCE, eventually},
};

/// What is not claimed goes in the same turn in which that is seen.
const SOON: NameOwnerTimings = NameOwnerTimings { keep: Duration::ZERO, pause: Duration::from_millis(20) };

fn owner(namespace: &str, hosts: &[&str]) -> NameOwner {
    let hosts = hosts.iter().map(|it| HostPattern::Exact((*it).into())).collect();
    NameOwner { namespace: namespace.into(), hosts, paths: [format!("/{namespace}").as_str().into()].into() }
}

fn says(claimed: &[&NameOwner], recorded: &[&NameOwner]) -> Option<FirstClaims> {
    let named = |it: &&NameOwner| (it.namespace.clone(), (*it).clone());
    let recorded = recorded.iter().map(named).map(|(namespace, it)| (namespace, Arc::new(it)));
    Some(FirstClaims {
        claimed: claimed.iter().map(named).collect(),
        recorded: recorded.collect(),
        complete: true,
    })
}

fn knows(heard: &Heard, owner: &NameOwner) -> bool {
    let known = heard.facts.get(&FactRef::Object(owner.object()));
    matches!(known, Some(Fact::NameOwner(it)) if **it == *owner)
}

#[tokio::test]
async fn the_leader_records_who_claimed_a_name_first_and_hosts_read_it() {
    let Some(scene) = installed() else { return };
    scene.apply("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n");
    let kind = GroupVersionKind::gvk("seaway.dev", "v1alpha1", "NameOwner");
    let resource = ApiResource::from_gvk_with_plural(&kind, "nameowners");
    let admin: Api<DynamicObject> = Api::all_with(client(&scene.kubeconfig).await, &resource);
    let folder = tempfile::tempdir().expect("a folder");
    let control = connect(&by_token(&scene, folder.path(), "seaway-controller", &[])).await;
    let campaign = LeaderElection::start(&control, LEADER, "test", LeaseTimings::LEADER);
    campaign.leadership().changed_from(false).await;
    let second = LeaderElection::start(&control, LEADER, "second", LeaseTimings::LEADER);
    let (tell, mut told) = mpsc::channel(64);
    let keeper = NameOwnerWriter::start(&control, campaign.leadership(), SOON, tell.clone());
    let idle = NameOwnerWriter::start(&control, second.leadership(), SOON, tell);

    let (one, two, evil) =
        (owner("shop", &["a.example"]), owner("shop", &["a.example", "b.example"]), owner("evil", &[]));
    idle.set_claims(says(&[&owner("rival", &["rival.example"])], &[]));
    keeper.set_claims(says(&[&one, &evil], &[]));
    let bound = &["--bound-object-kind=Node", "--bound-object-name=a"];
    let stolen = by_token(&scene, folder.path(), "seaway-node", bound);
    let mut heard = Heard::of(&connect(&stolen).await);
    heard.until("hosts hear of it", |it| knows(it, &one) && knows(it, &evil)).await;

    // A host reads, and writes nothing of it.
    let host: Api<DynamicObject> = Api::all_with(client(&stolen).await, &resource);
    let all = host.list(&ListParams::default()).await.expect("hosts read them");
    assert_eq!(all.items.len(), 2);
    let mut forged = all.items[0].clone();
    refused(host.replace("evil", &PostParams::default(), &forged).await);
    (forged.metadata.resource_version, forged.metadata.name) = (None, Some("forged".to_owned()));
    refused(host.create(&PostParams::default(), &forged).await);
    refused(host.delete("shop", &Default::default()).await);

    // Whoever has not heard yet what is there writes nothing over it.
    let other = owner("shop", &["other.example"]);
    keeper.set_claims(says(&[&other, &evil, &owner("more", &[])], &[&two, &evil]));
    eventually("another is recorded", async || admin.get_opt("more").await.expect("is answered")).await;
    let kept = admin.get("shop").await.expect("is there");
    assert_eq!(kept.data["spec"]["hosts"], serde_json::json!(["a.example"]));
    keeper.set_claims(says(&[&two, &owner("more", &[])], &[&one, &evil, &owner("more", &[])]));
    heard.until("more is recorded", |it| knows(it, &two)).await;
    // What nobody claims goes.
    heard.until("evil claims nothing", |it| !knows(it, &evil)).await;
    assert!(admin.get_opt("evil").await.expect("is answered").is_none());

    // Nor over one of which it has not heard at all.
    scene.apply("apiVersion: seaway.dev/v1alpha1\nkind: NameOwner\nmetadata: {name: bank}\nspec: {hosts: [bank.example]}\n");
    keeper.set_claims(says(&[&two, &owner("bank", &[])], &[&two]));
    keeper.set_claims(says(&[&two, &owner("last", &[])], &[&two]));
    eventually("the last is recorded", async || admin.get_opt("last").await.expect("is answered")).await;
    assert_eq!(admin.get("bank").await.expect("is there").data["spec"]["hosts"][0], "bank.example");
    let rival = admin.get_opt("rival").await.expect("is answered");
    assert!(rival.is_none(), "who does not lead records nothing");
    second.resign().await;

    // Who may not write says so.
    scene.kubectl(&["delete", "clusterrolebinding", "seaway-controller"]);
    let mut next = 0;
    let problem = loop {
        // A role that was taken away counts a moment later.
        keeper.set_claims(says(&[&two, &owner(&format!("n{next}"), &[])], &[&two]));
        next += 1;
        match timeout(Duration::from_millis(500), told.recv()).await {
            Ok(Some(Change::Reported(_, problems))) if !problems.is_empty() => break problems[0].to_string(),
            _ => assert!(next < PATIENCE.as_secs() * 2, "nobody says so"),
        }
    };
    assert!(problem.contains("cannot be recorded") && problem.contains("oldest object"), "{problem}");
    campaign.resign().await;
}
