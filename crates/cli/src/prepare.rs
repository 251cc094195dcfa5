//! `seaway node --prepare`: what a host may not do any more when it serves, done before.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{output, rights};

/// Says what it did, and what is left for somebody else to do.
pub(crate) fn run() -> Result<ExitCode> {
    rights::keep_only(rights::SERVING_CAPABILITIES).context("capabilities cannot be dropped")?;
    let done =
        seaway_node::enforce_arp_settings().context("the interfaces of this machine cannot be listed")?;
    for command in &done.set {
        output::line(&format!("done: {command}"));
    }
    for unmet in &done.unmet {
        output::error(&format!("seaway: {unmet}"));
    }
    if !done.unmet.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if done.set.is_empty() {
        output::line("There is nothing to do: arp_ignore and arp_announce are set already.");
    }
    Ok(ExitCode::SUCCESS)
}
