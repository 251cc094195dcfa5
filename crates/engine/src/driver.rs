//! What a driver is, and how one Unit is worked on with it.

use std::{
    fmt::{self, Display},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use seaway_model::{
    Desired, Fact, Name, ObjectRef, Outcome, Owner, Pool, Problem, Reason, Unit,
    load_balancer::Certificate,
    outcome::{Replaced, Serving, UnitState},
};
use tokio::{task::yield_now, time::timeout};
use tracing::{debug, error};

use crate::removal::{ASK_AGAIN, Doubt, Gate, Permitted, Removal, permit, permitted};

/// Turns Units into reality in one kind of place.
///
/// `steps` and `refuse` are pure: applying the steps yields what is desired, and asking again yields none. Each driver
/// proves it with the conformance suite in `testkit`.
pub trait Driver: Send + Sync + 'static {
    type Observed: Send + Sync;
    type Step: Display + Send + Sync;

    /// Whether a Unit is this driver's.
    fn serves(&self, unit: &Unit) -> bool;

    /// What this place cannot do, before anything is touched.
    fn refuse(&self, _desired: &Desired) -> Vec<(Owner, Problem)> {
        Vec::new()
    }

    /// What must change, in order.
    fn steps(&self, desired: &Desired, observed: &Self::Observed) -> Vec<Self::Step>;

    /// What of these steps deletes something that served, and puts nothing in its place.
    fn removals(&self, _observed: &Self::Observed, _steps: &[Self::Step]) -> Vec<Removal> {
        Vec::new()
    }

    /// Why it is not known whether another controller writes in the name of this cluster.
    fn doubt(&self) -> Option<Doubt> {
        None
    }

    /// These stay for now; the steps are asked for again.
    fn keep(&self, _observed: &mut Self::Observed, _removals: &[Removal]) {}

    /// What is there now. `desired` tells what it is looked at for: nobody resolves a name that nobody wants.
    fn observe(
        &self,
        unit: &Unit,
        desired: &Desired,
    ) -> impl Future<Output = Result<Self::Observed, Failure>> + Send;

    /// Performs one step, and notes in `observed` what it made.
    fn apply(
        &self,
        unit: &Unit,
        step: &Self::Step,
        observed: &mut Self::Observed,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Takes over the members of one pool and nothing else. `false`: this driver knows no such short way.
    fn swap(&self, _unit: &Unit, _pool: Arc<Pool>) -> impl Future<Output = Result<bool, Failure>> + Send {
        async { Ok(false) }
    }

    /// Takes over one certificate and nothing else. `false`: it cannot be used, or this driver knows no such short way.
    fn renew(
        &self,
        _unit: &Unit,
        _object: &ObjectRef,
        _certificate: Arc<Certificate>,
    ) -> impl Future<Output = Result<bool, Failure>> + Send {
        async { Ok(false) }
    }

    /// What is to be told after all steps were applied.
    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &Self::Observed) -> Conclusion;

    /// Whether what is there was marked as ours: then its Service was adopted before.
    fn is_ours(&self, _unit: &Unit, _observed: &Self::Observed) -> bool {
        false
    }

    /// What it waits for over there, for whoever asks why it takes so long.
    fn stands(&self, _unit: &Unit, _desired: &Desired, _observed: &Self::Observed) -> Option<Name> {
        None
    }

    /// The load balancer that its owner names and that is gone, and the one that serves it.
    fn replaced(&self, _unit: &Unit, _desired: &Desired, _observed: &Self::Observed) -> Option<Replaced> {
        None
    }

    /// The longest that one look or one step may take. What takes longer has lost its way: it is given up, and the Unit is
    /// tried again.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// How many Units may be worked on at once.
    fn width(&self) -> usize {
        8
    }

    /// How long a Unit is left alone after it was worked on for so long: what comes meanwhile is done together.
    fn rest(&self, _unit: &Unit, _took: Duration) -> Duration {
        Duration::ZERO
    }
}

/// What a driver tells about a Unit that it has worked on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conclusion {
    pub facts: Vec<Fact>,
    pub serving: Vec<Serving>,
    pub problems: Vec<(Owner, Problem)>,
    /// Look again after this time, though nothing changes.
    pub again: Option<Duration>,
}

/// Why a Unit is not as desired, and who can mend it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The other side, for now: tried again with backoff.
    #[error("{0}")]
    Retry(String),
    /// Nobody's: something is under way over there.
    #[error("{why}")]
    Wait { why: String, after: Duration },
    /// The other side, for now, and those who wait for it shall know: tried again then.
    #[error("{why}")]
    Told { why: String, problems: Vec<(Owner, Problem)>, after: Duration },
    /// The user: tried again when something changes, and now and then.
    #[error("{} problems for the user", .0.len())]
    User(Vec<(Owner, Problem)>),
}

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
pub(crate) trait Hand: Send + Sync {
    fn name(&self) -> &'static str;
    fn serves(&self, unit: &Unit) -> bool;
    fn width(&self) -> usize;
    fn rest(&self, unit: &Unit, took: Duration) -> Duration;
    /// The gate is asked before anything is removed.
    fn work<'a>(&'a self, unit: &'a Unit, job: Job, gate: Option<&'a Gate>) -> Working<'a>;
}

impl<D: Driver> Hand for D {
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

    fn work<'a>(&'a self, unit: &'a Unit, job: Job, gate: Option<&'a Gate>) -> Working<'a> {
        Box::pin(async move {
            match job {
                Job::Whole(desired) => whole(self, unit, &desired, gate).await,
                Job::Renew(renewed) => match renew(self, unit, renewed).await {
                    Ok(true) => Ok(Worked::Renewed),
                    Ok(false) => Ok(Worked::NotSo),
                    Err(failure) => Err(failure),
                },
            }
            .unwrap_or_else(Worked::Failed)
        })
    }
}

/// `Native` of `seaway_drivers::native::Native`.
fn name<D>() -> &'static str {
    let whole = std::any::type_name::<D>();
    whole.rsplit_once("::").map_or(whole, |(_, name)| name)
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

async fn renew<D: Driver>(driver: &D, unit: &Unit, renewed: Renewed) -> Result<bool, Failure> {
    let patience = driver.patience();
    for pool in renewed.pools {
        if !within::<D, _>(unit, patience, "members of a pool", driver.swap(unit, pool)).await? {
            return Ok(false);
        }
    }
    for (object, certificate) in renewed.certificates {
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
    gate: Option<&Gate>,
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
    if !steps.is_empty() {
        within::<D, _>(
            unit,
            GATE,
            "check whether it may be deleted",
            permit(gate, unit, desired, driver.doubt()),
        )
        .await?;
    }
    let permitted = async { Ok(permitted(driver, gate, unit, desired, &mut observed, steps).await) };
    let Permitted { steps, problems: kept, waits } =
        within::<D, _>(unit, GATE, "check what may be deleted", permitted).await?;
    for (at, step) in steps.into_iter().enumerate() {
        if at % STEPS_IN_A_ROW == STEPS_IN_A_ROW - 1 {
            yield_now().await;
        }
        debug!(%unit, %step, "step");
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

/// The drivers of a process; the first that serves a Unit has it.
#[derive(Default)]
pub struct Drivers(pub(crate) Vec<Arc<dyn Hand>>);

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

/// An error with its causes, in one line: for a Problem, which is told once. What was said already is not said again.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fmt, io};

    #[derive(Debug)]
    struct Told(&'static str, Option<io::Error>);

    impl fmt::Display for Told {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_ref().map(|it| it as _)
        }
    }

    #[test]
    fn an_error_is_told_with_its_causes_but_none_of_them_twice() {
        let cause = || Some(io::Error::other("no such file"));
        assert_eq!(super::chain(&Told("the kubeconfig", cause())), "the kubeconfig: no such file");
        assert_eq!(super::chain(&Told("x: no such file", cause())), "x: no such file");
    }
}
