//! Regular expressions of routes: whether each is one, and whether a request that is compared with it takes little time.

use regex::bytes::RegexBuilder;
use regex_automata::{
    MatchKind,
    dfa::{StartKind, dense},
    nfa::thompson::{self, WhichCaptures},
};
use regex_syntax::ParserBuilder;

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
pub(super) enum Fault {
    /// In the words of the compiler.
    NoPattern(String),
    /// Requests that are compared with it would keep others waiting.
    Slow,
}

/// `shared`: those who write patterns do not trust each other.
pub(super) fn check(pattern: &str, shared: bool) -> Result<(), Fault> {
    let size = if shared { SHARED_SIZE } else { SIZE };
    // As `snapshot` compiles it: it speaks of the whole text. `a)|(b` would be one of these alone, and speak of less.
    let compile = |text: &str| RegexBuilder::new(text).size_limit(size).build();
    let by_itself = if pattern.contains(')') { compile(pattern).map(drop) } else { Ok(()) };
    let compiled = by_itself.and_then(|()| compile(&whole(pattern)));
    compiled.map_err(|error| {
        let text = error.to_string();
        Fault::NoPattern(text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
    })?;
    if shared && !is_small(pattern) {
        return Err(Fault::Slow);
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
mod tests {
    use super::*;

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
            let expected = if is_small { Ok(()) } else { Err(Fault::Slow) };
            assert_eq!(check(pattern, true), expected, "{pattern}");
            assert_eq!(check(pattern, false), Ok(()), "{pattern} in a folder");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told_in_the_words_of_the_compiler() {
        for (pattern, shared) in [("(", true), ("/a)|(/b", false), ("\\w{1,20}", true), ("(?=a)", false)] {
            assert!(matches!(check(pattern, shared), Err(Fault::NoPattern(_))), "{pattern}");
        }
    }
}
