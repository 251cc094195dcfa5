//! OVN's driver is not done when it says so.
//!
//! ```text
//!     one call of Octavia     a driver of its own, with a queue of its own: a write that comes runs beside the rest of it
//!     most calls              one request in the queue, and the load balancer is ACTIVE after it
//!     a whole load balancer   one for itself and each listener, pool, monitor and pool's members; it is ACTIVE after the first
//!     a pool's deletion       one for its monitor, its members and itself; likewise
//!     members in bulk         one for those that come, those that stay and those that go; likewise
//! ```
//! A write beside the rest finds nothing yet of what it is for, which then is in ERROR, or loses what that writes. So the next
//! write waits until the status tree has nothing pending, or no such pool any more. That is asked after each write: health
//! monitors tell of their members when they like, and say by the way that the load balancer is ACTIVE, and all that OVN has of
//! it; even if it is being deleted. Of members in bulk a tree tells too much: all are ACTIVE after the first request. There
//! time has to pass.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use seaway_openstack::{
    Cloud, Error,
    octavia::{BalancerStatus, LoadBalancer, Pool, Provisioning, StatusTree, TreePool},
    resource::{Edit, Id},
};

use super::{
    Joined, Octavia, affinity,
    moment::half,
    poll::{APART, SOON},
    steps::{Observed, Step},
    wanted::spot,
};

/// So long nobody writes after members in bulk; one request takes no longer, and what is pending then is so for ever.
const REST: Duration = Duration::from_secs(2);
/// What is to be deleted, and is ACTIVE for longer than this, is deleted again.
const GOING: Duration = Duration::from_secs(5);
/// Of several requests, what never ends is not waited for.
const LONGEST: Duration = Duration::from_secs(20);

/// What a call left in the queue of OVN's driver.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Queued {
    /// What is below the load balancer is made one by one.
    Children,
    /// All below this pool goes before it does.
    Deletion(Id<Pool>),
    /// Nothing tells.
    Members,
    /// One request.
    One,
    /// All of it goes.
    Removal,
}

/// Calls that may not be through.
#[derive(Default)]
pub(super) struct PendingCalls(Mutex<HashMap<Id<LoadBalancer>, (Queued, Instant)>>);

impl PendingCalls {
    fn all(&self) -> MutexGuard<'_, HashMap<Id<LoadBalancer>, (Queued, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queued {
    /// What such a step leaves there, asked before it is done.
    pub(super) fn by(step: &Step, observed: &Observed) -> Option<Queued> {
        let several = Queued::several(step, observed);
        several.or_else(|| step.locks().then_some(Queued::One))
    }

    fn several(step: &Step, observed: &Observed) -> Option<Queued> {
        let pool = |at| {
            let balancer = observed.balancer.as_ref()?;
            balancer.spare.get(at).or_else(|| balancer.branches.get(at)?.pool.as_ref())
        };
        match step {
            Step::Create(new) => {
                matches!(&new.listeners, Edit::To(all) if !all.is_empty()).then_some(Queued::Children)
            }
            Step::RemovePool(at) => Some(Queued::Deletion(
                observed.balancer.as_ref()?.branches.get(at)?.pool.as_ref()?.pool.id.clone(),
            )),
            Step::RemoveUnusedPool(id) => Some(Queued::Deletion(id.clone())),
            Step::SetMembers(at, wish) => {
                let there = &pool(at)?.members;
                let stays = wish.iter().filter(|it| there.contains_key(&spot(it))).count();
                let kinds = [stays > 0, wish.len() > stays, there.len() > stays];
                (kinds.into_iter().filter(|it| *it).count() > 1).then_some(Queued::Members)
            }
            Step::Delete(_) => Some(Queued::Removal),
            _ => None,
        }
    }

    fn longest(&self) -> Duration {
        match self {
            Queued::Children | Queued::Deletion(_) => LONGEST,
            Queued::Members | Queued::One => REST,
            Queued::Removal => GOING,
        }
    }

    async fn is_through(&self, cloud: &Cloud, balancer: &Id<LoadBalancer>) -> Result<bool, Error> {
        match self {
            Queued::Children | Queued::One => Ok(is_made(&cloud.all::<LoadBalancer>().tree(balancer).await?)),
            // A tree leaves out pools that no listener leads to.
            Queued::Deletion(id) => Ok(cloud.all::<Pool>().find::<Pool>(id).await?.is_none()),
            Queued::Members | Queued::Removal => Ok(false),
        }
    }
}

fn is_made(tree: &StatusTree) -> bool {
    let mut pools = tree.listeners.iter().flat_map(|it| &it.pools).chain(&tree.pools);
    !tree.listeners.iter().any(|it| it.provisioning_status.is_pending()) && !pools.any(is_pending)
}

fn is_pending(pool: &TreePool) -> bool {
    let monitor = pool.health_monitor.iter().map(|it| &it.provisioning_status);
    let members = pool.members.iter().map(|it| &it.provisioning_status);
    [&pool.provisioning_status].into_iter().chain(monitor).chain(members).any(Provisioning::is_pending)
}

impl Octavia {
    /// A call was answered that leaves so much to do.
    pub(super) fn note_queued(&self, queued: Option<Queued>, observed: &Observed, now: Instant) {
        let Some((balancer, queued)) = observed.balancer.as_ref().zip(queued) else { return };
        if affinity::is_of_ovn(balancer) {
            let mut all = self.queues.all();
            all.retain(|_, (_, at)| now.saturating_duration_since(*at) < LONGEST);
            all.insert(balancer.it.id.clone(), (queued, now));
        }
    }

    /// How long the next write waits until it is asked again whether what the last ones left is done.
    pub(super) async fn is_queued(
        &self,
        joined: &Joined,
        observed: &Observed,
    ) -> Result<Option<Duration>, Error> {
        let Some(id) = observed.balancer.as_ref().map(|it| &it.it.id) else { return Ok(None) };
        let Some((queued, at)) = self.queues.all().get(id).cloned() else { return Ok(None) };
        let age = joined.cloud.clock().now().saturating_duration_since(at);
        let left = queued.longest().checked_sub(age).filter(|it| !it.is_zero());
        let left = match left {
            Some(left) if !queued.is_through(&joined.cloud, id).await? => {
                Some(if queued == Queued::Members { left } else { half(age).clamp(SOON, APART) })
            }
            _ => None,
        };
        if left.is_none() {
            self.queues.all().remove(id);
        }
        Ok(left)
    }

    /// Whether what was deleted there may not be gone yet.
    pub(super) fn is_deleting(&self, observed: &Observed) -> bool {
        let id = observed.balancer.as_ref().map(|it| &it.it.id);
        id.is_some_and(|it| matches!(self.queues.all().get(it), Some((Queued::Deletion(_), _))))
    }

    /// Whether that is told of a load balancer that is being deleted.
    pub(super) fn is_going(&self, id: &Id<LoadBalancer>, told: &BalancerStatus, now: Instant) -> bool {
        let is_young = |at: &Instant| now.saturating_duration_since(*at) < GOING;
        let is_deleted = matches!(self.queues.all().get(id), Some((Queued::Removal, at)) if is_young(at));
        is_deleted && told.provisioning_status == Provisioning::Active
    }
}
