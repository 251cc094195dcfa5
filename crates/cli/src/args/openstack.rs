//! Arguments of `seaway openstack adopt`.

use std::path::PathBuf;

use clap::Args;

use super::{CloudCredentialArgs, ClusterSelector};

#[derive(Debug, Args)]
pub(crate) struct OpenStackAdopt {
    /// The UID of the old cluster: that of its namespace kube-system, in the tag seaway.dev/cluster=UID
    #[arg(long, value_name = "UID")]
    pub(crate) from_uid: String,
    #[command(flatten)]
    pub(crate) which: CloudCredentialArgs,
    /// The kubeconfig of the rebuilt cluster [default: kubectl's]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of Seaway's Leases
    #[arg(long, value_name = "NAMESPACE", default_value = "seaway-system")]
    pub(crate) system_namespace: String,
    /// Write what is listed; without this, nothing is written
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OpenStackReleaseGroup {
    #[command(flatten)]
    pub(crate) which: CloudCredentialArgs,
    #[command(flatten)]
    pub(crate) of: ClusterSelector,
    /// Change what is listed; without this, nothing is changed
    #[arg(long)]
    pub(crate) yes: bool,
}
