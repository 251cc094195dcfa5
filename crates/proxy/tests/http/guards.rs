//! Who is let in by a rule: before anything of it is done, by whatever protocol it is asked.

use std::{
    io::{Read, Write},
    net::SocketAddr,
};

use http::Request;
use seaway_model::{
    Listener, PoolId,
    load_balancer::{Action, Filter, HeaderChange, Match, PathMatch, Protocol, Redirect, Rule, TlsByName},
};
use seaway_proxy::RefusalReason;

use crate::{peer::*, scene::*, stage::*, tls::*};

const PROXIES: &str = "127.0.0.0/8";

fn below(path: &str) -> Vec<Match> {
    vec![Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }]
}

/// What a rule may do beside leading to members: all of it below its own path.
fn guarded(guard: impl Fn(&mut Rule)) -> Vec<std::sync::Arc<Rule>> {
    let change = HeaderChange { set: vec![("X-Ruled".into(), "yes".into())], ..HeaderChange::default() };
    let rule = |path: &str, action: Option<Action>| {
        let mut rule = everything();
        rule.matches = below(path);
        rule.filters = vec![Filter::ResponseHeaders(change.clone())];
        rule.action = action.unwrap_or(rule.action);
        rule
    };
    let redirect = Redirect { scheme: Some("https".into()), code: 308, ..Redirect::default() };
    let mut rules = vec![
        rule("/to-members", None),
        rule("/redirect", Some(Action::Redirect(redirect))),
        rule("/answer", Some(Action::Respond { code: 200, body: "secret".into() })),
        rule("/nobody", Some(Action::Forward(vec![(PoolId("none".into()), 1)]))),
    ];
    let mut mirrored = rule("/mirrored", None);
    mirrored.filters.push(Filter::Mirror { to: seaway_testkit::balancing::pool_id(), per_mille: 1000 });
    rules.push(mirrored);
    rules.iter_mut().for_each(guard);
    rules.into_iter().chain([everything()]).map(Into::into).collect()
}

const PATHS: [&str; 5] = ["/to-members", "/redirect", "/answer", "/nobody", "/mirrored"];

fn guard_with(
    member: SocketAddr,
    guard: impl Fn(&mut Rule),
    tune: impl Fn(&mut Listener),
) -> (Stage, SocketAddr) {
    front_with(&[member], |listener| {
        listener.http.trusted = vec![PROXIES.parse().unwrap()];
        listener.rules = guarded(&guard);
        tune(listener);
    })
}

fn denying(rule: &mut Rule) {
    rule.denied = vec!["192.0.2.7/32".parse().unwrap(), "2001:db8:7::/48".parse().unwrap()];
}

#[test]
fn nothing_of_a_rule_is_done_for_who_is_denied() {
    let member = Member::saying("x");
    let (stage, at) = guard_with(member.at(), denying, |_| {});
    let mut refused = 0;
    for client in ["192.0.2.7", "2001:db8:7::9", "::ffff:192.0.2.7", "198.51.100.1, 192.0.2.7"] {
        for path in PATHS {
            for more in ["", "Connection: upgrade\r\nUpgrade: websocket\r\n"] {
                let request =
                    format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n{more}\r\n");
                let answer = Client::new(at).ask(request);
                assert_eq!(answer.status(), 403, "{client} {path} {more}");
                assert_eq!(answer.field("location").or(answer.field("x-ruled")), None, "{client} {path}");
                assert!(!answer.body.windows(6).any(|it| it == b"secret"));
                refused += 1;
            }
        }
    }
    assert_eq!(stage.listener(at).refused(RefusalReason::Source), refused);
    assert_eq!(stage.listener(at).answers[4], refused, "they are answers as others are");
    assert!(member.heard().is_empty(), "no member is asked");
    let others =
        [("/to-members", 200), ("/redirect", 308), ("/answer", 200), ("/nobody", 503), ("/mirrored", 200)];
    for (path, status) in others {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.8\r\n\r\n");
        assert_eq!(Client::new(at).ask(request).status(), status, "{path}");
    }
    let elsewhere = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n";
    assert_eq!(Client::new(at).ask(elsewhere).status(), 200, "another rule denies nobody");
}

#[test]
fn whoever_hides_behind_a_trusted_proxy_is_let_in_by_no_rule_with_ranges() {
    let member = Member::saying("x");
    let allowing_proxies = |rule: &mut Rule| rule.sources = vec![PROXIES.parse().unwrap()];
    for (guard, expected) in [
        (denying as fn(&mut Rule), [200, 403, 403]),
        (allowing_proxies, [200, 403, 403]),
        (|_| {}, [200, 200, 200]),
    ] {
        let (_stage, at) = guard_with(member.at(), guard, |_| {});
        // A proxy that names nobody asks for itself: its own health checks do.
        for (told, status) in
            ["", "X-Forwarded-For: unknown\r\n", "X-Forwarded-For: 198.51.100.1, _x, 127.0.0.2\r\n"]
                .into_iter()
                .zip(expected)
        {
            let request = format!("GET /to-members HTTP/1.1\r\nHost: a\r\n{told}\r\n");
            assert_eq!(Client::new(at).ask(request).status(), status, "{told:?} {expected:?}");
        }
    }
}

#[test]
fn each_stream_of_http2_is_asked_who_it_is_of() {
    let member = Member::saying("x");
    let (stage, at) = guard_with(member.at(), denying, |_| {});
    let mut peer = Peer::new(at);
    for (client, status) in
        [("192.0.2.7", 403), ("192.0.2.8", 200), ("2001:db8:7::1", 403), ("192.0.2.9", 200)]
    {
        let request = Request::get("http://a.example/to-members").header("x-forwarded-for", client);
        let (head, ..) = peer.ask(request.body(()).unwrap(), None).unwrap();
        assert_eq!(head.status(), status, "{client}");
    }
    assert_eq!(stage.listener(at).traffic.total, 1, "one connection carried all of them");
    assert_eq!((stage.listener(at).refused(RefusalReason::Source), member.heard().len()), (2, 2));
}

#[test]
fn where_tls_ends_the_client_is_asked_who_it_is_as_well() {
    let member = Member::saying("x");
    let authority = Authority::new();
    for (range, status) in [("127.0.0.1/32", "403"), ("192.0.2.0/24", "200")] {
        let stage = Stage::new();
        stage.put(pool(&[member.at()]));
        give(&stage, "a", &authority.certificate("a.example"));
        let (at, _) = stage.open(HERE, |listener| {
            listener.protocol = Protocol::Http;
            listener.tls = Some(TlsByName { default: vec![object("a")], ..TlsByName::default() }.into());
            listener.rules = guarded(|rule| rule.denied = vec![range.parse().unwrap()]);
        });
        let mut client = secure(at, "a.example", config(&authority)).unwrap();
        client
            .write_all(b"GET /to-members HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{range}: {answer}");
    }
}
