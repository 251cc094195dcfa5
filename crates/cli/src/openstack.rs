//! `seaway openstack …`: a cloud looked at with a user's own credentials; `gc` and `purge` remove things there, `adopt` gives
//! them to another cluster.

mod adopt;
mod check;
mod leavings;
mod release_group;
mod show;

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use seaway_drivers::octavia::conf;
use seaway_openstack::{Cloud, Settings, Source, Timing, credentials::CloudConf};

use crate::{
    args::{CloudCredentialArgs, OpenStack, OpenStackCommand},
    output,
};

pub(crate) fn run(arguments: &OpenStack) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("a runtime cannot be started")?;
    runtime.block_on(async {
        match &arguments.command {
            OpenStackCommand::Check(arguments) => check::check(arguments).await,
            OpenStackCommand::Show(arguments) => show::show(arguments).await,
            OpenStackCommand::Gc(arguments) => leavings::gc(arguments).await,
            OpenStackCommand::Purge(arguments) => leavings::purge(arguments).await,
            OpenStackCommand::Adopt(arguments) => adopt::adopt(arguments).await,
            OpenStackCommand::ReleaseGroup(arguments) => release_group::release_group(arguments).await,
        }
    })
}

pub(crate) async fn connect(which: &CloudCredentialArgs) -> Result<Cloud, seaway_openstack::Error> {
    let source = match &which.cloud_conf {
        Some(file) => Source::cloud_conf(file),
        None => Source::client(which.cloud.as_deref()),
    };
    // Somebody is waiting in front of a terminal.
    let timing =
        Timing { attempt: Duration::from_secs(30), call: Duration::from_secs(60), ..Timing::default() };
    let cloud = Cloud::connect(source, Settings { timing, ..Settings::default() }).await?;
    for warning in cloud.warnings() {
        output::error(&format!("warning: {warning}"));
    }
    Ok(cloud)
}

/// What `cascade-delete` of the same file says.
fn cascades(which: &CloudCredentialArgs) -> Result<bool> {
    let Some(file) = &which.cloud_conf else { return Ok(true) };
    Ok(conf::read(&CloudConf::read(file)?).defaults.cascade)
}

/// Progress, for whoever waits: to standard error, so that what is piped stays clean.
pub(crate) fn progress_printer() -> Arc<dyn Fn(&str) + Send + Sync> {
    Arc::new(|line: &str| output::error(&format!("… {line}")))
}
