//! WebSockets and `CONNECT` to members that speak HTTP/2.

use std::{net::Shutdown, sync::atomic::Ordering::SeqCst};

use http::{Method, Request};
use seaway_model::load_balancer::BackendProtocol;

use crate::{
    members_tls::{asking, authorities, behind, wanted},
    peer::*,
    scene::*,
    stage::*,
    tls::Authority,
    trunks::front_many,
};

const SWITCH: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
/// What the member says of such a request.
const TOLD: &str = "CONNECT:websocket /ws a te= xff=127.0.0.1\n";

fn through(client: &mut Client) -> String {
    client.send("there ");
    client.send("and back");
    client.stream().shutdown(Shutdown::Write).unwrap();
    String::from_utf8(client.rest().unwrap()).unwrap()
}

/// A request for a tunnel, and whether HTTP/2 says the protocol in it.
fn asked(uri: &str, protocol: Option<&'static str>) -> Request<()> {
    let mut request = Request::builder().method(Method::CONNECT).uri(uri).body(()).unwrap();
    if let Some(protocol) = protocol {
        request.extensions_mut().insert(h2::ext::Protocol::from_static(protocol));
    }
    request
}

fn peer_at(at: std::net::SocketAddr) -> Peer {
    let peer = Peer::new(at);
    eventually("the settings have come", || peer.requests.is_extended_connect_protocol_enabled());
    peer
}

#[test]
fn a_switch_by_http_1_is_a_stream_to_a_member_of_http_2() {
    let member = Echo::that_switches();
    let (stage, at) = front_many(&[member.at]);
    for _ in 0..3 {
        let mut client = Client::new(at);
        client.send(SWITCH);
        let answer = client.answer();
        assert_eq!(
            (answer.first(), answer.field("upgrade")),
            ("HTTP/1.1 101 Switching Protocols", Some("websocket"))
        );
        assert_eq!(answer.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(through(&mut client), format!("{TOLD}there and back"));
    }
    assert_eq!(Client::new(at).get("/x").status(), 200);
    assert!(member.connections.load(SeqCst) <= 2, "one for each worker");
    eventually("nothing is left open", || stage.member(member.at).traffic.current == 0);
}

#[test]
fn a_stream_that_switches_is_one_to_the_member_too() {
    let member = Echo::that_switches();
    let (_stage, at) = front_many(&[member.at]);
    let mut peer = peer_at(at);
    for (protocol, uri, told) in [
        (Some("websocket"), "http://a/ws", TOLD),
        (Some("connect-udp"), "http://a/x?y", "CONNECT:connect-udp /x a te= xff=127.0.0.1\n"),
        (None, "b.example:1", "CONNECT  b.example:1 te= xff=127.0.0.1\n"),
    ] {
        let (head, body, _) = peer.ask(asked(uri, protocol), Some(b"there and back")).unwrap();
        assert_eq!(head.status().as_u16(), 200, "{uri}");
        assert_eq!(String::from_utf8(body).unwrap(), format!("{told}there and back"));
        assert!(!head.headers().contains_key("sec-websocket-accept"));
    }
}

#[test]
fn connect_by_http_1_opens_a_stream_to_a_member_of_http_2() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_many(&[member.at]);
    let mut client = Client::new(at);
    client.send("CONNECT b.example:1 HTTP/1.1\r\nHost: b.example:1\r\n\r\n");
    assert_eq!(client.answer_to_head().status(), 200);
    assert_eq!(through(&mut client), "CONNECT  b.example:1 te= xff=127.0.0.1\nthere and back");
}

#[test]
fn what_a_member_refuses_to_switch_to_is_answered_as_it_says() {
    let member = Echo::that_switches();
    let (_stage, at) = front_many(&[member.at]);
    let mut client = Client::new(at);
    for request in [
        SWITCH.replace("Host: a", "Host: shut.a"),
        "CONNECT shut.a:1 HTTP/1.1\r\nHost: shut.a:1\r\n\r\n".to_owned(),
    ] {
        let answer = client.ask(request);
        assert_eq!((answer.status(), &answer.body[..]), (403, &b"no"[..]));
    }
    assert_eq!(client.get("/x").status(), 200, "the client's connection goes on");
    let mut peer = peer_at(at);
    let (head, body, _) = peer.ask(asked("http://shut.a/ws", Some("websocket")), Some(b"early")).unwrap();
    assert_eq!((head.status().as_u16(), &body[..]), (403, &b"no"[..]));
    eventually("all streams have ended", || member.open.load(SeqCst) == 0);
}

#[test]
fn members_that_know_no_protocols_in_streams_are_not_asked_for_any() {
    let member = Echo::new(usize::MAX);
    let (stage, at) = front_many(&[member.at]);
    for _ in 0..4 {
        assert_eq!(Client::new(at).ask(SWITCH).status(), 501);
        let mut peer = peer_at(at);
        let (head, ..) = peer.ask(asked("http://a/ws", Some("websocket")), Some(b"")).unwrap();
        assert_eq!(head.status().as_u16(), 501);
    }
    assert_eq!(member.streams.load(SeqCst), 0);
    assert!(member.connections.load(SeqCst) <= 2, "one for each worker");
    assert_eq!(stage.listener(at).retries, 0);
    // What is no more than offered needs not be taken.
    let answer = Client::new(at).ask(SWITCH.replace(": WebSocket", ": foo/1"));
    assert!(answer.body.starts_with(b"GET /ws a"), "{answer:?}");
}

#[test]
fn a_member_that_closes_before_it_says_what_it_takes_is_given_up() {
    let (_stage, at) = front_many(&[Backend::new(HERE, |_| {}).at]);
    assert_eq!(Client::new(at).ask(SWITCH).status(), 503);
}

#[test]
fn streams_in_tls_switch_too() {
    let (authority, member) = (Authority::new(), Echo::that_switches());
    let (_behind, at) = behind(&authority, member.at, BackendProtocol::Http2);
    let tls = wanted(None, "a.example", authorities(&authority));
    let (_stage, front) = asking(at, tls, |pool| pool.protocol = BackendProtocol::Http2);
    let mut client = Client::new(front);
    client.send(SWITCH);
    assert_eq!(client.answer().status(), 101);
    assert!(through(&mut client).ends_with("there and back"));
    let (head, body, _) =
        peer_at(front).ask(asked("http://a/ws", Some("websocket")), Some(b"there and back")).unwrap();
    assert_eq!(head.status().as_u16(), 200);
    assert!(body.ends_with(b"there and back"));
}
