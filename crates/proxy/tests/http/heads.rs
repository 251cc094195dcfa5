//! What is told to whom, and where requests go.

use seaway_model::load_balancer::{Action, Filter, HostPattern, Match, PathMatch};

use crate::scene::*;

#[test]
fn members_hear_who_asks_and_nothing_that_is_for_one_hop() {
    let member = Member::saying("hello");
    let (_stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    let answer = client.ask(
        "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nX-Odd-Case: v\r\nConnection: X-Mine, keep-alive\r\nX-Mine: 1\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nForwarded: for=9.9.9.9\r\nTE: trailers\r\n\r\n",
    );
    assert_eq!((answer.status(), &answer.body[..]), (200, &b"hello"[..]));
    let heard = &member.heard()[0];
    assert_eq!(heard.first(), "GET /a/b?c=d HTTP/1.1");
    assert!(heard.head.contains("\nX-Odd-Case: v\n"), "names keep their case: {}", heard.head);
    for (name, value) in [
        ("host", Some("shop.example")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("shop.example")),
        ("x-forwarded-port", Some(&*at.port().to_string())),
        ("x-mine", None),
        ("forwarded", None),
        ("te", Some("trailers")),
    ] {
        assert_eq!(heard.field(name), value, "{name}");
    }
}

#[test]
fn an_absolute_target_names_the_host() {
    let member = Member::saying("");
    let (_stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    client.ask("GET http://b.example:81/x HTTP/1.1\r\nHost: other\r\n\r\n");
    client.ask("GET http://b.example HTTP/1.1\r\nHost: other\r\n\r\n");
    let heard = member.heard();
    assert_eq!((heard[0].first(), heard[0].field("host")), ("GET /x HTTP/1.1", Some("b.example:81")));
    assert_eq!((heard[1].first(), heard[1].field("host")), ("GET / HTTP/1.1", Some("b.example")));
}

#[test]
fn rules_say_where_requests_go_and_what_becomes_of_their_paths() {
    let member = Member::saying("");
    let (_stage, at) = front_with(&[member.at()], |listener| {
        let path = |path| vec![Match { path: Some(path), ..Match::default() }];
        let mut stripped = everything();
        stripped.matches = path(PathMatch::Prefix("/shop".into()));
        stripped.filters = vec![Filter::RewritePrefix("/".into()), Filter::RewriteHost("inner".into())];
        let mut said = everything();
        said.matches = path(PathMatch::Exact("/said".into()));
        said.action = Action::Respond { code: 403, body: "no".into() };
        let mut hosted = everything();
        hosted.hosts = vec![HostPattern::Exact("b.example".into())];
        listener.rules = vec![stripped, said, hosted];
    });
    let mut client = Client::new(at);
    for (target, host, expected) in [
        ("/shop", "a", "GET / HTTP/1.1"),
        ("/shop/", "a", "GET / HTTP/1.1"),
        ("/shop/x/y?z", "a", "GET /x/y?z HTTP/1.1"),
        ("/shop?z", "a", "GET /?z HTTP/1.1"),
        ("/x", "B.Example:80", "GET /x HTTP/1.1"),
    ] {
        let answer = client.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answer.status(), 200, "{target}");
        assert_eq!(member.heard().last().unwrap().first(), expected, "{target}");
    }
    assert_eq!(member.heard()[0].field("host"), Some("inner"));
    let said = client.get("/said");
    assert_eq!((said.status(), &said.body[..]), (403, &b"no"[..]));
    let missing = Client::new(at).get("/shopping");
    assert_eq!(missing.status(), 404);
    assert_eq!(member.heard().len(), 5, "nobody was asked for what has no rule");
}

#[test]
fn connections_persist_on_both_sides_and_requests_may_come_together() {
    let member = Member::new(|number, _| Some(ok(&number.to_string())));
    let (stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    for number in 0..5 {
        assert_eq!(client.get("/").body, number.to_string().into_bytes());
    }
    let one = "GET /p HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(one.repeat(3));
    for number in 5..8 {
        assert_eq!(client.answer().body, number.to_string().into_bytes());
    }
    drop(client);
    Client::new(at).get("/");
    // A worker keeps connections for itself.
    assert!(member.backend.accepted() <= 2, "{} connections", member.backend.accepted());
    assert_eq!(stage.listener(at).traffic.total, 2);
}

#[test]
fn a_client_of_http_1_0_gets_what_it_understands() {
    let member = Member::new(|_, _| {
        Some("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned())
    });
    let (_stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    let answer = client.ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!((answer.field("transfer-encoding"), &answer.body[..]), (None, &b"abc"[..]));
    assert_eq!(answer.field("connection"), Some("close"));
    let sized = Member::saying("xyz");
    let (_stage, at) = front(&[sized.at()]);
    let mut client = Client::new(at);
    for _ in 0..2 {
        let answer = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!((answer.field("connection"), &answer.body[..]), (Some("keep-alive"), &b"xyz"[..]));
    }
}
