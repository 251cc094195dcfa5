//! The rules of one host, by path.

use std::{cmp::Reverse, collections::HashMap};

use regex::bytes::{Regex, RegexBuilder};
use seaway_model::load_balancer::{Match, PathMatch, Rule, TextMatch};

use super::{Asked, Found};

/// What a compiled pattern may take, so that one route cannot take it all.
const PATTERN_SIZE: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Paths {
    exact: HashMap<Box<[u8]>, Vec<Candidate>>,
    patterns: Vec<(Regex, Candidate)>,
    /// Without the slash at the end.
    prefixes: HashMap<Box<[u8]>, Vec<Candidate>>,
    /// Segments of the longest prefix: no more of a path is looked at.
    deepest: usize,
}

/// One match of one rule, whose path fits.
#[derive(Debug)]
struct Candidate {
    rule: usize,
    method: Option<Box<[u8]>>,
    headers: Vec<(Box<[u8]>, Text)>,
    query: Vec<(Box<[u8]>, Text)>,
}

#[derive(Debug)]
enum Text {
    Exact(Box<[u8]>),
    Pattern(Regex),
}

impl Paths {
    pub(super) fn add(&mut self, index: usize, rule: &Rule) {
        let everything = [Match::default()];
        for one in if rule.matches.is_empty() { &everything[..] } else { &rule.matches } {
            let Some(candidate) = Candidate::new(index, one) else { continue };
            match &one.path {
                Some(PathMatch::Exact(path)) => {
                    self.exact.entry(path.as_bytes().into()).or_default().push(candidate);
                }
                Some(PathMatch::Regex(pattern)) => {
                    if let Some(pattern) = whole(pattern) {
                        self.patterns.push((pattern, candidate));
                    }
                }
                Some(PathMatch::Prefix(prefix)) => self.add_prefix(prefix.trim_end_matches('/'), candidate),
                None => self.add_prefix("", candidate),
            }
        }
    }

    fn add_prefix(&mut self, prefix: &str, candidate: Candidate) {
        self.deepest = self.deepest.max(prefix.matches('/').count());
        self.prefixes.entry(prefix.as_bytes().into()).or_default().push(candidate);
    }

    pub(super) fn sort(&mut self) {
        for list in self.exact.values_mut().chain(self.prefixes.values_mut()) {
            list.sort_by_key(Candidate::rank);
        }
        self.patterns.sort_by_key(|(_, candidate)| candidate.rank());
    }

    pub(super) fn find(&self, asked: &impl Asked) -> Option<Found> {
        // An absolute target may have no path at all.
        let path = if asked.path().is_empty() { b"/" } else { asked.path() };
        let first = |list: &[Candidate]| list.iter().find(|it| it.fits(asked)).map(|it| it.rule);
        if let Some(rule) = self.exact.get(path).and_then(|list| first(list)) {
            return Some(Found { rule, prefix: path.len() });
        }
        let mut patterns = self.patterns.iter();
        if let Some((_, found)) = patterns.find(|(pattern, it)| pattern.is_match(path) && it.fits(asked)) {
            return Some(Found { rule: found.rule, prefix: path.len() });
        }
        let mut prefix = self.beginning(path);
        loop {
            if let Some(rule) = self.prefixes.get(prefix).and_then(|list| first(list)) {
                return Some(Found { rule, prefix: prefix.len() });
            }
            prefix = &prefix[..prefix.iter().rposition(|byte| *byte == b'/')?];
        }
    }

    /// As many whole segments as the longest prefix has.
    fn beginning<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        // The slash after the last segment that counts.
        &path[..slashes.nth(self.deepest).unwrap_or(path.len())]
    }
}

impl Candidate {
    fn new(rule: usize, asked: &Match) -> Option<Candidate> {
        let texts = |all: &[(seaway_model::Name, TextMatch)]| -> Option<Vec<_>> {
            all.iter().map(|(name, text)| Some((Box::from(name.as_bytes()), Text::new(text)?))).collect()
        };
        Some(Candidate {
            rule,
            method: asked.method.as_ref().map(|method| method.as_bytes().into()),
            headers: texts(&asked.headers)?,
            query: texts(&asked.query)?,
        })
    }

    /// Who is first among those with the same path.
    fn rank(&self) -> (Reverse<bool>, Reverse<usize>, Reverse<usize>, usize) {
        (Reverse(self.method.is_some()), Reverse(self.headers.len()), Reverse(self.query.len()), self.rule)
    }

    fn fits(&self, asked: &impl Asked) -> bool {
        self.method.as_deref().is_none_or(|method| method == asked.method())
            && self.headers.iter().all(|(name, text)| asked.header(name).is_some_and(|it| text.is(it)))
            && self.query.iter().all(|(name, text)| parameter_is(asked.query(), name, text))
    }
}

impl Text {
    fn new(text: &TextMatch) -> Option<Text> {
        match text {
            TextMatch::Exact(text) => Some(Text::Exact(text.as_bytes().into())),
            TextMatch::Regex(pattern) => whole(pattern).map(Text::Pattern),
        }
    }

    fn is(&self, value: &[u8]) -> bool {
        match self {
            Text::Exact(text) => **text == *value,
            Text::Pattern(pattern) => pattern.is_match(value),
        }
    }
}

/// The first parameter of that name, its escapes undone.
fn parameter_is(query: &[u8], wanted: &[u8], text: &Text) -> bool {
    let mut parameters = query.split(|byte| *byte == b'&').map(|parameter| {
        let at = parameter.iter().position(|byte| *byte == b'=').unwrap_or(parameter.len());
        (&parameter[..at], parameter.get(at + 1..).unwrap_or_default())
    });
    let Some((_, value)) = parameters.find(|(name, _)| unescaped(name).eq(wanted.iter().copied())) else {
        return false;
    };
    match text {
        Text::Exact(text) => unescaped(value).eq(text.iter().copied()),
        // Few ask with a pattern for what is escaped; they pay for it.
        Text::Pattern(pattern) if value.iter().any(|byte| matches!(byte, b'%' | b'+')) => {
            pattern.is_match(&unescaped(value).collect::<Vec<u8>>())
        }
        Text::Pattern(pattern) => pattern.is_match(value),
    }
}

/// `%41` and `+`, as forms write them.
fn unescaped(text: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let (byte, length) = match rest {
            [] => return None,
            [b'%', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (b'%', 1),
            },
            [b'+', ..] => (b' ', 1),
            [byte, ..] => (*byte, 1),
        };
        rest = &rest[length..];
        Some(byte)
    })
}

/// A pattern speaks of the whole text, as in Gateway API.
fn whole(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(PATTERN_SIZE).build().ok()
}
