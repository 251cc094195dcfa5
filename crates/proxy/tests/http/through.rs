//! TLS that does not end here: its first message says where it goes, and not a byte is changed.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use seaway_model::{
    Pool, PoolId,
    load_balancer::{HostPattern, Protocol, ProxyVersion, TlsByName},
};
use seaway_proxy::RefusalReason;

use crate::{scene::*, stage::*, tls::*};

fn id(name: &str) -> PoolId {
    PoolId(name.into())
}

/// Names and the pools that their bytes go to.
fn through(pairs: &[(HostPattern, &str)]) -> TlsByName {
    let through = pairs.iter().map(|(name, pool)| (name.clone(), vec![(id(pool), 1)])).collect();
    TlsByName { through, ..TlsByName::default() }
}

fn opened(stage: &Stage, tls: &TlsByName) -> SocketAddr {
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        listener.tls = Some(Arc::new(tls.clone()));
        listener.timeouts.header = Duration::from_secs(3);
    });
    at
}

/// Where TLS ends for this name, before a member that says it.
fn ending(authority: &Authority, name: &'static str) -> (Stage, SocketAddr, Member) {
    let member = Member::saying(name);
    let tls = TlsByName { default: vec![object("own")], ..TlsByName::default() };
    let (stage, at) = front_with(&[member.at()], |listener| listener.tls = Some(Arc::new(tls.clone())));
    give(&stage, "own", &authority.certificate(name));
    (stage, at, member)
}

#[test]
fn a_name_leads_to_its_pool_exactly_or_by_its_end_beside_names_for_which_tls_ends_here() {
    let authority = Authority::new();
    let (_a, a, _heard_a) = ending(&authority, "a.example");
    let (_w, wild, _heard_w) = ending(&authority, "*.wild.example");
    let own = Member::saying("ended here");
    let stage = Stage::new();
    stage.put(pool(&[own.at()]));
    for (name, at) in [("a", a), ("wild", wild)] {
        stage.put(Pool { id: id(name), ..pool(&[at]) });
    }
    let exact = |name: &str| HostPattern::Exact(name.into());
    let tls = TlsByName {
        by_name: [
            (exact("own.example"), [object("own")].into()),
            (exact("mine.wild.example"), [object("mine")].into()),
        ]
        .into(),
        ..through(&[(exact("a.example"), "a"), (HostPattern::Under("wild.example".into()), "wild")])
    };
    let at = opened(&stage, &tls);
    give(&stage, "own", &authority.certificate("own.example"));
    give(&stage, "mine", &authority.certificate("mine.wild.example"));
    for (name, expected) in [
        ("a.example", "a.example"),
        ("b.wild.example", "*.wild.example"),
        ("own.example", "ended here"),
        ("mine.wild.example", "ended here"),
    ] {
        let mut stream = secure(at, name, config(&authority)).unwrap();
        for _ in 0..2 {
            assert!(get(&mut stream).unwrap().ends_with(expected), "{name}");
        }
    }
    assert!(secure(at, "nobody.example", config(&authority)).is_err());
    let only = opened(&stage, &through(&[(exact("a.example"), "a")]));
    assert!(secure(only, "own.example", config(&authority)).is_err(), "there is nothing to be shown");
    assert!(get(&mut secure(only, "a.example", config(&authority)).unwrap()).unwrap().ends_with("a.example"));
}

/// One connection: everything that comes until `whole`, then an answer.
fn taker(whole: usize) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let taking = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = vec![0; whole];
        stream.read_exact(&mut heard).unwrap();
        stream.write_all(b"answer").unwrap();
        heard
    });
    (at, taking)
}

fn hello_for(authority: &Authority, name: &'static str) -> Vec<u8> {
    let name = rustls::pki_types::ServerName::try_from(name).unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config(authority)), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

#[test]
fn every_byte_goes_on_as_it_came_after_a_proxy_header_if_the_pool_wants_one() {
    let authority = Authority::new();
    let hello = hello_for(&authority, "a.example");
    let sent = [&hello[..], &noise(200_000, 7)].concat();
    for proxy in [None, Some(ProxyVersion::V1)] {
        let stage = Stage::new();
        let at = opened(&stage, &through(&[(HostPattern::Exact("a.example".into()), "a")]));
        let mut stream = connect(at);
        let client = stream.local_addr().unwrap();
        let header = match proxy {
            None => String::new(),
            Some(_) => format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", client.port(), at.port()),
        };
        let (member, taking) = taker(header.len() + sent.len());
        stage.put(Pool { id: id("a"), proxy, ..pool(&[member]) });
        stream.set_nodelay(true).unwrap();
        for piece in hello.chunks(hello.len() / 5) {
            stream.write_all(piece).unwrap();
        }
        stream.write_all(&sent[hello.len()..]).unwrap();
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).unwrap();
        assert!(taking.join().unwrap() == [header.as_bytes(), &sent].concat(), "other bytes came");
        assert_eq!(&answer, b"answer");
    }
}

#[test]
fn what_is_no_hello_or_comes_too_late_goes_nowhere() {
    let authority = Authority::new();
    let (member, _taking) = taker(1);
    let stage = Stage::new();
    let at = opened(&stage, &through(&[(HostPattern::Exact("a.example".into()), "a")]));
    stage.put(Pool { id: id("a"), ..pool(&[member]) });
    let hello = hello_for(&authority, "a.example");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &hello[..hello.len() / 2], b"\x16\x03\x01\x00\x00"] {
        let mut stream = connect(at);
        stream.write_all(bytes).unwrap();
        assert_eq!(stream.read(&mut [0; 9]).unwrap_or(0), 0);
    }
    eventually("they are counted", || stage.listener(at).refused(RefusalReason::Tls) == 3);
    assert_eq!(stage.member(member).traffic.total, 0);
}

/// Many Services share the listener, each with times of its own.
#[test]
fn a_pool_says_how_long_its_connections_may_be_silent() {
    let authority = Authority::new();
    let hello = hello_for(&authority, "a.example");
    let (member, taking) = taker(hello.len());
    let stage = Stage::new();
    let at = opened(&stage, &through(&[(HostPattern::Exact("a.example".into()), "a")]));
    let http = seaway_model::load_balancer::PoolHttpOptions {
        idle: Some(Duration::from_millis(100)),
        half_closed: Some(Duration::from_millis(100)),
        ..Default::default()
    };
    stage.put(Pool { id: id("a"), http, ..pool(&[member]) });
    let mut stream = connect(at);
    stream.write_all(&hello).unwrap();
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    let begun = std::time::Instant::now();
    // Its member has closed, and this side says nothing more.
    assert_eq!(stream.read(&mut [0; 9]).unwrap_or(0), 0);
    taking.join().unwrap();
    eventually("it ends", || stage.listener(at).traffic.current == 0);
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}
