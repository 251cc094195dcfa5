//! A machine with addresses of pools, and who asks it.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use seaway_announce::{FirewallRules, Links};
use seaway_testkit::topology::Namespace;

pub(crate) const V4: &str = "203.0.113.7";
pub(crate) const V6: &str = "2001:db8:113::7";
pub(crate) const OTHER: &str = "203.0.113.9";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(crate) fn at(ip_text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(ip_text), port)
}

/// A machine with two addresses of pools and one of somebody else's on `lo`, and a client that has routes to them.
pub(crate) struct Scene {
    pub(crate) client: Namespace,
    pub(crate) machine: Namespace,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let (client, machine) = (Namespace::create("client"), Namespace::create("machine"));
        client.cable("v0", &machine, "v1");
        for (whose, link, addresses) in
            [(&client, "v0", ["10.9.0.1/24", "fd09::1/64"]), (&machine, "v1", ["10.9.0.2/24", "fd09::2/64"])]
        {
            addresses.iter().for_each(|it| whose.address(link, it));
        }
        for (to, via) in [(V4, "10.9.0.2"), (OTHER, "10.9.0.2"), (V6, "fd09::2")] {
            client.route(to, via);
        }
        machine.run(|| {
            let mut links = Links::open().expect("a route socket");
            for address in [V4, V6] {
                links.add(ip(address)).expect("added");
            }
        });
        machine.ip(&["address", "add", &format!("{OTHER}/32"), "dev", "lo"]);
        Scene { client, machine }
    }

    pub(crate) fn guard(&self, addresses: &[IpAddr]) {
        let guarded = self.machine.run(|| FirewallRules::set(addresses)).expect("root may");
        assert!(guarded.translatable.is_none(), "{guarded:?}");
    }

    pub(crate) fn nft(&self, rules: &str) {
        assert!(self.machine.command("nft").arg(rules).status().expect("nft runs").success(), "{rules}");
    }

    /// Says its name to everybody who comes.
    pub(crate) fn answers(&self, at: SocketAddr, name: &'static str) {
        let listener = self.machine.run(|| TcpListener::bind(at)).expect("it listens");
        thread::spawn(move || {
            for stream in listener.incoming() {
                // Whoever is gone need not hear it.
                let _ = stream.and_then(|mut it| it.write_all(name.as_bytes()));
            }
        });
    }

    pub(crate) fn is_refused(&self, at: SocketAddr) -> bool {
        let came = self.client.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(20)));
        came.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    pub(crate) fn hears(&self, at: SocketAddr) -> Option<String> {
        heard(&self.client, at)
    }
}

pub(crate) fn heard(from: &Namespace, at: SocketAddr) -> Option<String> {
    from.run(|| {
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    })
}
