//! Whether the addresses of an owner are announced, and who says so.
//!
//! ```text
//!     of a host itself, or loopback ──────────────► HostAddress   True
//!     of a cloud ─────────────────────────────────► Cloud         True
//!     of an AddressPool with `announce: static` ──► StaticRoute   True
//!     … with `announce: l2`, hosts say so ────────► Layer2        True; Layer2Pending Unknown; Layer2Failed False
//!     … with `announce: bgp`, hosts say so ───────► BGP           True; BGPPending Unknown; BGPFailed False
//!     … with both (`auto`, advertisements) ───────► the better of both
//!     … with `announce: none` ────────────────────► Disabled      False
//!     of an AddressPool without ──────────────────► NotAnnounced  False
//!     of MetalLB's IPAddressPool ─────────────────► MetalLB       Unknown: its speaker may announce them
//!     of a pool that cannot be seen ──────────────► PoolMissing   Unknown
//!     none yet ───────────────────────────────────► NoAddress     Unknown
//! ```
//! Of several addresses the worst counts. Whether a host serves them is another question: `Status::ready`.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use seaway_model::{
    AnnounceMode, AnnouncedCondition, Kind, Name, ObjectRef, Unit, WorkItem, announced::AnnouncedReason,
    fact::AddressPool, load_balancer::Bind,
};

use super::{World, owners::OwnerState};
use crate::announcing::Protocol;

/// Of hosts' own addresses.
pub(super) fn by_hosts() -> AnnouncedCondition {
    AnnouncedCondition::new(AnnouncedReason::HostAddress, "the addresses are the hosts' own")
}

impl World {
    pub(super) fn announced(
        &self,
        state: &OwnerState,
        addresses: &[IpAddr],
        is_in_cloud: bool,
    ) -> AnnouncedCondition {
        if addresses.is_empty() {
            return AnnouncedCondition::new(AnnouncedReason::NoAddress, "the Service has no address");
        }
        if is_in_cloud {
            let message = "the load balancer of the cloud has the addresses";
            return AnnouncedCondition::new(AnnouncedReason::Cloud, message);
        }
        let of_state = state.grant.as_ref().map(|it| &it.pool);
        let ways = state.planned.load_balancer.binds.iter().filter_map(|bind| match bind {
            Bind::Host(ip) => Some((AnnouncedReason::HostAddress, None, *ip)),
            Bind::Ledger(ip) => {
                let pool = self.addresses.get(ip).map(|it| &it.pool).or(of_state);
                Some((self.way_to(*ip, pool), pool, *ip))
            }
            Bind::Cloud(_) => None,
        });
        let ways: Vec<(AnnouncedReason, Option<&Name>, IpAddr)> = ways.collect();
        let worst = ways.iter().max_by_key(|(reason, ..)| (reason.status(), *reason));
        let Some((reason, pool, _)) = worst else { return by_hosts() };
        let ips = || ways.iter().filter(|(other, ..)| other == reason).map(|(_, _, ip)| *ip);
        if is_by_hosts(*reason) {
            let said = ips().map(|ip| self.hosts_way(ip).1).collect::<Vec<_>>();
            return AnnouncedCondition::new(*reason, said.join("; "));
        }
        let ips = ips().map(|ip| ip.to_string()).collect::<Vec<_>>().join(", ");
        let pool = pool.map_or("", |it| it.as_str());
        AnnouncedCondition::new(*reason, told(*reason, &ips, pool))
    }

    fn way_to(&self, ip: IpAddr, pool: Option<&Name>) -> AnnouncedReason {
        if ip.is_loopback() || self.ledger.is_of_host(ip) {
            return AnnouncedReason::HostAddress;
        }
        match pool.map_or(AnnouncedReason::PoolMissing, |pool| self.way_of_pool(pool)) {
            way if is_by_hosts(way) => self.hosts_way(ip).0,
            way => way,
        }
    }

    /// What hosts say of it: by which of both it is announced, where it is to be by either.
    pub(super) fn hosts_way(&self, ip: IpAddr) -> (AnnouncedReason, String) {
        let layer2 = || self.layer2_way(ip);
        match (self.asks(ip, Protocol::Layer2), self.asks(ip, Protocol::Bgp)) {
            (true, true) => {
                let (one, other) = (layer2(), self.bgp_way(ip));
                let is_better = |a: &(AnnouncedReason, _), b: &(AnnouncedReason, _)| {
                    (a.0.status(), a.0) <= (b.0.status(), b.0)
                };
                let (best, rest) = if is_better(&one, &other) { (one, other) } else { (other, one) };
                // Both are well, or neither.
                match best.0.status() == rest.0.status() {
                    true => (best.0, format!("{}; {}", best.1, rest.1)),
                    false => best,
                }
            }
            (false, true) => self.bgp_way(ip),
            (_, false) => layer2(),
        }
    }

    /// Of several pools of one name, the one that knows most of the way.
    fn way_of_pool(&self, name: &Name) -> AnnouncedReason {
        let ways = self.ledger.pools_called(name).map(|pool| self.way_of(pool));
        ways.min_by_key(|it| it.status()).unwrap_or(AnnouncedReason::PoolMissing)
    }

    /// Of all addresses of a pool.
    pub fn pool_announced(&self, object: &ObjectRef) -> Option<AnnouncedCondition> {
        let pool = self.ledger.pools_called(&object.name).find(|it| it.object == *object)?;
        let reason = self.way_of(pool);
        if is_by_hosts(reason) {
            let (reason, message) = self.hosts_way_of_pool(&object.name);
            return Some(AnnouncedCondition::new(reason, message));
        }
        Some(AnnouncedCondition::new(reason, told(reason, "its addresses", &object.name)))
    }

    /// The worst of its addresses.
    fn hosts_way_of_pool(&self, pool: &Name) -> (AnnouncedReason, String) {
        let of_pool = self.addresses.values().filter(|it| it.pool == *pool);
        let (mut count, mut worst) = (0_usize, None);
        for address in of_pool {
            count = count.saturating_add(1);
            let way = self.hosts_way(address.ip);
            let is_worse = |it: &(AnnouncedReason, String)| (it.0.status(), it.0) < (way.0.status(), way.0);
            if worst.as_ref().is_none_or(is_worse) {
                worst = Some(way);
            }
        }
        match worst {
            None => (AnnouncedReason::NoAddress, "no Service has an address of this pool yet".to_owned()),
            Some((reason, _)) if reason.status().is_true() => {
                (reason, format!("hosts announce {count} addresses of this pool"))
            }
            Some(worst) => worst,
        }
    }

    fn way_of(&self, pool: &AddressPool) -> AnnouncedReason {
        match (pool.announce, pool.object.kind) {
            (Some(AnnounceMode::Static), _) => return AnnouncedReason::StaticRoute,
            (Some(AnnounceMode::None), _) => return AnnouncedReason::Disabled,
            (None, _) if pool.hosts => return AnnouncedReason::HostAddress,
            (None, Kind::IPAddressPool) => return AnnouncedReason::Metallb,
            _ => {}
        }
        match (self.announcing.asks(pool, Protocol::Layer2), self.announcing.asks(pool, Protocol::Bgp)) {
            (true, _) => AnnouncedReason::Layer2,
            (false, true) => AnnouncedReason::Bgp,
            (false, false) => AnnouncedReason::NotAnnounced,
        }
    }

    pub(super) fn put_pool(&mut self, pool: &Arc<AddressPool>) {
        let name = pool.object.name.clone();
        let before = self.asked_of_pool(&name);
        self.announcing.note_pool(pool);
        let touched = self.ledger.put_pool(pool.clone());
        self.regrant(touched);
        self.refresh_announced(&name, before);
    }

    pub(super) fn remove_pool(&mut self, object: &ObjectRef) {
        let before = self.asked_of_pool(&object.name);
        let gone = self.ledger.pools_called(&object.name).find(|it| it.object == *object).cloned();
        gone.iter().for_each(|it| self.announcing.note_gone_pool(it));
        let touched = self.ledger.remove_pool(object);
        self.regrant(touched);
        self.refresh_announced(&object.name, before);
    }

    /// What of a pool its owners are told.
    fn asked_of_pool(&self, pool: &Name) -> AskedOfPool {
        let asks = |protocol| self.ledger.pools_called(pool).any(|it| self.announcing.asks(it, protocol));
        // With `auto` one way is enough, so that a failure of the other is no Problem.
        let is_auto = self.ledger.pools_called(pool).any(|it| it.announce == Some(AnnounceMode::Auto));
        (self.way_of_pool(pool), [Protocol::Layer2, Protocol::Bgp].map(asks), is_auto)
    }

    /// Its owners are told, if the pool says another thing of the way to its addresses than before.
    fn refresh_announced(&mut self, pool: &Name, before: AskedOfPool) {
        if self.asked_of_pool(pool) != before {
            self.refresh_statuses_of(&[pool.clone()].into());
        }
    }

    /// Of all that have an address of one of these pools.
    pub(super) fn refresh_statuses_of(&mut self, pools: &BTreeSet<Name>) {
        let is_of_pool = |ip: IpAddr| self.addresses.get(&ip).is_some_and(|it| pools.contains(&it.pool));
        let concerned = self.owners.iter().filter(|(_, state)| {
            let granted = state.grant.as_ref().is_some_and(|grant| pools.contains(&grant.pool));
            // Of two families, each may be of another pool.
            granted || state.planned.load_balancer.binds.iter().filter_map(Bind::ip).any(is_of_pool)
        });
        self.dirt.extend(concerned.map(|(owner, _)| WorkItem::Unit(Unit::Status(owner.clone()))));
    }
}

/// Which way, by which protocols, and whether one of these is enough.
type AskedOfPool = (AnnouncedReason, [bool; 2], bool);

/// Hosts say themselves how it is.
fn is_by_hosts(reason: AnnouncedReason) -> bool {
    matches!(
        reason,
        AnnouncedReason::Layer2
            | AnnouncedReason::Layer2Pending
            | AnnouncedReason::Layer2Failed
            | AnnouncedReason::Bgp
            | AnnouncedReason::BgpPending
            | AnnouncedReason::BgpFailed
    )
}

fn told(reason: AnnouncedReason, ips: &str, pool: &str) -> String {
    match reason {
        AnnouncedReason::HostAddress => by_hosts().message,
        AnnouncedReason::StaticRoute => {
            format!("AddressPool {pool} says that a router has a route to the hosts (announce: static)")
        }
        AnnouncedReason::Metallb => format!(
            "{ips}: of MetalLB's IPAddressPool {pool}; Seaway does not know whether MetalLB's speaker announces it"
        ),
        AnnouncedReason::PoolMissing => {
            format!("{ips}: Seaway does not see pool {pool}, so whether a router has a route is unknown")
        }
        AnnouncedReason::NotAnnounced => format!(
            "{ips}: on the loopback interface of hosts only, and nothing announces it. If it is in the network of the hosts, set \
             announce: l2 in AddressPool {pool}, and they answer for it by ARP and NDP (docs/layer2.md). If hosts are to tell a \
             router, set announce: bgp (docs/bgp.md). If a router has a route to hosts that serve it, or another program announces \
             it (MetalLB's speaker, a BGP daemon), set announce: static. \
             Addresses of a pool with hosts: true need neither"
        ),
        AnnouncedReason::Disabled => {
            format!(
                "{ips}: AddressPool {pool} says that its addresses are not to be announced (announce: none)"
            )
        }
        AnnouncedReason::Cloud
        | AnnouncedReason::NoAddress
        | AnnouncedReason::Layer2
        | AnnouncedReason::Layer2Pending
        | AnnouncedReason::Layer2Failed
        | AnnouncedReason::Bgp
        | AnnouncedReason::BgpPending
        | AnnouncedReason::BgpFailed => String::new(),
    }
}
