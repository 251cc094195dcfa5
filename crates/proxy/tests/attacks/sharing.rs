//! Members of HTTP/2 that many clients share, some of whom take all that there is.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use crate::{
    attacker::Attacker,
    frames::*,
    ground::{alone, rest},
    member::{Member, Terms},
    memory::{front, status},
    stage::*,
};

fn patient(listener: &mut seaway_model::Listener) {
    listener.timeouts.answer = 2 * PATIENCE;
}

/// Sends a body, on a connection of its own; the status.
fn upload(at: SocketAddr, length: usize) -> String {
    let mut stream = connect(at);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; length]).unwrap();
    String::from_utf8_lossy(&rest(&mut stream)).chars().skip(9).take(3).collect()
}

/// Opens so many streams that a member never answers.
fn waiting(at: SocketAddr, streams: u32) -> Attacker {
    let mut attacker = Attacker::new(at, 0);
    for number in 0..streams {
        attacker.ask(2 * number + 1, "GET", "/hold", true);
    }
    attacker
}

#[test]
fn clients_that_fill_the_streams_of_a_member_leave_some_for_others() {
    let _alone = alone();
    let member = Member::new(Terms { streams: 128, ..Terms::default() });
    let (_stage, at) = front(&[member.at], patient);
    assert_eq!(status(at), "200");
    let attackers: Vec<Attacker> = (0..4).map(|_| waiting(at, 250)).collect();
    eventually("they hold more than a connection has", || member.told.requests.load(SeqCst) > 300);
    for _ in 0..6 {
        assert_eq!(status(at), "200");
    }
    assert!(member.told.most.load(SeqCst) <= 128);
    assert!(member.connections() <= 8, "{} connections", member.connections());
    assert!(attackers.iter().all(|it| !it.heard.over.load(SeqCst)));
}

#[test]
fn one_client_does_not_take_the_last_streams_of_a_member() {
    let _alone = alone();
    // As many as all of its connections have are fewer than one client may open.
    let member = Member::new(Terms { streams: 4, ..Terms::default() });
    let (stage, at) = front(&[member.at], patient);
    assert_eq!(status(at), "200");
    let attacker = waiting(at, 250);
    eventually("it has its share", || member.told.requests.load(SeqCst) > 8);
    for _ in 0..6 {
        assert_eq!(status(at), "200");
    }
    let taken = member.told.requests.load(SeqCst) - 7;
    assert!(taken <= 24, "{taken} of 32 streams");
    drop(attacker);
    eventually("all are free again", || stage.member(member.at).traffic.current == 0);
    assert_eq!(status(at), "200");
}

#[test]
fn uploads_that_nobody_reads_leave_the_windows_of_others_open() {
    let _alone = alone();
    let member = Member::new(Terms::default());
    let (_stage, at) = front(&[member.at], patient);
    assert_eq!(upload(at, 20 << 10), "200");
    let mut attackers: Vec<Attacker> = (0..4).map(|_| Attacker::new(at, 65_535)).collect();
    for attacker in &mut attackers {
        attacker.ask(1, "POST", "/hold", false);
        for _ in 0..4 {
            let _ = attacker.stream.write_all(&frame(DATA, 0, 1, &[b'x'; 16_000]));
        }
    }
    eventually("a window is shut", || member.told.received.load(SeqCst) > 80 << 10);
    for _ in 0..6 {
        assert_eq!(upload(at, 20 << 10), "200");
    }
    drop(attackers);
    for _ in 0..6 {
        assert_eq!(upload(at, 20 << 10), "200");
    }
}

#[test]
fn a_connection_whose_member_reads_no_more_is_replaced() {
    let _alone = alone();
    let member = Member::new(Terms { window: 8 << 20, room: 8 << 20, ..Terms::default() });
    let (_stage, at) = front(&[member.at], patient);
    assert_eq!(status(at), "200");
    // From now on the member reads nothing on the connection on which that comes.
    let mut attacker = connect(at);
    attacker.write_all(b"POST /freeze HTTP/1.1\r\nHost: a\r\nContent-Length: 67108864\r\n\r\n").unwrap();
    let mut sender = attacker.try_clone().unwrap();
    // More than the kernel takes for both sides.
    let sends = std::thread::spawn(move || while sender.write_all(&[b'x'; 16 << 10]).is_ok() {});
    eventually("it has stopped", || member.told.frozen.load(SeqCst) == 1);
    // Whoever asks before that is noticed waits with it; from then on nobody does.
    for _ in 0..6 {
        eventually("others are served", || {
            let mut stream = connect(at);
            stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut start = [0; 12];
            stream.read_exact(&mut start).is_ok_and(|()| start == *b"HTTP/1.1 200")
        });
    }
    let _ = attacker.shutdown(std::net::Shutdown::Both);
    sends.join().unwrap();
}

/// The first part of an upload of so many bytes.
fn begins_upload(at: SocketAddr, length: usize, first: usize) -> std::net::TcpStream {
    let mut stream = connect(at);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; first]).unwrap();
    stream
}

/// Sends so many bytes that the member never reads.
fn unread(at: SocketAddr, length: usize) -> Attacker {
    let mut attacker = Attacker::new(at, 65_535);
    attacker.ask(1, "POST", "/hold", false);
    for _ in 0..length / (16 << 10) {
        let _ = attacker.stream.write_all(&frame(DATA, 0, 1, &[b'x'; 16 << 10]));
    }
    attacker
}

#[test]
fn an_upload_goes_on_beside_others_that_nobody_reads() {
    let _alone = alone();
    let member = Member::new(Terms::default());
    let (_stage, at) = front(&[member.at], patient);
    let (length, first) = (400 << 10, 20 << 10);
    let mut upload = begins_upload(at, length, first);
    eventually("the member has read its first part", || member.told.received.load(SeqCst) == first);
    // Each gets what it can of the window of the connection that the upload is on.
    let attackers: Vec<Attacker> = (1..=4)
        .map(|number| {
            let attacker = unread(at, 64 << 10);
            eventually("the member has its request", || member.told.requests.load(SeqCst) == 1 + number);
            attacker
        })
        .collect();
    eventually("they hold all that they get", || member.told.received.load(SeqCst) > first + (48 << 10));
    upload.write_all(&vec![b'x'; length - first]).unwrap();
    assert!(rest(&mut upload).starts_with(b"HTTP/1.1 200"));
    assert!(attackers.iter().all(|it| !it.heard.over.load(SeqCst)));
}

#[test]
fn a_client_that_is_alone_on_a_connection_has_all_of_its_window() {
    let _alone = alone();
    let member = Member::new(Terms::default());
    let (_stage, at) = front(&[member.at], patient);
    let attacker = unread(at, 128 << 10);
    eventually("the window is full", || member.told.received.load(SeqCst) == 65_535);
    drop(attacker);
}

#[test]
fn bodies_that_come_with_their_heads_do_not_wait_for_windows_of_others() {
    let _alone = alone();
    let member = Member::new(Terms::default());
    let (_stage, at) = front(&[member.at], patient);
    // As many as there are connections, each with the window of one.
    let mut attackers = Vec::new();
    for number in 1..=8 {
        attackers.push(unread(at, 64 << 10));
        eventually("a window is shut", || member.told.received.load(SeqCst) >= number * (60 << 10));
    }
    for _ in 0..6 {
        assert_eq!(upload(at, 1 << 10), "200");
    }
    drop(attackers);
}

#[test]
fn a_member_that_has_no_stream_free_is_left_out_while_others_have() {
    let _alone = alone();
    let (full, free) = (Member::new(Terms { streams: 1, ..Terms::default() }), Member::new(Terms::default()));
    let (_stage, at) = front(&[full.at, free.at], patient);
    let mut attackers = Vec::new();
    // One after the other, in turn to both: then the first has no stream free.
    while full.told.requests.load(SeqCst) < 64 {
        attackers.push(waiting(at, 1));
        let asked = || full.told.requests.load(SeqCst) + free.told.requests.load(SeqCst);
        eventually("one of both has it", || asked() == attackers.len());
    }
    for _ in 0..8 {
        assert_eq!(status(at), "200");
    }
    drop(attackers);
}

#[test]
fn clients_that_are_even_do_not_take_stalled_streams_from_each_other() {
    let _alone = alone();
    let member = Member::new(Terms::default());
    let (_stage, at) = front(&[member.at], patient);
    assert_eq!(status(at), "200");
    // For each there are 36 or 37 of the 800 streams of the usual connections; who came first has more for a while.
    let mut attackers: Vec<Attacker> = (0..20).map(|_| Attacker::new(at, 0)).collect();
    for number in 0..100 {
        for attacker in &mut attackers {
            attacker.ask(2 * number + 1, "GET", "/file", true);
        }
    }
    let asked = || member.told.requests.load(SeqCst);
    eventually("they hold streams", || asked() > 20 * 36);
    // Well beyond the time from which on a stalled stream may make room; others are served all the while.
    let (began, mut served) = (std::time::Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(status(at), "200");
        served += 1;
    }
    let taken = asked() - served;
    assert!(taken <= 800 + 20 * 37, "{taken} streams were opened for clients that take nothing");
}
