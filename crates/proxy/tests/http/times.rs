//! Whoever is late, and how everything ends.

use std::time::{Duration, Instant};

use crate::{scene::*, stage::*};

#[test]
fn a_head_that_comes_too_slowly_is_refused_and_silence_is_ended() {
    let member = Member::saying("x");
    let (_stage, at) =
        front_with(&[member.at()], |listener| listener.timeouts.header = Duration::from_secs(3));
    let (mut slow, mut silent) = (Client::new(at), Client::new(at));
    slow.send("GET / HTTP/1.1\r\nHost:");
    assert_eq!(slow.answer().status(), 408);
    assert!(slow.is_over());
    assert!(silent.is_over(), "without a word");
}

#[test]
fn a_client_may_be_silent_between_requests_for_a_while() {
    let member = Member::saying("x");
    let (_stage, at) = front_with(&[member.at()], |listener| {
        listener.timeouts.header = Duration::from_secs(2);
        listener.timeouts.keep_alive = Duration::from_secs(4);
    });
    let mut client = Client::new(at);
    let begun = Instant::now();
    client.get("/");
    assert!(client.is_over());
    assert!(begun.elapsed() >= Duration::from_millis(3_900), "{:?}", begun.elapsed());
}

#[test]
fn a_member_that_says_nothing_is_504() {
    let member = Member::new(|_, _| {
        std::thread::park_timeout(PATIENCE);
        None
    });
    let (_stage, at) =
        front_with(&[member.at()], |listener| listener.timeouts.answer = Duration::from_millis(200));
    assert_eq!(Client::new(at).get("/").status(), 504);
}

#[test]
fn a_body_that_stops_coming_is_408() {
    let member = Member::saying("x");
    let (_stage, at) =
        front_with(&[member.at()], |listener| listener.timeouts.answer = Duration::from_millis(200));
    let mut client = Client::new(at);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome");
    assert!(matches!(client.answer().status(), 408 | 504));
    assert!(client.is_over());
}

#[test]
fn a_clean_stop_ends_idle_connections_and_lets_busy_ones_finish() {
    let (go_on, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let member = Member::new(move |_, heard| {
        if heard.first().contains("/slow") {
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        Some(ok("x"))
    });
    let (stage, at) = front(&[member.at()]);
    let (mut idle, mut busy) = (Client::new(at), Client::new(at));
    idle.get("/");
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is under way", || member.heard().len() == 2);
    stage.proxy.stop_accepting();
    assert!(idle.is_over());
    go_on.send(()).unwrap();
    let answer = busy.answer();
    assert_eq!((answer.status(), answer.field("connection")), (200, Some("close")));
    assert_eq!(stage.proxy.drain(Instant::now() + PATIENCE).cut, 0);
}

#[test]
fn requests_that_begin_at_a_member_that_leaves_drain_as_well() {
    let member = Member::new(|_, _| {
        std::thread::park_timeout(PATIENCE);
        None
    });
    let stage = Stage::new();
    let mut leaving = pool(&[member.at()]);
    leaving.members[0].state = seaway_model::load_balancer::MemberState::Draining;
    stage.put(leaving);
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = seaway_model::load_balancer::Protocol::Http;
        listener.timeouts.drain = Duration::from_millis(100);
    });
    for _ in 0..2 {
        let mut client = Client::new(at);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.is_over(), "it does not wait for the answer");
    }
}

#[test]
fn a_closed_listener_ends_its_idle_connections_alone() {
    let member = Member::saying("x");
    let (stage, at) = front(&[member.at()]);
    let (other, _) =
        stage.open(HERE, |listener| listener.protocol = seaway_model::load_balancer::Protocol::Http);
    let (mut here, mut there) = (Client::new(at), Client::new(other));
    here.get("/");
    there.get("/");
    stage.proxy.close(
        &stage.key,
        at.ip(),
        seaway_model::ListenerId { l4: seaway_model::L4::Tcp, port: at.port() },
    );
    assert!(here.is_over());
    assert_eq!(there.get("/").status(), 200);
}

#[test]
fn requests_and_answers_are_counted() {
    let member = Member::new(|_, heard| {
        Some(if heard.first().contains("/no") {
            "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_owned()
        } else {
            ok("x")
        })
    });
    let (stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    client.get("/");
    client.get("/no");
    client.send("nonsense\r\n\r\n");
    client.answer();
    assert!(client.is_over());
    let counted = stage.listener(at);
    assert_eq!((counted.requests, counted.answers), (2, [0, 0, 1, 0, 2, 0]));
    eventually("everybody has left", || stage.listener(at).traffic.current == 0);
    eventually("nobody is with the member", || stage.member(member.at()).traffic.current == 0);
}
