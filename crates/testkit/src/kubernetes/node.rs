use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    sync::Arc,
};

use super::{Cluster, kubelet::Kubelet};
use crate::topology::{Namespace, until};

/// What a node is beside its name.
#[derive(Debug, Default)]
pub struct NodeOptions {
    pub labels: BTreeMap<String, String>,
    /// One that is there already: a router's neighbour, or a port of Neutron. It is plugged into the cluster beside.
    pub namespace: Option<Namespace>,
    /// What the Node says of itself, where that is not its address within the cluster.
    pub addresses: Vec<String>,
}

/// A node. Dropping it is its death, with all its pods: to the cluster, it falls silent.
#[derive(Debug)]
pub struct Node {
    // Before the namespace that it works in.
    kubelet: Option<Kubelet>,
    place: Arc<NodeContext>,
}

/// What is known of a node by whoever works on it.
#[derive(Debug)]
pub(super) struct NodeContext {
    pub(super) name: String,
    pub(super) namespace: Namespace,
    pub(super) labels: BTreeMap<String, String>,
    /// Both families.
    pub(super) addresses: Vec<String>,
    pub(super) number: u16,
    /// The API server, as pods know it.
    pub(super) api: String,
    pub(super) kubeconfig: PathBuf,
    pub(super) proxy_kubeconfig: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) programs: PathBuf,
    /// The certificate that all trust here.
    pub(super) authority: PathBuf,
    control: Arc<Namespace>,
    port: String,
    pub(super) images: BTreeMap<String, Vec<String>>,
    pub(super) roots: BTreeMap<String, PathBuf>,
}

/// The interface that leads to the cluster: no other is called so.
const LINK: &str = "cluster0";

impl Node {
    pub(super) fn join(cluster: &Cluster, name: &str, options: NodeOptions) -> Node {
        let number = cluster.next();
        let namespace = options.namespace.unwrap_or_else(|| Namespace::create(name));
        let port = cluster.cable(&namespace, LINK, number);
        let (v4, v6) = (Ipv4Addr::new(10, 10, 1, 0), Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 1, number));
        let v4 = Ipv4Addr::from_bits(v4.to_bits() + u32::from(number));
        namespace.address(LINK, &format!("{v4}/16"));
        namespace.address(LINK, &format!("{v6}/64"));
        namespace.forward();
        // What is for a ClusterIP must have a way before kube-proxy sees it and gives it another.
        for (services, gateway) in cluster.services().zip(super::plane::ADDRESSES) {
            namespace.route(services, gateway);
            let family = if gateway.contains(':') { "-6" } else { "-4" };
            if namespace.ip(&[family, "route", "show", "default"]).is_empty() {
                namespace.route("default", gateway);
            }
        }
        let own = vec![v4.to_string(), v6.to_string()];
        let place = Arc::new(NodeContext {
            addresses: if options.addresses.is_empty() { own.clone() } else { options.addresses },
            kubeconfig: cluster.kubeconfig_inside(&format!("system:node:{name}"), &["system:nodes"]),
            proxy_kubeconfig: cluster.kubeconfig_inside("system:kube-proxy", &[]),
            folder: cluster.folder().join(name),
            api: cluster.services().next().map(first_of).unwrap_or_default(),
            programs: cluster.programs().to_owned(),
            images: cluster.images().clone(),
            roots: cluster.roots().clone(),
            authority: cluster.folder().join("certificates/ca.crt"),
            control: cluster.network().clone(),
            port,
            labels: options.labels,
            name: name.to_owned(),
            namespace,
            number,
        });
        std::fs::create_dir_all(&place.folder).expect("a temporary folder is written to");
        place.lead_pods_out();
        cluster.join_pods(&place, &own);
        let node = Node { kubelet: Some(Kubelet::start(place.clone())), place };
        // It is Ready before somebody has taken its first taint away, and gets no pods until then.
        let says = "{.status.conditions[?(@.type=='Ready')].status} {.spec.taints[*].key}";
        until("the node is Ready, for pods too", || {
            cluster.field(&format!("node/{name}"), says).is_ok_and(|it| it.trim_end() == "True")
        });
        node
    }

    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// Its network: where a `seaway node` would run, and programs of a test.
    pub fn namespace(&self) -> &Namespace {
        &self.place.namespace
    }

    /// What the Node says of itself, IPv4 first.
    pub fn addresses(&self) -> &[String] {
        &self.place.addresses
    }

    /// Stops what stands in for the kubelet, with kube-proxy and all pods, and cuts the cable: the machine is dead.
    pub fn kill(&mut self) {
        self.place.cable("down");
        self.kubelet = None;
    }

    /// What comes back after `kill`, with no pods running.
    pub fn start(&mut self) {
        self.place.cable("up");
        if self.kubelet.is_none() {
            self.kubelet = Some(Kubelet::start(self.place.clone()));
        }
    }
}

impl NodeContext {
    /// At its far end, so that the node keeps addresses and routes.
    fn cable(&self, state: &str) {
        self.control.ip(&["link", "set", &self.port, state]);
    }

    /// Of its pods.
    pub(super) fn networks(&self) -> [String; 2] {
        [format!("10.244.{}.0/24", self.number), format!("fd00:244:0:{:x}::/64", self.number)]
    }

    /// Addresses of its pod of that number.
    pub(super) fn pod_addresses(&self, pod: u16) -> [String; 2] {
        let v4 = Ipv4Addr::new(10, 244, self.number.to_be_bytes()[1], pod.to_be_bytes()[1]);
        let v6 = Ipv6Addr::new(0xfd00, 0x244, 0, self.number, 0, 0, 0, pod);
        [v4.to_string(), v6.to_string()]
    }

    /// Whoever is no part of the cluster has no way to a pod: what pods begin out there begins at their node.
    fn lead_pods_out(&self) {
        let [v4, v6] = self.networks();
        let rules = format!(
            "table inet seaway-rig {{
                chain out {{
                    type nat hook postrouting priority srcnat
                    ip saddr {v4} ip daddr != {{ 10.244.0.0/16, 10.10.0.0/17 }} masquerade
                    ip6 saddr {v6} ip6 daddr != {{ fd00:244::/48, fd00:10::/112, fd00:10::1:0/112 }} masquerade
                }}
            }}
            "
        );
        let file = self.folder.join("out.nft");
        std::fs::write(&file, rules).expect("a temporary folder is written to");
        self.namespace.run(|| crate::topology::command("nft", &["-f", &file.to_string_lossy()]));
    }
}

/// The first address of a network.
fn first_of(network: &str) -> String {
    let network = network.split('/').next().unwrap_or_default();
    let network: Ipv4Addr = network.parse().expect("services begin with a network of IPv4");
    Ipv4Addr::from_bits(network.to_bits() + 1).to_string()
}
