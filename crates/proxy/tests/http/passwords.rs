//! Names and passwords that rules ask for, by whatever protocol they are asked.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use http::Request;
use seaway_model::{
    Kind, ObjectRef,
    load_balancer::{
        Action, BasicAuth, Cors, Filter, Match, Origin, PasswordHash, PathMatch, Redirect, Rule, Users,
    },
};
use seaway_proxy::RefusalReason;

use crate::{peer::*, scene::*, stage::*};

/// `alice:U*U*U` and `bob:U*U*U`.
const ALICE: &str = "Authorization: Basic YWxpY2U6VSpVKlU=\r\n";
const BOB: &str = "Authorization: Basic Ym9iOlUqVSpV\r\n";
/// `alice:U*U*V`, `carol:U*U*U`, and what is no name with a password.
const WRONG: [&str; 6] = [
    "Authorization: Basic YWxpY2U6VSpVKlY=\r\n",
    "Authorization: Basic Y2Fyb2w6VSpVKlU=\r\n",
    "Authorization: Basic YWxpY2U=\r\n",
    "Authorization: Basic !\r\n",
    "Authorization: Bearer YWxpY2U6VSpVKlU=\r\n",
    "",
];

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let all: Vec<u8> = (0..hex.len()).step_by(2).map(digit).collect();
    all.try_into().unwrap()
}

/// bcrypt of `U*U*U`.
fn hash() -> PasswordHash {
    let hash = bytes("38b23a511cc8aee2b846ba245da2e2f450230bd11f4b44");
    PasswordHash::Bcrypt { cost: 4, salt: bytes("71d79f8218a39259a7a29aabb2dbafc3"), hash }
}

fn auth(users: &[(&str, PasswordHash)]) -> BasicAuth {
    let users: BTreeMap<_, _> =
        users.iter().map(|(name, hash)| (name.as_bytes().into(), hash.clone())).collect();
    BasicAuth {
        of: ObjectRef::new(Kind::Service, "default", "shop"),
        realm: "Shop staff".into(),
        users: Some(Arc::new(Users(users))).filter(|it| !it.0.is_empty()),
        forwards: false,
    }
}

/// What a rule may do, each below its own path; and one that is open.
fn rules(auth: &[BasicAuth]) -> Vec<Rule> {
    let rule = |path: &str, action: Option<Action>| {
        let mut rule = everything();
        rule.matches = vec![Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }];
        rule.auth = auth.iter().cloned().map(Arc::new).collect();
        rule.filters = vec![Filter::Cors(Cors {
            origins: vec![Origin::Any],
            credentials: false,
            methods: Vec::new(),
            headers: Vec::new(),
            expose: Vec::new(),
            max_age: Duration::from_secs(5),
        })];
        rule.action = action.unwrap_or(rule.action);
        rule
    };
    let redirect = Redirect { scheme: Some("https".into()), code: 308, ..Redirect::default() };
    let mut mirrored = rule("/mirrored", None);
    mirrored.filters.push(Filter::Mirror { to: seaway_testkit::balancing::pool_id(), per_mille: 1000 });
    vec![
        rule("/to-members", None),
        rule("/redirect", Some(Action::Redirect(redirect))),
        rule("/answer", Some(Action::Respond { code: 200, body: "secret".into() })),
        mirrored,
        everything(),
    ]
}

const PATHS: [(&str, u16); 4] =
    [("/to-members", 200), ("/redirect", 308), ("/answer", 200), ("/mirrored", 200)];

fn front_asking(member: SocketAddr, auth: &[BasicAuth]) -> (Stage, SocketAddr) {
    front_with(&[member], |listener| {
        listener.http.trusted = vec!["127.0.0.0/8".parse().unwrap()];
        listener.rules = rules(auth).into_iter().map(Into::into).collect();
    })
}

fn asking(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n")
}

#[test]
fn nothing_of_a_rule_is_done_for_who_does_not_know_a_password() {
    let member = Member::saying("x");
    let (stage, at) = front_asking(member.at(), &[auth(&[("alice", hash()), ("bob", hash())])]);
    let mut client = Client::new(at);
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let twice = format!("{ALICE}{ALICE}");
    for wrong in WRONG.into_iter().chain([&*twice]) {
        for (path, _) in PATHS {
            for more in ["", upgrade, "Origin: https://b.example\r\n", "Content-Type: application/grpc\r\n"] {
                let answer = client.ask(asking(path, &format!("{wrong}{more}")));
                assert_eq!(answer.status(), 401, "{path} {wrong} {more}");
                let challenge = "Basic realm=\"Shop staff\", charset=\"UTF-8\"";
                assert_eq!(answer.field("www-authenticate"), Some(challenge));
                assert_eq!((answer.field("location"), &*answer.body), (None, &b"401 Unauthorized\n"[..]));
            }
            // Browsers ask before they send a password: who is to serve other origins says so without one.
            let preflight = format!(
                "OPTIONS {path} HTTP/1.1\r\nHost: a\r\nOrigin: https://b.example\r\nAccess-Control-Request-Method: PUT\r\n{wrong}\r\n"
            );
            assert_eq!(client.ask(preflight).status(), 401, "{path}");
        }
    }
    assert_eq!(stage.listener(at).traffic.total, 1, "the connection goes on, and browsers ask again on it");
    assert!(member.heard().is_empty(), "no member is asked");
    for right in [ALICE, BOB] {
        for (path, status) in PATHS {
            assert_eq!(client.ask(asking(path, right)).status(), status, "{path}");
        }
    }
    assert_eq!(client.ask(asking("/", "")).status(), 200, "another rule asks for none");
    // A body that is still to come is not waited for.
    let mut sender = Client::new(at);
    let refused = sender.ask("POST /to-members HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    assert_eq!((refused.status(), refused.field("connection")), (401, Some("close")));
}

#[test]
fn members_get_the_password_only_if_that_is_asked_for() {
    for forwards in [false, true] {
        let member = Member::saying("x");
        let auth = BasicAuth { forwards, ..auth(&[("alice", hash())]) };
        let (_stage, at) = front_asking(member.at(), &[auth]);
        let mut client = Client::new(at);
        for path in ["/to-members", "/mirrored", "/"] {
            assert_eq!(client.ask(asking(path, ALICE)).status(), 200);
        }
        eventually("all have come", || member.heard().len() == 4);
        for heard in member.heard() {
            let is_open = heard.first().starts_with("GET / ");
            let got = heard.field("authorization").is_some();
            assert_eq!(got, forwards || is_open, "{}", heard.first());
        }
    }
}

#[test]
fn each_stream_of_http2_needs_a_password() {
    let member = Member::saying("x");
    let (stage, at) = front_asking(member.at(), &[auth(&[("alice", hash())])]);
    let mut peer = Peer::new(at);
    let (right, wrong) = ("Basic YWxpY2U6VSpVKlU=", "Basic YWxpY2U6VSpVKlY=");
    for (value, kind, status) in [
        (None, "text/plain", 401),
        (Some(right), "text/plain", 200),
        (Some(wrong), "application/grpc", 401),
        (Some(right), "application/grpc", 200),
        (None, "text/plain", 401),
    ] {
        let mut request = Request::get("http://a.example/to-members").header("content-type", kind);
        if let Some(value) = value {
            request = request.header("authorization", value);
        }
        let (head, ..) = peer.ask(request.body(()).unwrap(), None).unwrap();
        assert_eq!(head.status(), status, "{value:?} {kind}");
        assert_eq!(head.headers().contains_key("www-authenticate"), status == 401);
    }
    assert_eq!((stage.listener(at).traffic.total, member.heard().len()), (1, 2));
}

#[test]
fn without_users_nobody_is_served_and_all_that_ask_have_to_be_content() {
    let (shop, mail) = (auth(&[("alice", hash()), ("bob", hash())]), auth(&[("bob", hash())]));
    let none = auth(&[]);
    for (all, alice, bob) in [
        (vec![none.clone()], 503, 503),
        (vec![shop.clone(), none], 503, 503),
        (vec![shop.clone(), mail], 401, 200),
        (vec![shop], 200, 200),
    ] {
        let member = Member::saying("x");
        let (_stage, at) = front_asking(member.at(), &all);
        for (path, _) in PATHS.into_iter().take(1) {
            let ask = |more| Client::new(at).ask(asking(path, more)).status();
            assert_eq!((ask(ALICE), ask(BOB)), (alice, bob), "{all:?}");
        }
        let served = [alice, bob].into_iter().filter(|it| *it == 200).count();
        assert_eq!(member.heard().len(), served);
    }
}

#[test]
fn attempts_hold_up_nobody_else_and_those_of_one_client_are_few() {
    // Half a second each, or more.
    let slow = PasswordHash::Sha512Crypt { rounds: 400_000, salt: b"x".as_slice().into(), hash: [0; 64] };
    let member = Member::saying("x");
    let (stage, at) = front_asking(member.at(), &[auth(&[("alice", slow)])]);
    // `0:` to `9:`.
    let attempt = |number: u8| {
        let texts = ["MDo=", "MTo=", "Mjo=", "Mzo=", "NDo=", "NTo=", "Njo=", "Nzo=", "ODo=", "OTo="];
        asking("/to-members", &format!("Authorization: Basic {}\r\n", texts[usize::from(number)]))
    };
    let mut clients: Vec<Client> = (0..10).map(|_| Client::new(at)).collect();
    for (number, client) in (0..).zip(&mut clients) {
        client.send(attempt(number));
    }
    // One is being hashed and four wait; one more may have been when the first was done.
    eventually("the others are turned away", || stage.listener(at).refused(RefusalReason::Resources) >= 4);
    for _ in 0..20 {
        assert_eq!(Client::new(at).ask(asking("/", "")).status(), 200, "others are served meanwhile");
    }
    let answers: Vec<_> = clients.iter_mut().map(Client::answer).collect();
    let (turned_away, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|it| it.status() == 503);
    assert!(turned_away.len() >= 4 && turned_away.iter().all(|it| it.field("retry-after") == Some("1")));
    assert!(refused.iter().all(|it| it.status() == 401), "{refused:?}");
    assert!(member.heard().iter().all(|it| it.first().starts_with("GET / ")));
}
