//! Members that see their clients' own addresses, since what they answer comes back through this host. As root, in
//! namespaces.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
};

use seaway_testkit::topology::Namespace;

use crate::{
    harness::{PATIENCE, Seaway, Setup, until},
    manifests::Service,
    namespace::{Outside, command, in_a_network_of_its_own, one_cable_away},
};

const POOL: &str = "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: public}\nspec: {addresses: [192.0.2.0/28, \"2001:db8::/120\"]}\n";
const CLIENTS: [&str; 2] = ["10.9.0.2", "fd00:9::2"];
const MEMBERS: [&str; 2] = ["10.8.0.2", "fd00:8::2"];

/// A network behind this host: whatever leaves it comes by here.
fn behind() -> Namespace {
    let inside = one_cable_away("inside", ["v2", "v3"], 8);
    inside.route("default", "10.8.0.1");
    inside.route("default", "fd00:8::1");
    inside
}

/// Tells whoever comes who he is, by TCP and by UDP at one port.
fn who_am_i(inside: &Namespace, at: &str) -> SocketAddr {
    let ip: IpAddr = at.parse().expect("an address");
    let (streams, datagrams) = inside.run(|| {
        let streams = TcpListener::bind((ip, 0)).expect("a port");
        let datagrams = UdpSocket::bind(streams.local_addr().expect("it is bound")).expect("a port");
        (streams, datagrams)
    });
    let bound = streams.local_addr().expect("it is bound");
    thread::spawn(move || {
        while let Ok((mut stream, peer)) = streams.accept() {
            let _ = stream.write_all(peer.ip().to_string().as_bytes());
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 16];
        while let Ok((_, peer)) = datagrams.recv_from(&mut buffer) {
            let _ = datagrams.send_to(peer.ip().to_string().as_bytes(), peer);
        }
    });
    bound
}

fn asked_by_tcp(outside: &Outside, at: SocketAddr) -> String {
    outside.run(|| {
        let Ok(mut stream) = TcpStream::connect(at) else { return String::new() };
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    })
}

fn asked_by_udp(outside: &Outside, at: SocketAddr) -> String {
    outside.run(|| {
        let any: IpAddr = if at.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let socket = UdpSocket::bind((any, 0)).expect("a port");
        socket.connect(at).expect("an address");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut buffer = [0; 64];
        let answer = socket.send(b"who").and_then(|_| socket.recv(&mut buffer));
        answer.map(|count| String::from_utf8_lossy(&buffer[..count]).into_owned()).unwrap_or_default()
    })
}

/// `tcp` and `udp` at one address of each family, before these members.
fn serve(members: &[SocketAddr], by: &[&str]) -> Seaway {
    let wanted = |service: Service, family: usize| {
        let families = ["[IPv4]", "[IPv6]"][family];
        let service = service.spec(&format!("ipFamilies: {families}")).with("transparent", "true");
        service.to(members[family]).text()
    };
    let mut setup = Setup::new().write("pool.yaml", POOL);
    for (family, name) in ["four", "six"].into_iter().enumerate() {
        setup = setup
            .write(&format!("tcp-{name}.yaml"), &wanted(Service::tcp(&format!("tcp-{name}"), 80), family));
        setup = setup
            .write(&format!("udp-{name}.yaml"), &wanted(Service::udp(&format!("udp-{name}"), 53), family));
    }
    if by.is_empty() { setup.start() } else { setup.by(by).start() }
}

fn given(seaway: &Seaway, service: &str, port: u16) -> SocketAddr {
    let mut found = None;
    until("status.json tells its address", || {
        let status = seaway.status();
        let told = status["services"][format!("Service default/{service}")]["addresses"][0]
            .as_str()
            .map(str::to_owned);
        found = told.and_then(|it| it.parse::<IpAddr>().ok());
        found.is_some()
    });
    SocketAddr::new(found.expect("it is told"), port)
}

#[test]
fn members_see_the_clients_address_and_their_answers_come_back() {
    in_a_network_of_its_own(|| {
        let (outside, inside) = (Outside::connect(), behind());
        let members = MEMBERS.map(|at| who_am_i(&inside, at));
        let seaway = serve(&members, &[]);
        for (family, name) in ["four", "six"].into_iter().enumerate() {
            let (tcp, udp) =
                (given(&seaway, &format!("tcp-{name}"), 80), given(&seaway, &format!("udp-{name}"), 53));
            until("it answers by TCP", || asked_by_tcp(&outside, tcp) == CLIENTS[family]);
            until("it answers by UDP", || asked_by_udp(&outside, udp) == CLIENTS[family]);
        }
        assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
        // Somebody who does not know what it is takes it away: it is there again after a while. Until then a new process
        // makes it so.
        command("nft", &["flush", "ruleset"]);
        assert!(seaway.stop().success());
        let seaway = serve(&members, &[]);
        let tcp = given(&seaway, "tcp-four", 80);
        until("it answers again", || asked_by_tcp(&outside, tcp) == CLIENTS[0]);
        // What stays after a clean stop is in the log, with the commands that remove it.
        let mut seaway = seaway;
        seaway.signal(nix::sys::signal::Signal::SIGTERM);
        assert!(seaway.wait().success());
        let mut remove = None;
        until("the log says how to remove it", || {
            let log = seaway.log();
            // Another line says how to reset arp_ignore.
            let commands = log.lines().filter_map(|it| Some(it.split_once("as root: ")?.1));
            remove = commands.filter(|it| it.contains("nft delete")).map(str::to_owned).next();
            remove.is_some()
        });
        let rules = || {
            command("ip", &["rule"]) + &command("ip", &["-6", "rule"]) + &command("nft", &["list", "tables"])
        };
        assert!(rules().contains("21153") && rules().contains("inet seaway"), "{}", rules());
        command("sh", &["-c", &remove.expect("it was found")]);
        assert!(!rules().contains("21153") && !rules().contains("seaway"), "{}", rules());
    });
}

#[test]
fn who_may_not_lead_answers_back_says_so_and_serves_all_the_same() {
    in_a_network_of_its_own(|| {
        let (outside, inside) = (Outside::connect(), behind());
        let members = MEMBERS.map(|at| who_am_i(&inside, at));
        command("ip", &["address", "add", "192.0.2.0/32", "dev", "lo"]);
        let seaway = serve(&members, &["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"]);
        until("it is told", || {
            let told = seaway.problems();
            told.iter().any(|it| {
                it.0 == "NotPermitted" && it.1.contains("members see the address of this host instead")
            })
        });
        let mut at = None;
        until("somebody has the address that is there", || {
            at = ["tcp-four", "udp-four"]
                .map(|it| (it, given(&seaway, it, 80)))
                .into_iter()
                .find(|(_, at)| at.ip() == IpAddr::from([192, 0, 2, 0]));
            at.is_some()
        });
        let (name, at) = at.expect("somebody has it");
        let answer = || match name {
            "tcp-four" => asked_by_tcp(&outside, at),
            _ => asked_by_udp(&outside, SocketAddr::new(at.ip(), 53)),
        };
        until("members see this host", || answer() == "10.8.0.1");
    });
}
