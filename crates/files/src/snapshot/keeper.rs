//! Keeps a snapshot true beside everything else, at a bounded price.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use seaway_model::{Change, Fact, Kind, fact::FactRef};
use seaway_watchdog::{Heartbeat, Part};
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
    part: Part,
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
        let (heartbeat, part) = Heartbeat::new("the writer of what is known");
        let ring = desk.clone();
        let part = part.woken_by(move || ring.bell.notify_all());
        let of = desk.clone();
        let writer = std::thread::Builder::new()
            .name("snapshot".into())
            .spawn(move || write_on(&snapshot, &of, &heartbeat))?;
        Ok(Keeper { desk, part, writer: Some(writer) })
    }

    /// For the watchdog.
    pub fn part(&self) -> Part {
        self.part.clone()
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
    fn rest(&self, for_: Duration, heartbeat: &Heartbeat) -> bool {
        let began = Instant::now();
        let mut sheet = self.sheet();
        loop {
            heartbeat.beat();
            let left = for_.saturating_sub(began.elapsed());
            if sheet.over || left.is_zero() {
                return !sheet.over;
            }
            sheet = self.bell.wait_timeout(sheet, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns when something is to be written, or when it is over: whether it goes on.
    fn await_work(&self, heartbeat: &Heartbeat) -> bool {
        let mut sheet = self.sheet();
        while !sheet.is_due() && !sheet.over {
            heartbeat.beat();
            sheet = self.bell.wait(sheet).unwrap_or_else(PoisonError::into_inner);
        }
        !sheet.over
    }
}

fn write_on(snapshot: &Snapshot, desk: &Desk, heartbeat: &Heartbeat) {
    heartbeat.enter();
    let mut healthy = None;
    loop {
        let goes_on = desk.await_work(heartbeat) && desk.rest(GATHER, heartbeat);
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
        let rest = REST.max(began.elapsed().saturating_mul(RESTS));
        let stays = goes_on && (desk.rest(rest, heartbeat) || desk.sheet().is_due());
        if !stays {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use seaway_watchdog::{Fault, Pace, Watchdog};

    use super::*;
    use crate::snapshot::Origin;

    /// What the watchdog finds, that looks often.
    fn found(part: Part, limit: Duration, meanwhile: impl FnOnce() -> Option<Fault>) -> Option<Fault> {
        let (tell, told) = mpsc::channel();
        let pace = Pace { look: Duration::from_millis(20), limit };
        let watchdog = Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).expect("a thread");
        let _watching = watchdog.watch([part]);
        meanwhile().or_else(|| told.recv_timeout(PATIENCE).ok())
    }

    const PATIENCE: Duration = Duration::from_secs(120);

    #[test]
    fn a_writer_that_hangs_or_ends_is_found_by_the_watchdog() {
        let folder = tempfile::tempdir().expect("a folder");
        let start = || {
            let origin = Origin { host: "a".into(), server: "https://b".into() };
            let snapshot = Snapshot::at(folder.path().join("snapshot"), origin);
            Keeper::start(snapshot, None, [Kind::Service]).expect("a thread")
        };
        let fault = |hangs| Some(Fault { part: "the writer of what is known".into(), hangs });
        let keeper = start();
        let held = keeper.desk.sheet();
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
