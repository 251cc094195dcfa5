//! Addresses that hosts announce by BGP: what this host announces to which peers, and what hosts say of it.
//!
//! ```text
//!     this host has the address, serves it, ──► its routes, to each ──► the host announces ──► and says what it announces
//!     does not drain and is not excluded        peer (DesiredBgp)       (announce/bgp)         (HostReport::bgp)
//! ```
//! All hosts that serve an address announce it: routers spread clients over them.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use seaway_model::{
    AnnounceMode, Kind, Name, ObjectRef, Owner, Problem, Reason,
    announced::AnnouncedReason,
    bgp::{BgpSessionState, DesiredBgp, PeerReport},
    fact::{AddressPool, AnnouncementObject, HostReport, Labels},
    load_balancer::Bind,
};

use super::{World, owners::OwnerState};
use crate::{
    announcing::{HostRoutes, Protocol, ServedAddress, host_labels},
    index::is_excluded,
};

/// Without a BFDProfile, a session is there without BFD.
const RESTRICTS_BGP: [Kind; 3] = [Kind::BGPAdvertisement, Kind::BGPPeer, Kind::Community];

impl World {
    /// What this host is to announce by BGP. Nothing, where this is no host or not all is known yet: then it stays as it was.
    pub fn bgp(&self) -> Option<DesiredBgp> {
        let host = self.roles.host.as_ref().filter(|_| self.are_listed(&RESTRICTS_BGP))?;
        let own = self.index.host(host)?;
        let labels = self.labels_of(host);
        let mut sessions = self.announcing.sessions(&labels, self.config.pools.cluster);
        let is_leaving = self.is_out(host);
        if sessions.is_empty() || is_leaving {
            return Some(DesiredBgp { sessions, is_leaving });
        }
        let present = self.present().addresses;
        // What is announced of them is borrowed below.
        let is_asked = |ip: IpAddr| {
            let pool = self.pool_to_announce(ip);
            is_held(own, ip) && pool.is_some_and(|it| self.announcing.asks(it, Protocol::Bgp))
        };
        let addresses: Vec<_> = present.iter().filter(|(ip, _)| is_asked(**ip)).collect();
        let mut routes = HostRoutes::new(&self.announcing, &labels, &sessions);
        let services: Vec<Vec<&Labels>> =
            addresses.iter().map(|(ip, owners)| self.labels_of_services(owners, **ip)).collect();
        for ((ip, owners), services) in addresses.iter().zip(&services) {
            let Some(pool) = self.pool_to_announce(**ip).filter(|_| !services.is_empty()) else { continue };
            routes.add(&ServedAddress {
                ip: **ip,
                pool,
                services,
                by_itself: self.asks_bgp_here(own, pool, **ip),
                local_only: owners.iter().any(|it| self.is_local_only(it)),
            });
        }
        routes.give(&mut sessions);
        Some(DesiredBgp { sessions, is_leaving })
    }

    /// They were listed once: what one of them restricts is not announced before it is read.
    pub(super) fn are_listed(&self, kinds: &[Kind]) -> bool {
        self.settled && kinds.iter().all(|it| self.synced.contains(it))
    }

    /// It takes no new clients: somebody drains it, or its Node is excluded, about to be removed, or without its network.
    pub(super) fn is_out(&self, host: &Name) -> bool {
        self.drains
            || self
                .index
                .node(host)
                .is_some_and(|node| is_excluded(node) || node.leaving || node.without_network)
    }

    /// Of a Node, its; of another host, those of its configuration, which it alone knows.
    pub(super) fn labels_of(&self, host: &Name) -> Labels {
        let own = (self.roles.host.as_ref() == Some(host)).then_some(&self.config.host_labels);
        host_labels(host, self.index.node(host).map(|it| &it.meta.labels).or(own))
    }

    /// Also one that is not there any more: a pool that cannot be seen withdraws nothing.
    pub(super) fn pool_to_announce(&self, ip: IpAddr) -> Option<&AddressPool> {
        let gone = || {
            let name = self.addresses.get(&ip)?.pool.as_str();
            self.ledger.pools_called(name).next().is_none().then(|| self.announcing.gone_pool(name))?
        };
        self.pool_of(ip).or_else(gone)
    }

    /// The pool of ours that an address is of.
    pub(super) fn pool_of(&self, ip: IpAddr) -> Option<&AddressPool> {
        let name = self.addresses.get(&ip)?.pool.as_str();
        let pools = || self.ledger.pools_called(name);
        // A pool of MetalLB may be called the same: its speaker announces its addresses.
        let is_of_metallb = |it: &AddressPool| {
            it.object.kind == Kind::IPAddressPool && it.ranges.iter().any(|it| it.contains(ip))
        };
        if pools().any(is_of_metallb) {
            return None;
        }
        pools().find(|it| it.object.kind == Kind::AddressPool)
    }

    /// Of those that take new clients there.
    pub(super) fn labels_of_services<'w>(&'w self, owners: &[Owner], ip: IpAddr) -> Vec<&'w Labels> {
        let taking = owners.iter().filter(|owner| self.can_take_clients(owner, ip));
        let demands = taking.filter_map(|owner| self.owners.get(owner)?.demand.as_ref());
        demands.map(|it| &it.service.meta.labels).collect()
    }

    fn is_local_only(&self, owner: &Owner) -> bool {
        let demand = self.owners.get(owner).and_then(|it| it.demand.as_ref());
        demand.is_some_and(|it| it.service.local_only)
    }

    /// With `announce: auto`, a host that is in the network of an address announces it there instead.
    fn asks_bgp_here(&self, own: &HostReport, pool: &AddressPool, ip: IpAddr) -> bool {
        match pool.announce {
            Some(AnnounceMode::Bgp) => true,
            Some(AnnounceMode::Auto) => !own.networks.is_empty() && !is_in_network(own, ip),
            _ => false,
        }
    }

    pub(super) fn put_announcing(&mut self, it: &Arc<AnnouncementObject>) {
        if self.announcing.put(it) {
            self.refresh_all_announced();
        }
    }

    pub(super) fn remove_announcing(&mut self, object: &ObjectRef) {
        if self.announcing.remove(object) {
            self.refresh_all_announced();
        }
    }

    /// An advertisement that cannot be read may limit what is announced.
    pub(super) fn note_faults(&mut self, object: &ObjectRef, is_faulty: bool) {
        if self.announcing.note_faults(object, is_faulty) {
            self.refresh_all_announced();
        }
    }

    /// They change seldom, and what a Service is told may follow from any of them.
    fn refresh_all_announced(&mut self) {
        let of_pool = |it: &&AddressPool| it.object.kind == Kind::AddressPool && !it.hosts;
        let pools: BTreeSet<Name> =
            self.ledger.all_pools().filter(of_pool).map(|it| it.object.name.clone()).collect();
        self.refresh_statuses_of(&pools);
    }

    pub(super) fn announcing_problems(&self) -> Vec<Problem> {
        let pools: Vec<&AddressPool> = self.ledger.all_pools().collect();
        let hosts: Vec<Labels> = self.index.hosts().map(|it| self.labels_of(&it.host)).collect();
        self.announcing.problems(&pools, &hosts, self.config.pools.cluster)
    }

    /// Whether hosts announce it, by what they say.
    pub(super) fn bgp_way(&self, ip: IpAddr) -> (AnnouncedReason, String) {
        let prefixes = self.prefixes_of(ip);
        let announces = |host: &HostReport| prefixes.iter().any(|it| host.bgp.routes.contains_key(it));
        if self.index.hosts().any(|host| announces(host)) {
            // Not which hosts, nor to whom: of each that comes or goes, the statuses of all Services would be written again.
            return (
                AnnouncedReason::Bgp,
                format!("{ip}: the hosts that serve this address announce it by BGP"),
            );
        }
        if self.announcing.peers().next().is_none() {
            let message = format!("{ip} is to be announced by BGP, but no BGPPeer exists");
            return (AnnouncedReason::BgpFailed, message);
        }
        let peers = || {
            let hosts = self.index.hosts();
            hosts.flat_map(|host| host.bgp.peers.iter().map(move |(name, it)| (&host.host, name, it)))
        };
        let is_well = peers().any(|(_, _, it)| it.what <= BgpSessionState::Connecting);
        let worst =
            peers().filter(|(_, _, it)| it.what > BgpSessionState::Connecting).max_by_key(|(.., it)| it.what);
        match worst.filter(|_| !is_well) {
            Some((host, name, it)) => (
                AnnouncedReason::BgpFailed,
                format!("{ip}: host {host} has no session with BGPPeer {name}: {}", why(it)),
            ),
            None => (
                AnnouncedReason::BgpPending,
                format!("{ip}: no host has reported yet that it announces this address by BGP"),
            ),
        }
    }

    /// As what it may be announced: itself, or a network that some advertisement aggregates it to.
    fn prefixes_of(&self, ip: IpAddr) -> Vec<IpNet> {
        let lengths = self.announcing.bgp().filter_map(|(_, it)| match ip {
            IpAddr::V4(_) => it.aggregation_v4,
            IpAddr::V6(_) => it.aggregation_v6,
        });
        let lengths: BTreeSet<u8> = lengths.collect();
        let aggregates = lengths.into_iter().rev().filter_map(|it| Some(IpNet::new(ip, it).ok()?.trunc()));
        [IpNet::from(ip)].into_iter().chain(aggregates).collect()
    }

    /// Of which of our addresses a host says another thing than before.
    pub(super) fn bgp_news(&self, before: &HostReport, now: &HostReport) -> BTreeSet<IpAddr> {
        let (was, is) = (&before.bgp.routes, &now.bgp.routes);
        let changed = was.keys().chain(is.keys()).filter(|it| was.get(it) != is.get(it));
        let changed: BTreeSet<&IpNet> = changed.collect();
        let mut ips = BTreeSet::new();
        for prefix in changed {
            let mut others = self.index.hosts().filter(|it| it.host != now.host);
            // What it announced, others announce as well.
            if was.contains_key(prefix) != is.contains_key(prefix)
                && !others.any(|it| it.bgp.routes.contains_key(prefix))
            {
                ips.extend(self.addresses.range(prefix.network()..=prefix.broadcast()).map(|(ip, _)| *ip));
            }
        }
        // What keeps a session from being there is told of addresses that nothing announces.
        let states = |it: &HostReport| {
            it.bgp
                .peers
                .iter()
                .map(|(name, it)| (name.clone(), it.what, it.detail.clone()))
                .collect::<Vec<_>>()
        };
        if states(before) != states(now) {
            let silent =
                |ip: &&IpAddr| self.asks(**ip, Protocol::Bgp) && self.bgp_way(**ip).0 != AnnouncedReason::Bgp;
            ips.extend(self.addresses.keys().filter(silent));
        }
        ips
    }

    pub(super) fn asks(&self, ip: IpAddr, protocol: Protocol) -> bool {
        self.pool_of(ip).is_some_and(|pool| self.announcing.asks(pool, protocol))
    }

    /// What keeps its addresses from being announced.
    pub(super) fn bgp_problems(&self, owner: &Owner, state: &OwnerState) -> Vec<Problem> {
        let ips = state.planned.load_balancer.binds.iter().filter_map(|bind| match bind {
            Bind::Ledger(ip) if self.asks(*ip, Protocol::Bgp) => Some(*ip),
            _ => None,
        });
        let problem = |ip: IpAddr| {
            // With `auto`, one of both is enough.
            let is_auto = self.pool_of(ip).is_some_and(|it| it.announce == Some(AnnounceMode::Auto));
            if is_auto && self.hosts_way(ip).0 != AnnouncedReason::BgpFailed {
                return None;
            }
            let (AnnouncedReason::BgpFailed, message) = self.bgp_way(ip) else { return None };
            let problem = Problem::new(owner.object(), Reason::BGPFailed, message);
            Some(problem.fix("Look at the sessions (kubectl seaway status) and at the BGPPeers: docs/bgp.md has what both sides need."))
        };
        ips.filter_map(problem).collect()
    }
}

/// Put there by Seaway. An address that the machine has itself, as by keepalived, is not ours to announce.
pub(super) fn is_held(own: &HostReport, ip: IpAddr) -> bool {
    own.holds.contains(&ip) && !own.addresses.contains(&ip)
}

pub(super) fn is_in_network(own: &HostReport, ip: IpAddr) -> bool {
    own.networks.iter().any(|it| it.contains(&ip))
}

fn why(it: &PeerReport) -> &str {
    match (it.what, it.detail.as_str()) {
        (BgpSessionState::NoPassword, "") => "the password of the session cannot be read",
        (BgpSessionState::NotPermitted, "") => "the host lacks a capability",
        (_, "") => "the host reports no reason; see the log of seaway on that host",
        (_, detail) => detail,
    }
}
