//! The command line: flags are for the process, `seaway.yaml` for everything else.

pub(crate) mod kubectl;
mod openstack;
pub(crate) mod plan;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::openstack::{OpenStackAdopt, OpenStackReleaseGroup};
pub(crate) use self::plan::Plan;

/// Load balancers for Kubernetes where the platform has none.
///
/// Seaway reads Services and EndpointSlices and serves them: an address that the outside can reach, health checks,
/// fail-over, cleanup. Without a cluster it reads the same manifests from a folder:
///
///     seaway demo                          see it work, with backends of its own
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
    /// Serve: read manifests, give addresses out, balance TCP and UDP
    ///
    /// Everything happens in this one process. A change of the folder is served within 100 ms and drops no
    /// connection. SIGHUP reads the configuration again, SIGTERM drains and stops, a second SIGTERM stops at once.
    Run(Run),
    /// Lead in a cluster: give addresses out and write statuses
    ///
    /// Several may run: one leads, by a Lease, the others are ready to. It serves nobody itself; `seaway node` does, on
    /// each host. `seaway crds | kubectl apply -f -` must come first.
    Controller(Controller),
    /// Serve a cluster on this host: addresses, sockets, health checks
    ///
    /// Plans from what the cluster says, takes the addresses that were given out, and balances. It goes on with what it
    /// knew when the API server is gone.
    ///
    /// --prepare needs to be root; the rest needs the capabilities NET_ADMIN and NET_BIND_SERVICE. Whatever else it is
    /// given, it drops.
    Node(Node),
    /// Print what would exist, touching nothing
    ///
    /// Shows for each Service its addresses, ports and members as `seaway run` would plan them. With --state-dir, the
    /// addresses that were given before are kept, as they would be.
    ///
    /// With --cloud, what `seaway controller --cloud-config FILE` would do in the project of an OpenStack now, step by step,
    /// for the Services of the cluster that kubectl talks to: both are asked, and neither is changed. Each step says which
    /// fields become what. It exits with 0 if nothing would be changed, with 1 if something would, and with 2 if there are
    /// Problems, or if the cluster or the cloud could not be asked.
    ///
    ///     seaway plan --cloud --cloud-config cloud.conf --config seaway.yaml
    ///     seaway plan --cloud --cloud-config cloud.conf -n shop --action delete -o json
    #[command(verbatim_doc_comment)]
    Plan(Plan),
    /// Report the Problems of a folder or of one file, each with file, line and column
    ///
    /// Exits with 1 if there is any: made for the CI of manifests.
    ///
    ///     seaway check manifests/
    ///     seaway check shop.yaml
    ///     helm template shop | seaway check -
    #[command(verbatim_doc_comment)]
    Check(Check),
    /// Tell why a Service has this address and these members, and why not others
    Explain(Explain),
    /// Say what reasons of Problems, conditions and events mean, and what to do
    ///
    ///     seaway reasons                       all of them
    ///     seaway reasons PortConflict          one
    #[command(verbatim_doc_comment)]
    Reasons {
        /// As events, conditions and messages have it; upper and lower case are the same
        #[arg(value_name = "REASON")]
        names: Vec<String>,
    },
    /// Print an example of seaway.yaml, or check one
    Config(ConfigArgs),
    /// See it work: three backends, a load balancer before them, one backend killed and noticed
    Demo(Demo),
    /// Turn the configuration of another load balancer into a seaway.yaml
    Import(Import),
    /// Print what a cluster has to know and to allow: our definitions (CRDs) and roles
    ///
    ///     seaway crds | kubectl apply -f -
    #[command(verbatim_doc_comment)]
    Crds,
    /// See how Seaway stands in a cluster, and take a host out for a while: the plugin of kubectl
    ///
    /// As `kubectl seaway`, where a copy of this program is called kubectl-seaway.
    Kubectl(kubectl::Kubectl),
    /// Look at an OpenStack cloud: what it has and can do, and the load balancers there
    #[command(name = "openstack")]
    OpenStack(OpenStack),
    /// Print completions for a shell
    ///
    /// For bash: seaway completions bash > /etc/bash_completion.d/seaway
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, for man
    ///
    /// seaway man > /usr/share/man/man1/seaway.1
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) folder: Manifests,
    /// Take the sockets of the running seaway over, so that nobody is refused; the old one drains and stops
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) log: Logging,
}

/// Which folder is read.
#[derive(Debug, Args)]
pub(crate) struct Manifests {
    /// The folder of manifests (YAML or JSON; subfolders too) [default: `manifests:` of the configuration]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The same, by name
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    manifests: Option<PathBuf>,
}

impl Manifests {
    pub(crate) fn dir(&self) -> Option<&Path> {
        self.dir.as_deref().or(self.manifests.as_deref())
    }
}

/// A part of a cluster.
#[derive(Debug, Args)]
pub(crate) struct Member {
    /// The configuration file; without it, defaults (seaway config --example prints one)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How the API server is reached [default: as kubectl finds it; in a pod, by its ServiceAccount]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub(crate) context: Option<String>,
    /// Where Leases are [default: the pod's own namespace, else seaway-system]
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// What this host is called in the cluster: the name of its Node, where it is one [default: `host` of the
    /// configuration, else the machine's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) host: Option<String>,
    /// Of a node: where it keeps what it knows
    #[arg(skip)]
    pub(crate) snapshot: Option<PathBuf>,
    /// Of a controller
    #[arg(skip)]
    pub(crate) cloud: OfCloud,
    #[command(flatten)]
    pub(crate) pod: Pod,
    #[command(flatten)]
    pub(crate) log: Logging,
}

#[derive(Debug, Args)]
pub(crate) struct Controller {
    #[command(flatten)]
    pub(crate) member: Member,
    #[command(flatten)]
    pub(crate) cloud: OfCloud,
}

/// Where load balancers of class seaway.dev/octavia are made.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OfCloud {
    /// The cloud.conf of an OpenStack, as its cloud controller manager reads it: Services of class seaway.dev/octavia get
    /// load balancers there
    #[arg(long, value_name = "FILE", alias = "cloud-conf")]
    pub(crate) cloud_config: Option<PathBuf>,
    /// What this cluster is called in names there
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub(crate) cluster_name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(flatten)]
    pub(crate) member: Member,
    /// Make the settings that keep this machine silent about addresses that it serves, and end: for pods, where they
    /// are read-only later
    #[arg(long)]
    pub(crate) prepare: bool,
    /// Where to keep what the cluster said last, Secrets included, for a start without an API server [default:
    /// /run/seaway/NAME.snapshot for root, else below $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
}

/// Which pod this is, told by its manifest: whoever may `get` `pods/proxy` reads its status page.
#[derive(Debug, Args)]
pub(crate) struct Pod {
    /// The pod's address: probes are answered there, and a host's status page is there, too, for reading alone
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    pub(crate) pod_address: Option<IpAddr>,
    /// A port for the kubelet's probes, /live and /ready, and nothing else: on loopback, and at the pod's address
    #[arg(long, value_name = "PORT")]
    pub(crate) probe_port: Option<u16>,
    /// The pod's name
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(crate) pod_name: Option<String>,
    /// The pod's namespace
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pub(crate) pod_namespace: Option<String>,
}

/// How logs are written, whatever the configuration says.
#[derive(Debug, Args)]
pub(crate) struct Logging {
    /// How logs look
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, or a filter such as seaway_proxy=debug
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The configuration file; without it, defaults (seaway config --example prints one)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where addresses, the last good manifests and status.json are kept [default: /var/lib/seaway for root, else
    /// $XDG_STATE_HOME/seaway]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
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
    pub(crate) common: Common,
    /// The folder of manifests, one file, or - for standard input
    #[arg(value_name = "DIR|FILE|-")]
    pub(crate) manifests: PathBuf,
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) common: Common,
    /// NAME in the namespace default, or NAMESPACE/NAME
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    #[command(flatten)]
    pub(crate) folder: Manifests,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print a commented example with every key and its default
    #[arg(long, conflicts_with = "check")]
    pub(crate) example: bool,
    /// Read FILE and report its mistakes
    #[arg(long, value_name = "FILE", required_unless_present = "example")]
    pub(crate) check: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    pub(crate) source: ImportSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportSource {
    /// From Kubernetes' old service-loadbalancer: its flags as they were, and its loadbalancer.json
    ///
    /// Prints a seaway.yaml; what has no counterpart is in it as a comment that says what to do instead.
    ///
    ///     seaway import service-loadbalancer --tcp-services=mysql:3306 --balance-algorithm=leastconn > seaway.yaml
    ///     seaway import service-loadbalancer --config loadbalancer.json --http-port=8080
    #[command(verbatim_doc_comment)]
    ServiceLoadbalancer(ImportBank),
}

#[derive(Debug, Args)]
pub(crate) struct ImportBank {
    /// Its loadbalancer.json
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Its flags, as they were
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) flags: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The port of the load balancer, which passes connections on
    #[arg(long, default_value_t = 8080)]
    pub(crate) port: u16,
    /// The port of the front door, which passes requests of HTTP on
    #[arg(long, default_value_t = 8081)]
    pub(crate) http_port: u16,
    /// The status page's port
    #[arg(long, default_value_t = 1936)]
    pub(crate) status_port: u16,
    /// Stop after the show instead of serving on
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
    /// Tell what a cloud has and can do, and what is missing for load balancers
    ///
    /// Reads, and changes nothing. Line by line: who the credentials are, services with their versions, providers of
    /// load balancers and what each can do, external networks, quotas and how much of them is used; at the end what is
    /// missing, each with what to type. Exits with 1 if something is missing that load balancers need.
    ///
    ///     seaway openstack check --cloud shop           the cloud "shop" of clouds.yaml
    ///     seaway openstack check                        the one that OS_CLOUD names, or OS_AUTH_URL and its like
    ///     seaway openstack check --cloud-conf /etc/kubernetes/cloud.conf
    #[command(verbatim_doc_comment)]
    Check(OpenStackCheck),
    /// Draw load balancers as trees: listeners, policies, pools, monitors, members, floating IPs, statuses
    ///
    ///     seaway openstack show                         all that the credentials see
    ///     seaway openstack show web                     one, by name or id
    ///     seaway openstack show --tag shop --no-members
    ///
    /// A status that is as it should be is one word: ONLINE, NO_MONITOR. Whatever else is told is worth a look.
    #[command(verbatim_doc_comment)]
    Show(OpenStackShow),
    /// List what Services left behind in the cloud that are no more, and remove it
    ///
    /// Load balancers, floating IPs, security groups and secrets of this cluster alone, found by its UID in tags and
    /// descriptions, never by name. The leading controller removes what it saw the deletion of, and reports the rest.
    ///
    ///     seaway openstack gc --cloud-conf /etc/kubernetes/cloud.conf            what there is
    ///     seaway openstack gc --cloud-conf /etc/kubernetes/cloud.conf --delete   away with it
    #[command(verbatim_doc_comment)]
    Gc(OpenStackGc),
    /// Remove everything that a cluster has in the cloud, before or after it is deleted itself
    ///
    /// A load balancer that is left keeps its network from being deleted. Only what has the cluster's UID in a tag or a
    /// description goes: other clusters' things stay, also those of one name, and so do floating IPs that were to be
    /// kept. Stop `seaway controller` first: it would make everything again.
    ///
    ///     seaway openstack purge --cloud shop                          what would go
    ///     seaway openstack purge --cloud shop --yes                    away with it
    ///     seaway openstack purge --cloud shop --cluster-uid UID --yes  of a cluster that is gone
    #[command(verbatim_doc_comment)]
    Purge(OpenStackPurge),
    /// Give load balancers of a cluster that is gone to the one that was rebuilt from its backup
    ///
    /// Services of a rebuilt cluster have other UIDs, and so has the cluster: what the old one has in the cloud counts as
    /// another cluster's. This writes the new UIDs into the tags of each load balancer whose Service is there by namespace
    /// and name, of its listeners, and into the description of its floating IP. Only a cluster that is gone may be named:
    /// one that is alive would lose its load balancers. Stop `seaway controller` of the new one meanwhile.
    ///
    ///     seaway openstack adopt --from-uid OLD --cloud-conf cloud.conf         what would be written
    ///     seaway openstack adopt --from-uid OLD --cloud-conf cloud.conf --yes   write it
    #[command(verbatim_doc_comment)]
    Adopt(OpenStackAdopt),
    /// Take Seaway's security group from the ports of Nodes, and delete it, after another controller has taken over
    ///
    /// It goes only if other groups at the same ports let through all of it that Services use. Stop `seaway controller` first.
    ///
    ///     seaway openstack release-group --cloud-conf cloud.conf         whether it is needed still, and by what
    ///     seaway openstack release-group --cloud-conf cloud.conf --yes   away with it
    #[command(verbatim_doc_comment)]
    ReleaseGroup(OpenStackReleaseGroup),
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackGc {
    #[command(flatten)]
    pub(crate) which: WhichCloud,
    #[command(flatten)]
    pub(crate) of: WhichCluster,
    /// Remove what is listed; without it, nothing is
    #[arg(long)]
    pub(crate) delete: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackPurge {
    #[command(flatten)]
    pub(crate) which: WhichCloud,
    #[command(flatten)]
    pub(crate) of: WhichCluster,
    /// Remove floating IPs, too, that Services asked to keep
    #[arg(long)]
    pub(crate) kept: bool,
    /// Remove what is listed; without it, nothing is
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Whose things in the cloud are meant: those of the cluster that kubectl talks to, or of one that is gone.
#[derive(Debug, Args)]
pub(crate) struct WhichCluster {
    /// The cluster's UID, where it cannot be asked any more: the UID of its namespace kube-system, which the tag
    /// seaway.dev/cluster=UID of its load balancers has
    #[arg(long, value_name = "UID", conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) cluster_uid: Option<String>,
    /// How the API server is reached [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where Seaway's Leases are
    #[arg(long, value_name = "NAMESPACE", default_value = "seaway-system")]
    pub(crate) system_namespace: String,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackCheck {
    #[command(flatten)]
    pub(crate) which: WhichCloud,
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackShow {
    /// Its name or id; without it, all
    #[arg(value_name = "LOAD BALANCER")]
    pub(crate) load_balancer: Option<String>,
    #[command(flatten)]
    pub(crate) which: WhichCloud,
    /// Only those with this tag; several: with all of them
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// Leave members out, which cost a call per load balancer
    #[arg(long)]
    pub(crate) no_members: bool,
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
}

/// Credentials, found as OpenStack's own client finds them.
#[derive(Debug, Args)]
pub(crate) struct WhichCloud {
    /// Of clouds.yaml, in the current folder, ~/.config/openstack or /etc/openstack [default: what OS_CLOUD says]
    #[arg(long, value_name = "NAME")]
    pub(crate) cloud: Option<String>,
    /// The file of OpenStack's cloud controller manager, instead of clouds.yaml and the environment
    #[arg(long, value_name = "FILE", alias = "cloud-config", conflicts_with = "cloud")]
    pub(crate) cloud_conf: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        kubectl::Plugin::command().debug_assert();
    }
}
