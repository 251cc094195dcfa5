//! All load balancers of this host, served by one HAProxy.
//!
//! ```text
//!     Unit ─ observe ─► what HAProxy serves for it
//!          ─ apply ───► Writer ─ one document of all Units ─► seaway-haproxy: commands, or a reload
//! ```
//! A Unit is one owner's part of HAProxy's configuration. Parts are written together; one that HAProxy refuses keeps what it
//! had, and the others go on (`haproxy/writer.rs`).

mod certificates;
mod health;
mod statistics;
mod writer;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Effect, Effects, Failure, Patch, Report, chain};
use seaway_haproxy::{Global, Options};
use seaway_model::{
    Desired, LoadBalancer, Name, Owner, Place, Problem, Reason, Unit, config::ReservedPorts, unit::LbKey,
};
use seaway_proxy::{ListenerStatistics, PoolStatistics};
use tokio::{runtime::Handle, sync::watch};

pub use self::writer::ServedPart;
use self::{
    statistics::CounterReader,
    writer::{WriteError, Writer},
};
use crate::HostPlacement;

pub const DRIVER: &str = "haproxy";

/// What HAProxy refused is offered again after this, though nothing changed: a port may have become free.
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// A start, two gathered reloads, and the search for a part that is refused.
const PATIENCE: Duration = Duration::from_secs(60);

/// The driver, and what starts and stops HAProxy.
pub struct HaproxyHost {
    place: Place,
    writer: Writer,
    counting: CounterReader,
    runtime: Handle,
}

/// One owner's part, as HAProxy has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Serve(Arc<LoadBalancer>),
    Remove,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Serve(wanted) => {
                write!(
                    f,
                    "let HAProxy serve {} ports by {} pools",
                    wanted.listeners.len(),
                    wanted.pools.len()
                )
            }
            Step::Remove => f.write_str("remove it from HAProxy's configuration"),
        }
    }
}

impl Effects for Step {
    fn effect(&self) -> Effect {
        match self {
            // It is the whole part: ports may come, and others go.
            Step::Serve(_) => Effect::REPLACES,
            Step::Remove => Effect::DELETES,
        }
    }
}

impl HaproxyHost {
    /// HAProxy starts with the first load balancer. To be called in the runtime, which must go on until [`HaproxyHost::stop`].
    pub fn new(host: Name, options: Options, global: Global) -> HaproxyHost {
        let socket = global.socket().into();
        let writer = Writer::start(options, global);
        let counting = CounterReader::start(socket, writer.state());
        HaproxyHost {
            place: HostPlacement::new(host, DRIVER).place(),
            writer,
            counting,
            runtime: Handle::current(),
        }
    }

    /// Of a host of a cluster: at addresses of pools, it takes no port that the machine needs.
    #[must_use]
    pub fn reserving(self, ports: ReservedPorts) -> HaproxyHost {
        self.reserve(ports);
        self
    }

    /// As [`HaproxyHost::reserving`], of a configuration that was read again: from the next change on.
    pub fn reserve(&self, ports: ReservedPorts) {
        self.writer.reserve(ports);
    }

    /// Told when HAProxy dies and does not come back in a moment, and when it serves again: [`HaproxyHost::units`] are served otherwise
    /// then than they were said to be.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.writer.changed()
    }

    /// All of which something is, or was, served.
    pub fn units(&self) -> Vec<Unit> {
        let owners = self.writer.owners().into_iter();
        owners.map(|it| Unit::LoadBalancer(self.place.clone(), LbKey::Of(it))).collect()
    }

    /// HAProxy takes no new connections. Waits until those that it has are gone, or for so long; then it is ended.
    pub async fn stop(&self, patience: Duration) {
        self.writer.stop(patience).await;
    }

    /// HAProxy ends at once, with the connections that it has.
    pub async fn kill(&self) {
        self.writer.kill().await;
    }

    /// As [`HaproxyHost::stop`], for a thread that may wait.
    pub fn stop_blocking(&self, patience: Duration) {
        self.runtime.block_on(self.stop(patience));
    }

    /// How often HAProxy had to read its files anew since it started.
    pub fn reloads(&self) -> u32 {
        self.writer.reloads()
    }

    /// Asks HAProxy for its counters, unless that was done a moment ago; if it does not answer, those of before stay.
    pub async fn read_counters(&self) {
        self.counting.refresh().await;
    }

    /// As HAProxy counted until [`HaproxyHost::read_counters`].
    pub fn statistics(&self) -> (Vec<ListenerStatistics>, Vec<PoolStatistics>) {
        self.counting.statistics()
    }

    async fn write(&self, owner: &Owner, part: Option<Arc<LoadBalancer>>) -> Result<(), Failure> {
        let Err(error) = self.writer.put(owner, part).await else { return Ok(()) };
        let why = chain(&*error);
        let fix = match &*error {
            WriteError::Refused(_) => {
                "The previous configuration of HAProxy stays in effect. Correct what the message names; Seaway tries \
                     again every 30 seconds."
            }
            WriteError::Failed(_) => {
                "Correct what the message names; Seaway tries again every 30 seconds. HAProxy continues with its configuration."
            }
            WriteError::Version(_) => {
                "Install HAProxy 2.6 or later, or name its program in dataPlane.haproxy.program."
            }
            WriteError::Stopped => return Err(Failure::retry(why)),
        };
        let problem = Problem::new(owner.object(), Reason::Failed, why.clone()).fix(fix);
        Err(Failure::Retry { why, problems: vec![(owner.clone(), problem)], after: Some(TRY_AGAIN) })
    }

    /// As it is served, with one thing in it replaced; `false` where it is not served.
    async fn replace(
        &self,
        unit: &Unit,
        replace: impl FnOnce(&mut LoadBalancer) -> bool,
    ) -> Result<bool, Failure> {
        let Some(owner) = owner(unit) else { return Ok(false) };
        let Some(served) = self.writer.served(owner).load_balancer else { return Ok(false) };
        let mut wanted = (*served).clone();
        if !replace(&mut wanted) {
            return Ok(false);
        }
        self.write(owner, Some(Arc::new(wanted))).await?;
        Ok(true)
    }
}

impl Driver for HaproxyHost {
    type Observed = ServedPart;
    type Step = Step;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::LoadBalancer(place, _) if *place == self.place)
    }

    fn steps(&self, desired: &Desired, observed: &ServedPart) -> Vec<Step> {
        match (desired, &observed.load_balancer) {
            (Desired::LoadBalancer(wanted), served) if served.as_ref() != Some(wanted) => {
                vec![Step::Serve(wanted.clone())]
            }
            (Desired::LoadBalancer(_), _) | (_, None) => Vec::new(),
            (_, Some(_)) => vec![Step::Remove],
        }
    }

    async fn observe(&self, _: &Context, unit: &Unit, _: &Desired) -> Result<ServedPart, Failure> {
        Ok(owner(unit).map(|it| self.writer.served(it)).unwrap_or_default())
    }

    async fn apply(
        &self,
        _: &Context,
        unit: &Unit,
        step: &Step,
        observed: &mut ServedPart,
    ) -> Result<(), Failure> {
        let Some(owner) = owner(unit) else { return Ok(()) };
        let part = match step {
            Step::Serve(wanted) => Some(wanted.clone()),
            Step::Remove => None,
        };
        self.write(owner, part).await?;
        *observed = self.writer.served(owner);
        Ok(())
    }

    async fn patch(&self, _: &Context, unit: &Unit, patch: &Patch) -> Result<bool, Failure> {
        match patch {
            Patch::Members(pool) => {
                let replace = |it: &mut LoadBalancer| {
                    it.pools.get_mut(&pool.id).map(|place| *place = pool.clone()).is_some()
                };
                self.replace(unit, replace).await
            }
            // One that cannot be used is told of by the long way.
            Patch::Certificate(_, certificate) if seaway_proxy::look_at(certificate).is_err() => Ok(false),
            Patch::Certificate(object, certificate) => {
                let replace = |it: &mut LoadBalancer| {
                    let place = Arc::make_mut(&mut it.certificates).get_mut(object);
                    place.map(|place| *place = certificate.clone()).is_some()
                };
                self.replace(unit, replace).await
            }
        }
    }

    fn conclude(&self, unit: &Unit, _: &Desired, observed: &ServedPart) -> Report {
        let dead = owner(unit).filter(|_| observed.is_down).map(|owner| {
            let what =
                "HAProxy died and does not start again: no port of this load balancer is open on this host";
            let problem = Problem::new(owner.object(), Reason::Failed, what);
            let fix = "The log of Seaway says why. Seaway tries again, with growing pauses.";
            (owner.clone(), problem.fix(fix))
        });
        Report {
            serving: observed.at.clone(),
            problems: observed.problems.iter().cloned().chain(dead).collect(),
            // HAProxy may have died, and started again without this one.
            again: Some(TRY_AGAIN),
            ..Report::default()
        }
    }

    fn attempt_timeout(&self) -> Duration {
        PATIENCE
    }

    fn width(&self) -> usize {
        // They wait for one writer, which writes all of them at once.
        100_000
    }
}

fn owner(unit: &Unit) -> Option<&Owner> {
    match unit {
        Unit::LoadBalancer(_, key) => key.owner(),
        _ => None,
    }
}

/// Parts by their owners, as HAProxy is to have them.
type Parts = BTreeMap<Owner, Arc<LoadBalancer>>;
