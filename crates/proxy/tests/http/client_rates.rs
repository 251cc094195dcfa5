//! How often one client may ask: on all listeners, workers, connections and streams together.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    time::Duration,
};

use http::Request;
use seaway_model::{
    Kind, Listener, ObjectRef,
    load_balancer::{
        Action, ClientKey, Cors, Filter, Match, Origin, PathMatch, Protocol, RateLimit, Redirect,
        RequestRate, Rule, TlsByName,
    },
};
use seaway_proxy::RefusalReason;

use crate::{peer::*, scene::*, stage::*, tls::*};

/// So many at once, and then one a second: few are made up for while a test runs.
fn limit(burst: u32, key: ClientKey) -> RateLimit {
    let of = ObjectRef::new(Kind::Service, "default", "shop");
    RateLimit { of, rate: RequestRate { per_second: 1, burst, key } }
}

fn limited(burst: u32, key: ClientKey) -> Rule {
    let mut rule = everything();
    rule.rates = vec![limit(burst, key)];
    rule
}

fn trusting(listener: &mut Listener) {
    listener.http.trusted = vec!["127.0.0.0/8".parse().unwrap()];
}

fn front_limited(member: SocketAddr, rules: &[Rule]) -> (Stage, SocketAddr) {
    front_with(&[member], |listener| {
        trusting(listener);
        listener.rules = rules.iter().cloned().map(Into::into).collect();
    })
}

fn asking_as(client: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n\r\n")
}

#[test]
fn more_than_a_client_may_ask_gets_429_and_others_are_served() {
    let member = Member::saying("x");
    let (stage, at) = front_limited(member.at(), &[limited(30, ClientKey::Address)]);
    let mut client = Client::new(at);
    // However slow the machine is: those that were made up for meanwhile are admitted, too.
    let begun = std::time::Instant::now();
    let answers: Vec<Message> = (0..90).map(|_| client.ask(asking_as("192.0.2.7", "/"))).collect();
    let made_up = begun.elapsed().as_secs() as usize + 1;
    let admitted = answers.iter().filter(|it| it.status() == 200).count();
    assert!((30..=30 + made_up).contains(&admitted), "{admitted}");
    let refused: Vec<&Message> = answers.iter().filter(|it| it.status() == 429).collect();
    assert_eq!(refused.len(), 90 - admitted);
    for answer in &refused {
        assert_eq!((answer.field("retry-after"), answer.field("connection")), (Some("1"), None));
        assert_eq!(answer.body, b"429 Too Many Requests\n");
    }
    assert_eq!(stage.listener(at).refused(RefusalReason::ClientRate), refused.len() as u64);
    assert_eq!(stage.listener(at).traffic.total, 1, "the connection went on");
    assert_eq!(member.heard().len(), admitted, "members get nothing of the others");
    assert_eq!(client.ask(asking_as("192.0.2.8", "/")).status(), 200);
    assert_eq!(client.ask(asking_as("2001:db8::1", "/")).status(), 200);
}

#[test]
fn who_waits_as_it_was_told_is_served() {
    let member = Member::saying("x");
    let (_stage, at) = front_limited(member.at(), &[limited(1, ClientKey::Address)]);
    let mut client = Client::new(at);
    let refused = loop {
        let answer = client.ask(asking_as("192.0.2.7", "/"));
        if answer.status() == 429 {
            break answer;
        }
    };
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    let told = std::time::Instant::now();
    eventually("it is served again", || client.ask(asking_as("192.0.2.7", "/")).status() == 200);
    assert!(told.elapsed() <= Duration::from_secs(wait + 5), "{:?}", told.elapsed());
}

#[test]
fn whatever_a_rule_does_counts_and_all_rules_of_a_service_count_together() {
    let below = |path: &str, action: Option<Action>| {
        let mut rule = limited(4, ClientKey::Address);
        rule.matches = vec![Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }];
        rule.action = action.unwrap_or(rule.action);
        rule.filters = vec![Filter::Cors(Cors {
            origins: vec![Origin::Any],
            credentials: false,
            methods: Vec::new(),
            headers: Vec::new(),
            expose: Vec::new(),
            max_age: Duration::from_secs(5),
        })];
        rule
    };
    let redirect = Redirect { scheme: Some("https".into()), code: 308, ..Redirect::default() };
    let rules = [
        below("/to", None),
        below("/redirect", Some(Action::Redirect(redirect))),
        below("/answer", Some(Action::Respond { code: 200, body: "x".into() })),
        everything(),
    ];
    let member = Member::saying("x");
    let (_stage, at) = front_limited(member.at(), &rules);
    // Those of one round are as many as may come at once; whatever comes first of the next is refused.
    let preflight = "OPTIONS /to HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: CLIENT\r\nOrigin: https://b.example\r\n\
                     Access-Control-Request-Method: PUT\r\n\r\n";
    let upgrade = "GET /to HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: CLIENT\r\nConnection: upgrade\r\n\
                   Upgrade: websocket\r\n\r\n";
    let plain = |path: &str| asking_as("CLIENT", path);
    let round = [plain("/to"), plain("/redirect"), plain("/answer"), preflight.to_owned()];
    for (number, last) in [&round[..], &[upgrade.to_owned()]].concat().iter().enumerate() {
        let client = format!("192.0.2.{number}");
        let ask = |request: &str| Client::new(at).ask(request.replace("CLIENT", &client)).status();
        for (request, status) in round.iter().zip([200, 308, 200, 204]) {
            assert_eq!(ask(request), status, "{request}");
        }
        eventually("it is refused", || ask(last) == 429);
        assert_eq!(ask(&plain("/else")), 200, "a rule without a limit");
    }
}

#[test]
fn streams_and_connections_of_all_workers_and_listeners_count_together() {
    let (stage, member) = (Stage::with_workers(4), Member::saying("x"));
    stage.put(pool(&[member.at()]));
    let authority = Authority::new();
    give(&stage, "a", &authority.certificate("a.example"));
    let open = |tls: bool| {
        stage.open(HERE, |listener| {
            listener.protocol = Protocol::Http;
            let by_name = || TlsByName { default: vec![object("a")], ..TlsByName::default() }.into();
            listener.tls = tls.then(by_name);
            listener.rules = vec![limited(40, ClientKey::Address).into()];
        })
    };
    let (plain, secured) = (open(false).0, open(true).0);
    let begun = std::time::Instant::now();
    let mut statuses: Vec<u16> = Vec::new();
    for _ in 0..10 {
        let mut peer = Peer::new(plain);
        statuses.extend((0..4).map(|_| peer.get("/x").0));
        statuses.extend((0..2).map(|_| Client::new(plain).get("/x").status()));
        let mut client = secure(secured, "a.example", config(&authority)).unwrap();
        client.write_all(b"GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        statuses.push(String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().parse().unwrap());
    }
    let made_up = begun.elapsed().as_secs() as usize + 1;
    let admitted = statuses.iter().filter(|it| **it == 200).count();
    assert!((40..=40 + made_up).contains(&admitted), "{admitted} of {statuses:?}");
    assert!(statuses.iter().all(|it| [200, 429].contains(it)), "{statuses:?}");
    let refused = |at| stage.listener(at).refused(RefusalReason::ClientRate);
    assert_eq!((refused(plain) + refused(secured)) as usize, statuses.len() - admitted);
    assert_eq!(member.heard().len(), admitted);
}

#[test]
fn clients_behind_one_address_are_told_apart_by_a_header_or_a_cookie() {
    for (key, one, other) in [
        (ClientKey::Header("x-key".into()), "X-Key: one", "X-Key: two"),
        (ClientKey::Cookie("sid".into()), "Cookie: a=b; sid=one", "Cookie: sid=two; a=b"),
    ] {
        let member = Member::saying("x");
        let (_stage, at) = front_limited(member.at(), &[limited(2, key)]);
        let ask = |field: &str| {
            let request =
                format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n{field}\r\n\r\n");
            Client::new(at).ask(request).status()
        };
        for field in [one, other, "X-Other: none"] {
            assert_eq!((ask(field), ask(field)), (200, 200), "{field}");
            eventually("it is refused", || ask(field) == 429);
        }
    }
}

#[test]
fn where_a_client_is_not_let_in_it_is_not_counted() {
    let mut rule = limited(1, ClientKey::Header("x-key".into()));
    rule.denied = vec!["192.0.2.7/32".parse().unwrap()];
    let member = Member::saying("x");
    let (_stage, at) = front_limited(member.at(), &[rule]);
    let ask = |client: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nX-Key: one\r\n\r\n");
        Client::new(at).ask(request).status()
    };
    (0..5).for_each(|_| assert_eq!(ask("192.0.2.7"), 403));
    assert_eq!(ask("192.0.2.8"), 200, "nobody else uses up what a client may ask");
}

#[test]
fn a_stream_beyond_the_limit_gets_429_and_the_connection_goes_on() {
    let member = Member::saying("x");
    let (_stage, at) = front_limited(member.at(), &[limited(1, ClientKey::Header("x-key".into()))]);
    let mut peer = Peer::new(at);
    let mut ask = |key: &str| {
        let request = Request::post("http://a.example/").header("x-key", key).body(()).unwrap();
        let (head, ..) = peer.ask(request, Some(b"body")).unwrap();
        (head.status().as_u16(), head.headers().get("retry-after").map(|it| it.to_str().unwrap().to_owned()))
    };
    assert_eq!(ask("one"), (200, None));
    eventually("it is refused", || ask("one") == (429, Some("1".to_owned())));
    assert_eq!(ask("two"), (200, None));
}
