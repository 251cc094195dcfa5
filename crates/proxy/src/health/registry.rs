//! Who is watched and what is known of them: bookkeeping without sockets or clock.
//!
//! ```text
//!   pool ─► checked members (one per member and pool) ─► target (one per address and check, over all pools)
//! ```

use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use seaway_model::{LbKey, Name, PoolId};
use seaway_snapshot::MemberAvailability;
use slab::Slab;

use super::{
    HealthChange,
    check::{Check, CheckResult, RiseFallCounter},
};
use crate::running::{Health, RunningMember, RunningPool};

#[derive(Default)]
pub(super) struct CheckRegistry {
    pools: HashMap<(LbKey, PoolId), HashMap<SocketAddr, usize>>,
    checked_members: Slab<CheckedMember>,
    targets: Slab<CheckTarget>,
    by_check: HashMap<Rc<Check>, usize>,
    generation: u32,
    /// How many targets each has.
    namespaces: HashMap<Name, usize>,
    /// What changed since somebody took it.
    pub(super) changes: Vec<HealthChange>,
}

/// One member of one pool.
struct CheckedMember {
    pool: Arc<RunningPool>,
    member: Arc<RunningMember>,
    target: Option<usize>,
}

/// One thing to be checked, for everybody who asks for just this check.
pub(super) struct CheckTarget {
    pub(super) check: Rc<Check>,
    /// Tells it from others that had its place before.
    pub(super) generation: u32,
    /// Of the first who asked for it; what is nobody's in particular has no name.
    pub(super) namespace: Name,
    sequence: RiseFallCounter,
    seen_well: bool,
    /// Nobody checks it until one of its pools is used.
    rests: bool,
    checked_members: Vec<usize>,
}

impl CheckRegistry {
    /// A pool is new, changed or gone. Returns targets that have to be checked from now on.
    pub(super) fn admit(&mut self, pool: &Arc<RunningPool>, now: u64) -> Vec<usize> {
        let name = (pool.key.clone(), pool.id.clone());
        let mut before = self.pools.remove(&name).unwrap_or_default();
        let live = pool.live();
        if live.present {
            let mut here = HashMap::with_capacity(live.members.len());
            for (member, running) in live.compiled.members().iter().zip(&live.members) {
                // A member that left and came back between two looks has a new runtime state.
                let known = before.remove(&member.at).filter(|id| {
                    let same = self
                        .checked_members
                        .get(*id)
                        .is_some_and(|checked_member| Arc::ptr_eq(&checked_member.member, running));
                    if !same {
                        self.remove_checks(*id);
                    }
                    same
                });
                let id = known.unwrap_or_else(|| {
                    let (pool, member) = (pool.clone(), running.clone());
                    self.checked_members.insert(CheckedMember { pool, member, target: None })
                });
                self.aim(id, Check::of(live.compiled.pool(), member), now);
                here.insert(member.at, id);
            }
            self.pools.insert(name.clone(), here);
        }
        before.into_values().for_each(|id| self.remove_checks(id));
        let rests = pool.suspend_if_idle(now);
        // Whoever is down would be so for ever if nobody looked.
        self.rouse(&name, |target| !rests || !target.sequence.is_settled())
    }

    /// More than one namespace has members that are checked.
    pub(super) fn has_several_namespaces(&self) -> bool {
        self.namespaces.len() > 1
    }

    /// A pool is used again. Returns targets that have to be checked from now on.
    pub(super) fn wake(&mut self, name: &(LbKey, PoolId)) -> Vec<usize> {
        self.rouse(name, |_| true)
    }

    fn rouse(&mut self, name: &(LbKey, PoolId), which: impl Fn(&CheckTarget) -> bool) -> Vec<usize> {
        let checked_members = self.pools.get(name).into_iter().flat_map(HashMap::values);
        let slots = checked_members.filter_map(|id| self.checked_members.get(*id)?.target);
        let mut awake = Vec::new();
        for slot in slots {
            if let Some(target) = self.targets.get_mut(slot).filter(|it| it.rests && which(it)) {
                target.rests = false;
                awake.push(slot);
            }
        }
        awake
    }

    /// It is due: whether nobody needs to know, which is then so until somebody wakes it.
    pub(super) fn suspend_if_idle(&mut self, slot: usize, generation: u32, now: u64) -> bool {
        let Some(target) = self.targets.get_mut(slot).filter(|it| it.generation == generation) else {
            return false;
        };
        // Each of its pools has to learn that it rests, even if another does not.
        let pools = target
            .checked_members
            .iter()
            .filter_map(|id| self.checked_members.get(*id))
            .map(|it| it.pool.suspend_if_idle(now));
        let unused = pools.fold(true, |all, rests| all & rests);
        target.rests = unused && target.sequence.is_settled();
        target.rests
    }

    pub(super) fn target(&self, slot: usize, generation: u32) -> Option<&CheckTarget> {
        self.targets.get(slot).filter(|target| target.generation == generation)
    }

    pub(super) fn generation_of(&self, slot: usize) -> Option<u32> {
        self.targets.get(slot).map(|target| target.generation)
    }

    /// A check has ended.
    pub(super) fn note(&mut self, slot: usize, check_result: &CheckResult, now: u64) {
        let Some(target) = self.targets.get_mut(slot) else { return };
        let (well, reason) = match check_result {
            CheckResult::Passed => (true, "checks succeeded"),
            CheckResult::Failed(reason) => (false, reason.as_str()),
            CheckResult::NotRun(_) => return,
        };
        if !well {
            for checked_member in target.checked_members.iter().filter_map(|id| self.checked_members.get(*id))
            {
                checked_member.member.check_failures.fetch_add(1, Relaxed);
            }
        }
        let turned = target.sequence.note(well, &target.check);
        let first = well && !target.sequence.down && !target.seen_well;
        target.seen_well |= first;
        if turned || first {
            let health = if target.sequence.down { Health::Down } else { Health::Up };
            for id in target.checked_members.clone() {
                self.judge(id, health, now, reason);
            }
        }
    }

    /// The data path has ejected a member for failing its traffic.
    pub(super) fn ejected(&mut self, key: LbKey, pool: PoolId, member: SocketAddr, reason: String) {
        let name = (key, pool);
        let id = self.pools.get(&name).and_then(|members| members.get(&member));
        if let Some(checked_member) = id.and_then(|id| self.checked_members.get(*id)) {
            checked_member.member.remember(MemberAvailability::Ejected, &reason);
        }
        let (key, pool) = name;
        self.changes.push(HealthChange {
            key,
            pool,
            member,
            from: MemberAvailability::Usable,
            to: MemberAvailability::Ejected,
            reason,
        });
    }

    /// The time of an ejection is over, unless it was made longer or something else is the matter.
    pub(super) fn released(&mut self, key: LbKey, pool: PoolId, member: SocketAddr, now: u64) {
        let name = (key, pool);
        let id = self.pools.get(&name).and_then(|members| members.get(&member));
        let Some(checked_member) = id.and_then(|id| self.checked_members.get(*id)) else { return };
        if checked_member.member.standing(now) == MemberAvailability::Usable {
            checked_member.member.remember(MemberAvailability::Usable, "");
            self.changes.push(HealthChange {
                key: name.0,
                pool: name.1,
                member,
                from: MemberAvailability::Ejected,
                to: MemberAvailability::Usable,
                reason: "the time for which the member was ejected is over".into(),
            });
        }
    }

    fn judge(&mut self, id: usize, health: Health, now: u64, reason: &str) {
        let Some(CheckedMember { pool, member, .. }) = self.checked_members.get(id) else { return };
        let from = member.standing(now);
        pool.set_health(member, health, now);
        let to = member.standing(now);
        if from != to {
            member.remember(to, reason);
            let (key, pool, member) = (pool.key.clone(), pool.id.clone(), member.at);
            self.changes.push(HealthChange { key, pool, member, from, to, reason: reason.into() });
        }
    }

    /// Has this member watched by the target of `check`, which is made if nobody asked for it before.
    fn aim(&mut self, id: usize, check: Option<Check>, now: u64) {
        let Some(checked_member) = self.checked_members.get(id) else { return };
        let was_down = checked_member.member.health() == Health::Down;
        let current = checked_member.target.and_then(|slot| self.targets.get(slot));
        match (current, &check) {
            (Some(target), Some(check)) if *target.check == *check => return,
            (None, None) if !was_down => return,
            _ => {}
        }
        self.leave(id);
        let Some(check) = check else {
            return self.judge(id, Health::Unknown, now, "health checks of the member are off");
        };
        let owner = |it: &CheckedMember| it.pool.live().compiled.pool().owner.object().namespace;
        let namespace = self.checked_members.get(id).map(owner).unwrap_or_default();
        let check = Rc::new(check);
        let slot = match self.by_check.entry(check.clone()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => {
                self.generation = self.generation.wrapping_add(1);
                let targets = self.namespaces.entry(namespace.clone()).or_default();
                *targets = targets.saturating_add(1);
                let slot = self.targets.insert(CheckTarget {
                    check,
                    generation: self.generation,
                    namespace,
                    sequence: RiseFallCounter::with_state(was_down),
                    seen_well: false,
                    rests: true,
                    checked_members: Vec::new(),
                });
                *vacant.insert(slot)
            }
        };
        if let Some(checked_member) = self.checked_members.get_mut(id) {
            checked_member.target = Some(slot);
        }
        let Some(target) = self.targets.get_mut(slot) else { return };
        target.checked_members.push(id);
        let known = match (target.sequence.down, target.seen_well) {
            (true, _) => Health::Down,
            (false, true) => Health::Up,
            (false, false) => Health::Unknown,
        };
        self.judge(id, known, now, "result of the same health check in another pool");
    }

    fn leave(&mut self, id: usize) {
        let Some(slot) =
            self.checked_members.get_mut(id).and_then(|checked_member| checked_member.target.take())
        else {
            return;
        };
        let Some(target) = self.targets.get_mut(slot) else { return };
        target.checked_members.retain(|checked_member| *checked_member != id);
        if target.checked_members.is_empty() {
            self.by_check.remove(&target.check);
            if let Entry::Occupied(mut targets) = self.namespaces.entry(target.namespace.clone()) {
                *targets.get_mut() = targets.get().saturating_sub(1);
                if *targets.get() == 0 {
                    targets.remove();
                }
            }
            self.targets.try_remove(slot);
        }
    }

    fn remove_checks(&mut self, id: usize) {
        self.leave(id);
        self.checked_members.try_remove(id);
    }
}

#[cfg(test)]
mod tests;
