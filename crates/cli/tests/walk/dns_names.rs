//! Names of Services in DNS, from the annotation to a real name server, without a cluster. As root, in a network of its own.

use std::{fmt::Write, net::IpAddr, sync::Arc};

use nix::sys::signal::Signal;
use seaway_testkit::topology::{NameServer, NameServerKind, TSIG_SECRET};

use crate::{
    backends::Backend,
    harness::{Folder, Seaway, Setup, own_address, until},
    manifests::Service,
    namespace::{command, in_a_network_of_its_own},
};

const WWW: &str = "www.shop.example";
const MARKER: &str = "_seaway.www.shop.example";

fn config(server: &NameServer, name: &str, more: &str) -> String {
    let key = server.key_file("tsig.key", TSIG_SECRET);
    let mut text = format!(
        "dns:\n  owner: walk\n  ttl: 1s\n  zones:\n  - zone: shop.example\n    server: {}\n",
        server.at()
    );
    let _ = writeln!(text, "    key: {{name: {name}, secretFile: {}}}", key.display());
    format!("{text}{more}")
}

/// Addresses that a client elsewhere could reach.
fn prepare() {
    for ip in ["192.0.2.1", "192.0.2.2"] {
        command("ip", &["address", "add", &format!("{ip}/32"), "dev", "lo"]);
    }
}

fn start(folder: &Arc<Folder>, ip: &str, config: &str) -> Seaway {
    let ip: IpAddr = ip.parse().expect("an address");
    Setup::again(folder.clone(), own_address()).address(ip).config(config).start()
}

fn shop(backend: &Backend, names: &str) -> String {
    Service::tcp("shop", 8_080).with("dns-names", names).to(backend.at).text()
}

fn addresses(server: &NameServer) -> Vec<String> {
    server.all(WWW, "A")
}

#[test]
fn a_name_follows_its_service_and_survives_the_process() {
    in_a_network_of_its_own(|| {
        prepare();
        for kind in [NameServerKind::Bind, NameServerKind::Knot] {
            let Some(mut server) = NameServer::start(kind, "taken A 203.0.113.9") else { return };
            let (backend, folder) = (Backend::start("shop"), Arc::new(Folder::new()));
            folder
                .write("shop.yaml", &shop(&backend, "www.shop.example,taken.shop.example,www.other.example"));
            let mut seaway = start(&folder, "192.0.2.1", &config(&server, "seaway", ""));
            until("the name is there", || addresses(&server) == ["192.0.2.1"]);
            let marker =
                "\"heritage=seaway owner=walk host=edge-1 service=default/shop ttl=1 addresses=192.0.2.1\"";
            assert_eq!(server.all(MARKER, "TXT"), [marker]);
            until("what is not published is told", || {
                let told = seaway.problems();
                let has =
                    |text: &str| told.iter().any(|it| it.0 == "NameNotPublished" && it.1.contains(text));
                has("taken.shop.example is already in DNS, and Seaway did not write it: A 203.0.113.9")
                    && has(
                        "www.other.example is not published in DNS for this Service: no zone of dns.zones contains this name",
                    )
            });
            assert_eq!(server.all("taken.shop.example", "A"), ["203.0.113.9"]);

            // Killed, and started again: nothing is written.
            seaway.signal(Signal::SIGKILL);
            seaway.wait();
            drop(seaway);
            let serial = server.all("shop.example", "SOA");
            let seaway = start(&folder, "192.0.2.1", &config(&server, "seaway", ""));
            until("it is served", || seaway.has_problem("NameNotPublished"));
            assert_eq!(server.all("shop.example", "SOA"), serial);
            // A clean stop of the only host leaves the name, for that there is none is remembered for long.
            assert!(seaway.stop().success());
            assert_eq!(addresses(&server), ["192.0.2.1"]);

            // A name server that is away is told, and asked again.
            let seaway = start(&folder, "192.0.2.1", &config(&server, "seaway", ""));
            server.end();
            folder.write("shop.yaml", &shop(&backend, "www.shop.example,new.shop.example"));
            until("that it is away is told", || {
                seaway.problems().iter().any(|it| {
                    it.1.contains("new.shop.example is not up to date in DNS")
                        && it.1.contains("cannot be reached")
                })
            });
            server.resume();
            until("it is written", || server.all("new.shop.example", "A") == ["192.0.2.1"]);
            assert_eq!(addresses(&server), ["192.0.2.1"]);
            folder.remove("shop.yaml");
            until("all is gone", || {
                addresses(&server).is_empty()
                    && server.all(MARKER, "TXT").is_empty()
                    && server.all("new.shop.example", "A").is_empty()
            });
            assert!(!seaway.log().contains(TSIG_SECRET));
            assert!(seaway.stop().success());
        }
    });
}

#[test]
fn of_two_hosts_with_one_name_the_one_that_stops_leaves_dns_before_it_closes() {
    in_a_network_of_its_own(|| {
        let Some(server) = NameServer::start(NameServerKind::Bind, "") else { return };
        prepare();
        let backend = Backend::start("shop");
        let hosts = [("192.0.2.1", "one"), ("192.0.2.2", "two")].map(|(ip, name)| {
            let folder = Arc::new(Folder::new());
            folder.write("shop.yaml", &shop(&backend, WWW));
            Setup::again(folder, own_address())
                .address(ip.parse().expect("an address"))
                .named(name)
                .config(&config(&server, "seaway", "drain: 10s\n").replace("ttl: 1s", "ttl: 5s"))
                .start()
        });
        until("both are there", || addresses(&server) == ["192.0.2.1", "192.0.2.2"]);
        let [one, two] = hosts;
        one.signal(Signal::SIGTERM);
        until("it is out of DNS", || addresses(&server) == ["192.0.2.2"]);
        // Resolvers still send clients.
        let at = std::net::SocketAddr::from(([192, 0, 2, 1], 8_080));
        assert!(std::net::TcpStream::connect(at).is_ok(), "its socket is open for the rest of the TTL");
        until("it closes", || std::net::TcpStream::connect(at).is_err());
        drop(one);
        assert!(two.stop().success());
        assert_eq!(addresses(&server), ["192.0.2.2"], "the last one stays");
    });
}

#[test]
fn a_wrong_key_is_told_in_one_line_and_what_is_there_stays() {
    in_a_network_of_its_own(|| {
        let Some(server) = NameServer::start(NameServerKind::Bind, "") else { return };
        prepare();
        let (backend, folder) = (Backend::start("shop"), Arc::new(Folder::new()));
        folder.write("shop.yaml", &shop(&backend, WWW));
        let seaway = start(&folder, "192.0.2.1", &config(&server, "other", ""));
        until("it is told", || {
            seaway.problems().iter().any(|it| {
                it.0 == "NameNotPublished"
                    && it.1.contains("does not know the key other")
                    && it.1.contains("(BADKEY)")
            })
        });
        assert!(addresses(&server).is_empty());
    });
}
