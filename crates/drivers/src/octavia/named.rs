//! The load balancer that a Service names. Every Service that comes from the cloud provider's controller names one, and one that
//! is gone by now, since another was made in its place, says nothing.

use seaway_engine::Failure;
use seaway_model::{Desired, LbKey, Unit, load_balancer::NamedLoadBalancer, outcome::ReplacedLoadBalancer};
use seaway_openstack::{
    Cloud, Error,
    octavia::{LoadBalancer, Provisioning},
    resource::{Id, Query},
};

use super::{Joined, Octavia, admission, service_backoffs::Requester, steps::Observed};

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
        let named = wish.options.cloud.as_ref().and_then(|it| it.named.as_ref());
        let (Some(named), Some(balancer)) = (named, &observed.balancer) else { return Ok(()) };
        observed.shared.refused = None;
        let is_known = observed.shared.named.as_ref().is_some_and(|(id, _)| *id == named.id);
        if is_known || named.is(balancer.it.id.as_str(), &balancer.it.name) {
            return Ok(());
        }
        let there = all_named(&joined.cloud, named).await;
        let there = there.map_err(|error| self.failed(&Requester::of(unit), &error))?;
        // Of several that are called so nobody knows which is meant.
        let is_there = there.len() == 1;
        if observed.shared.guest {
            // It would leave this one, and not come to that one.
            let other = there.first().filter(|_| is_there);
            let refused = other.and_then(|it| admission::refused(joined, unit, desired, it, observed));
            observed.shared.refused = refused.map(|(_, problem)| problem);
        }
        if observed.shared.refused.is_some() || observed.shared.guest && !named.by_name {
            return Ok(());
        }
        observed.shared.named = Some((named.id.clone(), is_there));
        let shared = observed.shared.named.clone();
        self.known().entry(unit.clone()).and_modify(|it| it.observed.shared.named = shared);
        Ok(())
    }
}

/// What serves its Service instead of the one that it names by an id, and that is gone.
pub(super) fn replaced(unit: &Unit, desired: &Desired, observed: &Observed) -> Option<ReplacedLoadBalancer> {
    let (Unit::LoadBalancer(_, LbKey::Of(_)), Desired::LoadBalancer(wish)) = (unit, desired) else {
        return None;
    };
    let outside = wish.options.cloud.as_ref().filter(|it| !it.paused && !it.off && !it.preview)?;
    let named = outside.named.as_ref().filter(|it| !it.by_name)?;
    let balancer = observed.balancer.as_ref().filter(|_| !observed.shared.guest)?;
    let is_gone = observed.shared.named.as_ref().is_some_and(|(id, is_there)| *id == named.id && !is_there);
    let is_known = is_gone && balancer.it.provisioning_status == Provisioning::Active;
    is_known.then(|| ReplacedLoadBalancer { gone: named.id.clone(), by: balancer.it.id.as_str().into() })
}

/// By its id, or all that are called so; without those that are going.
pub(super) async fn all_named(cloud: &Cloud, named: &NamedLoadBalancer) -> Result<Vec<LoadBalancer>, Error> {
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
