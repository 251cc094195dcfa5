//! Carries what the plan wants announced by ARP and NDP to the host, and what the host says of it back to the plan.

use std::{sync::Arc, time::Duration};

use seaway_engine::Handle;
use seaway_model::{Change, Fact};
use seaway_node::{AFTER_WITHDRAWAL, Host, LOOK_AGAIN, Layer2Settings};
use seaway_plan::World;
use seaway_watchdog::{Part, Watchdog};
use tokio::{
    sync::{Notify, watch},
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};
use tracing::warn;

use crate::watchdog::spawn;

/// Much may come at once; but clients wait for an address that moves.
const PAUSE: Duration = Duration::from_millis(20);

/// What is followed, until this is dropped.
pub(crate) struct Layer2Carrier {
    settings: watch::Sender<Layer2Settings>,
    tasks: [JoinHandle<()>; 2],
}

impl Layer2Carrier {
    pub(crate) fn start(
        host: &Arc<Host>,
        handle: &Handle,
        settings: Layer2Settings,
        watchdog: &Watchdog,
        parts: &mut Vec<Part>,
    ) -> Layer2Carrier {
        let (settings, read) = watch::channel(settings);
        let changed = Arc::new(Notify::new());
        let carries = carry(host.clone(), handle.clone(), read, watchdog.clone(), changed.clone());
        let reports = report(host.clone(), handle.clone(), changed);
        let tasks = [
            spawn("what is announced by ARP and NDP", parts, carries),
            spawn("the report of what is announced", parts, reports),
        ];
        Layer2Carrier { settings, tasks }
    }

    /// Of a configuration that was read again.
    pub(crate) fn configure(&self, settings: Layer2Settings) {
        self.settings.send_if_modified(|before| {
            let is_other = *before != settings;
            *before = settings;
            is_other
        });
    }
}

impl Drop for Layer2Carrier {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn carry(
    host: Arc<Host>,
    handle: Handle,
    mut settings: watch::Receiver<Layer2Settings>,
    watchdog: Watchdog,
    changed: Arc<Notify>,
) {
    let mut moved = handle.moved();
    let tell: Arc<dyn Fn() + Send + Sync> = Arc::new(move || changed.notify_one());
    loop {
        moved.mark_unchanged();
        let Some(wanted) = handle.ask(World::layer2).await else { return };
        if let Some(wanted) = wanted {
            let now = settings.borrow_and_update().clone();
            let (host, watchdog, tell) = (host.clone(), watchdog.clone(), tell.clone());
            let done = spawn_blocking(move || host.announce(&wanted, &now, Some(&watchdog), &tell));
            if let Err(error) = done.await {
                warn!(%error, "what is to be announced by ARP and NDP cannot be passed on");
            }
        }
        let news = async {
            tokio::select! {
                ended = moved.changed() => ended.is_ok(),
                ended = settings.changed() => ended.is_ok(),
            }
        };
        // An error: nothing has changed, and the file of the key is looked at.
        if let Ok(false) = timeout(LOOK_AGAIN, news).await {
            return;
        }
        sleep(PAUSE).await;
    }
}

async fn report(host: Arc<Host>, handle: Handle, changed: Arc<Notify>) {
    let changes = handle.changes();
    loop {
        match host.has_withdrawn() {
            true => drop(timeout(AFTER_WITHDRAWAL, changed.notified()).await),
            false => changed.notified().await,
        }
        let host = host.clone();
        match spawn_blocking(move || host.report()).await {
            Ok(Ok(report)) => {
                if changes.send(Change::Put(Fact::Host(Arc::new(report)))).await.is_err() {
                    return;
                }
            }
            Ok(Err(error)) => warn!(%error, "the addresses of this machine's interfaces cannot be read"),
            Err(error) => warn!(%error, "the report of this host failed"),
        }
        sleep(PAUSE).await;
    }
}
