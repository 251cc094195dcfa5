//! Regular expressions of routes: whether each is one, and whether a request that is compared with it takes little time.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use regex::bytes::RegexBuilder;
use regex_automata::{
    MatchKind,
    dfa::{StartKind, dense},
    nfa::thompson::{self, WhichCaptures},
};
use regex_syntax::ParserBuilder;
use seaway_model::Name;

/// What `snapshot` lets a compiled pattern take.
const SIZE: usize = 1 << 20;
/// Where many share the front door: compiling one takes a few milliseconds at most.
const SHARED_SIZE: usize = 1 << 18;
/// The largest automaton of a pattern. `snapshot` builds those up to 64 KiB; of larger ones `regex` keeps the states that a text
/// needs, up to 2 MiB: both read each byte once. What exceeds that can take a worker half a second for a request of 16 KiB
/// (`(a|b)*a(a|b){1500}`).
const AUTOMATON: usize = 256 << 10;

/// Why a pattern is not used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PatternError {
    /// In the words of the compiler.
    NoPattern(String),
    /// Requests that are compared with it would keep others waiting.
    Slow,
}

/// What was found out of a pattern.
pub(super) type PatternResult = Result<(), PatternError>;

/// What was found out of the patterns that routes have at the moment. A route is planned again whenever endpoints of its
/// Services change, and to compile a pattern takes up to some milliseconds.
#[derive(Debug, Default)]
pub(super) struct PatternCache {
    shared: bool,
    /// Guests hold the verdicts: of a pattern that no route has any more nothing is known.
    known: HashMap<Name, Weak<PatternResult>>,
    /// As many are looked through for those that no route has any more.
    sweep_at: usize,
}

/// Fewer are not worth looking through.
const FEW: usize = 64;

impl PatternCache {
    /// `shared`: those who write patterns do not trust each other.
    pub(super) fn verdict(&mut self, pattern: &Name, shared: bool) -> Arc<PatternResult> {
        if self.shared != shared {
            *self = PatternCache { shared, ..PatternCache::default() };
        }
        if let Some(known) = self.known.get(pattern).and_then(Weak::upgrade) {
            return known;
        }
        if self.known.len() >= self.sweep_at.max(FEW) {
            self.known.retain(|_, it| it.strong_count() > 0);
            self.sweep_at = self.known.len().saturating_mul(2);
        }
        let verdict = Arc::new(check(pattern, shared));
        self.known.insert(pattern.clone(), Arc::downgrade(&verdict));
        verdict
    }
}

fn check(pattern: &str, shared: bool) -> PatternResult {
    #[cfg(test)]
    COMPILED.set(COMPILED.get().saturating_add(1));
    let size = if shared { SHARED_SIZE } else { SIZE };
    // As `snapshot` compiles it: it speaks of the whole text. `a)|(b` would be one of these alone, and speak of less.
    let compile = |text: &str| RegexBuilder::new(text).size_limit(size).build();
    let by_itself = if pattern.contains(')') { compile(pattern).map(drop) } else { Ok(()) };
    let compiled = by_itself.and_then(|()| compile(&whole(pattern)));
    compiled.map_err(|error| {
        let text = error.to_string();
        PatternError::NoPattern(
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        )
    })?;
    if shared && !is_small(pattern) {
        return Err(PatternError::Slow);
    }
    Ok(())
}

/// It is an automaton of a bounded size for ASCII, as `snapshot` builds them.
fn is_small(pattern: &str) -> bool {
    let Ok(parsed) = ParserBuilder::new().utf8(false).build().parse(&whole(pattern)) else { return false };
    let states = thompson::Config::new().utf8(false).which_captures(WhichCaptures::None);
    let states = states.nfa_size_limit(Some(SIZE));
    let Ok(nfa) = thompson::Compiler::new().configure(states).build_from_hir(&parsed) else { return false };
    let mut tables = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(StartKind::Anchored)
        .accelerate(false)
        .unicode_word_boundary(true)
        .dfa_size_limit(Some(AUTOMATON))
        .determinize_size_limit(Some(AUTOMATON));
    for byte in 0x80..=0xff {
        tables = tables.quit(byte, true);
    }
    dense::Builder::new().configure(tables).build_from_nfa(&nfa).is_ok()
}

fn whole(pattern: &str) -> String {
    format!("^(?:{pattern})$")
}

#[cfg(test)]
std::thread_local! {
    /// How many patterns this thread has compiled.
    pub(super) static COMPILED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_out_is_kept_as_long_as_a_route_has_the_pattern() {
        let (mut patterns, compiled) = (PatternCache::default(), || COMPILED.get());
        let before = compiled();
        let verdicts: Vec<_> =
            (0..10 * FEW).map(|it| patterns.verdict(&format!("/{it}").into(), true)).collect();
        let again = patterns.verdict(&"/0".into(), true);
        assert!(Arc::ptr_eq(&again, &verdicts[0]) && again.is_ok());
        assert_eq!(compiled() - before, 10 * FEW);
        // Other rules, and other verdicts.
        assert!(patterns.verdict(&"(?:a|b)*a(?:a|b){14}".into(), true).is_err());
        assert!(patterns.verdict(&"(?:a|b)*a(?:a|b){14}".into(), false).is_ok());
        // What no route has is not kept.
        drop((verdicts, again));
        for it in 0..100 * FEW {
            patterns.verdict(&format!("/{it}").into(), true);
        }
        assert!(patterns.known.len() <= 2 * FEW, "{}", patterns.known.len());
    }

    #[test]
    fn what_could_keep_a_worker_is_refused_where_many_share_it() {
        for (pattern, is_small) in [
            ("/shop/[^/]+/items(/\\w+)?", true),
            ("(?i).*mobile.*", true),
            (".*\\bMobile\\b.*", true),
            (".*(?:^|; )session=(\\w+)(?:;.*)?", true),
            ("(.*; *)?user=[^;]*beta[^;]*(;.*)?", true),
            ("/(a|b|[a-f])*(x|y){1,20}63.*", true),
            ("Bearer [A-Za-z0-9._-]+", true),
            ("ä.*", true),
            ("/(login|cart){1,50}/0.*", true),
            ("(?:a|b)*a(?:a|b){1500}", false),
            ("(?:a|b)*a(?:a|b){14}", false),
            (".*[ab].{30}c", false),
        ] {
            let expected = if is_small { Ok(()) } else { Err(PatternError::Slow) };
            assert_eq!(check(pattern, true), expected, "{pattern}");
            assert_eq!(check(pattern, false), Ok(()), "{pattern} in a folder");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told_in_the_words_of_the_compiler() {
        for (pattern, shared) in [("(", true), ("/a)|(/b", false), ("\\w{1,20}", true), ("(?=a)", false)] {
            assert!(matches!(check(pattern, shared), Err(PatternError::NoPattern(_))), "{pattern}");
        }
    }
}
