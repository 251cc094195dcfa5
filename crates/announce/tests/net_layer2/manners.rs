//! What is announced beside others, and what is not.

use std::net::{Ipv4Addr, UdpSocket};

use seaway_testkit::topology::{in_a_network_of_its_own, until};

use crate::{
    clients::{ARP, IPV6, Pinger, Tap, answers, arp},
    lan::{Lan, V4, V6, ip, mac},
};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

fn address() -> Ipv4Addr {
    V4.parse().expect("an address")
}

fn written(mac: [u8; 6]) -> String {
    mac.map(|it| format!("{it:02x}")).join(":")
}

#[test]
fn an_address_that_another_machine_has_is_a_conflict_and_nothing_is_sent() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(1);
        lan.client.address("eth0", &format!("{V4}/24"));
        lan.client.address("eth0", &format!("{V6}/64"));
        let (arps, ndps) = (Tap::open(&lan.client, ARP), Tap::open(&lan.client, IPV6));
        lan.start(0, &format!("{V4},{V6}"));
        let (ours, theirs) = (written(lan.hosts[0].mac()), written(mac(&lan.client)));
        until("both are in conflict", || {
            let states = lan.hosts[0].states();
            states.matches("Conflict").count() == 2 && states.matches("answering: false").count() == 2
        });
        let states = lan.hosts[0].states();
        let bytes = |text: &str| {
            let bytes: Vec<String> = text
                .split(':')
                .map(|it| u8::from_str_radix(it, 16).expect("hexadecimal").to_string())
                .collect();
            format!("Mac([{}])", bytes.join(", "))
        };
        assert!(states.contains(&bytes(&ours)) && states.contains(&bytes(&theirs)), "{states}");
        // But for probes, nothing that names the address comes from us.
        let mac = lan.hosts[0].mac();
        let arps: Vec<_> = arps.heard().into_iter().filter(|it| it[6..12] == mac).collect();
        assert!(arps.iter().any(|it| it[28..32] == [0; 4] && it[38..42] == address().octets()), "probes");
        assert!(!arps.iter().any(|it| it[28..32] == address().octets()), "{arps:?}");
        let advertised = |it: &Vec<u8>| it.len() > 54 && it[6..12] == mac && it[54] == 136;
        assert!(!ndps.heard().iter().any(advertised));
    });
}

#[test]
fn an_address_that_another_machine_takes_is_defended_and_told() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(1);
        lan.start(0, V4);
        lan.hosts[0].until_it_says("what: Announcing");
        let (tap, own) = (Tap::open(&lan.client, ARP), mac(&lan.client));
        tap.send(&arp([0xff; 6], 1, (own, address()), address()));
        lan.hosts[0].until_it_says("Conflict");
        assert!(lan.hosts[0].states().contains("answering: true"));
        assert!(lan.hosts[0].states().contains("conflicts: 1"));
        let mac = lan.hosts[0].mac();
        until("it is defended", || {
            tap.heard().iter().any(|it| it[6..12] == mac && it[28..32] == address().octets())
        });
    });
}

#[test]
fn requests_are_answered_to_who_asks_and_frames_for_others_are_not() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(1);
        lan.start(0, V4);
        lan.hosts[0].until_it_says("what: Announcing");
        let (tap, own, host) = (Tap::open(&lan.client, ARP), mac(&lan.client), lan.hosts[0].mac());
        let ask = |to: [u8; 6], target: Ipv4Addr| {
            tap.heard();
            tap.send(&arp(to, 1, (own, CLIENT), target));
            // Behind it: what is answered for sure.
            tap.send(&arp([0xff; 6], 1, (own, CLIENT), Ipv4Addr::new(10, 77, 0, 1)));
            let mut all = Vec::new();
            until("the machine answers for itself", || {
                all.extend(tap.heard());
                !answers(&all, Ipv4Addr::new(10, 77, 0, 1), own).is_empty()
            });
            // Ours may come behind the kernel's.
            let begun = std::time::Instant::now();
            while begun.elapsed().as_millis() < 300 && answers(&all, target, own).is_empty() {
                std::thread::park_timeout(std::time::Duration::from_millis(5));
                all.extend(tap.heard());
            }
            answers(&all, target, own)
        };
        assert_eq!(ask([0xff; 6], address()), [host]);
        assert_eq!(ask(host, address()), [host], "as clients ask again");
        assert_eq!(ask([0xff; 6], Ipv4Addr::new(10, 77, 0, 101)), [[0; 6]; 0], "not ours");
        // As a switch floods what it does not know; the interface hears it by itself if it is promiscuous.
        lan.hosts[0].namespace.ip(&["link", "set", "eth0", "promisc", "on"]);
        assert_eq!(ask([2, 9, 9, 9, 9, 9], address()), [[0; 6]; 0], "for another machine");
    });
}

#[test]
fn nothing_is_announced_without_a_key_or_without_a_subnet() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(2);
        let elsewhere = "10.78.0.1";
        lan.start_with(0, V4, "");
        lan.start(1, elsewhere);
        lan.hosts[0].until_it_says("NoKey");
        lan.hosts[1].until_it_says("NoInterface");
        let tap = Tap::open(&lan.client, ARP);
        tap.send(&arp([0xff; 6], 1, (mac(&lan.client), CLIENT), address()));
        lan.hosts[1].namespace.address("eth0", "10.78.0.200/24");
        lan.hosts[1].until_it_says("what: Announcing");
        assert!(answers(&tap.heard(), address(), mac(&lan.client)).is_empty());
    });
}

#[test]
fn what_is_missing_is_told_and_asked_for_again() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(2);
        lan.start_restricted(0, V4);
        lan.hosts[0].until_it_says("NotPermitted");
        assert!(lan.hosts[0].states().contains("answering: false"));
        // Another program has the port of heartbeats.
        let port = lan.hosts[1].namespace.run(|| UdpSocket::bind("0.0.0.0:1939")).expect("it is free");
        lan.start(1, V4);
        lan.hosts[1].until_it_says("NotPermitted");
        drop(port);
        lan.hosts[1].until_it_says("what: Announcing");
    });
}

#[test]
fn a_host_with_the_key_counts_before_others_were_told_of_it() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(2);
        lan.knows = Some(0);
        lan.start(0, V4);
        lan.hosts[0].until_it_says("what: Announcing");
        lan.knows = None;
        lan.start(1, V4);
        // One of both, as the order has it; and no conflict.
        until("both know who announces it", || {
            let states = lan.hosts.iter().map(|it| it.states()).collect::<String>();
            states.matches("what: Announcing").count() == 1 && states.matches("what: Standby").count() == 1
        });
        assert!(lan.hosts.iter().all(|it| it.states().contains("conflicts: 0")));
    });
}

#[test]
fn hosts_listen_for_who_asks_for_their_ipv6_addresses_while_they_announce_them() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(1);
        let group = "ff02::1:ff00:100";
        let listens =
            |lan: &Lan| lan.hosts[0].namespace.ip(&["-6", "maddr", "show", "dev", "eth0"]).contains(group);
        assert!(!listens(&lan));
        lan.start(0, V6);
        lan.hosts[0].until_it_says("what: Announcing");
        until("switches send it what asks for the address", || listens(&lan));
        lan.hosts[0].tell("want ").expect("it heard");
        until("it left", || !listens(&lan));
    });
}

#[test]
fn hosts_with_different_keys_find_a_conflict_instead_of_two_owners() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(2);
        lan.start(0, V4);
        lan.hosts[0].until_it_says("what: Announcing");
        lan.start_with(1, V4, "another secret of thirty-two characters");
        lan.hosts[1].until_it_says("Conflict");
        let pinger = Pinger::start(&lan.client, ip(V4));
        assert_eq!(pinger.until_answered(), "host-0");
    });
}

/// The network may be at an interface that is made of another one.
#[test]
fn a_host_answers_at_a_bridge_and_at_a_macvlan_interface() {
    for made in ["bridge", "macvlan"] {
        in_a_network_of_its_own(move || {
            let mut lan = Lan::new(1);
            let host = &lan.hosts[0].namespace;
            host.ip(&["address", "flush", "dev", "eth0"]);
            match made {
                "bridge" => {
                    host.ip(&["link", "add", "uplink", "type", "bridge"]);
                    host.ip(&["link", "set", "eth0", "master", "uplink", "up"]);
                }
                _ => drop(host.ip(&["link", "add", "uplink", "link", "eth0", "type", "macvlan"])),
            }
            host.ip(&["link", "set", "uplink", "up"]);
            host.address("uplink", "10.77.0.1/24");
            host.address("uplink", "fd77::1/64");
            host.route("default", "10.77.0.254");
            host.route("default", "fd77::254");
            let link = host.ip(&["-br", "link", "show", "dev", "uplink"]);
            let mac =
                link.split_whitespace().find(|it| it.matches(':').count() == 5).expect("a MAC").to_owned();
            lan.start(0, &format!("{V4},{V6}"));
            for to in [V4, V6] {
                let pinger = Pinger::start(&lan.client, ip(to));
                assert_eq!(pinger.until_answered(), "host-0", "{made} {to}");
                let told = lan.client.ip(&["neigh", "show", to, "dev", "eth0"]);
                assert!(told.contains(&mac), "{made} {to}: {told}, and not {mac}");
            }
            let states = lan.hosts[0].states();
            assert!(
                states.contains("interface: Some(\"uplink\")") && !states.contains("eth0"),
                "{made}: {states}"
            );
        });
    }
}
