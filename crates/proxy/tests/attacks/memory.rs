//! What is held for clients that take nothing.

use std::{io::Write, net::SocketAddr, sync::atomic::Ordering::SeqCst, time::Duration};

use seaway_model::{
    Listener, Pool,
    load_balancer::{BackendProtocol, Protocol},
};
use seaway_proxy::MemoryLimits;
use stats_alloc::Region;

use crate::{
    attacker::Attacker,
    frames::*,
    ground::{COUNTED, alone, grown},
    member::{Member, Terms},
    stage::*,
};

/// For one connection, whatever it does.
pub(crate) const MOST: isize = 3 << 19;

/// Of room for requests that are over, for the next ones of the worker.
const KEPT: isize = 1 << 20;

/// One worker, so that all share everything, before members of HTTP/2.
pub(crate) fn front(members: &[SocketAddr], tune: impl Fn(&mut Listener)) -> (Stage, SocketAddr) {
    let stage = Stage::with_workers(1);
    stage.put(Pool { protocol: BackendProtocol::Http2, ..pool(members) });
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        tune(listener);
    });
    (stage, at)
}

/// Asks once, on a connection of its own; the status.
pub(crate) fn status(at: SocketAddr) -> String {
    let mut stream = connect(at);
    let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = asked.map(|()| crate::ground::rest(&mut stream)).unwrap_or_default();
    String::from_utf8_lossy(&answer).chars().skip(9).take(3).collect()
}

/// Opens so many streams that take nothing of what they ask for.
fn hungry(at: SocketAddr, streams: u32) -> Attacker {
    let mut attacker = Attacker::new(at, 0);
    for number in 0..streams {
        attacker.ask(2 * number + 1, "GET", "/file", true);
    }
    attacker
}

/// Each of its streams was answered or refused.
fn is_answered(attacker: &Attacker, streams: u32) -> bool {
    let heard = &attacker.heard;
    heard.heads.load(SeqCst) + heard.resets.load(SeqCst) >= streams as usize || heard.over.load(SeqCst)
}

#[test]
fn streams_that_take_nothing_keep_the_windows_of_their_member_shut() {
    let _alone = alone();
    let member = Member::new(Terms { streams: 1_000, ..Terms::default() });
    let (stage, at) = front(&[member.at], |_| {});
    assert_eq!(status(at), "200");
    let region = Region::new(COUNTED);
    let attackers: Vec<Attacker> = (0..4).map(|_| hungry(at, 250)).collect();
    eventually("all are answered", || attackers.iter().all(|it| is_answered(it, 250)));
    // The clients' and members' own are a part of it: their frames are small.
    let each = grown(&region) / attackers.len() as isize;
    assert!(each < MOST, "{each} bytes for each connection");
    let held = stage.proxy.statistics().memory.held as isize / attackers.len() as isize;
    assert!(held > 64 << 10 && held < MOST, "{held} bytes are accounted for each");
    let sent = member.told.sent.load(SeqCst) / attackers.len();
    // The first window of each stream, and what is lent to all of them.
    assert!(sent < 768 << 10, "{sent} bytes of bodies for each");
    drop(attackers);
    eventually("all have left", || stage.listener(at).traffic.current == 0);
    eventually("nothing is held", || stage.proxy.statistics().memory.held < 128 << 10);
    assert_eq!(status(at), "200");
}

#[test]
fn a_stream_that_takes_nothing_ends_after_the_time_for_an_answer() {
    let _alone = alone();
    let member = Member::new(Terms::default());
    let (stage, at) = front(&[member.at], |listener| listener.timeouts.answer = Duration::from_millis(300));
    let attacker = hungry(at, 1);
    eventually("it is ended", || attacker.heard.resets.load(SeqCst) == 1);
    eventually("the member is free", || stage.member(member.at).traffic.current == 0);
    assert!(member.told.sent.load(SeqCst) < 128 << 10, "{:?}", member.told.sent);
}

#[test]
fn heads_of_answers_that_nobody_takes_have_a_bound() {
    let _alone = alone();
    let member = Member::new(Terms { streams: 1_000, head: 8 << 10, ..Terms::default() });
    let (stage, at) = front(&[member.at], |_| {});
    assert_eq!(status(at), "200");
    let region = Region::new(COUNTED);
    let mut stream = connect(at);
    let mut asked = hello();
    for number in 0..250 {
        let fields = [
            (&b":method"[..], &b"GET"[..]),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", b"/file"),
        ];
        asked.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &block(&fields)));
    }
    stream.write_all(&asked).unwrap();
    // It reads nothing at all: what the kernel does not take waits here, or is refused.
    let (mut most, mut held) = (0, 0);
    eventually("the member has answered", || {
        most = most.max(grown(&region));
        held = held.max(stage.proxy.statistics().memory.held);
        member.told.requests.load(SeqCst) > 100 && member.told.sent.load(SeqCst) > 64 << 10
    });
    assert!(held < MOST as u64, "{held} bytes are accounted for");
    // Room for the next requests of any client is kept, and is not this one's.
    assert!(most < MOST + KEPT, "{most} bytes");
}

#[test]
fn who_holds_most_for_longest_goes_first_and_others_go_on() {
    let _alone = alone();
    let member = Member::new(Terms { streams: 10_000, ..Terms::default() });
    let (stage, at) = front(&[member.at], |_| {});
    let limit = 6 << 20;
    stage.proxy.limit_memory(MemoryLimits { total: Some(limit), per_connection: None });
    let mut good = connect(at);
    let mut goes_on = || {
        good.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"xxxxx\r\n0\r\n\r\n") && !answer.ends_with(b"\r\n\r\nxxxxx") {
            let mut buffer = [0; 4096];
            let count = std::io::Read::read(&mut good, &mut buffer).expect("an answer");
            assert!(count > 0, "it is not ended: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..count]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    };
    goes_on();
    let attackers: Vec<Attacker> = (0..30).map(|_| hungry(at, 250)).collect();
    let memory = || stage.proxy.statistics().memory;
    eventually("some have to go", || {
        goes_on();
        assert!(memory().held < 2 * limit, "{:?}", memory());
        memory().evicted > 0
    });
    eventually("no more is held than may be", || {
        goes_on();
        memory().held <= limit
    });
    eventually("newcomers are served", || status(at) == "200");
    drop(attackers);
    eventually("nothing is held", || memory().held < 128 << 10);
    goes_on();
}

#[test]
fn newcomers_are_refused_while_all_is_used_up() {
    let _alone = alone();
    let member = Member::new(Terms::default());
    let (stage, at) = front(&[member.at], |_| {});
    let mut attacker = Attacker::new(at, 65_535);
    attacker.ask(1, "GET", "/", true);
    eventually("it is served", || attacker.heard.good.load(SeqCst) == 1);
    // Somebody who has to be held, and is never stuck.
    let holders: Vec<Attacker> = (0..8).map(|_| Attacker::new(at, 65_535)).collect();
    eventually("they are there", || stage.proxy.statistics().memory.held > 64 << 10);
    stage.proxy.limit_memory(MemoryLimits { total: Some(64 << 10), per_connection: None });
    attacker.ask(3, "GET", "/", true);
    eventually("its stream is refused", || {
        attacker.heard.refused.load(SeqCst) == 1 || attacker.heard.over.load(SeqCst)
    });
    eventually("it is counted", || stage.proxy.statistics().memory.refused > 0);
    stage.proxy.limit_memory(MemoryLimits::default());
    drop(holders);
    eventually("it is served again", || status(at) == "200");
}

#[test]
fn streams_that_wait_for_a_member_hold_what_is_accounted_for_them() {
    let _alone = alone();
    let member = Member::new(Terms { streams: 1_000, ..Terms::default() });
    let (stage, at) = front(&[member.at], |_| {});
    assert_eq!(status(at), "200");
    let before = stage.proxy.statistics().memory.held as isize;
    let region = Region::new(COUNTED);
    let mut attacker = Attacker::new(at, 0);
    for number in 0..256 {
        attacker.ask(2 * number + 1, "GET", "/hold", true);
    }
    eventually("all wait, or are one too many", || {
        member.told.requests.load(SeqCst) + attacker.heard.refused.load(SeqCst) == 257
    });
    let (grown, held) = (grown(&region), stage.proxy.statistics().memory.held as isize - before);
    assert!(grown < MOST, "{grown} bytes");
    // Each worker may hold a little that it has not told yet.
    assert!((held + (64 << 10)) * 4 > grown * 3, "{held} of {grown} bytes are accounted for");
}

#[test]
fn who_is_ended_for_its_memory_lets_go_of_it_at_once() {
    let _alone = alone();
    // All that it takes at a time are held, and nobody waits for less than the time for an answer.
    let member = Member::new(Terms { streams: 1, ..Terms::default() });
    let (stage, at) = front(&[member.at], |listener| {
        listener.timeouts.answer = 2 * PATIENCE;
        listener.http.limits.head = 64 << 10;
    });
    let holders: Vec<Attacker> = (0..64)
        .map(|number| {
            let mut holder = Attacker::new(at, 0);
            holder.ask(1, "GET", "/hold", true);
            eventually("it has a stream", || member.told.requests.load(SeqCst) == number + 1);
            holder
        })
        .collect();
    let padding = "x".repeat(60 << 10);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let mut client = connect(at);
            client
                .write_all(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Padding: {padding}\r\n\r\n").as_bytes())
                .unwrap();
            client
        })
        .collect();
    let memory = || stage.proxy.statistics().memory;
    eventually("all wait for a stream", || stage.listener(at).requests == 84 && memory().held > 2 << 20);
    stage.proxy.limit_memory(MemoryLimits { total: Some(1 << 20), per_connection: None });
    eventually("no more is held than may be", || memory().held <= 1 << 20);
    assert!(memory().evicted > 0, "{:?}", memory());
    assert_eq!(stage.member(member.at).connect_errors, 0);
    drop((holders, waiting));
}
