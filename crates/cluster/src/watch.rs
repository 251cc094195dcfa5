//! Watching: one task for each kind, which lists it whole, page by page, and then hears of every change.
//!
//! ```text
//!     list ─► Put … Put ─► what was known and is not listed: Gone ─► Synced
//!       ▲                                                             │
//!       │  410 Gone, or a version that nobody has                     ▼
//!       └───────────────────────────────────────────────────────── watch ◄─┐
//!                         silent, cut, ended, refused: again from the last ─┘
//! ```
//! Nothing is told as gone but by its deletion or by a whole list without it: hours without an answer change nothing.
//! Nothing is kept of an object but its name; what drivers compare with goes into [`ObjectCache`](crate::object_cache::ObjectCache).

mod copied;
mod crd_watch;
pub(crate) mod host_leases;
pub(crate) mod host_slices;
mod hosts;
mod known_objects;
mod namespaces;
mod problems;
mod readiness;
mod reflector;
mod restored;
mod retry;
mod scope;
mod secrets;
mod slice_writer;

use std::sync::{Arc, atomic::AtomicU64};

use seaway_model::{Change, Fact, Kind, Name};
use seaway_watchdog::{self as watchdog, Heartbeat};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tracing::error;

use self::{
    hosts::Hosts, readiness::ApiReadiness, reflector::Reflector, scope::WatchScope, secrets::Secrets,
};
pub use self::{scope::selector_of_host, secrets::WantedSecrets};
use crate::{
    connect::Cluster,
    kinds::{Requirement, WATCHED, WatchedKind},
    lease::Leadership,
};

/// A cluster that is being watched, until this is dropped.
pub struct Watch {
    wanted: watch::Sender<WantedSecrets>,
    hosts: Arc<Hosts>,
    tasks: JoinSet<()>,
    parts: Vec<watchdog::WatchedPart>,
}

/// Says what is wanted of Secrets.
#[derive(Clone)]
pub struct SecretInterest(watch::Sender<WantedSecrets>);

impl SecretInterest {
    /// Which Secrets are told with what they hold; of all others only that they are there. At first those are that
    /// were known before. What becomes wanted is fetched, what no longer is is dropped. While none is wanted, the API server
    /// is not asked for Secrets at all.
    pub fn set_wanted(&self, wanted: WantedSecrets) {
        self.0.send_if_modified(|before| {
            let changed = *before != wanted;
            *before = wanted;
            changed
        });
    }
}

/// Whether hosts are told as gone when their Leases end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredHostPolicy {
    /// For who gives addresses out; it may list Leases.
    Watched,
    /// A host needs to know of no other.
    Ignored,
}

impl Cluster {
    /// Watches from now on; must be called in a runtime. Whoever reads `changes` may be slow, it is waited for.
    pub fn watch(&self, changes: mpsc::Sender<Change>, pulses: ExpiredHostPolicy) -> Watch {
        self.watch_from(std::iter::empty(), changes, pulses)
    }

    /// As above, with what whoever reads `changes` knows already: of that, what is not there any more is told as gone.
    pub fn watch_from<'f>(
        &self,
        known: impl Iterator<Item = &'f Fact> + Clone,
        changes: mpsc::Sender<Change>,
        pulses: ExpiredHostPolicy,
    ) -> Watch {
        self.watch_as(None, known, changes, pulses)
    }

    /// As above, for the host of this name: of other hosts it hears what it needs, when that changes.
    pub fn watch_as_host<'f>(
        &self,
        host: &Name,
        known: impl Iterator<Item = &'f Fact> + Clone,
        changes: mpsc::Sender<Change>,
    ) -> Watch {
        self.watch_as(Some(host), known, changes, ExpiredHostPolicy::Ignored)
    }

    fn watch_as<'f>(
        &self,
        host: Option<&Name>,
        known: impl Iterator<Item = &'f Fact> + Clone,
        changes: mpsc::Sender<Change>,
        pulses: ExpiredHostPolicy,
    ) -> Watch {
        let (hosts, readiness) = (Arc::new(Hosts::default()), Arc::new(ApiReadiness::default()));
        // Nobody said yet who is named: those that are known whole go on, and no other key is told.
        let whole = known.clone().filter_map(|fact| match fact {
            Fact::Secret(it) if !it.withheld => Some(it.object.clone()),
            _ => None,
        });
        let (wanted, wishes) = watch::channel(WantedSecrets::These(whole.collect()));
        let (complain, troubles) = mpsc::channel(WATCHED.len());
        let mut watch = Watch { wanted, hosts: hosts.clone(), tasks: JoinSet::new(), parts: Vec::new() };
        for watched in watched_by(pulses) {
            for scope in scopes(watched.kind, host) {
                let secrets = (watched.kind == Kind::Secret).then(|| Secrets::new(wishes.clone()));
                let shared = (hosts.clone(), readiness.clone());
                let reflector =
                    Reflector::new(self.clone(), watched, changes.clone(), complain.clone(), secrets, shared);
                let mut reflector = reflector.with_scope(scope);
                if pulses == ExpiredHostPolicy::Watched {
                    reflector = reflector.for_controller();
                }
                known.clone().for_each(|fact| reflector.assume_known(fact));
                watch.spawn(format!("the watch of {}", watched.kind), reflector.run());
            }
        }
        if pulses == ExpiredHostPolicy::Watched {
            watch.spawn(
                "the watch of hosts",
                host_leases::watch_host_leases(self.clone(), hosts, changes.clone()),
            );
        }
        watch.spawn("the report on watches", problems::report_problems(troubles, changes));
        watch
    }
}

/// What is only reported is for controllers to report: a host asks for nothing that changes nothing that it does.
fn watched_by(pulses: ExpiredHostPolicy) -> impl Iterator<Item = &'static WatchedKind> {
    WATCHED
        .iter()
        .filter(move |it| it.need != Requirement::ReportOnly || pulses == ExpiredHostPolicy::Watched)
}

fn scopes(kind: Kind, host: Option<&Name>) -> Vec<WatchScope> {
    match (kind, host) {
        (Kind::LoadBalancerHost, Some(host)) => WatchScope::of_host(host).into(),
        _ => vec![WatchScope::All],
    }
}

impl Watch {
    fn spawn(&mut self, name: impl Into<Box<str>>, task: impl Future<Output = ()> + Send + 'static) {
        let (heartbeat, part) = Heartbeat::new(name);
        self.tasks.spawn(heartbeat.watch(task));
        self.parts.push(part);
    }

    /// What hosts say of their addresses is gathered for all of them, while `leading`. Problems are told to `changes`.
    pub fn gather_addresses(
        &mut self,
        cluster: &Cluster,
        leading: Leadership,
        changes: mpsc::Sender<Change>,
    ) {
        let gathering = slice_writer::write_slices(cluster.clone(), leading, self.hosts.clone(), changes);
        self.spawn("the writer of hosts' addresses", gathering);
    }

    /// For the watchdog.
    pub fn parts(&self) -> Vec<watchdog::WatchedPart> {
        self.parts.clone()
    }

    /// What is wanted of Secrets can be said from elsewhere.
    pub fn secret_interest(&self) -> SecretInterest {
        SecretInterest(self.wanted.clone())
    }

    /// The version that the first whole list of Addresses was as of, once all of it was told; 0 before.
    pub fn addresses_listed(&self) -> Arc<AtomicU64> {
        self.hosts.addresses_version()
    }

    /// Returns when one of the tasks has ended, which none does by itself while somebody listens.
    pub async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(Err(error)) => error!(%error, "a watch of the API server ended by a panic"),
            Some(Ok(())) => {}
            None => std::future::pending().await,
        }
    }

    /// Ends all watches and waits until nothing is told any more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use seaway_watchdog::{PartFailure, Watchdog};

    use super::*;

    #[test]
    fn hosts_do_not_watch_what_only_controllers_report() {
        let kinds = |pulses| watched_by(pulses).map(|it| it.kind).collect::<Vec<_>>();
        for kind in [Kind::MetallbL2Advertisement, Kind::MetallbBGPAdvertisement, Kind::MetallbBGPPeer] {
            assert!(
                !kinds(ExpiredHostPolicy::Ignored).contains(&kind)
                    && kinds(ExpiredHostPolicy::Watched).contains(&kind),
                "{kind}"
            );
        }
        assert_eq!(kinds(ExpiredHostPolicy::Ignored), crate::kinds::kinds().collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_watch_that_dies_is_noticed_while_the_others_go_on() {
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("a test has this watch die") });
        let wanted = watch::channel(WantedSecrets::Every).0;
        let mut watch = Watch { wanted, hosts: Arc::default(), tasks, parts: Vec::new() };
        watch.ended().await;
        assert_eq!(watch.tasks.len(), 1);
        watch.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_watch_that_hangs_or_dies_is_found_by_the_watchdog() {
        for hangs in [true, false] {
            let wanted = watch::channel(WantedSecrets::Every).0;
            let mut watch = Watch { wanted, hosts: Arc::default(), tasks: JoinSet::new(), parts: Vec::new() };
            let (release, wait) = std::sync::mpsc::channel::<()>();
            watch.spawn("the watch of tests", async move {
                assert!(hangs, "a test has this watch die");
                _ = wait.recv();
            });
            let (tell, mut told) = mpsc::channel(1);
            let pace = seaway_watchdog::WatchdogTimings {
                look: std::time::Duration::from_millis(20),
                // What a panic prints may take a while.
                limit: std::time::Duration::from_millis(if hangs { 400 } else { 120_000 }),
            };
            let watchdog = Watchdog::start(pace, move |fault| drop(tell.blocking_send(fault.clone())));
            let watchdog = watchdog.expect("a thread");
            let _watching = watchdog.watch(watch.parts());
            let found = PartFailure { part: "the watch of tests".into(), hangs };
            assert_eq!(told.recv().await, Some(found));
            drop(release);
            watch.stop().await;
        }
    }
}
