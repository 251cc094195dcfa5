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
use seaway_proxy::{HandOver, Proxy, TakenOver, Turn};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use crate::{
    args::{Common, LogFormat, Logging, Run},
    control::Control,
    rights,
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
    let rights = rights::keep_only(rights::SERVING).context("capabilities cannot be dropped")?;
    let settings = load(arguments)?;
    let log = start_log(&settings)?;
    let process = Process {
        manifests: manifests_of(arguments.manifests.as_deref(), &settings)?,
        state_dir: state_dir_of(&arguments.common, &settings)?,
        settings,
        log,
        notifier: Notifier::from_env(),
        began,
    };
    info!(version = version::LONG, host = %process.settings.host, "seaway starts");
    info!("{rights}");
    raise_descriptor_limit();
    runtime()?.block_on(serve(process, arguments))
}

/// The data plane has threads of its own; what is left is little: the loop, the status page, names.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build()
        .context("the runtime cannot start")
}

fn load(arguments: &Run) -> Result<Settings> {
    settings_of(arguments.common.config.as_deref(), &arguments.log)
}

/// Flags win over the file.
pub(crate) fn settings_of(config: Option<&Path>, log: &Logging) -> Result<Settings> {
    let mut settings = settings::load(config)?;
    if let Some(format) = log.log_format {
        settings.log_json = format == LogFormat::Json;
    }
    if let Some(level) = &log.log_level {
        settings.log_level.clone_from(level);
    }
    Ok(settings)
}

pub(crate) fn start_log(settings: &Settings) -> Result<LogHandle> {
    let format = if settings.log_json { Format::Json } else { Format::Human };
    Ok(logging::start(format, &settings.log_level)?)
}

pub(crate) fn raise_descriptor_limit() {
    match seaway_proxy::raise_descriptor_limit() {
        Ok(limit) => info!(limit, "open files"),
        Err(error) => warn!(%error, "the limit of open files cannot be raised"),
    }
}

/// Follows what was read again, as far as that is not the plan's to follow. A configuration that is wrong changes nothing.
pub(crate) async fn follow(
    read: Result<Settings>,
    before: &Settings,
    log: &LogHandle,
    proxy: Option<&Proxy>,
) -> Option<Settings> {
    let settings = read
        .inspect_err(|wrong| error!("the configuration is not read again, the old one goes on:\n{wrong:#}"))
        .ok()?;
    for key in settings.needs_restart(before) {
        warn!(key, "changed in the configuration; it takes a new process to follow");
    }
    if settings.log_level != before.log_level
        && let Err(error) = log.set(&settings.log_level)
    {
        error!(%error, "the log level stays");
    }
    if let Some(proxy) = proxy.cloned() {
        let wanted = settings.access_log.clone();
        match tokio::task::spawn_blocking(move || proxy.log_requests(wanted)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!(%error, "the access log goes on as it was"),
            Err(error) => error!(%error, "the access log could not be told"),
        }
    }
    Some(settings)
}

async fn serve(process: Process, arguments: &Run) -> Result<ExitCode> {
    let signals = Signals::listen().context("signals cannot be listened to")?;
    let proxy = start_proxy(&process.settings)?;
    let mut taken = None;
    if arguments.take_over {
        let path = hand_over_path(&process);
        let mut sockets = tokio::task::spawn_blocking(move || seaway_proxy::take(&path)).await??;
        info!(listeners = sockets.listening().count(), "the running process hands its sockets over");
        proxy.adopt(&mut sockets);
        taken = Some(sockets);
    }
    let recorded = seaway_files::state::stored_addresses(&process.state_dir);
    let host = Arc::new(Host::new(
        process.settings.host.clone(),
        proxy,
        process.settings.addresses.clone(),
        recorded.iter().map(|it| it.ip),
    ));
    let control = Control::start(&process, &host).await?;
    let serving = Serving { process, host, signals, taken };
    serving.until_the_end(control, arguments).await
}

fn hand_over_path(process: &Process) -> PathBuf {
    process.state_dir.join("takeover.sock")
}

/// A process that serves, through reloads, hand-overs and its end.
struct Serving {
    process: Process,
    host: Arc<Host>,
    signals: Signals,
    /// Of a predecessor that has not let go yet.
    taken: Option<TakenOver>,
}

/// A turn of a hand-over, with the answer that it waits for.
type Told = (Turn, std::sync::mpsc::Sender<()>);

impl Serving {
    async fn until_the_end(mut self, control: Control, arguments: &Run) -> Result<ExitCode> {
        let (tell, mut turns) = mpsc::unbounded_channel::<Told>();
        let mut hand_over = None;
        // None while a successor gets ready.
        let mut control = Some(control);
        loop {
            let ready = async {
                match &mut control {
                    Some(control) => control.became_ready().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                signal = self.signals.next() => match signal {
                    Signal::Reload => if let Some(control) = &control { self.reload(control, arguments).await },
                    Signal::Stop => return self.stop(control).await,
                    Signal::StopNow => return Ok(ExitCode::FAILURE),
                },
                () = ready => {
                    self.take_the_rest().await?;
                    hand_over = hand_over.or_else(|| self.await_successor(tell.clone()));
                    info!(after = ?self.process.began.elapsed(), "ready");
                    self.process.notifier.main_process(std::process::id());
                    self.process.notifier.ready("serving");
                    seaway_proxy::give_memory_back();
                }
                Some((turn, answer)) = turns.recv() => {
                    match turn {
                        Turn::Asked => if let Some(control) = control.take() {
                            control.finish_planning().await.close().await;
                        },
                        Turn::Resumed => control = Some(Control::start(&self.process, &self.host).await?),
                        Turn::Over => return self.leave().await,
                    }
                    // The thread that waits for it may have been told to end.
                    let _ = answer.send(());
                }
            }
        }
    }

    /// Everything is open here: the predecessor lets go.
    async fn take_the_rest(&mut self) -> Result<()> {
        let Some(taken) = self.taken.take() else { return Ok(()) };
        let proxy = self.host.proxy.clone();
        tokio::task::spawn_blocking(move || proxy.confirm(taken)).await??;
        Ok(())
    }

    /// Without it everything works but a later --take-over.
    fn await_successor(&self, tell: mpsc::UnboundedSender<Told>) -> Option<HandOver> {
        let told = move |turn| {
            let (answer, answered) = std::sync::mpsc::channel();
            if tell.send((turn, answer)).is_ok() && turn != Turn::Over {
                // An error: this process is ending, and nobody answers.
                let _ = answered.recv();
            }
        };
        let waiting = self.host.proxy.hand_over(&hand_over_path(&self.process), told);
        waiting.inspect_err(|error| warn!(%error, "a later --take-over will not be possible")).ok()
    }

    async fn reload(&mut self, control: &Control, arguments: &Run) {
        let process = &mut self.process;
        process.notifier.reloading();
        let read = load(arguments);
        if let Some(settings) = follow(read, &process.settings, &process.log, Some(&self.host.proxy)).await {
            control.configure(settings.config.clone(), settings.pems.clone()).await;
            process.settings = settings;
            info!("the configuration was read again");
        }
        process.notifier.ready("serving");
    }

    /// Nobody new; who is there may finish until the deadline; a second signal does not wait for it.
    async fn stop(self, control: Option<Control>) -> Result<ExitCode> {
        info!(patience = ?self.process.settings.drain, "stopping: no new connections; those that are open may finish");
        self.process.notifier.stopping("draining");
        let draining = match control {
            Some(control) => Some(control.finish_planning().await),
            None => None,
        };
        let (host, patience) = (self.host.clone(), self.process.settings.drain);
        let code = self.drain(move || host.stop(patience).cut).await?;
        if let Some(draining) = draining {
            draining.close().await;
        }
        Ok(code)
    }

    /// A successor serves: what is connected here may finish, and its addresses are not touched.
    async fn leave(self) -> Result<ExitCode> {
        let (proxy, patience) = (self.host.proxy.clone(), self.process.settings.drain);
        self.drain(move || proxy.drain(Instant::now() + patience).cut).await
    }

    async fn drain(mut self, drain: impl FnOnce() -> usize + Send + 'static) -> Result<ExitCode> {
        let mut draining = tokio::task::spawn_blocking(drain);
        tokio::select! {
            _ = self.signals.next() => {
                warn!("stopped at once");
                // Threads that wait for connections are not waited for.
                std::process::exit(1);
            }
            cut = &mut draining => match cut.context("the drain panicked")? {
                0 => info!("stopped; every connection had ended"),
                cut => warn!(cut, "stopped; connections were cut at the deadline"),
            },
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(crate) fn start_proxy(settings: &Settings) -> Result<Proxy> {
    let mut data_plane = seaway_proxy::Settings { pin: settings.pin, ..seaway_proxy::Settings::default() };
    if let Some(workers) = settings.workers {
        data_plane.workers = workers;
    }
    let proxy = Proxy::start(data_plane).context("the data plane cannot start")?;
    proxy.log_requests(settings.access_log.clone())?;
    Ok(proxy)
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
