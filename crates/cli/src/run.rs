//! `seaway run`: what it is run with; [`serving`] has the rest of its life.

mod serving;

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use seaway_admin::{
    logging::{self, Format, LogHandle},
    notify::Notifier,
};
use seaway_node::Host;
use seaway_proxy::{AccessLogTarget, Proxy};
use seaway_watchdog::Watchdog;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

pub(crate) use self::serving::exit_at_once;
use self::serving::serve;
use crate::{
    args::{LogFormat, Logging, Run},
    operate::ReloadSender,
    rights,
    settings::{self, Settings},
    version, watchdog,
};

/// What a process is run with: the configuration, with what flags say instead.
pub(crate) struct ProcessOptions {
    pub(crate) settings: Settings,
    pub(crate) manifests: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) log: LogHandle,
    pub(crate) notifier: Notifier,
    pub(crate) began: Instant,
    pub(crate) watchdog: Watchdog,
    /// Asks for the configuration to be read again.
    pub(crate) reloading: ReloadSender,
}

pub(crate) fn run(arguments: &Run) -> Result<ExitCode> {
    let began = Instant::now();
    let rights = rights::keep_only(rights::SERVING_CAPABILITIES).context("capabilities cannot be dropped")?;
    let settings = load(arguments)?;
    let manifests = manifests_of(arguments.folder.dir(), &settings)?;
    if manifests.is_file() {
        bail!(
            "{} is a file: seaway run serves and watches a folder. Put the file into a folder, and name that; seaway check and \
             seaway plan take a file as well",
            manifests.display()
        );
    }
    let log = start_log(&settings)?;
    log_doubts(&settings);
    let (reloading, reloads) = mpsc::channel(1);
    let process = ProcessOptions {
        reloading,
        manifests,
        state_dir: state_dir_of(arguments.common.state_dir.as_deref(), &settings)?,
        settings,
        log,
        notifier: Notifier::from_env(),
        began,
        watchdog: watchdog::start().context("the watchdog cannot start")?,
    };
    info!(version = version::LONG, host = %process.settings.host, "seaway starts");
    info!("{rights}");
    raise_descriptor_limit();
    runtime()?.block_on(serve(process, arguments, reloads))
}

/// The data plane has threads of its own; what is left is little: the loop, the status page, names.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(watchdog::CONTROL_THREADS)
        .enable_all()
        .build()
        .context("the runtime cannot start")
}

fn load(arguments: &Run) -> Result<Settings> {
    let mut settings = arguments.common.settings()?;
    if let Some(port) = arguments.status_port {
        settings.admin = Some(vec![(Ipv4Addr::LOCALHOST, port).into()]);
    }
    Ok(logged(settings, &arguments.log))
}

/// Flags win over the file.
pub(crate) fn settings_of(config: Option<&Path>, log: &Logging) -> Result<Settings> {
    Ok(logged(settings::load(config)?, log))
}

fn logged(mut settings: Settings, log: &Logging) -> Settings {
    if let Some(format) = log.log_format {
        settings.log_json = format == LogFormat::Json;
    }
    if let Some(level) = &log.log_level {
        settings.log_level.clone_from(level);
    }
    settings
}

pub(crate) fn start_log(settings: &Settings) -> Result<LogHandle> {
    let format = if settings.log_json { Format::Json } else { Format::Human };
    Ok(logging::start(format, &settings.log_level)?)
}

/// What the configuration says and probably does not mean.
pub(crate) fn log_doubts(settings: &Settings) {
    settings.doubts.iter().for_each(|line| warn!("{line}"));
}

pub(crate) fn raise_descriptor_limit() {
    match seaway_proxy::raise_descriptor_limit() {
        Ok(limit) => info!(limit, "limit of open files raised"),
        Err(error) => warn!(%error, "the limit of open files cannot be raised"),
    }
}

/// Follows what was read again, as far as that is not the plan's to follow. A configuration that is wrong changes nothing.
pub(crate) async fn apply_reloaded(
    read: Result<Settings>,
    before: &Settings,
    log: &LogHandle,
    host: Option<&Host>,
) -> Option<Settings> {
    let settings = read
        .inspect_err(|wrong| {
            // A line of the log is one line.
            let why = format!("{wrong:#}").replace('\n', "; ");
            error!("the new configuration cannot be used, the previous one stays in use: {why}")
        })
        .ok()?;
    if settings.doubts != before.doubts {
        log_doubts(&settings);
    }
    for key in settings.needs_restart(before) {
        warn!(key, "configuration key changed; it takes effect after a restart");
    }
    if settings.log_level != before.log_level
        && let Err(error) = log.set(&settings.log_level)
    {
        error!(%error, "the log level cannot be changed");
    }
    if let Some(host) = host {
        let proxy = host.proxy.clone();
        proxy.limit_memory(settings.memory);
        proxy.measure_latency(settings.series.latency);
        proxy.share_new_connections(settings.config.tenants.limits.new_per_worker);
        host.reserve_ports(&settings.config.tenants.reserved_ports);
        let wanted = settings.access_log.clone();
        match tokio::task::spawn_blocking(move || proxy.log_requests(wanted)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!(%error, "the access log cannot be opened"),
            Err(error) => error!(%error, "the task that opens the access log failed"),
        }
    }
    Some(settings)
}

pub(crate) fn start_proxy(settings: &Settings) -> Result<Proxy> {
    let mut data_plane = seaway_proxy::Settings { pin: settings.pin, ..seaway_proxy::Settings::default() };
    if let Some(workers) = settings.workers {
        data_plane.workers = workers;
    }
    let proxy = Proxy::start(data_plane).context("the data plane cannot start")?;
    proxy.limit_memory(settings.memory);
    proxy.measure_latency(settings.series.latency);
    proxy.share_new_connections(settings.config.tenants.limits.new_per_worker);
    let log = settings.access_log.as_ref().map(|it| &it.to);
    let file =
        if let Some(AccessLogTarget::File(file)) = log { file.display().to_string() } else { String::new() };
    proxy.log_requests(settings.access_log.clone()).with_context(|| format!("accessLog.to: {file}"))?;
    Ok(proxy)
}

pub(crate) fn manifests_of(flag: Option<&Path>, settings: &Settings) -> Result<PathBuf> {
    match flag.map(Path::to_owned).or_else(|| settings.manifests.clone()) {
        Some(dir) => Ok(dir),
        None => bail!(
            "no folder of manifests is set: write the folder after the command, or `manifests: DIR` in seaway.yaml"
        ),
    }
}

pub(crate) fn state_dir_of(flag: Option<&Path>, settings: &Settings) -> Result<PathBuf> {
    if let Some(dir) = flag.map(Path::to_owned).or_else(|| settings.state_dir.clone()) {
        return Ok(dir);
    }
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    match usual_state_dir(nix::unistd::geteuid().is_root(), named("XDG_STATE_HOME"), named("HOME")) {
        Some(dir) => Ok(dir),
        None => bail!("no state folder is set: name one with --state-dir DIR"),
    }
}

/// That of the machine, or of a user.
fn usual_state_dir(is_root: bool, state_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if is_root {
        return Some("/var/lib/seaway".into());
    }
    let base = state_home.or_else(|| home.map(|it| it.join(".local/state")));
    base.map(|it| it.join("seaway"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_plan_and_run_share_the_state_folder_that_is_usual_for_who_runs_them() {
        let dir = |is_root, state_home: Option<&str>, home: Option<&str>| {
            usual_state_dir(is_root, state_home.map(PathBuf::from), home.map(PathBuf::from))
        };
        assert_eq!(dir(true, Some("/s"), Some("/root")), Some("/var/lib/seaway".into()));
        assert_eq!(dir(false, Some("/s"), Some("/home/a")), Some("/s/seaway".into()));
        assert_eq!(dir(false, None, Some("/home/a")), Some("/home/a/.local/state/seaway".into()));
        assert_eq!(dir(false, None, None), None);
    }
}
