//! The load balancer that a Service names. Every Service that comes from the cloud provider's controller names one, and one that
//! is gone by now, since another was made in its place, says nothing.

use seaway_engine::Failure;
use seaway_model::{Desired, Unit};
use seaway_openstack::{
    octavia::{LoadBalancer, Provisioning},
    resource::Id,
};

use super::{Joined, Octavia, away::Asker, steps::Observed};

impl Octavia {
    /// Whether it is there, of one that is neither its own nor the one it is a guest of; asked once as long as that is known.
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
        if is_known || observed.shared.guest || *named.id == *balancer.it.id.as_str() {
            return Ok(());
        }
        let there = match named.id.parse::<Id<LoadBalancer>>() {
            Ok(id) => joined.cloud.all::<LoadBalancer>().find::<LoadBalancer>(&id).await,
            Err(_) => Ok(None),
        };
        let there = there.map_err(|error| self.failed(&Asker::of(unit), &error))?;
        let is_there = there.is_some_and(|it| it.provisioning_status != Provisioning::PendingDelete);
        observed.shared.named = Some((named.id.clone(), is_there));
        let shared = observed.shared.named.clone();
        self.known().entry(unit.clone()).and_modify(|it| it.observed.shared.named = shared);
        Ok(())
    }
}
