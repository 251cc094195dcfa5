//! The process that is started while another one of this host serves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use seaway_engine::{Handle, Phase, chain};
use seaway_node::Host;
use seaway_plan::World;
use seaway_proxy::{Introduction, STOPS_WITHIN, Takeover, TakeoverError, take_as};
use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};
use tracing::info;

use super::Folder;

/// The lock is tried so often, for nobody serves while it is free.
const AGAIN: Duration = Duration::from_millis(250);
/// One that is refused asks less and less often, for the one that serves judges each time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Less than the one before waits for it.
pub(super) const SERVES: Duration = Duration::from_secs(50);
/// What the one before alone may do is ended within this; else it hangs.
pub(super) const RETIRES: Duration = Duration::from_secs(10);
/// Until the thread that announces by ARP and NDP has begun.
pub(super) const FOLLOWS: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Tries to take over, or to begin once nobody serves, until it is told to leave it.
pub(in crate::member) struct Successor {
    task: JoinHandle<Result<bool>>,
    leaves: watch::Sender<bool>,
}

impl Successor {
    /// The engine is held. `listed`: up to which version Addresses were listed.
    pub(in crate::member) fn start(
        folder: Folder,
        engine: Handle,
        host: Arc<Host>,
        listed: Arc<AtomicU64>,
    ) -> Successor {
        info!("another process of this host serves: this process takes over once it has the same state");
        let leaves = watch::Sender::new(false);
        let candidate = Candidate { folder, engine, host, listed, leaves: leaves.subscribe() };
        Successor { task: tokio::spawn(candidate.run()), leaves }
    }

    /// Whether this process works from now on. An error: it may not go on.
    pub(in crate::member) async fn ended(&mut self) -> Result<bool> {
        (&mut self.task).await.context("the handover panicked")?
    }

    /// It does not ask any more, and a take-over that is under way fails, unless it is through: the process before serves on.
    /// [`Successor::ended`] waits for that.
    pub(in crate::member) fn leave(&self) {
        self.leaves.send_replace(true);
    }
}

struct Candidate {
    folder: Folder,
    engine: Handle,
    host: Arc<Host>,
    listed: Arc<AtomicU64>,
    leaves: watch::Receiver<bool>,
}

impl Candidate {
    async fn run(self) -> Result<bool> {
        let mut said = String::new();
        let (mut pause, mut asks) = (AGAIN, Instant::now());
        loop {
            if *self.leaves.borrow() {
                return Ok(false);
            }
            if self.folder.try_lock()? {
                info!("no other process of this host serves now: this process begins to serve");
                self.engine.release();
                return Ok(true);
            }
            if Instant::now() >= asks
                && let Some(who) = self.introduction().await
            {
                let path = self.folder.socket();
                match spawn_blocking(move || take_as(&path, who)).await? {
                    Ok(taken) => return self.go_on(taken).await.map(|()| true),
                    // It is about to begin, or to end.
                    Err(TakeoverError::NotRunning { .. }) => {}
                    Err(error) => {
                        let why = chain(&error);
                        if said != why {
                            info!("handover: {why}; this process tries again");
                            said = why;
                        }
                        asks = Instant::now() + pause;
                        pause = longer(pause);
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
    async fn go_on(self, mut taken: Takeover) -> Result<()> {
        let Some(lock) = taken.lock() else {
            bail!("the running process did not pass the lock of the handover folder")
        };
        self.folder.receive(lock);
        let (host, listening) = (self.host.clone(), taken.listening().count());
        info!(listeners = listening, "handover: the running process passes its sockets to this one");
        let mut taken = spawn_blocking(move || {
            host.proxy.adopt(&mut taken);
            taken
        })
        .await?;
        let served = self.serve(&mut taken).await;
        if served.is_err() {
            // The one before goes on as soon as the line is closed, and must not be followed by what waits behind it.
            let host = self.host.clone();
            let silent = spawn_blocking(move || host.stop_announcing_to_neighbors());
            let _ = timeout(STOPS_WITHIN, async { tokio::join!(self.engine.hold(), silent) }).await;
            self.folder.let_go();
        }
        served
    }

    async fn serve(&self, taken: &mut Takeover) -> Result<()> {
        self.engine.release();
        let mut phase = self.engine.phase();
        let prepared = async {
            let serving = timeout(SERVES, phase.wait_for(|it| *it == Phase::Serving)).await;
            ensure!(
                serving.is_ok_and(|it| it.is_ok()),
                "this process did not serve all load balancers of the running process within {SERVES:?}"
            );
            let _ = timeout(FOLLOWS, self.follow_announcer()).await;
            Ok(())
        };
        unless_left(prepared, self.leaves.clone()).await?;
        let proxy = &self.host.proxy;
        tokio::task::block_in_place(|| {
            proxy.confirm(taken)?;
            taken.until_gone(RETIRES);
            Ok(())
        })
    }

    /// Returns when the announcer knows of all that this host offers: it waits behind the one of the process before then. One that ends
    /// without it would let the addresses go to another host.
    async fn follow_announcer(&self) {
        let wanted = self.engine.ask(World::layer2).await.flatten().unwrap_or_default();
        let is_told = || {
            let told = self.host.layer2_states();
            wanted.offered.iter().all(|ip| told.contains_key(ip))
        };
        while !is_told() {
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// Both processes would be gone: the one before retires for one that is asked to stop.
async fn unless_left(
    prepared: impl Future<Output = Result<()>>,
    mut leaves: watch::Receiver<bool>,
) -> Result<()> {
    tokio::select! {
        biased;
        // An error: it cannot be asked any more.
        Ok(_) = leaves.wait_for(|it| *it) => bail!("this process was asked to stop before it had taken over"),
        prepared = prepared => prepared,
    }
}

fn longer(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_is_asked_to_stop_takes_nothing_over_however_far_it_is() {
        let leaves = watch::Sender::new(false);
        assert!(unless_left(async { Ok(()) }, leaves.subscribe()).await.is_ok());
        let failed = unless_left(async { bail!("not all of it") }, leaves.subscribe()).await;
        assert_eq!(failed.expect_err("it fails").to_string(), "not all of it");
        let is_preparing = unless_left(std::future::pending(), leaves.subscribe());
        let (left, ()) = tokio::join!(is_preparing, async { leaves.send_modify(|it| *it = true) });
        assert!(left.expect_err("it is asked to stop").to_string().contains("asked to stop"));
        assert!(unless_left(async { Ok(()) }, leaves.subscribe()).await.is_err(), "it was asked before");
    }

    #[test]
    fn one_that_is_refused_asks_less_and_less_often() {
        let pauses = std::iter::successors(Some(AGAIN), |it| Some(longer(*it)));
        let millis: Vec<_> = pauses.take(7).map(|it| it.as_millis()).collect();
        assert_eq!(millis, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
    }
}
