//! A host that starts while no API server answers serves what it knew last.

use std::{
    collections::{BTreeSet, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use seaway_cluster::{ApiServerMetrics, Cluster};
use seaway_files::state_cache::{CachedState, Origin, StateCache, StateCacheWriter};
use seaway_model::{Change, Fact, Kind, Name, ObjectRef, Problem, Reason, fact::FactRef, fact::HostReport};
use seaway_watchdog::WatchedPart;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use crate::control::now;

/// An API server that answers at all has told all that is needed within this.
const PATIENCE: Duration = Duration::from_secs(3);
/// What was announced longer ago may be another's by now, and routers believe whoever announces it.
const OLDEST_ANNOUNCED: Duration = Duration::from_secs(3_600);

/// Whether it drains, and whose names of the front door are.
const ALSO_NEEDED: [Kind; 2] = [Kind::LoadBalancerHost, Kind::NameOwner];

/// What a host goes on with, and where it keeps what it hears.
pub(super) struct Recall {
    snapshot: Option<StateCache>,
    recalled: Option<CachedState>,
    /// If it was to drain when it was last told: its own object, which said so.
    own: Option<Fact>,
    counts: Arc<ApiServerMetrics>,
}

/// What a host hears, before it is told on.
pub(super) struct Memory {
    /// Whether this process serves, or may: another one that does has heard more than was written down.
    owns: watch::Receiver<bool>,
    keeper: Option<Arc<StateCacheWriter>>,
    /// Until all that is needed was heard, or it took too long.
    waiting: Option<Waiting>,
    /// While it serves what it knew last.
    stale: Option<Stale>,
    /// Where metrics see that.
    counts: Arc<ApiServerMetrics>,
}

struct Waiting {
    recalled: CachedState,
    file: ObjectRef,
    until: Instant,
    unheard: BTreeSet<Kind>,
    /// Put or gone since we are here: of these what was known is old.
    heard: HashSet<FactRef>,
    /// What stands between us and the API server.
    troubles: Vec<Problem>,
}

struct Stale {
    file: ObjectRef,
    unheard: BTreeSet<Kind>,
}

impl Recall {
    /// Reads what was kept.
    pub(super) async fn of(cluster: &Cluster, host: &Name, place: Option<PathBuf>) -> Recall {
        let Some(path) = place.or_else(|| StateCache::default_path(host)) else {
            info!(
                "no snapshot is kept: this machine has no folder in memory (such as /run) for it; name a file with \
                     --snapshot FILE"
            );
            let counts = cluster.counts().clone();
            return Recall { snapshot: None, recalled: None, own: None, counts };
        };
        let (server, authority) = (cluster.server_url().clone(), cluster.authority().clone());
        let origin = Origin { host: host.clone(), server, authority };
        let snapshot = StateCache::at(path.clone(), origin);
        let file = snapshot.clone();
        let read = tokio::task::spawn_blocking(move || file.read()).await;
        let recalled = match read {
            Ok(Ok(recalled)) => recalled,
            Ok(Err(refused)) => {
                warn!(path = %path.display(), why = seaway_engine::chain(&refused),
                    "snapshot refused; a new one is written once everything was listed from the API server");
                None
            }
            Err(error) => {
                warn!(%error, "snapshot cannot be read");
                None
            }
        };
        let own = recalled.as_ref().filter(|it| it.drains).map(|_| {
            let report = HostReport { host: host.clone(), drain: true, ..HostReport::default() };
            Fact::Host(Arc::new(report))
        });
        Recall { snapshot: Some(snapshot), recalled, own, counts: cluster.counts().clone() }
    }

    /// What is known already: what is not there any more is told as gone, so also that somebody wants it to drain.
    pub(super) fn facts(&self) -> impl Iterator<Item = &Fact> + Clone {
        self.recalled.iter().flat_map(|it| &it.facts).chain(&self.own)
    }

    /// Whether this host was to drain when it was last told.
    pub(super) fn drains(&self) -> bool {
        self.own.is_some()
    }

    /// Tells what must be known before anything is served.
    pub(super) async fn tell(self, changes: &mpsc::Sender<Change>, owns: watch::Receiver<bool>) -> Memory {
        if self.drains() {
            info!("this host is draining, as before the restart");
            // The engine may have ended; whoever watches it says so.
            let _ = changes.send(Change::HostDrains(true)).await;
        }
        let Some(snapshot) = self.snapshot else { return Memory::default() };
        let keeper =
            StateCacheWriter::start(snapshot.clone(), self.recalled.as_ref(), seaway_cluster::kinds());
        let keeper = keeper.inspect_err(|error| warn!(%error, "no snapshot is kept")).ok().map(Arc::new);
        if let Some(keeper) = keeper.as_ref().filter(|_| !*owns.borrow()) {
            keeper.pause();
        }
        let waiting = self.recalled.map(|recalled| Waiting {
            recalled,
            file: ObjectRef::new(Kind::File, "", snapshot.path().to_string_lossy().into_owned()),
            until: Instant::now() + PATIENCE,
            unheard: seaway_cluster::required_kinds().chain(ALSO_NEEDED).collect(),
            heard: HashSet::new(),
            troubles: Vec::new(),
        });
        Memory { owns, keeper, waiting, stale: None, counts: self.counts }
    }
}

impl Default for Memory {
    /// Nothing is known, and nothing written down.
    fn default() -> Memory {
        let owns = watch::channel(true).1;
        Memory { owns, keeper: None, waiting: None, stale: None, counts: Arc::default() }
    }
}

impl Memory {
    /// For the watchdog.
    pub(super) fn part(&self) -> Option<WatchedPart> {
        self.keeper.as_ref().map(|it| it.part())
    }

    /// What writes down what is heard.
    pub(super) fn keeper(&self) -> Option<Arc<StateCacheWriter>> {
        self.keeper.clone()
    }

    /// Returns when what was known last is to be served: the API server had its time.
    pub(super) async fn state_cache_is_due(&self) {
        let mut owns = self.owns.clone();
        match &self.waiting {
            Some(waiting) if owns.wait_for(|it| *it).await.is_ok() => sleep_until(waiting.until).await,
            _ => std::future::pending().await,
        }
    }

    /// What is known and was not heard otherwise meanwhile, and that it is old.
    pub(super) fn serve(&mut self) -> Vec<Change> {
        let Some(Waiting { recalled, file, unheard, heard, troubles, .. }) = self.waiting.take() else {
            return Vec::new();
        };
        let why = match &*troubles {
            [] => {
                let silent: Vec<&str> = unheard.iter().map(|it| it.as_str()).collect();
                format!("the API server did not list {} in time", silent.join(", "))
            }
            troubles => troubles.iter().map(|it| &*it.message).collect::<Vec<_>>().join("; "),
        };
        let written = jiff::Timestamp::from_millisecond(recalled.written.0 as i64).unwrap_or_default();
        let message = format!(
            "serving the configuration saved at {written}, without changes since then, because at the start {why}"
        );
        warn!(path = %file.name, facts = recalled.facts.len(), "{message}");
        let problem = Problem::new(file.clone(), Reason::Unreachable, message).fix(
            "Restore access to the API server: as soon as it answers, its state replaces the saved one. From one that is older than \
             an hour, no BGP session begins.",
        );
        let is_fresh = now().0.saturating_sub(recalled.written.0) < OLDEST_ANNOUNCED.as_millis() as u64;
        // Without these, no BGP session begins. By ARP and NDP the network is asked first whether another machine has an address.
        let is_told = move |kind: &Kind| is_fresh || *kind != Kind::BGPPeer;
        let old = recalled.facts.into_iter().filter(|fact| !heard.contains(&fact.reference()));
        let told = old.map(Change::Put).chain(seaway_cluster::kinds().filter(is_told).map(Change::Synced));
        let told = told.chain([Change::Reported(file.clone(), vec![problem])]).collect();
        self.stale = Some(Stale { file, unheard });
        self.counts.set_snapshot(Some(recalled.written));
        told
    }

    /// Something was heard; what is to be told beside it.
    pub(super) fn note(&mut self, change: &Change) -> Option<Change> {
        if let Some(keeper) = &self.keeper {
            keeper.record(change);
        }
        if let Some(waiting) = &mut self.waiting
            && waiting.note(change)
        {
            self.waiting = None;
        }
        let (Change::Synced(kind), Some(stale)) = (change, &mut self.stale) else { return None };
        stale.unheard.remove(kind);
        if !stale.unheard.is_empty() {
            return None;
        }
        info!("connected to the API server: its state replaces the snapshot");
        let Stale { file, .. } = self.stale.take()?;
        self.counts.set_snapshot(None);
        Some(Change::Reported(file, Vec::new()))
    }
}

impl Waiting {
    /// Whether nothing is needed any more.
    fn note(&mut self, change: &Change) -> bool {
        match change {
            Change::Put(fact) => {
                self.heard.insert(fact.reference());
            }
            Change::Gone(reference) | Change::Missing(reference) => {
                self.heard.insert(reference.clone());
            }
            Change::Synced(kind) => {
                self.unheard.remove(kind);
            }
            Change::Reported(object, problems) if *object == seaway_cluster::api_server() => {
                self.troubles.clone_from(problems);
            }
            _ => {}
        }
        self.unheard.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::Time;
    use seaway_testkit::facts;

    use super::*;

    fn fact(name: &str) -> Fact {
        Fact::Service(facts::service(name, &[]).into())
    }

    fn known(names: &[&str]) -> Memory {
        let facts = names.iter().map(|name| fact(name)).collect();
        let waiting = Waiting {
            recalled: CachedState { facts, drains: false, written: Time(7) },
            file: ObjectRef::new(Kind::File, "", "a.snapshot"),
            until: Instant::now(),
            unheard: seaway_cluster::required_kinds().collect(),
            heard: HashSet::new(),
            troubles: Vec::new(),
        };
        Memory { waiting: Some(waiting), ..Memory::default() }
    }

    /// What is put, and why.
    fn served(memory: &mut Memory) -> (Vec<Fact>, String) {
        let (mut facts, mut why) = (Vec::new(), String::new());
        for change in memory.serve() {
            match change {
                Change::Put(fact) => facts.push(fact),
                Change::Reported(_, problems) => why = problems[0].message.to_string(),
                _ => {}
            }
        }
        (facts, why)
    }

    #[tokio::test]
    async fn an_api_server_that_falls_silent_half_way_leaves_what_was_known_but_for_what_it_said() {
        let mut memory = known(&["said", "gone", "silent"]);
        memory.state_cache_is_due().await;
        memory.note(&Change::Put(fact("said")));
        memory.note(&Change::Gone(fact("gone").reference()));
        memory.note(&Change::Synced(Kind::Service));
        let (facts, why) = served(&mut memory);
        assert_eq!(facts, [fact("silent")]);
        assert!(
            why.contains("did not list") && why.contains("EndpointSlice") && !why.contains("Service,"),
            "{why}"
        );
        assert!(memory.serve().is_empty(), "once");
        assert_eq!(memory.counts.snapshot(), Some(Time(7)), "metrics say so");
        let all = seaway_cluster::required_kinds().filter_map(|kind| memory.note(&Change::Synced(kind)));
        assert_eq!(all.count(), 1, "with the last it is as the API server says");
        assert_eq!(memory.counts.snapshot(), None);
    }

    #[tokio::test]
    async fn the_problem_says_what_stood_between_us_and_the_api_server() {
        let mut memory = known(&["a"]);
        let refused = Problem::new(seaway_cluster::api_server(), Reason::Unreachable, "connection refused");
        memory.note(&Change::Reported(seaway_cluster::api_server(), vec![refused]));
        let (_, why) = served(&mut memory);
        assert!(why.contains("because at the start connection refused"), "{why}");
    }

    #[tokio::test]
    async fn what_was_known_is_forgotten_once_all_that_is_needed_was_told() {
        let mut memory = known(&["a"]);
        for kind in seaway_cluster::required_kinds() {
            assert!(memory.note(&Change::Synced(kind)).is_none());
        }
        assert!(memory.serve().is_empty());
    }
}
