//! Addresses of pools on `lo`, with clients that come over a cable. As root, in namespaces.

use std::{
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr, UdpSocket},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use nix::sys::signal::Signal;

use crate::{
    backends::{Backend, Datagrams, Talk, ask},
    harness::{Seaway, Setup, until},
    manifests::Service,
    namespace::{Outside, command, in_a_network_of_its_own},
};

const POOL: &str = "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: public}\nspec: {addresses: [192.0.2.0/28, \"2001:db8::/120\"], avoidBuggyIPs: true}\n";
const WITHOUT_NET_ADMIN: [&str; 3] = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"];

fn both(service: Service) -> Service {
    service.spec("ipFamilyPolicy: RequireDualStack")
}

/// The addresses that status.json tells of a Service of so many families, IPv4 first; they are told as they are served.
fn given(seaway: &Seaway, service: &str, families: usize) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    until("status.json tells its addresses", || {
        let status = seaway.status();
        let told = &status["services"][format!("Service default/{service}")]["addresses"];
        found = told.as_array().into_iter().flatten().filter_map(|it| it.as_str()?.parse().ok()).collect();
        found.len() == families
    });
    found.sort();
    found
}

/// What is on `lo`, one address a line.
fn on_lo() -> String {
    command("ip", &["-o", "address", "show", "dev", "lo"])
}

fn has(ip: IpAddr) -> bool {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    on_lo().contains(&format!(" {ip}/{length} "))
}

fn answers(outside: &Outside, at: SocketAddr) -> bool {
    outside.run(move || Talk::open(at).is_ok_and(|mut it| it.echo(b"from outside").is_ok()))
}

/// Hears what happens to addresses.
struct Monitor(Child, Arc<Mutex<String>>);

impl Monitor {
    fn start() -> Monitor {
        let mut child = Command::new("ip")
            .args(["-o", "monitor", "address"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("ip of iproute2");
        let heard: Arc<Mutex<String>> = Arc::default();
        let (keep, pipe) = (heard.clone(), child.stdout.take().expect("it is piped"));
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                keep.lock().unwrap_or_else(PoisonError::into_inner).push_str(&(line + "\n"));
            }
        });
        let monitor = Monitor(child, heard);
        // It hears from when it says so.
        until("the monitor hears", || {
            command("ip", &["address", "replace", "127.9.9.9/32", "dev", "lo"]);
            command("ip", &["address", "delete", "127.9.9.9/32", "dev", "lo"]);
            monitor.heard().contains("127.9.9.9")
        });
        monitor
    }

    fn heard(&self) -> String {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All until now.
    fn all(&self) -> String {
        command("ip", &["address", "add", "127.9.9.8/32", "dev", "lo"]);
        command("ip", &["address", "delete", "127.9.9.8/32", "dev", "lo"]);
        until("the mark is heard", || self.heard().matches("127.9.9.8").count() >= 2);
        self.heard()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn clients_outside_reach_addresses_of_a_pool_and_a_clean_stop_takes_only_ours_away() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        command("ip", &["address", "add", "198.51.100.1/32", "dev", "lo"]);
        let (tcp, udp) = (Backend::start("a"), Datagrams::start("u"));
        let seaway = Setup::new()
            .write("pool.yaml", POOL)
            .write("web.yaml", &both(Service::tcp("web", 80)).to(tcp.at).text())
            .write("dns.yaml", &both(Service::udp("dns", 53)).to(udp.at).text())
            .start();
        let (web, dns) = (given(&seaway, "web", 2), given(&seaway, "dns", 2));
        assert_eq!((web.len(), dns.len()), (2, 2));
        let shown = on_lo();
        for ip in web.iter().chain(&dns) {
            assert!(has(*ip), "{ip} is missing: {shown}");
        }
        let labelled = command("ip", &["-4", "-o", "address", "show", "label", "lo:seaway"]);
        assert!(labelled.contains(&web[0].to_string()), "{labelled}");
        for (setting, least) in [("arp_ignore", 1), ("arp_announce", 2)] {
            let of = |link: &str| {
                // It shows the network of whoever opens it.
                let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{link}/{setting}"));
                text.expect("readable").trim().parse::<u8>().expect("a number")
            };
            assert!(of("all").max(of("v0")) >= least, "{setting}");
        }
        for ip in web.clone() {
            assert!(answers(&outside, (ip, 80).into()), "{ip}");
        }
        for ip in dns {
            // A connected socket hears nobody but whom it asked.
            let answer = outside.run(move || {
                let any: IpAddr = if ip.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
                ask(&UdpSocket::bind((any, 0)).expect("a port"), (ip, 53).into(), b"x")
            });
            assert_eq!(answer.expect("answered"), b"u x", "{ip}");
        }
        assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
        let mut seaway = seaway;
        seaway.signal(Signal::SIGTERM);
        assert!(seaway.wait().success());
        let left = on_lo();
        assert!(left.contains("198.51.100.1/32"), "{left}");
        assert!(!left.contains("192.0.2.") && !left.contains("2001:db8::"), "{left}");
        // The settings stay, and the log says how to undo them.
        let mut undo = None;
        until("the log says what stays", || {
            undo = seaway.log().lines().find_map(|it| Some(it.split_once("as root: ")?.1.to_owned()));
            undo.is_some()
        });
        command("sh", &["-c", &undo.expect("it was found")]);
        for setting in ["arp_ignore", "arp_announce"] {
            let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/all/{setting}"));
            assert_eq!(text.expect("readable").trim(), "0", "{setting}");
        }
    });
}

#[test]
fn nobody_hears_an_arp_answer_for_an_address_of_a_pool() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let backend = Backend::start("a");
        let seaway = Setup::new()
            .write("pool.yaml", POOL)
            .write("web.yaml", &Service::tcp("web", 80).to(backend.at).text())
            .start();
        let vip = given(&seaway, "web", 1)[0];
        let asked = move || {
            std::fs::write("/proc/sys/net/ipv4/neigh/v1/retrans_time_ms", "50").expect("this is root");
            // As if it were on the cable itself.
            command("ip", &["route", "add", &format!("{vip}/32"), "dev", "v1"]);
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            for ip in [vip, "10.9.0.1".parse().expect("an address")] {
                let _ = socket.send_to(b"anybody?", (ip, 9));
            }
            let state = |ip: &str| command("ip", &["neighbour", "show", ip, "dev", "v1"]);
            until("somebody has that address, says the host of its own", || {
                state("10.9.0.1").contains("lladdr")
            });
            let vip = vip.to_string();
            // Asked once: another datagram would begin another resolution, and "FAILED" would be gone.
            until("nobody has the other", || {
                let seen = state(&vip);
                if seen.is_empty() {
                    let _ = socket.send_to(b"anybody?", (vip.as_str(), 9));
                }
                seen.contains("FAILED")
            });
            state(&vip)
        };
        let state = outside.run(asked);
        assert!(!state.contains("lladdr"), "{state}");
        // The silence is that of the settings: without them somebody would have answered.
        for link in ["all", "v0"] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{link}/arp_ignore"), "0").expect("this is root");
        }
        outside.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            until("it is answered", || {
                let _ = socket.send_to(b"anybody?", (vip, 9));
                command("ip", &["neighbour", "show", &vip.to_string(), "dev", "v1"]).contains("lladdr")
            });
        });
    });
}

/// As in a pod that is not privileged.
const WITH_READ_ONLY_SETTINGS: [&str; 6] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$@\"",
    "sh",
];

#[test]
fn who_cannot_be_silent_adds_no_address_until_somebody_has_made_the_settings() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let backend = Backend::start("a");
        let seaway = Setup::new()
            .by(&WITH_READ_ONLY_SETTINGS)
            .write("pool.yaml", POOL)
            .write("web.yaml", &both(Service::tcp("web", 80)).to(backend.at).text())
            .start();
        let web = given(&seaway, "web", 2);
        let told = |it: &(String, String, String)| {
            it.0 == "NotPermitted" && it.1.contains("run `seaway node --prepare` as root")
        };
        until("it is told what to run", || seaway.problems().iter().any(told));
        assert!(!has(web[0]), "{}", on_lo());
        until("nobody speaks ARP for IPv6", || has(web[1]));

        let prepare = || command(env!("CARGO_BIN_EXE_seaway"), &["node", "--prepare"]);
        let done = "done: sysctl -w net.ipv4.conf.all.arp_announce=2\ndone: sysctl -w net.ipv4.conf.all.arp_ignore=1\n";
        assert_eq!(prepare(), done);
        assert!(prepare().starts_with("There is nothing to do"));
        until("it is served", || answers(&outside, (web[0], 80).into()));
        until("nothing is wrong", || seaway.problems().is_empty());
    });
}

#[test]
fn addresses_outlive_a_kill_and_what_is_not_wanted_any_more_goes_at_the_next_start() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let backend = Backend::start("a");
        let service = |name: &str| both(Service::tcp(name, 80)).to(backend.at).text();
        let setup = Setup::new()
            .write("pool.yaml", POOL)
            .write("stays.yaml", &service("stays"))
            .write("goes.yaml", &service("goes"));
        let (folder, ip) = (setup.folder.clone(), setup.ip);
        let mut seaway = setup.start();
        let (stays, goes) = (given(&seaway, "stays", 2), given(&seaway, "goes", 2));
        seaway.signal(Signal::SIGKILL);
        seaway.wait();
        assert!(stays.iter().chain(&goes).all(|ip| has(*ip)), "{}", on_lo());
        folder.remove("goes.yaml");
        let monitor = Monitor::start();
        let again = Setup::again(folder, ip).start();
        assert!(stays.iter().all(|ip| answers(&outside, (*ip, 80).into())));
        until("what nobody wants is gone", || !goes.iter().any(|ip| has(*ip)));
        assert_eq!(given(&again, "stays", 2), stays);
        let heard = monitor.all();
        for ip in &stays {
            assert!(!heard.contains(&format!("{ip}/")), "{ip} flapped: {heard}");
        }
    });
}

#[test]
fn a_successor_keeps_the_addresses_and_takes_them_away_at_its_own_end() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let backend = Backend::start("a");
        let setup = Setup::new()
            .write("pool.yaml", POOL)
            .write("web.yaml", &both(Service::tcp("web", 80)).to(backend.at).text());
        let (folder, ip) = (setup.folder.clone(), setup.ip);
        let mut old = setup.start();
        let web = given(&old, "web", 2);
        let monitor = Monitor::start();
        let new = Setup::again(folder, ip).argument("--take-over").start();
        assert!(old.wait().success());
        assert!(web.iter().all(|ip| answers(&outside, (*ip, 80).into())));
        let heard = monitor.all();
        assert!(!heard.contains("192.0.2.") && !heard.contains("2001:db8::"), "flapped: {heard}");
        assert!(new.stop().success());
        assert!(!web.iter().any(|ip| has(*ip)), "{}", on_lo());
    });
}

#[test]
fn an_address_that_somebody_deletes_comes_back() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let backend = Backend::start("a");
        let seaway = Setup::new()
            .write("pool.yaml", POOL)
            .write("web.yaml", &both(Service::tcp("web", 80)).to(backend.at).text())
            .start();
        for ip in given(&seaway, "web", 2) {
            let whole = format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 });
            command("ip", &["address", "delete", &whole, "dev", "lo"]);
            until("it is repaired", || has(ip));
            assert!(answers(&outside, (ip, 80).into()), "{ip}");
        }
        until("nothing is wrong", || seaway.problems().is_empty());
    });
}

#[test]
fn without_the_capability_the_commands_are_told_and_what_is_local_is_served() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let backend = Backend::start("a");
        let seaway = Setup::new()
            .by(&WITHOUT_NET_ADMIN)
            .config("tcpServices: [local:80]\n")
            .write("pool.yaml", POOL)
            .write("local.yaml", &Service::tcp("local", 80).cluster_ip().to(backend.at).text())
            .write("web.yaml", &both(Service::tcp("web", 80)).to(backend.at).text())
            .start();
        until("it is told", || seaway.has_problem("NotPermitted"));
        assert!(Talk::open(seaway.at(80)).is_ok(), "what is local needs no capability");
        let state = seaway.state();
        let fixes: Vec<String> = (state["problems"].as_array().into_iter().flatten())
            .filter(|it| it["reason"] == "NotPermitted")
            .filter_map(|it| it["fix"].as_str().map(str::to_owned))
            .collect();
        assert!(!fixes.is_empty() && fixes.iter().all(|it| it.contains("ip address add")), "{fixes:?}");
        assert!(!seaway.log().contains("\n  "), "a Problem is one line of the log: {}", seaway.log());
        for line in
            fixes.iter().flat_map(|it| it.lines()).filter(|it| it.starts_with("  ") && !it.contains("setcap"))
        {
            command("sh", &["-c", line.trim()]);
        }
        until("nothing is wrong any more", || seaway.problems().is_empty());
        for ip in given(&seaway, "web", 2) {
            assert!(answers(&outside, (ip, 80).into()), "{ip}");
        }
    });
}

#[test]
fn where_there_is_no_pool_the_hosts_own_addresses_are_published_as_they_come_and_go() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let backend = Backend::start("a");
        let seaway = Setup::new()
            .finding_addresses()
            .write("web.yaml", &both(Service::tcp("web", 80)).to(backend.at).text())
            .start();
        for ip in ["10.9.0.1", "fd00:9::1"].map(|it| it.parse::<IpAddr>().expect("an address")) {
            assert!(answers(&outside, (ip, 80).into()), "{ip}: {}", seaway.status());
        }
        for loopback in ["127.0.0.1:80", "[::1]:80"] {
            let at = loopback.parse::<SocketAddr>().expect("an address");
            assert!(Talk::open(at).is_err(), "programs of this host may listen at {loopback} themselves");
        }
        let later: SocketAddr = "10.9.0.7:80".parse().expect("an address");
        command("ip", &["address", "add", "10.9.0.7/24", "dev", "v0"]);
        until("the new address is served", || answers(&outside, later));
        until("and published", || seaway.status().to_string().contains("10.9.0.7"));
        command("ip", &["address", "delete", "10.9.0.7/24", "dev", "v0"]);
        until("it is published no more", || !seaway.status().to_string().contains("10.9.0.7"));
        assert!(answers(&outside, "10.9.0.1:80".parse().expect("an address")), "the others go on");
    });
}

#[test]
fn a_low_port_without_the_capability_is_a_problem_of_that_listener_alone() {
    in_a_network_of_its_own(|| {
        let backend = Backend::start("a");
        let seaway = Setup::new()
            .by(&["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-all"])
            .write("low.yaml", &Service::tcp("low", 80).to(backend.at).text())
            .write("high.yaml", &Service::tcp("high", 8080).to(backend.at).text())
            .start();
        until("it is told", || {
            seaway.problems().iter().any(|it| it.0 == "NotPermitted" && it.1.contains("80/TCP"))
        });
        assert!(Talk::open(seaway.at(8080)).is_ok());
        assert!(Talk::open(seaway.at(80)).is_err());
    });
}

#[test]
fn an_address_of_the_configuration_that_comes_later_is_reached_and_told_no_more() {
    in_a_network_of_its_own(|| {
        let backend = Backend::start("a");
        let late: IpAddr = "192.0.2.77".parse().expect("an address");
        let seaway = Setup::new()
            .address(late)
            .write("web.yaml", &Service::tcp("web", 80).to(backend.at).text())
            .start();
        until("it is told", || seaway.has_problem("AddressMissing"));
        command("ip", &["address", "add", "192.0.2.77/32", "dev", "lo"]);
        until("it is told no more", || !seaway.has_problem("AddressMissing"));
        assert!(Talk::open((late, 80).into()).is_ok(), "{}", seaway.log());
        command("ip", &["address", "delete", "192.0.2.77/32", "dev", "lo"]);
        until("it is told again", || seaway.has_problem("AddressMissing"));
    });
}
