//! The load balancer that a Service names. Every Service that comes from the cloud provider's controller names one, and one that
//! is gone by now, since another was made in its place, says nothing.

use seaway_engine::Failure;
use seaway_model::{Desired, Unit, load_balancer::Named};
use seaway_openstack::{
    Cloud, Error,
    octavia::{LoadBalancer, Provisioning},
    resource::{Id, Query},
};

use super::{Joined, Octavia, away::Asker, steps::Observed};

impl Octavia {
    /// Whether it is there, of one that is neither its own nor the one it is a guest of; asked once as long as that is known.
    /// One that is named by what it is called may have been renamed.
    pub(super) async fn find_named(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        let Desired::LoadBalancer(wish) = desired else { return Ok(()) };
        let named = wish.options.outside.as_ref().and_then(|it| it.named.as_ref());
        let (Some(named), Some(balancer)) = (named, &observed.balancer) else { return Ok(()) };
        let is_known = observed.shared.named.as_ref().is_some_and(|(id, _)| *id == named.id);
        if is_known
            || observed.shared.guest && !named.by_name
            || named.is(balancer.it.id.as_str(), &balancer.it.name)
        {
            return Ok(());
        }
        let there = all_named(&joined.cloud, named).await;
        // Of several that are called so nobody knows which is meant.
        let is_there = there.map_err(|error| self.failed(&Asker::of(unit), &error))?.len() == 1;
        observed.shared.named = Some((named.id.clone(), is_there));
        let shared = observed.shared.named.clone();
        self.known().entry(unit.clone()).and_modify(|it| it.observed.shared.named = shared);
        Ok(())
    }
}

/// By its id, or all that are called so; without those that are going.
pub(super) async fn all_named(cloud: &Cloud, named: &Named) -> Result<Vec<LoadBalancer>, Error> {
    let all = cloud.all::<LoadBalancer>();
    let mut found = match named.id.parse::<Id<LoadBalancer>>() {
        _ if named.by_name => all.list::<LoadBalancer>(Query::named(&named.id)).await?,
        Ok(id) => all.find::<LoadBalancer>(&id).await?.into_iter().collect(),
        // What cannot be an id was refused before.
        Err(_) => Vec::new(),
    };
    found.retain(|it| it.provisioning_status != Provisioning::PendingDelete);
    Ok(found)
}
