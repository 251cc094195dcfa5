//! A Service at a port that the machine has, or needs: both answer, and both may be started again.
//!
//! They need root. Elsewhere they say that they were skipped; with `CI=true` or
//! `SEAWAY_NET_TESTS=required` they fail instead.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use seaway_announce::{FirewallRules, Links, Steering};
use seaway_model::{LbKey, load_balancer::ProxyVersion};
use seaway_proxy::{OpenError, Proxy, Settings};
use seaway_testkit::{
    balancing,
    topology::{Namespace, in_a_network_of_its_own, until},
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

const V4: &str = "203.0.113.7";
const V6: &str = "2001:db8:113::7";
const KEY: LbKey = LbKey::Whole;
const SSH: u16 = 22;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(address), port)
}

/// A machine with two addresses of pools on `lo`, and a client that has routes to them.
struct Scene {
    client: Namespace,
    machine: Namespace,
}

/// A data plane with what it steers.
struct Seaway {
    proxy: Proxy,
    steering: Arc<Steering>,
}

/// In the place of sshd: says its name to everybody who comes, until it is stopped.
struct Sshd {
    stop: SocketAddr,
    machine: Arc<Scene>,
    thread: Option<JoinHandle<()>>,
}

impl Scene {
    fn new() -> Arc<Scene> {
        let (client, machine) = (Namespace::create("client"), Namespace::create("machine"));
        client.cable("v0", &machine, "v1");
        for (whose, link, addresses) in
            [(&client, "v0", ["10.9.0.1/24", "fd09::1/64"]), (&machine, "v1", ["10.9.0.2/24", "fd09::2/64"])]
        {
            addresses.iter().for_each(|it| whose.address(link, it));
        }
        client.route(V4, "10.9.0.2");
        client.route(V6, "fd09::2");
        machine.run(|| {
            let mut links = Links::open().unwrap();
            [V4, V6].iter().for_each(|it| _ = links.add(ip(it)).unwrap());
        });
        Arc::new(Scene { client, machine })
    }

    fn guard(&self, seaway: &Seaway) {
        let guarded = self.machine.run(|| seaway.steering.set_guarded(&[ip(V4), ip(V6)])).unwrap();
        assert!(guarded.translatable.is_none(), "{guarded:?}");
    }

    fn seaway(&self) -> Seaway {
        self.seaway_by(Steering::new)
    }

    /// The data plane, with one member that says what it was told of the client.
    fn seaway_by(&self, steering: fn(fn(u16) -> bool) -> Steering) -> Seaway {
        self.machine.run(|| {
            let member = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = member.local_addr().unwrap();
            thread::spawn(move || {
                for mut stream in member.incoming().flatten() {
                    thread::spawn(move || {
                        let mut header = [0; 64];
                        // A header of PROXY v1 is one line, which comes with the first byte of the client.
                        let count = stream.read(&mut header).unwrap_or(0);
                        let _ = stream.write_all(&header[..count]);
                    });
                }
            });
            let proxy = Proxy::start(Settings { workers: 2, pin: false }).unwrap();
            let steering = Arc::new(steering(|port| port == SSH));
            proxy.steer_by(steering.clone());
            let mut pool = balancing::pool(&[address]);
            pool.proxy = Some(ProxyVersion::V1);
            proxy.put_pool(&KEY, Arc::new(pool));
            Seaway { proxy, steering }
        })
    }

    fn open(&self, seaway: &Seaway, address: &str, port: u16) -> Result<(), OpenError> {
        let listener = Arc::new(balancing::listener(port));
        self.machine.run(|| seaway.proxy.open_at_pool_address(&KEY, ip(address), listener))
    }

    fn rules(&self) -> String {
        let listed = self.machine.command("nft").args(["list", "ruleset"]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap()
    }

    fn steers(&self, address: &str, port: u16) -> bool {
        self.rules().contains(&format!("{address} . {port} :"))
    }

    fn nft(&self, command: &str) {
        assert!(self.machine.command("nft").arg(command).status().unwrap().success(), "{command}");
    }

    fn sshd(self: &Arc<Scene>, port: u16) -> std::io::Result<Sshd> {
        let listener = self.machine.run(|| TcpListener::bind(SocketAddr::new(ip("::"), port)))?;
        let thread = thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if stream.write_all(b"sshd").is_err() {
                    return;
                }
                let mut stop = [0];
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                if stream.read(&mut stop).is_ok_and(|count| count == 1 && stop == *b"!") {
                    break;
                }
            }
            // A program that another test is just about to run may have a copy of it, so that dropping it closes nothing.
            let _ = SockRef::from(&listener).shutdown(Shutdown::Both);
        });
        Ok(Sshd { stop: at("10.9.0.2", port), machine: self.clone(), thread: Some(thread) })
    }

    fn asked(&self, from: &Namespace, at: SocketAddr) -> Option<String> {
        from.run(|| {
            let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(20)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
            stream.write_all(b"?").ok()?;
            let mut text = [0; 128];
            let count = stream.read(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text[..count]).into_owned())
        })
    }

    /// The Service answers there, and knows who asked for what.
    fn serves(&self, address: &str, port: u16) {
        let (family, client) = if ip(address).is_ipv4() { ("TCP4", "10.9.0.1") } else { ("TCP6", "fd09::1") };
        let heard = self.asked(&self.client, at(address, port)).unwrap_or_default();
        assert!(heard.starts_with(&format!("PROXY {family} {client} {address} ")), "{address}: {heard}");
        assert!(heard.contains(&format!(" {port}\r\n")), "{address}: {heard}");
        // Who asks from the machine itself gets the Service as well.
        let heard = self.asked(&self.machine, at(address, port)).unwrap_or_default();
        assert!(heard.starts_with(&format!("PROXY {family} ")), "{address}, from the machine: {heard}");
    }

    fn answers_itself(&self, port: u16) {
        for address in ["10.9.0.2", "fd09::2"] {
            assert_eq!(self.asked(&self.client, at(address, port)).as_deref(), Some("sshd"), "{address}");
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let mut stream = self.machine.client.run(|| TcpStream::connect(self.stop)).unwrap();
        stream.write_all(b"!").unwrap();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn sshd_and_a_service_at_its_port_both_answer_and_both_start_again_in_either_order() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let sshd = scene.sshd(SSH).unwrap();
        let first = scene.seaway();
        let both = |seaway: &Seaway| {
            for address in [V4, V6] {
                scene.open(seaway, address, SSH).unwrap();
            }
            scene.guard(seaway);
            [V4, V6].iter().for_each(|address| scene.serves(address, SSH));
            scene.answers_itself(SSH);
        };
        both(&first);
        // A client of the Service that is connected keeps neither from starting again.
        let mut held = scene.client.run(|| TcpStream::connect(at(V4, SSH))).unwrap();
        held.write_all(b"?").unwrap();
        drop(sshd);
        [V4, V6].iter().for_each(|address| scene.serves(address, SSH));
        let sshd = scene.sshd(SSH).expect("sshd starts beside the Service");
        scene.answers_itself(SSH);
        // The process ends, and the next one begins, while sshd runs.
        drop((held, first));
        for address in [V4, V6] {
            let heard = scene.asked(&scene.client, at(address, SSH));
            assert_ne!(heard.as_deref(), Some("sshd"), "what the machine says is not for {address}");
        }
        let next = scene.seaway();
        both(&next);
        drop((sshd, next));
    });
}

#[test]
fn a_server_that_starts_after_a_service_has_its_port_and_both_start_again_in_either_order() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let mut seaway = scene.seaway();
        let serve = |seaway: &Seaway| {
            for address in [V4, V6] {
                scene.open(seaway, address, 8_080).unwrap();
            }
            scene.guard(seaway);
        };
        let both = || {
            [V4, V6].iter().for_each(|address| scene.serves(address, 8_080));
            scene.answers_itself(8_080);
        };
        serve(&seaway);
        [V4, V6].iter().for_each(|address| scene.serves(address, 8_080));
        let server = scene.sshd(8_080).expect("the port is the machine's");
        both();
        let mut held = scene.client.run(|| TcpStream::connect(at(V4, 8_080))).unwrap();
        held.write_all(b"?").unwrap();
        drop(server);
        [V4, V6].iter().for_each(|address| scene.serves(address, 8_080));
        let server = scene.sshd(8_080).expect("beside a client of the Service");
        both();
        drop((held, seaway));
        for address in [V4, V6] {
            assert_ne!(scene.asked(&scene.client, at(address, 8_080)).as_deref(), Some("sshd"), "{address}");
        }
        // The next process starts while the server runs, and the server again while that serves.
        seaway = scene.seaway();
        serve(&seaway);
        both();
        drop(server);
        let server = scene.sshd(8_080).expect("it starts again");
        both();
        // Whoever has the very address keeps it.
        let holder = scene.machine.run(|| TcpListener::bind(at(V4, 8_082))).unwrap();
        let refused = scene.open(&seaway, V4, 8_082).unwrap_err();
        assert!(matches!(refused, OpenError::Foreign { .. }), "{refused:?}");
        drop((holder, server, seaway));
    });
}

#[test]
fn hundreds_of_services_take_one_port_of_the_machine() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let seaway = scene.seaway();
        for port in 8_000..8_600 {
            scene.open(&seaway, V4, port).unwrap();
        }
        scene.guard(&seaway);
        scene.serves(V4, 8_000);
        scene.serves(V4, 8_599);
        let listed = scene.machine.command("ss").args(["-Htln"]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let ports = listed.lines().filter_map(|line| line.split_whitespace().nth(3));
        let ports: BTreeSet<&str> =
            ports.filter(|it| !it.starts_with("127.0.0.1")).filter_map(|it| it.rsplit(':').next()).collect();
        assert_eq!(ports.len(), 1, "{ports:?}");
        scene.machine.run(|| {
            for port in 8_000..8_600 {
                seaway.proxy.close(&KEY, ip(V4), balancing::listener(port).id());
            }
        });
        assert!(!scene.rules().contains(&format!("{V4} . ")), "nothing is steered");
    });
}

#[test]
fn what_the_machine_translates_takes_no_client_from_a_guarded_address() {
    in_a_network_of_its_own(|| {
        for steering in [Steering::new, Steering::fragile] {
            let scene = Scene::new();
            let (seaway, pod) = (scene.seaway_by(steering), scene.sshd(7_070).unwrap());
            scene.open(&seaway, V4, 8_080).unwrap();
            // As kube-proxy does for a Service with externalIPs.
            scene.nft(
                "add table ip proxy; add chain ip proxy in { type nat hook prerouting priority dstnat; }; \
                 add rule ip proxy in iif v1 ip daddr 203.0.113.7 tcp dport 8080 dnat to 10.9.0.2:7070",
            );
            let heard = || scene.asked(&scene.client, at(V4, 8_080));
            assert_eq!(heard().as_deref(), Some("sshd"), "nothing is guarded: the pod answers");
            scene.guard(&seaway);
            scene.serves(V4, 8_080);
            scene.machine.run(FirewallRules::clear).unwrap();
            assert_eq!(heard().as_deref(), Some("sshd"), "nothing is guarded any more");
            drop(pod);
        }
    });
}

#[test]
fn a_port_that_the_machine_took_first_is_served_and_who_is_in_goes_on_when_it_is_closed() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let (seaway, taken) = (scene.seaway(), scene.sshd(8_080).unwrap());
        scene.guard(&seaway);
        let proxy = &seaway.proxy;
        for port in [8_080, 8_081] {
            scene.open(&seaway, V4, port).unwrap();
            scene.serves(V4, port);
            assert!(scene.steers(V4, port));
        }
        scene.answers_itself(8_080);
        let listener = balancing::listener(8_080);
        let mut held = scene.client.run(|| TcpStream::connect(at(V4, 8_080))).unwrap();
        until("it is let in", || proxy.statistics().listeners.iter().any(|it| it.traffic.current == 1));
        scene.machine.run(|| proxy.close(&KEY, ip(V4), listener.id()));
        assert!(!scene.steers(V4, 8_080));
        held.write_all(b"?").unwrap();
        let mut heard = [0; 128];
        let count = held.read(&mut heard).unwrap();
        assert!(heard[..count].starts_with(b"PROXY TCP4 10.9.0.1 "), "who is in goes on");
        until("nobody else comes in", || scene.asked(&scene.client, at(V4, 8_080)).is_none());
        drop(taken);
    });
}

#[test]
fn a_firewall_that_flushes_all_rules_stops_no_service() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let (seaway, sshd) = (scene.seaway(), scene.sshd(SSH).unwrap());
        for port in [SSH, 8_080] {
            scene.open(&seaway, V4, port).unwrap();
        }
        scene.guard(&seaway);
        scene.nft(
            "add table ip others; add chain ip others in { type filter hook prerouting priority mangle; }; \
             add rule ip others in meta mark set 7",
        );
        [SSH, 8_080].iter().for_each(|port| scene.serves(V4, *port));
        scene.nft("flush ruleset");
        // What guards is gone until it is looked at again; what steers is not.
        [SSH, 8_080].iter().for_each(|port| scene.serves(V4, *port));
        scene.guard(&seaway);
        [SSH, 8_080].iter().for_each(|port| scene.serves(V4, *port));
        // All goes with the addresses and the process.
        scene.machine.run(FirewallRules::clear).unwrap();
        drop(seaway);
        assert_eq!(scene.rules().trim(), "");
        drop(sshd);
    });
}

#[test]
fn where_others_can_remove_what_steers_only_what_has_to_be_is_steered() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let (seaway, sshd) = (scene.seaway_by(Steering::fragile), scene.sshd(SSH).unwrap());
        for port in [SSH, 8_080] {
            scene.open(&seaway, V4, port).unwrap();
        }
        scene.guard(&seaway);
        [SSH, 8_080].iter().for_each(|port| scene.serves(V4, *port));
        assert!(scene.steers(V4, SSH) && !scene.steers(V4, 8_080));
        scene.nft("flush ruleset");
        let heard = scene.asked(&scene.client, at(V4, SSH));
        assert_eq!(heard.as_deref(), Some("sshd"), "nothing is guarded now");
        scene.guard(&seaway);
        [SSH, 8_080].iter().for_each(|port| scene.serves(V4, *port));
        scene.machine.run(|| FirewallRules::clear().and_then(|()| seaway.steering.clear())).unwrap();
        assert_eq!(scene.rules().trim(), "");
        drop(sshd);
    });
}

#[test]
fn the_next_process_steers_all_that_the_one_before_steers() {
    in_a_network_of_its_own(|| {
        for steering in [Steering::new, Steering::fragile] {
            let scene = Scene::new();
            let (before, next) = (steering(|port| port == SSH), steering(|port| port == SSH));
            let pairs = [(V4, SSH), (V6, SSH), (V4, 8_080)].map(|(address, port)| {
                let from = at(address, port);
                (from, SocketAddr::new(before.next_socket_address(from.ip()).ip(), 7_000))
            });
            scene.machine.run(|| {
                pairs.iter().for_each(|(from, to)| before.add(*from, *to).unwrap());
                next.adopt(pairs.into()).unwrap();
            });
            assert_eq!(next.next_socket_address(ip(V4)).port(), 7_000, "one port is enough for both");
            let table = scene.rules();
            for (from, to) in pairs {
                assert!(next.has(from) && scene.steers(&from.ip().to_string(), from.port()), "{table}");
                assert!(table.contains(&to.ip().to_string()), "{table}");
            }
            scene.machine.run(|| before.retire().unwrap());
            assert!(pairs.iter().all(|(from, _)| scene.steers(&from.ip().to_string(), from.port())));
            scene.machine.run(|| next.retire().and_then(|()| next.clear()).unwrap());
            assert_eq!(scene.rules().trim(), "");
        }
    });
}

/// Says so much to whoever comes.
const LARGE: usize = 1 << 20;

/// Large answers come through a narrow place only if the machine hears that its packets are too long, and answers none but who is
/// asked there is told whether it lives.
#[test]
fn a_narrow_place_on_the_way_and_a_ping_are_answered_by_the_address_of_a_service() {
    in_a_network_of_its_own(|| {
        let scene = Scene::new();
        let (router, far) = (&scene.client, Namespace::create("far"));
        router.forward();
        router.cable("v2", &far, "v3");
        for (whose, link, addresses) in
            [(router, "v2", ["10.9.3.1/24", "fd09:3::1/64"]), (&far, "v3", ["10.9.3.2/24", "fd09:3::2/64"])]
        {
            addresses.iter().for_each(|it| whose.address(link, it));
        }
        // The client believes that there is room for 1,500 bytes, and says so.
        router.ip(&["link", "set", "v2", "mtu", "1280"]);
        [("default", "10.9.3.1"), ("default", "fd09:3::1")].iter().for_each(|(to, via)| far.route(to, via));
        scene.machine.route("10.9.3.0/24", "10.9.0.1");
        scene.machine.route("fd09:3::/64", "fd09::1");

        let seaway = scene.seaway();
        let member = scene.machine.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let pool = Arc::new(balancing::pool(&[member.local_addr().unwrap()]));
        scene.machine.run(|| seaway.proxy.put_pool(&KEY, pool));
        thread::spawn(move || {
            for mut stream in member.incoming().flatten() {
                // Whoever is gone need not hear it.
                let _ = stream.write_all(&vec![7; LARGE]);
            }
        });
        scene.guard(&seaway);
        for address in [V4, V6] {
            scene.open(&seaway, address, SSH).unwrap();
            assert!(scene.steers(address, SSH), "{address}");
            let heard = far.run(|| {
                let mut stream =
                    TcpStream::connect_timeout(&at(address, SSH), Duration::from_secs(20)).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).map(|_| heard.len())
            });
            assert_eq!(heard.ok(), Some(LARGE), "{address}");
            let narrow = scene.machine.ip(&[
                "route",
                "get",
                if ip(address).is_ipv4() { "10.9.3.2" } else { "fd09:3::2" },
            ]);
            assert!(narrow.contains("mtu 1280"), "it was told on the way: {narrow}");
            far.run(|| ping(ip(address)));
        }
    });
}

/// Asks there whether it lives, and waits for what it says.
fn ping(ip: IpAddr) {
    let (domain, protocol, asks, answers) = match ip {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let mut socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.connect(&SocketAddr::new(ip, 0).into()).unwrap();
    // With its checksum, which of IPv6 the kernel writes.
    socket.write_all(&[asks, 0, !asks, 255, 0, 0, 0, 0]).unwrap();
    let mut heard = [0; 128];
    while let Ok(count) = socket.read(&mut heard) {
        // Of IPv4 with the header of the packet.
        let message = if ip.is_ipv4() { &heard[20..count] } else { &heard[..count] };
        if message[0] == answers {
            return;
        }
    }
    panic!("{ip} does not answer");
}
