//! Load balancers of Octavia, with the floating IPs that lead to them.
//!
//! ```text
//!     observe ─► what we made ourselves is known; what is not is read: found by its tag, then its tree
//!                what is pending is asked for by one list for all, every two seconds at most   (poll.rs)
//!     steps   ─► pure (steps.rs), from what should be there (wanted.rs)
//!     apply   ─► one call; a load balancer that is being changed takes no other: the Unit is parked meanwhile
//! ```
//! Octavia tells of an object whose it is by tags alone; names are another controller's too (names.rs). What has not our
//! tag is never touched.

pub mod conf;
pub mod names;
mod poll;
mod read;
pub mod steps;
pub mod subnets;
pub mod wanted;
mod write;

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seaway_engine::{Conclusion, Driver, Failure};
use seaway_model::{Desired, LbKey, Name, Owner, Problem, Reason, Unit, outcome::Serving, unit::Place};
use seaway_openstack::{
    Cloud, Error, Retry, Service,
    octavia::{LoadBalancer, Provisioning},
    resource::Query,
    survey::Abilities,
};
use seaway_plan::{Demand, Placement};
use tokio::sync::OnceCell;

pub use self::{
    names::Cluster,
    steps::{Observed, Step},
};
use self::{
    poll::{Found, Poll},
    steps::steps,
    wanted::{Wanted, refused, wanted},
};

/// How its places say that they are ours: `Place::Cloud { driver, .. }`.
pub const OCTAVIA: &str = "octavia";
/// What is pending is looked at this often.
const LOOK: Duration = Duration::from_secs(2);
/// What is done is looked at this often, though nothing changes.
const AUDIT: Duration = Duration::from_secs(300);

pub struct Octavia {
    join: Join,
    joined: OnceCell<Joined>,
    /// Whether this process may change anything: of several, one.
    may: Box<dyn Fn() -> bool + Send + Sync>,
    /// Makes load balancers that nobody chose another for.
    provider: Name,
    known: Mutex<HashMap<Unit, Known>>,
}

/// Signs in and learns whose load balancers these are; tried again until it succeeds.
pub type Join = Box<dyn Fn() -> Joining + Send + Sync>;
pub type Joining = Pin<Box<dyn Future<Output = Result<(Cloud, Cluster), Error>> + Send>>;

struct Joined {
    cloud: Cloud,
    cluster: Cluster,
    abilities: Abilities,
    poll: Poll,
}

/// What there was after the last call that was answered.
#[derive(Clone)]
struct Known {
    observed: Observed,
    /// When the last change was asked for, on the cloud's clock.
    since: std::time::Instant,
}

impl Octavia {
    pub fn new(join: Join, provider: Name, may: impl Fn() -> bool + Send + Sync + 'static) -> Octavia {
        Octavia { join, joined: OnceCell::new(), may: Box::new(may), provider, known: Mutex::default() }
    }

    /// Everything is looked at anew: somebody else may have changed it.
    pub fn forget(&self) {
        self.known().clear();
    }

    async fn joined(&self, desired: &Desired) -> Result<&Joined, Failure> {
        let join = || async {
            let (cloud, cluster) = (self.join)().await?;
            let versions = cloud.versions(Service::LoadBalancer).await?;
            let abilities = Abilities::of(&self.provider, Some(&versions));
            let poll = Poll::new(cloud.clone(), cluster.tag());
            Ok(Joined { cloud, cluster, abilities, poll })
        };
        self.joined.get_or_try_init(join).await.map_err(|error| failure(&error, desired))
    }

    /// All load balancers of this cluster, whoever wants them; one list.
    pub async fn survey(&self, cloud: &Name) -> Result<Vec<Unit>, Failure> {
        let joined = self.joined(&Desired::Absent).await?;
        let ours = joined.cluster.tag();
        let query = Query::all().tagged([ours.as_str()]);
        let all = joined.cloud.all::<LoadBalancer>().list::<LoadBalancer>(query).await;
        let all = all.map_err(|error| failure(&error, &Desired::Absent))?;
        let place = || Place::Cloud { name: cloud.clone(), driver: OCTAVIA.into() };
        let keys = all.iter().filter_map(|it| joined.cluster.key_of(&it.tags, &it.description));
        Ok(keys.map(|key| Unit::LoadBalancer(place(), key)).collect())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Unit, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the provider can do; before the cloud was asked, what its name alone tells.
    fn abilities(&self) -> Abilities {
        let joined = self.joined.get().map(|it| it.abilities.clone());
        joined.unwrap_or_else(|| Abilities::of(&self.provider, None))
    }

    fn wanted(&self, unit: &Unit, desired: &Desired) -> Option<Wanted> {
        let (Unit::LoadBalancer(_, key), Desired::LoadBalancer(wish)) = (unit, desired) else { return None };
        let owner = owner_of(key, wish)?;
        let cluster = &self.joined.get()?.cluster;
        let mut wanted = wanted(cluster, key, &owner, wish, &self.abilities());
        if wanted.balancer.provider.is_left() {
            wanted.balancer.provider = Some(self.provider.to_string()).into();
        }
        Some(wanted)
    }

    async fn look(&self, joined: &Joined, unit: &Unit, key: &LbKey) -> Result<Observed, Error> {
        let known = self.known().get(unit).cloned();
        let now = joined.cloud.clock().now();
        let Some(mut known) = known else {
            let observed = read::read(&joined.cloud, &joined.cluster, key).await?;
            self.known().insert(unit.clone(), Known { observed: observed.clone(), since: now });
            return Ok(observed);
        };
        if known.observed.is_pending()
            && let Some(balancer) = &mut known.observed.balancer
        {
            match joined.poll.of(&balancer.it.id, known.since).await? {
                Found::Unknown => {}
                Found::Gone => known.observed = Observed::default(),
                Found::There(status) => {
                    balancer.it.provisioning_status = status.provisioning_status;
                    balancer.it.operating_status = status.operating_status;
                    balancer.it.updated_at = status.updated_at;
                }
            }
            self.known().insert(unit.clone(), known.clone());
        }
        Ok(known.observed)
    }
}

/// Gives each Service of one class a load balancer of its own in one cloud.
pub struct InCloud {
    pub cloud: Name,
    pub class: Name,
}

impl Placement for InCloud {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        let is_ours =
            demand.cloud.as_ref().is_some_and(|(class, usual)| *class == self.class && usual.enabled);
        let place = || Place::Cloud { name: self.cloud.clone(), driver: OCTAVIA.into() };
        is_ours.then(|| Unit::LoadBalancer(place(), LbKey::Of(demand.owner.clone()))).into_iter().collect()
    }
}

impl Driver for Octavia {
    type Observed = Observed;
    type Step = Step;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::LoadBalancer(Place::Cloud { driver, .. }, _) if driver.as_str() == OCTAVIA)
    }

    fn refuse(&self, desired: &Desired) -> Vec<(Owner, Problem)> {
        match desired {
            Desired::LoadBalancer(wish) => refused(wish, &self.abilities()),
            _ => Vec::new(),
        }
    }

    fn steps(&self, desired: &Desired, observed: &Observed) -> Vec<Step> {
        let Some(unit) = &observed.unit else { return Vec::new() };
        let Unit::LoadBalancer(_, key) = unit else { return Vec::new() };
        let Some(joined) = self.joined.get() else { return Vec::new() };
        let wanted = self.wanted(unit, desired);
        steps(wanted.as_ref(), observed, |description| joined.cluster.made(description, key))
    }

    async fn observe(&self, unit: &Unit, desired: &Desired) -> Result<Observed, Failure> {
        let Unit::LoadBalancer(_, key) = unit else {
            return Err(Failure::Retry(format!("{unit} is no load balancer")));
        };
        if !(self.may)() {
            return Err(another_leads());
        }
        let joined = self.joined(desired).await?;
        let mut observed = self.look(joined, unit, key).await.map_err(|error| failure(&error, desired))?;
        observed.unit = Some(unit.clone());
        Ok(observed)
    }

    async fn apply(&self, unit: &Unit, step: &Step, observed: &mut Observed) -> Result<(), Failure> {
        if step.locks() && observed.is_pending() {
            return Err(Failure::Wait { why: format!("{step}: {}", observed.state()), after: LOOK });
        }
        if !(self.may)() {
            return Err(another_leads());
        }
        let joined = self.joined(&Desired::Absent).await?;
        let since = joined.cloud.clock().now();
        let done = write::write(&joined.cloud, step, observed).await;
        let mut known = self.known();
        match done {
            Ok(()) => {
                known.insert(unit.clone(), Known { observed: observed.clone(), since });
                Ok(())
            }
            Err(error) => {
                // Nobody knows any more what is there.
                known.remove(unit);
                Err(failure(&error, &Desired::Absent))
            }
        }
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Conclusion {
        let mut told = Conclusion::default();
        let Desired::LoadBalancer(wish) = desired else {
            let is_gone = observed.balancer.is_none() && observed.floating.is_none();
            told.again = (!is_gone).then_some(LOOK);
            if is_gone {
                self.known().remove(unit);
            }
            return told;
        };
        let Some(balancer) = &observed.balancer else { return told };
        let owners = wish.listeners.values().map(|it| &it.owner);
        match &balancer.it.provisioning_status {
            Provisioning::Active => {
                told.again = Some(AUDIT);
                let ip = match wish.options.outside.as_ref().is_some_and(|it| it.internal) {
                    true => balancer.it.vip_address,
                    false => observed.floating.as_ref().and_then(|it| it.floating_ip_address),
                };
                let served = balancer.branches.keys().filter(|it| wish.listeners.contains_key(it));
                told.serving = served
                    .filter_map(|it| Some(Serving { ip: ip?, protocol: it.l4, port: it.port }))
                    .collect();
            }
            Provisioning::Error => {
                told.again = Some(AUDIT);
                told.problems = owners
                    .map(|owner| {
                        let problem = Problem::new(
                            owner.object(),
                            Reason::Failed,
                            format!("load balancer {} is in ERROR", balancer.it.id),
                        )
                        .fix("Octavia's log says why. It is looked at again every five minutes.");
                        (owner.clone(), problem)
                    })
                    .collect();
            }
            _ => told.again = Some(LOOK),
        }
        told
    }

    fn width(&self) -> usize {
        32
    }
}

fn another_leads() -> Failure {
    Failure::Wait { why: "another leads".to_owned(), after: LOOK }
}

/// Whom a load balancer is called after: its one owner, or the first of those that share it.
fn owner_of(key: &LbKey, wish: &seaway_model::LoadBalancer) -> Option<Owner> {
    match key {
        LbKey::Of(owner) | LbKey::Port(owner, _) => Some(owner.clone()),
        LbKey::Shared(_) | LbKey::Whole => wish.listeners.values().map(|it| it.owner.clone()).min(),
    }
}

/// Who can mend it, and when it is tried again.
fn failure(error: &Error, desired: &Desired) -> Failure {
    match error.retry() {
        Retry::After(after) => Failure::Wait { why: error.to_string(), after },
        Retry::Later | Retry::AfterLooking => Failure::Retry(error.to_string()),
        Retry::WhenChanged => {
            let Desired::LoadBalancer(wish) = desired else { return Failure::Retry(error.to_string()) };
            let owners: std::collections::BTreeSet<&Owner> =
                wish.listeners.values().map(|it| &it.owner).collect();
            let problem = |owner: &&Owner| {
                let problem = Problem::new(owner.object(), Reason::Failed, error.to_string());
                ((*owner).clone(), problem.fix(error.fix().unwrap_or_default()))
            };
            Failure::User(owners.iter().map(problem).collect())
        }
    }
}
