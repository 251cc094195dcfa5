//! Which requests follow one another on a connection to a member.

use std::{
    io::Write,
    sync::{Mutex, mpsc},
    time::{Duration, Instant},
};

use seaway_model::{
    Pool,
    load_balancer::{ConnectionReuse, PoolHttpOptions, Protocol},
};

use crate::{scene::*, stage::*};

/// One worker, whose clients share its connections.
fn front_of(pool: Pool) -> (Stage, std::net::SocketAddr) {
    let stage = Stage::with_workers(1);
    stage.put(pool);
    let (at, _) = stage.open(HERE, |listener| listener.protocol = Protocol::Http);
    (stage, at)
}

fn with(reuse: ConnectionReuse, member: &Member) -> Pool {
    Pool { http: PoolHttpOptions { reuse, ..PoolHttpOptions::default() }, ..pool(&[member.at()]) }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
const EMPTY_POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
const GET_WITH_BODY: &str = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED_PUT: &str =
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";

/// How many connections the member has seen after each: two requests of one client, then one of another.
#[test]
fn connections_are_used_again_as_far_as_bodies_and_the_service_allow() {
    for (reuse, request, expected) in [
        (ConnectionReuse::Safe, GET, [1, 1, 1]),
        (ConnectionReuse::Safe, EMPTY_POST, [1, 1, 1]),
        (ConnectionReuse::Safe, POST, [1, 1, 2]),
        (ConnectionReuse::Safe, CHUNKED_PUT, [1, 1, 2]),
        (ConnectionReuse::Safe, GET_WITH_BODY, [1, 2, 3]),
        (ConnectionReuse::Strict, GET, [1, 1, 1]),
        (ConnectionReuse::Strict, POST, [1, 2, 3]),
        (ConnectionReuse::Always, GET, [1, 1, 1]),
        (ConnectionReuse::Always, POST, [1, 1, 1]),
        (ConnectionReuse::Always, GET_WITH_BODY, [1, 1, 1]),
        (ConnectionReuse::Never, GET, [1, 2, 3]),
    ] {
        let (found, heard) = in_time(|| {
            let member = Member::saying("hello");
            let (_stage, at) = front_of(with(reuse, &member));
            let (mut one, mut other) = (Client::new(at), Client::new(at));
            let ask = |client: &mut Client| {
                assert_eq!(client.ask(request).body, b"hello", "{reuse:?} {request}");
                member.backend.accepted()
            };
            ([ask(&mut one), ask(&mut one), ask(&mut other)], member.heard())
        });
        assert_eq!(found, expected, "{reuse:?} {request}");
        // The member hears of it, and may close by itself.
        let closes = expected[1] == 2;
        for heard in heard {
            assert_eq!(heard.field("connection"), closes.then_some("close"), "{reuse:?} {request}");
        }
    }
}

#[test]
fn a_connection_that_was_one_client_s_stays_its_own() {
    let found = in_time(|| {
        let member = Member::saying("hello");
        let (_stage, at) = front_of(with(ConnectionReuse::Safe, &member));
        let (mut one, mut other) = (Client::new(at), Client::new(at));
        one.ask(POST);
        for _ in 0..5 {
            // A GET does not give it to others.
            assert_eq!(one.get("/").body, b"hello");
            assert_eq!(other.get("/").body, b"hello");
        }
        member.backend.accepted()
    });
    assert_eq!(found, 2);
}

/// What comes of it before connections to members are too old to be used again; a busy machine may need another try.
fn in_time<T>(mut run: impl FnMut() -> T) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let began = Instant::now();
        let found = run();
        if began.elapsed() < Duration::from_secs(3) || began > deadline {
            return found;
        }
    }
}

#[test]
fn a_switch_that_was_not_agreed_to_ends_its_connection() {
    let member = Member::saying("hello");
    let (_stage, at) = front_of(with(ConnectionReuse::Always, &member));
    let mut client = Client::new(at);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    client.get("/");
    assert_eq!(member.backend.accepted(), 2);
    assert_eq!(member.heard()[0].field("connection"), Some("upgrade"));
}

#[test]
fn trailers_are_asked_for_on_a_connection_that_ends() {
    let member = Member::saying("hello");
    let (_stage, at) = front_of(with(ConnectionReuse::Safe, &member));
    let te = GET_WITH_BODY.replace("Content", "TE: trailers\r\nConnection: te\r\nContent");
    Client::new(at).ask(te);
    let heard = member.heard();
    assert_eq!((heard[0].field("connection"), heard[0].field("te")), (Some("te, close"), Some("trailers")));
}

/// All of it is on its way, and the member has read the head alone: not even a Service that reuses all connections
/// reuses this one.
#[test]
fn an_answer_before_the_member_has_taken_the_body_ends_its_connection() {
    let length = 512 << 10;
    let (go, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let backend = Backend::new(HERE, move |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while let Some(head) = reader.head() {
            let is_post = head.starts_with("POST");
            if is_post {
                let _ = gone.lock().unwrap().recv();
            }
            if stream.write_all(ok("hello").as_bytes()).is_err() {
                return;
            }
            if is_post {
                // It reads no more, and stays.
                let _ = gone.lock().unwrap().recv();
            }
        }
    });
    let http = PoolHttpOptions { reuse: ConnectionReuse::Always, ..PoolHttpOptions::default() };
    let (_stage, at) = front_of(Pool { http, ..pool(&[backend.at]) });
    let mut client = Client::new(at);
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
    client.send(vec![b'x'; length]);
    go.send(()).unwrap();
    assert_eq!(client.answer().body, b"hello");
    assert_eq!(Client::new(at).get("/").body, b"hello");
    assert_eq!(backend.accepted(), 2);
    drop(go);
}

/// Closed by us first, each would hold a port of ours for a minute, and there are 28,000 for each member.
#[test]
fn a_connection_that_is_closed_after_a_body_holds_no_port_of_ours() {
    let obeys = Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        let Some(message) = reader.message(false) else { return };
        assert_eq!(message.field("connection"), Some("close"));
        let _ = stream.write_all(ok("hello").as_bytes());
    });
    let stays = Member::saying("hello");
    for backend in [&obeys, &stays.backend] {
        let before = connections_to(backend.at);
        let (_stage, at) = front_of(pool(&[backend.at]));
        let mut client = Client::new(at);
        for _ in 0..20 {
            assert_eq!(client.ask(GET_WITH_BODY).body, b"hello");
        }
        let new = || connections_to(backend.at).into_iter().filter(|it| !before.contains(it));
        eventually("all are closed", || new().all(|(_, state)| state == TIME_WAIT));
        assert_eq!(new().count(), 0, "{:?}", new().collect::<Vec<_>>());
        assert_eq!(backend.accepted(), 20);
    }
}

const TIME_WAIT: &str = "06";

/// Local addresses and states (proc_net_tcp.rst). Whoever had that port before may have left some.
fn connections_to(at: std::net::SocketAddr) -> Vec<(String, String)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!("0100007F:{:04X}", at.port());
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row.get(2) == Some(&remote.as_str()));
    rows.map(|row| (row[1].to_owned(), row[3].to_owned())).collect()
}
