//! Two hosts without a cluster that announce an address by ARP, and a client in their network. As root, in namespaces.
//!
//! ```text
//!     client 10.40.0.10 ─┐          ┌─ edge-1 10.40.0.1: seaway run ─┐
//!                        ├─ bridge ─┤                                ├─ web 10.40.0.20:8080
//!                        │          └─ edge-2 10.40.0.2: seaway run ─┘
//!                        └── asks http://10.40.0.100/
//! ```

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use seaway_testkit::topology::{Namespace, Running, Web};
use serde_json::Value;

use crate::{
    harness::{Folder, path, until},
    manifests::Service,
    namespace::{command, in_a_network_of_its_own},
};

const POOL: &str = "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: lan}\nspec: {addresses: [10.40.0.100], announce: l2}\n";
const AT: &str = "10.40.0.100:80";
/// Without a farewell, another host answers later than that.
const PLANNED: Duration = Duration::from_millis(400);
const KEY: &str = "0123456789abcdef0123456789abcdef\n";

/// A network with a bridge, which ends with the test's own.
struct Lan {
    client: Namespace,
    edges: [Namespace; 2],
    folder: Folder,
    _web: Web,
    _of_web: Namespace,
}

impl Lan {
    fn new() -> Lan {
        command("ip", &["link", "add", "br0", "type", "bridge"]);
        command("ip", &["link", "set", "br0", "up"]);
        let plug = |role: &str, at: &str| {
            let there = Namespace::create(role);
            there.cable_from_here(role, "eth0");
            command("ip", &["link", "set", role, "master", "br0", "up"]);
            there.address("eth0", &format!("{at}/24"));
            there
        };
        let (client, web) = (plug("client", "10.40.0.10"), plug("web", "10.40.0.20"));
        let edges = [plug("edge1", "10.40.0.1"), plug("edge2", "10.40.0.2")];
        // A host that hears no other one has to reach its gateway.
        edges.iter().for_each(|it| it.route("default", "10.40.0.10"));
        let answers = web.run(|| Web::start_at("web", "10.40.0.20:8080"));
        let folder = Folder::new();
        folder.write("pool.yaml", POOL);
        let backend: SocketAddr = "10.40.0.20:8080".parse().expect("an address");
        folder.write("web.yaml", &Service::tcp("web", 80).to(backend).text());
        Lan { client, edges, folder, _web: answers, _of_web: web }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.0.path().join(name)
    }

    /// The host of this number, 0 or 1; `layer2`: what `seaway.yaml` says of it.
    fn start(&self, edge: usize, layer2: &str) -> Running {
        self.start_with(edge, layer2, &[])
    }

    fn start_with(&self, edge: usize, layer2: &str, more: &[&str]) -> Running {
        let config = self.file(&format!("edge-{edge}.yaml"));
        let text =
            format!("host: {{name: edge-{}}}\ndrain: 2s\nfrontDoor: {{enabled: false}}\n{layer2}", edge + 1);
        fs::write(&config, text).expect("written");
        let (manifests, state) = (self.folder.manifests(), self.state(edge));
        let arguments =
            ["run", "--config", path(&config), "--manifests", path(&manifests), "--state-dir", path(&state)];
        let arguments = [&arguments[..], more].concat();
        self.edges[edge].start(env!("CARGO_BIN_EXE_seaway"), &arguments)
    }

    fn start_both(&self) -> [Option<Running>; 2] {
        let key = self.file("layer2.key");
        fs::write(&key, KEY).expect("written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
        [Some(self.start(0, &self.layer2(1))), Some(self.start(1, &self.layer2(0)))]
    }

    /// With the key, and this other host.
    fn layer2(&self, other: usize) -> String {
        let peer = format!("{{name: edge-{}, addresses: [10.40.0.{0}]}}", other + 1);
        format!("layer2: {{keyFile: layer2.key, peers: [{peer}]}}\n")
    }

    fn state(&self, edge: usize) -> PathBuf {
        self.file(&format!("state-{edge}"))
    }

    /// What `status.json` of a host says of the Service: whether it is announced, why, and by whom.
    fn announced(&self, edge: usize) -> (String, String, String) {
        let text = fs::read_to_string(self.state(edge).join("status.json")).unwrap_or_default();
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        let said = &status["services"]["Service default/web"]["announced"];
        let word = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        (word("status"), word("reason"), word("message"))
    }

    /// Whose interface has the MAC address that the client knows.
    fn owner(&self) -> Option<usize> {
        let known = self.client.ip(&["neigh", "show", "10.40.0.100"]);
        let mac = known.split("lladdr ").nth(1)?.split(' ').next()?.to_owned();
        self.edges.iter().position(|it| it.ip(&["-o", "link", "show", "eth0"]).contains(&mac))
    }

    fn asks(&self) -> std::io::Result<()> {
        self.asks_for(Duration::from_millis(100))
    }

    fn asks_for(&self, patience: Duration) -> std::io::Result<()> {
        let at: SocketAddr = AT.parse().expect("an address");
        self.client.run(move || TcpStream::connect_timeout(&at, patience).map(drop))
    }

    fn until_served(&self) -> Duration {
        let began = Instant::now();
        until("a client is served", || self.asks().is_ok());
        began.elapsed()
    }
}

#[test]
fn an_address_fails_over_between_two_hosts_that_share_a_key() {
    in_a_network_of_its_own(|| {
        let lan = Lan::new();
        let mut hosts = lan.start_both();
        until("somebody announces it", || (0..2).any(|edge| lan.announced(edge).1 == "Layer2"));
        lan.until_served();
        assert_eq!(lan.client.curl("http://10.40.0.100/").as_deref(), Ok("web"));
        let owner = lan.owner().expect("somebody answered");
        let other = 1 - owner;
        let names = ["edge-1", "edge-2"];
        for edge in [owner, other] {
            until("both know who announces", || {
                let (status, _, message) = lan.announced(edge);
                status == "True" && message.contains(&format!("host {} announces this address", names[owner]))
            });
        }
        // Killed: it cannot say anything any more.
        hosts[owner] = None;
        let took = lan.until_served();
        eprintln!("the owner was killed: another serves after {took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert_eq!(lan.owner(), Some(other));
        assert_eq!(lan.client.curl("http://10.40.0.100/").as_deref(), Ok("web"));
    });
}

/// It is withdrawn first, so that no client finds a closed port.
#[test]
fn a_host_that_stops_withdraws_before_it_closes_its_sockets() {
    in_a_network_of_its_own(|| {
        let lan = Lan::new();
        let mut hosts = lan.start_both();
        for edge in 0..2 {
            until("both know who announces", || lan.announced(edge).0 == "True");
        }
        lan.until_served();
        let owner = lan.owner().expect("somebody answered");
        let stopping = hosts[owner].take().expect("it runs");
        let stopped = std::thread::spawn(move || stopping.stop());
        let (mut refused, mut late) = (Vec::new(), Vec::new());
        while !stopped.is_finished() {
            match lan.asks_for(PLANNED) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => refused.push(error),
                Err(error) => late.push(error),
            }
        }
        assert!(stopped.join().expect("no panic").success());
        assert_eq!(lan.owner(), Some(1 - owner));
        eprintln!("planned move: {} connections were late", late.len());
        assert!(refused.is_empty(), "{refused:?}");
        // One client asks at a time: of a connection that is under way as the address moves, the rest goes to the other host, which resets
        // it.
        let under_way =
            late.iter().filter(|it| it.kind() == std::io::ErrorKind::ConnectionReset).count().min(1);
        assert!(late.len() == under_way, "{late:?}");
    });
}

/// Who has asked before knows the way; who has not waits for a moment.
#[test]
fn the_next_process_of_a_host_announces_once_the_one_before_has_let_go() {
    in_a_network_of_its_own(|| {
        let lan = Lan::new();
        let [before, other] = lan.start_both();
        let mut before = before.expect("it runs");
        drop(other);
        lan.until_served();
        let _next = lan.start_with(0, &lan.layer2(1), &["--take-over"]);
        let mut failed = Vec::new();
        while before.is_running() {
            failed.extend(lan.asks_for(PLANNED).err());
        }
        assert!(failed.is_empty(), "{failed:?}");
        lan.client.ip(&["neigh", "flush", "dev", "eth0"]);
        let took = lan.until_served();
        eprintln!("take-over: a client that knows no way is served after {took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        until("it is told", || lan.announced(0).0 == "True");
    });
}

#[test]
fn without_a_key_two_hosts_announce_nothing_and_say_what_to_type() {
    in_a_network_of_its_own(|| {
        let lan = Lan::new();
        let peer = "layer2: {peers: [{name: edge-2, addresses: [10.40.0.2]}]}\n";
        let _host = lan.start(0, peer);
        until("it says why not", || lan.announced(0).1 == "Layer2Failed");
        let (status, _, message) = lan.announced(0);
        assert!(status == "False" && message.contains("no key"), "{message}");
        assert!(lan.asks().is_err(), "nothing answers for it");
        let status = fs::read_to_string(lan.state(0).join("status.json")).expect("is there");
        assert!(status.contains("openssl rand -hex 32"), "{status}");
    });
}

#[test]
fn one_host_alone_needs_no_key_and_without_the_word_nothing_is_announced() {
    in_a_network_of_its_own(|| {
        let lan = Lan::new();
        lan.folder.write("pool.yaml", &POOL.replace(", announce: l2", ""));
        let began = Instant::now();
        let _host = lan.start(0, "");
        until("it is served", || lan.announced(0).1 == "NotAnnounced");
        eprintln!("served after {:?}", began.elapsed());
        let at: IpAddr = [10, 40, 0, 100].into();
        until("it is on lo", || lan.edges[0].ip(&["address", "show", "dev", "lo"]).contains(&at.to_string()));
        assert!(lan.asks().is_err(), "nothing answers for it");
        assert_eq!(lan.owner(), None);

        lan.folder.write("pool.yaml", POOL);
        let took = lan.until_served();
        eprintln!("from the word `l2` to the first answer: {took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        until("it is told", || lan.announced(0).0 == "True");
        assert!(
            lan.announced(0).2.contains("host edge-1 announces this address on eth0"),
            "{:?}",
            lan.announced(0)
        );

        lan.folder.write("pool.yaml", &POOL.replace("l2", "none"));
        until("it is withdrawn", || lan.announced(0).1 == "Disabled");
        lan.client.ip(&["neigh", "flush", "dev", "eth0"]);
        until("nothing answers any more", || {
            lan.client.ip(&["neigh", "flush", "dev", "eth0"]);
            lan.asks().is_err()
        });
    });
}
