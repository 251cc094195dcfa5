//! Loops of TCP.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use seaway_model::load_balancer::{BackendProtocol, Protocol, ProxyVersion};
use seaway_testkit::balancing;

use crate::{
    rings::{MOST_DESCRIPTORS, Ring, key, open},
    stage::*,
};

/// Ends, however: a loop has nobody to answer.
fn ends(client: &mut std::net::TcpStream) {
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    match client.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
}

fn is_bounded(ring: &Ring) {
    let backend = Backend::named(b'b');
    let other = key("other");
    let beside = open(&ring.stage.proxy, &other, |_| {});
    ring.stage.proxy.put_pool(&other, Arc::new(balancing::pool(&[backend.at])));
    for _ in 0..3 {
        let mut client = connect(ring.at[0]);
        ends(&mut client);
        assert_eq!(greeted(beside).0, b'b', "others are served");
    }
    assert!(ring.refused() >= 3, "{} refused", ring.refused());
    let most = ring.most_descriptors();
    assert!(most <= MOST_DESCRIPTORS, "{most} descriptors for one connection at a time");
    eventually("all of it has ended", || ring.open_now() == 0);
}

#[test]
fn a_ring_of_one_two_or_three_ends_by_itself() {
    for length in 1..=3 {
        is_bounded(&Ring::new(length, |_| {}, |_| {}));
    }
}

#[test]
fn a_ring_that_tells_who_its_clients_are_ends_by_itself() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        is_bounded(&Ring::new(2, |_| {}, |pool| pool.proxy = Some(version)));
        let trusting =
            |it: &mut seaway_model::Listener| it.proxy_from = vec!["127.0.0.2/32".parse().unwrap()];
        is_bounded(&Ring::new(2, trusting, |pool| pool.proxy = Some(version)));
    }
}

/// Version 1 has no room for how far something has come: what both ends of a connection are tells it.
#[test]
fn a_ring_that_believes_its_own_headers_ends_by_itself() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        for length in 1..=3 {
            let believes =
                |it: &mut seaway_model::Listener| it.proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
            let ring = Ring::new(length, believes, |pool| pool.proxy = Some(version));
            let mut client = connect(ring.at[0]);
            client.write_all(b"PROXY TCP4 198.51.100.7 192.0.2.1 1000 80\r\nhello").unwrap();
            ends(&mut client);
            assert!(ring.refused() >= 1, "{version:?}, {length}");
            let most = ring.most_descriptors();
            assert!(most <= MOST_DESCRIPTORS, "{most} descriptors, {version:?}, {length}");
            eventually("all of it has ended", || ring.open_now() == 0);
        }
    }
}

/// Bytes both ways, by connections that are not ours and keep nobody's address.
fn relay(to: std::net::SocketAddr) -> Backend {
    Backend::new(HERE, move |mut from| {
        let Ok(mut onward) = std::net::TcpStream::connect(to) else { return };
        let (mut back, mut answers) = (from.try_clone().unwrap(), onward.try_clone().unwrap());
        let up = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut onward);
            let _ = onward.shutdown(std::net::Shutdown::Both);
        });
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Both);
        let _ = up.join();
    })
}

#[test]
fn a_loop_through_others_is_found_by_its_proxy_headers() {
    for protocol in [Protocol::Opaque, Protocol::Http] {
        let stage = Stage::new();
        let at = open(&stage.proxy, &stage.key, |it| {
            it.protocol = protocol;
            it.proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
        });
        let other = relay(at);
        let mut pool = balancing::pool(&[other.at]);
        pool.proxy = Some(ProxyVersion::V2);
        if protocol == Protocol::Http {
            pool.protocol = BackendProtocol::Http1;
        }
        stage.put(pool);
        let mut client = connect(at);
        client
            .write_all(b"PROXY TCP4 198.51.100.7 192.0.2.1 1000 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        eventually("it is found", || stage.listener(at).refused(seaway_proxy::RefusalReason::Loop) > 0);
        drop(client);
        let most = u64::from(stage.listener(at).traffic.most) * 2;
        assert!(most <= MOST_DESCRIPTORS, "{most} descriptors");
        eventually("all of it has ended", || stage.listener(at).traffic.current == 0);
    }
}

#[test]
fn a_listener_for_all_addresses_finds_its_own_connections_too() {
    let stage = Stage::new();
    let (at, _) = stage.open(std::net::Ipv4Addr::UNSPECIFIED.into(), |it| it.limits.connections = Some(100));
    let at = (HERE, at.port()).into();
    stage.put(balancing::pool(&[at]));
    ends(&mut connect(at));
    let all = std::net::SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), at.port());
    assert!(stage.listener(all).refused(seaway_proxy::RefusalReason::Loop) >= 1);
    assert!(u64::from(stage.listener(all).traffic.most) * 2 <= MOST_DESCRIPTORS);
    eventually("all of it has ended", || stage.listener(all).traffic.current == 0);
}

#[test]
fn many_clients_of_a_ring_leave_nothing_behind() {
    let ring = Ring::new(1, |it| it.limits.connections = Some(2_000), |_| {});
    let clients: Vec<_> = (0..20).map(|_| connect(ring.at[0])).collect();
    eventually("each has come round", || ring.refused() >= 20);
    drop(clients);
    eventually("all of it has ended", || ring.open_now() == 0);
}

#[test]
fn a_chain_of_services_is_no_loop() {
    let backend = Backend::named(b'b');
    let stage = Stage::new();
    let mut next = backend.at;
    for link in ["c", "b", "a"] {
        let key = key(link);
        let at = open(&stage.proxy, &key, |_| {});
        stage.proxy.put_pool(&key, Arc::new(balancing::pool(&[next])));
        next = at;
    }
    let (name, mut stream) = greeted(next);
    assert_eq!(name, b'b');
    echoes(&mut stream);
}
