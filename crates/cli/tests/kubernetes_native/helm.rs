//! The chart in a real cluster. `SEAWAY_HELM` names the program that `rig/helm/install` built.

use std::process::Command;

use seaway_testkit::{skip, topology::until_within};

use crate::{
    kustomize::deploy,
    scene::{A_TERM, Scene},
    shared_image::run,
};

const NAMESPACE: &str = "lb";

#[test]
fn helm_installs_upgrades_and_removes_seaway_and_leaves_the_definitions() {
    let Some(program) = std::env::var_os("SEAWAY_HELM") else {
        return skip(None, "SEAWAY_HELM names no Helm: ./test kubernetes builds one, or rig/helm/install");
    };
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    let home = tempfile::tempdir().expect("a folder");
    let helm = |arguments: &[&str]| {
        let mut helm = Command::new(&program);
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(folder, home.path());
        }
        helm.args(arguments).args(["--namespace", NAMESPACE]).env("KUBECONFIG", scene.cluster.kubeconfig());
        run(helm.current_dir(deploy().join("../helm")))
    };
    let kubectl = |arguments: &[&str]| {
        scene.cluster.try_kubectl(&[arguments, &["-n", NAMESPACE]].concat(), "").unwrap_or_default()
    };
    scene.cluster.kubectl(&["create", "namespace", NAMESPACE]);
    let permitted = "pod-security.kubernetes.io/enforce=privileged";
    scene.cluster.kubectl(&["label", "namespace", NAMESPACE, permitted, "--overwrite"]);

    let said = helm(&["install", "seaway", "seaway", "--set", "configuration.quarantine=2h"]);
    let notes = said.split("\nNOTES:\n").nth(1).expect("notes");
    assert!(notes.contains("kind: AddressPool") && notes.contains("kubectl -n lb rollout"), "{notes}");
    let ready = ["get", "daemonset/seaway-node", "-o", "jsonpath={.status.numberReady}"];
    until_within(A_TERM, "the host is ready", || kubectl(&ready) == "1");
    let leader = ["get", "lease/seaway-controller", "-o", "jsonpath={.spec.holderIdentity}"];
    until_within(A_TERM, "a controller leads", || kubectl(&leader).starts_with("seaway-controller-"));

    let cloud =
        "configuration.drain=10s,openstack.enabled=true,openstack.secretName=my-cloud,hosts.enabled=false";
    let said = helm(&["upgrade", "seaway", "seaway", "--reset-then-reuse-values", "--set", cloud]);
    assert!(said.contains("create secret generic my-cloud --from-file=cloud.conf"), "{said}");
    let written = kubectl(&["get", "configmap/seaway", "-o", "jsonpath={.data.seaway\\.yaml}"]);
    assert!(written.contains("drain: 10s") && written.contains("quarantine: 2h"), "{written}");
    until_within(A_TERM, "the hosts are gone", || kubectl(&["get", "daemonset"]).is_empty());

    // Back to an older chart, and forth again: definitions stay what they are, with all that was made of them.
    let pool =
        "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: kept}\nspec: {hosts: true}\n";
    scene.cluster.apply(pool);
    for definitions in ["definitions=false", "definitions=true"] {
        helm(&["upgrade", "seaway", "seaway", "--reset-then-reuse-values", "--set", definitions]);
        assert!(!scene.is_gone("addresspool/kept"), "{definitions}");
    }

    helm(&["uninstall", "seaway"]);
    assert!(!scene.is_gone("addresspool/kept"), "pools would go with it");
    until_within(A_TERM, "the controllers are gone", || kubectl(&["get", "deployment"]).is_empty());
    // What the chart leaves.
    scene.cluster.kubectl(&["delete", "namespace", NAMESPACE]);
}
