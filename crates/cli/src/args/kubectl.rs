//! `kubectl seaway`: the same binary, called `kubectl-seaway`; or `seaway kubectl`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::{Output, WhichCloud};

/// See how Seaway stands in a cluster: Services, hosts, pools; and take a host out for a while.
///
/// kubectl finds it by its name: a copy of, or a link to, `seaway` that is called kubectl-seaway, in $PATH:
///
///     ln -s "$(command -v seaway)" /usr/local/bin/kubectl-seaway
///
///     kubectl seaway status                    everything at one glance
///     kubectl seaway explain service shop      why this address, these members, these hosts
///     kubectl seaway drain node-7              nobody new there; who is connected may finish
///
///     kubectl seaway release shop              give up the load balancer of a cloud that no setting wants any more
///     kubectl seaway host forget node-7        that machine is off for good: what it held may be others'
///
/// Nothing is written but by `drain`, `undrain`, `release` and `host forget`. The ClusterRole seaway-viewer allows what the others read.
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
    /// Services with their addresses and who serves them; hosts, pools, who leads
    ///
    /// READY is what the controller wrote; HOSTS are those that take somebody new; OPEN and TOTAL are connections,
    /// read at this moment from the hosts' own status pages through the API server (`pods/proxy`), where that may be.
    /// Exits with 0 whatever it finds.
    Status(Status),
    /// Why a Service has this address, these members and these hosts, and why not others
    ///
    ///     kubectl seaway explain service shop
    ///     kubectl seaway explain -n infra dns
    #[command(verbatim_doc_comment)]
    Explain(Explain),
    /// Let a host serve nobody new, while who is connected may finish
    ///
    /// Its sockets close, its addresses stay for who is connected: as long as `seaway.dev/drain` of each Service says.
    /// Pools of hosts' own addresses publish those of the others. `kubectl seaway status` tells when nobody is left.
    Drain(Host),
    /// Let a host serve again
    Undrain(Host),
    /// Hosts that are not heard of any more
    #[command(subcommand)]
    Host(HostCommand),
    /// Stop holding Services whose load balancer in a cloud is to be another controller's
    ///
    /// A Service that no setting gives to the cloud any more has the Problem "Released": after `defaultDriver: octavia` was taken away, its load balancer and its
    /// address are left as they are, and it is held by a finalizer, so that they go with it. `release` takes that finalizer
    /// away. Whichever driver is the default serves the Service from then on, at an address of its own; what the cloud has
    /// for it stays until the Service is deleted. Nothing is written without --yes.
    ///
    /// What the cloud provider's controller would do otherwise with each of them is said beforehand. With the credentials of the
    /// cloud, its annotation load-balancer-id is written, or corrected, in the same write.
    ///
    /// The class of a Service with `loadBalancerClass: seaway.dev/octavia` cannot be changed, and the cloud provider's controller
    /// serves none with a class. Such a Service is released by its name, and with the credentials of the cloud: Seaway's tags
    /// are taken off its load balancer, which nothing of Seaway deletes any more, and nobody follows its ports and Nodes until
    /// another controller does. How that comes by it is said beforehand.
    ///
    ///     kubectl seaway release shop                              what would be written
    ///     kubectl seaway release shop --cloud-conf cloud.conf      what differs in the cloud, too
    ///     kubectl seaway release shop --cloud-conf cloud.conf --yes
    ///     kubectl seaway release --all --yes                       all of them, in all namespaces
    #[command(verbatim_doc_comment)]
    Release(Release),
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Forget a host that is off for good: what it may hold may be others' from then on
    ///
    /// A host that is not heard of any more may have lost its way to the API server alone, and go on serving clients. So its
    /// addresses, once they are released, are given to no other Service before it answers, its Node is deleted or the
    /// quarantine is over (an hour, a setting). This deletes its LoadBalancerHost, and ends that. A host that lives is not
    /// forgotten: it would write itself again.
    Forget(Host),
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Services of this namespace alone
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Of all namespaces, as it is without this
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// As a table for people, or as JSON for programs
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// [service] NAME, or NAMESPACE/NAME
    #[arg(value_name = "SERVICE", num_args = 1..=2, required = true)]
    pub(crate) what: Vec<String>,
    /// Of the Service [default: that of the kubeconfig's context]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// [service] NAME, or NAMESPACE/NAME
    #[arg(value_name = "SERVICE", num_args = 1..=2, required_unless_present = "all")]
    pub(crate) what: Vec<String>,
    /// Of the Service [default: that of the kubeconfig's context]
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with = "all")]
    pub(crate) namespace: Option<String>,
    /// All Services that have the Problem
    #[arg(long, conflicts_with = "what")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) which: WhichCloud,
    /// Write it
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Host {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// As `kubectl seaway status` calls it: its LoadBalancerHost
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
}

/// Which cluster, and how Seaway is run there.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// How the API server is reached [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where Seaway's Leases are
    #[arg(long, value_name = "NAMESPACE", default_value = "seaway-system")]
    pub(crate) system_namespace: String,
    /// The configuration that Seaway is run with there; without it, defaults, and what can be seen
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
