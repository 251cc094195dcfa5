//! Addresses, neighbours and sockets of a machine, as the kernel has them.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use seaway_announce::{
    AddOutcome, ArpSettings, Error, Event, LinkWatch, Links, ObservedLinks, Process, RemoveOutcome, Setting,
    SocketDiagnostics, UnmetSetting, WantedSocket, divert,
};
use seaway_model::L4;
use seaway_testkit::topology::{command as run, in_a_network_of_its_own, until};
use socket2::{Domain, Socket, Type};

const V4: &str = "192.0.2.10";
const V6: &str = "2001:db8::10";
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn added_addresses_are_ours_and_can_be_bound_until_they_are_removed() {
    in_a_network_of_its_own(|| {
        let mut links = Links::open().expect("a route socket");
        for address in [V4, V6] {
            let at = SocketAddr::new(ip(address), 0);
            assert!(!observe(&mut links).is_local(at.ip()), "{address}");
            assert!(TcpListener::bind(at).is_err(), "{address} is not there yet");

            assert_eq!(links.add(at.ip()).expect("added"), AddOutcome::New);
            assert_eq!(links.add(at.ip()).expect("idempotent"), AddOutcome::WasThere);
            let observed = observe(&mut links);
            assert!(observed.is_local(at.ip()), "{address}");
            assert_eq!(ours(&observed), [at.ip()]);
            TcpListener::bind(at).expect("bound at once, with no duplicate address detection");
            UdpSocket::bind(at).expect("bound");

            let [held] = &observed.ours(&HashSet::new())[..] else {
                panic!("{observed:?}");
            };
            assert_eq!(links.remove(held).expect("removed"), RemoveOutcome::Gone);
            assert_eq!(links.remove(held).expect("idempotent"), RemoveOutcome::WasGone);
            assert!(!observe(&mut links).is_local(at.ip()), "{address}");
        }
    });
}

#[test]
fn replies_to_clients_are_led_back_by_rules_that_are_made_once() {
    in_a_network_of_its_own(|| {
        for _ in 0..2 {
            divert().expect("root may");
        }
        let rules = run("nft", &["list", "ruleset"]);
        assert_eq!(rules.matches("socket transparent 1").count(), 1, "{rules}");
        assert!(rules.contains("meta mark set 0x00005ea1 accept"), "{rules}");
        for family in ["-4", "-6"] {
            let rules = run("ip", &[family, "rule"]);
            assert_eq!(rules.matches("fwmark 0x5ea1 lookup 21153").count(), 1, "{rules}");
            let routes = run("ip", &[family, "route", "show", "table", "21153"]);
            assert_eq!(routes.matches("local default dev lo").count(), 1, "{routes}");
        }
        // Of others nothing is touched.
        run("nft", &["add table inet other; add chain inet seaway stale; add table inet seaway2"]);
        divert().expect("root may");
        let rules = run("nft", &["list", "ruleset"]);
        assert!(
            rules.contains("inet other") && rules.contains("inet seaway2") && !rules.contains("stale"),
            "{rules}"
        );
    });
}

#[test]
fn our_addresses_show_their_label_and_are_no_source_of_other_connections() {
    in_a_network_of_its_own(|| {
        let mut links = Links::open().expect("a route socket");
        for address in [V4, V6] {
            links.add(ip(address)).expect("added");
        }
        let shown = run("ip", &["-4", "address", "show", "label", "lo:seaway"]);
        assert!(shown.contains("192.0.2.10/32"), "{shown}");
        let shown = run("ip", &["-6", "address", "show", "dev", "lo", "deprecated"]);
        assert!(shown.contains("2001:db8::10/128"), "{shown}");
        assert!(!shown.contains("tentative"), "{shown}");
        let routes = run("ip", &["-6", "route", "show"]);
        assert!(!routes.contains("2001:db8::10"), "{routes}");
    });
}

#[test]
fn addresses_that_others_put_on_the_loopback_are_local_but_never_ours() {
    in_a_network_of_its_own(|| {
        run("ip", &["address", "add", "192.0.2.10/32", "dev", "lo"]);
        run("ip", &["address", "add", "2001:db8::10/128", "dev", "lo"]);
        let mut links = Links::open().expect("a route socket");
        for address in [V4, V6] {
            assert_eq!(links.add(ip(address)).expect("there"), AddOutcome::WasThere);
        }
        let observed = observe(&mut links);
        assert!(observed.is_local(ip(V4)) && observed.is_local(ip(V6)));
        assert_eq!(ours(&observed), [] as [IpAddr; 0]);
        if observed.keeps_marks() {
            let recorded = HashSet::from([ip(V4), ip(V6)]);
            assert_eq!(observed.ours(&recorded), [], "marks outweigh the record");
        }
    });
}

#[test]
fn an_address_that_somebody_replaced_since_is_not_removed() {
    in_a_network_of_its_own(|| {
        let mut links = Links::open().expect("a route socket");
        links.add(ip(V4)).expect("added");
        let held = observe(&mut links).ours(&HashSet::new());
        run("ip", &["address", "delete", "192.0.2.10/32", "dev", "lo"]);
        run("ip", &["address", "add", "192.0.2.10/32", "dev", "lo"]);
        assert_eq!(links.remove(&held[0]).expect("passed over"), RemoveOutcome::WasGone);
        assert!(observe(&mut links).is_local(ip(V4)));
    });
}

#[test]
fn an_address_that_somebody_deletes_is_noticed() {
    in_a_network_of_its_own(|| {
        let mut links = Links::open().expect("a route socket");
        let mut watch = LinkWatch::open().expect("a subscription");
        for (address, whole) in [(V4, "192.0.2.10/32"), (V6, "2001:db8::10/128")] {
            let (ip, link) = (ip(address), 1);
            links.add(ip).expect("added");
            hears(&mut watch, |event| *event == Event::Address { ip, link });
            run("ip", &["address", "delete", whole, "dev", "lo"]);
            hears(&mut watch, |event| *event == Event::AddressGone { ip, link });
        }
        run("ip", &["link", "set", "lo", "down"]);
        hears(&mut watch, |event| matches!(event, Event::Link(link) if link.loopback && !link.up));
        assert_eq!(watch.events().expect("readable"), [], "there is no more news");
    });
}

#[test]
fn more_news_than_the_kernel_keeps_is_said_to_be_lost() {
    in_a_network_of_its_own(|| {
        let mut links = Links::open().expect("a route socket");
        let mut watch = LinkWatch::open().expect("a subscription");
        let many: Vec<IpAddr> =
            (0..4_000_u32).map(|n| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0001 + n))).collect();
        for address in &many {
            links.add(*address).expect("added");
        }
        let events = watch.events().expect("readable");
        assert!(events.contains(&Event::Lost), "{} events", events.len());
        // All of them come by one question, in several datagrams.
        let observed = observe(&mut links);
        let held: HashSet<IpAddr> = ours(&observed).into_iter().collect();
        assert_eq!(held, many.into_iter().collect());
        links.add(ip(V4)).expect("added");
        let gone = Event::Address { ip: ip(V4), link: 1 };
        hears(&mut watch, |event| *event == gone);
    });
}

#[test]
fn the_host_is_kept_from_answering_for_addresses_of_other_interfaces() {
    in_a_network_of_its_own(|| {
        run("ip", &["link", "add", "one", "type", "veth", "peer", "name", "two"]);
        run("ip", &["link", "set", "one", "up"]);
        let conf = "/proc/sys/net/ipv4/conf";
        for (name, value) in [
            ("all/arp_ignore", "0"),
            ("one/arp_ignore", "0"),
            ("all/arp_announce", "0"),
            ("one/arp_announce", "0"),
        ] {
            std::fs::write(format!("{conf}/{name}"), value).expect("a setting");
        }
        let links = Links::open().and_then(|mut links| links.links()).expect("links");
        let arp = ArpSettings::default();
        let unmet = arp.observe(&links);
        let told: Vec<_> = unmet.iter().map(UnmetSetting::command).collect();
        assert_eq!(
            told,
            ["sysctl -w net.ipv4.conf.all.arp_ignore=1", "sysctl -w net.ipv4.conf.all.arp_announce=2"]
        );
        assert!(unmet.iter().all(|unmet| unmet.interface == "one"), "two is down: {unmet:?}");
        assert_eq!(unmet[0].setting, Setting::ArpIgnore);

        assert_eq!(arp.enforce(&links), []);
        assert_eq!(arp.observe(&links), []);
        let value = std::fs::read_to_string(format!("{conf}/all/arp_ignore")).expect("a setting");
        assert_eq!(value.trim(), "1");

        std::fs::write(format!("{conf}/one/arp_ignore"), "3").expect("a setting");
        assert_eq!(arp.observe(&links).len(), 1, "3 is larger, but weaker");
        assert_eq!(arp.enforce(&links), []);
    });
}

#[test]
fn without_ipv6_on_the_loopback_that_is_said_and_ipv4_goes_on() {
    in_a_network_of_its_own(|| {
        let switch = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";
        std::fs::write(switch, "1").expect("a setting");
        let mut links = Links::open().expect("a route socket");
        let error = links.add(ip(V6)).expect_err("no IPv6");
        assert!(matches!(error, Error::NoIpv6 { .. }), "{error:?}");
        assert_eq!(links.add(ip(V4)).expect("added"), AddOutcome::New);
    });
}

#[test]
fn listeners_are_told_with_address_protocol_and_reach() {
    in_a_network_of_its_own(|| {
        let mut links = Links::open().expect("a route socket");
        links.add(ip(V4)).expect("added");
        links.add(ip(V6)).expect("added");
        let _kept = [
            bound(Type::STREAM, "192.0.2.10:80", false),
            bound(Type::STREAM, "[2001:db8::10]:80", true),
            bound(Type::STREAM, "[::]:81", false),
            bound(Type::STREAM, "[::]:82", true),
            bound(Type::STREAM, "0.0.0.0:83", false),
            bound(Type::STREAM, "[::ffff:192.0.2.10]:84", false),
            bound(Type::DGRAM, "192.0.2.10:80", false),
            bound(Type::DGRAM, "[::]:53", false),
        ];
        let client = bound(Type::DGRAM, "127.0.0.1:5000", false);
        client.connect(&at("127.0.0.1:53").into()).expect("connected");

        let mut sockets = SocketDiagnostics::open().expect("a diagnosis socket");
        let mut told: Vec<_> = sockets
            .all()
            .expect("answered")
            .into_iter()
            .map(|found| {
                let peer = found.peer.map(|peer| peer.to_string()).unwrap_or_default();
                let (protocol, at) = (found.protocol.as_str(), found.at);
                format!("{protocol} {at} {} {peer}", found.v6_only)
            })
            .collect();
        told.sort();
        assert_eq!(
            told,
            [
                "TCP 0.0.0.0:83 false ",
                "TCP 192.0.2.10:80 false ",
                "TCP 192.0.2.10:84 false ",
                "TCP [2001:db8::10]:80 true ",
                "TCP [::]:81 false ",
                "TCP [::]:82 true ",
                "UDP 127.0.0.1:5000 false 127.0.0.1:53",
                "UDP 192.0.2.10:80 false ",
                "UDP [::]:53 false ",
            ]
        );
        let mut by_table = SocketDiagnostics::from_proc().all().expect("readable");
        let mut by_question = sockets.all().expect("answered");
        for found in &mut by_question {
            found.v6_only = false;
        }
        by_table.sort_by_key(|found| found.inode);
        by_question.sort_by_key(|found| found.inode);
        assert_eq!(by_table, by_question, "the tables tell the same");

        let on_80 = sockets.listeners(80, L4::Tcp).expect("answered");
        assert_eq!(on_80.len(), 2, "{on_80:?}");
        let own = Process::own_sockets();
        assert!(on_80.iter().all(|found| own.contains(&found.inode)));
        assert_eq!(sockets.listeners(80, L4::Udp).expect("answered").len(), 1);
        assert_eq!(sockets.listeners(85, L4::Tcp).expect("answered"), []);
    });
}

#[test]
fn the_process_that_has_a_wanted_port_is_named() {
    in_a_network_of_its_own(|| {
        let foreign = Foreign::holding(bound(Type::STREAM, "[::]:80", false));
        let own = Process::own_sockets();
        let mut sockets = SocketDiagnostics::open().expect("a diagnosis socket");
        let mut conflicts = |wanted: &[(&str, L4)]| -> Vec<String> {
            let wanted: Vec<_> = wanted
                .iter()
                .map(|(address, protocol)| WantedSocket { at: at(address), protocol: *protocol })
                .collect();
            let found = sockets.conflicts(&wanted, &own).expect("answered");
            found.iter().map(ToString::to_string).collect()
        };
        let holder = format!("sleep (process {}) holds [::]:80", foreign.0.id());
        // What another test starts has a copy of each socket until it is another program.
        until("it is named", || {
            conflicts(&[("192.0.2.10:80", L4::Tcp)]) == [format!("TCP 192.0.2.10:80 is taken: {holder}")]
        });
        assert_eq!(
            conflicts(&[
                ("[2001:db8::10]:80", L4::Tcp),
                ("192.0.2.10:80", L4::Udp),
                ("192.0.2.10:81", L4::Tcp)
            ]),
            [format!("TCP [2001:db8::10]:80 is taken: {holder}")]
        );
        let kept = bound(Type::DGRAM, "192.0.2.10:0", false);
        let port = kept.local_addr().ok().and_then(|at| at.as_socket()).expect("an address");
        let own_now = Process::own_sockets();
        let wanted = WantedSocket { at: port, protocol: L4::Udp };
        let mut sockets = SocketDiagnostics::open().expect("a diagnosis socket");
        assert_eq!(sockets.conflicts(&[wanted], &own_now).expect("answered"), []);
    });
}

#[test]
fn thousands_of_listeners_come_by_one_question() {
    in_a_network_of_its_own(|| {
        let kept: Vec<_> = (0..400)
            .map(|n| bound(Type::STREAM, &format!("127.0.0.{}:{}", n % 200 + 1, 2000 + n), false))
            .collect();
        let mut sockets = SocketDiagnostics::open().expect("a diagnosis socket");
        assert_eq!(sockets.all().expect("answered").len(), kept.len());
    });
}

#[test]
fn without_the_capability_the_commands_are_printed() {
    in_a_network_of_its_own(|| {
        let this = std::env::current_exe().expect("this test");
        let mut child = Command::new("setpriv");
        child.args(["--bounding-set=-net_admin", "--inh-caps=-all"]).arg(this);
        child.args(["--exact", "addresses::child_without_the_capability", "--ignored"]);
        let output = child.output().expect("setpriv of util-linux");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
    });
}

#[test]
#[ignore = "run by another test, as a process that may not change addresses"]
fn child_without_the_capability() {
    let mut links = Links::open().expect("asking is free to everybody");
    for address in [V4, V6] {
        let error = links.add(ip(address)).expect_err("not allowed");
        assert!(matches!(error, Error::NotPermitted { .. }), "{error:?}");
        assert!(error.to_string().contains("ip address add"), "{error}");
    }
    observe(&mut links);
}

/// A process of another program that inherited a socket, and ends with this value.
struct Foreign(std::process::Child);

impl Foreign {
    fn holding(socket: Socket) -> Foreign {
        let child = Command::new("sleep").arg("60").stdin(Stdio::from(OwnedFd::from(socket))).spawn();
        Foreign(child.expect("sleep"))
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn bound(kind: Type, address: &str, v6_only: bool) -> Socket {
    let address = at(address);
    let socket = Socket::new(Domain::for_address(address), kind, None).expect("a socket");
    if address.is_ipv6() {
        socket.set_only_v6(v6_only).expect("an option");
    }
    socket.set_freebind_v4(true).expect("an option");
    socket.bind(&address.into()).expect("bound");
    if kind == Type::STREAM {
        socket.listen(1).expect("listening");
    }
    socket
}

#[track_caller]
fn hears(watch: &mut LinkWatch, expected: impl Fn(&Event) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut heard = Vec::new();
    while Instant::now() < deadline {
        let news = watch.wait(deadline - Instant::now()).expect("readable");
        if news.iter().any(&expected) {
            return;
        }
        heard.extend(news);
    }
    panic!("only heard {heard:?}");
}

fn observe(links: &mut Links) -> ObservedLinks {
    links.observe().expect("answered")
}

fn ours(observed: &ObservedLinks) -> Vec<IpAddr> {
    let held = observed.ours(&HashSet::new());
    held.iter().map(|held| held.ip()).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
