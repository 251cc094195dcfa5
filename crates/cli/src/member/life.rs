//! The life of a part of a cluster: until it is ready, while it serves, when another process of its host follows, and its end.

use std::{
    process::ExitCode,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::{Context, Error, Result};
use seaway_admin::{Signal, Signals};
use seaway_engine::Phase;
use tokio::{task::spawn_blocking, time::Instant as Moment, time::timeout};
use tracing::{error, info, warn};

use super::{Arguments, Folder, Member, Retired, Retiring, Successor, died::died, next};
use crate::{announcing::AnnouncerTasks, run::exit_at_once};

/// What is being written at the end may wait for an answer this long: systemd and kubelets do not wait for ever.
const LAST_WRITES: Duration = Duration::from_secs(8);
/// A host that is asked to end serves on for so long, so that the next process of it finds it: a pod is replaced as soon as it is
/// asked to end.
const AWAITS: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A retired process that finds that none serves ends, to be started again: its connections have this long, while clients are refused.
const SHORT_DRAIN: Duration = Duration::from_secs(1);

/// Never, where none is under way.
async fn ended(successor: &mut Option<Successor>) -> Result<bool> {
    match successor {
        Some(successor) => successor.ended().await,
        None => std::future::pending().await,
    }
}

async fn at(moment: Option<Moment>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Whether a retired process ends because it is asked to; else, because no process of its host serves.
async fn until_asked(signals: &mut Signals, folder: Option<&Folder>) -> bool {
    let free = async {
        match folder {
            Some(folder) => folder.until_free().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(free);
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Reload => info!("the configuration is not read again: this process only drains"),
                Signal::Stop | Signal::StopNow => return true,
            },
            () = &mut free => return false,
        }
    }
}

impl Member {
    pub(super) async fn until_the_end(
        mut self,
        mut signals: Signals,
        arguments: &Arguments,
        began: Instant,
    ) -> Result<ExitCode> {
        let mut phase = self.handle.phase();
        let mut was_ready = false;
        // When it ends, unless the next process takes over before.
        let mut ends: Option<Moment> = None;
        loop {
            let owns = *self.owns.borrow();
            tokio::select! {
                signal = signals.next() => match signal {
                    Signal::Reload => self.reload(arguments).await,
                    Signal::Stop if self.successor.is_some() => {
                        info!("stopping: the other process of this host continues to serve");
                        self.notifier.stopping("not serving yet");
                        self.successor.iter().for_each(Successor::leave);
                        ends = Some(Moment::now());
                    }
                    Signal::Stop if self.retiring.is_some() => {
                        info!(patience = ?AWAITS, "stopping: the next process of this host can still take over");
                        self.retiring.iter().for_each(Retiring::admit_older);
                        ends = Some(Moment::now() + AWAITS);
                    }
                    Signal::Stop => return self.stop(signals).await,
                    // The one before has sessions of its own; and what waits for its answer has no end here.
                    Signal::StopNow if self.successor.is_some() => exit_at_once(None).await,
                    Signal::StopNow => exit_at_once(self.host.as_ref()).await,
                },
                took_over = ended(&mut self.successor) => {
                    self.successor = None;
                    match took_over {
                        Ok(true) => self.own(),
                        Ok(false) => return Ok(ExitCode::SUCCESS),
                        Err(error) => return self.give_up(&error, signals, ends.is_some()).await,
                    }
                }
                Some(retired) = self.over.1.recv() => return self.retire(retired, signals, ends.is_some()).await,
                () = at(ends), if self.successor.is_none() => match &self.retiring {
                    Some(retiring) if retiring.is_asked() => ends = Some(Moment::now() + LOOK_AGAIN),
                    _ => match self.await_no_more().await {
                        Some(retired) => return self.retire(retired, signals, true).await,
                        None => return self.stop(signals).await,
                    },
                },
                Some(()) = next(&mut self.conf) => self.read_cloud_again(arguments).await,
                what = died(&mut self.engine, self.watch.ended(), &mut self.hearing) => {
                    error!("{what}; exiting so that the supervisor restarts the process");
                    return Ok(ExitCode::FAILURE);
                }
                served = phase.wait_for(|it| *it == Phase::Serving), if !was_ready && owns => {
                    was_ready = true;
                    if served.is_ok() {
                        self.announcing.iter().for_each(AnnouncerTasks::begin_sessions);
                        self.await_successor();
                        info!(after = ?began.elapsed(), "ready");
                        self.notifier.set_main_process(std::process::id());
                        self.notifier.ready("serving");
                        seaway_proxy::give_memory_back();
                    }
                }
            }
        }
    }

    /// No other process of this host works from now on.
    fn own(&mut self) {
        self.owns.send_replace(true);
        self.reports.iter().for_each(|it| it.resume());
        self.snapshot.iter().for_each(|it| it.resume());
    }

    /// Without it everything works but that the next process takes over.
    fn await_successor(&mut self) {
        let (Some(folder), Some(host), Some(reports)) = (&self.folder, &self.host, &self.reports) else {
            return;
        };
        let (snapshot, over) = (self.snapshot.clone(), self.over.0.clone());
        let begun = Retiring::begin(folder, &self.handle, host, reports.clone(), snapshot, over);
        self.retiring = begun
            .inspect_err(
                |error| warn!(%error, "the next process of this host cannot take over while this one runs"),
            )
            .ok();
    }

    /// No other process may take over from here on; one that has done so meanwhile waits for this answer.
    async fn await_no_more(&mut self) -> Option<Retired> {
        let retiring = self.retiring.take()?;
        let mut ending = spawn_blocking(|| retiring.end());
        tokio::select! {
            retired = self.over.1.recv() => retired,
            _ = &mut ending => self.over.1.try_recv().ok(),
        }
    }

    /// It cannot go on with what it took over, and the process before does. What was accepted here may finish.
    async fn give_up(self, why: &Error, mut signals: Signals, is_asked: bool) -> Result<ExitCode> {
        if is_asked {
            info!("the other process of this host continues to serve: {why:#}");
        } else {
            error!(
                "the handover failed, and the other process of this host continues to serve: {why:#}; exiting so that \
                     the supervisor restarts this one"
            );
        }
        drop(self.watching);
        // Of this process the cluster hears nothing.
        drop((self.reports, self.announcing, self.addresses));
        if let Some(host) = self.host.clone() {
            let patience = self.settings.drain;
            let draining = spawn_blocking(move || {
                host.retire();
                host.proxy.stop_accepting();
                host.proxy.drain(Instant::now() + patience)
            });
            tokio::select! {
                _ = draining => {}
                _ = signals.next() => {}
            }
        }
        Ok(if is_asked { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Another process of this host serves. What only one may do ends at once; who is connected here may finish, once this
    /// process is asked to end. It ends by itself, to be started again, only when no process serves any more: Kubernetes may have
    /// ended the next one because it wants this one, after an undo in the middle of a rollout.
    async fn retire(mut self, retired: Retired, mut signals: Signals, is_asked: bool) -> Result<ExitCode> {
        self.stopping.store(true, Ordering::Relaxed);
        drop(self.watching);
        // Not given back: the next process writes it over.
        drop(self.campaign);
        drop(self.announcing);
        drop(self.addresses);
        let _ = self.stop.send(true);
        if let Some(host) = self.host.clone() {
            spawn_blocking(move || host.retire()).await?;
        }
        // Probes are answered until the end: it lives, and is not ready.
        self.admin.close_pages().await;
        self.folder.iter().for_each(|it| it.let_go());
        // Nobody waits any more if that took too long.
        let _ = retired.send(());
        info!(
            "retired: the next process of this host serves; open connections of this process continue until \
             it is asked to stop"
        );
        drop((self.pems, self.retiring, self.reports));
        self.clock.abort();
        self.watch.stop().await;
        let ends = async {
            let _ = self.hearing.await;
            let _ = self.engine.await;
        };
        if timeout(LAST_WRITES, ends).await.is_err() {
            warn!("the watch and the engine of this process have not stopped in time");
        }
        drop(self.snapshot);
        seaway_proxy::give_memory_back();
        let Some(host) = self.host else { return Ok(ExitCode::SUCCESS) };
        let is_needed = !is_asked && !until_asked(&mut signals, self.folder.as_ref()).await;
        let patience = if is_needed { self.settings.drain.min(SHORT_DRAIN) } else { self.settings.drain };
        if is_needed {
            error!(
                "no process of this host serves any more; exiting so that the supervisor restarts this one"
            );
        }
        info!(?patience, "stopping: open connections may finish");
        self.notifier.stopping("draining");
        let mut draining = spawn_blocking(move || host.proxy.drain(Instant::now() + patience).cut);
        tokio::select! {
            cut = &mut draining => info!(cut = cut.context("the drain panicked")?, "stopped"),
            _ = signals.next() => exit_at_once(None).await,
        }
        Ok(if is_needed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// A second signal waits for nothing.
    async fn stop(self, mut signals: Signals) -> Result<ExitCode> {
        let host = self.host.clone();
        tokio::select! {
            ended = self.finish() => ended,
            _ = signals.next() => exit_at_once(host.as_ref()).await,
        }
    }

    /// Nobody new; who is there may finish until the deadline.
    async fn finish(self) -> Result<ExitCode> {
        info!(patience = ?self.settings.drain, "stopping");
        self.notifier.stopping("draining");
        self.stopping.store(true, Ordering::Relaxed);
        // From here on they may end.
        drop(self.watching);
        // The engine may have ended by itself.
        let _ = self.stop.send(true);
        drop(self.addresses);
        drop(self.announcing);
        drop(self.pems);
        self.clock.abort();
        self.watch.stop().await;
        if let Err(error) = self.hearing.await {
            warn!(%error, "changes from the API server could not be passed on during shutdown");
        }
        // Writes what is not written yet.
        drop(self.snapshot);
        match timeout(LAST_WRITES, self.engine).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(%error, "the engine failed during shutdown"),
            Err(_) => warn!(
                "timed out waiting for in-flight API writes during shutdown; the next process will reconcile them"
            ),
        }
        // The next process may report from when this one lets go; what is being written is through then.
        if let Some(reports) = self.reports.as_ref().filter(|_| self.folder.is_some())
            && timeout(LAST_WRITES, reports.pause()).await.is_err()
        {
            warn!(
                "timed out waiting for the report of this host to be written; the next process of this host may report later"
            );
        }
        if self.folder.is_some() {
            self.campaign.yield_to_next();
        }
        let mut is_alone = true;
        if let Some(host) = &self.host {
            let (host, patience) = (host.clone(), self.settings.drain);
            let folder = self.folder.clone();
            let draining = spawn_blocking(move || {
                let Some(folder) = folder else { return (host.stop(patience).cut, true) };
                let mut is_alone = false;
                // The next process, if it comes late, begins at once.
                let drained = host.stop_with_successor(
                    patience,
                    || folder.let_go(),
                    || {
                        is_alone = folder.try_lock().unwrap_or_default();
                        is_alone
                    },
                );
                (drained.cut, is_alone)
            });
            let (cut, alone) = draining.await.context("the drain panicked")?;
            is_alone = alone;
            info!(cut, "stopped");
        }
        match is_alone {
            true => self.campaign.resign().await,
            // It is another's.
            false => drop(self.campaign),
        }
        if let Some(nodes) = self.nodes {
            nodes.resign().await;
        }
        self.admin.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}
