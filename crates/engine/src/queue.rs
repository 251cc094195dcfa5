//! Which Units wait, which are being worked on, and which look again later. No time of its own: moments are passed in.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use seaway_model::{ObjectRef, PoolId, Unit, WorkItem};
use tokio::time::Instant;

use crate::counts::Counts;

/// What has to be done at a Unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Todo {
    Whole,
    Parts(Parts),
}

/// What alone is another at a Unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) pools: BTreeSet<PoolId>,
    pub(crate) certificates: BTreeSet<ObjectRef>,
}

impl Todo {
    fn add(&mut self, dirt: &WorkItem) {
        match (self, dirt) {
            (Todo::Whole, _) => {}
            (Todo::Parts(parts), WorkItem::Pool(_, id)) => {
                parts.pools.insert(id.clone());
            }
            (Todo::Parts(parts), WorkItem::Certificate(_, object)) => {
                parts.certificates.insert(object.clone());
            }
            (todo, WorkItem::Unit(_)) => *todo = Todo::Whole,
        }
    }

    fn of(dirt: &WorkItem) -> Todo {
        let mut todo = Todo::Parts(Parts::default());
        todo.add(dirt);
        todo
    }
}

#[derive(Debug, Default)]
struct Entry {
    waiting: Option<Todo>,
    working: bool,
    /// When it is to be looked at again.
    alarm: Option<Instant>,
    /// Until when it is not worked on, whatever comes.
    rest: Option<Instant>,
    failures: u32,
}

/// Units wait in lanes, one for each driver: a lane that is busy keeps no other waiting, and nobody searches.
pub(crate) struct Queue {
    entries: HashMap<Unit, Entry>,
    lane_of: Box<dyn Fn(&Unit) -> usize + Send>,
    ready: Vec<VecDeque<Unit>>,
    /// By time, and by a number that keeps equal times apart.
    alarms: BTreeMap<(Instant, u64), Unit>,
    numbered: u64,
    working: usize,
    /// Units that wait until they have rested.
    resting: usize,
    counts: Arc<Counts>,
}

impl Queue {
    /// `lane_of` gives a number below `lanes`.
    pub(crate) fn new(lanes: usize, lane_of: impl Fn(&Unit) -> usize + Send + 'static) -> Queue {
        Queue {
            entries: HashMap::new(),
            lane_of: Box::new(lane_of),
            ready: vec![VecDeque::new(); lanes],
            alarms: BTreeMap::new(),
            numbered: 0,
            working: 0,
            resting: 0,
            counts: Arc::default(),
        }
    }

    /// How many Units wait in each lane is counted there.
    #[must_use]
    pub(crate) fn counting(mut self, counts: Arc<Counts>) -> Queue {
        self.counts = counts;
        self
    }

    fn push(&mut self, unit: Unit) {
        let lane = (self.lane_of)(&unit);
        self.ready[lane].push_back(unit);
        self.counts.waits(lane);
    }

    /// Marks a Unit. While it waits already, nothing is added; while it is worked on, it waits for the end of that.
    pub(crate) fn mark(&mut self, dirt: &WorkItem) {
        let entry = self.entries.entry(dirt.unit().clone()).or_default();
        match &mut entry.waiting {
            Some(todo) => todo.add(dirt),
            None => {
                // What failed or waits must be seen as a whole: its pools may never have been made.
                entry.waiting = Some(if entry.failures > 0 { Todo::Whole } else { Todo::of(dirt) });
                match entry {
                    Entry { working: true, .. } => {}
                    Entry { rest: Some(_), .. } => self.resting += 1,
                    _ => self.push(dirt.unit().clone()),
                }
            }
        }
    }

    /// The next Unit of a lane, to be worked on now.
    pub(crate) fn next(&mut self, lane: usize) -> Option<(Unit, Todo)> {
        let unit = self.ready[lane].pop_front()?;
        self.counts.begins(lane);
        let entry = self.entries.get_mut(&unit)?;
        entry.working = true;
        self.working += 1;
        let todo = entry.waiting.take()?;
        if todo == Todo::Whole {
            entry.alarm = None;
        }
        Some((unit, todo))
    }

    /// A Unit was worked on: `again` in a while, if given; forgotten, if nothing is left to do.
    pub(crate) fn done(&mut self, unit: &Unit, again: Option<Instant>, forget: bool) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        entry.working = false;
        entry.failures = 0;
        self.working -= 1;
        self.settle(unit, again, forget);
    }

    /// Parts of a Unit were renewed: when the whole is to be looked at stays as it was.
    pub(crate) fn renewed(&mut self, unit: &Unit) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        entry.working = false;
        self.working -= 1;
        self.settle(unit, None, false);
    }

    /// A Unit failed: how many times in a row, for the backoff.
    pub(crate) fn failed(&mut self, unit: &Unit, again: impl FnOnce(u32) -> Instant) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        entry.working = false;
        entry.failures = entry.failures.saturating_add(1);
        // As in `mark`: this was not known when they were marked.
        if let Some(todo) = &mut entry.waiting {
            *todo = Todo::Whole;
        }
        self.working -= 1;
        let at = again(entry.failures);
        self.settle(unit, Some(at), false);
    }

    /// A Unit that is worked on is to be left alone for a while after that: what comes meanwhile is done at once then.
    pub(crate) fn rest(&mut self, unit: &Unit, until: Instant) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        entry.rest = Some(until);
        self.set_alarm(unit, until);
    }

    fn set_alarm(&mut self, unit: &Unit, at: Instant) {
        self.numbered += 1;
        self.alarms.insert((at, self.numbered), unit.clone());
    }

    fn settle(&mut self, unit: &Unit, again: Option<Instant>, forget: bool) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        // Parts that wait do not stand for the whole.
        let again = again.filter(|_| !matches!(entry.waiting, Some(Todo::Whole)));
        if let Some(at) = again {
            entry.alarm = Some(at);
        }
        if entry.waiting.is_some() {
            match entry.rest {
                Some(_) => self.resting += 1,
                None => self.push(unit.clone()),
            }
        } else if again.is_none() && forget {
            self.entries.remove(unit);
        }
        if let Some(at) = again {
            self.set_alarm(unit, at);
        }
    }

    /// Marks what is due by now.
    pub(crate) fn ring(&mut self, now: Instant) {
        while let Some(first) = self.alarms.first_entry().filter(|first| first.key().0 <= now) {
            let ((at, _), unit) = first.remove_entry();
            let Some(entry) = self.entries.get_mut(&unit) else { continue };
            if entry.rest == Some(at) {
                entry.rest = None;
                if entry.waiting.is_some() && !entry.working {
                    self.resting -= 1;
                    self.push(unit);
                }
            } else if entry.alarm == Some(at) {
                self.mark(&WorkItem::Unit(unit));
            }
        }
    }

    /// Marks all that it knows.
    pub(crate) fn look_again(&mut self) {
        let all: Vec<Unit> = self.entries.keys().cloned().collect();
        all.into_iter().for_each(|unit| self.mark(&WorkItem::Unit(unit)));
    }

    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.alarms.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.working + self.resting + self.ready.iter().map(VecDeque::len).sum::<usize>()
    }
}

/// Twice as long each time, from `first` to `most`, a quarter more or less by the Unit's own seed, so that many that
/// failed together do not come back together.
pub fn backoff(failures: u32, first: Duration, most: Duration, seed: u64) -> Duration {
    let doubled =
        first.saturating_mul(1u32.checked_shl(failures.saturating_sub(1).min(20)).unwrap_or(u32::MAX));
    let base = doubled.min(most);
    let mut mixed = seed.wrapping_add(u64::from(failures)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 31;
    let per_mille = 750 + (mixed % 500) as u32;
    base * per_mille / 1_000
}

#[cfg(test)]
mod tests {
    use seaway_model::Name;

    use super::*;

    fn unit(name: &str) -> Unit {
        Unit::Name(Name::from(name))
    }

    fn pool(name: &str, id: &str) -> WorkItem {
        WorkItem::Pool(unit(name), PoolId(id.into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_that_waits_is_queued_once_and_what_is_asked_adds_up() {
        let mut queue = Queue::new(1, |_| 0);
        queue.mark(&pool("a", "80"));
        queue.mark(&pool("a", "443"));
        let (_, todo) = queue.next(0).expect("one waits");
        let pools = BTreeSet::from([PoolId("443".into()), PoolId("80".into())]);
        assert_eq!(todo, Todo::Parts(Parts { pools, ..Parts::default() }));
        assert!(queue.next(0).is_none(), "it is being worked on");
        queue.mark(&pool("a", "80"));
        queue.mark(&WorkItem::Unit(unit("a")));
        assert!(queue.next(0).is_none(), "never two workers at once");
        queue.done(&unit("a"), None, false);
        assert_eq!(queue.next(0).map(|it| it.1), Some(Todo::Whole));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_unit_rings_later_and_is_seen_as_a_whole() {
        let mut queue = Queue::new(1, |_| 0);
        queue.mark(&pool("a", "80"));
        queue.next(0).expect("one waits");
        let now = Instant::now();
        queue.failed(&unit("a"), |times| now + Duration::from_secs(times.into()));
        queue.ring(now);
        assert!(queue.is_idle());
        assert_eq!(queue.next_alarm(), Some(now + Duration::from_secs(1)));
        queue.ring(now + Duration::from_secs(1));
        assert_eq!(queue.next(0).map(|it| it.1), Some(Todo::Whole));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_overtakes_an_alarm() {
        let mut queue = Queue::new(1, |_| 0);
        queue.mark(&WorkItem::Unit(unit("a")));
        queue.next(0).expect("one waits");
        let now = Instant::now();
        queue.done(&unit("a"), Some(now + Duration::from_secs(9)), false);
        queue.mark(&WorkItem::Unit(unit("a")));
        queue.next(0).expect("at once");
        queue.done(&unit("a"), None, false);
        queue.ring(now + Duration::from_secs(10));
        assert!(queue.is_idle(), "the old alarm is void");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_while_a_unit_rests_is_done_once_after_that() {
        let mut queue = Queue::new(1, |_| 0);
        let (now, rest) = (Instant::now(), Duration::from_secs(1));
        queue.mark(&WorkItem::Unit(unit("a")));
        queue.next(0).expect("at once");
        queue.mark(&pool("a", "80"));
        queue.rest(&unit("a"), now + rest);
        queue.done(&unit("a"), Some(now + rest * 9), false);
        queue.mark(&pool("a", "443"));
        assert!(queue.next(0).is_none(), "it rests");
        assert!(!queue.is_idle(), "something is to be done");
        assert_eq!(queue.next_alarm(), Some(now + rest));
        queue.ring(now + rest);
        let pools = BTreeSet::from([PoolId("443".into()), PoolId("80".into())]);
        assert_eq!(queue.next(0).map(|it| it.1), Some(Todo::Parts(Parts { pools, ..Parts::default() })));
        queue.rest(&unit("a"), now + rest * 2);
        queue.done(&unit("a"), Some(now + rest * 9), false);
        queue.ring(now + rest * 2);
        assert!(queue.is_idle(), "nothing came");
        queue.mark(&WorkItem::Unit(unit("a")));
        assert!(queue.next(0).is_some(), "it has rested");
    }

    #[test]
    fn the_backoff_grows_stays_bounded_and_differs_between_units() {
        let most = Duration::from_secs(60);
        let times: Vec<Duration> = (1..40).map(|n| backoff(n, Duration::from_millis(100), most, 7)).collect();
        assert!(times[0] >= Duration::from_millis(75) && times[0] <= Duration::from_millis(125));
        assert!(times.iter().all(|it| *it <= most * 5 / 4));
        assert!(times[20] >= most * 3 / 4);
        assert_ne!(backoff(3, most, most, 1), backoff(3, most, most, 2));
    }
}
