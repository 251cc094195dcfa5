//! Members that are machines, Seaway itself, or others' addresses.

use crate::{
    addresses::with,
    cluster::{MACHINE, Shared},
    scene::service,
};

/// Services whose members are written by hand: name, kind of address, address with what stands beside it, port, Problem.
fn all(shared: &Shared) -> Vec<(&'static str, &'static str, String, u16, &'static str)> {
    let node = shared.door.ip();
    let shop = shared.shop.ip();
    let cluster_ip = |namespace: &str, service: &str| {
        let asked = ["-n", namespace, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}"];
        format!("addresses: [{}]", shared.scene.cluster.kubectl(&asked))
    };
    vec![
        (
            "kubelet",
            "IPv4",
            format!("addresses: [{node}], nodeName: a"),
            10_250,
            "reserved for Node a itself",
        ),
        ("machine", "IPv4", format!("addresses: [{node}]"), MACHINE[1], "does not have its nodeName"),
        ("page", "IPv4", format!("addresses: [{node}], nodeName: a"), 1_936, "reserved for Node a itself"),
        ("ring", "IPv4", format!("addresses: [{shop}]"), 80, "an address that Seaway publishes"),
        ("inward", "IPv4", cluster_ip("shop", "shop"), 80, "the ClusterIP of a Service of another namespace"),
        (
            "api",
            "IPv4",
            cluster_ip("default", "kubernetes"),
            443,
            "the ClusterIP of Service default/kubernetes",
        ),
        ("named", "FQDN", "addresses: [localhost.example]".to_owned(), 22, "is not looked up"),
    ]
}

/// Ports of all Nodes that health checks are to dial.
const PROBED: [u16; 2] = [10_250, MACHINE[1]];

fn probe(port: u16) -> String {
    format!("probe-{port}")
}

pub(crate) fn tries(shared: &Shared) {
    let link_local = slice("metadata", "IPv4", "addresses: [169.254.169.254]", 80);
    let answer = shared.attempt(&["-n", "evil", "apply", "-f", "-"], &link_local);
    let error = answer.expect_err("the metadata of a cloud is no endpoint");
    assert!(error.contains("link-local"), "{error}");
    let all = all(shared);
    let manifests = all.iter().map(|(name, kind, endpoint, port, _)| {
        format!("{}---{}", service(name, ""), slice(name, kind, endpoint, *port))
    });
    shared.applies(&manifests.collect::<Vec<_>>().join("---"));
    let probes = PROBED.map(|port| {
        let check = format!("seaway.dev/health-check-port: \"{port}\", seaway.dev/health-check-path: /stats");
        with(&probe(port), &format!("seaway.dev/members: nodes, {check}"), "selector: {app: evil}")
    });
    shared.applies(&probes.join("---"));
    for port in PROBED {
        shared.is_refused(&probe(port), &format!("port {port} is not a node port of this Service"));
    }
    for (name, .., why) in all {
        shared.is_refused(name, why);
    }
}

fn slice(name: &str, kind: &str, endpoint: &str, port: u16) -> String {
    format!(
        "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: {kind}
endpoints: [{{{endpoint}}}]
ports: [{{port: {port}, protocol: TCP}}]
"
    )
}

/// None of these leads anywhere.
pub(crate) fn hold(shared: &Shared) {
    for (name, ..) in all(shared) {
        let at = shared.address_now("evil", name);
        if !at.is_empty() {
            let answer = shared.asks(&at, 80);
            assert!(answer.is_err(), "{name}: {answer:?}");
        }
    }
}
