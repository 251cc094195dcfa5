//! The network that floating IPs come from, where nobody names one. A cloud that has none reaches VIPs directly: there the
//! VIP is what is published, as the other controller does it.

use std::time::{Duration, Instant};

use seaway_model::{Desired, Unit};
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{Network, Subnet},
    resource::{Id, Query},
};
use tokio::sync::Mutex;

use crate::octavia::{Joined, Octavia, is_paused, steps::Observed, told::Note};

/// All who need it ask once in this time.
const YOUNG: Duration = Duration::from_secs(300);

/// What was found last; nothing in it: the cloud has no external network.
#[derive(Default)]
pub(in crate::octavia) struct External(Mutex<Option<(Instant, Option<Id<Network>>)>>);

impl External {
    async fn network(&self, cloud: &Cloud) -> Result<Option<Id<Network>>, Error> {
        let mut last = self.0.lock().await;
        let now = cloud.clock().now();
        if let Some((at, found)) = &*last
            && now.saturating_duration_since(*at) < YOUNG
        {
            return Ok(found.clone());
        }
        let found = found(cloud).await?;
        *last = Some((now, found.clone()));
        Ok(found)
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
    ) {
        observed.external = None;
        let has_one = observed.floating.is_some() || observed.stray.is_some() || observed.shared.guest;
        if has_one || observed.needless || is_paused(desired) {
            return;
        }
        let floating = self.wanted(unit, desired, observed).and_then(|it| it.floating);
        if floating.is_none_or(|it| it.network.is_some() || it.requested.is_some()) {
            return;
        }
        // Who is to be told of an error hears it when a floating IP is asked for.
        let Ok(found) = self.external.network(&joined.cloud).await else { return };
        if found.is_none() && !self.past(unit, |past| std::mem::replace(&mut past.is_forced_internal, true)) {
            let text =
                "this cloud has no external network for floating IPs: the VIP is the Service's address";
            let reason = "LoadBalancerForcedInternal";
            self.tell(unit, Note { warning: true, reason, text: text.to_owned() });
        }
        observed.external = Some(found);
    }
}

/// As it was looked for before, or by itself.
pub(super) async fn external(cloud: &Cloud, observed: &Observed) -> Result<Id<Network>, Error> {
    let found = match &observed.external {
        Some(found) => found.clone(),
        None => found(cloud).await?,
    };
    found.ok_or_else(|| {
        Error::new(Class::Invalid, "there is no network outside that has addresses of IPv4")
            .with_fix("Name one: floating-network-id of [LoadBalancer], or the annotation of that name.")
    })
}

/// The first that has addresses of IPv4; one that is alone is no matter of choice.
async fn found(cloud: &Cloud) -> Result<Option<Id<Network>>, Error> {
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
