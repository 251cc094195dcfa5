//! The network that floating IPs come from, where nobody names one. A cloud that has none reaches VIPs directly: there the
//! VIP is what is published, as the other controller does it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use seaway_engine::Failure;
use seaway_model::{Desired, Unit};
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{Network, Subnet},
    resource::{Id, Query},
};

use crate::octavia::{
    Joined, Octavia, is_paused,
    list_request_lock::{ListRequestLock, ListRequestTimeout},
    steps::Observed,
    told::Note,
};

/// All who need it ask once in this time.
const YOUNG: Duration = Duration::from_secs(300);

/// The external network; `None`: the cloud has none.
type ExternalNetwork = Option<Id<Network>>;

/// What was found last, and when. A list that is slow delays who asked for it, and nobody else for long.
#[derive(Default)]
pub(in crate::octavia) struct External {
    reading: ListRequestLock,
    last: Mutex<Option<(Instant, ExternalNetwork)>>,
}

impl External {
    async fn network(&self, cloud: &Cloud) -> Result<Result<ExternalNetwork, Error>, ListRequestTimeout> {
        if let Some(found) = self.young(cloud) {
            return Ok(Ok(found));
        }
        let _turn = self.reading.take().await?;
        // Another may have asked meanwhile.
        if let Some(found) = self.young(cloud) {
            return Ok(Ok(found));
        }
        let now = cloud.clock().now();
        let found = found(cloud).await;
        if let Ok(found) = &found {
            *self.last() = Some((now, found.clone()));
        }
        Ok(found)
    }

    fn young(&self, cloud: &Cloud) -> Option<ExternalNetwork> {
        let now = cloud.clock().now();
        let last = self.last();
        let young = last.as_ref().filter(|(at, _)| now.saturating_duration_since(*at) < YOUNG);
        young.map(|(_, found)| found.clone())
    }

    fn last(&self) -> MutexGuard<'_, Option<(Instant, ExternalNetwork)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Octavia {
    /// Only for whom the outside is to reach and does not yet.
    pub(in crate::octavia) async fn look_for_external_network(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        observed.external = None;
        let has_one = observed.floating.is_some() || observed.stray.is_some() || observed.shared.guest;
        if has_one || observed.needless || is_paused(desired) {
            return Ok(());
        }
        let floating = self.wanted(unit, desired, observed).and_then(|it| it.floating);
        if floating.is_none_or(|it| it.network.is_some() || it.requested.is_some()) {
            return Ok(());
        }
        // Who is to be told of an error hears it when a floating IP is asked for.
        let Ok(found) = self.external.network(&joined.cloud).await? else { return Ok(()) };
        if found.is_none() && !self.past(unit, |past| std::mem::replace(&mut past.is_forced_internal, true)) {
            let text =
                "this cloud has no external network for floating IPs: the VIP is the Service's address";
            let reason = "LoadBalancerForcedInternal";
            self.tell(unit, Note { warning: true, reason, text: text.to_owned() });
        }
        observed.external = Some(found);
        Ok(())
    }
}

/// As it was looked for before, or by itself.
pub(super) async fn external(cloud: &Cloud, observed: &Observed) -> Result<Id<Network>, Error> {
    let found = match &observed.external {
        Some(found) => found.clone(),
        None => found(cloud).await?,
    };
    found.ok_or_else(|| {
        Error::new(Class::Invalid, "no external network has an IPv4 subnet")
            .with_fix("Name an external network: floating-network-id in [LoadBalancer] of cloud.conf, or the annotation \
                 of that name.")
    })
}

/// The first that has addresses of IPv4; one that is alone is no matter of choice.
async fn found(cloud: &Cloud) -> Result<ExternalNetwork, Error> {
    let query = Query::all().with("router:external", true);
    let mut all = cloud.all::<Network>().list::<Network>(query).await?;
    if all.len() == 1 {
        return Ok(Some(all.remove(0).id));
    }
    for network in all {
        let query = Query::all().with("network_id", &network.id).with("ip_version", 4);
        if !cloud.all::<Subnet>().list::<Subnet>(query).await?.is_empty() {
            return Ok(Some(network.id));
        }
    }
    Ok(None)
}
