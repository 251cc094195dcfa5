//! What rules and the listener's options do besides leading somewhere.

use std::time::{Duration, Instant};

use seaway_model::load_balancer::{Cors, Filter, HostPattern, Origin, PathMatch};
use seaway_model::{Pool, PoolId, load_balancer::Match};

use crate::{scene::*, stage::*};

#[test]
fn pages_of_other_origins_ask_first_and_are_told() {
    let member = Member::new(|_, _| {
        Some(
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nAccess-Control-Allow-Origin: http://else\r\n\r\nx"
                .to_owned(),
        )
    });
    let (_stage, at) = front_with(&[member.at()], |listener| {
        let mut rule = everything();
        rule.filters = vec![Filter::Cors(Cors {
            origins: vec![Origin::Like {
                scheme: "https".into(),
                host: Some(HostPattern::Under("example".into())),
                port: None,
            }],
            credentials: true,
            methods: vec!["GET".into(), "PUT".into()],
            headers: vec!["*".into()],
            expose: vec!["X-Told".into()],
            max_age: Duration::from_secs(5),
        })];
        listener.rules = vec![rule];
    });
    let mut client = Client::new(at);
    let mut preflight = |origin: &str| {
        client.ask(format!(
            "OPTIONS /x HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-a, x-b\r\n\r\n"
        ))
    };
    let told = preflight("https://a.example");
    assert_eq!(told.status(), 204);
    for (name, value) in [
        ("access-control-allow-origin", "https://a.example"),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "x-a, x-b"),
        ("access-control-max-age", "5"),
        ("vary", "Origin"),
    ] {
        assert_eq!(told.field(name), Some(value), "{name}");
    }
    assert_eq!(preflight("https://evil.test").field("access-control-allow-origin"), None);
    assert!(member.heard().is_empty(), "members are not asked");
    let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n\r\n");
    assert_eq!(
        answer.field("access-control-allow-origin"),
        Some("https://a.example"),
        "the rule's word counts"
    );
    assert_eq!(answer.field("access-control-expose-headers"), Some("X-Told"));
    let plain = client.get("/");
    assert_eq!(
        plain.field("access-control-allow-origin"),
        Some("http://else"),
        "no other origin, no word of ours"
    );
}

#[test]
fn a_mirror_hears_what_the_member_hears_and_holds_nobody_up() {
    let (member, mirror) = (Member::saying("real"), Member::saying("mirrored"));
    let (stage, at) = front(&[member.at()]);
    let other = PoolId("other".into());
    stage.put(Pool { id: other.clone(), ..pool(&[mirror.at()]) });
    for (per_mille, expected) in [(1000, 4), (0, 4)] {
        let (_, listener) = stage.open(HERE, |listener| {
            let mut rule = everything();
            rule.filters = vec![Filter::Mirror { to: other.clone(), per_mille }];
            listener.rules = vec![rule];
            listener.protocol = seaway_model::load_balancer::Protocol::Http;
        });
        let mut client = Client::new((HERE, listener.port).into());
        for _ in 0..4 {
            let answer = client.ask("POST /m HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
            assert_eq!(answer.body, b"real");
        }
        eventually("all were mirrored", || mirror.heard().len() == expected);
    }
    let heard = &mirror.heard()[0];
    assert_eq!((heard.first(), &heard.body[..]), ("POST /m HTTP/1.1", &b"hi"[..]));
    drop(mirror);
    assert_eq!(Client::new(at).get("/").body, b"real");
}

#[test]
fn a_rule_has_a_time_of_its_own() {
    let member = Member::new(|_, heard| {
        std::thread::sleep(Duration::from_millis(if heard.first().contains("/slow") { 2_000 } else { 0 }));
        Some(ok("x"))
    });
    let (_stage, at) = front_with(&[member.at()], |listener| {
        let (mut whole, mut attempt) = (everything(), everything());
        let prefix =
            |text: &str| vec![Match { path: Some(PathMatch::Prefix(text.into())), ..Match::default() }];
        (whole.matches, whole.timeout) = (prefix("/slow/whole"), Some(Duration::from_millis(100)));
        (attempt.matches, attempt.attempt_timeout) =
            (prefix("/slow/attempt"), Some(Duration::from_millis(100)));
        listener.rules = vec![whole, attempt, everything()];
    });
    for path in ["/slow/whole", "/slow/attempt"] {
        let begun = Instant::now();
        assert_eq!(Client::new(at).get(path).status(), 504, "{path}");
        assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    }
    assert_eq!(Client::new(at).get("/").status(), 200);
}

#[test]
fn a_rule_says_how_often_others_are_tried() {
    let member = Member::saying("x");
    for (retries, status) in [(Some(0), 503), (None, 200)] {
        let (_stage, at) = front_with(&[nobody(), nobody(), member.at()], |listener| {
            let mut rule = everything();
            rule.retries = retries;
            listener.rules = vec![rule];
        });
        let statuses: Vec<u16> = (0..6).map(|_| Client::new(at).get("/").status()).collect();
        assert!(statuses.contains(&status), "{retries:?}: {statuses:?}");
        assert!(retries.is_some() || !statuses.contains(&503), "{statuses:?}");
    }
}

#[test]
fn the_operator_has_a_word_for_each_status() {
    let (_stage, at) = front_with(&[], |listener| {
        listener.http.pages = [(503, "<h1>back soon</h1>".into()), (400, "what?".into())].into();
    });
    let answer = Client::new(at).get("/");
    assert_eq!((answer.status(), &answer.body[..]), (503, &b"<h1>back soon</h1>"[..]));
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(Client::new(at).ask("nonsense\r\n\r\n").body, b"what?");
}
