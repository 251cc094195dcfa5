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
    alerts::Alerts,
    files::{self, Files},
    rights, supervisor,
};
use crate::{
    document::{Document, NO_STATE},
    runtime::{
        RuntimeApiConnection,
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
/// Under the shipped units of systemd.
const NO_JIT: &str = "HAProxy may not make memory executable, which its regular expressions need: set MemoryDenyWriteExecute=no in \
                      Seaway's unit of systemd (docs/haproxy.md)";
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
    pub(super) patience: Duration,
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
    copy.global.folder = name.ok_or_else(|| ProcessError::Invalid {
        alerts: vec!["the path of the folder for HAProxy's configuration is too long".into()],
    })?;
    let config = folder.join("haproxy.cfg");
    files::write_all(&files(&copy, &config))?;
    files::write_all(&no_state(&copy.global.state()))?;
    let arguments = ["-c".as_ref(), "-f".as_ref(), config.as_os_str()];
    let (is_content, output) = run(&paths.program, &arguments, paths.patience).await?;
    match is_content {
        true => Ok(()),
        false => {
            let mut alerts = observed::alerts(&output, &format!("{}/", folder.display()));
            if alerts.iter().any(|it| it.contains("jit compilation failed")) {
                alerts.push(NO_JIT.to_owned());
            }
            Err(ProcessError::Invalid { alerts })
        }
    }
}

pub(super) async fn version(program: &Path) -> Result<Option<(u16, u16)>, ProcessError> {
    let (_, output) = run(program, &["-v".as_ref()], PATIENCE).await?;
    Ok(observed::version(&String::from_utf8_lossy(&output)))
}

async fn run(
    program: &Path,
    arguments: &[&std::ffi::OsStr],
    patience: Duration,
) -> Result<(bool, Vec<u8>), ProcessError> {
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
    timeout(patience, all).await.map_err(|_| ProcessError::Late(patience))?
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

/// An HAProxy whose worker answers.
pub(super) struct StartedProcess {
    pub(super) child: Child,
    pub(super) seen: Processes,
    pub(super) socket: RuntimeApiConnection,
    pub(super) alerts: Alerts,
}

/// Starts it with the files as they are, and waits until its worker answers.
pub(super) async fn start(paths: &Paths) -> Result<StartedProcess, ProcessError> {
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
    // Ctrl-C at a terminal reaches the whole group. This one is told to stop by us, once its connections are gone.
    command.process_group(0);
    let mut child = rights::spawn(command).map_err(failed)?;
    let alerts = Alerts::default();
    if let Some(from) = child.stderr.take() {
        // It ends with HAProxy.
        tokio::spawn(alerts.clone().follow(from));
    }
    let since = Instant::now();
    loop {
        if child.try_wait().map_err(failed)?.is_some() {
            return Err(ProcessError::Ended { alerts: alerts.last(&paths.folder).await });
        }
        if let Ok(seen) = socket::processes(&paths.master).await
            && let Some(socket) = worker(paths, &seen).await
        {
            return Ok(StartedProcess { child, seen, socket, alerts });
        }
        if since.elapsed() > paths.patience {
            return Err(ProcessError::Late(paths.patience));
        }
        sleep(LOOK).await;
    }
}

/// If Seaway was killed, its HAProxy serves on, and has the ports. The folder is ours, so it is as well. And a worker whose
/// master was killed has them a moment longer. One that cannot be asked is not taken for one that is gone.
async fn end_former(paths: &Paths) -> Result<(), ProcessError> {
    let since = Instant::now();
    let mut is_told = false;
    loop {
        let open = match socket::processes(&paths.master).await {
            Err(error) if error.is_nothing_there() => match socket::is_open(&paths.worker).await {
                false => return Ok(()),
                true => ProcessError::Late(paths.patience),
            },
            Err(error) => error.into(),
            Ok(seen) => {
                if let Some(master) = seen.master.filter(|_| !is_told) {
                    tracing::info!(master, "HAProxy of an earlier process of Seaway is stopped");
                    supervisor::signal(master, Signal::SIGTERM);
                    is_told = true;
                }
                ProcessError::Late(paths.patience)
            }
        };
        if since.elapsed() > paths.patience {
            return Err(open);
        }
        sleep(LOOK).await;
    }
}

/// A connection to the worker that serves, once it answers at the path that one of before may have had.
async fn worker(paths: &Paths, seen: &Processes) -> Option<RuntimeApiConnection> {
    let worker = seen.worker?;
    let mut socket = RuntimeApiConnection::connect(&paths.worker).await.ok()?;
    (socket.process().await.ok()? == Some(worker)).then_some(socket)
}

/// Lets the master read its files again. The listening sockets stay open all the while: it passes them on.
pub(super) async fn reload(
    paths: &Paths,
    alerts: &Alerts,
) -> Result<(Processes, RuntimeApiConnection), ProcessError> {
    let before = socket::processes(&paths.master).await?;
    alerts.forget();
    socket::reload(&paths.master, paths.patience).await?;
    let since = Instant::now();
    while since.elapsed() < paths.patience {
        // It is away for a moment, as it becomes another program.
        if let Ok(seen) = socket::processes(&paths.master).await
            && seen.reloads > before.reloads
        {
            if seen.failed > before.failed {
                return Err(ProcessError::Reload { alerts: alerts.last(&paths.folder).await });
            }
            if seen.worker != before.worker
                && let Some(socket) = worker(paths, &seen).await
            {
                return Ok((seen, socket));
            }
        }
        sleep(LOOK).await;
    }
    Err(ProcessError::Late(paths.patience))
}
