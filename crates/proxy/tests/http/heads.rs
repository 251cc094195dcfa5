//! What is told to whom, and where requests go.

use std::sync::Arc;

use seaway_model::load_balancer::{Action, Filter, HeaderChange, HostPattern, Match, PathMatch, Redirect};

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
        let mut root = everything();
        root.hosts = vec![HostPattern::Exact("root.example".into())];
        root.matches = path(PathMatch::Exact("/".into()));
        root.filters = vec![Filter::RewritePrefix("/inner".into())];
        listener.rules = [stripped, said, hosted, root].map(Arc::new).into();
    });
    let mut client = Client::new(at);
    for (target, host, expected) in [
        ("/shop", "a", "GET / HTTP/1.1"),
        ("/shop/", "a", "GET / HTTP/1.1"),
        ("/shop/x/y?z", "a", "GET /x/y?z HTTP/1.1"),
        ("/shop?z", "a", "GET /?z HTTP/1.1"),
        ("/x", "B.Example:80", "GET /x HTTP/1.1"),
        ("http://root.example", "a", "GET /inner HTTP/1.1"),
        ("http://root.example?z", "a", "GET /inner?z HTTP/1.1"),
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
    assert_eq!(member.heard().len(), 7, "nobody was asked for what has no rule");
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

#[test]
fn rules_change_fields_on_both_ways() {
    let member = Member::new(|_, _| {
        Some("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: x\r\nX-Keep: y\r\n\r\n".to_owned())
    });
    let pairs =
        |all: &[(&str, &str)]| all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let (_stage, at) = front_with(&[member.at()], |listener| {
        let mut rule = everything();
        rule.filters = vec![
            Filter::RequestHeaders(HeaderChange {
                set: pairs(&[("X-Set", "new"), ("Content-Length", "9")]),
                add: pairs(&[("X-Add", "more")]),
                remove: vec!["x-gone".into(), "content-length".into()],
            }),
            Filter::ResponseHeaders(HeaderChange {
                set: pairs(&[("Server", "z")]),
                add: pairs(&[("X-Add", "1")]),
                remove: vec!["content-length".into()],
            }),
        ];
        listener.rules = vec![rule.into()];
    });
    let answer = Client::new(at).ask(
        "POST / HTTP/1.1\r\nHost: a\r\nx-set: old\r\nX-Gone: 1\r\nX-ADD: one\r\nContent-Length: 2\r\n\r\nhi",
    );
    let heard = &member.heard()[0];
    assert_eq!(
        (heard.field("x-set"), heard.field("x-gone"), &heard.body[..]),
        (Some("new"), None, &b"hi"[..])
    );
    assert!(heard.head.contains("X-ADD: one\n") && heard.head.contains("X-Add: more\n"), "{}", heard.head);
    assert_eq!(
        (answer.field("server"), answer.field("x-keep"), answer.field("x-add")),
        (Some("z"), Some("y"), Some("1"))
    );
    assert_eq!(answer.field("content-length"), Some("0"), "nobody changes how long a body is");
}

#[test]
fn redirects_keep_what_they_do_not_name() {
    let redirect = |scheme: Option<&str>, host: Option<&str>, port, path, code| Redirect {
        scheme: scheme.map(Into::into),
        host: host.map(Into::into),
        port,
        path,
        code,
    };
    let prefix = |text: &str| Some(PathMatch::Prefix(text.into()));
    for (redirect, expected) in [
        (redirect(Some("https"), None, None, None, 301), "301 https://shop.example/a/b?c=d"),
        (redirect(Some("https"), None, Some(8443), None, 308), "308 https://shop.example:8443/a/b?c=d"),
        (redirect(None, Some("b.example"), None, None, 302), "302 http://b.example:8080/a/b?c=d"),
        (redirect(None, None, Some(80), prefix("/x/"), 302), "302 http://shop.example/x/b?c=d"),
        (redirect(None, None, Some(80), prefix("/"), 302), "302 http://shop.example/b?c=d"),
        (
            redirect(None, None, None, Some(PathMatch::Exact("/z".into())), 307),
            "307 http://shop.example:8080/z?c=d",
        ),
    ] {
        let (_stage, at) = front_with(&[], |listener| {
            let mut rule = everything();
            rule.matches = vec![Match { path: prefix("/a"), ..Match::default() }];
            rule.action = Action::Redirect(redirect.clone());
            listener.rules = vec![rule.into()];
        });
        let mut client = Client::new(at);
        for _ in 0..2 {
            let answer = client.ask("GET /a/b?c=d HTTP/1.1\r\nHost: shop.example:8080\r\n\r\n");
            let told = format!("{} {}", answer.status(), answer.field("location").unwrap_or_default());
            assert_eq!(told, expected);
        }
    }
}

#[test]
fn a_trusted_peer_says_who_the_client_is() {
    let member = Member::saying("x");
    let (stage, at) = front_with(&[member.at()], |listener| {
        listener.proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
        listener.sources = vec!["192.0.2.0/24".parse().unwrap()];
        listener.timeouts.header = std::time::Duration::from_secs(3);
    });
    for begin in [
        "PROXY TCP4 192.0.2.7 203.0.113.1 1234 80\r\n",
        "PROXY TCP4 192.0.2.8 203.0.113.1 1234 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = Client::new(at);
        client.send(begin);
        if !begin.ends_with("\r\n\r\n") {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        assert_eq!(client.answer().status(), 200);
        assert_eq!(client.get("/").status(), 200);
    }
    let told: Vec<_> =
        member.heard().iter().map(|it| it.field("x-forwarded-for").unwrap().to_owned()).collect();
    assert_eq!(told, ["192.0.2.7", "192.0.2.7", "192.0.2.8", "192.0.2.8"]);
    for wrong in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PROXY TCP4 198.51.100.1 203.0.113.1 1234 80\r\n", ""]
    {
        let mut client = Client::new(at);
        client.send(wrong);
        assert!(client.is_over(), "{wrong:?}");
    }
    assert_eq!(member.heard().len(), 4);
    assert_eq!(stage.listener(at).refused(seaway_proxy::RefusalReason::Header), 2);
}

#[test]
fn a_member_that_wants_to_know_is_told_who_the_client_is() {
    let heard: Arc<std::sync::Mutex<Vec<String>>> = Default::default();
    let kept = heard.clone();
    let backend = crate::stage::Backend::new(crate::stage::HERE, move |stream| {
        let mut first = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::with_capacity(1, stream.try_clone().unwrap()),
            &mut first,
        )
        .unwrap();
        kept.lock().unwrap().push(first);
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while reader.message(false).is_some() {
            std::io::Write::write_all(&mut &stream, ok("x").as_bytes()).unwrap();
        }
    });
    let (stage, at) = front(&[]);
    stage.put(seaway_model::Pool {
        proxy: Some(seaway_model::load_balancer::ProxyVersion::V1),
        ..crate::stage::pool(&[backend.at])
    });
    let mut client = Client::new(at);
    let port = client.stream().local_addr().unwrap().port();
    for _ in 0..2 {
        assert_eq!(client.get("/").status(), 200);
    }
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}\r\n", at.port());
    assert_eq!(
        *heard.lock().unwrap(),
        [expected.clone(), expected],
        "a connection is never another client's"
    );
}
