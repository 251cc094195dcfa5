//! Arguments of `seaway openstack adopt`.

use std::path::PathBuf;

use clap::Args;

use super::{WhichCloud, WhichCluster};

#[derive(Debug, Args)]
pub(crate) struct OpenStackAdopt {
    /// The UID of the cluster that is gone: of its namespace kube-system, which the tag seaway.dev/cluster=UID has
    #[arg(long, value_name = "UID")]
    pub(crate) from_uid: String,
    #[command(flatten)]
    pub(crate) which: WhichCloud,
    /// How the API server of the rebuilt cluster is reached [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where Seaway's Leases are
    #[arg(long, value_name = "NAMESPACE", default_value = "seaway-system")]
    pub(crate) system_namespace: String,
    /// Write what is listed; without it, nothing is
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackReleaseGroup {
    #[command(flatten)]
    pub(crate) which: WhichCloud,
    #[command(flatten)]
    pub(crate) of: WhichCluster,
    /// Change what is listed; without it, nothing is
    #[arg(long)]
    pub(crate) yes: bool,
}
