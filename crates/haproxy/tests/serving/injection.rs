//! Whatever stands in the values: each printed line is one that the printer meant, and HAProxy takes the file.

use std::{collections::BTreeSet, sync::Arc};

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use seaway_haproxy::{MARK, files};
use seaway_model::{
    Listener, Name,
    load_balancer::{
        Action, Affinity, BackendTls, CheckKind, CookieMode, Filter, HeaderChange, HealthCheck, HostPattern,
        HttpOptions, Match, PathMatch, Protocol, Redirect, Rule, TextMatch, TlsByName, Trust,
    },
};
use secrecy::ExposeSecret as _;

use crate::{
    haproxy,
    scene::{All, certificate, http, id, load_balancer, made, owner, pool, printed, secret},
};

const HOSTILE: [&str; 22] = [
    "a\n    server evil 192.0.2.66:80",
    "a\r\nbackend evil",
    "a'\nglobal\n    lua-load /tmp/evil",
    "'",
    "\"",
    "\\",
    "a\\",
    "a b",
    "#",
    "a #",
    "%[env(HOME)]",
    "%",
    "%%",
    "${HOME}",
    "$HOME",
    "a;b",
    "{ src 0.0.0.0/0 }",
    "|| TRUE",
    "--",
    "",
    "\0",
    "ünï",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(&HOSTILE[..]).prop_map(str::to_owned),
        1 => "[a-z/.:-]{0,12}",
        1 => "\\PC{0,12}",
        1 => prop::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter),
    ]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 24)
}

/// Each text in a place of its own.
fn everywhere(texts: &[String], pem: &(String, String)) -> All {
    let mut next = texts.iter().cycle().map(|it| Name::from(it.as_str()));
    let mut take = || next.next().unwrap_or_default();
    let path = |text: Name| Name::from(format!("/{text}"));
    let change = |a: Name, b: Name, c: Name| HeaderChange {
        set: vec![(a.clone(), b.clone()), ("X-A".into(), b)],
        add: vec![("X-B".into(), a)],
        remove: vec![c],
    };
    let base = Rule::forward_all(owner("web"), id("one"));
    let mut rules = vec![Rule {
        hosts: vec![HostPattern::Exact(take()), HostPattern::Under(take())],
        matches: vec![
            Match { path: Some(PathMatch::Exact(path(take()))), method: Some(take()), ..Match::default() },
            Match { path: Some(PathMatch::Prefix(path(take()))), ..Match::default() },
            Match {
                headers: vec![(take(), TextMatch::Exact(take()))],
                query: vec![("q".into(), TextMatch::Exact(take()))],
                ..Match::default()
            },
        ],
        ..base.clone()
    }];
    let with = |host: &str, filter: Filter| Rule {
        hosts: vec![HostPattern::Exact(host.into())],
        filters: vec![filter],
        ..base.clone()
    };
    rules.extend([
        with("b", Filter::RequestHeaders(change(take(), take(), take()))),
        with("c", Filter::ResponseHeaders(change("X-C".into(), take(), "X-D".into()))),
        with("d", Filter::RewritePath(path(take()))),
        with("e", Filter::RewriteHost(take())),
    ]);
    let prefix = Match { path: Some(PathMatch::Prefix(path(take()))), ..Match::default() };
    rules.push(Rule { matches: vec![prefix], ..with("f", Filter::RewritePrefix(path(take()))) });
    let redirect = Redirect {
        scheme: Some(take()),
        host: Some(take()),
        path: Some(PathMatch::Exact(take())),
        port: None,
        code: 302,
    };
    rules.push(Rule {
        action: Action::Redirect(redirect),
        hosts: vec![HostPattern::Exact("g".into())],
        ..base.clone()
    });
    rules.push(Rule {
        action: Action::Respond { code: 404, body: take() },
        hosts: vec![HostPattern::Exact("h".into())],
        ..base
    });
    let mut one = pool("one", &["10.0.0.1:80".parse().expect("an address")]);
    one.owner = owner(&take());
    let check =
        CheckKind::Http { path: path(take()), host: Some(take()), status: (200, 399), expect: Some(take()) };
    one.health = Some(HealthCheck { kind: check, ..HealthCheck::default() });
    one.affinity = Some(Affinity::Cookie { name: take(), mode: CookieMode::Insert, key: None });
    one.tls = Some(Arc::new(BackendTls {
        name: Some(take()),
        usual: "usual.example".into(),
        trust: Trust::InsecureSkipVerify,
    }));
    let options = HttpOptions { via: Some(take()), pages: [(404, take())].into(), ..HttpOptions::default() };
    let listener = Listener { name: take(), http: options, ..http("web", 80, rules.clone()) };
    let tls = TlsByName {
        default: vec![secret(&take())],
        by_name: [(HostPattern::Exact(take()), vec![secret("fine")].into())].into(),
        ..TlsByName::default()
    };
    let certificates = tls.objects().into_iter().cloned().map(|object| (object, certificate(pem))).collect();
    let secure = Listener { tls: Some(Arc::new(tls)), name: take(), ..http("web", 443, rules) };
    let bytes = Listener {
        protocol: Protocol::Opaque,
        ..http("web", 90, vec![Rule::forward_all(owner("web"), id("one"))])
    };
    let mut it =
        load_balancer("127.0.0.1".parse().expect("an address"), vec![listener, secure, bytes], vec![one]);
    it.certificates = Arc::new(certificates);
    [(owner(&texts[0]), Arc::new(it))].into()
}

/// Directives that the printer has; of an indented line, the first words.
const DIRECTIVES: &[&str] = &[
    "acl denied src ",
    "acl proxies src ",
    "acl ranges-",
    "acl sources src ",
    "acl trusted src ",
    "alpn ",
    "balance ",
    "bind 127.0.0.1:",
    "compression ",
    "cookie ",
    "default-server ",
    "default_backend ",
    "hard-stop-after ",
    "hash-type ",
    "http-after-response set-header ",
    "http-check ",
    "http-error status ",
    "http-request ",
    "http-response ",
    "http-reuse ",
    "log global",
    "maxconn ",
    "mode http",
    "mode tcp",
    "nbthread ",
    "noreuseport",
    "option ",
    "rate-limit ",
    "retries ",
    "ssl-default-bind-",
    "close-spread-time 10s",
    "load-server-state-from-file global",
    "server-state-file /run/seaway/haproxy/servers.state",
    "stats socket /run/seaway/haproxy/",
    "stick ",
    "stick-table ",
    "tcp-request ",
    "timeout ",
    "tune.ssl.",
    "use_backend ",
];

fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.split('\n').enumerate() {
        let is_section =
            ["global", "defaults", "frontend ", "backend "].iter().any(|it| line.starts_with(it));
        let is_server = line.starts_with("    server s")
            && line.split(' ').nth(6).is_some_and(|it| it == "10.0.0.1:80" || it == "127.0.0.1:9");
        let is_known =
            line.strip_prefix("    ").is_some_and(|it| DIRECTIVES.iter().any(|known| it.starts_with(known)));
        let is_whole = line.bytes().all(|it| (b' '..=b'~').contains(&it))
            && line.matches('\'').count().is_multiple_of(2);
        if !is_whole && !line.starts_with("# ")
            || !(line.is_empty() || line.starts_with("# ") || is_section || is_server || is_known)
        {
            faults.push(format!("{}: {line:?}", number + 1));
        }
    }
    faults
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: seaway_testkit::properties::cases(200),
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_line_is_one_that_the_printer_meant(texts in texts()) {
        let all = everywhere(&texts, &made(&["a.example"]));
        let (document, _) = printed(&all, "/run/seaway/haproxy", None);
        let files = files(&document);
        prop_assert!(files.configuration.starts_with(MARK));
        prop_assert_eq!(faults(&files.configuration), Vec::<String>::new());
        let plain = |path: &str| path.bytes().all(|it| it.is_ascii_alphanumeric() || b"/-_.:".contains(&it));
        for (path, (_, text)) in &files.others {
            prop_assert!(path.starts_with("/run/seaway/haproxy/") && !path.contains("/../") && plain(path), "{path}");
            if path.contains("/maps/") {
                let words: BTreeSet<usize> = text.expose_secret().lines().map(|it| it.split(' ').count()).collect();
                prop_assert!(words.iter().all(|it| *it == 2), "{}", text.expose_secret());
            }
        }
    }
}

/// Each hostile text in all places, and some by chance.
#[test]
fn haproxy_takes_whatever_stands_in_the_values() {
    let Some(program) = haproxy::program() else { return };
    let pem = made(&["a.example"]);
    for text in HOSTILE {
        let folder = haproxy::folder();
        let all = everywhere(&[text.to_owned()], &pem);
        let (document, _) = printed(&all, folder.path().to_str().expect("a path"), None);
        let file = haproxy::write(&document, folder.path());
        let said = haproxy::complaints(program, &file);
        assert_eq!(said, "", "{text:?}: {}", std::fs::read_to_string(file).expect("read"));
    }
}
