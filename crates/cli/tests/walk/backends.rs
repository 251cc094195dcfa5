//! Small servers to balance, and the manifests that name them.

use std::net::{IpAddr, SocketAddr};

pub(crate) use seaway_testkit::topology::{Backend, Datagrams, Talk, Web, ask, connect_from};

/// A Service of type LoadBalancer and a slice for each backend (each has a port of its own).
pub(crate) fn manifest(
    name: &str,
    port: u16,
    annotations: &[(&str, &str)],
    backends: &[SocketAddr],
) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations:\n    a.example/b: c\n"
    );
    for (key, value) in annotations {
        text.push_str(&format!("    {key}: {value:?}\n"));
    }
    text.push_str(&format!(
        "spec:\n  type: LoadBalancer\n  ports:\n  - {{name: main, port: {port}, protocol: TCP}}\n"
    ));
    text.push_str(&slices(name, "TCP", backends));
    text
}

pub(crate) fn slices(name: &str, protocol: &str, backends: &[SocketAddr]) -> String {
    let mut text = String::new();
    for (index, at) in backends.iter().enumerate() {
        let family = if matches!(at.ip(), IpAddr::V4(_)) { "IPv4" } else { "IPv6" };
        text.push_str(&format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-{index}\n  labels: {{kubernetes.io/service-name: {name}}}\naddressType: {family}\nendpoints:\n- addresses: [\"{}\"]\nports:\n- {{name: main, protocol: {protocol}, port: {}}}\n",
            at.ip(),
            at.port(),
        ));
    }
    text
}
