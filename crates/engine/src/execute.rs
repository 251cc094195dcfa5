//! How the engine has drivers work, their types forgotten. What one attempt is, `work.rs` says.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use seaway_model::{
    Desired, Name, Outcome, Unit,
    outcome::{ReplacedLoadBalancer, UnitState},
};

use crate::{
    background::Background,
    context::{Context, Patch},
    driver::{Driver, Failure, Report, name},
    gate::Gate,
    work::{Attempt, preview, within, work_once},
};

/// What is asked of a driver.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Whole(Desired),
    Patch(Vec<Patch>),
}

type Working<'a> = Pin<Box<dyn Future<Output = Worked> + Send + 'a>>;

/// An outcome as a driver gives it; the engine turns failures into times.
pub(crate) enum Worked {
    /// What was told before still holds.
    Patched,
    /// There is no short way to it: the whole has to be looked at.
    PatchImpossible,
    Concluded(Outcome, Option<Name>, Option<ReplacedLoadBalancer>),
    /// Nothing was written: its Service is not adopted. These are the steps that would be taken.
    Previewed {
        ours: bool,
        steps: Vec<Name>,
    },
    Failed(Failure),
}

impl Worked {
    fn left_alone(unit: &Unit) -> Worked {
        let (facts, problems, serving) = (Vec::new(), Vec::new(), Vec::new());
        let outcome = Outcome { unit: unit.clone(), state: UnitState::Done, facts, problems, serving };
        Worked::Concluded(outcome, None, None)
    }
}

/// Any driver, its types forgotten.
pub(crate) trait DynDriver: Send + Sync {
    fn name(&self) -> &'static str;
    fn serves(&self, unit: &Unit) -> bool;
    fn width(&self) -> usize;
    fn rest(&self, unit: &Unit, took: Duration) -> Duration;
    fn forget(&self);
    /// What it does beside its Units.
    fn run(self: Arc<Self>, background: Background) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// The gate is asked before anything is written.
    fn work<'a>(&'a self, unit: &'a Unit, job: Job, gate: &'a Gate) -> Working<'a>;
}

impl<D: Driver + 'static> DynDriver for D {
    fn name(&self) -> &'static str {
        name::<D>()
    }

    fn serves(&self, unit: &Unit) -> bool {
        Driver::serves(self, unit)
    }

    fn width(&self) -> usize {
        Driver::width(self)
    }

    fn rest(&self, unit: &Unit, took: Duration) -> Duration {
        Driver::rest(self, unit, took)
    }

    fn forget(&self) {
        Driver::forget(self);
    }

    fn run(self: Arc<Self>, background: Background) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Driver::run(self, background))
    }

    fn work<'a>(&'a self, unit: &'a Unit, job: Job, gate: &'a Gate) -> Working<'a> {
        Box::pin(async move {
            match job {
                Job::Whole(desired) => whole(self, unit, &desired, gate).await,
                Job::Patch(patches) => match patch(self, unit, &patches, &gate.context).await {
                    Ok(true) => Ok(Worked::Patched),
                    Ok(false) => Ok(Worked::PatchImpossible),
                    Err(failure) => Err(failure),
                },
            }
            .unwrap_or_else(Worked::Failed)
        })
    }
}

async fn patch<D: Driver>(
    driver: &D,
    unit: &Unit,
    patches: &[Patch],
    context: &Context,
) -> Result<bool, Failure> {
    for patch in patches {
        context.require_lead()?;
        let what = match patch {
            Patch::Members(_) => "members of a pool",
            Patch::Certificate(..) => "a certificate",
        };
        if !within::<D, _>(unit, driver.attempt_timeout(), what, driver.patch(context, unit, patch)).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn whole<D: Driver>(
    driver: &D,
    unit: &Unit,
    desired: &Desired,
    gate: &Gate,
) -> Result<Worked, Failure> {
    if desired.is_preview() {
        let Some(told) = preview(driver, unit, desired, &gate.context).await? else {
            return Ok(Worked::left_alone(unit));
        };
        let steps = told.steps.iter().map(|it| it.to_string().into()).collect();
        return Ok(Worked::Previewed { ours: driver.is_ours(unit, &told.observed), steps });
    }
    let Some(Attempt { report, .. }) = work_once(driver, unit, desired, gate).await? else {
        return Ok(Worked::left_alone(unit));
    };
    let Report { facts, serving, problems, again, pending, replaced } = report;
    let state = match (desired, again) {
        (desired, None) if desired.is_absent() => UnitState::Absent,
        (_, Some(after)) => UnitState::Pending(after),
        (_, None) => UnitState::Done,
    };
    let outcome = Outcome { unit: unit.clone(), state, facts, problems, serving };
    Ok(Worked::Concluded(outcome, pending, replaced))
}

/// The drivers of a process; the first that serves a Unit has it.
#[derive(Default)]
pub struct Drivers(pub(crate) Vec<Arc<dyn DynDriver>>);

impl Drivers {
    #[must_use]
    pub fn with(mut self, driver: impl Driver + 'static) -> Drivers {
        self.0.push(Arc::new(driver));
        self
    }

    #[must_use]
    pub fn with_shared<D: Driver + 'static>(mut self, driver: Arc<D>) -> Drivers {
        self.0.push(driver);
        self
    }
}
