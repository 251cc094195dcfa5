//! Addresses that endpoints may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::decode::Field;

/// Refuses what no endpoint can be, and tells whether it is one. The loopback may be one here, unlike in a cluster: a
/// folder is about this machine.
pub(super) fn endpoint(field: &Field<'_>, written: &str, ip: IpAddr) -> bool {
    let why = if ip.is_unspecified() {
        "may not be unspecified (0.0.0.0 or ::)"
    } else if link_local(ip) {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if link_local_multicast(ip) {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return true;
    };
    field.invalid(written, why);
    false
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::is_link_local(&ip),
        IpAddr::V6(ip) => Ipv6Addr::is_unicast_link_local(&ip),
    }
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(ip) => ip.to_bits() >> 112 & 0xff0f == 0xff02,
    }
}
