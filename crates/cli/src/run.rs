//! `seaway run`: start, serve, stop.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use seaway_admin::{
    Signal, Signals,
    logging::{self, Format, LogHandle},
    notify::Notifier,
};
use seaway_node::Host;
use seaway_proxy::Proxy;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::{
    args::{Common, LogFormat, Run},
    control::Control,
    settings::{self, Settings},
    version,
};

/// What a process is run with: the configuration, with what flags say instead.
pub(crate) struct Process {
    pub(crate) settings: Settings,
    pub(crate) manifests: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) log: LogHandle,
    pub(crate) notifier: Notifier,
    pub(crate) began: Instant,
}

pub(crate) fn run(arguments: &Run) -> Result<ExitCode> {
    let began = Instant::now();
    let settings = load(arguments)?;
    let format = if settings.log_json { Format::Json } else { Format::Human };
    let log = logging::start(format, &settings.log_level)?;
    let process = Process {
        manifests: manifests_of(arguments.manifests.as_deref(), &settings)?,
        state_dir: state_dir_of(&arguments.common, &settings)?,
        settings,
        log,
        notifier: Notifier::from_env(),
        began,
    };
    info!(version = version::LONG, host = %process.settings.host, "seaway starts");
    match seaway_proxy::raise_descriptor_limit() {
        Ok(limit) => info!(limit, "open files"),
        Err(error) => warn!(%error, "the limit of open files cannot be raised"),
    }
    // The data plane has threads of its own; what is left is little: the loop, the status page, names.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    runtime.block_on(serve(process, arguments))
}

/// Flags win over the file.
fn load(arguments: &Run) -> Result<Settings> {
    let mut settings = settings::load(arguments.common.config.as_deref())?;
    if let Some(format) = arguments.log_format {
        settings.log_json = format == LogFormat::Json;
    }
    if let Some(level) = &arguments.log_level {
        settings.log_level.clone_from(level);
    }
    Ok(settings)
}

async fn serve(mut process: Process, arguments: &Run) -> Result<ExitCode> {
    let mut signals = Signals::listen().context("signals cannot be listened to")?;
    let proxy = start_proxy(&process.settings)?;
    let recorded = seaway_files::state::stored_addresses(&process.state_dir);
    let host = Arc::new(Host::new(
        process.settings.host.clone(),
        proxy,
        process.settings.addresses.clone(),
        recorded.iter().map(|it| it.ip),
    ));
    let mut control = Control::start(&process, &host).await?;
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Reload => reload(&mut process, &control, arguments).await,
                Signal::Stop => return stop(control, &process, &host, signals).await,
                Signal::StopNow => return Ok(ExitCode::FAILURE),
            },
            () = control.became_ready() => {
                info!(after = ?process.began.elapsed(), "ready");
                process.notifier.ready("serving");
            }
        }
    }
}

fn start_proxy(settings: &Settings) -> Result<Proxy> {
    let mut data_plane = seaway_proxy::Settings { pin: settings.pin, ..seaway_proxy::Settings::default() };
    if let Some(workers) = settings.workers {
        data_plane.workers = workers;
    }
    Proxy::start(data_plane).context("the data plane cannot start")
}

/// A configuration that is wrong changes nothing.
async fn reload(process: &mut Process, control: &Control, arguments: &Run) {
    process.notifier.reloading();
    match load(arguments) {
        Err(wrong) => error!("the configuration is not read again, the old one goes on:\n{wrong:#}"),
        Ok(settings) => {
            for key in settings.needs_restart(&process.settings) {
                warn!(key, "changed in the configuration; it takes a new process (--take-over) to follow");
            }
            if settings.log_level != process.settings.log_level
                && let Err(error) = process.log.set(&settings.log_level)
            {
                error!(%error, "the log level stays");
            }
            control.configure(settings.config.clone()).await;
            process.settings = settings;
            info!("the configuration was read again");
        }
    }
    process.notifier.ready("serving");
}

/// Nobody new; who is there may finish until the deadline; a second signal does not wait for it.
async fn stop(
    control: Control,
    process: &Process,
    host: &Arc<Host>,
    mut signals: Signals,
) -> Result<ExitCode> {
    let patience = process.settings.drain;
    info!(?patience, "stopping: no new connections; those that are open may finish");
    process.notifier.stopping("draining");
    let control = control.finish_planning().await;
    let (host, (done, mut drained)) = (host.clone(), watch::channel(None));
    let drain = tokio::task::spawn_blocking(move || {
        // Nobody to tell it to means that the second signal came.
        let _ = done.send(Some(host.stop(patience).cut));
    });
    tokio::select! {
        _ = signals.next() => {
            warn!("stopped at once");
            // Threads that wait for connections are not waited for.
            std::process::exit(1);
        }
        _ = drained.wait_for(Option::is_some) => {}
    }
    drain.await.context("the drain panicked")?;
    control.close().await;
    match *drained.borrow() {
        Some(0) | None => info!("stopped; every connection had ended"),
        Some(cut) => warn!(cut, "stopped; connections were cut at the deadline"),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn manifests_of(flag: Option<&Path>, settings: &Settings) -> Result<PathBuf> {
    match flag.map(Path::to_owned).or_else(|| settings.manifests.clone()) {
        Some(dir) => Ok(dir),
        None => bail!("which folder? Name it with --manifests DIR, or as `manifests:` in the configuration"),
    }
}

pub(crate) fn state_dir_of(common: &Common, settings: &Settings) -> Result<PathBuf> {
    if let Some(dir) = common.state_dir.clone().or_else(|| settings.state_dir.clone()) {
        return Ok(dir);
    }
    if nix::unistd::geteuid().is_root() {
        return Ok("/var/lib/seaway".into());
    }
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    match base.or_else(home) {
        Some(base) => Ok(base.join("seaway")),
        None => bail!("where may state be kept? Name a folder with --state-dir DIR"),
    }
}
