//! Who is watched and what is known of them: bookkeeping without sockets or clock.
//!
//! ```text
//!   pool ─► patients (one per member and pool) ─► target (one per address and check, over all pools)
//! ```

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use seaway_model::{
    LbKey, Pool, PoolId,
    load_balancer::{MemberState, Passive},
};

use super::{
    HealthChange,
    check::{Check, Course, Finding},
    vitals::{Health, Patient},
};

/// An ejection is never longer than this many times its configured length.
const LONGEST: u32 = 10;

#[derive(Default)]
pub(super) struct Ward {
    pools: HashMap<(LbKey, PoolId), PoolWatch>,
    patients: HashMap<u64, Watched>,
    targets: Vec<Option<Target>>,
    free: Vec<usize>,
    by_check: HashMap<Rc<Check>, usize>,
    generation: u32,
    /// What changed since somebody took it.
    pub(super) changes: Vec<HealthChange>,
}

struct PoolWatch {
    name: Rc<(LbKey, PoolId)>,
    passive: Option<Passive>,
    patients: Vec<u64>,
}

struct Watched {
    patient: Arc<dyn Patient>,
    at: SocketAddr,
    pool: Rc<(LbKey, PoolId)>,
    /// Draining members and those of weight 0 are checked, but nobody may count on them.
    serves: bool,
    target: Option<usize>,
    ejection: Ejection,
}

#[derive(Default)]
struct Ejection {
    until: Option<u64>,
    in_row: u32,
    last_length: u64,
    ended: u64,
}

/// One thing to be checked, for everybody who asks for just this check.
pub(super) struct Target {
    pub(super) check: Rc<Check>,
    /// Tells it from others that had its place before.
    pub(super) generation: u32,
    course: Course,
    patients: Vec<u64>,
}

/// One member as its pool's runtime knows it.
pub struct Admission {
    pub at: SocketAddr,
    pub patient: Arc<dyn Patient>,
}

impl Ward {
    /// A pool is new or changed. Returns targets that have to be checked from now on.
    pub(super) fn admit(&mut self, key: LbKey, pool: &Pool, members: Vec<Admission>, now: u64) -> Vec<usize> {
        let name = (key, pool.id.clone());
        let before = self.pools.remove(&name);
        let (name, old) = match before {
            Some(watch) => (watch.name, watch.patients),
            None => (Rc::new(name), Vec::new()),
        };
        let mut fresh = Vec::new();
        let mut patients = Vec::with_capacity(members.len());
        for Admission { at, patient } in members {
            let Ok(found) = pool.members.binary_search_by(|member| member.at.cmp(&at)) else { continue };
            let member = &pool.members[found];
            let id = patient.vitals().id();
            let serves = member.state == MemberState::Ready && member.weight > 0;
            let entry = self.patients.entry(id).or_insert_with(|| Watched {
                patient,
                at,
                pool: name.clone(),
                serves,
                target: None,
                ejection: Ejection::default(),
            });
            entry.serves = serves;
            patients.push(id);
            self.aim(id, Check::of(pool, member), now, &mut fresh);
            if pool.passive.is_none() {
                self.readmit(id, now, "passive ejection was switched off");
            }
        }
        let staying: HashSet<u64> = patients.iter().copied().collect();
        for id in old.into_iter().filter(|id| !staying.contains(id)) {
            self.discharge(id);
        }
        self.pools.insert((*name).clone(), PoolWatch { name, passive: pool.passive, patients });
        fresh
    }

    pub(super) fn forget(&mut self, key: LbKey, pool: PoolId) {
        for id in self.pools.remove(&(key, pool)).map(|watch| watch.patients).unwrap_or_default() {
            self.discharge(id);
        }
    }

    pub(super) fn target(&self, slot: usize, generation: u32) -> Option<&Target> {
        self.targets.get(slot)?.as_ref().filter(|target| target.generation == generation)
    }

    pub(super) fn generation_of(&self, slot: usize) -> Option<u32> {
        self.targets.get(slot)?.as_ref().map(|target| target.generation)
    }

    /// A check has ended.
    pub(super) fn note(&mut self, slot: usize, finding: &Finding, now: u64) {
        let Some(Some(target)) = self.targets.get_mut(slot) else { return };
        let (well, reason) = match finding {
            Finding::Well => (true, "checks succeeded"),
            Finding::Ill(reason) => (false, reason.as_str()),
            Finding::Unable(_) => return,
        };
        if !target.course.note(well, &target.check) {
            return;
        }
        for id in target.patients.clone() {
            self.judge(id, !well, now, reason);
        }
    }

    /// The data path met failures in a row at this member. Returns when to let it back, if it is ejected now.
    pub(super) fn suspect(&mut self, id: u64, now: u64) -> Option<u64> {
        let watched = self.patients.get(&id)?;
        let pool = self.pools.get(&*watched.pool)?;
        let passive = pool.passive?;
        if watched.ejection.until.is_some() || !self.another_serves(pool, id) {
            return None;
        }
        let watched = self.patients.get_mut(&id)?;
        let before = watched.patient.vitals().health();
        let until = watched.ejection.start(passive.eject, now);
        watched.patient.vitals().set_ejected(true, now);
        let reason = format!(
            "{} failures in a row, out for {:?}",
            passive.failures,
            Duration::from_millis(until.saturating_sub(now))
        );
        self.changed(id, before, &reason);
        Some(until)
    }

    /// The time of an ejection is over, perhaps.
    pub(super) fn release(&mut self, id: u64, now: u64) {
        let due = self.patients.get(&id).and_then(|watched| watched.ejection.until);
        if due.is_some_and(|until| until <= now) {
            self.readmit(id, now, "its time out is over");
        }
    }

    fn another_serves(&self, pool: &PoolWatch, id: u64) -> bool {
        pool.patients.iter().filter(|other| **other != id).any(|other| {
            self.patients.get(other).is_some_and(|other| other.serves && other.patient.vitals().usable())
        })
    }

    fn readmit(&mut self, id: u64, now: u64, reason: &str) {
        let Some(watched) = self.patients.get_mut(&id) else { return };
        if watched.ejection.until.take().is_none() {
            return;
        }
        watched.ejection.ended = now;
        let before = watched.patient.vitals().health();
        watched.patient.vitals().set_ejected(false, now);
        self.changed(id, before, reason);
    }

    fn judge(&mut self, id: u64, down: bool, now: u64, reason: &str) {
        let Some(watched) = self.patients.get(&id) else { return };
        let before = watched.patient.vitals().health();
        if (before == Health::Down) != down {
            watched.patient.vitals().set_down(down, now);
            self.changed(id, before, reason);
        }
    }

    fn changed(&mut self, id: u64, from: Health, reason: &str) {
        let Some(watched) = self.patients.get(&id) else { return };
        let to = watched.patient.vitals().health();
        if from != to {
            let (key, pool) = (*watched.pool).clone();
            self.changes.push(HealthChange {
                key,
                pool,
                member: watched.at,
                from,
                to,
                reason: reason.into(),
            });
        }
    }

    /// Has this patient watched by the target of `check`, which is made if nobody asked for it before.
    fn aim(&mut self, id: u64, check: Option<Check>, now: u64, fresh: &mut Vec<usize>) {
        let current = self.patients.get(&id).and_then(|watched| watched.target);
        let same = match (current.and_then(|slot| self.targets[slot].as_ref()), &check) {
            (Some(target), Some(check)) => *target.check == *check,
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        self.leave(id);
        let Some(check) = check else {
            self.judge(id, false, now, "it is not checked any more");
            return;
        };
        let is_down = self.patients.get(&id).is_some_and(|w| w.patient.vitals().health() == Health::Down);
        let check = Rc::new(check);
        let slot = match self.by_check.entry(check.clone()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => {
                self.generation = self.generation.wrapping_add(1);
                let course = Course::known(is_down);
                let target = Target { check, generation: self.generation, course, patients: Vec::new() };
                let slot = match self.free.pop() {
                    Some(slot) => {
                        self.targets[slot] = Some(target);
                        slot
                    }
                    None => {
                        self.targets.push(Some(target));
                        self.targets.len() - 1
                    }
                };
                fresh.push(slot);
                *vacant.insert(slot)
            }
        };
        let mut known_down = false;
        if let Some(target) = self.targets[slot].as_mut() {
            target.patients.push(id);
            known_down = target.course.down;
        }
        if let Some(watched) = self.patients.get_mut(&id) {
            watched.target = Some(slot);
        }
        self.judge(id, known_down, now, "its check, shared with other pools, said so before");
    }

    fn leave(&mut self, id: u64) {
        let Some(slot) = self.patients.get_mut(&id).and_then(|watched| watched.target.take()) else { return };
        let Some(target) = self.targets[slot].as_mut() else { return };
        target.patients.retain(|patient| *patient != id);
        if target.patients.is_empty() {
            let check = target.check.clone();
            self.by_check.remove(&check);
            self.targets[slot] = None;
            self.free.push(slot);
        }
    }

    fn discharge(&mut self, id: u64) {
        self.leave(id);
        self.patients.remove(&id);
    }
}

impl Ejection {
    fn start(&mut self, length: Duration, now: u64) -> u64 {
        let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        // It proved itself by staying as long as it had been out.
        let proved = now.saturating_sub(self.ended) > self.last_length;
        self.in_row = if proved { 1 } else { (self.in_row + 1).min(LONGEST) };
        self.last_length = length.saturating_mul(u64::from(self.in_row));
        let until = now.saturating_add(self.last_length);
        self.until = Some(until);
        until
    }
}

#[cfg(test)]
#[path = "ward_tests.rs"]
mod tests;
