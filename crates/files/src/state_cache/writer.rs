//! Keeps a snapshot true beside everything else, at a bounded price.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use seaway_model::{Change, Fact, Kind, fact::FactRef};
use seaway_watchdog::{Heartbeat, WatchedPart};
use tracing::{debug, info, warn};

use super::{CachedState, StateCache};

/// How much may gather before it is written.
const GATHER: Duration = Duration::from_secs(1);
/// After writing there is a rest of at least this, …
const REST: Duration = Duration::from_secs(5);
/// … and of so many times what the writing took: a hundredth of one processor at most.
const RESTS: u32 = 100;

/// Hears what a cluster says, and writes it down. Dropping it writes what is not written yet.
pub struct StateCacheWriter {
    shared: Arc<WriterState>,
    part: WatchedPart,
    writer: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct WriterState {
    pending: Mutex<PendingFacts>,
    /// Held while the file is written.
    writing: Mutex<()>,
    /// Something is to be written, or nothing any more.
    wakeup: Condvar,
}

#[derive(Default)]
struct PendingFacts {
    /// Shared with whoever plans by them.
    facts: HashMap<FactRef, Fact>,
    kinds: HashSet<Kind>,
    drains: bool,
    /// Those of which not everything was told yet: a part must not replace a whole.
    missing: HashSet<Kind>,
    changed: bool,
    /// Another process writes the file.
    held: bool,
    over: bool,
}

impl StateCacheWriter {
    /// Of these kinds. `recalled`: what the host goes on with; without, what is known is whole once all were told.
    pub fn start(
        snapshot: StateCache,
        recalled: Option<&CachedState>,
        kinds: impl IntoIterator<Item = Kind>,
    ) -> std::io::Result<StateCacheWriter> {
        let shared = Arc::new(WriterState::default());
        {
            let mut pending = shared.pending();
            pending.kinds.extend(kinds);
            match recalled {
                Some(recalled) => {
                    pending.drains = recalled.drains;
                    pending.facts.extend(recalled.facts.iter().map(|it| (it.reference(), it.clone())));
                }
                None => pending.missing = pending.kinds.clone(),
            }
        }
        let (heartbeat, part) = Heartbeat::new("the writer of the snapshot");
        let ring = shared.clone();
        let part = part.woken_by(move || ring.wakeup.notify_all());
        let of = shared.clone();
        let writer = std::thread::Builder::new()
            .name("snapshot".into())
            .spawn(move || write_on(&snapshot, &of, &heartbeat))?;
        Ok(StateCacheWriter { shared, part, writer: Some(writer) })
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.part.clone()
    }

    /// Writes nothing any more: another process does, or may. Returns once nothing is being written. What is told is recorded.
    pub fn pause(&self) {
        self.shared.pending().held = true;
        drop(self.shared.writing.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Writes what was told.
    pub fn resume(&self) {
        let mut pending = self.shared.pending();
        pending.changed |= std::mem::take(&mut pending.held);
        self.shared.wakeup.notify_one();
    }

    /// Records a change that the cluster told.
    pub fn record(&self, change: &Change) {
        let mut pending = self.shared.pending();
        let changed = match change {
            // Of files, say, which are read anew.
            Change::Put(fact) if !fact.reference().kind().is_some_and(|it| pending.kinds.contains(&it)) => {
                false
            }
            Change::Put(fact) => match pending.facts.get(&fact.reference()) {
                // The older one is the one that others share.
                Some(known) if known == fact => false,
                _ => {
                    pending.facts.insert(fact.reference(), fact.clone());
                    true
                }
            },
            Change::Gone(reference) | Change::Missing(reference) => pending.facts.remove(reference).is_some(),
            Change::HostDrains(drains) => std::mem::replace(&mut pending.drains, *drains) != *drains,
            Change::Synced(kind) | Change::NotWatched(kind) => {
                pending.missing.remove(kind) && pending.missing.is_empty()
            }
            _ => false,
        };
        if changed {
            pending.changed = true;
            self.shared.wakeup.notify_one();
        }
    }
}

impl Drop for StateCacheWriter {
    fn drop(&mut self) {
        self.shared.pending().over = true;
        self.shared.wakeup.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic of it was told already.
            let _ = writer.join();
        }
    }
}

impl PendingFacts {
    fn is_due(&self) -> bool {
        self.changed && self.missing.is_empty() && !self.held
    }
}

impl WriterState {
    fn pending(&self) -> MutexGuard<'_, PendingFacts> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it goes on after that.
    fn rest(&self, for_: Duration, heartbeat: &Heartbeat) -> bool {
        let began = Instant::now();
        let mut pending = self.pending();
        loop {
            heartbeat.beat();
            let left = for_.saturating_sub(began.elapsed());
            if pending.over || left.is_zero() {
                return !pending.over;
            }
            pending = self.wakeup.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns when something is to be written, or when it is over: whether it goes on.
    fn await_work(&self, heartbeat: &Heartbeat) -> bool {
        let mut pending = self.pending();
        while !pending.is_due() && !pending.over {
            heartbeat.beat();
            pending = self.wakeup.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        !pending.over
    }
}

fn write_on(snapshot: &StateCache, shared: &WriterState, heartbeat: &Heartbeat) {
    heartbeat.enter_thread();
    let mut healthy = None;
    loop {
        let goes_on = shared.await_work(heartbeat) && shared.rest(GATHER, heartbeat);
        let writing = shared.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (drains, facts) = {
            let mut pending = shared.pending();
            if !pending.is_due() {
                if goes_on { continue } else { return }
            }
            pending.changed = false;
            (pending.drains, pending.facts.values().cloned().collect::<Vec<Fact>>())
        };
        let began = Instant::now();
        match snapshot.write(drains, facts.iter()) {
            Ok(()) => {
                if healthy != Some(true) {
                    info!(path = %snapshot.path().display(), facts = facts.len(), "snapshot written, for starts without an API server");
                }
                debug!(facts = facts.len(), took = ?began.elapsed(), "the snapshot is written");
                healthy = Some(true);
            }
            Err(error) => {
                shared.pending().changed = true;
                if healthy.replace(false) != Some(false) {
                    warn!(path = %snapshot.path().display(), %error, "snapshot cannot be written; name another file with --snapshot FILE");
                }
            }
        }
        drop(writing);
        let rest = REST.max(began.elapsed().saturating_mul(RESTS));
        let stays = goes_on && (shared.rest(rest, heartbeat) || shared.pending().is_due());
        if !stays {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use seaway_watchdog::{PartFailure, Watchdog, WatchdogTimings};

    use super::*;
    use crate::state_cache::Origin;

    /// What the watchdog finds, that looks often.
    fn found(
        part: WatchedPart,
        limit: Duration,
        meanwhile: impl FnOnce() -> Option<PartFailure>,
    ) -> Option<PartFailure> {
        let (tell, told) = mpsc::channel();
        let pace = WatchdogTimings { look: Duration::from_millis(20), limit };
        let watchdog = Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).expect("a thread");
        let _watching = watchdog.watch([part]);
        meanwhile().or_else(|| told.recv_timeout(PATIENCE).ok())
    }

    const PATIENCE: Duration = Duration::from_secs(120);

    #[test]
    fn a_writer_that_hangs_or_ends_is_found_by_the_watchdog() {
        let folder = tempfile::tempdir().expect("a folder");
        let start = || {
            let origin = Origin { host: "a".into(), server: "https://b".into(), authority: "".into() };
            let snapshot = StateCache::at(folder.path().join("snapshot"), origin);
            StateCacheWriter::start(snapshot, None, [Kind::Service]).expect("a thread")
        };
        let fault = |hangs| Some(PartFailure { part: "the writer of the snapshot".into(), hangs });
        let keeper = start();
        let held = keeper.shared.pending();
        assert_eq!(found(keeper.part(), Duration::from_millis(400), || None), fault(true));
        drop(held);
        let keeper = start();
        let part = keeper.part();
        let ended = found(part, PATIENCE, || {
            drop(keeper);
            None
        });
        assert_eq!(ended, fault(false));
    }
}
