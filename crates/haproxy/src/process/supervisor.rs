//! The task that starts, reloads and commands HAProxy. No other does: it knows what HAProxy has, and what it should have.

mod members;
mod reload;

use std::{collections::BTreeMap, fs::File, path::PathBuf, process::ExitStatus, sync::Arc, time::Duration};

use nix::fcntl::Flock;

use tokio::{
    process::Child,
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::{
    Options, ProcessError, Report, SupervisorCommand,
    alerts::Alerts,
    files,
    launch::{self, Paths, StartedProcess},
};
use crate::{
    difference::{Difference, ReloadReason, leaving_of},
    document::{Document, FileKind, Slot},
    running::RunningConfig,
    runtime::{
        Command, RuntimeApiConnection, SocketError,
        commands::{ServerName, ServerState},
    },
    words::Label,
};

/// Who died within this time after a start is started again with a pause, which doubles each time.
const STABLE: Duration = Duration::from_secs(60);
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How often is looked whether those who leave still have connections; and whether a failed attempt succeeds now.
const LOOK: Duration = Duration::from_secs(1);
/// After so many failures in a row, a reload brings what is wanted.
const FAILURES: u32 = 3;

type ReplySender = oneshot::Sender<Result<(), Arc<ProcessError>>>;

pub(super) struct ProcessSupervisor {
    options: Options,
    paths: Paths,
    child: Option<Child>,
    /// Of the child.
    alerts: Alerts,
    socket: Option<RuntimeApiConnection>,
    running: RunningConfig,
    wanted: Arc<Document>,
    /// Other members than there, since it came.
    members: BTreeMap<Label, Vec<Slot>>,
    /// The last one that HAProxy was started with or read.
    good: Arc<Document>,
    waiting: Vec<ReplySender>,
    /// Dropped while the folder is still ours.
    _swept: TransientFolder,
    /// No other process writes into the folder.
    _lock: Flock<File>,
    /// Since when a reload is due, and why.
    reloads: BTreeMap<ReloadReason, usize>,
    reloaded: Option<Instant>,
    started: Instant,
    /// Starts in a row that did not last.
    deaths: u32,
    start_at: Option<Instant>,
    /// When something has to be tried again.
    retry_at: Option<Instant>,
    failures: u32,
    /// Whether a command may have been done that is not taken down.
    is_unsure: bool,
    drained: BTreeMap<ServerName, Instant>,
    look_at: Option<Instant>,
    report: Report,
    tell: watch::Sender<Report>,
}

impl ProcessSupervisor {
    pub(super) async fn start(
        options: Options,
        document: Arc<Document>,
        tell: watch::Sender<Report>,
    ) -> Result<ProcessSupervisor, ProcessError> {
        let folder = PathBuf::from(document.global.folder.as_str());
        let paths = Paths {
            program: options.program.clone(),
            config: options.config.clone(),
            master: folder.join("master.sock"),
            worker: document.global.socket().into(),
            state: document.global.state(),
            patience: options.patience,
            folder,
        };
        files::check_ownership(&paths.config)?;
        let lock = files::claim(&paths.folder)?;
        let swept = TransientFolder(paths.folder.clone());
        launch::check(&paths, &document).await?;
        let all = launch::files(&document, &paths.config);
        files::write_all(&all)?;
        let StartedProcess { child, seen, socket, alerts } = launch::start(&paths).await?;
        files::sweep(&paths.folder, &all);
        let report = Report { master: seen.master, worker: seen.worker, ..Report::default() };
        let mut keeper = ProcessSupervisor {
            options,
            paths,
            child: Some(child),
            alerts,
            socket: Some(socket),
            running: RunningConfig::loaded(document.clone()),
            good: document.clone(),
            wanted: document,
            members: BTreeMap::new(),
            waiting: Vec::new(),
            _swept: swept,
            _lock: lock,
            reloads: BTreeMap::new(),
            reloaded: None,
            started: Instant::now(),
            deaths: 0,
            start_at: None,
            retry_at: None,
            failures: 0,
            is_unsure: false,
            drained: BTreeMap::new(),
            look_at: None,
            report,
            tell,
        };
        keeper.observe().await?;
        keeper.bring().await;
        Ok(keeper)
    }

    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<SupervisorCommand>) {
        loop {
            self.tell.send_replace(self.report.clone());
            let due = self.due();
            let event = tokio::select! {
                order = orders.recv() => Event::Order(order),
                status = ended(self.child.as_mut()) => Event::Ended(status),
                () = at(due) => Event::Due,
            };
            match event {
                Event::Order(None | Some(SupervisorCommand::Stop)) => break,
                Event::Order(Some(SupervisorCommand::Members(changed, tell))) if self.has_all() => {
                    self.waiting.push(tell);
                    self.apply_members(changed).await;
                }
                Event::Order(Some(order)) => {
                    if self.take(order, &mut orders) {
                        break;
                    }
                    self.bring().await;
                }
                Event::Ended(status) => self.died(status),
                Event::Due => self.do_what_is_due().await,
            }
        }
        self.end().await;
    }

    /// The last one of those that wait counts. True: it is to stop.
    fn take(&mut self, order: SupervisorCommand, orders: &mut mpsc::Receiver<SupervisorCommand>) -> bool {
        let mut next = Some(order);
        while let Some(order) = next {
            let tell = match order {
                SupervisorCommand::Stop => return true,
                SupervisorCommand::Serve(document, tell) => {
                    self.merge_members();
                    self.wanted = document;
                    tell
                }
                SupervisorCommand::Members(changed, tell) => {
                    self.running.brought = None;
                    self.members.extend(changed);
                    tell
                }
            };
            self.waiting.push(tell);
            next = orders.try_recv().ok();
        }
        self.failures = 0;
        false
    }

    fn due(&self) -> Option<Instant> {
        if self.child.is_none() {
            return self.start_at;
        }
        let reload = (!self.reloads.is_empty()).then(|| self.reload_at());
        [reload, self.retry_at, self.look_at].into_iter().flatten().min()
    }

    fn reload_at(&self) -> Instant {
        self.reloaded.map_or(self.started, |it| it + self.options.between_reloads)
    }

    async fn do_what_is_due(&mut self) {
        let now = Instant::now();
        if self.child.is_none() {
            self.restart().await;
            return;
        }
        if !self.reloads.is_empty() && self.reload_at() <= now {
            self.reload().await;
        }
        if self.retry_at.is_some_and(|it| it <= now) {
            self.retry_at = None;
            self.bring().await;
        }
        if self.look_at.is_some_and(|it| it <= now) {
            self.look_at = None;
            if let Err(error) = self.settle().await {
                self.lost(error);
            }
        }
    }

    /// Tells HAProxy what is new, and asks for a reload where that is not enough.
    async fn bring(&mut self) {
        self.merge_members();
        if self.child.is_none() {
            return;
        }
        if self.is_unsure
            && let Err(error) = self.observe().await
        {
            return self.lost(error);
        }
        let difference = Difference::between(&self.running, &self.wanted);
        match self.tell_haproxy(&difference.commands).await {
            Ok(()) => {
                self.failures = 0;
                self.reloads = difference.reloads;
                if self.reloads.is_empty() {
                    self.running.brought = Some(self.wanted.clone());
                }
                self.follow_leaving();
                if self.reloads.is_empty() {
                    self.answer(&Ok(()));
                } else if self.reload_at() <= Instant::now() {
                    self.reload().await;
                }
            }
            Err(error) => self.lost(error),
        }
    }

    /// Each that was done is taken down.
    async fn tell_haproxy(&mut self, commands: &[Command]) -> Result<(), SocketError> {
        if commands.is_empty() {
            return Ok(());
        }
        let mut socket = self.take_socket().await?;
        let (running, count) = (&mut self.running, &mut self.report.commands);
        let mut done = |it: &Command| {
            running.apply(it);
            *count += 1;
            // A key that is gone is no longer on the disk, though no reload comes for long.
            if let Command::RemoveCertificate { file } = it {
                files::remove(file.as_ref());
            }
        };
        let result = socket.run(commands, &mut done).await;
        if result.as_ref().err().is_none_or(SocketError::is_refusal) {
            self.socket = Some(socket);
        } else {
            self.is_unsure = true;
        }
        result
    }

    async fn take_socket(&mut self) -> Result<RuntimeApiConnection, SocketError> {
        match self.socket.take() {
            Some(socket) => Ok(socket),
            None => RuntimeApiConnection::connect(&self.paths.worker).await,
        }
    }

    /// A reload brings what was refused. After another error it is tried again, and HAProxy is asked what it has before.
    fn lost(&mut self, error: SocketError) {
        tracing::warn!(error = &error as &dyn std::error::Error, "a command to HAProxy failed");
        self.failures += 1;
        if error.is_refusal() || self.failures >= FAILURES {
            self.reloads.insert(ReloadReason::Refused, 1);
        } else {
            self.retry_at = Some(Instant::now() + LOOK);
        }
    }

    /// Compares what HAProxy has with what it was told: what was changed while it read its files would be missing.
    async fn observe(&mut self) -> Result<(), SocketError> {
        let mut socket = self.take_socket().await?;
        self.running.record_servers(&socket.servers().await?);
        let folder = self.wanted.global.folder.clone();
        let known = self.running.document.clone();
        for name in known.maps.keys() {
            let path = FileKind::Maps.path(&folder, name);
            let seen = socket.map(&path).await?;
            self.running.record_map(&path, &seen);
        }
        self.socket = Some(socket);
        self.is_unsure = false;
        let corrections = Difference::between(&self.running, &known).commands.len() as u64;
        self.report.corrections += corrections;
        Ok(())
    }

    fn died(&mut self, status: String) {
        self.child = None;
        self.socket = None;
        (self.report.master, self.report.worker) = (None, None);
        if self.started.elapsed() >= STABLE {
            self.deaths = 0;
        }
        let pause = match self.deaths {
            0 => Duration::ZERO,
            more => PAUSES.0.saturating_mul(1 << (more - 1).min(10)).min(PAUSES.1),
        };
        self.deaths += 1;
        tracing::error!(status, "HAProxy ended, and is started again in {pause:?}");
        self.start_at = Some(Instant::now() + pause);
    }

    /// With what is wanted, or with what was good if that is refused.
    async fn restart(&mut self) {
        self.start_at = None;
        self.started = Instant::now();
        match self.try_restart().await {
            Ok(()) => {
                self.report.restarts += 1;
                self.report.failed_starts = 0;
                self.reloads.clear();
                self.bring().await;
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "HAProxy cannot be started");
                self.report.failed_starts += 1;
                self.answer(&Err(Arc::new(error)));
                self.died("not started".into());
            }
        }
    }

    async fn try_restart(&mut self) -> Result<(), ProcessError> {
        self.merge_members();
        let mut document = self.wanted.clone();
        if !Arc::ptr_eq(&document, &self.good)
            && let Err(error) = launch::check(&self.paths, &document).await
        {
            self.answer(&Err(Arc::new(error)));
            document = self.good.clone();
        }
        files::check_ownership(&self.paths.config)?;
        files::write_all(&launch::files(&document, &self.paths.config))?;
        let StartedProcess { child, seen, socket, alerts } = launch::start(&self.paths).await?;
        self.child = Some(child);
        self.alerts = alerts;
        self.socket = Some(socket);
        self.report.master = seen.master;
        self.report.worker = seen.worker;
        Ok(self.loaded(document).await?)
    }

    fn follow_leaving(&mut self) {
        let backends = self.running.servers.keys();
        let leaving: Vec<ServerName> =
            backends.flat_map(|it| leaving_of(&self.running, it, self.slots_of(it))).collect();
        self.drained.retain(|server, _| leaving.contains(server));
        for server in leaving {
            self.drained.entry(server).or_insert_with(Instant::now);
        }
        self.look_at = (!self.drained.is_empty()).then(|| Instant::now() + LOOK);
    }

    /// Who has left is no longer checked, and gets nobody with an old cookie.
    async fn settle(&mut self) -> Result<(), SocketError> {
        let mut socket = self.take_socket().await?;
        let used = socket.connections().await?;
        self.socket = Some(socket);
        let is_over = |(server, since): &(&ServerName, &Instant)| {
            let name = (server.backend.as_str().to_owned(), server.name.as_str().to_owned());
            used.get(&name).is_none_or(|it| *it == 0) || since.elapsed() >= self.options.drain
        };
        let over = self.drained.iter().filter(is_over).map(|it| it.0.clone());
        let commands: Vec<Command> = over.map(|it| Command::SetState(it, ServerState::Maintenance)).collect();
        let brought = self.running.brought.clone();
        self.tell_haproxy(&commands).await?;
        self.running.brought = brought;
        self.follow_leaving();
        Ok(())
    }

    fn answer(&mut self, result: &Result<(), Arc<ProcessError>>) {
        self.tell.send_replace(self.report.clone());
        // Who no longer waits does not care.
        self.waiting.drain(..).for_each(|it| drop(it.send(result.clone())));
    }

    /// Lets it end by itself.
    async fn end(mut self) {
        self.answer(&Err(Arc::new(ProcessError::Stopped)));
        // It is one of the connections that are waited for.
        self.socket = None;
        let Some(mut child) = self.child.take() else { return };
        if let Some(pid) = child.id() {
            signal(pid, nix::sys::signal::Signal::SIGUSR1);
        }
        let limit = self.wanted.global.hard_stop + LOOK;
        let _ = tokio::time::timeout(limit, child.wait()).await;
        let _ = child.kill().await;
    }
}

/// A folder in which nothing that HAProxy reads is left in the end: keys lie there only while they are used.
struct TransientFolder(PathBuf);

impl Drop for TransientFolder {
    fn drop(&mut self) {
        files::sweep(&self.0, &Vec::new());
    }
}

enum Event {
    Order(Option<SupervisorCommand>),
    Ended(String),
    Due,
}

/// When the master is no more; with it ends each of its workers. A worker that dies ends it, too.
async fn ended(child: Option<&mut Child>) -> String {
    match child {
        None => std::future::pending().await,
        Some(child) => child.wait().await.as_ref().map_or_else(ToString::to_string, ExitStatus::to_string),
    }
}

async fn at(due: Option<Instant>) {
    match due {
        None => std::future::pending().await,
        Some(due) => sleep_until(due).await,
    }
}

pub(super) fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    let Ok(pid) = i32::try_from(pid) else { return };
    if let Err(error) = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal) {
        tracing::debug!(pid, %error, "a process of HAProxy has exited already");
    }
}
