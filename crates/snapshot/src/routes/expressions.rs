//! The regular expressions of one host: many are one automaton, which reads each byte of a path once.
//!
//! ```text
//!   expressions in their order ──► by namespace, 64 at a time ──► automata of bounded size ──► the first that matches and fits
//! ```
//!
//! An automaton that would be too large is split in two, down to one expression for each. What is too large even then, or
//! says something that no automaton decides at the end of a text, is tried by itself, as is a text that is not ASCII:
//! a request target always is (RFC 3986), and the tables for ASCII alone are small. Nothing that is found depends on it.
//!
//! Namespaces have automata of their own: no expression makes those of others larger, and a change compiles only those of
//! its namespace again. Hosts with the same expressions share what was compiled.

use std::{
    collections::{BTreeMap, HashMap},
    slice,
    sync::{Arc, Weak},
};

use regex::bytes::{Regex, RegexBuilder};
use regex_automata::{
    Anchored, Input, MatchKind,
    dfa::{Automaton, StartKind, dense},
    nfa::thompson::{self, WhichCaptures},
    util::primitives::StateID,
};
use regex_syntax::{ParserBuilder, hir::Look};
use seaway_model::Name;

/// What a compiled expression may take by itself, so that one route cannot take it all.
const SIZE: usize = 1 << 20;
/// As many as a namespace may have in a cluster.
const MOST_TOGETHER: usize = 64;
/// Of those it is found out soon that they are too large.
const FEW: usize = 8;
/// Bytes of an automaton for each of its expressions, and at least for two.
const TABLE: usize = 32 << 10;

/// What is compiled at the moment, so that nothing is compiled twice.
#[derive(Clone, Debug)]
pub(super) struct Compiler {
    /// Of an automaton, for each of its expressions.
    table: usize,
    alone: HashMap<Name, Weak<Regex>>,
    together: HashMap<Vec<Name>, Weak<[ExpressionSet]>>,
}

/// One expression, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) text: Name,
    pub(super) namespace: Name,
    pub(super) regex: Arc<Regex>,
}

/// The compiled expressions of one host. If several match, the one with the lowest index in the list of routes wins.
#[derive(Clone, Debug, Default)]
pub(super) struct Expressions {
    /// By the lowest index of each.
    groups: Box<[Group]>,
}

#[derive(Clone, Debug)]
struct Group {
    /// In the list, ascending; never empty.
    indices: Box<[u32]>,
    /// All sets of a group, and which of them this is.
    sets: Arc<[ExpressionSet]>,
    which: usize,
}

/// Expressions that are tried at once.
#[derive(Debug)]
struct ExpressionSet {
    members: Box<[RegexEntry]>,
    automaton: Option<dense::DFA<Vec<u32>>>,
}

/// One of a group.
#[derive(Clone, Debug)]
struct RegexEntry {
    at: usize,
    text: Name,
    regex: Arc<Regex>,
}

impl Default for Compiler {
    fn default() -> Compiler {
        Compiler { table: TABLE, alone: HashMap::new(), together: HashMap::new() }
    }
}

impl Compiler {
    /// An expression speaks of the whole text, as in Gateway API.
    pub(super) fn whole(&mut self, text: &Name) -> Option<Arc<Regex>> {
        if let Some(known) = self.alone.get(text).and_then(Weak::upgrade) {
            return Some(known);
        }
        let regex = Arc::new(RegexBuilder::new(&whole(text)).size_limit(SIZE).build().ok()?);
        self.alone.insert(text.clone(), Arc::downgrade(&regex));
        Some(regex)
    }

    pub(super) fn expressions<'e>(&mut self, list: impl Iterator<Item = &'e Expression>) -> Expressions {
        let mut by_namespace: BTreeMap<&Name, Vec<(u32, &Expression)>> = BTreeMap::new();
        for (place, it) in (0..).zip(list) {
            by_namespace.entry(&it.namespace).or_default().push((place, it));
        }
        let mut groups = Vec::new();
        for group in by_namespace.values().flat_map(|its| its.chunks(MOST_TOGETHER)) {
            let sets = self.sets(group);
            for (which, set) in sets.iter().enumerate() {
                let indices = set.members.iter().filter_map(|it| group.get(it.at)).map(|(place, _)| *place);
                groups.push(Group { indices: indices.collect(), sets: sets.clone(), which });
            }
        }
        groups.sort_by_key(|it| it.indices.first().copied());
        Expressions { groups: groups.into() }
    }

    fn sets(&mut self, group: &[(u32, &Expression)]) -> Arc<[ExpressionSet]> {
        let texts: Vec<Name> = group.iter().map(|(_, it)| it.text.clone()).collect();
        if let Some(known) = self.together.get(&texts).and_then(Weak::upgrade) {
            return known;
        }
        let members = group.iter().enumerate().map(|(at, (_, it))| RegexEntry {
            at,
            text: it.text.clone(),
            regex: it.regex.clone(),
        });
        let sets = Arc::from(ExpressionSet::all(members.collect(), self.table));
        self.together.insert(texts, Arc::downgrade(&sets));
        sets
    }

    /// Lets go of what nobody has any more.
    pub(super) fn forget_unused(&mut self) {
        self.alone.retain(|_, it| it.strong_count() > 0);
        self.together.retain(|_, it| it.strong_count() > 0);
    }
}

impl Expressions {
    /// The first of the list that matches the whole text and fits.
    pub(super) fn first(&self, text: &[u8], fits: impl Fn(usize) -> bool) -> Option<usize> {
        let mut first = u32::MAX;
        for it in &self.groups {
            if it.indices.first().is_none_or(|place| *place >= first) {
                break;
            }
            let Some(set) = it.sets.get(it.which) else { continue };
            set.each_match(text, &it.indices, |place, matches| {
                if place < first && matches() && fits(place as usize) {
                    first = place;
                }
            });
        }
        (first < u32::MAX).then_some(first as usize)
    }
}

impl ExpressionSet {
    /// As few as there can be, each of a bounded size.
    fn all(members: Vec<RegexEntry>, table: usize) -> Vec<ExpressionSet> {
        let (several, alone): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|it| automaton(slice::from_ref(it), table).is_some());
        let alone = alone.into_iter().map(|it| ExpressionSet { members: [it].into(), automaton: None });
        let mut sets = if several.is_empty() { Vec::new() } else { ExpressionSet::join(&several, table) };
        sets.extend(alone);
        sets
    }

    /// What is found too large takes time as well: many are tried only if each half of them is one automaton.
    fn join(members: &[RegexEntry], table: usize) -> Vec<ExpressionSet> {
        let set = |automaton| vec![ExpressionSet { members: members.into(), automaton }];
        let halves = || {
            let (one, other) = members.split_at(members.len() / 2);
            [ExpressionSet::join(one, table), ExpressionSet::join(other, table)]
        };
        if members.len() <= FEW {
            return match automaton(members, table) {
                None if members.len() > 1 => halves().into_iter().flatten().collect(),
                automaton => set(automaton),
            };
        }
        let halves = halves();
        match halves.iter().all(|it| it.len() == 1).then(|| automaton(members, table)).flatten() {
            Some(automaton) => set(Some(automaton)),
            None => halves.into_iter().flatten().collect(),
        }
    }

    /// Tells the place of each that may match, in no order; whether it does may take time.
    fn each_match(&self, text: &[u8], indices: &[u32], mut tell: impl FnMut(u32, &dyn Fn() -> bool)) {
        let Some(ends) = self.automaton.as_ref().and_then(|it| Some((it, end(it, text)?))) else {
            for (it, place) in self.members.iter().zip(indices) {
                tell(*place, &|| it.regex.is_match(text));
            }
            return;
        };
        let (automaton, state) = ends;
        if automaton.is_match_state(state) {
            for index in 0..automaton.match_len(state) {
                let which = automaton.match_pattern(state, index).as_usize();
                if let Some(place) = indices.get(which) {
                    tell(*place, &|| true);
                }
            }
        }
    }
}

/// Where an automaton is after the whole text; `None`: there is something in it that it does not know.
fn end(automaton: &dense::DFA<Vec<u32>>, text: &[u8]) -> Option<StateID> {
    let mut state = automaton.start_state_forward(&Input::new(text).anchored(Anchored::Yes)).ok()?;
    for byte in text {
        state = automaton.next_state(state, *byte);
        if automaton.is_special_state(state) {
            if automaton.is_dead_state(state) {
                return Some(state);
            }
            if automaton.is_quit_state(state) {
                return None;
            }
        }
    }
    Some(automaton.next_eoi_state(state))
}

/// That of all expressions; `None`: it would be too large, or one of them cannot be a part of one.
fn automaton(members: &[RegexEntry], table: usize) -> Option<dense::DFA<Vec<u32>>> {
    let parsed = members.iter().map(|it| {
        let parsed = ParserBuilder::new().utf8(false).build().parse(&whole(&it.text)).ok()?;
        let about = parsed.properties();
        // `a)|(b` speaks of less than the whole text: it is allowed, and nobody means it.
        let is_whole =
            about.look_set_prefix().contains(Look::Start) && about.look_set_suffix().contains(Look::End);
        is_whole.then_some(parsed)
    });
    let parsed: Vec<_> = parsed.collect::<Option<_>>()?;
    let most = table.saturating_mul(members.len().max(2));
    let states = thompson::Config::new()
        .utf8(false)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(SIZE.max(most)));
    let nfa = thompson::Compiler::new().configure(states).build_many_from_hir(&parsed).ok()?;
    let mut tables = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(StartKind::Anchored)
        .accelerate(false)
        .unicode_word_boundary(true)
        .dfa_size_limit(Some(most))
        .determinize_size_limit(Some(most));
    for byte in 0x80..=0xff {
        tables = tables.quit(byte, true);
    }
    dense::Builder::new().configure(tables).build_from_nfa(&nfa).ok()
}

fn whole(text: &str) -> String {
    format!("^(?:{text})$")
}

#[cfg(test)]
mod tests;
