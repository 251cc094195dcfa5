//! Members that are given no more requests at once than they may have.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use seaway_model::{
    Pool,
    load_balancer::{MemberLimit, Protocol},
};
use seaway_proxy::Refusal;

use crate::{peer::Peer, scene::*, stage::*};

fn limited(members: &[SocketAddr], connections: u32, wait: Duration) -> Pool {
    Pool { member_limit: Some(MemberLimit { connections, wait }), ..pool(members) }
}

fn front_of(pool: Pool) -> (Stage, SocketAddr) {
    let stage = Stage::new();
    stage.put(pool);
    let (at, _) = stage.open(HERE, |listener| listener.protocol = Protocol::Http);
    (stage, at)
}

/// Answers each request with its path as soon as it is told to.
fn held() -> (Member, mpsc::Sender<()>) {
    let (go, goes) = mpsc::channel();
    let goes = Mutex::new(goes);
    let member = Member::new(move |_, asked| {
        goes.lock().unwrap().recv().ok()?;
        Some(ok(asked.first().split(' ').nth(1).unwrap_or_default()))
    });
    (member, go)
}

#[test]
fn requests_of_both_protocols_wait_in_order_for_a_member_that_has_room() {
    let (member, go) = held();
    let (stage, at) = front_of(limited(&[member.at()], 1, PATIENCE));
    let ask = |path: &'static str| thread::spawn(move || Client::new(at).get(path).body);
    let first = ask("/1");
    eventually("it is with the member", || member.heard().len() == 1);
    let second = thread::spawn(move || Peer::new(at).get("/2").1);
    eventually("it waits", || stage.waiting() == 1);
    let third = ask("/3");
    eventually("both wait", || stage.waiting() == 2);
    for (number, client) in [first, second, third].into_iter().enumerate() {
        assert_eq!(member.heard().len(), number + 1, "one at a time");
        go.send(()).unwrap();
        assert_eq!(client.join().unwrap(), format!("/{}", number + 1).as_bytes());
        eventually("the next is with the member", || member.heard().len() == 3.min(number + 2));
    }
    assert_eq!(stage.member(member.at()).traffic.most, 1);
}

#[test]
fn a_request_that_waits_too_long_gets_503_and_the_connection_of_its_client_is_none_of_the_members() {
    let (member, go) = held();
    let (stage, at) = front_of(limited(&[member.at()], 1, Duration::from_millis(50)));
    let first = thread::spawn(move || Client::new(at).get("/1").status());
    eventually("it is with the member", || member.heard().len() == 1);
    let began = Instant::now();
    assert_eq!(Client::new(at).get("/2").status(), 503);
    assert!(began.elapsed() >= Duration::from_millis(50), "it waited");
    assert_eq!((stage.listener(at).refused(Refusal::Connections), stage.waiting()), (1, 0));
    go.send(()).unwrap();
    assert_eq!(first.join().unwrap(), 200);
    // A client that asks nothing takes nobody's room.
    let mut idle = Client::new(at);
    go.send(()).unwrap();
    assert_eq!(idle.get("/3").status(), 200);
    go.send(()).unwrap();
    assert_eq!(Client::new(at).get("/4").status(), 200);
    drop(idle);
}

#[test]
fn where_no_member_serves_nobody_waits() {
    let (stage, at) = front_of(limited(&[nobody()], 1, PATIENCE));
    assert_eq!(Client::new(at).get("/").status(), 503);
    assert_eq!(stage.waiting(), 0);
}

/// Many clients of several workers at once, over both protocols.
#[test]
fn no_member_is_asked_more_at_once_than_it_may_be_and_every_request_is_answered() {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let member = Member::new(move |_, _| {
        seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        thread::yield_now();
        now.fetch_sub(1, SeqCst);
        Some(ok("x"))
    });
    let (stage, at) = front_of(limited(&[member.at()], 3, PATIENCE));
    let mut clients: Vec<_> = (0..12)
        .map(|_| {
            thread::spawn(move || {
                let mut client = Client::new(at);
                assert!((0..50).all(|_| client.get("/").status() == 200));
            })
        })
        .collect();
    clients.extend((0..4).map(|_| {
        thread::spawn(move || {
            let mut client = Peer::new(at);
            assert!((0..50).all(|_| client.get("/").0 == 200));
        })
    }));
    clients.into_iter().for_each(|it| it.join().unwrap());
    assert!(most.load(SeqCst) <= 3, "{most:?} at a time");
    assert_eq!((member.heard().len(), stage.member(member.at()).traffic.most), (800, 3));
    assert_eq!((stage.waiting(), stage.listener(at).refused(Refusal::Connections)), (0, 0));
}
