//! Who shares a connection of HTTP/2 gets a share of it, whatever the others do.

use std::{
    io::{Read, Write},
    sync::atomic::Ordering::SeqCst,
    thread,
    time::Duration,
};

use http::Request;
use socket2::SockRef;

use crate::{frames::*, peer::*, raw::*, scene::*, stage::*, trunks::*};

/// Answers `/endless` without end, and everything else with a letter.
fn talker() -> Backend {
    Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while let Some(message) = reader.message(false) {
            if message.first().contains("/endless") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                while stream.write_all(&[b'x'; 64 << 10]).is_ok() {}
                return;
            }
            let _ = stream.write_all(ok("x").as_bytes());
        }
    })
}

#[test]
fn more_calls_than_one_client_may_have_share_a_connection_to_a_member() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_one(&[member.at]);
    let mut peers: Vec<_> = (0..6).map(|_| Peer::new(at)).collect();
    // So many are sure to be allowed, by now.
    peers.iter_mut().for_each(|peer| assert_eq!(peer.get("/").0, 200));
    let mut held = Vec::new();
    for peer in &mut peers {
        for number in 0..110 {
            let request = Request::post(format!("http://a/{number}")).body(()).unwrap();
            let (answer, to) = peer.requests.send_request(request, false).unwrap();
            let answer = peer.runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await });
            let head = answer.expect("it is answered while all before last").unwrap();
            assert_eq!(head.status(), 200, "{number}");
            held.push((head, to));
        }
    }
    assert_eq!(held.len(), 660);
}

#[test]
fn clients_that_take_nothing_of_a_members_answers_stop_nobody_else() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_one(&[member.at]);
    let mut client = Client::new(at);
    assert_eq!(client.get("/").status(), 200);
    let mut stuck = connect(at);
    let mut said = [hello(), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])].concat();
    (0..40).for_each(|number| said.extend(asked(b"GET", b"/endless", END_STREAM, 2 * number + 1)));
    stuck.write_all(&said).unwrap();
    eventually("all are asked", || member.streams.load(SeqCst) == 41);
    for number in 0..300 {
        assert_eq!(client.get("/").status(), 200, "{number}");
    }
}

#[test]
fn a_large_answer_leaves_room_for_the_others_of_its_client() {
    let member = talker();
    let stage = Stage::with_workers(1);
    stage.put(pool(&[member.at]));
    let (at, _) = stage.open(HERE, |it| it.protocol = seaway_model::load_balancer::Protocol::Http);
    let mut stream = wide(at);
    // It takes less than the member gives.
    let _ = SockRef::from(&stream).set_recv_buffer_size(128 << 10);
    stream.write_all(&asked(b"GET", b"/endless", END_STREAM, 1)).unwrap();
    let mut heard = 0;
    while heard < 1 << 20 {
        heard += next(&mut stream).unwrap().payload.len();
    }
    for id in [3, 5, 7] {
        stream.write_all(&asked(b"GET", b"/", END_STREAM, id)).unwrap();
        let mut meanwhile = 0;
        loop {
            let frame = next(&mut stream).unwrap();
            if (frame.kind, frame.stream) == (DATA, id) {
                break;
            }
            meanwhile += frame.payload.len();
            assert!(meanwhile < 8 << 20, "{meanwhile} bytes of the large one, and none of {id}");
        }
    }
}

#[test]
fn a_large_answer_keeps_no_other_client_waiting() {
    let member = talker();
    let stage = Stage::with_workers(1);
    stage.put(pool(&[member.at]));
    let (at, _) = stage.open(HERE, |it| it.protocol = seaway_model::load_balancer::Protocol::Http);
    let mut stream = wide(at);
    stream.write_all(&asked(b"GET", b"/endless", END_STREAM, 1)).unwrap();
    let reader = stream.try_clone().unwrap();
    let taker = thread::spawn(move || {
        let (mut reader, mut page) = (reader, vec![0; 256 << 10]);
        while matches!(reader.read(&mut page), Ok(1..)) {}
    });
    let mut client = Client::new(at);
    let mut took = Vec::new();
    for _ in 0..50 {
        let begun = std::time::Instant::now();
        assert_eq!(client.get("/").status(), 200);
        took.push(begun.elapsed());
    }
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    taker.join().unwrap();
    // The machine may stand still for a moment now and then.
    took.sort();
    assert!(took[45] < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_large_question_leaves_room_for_others_to_the_same_member() {
    let member = Echo::narrow();
    let (_stage, at) = front_one(&[member.at]);
    assert_eq!(Client::new(at).get("/bare").status(), 200);
    let mut large = connect(at);
    large.write_all(b"POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000000\r\n\r\n").unwrap();
    let mut writer = large.try_clone().unwrap();
    let giver = thread::spawn(move || while writer.write_all(&[b'x'; 64 << 10]).is_ok() {});
    eventually("it is under way", || member.streams.load(SeqCst) == 2);
    for number in 0..5 {
        let body = "y".repeat(300_000);
        let head = format!("POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        assert_eq!(Client::new(at).ask(head + &body).status(), 200, "{number}");
    }
    large.shutdown(std::net::Shutdown::Both).unwrap();
    giver.join().unwrap();
}

#[test]
fn who_sends_all_that_windows_allow_before_listening_is_served() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_one(&[member.at]);
    let mut stream = wide(at);
    let socket = SockRef::from(&stream);
    let _ = (socket.set_send_buffer_size(128 << 10), socket.set_recv_buffer_size(128 << 10));
    // Its windows count once they are agreed on.
    while next(&mut stream).unwrap().kind != SETTINGS {}
    stream.write_all(&frame(SETTINGS, 1, 0, &[])).unwrap();
    stream.write_all(&asked(b"GET", b"/endless", END_STREAM, 1)).unwrap();
    let (mut page, mut waits, mut polls) = (vec![0; 1 << 20], 0, 0);
    eventually("what is not taken has nowhere left to go", || {
        let now = stream.peek(&mut page).unwrap();
        polls = if now == waits { polls + 1 } else { 0 };
        waits = now;
        polls > 100
    });
    let streams = [3, 5, 7, 9];
    streams.iter().for_each(|id| stream.write_all(&asked(b"POST", b"/sink", 0, *id)).unwrap());
    // Of all streams together, no more than the window of the connection.
    const PIECES: usize = 4;
    for piece in 0..PIECES {
        for id in streams {
            let flags = if piece + 1 == PIECES { END_STREAM } else { 0 };
            stream.write_all(&frame(DATA, flags, id, &[b'x'; 16 << 10])).expect("it is listened to");
        }
    }
    let mut answered = 0;
    while answered < streams.len() {
        let frame = next(&mut stream).unwrap();
        answered += usize::from(frame.kind == HEADERS && streams.contains(&frame.stream));
    }
}

#[test]
fn large_answers_of_one_client_advance_together() {
    let member = talker();
    let stage = Stage::with_workers(1);
    stage.put(pool(&[member.at]));
    let (at, _) = stage.open(HERE, |it| it.protocol = seaway_model::load_balancer::Protocol::Http);
    let mut stream = wide(at);
    let streams = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23];
    streams.iter().for_each(|id| stream.write_all(&asked(b"GET", b"/endless", END_STREAM, *id)).unwrap());
    let mut heard = [0; 12];
    while heard.iter().sum::<usize>() < 48 << 20 {
        let frame = next(&mut stream).unwrap();
        if frame.kind == DATA {
            heard[frame.stream as usize / 2] += frame.payload.len();
        }
    }
    assert!(heard.iter().all(|one| *one > 1 << 20), "{heard:?}");
}

#[test]
fn a_client_that_gives_up_leaves_the_connection_to_the_others() {
    let member = Echo::new(usize::MAX);
    let (_stage, at) = front_one(&[member.at]);
    let mut peer = Peer::new(at);
    assert_eq!(peer.get("/").0, 200);
    let before = member.open.load(SeqCst);
    for number in 1..=20 {
        // It is asked, and answers nothing before the end.
        let request = Request::post("http://a/sink").body(()).unwrap();
        let (answer, mut to) = peer.requests.send_request(request, false).unwrap();
        eventually("the member is asked", || member.streams.load(SeqCst) == number * 2);
        to.send_reset(h2::Reason::CANCEL);
        drop(answer);
        eventually("the member is told", || member.open.load(SeqCst) == before);
        assert_eq!(peer.get("/").0, 200);
    }
    // Of HTTP/1.1, too, which ends with the connection.
    let mut client = Client::new(at);
    client.send("POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    eventually("the member is asked", || member.streams.load(SeqCst) == 42);
    drop(client);
    eventually("the member is told", || member.open.load(SeqCst) == before);
    assert_eq!(peer.get("/").0, 200);
    assert_eq!(member.connections.load(SeqCst), 1);
}
