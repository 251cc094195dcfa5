//! Of the parts of a cluster: a controller, and a host.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, ValueEnum};

use super::{Logging, controllers::Controllers};

/// A part of a cluster.
#[derive(Debug, Args)]
pub(crate) struct ProcessArgs {
    /// The configuration file [default: none; `seaway config --example` prints one]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The kubeconfig [default: kubectl's; in a pod, its ServiceAccount]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub(crate) context: Option<String>,
    /// The namespace of Seaway's Leases [default: the pod's namespace, else seaway-system]
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// The name of this host: that of its Node, if it is one [default: `host` of the configuration, else the
    /// machine's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) host: Option<String>,
    /// Of a node: where it keeps what it knows
    #[arg(skip)]
    pub(crate) snapshot: Option<PathBuf>,
    /// Of a node: where the next process finds it
    #[arg(skip)]
    pub(crate) handover: Option<PathBuf>,
    /// Of a controller
    #[arg(skip)]
    pub(crate) cloud: CloudArgs,
    #[command(flatten)]
    pub(crate) pod: Pod,
    #[command(flatten)]
    pub(crate) log: Logging,
}

#[derive(Debug, Args)]
pub(crate) struct Controller {
    #[command(flatten)]
    pub(crate) member: ProcessArgs,
    #[command(flatten)]
    pub(crate) cloud: CloudArgs,
}

/// Where load balancers of class seaway.dev/octavia are made.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CloudArgs {
    /// The cloud.conf of OpenStack's cloud controller manager: Services of class seaway.dev/octavia get load balancers
    /// in that cloud
    #[arg(long, value_name = "FILE", alias = "cloud-conf")]
    pub(crate) cloud_config: Option<PathBuf>,
    /// The name of this cluster in names of load balancers
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub(crate) cluster_name: String,
    /// Which controllers run, by the names of OpenStack's cloud controller manager: service, cloud-node,
    /// cloud-node-lifecycle, route; * for all, -NAME for all but one. Each has a Lease of its own
    #[arg(long, value_name = "LIST", default_value = "service")]
    pub(crate) controllers: Controllers,
    /// Write providerIDs with the region: openstack://REGION/ID
    #[arg(long, env = "OS_CCM_REGIONAL")]
    pub(crate) regional_provider_ids: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(flatten)]
    pub(crate) member: ProcessArgs,
    /// Set the ARP settings of this machine that node needs, and exit: for an init container, as they are read-only in
    /// other containers
    #[arg(long)]
    pub(crate) prepare: bool,
    /// The file for the last known state of the cluster, with Secrets, for a start without an API server [default:
    /// /run/seaway/NAME.snapshot for root, else below $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
    /// The folder, for root alone, where the next process of this host finds this one and takes its sockets and addresses over:
    /// in memory, and the same for both [default: none, and the next one begins once this one has ended]
    #[arg(long, value_name = "DIR")]
    pub(crate) handover: Option<PathBuf>,
}

/// What a kubelet asks a process of the same pod.
#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// What is asked
    #[arg(value_name = "WHAT")]
    pub(crate) what: ProbeKind,
    /// The --probe-socket of the process
    #[arg(long, value_name = "FILE", default_value = "/run/seaway/probes.sock")]
    pub(crate) socket: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeKind {
    /// Whether no part of it hangs
    Live,
    /// Whether it serves, or leads or is on standby
    Ready,
}

/// Which pod this is, told by its manifest: whoever may `get` `pods/proxy` reads its status page.
#[derive(Debug, Default, Args)]
pub(crate) struct Pod {
    /// The pod's address, for probes and, on hosts, for the read-only status page
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    pub(crate) pod_address: Option<IpAddr>,
    /// The port for /live and /ready alone, on loopback and at the pod's address: for the kubelet's probes
    #[arg(long, value_name = "PORT", value_parser = super::port)]
    pub(crate) probe_port: Option<u16>,
    /// The socket for /live and /ready alone, in a folder of this pod's own: for probes by exec, `seaway probe`, where two pods
    /// share the ports of a machine
    #[arg(long, value_name = "FILE")]
    pub(crate) probe_socket: Option<PathBuf>,
    /// The pod's name
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(crate) pod_name: Option<String>,
    /// The pod's namespace
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pub(crate) pod_namespace: Option<String>,
}
