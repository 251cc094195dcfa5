//! Works on Units for a while, as the engine would, and counts what that took.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_drivers::octavia::{Octavia, groups::Groups};
use seaway_engine::{Driver, Failure, Gate, Report, Until, work_once};
use seaway_model::{Desired, LoadBalancer, Unit};
use seaway_openstack::Clock as _;

use crate::scene::*;

pub(crate) const TEN_MINUTES: Duration = Duration::from_secs(600);
/// Who was refused something is asked for this often.
const WAKE: Duration = Duration::from_secs(2);
/// What only its user can mend is tried again after this, by itself.
const AUDIT: Duration = Duration::from_secs(300);

/// What came of a while.
pub(crate) struct RunSummary {
    /// Message and what to do about it.
    pub(crate) told: BTreeSet<String>,
    pub(crate) requests: usize,
    pub(crate) sign_ins: usize,
    pub(crate) at_rest: usize,
    /// How long after the begin the last came to rest that did.
    pub(crate) rested: Duration,
}

/// Who works.
pub(crate) struct Drivers<'d> {
    pub(crate) balancers: &'d Octavia,
    pub(crate) groups: Option<&'d Groups>,
}

pub(crate) fn of(number: u16, wish: &LoadBalancer) -> (Unit, Desired) {
    (unit_of(&owner_of(&format!("uid-{number}"))), Desired::LoadBalancer(Arc::new(wish.clone())))
}

/// Message and fix are told apart by this.
const FIX: &str = " => ";

pub(crate) fn has_fix(told: &str) -> bool {
    told.split_once(FIX).is_some_and(|(_, fix)| !fix.is_empty())
}

pub(crate) async fn live(scene: &Scene, wishes: &[(Unit, Desired)], time: Duration) -> RunSummary {
    let hands = Drivers { balancers: &scene.driver, groups: None };
    UnitScheduler::new(scene, hands, wishes).goes_on(time).await
}

/// Units with the times of their next looks.
pub(crate) struct UnitScheduler<'s> {
    scene: &'s Scene,
    hands: Drivers<'s>,
    wishes: &'s [(Unit, Desired)],
    failures: Vec<u32>,
    at_rest: BTreeSet<usize>,
    next: Vec<Option<Instant>>,
    /// Nobody's: a look at those who were refused something.
    due: BinaryHeap<Reverse<(Instant, Option<usize>)>>,
}

impl<'s> UnitScheduler<'s> {
    pub(crate) fn new(
        scene: &'s Scene,
        hands: Drivers<'s>,
        wishes: &'s [(Unit, Desired)],
    ) -> UnitScheduler<'s> {
        let now = scene.clock.now();
        let due = (0..wishes.len()).map(Some).chain([None]).map(|it| Reverse((now, it))).collect();
        let (failures, next) = (vec![0; wishes.len()], vec![Some(now); wishes.len()]);
        UnitScheduler { scene, hands, wishes, failures, at_rest: BTreeSet::new(), next, due }
    }

    pub(crate) async fn goes_on(&mut self, time: Duration) -> RunSummary {
        let scene = self.scene;
        scene.fake.forget_requests();
        let begin = scene.clock.now();
        let end = begin + time;
        let (mut told, mut rested) = (BTreeSet::new(), Duration::ZERO);
        while let Some(Reverse((when, at))) = self.due.pop() {
            if when >= end {
                self.due.push(Reverse((when, at)));
                break;
            }
            scene.pass(when.saturating_duration_since(scene.clock.now()));
            match at {
                None => self.wake(),
                Some(at) if self.next[at].take_if(|it| *it == when).is_some() => {
                    if self.work(at, &mut told).await {
                        rested = scene.clock.now() - begin;
                    }
                }
                Some(_) => {}
            }
        }
        scene.pass(end.saturating_duration_since(scene.clock.now()));
        let requests = scene.fake.requests();
        let sign_ins = requests.iter().filter(|it| it.fits("POST */auth/tokens")).count();
        RunSummary {
            told,
            requests: requests.len() - sign_ins,
            sign_ins,
            at_rest: self.at_rest.len(),
            rested,
        }
    }

    fn wake(&mut self) {
        let now = self.scene.clock.now();
        for unit in self.hands.balancers.due() {
            // What is of another life stays as it is.
            let Some(at) = self.wishes.iter().position(|it| it.0 == unit) else { continue };
            self.next[at] = Some(now);
            self.due.push(Reverse((now, Some(at))));
        }
        self.due.push(Reverse((now + WAKE, None)));
    }

    /// Whether it comes to rest by that.
    async fn work(&mut self, at: usize, told: &mut BTreeSet<String>) -> bool {
        let (unit, desired) = &self.wishes[at];
        let done = match (unit, self.hands.groups) {
            (Unit::SecurityGroup { .. }, Some(groups)) => work(groups, unit, desired).await,
            _ => work(self.hands.balancers, unit, desired).await,
        };
        let mut problems = Vec::new();
        let (was_at_rest, mut rests) = (self.at_rest.remove(&at), false);
        let after = match done {
            Ok(done) => {
                problems = done.problems;
                self.failures[at] = 0;
                rests = done.again.is_none_or(|it| it >= Duration::from_secs(60));
                self.at_rest.extend(rests.then_some(at));
                done.again
            }
            Err(Failure::Wait { until: Until::After(after), .. }) => Some(after),
            Err(Failure::Wait { until: Until::Marked, .. }) => None,
            Err(Failure::Retry { problems: of_it, after: Some(after), .. }) => {
                problems = of_it;
                Some(after)
            }
            Err(Failure::User(of_it)) => {
                problems = of_it;
                Some(AUDIT)
            }
            Err(Failure::Retry { why, .. }) => {
                told.insert(format!("only the log says {why}"));
                self.failures[at] += 1;
                let doubled = Duration::from_millis(200 * 2_u64.pow(self.failures[at].min(9)));
                Some(doubled.min(Duration::from_secs(60)))
            }
        };
        told.extend(problems.into_iter().map(|(_, it)| format!("{}{FIX}{}", it.message, it.fix)));
        self.next[at] = after.map(|after| self.scene.clock.now() + after);
        self.due.extend(self.next[at].map(|when| Reverse((when, Some(at)))));
        rests && !was_at_rest
    }
}

async fn work<D: Driver>(driver: &D, unit: &Unit, desired: &Desired) -> Result<Report, Failure> {
    let done = work_once(driver, unit, desired, &Gate::default()).await?;
    Ok(done.expect("it is not left alone").report)
}
