//! `seaway plan`: what would exist, and what would be changed in a cloud.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Common, Manifests, OfCloud, Output};

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) folder: Manifests,
    /// As a table for people, or as JSON for programs
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
    /// Show what the controller would change in OpenStack
    #[arg(long, requires = "cloud_config", conflicts_with_all = ["dir", "manifests", "state_dir"])]
    pub(crate) cloud: bool,
    #[command(flatten)]
    pub(crate) of: OfCloud,
    /// How the API server is reached [default: as kubectl finds it]
    #[arg(long, value_name = "FILE", requires = "cloud")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME", requires = "cloud")]
    pub(crate) context: Option<String>,
    /// In a cloud: for Services of this namespace alone
    #[arg(long, short, value_name = "NAMESPACE", requires = "cloud")]
    pub(crate) namespace: Option<String>,
    /// In a cloud: for this Service alone, NAME or NAMESPACE/NAME; several: for each of them
    #[arg(long, value_name = "SERVICE", requires = "cloud")]
    pub(crate) service: Vec<String>,
    /// In a cloud: only steps that do this, separated by commas
    #[arg(long, value_name = "ACTION", value_delimiter = ',', requires = "cloud")]
    pub(crate) action: Vec<Action>,
}

/// What a step does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Action {
    Create,
    Change,
    Delete,
    /// A floating IP with a VIP; one is allocated where there is none
    Associate,
    Disassociate,
    Failover,
}

impl Action {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Change => "change",
            Action::Delete => "delete",
            Action::Associate => "associate",
            Action::Disassociate => "disassociate",
            Action::Failover => "failover",
        }
    }
}
