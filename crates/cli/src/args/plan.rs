//! `seaway plan`: what would exist, and what would be changed in a cloud.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CloudArgs, CommonArgs, Manifests, Output};

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) folder: Manifests,
    /// The output format: a table, or JSON
    #[arg(long, short, default_value = "table")]
    pub(crate) output: Output,
    /// Print the configuration by which this data plane would serve, instead of the plan
    #[arg(long, value_name = "DRIVER", conflicts_with = "cloud")]
    pub(crate) driver: Option<PrintedDriver>,
    /// With --driver haproxy: the version of HAProxy that it is for
    #[arg(long, value_name = "VERSION", default_value = "2.6", requires = "driver")]
    pub(crate) haproxy_version: HaproxyVersion,
    /// Show what the controller would change in OpenStack
    #[arg(long, requires = "cloud_config", conflicts_with_all = ["dir", "manifests", "state_dir"])]
    pub(crate) cloud: bool,
    #[command(flatten)]
    pub(crate) of: CloudArgs,
    /// The kubeconfig [default: kubectl's]
    #[arg(long, value_name = "FILE", requires = "cloud")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME", requires = "cloud")]
    pub(crate) context: Option<String>,
    /// With --cloud: Services of this namespace only
    #[arg(long, short, value_name = "NAMESPACE", requires = "cloud")]
    pub(crate) namespace: Option<String>,
    /// With --cloud: this Service only, NAME or NAMESPACE/NAME; may be repeated
    #[arg(long, value_name = "SERVICE", requires = "cloud")]
    pub(crate) service: Vec<String>,
    /// With --cloud: only steps of these kinds, separated by commas
    #[arg(long, value_name = "ACTION", value_delimiter = ',', requires = "cloud")]
    pub(crate) action: Vec<Action>,
}

/// A data plane with a configuration of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrintedDriver {
    Haproxy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HaproxyVersion {
    #[value(name = "2.6")]
    V2_6,
    #[value(name = "3.0")]
    V3_0,
    #[value(name = "3.2")]
    V3_2,
    #[value(name = "3.4")]
    V3_4,
}

impl From<HaproxyVersion> for seaway_haproxy::Version {
    fn from(version: HaproxyVersion) -> seaway_haproxy::Version {
        match version {
            HaproxyVersion::V2_6 => seaway_haproxy::Version::V2_6,
            HaproxyVersion::V3_0 => seaway_haproxy::Version::V3_0,
            HaproxyVersion::V3_2 => seaway_haproxy::Version::V3_2,
            HaproxyVersion::V3_4 => seaway_haproxy::Version::V3_4,
        }
    }
}

/// What a step does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Action {
    Create,
    Change,
    Delete,
    /// Associate a floating IP with a VIP; allocate one if there is none
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
