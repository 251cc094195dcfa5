//! A driver under examination: it is another's, and each call of the engine is checked on its way.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use seaway_engine::{Context, Doubt, Driver, Effects as _, Failure, Fence, Refused, Removal, Report};
use seaway_model::{Desired, Unit};

use super::printed;

/// Where an attempt ends: before the step of that number, or after it, when its answer is lost.
pub(super) type CutPoint = (usize, bool);

pub(super) struct Probe<'d, D> {
    driver: &'d D,
    cut: Option<CutPoint>,
    /// Each step is taken so often.
    times: usize,
    taken: Mutex<Vec<String>>,
    was_cut: AtomicBool,
    done: Arc<AtomicUsize>,
}

impl<'d, D: Driver> Probe<'d, D> {
    pub(super) fn new(driver: &'d D) -> Probe<'d, D> {
        Probe {
            driver,
            cut: None,
            times: 1,
            taken: Mutex::default(),
            was_cut: AtomicBool::new(false),
            done: Arc::default(),
        }
    }

    pub(super) fn cut(self, cut: Option<CutPoint>) -> Probe<'d, D> {
        Probe { cut, ..self }
    }

    pub(super) fn repeating(self, times: usize) -> Probe<'d, D> {
        Probe { times, ..self }
    }

    /// All steps so far, over all attempts.
    pub(super) fn steps_taken(&self) -> Vec<String> {
        self.noted().clone()
    }

    fn noted(&self) -> MutexGuard<'_, Vec<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another leads after so many steps.
    pub(super) fn leads_for(&self, steps: usize) -> Fence {
        let done = self.done.clone();
        Fence::new(move || done.load(Ordering::Relaxed) < steps)
    }

    /// Whether the attempt came to its cut.
    pub(super) fn was_cut(&self) -> bool {
        self.was_cut.load(Ordering::Relaxed)
    }

    fn cut_at(&self, here: CutPoint) -> Result<(), Failure> {
        if self.cut != Some(here) {
            return Ok(());
        }
        self.was_cut.store(true, Ordering::Relaxed);
        Err(Failure::retry("cut off".to_owned()))
    }
}

impl<D: Driver> Driver for Probe<'_, D> {
    type Observed = D::Observed;
    type Step = D::Step;

    fn serves(&self, unit: &Unit) -> bool {
        self.driver.serves(unit)
    }

    fn refuse(&self, unit: &Unit, desired: &Desired, observed: &D::Observed) -> Option<Refused> {
        self.driver.refuse(unit, desired, observed)
    }

    fn steps(&self, desired: &Desired, observed: &D::Observed) -> Vec<D::Step> {
        let steps = self.driver.steps(desired, observed);
        let again = self.driver.steps(desired, observed);
        assert_eq!(printed(&steps), printed(&again), "steps are not pure");
        if desired.is_absent() {
            // The engine would leave it out; no driver may come to that.
            let exposes = steps.iter().any(|it| it.effect().exposes);
            assert!(
                !exposes,
                "one of {:?} says that it exposes something, though nothing is wanted",
                printed(&steps)
            );
        }
        steps
    }

    fn removals(&self, observed: &D::Observed, steps: &[D::Step]) -> Vec<Removal> {
        self.driver.removals(observed, steps)
    }

    fn doubt(&self) -> Option<Doubt> {
        self.driver.doubt()
    }

    fn keep(&self, observed: &mut D::Observed, removals: &[Removal]) {
        self.driver.keep(observed, removals);
    }

    async fn observe(
        &self,
        context: &Context,
        unit: &Unit,
        desired: &Desired,
    ) -> Result<D::Observed, Failure> {
        self.driver.observe(context, unit, desired).await
    }

    async fn apply(
        &self,
        context: &Context,
        unit: &Unit,
        step: &D::Step,
        observed: &mut D::Observed,
    ) -> Result<(), Failure> {
        let at = self.noted().len();
        self.cut_at((at, false))?;
        for _ in 0..self.times {
            self.driver.apply(context, unit, step, observed).await?;
        }
        self.noted().push(step.to_string());
        self.done.fetch_add(1, Ordering::Relaxed);
        self.cut_at((at, true))
    }

    fn is_ours(&self, unit: &Unit, observed: &D::Observed) -> bool {
        self.driver.is_ours(unit, observed)
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &D::Observed) -> Report {
        self.driver.conclude(unit, desired, observed)
    }

    fn attempt_timeout(&self) -> Duration {
        self.driver.attempt_timeout()
    }
}
