//! Responses that are compressed on their way.

use std::{
    io::{Read, Write},
    sync::{Arc, Mutex, mpsc},
};

use http::Request;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags::*};
use seaway_model::{
    Pool,
    load_balancer::{BackendProtocol, PoolHttpOptions},
};

use crate::{peer::*, scene::*, stage::*};

fn compressed(members: &[std::net::SocketAddr]) -> Pool {
    let http = PoolHttpOptions { compression: Some(Arc::default()), ..PoolHttpOptions::default() };
    Pool { http, ..pool(members) }
}

/// What can be read of that much of a body; `true`: and that was all of it.
fn read(bytes: &[u8]) -> (Vec<u8>, bool) {
    assert_eq!(bytes[..3.min(bytes.len())], [0x1f, 0x8b, 8][..3.min(bytes.len())]);
    let Some(deflated) = bytes.get(10..) else { return (Vec::new(), false) };
    let mut out = vec![0; 8 << 20];
    let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | TINFL_FLAG_HAS_MORE_INPUT;
    let (status, read, written) = decompress(&mut DecompressorOxide::new(), deflated, &mut out, 0, flags);
    out.truncate(written);
    let is_over = status == miniz_oxide::inflate::TINFLStatus::Done && deflated.len() == read + 8;
    let length = (out.len() as u32).to_le_bytes();
    (out, is_over && deflated.ends_with(&length))
}

fn text(size: usize) -> Vec<u8> {
    (0..).flat_map(|line: u32| format!("line {line} of {}\n", line % 7).into_bytes()).take(size).collect()
}

/// Answers with this body, in the framing that the path names.
fn framed(path: &str, body: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n";
    let chunks = || body.chunks(if path.contains("small") { 7 } else { 9_000 });
    match path {
        _ if path.contains("chunks") => {
            let mut all = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
            for chunk in chunks() {
                all.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                all.extend_from_slice(&[chunk, b"\r\n"].concat());
            }
            [&all[..], b"0\r\n\r\n"].concat()
        }
        _ if path.contains("end") => [format!("{head}\r\n").as_bytes(), body].concat(),
        _ => [format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat(),
    }
}

fn member_with(bodies: Vec<Vec<u8>>) -> Backend {
    Backend::new(HERE, move |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while let Some(head) = reader.head() {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let number: usize = path.rsplit('/').next().and_then(|it| it.parse().ok()).unwrap_or(0);
            if stream.write_all(&framed(&path, &bodies[number])).is_err() || path.contains("end") {
                return;
            }
        }
    })
}

#[test]
fn a_body_is_the_same_once_it_is_decompressed() {
    let bodies = vec![text(1024), text(30_000), text(3 << 20), noise(700_000, 7), vec![b'a'; 2 << 20]];
    let backend = member_with(bodies.clone());
    let (stage, at) = front(&[backend.at]);
    stage.put(compressed(&[backend.at]));
    for how in ["length", "chunks", "small-chunks", "end"] {
        let mut client = Client::new(at);
        let mut peer = Peer::new(at);
        for (number, body) in bodies.iter().enumerate() {
            if how == "small-chunks" && body.len() > 1 << 20 {
                continue;
            }
            let path = format!("/{how}/{number}");
            let answer =
                client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
            let field = |name: &str| answer.field(name);
            assert_eq!((field("content-encoding"), field("etag")), (Some("gzip"), Some("W/\"a\"")), "{path}");
            assert_eq!((field("content-length"), field("accept-ranges")), (None, None), "{path}");
            assert_eq!(field("vary"), Some("Accept-Encoding"), "{path}");
            assert!(read(&answer.body) == (body.clone(), true), "{path}: another body");
            if number != 3 {
                assert!(answer.body.len() < body.len() / 3 + 100, "{path}: {}", answer.body.len());
            }
            let asked = Request::get(format!("http://a{path}")).header("accept-encoding", "gzip");
            let (head, coded, _) = peer.ask(asked.body(()).unwrap(), None).unwrap();
            assert_eq!(head.headers()["content-encoding"], "gzip", "{path}");
            assert!(head.headers().get("content-length").is_none(), "{path}");
            assert!(read(&coded) == (body.clone(), true), "{path}: another body by HTTP/2");
        }
        // Who does not ask for it gets what it always got.
        let (status, plain) = peer.get(&format!("/{how}/1"));
        assert!((status, &plain) == (200, &bodies[1]), "{how}");
        let old = Client::new(at).ask(format!("GET /{how}/1 HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n"));
        assert!((old.field("content-encoding"), &old.body) == (None, &bodies[1]), "{how}");
    }
    // What went to clients is counted, and not what it was before.
    let traffic = stage.listener(at).traffic;
    assert!(traffic.bytes_out < 12 << 20, "{traffic:?}");
}

/// Members of HTTP/2 as well, whose bodies come in another way.
#[test]
fn what_came_by_http2_is_compressed_too() {
    let body = text(400_000);
    let sent = body.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let member = listener.local_addr().unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            let sent = sent.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut answer))) = connection.accept().await {
                    let head = http::Response::builder().header("content-type", "text/css").body(()).unwrap();
                    let (to, sent) = (answer.send_response(head, false).unwrap(), sent.clone());
                    tokio::spawn(async move { send(to, &sent, None).await });
                }
            });
        }
    });
    let (stage, at) = front(&[member]);
    stage.put(Pool { protocol: BackendProtocol::Http2, ..compressed(&[member]) });
    let answer = Client::new(at).ask("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(answer.field("content-encoding"), Some("gzip"));
    assert!(read(&answer.body) == (body.clone(), true));
    let asked = Request::get("http://a/").header("accept-encoding", "gzip").body(()).unwrap();
    let (_, coded, _) = Peer::new(at).ask(asked, None).unwrap();
    assert!(read(&coded) == (body, true));
}

/// A member that pauses has said all that its client is to know by now.
#[test]
fn nothing_is_held_back_while_a_member_pauses() {
    let (go, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let backend = Backend::new(HERE, move |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        reader.head();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        for number in 0.. {
            stream.write_all(format!("7\r\npiece {number}\r\n").as_bytes()).unwrap();
            if gone.lock().unwrap().recv().is_err() {
                break;
            }
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let (stage, at) = front(&[backend.at]);
    stage.put(compressed(&[backend.at]));
    let mut stream = connect(at);
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n")
        .unwrap();
    let (mut came, mut buffer) = (Vec::new(), [0; 4096]);
    let mut expected = String::new();
    for number in 0..5 {
        expected += &format!("piece {number}");
        while read(&unchunked(&came)).0 != expected.as_bytes() {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "it ended");
            came.extend_from_slice(&buffer[..count]);
        }
        go.send(()).unwrap();
    }
    drop(go);
    stream.read_to_end(&mut came).unwrap();
    assert!(came.ends_with(b"0\r\n\r\n"));
    // The sixth was on its way.
    expected += "piece 5";
    let (body, is_whole) = read(&unchunked(&came));
    assert_eq!((String::from_utf8(body).unwrap(), is_whole), (expected, true));
}

/// What has come of a body in chunks, behind its head.
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let after = |bytes: &[u8], end: &[u8]| {
        bytes.windows(end.len()).position(|it| it == end).map(|at| (at, at + end.len()))
    };
    let Some((_, head)) = after(bytes, b"\r\n\r\n") else { return body };
    bytes = &bytes[head..];
    while let Some((digits, start)) = after(bytes, b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..digits]).unwrap(), 16).unwrap();
        let Some(chunk) = bytes.get(start..start + size) else { break };
        body.extend_from_slice(chunk);
        bytes = bytes.get(start + size + 2..).unwrap_or_default();
    }
    body
}

/// A body that is cut off must not look whole, however far it came.
#[test]
fn a_body_that_breaks_off_is_seen_to() {
    for (framing, body) in [
        ("Content-Length: 100000", text(50_000)),
        ("Transfer-Encoding: chunked", [&b"c350\r\n"[..], &text(50_000)].concat()),
    ] {
        let sent = body.clone();
        let backend = Backend::new(HERE, move |mut stream| {
            let mut reader = Reader::new(stream.try_clone().unwrap());
            reader.head();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{framing}\r\n\r\n");
            stream.write_all(&[head.as_bytes(), &sent].concat()).unwrap();
        });
        let (stage, at) = front(&[backend.at]);
        stage.put(compressed(&[backend.at]));
        let mut client = Client::new(at);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
        let came = client.rest();
        assert!(came.is_none_or(|it| !it.ends_with(b"0\r\n\r\n")), "{framing}: it seems whole");
        let asked = Request::get("http://a/").header("accept-encoding", "gzip").body(()).unwrap();
        assert!(Peer::new(at).ask(asked, None).is_err(), "{framing}: it seems whole by HTTP/2");
    }
}

/// So that one client, or many, hold no more memory than is meant for that: the rest goes on as it is, and whole.
#[test]
fn a_client_has_so_many_bodies_compressed_at_once_and_others_are_plain() {
    let (first, rest) = (text(4_000), text(9_000));
    let (sent, more) = (first.clone(), rest.clone());
    let (go, gone) = mpsc::channel::<()>();
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let opens = gate.clone();
    std::thread::spawn(move || {
        gone.recv().ok();
        *opens.0.lock().unwrap() = true;
        opens.1.notify_all();
    });
    let backend = Backend::new(HERE, move |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        reader.head();
        let length = sent.len() + more.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &sent].concat()).unwrap();
        let waits = gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap();
        drop(waits);
        stream.write_all(&more).ok();
    });
    let stage = Stage::with_workers(1);
    stage.put(compressed(&[backend.at]));
    let (at, _) =
        stage.open(HERE, |listener| listener.protocol = seaway_model::load_balancer::Protocol::Http);
    let mut peer = Peer::new(at);
    let asked = || Request::get("http://a/").header("accept-encoding", "gzip").body(()).unwrap();
    let answers: Vec<_> = (0..20).map(|_| peer.requests.send_request(asked(), true).unwrap().0).collect();
    let heads: Vec<_> = peer.runtime.block_on(async {
        let mut heads = Vec::new();
        for answer in answers {
            heads.push(answer.await.unwrap());
        }
        heads
    });
    let is_coded = |head: &http::HeaderMap| head.contains_key("content-encoding");
    assert_eq!(heads.iter().filter(|it| is_coded(it.headers())).count(), 16);
    assert!(heads.iter().all(|it| it.headers()["vary"] == "Accept-Encoding"));
    go.send(()).unwrap();
    let whole = [first, rest].concat();
    for head in heads {
        let is_coded = is_coded(head.headers());
        let (body, _) = peer.runtime.block_on(receive(&mut head.into_body())).unwrap();
        let body = if is_coded { read(&body) } else { (body, true) };
        assert!(body == (whole.clone(), true), "another body");
    }
    // They are free again.
    let (head, _, _) = peer.ask(asked(), None).unwrap();
    assert!(is_coded(head.headers()));
}
