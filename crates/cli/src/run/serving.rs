//! A process that serves: through reloads, hand-overs and its end.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use seaway_admin::{Signal, Signals};
use seaway_node::Host;
use seaway_proxy::{HandoverListener, HandoverPhase, Takeover, TakeoverError};
use seaway_watchdog::WatchGuard;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant as Moment,
};
use tracing::{info, warn};

use super::{ProcessOptions, apply_reloaded, load, start_proxy};
use crate::{args::Run, control::Control, settings::data_plane::DataPlane, watchdog};

pub(super) async fn serve(
    process: ProcessOptions,
    arguments: &Run,
    reloads: ReloadReceiver,
) -> Result<ExitCode> {
    let signals = Signals::listen().context("the handler of signals such as SIGTERM cannot be installed")?;
    let proxy = start_proxy(&process.settings)?;
    let mut taken = None;
    if arguments.take_over && process.settings.data_plane != DataPlane::Native {
        bail!(
            "--take-over passes sockets of Seaway, but with dataPlane.driver: haproxy HAProxy has them: stop the \
                 running process first"
        )
    }
    let haproxy = process.settings.data_plane.start_haproxy(&process.settings.host);
    if arguments.take_over {
        let path = hand_over_path(&process);
        let sockets = tokio::task::spawn_blocking(move || seaway_proxy::take(&path)).await?;
        let mut sockets = sockets.map_err(without_predecessor)?;
        info!(
            listeners = sockets.listening().count(),
            "handover: the running process passes its sockets to this one"
        );
        proxy.adopt(&mut sockets);
        taken = Some(sockets);
    }
    let recorded = seaway_files::state::stored_addresses(&process.state_dir);
    let host = Host::new(
        process.settings.host.clone(),
        proxy,
        process.settings.addresses.clone(),
        recorded.iter().map(|it| it.ip),
    );
    let host = Arc::new(match haproxy {
        Some(haproxy) => host.with_haproxy(haproxy),
        None => host,
    });
    let control = Control::start(&process, &host).await?;
    let parts = host.proxy.parts().into_iter().chain([watchdog::runtime()]);
    let watching = Some(process.watchdog.watch(parts));
    let mut serving = ServingProcess { watching, process, host, signals, taken, reloads };
    let mut hand_over = None;
    let code = serving.until_the_end(control, arguments, &mut hand_over).await?;
    if let Some(hand_over) = hand_over {
        serving.end(hand_over).await;
    }
    Ok(code)
}

/// What to do where there is no process whose sockets could be taken over.
fn without_predecessor(error: TakeoverError) -> anyhow::Error {
    let is_absent = matches!(&error, TakeoverError::NotRunning { .. });
    let error = anyhow::Error::from(error);
    match is_absent {
        true => error.context(
            "--take-over needs a running process with the same state folder. If none runs, start without --take-over; \
             if one does, name its folder with --state-dir",
        ),
        false => error,
    }
}

fn hand_over_path(process: &ProcessOptions) -> PathBuf {
    process.state_dir.join("takeover.sock")
}

/// A process that serves, through reloads, hand-overs and its end.
struct ServingProcess {
    /// The data plane and the runtime, which may end once this is dropped.
    watching: Option<WatchGuard>,
    process: ProcessOptions,
    host: Arc<Host>,
    signals: Signals,
    /// Of a predecessor that has not let go yet.
    taken: Option<Takeover>,
    reloads: ReloadReceiver,
}

/// Who asks for the configuration to be read again, and waits for what came of it.
type ReloadReceiver = mpsc::Receiver<oneshot::Sender<Result<(), String>>>;

/// A successor that failed lets go of the state folder and the admin port when it ends, which is a little later.
const RETURN_AGAIN: Duration = Duration::from_millis(100);
/// For a successor that is on the line when this process has nothing more to do.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// To routers.
const LAST_MESSAGE: Duration = Duration::from_millis(500);

/// A turn of a hand-over, with the answer that it waits for.
type HandoverNotice = (HandoverPhase, std::sync::mpsc::Sender<()>);
/// Each but the last is answered before the next is told.
const TURNS: usize = 2;

impl ServingProcess {
    /// The hand-over outlives the turns that are told here: one that is not answered any more keeps its thread waiting,
    /// and ending it waits for that thread.
    async fn until_the_end(
        &mut self,
        control: Control,
        arguments: &Run,
        hand_over: &mut Option<HandoverListener>,
    ) -> Result<ExitCode> {
        let (tell, mut turns) = mpsc::channel::<HandoverNotice>(TURNS);
        // None while a successor gets ready, and until what it had is free again.
        let mut control = Some(control);
        // When to take back what a successor that failed had, and why that did not work before.
        let mut returns: Option<(Moment, String)> = None;
        loop {
            let ready = async {
                match &mut control {
                    Some(control) => control.first_serving().await,
                    None => std::future::pending().await,
                }
            };
            let again = async {
                match &returns {
                    Some((at, _)) => tokio::time::sleep_until(*at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                signal = self.signals.next() => match signal {
                    // What is wrong with it is in the log.
                    Signal::Reload => if let Some(control) = &control {
                        let _ = self.reload(control, arguments).await;
                    },
                    Signal::Stop => return match control {
                        Some(control) if self.taken.is_some() => self.step_back(control).await,
                        None if returns.is_none() => self.leave_early(turns).await,
                        control => self.stop(control).await,
                    },
                    Signal::StopNow => {
                        // Nor is a hand-over waited for.
                        std::mem::forget(hand_over.take());
                        kill_haproxy(&self.host).await;
                        return Ok(ExitCode::FAILURE);
                    }
                },
                Some(tell) = self.reloads.recv() => {
                    let done = match &control {
                        Some(control) => self.reload(control, arguments).await,
                        None => Err("not reloaded: another process is taking over from this one".to_owned()),
                    };
                    // Who asked may be gone.
                    let _ = tell.send(done);
                }
                () = ready => {
                    self.take_the_rest().await?;
                    control.iter().for_each(Control::begin_sessions);
                    if hand_over.is_none() {
                        *hand_over = self.await_successor(tell.clone());
                    }
                    info!(after = ?self.process.began.elapsed(), "ready");
                    self.process.notifier.set_main_process(std::process::id());
                    self.process.notifier.ready("serving");
                    seaway_proxy::give_memory_back();
                }
                Some((turn, answer)) = turns.recv() => {
                    match turn {
                        HandoverPhase::Asked => {
                            returns = None;
                            if let Some(control) = control.take() {
                                control.finish_planning().await.close().await;
                            }
                        }
                        HandoverPhase::Resumed => returns = Some((Moment::now(), String::new())),
                        HandoverPhase::Over => return self.leave().await,
                    }
                    // The thread that waits for it may have been told to end.
                    let _ = answer.send(());
                }
                // What is connected is served meanwhile: nothing here is worth an end.
                () = again => match Control::start(&self.process, &self.host).await {
                    Ok(started) => (control, returns) = (Some(started), None),
                    Err(error) => {
                        let why = format!("{error:#}");
                        if returns.is_none_or(|(_, told)| told != why) {
                            warn!("changes of manifests are not applied until this is corrected: {why}");
                        }
                        returns = Some((Moment::now() + RETURN_AGAIN, why));
                    }
                },
            }
        }
    }

    /// Everything is open here: the predecessor lets go.
    async fn take_the_rest(&mut self) -> Result<()> {
        let Some(mut taken) = self.taken.take() else { return Ok(()) };
        let proxy = self.host.proxy.clone();
        tokio::task::spawn_blocking(move || proxy.confirm(&mut taken)).await??;
        Ok(())
    }

    /// Without it everything works but a later --take-over.
    fn await_successor(&self, tell: mpsc::Sender<HandoverNotice>) -> Option<HandoverListener> {
        if self.process.settings.data_plane != DataPlane::Native {
            return None;
        }
        let told = move |turn| {
            let (answer, answered) = std::sync::mpsc::channel();
            if tell.blocking_send((turn, answer)).is_ok() && turn != HandoverPhase::Over {
                // An error: this process is ending, and nobody answers.
                let _ = answered.recv();
            }
        };
        let waiting = self.host.proxy.hand_over(&hand_over_path(&self.process), told);
        waiting
            .inspect_err(|error| warn!(%error, "--take-over will not be possible while this process runs"))
            .ok()
    }

    async fn reload(&mut self, control: &Control, arguments: &Run) -> Result<(), String> {
        let process = &mut self.process;
        process.notifier.reloading();
        let read = load(arguments);
        let done = match &read {
            Ok(_) => Ok(()),
            Err(wrong) => Err(format!(
                "the new configuration cannot be used, the previous one stays in use:\n{wrong:#}"
            )),
        };
        if let Some(settings) = apply_reloaded(read, &process.settings, &process.log, Some(&self.host)).await
        {
            control.configure(&settings).await;
            process.settings = settings;
            info!("configuration reloaded");
        }
        process.notifier.ready("serving");
        done
    }

    /// Nobody new; who is there may finish until the deadline; a second signal does not wait for it.
    async fn stop(&mut self, control: Option<Control>) -> Result<ExitCode> {
        info!(patience = ?self.process.settings.drain, "stopping: no new connections are accepted; open ones may finish");
        self.process.notifier.stopping("draining");
        let began = Instant::now();
        let whole = self.process.settings.drain;
        if let Some(control) = control.as_ref().filter(|_| self.process.settings.config.dns.is_some()) {
            tokio::select! {
                // The other half is for who is connected.
                () = control.leave_dns(whole / 2) => {}
                _ = self.signals.next() => {
                    warn!("stopped without draining: a second signal arrived");
                    kill_haproxy(&self.host).await;
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
        let draining = match control {
            Some(control) => Some(control.finish_planning().await),
            None => None,
        };
        let (host, patience) = (self.host.clone(), whole.saturating_sub(began.elapsed()));
        let code = self.drain(move || host.stop(patience).cut).await?;
        if let Some(draining) = draining {
            draining.close().await;
        }
        Ok(code)
    }

    /// Not ready yet: the predecessor goes on, and serves by the addresses that are on this host. What was accepted
    /// here may finish.
    async fn step_back(&mut self, control: Control) -> Result<ExitCode> {
        info!("stopping before the handover is complete: the previous process continues to serve");
        // Its locks and ports are free before the predecessor wants them back.
        control.finish_planning().await.close().await;
        self.taken = None;
        self.stop_announcing().await?;
        self.host.proxy.stop_accepting();
        self.leave().await
    }

    /// A successor is getting ready, and by now the addresses may be its own: only if it fails do they go.
    async fn leave_early(&mut self, mut turns: mpsc::Receiver<HandoverNotice>) -> Result<ExitCode> {
        info!("stopping while the next process starts; open connections may finish");
        self.process.notifier.stopping("draining");
        let deadline = Moment::now() + self.process.settings.drain;
        let host = self.host.clone();
        tokio::task::spawn_blocking(move || host.stop_announcing_to_neighbors()).await?;
        self.host.proxy.stop_accepting();
        let code = self.finish_connections().await?;
        // It gets the flows yet, if it is ready by then.
        tokio::select! {
            Some((turn, _)) = turns.recv() => match turn {
                HandoverPhase::Resumed => return self.stop(None).await,
                _ => self.stop_announcing().await?,
            },
            // Whoever starts next finds the addresses recorded, and removes what it does not want.
            () = tokio::time::sleep_until(deadline) => {
                warn!("the next process is not ready; exiting without waiting for it");
                end_sessions(&self.host).await;
            }
            _ = self.signals.next() => exit_at_once(Some(&self.host)).await,
        }
        Ok(code)
    }

    /// The successor announces from now on: it has the same name. If there is none, nobody is sent to sockets that close.
    async fn stop_announcing(&self) -> Result<()> {
        let host = self.host.clone();
        Ok(tokio::task::spawn_blocking(move || host.stop_announcing()).await?)
    }

    /// A successor serves: what is connected here may finish, and its addresses are not touched.
    async fn leave(&mut self) -> Result<ExitCode> {
        self.stop_announcing().await?;
        self.finish_connections().await
    }

    async fn finish_connections(&mut self) -> Result<ExitCode> {
        let (proxy, patience) = (self.host.proxy.clone(), self.process.settings.drain);
        self.drain(move || proxy.drain(Instant::now() + patience).cut).await
    }

    /// A successor that came late may have what is left; one that says nothing keeps nobody from ending.
    async fn end(&mut self, hand_over: HandoverListener) {
        let (done, ended) = oneshot::channel();
        // A thread of its own, as the runtime would not end before one of its own did.
        let ending = std::thread::Builder::new().name("ending".into()).spawn(move || {
            drop(hand_over);
            // Nobody waits any more.
            let _ = done.send(());
        });
        if ending.is_ok() {
            tokio::select! {
                // An error as well: the thread is over.
                _ = ended => {}
                () = tokio::time::sleep(LAST_WORDS) => warn!("the next process is not ready; exiting \
                                                              without waiting for it"),
                _ = self.signals.next() => warn!("stopped without draining: a second signal arrived"),
            }
        }
    }

    async fn drain(&mut self, drain: impl FnOnce() -> usize + Send + 'static) -> Result<ExitCode> {
        self.watching = None;
        let mut draining = tokio::task::spawn_blocking(drain);
        tokio::select! {
            _ = self.signals.next() => exit_at_once(Some(&self.host)).await,
            cut = &mut draining => match cut.context("the drain panicked")? {
                0 => info!("stopped: all connections had ended"),
                cut => warn!(cut, "stopped: the drain deadline closed connections"),
            },
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Threads that wait for connections are not waited for.
pub(crate) async fn exit_at_once(host: Option<&Arc<Host>>) -> ! {
    warn!("stopped without draining: a second signal arrived");
    if let Some(host) = host {
        kill_haproxy(host).await;
        end_sessions(host).await;
    }
    std::process::exit(1);
}

/// An HAProxy that cannot be ended keeps nobody from ending.
async fn kill_haproxy(host: &Arc<Host>) {
    if tokio::time::timeout(LAST_MESSAGE, host.kill_haproxy()).await.is_err() {
        warn!("HAProxy may still be running: it did not exit in time; look for its process and stop it");
    }
}

/// Routers that keep the routes of a process that is gone are told that none follows.
async fn end_sessions(host: &Arc<Host>) {
    let host = host.clone();
    let ended = tokio::task::spawn_blocking(move || host.end_sessions());
    // A router that does not listen keeps nobody from ending.
    let _ = tokio::time::timeout(LAST_MESSAGE, ended).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_running_process_take_over_says_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("takeover.sock");
        let Err(error) = seaway_proxy::take(&path) else { panic!("nothing listens there") };
        let text = format!("{:#}", without_predecessor(error));
        assert!(text.contains("start without --take-over"), "{text}");
        assert!(text.contains(&format!("no running process answers at {}", path.display())), "{text}");
    }
}
