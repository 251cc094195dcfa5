//! A running process, as a command finds it and asks it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use seaway_admin::View;
use seaway_files::ServerInfo;

use super::{Reply, Request, SOCKET, target::owner};
use crate::{args::RunningProcessArgs, output, run::state_dir_of, running, settings};

/// A reload reads files.
const PATIENCE: Duration = Duration::from_secs(90);
const LARGEST: u64 = 64 << 20;
/// How often it is looked whether connections have ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const TELL_EVERY: Duration = Duration::from_secs(5);

pub(super) struct ControlClient {
    pub(super) state: PathBuf,
}

impl ControlClient {
    pub(super) fn find(arguments: &RunningProcessArgs) -> Result<ControlClient> {
        let settings = settings::load(arguments.config.as_deref())?;
        let state = state_dir_of(arguments.state_dir.as_deref(), &settings)?;
        Ok(ControlClient { state })
    }

    pub(super) fn ask(&self, request: &Request) -> Result<Reply> {
        let path = self.state.join(SOCKET);
        let nobody = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => anyhow!(
                "no `seaway run` uses the state folder {}; name that of the running process with --state-dir",
                self.state.display()
            ),
            io::ErrorKind::PermissionDenied => anyhow!(
                "{}: permission denied; only the user of the running process, and root, may change it",
                path.display()
            ),
            _ => anyhow!("{}: {error}", path.display()),
        };
        let mut stream = UnixStream::connect(&path).map_err(nobody)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).context("the running process does not listen")?;
        let mut answer = String::new();
        BufReader::new(stream.take(LARGEST))
            .read_line(&mut answer)
            .context("the running process does not answer")?;
        let reply: Reply = serde_json::from_str(&answer)
            .context("the response of the running process cannot be read: it may have another version")?;
        match reply.error {
            Some(why) => bail!("{why}"),
            None => Ok(reply),
        }
    }

    /// What it says of itself at its status page.
    pub(super) fn status_page(&self) -> Result<(ServerInfo, View)> {
        running::ask_by_state_folder(&self.state).map_err(|why| anyhow!("{why}"))
    }

    /// Until the members of that reply have no connection any more.
    pub(super) fn wait_until_idle(&self, reply: &Reply, patience: Duration) -> Result<ExitCode> {
        let began = Instant::now();
        let mut told = began;
        loop {
            let (_, view) = self.status_page()?;
            let open = open(&view, reply);
            if open == 0 {
                output::line("no connection is left");
                return Ok(ExitCode::SUCCESS);
            }
            if began.elapsed() >= patience {
                output::error(&format!("{open} connections are left after {} s", patience.as_secs()));
                return Ok(ExitCode::FAILURE);
            }
            if told.elapsed() >= TELL_EVERY {
                output::line(&format!("{open} connections are left"));
                told = Instant::now();
            }
            thread::sleep(LOOK_EVERY.min(patience));
        }
    }
}

fn open(view: &View, reply: &Reply) -> u64 {
    let pools =
        view.services.iter().flat_map(|service| service.pools.iter().map(move |pool| (service, pool)));
    let pools =
        pools.filter(|(service, pool)| reply.service.as_ref().is_none_or(|it| *it == owner(service, pool)));
    let members = pools.flat_map(|(_, pool)| &pool.members);
    members.filter(|it| reply.members.contains(&it.address)).map(|it| it.sessions.current).sum()
}
