//! Single steps: a check, a start, a reload, each with its limit of time.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use secrecy::SecretString;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use nix::sys::signal::Signal;

use super::{
    ProcessError,
    files::{self, Files},
    keeper,
};
use crate::{
    document::{Document, NO_STATE},
    runtime::{
        Socket,
        observed::{self, Processes},
        socket,
    },
    words::Folder,
};

/// For a check, a start and a reload: 5,000 Services take HAProxy a second or two.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How often is looked whether something came to be of which HAProxy does not tell.
const LOOK: Duration = Duration::from_millis(5);
/// Of what it prints.
const MOST_OUTPUT: u64 = 1 << 20;
/// What HAProxy exits with where it is content with a file is 0.
const CHECKED: &str = "check";

/// Sockets and files of one HAProxy.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) program: PathBuf,
    pub(super) config: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) master: PathBuf,
    pub(super) worker: PathBuf,
    pub(super) state: String,
}

/// All files of a document, the configuration at this path.
pub(super) fn files(document: &Document, config: &Path) -> Files {
    let all = crate::files(document);
    let others = all.others.into_iter().map(|(path, (_, content))| (PathBuf::from(path), content));
    others.chain([(config.to_owned(), SecretString::from(all.configuration))]).collect()
}

/// Whether HAProxy takes it: in a folder of its own, so that files which are in use stay as they are.
pub(super) async fn check(paths: &Paths, document: &Document) -> Result<(), ProcessError> {
    let folder = paths.folder.join(CHECKED);
    let result = check_in(paths, document, &folder).await;
    let _ = std::fs::remove_dir_all(&folder);
    result
}

async fn check_in(paths: &Paths, document: &Document, folder: &Path) -> Result<(), ProcessError> {
    let mut copy = document.clone();
    let name = folder.to_str().and_then(Folder::new);
    copy.global.folder =
        name.ok_or_else(|| ProcessError::Invalid { alerts: vec!["its folder's path is too long".into()] })?;
    let config = folder.join("haproxy.cfg");
    files::write_all(&files(&copy, &config))?;
    files::write_all(&no_state(&copy.global.state()))?;
    let arguments = ["-c".as_ref(), "-f".as_ref(), config.as_os_str()];
    let (is_content, output) = run(&paths.program, &arguments).await?;
    match is_content {
        true => Ok(()),
        false => Err(ProcessError::Invalid {
            alerts: observed::alerts(&output, &format!("{}/", folder.display())),
        }),
    }
}

pub(super) async fn version(program: &Path) -> Result<Option<(u16, u16)>, ProcessError> {
    let (_, output) = run(program, &["-v".as_ref()]).await?;
    Ok(observed::version(&String::from_utf8_lossy(&output)))
}

async fn run(program: &Path, arguments: &[&std::ffi::OsStr]) -> Result<(bool, Vec<u8>), ProcessError> {
    let failed = |source| ProcessError::Program { program: program.to_owned(), source };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let all = async {
        let (mut output, errors) = tokio::join!(read(out), read(err));
        output.extend(errors);
        let status = child.wait().await.map_err(failed)?;
        Ok((status.success(), output))
    };
    timeout(PATIENCE, all).await.map_err(|_| ProcessError::Late)?
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let mut from = from.take(MOST_OUTPUT);
        let _ = from.read_to_end(&mut bytes).await;
        // The rest is thrown away, so that it is not stopped by a full pipe.
        let _ = tokio::io::copy(&mut from.into_inner(), &mut tokio::io::sink()).await;
    }
    bytes
}

fn no_state(path: &str) -> Files {
    vec![(path.into(), NO_STATE.to_owned().into())]
}

/// Starts it with the files as they are, and waits until its worker answers.
pub(super) async fn start(paths: &Paths) -> Result<(Child, Processes, Socket), ProcessError> {
    end_former(paths).await?;
    files::write_all(&no_state(&paths.state))?;
    // Those of one that was killed would be taken for its own.
    for socket in [&paths.master, &paths.worker] {
        let _ = std::fs::remove_file(socket);
    }
    let failed = |source| ProcessError::Program { program: paths.program.clone(), source };
    let mut command = Command::new(&paths.program);
    command
        .args(["-W", "-S"])
        .arg(format!("{},mode,600", paths.master.display()))
        .arg("-f")
        .arg(&paths.config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    if let Some(from) = child.stderr.take() {
        // It ends with HAProxy.
        tokio::spawn(log(from));
    }
    let since = Instant::now();
    loop {
        if child.try_wait().map_err(failed)?.is_some() {
            return Err(ProcessError::Ended);
        }
        if let Ok(seen) = socket::processes(&paths.master).await
            && let Some(socket) = worker(paths, &seen).await
        {
            return Ok((child, seen, socket));
        }
        if since.elapsed() > PATIENCE {
            return Err(ProcessError::Late);
        }
        sleep(LOOK).await;
    }
}

/// If Seaway was killed, its HAProxy serves on, and has the ports. The folder is ours, so it is as well.
async fn end_former(paths: &Paths) -> Result<(), ProcessError> {
    let Ok(Processes { master: Some(master), .. }) = socket::processes(&paths.master).await else {
        return Ok(());
    };
    tracing::info!(master, "HAProxy of an earlier process of Seaway is stopped");
    keeper::signal(master, Signal::SIGTERM);
    let since = Instant::now();
    while socket::processes(&paths.master).await.is_ok() {
        if since.elapsed() > PATIENCE {
            return Err(ProcessError::Late);
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// A connection to the worker that serves, once it answers at the path that one of before may have had.
async fn worker(paths: &Paths, seen: &Processes) -> Option<Socket> {
    let worker = seen.worker?;
    let mut socket = Socket::connect(&paths.worker).await.ok()?;
    (socket.process().await.ok()? == Some(worker)).then_some(socket)
}

/// Lets the master read its files again. The listening sockets stay open all the while: it passes them on.
pub(super) async fn reload(paths: &Paths) -> Result<(Processes, Socket), ProcessError> {
    let before = socket::processes(&paths.master).await?;
    socket::reload(&paths.master).await?;
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        // It is away for a moment, as it becomes another program.
        if let Ok(seen) = socket::processes(&paths.master).await
            && seen.reloads > before.reloads
        {
            if seen.failed > before.failed {
                return Err(ProcessError::Reload);
            }
            if seen.worker != before.worker
                && let Some(socket) = worker(paths, &seen).await
            {
                return Ok((seen, socket));
            }
        }
        sleep(LOOK).await;
    }
    Err(ProcessError::Late)
}

/// What HAProxy prints, for whoever reads our log.
async fn log(from: impl AsyncRead + Unpin) {
    let mut from = from;
    let mut bytes = vec![0; 8 << 10];
    while let Ok(count) = from.read(&mut bytes).await
        && count > 0
    {
        let text = String::from_utf8_lossy(&bytes[..count]);
        for line in text.lines().filter(|it| !it.trim().is_empty()) {
            tracing::debug!(target: "haproxy", "{line}");
        }
    }
}
