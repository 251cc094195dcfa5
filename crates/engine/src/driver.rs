//! What a driver is. How one Unit is worked on with it is `work.rs`.

use std::{fmt::Display, future::Future, sync::Arc, time::Duration};

use seaway_model::{
    Desired, Fact, Name, Owner, Problem, Unit,
    outcome::{ReplacedLoadBalancer, ServingSocket},
};

use crate::{
    background::Background,
    context::{Context, Patch},
    effect::Effects,
    removal::{Doubt, Removal},
};

/// Turns Units into reality in one kind of place.
///
/// `steps` and `refuse` are pure: applying the steps yields what is desired, and asking again yields none. Each driver
/// proves it with the conformance suite in `testkit`.
pub trait Driver: Send + Sync {
    type Observed: Send + Sync;
    /// Each kind of step says whether it deletes or exposes something: the engine asks its gate before those.
    type Step: Effects + Display + Send + Sync;

    /// Whether a Unit is this driver's.
    fn serves(&self, unit: &Unit) -> bool;

    /// What of this the place cannot do: it is left out, its owners are told, and the rest goes on. Nothing: it can do all of it.
    /// What is there already of a part that is refused stays as it is: of steps that delete, only those are taken that print themselves
    /// the same as one for all that is desired (`wanted.rs`). So what a step prints has to name what it deletes.
    fn refuse(&self, _unit: &Unit, _desired: &Desired, _observed: &Self::Observed) -> Option<Refused> {
        None
    }

    /// What must change, in order.
    fn steps(&self, desired: &Desired, observed: &Self::Observed) -> Vec<Self::Step>;

    /// What these steps delete. Each step that deletes is in one of them, or is not taken. By default each of them
    /// is counted. Asked for where the gate asks more than the fence.
    fn removals(&self, _observed: &Self::Observed, steps: &[Self::Step]) -> Vec<Removal> {
        Removal::each(steps)
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
        context: &Context,
        unit: &Unit,
        desired: &Desired,
    ) -> impl Future<Output = Result<Self::Observed, Failure>> + Send;

    /// Performs one step, and notes in `observed` what it made.
    fn apply(
        &self,
        context: &Context,
        unit: &Unit,
        step: &Self::Step,
        observed: &mut Self::Observed,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Takes over the members of one pool, or one certificate, and nothing else. `false`: it cannot be used, or this driver knows
    /// no such short way.
    fn patch(
        &self,
        _context: &Context,
        _unit: &Unit,
        _patch: &Patch,
    ) -> impl Future<Output = Result<bool, Failure>> + Send {
        async { Ok(false) }
    }

    /// What is there was marked as ours: then its Service was adopted before. Asked where nothing is applied.
    fn is_ours(&self, _unit: &Unit, _observed: &Self::Observed) -> bool {
        false
    }

    /// What is known from before is not relied on any more: another process may have changed the place since. Called whenever the
    /// lead changes, before anything is worked on in the new one.
    fn forget(&self) {}

    /// What is to be done beside Units, as long as the engine runs: audits, sessions, processes. The engine starts it with itself
    /// and ends it with itself. If it ends by itself, the watchdog ends the process.
    fn run(self: Arc<Self>, _background: Background) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        std::future::pending()
    }

    /// What is to be told after all steps were applied. Not asked of a preview.
    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &Self::Observed) -> Report;

    /// The longest that one look or one step may take. What takes longer has lost its way: it is given up, and the Unit is
    /// tried again.
    fn attempt_timeout(&self) -> Duration {
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

/// What a driver tells about a Unit that it has worked on. It is valid until the next: an attempt that fails takes nothing of it
/// back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub facts: Vec<Fact>,
    pub serving: Vec<ServingSocket>,
    pub problems: Vec<(Owner, Problem)>,
    /// Look again after this time, though nothing changes.
    pub again: Option<Duration>,
    /// What it waits for over there, for those who ask why it takes so long.
    pub pending: Option<Name>,
    /// The load balancer that its owner names and that is gone, and the one that serves it.
    pub replaced: Option<ReplacedLoadBalancer>,
}

/// A part of what is desired, which its place cannot do.
#[derive(Clone, Debug)]
pub struct Refused {
    /// What is left to do.
    pub rest: Desired,
    /// Why not all of it, for each owner.
    pub problems: Vec<(Owner, Problem)>,
}

/// Why a Unit is not as desired, and who can mend it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The other side, for now: tried again, with backoff or after this time. Those who wait for it are told these problems;
    /// without any, what they were told before stays.
    #[error("{why}")]
    Retry { why: String, problems: Vec<(Owner, Problem)>, after: Option<Duration> },
    /// No one's fault: something is under way, or not known yet.
    #[error("{why}")]
    Wait { why: String, until: Until },
    /// The user: tried again when something changes, and now and then.
    #[error("{} problems for the user", .0.len())]
    User(Vec<(Owner, Problem)>),
}

/// When something that waits is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this time, or when something changes.
    After(Duration),
    /// When something changes, such as a fact that another Unit brings: no time helps. The resync looks at it all the same.
    Marked,
}

impl Failure {
    /// Tried again with backoff; what was told before stays.
    pub fn retry(why: String) -> Failure {
        Failure::Retry { why, problems: Vec::new(), after: None }
    }

    pub fn wait(why: String, after: Duration) -> Failure {
        Failure::Wait { why, until: Until::After(after) }
    }
}

/// `Native` of `seaway_drivers::native::Native`.
pub(crate) fn name<D>() -> &'static str {
    let whole = std::any::type_name::<D>();
    whole.rsplit_once("::").map_or(whole, |(_, name)| name)
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
