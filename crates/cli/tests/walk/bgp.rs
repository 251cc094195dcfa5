//! Two hosts without a cluster that announce an address by BGP to a router, which spreads a client's connections over both. As
//! root, in namespaces, with BIRD.
//!
//! ```text
//!     client 10.60.0.10 ── 10.60.0.1 router (BIRD) 10.50.0.254 ── bridge ─┬─ edge-1 10.50.0.1: seaway run ─┐
//!       (and 10.60.1.0/24)                                                ├─ edge-2 10.50.0.2: seaway run ─┤
//!       asks 203.0.113.7                                                  └─ members 10.50.0.20–22 ────────┘
//! ```

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use seaway_testkit::topology::{Backend, Bird, Namespace, Running, lacks_routers};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::{
    harness::{Folder, path, until},
    manifests::Service,
    namespace::{command, in_a_network_of_its_own},
};

const AT: &str = "203.0.113.7:80";
const OBJECTS: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: routed}
spec: {addresses: [203.0.113.0/28], announce: bgp}
---
apiVersion: seaway.dev/v1alpha1
kind: BFDProfile
metadata: {name: fast}
spec: {receiveInterval: 100, transmitInterval: 100, detectMultiplier: 3}
---
apiVersion: seaway.dev/v1alpha1
kind: BGPPeer
metadata: {name: router}
spec: {myASN: 64512, peerASN: 64513, peerAddress: 10.50.0.254, connectTime: 1s, bfdProfile: fast}
";
const MEMBERS: [&str; 3] = ["10.50.0.20:7", "10.50.0.21:7", "10.50.0.22:7"];

struct Network {
    client: Namespace,
    router: Namespace,
    edges: [Namespace; 2],
    folder: Folder,
    bird: Option<Bird>,
    _members: Vec<Backend>,
    _of_members: Namespace,
}

impl Network {
    /// `of_neighbors`: what BIRD's configuration says of both hosts beside the usual; `annotations` of the Service.
    fn new(objects: &str, of_neighbors: &str, annotations: &[(&str, &str)]) -> Network {
        command("ip", &["link", "add", "br0", "type", "bridge"]);
        command("ip", &["link", "set", "br0", "up"]);
        let plug = |role: &str, addresses: &[&str]| {
            let there = Namespace::create(role);
            there.believe_no_redirects();
            there.cable_from_here(role, "eth0");
            command("ip", &["link", "set", role, "master", "br0", "up"]);
            addresses.iter().for_each(|it| there.address("eth0", it));
            there
        };
        let router = plug("router", &["10.50.0.254/24"]);
        router.forward();
        // A flow by its ports, too.
        router.run(|| fs::write("/proc/sys/net/ipv4/fib_multipath_hash_policy", "1").expect("this is root"));
        let client = Namespace::create("client");
        client.cable("eth0", &router, "client");
        client.address("eth0", "10.60.0.10/24");
        router.address("client", "10.60.0.1/24");
        router.ip(&["address", "add", "10.60.1.1/24", "dev", "client"]);
        (2..=254_u8).for_each(|last| {
            drop(client.ip(&["address", "add", &format!("10.60.1.{last}/24"), "dev", "eth0"]))
        });
        client.route("default", "10.60.0.1");
        let of_members = plug("members", &["10.50.0.20/24", "10.50.0.21/24", "10.50.0.22/24"]);
        let edges = [plug("edge1", &["10.50.0.1/24"]), plug("edge2", &["10.50.0.2/24"])];
        edges.iter().for_each(|it| it.route("default", "10.50.0.254"));
        let members = MEMBERS.map(|at| of_members.run(|| Backend::start_at(at, at)));
        let folder = Folder::new();
        folder.write("bgp.yaml", objects);
        let members_at = MEMBERS.map(|it| it.parse::<SocketAddr>().expect("an address"));
        let service = annotations
            .iter()
            .fold(Service::tcp("web", 80), |service, (option, value)| service.with(option, value))
            .with("address", "203.0.113.7");
        folder.write("web.yaml", &service.all_to(&members_at).text());
        let mut network = Network {
            client,
            router,
            edges,
            folder,
            bird: None,
            _members: members.into(),
            _of_members: of_members,
        };
        network.start_bird(of_neighbors);
        network
    }

    fn start_bird(&mut self, of_neighbors: &str) {
        let neighbor = |edge: usize| {
            format!(
                "protocol bgp edge{edge} {{\n  local 10.50.0.254 as 64513;\n  neighbor 10.50.0.{edge} as 64512;\n  passive;\n  bfd;\n  error wait time 1, 2;\n  \
                 {of_neighbors}\n  ipv4 {{ import all; export none; }};\n}}\n"
            )
        };
        let config = format!(
            "router id 10.50.0.254;\nprotocol device {{}}\nprotocol bfd {{ interface \"eth0\" {{ interval 100 ms; multiplier 3; }}; }}\n\
             protocol kernel {{ merge paths yes; ipv4 {{ import none; export all; }}; }}\n{}{}",
            neighbor(1),
            neighbor(2)
        );
        self.bird = Some(Bird::start(&self.router, &config));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.0.path().join(name)
    }

    /// The host of this number, 0 or 1.
    fn start(&self, edge: usize, more: &[&str]) -> Running {
        let config = self.file(&format!("edge-{edge}.yaml"));
        let text = format!("host: {{name: edge-{}}}\ndrain: 2s\nfrontDoor: {{enabled: false}}\n", edge + 1);
        fs::write(&config, text).expect("written");
        let (manifests, state) = (self.folder.manifests(), self.state(edge));
        let arguments =
            ["run", "--config", path(&config), "--manifests", path(&manifests), "--state-dir", path(&state)];
        self.edges[edge].start(env!("CARGO_BIN_EXE_seaway"), &[&arguments[..], more].concat())
    }

    fn start_both(&self) -> [Option<Running>; 2] {
        let hosts = [0, 1].map(|edge| Some(self.start(edge, &[])));
        until(&format!("both announce it: {:?}", [0, 1].map(|it| self.announced(it))), || {
            self.ways() == [0, 1]
        });
        hosts
    }

    fn until_bfd_is_up(&self) {
        let bird = self.bird.as_ref().expect("it runs");
        let up = || bird.says(&["show", "bfd", "sessions"]).lines().filter(|it| it.contains(" Up ")).count();
        until("BFD is up", || up() == 2);
    }

    fn state(&self, edge: usize) -> PathBuf {
        self.file(&format!("state-{edge}"))
    }

    /// By which hosts the router goes.
    fn ways(&self) -> Vec<usize> {
        let route = self.router.ip(&["route", "show", "203.0.113.7"]);
        (0..2).filter(|edge| route.contains(&format!("via 10.50.0.{} ", edge + 1))).collect()
    }

    fn status(&self, edge: usize) -> Value {
        let text = fs::read_to_string(self.state(edge).join("status.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// What `status.json` of a host says of the Service: whether it is announced, why, and to whom.
    fn announced(&self, edge: usize) -> (String, String, String) {
        let said = &self.status(edge)["services"]["Service default/web"]["announced"];
        let word = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        (word("status"), word("reason"), word("message"))
    }

    /// A new connection, and which member speaks.
    fn asks_from(&self, from: Option<Ipv4Addr>, patience: Duration) -> std::io::Result<String> {
        let at: SocketAddr = AT.parse().expect("an address");
        self.client.run(move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            if let Some(from) = from {
                socket.bind(&SocketAddr::new(from.into(), 0).into())?;
            }
            socket.connect_timeout(&at.into(), patience)?;
            let mut stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(patience))?;
            let mut name = [0; 12];
            stream.read_exact(&mut name)?;
            Ok(String::from_utf8_lossy(&name).into_owned())
        })
    }

    fn asks(&self, patience: Duration) -> std::io::Result<String> {
        self.asks_from(None, patience)
    }

    /// One after the other, until it is over: those that failed.
    fn ask_until(&self, mut over: impl FnMut() -> bool) -> (usize, Vec<std::io::Error>) {
        let (mut asked, mut failed) = (0, Vec::new());
        while !over() {
            asked += 1;
            failed.extend(self.asks(Duration::from_secs(1)).err());
        }
        (asked, failed)
    }

    /// Which member each of 253 clients reaches.
    fn members_of_clients(&self) -> BTreeMap<Ipv4Addr, String> {
        let all = (2..=254_u8).map(|last| Ipv4Addr::new(10, 60, 1, last));
        all.map(|from| (from, self.asks_from(Some(from), Duration::from_secs(5)).expect("it is served")))
            .collect()
    }
}

fn freeze(host: &Running, signal: Signal) {
    let id = i32::try_from(host.id()).expect("process ids are small");
    kill(Pid::from_raw(id), signal).expect("it runs");
}

#[test]
fn a_router_reaches_an_address_through_both_hosts_and_goes_on_by_one_when_the_other_is_lost() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    in_a_network_of_its_own(|| {
        let network = Network::new(OBJECTS, "", &[]);
        let mut hosts = network.start_both();
        network.asks(Duration::from_secs(5)).expect("it is served");
        network.until_bfd_is_up();
        for edge in 0..2 {
            until("it is told", || network.announced(edge).1 == "BGP");
            let (status, _, message) = network.announced(edge);
            assert!(status == "True" && message.contains("announce it by BGP"), "{message}");
        }
        // Frozen: its kernel still accepts connections, and only BFD knows.
        let frozen = hosts[0].as_ref().expect("it runs");
        let since = Instant::now();
        freeze(frozen, Signal::SIGSTOP);
        until("the router goes by the other one", || network.ways() == [1]);
        eprintln!("a host was frozen: the router leaves it after {:?}", since.elapsed());
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        network.asks(Duration::from_secs(5)).expect("it is served");
        freeze(frozen, Signal::SIGCONT);
        until("it is back", || network.ways() == [0, 1]);
        network.until_bfd_is_up();

        let since = Instant::now();
        hosts[1] = None;
        until("the router goes by the other one", || network.ways() == [0]);
        eprintln!("a host was killed: the router leaves it after {:?}", since.elapsed());
        network.asks(Duration::from_secs(5)).expect("it is served");
    });
}

/// Routers prefer others, then it withdraws, and then it closes its sockets.
#[test]
fn a_host_that_stops_sends_routers_elsewhere_before_it_closes_its_sockets() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    in_a_network_of_its_own(|| {
        let network = Network::new(OBJECTS, "", &[]);
        let mut hosts = network.start_both();
        until("clients are served", || network.asks(Duration::from_secs(1)).is_ok());
        let stopping = hosts[0].take().expect("it runs");
        let stopped = thread::spawn(move || stopping.stop());
        let (asked, failed) = network.ask_until(|| stopped.is_finished());
        assert!(stopped.join().expect("no panic").success());
        assert_eq!(network.ways(), [1]);
        eprintln!("a host stopped: {} of {asked} new connections failed", failed.len());
        assert!(failed.is_empty() && asked > 0, "{failed:?}");
    });
}

/// Which router forgets nothing, as it agreed to graceful restart.
#[test]
fn the_next_process_of_a_host_loses_no_route_and_no_connection() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    in_a_network_of_its_own(|| {
        let objects = OBJECTS.replace("bfdProfile: fast", "bfdProfile: fast, enableGracefulRestart: true");
        let network = Network::new(&objects, "graceful restart on;", &[]);
        let [before, _other] = network.start_both();
        let mut before = before.expect("it runs");
        until("clients are served", || network.asks(Duration::from_secs(1)).is_ok());
        let log = network.file("routes.log");
        let monitor = network
            .router
            .command("ip")
            .args(["monitor", "route"])
            .stdout(fs::File::create(&log).expect("written"))
            .spawn();
        let mut monitor = monitor.expect("ip starts");
        let next = network.start(0, &["--take-over"]);
        let (asked, failed) = network.ask_until(|| !before.is_running());
        until("it is told", || network.announced(0).0 == "True");
        let (more, later) = network.ask_until({
            let end = Instant::now() + Duration::from_secs(3);
            move || Instant::now() > end
        });
        drop(next);
        let _ = monitor.kill();
        let _ = monitor.wait();
        eprintln!("take-over: {} of {} new connections failed", failed.len() + later.len(), asked + more);
        assert!(failed.is_empty() && later.is_empty(), "{failed:?} {later:?}");
        let changes = fs::read_to_string(&log).expect("is there");
        let lost: Vec<&str> = changes.lines().filter(|it| it.contains("203.0.113.7")).collect();
        // The last one is that of the process that was killed in the end.
        assert!(lost.len() <= 1, "{lost:?}");
    });
}

/// Both hosts have the same table, so that another host sends a client where the first one did.
#[test]
fn a_client_that_comes_to_another_host_reaches_the_same_member() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    in_a_network_of_its_own(|| {
        let network = Network::new(OBJECTS, "", &[("balance", "source-hash")]);
        let mut hosts = network.start_both();
        let first = network.members_of_clients();
        let used: std::collections::BTreeSet<&String> = first.values().collect();
        assert_eq!(used.len(), MEMBERS.len(), "clients are spread");
        hosts[0] = None;
        until("the router goes by the other one", || network.ways() == [1]);
        let second = network.members_of_clients();
        let same = first.iter().filter(|(from, member)| second.get(from) == Some(member)).count();
        eprintln!("a host was killed: {same} of {} clients reach the same member", first.len());
        assert!(same * 100 >= first.len() * 99, "{same} of {}", first.len());
    });
}

#[test]
fn a_wrong_password_is_one_line_and_a_missing_one_begins_no_session() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    in_a_network_of_its_own(|| {
        let objects = OBJECTS.replace("bfdProfile: fast", "bfdProfile: fast, passwordSecret: {name: router}");
        let secret = |password: &str| {
            format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: router, namespace: default}}\ntype: kubernetes.io/basic-auth\n\
                 stringData: {{password: {password}}}\n"
            )
        };
        let network = Network::new(&objects, "password \"right\";", &[]);
        let _host = network.start(0, &[]);
        let said = || fs::read_to_string(network.state(0).join("status.json")).unwrap_or_default();
        until("it says what is missing", || said().contains("password"));
        assert!(network.ways().is_empty());
        network.folder.write("secret.yaml", &secret("wrong"));
        until("it says what is wrong", || said().contains("MD5"));
        network.folder.write("secret.yaml", &secret("right"));
        until("it is announced", || network.ways() == [0]);
        let address: IpAddr = [203, 0, 113, 7].into();
        assert!(network.edges[0].ip(&["address", "show", "dev", "lo"]).contains(&address.to_string()));
        assert!(!said().contains("\"right\""), "passwords are never told");
        network.asks(Duration::from_secs(5)).expect("it is served");
    });
}
