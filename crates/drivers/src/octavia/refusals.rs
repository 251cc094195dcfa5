//! Those whom a cloud refused what somebody has to mend: a role, a quota, a password.
//!
//! ```text
//!     refused ─► in one line with all who were refused for the same ─► one of them tries, now and then
//!                                                                          └─► it did it: all others at once
//! ```
//! So what is mended is noticed within a minute, and a thousand who wait for one role ask no more than one would.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use seaway_model::Unit;
use seaway_openstack::{Class, Error, Retry, Service};

use super::moment::later;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(60);

/// What many may be refused for together: by whom, and in which way.
type Cause = (Option<Service>, Class);

#[derive(Default)]
pub(super) struct Refusals(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    lines: HashMap<Cause, Line>,
    /// In which line a Unit stands, and where.
    places: HashMap<Unit, (Cause, u64)>,
    numbered: u64,
    /// What they waited for is mended.
    free: Vec<Unit>,
}

struct Line {
    waiting: BTreeMap<u64, Unit>,
    next: Instant,
    tries: u32,
}

impl Refusals {
    pub(super) fn note(&self, error: &Error, unit: &Unit, now: Instant) {
        if error.retry() == Retry::WhenChanged {
            self.put((error.service(), error.class().clone()), unit, now);
        }
    }

    /// A quota that was read tells it before anybody is asked.
    pub(super) fn note_quota_shortage(&self, what: &str, unit: &Unit, now: Instant) {
        self.put((Some(Service::LoadBalancer), Class::Quota { what: what.to_owned() }), unit, now);
    }

    fn put(&self, cause: Cause, unit: &Unit, now: Instant) {
        let mut all = self.all();
        if all.places.get(unit).is_some_and(|(its, _)| *its == cause) {
            return;
        }
        all.leave(unit);
        all.numbered = all.numbered.saturating_add(1);
        let number = all.numbered;
        let new = || Line { waiting: BTreeMap::new(), next: later(now, FIRST), tries: 0 };
        all.lines.entry(cause.clone()).or_insert_with(new).waiting.insert(number, unit.clone());
        all.places.insert(unit.clone(), (cause, number));
    }

    /// Something that it asked for was done: whoever waits for the same may try.
    pub(super) fn passed(&self, unit: &Unit) {
        let mut all = self.all();
        let Some((cause, _)) = all.leave(unit) else { return };
        let line = all.lines.remove(&cause);
        for unit in line.into_iter().flat_map(|it| it.waiting.into_values()) {
            all.places.remove(&unit);
            all.free.push(unit);
        }
    }

    /// What it alone waited for is so.
    pub(super) fn free(&self, unit: Unit) {
        self.all().free.push(unit);
    }

    /// Nobody wants it any more.
    pub(super) fn gone(&self, unit: &Unit) {
        self.all().leave(unit);
    }

    /// Who is to try now: one of each line, now and then, and all who were freed.
    pub(super) fn due(&self, now: Instant) -> Vec<Unit> {
        let mut all = self.all();
        let mut due = std::mem::take(&mut all.free);
        let Waiting { lines, places, numbered, .. } = &mut *all;
        for line in lines.values_mut().filter(|it| it.next <= now) {
            let Some((_, unit)) = line.waiting.pop_first() else { continue };
            // What it waits for may be its own; the next time it is another's turn.
            *numbered = numbered.saturating_add(1);
            line.waiting.insert(*numbered, unit.clone());
            if let Some((_, place)) = places.get_mut(&unit) {
                *place = *numbered;
            }
            line.tries = line.tries.saturating_add(1);
            let pause = FIRST.saturating_mul(2_u32.saturating_pow(line.tries)).min(LONGEST);
            line.next = later(now, pause);
            due.push(unit);
        }
        due
    }

    /// Somebody has just mended something: one of each line tries at once.
    pub(super) fn hurry(&self, now: Instant) {
        self.all().lines.values_mut().for_each(|it| (it.next, it.tries) = (now, 0));
    }

    fn all(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn leave(&mut self, unit: &Unit) -> Option<(Cause, u64)> {
        let (cause, number) = self.places.remove(unit)?;
        if let Some(line) = self.lines.get_mut(&cause) {
            line.waiting.remove(&number);
            if line.waiting.is_empty() {
                self.lines.remove(&cause);
            }
        }
        Some((cause, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(number: u16) -> Unit {
        Unit::Name(format!("{number}").into())
    }

    fn forbidden() -> Error {
        Error::new(Class::Forbidden, "policy says no")
    }

    #[test]
    fn one_tries_for_all_by_turns_and_all_others_follow_once_it_did_it() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        (0..100).for_each(|it| refusals.note(&forbidden(), &unit(it), start));
        assert_eq!(refusals.due(start), []);
        let mut now = start;
        for (turn, wait) in [10, 20, 40, 60, 60].into_iter().enumerate() {
            now += Duration::from_secs(wait);
            assert_eq!(refusals.due(now - Duration::from_millis(1)), [], "{turn}");
            assert_eq!(refusals.due(now), [unit(turn as u16)]);
            refusals.note(&forbidden(), &unit(turn as u16), now);
        }
        refusals.passed(&unit(99));
        assert_eq!(refusals.due(now).len(), 99);
        assert_eq!(refusals.due(now + LONGEST * 9), [], "nobody waits any more");
    }

    #[test]
    fn who_waits_for_something_else_stays_where_it_is() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        refusals.note(&forbidden(), &unit(1), now);
        refusals.note_quota_shortage("load balancers", &unit(2), now);
        refusals.note(&Error::new(Class::Broken, "500"), &unit(3), now);
        refusals.passed(&unit(1));
        assert_eq!(refusals.due(now), []);
        refusals.hurry(now);
        assert_eq!(refusals.due(now), [unit(2)]);
        refusals.gone(&unit(2));
        refusals.hurry(now);
        assert_eq!(refusals.due(now), []);
    }

    #[test]
    fn who_is_refused_for_another_reason_changes_lines() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        refusals.note(&forbidden(), &unit(1), now);
        refusals.note_quota_shortage("ports", &unit(1), now);
        refusals.hurry(now);
        assert_eq!(refusals.due(now), [unit(1)]);
    }
}
