use seaway_model::{
    Name,
    load_balancer::{Match, PathMatch, TextMatch},
};
use seaway_testkit::balancing;

use super::*;

struct Request {
    host: &'static str,
    target: &'static str,
    method: &'static str,
    headers: &'static [(&'static str, &'static str)],
}

fn get(host: &'static str, target: &'static str) -> Request {
    Request { host, target, method: "GET", headers: &[] }
}

impl RequestParts for Request {
    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }
    fn path(&self) -> &[u8] {
        self.target.split('?').next().unwrap_or_default().as_bytes()
    }
    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }
    fn query(&self) -> &[u8] {
        self.target.split_once('?').map_or("", |(_, query)| query).as_bytes()
    }
    fn header(&self, name: &[u8]) -> Option<&[u8]> {
        let mut fields = self.headers.iter();
        fields.find(|(it, _)| it.as_bytes().eq_ignore_ascii_case(name)).map(|(_, value)| value.as_bytes())
    }
}

fn rule(hosts: &[&str], matches: Vec<Match>) -> Arc<Rule> {
    let host = |name: &&str| match name.strip_prefix("*.") {
        Some(suffix) => HostPattern::Under(suffix.into()),
        None => HostPattern::Exact((*name).into()),
    };
    Arc::new(Rule {
        hosts: hosts.iter().map(host).collect(),
        matches,
        ..Rule::forward_all(balancing::owner(), balancing::pool_id())
    })
}

fn path(path: PathMatch) -> Match {
    Match { path: Some(path), ..Match::default() }
}

fn prefix(text: &str) -> Match {
    path(PathMatch::Prefix(text.into()))
}

fn exactly(text: &str) -> Match {
    path(PathMatch::Exact(text.into()))
}

fn text(name: &str, value: &str) -> (Name, TextMatch) {
    (name.into(), TextMatch::Exact(value.into()))
}

#[track_caller]
fn check(rules: &[Arc<Rule>], request: &Request, expected: Option<(usize, usize)>) {
    let found = Routes::compile(rules).find(request).map(|found| (found.rule, found.prefix));
    assert_eq!(found, expected, "{}{}", request.host, request.target);
}

#[test]
fn a_prefix_is_of_whole_segments() {
    let rules = [rule(&[], vec![prefix("/foo")]), rule(&[], vec![prefix("/foo/bar/")])];
    for (target, expected) in [
        ("/foo", Some((0, 4))),
        ("/foo/", Some((0, 4))),
        ("/foo/x?y", Some((0, 4))),
        ("/foo/bar", Some((1, 8))),
        ("/foo/bar/", Some((1, 8))),
        ("/foo/bar/x/y/z", Some((1, 8))),
        ("/foo/barx", Some((0, 4))),
        ("/foobar", None),
        ("/", None),
        ("", None),
        ("/Foo", None),
    ] {
        check(&rules, &get("a", target), expected);
    }
}

#[test]
fn an_exact_path_comes_before_a_pattern_before_a_prefix() {
    let rules = [
        rule(&[], vec![prefix("/")]),
        rule(&[], vec![prefix("/a/b")]),
        rule(&[], vec![path(PathMatch::Regex("/a/[bc]".into()))]),
        rule(&[], vec![exactly("/a/b")]),
    ];
    check(&rules, &get("a", "/a/b"), Some((3, 4)));
    check(&rules, &get("a", "/a/c"), Some((2, 4)));
    check(&rules, &get("a", "/a/b/"), Some((1, 4)));
    check(&rules, &get("a", "/a/cc"), Some((0, 0)));
    check(&rules, &get("a", ""), Some((0, 0)));
}

#[test]
fn hosts_are_exact_then_by_the_longest_wildcard_then_any() {
    let rules = [
        rule(&[], vec![prefix("/")]),
        rule(&["*.example"], vec![prefix("/")]),
        rule(&["*.shop.example"], vec![prefix("/")]),
        rule(&["a.shop.example"], vec![prefix("/only")]),
    ];
    for (host, target, expected) in [
        ("a.shop.example", "/only", 3),
        ("A.Shop.Example.:8080", "/only/x", 3),
        ("a.shop.example", "/else", 2),
        ("b.shop.example", "/only", 2),
        ("b.c.shop.example", "/", 2),
        ("shop.example", "/", 1),
        ("example", "/", 0),
        ("notexample", "/", 0),
        ("[2001:db8::1]:80", "/", 0),
        ("", "/", 0),
    ] {
        let found = Routes::compile(&rules).find(&get(host, target)).map(|found| found.rule);
        assert_eq!(found, Some(expected), "{host}{target}");
    }
    check(&rules[1..2], &get("example", "/"), None);
}

#[test]
fn among_equal_paths_who_asks_for_more_comes_first() {
    let with = |method: Option<&str>, headers: &[(Name, TextMatch)], query: &[(Name, TextMatch)]| Match {
        method: method.map(Name::from),
        headers: headers.into(),
        query: query.into(),
        ..prefix("/x")
    };
    let (a, b, q) = (text("X-A", "1"), text("x-b", "2"), text("q", "1 2"));
    let rules = [
        rule(&[], vec![with(None, &[], &[])]),
        rule(&[], vec![with(None, &[], &[q])]),
        rule(&[], vec![with(None, std::slice::from_ref(&a), &[])]),
        rule(&[], vec![with(None, &[a, b], &[])]),
        rule(&[], vec![with(Some("PUT"), &[], &[])]),
        rule(&[], vec![with(None, &[], &[])]),
    ];
    let asked = |method, target, headers| Request { host: "a", target, method, headers };
    let both: &[(&str, &str)] = &[("x-a", "1"), ("X-B", "2")];
    check(&rules, &asked("GET", "/x", &[]), Some((0, 2)));
    check(&rules, &asked("GET", "/x?p=0&q=1+2", &[]), Some((1, 2)));
    check(&rules, &asked("GET", "/x?%71=1%202", &[]), Some((1, 2)));
    check(&rules, &asked("GET", "/x?q=1&q=1+2", &[]), Some((0, 2)));
    check(&rules, &asked("GET", "/x?q=1+2", &both[..1]), Some((2, 2)));
    check(&rules, &asked("GET", "/x", both), Some((3, 2)));
    check(&rules, &asked("PUT", "/x", both), Some((4, 2)));
    check(&rules, &asked("put", "/x", &[]), Some((0, 2)));
}

#[test]
fn patterns_speak_of_the_whole_text() {
    let of = |pattern: &str| (Name::from("v"), TextMatch::Regex(pattern.into()));
    let rules = [
        rule(&[], vec![Match { headers: vec![of("a+")], ..prefix("/h") }]),
        rule(&[], vec![Match { query: vec![of("a b|c")], ..prefix("/q") }]),
        rule(&[], vec![path(PathMatch::Regex("/p/[0-9]+".into()))]),
        rule(&[], vec![path(PathMatch::Regex("/(".into()))]),
        rule(&[], vec![path(PathMatch::Regex("(a{1000}){1000}".into()))]),
    ];
    let asked = |target, headers| Request { host: "a", target, method: "GET", headers };
    check(&rules, &asked("/h", &[("V", "aaa")]), Some((0, 2)));
    check(&rules, &asked("/h", &[("V", "aab")]), None);
    check(&rules, &asked("/q?v=a%20b", &[]), Some((1, 2)));
    check(&rules, &asked("/q?v=c", &[]), Some((1, 2)));
    check(&rules, &asked("/q?v=cc", &[]), None);
    check(&rules, &asked("/p/12", &[]), Some((2, 5)));
    check(&rules, &asked("/p/12/3", &[]), None);
    check(&rules, &asked("/(", &[]), None);
}

#[test]
fn who_comes_first_in_the_list_wins_a_tie() {
    let rules = [rule(&["a"], vec![exactly("/x")]), rule(&["a"], vec![exactly("/y"), exactly("/x")])];
    check(&rules, &get("a", "/x"), Some((0, 2)));
    check(&rules, &get("a", "/y"), Some((1, 2)));
}

/// What a list comes to that takes the place of another is what it would have come to by itself.
#[test]
fn a_list_that_is_changed_step_by_step_finds_what_the_list_by_itself_finds() {
    let mut seed = 7_u64;
    let mut draw = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let hosts: [&[&str]; 5] = [&[], &["a"], &["b.a"], &["*.a"], &["a", "*.a"]];
    let paths = |kind: usize| match kind {
        0 => vec![prefix("/x")],
        1 => vec![prefix("/x/"), exactly("/x/y")],
        2 => vec![path(PathMatch::Regex("/x/.".into()))],
        3 => vec![Match { method: Some("PUT".into()), ..prefix("/x") }],
        4 => vec![path(PathMatch::Regex("(".into())), prefix("/x/y/z")],
        _ => vec![],
    };
    let (mut rules, mut routes) = (Vec::new(), Routes::default());
    for _ in 0..400 {
        for _ in 0..draw(4) {
            let place = draw(rules.len() + 1);
            match draw(3) {
                0 if place < rules.len() => drop(rules.remove(place)),
                // Another place, under the same `Arc`.
                1 if place < rules.len() => {
                    let moved = rules.remove(place);
                    rules.insert(draw(rules.len() + 1), moved);
                }
                _ if rules.len() < 12 => rules.insert(place, rule(hosts[draw(5)], paths(draw(6)))),
                _ => rules.clear(),
            }
        }
        routes = routes.changed_to(&rules);
        let afresh = Routes::compile(&rules);
        let hosts_of = |it: &Routes| (it.exact.len(), it.under.len());
        assert_eq!(hosts_of(&routes), hosts_of(&afresh), "nothing is kept of hosts that went");
        let by_number: HashMap<usize, &Arc<Rule>> = routes.rules().collect();
        assert!(routes.rules().map(|(_, rule)| rule).eq(&rules));
        assert!(by_number.len() == rules.len() && by_number.keys().all(|it| *it < routes.numbers()));
        for (host, target) in ["a", "b.a", "c"].iter().flat_map(|host| {
            ["/", "/x", "/x/y", "/x/y/z", "/x/z", "/xy"].iter().map(move |target| (*host, *target))
        }) {
            for method in ["GET", "PUT"] {
                let request = Request { method, ..get(host, target) };
                let expected =
                    afresh.find(&request).map(|found| (Arc::as_ptr(&rules[found.rule]), found.prefix));
                let found =
                    routes.find(&request).map(|found| (Arc::as_ptr(by_number[&found.rule]), found.prefix));
                assert_eq!(found, expected, "{method} {host}{target}");
            }
        }
    }
}

#[test]
fn one_rule_that_changes_among_thousands_is_compiled_alone() {
    let own = |index: usize, path: &str| rule(&[&format!("host-{index}.example")], vec![prefix(path)]);
    let anywhere = |index: usize, path: &str| rule(&[], vec![prefix(&format!("{path}/{index}"))]);
    let mut rules: Vec<Arc<Rule>> = (0..1_000).flat_map(|it| [own(it, "/"), anywhere(it, "/all")]).collect();
    let before = Routes::compile(&rules);
    rules[1_000] = own(500, "/changed");
    rules.remove(11);
    rules.insert(20, anywhere(5, "/moved"));
    let after = before.changed_to(&rules);

    let others = after.exact.iter().filter(|(host, it)| !Arc::ptr_eq(it, &before.exact[*host]));
    assert_eq!(others.map(|(host, _)| &*host.0).collect::<Vec<_>>(), ["host-500.example"]);
    assert_eq!(after.anywhere.unlike(&before.anywhere), ["/moved/5"]);
    let numbers: HashMap<usize, &Arc<Rule>> = before.rules().collect();
    let fresh =
        after.rules().filter(|(number, rule)| !numbers.get(number).is_some_and(|it| Arc::ptr_eq(it, rule)));
    assert_eq!(fresh.count(), 2);
}

fn guarded(paths: Vec<Match>) -> Arc<Rule> {
    let sources = vec!["10.0.0.0/8".parse().expect("a network")];
    Arc::new(Rule { sources, ..Rule::clone(&rule(&[], paths)) })
}

fn answering(code: u16, paths: Vec<Match>) -> Arc<Rule> {
    let action = seaway_model::load_balancer::Action::Respond { code, body: "".into() };
    Arc::new(Rule { action, ..Rule::clone(&rule(&[], paths)) })
}

fn evades(rules: &[Arc<Rule>], target: &'static str) -> bool {
    let (routes, request) = (Routes::compile(rules), get("a.example", target));
    let found = routes.find(&request).expect("everything is below /");
    routes.may_bypass_rule(&request, (found, &rules[found.rule]), |it| rules.get(it).map(|rule| &**rule))
}

#[test]
fn a_path_that_a_server_may_take_for_a_protected_one_evades_its_rule() {
    let open = rule(&[], vec![prefix("/")]);
    let rules = [
        open.clone(),
        guarded(vec![prefix("/admin"), exactly("/login")]),
        guarded(vec![prefix("/staff")]),
        answering(503, vec![prefix("/closed")]),
        rule(&[], vec![prefix("/caf%C3%A9")]),
        answering(404, vec![Match::default()]),
    ];
    for target in [
        "//admin",
        "/%61dmin",
        "/%61%64min/x?y",
        "/admin%2fx",
        "/admin%2Fx",
        "/admin;x",
        "/admin;x=y/z",
        "/%2fadmin",
        "/admin%00",
        "/admin%00.png",
        "/log%69n",
        "/%6cogin",
        "//login",
        "/login;s=1",
        "/%5cadmin",
        "/;x%2fy/admin",
        "/;%00/admin",
        "//closed",
    ] {
        assert!(evades(&rules, target), "{target}");
    }
    for target in [
        "/",
        "/admin",
        "/admin/x",
        "/x%2fadmin",
        "/x%20y",
        "/a//b",
        "/administrator",
        "/login/x",
        "/shop;admin",
        "/%2561dmin",
        "/x;y//admin",
        "/caf%C3%A9",
        "/caf%C3%A9/x",
        "/caf%C3%A9//x",
    ] {
        assert!(!evades(&rules, target), "{target}");
    }
    // What is protected as much is no way round.
    assert!(!evades(&[guarded(vec![prefix("/")]), guarded(vec![prefix("/staff")])], "//staff"));
    // A rule that writes its path so may be open below one that is protected.
    let spelled = [guarded(vec![prefix("/")]), rule(&[], vec![prefix("/caf%C3%A9"), exactly("/a//b")])];
    assert!(!evades(&spelled, "/caf%C3%A9/x") && !evades(&spelled, "/a//b"));
    // An expression may be wider than what is protected beside it.
    let pattern = || path(PathMatch::Regex("/[^/]+".into()));
    let rules = [open.clone(), rule(&[], vec![pattern()]), guarded(vec![exactly("/login")])];
    assert!(evades(&rules, "/log%69n") && !evades(&rules, "/a%2fb"));
    // Without protection, nothing is looked at.
    assert!(!evades(&[open], "//admin"));
}
