//! Keeps a snapshot true beside everything else, at a bounded price.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use seaway_model::{Change, Fact, Kind, fact::FactRef};
use tracing::{debug, info, warn};

use super::{Recalled, Snapshot};

/// How much may gather before it is written.
const GATHER: Duration = Duration::from_secs(1);
/// After writing there is a rest of at least this, …
const REST: Duration = Duration::from_secs(5);
/// … and of so many times what the writing took: a hundredth of one processor at most.
const RESTS: u32 = 100;

/// Hears what a cluster says, and writes it down. Dropping it writes what is not written yet.
pub struct Keeper {
    desk: Arc<Desk>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Desk {
    sheet: Mutex<Sheet>,
    /// Something is to be written, or nothing any more.
    bell: Condvar,
}

#[derive(Default)]
struct Sheet {
    /// Shared with whoever plans by them.
    facts: HashMap<FactRef, Fact>,
    kinds: HashSet<Kind>,
    drains: bool,
    /// Those of which not everything was told yet: a part must not replace a whole.
    missing: HashSet<Kind>,
    changed: bool,
    over: bool,
}

impl Keeper {
    /// Of these kinds. `recalled`: what the host goes on with; without, what is known is whole once all were told.
    pub fn start(
        snapshot: Snapshot,
        recalled: Option<&Recalled>,
        kinds: impl IntoIterator<Item = Kind>,
    ) -> std::io::Result<Keeper> {
        let desk = Arc::new(Desk::default());
        {
            let mut sheet = desk.sheet();
            sheet.kinds.extend(kinds);
            match recalled {
                Some(recalled) => {
                    sheet.drains = recalled.drains;
                    sheet.facts.extend(recalled.facts.iter().map(|it| (it.reference(), it.clone())));
                }
                None => sheet.missing = sheet.kinds.clone(),
            }
        }
        let of = desk.clone();
        let writer =
            std::thread::Builder::new().name("snapshot".into()).spawn(move || write_on(&snapshot, &of))?;
        Ok(Keeper { desk, writer: Some(writer) })
    }

    /// Something was told.
    pub fn note(&self, change: &Change) {
        let mut sheet = self.desk.sheet();
        let changed = match change {
            // Of files, say, which are read anew.
            Change::Put(fact) if !fact.reference().kind().is_some_and(|it| sheet.kinds.contains(&it)) => {
                false
            }
            Change::Put(fact) => match sheet.facts.get(&fact.reference()) {
                // The older one is the one that others share.
                Some(known) if known == fact => false,
                _ => {
                    sheet.facts.insert(fact.reference(), fact.clone());
                    true
                }
            },
            Change::Gone(reference) | Change::Missing(reference) => sheet.facts.remove(reference).is_some(),
            Change::Drains(drains) => std::mem::replace(&mut sheet.drains, *drains) != *drains,
            Change::Synced(kind) | Change::NotAsked(kind) => {
                sheet.missing.remove(kind) && sheet.missing.is_empty()
            }
            _ => false,
        };
        if changed {
            sheet.changed = true;
            self.desk.bell.notify_one();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.desk.sheet().over = true;
        self.desk.bell.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic of it was told already.
            let _ = writer.join();
        }
    }
}

impl Sheet {
    fn is_due(&self) -> bool {
        self.changed && self.missing.is_empty()
    }
}

impl Desk {
    fn sheet(&self) -> MutexGuard<'_, Sheet> {
        self.sheet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it goes on after that.
    fn rest(&self, for_: Duration) -> bool {
        let began = Instant::now();
        let mut sheet = self.sheet();
        loop {
            let left = for_.saturating_sub(began.elapsed());
            if sheet.over || left.is_zero() {
                return !sheet.over;
            }
            sheet = self.bell.wait_timeout(sheet, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns when something is to be written, or when it is over: whether it goes on.
    fn await_work(&self) -> bool {
        let mut sheet = self.sheet();
        while !sheet.is_due() && !sheet.over {
            sheet = self.bell.wait(sheet).unwrap_or_else(PoisonError::into_inner);
        }
        !sheet.over
    }
}

fn write_on(snapshot: &Snapshot, desk: &Desk) {
    let mut healthy = None;
    loop {
        let goes_on = desk.await_work() && desk.rest(GATHER);
        let (drains, facts) = {
            let mut sheet = desk.sheet();
            if !sheet.is_due() {
                if goes_on { continue } else { return }
            }
            sheet.changed = false;
            (sheet.drains, sheet.facts.values().cloned().collect::<Vec<Fact>>())
        };
        let began = Instant::now();
        match snapshot.write(drains, facts.iter()) {
            Ok(()) => {
                if healthy != Some(true) {
                    info!(path = %snapshot.path().display(), facts = facts.len(), "what is known is kept for a start without an API server");
                }
                debug!(facts = facts.len(), took = ?began.elapsed(), "the snapshot is written");
                healthy = Some(true);
            }
            Err(error) => {
                desk.sheet().changed = true;
                if healthy.replace(false) != Some(false) {
                    warn!(path = %snapshot.path().display(), %error, "what is known cannot be kept for a start without an API server; name another place with --snapshot FILE");
                }
            }
        }
        let stays =
            goes_on && (desk.rest(REST.max(began.elapsed().saturating_mul(RESTS))) || desk.sheet().is_due());
        if !stays {
            return;
        }
    }
}
