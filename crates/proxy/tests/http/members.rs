//! Members that do not answer, and who is asked instead.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use seaway_model::{Pool, load_balancer::PassiveHealthCheck};

use crate::{scene::*, stage::*};

#[test]
fn without_a_usable_member_it_is_503() {
    let (_stage, at) = front(&[]);
    let answer = Client::new(at).get("/");
    assert_eq!((answer.status(), answer.field("connection")), (503, Some("close")));
}

#[test]
fn a_member_that_is_not_there_costs_nobody_an_answer() {
    let member = Member::saying("here");
    let (stage, at) = front(&[nobody(), member.at()]);
    let mut client = Client::new(at);
    for _ in 0..6 {
        assert_eq!(client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").body, b"here");
    }
    assert!(stage.listener(at).retries >= 1);
    assert!(member.heard().iter().all(|heard| heard.body == b"hi"), "the body goes along");
}

#[test]
fn a_kept_connection_that_was_closed_meanwhile_is_not_noticed() {
    // Answers once on each connection, and closes it when the next request comes: as late as can be.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let backend = Backend::new(HERE, move |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        if reader.message(false).is_some() {
            count.fetch_add(1, SeqCst);
            stream.write_all(ok("once").as_bytes()).unwrap();
            let _ = stream.read(&mut [0; 1]);
        }
    });
    let (stage, at) = front(&[backend.at]);
    let mut client = Client::new(at);
    for _ in 0..5 {
        assert_eq!(client.get("/").body, b"once");
    }
    assert_eq!(asked.load(SeqCst), 5);
    assert_eq!(stage.member(backend.at).connect_errors, 0, "that is no fault of the member");
}

#[test]
fn what_may_have_been_done_is_not_done_again() {
    for (method, times, status) in [("POST", 1, 502), ("PATCH", 1, 502), ("GET", 2, 200), ("PUT", 2, 200)] {
        let member = Member::new(|number, _| (number > 0).then(|| ok("done")));
        let other = Member::new(|_, _| Some(ok("done")));
        let (_stage, at) = front(&[member.at()]);
        let answer =
            Client::new(at).ask(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
        // There is one member: who may ask again has nobody else to ask.
        let expected = if times == 1 { status } else { 503 };
        assert_eq!((answer.status(), member.heard().len()), (expected, 1), "{method}");
        let fails = Member::new(|_, _| None);
        let (_stage, at) = front(&[fails.at(), other.at()]);
        let statuses: Vec<u16> = (0..4)
            .map(|_| {
                Client::new(at)
                    .ask(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"))
                    .status()
            })
            .collect();
        assert_eq!(statuses.contains(&502), times == 1, "{method}: {statuses:?}");
        assert!(statuses.contains(&200), "{method}: {statuses:?}");
    }
}

#[test]
fn a_removed_member_gets_no_further_request_and_finishes_what_it_has() {
    let (old, new) = (Member::saying("old"), Member::saying("new"));
    let (stage, at) = front(&[old.at()]);
    let mut client = Client::new(at);
    assert_eq!(client.get("/").body, b"old");
    stage.put(pool(&[new.at()]));
    assert_eq!(client.get("/").body, b"new", "the client's connection goes on");
    eventually("the kept connection is closed", || {
        stage.proxy.statistics().pools.iter().all(|pool| pool.members.len() == 1)
    });
}

#[test]
fn a_member_that_answers_with_errors_is_left_out_for_a_while() {
    let (bad, good) = (
        Member::new(|_, _| Some("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_owned())),
        Member::saying("x"),
    );
    let (stage, at) = front(&[]);
    let passive = PassiveHealthCheck {
        errors: Some(3),
        eject: Duration::from_secs(60),
        ..PassiveHealthCheck::default()
    };
    stage.put(Pool { passive: Some(passive), ..pool(&[bad.at(), good.at()]) });
    let mut client = Client::new(at);
    let statuses: Vec<u16> = (0..30).map(|_| client.get("/").status()).collect();
    assert_eq!(statuses.iter().filter(|it| **it == 503).count(), 3, "{statuses:?}");
    assert_eq!(stage.member(bad.at()).standing, seaway_proxy::MemberAvailability::Ejected);
}

#[test]
fn a_member_that_answers_nobody_in_time_is_left_out_for_a_while() {
    let early = "HTTP/1.1 103 Early Hints\r\n\r\n";
    for said in ["", early] {
        let bad = Backend::new(HERE, move |mut stream| {
            Reader::new(stream.try_clone().unwrap()).head();
            stream.write_all(said.as_bytes()).unwrap();
            let _ = stream.read(&mut [0; 1]);
        });
        let good = Member::saying("x");
        let (stage, at) = front_with(&[], |it| it.timeouts.answer = Duration::from_secs(2));
        let passive = PassiveHealthCheck {
            errors: Some(2),
            eject: Duration::from_secs(60),
            ..PassiveHealthCheck::default()
        };
        stage.put(Pool { passive: Some(passive), ..pool(&[bad.at, good.at()]) });
        let ask = |_| {
            let mut client = Client::new(at);
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let first = client.answer();
            if first.status() == 103 { client.answer().status() } else { first.status() }
        };
        let statuses: Vec<u16> = (0..12).map(ask).collect();
        assert_eq!(statuses.iter().filter(|it| **it == 504).count(), 2, "{statuses:?}");
        assert_eq!(stage.member(bad.at).standing, seaway_proxy::MemberAvailability::Ejected);
    }
}

#[test]
fn a_member_that_breaks_its_answers_off_is_left_out_for_a_while() {
    let (bad, good) = (
        Member::new(|_, _| {
            Some("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf".to_owned())
        }),
        Member::saying("x"),
    );
    let (stage, at) = front(&[]);
    let passive =
        PassiveHealthCheck { failures: 2, eject: Duration::from_secs(60), ..PassiveHealthCheck::default() };
    stage.put(Pool { passive: Some(passive), ..pool(&[bad.at(), good.at()]) });
    eventually("it is out", || {
        let mut client = Client::new(at);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.rest();
        stage.member(bad.at()).standing == seaway_proxy::MemberAvailability::Ejected
    });
}
