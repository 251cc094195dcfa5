//! Addresses on `lo` against what others translate: rules as kube-proxy and CNI write them.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use seaway_announce::FirewallRules;
use seaway_testkit::topology::{Datagrams, Namespace, in_a_network_of_its_own, until};

use crate::scene::{OTHER, Scene, V4, V6, at, heard, ip};

const SERVICE: u16 = 80;
const NODE_PORT: u16 = 30_080;
/// In the place of a pod of somebody else's: the machine's own addresses, where he listens.
const THEIRS: [(&str, &str, &str); 2] = [("ip", V4, "10.9.0.2:9000"), ("ip6", V6, "[fd09::2]:9000")];

/// What KUBE-SERVICES has for a Service with `externalIPs`, for a node port, and what a CNI has for `hostPort`.
fn rules(scene: &Scene) {
    for (family, address, pod) in THEIRS {
        let translated = [
            format!("{family} daddr {address}"),
            format!("fib daddr type local {family} daddr != 127.0.0.1")
                .replace("ip6 daddr != 127.0.0.1", "ip6 daddr != ::1"),
        ];
        for (hook, chain) in [("prerouting", "in"), ("output", "out")] {
            scene.nft(&format!(
                "add table {family} theirs; add chain {family} theirs {chain} {{ type nat hook {hook} priority -100; }}"
            ));
            for (protocol, port) in
                [("tcp", SERVICE), ("udp", SERVICE), ("tcp", NODE_PORT), ("udp", NODE_PORT)]
            {
                let which = &translated[usize::from(port == NODE_PORT)];
                scene.nft(&format!(
                    "add rule {family} theirs {chain} {which} {protocol} dport {port} dnat to {pod}"
                ));
            }
        }
    }
}

fn told(from: &Namespace, at: SocketAddr) -> Option<String> {
    from.run(|| {
        let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).expect("a socket");
        socket.connect(at).expect("a way");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut answer = [0; 64];
        let count = socket.send(b"?").and_then(|_| socket.recv(&mut answer)).ok()?;
        Some(String::from_utf8_lossy(&answer[..count]).into_owned())
    })
}

/// By TCP and by UDP, from elsewhere and from the machine itself, at each port.
fn answers(scene: &Scene, address: &str) -> Vec<Option<String>> {
    let from = [&scene.client, &scene.machine];
    let all = [SERVICE, NODE_PORT].into_iter().flat_map(|port| from.map(|who| (who, at(address, port))));
    all.flat_map(|(who, at)| [heard(who, at), told(who, at)]).collect()
}

#[test]
fn what_others_translate_does_not_take_an_address_of_ours() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let own: Vec<_> =
            [V4, V6].into_iter().flat_map(|it| [SERVICE, NODE_PORT].map(|port| at(it, port))).collect();
        let theirs: Vec<_> = THEIRS.iter().map(|(.., it)| it.parse().expect("an address")).collect();
        let mut datagrams = Vec::new();
        for (name, places) in [("ours", &own), ("theirs", &theirs)] {
            for place in places {
                scene.answers(*place, name);
                datagrams.push(scene.machine.run(|| Datagrams::answering_at(*place, |_| name.into())));
            }
        }
        rules(&scene);
        let all =
            |name: &str, address: &str| answers(&scene, address).iter().all(|it| it.as_deref() == Some(name));
        for address in [V4, V6] {
            until("what others translate is theirs", || all("theirs", address));
        }
        scene.guard(&[ip(V4), ip(V6)]);
        for address in [V4, V6] {
            let heard = answers(&scene, address);
            assert!(heard.iter().all(|it| it.as_deref() == Some("ours")), "{address}: {heard:?}");
        }
        // Other addresses of the machine are theirs as before: what is in use there goes on.
        let node_port = |address: &str| heard(&scene.client, at(address, NODE_PORT));
        for address in ["10.9.0.2", "fd09::2", OTHER] {
            assert_eq!(node_port(address).as_deref(), Some("theirs"), "{address}");
        }
        // One that is taken away is not ours any more, and one that comes is.
        scene.machine.run(|| FirewallRules::remove(ip(V4))).expect("root may");
        assert_eq!(node_port(V4).as_deref(), Some("theirs"));
        scene.machine.run(|| FirewallRules::add(ip(V4))).expect("root may");
        assert_eq!(node_port(V4).as_deref(), Some("ours"));
        scene.machine.run(FirewallRules::clear).expect("root may");
        until("nothing is guarded", || all("theirs", V4) && all("theirs", V6));
        drop(datagrams);
    });
}

/// The machine's own connections from such an address are translated as others say: a ClusterIP is reached from there.
#[test]
fn what_the_machine_asks_from_an_address_of_ours_is_translated_as_before() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        scene.answers(at("10.9.0.2", 9_000), "a pod");
        scene.nft(
            "add table ip theirs; add chain ip theirs out { type nat hook output priority -100; }; \
             add rule ip theirs out ip daddr 10.96.0.1 tcp dport 443 dnat to 10.9.0.2:9000",
        );
        scene.machine.ip(&["route", "add", "10.96.0.0/16", "via", "10.9.0.1"]);
        scene.guard(&[ip(V4), ip(V6)]);
        let mut stream = scene
            .machine
            .run(|| seaway_testkit::topology::connect_from(ip(V4), at("10.96.0.1", 443)))
            .expect("it is led to the pod");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).expect("it answers");
        assert_eq!(text, "a pod");
    });
}

/// To track connections bounds how many there can be: a host outside of the cluster may have more, and nobody translates there.
#[test]
fn a_machine_that_tracks_no_connections_goes_on_to_track_none() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let tracked = || {
            let count = || std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
            scene.machine.run(count).map_or("0".to_owned(), |it| it.trim().to_owned())
        };
        scene.answers(at(V4, SERVICE), "ours");
        scene.guard(&[ip(V4)]);
        assert_eq!(heard(&scene.client, at(V4, SERVICE)).as_deref(), Some("ours"));
        assert_eq!(tracked(), "0");
        // Somebody begins to translate: the next look notices.
        scene.answers(at("10.9.0.2", 9_000), "theirs");
        rules(&scene);
        until("it is theirs", || heard(&scene.client, at(V4, SERVICE)).as_deref() == Some("theirs"));
        assert_ne!(tracked(), "0");
        scene.guard(&[ip(V4)]);
        assert_eq!(heard(&scene.client, at(V4, SERVICE)).as_deref(), Some("ours"));
    });
}
