//! What every driver must do, whatever its place is like.

use std::{fmt::Debug, time::Duration};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use seaway_engine::{Driver, Effects, Failure};
use seaway_model::{Desired, Unit};
use tokio::runtime::Builder;

use crate::properties::cases;

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
    for (turn, desired) in wanted.iter().chain([&Desired::Absent]).enumerate() {
        let mut observed =
            driver.observe(unit, desired).await.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
        let steps = driver.steps(desired, &observed);
        assert_eq!(
            printed(&steps),
            printed(&driver.steps(desired, &observed)),
            "turn {turn}: steps are not pure"
        );
        if desired.is_absent() {
            says_that_it_deletes(&steps);
        }
        for step in &steps {
            driver
                .apply(unit, step, &mut observed)
                .await
                .unwrap_or_else(|error| panic!("turn {turn}: {step}: {error}"));
        }
        assert_eq!(
            printed(&driver.steps(desired, &observed)),
            Vec::<String>::new(),
            "turn {turn}: applied, and more to do"
        );
        let fresh =
            driver.observe(unit, desired).await.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
        assert_eq!(
            printed(&driver.steps(desired, &fresh)),
            Vec::<String>::new(),
            "turn {turn}: looked again, and more to do"
        );
        let told = driver.conclude(unit, desired, &fresh);
        assert!(told.problems.is_empty(), "turn {turn}: {:?}", told.problems);
    }
}

/// The engine asks its gate before what deletes, and takes no step that exposes something where nothing is wanted.
fn says_that_it_deletes<S: Effects + ToString>(steps: &[S]) {
    let all = printed(steps);
    let deletes = steps.is_empty() || steps.iter().any(|it| it.effect().deletes);
    assert!(deletes, "none of {all:?} says that it deletes, and nothing is left after them");
    exposes_nothing(steps);
}

fn exposes_nothing<S: Effects + ToString>(steps: &[S]) {
    let exposes = steps.iter().any(|it| it.effect().exposes);
    assert!(!exposes, "one of {:?} says that it exposes something, though nothing is wanted", printed(steps));
}

/// Each step twice in a row is as good as once: a crash between a write and its note costs nothing.
///
/// # Panics
/// When a step is not idempotent.
pub async fn repeats<D: Driver>(driver: &D, unit: &Unit, wanted: &[Desired]) {
    for desired in wanted.iter().chain([&Desired::Absent]) {
        let mut observed = driver.observe(unit, desired).await.unwrap_or_else(|error| panic!("{error}"));
        for step in driver.steps(desired, &observed) {
            for _ in 0..2 {
                driver
                    .apply(unit, &step, &mut observed)
                    .await
                    .unwrap_or_else(|error| panic!("{step}: {error}"));
            }
        }
        let fresh = driver.observe(unit, desired).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(printed(&driver.steps(desired, &fresh)), Vec::<String>::new());
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
    let mut done = Vec::new();
    'looks: for _ in 0..LOOKS {
        let mut observed =
            driver.observe(unit, desired).await.unwrap_or_else(|error| panic!("after {done:?}: {error}"));
        let steps = driver.steps(desired, &observed);
        assert_eq!(printed(&steps), printed(&driver.steps(desired, &observed)), "steps are not pure");
        if desired.is_absent() {
            exposes_nothing(&steps);
        }
        for step in &steps {
            match driver.apply(unit, step, &mut observed).await {
                Ok(()) => done.push(step.to_string()),
                Err(Failure::Wait { after, .. }) => {
                    pass(after);
                    continue 'looks;
                }
                Err(error) => panic!("{step}: {error}"),
            }
        }
        assert_eq!(
            printed(&driver.steps(desired, &observed)),
            Vec::<String>::new(),
            "applied {done:?}, and more to do"
        );
        let told = driver.conclude(unit, desired, &observed);
        assert!(told.problems.is_empty(), "{:?}", told.problems);
        match told.again {
            Some(after) if after < SOON => pass(after),
            _ => return done,
        }
    }
    panic!("it never comes to rest: {done:?}");
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
    let looked = driver.observe(unit, desired).await;
    let mut observed = looked.unwrap_or_else(|error| panic!("turn {number}: {error}"));
    for (at, step) in driver.steps(desired, &observed).iter().enumerate() {
        if turn.cut == Some((at, false)) {
            return false;
        }
        let done = driver.apply(unit, step, &mut observed).await;
        done.unwrap_or_else(|error| panic!("turn {number}: {step}: {error}"));
        if turn.cut == Some((at, true)) {
            return false;
        }
    }
    let told = driver.conclude(unit, desired, &observed);
    assert!(told.problems.is_empty(), "turn {number}: {:?}", told.problems);
    let fresh = driver.observe(unit, desired).await;
    let fresh = fresh.unwrap_or_else(|error| panic!("turn {number}: {error}"));
    let left = printed(&driver.steps(desired, &fresh));
    assert_eq!(left, Vec::<String>::new(), "turn {number}: looked again, and more to do");
    true
}
