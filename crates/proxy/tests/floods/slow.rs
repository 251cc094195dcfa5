//! Too slow.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use seaway_model::{Listener, Pool, load_balancer::BackendProtocol};
use stats_alloc::Region;

use crate::{frames::*, ground::*, stage::*};

const PATIENCE_OF_OURS: Duration = Duration::from_millis(300);

fn impatient(listener: &mut Listener) {
    let timeouts = &mut listener.timeouts;
    (timeouts.header, timeouts.keep_alive, timeouts.answer) =
        (PATIENCE_OF_OURS, PATIENCE_OF_OURS, PATIENCE_OF_OURS);
}

fn request(method: &[u8], path: &[u8], flags: u8) -> Vec<u8> {
    let fields = [(&b":method"[..], method), (b":scheme", b"http"), (b":authority", b"a"), (b":path", path)];
    [hello(), frame(HEADERS, flags, 1, &block(&fields))].concat()
}

#[test]
fn heads_that_never_end_are_ended_and_others_are_served_meanwhile() {
    let _alone = alone();
    let member = member(5);
    let (stage, at) = front(member.at, impatient);
    let mut slow: Vec<TcpStream> = Vec::new();
    for start in [
        &b""[..],
        b"G",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-",
        b"PRI * HTTP/2.0\r\n\r\nS",
        &hello(),
        &request(b"GET", b"/", END_STREAM),
        &[hello(), vec![0, 0]].concat(),
    ] {
        for _ in 0..50 {
            let mut stream = connect(at);
            stream.write_all(start).unwrap();
            slow.push(stream);
        }
        is_served(at);
    }
    eventually("all have left", || stage.listener(at).traffic.current == 0);
    is_served(at);
}

#[test]
fn a_head_that_comes_byte_by_byte_has_one_time_in_all() {
    let _alone = alone();
    let member = member(5);
    let (_stage, at) = front(member.at, impatient);
    let mut stream = connect(at);
    let mut writer = stream.try_clone().unwrap();
    let began = std::time::Instant::now();
    let dribble = std::thread::spawn(move || {
        let _ = writer.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ");
        // Often enough to be heard all the time, and few enough to stay below any size.
        while began.elapsed() < PATIENCE && writer.write_all(b"y").is_ok() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    });
    let answer = String::from_utf8(rest(&mut stream)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
    drop(stream);
    dribble.join().unwrap();
}

#[test]
fn who_takes_nothing_of_an_answer_is_ended_and_its_member_is_free() {
    let _alone = alone();
    let large = member(64 << 20);
    let (stage, at) = front(large.at, impatient);
    let window = |stream: u32| frame(8, 0, stream, &(i32::MAX as u32 - (1 << 20)).to_be_bytes());
    let eager = [request(b"GET", b"/", END_HEADERS | END_STREAM), window(0), window(1)].concat();
    for (name, asked) in [
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        ("a stream whose window stays shut", request(b"GET", b"/", END_HEADERS | END_STREAM)),
        ("a connection that is not read", eager),
    ] {
        let before = stage.member(large.at).traffic.total;
        let region = Region::new(COUNTED);
        let mut stream = connect(at);
        stream.write_all(&asked).unwrap();
        // That it does so just now passes by soon.
        eventually("the member answers", || stage.member(large.at).traffic.total > before);
        eventually("it is ended", || stage.listener(at).traffic.current == 0);
        eventually("the member is free", || stage.member(large.at).traffic.current == 0);
        assert!(grown(&region) < 4 << 20, "{name}: {} bytes", grown(&region));
        drop(stream);
    }
}

/// Sends answers before the answer for as long as anybody takes them.
fn informs(protocol: BackendProtocol) -> Backend {
    Backend::new(HERE, move |mut stream| {
        let hint = "x".repeat(100);
        let (first, again) = match protocol {
            BackendProtocol::Http2 => {
                let fields = [(&b":status"[..], &b"103"[..]), (b"link", hint.as_bytes())];
                let settings = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])].concat();
                (settings, frame(HEADERS, END_HEADERS, 1, &block(&fields)))
            }
            _ => (Vec::new(), format!("HTTP/1.1 103 Early Hints\r\nLink: {hint}\r\n\r\n").into_bytes()),
        };
        let mut question = Vec::new();
        let mut buffer = [0; 4096];
        while !question.windows(5).any(|it| it == b"/who?") {
            let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
            question.extend_from_slice(&buffer[..count]);
        }
        let _ = stream.write_all(&first);
        while stream.write_all(&again).is_ok() {}
    })
}

#[test]
fn answers_before_the_answer_wait_at_the_member_for_who_takes_none() {
    let _alone = alone();
    for protocol in [BackendProtocol::Http1, BackendProtocol::Http2] {
        for asked in [
            b"GET /who? HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            request(b"GET", b"/who?", END_HEADERS | END_STREAM),
        ] {
            let member = informs(protocol);
            let (stage, at) = front(member.at, impatient);
            stage.put(Pool { protocol, ..pool(&[member.at]) });
            let region = Region::new(COUNTED);
            let mut stream = connect(at);
            stream.write_all(&asked).unwrap();
            eventually("the member answers", || stage.member(member.at).traffic.total > 0);
            let mut most = 0;
            eventually("it is ended", || {
                most = most.max(grown(&region));
                stage.listener(at).traffic.current == 0
            });
            assert!(most < 2 << 20, "{protocol:?}: {most} bytes");
            eventually("the member is free", || stage.member(member.at).traffic.current == 0);
        }
    }
}

#[test]
fn a_body_that_stops_is_ended_and_its_member_is_free() {
    let _alone = alone();
    // It waits for what does not come.
    let patient = Backend::new(HERE, |mut stream| while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {});
    let (stage, at) = front(patient.at, impatient);
    for asked in [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nsome".to_vec(),
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel".to_vec(),
        [request(b"POST", b"/", END_HEADERS), frame(DATA, 0, 1, b"some")].concat(),
    ] {
        let before = stage.member(patient.at).traffic.total;
        let mut stream = connect(at);
        stream.write_all(&asked).unwrap();
        eventually("the member is asked", || stage.member(patient.at).traffic.total > before);
        eventually("the member is free", || stage.member(patient.at).traffic.current == 0);
        eventually("it is ended", || stage.listener(at).traffic.current == 0);
    }
}

#[test]
fn who_goes_on_sending_after_the_last_answer_is_not_listened_to_for_long() {
    let _alone = alone();
    let member = member(5);
    let (stage, at) = front(member.at, |_| {});
    let mut silent = connect(at);
    silent.write_all(b"nonsense\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400"), "it hears why");
    eventually("its place is free", || stage.listener(at).traffic.current == 0);
}

#[test]
fn all_that_one_client_can_have_under_way_has_a_bound() {
    let _alone = alone();
    // Accepts, and never reads.
    let stuck = Backend::new(HERE, |_stream| std::thread::park_timeout(PATIENCE));
    let (stage, at) = front(stuck.at, |_| {});
    let large = [b'a'; 120];
    // Made before anything is counted: it is the client's.
    let frames: Vec<Vec<u8>> = (0..256)
        .map(|id| {
            let mut fields: Vec<(&[u8], &[u8])> =
                vec![(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/")];
            fields.extend((0..80).map(|_| (&b"x-large"[..], &large[..])));
            let head = frame(HEADERS, END_HEADERS, 2 * id + 1, &block(&fields));
            let data = frame(DATA, 0, 2 * id + 1, &[b'x'; 4 << 10]);
            // More than is allowed for all would end the connection.
            if id < 64 { [head, data].concat() } else { head }
        })
        .collect();
    let region = Region::new(COUNTED);
    let mut stream = connect(at);
    stream.write_all(&hello()).unwrap();
    let told = stage.listener(at).requests;
    let mut reader = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || while next(&mut reader).is_some() {});
    frames.iter().for_each(|it| stream.write_all(it).unwrap());
    let mut most = 0;
    eventually("some are under way, and the others are refused", || {
        most = most.max(grown(&region));
        let listener = stage.listener(at);
        listener.requests > told + 16 && listener.refused(seaway_proxy::RefusalReason::Resources) > 16
    });
    // What a connection may hold, and as much for buffers that the worker keeps for whoever comes next.
    assert!(most < 2 << 20, "{most} bytes");
    let _ = stream.shutdown(std::net::Shutdown::Both);
    reader.join().unwrap();
    eventually("all have left", || stage.listener(at).traffic.current == 0);
    assert!(grown(&region) < 5 << 18, "{} bytes are kept for the next", grown(&region));
}
