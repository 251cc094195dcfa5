//! Maps and choices find the same rule as our own data plane does, whatever the rules are.

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use seaway_haproxy::document::{Condition, Document, HttpFrontendOptions, MapMatch, Routing};
use seaway_model::load_balancer::{HostPattern, Match, PathMatch, Rule, TextMatch};
use seaway_snapshot::{RequestParts, Routes};

use crate::scene::{All, exact, http, load_balancer, owner, pool, printed, to, under};

/// A request of these tests.
#[derive(Clone, Debug)]
struct Asked {
    host: &'static str,
    path: String,
    method: &'static str,
    header: Option<&'static str>,
    query: &'static str,
}

impl RequestParts for Asked {
    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }

    fn path(&self) -> &[u8] {
        self.path.as_bytes()
    }

    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }

    fn query(&self) -> &[u8] {
        self.query.as_bytes()
    }

    fn header(&self, name: &[u8]) -> Option<&[u8]> {
        self.header.filter(|_| name == b"x-a").map(str::as_bytes)
    }
}

/// What HAProxy does with the maps, as its manual says it.
fn look(document: &Document, routing: &HttpFrontendOptions, asked: &Asked) -> Option<String> {
    let host = asked.host.to_ascii_lowercase();
    let map = |name| &document.maps[name];
    let find = |name, text: &str| -> Option<&str> {
        let map = map(name);
        let fits = |key: &str| match map.find {
            MapMatch::Exact => text == key,
            MapMatch::Prefix => text.starts_with(key),
            MapMatch::Suffix => text.ends_with(key),
        };
        let mut found = map.entries.iter().filter(|(key, _)| fits(key.as_str()));
        match map.find {
            MapMatch::Suffix => found.next(),
            _ => found.max_by_key(|(key, _)| key.as_str().len()),
        }
        .map(|(_, value)| value.as_str())
    };
    let at = |host: &str| {
        let path = &asked.path;
        find(&routing.exact, &format!("{host}{path}"))
            .or_else(|| find(&routing.prefix, &format!("{host}{path}/")))
    };
    let wildcard = || find(&routing.suffix, &host).and_then(at);
    let mut found = at(&host).or_else(wildcard).or_else(|| at("*"))?.to_owned();
    for choice in &routing.choices {
        if found != choice.name.as_str() {
            continue;
        }
        let holds = |it: &Condition| match it {
            Condition::Method(method) => asked.method == method.as_str(),
            Condition::Header(name, value) => name.as_str() == "x-a" && asked.header == Some(value.as_str()),
            Condition::Query(name, value) => asked.query == format!("{name}={value}"),
            Condition::Share(..) => unreachable!("each rule has one pool"),
        };
        let chosen = choice.alternatives.iter().find(|it| it.conditions.iter().all(holds));
        found = chosen?.backend.to_string();
    }
    Some(found)
}

const HOSTS: [&str; 6] = ["a.b.example", "b.example", "x.a.b.example", "example", "other.test", "B.EXAMPLE"];
const PATHS: [&str; 8] = ["", "/", "/p", "/p/", "/p/q", "/p/q/r", "/pq", "/z"];

fn hosts() -> impl Strategy<Value = Vec<HostPattern>> {
    let one = prop_oneof![
        prop::sample::select(&HOSTS[..5]).prop_map(exact),
        prop::sample::select(vec!["b.example", "a.b.example", "example"]).prop_map(under),
    ];
    prop::collection::vec(one, 0..3)
}

fn matched() -> impl Strategy<Value = Match> {
    let path = prop::sample::select(&PATHS[1..]);
    let path = prop_oneof![
        Just(None),
        path.clone().prop_map(|it| Some(PathMatch::Exact(it.into()))),
        path.prop_map(|it| Some(PathMatch::Prefix(it.into()))),
    ];
    let text = |text: &str| TextMatch::Exact(text.into());
    (path, prop::option::of(prop::sample::select(vec!["GET", "POST"])), any::<bool>(), any::<bool>())
        .prop_map(move |(path, method, header, query)| Match {
            path,
            method: method.map(Into::into),
            headers: header.then(|| ("x-a".into(), text("1"))).into_iter().collect(),
            query: query.then(|| ("q".into(), text("1"))).into_iter().collect(),
        })
}

fn rules() -> impl Strategy<Value = Vec<(Vec<HostPattern>, Vec<Match>)>> {
    prop::collection::vec((hosts(), prop::collection::vec(matched(), 0..3)), 0..10)
}

fn every_request() -> Vec<Asked> {
    let mut all = Vec::new();
    for host in HOSTS {
        for path in PATHS.iter().skip(1) {
            for (method, header, query) in
                [("GET", None, ""), ("POST", Some("1"), "q=1"), ("GET", Some("1"), ""), ("PUT", None, "q=1")]
            {
                all.push(Asked { host, path: (*path).to_owned(), method, header, query });
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: seaway_testkit::properties::cases(300),
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn maps_and_choices_find_the_rule_that_our_own_data_plane_finds(rules in rules()) {
        let names: Vec<String> = (0..rules.len()).map(|number| format!("p{number}")).collect();
        let rules: Vec<Rule> = (rules.into_iter().zip(&names))
            .map(|((hosts, matches), name)| Rule { hosts, matches, ..to(name) })
            .collect();
        let pools = names.iter().map(|name| pool(name, &[])).collect();
        let here = load_balancer("127.0.0.1".parse().expect("an address"), vec![http("web", 80, rules)], pools);
        let listener = here.listeners.values().next().expect("one").clone();
        let all: All = [(owner("web"), here.into())].into();
        let (document, problems) = printed(&all, "/run/seaway/haproxy", None);
        prop_assert_eq!(problems, []);
        let frontend = document.frontends.values().next().expect("one");
        let Routing::Http(routing) = &frontend.routing else { panic!("{frontend:?}") };
        let routes = Routes::compile(&listener.rules);
        for asked in every_request() {
            let ours = routes.find(&asked).map(|found| format!("default.web.p{}", found.rule));
            prop_assert_eq!(look(&document, routing, &asked), ours, "{:?} {:?}", asked, document.maps);
        }
    }
}
