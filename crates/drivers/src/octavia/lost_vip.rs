//! A load balancer whose VIP has no port any more: Octavia says that it is ACTIVE, and it serves nobody. OVN's driver leaves such
//! a one where it writes a late status over a load balancer that was deleted, and whose Service wants one again.
//!
//! It is noticed where no floating IP can lead to it, and made again.

use seaway_model::{Desired, Unit};
use seaway_openstack::{Error, neutron::Port};

use super::{
    Joined, Octavia,
    mend::Mend,
    steps::{Observed, Step},
};

const WHY: &str = "the port of its VIP is gone";

impl Octavia {
    /// Neutron knows no such port: it is asked once more, for the port alone. One that its Service named may be another
    /// project's, and is not seen by everybody.
    pub(super) async fn look_for_vip(
        &self,
        joined: &Joined,
        unit: &Unit,
        (step, observed): (&Step, &Observed),
        error: &Error,
    ) {
        let Some(balancer) = observed.balancer.as_ref().filter(|_| error.is_not_found()) else { return };
        let Some(port) = &balancer.it.vip_port_id else { return };
        if matches!(step, Step::AddFloating(_) | Step::Lead(_))
            && error.message().contains(port.as_str())
            && matches!(joined.cloud.all::<Port>().find::<Port>(port).await, Ok(None))
        {
            self.past(unit, |past| past.without_vip = Some(balancer.it.id.clone()));
        }
    }

    /// The deletion limit counts it.
    pub(super) fn judge_vip(&self, unit: &Unit, desired: &Desired, observed: &mut Observed) {
        let Desired::LoadBalancer(wish) = desired else { return };
        let names_port = wish.options.outside.as_ref().is_some_and(|it| it.port.is_some());
        let is_shared = observed.shared.guest || !observed.shared.taken.is_empty();
        let without = self.past(unit, |past| past.without_vip.clone());
        if !names_port
            && !is_shared
            && without.is_some_and(|id| observed.balancer.as_ref().is_some_and(|it| it.it.id == id))
        {
            observed.mend = Some(Mend::Remake { why: WHY, by_default: true });
        }
    }
}
