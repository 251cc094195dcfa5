//! What a strict reader refuses never reaches a member.

use std::io::Write;

use seaway_model::load_balancer::Protocol;

use crate::{scene::*, stage::*};

#[test]
fn nothing_that_could_be_read_in_two_ways_reaches_a_member() {
    let member = Member::saying("reached");
    let (_stage, at) = front(&[member.at()]);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for (name, request, status) in [
        (
            "both lengths",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "both, turned",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n", 400),
        (
            "equal lengths",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
            400,
        ),
        ("a list of lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 0\r\n\r\n", 400),
        ("a sign", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n", 400),
        (
            "space before the colon",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "a folded coding",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "a strange coding",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "a second coding",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
        ),
        (
            "chunked twice",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
            400,
        ),
        ("bare LF in a field", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400),
        ("bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n", 400),
        ("bare CR in a field", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rContent-Length: 44\r\n\r\n", 400),
        ("NUL", "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 400),
        ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("no host", "GET / HTTP/1.1\r\n\r\n", 400),
        ("dots", "GET /a/..%2f..%2fb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("a name in the target", "GET http://u:p@b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("an old version with chunks", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("HTTP/0.9", "GET /\r\n\r\n", 400),
        ("CONNECT with a body", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 44\r\n\r\n", 400),
    ] {
        let mut client = Client::new(at);
        let answer = client.ask(format!("{request}{smuggled}"));
        assert_eq!(answer.status(), status, "{name}");
        assert!(client.is_over(), "{name}: the connection goes on");
        assert!(member.heard().is_empty(), "{name}: {:?}", member.heard());
    }
}

#[test]
fn who_speaks_another_protocol_is_told_nothing_in_this_one() {
    let member = Member::saying("reached");
    let (_stage, at) = front(&[member.at()]);
    for start in ["INVALID CONNECTION PREFACE\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
        let mut client = Client::new(at);
        client.send(start);
        assert!(client.is_over(), "{start:?}");
    }
}

#[test]
fn a_body_that_is_no_proper_chunks_ends_everything() {
    for chunks in [
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "-1\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "1;\0\r\nx\r\n0\r\n\r\n",
    ] {
        let member = Member::saying("reached");
        let (_stage, at) = front(&[member.at()]);
        let mut client = Client::new(at);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(format!("{chunks}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.answer().status(), 400, "{chunks:?}");
        assert!(client.is_over(), "{chunks:?}");
        assert!(member.heard().is_empty(), "{chunks:?}: {:?}", member.heard());
    }
}

#[test]
fn an_answer_that_could_be_read_in_two_ways_does_not_reach_a_client() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n",
        "nonsense\r\nContent-Length: 0\r\n\r\n",
    ] {
        let member = Member::new(move |_, _| Some(answer.to_owned()));
        let (_stage, at) = front(&[member.at()]);
        assert_eq!(Client::new(at).get("/").status(), 502, "{answer:?}");
    }
}

#[test]
fn what_a_member_says_too_much_is_nobody_s_answer() {
    let more = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for (asked, said) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 51\r\n\r\n"),
        ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let member = Member::new(move |number, _| {
            Some(if number == 0 { format!("{said}{more}") } else { ok("clean") })
        });
        let (_stage, at) = front(&[member.at()]);
        let mut first = Client::new(at);
        first.send(format!("{asked} /first HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = loop {
            let answer = if asked == "HEAD" { first.answer_to_head() } else { first.answer() };
            if answer.status() != 100 {
                break answer;
            }
        };
        assert!(answer.body.is_empty() && answer.status() < 400, "{said:?}: {answer:?}");
        // Whoever comes next, by the same connection or another.
        for client in [&mut first, &mut Client::new(at)] {
            client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.answer().body, b"clean", "{said:?}");
        }
    }
}

#[test]
fn what_a_member_says_unasked_is_nobody_s_answer() {
    let (told, said) = std::sync::mpsc::channel();
    let backend = Backend::new(HERE, move |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while reader.message(false).is_some() {
            stream.write_all(ok("clean").as_bytes()).unwrap();
            // When nobody waits for anything.
            if stream.write_all(ok("poison").as_bytes()).is_ok() {
                let _ = told.send(());
            }
        }
    });
    // One worker, which has seen what came before it is asked for something else.
    let stage = Stage::with_workers(1);
    stage.put(pool(&[backend.at]));
    let (at, _) = stage.open(HERE, |listener| listener.protocol = Protocol::Http);
    let mut client = Client::new(at);
    for number in 0..20 {
        assert_eq!(client.get("/").body, b"clean", "{number}");
        said.recv_timeout(PATIENCE).unwrap();
        Client::new(at).send("nonsense\r\n\r\n");
        eventually("the worker had a turn", || stage.listener(at).answers[4] == number + 1);
    }
}
