//! A host that starts while no API server answers serves what it knew last.

use std::{collections::HashSet, path::PathBuf, time::Duration};

use seaway_cluster::Cluster;
use seaway_files::snapshot::{Keeper, Origin, Recalled, Snapshot};
use seaway_model::{Change, Fact, Kind, Name, ObjectRef, Problem, Reason};
use tokio::sync::mpsc;
use tracing::{info, warn};

/// An API server that answers at all does so within this.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a host goes on with, and where it keeps what it hears.
pub(super) struct Recall {
    snapshot: Option<Snapshot>,
    recalled: Option<Recalled>,
}

/// What a host hears, before it is told on.
#[derive(Default)]
pub(super) struct Memory {
    keeper: Option<Keeper>,
    /// While it serves what it knew last.
    stale: Option<Stale>,
}

struct Stale {
    object: ObjectRef,
    /// Kinds that all depends on, of which nothing was heard yet.
    unheard: HashSet<Kind>,
}

impl Recall {
    /// Reads what was kept, and asks whether it is needed.
    pub(super) async fn of(cluster: &Cluster, host: &Name, place: Option<PathBuf>) -> Recall {
        let Some(path) = place.or_else(|| Snapshot::usual_place(host)) else {
            info!(
                "what is known is not kept: there is no folder in memory for it; name a place with --snapshot FILE"
            );
            return Recall { snapshot: None, recalled: None };
        };
        let origin = Origin { host: host.clone(), server: cluster.server().clone() };
        let snapshot = Snapshot::at(path.clone(), origin);
        let file = snapshot.clone();
        let read = tokio::task::spawn_blocking(move || file.read()).await;
        let recalled = match read {
            Ok(Ok(recalled)) => recalled,
            Ok(Err(refused)) => {
                warn!(path = %path.display(), why = seaway_engine::chain(&refused),
                    "what was known last is not read; it will be replaced once the API server has told all");
                None
            }
            Err(error) => {
                warn!(%error, "what was known last could not be read");
                None
            }
        };
        let needed = recalled.is_some() && !cluster.answers_within(PATIENCE).await;
        Recall { snapshot: Some(snapshot), recalled: recalled.filter(|_| needed) }
    }

    /// What is known already.
    pub(super) fn facts(&self) -> &[Fact] {
        self.recalled.as_ref().map_or(&[], |it| &it.facts)
    }

    /// Tells what is known, if it is needed, and that it is old.
    pub(super) async fn tell(self, changes: &mpsc::Sender<Change>) -> Memory {
        let kept = self.recalled.as_ref().map(|it| &*it.facts);
        let keeper = self.snapshot.as_ref().and_then(|snapshot| {
            let keeper = Keeper::start(snapshot.clone(), kept, seaway_cluster::kinds());
            keeper.inspect_err(|error| warn!(%error, "what is known is not kept")).ok()
        });
        let (Some(recalled), Some(snapshot)) = (self.recalled, self.snapshot) else {
            return Memory { keeper, stale: None };
        };
        let object = ObjectRef::new(Kind::File, "", snapshot.path().to_string_lossy().into_owned());
        let written = jiff::Timestamp::from_millisecond(recalled.written.0 as i64).unwrap_or_default();
        let message = format!(
            "the API server did not answer at the start: what is served is as it was known at {written}; changes since then are not seen"
        );
        warn!(path = %snapshot.path().display(), facts = recalled.facts.len(), "{message}");
        let problem = Problem::new(object.clone(), Reason::Unreachable, message)
            .fix("See to the API server; as soon as it answers, its word counts.");
        let told = recalled.facts.into_iter().map(Change::Put);
        let told = told.chain(seaway_cluster::kinds().map(Change::Synced));
        for change in told.chain([Change::Reported(object.clone(), vec![problem])]) {
            if changes.send(change).await.is_err() {
                break;
            }
        }
        Memory { keeper, stale: Some(Stale { object, unheard: seaway_cluster::required_kinds().collect() }) }
    }
}

impl Memory {
    /// Something was heard; what is to be told beside it.
    pub(super) fn note(&mut self, change: &Change) -> Option<Change> {
        if let Some(keeper) = &self.keeper {
            keeper.note(change);
        }
        let (Change::Synced(kind), Some(stale)) = (change, &mut self.stale) else { return None };
        stale.unheard.remove(kind);
        if !stale.unheard.is_empty() {
            return None;
        }
        info!("the API server answers: what is served is as it says");
        let Stale { object, .. } = self.stale.take()?;
        Some(Change::Reported(object, Vec::new()))
    }
}
