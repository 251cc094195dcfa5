//! What is tested elsewhere over IPv4, over IPv6; and from one family to the other.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicU16, Ordering},
};

use crate::{
    backends::{Backend, Datagrams, Talk, ask},
    harness::{Seaway, Setup, until},
    manifests::Service,
};

const HERE: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// There is one `::1` for all tests, so each takes a port that nobody is given by chance.
fn own_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = (std::process::id() % 350) as u16;
    10_000 + process * 64 + NEXT.fetch_add(1, Ordering::Relaxed) % 64
}

fn start(service: &Service) -> Seaway {
    Setup::new().address(HERE).write("shop.yaml", &service.text()).start()
}

/// On `::1` only.
fn v6(service: Service) -> Service {
    service.spec("ipFamilies: [IPv6]")
}

fn both(service: Service) -> Service {
    service.spec("ipFamilyPolicy: RequireDualStack")
}

fn at(port: u16) -> SocketAddr {
    (HERE, port).into()
}

fn v6_backend(name: &str) -> Backend {
    Backend::start_at(name, "[::1]:0")
}

fn client(at: SocketAddr) -> UdpSocket {
    let any = if at.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    UdpSocket::bind(any).expect("a port")
}

#[test]
fn tcp_over_ipv6_is_served_and_checked() {
    // At a port that nobody is given by chance, before it is back.
    let (stays, dies) = (v6_backend("stays"), Backend::start_at("dies", (HERE, own_port())));
    let port = own_port();
    let service = v6(Service::tcp("shop", port))
        .with("health-check-interval", "50ms")
        .with("health-check-fall", "2")
        .all_to(&[stays.at, dies.at]);
    let seaway = start(&service);
    for name in ["stays", "dies"] {
        until(name, || Talk::open(at(port)).is_ok_and(|it| it.with == name));
    }
    let gone = dies.kill_and_tell();
    until("it is down", || seaway.member(gone)["state"] == "down");
    for _ in 0..10 {
        let mut talk = Talk::open(at(port)).expect("served");
        talk.echo(b"hello").expect("echoed");
        assert_eq!(talk.with, "stays");
    }
    let _back = Backend::start_at("back", gone);
    until("it is used again", || Talk::open(at(port)).is_ok_and(|it| it.with == "back"));
    assert!(Talk::open(seaway.at(port)).is_err(), "nothing is served over IPv4");
}

#[test]
fn udp_over_ipv6_is_answered_from_the_address_that_was_asked() {
    let backend = Datagrams::start_at("u", "[::1]:0");
    let port = own_port();
    let _seaway = start(&v6(Service::udp("dns", port)).to(backend.at));
    let client = client(at(port));
    for text in ["one", "two"] {
        let answer = ask(&client, at(port), text.as_bytes()).expect("answered");
        assert_eq!(answer, format!("u {text}").into_bytes());
    }
}

#[test]
fn source_ranges_of_ipv6_are_heeded() {
    let backend = v6_backend("a");
    let port = own_port();
    let service = |range: &str| v6(Service::tcp("shop", port)).with("source-ranges", range).to(backend.at);
    let seaway = start(&service("2001:db8::/32"));
    assert!(Talk::open(at(port)).is_err());
    seaway.folder.write("shop.yaml", &service("2001:db8::/32,::1/128").text());
    until("we are allowed", || Talk::open(at(port)).is_ok());
    // The spec's own field means the same.
    let spec = v6(Service::tcp("shop", port)).spec("loadBalancerSourceRanges: [\"2001:db8::/32\"]");
    seaway.folder.write("shop.yaml", &spec.to(backend.at).text());
    until("we are refused", || Talk::open(at(port)).is_err());
}

#[test]
fn an_ipv6_client_keeps_its_member_by_affinity_and_by_hash() {
    let backends = ["a", "b", "c", "d"].map(v6_backend);
    let all: Vec<_> = backends.iter().map(|it| it.at).collect();
    let port = own_port();
    let sticky = v6(Service::tcp("shop", port)).spec("sessionAffinity: ClientIP").all_to(&all);
    let seaway = start(&sticky);
    let keeps = || {
        let first = Talk::open(at(port)).expect("served").with;
        (0..12).all(|_| Talk::open(at(port)).is_ok_and(|it| it.with == first))
    };
    assert!(keeps());
    let hashed = v6(Service::tcp("shop", port)).with("balance", "source-hash").all_to(&all);
    seaway.folder.write("shop.yaml", &hashed.text());
    until("it is in force", || {
        seaway.state()["services"][0]["pools"][0]["balance"].to_string().to_lowercase().contains("hash")
    });
    assert!(keeps());
}

#[test]
fn members_of_one_family_serve_clients_of_the_other() {
    let (four, six) = (Backend::start("four"), v6_backend("six"));
    let port = own_port();
    let service = both(Service::tcp("shop", port)).all_to(&[four.at, six.at]);
    let seaway = start(&service);
    for door in [seaway.at(port), at(port)] {
        for name in ["four", "six"] {
            until(&format!("{name} through {door}"), || {
                Talk::open(door).is_ok_and(|mut it| it.with == name && it.echo(b"hello").is_ok())
            });
        }
    }
}

#[test]
fn udp_members_of_one_family_serve_clients_of_the_other() {
    let (four, six) = (Datagrams::start("four"), Datagrams::start_at("six", "[::1]:0"));
    let port = own_port();
    let service = both(Service::udp("dns", port)).all_to(&[four.at, six.at]);
    let seaway = start(&service);
    for door in [seaway.at(port), at(port)] {
        for name in ["four", "six"] {
            until(&format!("{name} through {door}"), || {
                ask(&client(door), door, b"x").is_ok_and(|it| it == format!("{name} x").into_bytes())
            });
        }
    }
}

#[test]
fn a_service_that_requires_both_families_gets_an_address_of_each() {
    let backend = Backend::start("a");
    let port = own_port();
    let seaway = start(&both(Service::tcp("shop", port)).to(backend.at));
    until("status.json names both", || {
        let addresses = seaway.status()["services"]["Service default/shop"]["addresses"].to_string();
        addresses.contains("::1") && addresses.contains(&seaway.ip.to_string())
    });
    assert!(Talk::open(seaway.at(port)).is_ok() && Talk::open(at(port)).is_ok());
}

#[test]
fn both_families_that_cannot_be_had_are_a_problem() {
    let backend = Backend::start("a");
    let service = both(Service::tcp("shop", 8080)).to(backend.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    until("it is told", || {
        seaway.problems().iter().any(|it| it.1.contains("IPv6") && it.2.contains("shop.yaml:"))
    });
}
