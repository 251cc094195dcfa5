//! Hashes that every process computes alike: hosts of one cluster must send one client to one member.

use std::net::{IpAddr, SocketAddr};

/// The hash that a client's flows are placed by. An IPv4 client seen through IPv6 is the same client.
pub fn client_hash(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => mix(u64::from(ip.to_bits())),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            mix(mix((bits >> 64) as u64) ^ bits as u64)
        }
    }
}

/// Stafford's finalizer, as in splitmix64: every bit of the input changes half of the output.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A hash as a draw of the time that passes until something of rate 1 happens.
pub(crate) fn exponential(hash: u64) -> f64 {
    let uniform = ((hash >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    -uniform.ln()
}

pub(crate) fn member_hash(at: SocketAddr) -> u64 {
    mix(client_hash(at.ip()) ^ (u64::from(at.port()) << 48))
}
