//! The key of hosts that announce addresses, made by the controller that leads.

use std::path::Path;

use seaway_cluster::{Cluster, ClusterAccess, CredentialSource, Leadership, make_layer2_key};
use seaway_testkit::kubernetes::Gate;

use crate::scene::{PACE, Scene, eventually};

const COMPONENT: &str = include_str!("../../../../deploy/kubernetes/components/layer2/key.yaml");

async fn connect(kubeconfig: &Path, namespace: &str) -> Cluster {
    let credentials = CredentialSource::Kubeconfig { path: kubeconfig.to_owned(), context: None };
    let namespace = Some(namespace.into());
    let access = ClusterAccess { credentials, namespace, metallb: "".into(), copies: None, pace: PACE };
    Cluster::connect(access).await.expect("the kubeconfig is good")
}

#[tokio::test]
async fn a_key_is_made_where_there_is_none_and_one_in_use_is_never_replaced() {
    let Some(scene) = Scene::up("layer2-key") else { return };
    let key = || {
        let path = "jsonpath={.data.key}";
        scene.here(&["get", "secret", "seaway-layer2", "--ignore-not-found", "-o", path])
    };
    let gate = Gate::here(&scene.kubeconfig);
    let creates = format!("POST /api/v1/namespaces/{}/secrets", scene.namespace);
    let lead = async |requests: usize| {
        let cluster = connect(gate.kubeconfig(), &scene.namespace).await;
        let leads = tokio::spawn(make_layer2_key(cluster, Leadership::always()));
        eventually("it has asked", async || (gate.count(&creates) == requests).then_some(())).await;
        leads.abort();
    };
    lead(1).await;
    // 64 digits, as base64.
    eventually("the key is there", async || (key().len() == 88).then_some(())).await;

    // Another one leads; somebody has put a key of their own.
    let theirs = "{\"stringData\":{\"key\":\"mine\"}}";
    scene.here(&["patch", "secret", "seaway-layer2", "--type=merge", "-p", theirs]);
    lead(2).await;
    assert_eq!(key(), "bWluZQ==");
}

#[test]
fn whoever_makes_the_key_may_do_nothing_else_with_secrets() {
    let Some(scene) = Scene::up("layer2-rights") else { return };
    scene.apply_here(&COMPONENT.replace("seaway-system", &scene.namespace));
    let may = |verb: &str, namespace: &str| {
        let who = format!("system:serviceaccount:{}:seaway-controller", scene.namespace);
        let asks = ["auth", "can-i", verb, "secrets", "-n", namespace, "--as", &who];
        scene.try_kubectl(&asks, "").is_ok_and(|it| it.trim() == "yes")
    };
    assert!(may("create", &scene.namespace));
    for verb in ["get", "list", "watch", "update", "patch", "delete"] {
        assert!(!may(verb, &scene.namespace), "{verb}");
    }
    assert!(!may("create", "default"));
}
