//! How one Unit is worked on: observe, steps, the gate, apply, conclude. Every driver goes this way.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use seaway_model::{
    Desired, Name, ObjectRef, Outcome, Owner, Pool, Problem, Reason, Unit,
    load_balancer::Certificate,
    outcome::{Replaced, UnitState},
};
use tokio::{task::yield_now, time::timeout};
use tracing::{debug, error};

use crate::{
    driver::{Driver, Failure, name},
    effect::Effects,
    gate::{ASK_AGAIN, Fence, Gate, Permitted, permit, permitted},
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

/// So many steps are taken without a rest: others have a turn then, and the watchdog sees that it goes on.
const STEPS_IN_A_ROW: usize = 16;
/// What did not come back is tried again after this.
const LOST: Duration = Duration::from_secs(2);
/// To be asked whether something may go.
const GATE: Duration = Duration::from_secs(600);

/// No longer than that.
async fn within<D: Driver, T>(
    unit: &Unit,
    patience: Duration,
    doing: impl fmt::Display,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match timeout(patience, work).await {
        Ok(done) => done,
        Err(_) => {
            let driver = name::<D>();
            let why = format!("{doing}: the driver {driver} did not finish within {patience:?}");
            error!(%unit, "{why}; the attempt is stopped, and tried again");
            let Some(owner) = owner_of(unit) else { return Err(Failure::Retry(why)) };
            let problem = Problem::new(owner.object(), Reason::Failed, why.clone())
                .fix("Seaway stops the attempt and tries again. If this repeats, see the log.");
            let problems = vec![(owner.clone(), problem)];
            Err(Failure::Told { why, problems, after: LOST })
        }
    }
}

fn owner_of(unit: &Unit) -> Option<&Owner> {
    match unit {
        Unit::LoadBalancer(_, key) => key.owner(),
        Unit::Status(owner) | Unit::Hold(owner) => Some(owner),
        _ => None,
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
    // No driver can be wrong about what is to be left alone.
    if *desired == Desired::Released {
        let (facts, problems, serving) = (Vec::new(), Vec::new(), Vec::new());
        let outcome = Outcome { unit: unit.clone(), state: UnitState::Done, facts, problems, serving };
        return Ok(Worked::Concluded(outcome, None, None));
    }
    let refused = driver.refuse(desired);
    if !refused.is_empty() {
        return Err(Failure::User(refused));
    }
    let patience = driver.patience();
    let mut observed = within::<D, _>(unit, patience, "look", driver.observe(unit, desired)).await?;
    let steps = driver.steps(desired, &observed);
    // No driver can be wrong about this either.
    if desired.is_preview() {
        let steps = steps.iter().map(|it| it.to_string().into()).collect();
        return Ok(Worked::Previewed { ours: driver.is_ours(unit, &observed), steps });
    }
    let Permitted { steps, problems: kept, waits } = match steps.is_empty() {
        true => Permitted { steps, problems: Vec::new(), waits: false },
        false => asked(driver, unit, desired, gate, &mut observed, steps).await?,
    };
    for (at, step) in steps.into_iter().enumerate() {
        if at % STEPS_IN_A_ROW == STEPS_IN_A_ROW - 1 {
            yield_now().await;
        }
        // A step may have taken longer than the lead that it was begun in.
        gate.fence.require()?;
        debug!(%unit, %step, effect = ?step.effect(), "step");
        within::<D, _>(unit, patience, &step, driver.apply(unit, &step, &mut observed)).await?;
    }
    let mut told = driver.conclude(unit, desired, &observed);
    if waits {
        told.again = Some(told.again.map_or(ASK_AGAIN, |it| it.min(ASK_AGAIN)));
    }
    told.problems.extend(kept);
    let state = match (desired, told.again) {
        (desired, None) if desired.is_absent() => UnitState::Absent,
        (_, Some(after)) => UnitState::Pending(after),
        (_, None) => UnitState::Done,
    };
    let outcome = Outcome {
        unit: unit.clone(),
        state,
        facts: told.facts,
        problems: told.problems,
        serving: told.serving,
    };
    let (stands, replaced) =
        (driver.stands(unit, desired, &observed), driver.replaced(unit, desired, &observed));
    Ok(Worked::Concluded(outcome, stands, replaced))
}

/// What of these steps may be taken now.
async fn asked<D: Driver>(
    driver: &D,
    unit: &Unit,
    desired: &Desired,
    gate: &Gate,
    observed: &mut D::Observed,
    steps: Vec<D::Step>,
) -> Result<Permitted<D::Step>, Failure> {
    let whole = permit(gate, unit, desired, driver.doubt());
    within::<D, _>(unit, GATE, "check whether it may be deleted", whole).await?;
    let parts = async { Ok(permitted(driver, gate, unit, desired, observed, steps).await) };
    within::<D, _>(unit, GATE, "check what may be deleted", parts).await
}

/// The drivers of a process; the first that serves a Unit has it.
#[derive(Default)]
pub struct Drivers(pub(crate) Vec<Arc<dyn DynDriver>>);

impl Drivers {
    #[must_use]
    pub fn with(mut self, driver: impl Driver) -> Drivers {
        self.0.push(Arc::new(driver));
        self
    }

    #[must_use]
    pub fn with_shared<D: Driver>(mut self, driver: Arc<D>) -> Drivers {
        self.0.push(driver);
        self
    }
}
