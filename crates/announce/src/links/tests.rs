use std::io;

use super::*;

fn loopback() -> Link {
    Link { index: 1, name: LOOPBACK.to_owned(), up: true, loopback: true }
}

fn assigned(ip: &str, prefix: u8, link: u32, label: Option<&str>, mark: Option<u8>) -> AssignedAddress {
    AssignedAddress {
        ip: ip.parse().expect("an address"),
        prefix,
        link,
        label: label.map(str::to_owned),
        mark,
        lasts: true,
    }
}

fn ours(addresses: &[AssignedAddress], recorded: &[&str]) -> Vec<String> {
    let observed = ObservedLinks { links: vec![loopback()], addresses: addresses.to_vec() };
    let recorded = recorded.iter().map(|ip| ip.parse().expect("an address"));
    let held = observed.ours(&recorded.collect());
    held.iter().map(|held| held.ip().to_string()).collect()
}

#[test]
fn only_marked_or_labelled_single_addresses_on_the_loopback_are_ours() {
    let addresses = [
        assigned("127.0.0.1", 8, 1, Some("lo"), Some(1)),
        assigned("192.0.2.1", 32, 1, Some(LABEL), Some(ADDRESS_PROTOCOL)),
        assigned("192.0.2.2", 32, 1, Some(LABEL), None),
        assigned("192.0.2.3", 32, 1, Some(LABEL), Some(4)),
        assigned("192.0.2.4", 32, 1, Some("lo"), None),
        assigned("192.0.2.5", 24, 1, Some(LABEL), Some(ADDRESS_PROTOCOL)),
        assigned("192.0.2.6", 32, 2, Some(LABEL), Some(ADDRESS_PROTOCOL)),
        assigned("2001:db8::1", 128, 1, None, Some(ADDRESS_PROTOCOL)),
        assigned("2001:db8::2", 128, 1, None, None),
        assigned("2001:db8::3", 128, 2, None, Some(ADDRESS_PROTOCOL)),
    ];
    let recorded = ["2001:db8::2"];
    assert_eq!(ours(&addresses, &recorded), ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
}

#[test]
fn where_the_kernel_keeps_no_marks_the_record_tells_ipv6_addresses_apart() {
    let addresses = [
        assigned("127.0.0.1", 8, 1, Some("lo"), None),
        assigned("192.0.2.1", 32, 1, Some(LABEL), None),
        assigned("192.0.2.2", 32, 1, Some("lo"), None),
        assigned("2001:db8::1", 128, 1, None, None),
        assigned("2001:db8::2", 128, 1, None, None),
    ];
    let recorded = ["2001:db8::1", "192.0.2.2", "2001:db8::9"];
    assert_eq!(ours(&addresses, &recorded), ["192.0.2.1", "2001:db8::1"]);
}

#[test]
fn loopback_addresses_are_local_without_being_assigned() {
    let observed = ObservedLinks {
        links: vec![loopback()],
        addresses: vec![assigned("192.0.2.1", 24, 2, Some("eth0"), None)],
    };
    let local = |ip: &str| observed.is_local(ip.parse().expect("an address"));
    assert!(local("127.3.2.1") && local("::1") && local("192.0.2.1") && local("::ffff:192.0.2.1"));
    assert!(!local("192.0.2.2") && !local("2001:db8::1"));
}

#[test]
fn a_missing_capability_prints_what_to_type() {
    let check = |ip: &str, expected: &str| {
        let ip = ip.parse().expect("an address");
        let source = io::Error::from(Errno::EPERM);
        let error = Error::about_address("adding", ip, source, add_commands(ip));
        assert_eq!(error.to_string(), expected);
    };
    check(
        "192.0.2.10",
        "adding 192.0.2.10 needs the Linux capability NET_ADMIN; as root, either allow it with\n  \
         setcap cap_net_admin,cap_net_bind_service+ep seaway\n\
         or do it by hand with\n  ip address add 192.0.2.10/32 dev lo label lo:seaway\n  \
         sysctl -w net.ipv4.conf.all.arp_ignore=1\n  sysctl -w net.ipv4.conf.all.arp_announce=2",
    );
    check(
        "2001:db8::10",
        "adding 2001:db8::10 needs the Linux capability NET_ADMIN; as root, either allow it with\n  \
         setcap cap_net_admin,cap_net_bind_service+ep seaway\n\
         or do it by hand with\n  \
         ip address add 2001:db8::10/128 dev lo nodad noprefixroute preferred_lft 0",
    );
}
