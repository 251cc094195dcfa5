//! Of commands that look at a running `seaway run`, or change it.

use std::path::PathBuf;

use clap::Args;

use super::Output;

/// Which running process is meant.
#[derive(Debug, Args)]
pub(crate) struct RunningProcessArgs {
    /// The state folder of the running process [default: as of `seaway run`]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The configuration file of the running process, if that names its state folder
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) running: RunningProcessArgs,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Output,
}

/// Of whom.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// A member, by its address or name, or a Service: 10.0.0.1:8080, alice, shop, default/shop
    #[arg(value_name = "MEMBER|SERVICE")]
    pub(crate) what: String,
    /// The member in this Service only
    #[arg(long, value_name = "SERVICE")]
    pub(crate) service: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Return when its last connection has ended, at the latest after this time (by default 5m)
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "5m", require_equals = true)]
    pub(crate) wait: Option<String>,
    /// Also if no other member would get new clients
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) running: RunningProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Weight {
    #[command(flatten)]
    pub(crate) target: Target,
    /// 0 to 1000000; a member with 0 gets no new clients
    #[arg(value_name = "WEIGHT", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) weight: u32,
    /// Also if no other member would get new clients
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) running: RunningProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// As in `seaway drain`; without it, everything that was set
    #[arg(value_name = "MEMBER|SERVICE")]
    pub(crate) what: Option<String>,
    /// What was set for the member in this Service only
    #[arg(long, value_name = "SERVICE", requires = "what")]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) running: RunningProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    pub(crate) running: RunningProcessArgs,
}
