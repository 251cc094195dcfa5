//! Services that lead to themselves: told, and nobody else suffers from them.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
};

use crate::{
    backends::{Backend, Talk},
    harness::{Seaway, Setup, own_address, until},
    manifests::Service,
    namespace::{command, in_a_network_of_its_own},
};

const MOST_DESCRIPTORS: usize = 64;
const DOOR: u16 = 8080;

fn descriptors(seaway: &Seaway) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", seaway.child.id())).expect("it runs").count()
}

fn is_live(seaway: &Seaway) -> bool {
    seaway.get("/live").is_ok_and(|(status, _)| status == 200)
}

/// Each leads to the next, at these ports of one address.
fn ring(ip: Ipv4Addr, ports: &[u16], kind: &str) -> String {
    let service = if kind == "udp" { Service::udp } else { Service::tcp };
    let next = ports.iter().cycle().skip(1);
    let all = ports
        .iter()
        .zip(next)
        .map(|(port, next)| service(&format!("ring-{port}-{kind}"), *port).to((ip, *next).into()).text());
    all.collect::<Vec<_>>().join("---\n")
}

#[test]
fn a_loop_of_one_two_or_three_is_reported_and_takes_nothing() {
    let ip = own_address();
    let backend = Backend::start("a");
    let rings: [&[u16]; 3] = [&[7001], &[7002, 7003], &[7004, 7005, 7006]];
    let mut setup = Setup::again(std::sync::Arc::new(crate::harness::Folder::new()), ip)
        .by(&["sh", "-c", "ulimit -n 3000; exec \"$0\" \"$@\""])
        .config(&format!("frontDoor: {{addresses: [\"{ip}\"], port: {DOOR}}}\n"))
        .write("shop.yaml", &Service::tcp("shop", 8000).to(backend.at).text())
        // At the front door: to itself, and to a listener that leads back there.
        .write("web-1.yaml", &Service::web("web-1").to((ip, DOOR).into()).text())
        .write("web-2.yaml", &Service::web("web-2").to((ip, 7010).into()).text())
        .write("back.yaml", &Service::tcp("back", 7010).to((ip, DOOR).into()).text());
    for ports in rings {
        let name = format!("{}", ports[0]);
        setup = setup.write(&format!("tcp-{name}.yaml"), &ring(ip, ports, "tcp"));
        setup = setup.write(&format!("udp-{name}.yaml"), &ring(ip, ports, "udp"));
    }
    let seaway = setup.start();
    let before = descriptors(&seaway);
    let mut clients = Vec::new();
    for port in 7001..=7006 {
        clients.push(TcpStream::connect(seaway.at(port)));
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        datagrams.send_to(b"round and round", seaway.at(port)).expect("sent");
    }
    for path in ["/web-1", "/web-2"] {
        let mut client = TcpStream::connect(seaway.at(DOOR)).expect("it is open");
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    assert!(is_live(&seaway));
    let mut talk = Talk::open(seaway.at(8000)).expect("others are served");
    talk.echo(b"as ever").expect("it goes on");
    let taken = descriptors(&seaway).saturating_sub(before);
    assert!(taken <= MOST_DESCRIPTORS, "{taken} descriptors");
    until("all are told", || {
        let told = seaway.problems();
        let of = |what: &str| told.iter().filter(|it| it.0 == "Loop" && it.1.contains(what)).count();
        (1..=6).all(|it| of(&format!(":700{it} ")) == 2)
            && of(&format!("{ip}:{DOOR} ")) == 2
            && of(":7010 ") == 1
    });
    let place = seaway.problems().into_iter().find(|it| it.1.contains(":7010 ")).expect("it is told");
    assert!(place.2.contains("web-2.yaml:"), "{place:?}");
    until("status.json says so", || seaway.status().to_string().matches("\"Loop\"").count() >= 15);
}

/// Bytes both ways, by a process that is not ours.
fn relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = listener.local_addr().expect("bound");
    thread::spawn(move || {
        while let Ok((from, _)) = listener.accept() {
            let Ok(onward) = TcpStream::connect(to) else { continue };
            for (mut from, mut to) in [(from.try_clone(), onward.try_clone()), (Ok(onward), Ok(from))]
                .map(|(a, b)| (a.expect("open"), b.expect("open")))
            {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                    let _ = from.shutdown(Shutdown::Both);
                });
            }
        }
    });
    at
}

#[test]
fn an_undetected_loop_leaves_descriptors_to_others_and_ends_with_its_client() {
    let ip = own_address();
    let backend = Backend::start("a");
    let through = relay((ip, 7001).into());
    let seaway = Setup::again(std::sync::Arc::new(crate::harness::Folder::new()), ip)
        .by(&["sh", "-c", "ulimit -n 400; exec \"$0\" \"$@\""])
        .write("shop.yaml", &Service::tcp("shop", 8000).to(backend.at).text())
        .write("loop.yaml", &Service::tcp("loop", 7001).with("health-check", "none").to(through).text())
        .start();
    let before = descriptors(&seaway);
    let client = TcpStream::connect(seaway.at(7001)).expect("it is open");
    until("it is told that it has more than its share", || seaway.log().contains("more than its share"));
    for _ in 0..5 {
        let mut talk = Talk::open(seaway.at(8000)).expect("others are served");
        talk.echo(b"as ever").expect("it goes on");
        assert!(is_live(&seaway));
    }
    drop(client);
    until("what it took is free again", || descriptors(&seaway) < before + MOST_DESCRIPTORS);
    assert_eq!(seaway.log().matches("more than its share").count(), 1, "{}", seaway.log());
    assert!(Talk::open(seaway.at(8000)).is_ok());
}

/// Translates what this host sends to the first address to the second, as kube-proxy does with addresses of Services.
const TRANSLATES: &str = "table ip seaway_test { chain out { type nat hook output priority -100; \
    ip daddr 198.51.100.7 tcp dport 80 dnat to 127.0.0.1:7001; }; }";

#[test]
fn a_loop_by_a_translated_destination_is_reported_and_takes_nothing() {
    in_a_network_of_its_own(|| {
        command("ip", &["address", "add", "203.0.113.1/32", "dev", "lo"]);
        command("ip", &["route", "add", "198.51.100.7/32", "dev", "lo", "src", "203.0.113.1"]);
        command("nft", &[TRANSLATES]);
        let elsewhere = (Ipv4Addr::new(198, 51, 100, 7), 80);
        let ip = Ipv4Addr::LOCALHOST;
        let backend = Backend::start("a");
        let seaway = Setup::again(std::sync::Arc::new(crate::harness::Folder::new()), ip)
            .by(&["sh", "-c", "ulimit -n 400; exec \"$0\" \"$@\""])
            .write("shop.yaml", &Service::tcp("shop", 8000).to(backend.at).text())
            .write(
                "loop.yaml",
                &Service::tcp("loop", 7001).with("health-check", "none").to(elsewhere.into()).text(),
            )
            .start();
        let before = descriptors(&seaway);
        let client = TcpStream::connect(seaway.at(7001)).expect("it is open");
        until("it is refused", || seaway.log().contains("its Service sends to itself"));
        let taken = descriptors(&seaway).saturating_sub(before);
        assert!(taken <= MOST_DESCRIPTORS, "{taken} descriptors");
        Talk::open(seaway.at(8000)).expect("others are served").echo(b"as ever").expect("it goes on");
        drop(client);
    });
}
