//! Loops of UDP.

use std::{
    net::UdpSocket,
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_model::{L4, Listener, Pool};
use seaway_testkit::balancing;

use crate::{
    rings::{MOST_DESCRIPTORS, Ring, key, open},
    stage::*,
};

fn listener(listener: &mut Listener) {
    listener.l4 = L4::Udp;
    listener.timeouts.udp_idle = Duration::from_secs(1);
}

fn pool(pool: &mut Pool) {
    pool.l4 = L4::Udp;
}

/// Answers each datagram with itself.
fn echo() -> std::net::SocketAddr {
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    let at = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..length], from);
            if &bytes[..length] == b"over" {
                return;
            }
        }
    });
    at
}

fn answered(client: &UdpSocket, at: std::net::SocketAddr, what: &[u8]) -> bool {
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = [0; 64];
    while Instant::now() < deadline {
        client.send_to(what, at).unwrap();
        if client.recv(&mut bytes).is_ok_and(|length| &bytes[..length] == what) {
            return true;
        }
    }
    false
}

#[test]
fn a_ring_of_one_two_or_three_ends_by_itself() {
    for length in 1..=3 {
        let ring = Ring::new(length, listener, pool);
        let member = echo();
        let other = key("other");
        let beside = open(&ring.stage.proxy, &other, listener);
        let mut real = balancing::pool(&[member]);
        pool(&mut real);
        ring.stage.proxy.put_pool(&other, Arc::new(real));
        let client = UdpSocket::bind((HERE, 0)).unwrap();
        eventually("it has come round", || {
            client.send_to(b"round", ring.at[0]).unwrap();
            ring.refused() > 0
        });
        let another = UdpSocket::bind((HERE, 0)).unwrap();
        assert!(answered(&another, beside, b"over"), "others are served");
        let most = ring.most_descriptors();
        assert!(most <= MOST_DESCRIPTORS, "{most} descriptors for one client");
        eventually("silence ends it", || ring.open_now() == 0);
    }
}

#[test]
fn a_chain_of_services_is_no_loop() {
    let stage = Stage::new();
    let mut next = echo();
    for link in ["c", "b", "a"] {
        let key = key(link);
        let at = open(&stage.proxy, &key, listener);
        let mut real = balancing::pool(&[next]);
        pool(&mut real);
        stage.proxy.put_pool(&key, Arc::new(real));
        next = at;
    }
    let client = UdpSocket::bind((HERE, 0)).unwrap();
    assert!(answered(&client, next, b"over"));
}
