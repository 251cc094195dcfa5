//! Carries what the plan wants announced, by ARP and NDP or by BGP, to the host, and what the host says of it back to the plan.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use seaway_cluster::{PasswordReader, PasswordsBySecret, WantedPasswords};
use seaway_engine::{Handle, Phase};
use seaway_model::{
    Change, Fact,
    bgp::{BgpSessionState, DesiredBgp},
};
use seaway_node::{AFTER_WITHDRAWAL, BgpPeerStatus, Host, Layer2Settings, RECHECK_INTERVAL};
use seaway_plan::World;
use seaway_watchdog::{Watchdog, WatchedPart};
use tokio::{
    sync::{Notify, watch},
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};
use tracing::warn;

use crate::watchdog::spawn;

/// Much may come at once; but clients wait for an address that moves.
const PAUSE: Duration = Duration::from_millis(20);

const FIRST_PASSWORDS: Duration = Duration::from_secs(3);

/// What is followed, until this is dropped.
pub(crate) struct AnnouncerTasks {
    settings: watch::Sender<Layer2Settings>,
    is_serving: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 4],
}

impl AnnouncerTasks {
    /// `passwords`: in a cluster. In a folder, the plan knows them. Nothing is announced while the engine is held. Then the announcer to
    /// neighbors waits behind the one of a process before, which passes on to it what it has, instead of letting it go to other hosts.
    pub(crate) fn start(
        host: &Arc<Host>,
        handle: &Handle,
        settings: Layer2Settings,
        passwords: Option<PasswordReader>,
        watchdog: &Watchdog,
        parts: &mut Vec<WatchedPart>,
    ) -> AnnouncerTasks {
        let (settings, read) = watch::channel(settings);
        let (is_serving, serving) = watch::channel(false);
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        let tell: Tell = Arc::new(move || notify.notify_one());
        parts.extend(passwords.iter().map(PasswordReader::part));
        let neighbors = forward_layer2(host.clone(), handle.clone(), read, watchdog.clone(), tell.clone());
        let neighbors = after(handle.phase(), neighbors);
        let routes = BgpConfigForwarder {
            host: host.clone(),
            handle: handle.clone(),
            passwords,
            watchdog: watchdog.clone(),
        };
        let reports = report(host.clone(), handle.clone(), changed);
        let tasks = [
            spawn("announcing addresses by ARP and NDP", parts, neighbors),
            spawn("announcing addresses by BGP", parts, routes.run(serving, tell)),
            spawn("the report of announced addresses", parts, reports),
            spawn("the watch of HAProxy", parts, follow_haproxy(host.clone(), handle.clone())),
        ];
        AnnouncerTasks { settings, is_serving, tasks }
    }

    /// Of a configuration that was read again.
    pub(crate) fn configure(&self, settings: Layer2Settings) {
        self.settings.send_if_modified(|before| {
            let is_other = *before != settings;
            *before = settings;
            is_other
        });
    }

    /// All that is planned is served here, and no process of before announces it: from now on sessions may begin. Routers forget
    /// what they kept of a process of before and is not among the first routes.
    pub(crate) fn begin_sessions(&self) {
        self.is_serving.send_replace(true);
    }
}

impl Drop for AnnouncerTasks {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Not while another process of this host works.
async fn after(mut phase: watch::Receiver<Phase>, work: impl Future<Output = ()>) {
    if phase.wait_for(|it| *it != Phase::Listening).await.is_ok() {
        work.await;
    }
}

type Tell = Arc<dyn Fn() + Send + Sync>;

async fn forward_layer2(
    host: Arc<Host>,
    handle: Handle,
    mut settings: watch::Receiver<Layer2Settings>,
    watchdog: Watchdog,
    tell: Tell,
) {
    let mut moved = handle.moved();
    loop {
        moved.mark_unchanged();
        let Some(wanted) = handle.ask(World::layer2).await else { return };
        if let Some(wanted) = wanted {
            let now = settings.borrow_and_update().clone();
            let (host, watchdog, tell) = (host.clone(), watchdog.clone(), tell.clone());
            let done = spawn_blocking(move || host.announce(&wanted, &now, Some(&watchdog), &tell));
            if let Err(error) = done.await {
                warn!(%error, "the addresses to announce by ARP and NDP cannot be passed to the announcer");
            }
        }
        let news = async {
            tokio::select! {
                ended = moved.changed() => ended.is_ok(),
                ended = settings.changed() => ended.is_ok(),
            }
        };
        // An error: nothing has changed, and the file of the key is looked at.
        if let Ok(false) = timeout(RECHECK_INTERVAL, news).await {
            return;
        }
        sleep(PAUSE).await;
    }
}

struct BgpConfigForwarder {
    host: Arc<Host>,
    handle: Handle,
    passwords: Option<PasswordReader>,
    watchdog: Watchdog,
}

impl BgpConfigForwarder {
    async fn run(self, mut serving: watch::Receiver<bool>, tell: Tell) {
        if serving.wait_for(|it| *it).await.is_err() {
            return;
        }
        let mut moved = self.handle.moved();
        let (mut read, _none) = match &self.passwords {
            Some(reader) => (reader.read(), None),
            None => {
                let (none, read) = watch::channel(Arc::default());
                (read, Some(none))
            }
        };
        loop {
            moved.mark_unchanged();
            let mut pause = RECHECK_INTERVAL;
            let Some(wanted) = self.handle.ask(World::bgp).await else { return };
            if let Some(wanted) = wanted {
                self.ask_for_passwords(&wanted, &mut read).await;
                let passwords = read.borrow_and_update().clone();
                let again = self.pass_on(wanted, passwords, tell.clone()).await;
                pause = again.map_or(pause, |it| it.min(pause));
            }
            let news = async {
                tokio::select! {
                    ended = moved.changed() => ended.is_ok(),
                    ended = read.changed() => ended.is_ok(),
                }
            };
            // An error: nothing has changed; what could not be started is tried again, and what was to stay for a while goes.
            if let Ok(false) = timeout(pause, news).await {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// A session that waits for its password is told as one that cannot be; so the first answer is waited for.
    async fn ask_for_passwords(
        &self,
        wanted: &DesiredBgp,
        read: &mut watch::Receiver<Arc<PasswordsBySecret>>,
    ) {
        let Some(reader) = &self.passwords else { return };
        let unread = wanted.sessions.iter().filter_map(|it| it.password.as_ref());
        let secrets: BTreeSet<_> =
            unread.filter(|it| it.value.is_none()).map(|it| it.secret.clone()).collect();
        let is_up = |it: &BgpPeerStatus| it.report.what == BgpSessionState::Established;
        let is_urgent = !secrets.is_empty() && !self.host.bgp_peers().iter().all(is_up);
        reader.set_wanted(WantedPasswords { secrets: secrets.clone(), is_urgent });
        let known = read.wait_for(|read| secrets.iter().all(|it| read.contains_key(it)));
        // Without an API server, other sessions begin.
        let _ = timeout(FIRST_PASSWORDS, known).await;
    }

    /// Tells how soon that is to be done again, if sooner than usual.
    async fn pass_on(
        &self,
        wanted: DesiredBgp,
        passwords: Arc<PasswordsBySecret>,
        tell: Tell,
    ) -> Option<Duration> {
        let (host, watchdog) = (self.host.clone(), self.watchdog.clone());
        let done = spawn_blocking(move || host.announce_by_bgp(&wanted, &passwords, Some(&watchdog), &tell));
        let passed = done.await;
        passed
            .inspect_err(
                |error| warn!(%error, "the addresses to announce by BGP cannot be passed to the BGP speaker"),
            )
            .ok()
            .flatten()
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

/// What HAProxy has open counts only while it lives: without it, addresses are withdrawn as for a listener that is closed.
async fn follow_haproxy(host: Arc<Host>, handle: Handle) {
    let Some(haproxy) = host.haproxy() else { return std::future::pending().await };
    let (mut changed, changes) = (haproxy.changed(), handle.changes());
    while changed.changed().await.is_ok() {
        for unit in haproxy.units() {
            if changes.send(Change::Drifted(unit)).await.is_err() {
                return;
            }
        }
    }
}
