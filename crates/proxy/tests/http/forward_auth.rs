//! Requests that another Service has to agree to, by whatever protocol they are asked.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use http::Request;
use seaway_model::{
    Kind, ObjectRef, Pool, PoolId,
    load_balancer::{Action, Cors, Filter, ForwardAuth, Match, Origin, PathMatch, Redirect, Rule},
};

use crate::{peer::*, scene::*, stage::*};

fn auth() -> ForwardAuth {
    ForwardAuth {
        of: ObjectRef::new(Kind::Service, "default", "shop"),
        pool: PoolId("auth".into()),
        service: "auth".into(),
        port: 80,
        host: "auth.default.svc".into(),
        path: "/check?a=b".into(),
        headers: vec!["X-User".into(), "X-Groups".into()],
    }
}

/// What a rule may do, each below its own path; and one that is open.
fn rules() -> Vec<Rule> {
    let rule = |path: &str, action: Option<Action>| {
        let mut rule = everything();
        rule.matches = vec![Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }];
        rule.asks = vec![Arc::new(auth())];
        rule.filters = vec![
            Filter::RewritePath("/rewritten".into()),
            Filter::Cors(Cors {
                origins: vec![Origin::Any],
                credentials: false,
                methods: Vec::new(),
                headers: Vec::new(),
                expose: Vec::new(),
                max_age: Duration::from_secs(5),
            }),
        ];
        rule.action = action.unwrap_or(rule.action);
        rule
    };
    let redirect = Redirect { scheme: Some("https".into()), code: 308, ..Redirect::default() };
    vec![
        rule("/to-members", None),
        rule("/redirect", Some(Action::Redirect(redirect))),
        rule("/answer", Some(Action::Respond { code: 200, body: "secret".into() })),
        everything(),
    ]
}

fn front_asking(member: SocketAddr, auth: &[SocketAddr]) -> (Stage, SocketAddr) {
    let (stage, at) = front_with(&[member], |listener| {
        listener.rules = rules().into_iter().map(Into::into).collect();
    });
    if !auth.is_empty() {
        stage.put(Pool { id: PoolId("auth".into()), ..pool(auth) });
    }
    (stage, at)
}

/// Agrees to who has the key, and says who that is.
fn door_keeper() -> Member {
    Member::new(|_, asked| {
        Some(match asked.field("x-key") {
            Some("right") => "HTTP/1.1 202 Accepted\r\nX-User: alice\r\nx-groups: a, b\r\nX-Other: no\r\nSet-Cookie: a=b\r\n\
                              Content-Length: 2\r\n\r\nok"
                .to_owned(),
            Some("login") => "HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\nSet-Cookie: s=1\r\nContent-Length: 0\r\n\r\n".to_owned(),
            Some("early") => "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
            Some("wrong") => "HTTP/9 nonsense\r\n\r\n".to_owned(),
            Some("silent") => return None,
            _ => "HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\nContent-Type: text/x\r\n\r\nno key".to_owned(),
        })
    })
}

const PATHS: [&str; 3] = ["/to-members", "/redirect", "/answer"];

#[test]
fn nothing_of_a_rule_is_done_for_whom_the_other_service_refuses() {
    let (member, keeper) = (Member::saying("x"), door_keeper());
    let (stage, at) = front_asking(member.at(), &[keeper.at()]);
    let mut client = Client::new(at);
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    for path in PATHS {
        for more in ["", upgrade, "Origin: https://b.example\r\n", "Content-Type: application/grpc\r\n"] {
            let answer = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n"));
            assert_eq!((answer.status(), &*answer.body), (403, &b"no key"[..]), "{path} {more}");
            assert_eq!((answer.field("content-type"), answer.field("location")), (Some("text/x"), None));
        }
        let preflight = "Origin: https://b.example\r\nAccess-Control-Request-Method: PUT\r\n";
        let answer = client.ask(format!("OPTIONS {path} HTTP/1.1\r\nHost: a\r\n{preflight}\r\n"));
        assert_eq!(answer.status(), 403, "{path}");
        let login = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Key: login\r\n\r\n"));
        assert_eq!((login.status(), login.field("location")), (302, Some("https://login.example/")));
        assert_eq!(login.field("set-cookie"), Some("s=1"));
    }
    client.send("HEAD /to-members HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_to_head().status(), 403);
    assert_eq!(client.get("/").status(), 200, "another rule asks nobody, and the connection goes on");
    assert_eq!((stage.listener(at).traffic.total, member.heard().len()), (1, 1));
    // A body is not sent to who only says whether it may come.
    let mut sender = Client::new(at);
    let answer = sender.ask("POST /to-members HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!((answer.status(), answer.field("connection")), (403, Some("close")));
    let heard = keeper.heard();
    assert!(heard.iter().all(|it| it.body.is_empty() && it.field("content-length").is_none()));
}

#[test]
fn members_are_told_what_the_other_service_says_and_nothing_that_clients_say_of_it() {
    let (member, keeper) = (Member::saying("x"), door_keeper());
    let (_stage, at) = front_asking(member.at(), &[keeper.at()]);
    let mut client = Client::new(at);
    let forged = "X-User: root\r\nx_user: root\r\nX-GROUPS: root\r\nX_Groups: root\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n\
                  X-Forwarded-For: 192.0.2.1\r\nCookie: c=1\r\nAuthorization: Bearer t\r\nX-Other: mine\r\n";
    let body = "Content-Length: 5\r\nExpect: 100-continue\r\n";
    client.send(format!(
        "POST /to-members/x?y=z HTTP/1.1\r\nHost: a.example\r\nX-Key: right\r\n{forged}{body}\r\nhello"
    ));
    let mut answer = client.answer();
    while answer.status() == 100 {
        answer = client.answer();
    }
    assert_eq!(answer.status(), 200);
    let asked = &keeper.heard()[0];
    assert_eq!(asked.first(), "GET /check?a=b HTTP/1.1");
    for (name, value) in [
        ("host", "auth.default.svc"),
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/to-members/x?y=z"),
        ("x-forwarded-host", "a.example"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-for", "127.0.0.1"),
        ("cookie", "c=1"),
        ("authorization", "Bearer t"),
    ] {
        assert_eq!(asked.field(name), Some(value), "{name}: {}", asked.head);
        let count =
            asked.head.lines().filter(|it| it.to_lowercase().starts_with(&format!("{name}: "))).count();
        assert_eq!(count, 1, "{name}: {}", asked.head);
    }
    for name in ["content-length", "expect", "transfer-encoding"] {
        assert_eq!(asked.field(name), None, "{name}: {}", asked.head);
    }
    let served = &member.heard()[0];
    assert_eq!((served.first(), &*served.body), ("POST /rewritten?y=z HTTP/1.1", &b"hello"[..]));
    let head = served.head.to_lowercase();
    assert!(!head.contains("root"), "{head}");
    assert!(head.contains("\r\nx-user: alice\r\n") || head.contains("\nx-user: alice"), "{head}");
    assert!(head.contains("x-groups: a, b") && head.contains("x-other: mine"), "{head}");
    assert!(!head.contains("set-cookie"), "only what is named is told: {head}");
    // Who refuses to say so has said nothing that goes on.
    assert_eq!(answer.field("x-user"), None);
}

#[test]
fn without_an_answer_nothing_is_served() {
    let (member, keeper) = (Member::saying("x"), door_keeper());
    let (_stage, at) = front_asking(member.at(), &[keeper.at()]);
    for key in ["early", "wrong", "silent"] {
        let answer =
            Client::new(at).ask(format!("GET /to-members HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n"));
        assert_eq!(answer.status(), 503, "{key}");
    }
    // It is not there, or there are none.
    for auth in [vec![gone()], vec![]] {
        let (_stage, at) = front_asking(member.at(), &auth);
        for path in PATHS {
            let answer =
                Client::new(at).ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Key: right\r\n\r\n"));
            assert_eq!(answer.status(), 503, "{path} {auth:?}");
        }
        assert_eq!(Client::new(at).get("/").status(), 200);
    }
    // One that is not there, and one that is.
    let (_stage, at) = front_asking(member.at(), &[gone(), keeper.at()]);
    for _ in 0..4 {
        let answer = Client::new(at).ask("GET /to-members HTTP/1.1\r\nHost: a\r\nX-Key: right\r\n\r\n");
        assert_eq!(answer.status(), 200);
    }
}

#[test]
fn one_that_never_answers_is_waited_for_as_long_as_members_and_five_seconds_at_most() {
    let member = Member::saying("x");
    // The kernel accepts, and nobody reads.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for (of_members, least, most) in [(200, 200, 5_000), (60_000, 5_000, 15_000)] {
        let (stage, at) = front_with(&[member.at()], |listener| {
            listener.rules = rules().into_iter().map(Into::into).collect();
            listener.timeouts.answer = Duration::from_millis(of_members);
        });
        stage.put(Pool { id: PoolId("auth".into()), ..pool(&[silent.local_addr().unwrap()]) });
        let mut client = Client::new(at);
        let began = Instant::now();
        let answer = client.ask("GET /to-members HTTP/1.1\r\nHost: a\r\nX-Key: right\r\n\r\n");
        // Deadlines are looked at now and then, by a clock that is read as often.
        let took = began.elapsed().as_millis() + 100;
        assert_eq!(answer.status(), 503, "{of_members}");
        assert!((least..most).contains(&took), "{of_members}: {took} ms");
    }
    assert!(member.heard().is_empty());
}

/// Where nobody listens.
fn gone() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[test]
fn each_stream_of_http2_is_asked_about() {
    let (member, keeper) = (Member::saying("x"), door_keeper());
    let (stage, at) = front_asking(member.at(), &[keeper.at()]);
    let mut peer = Peer::new(at);
    for (key, kind, status) in [
        ("none", "text/plain", 403),
        ("right", "text/plain", 200),
        ("none", "application/grpc", 403),
        ("login", "text/plain", 302),
        ("silent", "text/plain", 503),
        ("right", "application/grpc", 200),
    ] {
        let request = Request::get("http://a.example/to-members").header("content-type", kind);
        let request = request.header("x-key", key).header("x-user", "root");
        let (head, ..) = peer.ask(request.body(()).unwrap(), None).unwrap();
        assert_eq!(head.status(), status, "{key} {kind}");
    }
    assert_eq!((stage.listener(at).traffic.total, member.heard().len()), (1, 2));
    assert!(member.heard().iter().all(|it| it.field("x-user") == Some("alice")));
}

/// Some members read trailers as headers, and some of those that agree go by what a client says of the request.
#[test]
fn what_only_others_may_say_is_not_said_by_clients_after_a_body_or_to_those_that_agree() {
    let (member, auth) = (Member::saying("x"), door_keeper());
    let (_stage, at) = front_asking(member.at(), &[auth.at()]);
    let asked = "POST /to-members HTTP/1.1\r\nHost: a\r\nX-Key: right\r\nX-User: mallory\r\nX-Original-URL: https://a/public\r\n\
                 X_Original_Uri: /public\r\nX-Original-Method: OPTIONS\r\nTransfer-Encoding: chunked\r\nTrailer: X-User\r\n\r\n\
                 1\r\nb\r\n0\r\nX-User: admin\r\n\r\n";
    assert_eq!(Client::new(at).ask(asked).status(), 200);
    let told = auth.heard()[0].clone();
    for name in ["x-user", "x-original-url", "x_original_uri", "x-original-method"] {
        assert_eq!(told.field(name), None, "{name}");
    }
    let heard = member.heard()[0].clone();
    assert_eq!(heard.body, b"b", "its trailers were left out");
    assert_eq!(heard.field("x-user"), Some("alice"));
}
