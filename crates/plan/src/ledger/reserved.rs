//! Ports that the machines of a cluster need themselves.
//!
//! ```text
//!     hosts' own addresses   the machines' ports and node ports, by TCP and UDP; UDP ports of tunnels and of NTP
//!     addresses of pools     the machines' ports and those of tunnels and of NTP, by UDP: hosts bind them, and whoever binds
//!                            them for all addresses later, as a CNI does when a Node starts, is refused by the kernel.
//!                            By TCP clients are steered to a socket elsewhere
//! ```
//! A pool allows those that it names.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use seaway_model::{
    L4, ListenerId, Name, Owner, Problem, Reason, config::ReservedPorts, load_balancer::Family,
};

use super::{claim::Claim, decide::DecisionContext};

/// Where node ports are, unless the API server says otherwise.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// NTP; VXLAN (its own port, and that of Linux, which flannel and Cilium use); Geneve; WireGuard, as flannel and Cilium use it.
const TUNNELS_AND_TIME: [u16; 7] = [123, 4_789, 6_081, 8_472, 51_820, 51_821, 51_871];

/// At an address of a pool, whoever binds it takes it from the machine.
fn is_taken(machine: &ReservedPorts, id: &ListenerId) -> bool {
    id.l4 == L4::Udp && (machine.contains(id.port) || TUNNELS_AND_TIME.contains(&id.port))
}

/// Whoever had such a port of a host's own address would have it before the machine's own process, when that is started again.
pub(super) fn is_reserved(machine: &ReservedPorts, id: &ListenerId) -> bool {
    machine.contains(id.port) || NODE_PORTS.contains(&id.port) || is_taken(machine, id)
}

fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl DecisionContext<'_> {
    /// Ports that the configuration has at all addresses of the machines (the front door, `tcpServices`): in a cluster, a
    /// Service at a Node's own address does not take them away, for there the kernel prefers a socket of that address. What it had before the
    /// configuration asked for it, it keeps.
    pub(super) fn of_the_machines<'a>(
        &'a self,
        claim: &'a Claim,
        ip: IpAddr,
    ) -> impl Iterator<Item = (IpAddr, ListenerId, Owner)> + 'a {
        let everywhere = unspecified(Family::of(ip));
        let asked = claim.ports.iter().filter(|_| self.publishes_nodes(claim));
        let taken = asked.filter_map(move |id| Some((*id, self.holdings.holder(everywhere, *id)?)));
        let has = move |id: ListenerId| {
            let holder = self.holdings.holder(ip, id).or_else(|| self.answered.get(&(ip, id)));
            holder == Some(&claim.owner)
        };
        taken
            .filter(move |(id, holder)| **holder != claim.owner && !has(*id))
            .map(move |(id, holder)| (ip, id, holder.clone()))
    }

    /// Services that had ports of such a claim at Nodes' own addresses before it: there clients reach them.
    pub(super) fn reached_before_the_machines(&self, claim: &Claim, addresses: &[IpAddr]) -> Vec<Problem> {
        let everywhere = addresses.iter().filter(|ip| self.rules.cluster && ip.is_unspecified());
        let holders = everywhere.flat_map(|ip| self.holdings.holders_of(Family::of(*ip), &claim.ports));
        let others = holders
            .filter(|(ip, _, owner)| **owner != claim.owner && !ip.is_unspecified())
            .filter(|(ip, ..)| self.hosts.whose(*ip).is_some());
        let problem = |(ip, id, owner): (IpAddr, ListenerId, &Owner)| {
            let message = format!(
                "port {id} on {ip} belongs to {owner}, which had it before: clients of that address reach it"
            );
            Problem::new(claim.owner.object(), Reason::PortConflict, message).fix(
                "Give that Service another port or an AddressPool without `hosts: true`, or the configuration another port.",
            )
        };
        others.map(problem).collect()
    }

    /// What a claim may not have at addresses of this pool. A pool that cannot be seen may have named them: then nothing ends.
    pub(super) fn refused_of_pool(&self, claim: &Claim, pool: &Name) -> BTreeSet<ListenerId> {
        let is_taken = |id: &ListenerId| is_taken(self.machine_ports, id);
        let mut taken: BTreeSet<ListenerId> = claim.ports.iter().copied().filter(is_taken).collect();
        if taken.is_empty() {
            return taken;
        }
        let pools: Vec<_> = self.pools.ordered().filter(|it| it.object.name == *pool).collect();
        let is_named = |id: &ListenerId| pools.iter().any(|it| it.reserved_ports.contains(&id.port));
        taken.retain(|id| self.rules.cluster && !pools.is_empty() && !is_named(id));
        taken
    }
}
