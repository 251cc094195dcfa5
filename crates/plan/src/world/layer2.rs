//! Addresses that hosts announce by ARP and NDP (`announce: l2`, or `auto`): what this host offers to announce, and what hosts say of it.
//!
//! ```text
//!     this host has the address, serves it, ──► it offers it ──► hosts agree who announces ──► each says what it does
//!     does not drain and is not excluded        (Layer2Wanted)   (announce/layer2)             (HostReport::layer2)
//! ```
//! A host knows of itself alone, at once, whether it may; so each offers for itself, and one of those that offer announces.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    AnnounceMode, Fact, Kind, ListenerId, Name, Owner, Problem, Reason, Time, Unit, WorkItem,
    announced::AnnouncedReason,
    bgp::BgpReport,
    fact::{AddressPool, HostReport, Labels},
    layer2::{Layer2Peer, Layer2Progress, Layer2State},
    load_balancer::{Bind, MemberState},
    outcome::ServingSocket,
    unit::Place,
};

use super::{
    World,
    bgp::{is_held, is_in_network},
    owners::OwnerState,
};
use crate::{announcing::Protocol, index::ServiceKey};

/// What this host is to announce, and with whom it agrees on that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer2Wanted {
    /// Some pool asks for it: other hosts hear this one, though it has nothing to offer.
    pub asked: bool,
    pub peers: Vec<Layer2Peer>,
    /// Also while there is no other host: one may come at any time.
    pub needs_key: bool,
    /// Those that this host serves now.
    pub offered: BTreeSet<IpAddr>,
    /// Of those that may be announced on some interfaces only: on which.
    pub interfaces: BTreeMap<IpAddr, BTreeSet<Name>>,
}

impl World {
    /// Nothing, where this is no host or not all is known yet: then it stays as it was.
    pub fn layer2(&self) -> Option<Layer2Wanted> {
        let is_known =
            self.are_listed(&[Kind::L2Advertisement]) || self.settled && self.announcing.are_all_refused();
        let host = self.roles.host.as_ref().filter(|_| is_known)?;
        let own = self.index.host(host)?;
        let asks = |pool: &AddressPool| self.announcing.asks(pool, Protocol::Layer2);
        let asked = self.ledger.all_pools().any(asks) || !own.layer2.is_empty();
        if !asked {
            return Some(Layer2Wanted::default());
        }
        let (mut offered, mut interfaces) = (BTreeSet::new(), BTreeMap::new());
        if !self.is_out(host) {
            let labels = self.labels_of(host);
            // Those that are not known yet may be there.
            let has_peers = !self.synced.contains(&Kind::BGPPeer) || self.announcing.has_sessions(&labels);
            for (ip, owners) in self.present().addresses {
                let Some(on) = self.offers(own, ip, &owners, &labels, has_peers) else { continue };
                offered.insert(ip);
                interfaces.extend(Some((ip, on)).filter(|(_, on)| !on.is_empty()));
            }
        }
        let needs_key = self.config.pools.cluster;
        Some(Layer2Wanted { asked, peers: self.layer2_peers(host), needs_key, offered, interfaces })
    }

    /// On which interfaces, if at all; on any, if it names none.
    fn offers(
        &self,
        own: &HostReport,
        ip: IpAddr,
        owners: &[Owner],
        labels: &Labels,
        has_peers: bool,
    ) -> Option<BTreeSet<Name>> {
        let services = self.labels_of_services(owners, ip);
        if !is_held(own, ip) || services.is_empty() {
            return None;
        }
        let Some(pool) = self.pool_to_announce(ip) else {
            // A pool that cannot be seen withdraws nothing.
            let name = self.addresses.get(&ip).map(|it| it.pool.as_str());
            let is_unseen = name.is_some_and(|name| self.ledger.pools_called(name).next().is_none());
            return (is_unseen && own.layer2.contains_key(&ip)).then(BTreeSet::new);
        };
        // Elsewhere than in its network, a host with peers announces it by BGP.
        let is_auto = pool.announce == Some(AnnounceMode::Auto);
        if is_auto && has_peers && !own.networks.is_empty() && !is_in_network(own, ip) {
            return None;
        }
        self.announcing.interfaces(pool, labels, &services)
    }

    /// Some of its sockets are open: one that nobody can open does not take the others away. With `externalTrafficPolicy: Local`, it
    /// has a member here that takes new clients.
    pub(super) fn can_take_clients(&self, owner: &Owner, ip: IpAddr) -> bool {
        let Some(state) = self.owners.get(owner) else { return false };
        let is_local_only = state.demand.as_ref().is_some_and(|it| it.service.local_only);
        let load_balancer = &state.planned.load_balancer;
        let mut members = load_balancer.pools.values().flat_map(|it| &it.members);
        let is_open = |at: &ServingSocket| {
            let id = ListenerId { l4: at.protocol, port: at.port };
            at.ip == ip && load_balancer.listeners.contains_key(&id)
        };
        let mut serving =
            state.units.iter().filter_map(|it| self.outcomes.get(it)).flat_map(|it| &it.serving);
        load_balancer.binds.contains(&Bind::Ledger(ip))
            && (!is_local_only || members.any(|it| it.state == MemberState::Ready))
            && serving.any(is_open)
    }

    /// All other hosts, those too that have not reported for a while: they may announce.
    fn layer2_peers(&self, own: &Name) -> Vec<Layer2Peer> {
        let hosts = self.index.hosts().chain(self.silent.reports());
        let mut peers: BTreeMap<Name, Vec<IpAddr>> = (hosts.filter(|it| it.host != *own))
            .map(|it| {
                // Of a Node, not those of its bridges and tunnels.
                let node = self.index.node(&it.host);
                let of_node = node.map(|it| it.addresses.clone()).filter(|it| !it.is_empty());
                (it.host.clone(), of_node.unwrap_or_else(|| it.own_addresses()))
            })
            .collect();
        let written = self.config.layer2.peers.iter().filter(|it| it.name != *own);
        peers.extend(written.map(|it| (it.name.clone(), it.addresses.clone())));
        peers.into_iter().map(|(name, addresses)| Layer2Peer { name, addresses }).collect()
    }

    /// Whether clients still come by this host's word: its sockets stay open so long, however it drains.
    pub(super) fn still_announces(&self) -> bool {
        let own = self.roles.host.as_ref().and_then(|host| self.index.host(host));
        own.is_some_and(|own| announces(own))
    }

    /// A host that drains closes its sockets once it announces nothing any more.
    pub(super) fn note_layer2(&mut self, before: Option<&HostReport>, now: &HostReport) {
        let is_ours = self.roles.host.as_ref() == Some(&now.host);
        if is_ours && self.drains && before.is_some_and(announces) && !announces(now) {
            let here = |unit: &&Unit| matches!(unit, Unit::LoadBalancer(Place::Host { .. }, _));
            self.dirt.extend(self.unit_owners.keys().filter(here).cloned().map(WorkItem::Unit));
        }
    }

    /// Whether what this host may announce, or what is told of it, may be another by it, though no Unit is.
    pub fn concerns_announcing(&self, fact: &Fact) -> bool {
        let Some(host) = self.roles.host.as_ref() else { return false };
        match fact {
            Fact::Host(report) => self.index.host(&report.host) != Some(report),
            Fact::Node(node) => node.meta.name == *host,
            Fact::AddressPool(_) | Fact::Announcing(_) => true,
            Fact::Secret(it) => self.announcing.names_secret(&it.object),
            // Advertisements select by them.
            Fact::Service(it) => {
                let key = ServiceKey::new(it.meta.namespace.clone(), it.meta.name.clone());
                self.index.service(&key).is_some_and(|before| before.meta.labels != it.meta.labels)
            }
            _ => false,
        }
    }

    /// A host does not hear each word of others: what one of them announced a while ago tells it nothing.
    pub(super) fn without_old_news(&self, report: &Arc<HostReport>, is_ours: bool) -> Arc<HostReport> {
        if is_ours || self.roles.host.is_none() || report.layer2.is_empty() && report.bgp.is_empty() {
            return report.clone();
        }
        let (layer2, bgp) = (BTreeMap::new(), BgpReport::default());
        Arc::new(HostReport { layer2, bgp, ..HostReport::clone(report) })
    }

    /// Whether hosts announce it, by what they say.
    pub(super) fn layer2_way(&self, ip: IpAddr) -> (AnnouncedReason, String) {
        let said = || self.index.hosts().filter_map(move |host| Some((&host.host, host.layer2.get(&ip)?)));
        let announcing: Vec<(&Name, &Layer2State)> =
            said().filter(|(_, it)| it.what == Layer2Progress::Announcing).collect();
        // Of several, one has not heard of the other yet.
        if let Some((host, state)) = announcing.iter().max_by_key(|(_, it)| it.since) {
            let (interface, since) = (&state.interface, utc(state.since));
            return (
                AnnouncedReason::Layer2,
                format!("{ip}: host {host} announces this address on {interface} since {since}"),
            );
        }
        // Without a cluster, the other host says so to this one alone.
        let by_another = said().find(|(_, it)| it.what == Layer2Progress::Standby && !it.detail.is_empty());
        if let Some((host, state)) = by_another {
            let message = format!("{ip}: host {} announces this address, reports host {host}", state.detail);
            return (AnnouncedReason::Layer2, message);
        }
        // A host that asks the network first may announce it in a moment, whatever others lack.
        let is_probing = said().any(|(_, it)| it.what == Layer2Progress::Probing);
        let failed = said().filter(|(_, it)| it.what > Layer2Progress::Probing && !is_probing);
        let worst = failed.max_by_key(|(_, it)| {
            // A conflict is what all hosts have in common.
            (is_conflict(it.what), it.what)
        });
        match worst {
            Some((host, state)) => {
                (AnnouncedReason::Layer2Failed, format!("{ip}: host {host} {}", why(state)))
            }
            None => (
                AnnouncedReason::Layer2Pending,
                format!("{ip}: no host has reported yet that it announces this address (announce: l2)"),
            ),
        }
    }

    /// What keeps its addresses from being announced.
    pub(super) fn layer2_problems(&self, owner: &Owner, state: &OwnerState) -> Vec<Problem> {
        let ips = state.planned.load_balancer.binds.iter().filter_map(|bind| match bind {
            Bind::Ledger(ip) if self.asks(*ip, Protocol::Layer2) => Some(*ip),
            _ => None,
        });
        let problem = |ip: IpAddr| {
            // With `auto`, one of both is enough.
            let is_auto = self.pool_of(ip).is_some_and(|it| it.announce == Some(AnnounceMode::Auto));
            if is_auto && self.hosts_way(ip).0 != AnnouncedReason::Layer2Failed {
                return None;
            }
            let (AnnouncedReason::Layer2Failed, message) = self.layer2_way(ip) else { return None };
            let said = self.index.hosts().filter_map(|host| host.layer2.get(&ip)).map(|it| it.what);
            let what: BTreeSet<Layer2Progress> = said.collect();
            let (reason, fix) = match () {
                () if what.iter().any(|it| is_conflict(*it)) => (
                    Reason::AddressConflict,
                    "Give that machine another address, or take the address out of the pool. Hosts probe the address again every \
                     10 seconds.",
                ),
                () if what.contains(&Layer2Progress::NotPermitted) => (Reason::NotPermitted, self.raw_fix()),
                () if what.contains(&Layer2Progress::NoKey) => (Reason::Layer2Failed, self.key_fix()),
                () if what.contains(&Layer2Progress::NoInterface) => (
                    Reason::Layer2Failed,
                    "Give a host's interface an address of the same network, or take addresses of the hosts' network into the \
                     pool. Where a router has a route to the hosts, set announce: static in the AddressPool.",
                ),
                () => (Reason::Layer2Failed, "See docs/layer2.md for what hosts need to announce addresses."),
            };
            Some(Problem::new(owner.object(), reason, message).fix(fix))
        };
        ips.filter_map(problem).collect()
    }

    fn key_fix(&self) -> &'static str {
        if self.config.pools.cluster {
            "Make a key, which hosts read within a minute: kubectl -n seaway-system create secret generic seaway-layer2 \
             --from-literal=key=\"$(openssl rand -hex 32)\" (docs/layer2.md)"
        } else {
            "Make a key: (umask 077; openssl rand -hex 32 > /etc/seaway/layer2.key), copy that file to each host, and name it in \
             seaway.yaml: layer2: {keyFile: /etc/seaway/layer2.key}"
        }
    }

    fn raw_fix(&self) -> &'static str {
        if self.config.pools.cluster {
            "Add the capability NET_RAW to the DaemonSet seaway-node: deploy/kubernetes/components/layer2 does (docs/layer2.md)"
        } else {
            "Start seaway as root, or under systemd with AmbientCapabilities=CAP_NET_RAW beside those that it has (docs/layer2.md)"
        }
    }
}

fn announces(host: &HostReport) -> bool {
    host.layer2.values().any(|it| it.what.is_announcing()) || !host.bgp.routes.is_empty()
}

fn is_conflict(what: Layer2Progress) -> bool {
    matches!(what, Layer2Progress::Conflict | Layer2Progress::Contested)
}

fn why(state: &Layer2State) -> String {
    let why = match state.what {
        Layer2Progress::Contested => {
            return format!(
                "announces this address, and another machine answers for it, too ({})",
                state.detail
            );
        }
        Layer2Progress::Conflict => format!("another machine answers for this address ({})", state.detail),
        Layer2Progress::NoInterface => "no interface of the host has an address of that network".to_owned(),
        Layer2Progress::NoKey => "the host has no key to agree with other hosts (layer2.keyFile)".to_owned(),
        Layer2Progress::NotPermitted => {
            "the host lacks the Linux capability NET_RAW, or another process uses the UDP port of heartbeats"
                .to_owned()
        }
        Layer2Progress::Isolated => "the host hears no other host and reaches no gateway".to_owned(),
        Layer2Progress::Announcing | Layer2Progress::Standby | Layer2Progress::Probing => {
            state.what.as_str().to_owned()
        }
        Layer2Progress::Failed => state.detail.to_string(),
    };
    format!("does not announce this address: {why}")
}

/// `2026-11-27T17:05:03Z`.
#[allow(
    clippy::arithmetic_side_effects,
    reason = "a part is never more than the whole of which it is taken, and 64 bits of milliseconds are no more than 2^54 seconds"
)]
fn utc(time: Time) -> String {
    let seconds = time.0 / 1_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0: then a leap day is the last of its year.
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_people_and_the_api_write_it() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_795_798_984_000, "2026-11-27T17:03:04Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(Time(milliseconds)), text);
        }
    }
}
