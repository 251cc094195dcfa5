use std::time::Duration;

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::kubernetes::node::NodeContext;

/// A kubelet renews every ten seconds; silence is noticed sooner here.
const BEAT: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(200);

/// Makes the Node, or what is missing of it, until that is done.
pub(super) async fn register(place: &NodeContext, client: &Client, logs: u16) {
    let nodes: Api<Node> = Api::all(client.clone());
    let networks = place.networks();
    let mut labels = json!({
        "kubernetes.io/hostname": place.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"
    });
    for (name, value) in &place.labels {
        labels[name] = json!(value);
    }
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": place.name, "labels": labels},
        "spec": {"podCIDR": networks[0], "podCIDRs": networks},
    }))
    .expect("a Node");
    loop {
        let made = match nodes.create(&Default::default(), &node).await {
            // It was there before its kubelet, as after a restart.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        };
        if made.is_ok() && tell(place, &nodes, logs).await.is_ok() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Renews the lease for ever, and the status now and then.
pub(super) async fn beat(place: &NodeContext, client: &Client, logs: u16) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let nodes: Api<Node> = Api::all(client.clone());
    let mut clock = tokio::time::interval(BEAT);
    for beat in 1_u32.. {
        clock.tick().await;
        // One that is lost is made good by the next.
        let _ = renew(place, &leases).await;
        if beat.is_multiple_of(10) {
            let _ = tell(place, &nodes, logs).await;
        }
    }
}

async fn renew(place: &NodeContext, leases: &Api<Lease>) -> Result<(), kube::Error> {
    let spec = json!({
        "holderIdentity": place.name, "leaseDurationSeconds": 40, "renewTime": format!("{:.6}", Timestamp::now())
    });
    let patch = Patch::Merge(json!({"spec": spec}));
    match leases.patch(&place.name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let lease = serde_json::from_value(json!({"metadata": {"name": place.name}, "spec": spec}));
            leases.create(&Default::default(), &lease.expect("a Lease")).await.map(drop)
        }
        other => other.map(drop),
    }
}

async fn tell(place: &NodeContext, nodes: &Api<Node>, logs: u16) -> Result<(), kube::Error> {
    let patch = Patch::Strategic(json!({"status": status(place, logs)}));
    nodes.patch_status(&place.name, &PatchParams::default(), &patch).await.map(drop)
}

fn status(place: &NodeContext, logs: u16) -> Value {
    let now = format!("{:.0}", Timestamp::now());
    let mut addresses: Vec<Value> =
        place.addresses.iter().map(|it| json!({"type": "InternalIP", "address": it})).collect();
    addresses.push(json!({"type": "Hostname", "address": place.name}));
    // Merged by their types, two of one type would be refused (kubernetes/kubernetes#79391).
    addresses.push(json!({"$patch": "replace"}));
    let capacity = json!({"cpu": "64", "memory": "64Gi", "pods": "250", "ephemeral-storage": "64Gi"});
    let healthy = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": now});
    json!({
        "addresses": addresses,
        "capacity": capacity,
        "allocatable": capacity,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": logs}},
        "conditions": [
            healthy("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            healthy("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            healthy("PIDPressure", "False", "KubeletHasSufficientPID"),
            healthy("Ready", "True", "KubeletReady"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "bootID": "rig", "machineID": place.name,
            "systemUUID": place.name, "kernelVersion": "rig", "osImage": "a network namespace",
            "containerRuntimeVersion": "rig://0", "kubeletVersion": "v1.36.3", "kubeProxyVersion": "",
        },
    })
}
