//! Answers before the answer, from either version of HTTP to either.

use std::{future::poll_fn, io::Write, net::SocketAddr, pin::Pin, task::Poll};

use bytes::Bytes;
use http::Response;
use seaway_model::{Pool, load_balancer::BackendProtocol};
use tokio::runtime::{Builder, Runtime};

use crate::{
    peer::{Peer, get},
    scene::*,
    stage::*,
};

fn member_of_1() -> Backend {
    Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while reader.head().is_some() {
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
            stream.write_all((hints.to_owned() + &ok("done")).as_bytes()).unwrap();
        }
    })
}

fn member_of_2() -> (SocketAddr, Runtime) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let hints = Response::builder().status(103).header("link", "</a>").body(()).unwrap();
                    respond.send_informational(hints).unwrap();
                    let go_on = Response::builder().status(100).body(()).unwrap();
                    respond.send_informational(go_on).unwrap();
                    let mut to = respond.send_response(Response::new(()), false).unwrap();
                    to.send_data(Bytes::from_static(b"done"), true).unwrap();
                }
            });
        }
    });
    (at, runtime)
}

/// What a client of HTTP/2 hears, in its order.
fn heard_by_2(at: SocketAddr) -> Vec<(u16, Option<String>)> {
    let mut peer = Peer::new(at);
    let (mut answer, _) = peer.requests.send_request(get("/"), true).unwrap();
    let link = |head: &http::HeaderMap| head.get("link").map(|it| it.to_str().unwrap().to_owned());
    peer.runtime.block_on(async {
        let mut heard = Vec::new();
        let head = poll_fn(|cx| {
            while let Poll::Ready(Some(Ok(interim))) = answer.poll_informational(cx) {
                heard.push((interim.status().as_u16(), link(interim.headers())));
            }
            Pin::new(&mut answer).poll(cx)
        });
        let head = head.await.unwrap();
        heard.push((head.status().as_u16(), link(head.headers())));
        heard
    })
}

fn heard_by_1(at: SocketAddr) -> Vec<(u16, Option<String>)> {
    let mut client = Client::new(at);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let answers: Vec<Message> = (0..3).map(|_| client.answer()).collect();
    assert_eq!(answers[2].body, b"done");
    answers.iter().map(|it| (it.status(), it.field("link").map(str::to_owned))).collect()
}

#[test]
fn answers_before_the_answer_go_from_either_version_to_either() {
    let (one, (two, _runtime)) = (member_of_1(), member_of_2());
    for (protocol, member) in [(BackendProtocol::Http1, one.at), (BackendProtocol::Http2, two)] {
        let (stage, at) = front(&[]);
        stage.put(Pool { protocol, ..pool(&[member]) });
        let expected = [(103, Some("</a>".to_owned())), (100, None), (200, None)];
        assert_eq!(heard_by_1(at), expected, "HTTP/1.1 from {protocol:?}");
        assert_eq!(heard_by_2(at), expected, "HTTP/2 from {protocol:?}");
        let old = Client::new(at).ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        assert_eq!((old.status(), &old.body[..]), (200, &b"done"[..]), "HTTP/1.0 knows none");
        let hostless = Client::new(at).ask("GET / HTTP/1.0\r\n\r\n");
        assert_eq!(hostless.status(), 200, "and needs no host");
    }
}
