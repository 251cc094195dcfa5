//! A process that serves addresses, and announces them: what a test kills and freezes.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
};

use seaway_announce::{
    ArpSettings, Links,
    layer2::{Announcer, DesiredAnnouncements, HeartbeatKey, Peer, Settings, Timing, WantedAddress},
};
use seaway_model::Name;
use socket2::{Domain, Socket, Type};

/// `name;key;peer=address,…;address,…;port`: this host, its key, all hosts, what it serves, and where it takes commands.
pub(crate) const VARIABLE: &str = "SEAWAY_TEST_HOST";
pub(crate) const ECHO: u16 = 7;

struct Host {
    name: Name,
    peers: Vec<Peer>,
}

impl Host {
    fn wanted(&self, addresses: &[IpAddr]) -> DesiredAnnouncements {
        let candidates: Vec<Name> =
            self.peers.iter().map(|it| it.name.clone()).chain([self.name.clone()]).collect();
        let wanted = |it: &IpAddr| WantedAddress { address: *it, candidates: candidates.clone().into() };
        let addresses = addresses.iter().map(wanted).collect();
        DesiredAnnouncements { peers: self.peers.clone(), addresses, ..DesiredAnnouncements::default() }
    }
}

fn list(text: &str) -> Vec<IpAddr> {
    text.split(',').filter(|it| !it.is_empty()).map(|it| it.parse().expect("an address")).collect()
}

#[test]
#[ignore = "run by another test, as a host"]
fn a_host() {
    let told = std::env::var(VARIABLE).expect("it says who this is");
    let [name, key, peers, served, control] = told.split(';').collect::<Vec<_>>()[..] else {
        panic!("{told}")
    };
    let peers = peers.split(',').filter_map(|it| it.split_once('='));
    let peers =
        peers.map(|(name, at)| Peer { name: name.into(), addresses: vec![at.parse().expect("an address")] });
    let host = Host { name: name.into(), peers: peers.collect() };
    let served = list(served);

    let mut links = Links::open().expect("a route socket");
    ArpSettings::default().enforce_for_good(&links.links().expect("interfaces"));
    for address in &served {
        links.add(*address).expect("added");
        let socket = shared((*address, ECHO).into());
        let answer = name.to_owned();
        thread::spawn(move || echo(&socket, &answer));
    }
    let settings = Settings {
        host: host.name.clone(),
        key: (!key.is_empty()).then(|| HeartbeatKey::new(key)),
        port: Settings::PORT,
        timing: Timing::default(),
    };
    let announcer = Announcer::start(settings, |_| {}).expect("a thread");
    announcer.set_desired(host.wanted(&served));
    let control = UdpSocket::bind(("127.0.0.1", control.parse().expect("a port"))).expect("it is free");
    let mut buffer = [0; 2_000];
    loop {
        let (length, from) = control.recv_from(&mut buffer).expect("a command");
        let answer = match str::from_utf8(&buffer[..length]).expect("text").split_once(' ') {
            Some(("want", addresses)) => {
                announcer.set_desired(host.wanted(&list(addresses)));
                String::new()
            }
            Some(("stop", _)) => {
                announcer.stop();
                control.send_to(b"", from).expect("sent");
                return;
            }
            _ => format!("{:?} {:?}", announcer.counters(), announcer.states()),
        };
        control.send_to(answer.as_bytes(), from).expect("sent");
    }
}

/// As where a process hands its sockets to the next one.
fn shared(at: SocketAddr) -> UdpSocket {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None).expect("a socket");
    socket.set_reuse_port(true).expect("shared");
    socket.bind(&at.into()).expect("it is on lo");
    socket.into()
}

/// What came, and the name.
fn echo(socket: &UdpSocket, name: &str) {
    let mut buffer = [0; 64];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let answer = [&buffer[..length], name.as_bytes()].concat();
        let _ = socket.send_to(&answer, from);
    }
}

/// Tells a host in the network of the calling thread something, and gives its answer.
pub(crate) fn control(port: u16, command: &str) -> Option<String> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(1))).expect("a time-out");
    socket.send_to(command.as_bytes(), ("127.0.0.1", port)).ok()?;
    let mut buffer = [0; 9_000];
    let length = socket.recv(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}
