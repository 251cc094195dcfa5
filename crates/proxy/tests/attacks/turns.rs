//! Members of HTTP/2 that answer before they read, take no streams for a while, or end their connections early.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use seaway_model::{
    Pool,
    load_balancer::{BackendProtocol, Protocol},
};

use crate::{
    attacker::{Attacker, WINDOW_UPDATE},
    frames::*,
    ground::{alone, rest},
    member::heard,
    memory::{front, status},
    stage::*,
};

const MOST_STREAMS: [u8; 2] = [0, 3];
const FIRST_WINDOW: [u8; 2] = [0, 4];

fn patient(listener: &mut seaway_model::Listener) {
    listener.timeouts.answer = 2 * PATIENCE;
}

/// Reads the preface, and says how much it takes.
fn begin(stream: &mut TcpStream, settings: &[([u8; 2], u32)]) -> Option<()> {
    stream.read_exact(&mut [0; 24]).ok()?;
    let payload: Vec<u8> =
        settings.iter().flat_map(|(which, value)| [&which[..], &value.to_be_bytes()].concat()).collect();
    stream.write_all(&frame(SETTINGS, 0, 0, &payload)).ok()
}

fn head(stream: &mut TcpStream, id: u32, ends: bool) -> Option<()> {
    let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
    stream.write_all(&frame(HEADERS, flags, id, &block(&[(&b":status"[..], &b"200"[..])]))).ok()
}

/// Begins its answer before it lets anything of the body come, and says what that was.
fn answers_first(mut stream: TcpStream, may_read: &AtomicBool) -> Option<()> {
    begin(&mut stream, &[(FIRST_WINDOW, 0)])?;
    let mut body = Vec::new();
    loop {
        let (kind, flags, id, payload) = heard(&mut stream)?;
        match kind {
            HEADERS => {
                head(&mut stream, id, false)?;
                eventually("the client has the head", || may_read.load(SeqCst));
                stream.write_all(&frame(WINDOW_UPDATE, 0, id, &1000_u32.to_be_bytes())).ok()?;
            }
            DATA => {
                body.extend(payload);
                if flags & END_STREAM != 0 {
                    stream.write_all(&frame(DATA, END_STREAM, id, &body)).ok()?;
                    return heard(&mut stream).map(drop);
                }
            }
            _ => {}
        }
    }
}

fn read_head(stream: &mut TcpStream) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    String::from_utf8(all).unwrap()
}

#[test]
fn a_body_that_waits_when_its_answer_begins_is_sent_whole() {
    let _alone = alone();
    for (framing, first, second) in [
        ("Transfer-Encoding: chunked", "5\r\nfirst\r\n", "6\r\nsecond\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n", ""),
        ("Content-Length: 11", "first", "second"),
        ("Content-Length: 11", "firstsecond", ""),
    ] {
        let may_read = Arc::new(AtomicBool::new(false));
        let told = may_read.clone();
        let member = Backend::new(HERE, move |stream| {
            answers_first(stream, &told);
        });
        let (_stage, at) = front(&[member.at], patient);
        let mut client = connect(at);
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{framing}\r\n\r\n{first}");
        client.write_all(head.as_bytes()).unwrap();
        let answer = read_head(&mut client);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        may_read.store(true, SeqCst);
        client.write_all(second.as_bytes()).unwrap();
        let body = String::from_utf8(rest(&mut client)).unwrap();
        assert!(body.contains("firstsecond"), "{framing}, {first:?}: {body:?}");
    }
}

/// Asks once beside the test; the status.
fn asks(at: SocketAddr) -> thread::JoinHandle<String> {
    thread::spawn(move || status(at))
}

#[test]
fn a_member_that_took_no_streams_once_gets_some_later() {
    let _alone = alone();
    let (heard_of_it, may_end, count) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let (told, ends) = (heard_of_it.clone(), may_end.clone());
    let member = Backend::new(HERE, move |mut stream| {
        let is_first = count.fetch_add(1, SeqCst) == 0;
        let serve = |stream: &mut TcpStream| {
            begin(stream, &[(MOST_STREAMS, if is_first { 0 } else { 100 })])?;
            loop {
                let (kind, flags, id, _) = heard(stream)?;
                if kind == HEADERS {
                    head(stream, id, true)?;
                }
                if is_first && kind == SETTINGS && flags & 1 != 0 {
                    told.store(true, SeqCst);
                    eventually("it may end", || ends.load(SeqCst));
                    return Some(());
                }
            }
        };
        serve(&mut stream);
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    let (stage, at) = front(&[member.at], |_| {});
    let first = asks(at);
    eventually("we know that it takes none", || heard_of_it.load(SeqCst));
    let second = asks(at);
    eventually("both have asked", || stage.listener(at).requests == 2);
    may_end.store(true, SeqCst);
    assert_eq!(second.join().unwrap(), "200");
    first.join().unwrap();
    assert_eq!(status(at), "200");
}

#[test]
fn connections_that_take_no_more_and_last_do_not_keep_others_from_being_made() {
    let _alone = alone();
    let held = Arc::new(AtomicUsize::new(0));
    let told = held.clone();
    let member = Backend::new(HERE, move |mut stream| {
        let serve = |stream: &mut TcpStream| -> Option<()> {
            begin(stream, &[(MOST_STREAMS, 100)])?;
            let mut has_left = false;
            loop {
                let (kind, _, id, payload) = heard(stream)?;
                if kind != HEADERS || has_left {
                    continue;
                }
                if payload.windows(5).any(|it| it == b"/hold") {
                    // As a server does that ends its connections after so many requests.
                    has_left = true;
                    stream.write_all(&frame(GOAWAY, 0, 0, &[id.to_be_bytes(), [0; 4]].concat())).ok()?;
                    told.fetch_add(1, SeqCst);
                } else {
                    head(stream, id, true)?;
                }
            }
        };
        serve(&mut stream);
    });
    let (stage, at) = front(&[member.at], patient);
    let mut clients = Vec::new();
    for number in 1..=40 {
        let mut client = connect(at);
        client.write_all(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        clients.push(client);
        eventually("the member has it", || held.load(SeqCst) == number);
    }
    assert_eq!(status(at), "200");
    eventually("those before go on", || stage.listener(at).traffic.current == 40);
    drop(clients);
}

/// How many streams a client may open at a time, as it is told.
fn allowed(at: SocketAddr) -> usize {
    let mut stream = connect(at);
    stream.write_all(&hello()).unwrap();
    let settings = next(&mut stream).unwrap();
    assert_eq!(settings.kind, SETTINGS);
    let mut all = settings.payload.chunks_exact(6);
    let most = all.find(|it| it[..2] == MOST_STREAMS).unwrap();
    u32::from_be_bytes([most[2], most[3], most[4], most[5]]) as usize
}

/// A member of either protocol that counts requests and answers none.
fn counting(protocol: BackendProtocol, requests: Arc<AtomicUsize>) -> Backend {
    Backend::new(HERE, move |mut stream| {
        if protocol == BackendProtocol::Http1 {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                requests.fetch_add(usize::from(buffer[..count].ends_with(b"\r\n\r\n")), SeqCst);
            }
            return;
        }
        let serve = |stream: &mut TcpStream| -> Option<()> {
            begin(stream, &[(MOST_STREAMS, 1000)])?;
            loop {
                let (kind, ..) = heard(stream)?;
                requests.fetch_add(usize::from(kind == HEADERS), SeqCst);
            }
        };
        serve(&mut stream);
    })
}

#[test]
fn who_opens_as_many_streams_as_it_was_told_is_refused_none() {
    let _alone = alone();
    // Together as long as heads of browsers usually are.
    let names: Vec<String> = (0..12).map(|at| format!("x-usual-field-{at}")).collect();
    let fields: Vec<(&[u8], &[u8])> = names.iter().map(|it| (it.as_bytes(), &[b'v'; 90][..])).collect();
    for protocol in [BackendProtocol::Http1, BackendProtocol::Http2] {
        let requests = Arc::new(AtomicUsize::new(0));
        let member = counting(protocol, requests.clone());
        let stage = Stage::with_workers(1);
        stage.put(Pool { protocol, ..pool(&[member.at]) });
        let (at, _) = stage.open(HERE, |listener| {
            listener.protocol = Protocol::Http;
            patient(listener);
        });
        let streams = allowed(at);
        assert!(streams >= 100, "{streams} streams");
        let mut client = Attacker::new(at, 65_535);
        for number in 0..streams as u32 {
            client.ask_with(2 * number + 1, "GET", "/", &fields, true);
        }
        let refused = || client.heard.resets.load(SeqCst);
        eventually("all were asked or refused", || requests.load(SeqCst) + refused() >= streams);
        assert_eq!((requests.load(SeqCst), refused()), (streams, 0), "{protocol:?}");
    }
}
