//! How the engine has drivers work, their types forgotten. What one attempt is, `work.rs` says.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use seaway_model::{
    Desired, Name, ObjectRef, Outcome, Pool, Unit,
    load_balancer::Certificate,
    outcome::{Replaced, UnitState},
};

use crate::{
    driver::{Driver, Failure, Report, name},
    gate::{Fence, Gate},
    work::{Attempt, preview, within, work_once},
};

/// What is asked of a driver.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Whole(Desired),
    Renew(Renewed),
}

/// What alone is another: members of pools, certificates under their names.
#[derive(Clone, Debug)]
pub(crate) struct Renewed {
    pub(crate) pools: Vec<Arc<Pool>>,
    pub(crate) certificates: Vec<(ObjectRef, Arc<Certificate>)>,
}

type Working<'a> = Pin<Box<dyn Future<Output = Worked> + Send + 'a>>;

/// An outcome as a driver gives it; the engine turns failures into times.
pub(crate) enum Worked {
    /// What was told before still holds.
    Renewed,
    /// There is no short way to it: the whole has to be looked at.
    NotSo,
    Concluded(Outcome, Option<Name>, Option<Replaced>),
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
    /// The gate is asked before anything is written.
    fn work<'a>(&'a self, unit: &'a Unit, job: Job, gate: &'a Gate) -> Working<'a>;
}

impl<D: Driver> DynDriver for D {
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

    fn work<'a>(&'a self, unit: &'a Unit, job: Job, gate: &'a Gate) -> Working<'a> {
        Box::pin(async move {
            match job {
                Job::Whole(desired) => whole(self, unit, &desired, gate).await,
                Job::Renew(renewed) => match renew(self, unit, renewed, &gate.fence).await {
                    Ok(true) => Ok(Worked::Renewed),
                    Ok(false) => Ok(Worked::NotSo),
                    Err(failure) => Err(failure),
                },
            }
            .unwrap_or_else(Worked::Failed)
        })
    }
}

async fn renew<D: Driver>(driver: &D, unit: &Unit, renewed: Renewed, fence: &Fence) -> Result<bool, Failure> {
    let patience = driver.patience();
    for pool in renewed.pools {
        fence.require()?;
        if !within::<D, _>(unit, patience, "members of a pool", driver.swap(unit, pool)).await? {
            return Ok(false);
        }
    }
    for (object, certificate) in renewed.certificates {
        fence.require()?;
        if !within::<D, _>(unit, patience, "a certificate", driver.renew(unit, &object, certificate)).await? {
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
        let Some(told) = preview(driver, unit, desired).await? else { return Ok(Worked::left_alone(unit)) };
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
