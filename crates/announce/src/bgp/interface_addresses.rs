//! This host's addresses at a session: next hops, and whether the peer is beside it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ipnet::IpNet;
use seaway_model::bgp::PeerAddress;

use crate::{AssignedAddress, Links, ObservedLinks};

/// Addresses of the interface that has the one of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InterfaceAddresses {
    pub(super) v4: Option<Ipv4Addr>,
    pub(super) v6: Option<Ipv6Addr>,
    /// The peer is in one of its networks.
    pub(super) is_adjacent: bool,
}

impl InterfaceAddresses {
    pub(super) fn of(local: IpAddr, peer: IpAddr, observed: &ObservedLinks) -> InterfaceAddresses {
        let is_loopback = |index: u32| observed.links.iter().any(|it| it.loopback && it.index == index);
        let link = observed.addresses.iter().find(|it| it.ip == local).map(|it| it.link);
        let link = link.filter(|it| !is_loopback(*it));
        let of_link: Vec<&AssignedAddress> =
            observed.addresses.iter().filter(|it| Some(it.link) == link).collect();
        let network = |it: &AssignedAddress| IpNet::new(it.ip, it.prefix).ok();
        let is_link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(it) if it.is_unicast_link_local());
        // A single address may be another's tomorrow, as those are which keepalived moves: only where there is no other, as
        // those of DHCPv6.
        let is_stable =
            |it: &AssignedAddress| network(it).is_some_and(|it| it.prefix_len() < it.max_prefix_len());
        let other = |is_v4: bool| {
            let fits =
                |it: &&&AssignedAddress| it.ip.is_ipv4() == is_v4 && !is_link_local(&it.ip) && it.lasts;
            let all = || of_link.iter().filter(fits);
            all().find(|it| is_stable(it)).or_else(|| all().next()).map(|it| it.ip)
        };
        let v4 = || match other(true) {
            Some(IpAddr::V4(it)) => Some(it),
            _ => None,
        };
        let v6 = || match other(false) {
            Some(IpAddr::V6(it)) => Some(it),
            _ => None,
        };
        let is_adjacent = is_link_local(&peer)
            || of_link
                .iter()
                .any(|it| network(it).is_some_and(|it| it.contains(&peer) && it.prefix_len() > 0));
        let (v4, v6) = match local {
            IpAddr::V4(local) => (Some(local), v6()),
            // An unnumbered interface may have an address that the peer does not reach: IPv6 leads to us (RFC 8950).
            IpAddr::V6(local) if local.is_unicast_link_local() => (None, Some(local)),
            IpAddr::V6(local) => (v4(), Some(local)),
        };
        InterfaceAddresses { v4, v6, is_adjacent }
    }
}

/// The address by which the first peer sees this host: one of its own, and the same after a restart. Where peers have IPv6 alone, an
/// address of an interface, or a number made of one.
pub(super) fn router_id<'a>(peers: impl Iterator<Item = &'a PeerAddress> + Clone) -> Option<Ipv4Addr> {
    let local = peers.filter_map(|it| match it {
        PeerAddress::Ip { source: Some(source), .. } => Some(*source),
        PeerAddress::Ip { address, port, .. } => towards(*address, *port),
        PeerAddress::Interface(_) => None,
    });
    let v4 = |it: IpAddr| match it {
        IpAddr::V4(ip) => Some(ip).filter(|it| !it.is_unspecified() && !it.is_loopback()),
        IpAddr::V6(_) => None,
    };
    if let Some(id) = local.clone().find_map(v4) {
        return Some(id);
    }
    let observed = Links::open().and_then(|mut it| it.observe()).ok()?;
    let is_loopback = |index: u32| observed.links.iter().any(|it| it.loopback && it.index == index);
    let mut own: Vec<&AssignedAddress> =
        observed.addresses.iter().filter(|it| it.prefix != 32 && !is_loopback(it.link)).collect();
    own.sort_by_key(|it| it.link);
    let own = || own.iter().map(|it| it.ip);
    own().find_map(v4).or_else(|| {
        let octets = local.chain(own()).find_map(|ip| match ip {
            IpAddr::V6(ip) => Some(ip.octets()),
            IpAddr::V4(_) => None,
        })?;
        // FNV-1a. Not 0, which is no id.
        let hash = octets
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        Some(hash.max(1).into())
    })
}

/// Our address on the way to another; nothing is sent.
pub(super) fn towards(peer: IpAddr, port: u16) -> Option<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((peer, port)).ok()?;
    socket.local_addr().ok().map(|it| it.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Link;

    fn observed(addresses: &[(&str, u32, bool)]) -> ObservedLinks {
        let link = |index, loopback| Link { index, name: format!("e{index}"), up: true, loopback };
        let addresses = addresses.iter().map(|(text, link, lasts)| {
            let net: IpNet = text.parse().expect("an address");
            let (ip, prefix) = (net.addr(), net.prefix_len());
            AssignedAddress { ip, prefix, link: *link, label: None, mark: None, lasts: *lasts }
        });
        ObservedLinks {
            links: vec![link(1, true), link(2, false), link(3, false)],
            addresses: addresses.collect(),
        }
    }

    #[test]
    fn next_hops_are_lasting_addresses_of_the_interface_of_the_session() {
        let observed = observed(&[
            ("127.0.0.1/8", 1, true),
            ("192.0.2.1/32", 1, true),
            ("2001:db8:9::1/128", 1, true),
            ("10.0.0.2/24", 2, true),
            ("10.0.0.50/32", 2, true),
            ("2001:db8::50/128", 2, true),
            ("2001:db8::abcd/64", 2, false),
            ("2001:db8::2/64", 2, true),
            ("fe80::2/64", 2, true),
            ("10.1.0.2/24", 3, true),
            ("2001:db8:3::7/128", 3, true),
        ]);
        let of = |local: &str, peer: &str| {
            let ip = |text: &str| text.parse().expect("an address");
            let own = InterfaceAddresses::of(ip(local), ip(peer), &observed);
            let shown = |it: Option<IpAddr>| it.map_or("none".to_owned(), |it| it.to_string());
            (shown(own.v4.map(Into::into)), shown(own.v6.map(Into::into)), own.is_adjacent)
        };
        let told = |v4: &str, v6: &str, is_adjacent| (v4.to_owned(), v6.to_owned(), is_adjacent);
        assert_eq!(of("10.0.0.2", "10.0.0.1"), told("10.0.0.2", "2001:db8::2", true));
        assert_eq!(of("2001:db8::2", "2001:db8::1"), told("10.0.0.2", "2001:db8::2", true));
        assert_eq!(of("10.1.0.2", "10.9.0.1"), told("10.1.0.2", "2001:db8:3::7", false));
        assert_eq!(
            of("192.0.2.1", "10.9.0.1"),
            told("192.0.2.1", "none", false),
            "others on lo are not its own"
        );
        assert_eq!(of("fe80::2", "fe80::1"), told("none", "fe80::2", true));
    }
}
