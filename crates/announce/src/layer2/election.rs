//! Which of several hosts announces an address: the order of MetalLB's, so that a migration moves nothing.

use std::net::IpAddr;

use aws_lc_rs::digest::{Digest, SHA256, digest};

/// The host with the least rank comes first.
pub(crate) fn rank(host: &str, address: IpAddr) -> [u8; 32] {
    hashed(&format!("{host}#{}", address.to_canonical()))
}

/// Says in few bytes whom a host hears.
pub(crate) fn short(host: &str) -> u64 {
    hashed(host).iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn hashed(text: &str) -> [u8; 32] {
    let whole: Digest = digest(&SHA256, text.as_bytes());
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(whole.as_ref()).for_each(|(to, from)| *to = *from);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(hosts: &[&'static str], address: &str) -> Vec<&'static str> {
        let address = address.parse().expect("an address");
        let mut hosts = hosts.to_vec();
        hosts.sort_by_key(|host| rank(host, address));
        hosts
    }

    /// By Python: `sorted(hosts, key=lambda it: hashlib.sha256(f"{it}#{ip}".encode()).digest())`.
    #[test]
    fn the_order_is_that_of_metallb() {
        let hosts = ["node-1", "node-2", "node-3", "worker.example.org"];
        for (address, wanted) in [
            ("192.0.2.1", ["node-1", "node-2", "worker.example.org", "node-3"]),
            ("192.0.2.2", ["node-3", "worker.example.org", "node-1", "node-2"]),
            ("192.0.2.10", ["node-1", "worker.example.org", "node-2", "node-3"]),
            ("10.0.0.1", ["node-3", "node-2", "worker.example.org", "node-1"]),
            ("203.0.113.255", ["worker.example.org", "node-1", "node-3", "node-2"]),
            ("2001:db8::1", ["node-1", "worker.example.org", "node-2", "node-3"]),
            ("2001:db8:0:1::", ["node-2", "node-1", "node-3", "worker.example.org"]),
            ("fd00::1:0:0:1", ["worker.example.org", "node-1", "node-2", "node-3"]),
        ] {
            assert_eq!(order(&hosts, address), wanted, "{address}");
        }
        let first = rank("node-1", "::ffff:192.0.2.1".parse().expect("an address"));
        assert_eq!(first[..4], [0x12, 0x99, 0xc7, 0x40], "an IPv4 address in whatever form");
    }

    #[test]
    fn a_host_more_moves_only_the_addresses_that_it_wins() {
        let hosts = ["a", "b", "c", "d"];
        let mut won = 0;
        for last in 0..=255_u8 {
            let address = format!("192.0.2.{last}");
            let (before, after) = (order(&hosts[..3], &address), order(&hosts, &address));
            won += u32::from(after[0] == "d");
            assert!(after[0] == "d" || after[0] == before[0], "{address}");
        }
        assert!((32..96).contains(&won), "a fair share: {won}");
    }
}
