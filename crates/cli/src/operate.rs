//! `seaway status`, `drain`, `weight`, `reset` and `reload`: what an operator asks of a running `seaway run`.
//!
//! ```text
//!   status ──► its status page            drain, weight, reset, reload ──► control.sock in its state folder (0600)
//!                                                                            │ Request, Reply: a line of JSON each
//!                                                                            ▼
//!                                             the process: weights.json ─► Change::Weights ─► World
//! ```

mod client;
mod server;
mod status;
mod target;
mod weights;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use seaway_model::MemberWeights;
use seaway_plan::quantity;
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    server::{ControlContext, ControlSocket, ReloadSender},
    weights::Weights,
};
use crate::{
    args::{Drain, Reload, Reset, Status, Weight},
    output,
};

/// In the state folder.
const SOCKET: &str = "control.sock";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "camelCase")]
enum Request {
    /// What is set.
    Weights,
    Set {
        what: String,
        service: Option<String>,
        weight: u32,
        force: bool,
    },
    /// Without `what`: all.
    TakeBack {
        what: Option<String>,
        service: Option<String>,
    },
    Reload,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reply {
    /// Why nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What was done, for people.
    #[serde(default)]
    lines: Vec<String>,
    /// What is set now.
    #[serde(default)]
    weights: MemberWeights,
    /// Members that the request was about, by their addresses.
    #[serde(default)]
    members: Vec<String>,
    /// The one Service that it was about; none: all that have these members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service: Option<String>,
}

pub(crate) fn status(arguments: &Status) -> Result<ExitCode> {
    status::print(&client::ControlClient::find(&arguments.running)?, arguments.output)
}

pub(crate) fn drain(arguments: &Drain) -> Result<ExitCode> {
    let patience = arguments.wait.as_deref().map(quantity::duration).transpose();
    let patience = patience.map_err(|error| anyhow!("--wait: {error}"))?;
    let process = client::ControlClient::find(&arguments.running)?;
    let reply = process.ask(&Request::Set {
        what: arguments.target.what.clone(),
        service: arguments.target.service.clone(),
        weight: 0,
        force: arguments.force,
    })?;
    reply.lines.iter().for_each(|it| output::line(it));
    match patience {
        Some(patience) => process.wait_until_idle(&reply, patience),
        None => Ok(ExitCode::SUCCESS),
    }
}

pub(crate) fn weight(arguments: &Weight) -> Result<ExitCode> {
    ask(
        &client::ControlClient::find(&arguments.running)?,
        &Request::Set {
            what: arguments.target.what.clone(),
            service: arguments.target.service.clone(),
            weight: arguments.weight,
            force: arguments.force,
        },
    )
}

pub(crate) fn reset(arguments: &Reset) -> Result<ExitCode> {
    let (what, service) = (arguments.what.clone(), arguments.service.clone());
    ask(&client::ControlClient::find(&arguments.running)?, &Request::TakeBack { what, service })
}

pub(crate) fn reload(arguments: &Reload) -> Result<ExitCode> {
    ask(&client::ControlClient::find(&arguments.running)?, &Request::Reload)
}

fn ask(process: &client::ControlClient, request: &Request) -> Result<ExitCode> {
    process.ask(request)?.lines.iter().for_each(|it| output::line(it));
    Ok(ExitCode::SUCCESS)
}
