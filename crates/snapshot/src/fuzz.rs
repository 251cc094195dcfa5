//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold (`fuzz/README.md`).

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "what is wrong ends the fuzz target"
)]

use std::{cmp::Reverse, sync::Arc};

use seaway_model::{
    Name, Owner,
    load_balancer::{HostPattern, Match, PathMatch, PoolId, Rule, TextMatch},
};

use crate::{RequestParts, Routes};

/// What is asked: `METHOD host target value-of-x-a`.
struct TestRequest<'t> {
    method: &'t str,
    host: &'t str,
    path: &'t str,
    query: &'t str,
    header: Option<&'t str>,
}

impl RequestParts for TestRequest<'_> {
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
        self.header.filter(|_| name.eq_ignore_ascii_case(b"x-a")).map(str::as_bytes)
    }
}

/// The rule that is found is the one that the order of Gateway API puts first among all that fit, tried one by one; and it is the
/// same whether the rules came at once or one after the other. The first line of the input is what is asked; each other line is a
/// rule: `host path [METHOD] [query=value] [:value-of-x-a]`, in which `-` is any host, `=/a` an exact path and `~` a pattern.
pub fn paths(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.split('\n');
    let mut words = lines.next().unwrap_or_default().split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (method, host, target, header) = (word(), word(), word(), word());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let asked = TestRequest { method, host, path, query, header: Some(header).filter(|it| !it.is_empty()) };
    let rules: Vec<Arc<Rule>> = lines.take(12).map(|line| Arc::new(rule(line))).collect();

    let expected = (rules.iter().enumerate())
        .filter_map(|(index, rule)| Some((fits(rule, &asked)?, Reverse(index), index)))
        .max()
        .map(|(rank, _, index)| (index, rank.prefix(path)));
    let routes = Routes::compile(&rules);
    let found = routes.find(&asked);
    assert_eq!(found.map(|it| (it.rule, it.prefix)), expected);
    assert!(found.is_none_or(|it| it.rule < routes.numbers() && it.prefix <= path.len().max(1)));

    let mut grown = Routes::default();
    for end in 0..=rules.len() {
        grown = grown.changed_to(&rules[end / 2..end]);
    }
    let grown = grown.changed_to(&rules);
    let numbered: Vec<&Arc<Rule>> = grown.rules().map(|(_, rule)| rule).collect();
    assert!(
        numbered.len() == rules.len() && numbered.iter().zip(&rules).all(|(one, two)| Arc::ptr_eq(one, two))
    );
    let by_number = |number: usize| grown.rules().position(|(it, _)| it == number);
    assert_eq!(
        grown.find(&asked).map(|it| (by_number(it.rule), it.prefix)),
        expected.map(|(it, end)| (Some(it), end))
    );
}

/// What counts, in this order; the greatest is first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    host: (bool, usize),
    path: (u8, usize),
    method: bool,
    headers: usize,
    query: usize,
}

impl Rank {
    /// How much of the path the rule names.
    fn prefix(&self, path: &str) -> usize {
        if self.path.0 == 0 { self.path.1 } else { path.len().max(1) }
    }
}

const PATTERN: &str = "/a/[bc].*";

fn rule(line: &str) -> Rule {
    let mut words = line.split(' ');
    let (host, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = match path.strip_prefix('=') {
        Some(exact) => PathMatch::Exact(exact.into()),
        None if path == "~" => PathMatch::Regex(PATTERN.into()),
        None => PathMatch::Prefix(path.into()),
    };
    let mut it = Match { path: Some(path), ..Match::default() };
    for word in words {
        match (word.split_once('='), word.strip_prefix(':')) {
            (_, Some(value)) => it.headers.push(("X-A".into(), TextMatch::Exact(value.into()))),
            (Some((name, value)), _) => it.query.push((name.into(), TextMatch::Exact(value.into()))),
            (None, None) => it.method = Some(word.into()),
        }
    }
    let host = host.to_ascii_lowercase();
    let pattern = match host.strip_prefix("*.") {
        Some(suffix) => HostPattern::Under(suffix.into()),
        None => HostPattern::Exact(host.as_str().into()),
    };
    let hosts = if host == "-" { Vec::new() } else { vec![pattern] };
    let to = Rule::forward_all(Owner::Config("fuzz".into()), PoolId("members".into()));
    Rule { hosts, matches: vec![it], ..to }
}

fn fits(rule: &Rule, asked: &TestRequest<'_>) -> Option<Rank> {
    let host = match rule.hosts.first() {
        None => (false, 0),
        Some(pattern) => host_fits(pattern, &plain(asked.host))?,
    };
    let it = &rule.matches[0];
    let whole = if asked.path.is_empty() { "/" } else { asked.path };
    let path = match it.path.as_ref()? {
        PathMatch::Exact(path) => (2, usize::from(**path == *whole).checked_sub(1)?),
        PathMatch::Regex(_) => {
            let rest =
                whole.strip_prefix("/a/").filter(|it| it.starts_with(['b', 'c']) && !it.contains('\n'));
            (1, rest.map(|_| 0)?)
        }
        PathMatch::Prefix(prefix) => {
            let prefix = prefix.trim_end_matches('/');
            let rest = whole.strip_prefix(prefix)?;
            (0, (rest.is_empty() || rest.starts_with('/')).then_some(prefix.len())?)
        }
    };
    let exactly =
        |wanted: &TextMatch, value: &str| matches!(wanted, TextMatch::Exact(text) if **text == *value);
    let first = |name: &Name| {
        let mut pairs = asked.query.split('&').map(|it| it.split_once('=').unwrap_or((it, "")));
        pairs.find(|(it, _)| plain_query(it) == name.as_str()).map(|(_, value)| plain_query(value))
    };
    let all = it.method.as_ref().is_none_or(|it| **it == *asked.method)
        && it.headers.iter().all(|(_, wanted)| asked.header.is_some_and(|it| exactly(wanted, it)))
        && it.query.iter().all(|(name, wanted)| first(name).is_some_and(|it| exactly(wanted, &it)));
    let (headers, query) = (it.headers.len(), it.query.len());
    all.then_some(Rank { host, path, method: it.method.is_some(), headers, query })
}

fn host_fits(pattern: &HostPattern, host: &str) -> Option<(bool, usize)> {
    match pattern {
        _ if host.is_empty() => None,
        HostPattern::Exact(name) => (**name == *host).then_some((true, 0)),
        HostPattern::Under(suffix) => {
            host.strip_suffix(&**suffix)?.ends_with('.').then_some((false, 1 + suffix.len()))
        }
    }
}

fn plain(host: &str) -> String {
    let end = match host.strip_prefix('[') {
        Some(_) => host.find(']').map_or(host.len(), |end| end + 1),
        None => host.find(':').unwrap_or(host.len()),
    };
    let name = host[..end].strip_suffix('.').unwrap_or(&host[..end]).to_ascii_lowercase();
    if name.len() <= 254 { name } else { String::new() }
}

/// Escapes undone, where they come to text.
fn plain_query(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let number = (first, behind.get(..2));
        let escaped = match number {
            (b'%', Some(digits)) if digits.iter().all(u8::is_ascii_hexdigit) => {
                std::str::from_utf8(digits).ok().and_then(|it| u8::from_str_radix(it, 16).ok())
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if escaped.is_some() { &behind[2..] } else { behind };
    }
    // One that no text is equal to.
    String::from_utf8(bytes).unwrap_or_else(|_| "\0no text\0".to_owned())
}
