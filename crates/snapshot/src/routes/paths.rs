//! The rules of one host, by path.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use regex::bytes::Regex;
use seaway_model::{
    Name,
    load_balancer::{Match, PathMatch, TextMatch},
};

use super::{
    NumberedRule, RequestParts, RouteMatch, Text,
    changes::HostChange,
    expressions::{Compiler, Expression, Expressions},
};

/// Cheap to clone: what no change touches is shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    exact: HashMap<Text, Arc<[Candidate]>>,
    patterns: Arc<[(Expression, Candidate)]>,
    /// The same list, compiled.
    expressions: Expressions,
    /// Without the slash at the end.
    prefixes: HashMap<Text, Arc<[Candidate]>>,
    /// Segments of the longest prefix there ever was: no more of a path is looked at.
    deepest: usize,
}

/// One match of one rule, whose path fits.
#[derive(Clone, Debug)]
struct Candidate {
    rule: u32,
    method: Option<Name>,
    headers: Box<[(Name, ValueMatcher)]>,
    query: Box<[(Name, ValueMatcher)]>,
}

#[derive(Clone, Debug)]
enum ValueMatcher {
    Exact(Name),
    Pattern(Arc<Regex>),
}

/// What a match says of the path, as it is looked up.
#[derive(PartialEq, Eq, Hash)]
enum PathKey {
    Exact(Text),
    Pattern,
    Prefix(Text),
}

impl Paths {
    /// `places`: where each rule is in the list.
    pub(super) fn change(&mut self, change: HostChange<'_>, places: &[u32], compiler: &mut Compiler) {
        let mut touched: HashMap<PathKey, Vec<Candidate>> = HashMap::new();
        for asked in change.gone.iter().flat_map(|it| matches(it)) {
            touched.entry(PathKey::of(asked)).or_default();
        }
        let mut patterns = Vec::new();
        for it in &change.fresh {
            for asked in matches(it) {
                let Some(candidate) = Candidate::new(it.number, asked, compiler) else { continue };
                match PathKey::of(asked) {
                    PathKey::Pattern => {
                        patterns.extend(expression(it, asked, compiler).map(|it| (it, candidate)));
                    }
                    place => touched.entry(place).or_default().push(candidate),
                }
            }
        }
        let mut gone: Vec<u32> = change.gone.iter().map(|it| it.number).collect();
        gone.sort_unstable();
        let stays = |it: &Candidate| gone.binary_search(&it.rule).is_err();
        if touched.remove(&PathKey::Pattern).is_some() || !patterns.is_empty() {
            let staying = self.patterns.iter().filter(|(_, it)| stays(it)).cloned();
            patterns.extend(staying);
            patterns.sort_by_key(|(_, it)| it.rank(places));
            self.expressions = compiler.expressions(patterns.iter().map(|(it, _)| it));
            self.patterns = patterns.into();
        }
        for (place, mut list) in touched {
            let (map, text) = match place {
                PathKey::Exact(text) => (&mut self.exact, text),
                PathKey::Prefix(text) => {
                    self.deepest = self.deepest.max(text.0.matches('/').count());
                    (&mut self.prefixes, text)
                }
                PathKey::Pattern => continue,
            };
            let known = map.get(&text).into_iter().flat_map(|it| it.iter());
            list.extend(known.filter(|it| stays(it)).cloned());
            list.sort_by_key(|it| it.rank(places));
            match list.is_empty() {
                true => map.remove(&text),
                false => map.insert(text, list.into()),
            };
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.patterns.is_empty() && self.prefixes.is_empty()
    }

    pub(super) fn find(&self, asked: &impl RequestParts) -> Option<RouteMatch> {
        // An absolute target may have no path at all.
        let path = if asked.path().is_empty() { b"/" } else { asked.path() };
        let first = |list: &[Candidate]| list.iter().find(|it| it.fits(asked)).map(|it| it.rule as usize);
        if let Some(rule) = self.exact.get(path).and_then(|list| first(list)) {
            return Some(RouteMatch { rule, prefix: path.len() });
        }
        let fits = |place: usize| self.patterns.get(place).is_some_and(|(_, it)| it.fits(asked));
        let pattern = self.expressions.first(path, fits).and_then(|place| self.patterns.get(place));
        if let Some((_, found)) = pattern {
            return Some(RouteMatch { rule: found.rule as usize, prefix: path.len() });
        }
        let mut prefix = self.beginning(path);
        loop {
            if let Some(rule) = self.prefixes.get(prefix).and_then(|list| first(list)) {
                return Some(RouteMatch { rule, prefix: prefix.len() });
            }
            prefix = prefix.get(..prefix.iter().rposition(|byte| *byte == b'/')?)?;
        }
    }

    /// As many whole segments as the longest prefix has.
    fn beginning<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        // The slash after the last segment that counts.
        slashes.nth(self.deepest).and_then(|end| path.get(..end)).unwrap_or(path)
    }
}

impl PathKey {
    fn of(asked: &Match) -> PathKey {
        match &asked.path {
            Some(PathMatch::Exact(path)) => PathKey::Exact(Text(path.clone())),
            Some(PathMatch::Regex(_)) => PathKey::Pattern,
            Some(PathMatch::Prefix(prefix)) => PathKey::Prefix(Text(match prefix.trim_end_matches('/') {
                whole if whole.len() == prefix.len() => prefix.clone(),
                trimmed => trimmed.into(),
            })),
            None => PathKey::Prefix(Text(Name::default())),
        }
    }
}

/// A rule without matches is for everything.
fn matches(numbered: &NumberedRule) -> &[Match] {
    const EVERYTHING: &[Match] =
        &[Match { path: None, method: None, headers: Vec::new(), query: Vec::new() }];
    if numbered.rule.matches.is_empty() { EVERYTHING } else { &numbered.rule.matches }
}

fn expression(of: &NumberedRule, asked: &Match, compiler: &mut Compiler) -> Option<Expression> {
    let Some(PathMatch::Regex(text)) = &asked.path else { return None };
    let namespace = of.rule.owner.object().namespace;
    Some(Expression { text: text.clone(), namespace, regex: compiler.whole(text)? })
}

impl Candidate {
    fn new(rule: u32, asked: &Match, compiler: &mut Compiler) -> Option<Candidate> {
        let mut texts = |all: &[(Name, TextMatch)]| -> Option<Box<[_]>> {
            all.iter().map(|(name, text)| Some((name.clone(), ValueMatcher::new(text, compiler)?))).collect()
        };
        Some(Candidate {
            rule,
            method: asked.method.clone(),
            headers: texts(&asked.headers)?,
            query: texts(&asked.query)?,
        })
    }

    /// Who is first among those with the same path.
    fn rank(&self, places: &[u32]) -> (Reverse<bool>, Reverse<usize>, Reverse<usize>, u32) {
        let place = places.get(self.rule as usize).copied().unwrap_or(u32::MAX);
        (Reverse(self.method.is_some()), Reverse(self.headers.len()), Reverse(self.query.len()), place)
    }

    fn fits(&self, asked: &impl RequestParts) -> bool {
        self.method.as_ref().is_none_or(|method| method.as_bytes() == asked.method())
            && self
                .headers
                .iter()
                .all(|(name, text)| asked.header(name.as_bytes()).is_some_and(|it| text.is(it)))
            && self.query.iter().all(|(name, text)| parameter_is(asked.query(), name.as_bytes(), text))
    }
}

impl ValueMatcher {
    fn new(text: &TextMatch, compiler: &mut Compiler) -> Option<ValueMatcher> {
        match text {
            TextMatch::Exact(text) => Some(ValueMatcher::Exact(text.clone())),
            TextMatch::Regex(pattern) => compiler.whole(pattern).map(ValueMatcher::Pattern),
        }
    }

    fn is(&self, value: &[u8]) -> bool {
        match self {
            ValueMatcher::Exact(text) => text.as_bytes() == value,
            ValueMatcher::Pattern(pattern) => pattern.is_match(value),
        }
    }
}

/// The first parameter of that name, its escapes undone.
fn parameter_is(query: &[u8], wanted: &[u8], text: &ValueMatcher) -> bool {
    let mut parameters = query.split(|byte| *byte == b'&').map(|parameter| {
        let at = parameter.iter().position(|byte| *byte == b'=').unwrap_or(parameter.len());
        let (name, value) = parameter.split_at(at);
        (name, value.get(1..).unwrap_or_default())
    });
    let Some((_, value)) = parameters.find(|(name, _)| unescaped(name, true).eq(wanted.iter().copied()))
    else {
        return false;
    };
    match text {
        ValueMatcher::Exact(text) => unescaped(value, true).eq(text.bytes()),
        // Few ask with a pattern for what is escaped; they pay for it.
        ValueMatcher::Pattern(pattern) if value.iter().any(|byte| matches!(byte, b'%' | b'+')) => {
            pattern.is_match(&unescaped(value, true).collect::<Vec<u8>>())
        }
        ValueMatcher::Pattern(pattern) => pattern.is_match(value),
    }
}

/// `%41`, and `+` as forms write it. Each request that has such a rule comes by here, so nothing is copied; the crate
/// `percent-encoding` knows no `+`, which would have to be replaced in a copy before.
pub(super) fn unescaped(text: &[u8], is_form: bool) -> impl Iterator<Item = u8> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let (first, behind) = rest.split_first()?;
        let (byte, after) = match (first, behind) {
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'%', behind),
            },
            (b'+', _) if is_form => (b' ', behind),
            (byte, _) => (*byte, behind),
        };
        rest = after;
        Some(byte)
    })
}

#[cfg(test)]
impl Paths {
    /// Prefixes that do not share what was made of them.
    pub(super) fn unlike(&self, other: &Paths) -> Vec<&str> {
        let shared = |text: &Text, list| other.prefixes.get(text).is_some_and(|it| Arc::ptr_eq(it, list));
        self.prefixes.iter().filter(|(text, list)| !shared(text, list)).map(|(text, _)| &*text.0).collect()
    }
}
