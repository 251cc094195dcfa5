//! Too much.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use stats_alloc::Region;

use crate::{frames::*, ground::*, stage::*};

const PING: u8 = 6;
const PRIORITY: u8 = 2;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 0xbb;

const GET: [(&[u8], &[u8]); 4] =
    [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/")];

fn many(at: SocketAddr) -> TcpStream {
    let mut stream = connect(at);
    stream.set_nodelay(true).unwrap();
    stream.write_all(&hello()).unwrap();
    stream
}

/// Sends the same over and over, until it is stopped or nobody takes it any more.
struct Flood {
    over: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Flood {
    /// `listening`: what comes back is read, and thrown away.
    fn of(mut stream: TcpStream, bytes: &[u8], listening: bool) -> Flood {
        let bytes = bytes.repeat((64 << 10) / bytes.len());
        let (over, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut threads = Vec::new();
        if listening {
            let mut reader = stream.try_clone().unwrap();
            let mut buffer = vec![0; 64 << 10];
            threads.push(thread::spawn(move || while matches!(reader.read(&mut buffer), Ok(1..)) {}));
        }
        let (ended, count) = (over.clone(), rounds.clone());
        threads.push(thread::spawn(move || {
            while !ended.load(SeqCst) && stream.write_all(&bytes).is_ok() {
                count.fetch_add(1, SeqCst);
            }
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }));
        Flood { over, rounds, threads }
    }

    fn has_ended(&self) -> bool {
        self.threads.iter().all(thread::JoinHandle::is_finished)
    }

    fn end(self) {
        self.over.store(true, SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn frames_without_end_keep_nobody_else_waiting_and_hold_no_memory() {
    let _alone = alone();
    let member = member(5);
    let (stage, at) = front(member.at, |_| {});
    is_served(at);
    for (name, frame) in [
        ("ping", frame(PING, 0, 0, &[0; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("settings that change", frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("priority", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16])),
        ("window", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("what nobody knows", frame(UNKNOWN, 0, 0, &[0; 32])),
    ] {
        let region = Region::new(COUNTED);
        let flood = Flood::of(many(at), &frame, true);
        eventually("it is under way", || flood.rounds.load(SeqCst) > 20 || flood.has_ended());
        for _ in 0..20 {
            is_served(at);
        }
        assert!(grown(&region) < 2 << 20, "{name}: {} bytes", grown(&region));
        flood.end();
    }
    eventually("all have left", || stage.listener(at).traffic.current == 0);
}

#[test]
fn who_floods_and_takes_no_answer_is_ended() {
    let _alone = alone();
    let member = member(5);
    let (stage, at) = front(member.at, |listener| listener.timeouts.answer = Duration::from_millis(200));
    is_served(at);
    for frame in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])] {
        let region = Region::new(COUNTED);
        let flood = Flood::of(many(at), &frame, false);
        eventually("it is ended", || flood.has_ended());
        is_served(at);
        assert!(grown(&region) < 2 << 20, "{} bytes", grown(&region));
    }
    eventually("all have left", || stage.listener(at).traffic.current == 0);
}

#[test]
fn small_pieces_that_no_member_takes_hold_little_memory() {
    let _alone = alone();
    let stuck = Backend::new(HERE, |_stream| thread::park_timeout(PATIENCE));
    let (stage, at) = front(stuck.at, |_| {});
    for (number, piece) in [&b""[..], b"x"].into_iter().enumerate() {
        let mut stream = many(at);
        // Its windows count once they are agreed on.
        while next(&mut stream).expect("settings").kind != SETTINGS {}
        stream.write_all(&frame(SETTINGS, 1, 0, &[])).unwrap();
        let post = [(&b":method"[..], &b"POST"[..]), GET[1], GET[2], GET[3]];
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, &block(&post))).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reader = thread::spawn(move || while next(&mut reader).is_some() {});
        for _ in 0..48 {
            stream.write_all(&frame(DATA, 0, 1, &[b'x'; 16 << 10])).unwrap();
        }
        eventually("it is under way", || stage.listener(at).requests == number as u64 + 1);
        let region = Region::new(COUNTED);
        let flood = Flood::of(stream, &frame(DATA, 0, 1, piece), false);
        eventually("it goes on", || flood.rounds.load(SeqCst) > 200 || flood.has_ended());
        let (held, rounds) = (grown(&region), flood.rounds.load(SeqCst));
        flood.end();
        reader.join().unwrap();
        assert!(held < 8 << 20, "{piece:?}: {held} bytes after {rounds} rounds");
        eventually("all have left", || stage.listener(at).traffic.current == 0);
    }
}

#[test]
fn streams_that_are_given_up_at_once_end_the_connection() {
    let _alone = alone();
    let member = member(5);
    let (_stage, at) = front(member.at, |_| {});
    let mut stream = many(at);
    let mut asked = Vec::new();
    for number in 0..1_000 {
        asked.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &block(&GET)));
        asked.extend(frame(RST_STREAM, 0, 2 * number + 1, &[0, 0, 0, 8]));
    }
    let _ = stream.write_all(&asked);
    assert!(ends_in_goodbye(&mut stream));
    assert!(member.accepted() < 100, "{} connections to the member", member.accepted());
    is_served(at);
}

#[test]
fn streams_that_are_given_up_once_a_member_was_asked_end_the_connection() {
    let _alone = alone();
    // Says nothing, so that everything is given up before it was answered.
    let silent = Backend::new(HERE, |mut stream| while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {});
    let (_stage, at) = front(silent.at, |_| {});
    let mut stream = many(at);
    let mut number = 0;
    let goodbye = loop {
        assert!(number < 5_000, "nobody minds");
        let id = 2 * number + 1;
        let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, id, &block(&GET));
        bytes.extend(frame(PING, 0, 0, &[0; 8]));
        if stream.write_all(&bytes).is_err() {
            break true;
        }
        // Its answer says that the request is under way.
        let goodbye = loop {
            match next(&mut stream) {
                Some(frame) if frame.kind == PING => break false,
                Some(frame) if frame.kind == GOAWAY => break true,
                Some(_) => {}
                None => break true,
            }
        };
        if goodbye || stream.write_all(&frame(RST_STREAM, 0, id, &[0, 0, 0, 8])).is_err() {
            break true;
        }
        number += 1;
    };
    assert!(goodbye && number > 100, "{number}: who leaves a page does as much");
}

#[test]
fn a_head_without_end_ends_the_connection() {
    let _alone = alone();
    let member = member(5);
    let (stage, at) = front(member.at, |_| {});
    is_served(at);
    let field = block(&[(&b"x-flood"[..], &[b'a'; 100][..])]);
    for (name, piece) in [("nothing", Vec::new()), ("fields", field.repeat(100)), ("a field", field)] {
        let region = Region::new(COUNTED);
        let mut stream = many(at);
        stream.write_all(&frame(HEADERS, END_STREAM, 1, &block(&GET))).unwrap();
        let more = frame(CONTINUATION, 0, 1, &piece);
        let mut frames = 0;
        while frames < 1_000_000 && stream.write_all(&more).is_ok() {
            frames += 1;
        }
        assert!(frames < 1_000_000, "{name}: it goes on");
        assert!(grown(&region) < 1 << 20, "{name}: {} bytes", grown(&region));
    }
    is_served(at);
    eventually("all have left", || stage.listener(at).traffic.current == 0);
}

#[test]
fn fields_that_grow_when_they_are_unpacked_are_refused() {
    let _alone = alone();
    let member = member(5);
    let (_stage, at) = front(member.at, |_| {});
    is_served(at);
    let region = Region::new(COUNTED);
    let mut stream = many(at);
    // 3 KiB into the table, then a byte for each time that it is named.
    let mut fields = block(&GET);
    fields.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0x81, 0x17]);
    fields.extend_from_slice(&[b'a'; 3072]);
    fields.extend_from_slice(&[0xbe; 8_000]);
    stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields)).unwrap();
    let refused = loop {
        match next(&mut stream) {
            Some(frame) if frame.kind == HEADERS => break !frame.is_ok(),
            Some(frame) if frame.kind == RST_STREAM || frame.kind == GOAWAY => break true,
            Some(_) => {}
            None => break true,
        }
    };
    assert!(refused);
    assert!(grown(&region) < 1 << 20, "{} bytes", grown(&region));
    is_served(at);
}

#[test]
fn a_head_of_http_1_has_an_end() {
    let _alone = alone();
    let member = member(5);
    let (stage, at) = front(member.at, |_| {});
    is_served(at);
    for (start, more, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n", "X: y\r\n", "431"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "yyyyyyyy", "431"),
        ("GET /", "yyyyyyyy", "414"),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", "xxxxxxxx", "400"),
    ] {
        let region = Region::new(COUNTED);
        let mut stream = connect(at);
        stream.write_all(start.as_bytes()).unwrap();
        let flood = Flood::of(stream.try_clone().unwrap(), more.as_bytes(), false);
        let answer = String::from_utf8(rest(&mut stream)).unwrap();
        // Once the head is whole, a member may have answered it before its body was found to be none.
        let answered = start.contains("chunked") && answer.starts_with("HTTP/1.1 200");
        assert!(answered || answer.starts_with(&format!("HTTP/1.1 {status}")), "{start:?}: {answer:?}");
        // It is not listened to for long.
        eventually("it is ended", || flood.has_ended());
        assert!(grown(&region) < 1 << 20, "{start:?}: {} bytes", grown(&region));
    }
    is_served(at);
    eventually("all have left", || stage.listener(at).traffic.current == 0);
}

#[test]
fn requests_that_no_member_is_asked_keep_nobody_else_waiting() {
    let _alone = alone();
    let member = member(5);
    let (_stage, at) = front(member.at, |listener| {
        let mut redirect = seaway_model::load_balancer::Rule::clone(&listener.rules[0]);
        redirect.matches = vec![seaway_model::load_balancer::Match {
            path: Some(seaway_model::load_balancer::PathMatch::Exact("/away".into())),
            ..Default::default()
        }];
        redirect.action = seaway_model::load_balancer::Action::Respond { code: 200, body: "".into() };
        listener.rules.insert(0, redirect.into());
    });
    let flood = Flood::of(connect(at), b"GET /away HTTP/1.1\r\nHost: a\r\n\r\n", true);
    eventually("it is under way", || flood.rounds.load(SeqCst) > 20);
    for _ in 0..20 {
        is_served(at);
    }
    assert!(!flood.has_ended());
    flood.end();
}

fn ends_in_goodbye(stream: &mut TcpStream) -> bool {
    loop {
        match next(stream) {
            Some(frame) if frame.kind == GOAWAY => return true,
            Some(_) => {}
            None => return false,
        }
    }
}
