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
    load_balancer::{Affinity, CookieMode, MemberLimit, Protocol},
};
use seaway_proxy::RefusalReason;

use crate::{peer::Peer, scene::*, stage::*};

fn limited(members: &[SocketAddr], connections: u32, wait: Duration) -> Pool {
    Pool { member_limit: Some(MemberLimit { connections, wait }), ..pool(members) }
}

fn front_of(pool: Pool) -> (Stage, SocketAddr) {
    front_by(2, pool)
}

fn front_by(workers: usize, pool: Pool) -> (Stage, SocketAddr) {
    let stage = Stage::with_workers(workers);
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
    assert_eq!((stage.listener(at).refused(RefusalReason::Connections), stage.waiting()), (1, 0));
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
    assert_eq!((stage.waiting(), stage.listener(at).refused(RefusalReason::Connections)), (0, 0));
}

/// A cookie, or the client's address, keeps clients at a member that is full while another has room.
#[test]
fn who_keeps_a_member_waits_for_it_alone_and_holds_up_nobody_else() {
    let ((one, go), (two, goes)) = (held(), held());
    let affinity = Affinity::Cookie { name: "SEAT".into(), mode: CookieMode::Insert, key: None };
    let plan = Pool { affinity: Some(affinity), ..limited(&[one.at(), two.at()], 1, PATIENCE) };
    // One worker gives clients to members in turn.
    let (stage, at) = front_by(1, plan);
    go.send(()).unwrap();
    goes.send(()).unwrap();
    let (first, second) = (Client::new(at).get("/1"), Client::new(at).get("/1"));
    let mut cookies = [first, second].map(|it| it.field("set-cookie").unwrap().to_owned());
    cookies.sort();
    assert_ne!(cookies[0], cookies[1], "each is of another member");
    // Whose the first is: it is asked now.
    let cookie = cookies[0].split(';').next().unwrap().to_owned();
    let asks = |path: &'static str| {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n");
        thread::spawn(move || Client::new(at).ask(text).status())
    };
    let heard = || (one.heard().len(), two.heard().len());
    let kept = asks("/kept");
    eventually("its member has it", || heard() != (1, 1));
    let (busy, free, [gone, goes]) = match heard() {
        (2, 1) => (&one, &two, [go, goes]),
        _ => (&two, &one, [goes, go]),
    };
    let waits = asks("/waits");
    eventually("the next of the same waits", || stage.waiting() == 1);
    goes.send(()).unwrap();
    assert_eq!(Client::new(at).get("/other").status(), 200, "the other member has room");
    assert_eq!((busy.heard().len(), free.heard().len(), stage.waiting()), (2, 2, 1));
    gone.send(()).unwrap();
    gone.send(()).unwrap();
    assert_eq!((kept.join().unwrap(), waits.join().unwrap()), (200, 200));
    assert_eq!((busy.heard().len(), free.heard().len()), (3, 2), "it kept its member");
}

/// The member that has room does not answer: its client waits for the other one, and does not turn in a circle.
#[test]
fn who_was_refused_by_the_member_with_room_waits_for_the_other() {
    let (member, go) = held();
    let (stage, at) = front_of(limited(&[member.at(), nobody()], 1, PATIENCE));
    let ask = || thread::spawn(move || Client::new(at).get("/").status());
    let first = ask();
    eventually("it is with the member", || member.heard().len() == 1);
    let second = ask();
    eventually("it waits", || stage.waiting() == 1);
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!((first.join().unwrap(), second.join().unwrap()), (200, 200));
}

#[test]
fn a_stream_that_its_client_gives_up_waits_no_more() {
    let (member, go) = held();
    let (stage, at) = front_of(limited(&[member.at()], 1, PATIENCE));
    let first = thread::spawn(move || Client::new(at).get("/1").status());
    eventually("it is with the member", || member.heard().len() == 1);
    let mut peer = Peer::new(at);
    let (answer, to) = peer.requests.send_request(crate::peer::get("/2"), true).unwrap();
    eventually("it waits", || stage.waiting() == 1);
    drop((answer, to));
    eventually("it has left", || stage.waiting() == 0);
    go.send(()).unwrap();
    assert_eq!(first.join().unwrap(), 200);
    assert_eq!(member.heard().len(), 1, "the member is not asked for what nobody waits for");
}

#[test]
fn without_a_limit_newcomers_do_not_wait_behind_those_that_did() {
    let (member, go) = held();
    let (stage, at) = front_of(limited(&[member.at()], 1, PATIENCE));
    let ask = || thread::spawn(move || Client::new(at).get("/").status());
    let first = ask();
    eventually("it is with the member", || member.heard().len() == 1);
    let second = ask();
    eventually("it waits", || stage.waiting() == 1);
    stage.put(pool(&[member.at()]));
    let third = ask();
    (0..3).for_each(|_| go.send(()).unwrap());
    assert_eq!([first, second, third].map(|it| it.join().unwrap()), [200; 3]);
}
