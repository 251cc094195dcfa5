//! HTTP/2 from clients, HTTP/1.1 to members.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, Request};

use crate::{peer::*, scene::*, stage::*};

#[test]
fn many_requests_share_a_connection() {
    let member = Member::new(|_, heard| Some(ok(heard.first().split(' ').nth(1).unwrap())));
    let (stage, at) = front(&[member.at()]);
    let mut peer = Peer::new(at);
    let answers: Vec<_> = (0..100)
        .map(|number| peer.requests.send_request(get(&format!("/{number}?q")), true).unwrap().0)
        .collect();
    peer.runtime.block_on(async {
        for (number, answer) in answers.into_iter().enumerate() {
            let (head, mut from) = answer.await.unwrap().into_parts();
            assert_eq!(head.status, 200);
            assert_eq!(receive(&mut from).await.unwrap().0, format!("/{number}?q").into_bytes());
        }
    });
    assert_eq!(stage.listener(at).traffic.total, 1);
    assert_eq!(stage.listener(at).requests, 100);
    let heard = member.heard().remove(0);
    assert_eq!((heard.field("host"), heard.field("x-forwarded-for")), (Some("a.example"), Some("127.0.0.1")));
    assert_eq!(peer.get("/x"), (200, b"/x".to_vec()));
}

#[test]
fn bodies_and_trailers_go_both_ways() {
    let member = Member::new(|_, heard| {
        let body = String::from_utf8(heard.body.clone()).unwrap();
        Some(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n{:x}\r\n{body}\r\n0\r\nGrpc-Status: 0\r\n\r\n",
            body.len()
        ))
    });
    let (_stage, at) = front(&[member.at()]);
    let mut peer = Peer::new(at);
    let request = Request::post("http://a/up").body(()).unwrap();
    let (answer, to) = peer.requests.send_request(request, false).unwrap();
    let (head, body, trailers) = peer.runtime.block_on(async {
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", "abc".parse().unwrap());
        send(to, b"hello", Some(trailers)).await;
        let (head, mut from) = answer.await.unwrap().into_parts();
        let (body, trailers) = receive(&mut from).await.unwrap();
        (head, body, trailers)
    });
    assert_eq!(body, b"hellochecksum: abc\n", "the member heard the trailers, too");
    assert_eq!(trailers["grpc-status"], "0");
    assert!(!head.headers.contains_key("connection") && !head.headers.contains_key("transfer-encoding"));
}

#[test]
fn large_bodies_are_the_same_on_the_other_side() {
    let backend = Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while let Some(message) = reader.message(false) {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", message.body.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&message.body).unwrap();
        }
    });
    let (_stage, at) = front(&[backend.at]);
    let mut peer = Peer::new(at);
    let sent = noise(6 << 20, 11);
    for sized in [true, false] {
        let mut request = Request::put("http://a/").body(()).unwrap();
        if sized {
            request.headers_mut().insert("content-length", sent.len().into());
        }
        let (head, body, _) = peer.ask(request, Some(&sent)).unwrap();
        assert_eq!(head.status(), 200);
        assert!(body == sent, "other bytes came back");
    }
}

#[test]
fn what_a_strict_reader_refuses_goes_no_further() {
    let member = Member::saying("reached");
    let (_stage, at) = front(&[member.at()]);
    let mut peer = Peer::new(at);
    for path in ["/a/../b", "/a/%2e%2e/b"] {
        assert_eq!(peer.get(path).0, 400, "{path}");
    }
    for (name, value) in [("transfer-encoding", "chunked"), ("connection", "close"), ("upgrade", "x")] {
        let mut request = get("/");
        request.headers_mut().insert(name, value.parse().unwrap());
        // The stream alone is refused, by whoever notices first.
        let (answer, _) = match peer.requests.send_request(request, true) {
            Ok(sent) => sent,
            Err(_) => continue,
        };
        let answer = peer.runtime.block_on(answer);
        assert!(answer.is_err() || answer.unwrap().status() == 400, "{name}");
    }
    assert!(member.heard().is_empty(), "{:?}", member.heard());
    assert_eq!(peer.get("/fine").0, 200);
}

#[test]
fn a_stream_that_is_given_up_harms_nobody() {
    let member = Member::new(|_, heard| {
        if heard.first().contains("/slow") {
            std::thread::sleep(Duration::from_millis(200));
        }
        Some(ok("x"))
    });
    let (stage, at) = front(&[member.at()]);
    let mut peer = Peer::new(at);
    for _ in 0..5 {
        let (answer, mut to) = peer.requests.send_request(get("/slow"), true).unwrap();
        to.send_reset(h2::Reason::CANCEL);
        drop(answer);
    }
    for _ in 0..5 {
        assert_eq!(peer.get("/").0, 200);
    }
    eventually("nobody is engaged any more", || stage.member(member.at()).traffic.current == 0);
}

#[test]
fn a_flood_of_streams_that_are_given_up_ends_the_connection_alone() {
    let member = Member::saying("x");
    let (_stage, at) = front(&[member.at()]);
    let (mut flood, mut peer) = (Peer::new(at), Peer::new(at));
    let deadline = Instant::now() + PATIENCE;
    while !flood.connection.is_finished() {
        assert!(Instant::now() < deadline, "it goes on");
        if let Ok((_, mut to)) = flood.requests.send_request(get("/"), false) {
            to.send_reset(h2::Reason::CANCEL);
        }
        assert!(Instant::now() < deadline);
    }
    assert_eq!(peer.get("/").0, 200);
}

#[test]
fn web_sockets_are_streams_too() {
    let backend = Backend::new(HERE, |mut stream| {
        let head = Reader::new(stream.try_clone().unwrap()).head().unwrap();
        assert!(
            head.contains("Upgrade: websocket") && head.to_lowercase().contains("sec-websocket-key: "),
            "{head}"
        );
        stream
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            )
            .unwrap();
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..count]).unwrap();
        }
    });
    let (_stage, at) = front(&[backend.at]);
    let mut peer = Peer::new(at);
    // Such streams are asked for once the settings have said that they are understood.
    eventually("the settings have come", || peer.requests.is_extended_connect_protocol_enabled());
    let mut request = Request::builder().method(Method::CONNECT).uri("http://a/ws").body(()).unwrap();
    request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    let (answer, to) = peer.requests.send_request(request, false).unwrap();
    let (status, body) = peer.runtime.block_on(async {
        let (head, mut from) = answer.await.unwrap().into_parts();
        send(to, b"there and back", None).await;
        (head.status, receive(&mut from).await.unwrap().0)
    });
    assert_eq!((status.as_u16(), &body[..]), (200, &b"there and back"[..]));
}

#[test]
fn a_clean_stop_lets_streams_finish() {
    let member = Member::new(|_, heard| {
        if heard.first().contains("/slow") {
            std::thread::sleep(Duration::from_millis(300));
        }
        Some(ok("done"))
    });
    let (stage, at) = front(&[member.at()]);
    let mut peer = Peer::new(at);
    assert_eq!(peer.get("/").0, 200);
    let (answer, _) = peer.requests.send_request(get("/slow"), true).unwrap();
    eventually("it is under way", || member.heard().len() == 2);
    stage.proxy.stop_accepting();
    let body = peer.runtime.block_on(async {
        let mut from = answer.await.unwrap().into_body();
        receive(&mut from).await.unwrap().0
    });
    assert_eq!(body, b"done");
    assert_eq!(stage.proxy.drain(Instant::now() + PATIENCE).cut, 0);
}
