//! The process that is started while another one of this host serves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use seaway_engine::{Handle, Phase, chain};
use seaway_node::Host;
use seaway_plan::World;
use seaway_proxy::{Introduction, TakeOverError, TakenOver, take_as};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};
use tracing::info;

use super::Folder;

const AGAIN: Duration = Duration::from_millis(250);
/// Less than the one before waits for it.
const SERVES: Duration = Duration::from_secs(50);
/// What the one before alone may do is ended within this; else it hangs.
const RETIRES: Duration = Duration::from_secs(10);
/// For drivers that are at work as it fails.
const RESTS: Duration = Duration::from_secs(10);

/// Tries to take over, or to begin once nobody serves, until it is told to leave it.
pub(in crate::member) struct Successor {
    task: JoinHandle<Result<bool>>,
    leaves: Arc<AtomicBool>,
}

impl Successor {
    /// The engine is held. `listed`: up to which version Addresses were listed.
    pub(in crate::member) fn start(
        folder: Folder,
        engine: Handle,
        host: Arc<Host>,
        listed: Arc<AtomicU64>,
    ) -> Successor {
        info!("another process of this host serves: this one takes over from it once it knows as much");
        let leaves = Arc::<AtomicBool>::default();
        let candidate = Candidate { folder, engine, host, listed, leaves: leaves.clone() };
        Successor { task: tokio::spawn(candidate.run()), leaves }
    }

    /// Whether this process works from now on. An error: it may not go on.
    pub(in crate::member) async fn ended(&mut self) -> Result<bool> {
        (&mut self.task).await.context("the take-over panicked")?
    }

    /// It does not ask any more. What was asked is waited for in [`Successor::ended`].
    pub(in crate::member) fn leave(&self) {
        self.leaves.store(true, Ordering::SeqCst);
    }
}

struct Candidate {
    folder: Folder,
    engine: Handle,
    host: Arc<Host>,
    listed: Arc<AtomicU64>,
    leaves: Arc<AtomicBool>,
}

impl Candidate {
    async fn run(self) -> Result<bool> {
        let mut said = String::new();
        loop {
            if self.leaves.load(Ordering::SeqCst) {
                return Ok(false);
            }
            if self.folder.try_lock()? {
                info!("no other process of this host serves any more: this one does");
                self.engine.release();
                return Ok(true);
            }
            if let Some(who) = self.introduction().await {
                let path = self.folder.socket();
                match spawn_blocking(move || take_as(&path, who)).await? {
                    Ok(taken) => return self.go_on(taken).await.map(|()| true),
                    // It is about to begin, or to end.
                    Err(TakeOverError::NotRunning { .. }) => {}
                    Err(error) => {
                        let why = chain(&error);
                        if said != why {
                            info!("take-over: {why}; it is asked again");
                            said = why;
                        }
                    }
                }
            }
            sleep(AGAIN).await;
        }
    }

    /// Nothing, before the API server has told all.
    async fn introduction(&self) -> Option<Introduction> {
        let listed = self.listed.clone();
        // Of the first list all is known once the World is settled.
        let known = move |world: &World| {
            world.is_settled().then(|| world.known_addresses(listed.load(Ordering::Relaxed)))
        };
        let knows = self.engine.ask(known).await??;
        Some(Introduction { of: self.folder.of.clone(), generation: self.folder.generation, knows })
    }

    /// The one before rests, and has this process work in its place.
    async fn go_on(self, mut taken: TakenOver) -> Result<()> {
        let Some(lock) = taken.lock() else { bail!("the process that serves passes on no lock") };
        self.folder.receive(lock);
        let (host, listening) = (self.host.clone(), taken.listening().count());
        info!(listeners = listening, "take-over: the running process passes its sockets to this one");
        let mut taken = spawn_blocking(move || {
            host.proxy.adopt(&mut taken);
            taken
        })
        .await?;
        let served = self.serve(&mut taken).await;
        if served.is_err() {
            // The one before goes on as soon as the line is closed.
            let _ = timeout(RESTS, self.engine.hold()).await;
            self.folder.let_go();
        }
        served
    }

    async fn serve(&self, taken: &mut TakenOver) -> Result<()> {
        self.engine.release();
        let mut phase = self.engine.phase();
        let serving = timeout(SERVES, phase.wait_for(|it| *it == Phase::Serving)).await;
        ensure!(
            serving.is_ok_and(|it| it.is_ok()),
            "this process does not serve all of it within {SERVES:?}"
        );
        let proxy = &self.host.proxy;
        tokio::task::block_in_place(|| {
            proxy.confirm(taken)?;
            taken.until_gone(RETIRES);
            Ok(())
        })
    }
}
