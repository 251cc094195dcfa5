//! What rules and the listener's options do besides leading somewhere.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_model::{
    Pool, PoolId,
    load_balancer::{Action, Cors, Filter, HostPattern, Match, Origin, PathMatch, Rule, TextMatch},
};

use crate::{peer::Peer, scene::*, stage::*};

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
        listener.rules = vec![rule.into()];
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
            listener.rules = vec![rule.into()];
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
        if heard.first().contains("/slow") {
            std::thread::park_timeout(PATIENCE);
        }
        Some(ok("x"))
    });
    let (_stage, at) = front_with(&[member.at()], |listener| {
        let (mut whole, mut attempt) = (everything(), everything());
        let prefix =
            |text: &str| vec![Match { path: Some(PathMatch::Prefix(text.into())), ..Match::default() }];
        (whole.matches, whole.timeout) = (prefix("/slow/whole"), Some(Duration::from_millis(100)));
        (attempt.matches, attempt.attempt_timeout) =
            (prefix("/slow/attempt"), Some(Duration::from_millis(100)));
        listener.rules = [whole, attempt, everything()].map(Arc::new).into();
    });
    for path in ["/slow/whole", "/slow/attempt"] {
        let begun = Instant::now();
        assert_eq!(Client::new(at).get(path).status(), 504, "{path}");
        // Without it, it would be 50 s.
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
    assert_eq!(Client::new(at).get("/").status(), 200);
}

#[test]
fn a_rule_answers_403_to_whom_it_does_not_let_in_and_only_trusted_proxies_say_who_that_is() {
    let member = Member::saying("x");
    for (trusted, told, status) in [
        (true, "", 403),
        (true, "X-Forwarded-For: 192.0.2.9\r\n", 200),
        (true, "X-Forwarded-For: 2001:db8::1\r\n", 200),
        (true, "X-Forwarded-For: 198.51.100.1\r\n", 403),
        // Whatever stands before the first address that is no proxy of ours, the client itself may have written.
        (true, "X-Forwarded-For: 192.0.2.9, 198.51.100.1\r\n", 403),
        (true, "X-Forwarded-For: 192.0.2.9, nonsense\r\n", 403),
        (false, "X-Forwarded-For: 192.0.2.9\r\n", 403),
    ] {
        let (_stage, at) = front_with(&[member.at()], |listener| {
            if trusted {
                listener.http.trusted = vec!["127.0.0.0/8".parse().expect("a network")];
            }
            let mut some = everything();
            some.matches = vec![Match { path: Some(PathMatch::Prefix("/some".into())), ..Match::default() }];
            some.sources = ["192.0.2.0/24", "2001:db8::/32"].map(|it| it.parse().expect("a network")).into();
            some.filters = vec![Filter::Cors(Cors {
                origins: vec![Origin::Any],
                credentials: false,
                methods: Vec::new(),
                headers: Vec::new(),
                expose: Vec::new(),
                max_age: Duration::from_secs(5),
            })];
            listener.rules = [some, everything()].map(Arc::new).into();
        });
        let ask = |method: &str, path: &str, more: &str| {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{told}{more}\r\n");
            Client::new(at).ask(request).status()
        };
        assert_eq!(ask("GET", "/some", ""), status, "{trusted} {told}");
        assert_eq!(ask("GET", "/else", ""), 200, "{trusted} {told}: another rule");
        let preflight = "Origin: https://b.example\r\nAccess-Control-Request-Method: PUT\r\n";
        let expected = if status == 200 { 204 } else { status };
        assert_eq!(ask("OPTIONS", "/some", preflight), expected, "{trusted} {told}: a preflight");
    }
}

#[test]
fn a_rule_says_how_often_others_are_tried() {
    let member = Member::saying("x");
    for (retries, status) in [(Some(0), 503), (None, 200)] {
        let (_stage, at) = front_with(&[nobody(), nobody(), member.at()], |listener| {
            let mut rule = everything();
            rule.retries = retries;
            listener.rules = vec![rule.into()];
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

/// A rule that says its name.
fn saying(name: &str, asked: Match) -> Rule {
    let action = Action::Respond { code: 200, body: name.into() };
    Rule { matches: vec![asked], action, ..everything() }
}

#[test]
fn requests_find_their_rule_by_all_that_they_say() {
    let path = |path: PathMatch| Match { path: Some(path), ..Match::default() };
    let prefix = |text: &str| path(PathMatch::Prefix(text.into()));
    let header = |value: TextMatch| Match { headers: vec![("X-Kind".into(), value)], ..prefix("/") };
    let query = |value: TextMatch| Match { query: vec![("q".into(), value)], ..prefix("/") };
    let hosted = |name: &str, host: HostPattern| Rule { hosts: vec![host], ..saying(name, prefix("/")) };
    let (_stage, at) = front_with(&[], |listener| {
        listener.rules = [
            saying("rest", prefix("/")),
            saying("prefix", prefix("/a")),
            saying("longer", prefix("/a/b")),
            saying("exact", path(PathMatch::Exact("/a/b/c".into()))),
            saying("regex", path(PathMatch::Regex("/r[0-9]+/.*".into()))),
            saying("method", Match { method: Some("PUT".into()), ..prefix("/") }),
            saying("header", header(TextMatch::Exact("this".into()))),
            saying("header regex", header(TextMatch::Regex("th.t".into()))),
            saying("query", query(TextMatch::Exact("this".into()))),
            saying("query regex", query(TextMatch::Regex("th.t".into()))),
            hosted("host", HostPattern::Exact("shop.example".into())),
            hosted("under", HostPattern::Under("shop.example".into())),
        ]
        .map(Arc::new)
        .into();
    });
    let (mut client, mut many) = (Client::new(at), Peer::new(at));
    for (method, url, kind, expected) in [
        ("GET", "a/", "", "rest"),
        ("GET", "a/ab", "", "rest"),
        ("GET", "a/a/x", "", "prefix"),
        ("GET", "a/a/b/x", "", "longer"),
        ("GET", "a/a/b/c", "", "exact"),
        ("GET", "a/r12/x", "", "regex"),
        ("GET", "a/r/x", "", "rest"),
        ("PUT", "a/", "", "method"),
        ("PUT", "a/a", "", "prefix"),
        ("GET", "a/", "this", "header"),
        ("GET", "a/", "that", "header regex"),
        ("GET", "a/", "thatch", "rest"),
        ("GET", "a/?q=this", "", "query"),
        ("GET", "a/?p=1&q=that", "", "query regex"),
        ("GET", "a/?q=no", "", "rest"),
        ("GET", "shop.example/a", "", "host"),
        ("GET", "x.y.Shop.example:81/a", "", "under"),
    ] {
        let told = format!("{method} {url} {kind}");
        let (host, target) = url.split_at(url.find('/').unwrap());
        let field = if kind.is_empty() { String::new() } else { format!("x-kind: {kind}\r\n") };
        let answer = client.ask(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n"));
        assert_eq!(String::from_utf8_lossy(&answer.body), expected, "{told}");
        let mut request = http::Request::builder().method(method).uri(format!("http://{url}"));
        if !kind.is_empty() {
            request = request.header("x-kind", kind);
        }
        let (_, body, _) = many.ask(request.body(()).unwrap(), None).unwrap();
        assert_eq!(String::from_utf8_lossy(&body), expected, "{told}, by HTTP/2");
    }
}

#[test]
fn pools_share_requests_by_their_weights() {
    let members = ["often", "seldom", "never"].map(Member::saying);
    let (stage, at) = front_with(&[], |listener| {
        let pools = [("often", 9), ("seldom", 1), ("never", 0)];
        let action = Action::Forward(pools.map(|(id, weight)| (PoolId(id.into()), weight)).into());
        listener.rules = vec![Rule { action, ..everything() }.into()];
    });
    for (id, member) in ["often", "seldom", "never"].into_iter().zip(&members) {
        stage.put(Pool { id: PoolId(id.into()), ..pool(&[member.at()]) });
    }
    let mut client = Client::new(at);
    for _ in 0..500 {
        client.get("/");
    }
    let [often, seldom, never] = members.map(|it| it.heard().len());
    // 50 expected; beyond these bounds chance hardly ever goes.
    assert!((15..=100).contains(&seldom) && never == 0 && often + seldom == 500, "{often} {seldom} {never}");
}
