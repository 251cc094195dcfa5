//! One attempt at a Unit: observe, steps, the gate, apply, conclude. Every driver goes this way, for the controller, a dry run,
//! the removal of a cluster's remains and the conformance suite.

use std::{fmt, future::Future, time::Duration};

use seaway_model::{Desired, Owner, Problem, Reason, Unit};
use tokio::{task::yield_now, time::timeout};
use tracing::{debug, error};

use crate::{
    context::Context,
    driver::{Driver, Failure, Report, name},
    effect::Effects,
    gate::{ASK_AGAIN, Gate, Permitted, permit, permitted},
    wanted::Wanted,
};

/// So many steps are taken without a rest: others have a turn then, and the watchdog sees that it goes on.
const STEPS_IN_A_ROW: usize = 16;
/// What did not come back is tried again after this.
const LOST: Duration = Duration::from_secs(2);
/// To be asked whether something may go.
const GATE: Duration = Duration::from_secs(600);

/// No longer than that.
pub(crate) async fn within<D: Driver, T>(
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
            let Some(owner) = owner_of(unit) else { return Err(Failure::retry(why)) };
            let problem = Problem::new(owner.object(), Reason::Failed, why.clone())
                .fix("Seaway stops the attempt and tries again. If this repeats, see the log.");
            let problems = vec![(owner.clone(), problem)];
            Err(Failure::Retry { why, problems, after: Some(LOST) })
        }
    }
}

fn owner_of(unit: &Unit) -> Option<&Owner> {
    match unit {
        Unit::LoadBalancer(_, key) => key.owner(),
        Unit::Status(owner) | Unit::Finalizer(owner) => Some(owner),
        _ => None,
    }
}

/// What one attempt came to.
pub struct Attempt<D: Driver> {
    /// As it is afterwards.
    pub observed: D::Observed,
    /// Those that were taken, in order; in a dry run, those that would be.
    pub steps: Vec<D::Step>,
    pub report: Report,
}

/// What is there, and what would change it into what is desired.
struct Looked<'d, D: Driver> {
    wanted: Wanted<'d>,
    observed: D::Observed,
    steps: Vec<D::Step>,
}

/// Takes the steps that the gate lets pass. `None`: it is left alone.
pub async fn work_once<D: Driver>(
    driver: &D,
    unit: &Unit,
    desired: &Desired,
    gate: &Gate,
) -> Result<Option<Attempt<D>>, Failure> {
    // No driver can be wrong about what is to be left alone, or previewed.
    if *desired == Desired::Released || desired.is_preview() {
        return preview(driver, unit, desired, &gate.context)
            .await
            .map(|it| it.map(|it| Attempt { steps: Vec::new(), ..it }));
    }
    let Looked { wanted, mut observed, steps } = look(driver, unit, desired, &gate.context).await?;
    let Permitted { steps, problems: kept, waits } = match steps.is_empty() {
        true => Permitted { steps, problems: Vec::new(), waits: false },
        false => asked(driver, unit, (desired, &wanted), gate, &mut observed, steps).await?,
    };
    for (at, step) in steps.iter().enumerate() {
        if at % STEPS_IN_A_ROW == STEPS_IN_A_ROW - 1 {
            yield_now().await;
        }
        // A step may have taken longer than the lead that it was begun in.
        gate.context.require_lead()?;
        debug!(%unit, %step, effect = ?step.effect(), "step");
        let applied = driver.apply(&gate.context, unit, step, &mut observed);
        within::<D, _>(unit, driver.attempt_timeout(), step, applied).await?;
    }
    let mut report = concluded(driver, unit, wanted, &observed);
    if waits {
        report.again = Some(report.again.map_or(ASK_AGAIN, |it| it.min(ASK_AGAIN)));
    }
    report.problems.extend(kept);
    Ok(Some(Attempt { observed, steps, report }))
}

/// What [`work_once`] would do, without the gate's word; nothing is written. For a process that writes nothing at all: the driver
/// concludes, so that its Problems are shown. `None`: it is left alone.
pub async fn dry_run<D: Driver>(
    driver: &D,
    unit: &Unit,
    desired: &Desired,
) -> Result<Option<Attempt<D>>, Failure> {
    if *desired == Desired::Released {
        return Ok(None);
    }
    let Looked { wanted, observed, steps } = look(driver, unit, desired, &Context::default()).await?;
    let report = concluded(driver, unit, wanted, &observed);
    Ok(Some(Attempt { observed, steps, report }))
}

/// As above, in a process that writes elsewhere: what the driver knows of its Units from what it did stays.
pub(crate) async fn preview<D: Driver>(
    driver: &D,
    unit: &Unit,
    desired: &Desired,
    context: &Context,
) -> Result<Option<Attempt<D>>, Failure> {
    if *desired == Desired::Released {
        return Ok(None);
    }
    let Looked { wanted, observed, steps } = look(driver, unit, desired, context).await?;
    let report = Report { problems: wanted.problems(), ..Report::default() };
    Ok(Some(Attempt { observed, steps, report }))
}

async fn look<'d, D: Driver>(
    driver: &D,
    unit: &Unit,
    desired: &'d Desired,
    context: &Context,
) -> Result<Looked<'d, D>, Failure> {
    let looked = driver.observe(context, unit, desired);
    let observed = within::<D, _>(unit, driver.attempt_timeout(), "look", looked).await?;
    let wanted = Wanted::of(driver, unit, desired, &observed);
    let steps = wanted.steps(driver, &observed);
    Ok(Looked { wanted, observed, steps })
}

fn concluded<D: Driver>(driver: &D, unit: &Unit, wanted: Wanted<'_>, observed: &D::Observed) -> Report {
    let mut report = driver.conclude(unit, wanted.rest(), observed);
    report.problems.extend(wanted.problems());
    report
}

/// What of these steps may be taken now.
async fn asked<D: Driver>(
    driver: &D,
    unit: &Unit,
    (desired, wanted): (&Desired, &Wanted<'_>),
    gate: &Gate,
    observed: &mut D::Observed,
    steps: Vec<D::Step>,
) -> Result<Permitted<D::Step>, Failure> {
    let whole = permit(gate, unit, desired, driver.doubt());
    within::<D, _>(unit, GATE, "check whether it may be deleted", whole).await?;
    let parts = async { Ok(permitted(driver, gate, unit, (desired, wanted), observed, steps).await) };
    within::<D, _>(unit, GATE, "check what may be deleted", parts).await
}
