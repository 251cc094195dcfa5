//! HAProxy as a process of ours: started, told of changes, reloaded where it must be, and started again when it dies.
//!
//! ```text
//!     Haproxy::serve(Document) ─► Keeper ─ commands ─► worker      at once
//!                                   ├──── reload ────► master      gathered; files checked before
//!                                   └──── start ◄───── its death   with growing pauses
//! ```
//! Files are written before a start and a reload alone: what a command changed meanwhile is in memory, here and there.

mod alerts;
mod files;
mod launch;
mod rights;
mod supervisor;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use crate::{
    difference::ReloadReason,
    document::{Document, Slot},
    runtime::SocketError,
    words::Label,
};

#[derive(Clone, Debug)]
pub struct Options {
    pub program: PathBuf,
    /// The file that HAProxy reads. Overwritten only if it is ours.
    pub config: PathBuf,
    /// Of before a reload, with connections that last: so many are left at most, and the oldest is ended for another.
    pub old_workers: usize,
    /// From one reload to the next.
    pub between_reloads: Duration,
    /// A member that leaves has so long until clients with its cookie get another one. Connections that it has go on.
    pub drain: Duration,
    /// For a check, a start and a reload.
    pub patience: Duration,
}

impl Options {
    pub fn new(config: impl Into<PathBuf>) -> Options {
        Options {
            program: "/usr/sbin/haproxy".into(),
            config: config.into(),
            old_workers: 2,
            between_reloads: Duration::from_secs(2),
            drain: Duration::from_secs(30),
            patience: launch::PATIENCE,
        }
    }
}

#[derive(Debug, Error)]
pub enum ProcessError {
    #[error("{} was not written by Seaway and is not overwritten", path.display())]
    Foreign { path: PathBuf },
    #[error("{} is used by another running process of Seaway; name another folder, or stop that process", path.display())]
    InUse { path: PathBuf },
    #[error("{} cannot be written", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} cannot be started", program.display())]
    Program {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Nothing was changed.
    #[error("HAProxy refuses its configuration: {}", alerts.join("; "))]
    Invalid { alerts: Vec<String> },
    #[error("HAProxy ended while it started{}", after_colon(alerts))]
    Ended { alerts: Vec<String> },
    #[error("HAProxy was not ready within {0:?}")]
    Late(Duration),
    /// It goes on with what it had.
    #[error("HAProxy could not reload and continues with the previous configuration{}", after_colon(alerts))]
    Reload { alerts: Vec<String> },
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("HAProxy is being stopped")]
    Stopped,
}

fn after_colon(alerts: &[String]) -> String {
    if alerts.is_empty() { String::new() } else { format!(": {}", alerts.join("; ")) }
}

/// What became of it so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub master: Option<u32>,
    pub worker: Option<u32>,
    /// Without the first.
    pub restarts: u32,
    /// Attempts to start it again that failed, one after the other. Until one succeeds, nothing is served.
    pub failed_starts: u32,
    pub reloads_done: u32,
    /// How many of them each reason had a part in.
    pub reloads: BTreeMap<ReloadReason, u32>,
    /// Commands that HAProxy did.
    pub commands: u64,
    /// Of them, those that put right what HAProxy had otherwise than it was told.
    pub corrections: u64,
}

/// A running HAProxy. Dropping it kills it; [`Haproxy::stop`] lets connections end.
#[derive(Debug)]
pub struct Haproxy {
    orders: mpsc::Sender<SupervisorCommand>,
    report: watch::Receiver<Report>,
    keeper: JoinHandle<()>,
}

#[derive(Debug)]
enum SupervisorCommand {
    Serve(Arc<Document>, oneshot::Sender<Result<(), Arc<ProcessError>>>),
    /// Members alone, in the slots of these backends.
    Members(BTreeMap<Label, Vec<Slot>>, oneshot::Sender<Result<(), Arc<ProcessError>>>),
    Stop,
}

impl Haproxy {
    /// Returns once it serves.
    pub async fn start(options: Options, document: Arc<Document>) -> Result<Haproxy, ProcessError> {
        let (tell, report) = watch::channel(Report::default());
        let keeper = supervisor::ProcessSupervisor::start(options, document, tell).await?;
        let (orders, taken) = mpsc::channel(64);
        Ok(Haproxy { orders, report, keeper: tokio::spawn(keeper.run(taken)) })
    }

    /// Returns once it is served. Of several that wait, the last one counts for all.
    pub async fn serve(&self, document: Arc<Document>) -> Result<(), Arc<ProcessError>> {
        let (tell, done) = oneshot::channel();
        let stopped = || Arc::new(ProcessError::Stopped);
        self.orders.send(SupervisorCommand::Serve(document, tell)).await.map_err(|_| stopped())?;
        done.await.map_err(|_| stopped())?
    }

    /// As [`Haproxy::serve`], of the document that is served with other members in these backends: nothing else is looked at.
    pub async fn serve_members(&self, changed: BTreeMap<Label, Vec<Slot>>) -> Result<(), Arc<ProcessError>> {
        let (tell, done) = oneshot::channel();
        let stopped = || Arc::new(ProcessError::Stopped);
        self.orders.send(SupervisorCommand::Members(changed, tell)).await.map_err(|_| stopped())?;
        done.await.map_err(|_| stopped())?
    }

    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.clone()
    }

    /// It takes no new connections, and ends with its last one, or when `hard_stop` has passed.
    pub async fn stop(mut self) {
        let _ = self.orders.send(SupervisorCommand::Stop).await;
        let _ = (&mut self.keeper).await;
    }

    /// It ends with the connections that it has. Then its folder is free for another one.
    pub async fn kill(mut self) {
        self.keeper.abort();
        let _ = (&mut self.keeper).await;
    }
}

/// Waits until the HAProxy of this report has ended, or was killed because it was dropped.
pub async fn ended(mut report: watch::Receiver<Report>) {
    while report.changed().await.is_ok() {}
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// The version of a program, as `haproxy -v` says it.
pub async fn version(program: &Path) -> Result<Option<(u16, u16)>, ProcessError> {
    launch::version(program).await
}
