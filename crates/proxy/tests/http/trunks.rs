//! HTTP/2 to members.

use std::{net::SocketAddr, sync::atomic::Ordering::SeqCst, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request};
use seaway_model::{
    Pool,
    load_balancer::{BackendProtocol, PassiveHealthCheck, Protocol},
};

use crate::{peer::*, scene::*, stage::*};

pub(crate) fn front_many(members: &[SocketAddr]) -> (Stage, SocketAddr) {
    front_of(Stage::new(), members)
}

/// One worker, so that all share everything.
pub(crate) fn front_one(members: &[SocketAddr]) -> (Stage, SocketAddr) {
    front_of(Stage::with_workers(1), members)
}

fn front_of(stage: Stage, members: &[SocketAddr]) -> (Stage, SocketAddr) {
    stage.put(Pool { protocol: BackendProtocol::Http2, ..pool(members) });
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        listener.timeouts.answer = 3 * PATIENCE;
    });
    (stage, at)
}

#[test]
fn calls_are_balanced_one_by_one_over_connections_that_are_shared() {
    let (a, b) = (Echo::new(usize::MAX), Echo::new(usize::MAX));
    let (stage, at) = front_many(&[a.at, b.at]);
    let mut peer = Peer::new(at);
    for number in 0..20 {
        let mut request = Request::post("http://shop.example/package.Service/Method").body(()).unwrap();
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        let (head, body, trailers) = peer.ask(request, Some(b"message")).unwrap();
        let told = "POST /package.Service/Method shop.example te=trailers xff=127.0.0.1\nmessage";
        assert_eq!(String::from_utf8(body).unwrap(), told, "{number}");
        assert_eq!((head.status().as_u16(), trailers["grpc-status"].as_bytes()), (200, &b"0"[..]));
    }
    assert_eq!((a.streams.load(SeqCst), b.streams.load(SeqCst)), (10, 10), "one connection, two members");
    assert_eq!((a.connections.load(SeqCst), b.connections.load(SeqCst)), (1, 1));
    assert_eq!(stage.listener(at).requests, 20);
    let (head, body, _) = peer.ask(get("/bare"), None).unwrap();
    assert_eq!((head.headers()["grpc-status"].as_bytes(), body.len()), (&b"12"[..], 0), "only trailers");
}

#[test]
fn both_directions_of_a_stream_are_open_at_once() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_many(&[member.at]);
    let mut peer = Peer::new(at);
    let (answer, mut to) =
        peer.requests.send_request(Request::post("http://a/stream").body(()).unwrap(), false).unwrap();
    peer.runtime.block_on(async {
        let mut from = answer.await.unwrap().into_body();
        let mut heard = Vec::new();
        for turn in 0..5 {
            let word = format!("word {turn}\n");
            to.send_data(Bytes::from(word.clone()), false).unwrap();
            while !heard.ends_with(word.as_bytes()) {
                heard.extend_from_slice(&from.data().await.unwrap().unwrap());
            }
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", "abc".parse().unwrap());
        to.send_trailers(trailers).unwrap();
        let (_, trailers) = receive(&mut from).await.unwrap();
        assert_eq!(trailers["checksum"], "abc");
    });
}

#[test]
fn large_messages_are_the_same_on_the_other_side() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_many(&[member.at]);
    let sent = noise(6 << 20, 5);
    let (_, body, _) = Peer::new(at).ask(Request::post("http://a/").body(()).unwrap(), Some(&sent)).unwrap();
    let start = body.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert!(body[start..] == sent, "other bytes came back");
}

#[test]
fn clients_of_http_1_reach_such_members_too() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_many(&[member.at]);
    let mut client = Client::new(at);
    for framing in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
    ] {
        let answer = client.ask(format!("POST /x HTTP/1.1\r\nHost: a\r\n{framing}"));
        let body = String::from_utf8(answer.body).unwrap();
        assert!(body.starts_with("POST /x a te= xff=127.0.0.1\nhello"), "{body}");
        assert!(body.contains("grpc-status: 0"), "trailers go along: {body}");
    }
    let bare = client.get("/bare");
    assert_eq!((bare.field("grpc-status"), bare.field("content-length")), (Some("12"), Some("0")));
    assert_eq!(member.connections.load(SeqCst), 1);
}

#[test]
fn a_member_that_says_goodbye_costs_nobody_a_call() {
    let member = Echo::new(3);
    let (_stage, at) = front_many(&[member.at]);
    let mut peer = Peer::new(at);
    for number in 0..20 {
        assert_eq!(peer.get(&format!("/{number}")).0, 200);
    }
    assert!(member.connections.load(SeqCst) >= 6);
}

#[test]
fn a_member_that_is_not_there_costs_nobody_a_call() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_many(&[nobody(), member.at]);
    let mut peer = Peer::new(at);
    for _ in 0..6 {
        assert_eq!(peer.get("/").0, 200);
    }
    let (_stage, at) = front_many(&[Backend::new(HERE, |_| {}).at]);
    assert!(matches!(Peer::new(at).get("/").0, 502 | 503));
}

#[test]
fn a_member_whose_calls_end_badly_is_left_out_for_a_while() {
    for (status, errs) in [("14", true), ("2", true), ("4", true), ("5", false), ("12", false), ("0", false)]
    {
        let (bad, good) = (Echo::that_ends_with(status), Echo::new(usize::MAX));
        let (stage, at) = front_many(&[]);
        let passive = PassiveHealthCheck {
            errors: Some(3),
            eject: Duration::from_secs(60),
            ..PassiveHealthCheck::default()
        };
        let protocol = BackendProtocol::Http2;
        stage.put(Pool { passive: Some(passive), protocol, ..pool(&[bad.at, good.at]) });
        let mut peer = Peer::new(at);
        for _ in 0..20 {
            let request = Request::post("http://shop.example/package.Service/Method").body(()).unwrap();
            peer.ask(request, Some(b"message")).unwrap();
        }
        let expected = if errs { 3 } else { 10 };
        assert_eq!(bad.streams.load(SeqCst), expected, "{status}");
    }
}
