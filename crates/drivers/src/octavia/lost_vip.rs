//! A load balancer whose VIP has no port any more: Octavia says that it is ACTIVE, and it serves nobody. OVN's driver leaves such
//! a one where it writes a late status over a load balancer that was deleted, and whose Service wants one again.
//!
//! It is noticed where no floating IP can lead to it, and made again.

use seaway_model::{Desired, Unit};
use seaway_openstack::{Error, neutron::Port, resource::Query};

use super::{
    Joined, Octavia,
    repair::RepairAction,
    steps::{Observed, Step},
};

const WHY: &str = "the port of the VIP does not exist any more";

impl Octavia {
    /// Neutron lists the ports of that network, and the VIP's is not among them. An empty list proves nothing: whoever lacks a role
    /// sees no port. A port that the Service names may belong to another project, and is hidden from this one.
    pub(super) async fn look_for_vip(
        &self,
        joined: &Joined,
        unit: &Unit,
        (step, observed): (&Step, &Observed),
        error: &Error,
    ) {
        let Some(balancer) = observed.balancer.as_ref().filter(|_| error.is_not_found()) else { return };
        let (Some(port), Some(network)) = (&balancer.it.vip_port_id, &balancer.it.vip_network_id) else {
            return;
        };
        if !matches!(step, Step::AddFloating(_) | Step::AssociateFloating(_))
            || !error.message().contains(port.as_str())
        {
            return;
        }
        let ports = joined.cloud.all::<Port>().list::<Port>(Query::all().with("network_id", network)).await;
        if ports.is_ok_and(|all| !all.is_empty() && all.iter().all(|it| it.id != *port)) {
            self.past(unit, |past| past.without_vip = Some(balancer.it.id.clone()));
        }
    }

    /// The deletion limit counts it.
    pub(super) fn judge_vip(&self, unit: &Unit, desired: &Desired, observed: &mut Observed) {
        let Desired::LoadBalancer(wish) = desired else { return };
        let names_port = wish.options.cloud.as_ref().is_some_and(|it| it.port.is_some());
        let is_shared = observed.shared.guest || !observed.shared.taken.is_empty();
        let without = self.past(unit, |past| past.without_vip.clone());
        if !names_port
            && !is_shared
            && without.is_some_and(|id| observed.balancer.as_ref().is_some_and(|it| it.it.id == id))
        {
            observed.repair = Some(RepairAction::Remake { why: WHY, by_default: true });
        }
    }
}
