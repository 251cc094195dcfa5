//! The command line: flags are for the process, `seaway.yaml` for everything else.

mod controllers;
mod folder;
mod import;
pub(crate) mod kubectl;
mod member;
mod openstack;
mod operate;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::folder::{CommonArgs, Init, Manifests, SchemaKind};
pub(crate) use self::import::{Import, ImportFile, ImportServiceLoadbalancer, ImportSource};
pub(crate) use self::member::{CloudArgs, Controller, Node, Pod, Probe, ProbeKind, ProcessArgs};
pub(crate) use self::openstack::{OpenStackAdopt, OpenStackReleaseGroup};
pub(crate) use self::operate::{Drain, Reload, Reset, RunningProcessArgs, Status, Weight};
pub(crate) use self::plan::Plan;

/// Gives Kubernetes Services of type LoadBalancer an address, and balances their traffic.
///
/// Seaway reads Services and EndpointSlices and serves them: an address that the outside can reach,
/// health checks, failover, cleanup. Without a cluster, it reads the same manifests from a folder:
///
///     seaway demo                          start a load balancer and three backends
///     seaway init manifests/               write a first manifest
///     seaway check manifests/              mistakes, with file and line
///     seaway plan manifests/               what would be served
///     seaway run manifests/                serve it; the status page is at http://127.0.0.1:1936/
#[derive(Debug, Parser)]
#[command(name = "seaway", version = crate::version::LONG, verbatim_doc_comment, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a folder of manifests: assign addresses, balance TCP, UDP and HTTP
    ///
    /// One process does everything. It applies a change of the folder within 100 ms and drops no connection. SIGHUP
    /// reloads the configuration, SIGTERM drains and stops, a second SIGTERM stops at once.
    Run(Run),
    /// Run the controller of a cluster: assign addresses and write statuses
    ///
    /// Several may run: a Lease makes one the leader, and the others are on standby. It serves no traffic; `seaway node`
    /// does, on each host. First, install the definitions: `seaway crds | kubectl apply -f -`.
    Controller(Controller),
    /// Serve a cluster's traffic on this host: addresses, listeners, health checks
    ///
    /// It adds the addresses that the controller assigned to this host, and balances their traffic. While the API server
    /// cannot be reached, it continues with the last known state.
    ///
    /// --prepare requires root; everything else requires the capabilities NET_ADMIN and NET_BIND_SERVICE, and NET_RAW for
    /// addresses that it announces (announce: l2). It drops all others.
    Node(Node),
    /// Ask a controller or a host of the same pod whether it lives, or is ready: for probes by exec
    ///
    /// Exit status: 0 if it is, else 1 with the reason.
    Probe(Probe),
    /// Print what would be served, without changing anything
    ///
    /// Shows the addresses, ports and members of each Service as `seaway run` would plan them. With --state-dir, Services
    /// keep the addresses that they have.
    ///
    /// With --cloud, it prints each step that `seaway controller --cloud-config FILE` would take in the OpenStack project
    /// now, for the Services of the cluster that kubectl uses, with old and new values of fields. It reads both and changes
    /// neither. Exit status: 0 if nothing would be changed, 1 if something would, 2 if there are Problems, or if the cluster
    /// or the cloud cannot be read.
    ///
    /// With --driver haproxy, it prints the configuration by which HAProxy would serve the same, with its maps and crt-lists, but
    /// without certificates and keys; and Problems for what HAProxy cannot serve (docs/haproxy.md).
    ///
    ///     seaway plan --driver haproxy manifests/
    ///     seaway plan --cloud --cloud-config cloud.conf --config seaway.yaml
    ///     seaway plan --cloud --cloud-config cloud.conf -n shop --action delete -o json
    #[command(verbatim_doc_comment)]
    Plan(Plan),
    /// Report the mistakes in a folder or a file, with file, line and column
    ///
    /// Exits with 1 if there are any: for the CI of manifests.
    ///
    ///     seaway check manifests/
    ///     seaway check shop.yaml
    ///     helm template shop | seaway check -
    #[command(verbatim_doc_comment)]
    Check(Check),
    /// Explain why a Service has this address and these members, and why not others
    ///
    /// If a `seaway run` serves the folder, it is asked whether each member is up, down, ejected or draining.
    Explain(Explain),
    /// Show what the running `seaway run` serves, its Problems, and the weights that were set
    ///
    /// Exit status: 0 if it is ready, else 1.
    Status(Status),
    /// Send no new clients to a member, or to a Service, while `seaway run` runs
    ///
    /// Clients that are connected continue. It holds, also after a restart, until `seaway reset`; the manifests are not
    /// changed.
    ///
    ///     seaway drain 10.0.0.1:8080           in all Services that have this member
    ///     seaway drain alice --service shop    a member by its name, in this Service only
    ///     seaway drain 10.0.0.1:8080 --wait    return when its last connection has ended
    ///     seaway drain shop                    all members: new clients of the Service are refused
    #[command(verbatim_doc_comment)]
    Drain(Drain),
    /// Set the weight of a member while `seaway run` runs
    ///
    /// It holds, also after a restart, until `seaway reset`; the manifests are not changed.
    ///
    ///     seaway weight 10.0.0.1:8080 3        three times the clients of a member with weight 1
    #[command(verbatim_doc_comment)]
    Weight(Weight),
    /// Take back what `seaway drain` and `seaway weight` set: the manifests say the weights again
    ///
    ///     seaway reset                         everything
    ///     seaway reset 10.0.0.1:8080           of one member
    #[command(verbatim_doc_comment)]
    Reset(Reset),
    /// Have the running `seaway run` read its configuration again, and tell whether it could
    ///
    /// As SIGHUP does, with an answer. A configuration with mistakes changes nothing. Manifests are followed without this.
    Reload(Reload),
    /// Print what the reasons of Problems, conditions and events mean, and what to do
    ///
    ///     seaway reasons                       all of them
    ///     seaway reasons PortConflict          one
    #[command(verbatim_doc_comment)]
    Reasons {
        /// As in events, conditions and messages; case is ignored
        #[arg(value_name = "REASON")]
        names: Vec<String>,
    },
    /// Write a first folder: one manifest with comments
    ///
    /// It asks for the port, the backends, and the host name if HTTP is to be routed by it. Flags answer instead of you. It
    /// overwrites nothing.
    ///
    ///     seaway init                                        asks, and writes web/web.yaml
    ///     seaway init shop --port 8080 --backends 127.0.0.1:3000,127.0.0.1:3001
    ///     seaway init api --host shop.example/api --backends 127.0.0.1:3000
    #[command(verbatim_doc_comment)]
    Init(Init),
    /// Print an example of seaway.yaml, or check a file
    Config(ConfigArgs),
    /// Print a JSON schema for editors: of manifests, or of seaway.yaml
    ///
    ///     seaway schema manifests > web/.schema.json
    ///     seaway schema config > .seaway-schema.json
    ///
    /// The first line of a file names it: `# yaml-language-server: $schema=.schema.json`
    #[command(verbatim_doc_comment)]
    Schema {
        #[arg(value_name = "WHICH")]
        which: SchemaKind,
    },
    /// Show a load balancer with three backends at work, one of which is killed and comes back
    Demo(Demo),
    /// Convert the configuration of another load balancer: nginx, HAProxy, Ingress, service-loadbalancer
    Import(Import),
    /// Print the CustomResourceDefinitions and roles to install in a cluster
    ///
    ///     seaway crds | kubectl apply -f -
    #[command(verbatim_doc_comment)]
    Crds,
    /// Inspect Seaway in a cluster and drain hosts: the kubectl plugin
    ///
    /// It runs as `kubectl seaway` if a copy of this program, or a link to it, is called kubectl-seaway.
    Kubectl(kubectl::Kubectl),
    /// Inspect an OpenStack cloud and its load balancers, and clean up there
    #[command(name = "openstack")]
    OpenStack(OpenStack),
    /// Print shell completions
    ///
    /// For bash: seaway completions bash > /etc/bash_completion.d/seaway
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    ///
    /// seaway man > /usr/share/man/man1/seaway.1
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) folder: Manifests,
    /// Take over the sockets of the running seaway, so that no connection is refused; the old process drains and stops
    #[arg(long)]
    pub(crate) take_over: bool,
    /// The port of the status page, at 127.0.0.1 [default: `admin.listen` of the configuration, else 1936]
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub(crate) status_port: Option<u16>,
    #[command(flatten)]
    pub(crate) log: Logging,
}

/// How logs are written, whatever the configuration says.
#[derive(Debug, Args)]
pub(crate) struct Logging {
    /// The format of the log
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// The log level: off, error, warn, info, debug, trace, or a filter such as info,seaway_proxy=debug
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// A folder of manifests, a file, or - for standard input
    #[arg(value_name = "DIR|FILE|-")]
    pub(crate) manifests: PathBuf,
    /// The output format: a list, JSON, or annotations of GitHub Actions
    #[arg(long, short, default_value = "table")]
    pub(crate) output: CheckOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckOutput {
    Table,
    Json,
    Github,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// NAME (in the namespace default) or NAMESPACE/NAME
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    #[command(flatten)]
    pub(crate) folder: Manifests,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print a commented example with all keys and their defaults
    #[arg(long, conflicts_with = "check")]
    pub(crate) example: bool,
    /// Report the mistakes in FILE
    #[arg(long, value_name = "FILE", required_unless_present = "example")]
    pub(crate) check: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The port of the TCP load balancer
    #[arg(long, default_value_t = 8080, value_parser = port)]
    pub(crate) port: u16,
    /// The port of the front door, for HTTP
    #[arg(long, default_value_t = 8081, value_parser = port)]
    pub(crate) http_port: u16,
    /// The port of the status page
    #[arg(long, default_value_t = 1936, value_parser = port)]
    pub(crate) status_port: u16,
    /// Stop at the end instead of serving until Ctrl-C
    #[arg(long)]
    pub(crate) once: bool,
    /// Be one of the backends (the demo starts itself so)
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) backend: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStack {
    #[command(subcommand)]
    pub(crate) command: OpenStackCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OpenStackCommand {
    /// Report what a cloud offers, and what load balancers need and it lacks
    ///
    /// It changes nothing. It prints the user of the credentials, services with their versions, providers of load balancers
    /// with their features, external networks, quotas and their use; at the end what is missing, with the command that
    /// adds it. Exits with 1 if load balancers need something that is missing.
    ///
    ///     seaway openstack check --cloud shop           the cloud "shop" of clouds.yaml
    ///     seaway openstack check                        the cloud that OS_CLOUD or OS_AUTH_URL name
    ///     seaway openstack check --cloud-config /etc/kubernetes/cloud.conf
    #[command(verbatim_doc_comment)]
    Check(OpenStackCheck),
    /// Print load balancers as trees of listeners, policies, pools, monitors, members and floating IPs, with statuses
    ///
    ///     seaway openstack show                         all that the credentials may list
    ///     seaway openstack show web                     one, by name or id
    ///     seaway openstack show --tag shop --no-members
    ///
    /// A normal status is one word: ONLINE, NO_MONITOR. Anything longer needs attention.
    #[command(verbatim_doc_comment)]
    Show(OpenStackShow),
    /// List and remove what Services that no longer exist left in the cloud
    ///
    /// Covers load balancers, floating IPs, security groups and secrets with the UID of this cluster in tags and
    /// descriptions; names do not count. The controller itself removes what Services left whose deletion it saw, and
    /// reports the rest.
    ///
    ///     seaway openstack gc --cloud-config /etc/kubernetes/cloud.conf            list it
    ///     seaway openstack gc --cloud-config /etc/kubernetes/cloud.conf --delete   remove it
    #[command(verbatim_doc_comment)]
    Gc(OpenStackGc),
    /// Remove everything that a cluster has in the cloud, before or after the cluster is deleted
    ///
    /// A load balancer that remains prevents the deletion of its network. It removes only what has the cluster's UID in a tag
    /// or a description, so nothing of other clusters, not even of one with the same name; and no floating IPs that
    /// Services asked to keep. Stop `seaway controller` first: it would create everything again.
    ///
    ///     seaway openstack purge --cloud shop                          list it
    ///     seaway openstack purge --cloud shop --yes                    remove it
    ///     seaway openstack purge --cloud shop --cluster-uid UID --yes  of a cluster that is gone
    #[command(verbatim_doc_comment)]
    Purge(OpenStackPurge),
    /// Assign load balancers of a cluster that no longer exists to the one that was rebuilt from its backup
    ///
    /// A rebuilt cluster and its Services have new UIDs, so the load balancers count as another cluster's. For each Service of
    /// the same namespace and name, this writes the new UIDs to the tags of its load balancer and listeners, and to the
    /// description of its floating IP. The old cluster must no longer exist: it would lose its load balancers. Stop
    /// `seaway controller` of the new cluster meanwhile.
    ///
    ///     seaway openstack adopt --from-uid OLD --cloud-config cloud.conf         list the changes
    ///     seaway openstack adopt --from-uid OLD --cloud-config cloud.conf --yes   write them
    #[command(verbatim_doc_comment)]
    Adopt(OpenStackAdopt),
    /// Remove Seaway's security group from the ports of Nodes, and delete it, after another controller has taken over
    ///
    /// It is deleted only if other groups of the same ports allow everything in it that Services use. Stop `seaway controller`
    /// first.
    ///
    ///     seaway openstack release-group --cloud-config cloud.conf         whether it is still needed, and by what
    ///     seaway openstack release-group --cloud-config cloud.conf --yes   delete it
    #[command(verbatim_doc_comment)]
    ReleaseGroup(OpenStackReleaseGroup),
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackGc {
    #[command(flatten)]
    pub(crate) which: CloudCredentialArgs,
    #[command(flatten)]
    pub(crate) of: ClusterSelector,
    /// Remove what is listed; without this, nothing is removed
    #[arg(long)]
    pub(crate) delete: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackPurge {
    #[command(flatten)]
    pub(crate) which: CloudCredentialArgs,
    #[command(flatten)]
    pub(crate) of: ClusterSelector,
    /// Also remove floating IPs that Services asked to keep
    #[arg(long)]
    pub(crate) kept: bool,
    /// Remove what is listed; without this, nothing is removed
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Whose things in the cloud are meant: those of the cluster that kubectl talks to, or of one that is gone.
#[derive(Debug, Args)]
pub(crate) struct ClusterSelector {
    /// The cluster's UID, if its API server no longer exists: the UID of its namespace kube-system, in the tag
    /// seaway.dev/cluster=UID of its load balancers
    #[arg(long, value_name = "UID", conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) cluster_uid: Option<String>,
    /// The kubeconfig [default: kubectl's]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of Seaway's Leases
    #[arg(long, value_name = "NAMESPACE", default_value = "seaway-system")]
    pub(crate) system_namespace: String,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackCheck {
    #[command(flatten)]
    pub(crate) which: CloudCredentialArgs,
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackShow {
    /// The name or id of a load balancer [default: all]
    #[arg(value_name = "LOAD BALANCER")]
    pub(crate) load_balancer: Option<String>,
    #[command(flatten)]
    pub(crate) which: CloudCredentialArgs,
    /// Only load balancers with this tag; if repeated, with all of them
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// Do not list members, which takes a request per load balancer
    #[arg(long)]
    pub(crate) no_members: bool,
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
}

/// Credentials, found as OpenStack's own client finds them.
#[derive(Debug, Args)]
pub(crate) struct CloudCredentialArgs {
    /// A cloud of clouds.yaml, in the current folder, ~/.config/openstack or /etc/openstack [default: OS_CLOUD]
    #[arg(long, value_name = "NAME")]
    pub(crate) cloud: Option<String>,
    /// The file of OpenStack's cloud controller manager, instead of clouds.yaml and the environment
    #[arg(long = "cloud-config", value_name = "FILE", alias = "cloud-conf", conflicts_with = "cloud")]
    pub(crate) cloud_conf: Option<PathBuf>,
}

/// Of a flag; the parser of numbers says nothing of ports.
fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "a port is a number from 1 to 65535".to_owned())
}
