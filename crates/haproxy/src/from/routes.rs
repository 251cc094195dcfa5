//! Rules of a listener as maps: host and path to a backend, or to a choice among some.
//!
//! The order is that of `snapshot::routes`: an exact host, a longer wildcard, a shorter one, any host; of each, an exact
//! path, then the longest prefix; then a method, more headers, more query parameters; then the place in the list. Where
//! no rule of one host fits, the next host is asked. HAProxy looks into one host only, so each host's entries say all
//! that would be tried for them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use seaway_model::{
    Name,
    load_balancer::{HostPattern, Match, PathMatch, Rule, TextMatch},
};

use super::{
    DocumentBuilder,
    frontends::FrontendContext,
    respelled::{canonical, is_guarded},
};
use crate::{
    document::{Alternative, Condition, RouteChoice},
    words::{Key, Label, Text, digest},
};

#[derive(Debug, Default)]
pub(super) struct Routes {
    pub(super) exact: Vec<(Key, Key)>,
    pub(super) prefix: Vec<(Key, Key)>,
    pub(super) suffix: Vec<(Key, Key)>,
    pub(super) choices: Vec<RouteChoice>,
}

/// Where rules are looked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostScope {
    Exact(Name),
    /// After the `*.`.
    Under(Name),
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathKey {
    Exact(String),
    /// Without a slash at its end.
    Prefix(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    rank: (Reverse<bool>, Reverse<usize>, Reverse<usize>, usize),
    conditions: Vec<Condition>,
    /// By weight; nobody for those of weight 0.
    to: Vec<(Label, u32)>,
}

#[derive(Debug, Default)]
struct HostPaths {
    of: BTreeMap<PathKey, Vec<Candidate>>,
    /// A rule that guards something cannot be told from others here: nothing is served.
    closed: bool,
}

/// A host as a key, and whether it is a suffix with its dot.
pub(super) fn host_key(host: &HostPattern) -> Option<(Key, bool)> {
    match host {
        HostPattern::Exact(name) => Some((Key::host(name)?, false)),
        HostPattern::Under(name) => Some((Key::host(&format!(".{name}"))?, true)),
    }
}

impl DocumentBuilder<'_> {
    pub(super) fn routes(&mut self, here: &FrontendContext<'_>) -> Routes {
        let mut scopes: BTreeMap<HostScope, HostPaths> = BTreeMap::new();
        for (place, rule) in here.listener.rules.iter().enumerate() {
            self.rule(here, rule, place, &mut scopes);
        }
        let closed = self.closed(&scopes);
        for paths in scopes.values_mut().filter(|paths| paths.closed) {
            paths.of = BTreeMap::from([(PathKey::Prefix(String::new()), closed.clone())]);
        }
        for list in scopes.values_mut().flat_map(|paths| paths.of.values_mut()) {
            list.sort_by_key(|it| it.rank);
        }
        flattened(&scopes)
    }

    fn closed(&mut self, scopes: &BTreeMap<HostScope, HostPaths>) -> Vec<Candidate> {
        if !scopes.values().any(|paths| paths.closed) {
            return Vec::new();
        }
        let to = vec![(self.unavailable(), 1)];
        vec![Candidate { rank: Default::default(), conditions: Vec::new(), to }]
    }

    fn rule(
        &mut self,
        here: &FrontendContext<'_>,
        rule: &Rule,
        number: usize,
        scopes: &mut BTreeMap<HostScope, HostPaths>,
    ) {
        const EVERYTHING: &[Match] =
            &[Match { path: None, method: None, headers: Vec::new(), query: Vec::new() }];
        let mut hosts: Vec<HostScope> = Vec::new();
        for host in &rule.hosts {
            match (host_key(host), host) {
                (Some(_), HostPattern::Exact(name)) => hosts.push(HostScope::Exact(name.clone())),
                (Some(_), HostPattern::Under(name)) => hosts.push(HostScope::Under(name.clone())),
                (None, _) => {
                    self.unsupported(&rule.owner, "host", "a host name has other characters than names have")
                }
            }
        }
        if rule.hosts.is_empty() {
            hosts.push(HostScope::Any);
        }
        for wanted in if rule.matches.is_empty() { EVERYTHING } else { &rule.matches } {
            let path = match &wanted.path {
                Some(path) if is_guarded(rule) => Some(canonical(path)),
                path => path.clone(),
            };
            let place = match &path {
                None => Some(PathKey::Prefix(String::new())),
                Some(PathMatch::Exact(path)) => key_of(path).map(PathKey::Exact),
                Some(PathMatch::Prefix(path)) => {
                    key_of(path).map(|it| PathKey::Prefix(it.trim_end_matches('/').into()))
                }
                Some(PathMatch::Regex(_)) => None,
            };
            let Some(place) = place else {
                self.unmatched(
                    rule,
                    "paths that are regular expressions, are longer than 1700 characters, or have some such as ; # or quotes,",
                );
                if is_guarded(rule) {
                    hosts.iter().for_each(|host| scopes.entry(host.clone()).or_default().closed = true);
                }
                continue;
            };
            let (conditions, whole) = conditions(wanted);
            if !whole {
                self.unmatched(
                    rule,
                    "headers, methods and query parameters by regular expression or with quotes",
                );
                if !is_guarded(rule) {
                    continue;
                }
            }
            let to = match whole {
                true => self.targets(here, rule, path.as_ref()),
                false => vec![(self.unavailable(), 1)],
            };
            let candidate = Candidate {
                rank: (
                    Reverse(wanted.method.is_some()),
                    Reverse(wanted.headers.len()),
                    Reverse(wanted.query.len()),
                    number,
                ),
                conditions,
                to,
            };
            for host in &hosts {
                scopes
                    .entry(host.clone())
                    .or_default()
                    .of
                    .entry(place.clone())
                    .or_default()
                    .push(candidate.clone());
            }
        }
    }

    fn unmatched(&mut self, rule: &Rule, what: &str) {
        let then = match is_guarded(rule) {
            true => "the rule restricts access, so all requests that it might match get 503",
            false => "the rule is not served, and requests match the next rule",
        };
        self.unsupported(
            &rule.owner,
            "spec.rules",
            format!("Seaway cannot express {what} in HAProxy's configuration: {then}"),
        );
    }
}

/// With any host before it, it is still a key.
const LONGEST_PATH: usize = 1700;

fn key_of(path: &str) -> Option<String> {
    let may = path.starts_with('/') && path.len() <= LONGEST_PATH && Key::new(path).is_some();
    may.then(|| path.to_owned())
}

/// Those that can be said, and whether that is all.
fn conditions(wanted: &Match) -> (Vec<Condition>, bool) {
    let exact = |name: &Name, text: &TextMatch| match text {
        TextMatch::Exact(text) if !text.is_empty() => Some((Label::new(name)?, Text::new(text)?)),
        _ => None,
    };
    let method = wanted.method.iter().map(|it| Label::new(it).map(Condition::Method));
    let headers = wanted
        .headers
        .iter()
        .map(|(name, text)| exact(name, text).map(|(name, it)| Condition::Header(name, it)));
    let query = wanted
        .query
        .iter()
        .map(|(name, text)| exact(name, text).map(|(name, it)| Condition::Query(name, it)));
    let all: Vec<Option<Condition>> = method.chain(headers).chain(query).collect();
    let count = all.len();
    let said: Vec<Condition> = all.into_iter().flatten().collect();
    let whole = said.len() == count;
    (said, whole)
}

fn flattened(scopes: &BTreeMap<HostScope, HostPaths>) -> Routes {
    let mut routes = Routes::default();
    let mut choices = BTreeMap::new();
    for (scope, own) in scopes {
        let chain = chain(scope, scopes);
        let root = own.of.get(&PathKey::Prefix(String::new()));
        let own_alone = root.is_some_and(|list| list.iter().any(|it| it.conditions.is_empty()));
        let all = if own_alone { chain.get(..1).unwrap_or_default() } else { &chain };
        let places: BTreeSet<&PathKey> = all.iter().flat_map(|(_, paths)| paths.of.keys()).collect();
        for place in places {
            let found = alternatives(&chain, place);
            let same = match place {
                PathKey::Exact(path) => alternatives(&chain, &PathKey::Prefix(path.clone())) == found,
                PathKey::Prefix(path) => {
                    let parent = path.rfind('/').map(|end| PathKey::Prefix(path[..end].to_owned()));
                    parent.is_some_and(|parent| alternatives(&chain, &parent) == found)
                }
            };
            let is_of = |it: &HostScope| {
                it == scope || (*it != HostScope::Any && matches!(scope, HostScope::Under(_)))
            };
            if same || !found.iter().any(|(it, _)| is_of(it)) {
                continue;
            }
            let value = value(found, &mut choices);
            let host = match scope {
                HostScope::Exact(name) => name.to_string(),
                HostScope::Under(name) => format!("*.{name}"),
                HostScope::Any => "*".to_owned(),
            };
            let (list, key) = match place {
                PathKey::Exact(path) => (&mut routes.exact, format!("{host}{path}")),
                PathKey::Prefix(path) => (&mut routes.prefix, format!("{host}{path}/")),
            };
            if let (Some(key), Some(value)) = (Key::new(&key), Key::new(value.as_str())) {
                list.push((key, value));
            }
        }
        if let HostScope::Under(name) = scope
            && let (Some(key), Some(value)) = (Key::new(&format!(".{name}")), Key::new(&format!("*.{name}")))
        {
            routes.suffix.push((key, value));
        }
    }
    routes.choices = choices.into_values().collect();
    routes
}

/// The scope itself, and those that are asked after it.
fn chain<'s>(
    scope: &HostScope,
    scopes: &'s BTreeMap<HostScope, HostPaths>,
) -> Vec<(&'s HostScope, &'s HostPaths)> {
    let mut chain: Vec<(&HostScope, &HostPaths)> = scopes.get_key_value(scope).into_iter().collect();
    let (HostScope::Exact(name) | HostScope::Under(name)) = scope else { return chain };
    let mut rest = name.as_str();
    while let Some(after) = rest.find('.').and_then(|dot| rest.get(dot.saturating_add(1)..)) {
        rest = after;
        chain.extend(scopes.get_key_value(&HostScope::Under(rest.into())));
    }
    chain.extend(scopes.get_key_value(&HostScope::Any));
    chain
}

/// All that would be tried for a path that this is the longest entry of, until one has no conditions.
fn alternatives<'s>(
    chain: &[(&'s HostScope, &'s HostPaths)],
    place: &PathKey,
) -> Vec<(&'s HostScope, &'s Candidate)> {
    let mut found = Vec::new();
    for (scope, paths) in chain {
        let mut places = Vec::new();
        let mut path = match place {
            PathKey::Exact(path) => {
                places.push(place.clone());
                path.trim_end_matches('/')
            }
            PathKey::Prefix(path) => path,
        };
        loop {
            places.push(PathKey::Prefix(path.to_owned()));
            let Some(end) = path.rfind('/') else { break };
            path = &path[..end];
        }
        for candidate in places.iter().filter_map(|it| paths.of.get(it)).flatten() {
            found.push((*scope, candidate));
            if candidate.conditions.is_empty() {
                return found;
            }
        }
    }
    found
}

/// A backend, or a choice.
fn value(found: Vec<(&HostScope, &Candidate)>, choices: &mut BTreeMap<String, RouteChoice>) -> Label {
    let mut alternatives: Vec<Alternative> = Vec::new();
    for (_, candidate) in found {
        let mut left: u32 = candidate.to.iter().fold(0, |sum, (_, weight)| sum.saturating_add(*weight));
        for (backend, weight) in &candidate.to {
            let mut conditions = candidate.conditions.clone();
            if *weight < left {
                conditions.push(Condition::Share(*weight, left));
            }
            left = left.saturating_sub(*weight);
            alternatives.push(Alternative { conditions, backend: backend.clone() });
        }
    }
    if let [Alternative { conditions, backend }] = alternatives.as_slice()
        && conditions.is_empty()
    {
        return backend.clone();
    }
    let name = format!("choice-{}", digest(&format!("{alternatives:?}")));
    let choice =
        choices.entry(name.clone()).or_insert_with(|| RouteChoice { name: Label::of(&name), alternatives });
    choice.name.clone()
}
