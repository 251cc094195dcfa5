//! Addresses on `lo` against the kernel: what listens on the machine for all addresses does not answer there.

use std::{
    io::{Read, Write},
    net::{IpAddr, TcpListener, UdpSocket},
    thread,
    time::Duration,
};

use seaway_announce::FirewallRules;
use seaway_testkit::topology::{connect_from, in_a_network_of_its_own, until};

use crate::scene::{OTHER, Scene, V4, V6, at, heard, ip};

#[test]
fn an_address_answers_at_its_own_ports_alone() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        // In the place of sshd, which listens for all addresses.
        scene.answers("[::]:22".parse().expect("an address"), "the machine");
        for address in [V4, V6] {
            scene.answers(at(address, 80), "a service");
            assert_eq!(scene.hears(at(address, 22)).as_deref(), Some("the machine"), "before: {address}");
        }
        scene.guard(&[ip(V4), ip(V6)]);
        for address in [V4, V6] {
            until("the service answers", || scene.hears(at(address, 80)).as_deref() == Some("a service"));
            assert_eq!(scene.hears(at(address, 22)), None, "{address}");
            // As where nothing listens: clients go on to another host at once.
            for port in [22, 23] {
                assert!(scene.is_refused(at(address, port)), "{address}, port {port}");
            }
            // From the machine itself, all is as it was.
            assert_eq!(heard(&scene.machine, at(address, 22)).as_deref(), Some("the machine"), "{address}");
        }
        // Its own addresses, and those that others put on lo, are not ours to guard.
        for address in ["10.9.0.2", "fd09::2", OTHER] {
            until("the machine answers", || scene.hears(at(address, 22)).as_deref() == Some("the machine"));
        }
        scene.machine.run(|| FirewallRules::remove(ip(V4))).expect("root may");
        until("it is guarded no more", || scene.hears(at(V4, 22)).is_some());
        assert_eq!(scene.hears(at(V6, 22)), None);
        scene.machine.run(|| FirewallRules::add(ip(V4))).expect("root may");
        assert_eq!(scene.hears(at(V4, 22)), None);
        scene
            .machine
            .run(|| FirewallRules::clear().and_then(|()| FirewallRules::clear()))
            .expect("nothing is left to clear");
        until("nothing is guarded", || [V4, V6].iter().all(|it| scene.hears(at(it, 22)).is_some()));
    });
}

#[test]
fn node_ports_do_not_answer_at_guarded_addresses() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        scene.answers("[::]:22".parse().expect("an address"), "a pod");
        let rules = "add table ip proxy; add chain ip proxy in { type nat hook prerouting priority dstnat; }; \
                     add rule ip proxy in fib daddr type local tcp dport 30080 redirect to :22";
        let done = scene.machine.command("nft").arg(rules).status().expect("nft runs");
        assert!(done.success());
        let node_port = |address: &str| scene.hears(at(address, 30_080));
        until("the node port answers", || node_port(V4).is_some() && node_port("10.9.0.2").is_some());
        scene.guard(&[ip(V4)]);
        assert_eq!(node_port(V4), None);
        until("the node port of the machine answers", || node_port("10.9.0.2").is_some());
    });
}

#[test]
fn what_the_machine_asks_from_such_an_address_is_answered() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        scene.guard(&[ip(V4), ip(V6)]);
        let (tcp, udp) = scene.client.run(|| {
            (
                TcpListener::bind("10.9.0.1:7").expect("it listens"),
                UdpSocket::bind("10.9.0.1:7").expect("it listens"),
            )
        });
        thread::spawn(move || {
            for stream in tcp.incoming() {
                let _ = stream.and_then(|mut it| it.write_all(b"from afar"));
            }
        });
        let mut text = String::new();
        let mut stream = scene
            .machine
            .run(|| connect_from(ip(V4), "10.9.0.1:7".parse().expect("an address")))
            .expect("answered");
        stream.read_to_string(&mut text).expect("answered");
        assert_eq!(text, "from afar");
        // UDP, both ways: a socket of the address, and more than fits a packet.
        let service = scene.machine.run(|| UdpSocket::bind(at(V4, 53))).expect("bound");
        for socket in [&service, &udp] {
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("it may be");
        }
        let (question, mut room) = ([7; 4_000], [0; 8_000]);
        udp.send_to(&question, at(V4, 53)).expect("sent");
        let (length, whose) = service.recv_from(&mut room).expect("fragments come through");
        assert_eq!(length, question.len());
        service.send_to(b"answer", whose).expect("sent");
        assert_eq!(udp.recv(&mut room).expect("answered"), 6);
    });
}

#[test]
fn thousands_of_addresses_are_guarded() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let all: Vec<IpAddr> =
            (0..2_500_u32).map(|it| IpAddr::from((0x0a64_0000 + it).to_be_bytes())).collect();
        scene.guard(&all);
        let shown = scene.machine.command("nft").args(["list", "table", "inet", "seaway-addresses"]).output();
        let shown = String::from_utf8(shown.expect("nft runs").stdout).expect("text");
        assert_eq!(shown.matches("10.100.").count(), all.len());
        for _ in 0..2 {
            scene.machine.run(|| FirewallRules::add(all[0])).expect("it is there already");
        }
        scene.guard(&[]);
        scene.machine.run(|| FirewallRules::remove(all[0])).expect("it is not there");
    });
}
