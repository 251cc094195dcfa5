//! The Ethernet interfaces of this machine, and which of them has the subnet of an address.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use nix::{
    ifaddrs::getifaddrs,
    net::if_::InterfaceFlags,
    sys::socket::{LinkAddr, SockProtocol, SockaddrStorage},
};

use seaway_model::Name;

use super::{settings::Mac, state::SubnetInterface};
use crate::netlink::{
    NetlinkSocket,
    message::{Request, attributes, u32_at},
};

const ETHERNET: u16 = 1;
/// A root name server: the default route leads there, and no filter of bogus networks has it. Nothing is sent.
const FAR_AWAY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)),
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interfaces(BTreeMap<u32, Interface>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) mac: Mac,
    /// As sockets are bound to it.
    pub(crate) link: LinkAddr,
    /// Its addresses, with the lengths of their prefixes.
    addresses: Vec<(IpAddr, u8)>,
}

impl Interfaces {
    /// Those that are up and have a carrier.
    pub(crate) fn observe() -> io::Result<Interfaces> {
        let usable = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let unusable = InterfaceFlags::IFF_NOARP | InterfaceFlags::IFF_POINTOPOINT;
        let is_usable = |flags: InterfaceFlags| flags.contains(usable) && !flags.intersects(unusable);
        let all: Vec<_> = getifaddrs()?.filter(|it| is_usable(it.flags)).collect();
        let mut addresses: BTreeMap<&str, Vec<(IpAddr, u8)>> = BTreeMap::new();
        for it in &all {
            let address = it
                .address
                .as_ref()
                .zip(it.netmask.as_ref())
                .and_then(|(at, mask)| address_and_prefix(at, mask));
            addresses.entry(&it.interface_name).or_default().extend(address);
        }
        let mut found = BTreeMap::new();
        for it in &all {
            let Some(link) = it.address.as_ref().and_then(SockaddrStorage::as_link_addr) else { continue };
            let mac = link.addr().map(Mac).filter(|mac| mac.is_unicast());
            let (Some(mac), Ok(index)) = (mac, u32::try_from(link.ifindex())) else { continue };
            if link.hatype() == ETHERNET && link.halen() == mac.0.len() {
                let name = it.interface_name.clone();
                let addresses = addresses.get(&*name).cloned().unwrap_or_default();
                found.insert(index, Interface { name, mac, link: *link, addresses });
            }
        }
        Ok(Interfaces(found))
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Interface> {
        self.0.get(&index)
    }

    /// Where it would be announced, on one of these interfaces `only`. Not where an interface has it itself: then the kernel answers.
    pub(crate) fn place(&self, address: IpAddr, only: Option<&BTreeSet<Name>>) -> Option<SubnetInterface> {
        if self.0.values().any(|it| it.addresses.iter().any(|(own, _)| *own == address)) {
            return None;
        }
        let fits = |(own, prefix): &(IpAddr, u8)| contains(*own, *prefix, address).then_some(*prefix);
        let longest = |it: &Interface| it.addresses.iter().filter_map(fits).max();
        let may = |it: &Interface| only.is_none_or(|only| only.contains(it.name.as_str()));
        let found = self.0.iter().filter(|(_, it)| may(it));
        let all = found.filter_map(|(index, it)| Some((longest(it)?, *index, it.mac)));
        let best = all.max_by_key(|(prefix, index, _)| (*prefix, std::cmp::Reverse(*index)));
        best.map(|(_, link, mac)| SubnetInterface { link, mac })
    }

    /// An address of ours in the subnet of another.
    pub(crate) fn beside(&self, index: u32, other: IpAddr) -> Option<IpAddr> {
        let addresses = &self.get(index)?.addresses;
        addresses.iter().find(|(own, prefix)| contains(*own, *prefix, other)).map(|(own, _)| *own)
    }
}

fn address_and_prefix(address: &SockaddrStorage, mask: &SockaddrStorage) -> Option<(IpAddr, u8)> {
    let (address, ones): (IpAddr, u32) =
        if let (Some(address), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
            (address.ip().into(), mask.ip().to_bits().count_ones())
        } else {
            let (address, mask) = (address.as_sockaddr_in6()?, mask.as_sockaddr_in6()?);
            (address.ip().into(), mask.ip().to_bits().count_ones())
        };
    Some((address, u8::try_from(ones).ok()?))
}

/// Whether an address is in the subnet of another. A prefix that is a single address is no subnet.
fn contains(own: IpAddr, prefix: u8, address: IpAddr) -> bool {
    match (own, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => {
            let rest = 32_u32.saturating_sub(prefix.into());
            let part = |it: Ipv4Addr| it.to_bits().checked_shr(rest).unwrap_or(0);
            (1..32).contains(&rest) && part(own) == part(address)
        }
        (IpAddr::V6(own), IpAddr::V6(address)) => {
            let rest = 128_u32.saturating_sub(prefix.into());
            let part = |it: u128| it.checked_shr(rest).unwrap_or(0);
            (1..128).contains(&rest) && part(own.to_bits()) == part(address.to_bits())
        }
        _ => false,
    }
}

/// The router of the default route, and the interface that leads there. Of two, that of IPv4.
pub(crate) fn gateway() -> io::Result<Option<(u32, IpAddr)>> {
    let mut socket = NetlinkSocket::open(SockProtocol::NetlinkRoute)?;
    for to in FAR_AWAY {
        let answer =
            socket.ask(question(to), |kind, payload| (kind == libc::RTM_NEWROUTE).then(|| route(payload)));
        match answer {
            Ok(Some(Some(found))) => return Ok(Some(found)),
            Ok(_) => {}
            // No route; or the kernel lacks the family.
            Err(error) if error.raw_os_error().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn question(to: IpAddr) -> Request {
    // struct rtmsg: family, length of the destination, and what is not said.
    let asked = |family: i32, octets: &[u8]| {
        let mut header = [0_u8; 12];
        let [its_family, length, ..] = &mut header;
        *its_family = u8::try_from(family).unwrap_or(0);
        *length = u8::try_from(octets.len().saturating_mul(8)).unwrap_or(0);
        Request::new(libc::RTM_GETROUTE, &header).attribute(libc::RTA_DST, octets)
    };
    match to {
        IpAddr::V4(to) => asked(libc::AF_INET, &to.octets()),
        IpAddr::V6(to) => asked(libc::AF_INET6, &to.octets()),
    }
}

fn route(payload: &[u8]) -> Option<(u32, IpAddr)> {
    let (mut link, mut gateway) = (None, None);
    for (kind, value) in attributes(payload.get(12..)?) {
        match kind {
            libc::RTA_OIF => link = u32_at(value, 0),
            libc::RTA_GATEWAY => {
                let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
                gateway = v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok();
            }
            _ => {}
        }
    }
    Some((link?, gateway?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_has_its_addresses_and_a_single_address_is_none() {
        for (own, prefix, address, is_in) in [
            ("192.0.2.1", 24, "192.0.2.255", true),
            ("192.0.2.1", 24, "192.0.3.1", false),
            ("192.0.2.1", 32, "192.0.2.1", false),
            ("192.0.2.1", 31, "192.0.2.0", true),
            ("192.0.2.1", 0, "203.0.113.1", false),
            ("192.0.2.1", 24, "2001:db8::1", false),
            ("2001:db8::1", 64, "2001:db8::ffff:1", true),
            ("2001:db8::1", 64, "2001:db8:0:1::1", false),
            ("2001:db8::1", 128, "2001:db8::1", false),
        ] {
            let parsed = |text: &str| text.parse().expect("an address");
            assert_eq!(contains(parsed(own), prefix, parsed(address)), is_in, "{own}/{prefix}: {address}");
        }
    }

    #[test]
    fn an_address_is_announced_on_an_interface_that_it_may_be_announced_on_or_on_none() {
        let mut all = getifaddrs().expect("interfaces").filter_map(|it| it.address?.as_link_addr().copied());
        let link = all.next().expect("there is lo");
        let interface = |name: &str, index: u8, prefix| {
            let addresses = vec![(IpAddr::from([192, 0, 2, index]), prefix)];
            (index.into(), Interface { name: name.into(), mac: Mac([2, 0, 0, 0, 0, index]), link, addresses })
        };
        let all = Interfaces([interface("eth0", 1, 24), interface("eth1", 2, 16)].into());
        let address = IpAddr::from([192, 0, 2, 9]);
        let only = |names: &[&str]| names.iter().map(|it| Name::from(*it)).collect::<BTreeSet<_>>();
        let place = |names: Option<&[&str]>| all.place(address, names.map(only).as_ref()).map(|it| it.link);
        assert_eq!(place(None), Some(1), "the narrower network");
        assert_eq!(place(Some(&["eth1", "eth9"])), Some(2));
        assert_eq!(place(Some(&["eth9"])), None);
    }
}
