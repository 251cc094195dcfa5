//! Loops of HTTP: requests are marked, and the mark is counted wherever they come from.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use seaway_model::{
    Listener, Pool,
    load_balancer::{BackendProtocol, Filter, HeaderChange, Protocol, Rule},
};
use seaway_testkit::balancing;

use crate::{
    rings::{MOST_DESCRIPTORS, Ring, key, open},
    stage::*,
};

fn http(listener: &mut Listener) {
    listener.protocol = Protocol::Http;
}

fn to_members(pool: &mut Pool) {
    pool.protocol = BackendProtocol::Http1;
}

/// The answer to one request, whole.
fn ask(at: SocketAddr, more: &str) -> String {
    let mut stream = connect(at);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: a\r\n{more}Connection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// Answers 200, and keeps the heads that it was asked with.
fn server() -> (Backend, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = heads.clone();
    let backend = Backend::new(HERE, move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(stream.read(&mut byte), Ok(1)) {
                return;
            }
            head.push(byte[0]);
        }
        kept.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    (backend, heads)
}

#[test]
fn a_ring_of_one_two_or_three_is_told_that_it_is_one() {
    for protocol in [BackendProtocol::Http1, BackendProtocol::Http2] {
        for length in 1..=3 {
            let ring = Ring::new(length, http, |pool| pool.protocol = protocol);
            let (backend, _) = server();
            let other = key("other");
            let beside = open(&ring.stage.proxy, &other, http);
            let mut real = balancing::pool(&[backend.at]);
            to_members(&mut real);
            ring.stage.proxy.put_pool(&other, Arc::new(real));
            for _ in 0..3 {
                let answer = ask(ring.at[0], "");
                assert_eq!(status(&answer), "508", "{protocol:?}, {length}: {answer}");
                assert_eq!(status(&ask(beside, "")), "200", "others are served");
            }
            assert!(ring.refused() >= 3, "{} refused", ring.refused());
            let most = ring.most_descriptors();
            assert!(most <= MOST_DESCRIPTORS, "{most} descriptors");
        }
    }
}

#[test]
fn a_rule_cannot_take_the_mark_away() {
    let strips = |it: &mut Listener| {
        http(it);
        let change = HeaderChange { remove: vec!["CDN-Loop".into()], ..HeaderChange::default() };
        let rule = Rule::forward_all(balancing::owner(), balancing::pool_id());
        it.rules = vec![Rule { filters: vec![Filter::RequestHeaders(change)], ..rule }.into()];
    };
    let ring = Ring::new(2, strips, to_members);
    assert_eq!(status(&ask(ring.at[0], "")), "508");
}

/// Bytes both ways, by connections that are not ours.
fn relay(to: SocketAddr) -> Backend {
    Backend::new(HERE, move |mut from| {
        let Ok(mut onward) = TcpStream::connect(to) else { return };
        let (mut back, mut answers) = (from.try_clone().unwrap(), onward.try_clone().unwrap());
        let up = thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut onward);
            let _ = onward.shutdown(std::net::Shutdown::Write);
        });
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Both);
        let _ = up.join();
    })
}

#[test]
fn a_loop_through_somebody_else_is_found_by_its_mark() {
    for protocol in [BackendProtocol::Http1, BackendProtocol::Http2] {
        let stage = Stage::new();
        let at = open(&stage.proxy, &stage.key, http);
        let other = relay(at);
        let mut pool = balancing::pool(&[other.at]);
        pool.protocol = protocol;
        stage.put(pool);
        assert_eq!(status(&ask(at, "")), "508", "{protocol:?}");
        assert!(u64::from(stage.listener(at).traffic.most) * 2 <= MOST_DESCRIPTORS);
    }
}

#[test]
fn what_others_say_of_their_own_goes_on_and_means_nothing_to_us() {
    let (backend, heads) = server();
    let stage = Stage::new();
    let at = open(&stage.proxy, &stage.key, http);
    let mut pool = balancing::pool(&[backend.at]);
    to_members(&mut pool);
    stage.put(pool);
    let theirs = "cdn-loop: example.net; v=1, example.net, example.net\r\n".repeat(10);
    assert_eq!(status(&ask(at, &theirs)), "200");
    let head = heads.lock().unwrap()[0].clone();
    assert_eq!(head.matches("example.net; v=1").count(), 10, "{head}");
    let ours: Vec<&str> = head.lines().filter(|it| it.starts_with("CDN-Loop: seaway;id=")).collect();
    assert_eq!(ours.len(), 1, "{head}");
    // Through so many others of our kind nothing goes that is not a loop.
    assert_eq!(status(&ask(at, &"CDN-Loop: seaway;id=0\r\n".repeat(15))), "200");
    assert_eq!(status(&ask(at, &"CDN-Loop: seaway;id=0\r\n".repeat(16))), "508");
}

#[test]
fn a_chain_of_services_is_no_loop() {
    let (backend, heads) = server();
    let stage = Stage::new();
    let mut next = backend.at;
    for link in ["c", "b", "a"] {
        let key = key(link);
        let at = open(&stage.proxy, &key, http);
        let mut real = balancing::pool(&[next]);
        to_members(&mut real);
        stage.proxy.put_pool(&key, Arc::new(real));
        next = at;
    }
    assert_eq!(status(&ask(next, "")), "200");
    assert_eq!(heads.lock().unwrap()[0].matches("CDN-Loop: seaway;id=").count(), 3);
}
