//! Providers that do not delete a load balancer with all below it: what is below goes first, one call each, in the order in
//! which Octavia lets it go.

use std::sync::atomic::Ordering;

use seaway_openstack::{
    Cloud, Error,
    octavia::{HealthMonitor, Listener, LoadBalancer, Pool, Provisioning},
    resource::{Id, Query},
};

use super::{
    Joined, Octavia,
    steps::{Observed, ObservedLoadBalancer, Step},
};

impl Octavia {
    /// What `cascade-delete` says: whether one call deletes a load balancer with all below it.
    #[must_use]
    pub fn cascading(self, cascades: bool) -> Octavia {
        self.set_cascade(cascades);
        self
    }

    pub fn set_cascade(&self, cascades: bool) {
        self.cascades.store(cascades, Ordering::Relaxed);
    }

    pub(super) fn cascades(&self) -> bool {
        self.cascades.load(Ordering::Relaxed)
    }

    /// With what is below it before it, where one call does not take that along. One in ERROR lets nothing below it go: then
    /// it is asked for all at once, as there is no other way.
    pub(super) fn one_by_one(&self, steps: Vec<Step>, observed: &Observed) -> Vec<Step> {
        let active =
            observed.balancer.as_ref().filter(|it| it.it.provisioning_status == Provisioning::Active);
        let (Some(balancer), false) = (active, self.cascades()) else { return steps };
        let with_those_below = |step: Step| match step {
            Step::Delete(_) => below(balancer).chain([step]).collect(),
            step => vec![step],
        };
        steps.into_iter().flat_map(with_those_below).collect()
    }

    /// As many of the calls that a second load balancer takes as are possible now.
    pub(super) async fn delete_double(
        &self,
        joined: &Joined,
        id: &Id<LoadBalancer>,
        observed: &mut Observed,
    ) -> Result<(), Error> {
        // Each call locks it: the next one is refused, waits, and goes on with what is left.
        while !delete_next(&joined.cloud, id).await? {}
        observed.doubles.retain(|it| it != id);
        Ok(())
    }

    /// Whether it has been done: a load balancer with nothing below it, deleted alone.
    pub(super) async fn delete_alone(
        &self,
        joined: &Joined,
        step: &Step,
        observed: &mut Observed,
    ) -> Result<bool, Error> {
        let (Step::Delete(id), Some(balancer)) = (step, &mut observed.balancer) else { return Ok(false) };
        // One in ERROR lets nothing below it go.
        if self.cascades() || below(balancer).next().is_some() {
            return Ok(false);
        }
        joined.cloud.all::<LoadBalancer>().delete(id).await?;
        balancer.it.provisioning_status = Provisioning::PendingDelete;
        Ok(true)
    }
}

/// One call towards the end of a load balancer, of which nothing else is known: what is below it goes before it. Whether it
/// was the last one. One in ERROR goes with all below it, as there is no other way.
pub(super) async fn delete_next(cloud: &Cloud, id: &Id<LoadBalancer>) -> Result<bool, Error> {
    let all = cloud.all::<LoadBalancer>();
    let Some(it) = all.find::<LoadBalancer>(id).await? else { return Ok(true) };
    match it.provisioning_status {
        Provisioning::PendingDelete => return Ok(true),
        Provisioning::Error => return all.delete_cascade(id).await.map(|()| true),
        _ => {}
    }
    let here = || Query::all().with("loadbalancer_id", id);
    let pools = cloud.all::<Pool>().list::<Pool>(here()).await?;
    if let Some(monitor) = pools.iter().find_map(|it| it.healthmonitor_id.as_ref()) {
        return cloud.all::<HealthMonitor>().delete(monitor).await.map(|()| false);
    }
    if let Some(pool) = pools.first() {
        return cloud.all::<Pool>().delete(&pool.id).await.map(|()| false);
    }
    if let Some(listener) = cloud.all::<Listener>().list::<Listener>(here()).await?.first() {
        return cloud.all::<Listener>().delete(&listener.id).await.map(|()| false);
    }
    all.delete(id).await.map(|()| true)
}

fn below(balancer: &ObservedLoadBalancer) -> impl Iterator<Item = Step> + '_ {
    let branches = balancer.branches.iter().flat_map(|(id, branch)| {
        let pool = branch.pool.as_ref();
        let monitor = pool.and_then(|it| it.monitor.as_ref()).map(|_| Step::RemoveMonitor(*id));
        let pool = pool.map(|_| Step::RemovePool(*id));
        [monitor, pool, Some(Step::RemoveListener(*id))].into_iter().flatten()
    });
    let spare = balancer.spare.values().map(|it| it.pool.id.clone());
    branches.chain(spare.chain(balancer.unused_pools.keys().cloned()).map(Step::RemoveUnusedPool))
}
