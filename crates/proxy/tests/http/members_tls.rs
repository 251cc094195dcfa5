//! TLS with members: they are who they are said to be, or nobody asks them anything.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use http::Request;
use seaway_model::{
    Pool,
    load_balancer::{
        BackendProtocol, BackendTls, CheckKind, HealthCheck, HostPattern, PassiveHealthCheck, Protocol,
        TlsByName, Trust,
    },
};
use seaway_proxy::Health;

use crate::{
    peer::*,
    scene::*,
    stage::*,
    tls::{Authority, config, give, object, secure},
};

/// A member by TLS: another stage that ends it, shows `a` to who asks for a.example and `other` to everybody else.
pub(crate) fn behind(
    authority: &Authority,
    member: SocketAddr,
    protocol: BackendProtocol,
) -> (Stage, SocketAddr) {
    let tls = TlsByName {
        default: vec![object("other")],
        by_name: [(HostPattern::Exact("a.example".into()), [object("a")].into())].into(),
        ..TlsByName::default()
    };
    let stage = Stage::new();
    stage.put(Pool { protocol, ..pool(&[member]) });
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        listener.tls = Some(Arc::new(tls.clone()));
    });
    give(&stage, "a", &authority.certificate("a.example"));
    give(&stage, "other", &authority.certificate("other.example"));
    (stage, at)
}

pub(crate) fn wanted(name: Option<&str>, usual: &str, trust: Trust) -> Option<Arc<BackendTls>> {
    Some(Arc::new(BackendTls { name: name.map(Into::into), usual: usual.into(), trust }))
}

pub(crate) fn authorities(authority: &Authority) -> Trust {
    Trust::CaBundle(authority.as_authorities().authorities)
}

pub(crate) fn asking(
    at: SocketAddr,
    tls: Option<Arc<BackendTls>>,
    change: impl FnOnce(&mut Pool),
) -> (Stage, SocketAddr) {
    let stage = Stage::new();
    let mut pool = Pool { tls, ..pool(&[at]) };
    change(&mut pool);
    stage.put(pool);
    let (at, _) = stage.open(HERE, |listener| listener.protocol = Protocol::Http);
    (stage, at)
}

#[test]
fn members_are_asked_only_if_their_certificate_is_for_them() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let member = Member::saying("hello");
    let (_behind, at) = behind(&authority, member.at(), BackendProtocol::Http1);
    for (name, usual, trust, resolved, expected) in [
        (Some("a.example"), "x.example", authorities(&authority), None, 200),
        (None, "a.example", authorities(&authority), None, 200),
        (None, "x.example", authorities(&authority), Some("a.example"), 200),
        (Some("x.example"), "a.example", authorities(&authority), Some("a.example"), 503),
        (Some("x.example"), "a.example", Trust::InsecureSkipVerify, None, 200),
        (Some("a.example"), "a.example", authorities(&stranger), None, 503),
        (Some("a.example"), "a.example", Trust::CaBundle("".into()), None, 503),
        (Some("a.example"), "a.example", Trust::SystemRoots, None, 503),
    ] {
        let told = format!("{name:?} {usual} {trust:?} {resolved:?}").chars().take(60).collect::<String>();
        let heard = member.heard().len();
        let (_stage, at) = asking(at, wanted(name, usual, trust), |pool| {
            pool.members[0].host_name = resolved.map(Into::into);
        });
        let mut client = Client::new(at);
        for _ in 0..3 {
            let answer = client.get("/x");
            assert_eq!(answer.status(), expected, "{told}");
            if expected != 200 {
                break;
            }
            assert_eq!(answer.body, b"hello");
        }
        assert_eq!(member.heard().len() - heard, if expected == 200 { 3 } else { 0 }, "{told}");
    }
}

#[test]
fn connections_in_tls_are_kept_and_bodies_of_any_size_go_both_ways() {
    let authority = Authority::new();
    let member = Member::new(|_, message| Some(ok(&String::from_utf8_lossy(&message.body))));
    let (behind, at) = behind(&authority, member.at(), BackendProtocol::Http1);
    let (_stage, front) = asking(at, wanted(None, "a.example", authorities(&authority)), |_| {});
    let mut client = Client::new(front);
    for size in [0_usize, 10, 20_000, 3 << 20] {
        let body = "x".repeat(size);
        let answer =
            client.ask(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n{body}"));
        assert!(answer.body == body.as_bytes(), "{size}");
    }
    assert_eq!(behind.listener(at).traffic.total, 1, "all by one connection");
}

#[test]
fn http_2_is_agreed_on_with_members_or_they_are_not_asked() {
    let authority = Authority::new();
    let echo = Echo::new(usize::MAX);
    let (_behind, at) = behind(&authority, echo.at, BackendProtocol::Http2);
    let tls = wanted(None, "a.example", authorities(&authority));
    let (_stage, front) = asking(at, tls.clone(), |pool| pool.protocol = BackendProtocol::Http2);
    let mut peer = Peer::new(front);
    for _ in 0..5 {
        let request = Request::post("http://shop.example/package.Service/Method").body(()).unwrap();
        let (head, body, trailers) = peer.ask(request, Some(b"message")).unwrap();
        assert_eq!((head.status().as_u16(), trailers["grpc-status"].as_bytes()), (200, &b"0"[..]));
        assert!(body.ends_with(b"message"));
    }
    // Passed on as bytes, what is agreed on there is nothing.
    let opaque = Stage::new();
    opaque.put(pool(&[echo.at]));
    let (at, _) = opaque.open(HERE, |listener| {
        listener.tls = Some(Arc::new(TlsByName { default: vec![object("a")], ..TlsByName::default() }));
    });
    give(&opaque, "a", &authority.certificate("a.example"));
    let (_stage, front) = asking(at, tls, |pool| pool.protocol = BackendProtocol::Http2);
    assert_eq!(Client::new(front).get("/").status(), 503);
}

#[test]
fn a_pool_that_goes_over_to_tls_uses_nothing_from_before() {
    let authority = Authority::new();
    let plain = Member::saying("hello");
    let (_behind, at) = behind(&authority, plain.at(), BackendProtocol::Http1);
    let (stage, front) = asking(at, wanted(None, "a.example", Trust::InsecureSkipVerify), |_| {});
    assert_eq!(Client::new(front).get("/").status(), 200);
    stage.put(Pool { tls: wanted(None, "x.example", authorities(&authority)), ..pool(&[at]) });
    assert_eq!(Client::new(front).get("/").status(), 503, "the connection that was kept is not asked");
    assert_eq!(plain.heard().len(), 1);
}

#[test]
fn checks_ask_by_tls_where_members_speak_it() {
    let authority = Authority::new();
    let member = Member::saying("well");
    let (_behind, at) = behind(&authority, member.at(), BackendProtocol::Http1);
    for (usual, expected) in [("a.example", Health::Up), ("x.example", Health::Down)] {
        let (stage, _) = asking(at, wanted(None, usual, authorities(&authority)), |pool| {
            let kind = CheckKind::Http { path: "/well".into(), host: None, status: (200, 299), expect: None };
            let interval = Duration::from_millis(20);
            pool.passive = None::<PassiveHealthCheck>;
            pool.health = Some(HealthCheck { kind, interval, rise: 1, fall: 1, ..HealthCheck::default() });
        });
        eventually("it is found", || stage.member(at).health == expected);
    }
    assert!(member.heard().iter().all(|it| it.first() == "GET /well HTTP/1.1"));
}

#[test]
fn checks_by_grpc_ask_by_tls_too() {
    let authority = Authority::new();
    // It knows no health, but it answers.
    let echo = Echo::new(usize::MAX);
    let (_behind, at) = behind(&authority, echo.at, BackendProtocol::Http2);
    for (usual, why) in [("a.example", "reports the gRPC health status UNKNOWN"), ("x.example", "no HTTP/2")]
    {
        let (stage, _front) = asking(at, wanted(None, usual, authorities(&authority)), |pool| {
            let interval = Duration::from_millis(20);
            let kind = CheckKind::Grpc { service: "shop".into() };
            pool.health = Some(HealthCheck { kind, interval, fall: 1, ..HealthCheck::default() });
        });
        eventually(&format!("it is judged: {why}"), || {
            let member = stage.member(at);
            member.health == Health::Down && member.health_history.reason.contains(why)
        });
    }
}

#[test]
fn bytes_that_are_not_http_are_wrapped_anew_for_members() {
    let authority = Authority::new();
    let backend = Backend::echo(HERE);
    let opaque = |pool: Pool| {
        let stage = Stage::new();
        stage.put(pool);
        let (at, _) = stage.open(HERE, |listener| {
            listener.tls = Some(Arc::new(TlsByName { default: vec![object("a")], ..TlsByName::default() }));
        });
        give(&stage, "a", &authority.certificate("a.example"));
        (stage, at)
    };
    let (_behind, at) = opaque(pool(&[backend.at]));
    let tls = wanted(None, "a.example", authorities(&authority));
    let (_stage, front) = opaque(Pool { tls, ..pool(&[at]) });
    let mut stream = secure(front, "a.example", config(&authority)).unwrap();
    let sent = noise(300_000, 11);
    let mut back = vec![0; 10_000];
    for piece in sent.chunks(10_000) {
        stream.write_all(piece).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert!(back == piece, "other bytes came back");
    }
}
