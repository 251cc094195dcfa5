//! How much a request may be, and how long a phase may take.

use std::time::{Duration, Instant};

use http::Request;
use seaway_model::{
    Pool,
    load_balancer::{HttpLimits, PoolHttpOptions},
};

use crate::{peer::Peer, scene::*, stage::*};

fn limited(limits: HttpLimits) -> (Stage, std::net::SocketAddr, Member) {
    let member = Member::saying("x");
    let (stage, at) = front_with(&[member.at()], |listener| {
        listener.http.limits = limits;
        listener.http.pages = [(413, "too much".into()), (431, "too long".into())].into();
    });
    (stage, at, member)
}

fn chunked(sizes: &[usize]) -> String {
    let mut text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for size in sizes {
        text += &format!("{size:x}\r\n{}\r\n", "b".repeat(*size));
    }
    text + "0\r\n\r\n"
}

#[test]
fn a_body_is_no_longer_than_it_may_be() {
    let (_stage, at, member) = limited(HttpLimits { body: 1_000, ..HttpLimits::default() });
    let sized = |size: usize| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n{}", "b".repeat(size))
    };
    for (request, expected) in [
        (sized(1_000), 200),
        (sized(1_001), 413),
        (chunked(&[500, 500]), 200),
        (chunked(&[500, 501]), 413),
        (chunked(&[20_000]), 413),
        // It is not asked for what it could not send.
        (
            "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n".to_owned(),
            413,
        ),
    ] {
        let mut client = Client::new(at);
        let answer = client.ask(&request);
        assert_eq!(answer.status(), expected, "{}", &request[..80]);
        if expected == 413 {
            assert_eq!((&answer.body[..], answer.field("connection")), (&b"too much"[..], Some("close")));
        }
    }
    assert_eq!(member.heard().len(), 2, "of the others no member heard anything whole");
}

#[test]
fn a_body_that_grows_too_long_on_the_way_is_cut_there() {
    let (stage, at, member) = limited(HttpLimits { body: 100_000, ..HttpLimits::default() });
    let mut client = Client::new(at);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..12 {
        client.send(format!("2710\r\n{}\r\n", "b".repeat(10_000)));
    }
    assert_eq!(client.answer().status(), 413);
    assert!(member.heard().is_empty());
    // Who goes on sending reads the answer all the same.
    let mut client = Client::new(at);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n");
    client.send("b".repeat(2_000_000));
    assert_eq!(client.answer().status(), 413);
    eventually("nothing is left open", || stage.member(member.at()).traffic.current == 0);
    let many = Request::post("http://a.example/").body(()).unwrap();
    let (head, body, _) = Peer::new(at).ask(many, Some(&[b'b'; 100_001])).unwrap();
    assert_eq!((head.status().as_u16(), &body[..]), (413, &b"too much"[..]));
}

#[test]
fn a_service_says_for_itself_how_much_it_takes() {
    let (stage, at, member) = limited(HttpLimits { body: 10, ..HttpLimits::default() });
    for (own, expected) in [(None, 413), (Some(20), 200), (Some(u64::MAX), 200), (Some(5), 413)] {
        let http = PoolHttpOptions { body: own, ..PoolHttpOptions::default() };
        stage.put(Pool { http, ..pool(&[member.at()]) });
        let answer = Client::new(at).ask(chunked(&[15]));
        assert_eq!(answer.status(), expected, "{own:?}");
    }
}

#[test]
fn heads_are_as_long_as_they_may_be() {
    let (_stage, at, _member) =
        limited(HttpLimits { head: 40 << 10, target: 20_000, fields: 20, ..HttpLimits::default() });
    let long = |size: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(size));
    let target = |size: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(size));
    let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: x\r\n".repeat(count));
    for (what, request, expected) in [
        ("a head of 39 KiB", long(39 << 10), 200),
        ("a head of 41 KiB", long(41 << 10), 431),
        ("a target within", target(19_000), 200),
        ("a target beyond", target(20_001), 414),
        ("a request line without an end", "GET /".to_owned() + &"x".repeat(41 << 10), 414),
        ("fields within", fields(19), 200),
        ("fields beyond", fields(20), 431),
    ] {
        let answer = Client::new(at).ask(&request);
        assert_eq!(answer.status(), expected, "{what}");
        if expected == 431 {
            assert_eq!(answer.body, b"too long", "{what}");
        }
    }
    let streams = |size: usize| {
        let request = Request::get("http://a.example/").header("x", "x".repeat(size)).body(()).unwrap();
        Peer::new(at).ask(request, None).unwrap().0.status().as_u16()
    };
    assert_eq!((streams(39 << 10), streams(50 << 10)), (200, 431));
}

#[test]
fn a_service_says_for_itself_how_long_it_may_think() {
    let member = Member::new(|_, _| {
        std::thread::park_timeout(PATIENCE);
        None
    });
    let (stage, at) = front(&[]);
    let http = PoolHttpOptions { answer: Some(Duration::from_millis(100)), ..PoolHttpOptions::default() };
    stage.put(Pool { http, ..pool(&[member.at()]) });
    let begun = Instant::now();
    assert_eq!(Client::new(at).get("/").status(), 504);
    // Others may for 50 s.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// Switches to another protocol, and never finishes by itself.
fn switching() -> Backend {
    Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        if reader.head().is_some() {
            let switch = "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
            std::io::Write::write_all(&mut stream, switch.as_bytes()).unwrap();
            reader.rest();
            std::thread::park_timeout(PATIENCE);
        }
    })
}

/// One of many Services at a listener says what holds for its own.
#[test]
fn a_service_says_for_itself_how_long_its_tunnels_last() {
    let soon = Some(Duration::from_millis(100));
    let usual = PoolHttpOptions::default;
    for (http, finishes) in [
        (PoolHttpOptions { idle: soon, ..usual() }, false),
        (PoolHttpOptions { half_closed: soon, ..usual() }, true),
        // It ends when its member leaves.
        (PoolHttpOptions { drain: soon, ..usual() }, false),
    ] {
        let backend = switching();
        let (stage, at) = front_with(&[backend.at], |listener| {
            let never = PATIENCE * 4;
            let times = &mut listener.timeouts;
            (times.idle, times.half_closed, times.drain) = (never, never, never);
        });
        let its = Pool { http: http.clone(), ..pool(&[backend.at]) };
        stage.put(its.clone());
        let mut client = Client::new(at);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
        assert_eq!(client.answer().status(), 101);
        let begun = Instant::now();
        if finishes {
            client.stream().shutdown(std::net::Shutdown::Write).unwrap();
        }
        if http.drain.is_some() {
            stage.put(Pool { members: Vec::new(), ..its });
        }
        assert!(client.is_over());
        assert!(begun.elapsed() < PATIENCE / 2, "{http:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_tunnel_of_which_one_side_has_finished_does_not_stay_for_long() {
    let backend = switching();
    let (_stage, at) = front_with(&[backend.at], |listener| {
        listener.timeouts.half_closed = Duration::from_millis(100);
        listener.timeouts.idle = PATIENCE * 2;
    });
    let mut client = Client::new(at);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    assert_eq!(client.answer().status(), 101);
    let begun = Instant::now();
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.is_over());
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}
