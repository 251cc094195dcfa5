//! Which location gets a request where some are within others, and which spellings of a path are protected.

use std::collections::BTreeSet;

use super::{
    super::{
        expression::needless_escapes,
        proxy::PathRule,
        write::{REST, escaped},
    },
    context::Context,
    location::{Kind, Location},
};

const NESTED: &str = "a nested location applies only within its parent: write it at the level of the server, with its full path";
const MIXED: &str =
    "an HTTPRoute cannot express the order between regular-expression locations and ^~ locations here";

/// Locations without those that get no request. Of what an HTTPRoute cannot say, the locations around are closed.
pub(super) fn settled<'d>(mut all: Vec<Location<'d>>, context: &mut Context) -> Vec<Location<'d>> {
    let mut gone = BTreeSet::new();
    for at in 0..all.len() {
        let Some(it) = all.get(at).filter(|it| it.kind != Kind::Named && !it.inside.is_empty()) else {
            continue;
        };
        let around: Vec<&Location<'_>> = it.inside.iter().filter_map(|it| all.get(*it)).collect();
        let is_prefix = |it: &Location<'_>| matches!(it.kind, Kind::Prefix | Kind::Priority);
        // Longer prefixes beside those around it get their requests first.
        let beside: Vec<&Location<'_>> = all
            .iter()
            .filter(|of| {
                is_prefix(of)
                    && around.iter().any(|a| {
                        a.inside == of.inside && of.path.len() > a.path.len() && of.path.starts_with(&a.path)
                    })
            })
            .filter(|of| !around.iter().any(|a| std::ptr::eq(*a, *of)))
            .collect();
        let mut is_unsaid = !around.iter().all(|it| is_prefix(it));
        let mut path = it.path.clone();
        let mut kind = it.kind;
        let mut any_case = it.any_case;
        let mut closed = None;
        let first = around.iter().any(|it| it.kind == Kind::Priority);
        match it.kind {
            Kind::Regex => {
                let below = around.last().map_or("/", |it| it.path.as_str());
                let text = below_of(below, &it.path, it.any_case);
                is_unsaid |= first || !beside.is_empty() || text.is_none();
                path = text.unwrap_or_default();
                any_case = any_case && path == it.path;
            }
            _ if is_unsaid => {}
            _ if beside.iter().any(|of| it.path.starts_with(&of.path)) => {
                context.report.left_out(
                    &it.directive.place,
                    "never matched: a longer location outside of this block takes its requests",
                );
                gone.insert(at);
                continue;
            }
            Kind::Prefix | Kind::Priority => {
                let is_beside = |of: &Location<'_>| of.kind == Kind::Regex && !of.inside.is_empty();
                let is_mixed = match first {
                    true => all.iter().any(is_beside),
                    false => it.kind == Kind::Priority && all.iter().any(|it| it.kind == Kind::Regex),
                };
                kind = if first { Kind::Priority } else { kind };
                closed = is_mixed.then_some(MIXED);
            }
            _ => {}
        }
        if is_unsaid {
            gone.insert(at);
            let (place, outer) = (it.directive.place.clone(), it.inside.clone());
            context.report.left_out(
                &place,
                "this nested location cannot be written as an HTTPRoute: the location that contains it is closed (403)",
            );
            for of in outer {
                close(all.get_mut(of), NESTED, context);
            }
        } else if let Some(it) = all.get_mut(at) {
            (it.path, it.kind, it.any_case) = (path, kind, any_case);
            closed.into_iter().for_each(|why| close(Some(it), why, context));
        }
    }
    // A longer prefix in one with ^~: expressions count there, and do not around it.
    if all.iter().any(|it| it.kind == Kind::Regex) {
        let first: Vec<String> =
            all.iter().filter(|it| it.kind == Kind::Priority).map(|it| it.path.clone()).collect();
        for it in all.iter_mut().filter(|it| it.kind == Kind::Prefix) {
            if first.iter().any(|of| it.path.len() > of.len() && it.path.starts_with(of.as_str())) {
                it.kind = Kind::Priority;
                close(Some(it), MIXED, context);
            }
        }
    }
    let mut at = 0..all.len();
    all.retain(|_| at.next().is_some_and(|at| !gone.contains(&at)));
    all
}

fn close(it: Option<&mut Location<'_>>, why: &str, context: &mut Context) {
    let Some(it) = it else { return };
    context.report.closed(&it.directive.place, why);
    it.closed.get_or_insert_with(|| why.to_owned());
}

/// An expression that is searched for below a path. `None`: where it begins cannot be told.
fn below_of(path: &str, text: &str, any_case: bool) -> Option<String> {
    let mut depth = 0_i32;
    for it in text.chars() {
        match it {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            '|' if depth <= 0 => return None,
            _ => {}
        }
    }
    if path == "/" {
        return Some(text.to_owned());
    }
    if let Some(rest) = text.strip_prefix('^') {
        return (!any_case && literal(rest).starts_with(path)).then(|| text.to_owned());
    }
    // Its first letter is not in the path, so that it begins behind it.
    let first = literal(text).chars().next()?;
    let is_in = path.chars().any(|it| it.eq_ignore_ascii_case(&first));
    let text = if any_case { format!("(?i:{text})") } else { text.to_owned() };
    (!is_in).then(|| format!("^{}{REST}{text}", escaped(path)))
}

/// The letters that each match of an expression begins with.
fn literal(text: &str) -> String {
    let mut found = String::new();
    let mut rest = text.chars().peekable();
    while let Some(it) = rest.next() {
        let letter = match it {
            '\\' => rest.next().filter(|it| !it.is_ascii_alphanumeric()),
            '.' | '[' | ']' | '(' | ')' | '{' | '}' | '*' | '+' | '?' | '|' | '^' | '$' => None,
            it => Some(it),
        };
        let Some(letter) = letter else { break };
        if rest.peek().is_some_and(|it| "?*{".contains(*it)) {
            break;
        }
        found.push(letter);
    }
    found
}

/// An expression for paths with as many slashes as the client sent where nginx sees one, and whether a class has a slash.
pub(super) fn merged(text: &str) -> (String, bool) {
    let mut made = String::new();
    let (mut class, mut in_class) = (false, String::new());
    let mut is_unsure = false;
    let mut rest = text.chars().peekable();
    while let Some(it) = rest.next() {
        let escaped = if it == '\\' { rest.next() } else { None };
        let is_slash = it == '/' || escaped == Some('/');
        if class {
            in_class.push(it);
            is_unsure |= is_slash && !in_class.starts_with('^');
            made.push(it);
            made.extend(escaped);
            class = it != ']' || in_class.len() == 1;
            continue;
        }
        if is_slash {
            let many = rest.peek().is_some_and(|it| "?*+{".contains(*it));
            made.push_str(if many { "(?:(?:/|%2[fF])+)" } else { "(?:/|%2[fF])+" });
            continue;
        }
        if it == '[' {
            (class, in_class) = (true, String::new());
        }
        made.push(it);
        made.extend(escaped);
    }
    (made, is_unsure)
}

/// Whether a slash may be where an expression has another sign: it is sent as `/` or as `%2F`, which is three letters.
fn may_match_slash(text: &str) -> bool {
    let mut rest = text.chars().peekable();
    while let Some(it) = rest.next() {
        let is_one = match it {
            '\\' => rest.next().is_some_and(|it| it.is_ascii_alphanumeric() && !"dw".contains(it)),
            '.' => true,
            '[' => {
                let class: String = rest.by_ref().take_while(|it| *it != ']').collect();
                !class.chars().all(|it| it.is_ascii_alphanumeric() || "_-".contains(it))
                    || class.is_empty()
                    || class.starts_with('-')
                    || class.contains("--")
            }
            _ => false,
        };
        // Of any number of letters, three are some as well.
        let is_many = rest.peek().is_some_and(|it| "*+".contains(*it)) && it != '\\';
        if is_one && !(it == '.' && is_many) {
            return true;
        }
    }
    false
}

/// Spellings of protected paths that get 403, because their own routes do not match them.
#[derive(Default)]
pub(super) struct Spellings {
    all: BTreeSet<String>,
}

/// Longer paths have no expression for all of their spellings.
const LONG: usize = 60;

impl Spellings {
    pub(super) fn protect(&mut self, location: &Location<'_>, path: &PathRule, is_replaced: bool) {
        match path {
            PathRule::Regex(_) => {
                if location.kind == Kind::Regex && merged(&location.path).1 {
                    self.all.insert(format!("{REST}(?:/|%2[fF]){{2,}}{REST}"));
                }
            }
            PathRule::Prefix(path) | PathRule::Exact(path) if is_replaced || path.len() > LONG => {
                self.slashes(path);
                // `/adm` is the beginning of `/admin`, too.
                if location.kind != Kind::Exact && !path.ends_with('/') {
                    self.all.insert(format!("{}[^/]{REST}", escaped(path)));
                }
            }
            _ => return,
        }
        let usual = |it: char| it.is_ascii_alphanumeric() || "/._~-^$*+?()[]{}|\\".contains(it);
        let mut rest = location.path.chars().peekable();
        let mut is_usual = true;
        while let Some(it) = rest.next() {
            let next = rest.peek().copied().unwrap_or('/');
            is_usual &= usual(it)
                && (it != '\\' || (next != 's' && (next.is_ascii_alphanumeric() || "/._~-".contains(next))));
        }
        self.all.insert(match is_usual {
            true => needless_escapes(location.kind != Kind::Regex || may_match_slash(&location.path)),
            false => format!("{REST}%{REST}"),
        });
    }

    /// Which requests these are, for people.
    pub(super) fn described(&self) -> Option<String> {
        let (any, slash, usual) = (format!("{REST}%{REST}"), needless_escapes(true), needless_escapes(false));
        let has = |it: &String| self.all.contains(it);
        let escapes = match () {
            () if has(&any) => "any % in their paths, also %20 and %2F",
            () if has(&slash) => {
                "%2F in their paths, or an escape of a letter, a digit or one of - . _ ~ (%2D %2E %5F %7E %61 and so on)"
            }
            () if has(&usual) => {
                "an escape of a letter, a digit or one of - . _ ~ in their paths (%2D %2E %5F %7E %61 and so on)"
            }
            () if self.all.is_empty() => return None,
            () => "// in the restricted part of their paths",
        };
        Some(escapes.to_owned())
    }

    /// One expression for each slash that may be two; the path as it stands is no match.
    fn slashes(&mut self, path: &str) {
        let parts: Vec<&str> = path.trim_end_matches('/').split('/').skip(1).collect();
        for doubled in 0..parts.len() {
            let mut text = String::new();
            for (at, part) in parts.iter().enumerate() {
                text.push_str(if at == doubled { "/{2,}" } else { "/+" });
                text.push_str(&escaped(part));
            }
            self.all.insert(format!("{text}{REST}"));
        }
    }

    pub(super) fn expressions(self) -> Vec<String> {
        self.all.into_iter().collect()
    }
}
