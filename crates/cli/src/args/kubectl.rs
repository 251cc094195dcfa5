//! `kubectl seaway`: the same binary, called `kubectl-seaway`; or `seaway kubectl`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::{CloudCredentialArgs, Output};

/// Inspect Seaway in a cluster (Services, hosts, pools) and drain hosts.
///
/// kubectl finds the plugin by its name: a copy of `seaway`, or a link to it, in $PATH, that is called kubectl-seaway:
///
///     ln -s "$(command -v seaway)" /usr/local/bin/kubectl-seaway
///
///     kubectl seaway status                    Services, hosts and pools
///     kubectl seaway explain service shop      why this address, these members, these hosts
///     kubectl seaway drain node-7              no new connections there; open ones may finish
///
///     kubectl seaway release shop              release a Service whose load balancer in a cloud no setting wants any more
///     kubectl seaway host forget node-7        that machine is off permanently: its addresses may be assigned to others
///
/// Only `drain`, `undrain`, `release` and `host forget` write. The ClusterRole seaway-viewer allows what the others read.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-seaway",
    bin_name = "kubectl seaway",
    version = crate::version::LONG,
    verbatim_doc_comment,
    max_term_width = 110
)]
pub(crate) struct Plugin {
    #[command(flatten)]
    pub(crate) kubectl: Kubectl,
}

#[derive(Debug, Args)]
pub(crate) struct Kubectl {
    #[command(subcommand)]
    pub(crate) command: KubectlCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KubectlCommand {
    /// List Services with their addresses and hosts; hosts, pools, and the leader
    ///
    /// READY is the condition that the controller wrote; HOSTS are those that accept new connections; OPEN and TOTAL are
    /// connections, read now from the hosts' status pages through the API server (`pods/proxy`), if you have that
    /// permission. The exit status is 0 whatever it finds.
    Status(Status),
    /// Explain why a Service has this address, these members and these hosts, and why not others
    ///
    ///     kubectl seaway explain service shop
    ///     kubectl seaway explain -n infra dns
    #[command(verbatim_doc_comment)]
    Explain(Explain),
    /// Stop new connections to a host; open ones may finish
    ///
    /// The host closes its listeners and keeps its addresses for open connections, for the time in `seaway.dev/drain` of each
    /// Service. Pools of hosts' own addresses publish those of the other hosts. `kubectl seaway status` shows the open
    /// connections that are left.
    Drain(Host),
    /// End the drain of a host
    Undrain(Host),
    /// Manage hosts that are silent
    #[command(subcommand)]
    Host(HostCommand),
    /// Release Services whose load balancer in a cloud another controller is to manage
    ///
    /// If no setting gives a Service to the cloud any more, for example after `defaultDriver: octavia` was removed, it gets the
    /// Problem "Released": its load balancer and its address stay as they are, and a finalizer holds the Service, so that they
    /// are deleted with it. `release` removes that finalizer. From then on the default driver serves the Service, at another
    /// address; what the cloud has for it stays until the Service is deleted. Nothing is written without --yes.
    ///
    /// The command first prints what the cloud provider's controller would do differently with each of them. With the
    /// credentials of the cloud, the same write sets or corrects the annotation load-balancer-id.
    ///
    /// The class of a Service with `loadBalancerClass: seaway.dev/octavia` cannot be changed, and the cloud provider's controller
    /// serves no Service with a class. Release such a Service by its name, with the credentials of the cloud: this removes
    /// Seaway's tags from its load balancer. Seaway then neither deletes it nor updates its ports and Nodes. The command first
    /// prints how another controller can adopt it.
    ///
    ///     kubectl seaway release shop                              list the changes
    ///     kubectl seaway release shop --cloud-config cloud.conf      and the differences in the cloud
    ///     kubectl seaway release shop --cloud-config cloud.conf --yes
    ///     kubectl seaway release --all --yes                       all of them, in all namespaces
    #[command(verbatim_doc_comment)]
    Release(Release),
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Forget a host that is off permanently, so that its addresses can be assigned again
    ///
    /// A silent host may have lost only its connection to the API server, and still serve clients. So its addresses, once
    /// released, are assigned to no other Service before the host answers, its Node is deleted or the quarantine (`quarantine`, 1 h)
    /// is over. This command deletes its LoadBalancerHost, which ends the wait. It refuses a host that is alive: that would
    /// write its LoadBalancerHost again.
    Forget(Host),
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) reach: ClusterArgs,
    /// Services of this namespace only
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Services of all namespaces [default]
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// The output format: a table, or JSON
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) reach: ClusterArgs,
    /// [service] NAME or NAMESPACE/NAME
    #[arg(value_name = "SERVICE", num_args = 1..=2, required = true)]
    pub(crate) what: Vec<String>,
    /// The Service's namespace [default: that of the kubeconfig's context]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) reach: ClusterArgs,
    /// [service] NAME or NAMESPACE/NAME
    #[arg(value_name = "SERVICE", num_args = 1..=2, required_unless_present = "all")]
    pub(crate) what: Vec<String>,
    /// The Service's namespace [default: that of the kubeconfig's context]
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with = "all")]
    pub(crate) namespace: Option<String>,
    /// All Services with the Problem
    #[arg(long, conflicts_with = "what")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) which: CloudCredentialArgs,
    /// Write the changes
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Host {
    #[command(flatten)]
    pub(crate) reach: ClusterArgs,
    /// The host, as in `kubectl seaway status`: the name of its LoadBalancerHost
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
}

/// Which cluster, and how Seaway is run there.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig [default: kubectl's]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of Seaway's Leases
    #[arg(long, value_name = "NAMESPACE", default_value = "seaway-system")]
    pub(crate) system_namespace: String,
    /// The configuration of Seaway in that cluster [default: its defaults, and what the cluster shows]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
