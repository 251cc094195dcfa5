//! What every driver must do, whatever its place is like.

use std::{fmt::Debug, time::Duration};

use seaway_engine::{Driver, Failure};
use seaway_model::{Desired, Unit};

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

/// Many looks at one thing are no progress.
const LOOKS: usize = 200;
/// What is looked at again after this is at rest.
const SOON: Duration = Duration::from_secs(60);

fn printed(steps: &[impl ToString]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}
