//! Nodes of a real API server that follow servers of the fake OpenStack.

use std::time::Duration;

use seaway_openstack::{
    neutron::Network,
    nova::{Attachment, NewServer, Server},
    resource::{Id, Query},
};
use seaway_testkit::topology::{until, until_within};

use crate::{
    octavia::{Project, in_a_cloud},
    scene::{CONTROLLER, Scene},
};

const NODES: &str = "{defaultDriver: none, admin: {listen: [\"127.0.0.1:0\"]}, nodes: {deletionGrace: 10s}}";
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn boot(project: &Project, name: &str) -> Id<Server> {
    project.runtime.block_on(async {
        let named = Query::named("nodes");
        let network =
            project.cloud.all::<Network>().list::<Network>(named).await.expect("networks").remove(0).id;
        let new = NewServer {
            flavor_id: "2".to_owned().into(),
            image_id: "c3b1a5e0-2f5b-4d55-9a0b-8f1b0c0e0001".to_owned().into(),
            networks: vec![Attachment::Network(network)].into(),
            ..NewServer::new(name.to_owned())
        };
        project.cloud.all::<Server>().create(&new).await.expect("a server").id
    })
}

pub(crate) fn node(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}

/// As a kubelet does.
fn report(scene: &Scene, name: &str, ready: &str) {
    let status =
        format!(r#"{{"status":{{"conditions":[{{"type":"Ready","status":"{ready}","reason":"Test"}}]}}}}"#);
    let patch = ["patch", "node", name, "--subresource=status", "--type=strategic", "-p", &status];
    scene.cluster.kubectl_process(&patch, "").expect("it is written");
}

pub(crate) fn occm(renewed: &str) -> String {
    format!(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: cloud-controller-manager, namespace: kube-system}}\n\
         spec: {{holderIdentity: occm-host_1, leaseDurationSeconds: 15, acquireTime: {renewed}, renewTime: {renewed}}}\n"
    )
}

#[test]
fn nodes_of_a_real_api_server_are_initialised_and_go_with_their_servers() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    let roles = include_str!("../../../../deploy/kubernetes/components/openstack-nodes/openstack-nodes.yaml");
    let roles = roles.replace(
        "kind: ServiceAccount, name: seaway-controller, namespace: seaway-system",
        "kind: User, name: seaway-controller, apiGroup: rbac.authorization.k8s.io",
    );
    scene.cluster.kubectl(&["create", "namespace", "seaway-system"]);
    scene.cluster.apply(&roles);
    let leader = ["create", "rolebinding", "nodes-leader", "--clusterrole=seaway-cloud-nodes-leader"];
    scene.cluster.kubectl(&[&leader[..], &[&format!("--user={CONTROLLER}")]].concat());

    let servers = ["web-1", "web-2"].map(|name| boot(&project, name));
    let taint = "taints: [{key: node.cloudprovider.kubernetes.io/uninitialized, value: \"true\", effect: NoSchedule}, \
                 {key: mine, effect: NoSchedule}]";
    for name in ["web-1", "web-2"] {
        scene.cluster.apply(&node(name, taint));
    }
    scene.cluster.apply(&node("elsewhere", "providerID: \"aws:///eu/i-1\""));
    // Nothing renews it here, and it must not end while this machine is slow.
    let ahead = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    scene.cluster.apply(&occm(&ahead.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()));
    scene.configuration = NODES;
    scene.controllers = "cloud-node,cloud-node-lifecycle";
    scene.lead("controller");
    // Beside OpenStack's own, nothing is written.
    until("the other controller is named", || {
        scene.log("controller").contains("occm-host_1 holds the Lease")
    });
    assert_eq!(scene.field("node/web-1", "{.spec.providerID}"), "");
    scene.cluster.kubectl(&["delete", "lease", "cloud-controller-manager", "-n", "kube-system"]);
    for (name, id) in ["web-1", "web-2"].into_iter().zip(&servers) {
        let wanted = format!("openstack:///{id}");
        let has = || scene.field(&format!("node/{name}"), "{.spec.providerID}") == wanted;
        until_within(PATIENCE, "it is initialised", has);
    }
    let of = |path: &str| scene.field("node/web-1", path);
    let taints = of("{.spec.taints[*].key}");
    assert!(taints.contains("mine") && !taints.contains("uninitialized"), "{taints}");
    assert!(
        of("{.status.addresses[?(@.type==\"InternalIP\")].address}").starts_with("10."),
        "{}",
        of("{.status}")
    );
    assert_eq!(of("{.metadata.labels['node\\.kubernetes\\.io/instance-type']}"), "m1.small");
    assert_eq!(of("{.metadata.labels['topology\\.kubernetes\\.io/zone']}"), "nova");
    assert_eq!(scene.leader(), "", "nobody serves Services");

    // A server that was deleted, one that runs while its kubelet is silent, and a Node of another provider.
    for name in ["web-2", "elsewhere", "web-1"] {
        report(&scene, name, "Unknown");
    }
    project.runtime.block_on(project.cloud.all::<Server>().delete(&servers[0])).expect("it goes");
    // The fake deletes it when it was looked at.
    let found = || project.runtime.block_on(project.cloud.all::<Server>().find::<Server>(&servers[0]));
    until("the server is gone", || found().expect("an answer").is_none());
    until_within(PATIENCE, "its Node is deleted", || scene.is_gone("node/web-1"));
    assert!(!scene.is_gone("node/web-2") && !scene.is_gone("node/elsewhere"));
    assert_eq!(scene.field("node/elsewhere", "{.metadata.labels}"), "");
    until("an event tells it", || {
        let events =
            scene.cluster.kubectl(&["get", "events", "-n", "default", "-o", "jsonpath={.items[*].reason}"]);
        events.contains("NodeDeleted") && events.contains("NodeInitialized")
    });
    let counted = scene.field("configmap/seaway-deletions", "{.data.nodes}");
    assert!(counted.contains("Node web-1"), "{counted}");
}
