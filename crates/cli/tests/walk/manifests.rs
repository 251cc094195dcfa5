//! Services and who answers for them, written as a user would.

use std::net::SocketAddr;

/// A Service of type LoadBalancer with one port named `main`, and its slices.
#[derive(Clone)]
pub(crate) struct Service {
    name: String,
    namespace: &'static str,
    port: u16,
    protocol: &'static str,
    kind: &'static str,
    annotations: Vec<(String, String)>,
    spec: Vec<String>,
    slices: Vec<String>,
}

impl Service {
    pub(crate) fn tcp(name: &str, port: u16) -> Service {
        Service {
            name: name.to_owned(),
            namespace: "default",
            port,
            protocol: "TCP",
            kind: "LoadBalancer",
            annotations: Vec::new(),
            spec: Vec::new(),
            slices: Vec::new(),
        }
    }

    pub(crate) fn udp(name: &str, port: u16) -> Service {
        Service { protocol: "UDP", ..Service::tcp(name, port) }
    }

    pub(crate) fn cluster_ip(mut self) -> Service {
        self.kind = "ClusterIP";
        self
    }

    /// One that the front door takes for HTTP.
    pub(crate) fn web(name: &str) -> Service {
        Service::tcp(name, 80).cluster_ip()
    }

    pub(crate) fn within(mut self, namespace: &'static str) -> Service {
        self.namespace = namespace;
        self
    }

    /// An annotation of ours: `balance`, `drain`.
    pub(crate) fn with(mut self, option: &str, value: &str) -> Service {
        self.annotations.push((format!("seaway.dev/{option}"), value.to_owned()));
        self
    }

    /// A line of the spec: `sessionAffinity: ClientIP`.
    pub(crate) fn spec(mut self, line: &str) -> Service {
        self.spec.push(line.to_owned());
        self
    }

    pub(crate) fn to(self, at: SocketAddr) -> Service {
        self.slice(at, "", "")
    }

    pub(crate) fn all_to(self, all: &[SocketAddr]) -> Service {
        all.iter().fold(self, |service, at| service.to(*at))
    }

    pub(crate) fn weighing(self, weight: u32, at: SocketAddr) -> Service {
        self.slice(at, &format!("  annotations: {{seaway.dev/weight: \"{weight}\"}}\n"), "")
    }

    /// `ready: false, serving: true, terminating: true`
    pub(crate) fn being(self, conditions: &str, at: SocketAddr) -> Service {
        self.slice(at, "", &format!("\n  conditions: {{{conditions}}}"))
    }

    fn slice(mut self, at: SocketAddr, metadata: &str, conditions: &str) -> Service {
        let family = if at.is_ipv4() { "IPv4" } else { "IPv6" };
        let (name, namespace, number) = (&self.name, self.namespace, self.slices.len());
        self.slices.push(format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-{number}\n  namespace: {namespace}\n{metadata}  labels: {{kubernetes.io/service-name: {name}}}\naddressType: {family}\nendpoints:\n- addresses: [\"{}\"]{conditions}\nports:\n- {{name: main, protocol: {}, port: {}}}\n",
            at.ip(),
            self.protocol,
            at.port(),
        ));
        self
    }

    pub(crate) fn text(&self) -> String {
        let Service { name, namespace, port, protocol, kind, .. } = self;
        let mut text =
            format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: {namespace}\n");
        if !self.annotations.is_empty() {
            text.push_str("  annotations:\n");
        }
        for (key, value) in &self.annotations {
            text.push_str(&format!("    {key}: {value:?}\n"));
        }
        text.push_str(&format!("spec:\n  type: {kind}\n"));
        for line in &self.spec {
            text.push_str(&format!("  {line}\n"));
        }
        text.push_str(&format!("  ports:\n  - {{name: main, port: {port}, protocol: {protocol}}}\n"));
        text.push_str(&self.slices.concat());
        text
    }
}
