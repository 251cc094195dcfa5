//! What the control plane is full of.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::contender::seaway::LARGE_MEMBERS_PORT;

/// The host, which is a Node, so that members are pods.
pub const HOST: &str = "bench";
pub const NODES: &str = "/api/v1/nodes";
pub const SERVICES: &str = "/api/v1/namespaces/default/services";
pub const ADDRESSES: &str = "/apis/seaway.dev/v1alpha1/addresses";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Enough for all Services.
pub const POOL: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: bench}
spec: {addresses: [198.18.0.0/16]}
";

pub fn name(service: usize) -> String {
    format!("service-{service:05}")
}

pub fn service(index: usize) -> (String, Value) {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name(index), "labels": { "app": name(index), "tier": "bench" } },
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": false,
            "ports": [{ "name": "web", "port": 80, "targetPort": LARGE_MEMBERS_PORT }],
        },
    });
    (SERVICES.to_owned(), object)
}

/// The addresses of its three pods.
pub fn endpoints(service: usize) -> Vec<Ipv4Addr> {
    let first = u32::from(Ipv4Addr::new(10, 244, 0, 1)) + 3 * service as u32;
    (first..first + 3).map(Ipv4Addr::from).collect()
}

/// An address that is no pod of any Service yet.
pub fn newcomer(change: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 245, 0, 1)) + change as u32)
}

pub fn slice(service: usize) -> (String, Value) {
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name(service),
            "labels": { "kubernetes.io/service-name": name(service) },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "web", "port": LARGE_MEMBERS_PORT, "protocol": "TCP" }],
        "endpoints": listed(&endpoints(service)),
    });
    (SLICES.to_owned(), object)
}

/// Where and how the pods of a Service become others.
pub fn moved(service: usize, pods: &[Ipv4Addr]) -> (String, Value) {
    (format!("{SLICES}/{}", name(service)), json!({ "endpoints": listed(pods) }))
}

fn listed(pods: &[Ipv4Addr]) -> Vec<Value> {
    let ready = json!({ "ready": true, "serving": true, "terminating": false });
    pods.iter().map(|pod| json!({ "addresses": [pod], "conditions": ready, "nodeName": HOST })).collect()
}

pub fn node(name: &str) -> (String, Value) {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
    });
    (NODES.to_owned(), object)
}

/// What a kubelet writes every few minutes, and whenever something is so.
pub fn heartbeat(beat: usize) -> Value {
    let at = format!("2030-01-01T{:02}:{:02}:{:02}Z", beat / 3_600 % 24, beat / 60 % 60, beat % 60);
    let ready = json!({
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastHeartbeatTime": at,
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    });
    json!({ "status": {
        "conditions": [ready],
        "addresses": [{ "type": "InternalIP", "address": "10.10.0.1" }],
    } })
}
