//! What follows from what the kernel has, which is made up here. The kernel itself is asked in `tests/net_presence.rs`.

use std::path::Path;

use seaway_announce::{AssignedAddress, Link};
use seaway_testkit::balancing::owner;

use super::*;

const IP: &str = "203.0.113.7";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn presence(named: &[&str]) -> Presence {
    Presence::new("edge-1".into(), named.iter().map(|it| ip(it)).collect(), [])
}

/// `lo` with an address that somebody else put there, an interface that is up, and one that is down.
fn observed() -> Observed {
    let link = |index, name: &str, up| Link { index, name: name.to_owned(), up, loopback: index == 1 };
    let address = |at: &str, prefix, link| AssignedAddress {
        ip: ip(at),
        prefix,
        link,
        label: None,
        mark: None,
        lasts: true,
    };
    let kernel = Kernel {
        links: vec![link(1, "lo", true), link(2, "eth0", true), link(3, "eth1", false)],
        addresses: vec![
            address("127.0.0.1", 8, 1),
            address("203.0.113.9", 32, 1),
            address("192.0.2.5", 24, 2),
            address("fe80::5", 64, 2),
            address("198.51.100.5", 24, 3),
        ],
    };
    Observed { local: kernel.local(), kernel, ..Observed::default() }
}

/// As on a host whose settings cannot be read.
fn unmet() -> Vec<UnmetSetting> {
    ArpSettings::at(Path::new("/nowhere")).observe(&reachable_links(&observed().kernel))
}

fn wanted(addresses: &[&str]) -> Desired {
    let addresses = addresses.iter().map(|it| (ip(it), [owner()].into())).collect();
    Desired::HostAddresses(HostAddresses { addresses, ..HostAddresses::default() })
}

#[test]
fn a_host_s_own_addresses_are_those_that_are_named_or_else_all_that_reach_out() {
    assert_eq!(presence(&[]).own(&observed()), [ip("192.0.2.5"), ip("203.0.113.9")]);
    assert_eq!(presence(&["192.0.2.5"]).own(&observed()), [ip("192.0.2.5")]);
    assert_eq!(presence(&[]).networks(&observed()), ["192.0.2.0/24".parse::<IpNet>().expect("a network")]);
}

#[test]
fn arp_is_settled_only_where_it_is_not() {
    assert_eq!(unmet().len(), 2);
    let presence = presence(&[]);
    for (unmet, expected) in
        [(Vec::new(), vec![Step::Add(ip(IP))]), (unmet(), vec![Step::SettleArp, Step::Add(ip(IP))])]
    {
        assert_eq!(presence.steps(&wanted(&[IP]), &Observed { unmet, ..observed() }), expected);
    }
}

#[test]
fn an_address_that_would_answer_arp_for_another_host_is_not_added_and_its_owner_is_told() {
    let (presence, mut observed) = (presence(&[]), Observed { unmet: unmet(), ..observed() });
    presence.add(ip(IP), &mut observed).expect("nothing is asked of the kernel");
    assert!(!observed.is_local(ip(IP)));
    let unit = Unit::HostAddresses("edge-1".into());
    let told = presence.conclude(&unit, &wanted(&[IP]), &observed);
    assert_eq!(told.again, Some(TRY_AGAIN));
    let [(whose, problem)] = &told.problems[..] else { panic!("{:?}", told.problems) };
    assert_eq!((whose, problem.reason), (&owner(), Reason::NotPermitted));
}

#[test]
fn without_rules_to_keep_nothing_is_looked_at_again() {
    let unit = Unit::HostAddresses("edge-1".into());
    for addresses in [&[][..], &[IP]] {
        assert_eq!(presence(&[]).conclude(&unit, &wanted(addresses), &observed()).again, None);
    }
}

#[test]
fn the_longer_a_look_takes_the_later_is_the_next_within_a_second() {
    for (took, expected) in [(0, 0), (4, 0), (5, 20), (100, 400), (250, 1_000), (9_000, 1_000)] {
        assert_eq!(rest(Duration::from_millis(took)), Duration::from_millis(expected), "{took} ms");
    }
}
