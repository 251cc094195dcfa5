//! What every driver must do, whatever its place is like. Each attempt is the engine's own ([`work_once`]), and what the driver
//! answers is checked on its way (`probe.rs`).

mod probe;

use std::{fmt::Debug, time::Duration};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use seaway_engine::{Attempt, Driver, Effects, Failure, Gate, Until, dry_run, work_once};
use seaway_model::{Desired, Unit};
use tokio::runtime::Builder;

use self::probe::Probe;
use crate::properties::cases;

/// All that is asked of a driver whose steps need no time to pass.
///
/// # Panics
/// When it breaks a promise.
pub async fn passes<D: Driver>(driver: &D, unit: &Unit, wanted: &[Desired])
where
    D::Step: Debug,
{
    converges(driver, unit, wanted).await;
    repeats(driver, unit, wanted).await;
    outlives_leads(driver, unit, wanted).await;
}

/// Another leads before the first step, and again after each: then nothing is written, and the next attempt goes on from there.
///
/// # Panics
/// When something was written without the lead, or it does not come to its end.
async fn outlives_leads<D: Driver>(driver: &D, unit: &Unit, wanted: &[Desired]) {
    for desired in wanted.iter().chain([&Desired::Absent]) {
        let mut comes_to_its_end = false;
        for turn in 0..LOOKS {
            let (probe, may) = (Probe::new(driver), turn.min(1));
            let before = left(driver, unit, desired).await;
            let gate = Gate::fenced(probe.leads_for(may));
            match work_once(&probe, unit, desired, &gate).await {
                Ok(_) => {
                    comes_to_its_end = true;
                    break;
                }
                Err(Failure::Wait { .. }) => assert_eq!(probe.steps_taken().len(), may, "another leads"),
                Err(error) => panic!("after {:?}: {error}", probe.steps_taken()),
            }
            if may == 0 {
                assert_eq!(left(driver, unit, desired).await, before, "written without the lead");
            }
        }
        assert!(comes_to_its_end, "one step after the other, it never comes to its end");
        nothing_is_left(driver, unit, desired, "one step for each lead").await;
    }
}

/// The steps that fresh eyes would take.
async fn left<D: Driver>(driver: &D, unit: &Unit, desired: &Desired) -> Vec<String> {
    let fresh = dry_run(&Probe::new(driver), unit, desired).await.unwrap_or_else(|error| panic!("{error}"));
    printed(&fresh.unwrap_or_else(|| panic!("it is left alone")).steps)
}

/// Walks a Unit through `wanted`, one after the other, and then to nothing. After each, what was applied is what is
/// observed: asking again yields no step, also after a look with fresh eyes.
///
/// # Panics
/// When the driver breaks the promise; the message says at which of the desires.
pub async fn converges<D: Driver>(driver: &D, unit: &Unit, wanted: &[Desired])
where
    D::Step: Debug,
{
    assert!(driver.serves(unit), "the driver does not serve {unit}");
    let probe = Probe::new(driver);
    for (turn, desired) in wanted.iter().chain([&Desired::Absent]).enumerate() {
        let done = work_once(&probe, unit, desired, &Gate::default()).await;
        let done = done.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
        let done = done.unwrap_or_else(|| panic!("turn {turn}: it is left alone"));
        if desired.is_absent() {
            says_that_it_deletes(&done.steps);
        }
        let left = printed(&driver.steps(desired, &done.observed));
        assert_eq!(left, Vec::<String>::new(), "turn {turn}: applied, and more to do");
        assert!(done.report.problems.is_empty(), "turn {turn}: {:?}", done.report.problems);
        nothing_is_left(driver, unit, desired, &format!("turn {turn}")).await;
    }
}

/// The engine asks its gate before what deletes.
fn says_that_it_deletes(steps: &[impl Effects + ToString]) {
    let all = printed(steps);
    let deletes = steps.is_empty() || steps.iter().any(|it| it.effect().deletes);
    assert!(deletes, "none of {all:?} says that it deletes, and nothing is left after them");
}

/// Fresh eyes find nothing to do, and nothing to complain of.
async fn nothing_is_left<D: Driver>(driver: &D, unit: &Unit, desired: &Desired, turn: &str) {
    let fresh = dry_run(&Probe::new(driver), unit, desired).await;
    let fresh = fresh.unwrap_or_else(|error| panic!("{turn}: {error}"));
    let Attempt { steps, report, .. } = fresh.unwrap_or_else(|| panic!("{turn}: it is left alone"));
    assert_eq!(printed(&steps), Vec::<String>::new(), "{turn}: looked again, and more to do");
    assert!(report.problems.is_empty(), "{turn}: {:?}", report.problems);
}

/// Each step twice in a row is as good as once: a crash between a write and its note costs nothing.
///
/// # Panics
/// When a step is not idempotent.
pub async fn repeats<D: Driver>(driver: &D, unit: &Unit, wanted: &[Desired]) {
    let probe = Probe::new(driver).repeating(2);
    for desired in wanted.iter().chain([&Desired::Absent]) {
        let done = work_once(&probe, unit, desired, &Gate::default()).await;
        done.unwrap_or_else(|error| panic!("{error}"));
        nothing_is_left(driver, unit, desired, "each step twice").await;
    }
}

/// As [`converges`], where a change takes time: what has to wait is looked at again after `pass` let that time pass.
///
/// # Panics
/// As `converges`, or when it never ends.
pub async fn converges_in_time<D: Driver>(
    driver: &D,
    unit: &Unit,
    wanted: &[Desired],
    pass: impl Fn(Duration),
) {
    for desired in wanted.iter().chain([&Desired::Absent]) {
        comes_to_rest(driver, unit, desired, &pass).await;
    }
}

/// Works on a Unit until nothing is left to be done; tells which steps that took.
///
/// # Panics
/// When it never ends, or the driver breaks its promise.
pub async fn comes_to_rest<D: Driver>(
    driver: &D,
    unit: &Unit,
    desired: &Desired,
    pass: impl Fn(Duration),
) -> Vec<String> {
    let probe = Probe::new(driver);
    for _ in 0..LOOKS {
        let done = match work_once(&probe, unit, desired, &Gate::default()).await {
            Ok(Some(done)) => done,
            Ok(None) => return probe.steps_taken(),
            Err(Failure::Wait { until: Until::After(after), .. }) => {
                pass(after);
                continue;
            }
            Err(error) => panic!("after {:?}: {error}", probe.steps_taken()),
        };
        let left = printed(&driver.steps(desired, &done.observed));
        assert_eq!(left, Vec::<String>::new(), "applied {:?}, and more to do", probe.steps_taken());
        assert!(done.report.problems.is_empty(), "{:?}", done.report.problems);
        match done.report.again {
            Some(after) if after < SOON => pass(after),
            _ => return probe.steps_taken(),
        }
    }
    panic!("it never comes to rest: {:?}", probe.steps_taken());
}

const LONGEST_WALK: usize = 12;
/// Many looks at one thing are no progress.
const LOOKS: usize = 200;
/// What is looked at again after this is at rest.
const SOON: Duration = Duration::from_secs(60);

fn printed(steps: &[impl ToString]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}

/// One turn of a walk: which of the desires it works for, and what comes between.
#[derive(Clone, Debug)]
pub struct Turn {
    /// An index into the desires, or past them: nothing is desired.
    pub desired: usize,
    /// The step that ends the turn, and whether it was done by then: an answer that is lost leaves what was done.
    pub cut: Option<(usize, bool)>,
    /// Whether the process ends after it, and another one goes on.
    pub restarts: bool,
}

/// Tries so many walks at random, and tells the shortest that fails. All calls of a walk are made in one runtime.
///
/// # Panics
/// When one of them does.
pub fn each_walk(count: u32, desires: usize, walk: impl AsyncFn(Vec<Turn>)) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let config = Config { cases: cases(count), failure_persistence: None, ..Config::default() };
    let tried = TestRunner::new(config).run(&walks(desires, LONGEST_WALK), |turns| {
        runtime.block_on(walk(turns));
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
}

/// Walks of up to `longest` turns through so many desires, a third of them cut off, a quarter with a restart.
fn walks(desires: usize, longest: usize) -> impl Strategy<Value = Vec<Turn>> {
    let cut = proptest::option::weighted(0.33, (0_usize..4, any::<bool>()));
    let turn = (0..=desires, cut, proptest::bool::weighted(0.25));
    let turn = turn.prop_map(|(desired, cut, restarts)| Turn { desired, cut, restarts });
    proptest::collection::vec(turn, 1..=longest)
}

/// Walks a Unit through `turns`, with drivers that `start` makes; at the end nothing is desired. After each turn that is not cut
/// off, all is as in [`converges`], and `check` looks at the place itself.
///
/// # Panics
/// When the driver breaks the promise; the message says at which turn.
pub async fn wanders<D: Driver>(
    mut start: impl AsyncFnMut() -> D,
    unit: &Unit,
    wanted: &[Desired],
    turns: &[Turn],
    mut check: impl AsyncFnMut(&D, &Desired),
) where
    D::Step: Debug,
{
    let last = Turn { desired: wanted.len(), cut: None, restarts: false };
    let mut driver = start().await;
    for (number, turn) in turns.iter().chain([&last]).enumerate() {
        let desired = wanted.get(turn.desired).unwrap_or(&Desired::Absent);
        if whole(&driver, unit, desired, turn, number).await {
            check(&driver, desired).await;
        }
        if turn.restarts {
            drop(driver);
            driver = start().await;
        }
    }
}

/// Whether the turn came to its end.
async fn whole<D: Driver>(driver: &D, unit: &Unit, desired: &Desired, turn: &Turn, number: usize) -> bool
where
    D::Step: Debug,
{
    let probe = Probe::new(driver).cut(turn.cut);
    let done = match work_once(&probe, unit, desired, &Gate::default()).await {
        Ok(done) => done,
        Err(_) if probe.was_cut() => return false,
        Err(error) => panic!("turn {number}: after {:?}: {error}", probe.steps_taken()),
    };
    let done = done.unwrap_or_else(|| panic!("turn {number}: it is left alone"));
    assert!(done.report.problems.is_empty(), "turn {number}: {:?}", done.report.problems);
    nothing_is_left(driver, unit, desired, &format!("turn {number}")).await;
    true
}
