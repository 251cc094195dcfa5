//! HAProxy takes the first rule that fits; an HTTPRoute, the most exact one. So each rule is also written for what it has in
//! common with every later rule, before that.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use seaway_plan::quantity::network;

use super::super::{
    proxy::{Condition, PathRule, Route, Value},
    write::{REST, escaped},
};

/// As many routes as all combinations may come to.
const MOST: usize = 2_000;

/// Why a route is closed whose exact path an earlier expression may be for.
pub(super) const UNDECIDED: &str = "an earlier regular expression may match this path, too, and an HTTPRoute cannot keep their order: requests get 403";

/// What a rule does with requests that it is for.
pub(super) enum Effect {
    /// They go nowhere else.
    Ends(Box<Route>),
    /// They get 403. What other rules say of them is written as well, for those who open them again.
    Closes(Box<Route>),
    /// Only clients of these networks go on.
    Restricts(Vec<String>),
    ToHttps(bool),
}

/// Puts a rule before all of `routes`.
pub(super) fn put_before(condition: &Condition, effect: &Effect, routes: &mut Vec<Route>) -> Result<()> {
    let mut before: Vec<Route> = Vec::new();
    let mut after: Vec<Route> = Vec::new();
    if let Effect::Ends(route) = effect {
        before.push(Route { condition: condition.clone(), ..(**route).clone() });
    }
    for route in routes.drain(..) {
        let meeting = meet(condition, &route.condition);
        let is_undecided = matches!(meeting, Overlap::Unknown(_));
        let is_exact = matches!(meeting, Overlap::Exactly(_));
        let common = match (meeting, effect) {
            (Overlap::Exactly(common), _) | (Overlap::Wider(common), Effect::Ends(_) | Effect::Closes(_)) => {
                Some(common)
            }
            // A route that stays what it is must not get paths of others: all of it is meant then.
            (Overlap::Wider(common), _) => Some(Condition { path: route.condition.path.clone(), ..common }),
            // An expression may fit the exact path.
            (Overlap::Unknown(common), _) => Some(common),
            (Overlap::Nothing, _) => None,
        };
        let Some(common) = common else {
            after.push(route);
            continue;
        };
        let is_covered = common == route.condition;
        if is_undecided && matches!(effect, Effect::Ends(first) if is_same(first, &route)) {
            after.push(route);
            continue;
        }
        if is_covered && matches!(effect, Effect::Ends(_)) && !is_undecided {
            // The rule itself gets these requests.
            continue;
        }
        let mut made = match effect {
            Effect::Ends(_) | Effect::Closes(_) if is_undecided => {
                let mut made = Route { made: true, ..route.clone() };
                made.close(UNDECIDED);
                made
            }
            Effect::Closes(first) if is_exact => {
                let mut made = route.clone();
                made.closed = made.closed.or_else(|| first.closed.clone());
                made
            }
            Effect::Ends(first) | Effect::Closes(first) => Route { made: true, ..(**first).clone() },
            Effect::Restricts(sources) => {
                let mut made = route.clone();
                made.sources = match made.sources.is_empty() {
                    true => sources.clone(),
                    false => in_both(&made.sources, sources),
                };
                // An empty list would let all in.
                if made.sources.is_empty() {
                    made.close("the lists of networks that are allowed have no network in common");
                }
                made
            }
            Effect::ToHttps(https) => Route { https: Some(*https), ..route.clone() },
        };
        made.made |= !is_covered;
        made.condition = common;
        before.push(made);
        if !is_covered {
            after.push(route);
        }
    }
    if let Effect::Closes(route) = effect {
        before.push(Route { condition: condition.clone(), ..(**route).clone() });
    }
    // Of two with the same matches, the first counts.
    let mut seen = BTreeSet::new();
    before.retain(|it| seen.insert(it.condition.clone()));
    after.retain(|it| seen.insert(it.condition.clone()));
    if before.len().saturating_add(after.len()) > MOST {
        bail!(
            "the rules come to more than {MOST} combinations of hosts, paths and headers: split the configuration"
        );
    }
    // The rule itself comes last of those that it makes: what it has in common with others is more exact.
    routes.extend(before);
    routes.extend(after);
    Ok(())
}

/// Whether requests come to the same, by whichever of two routes.
fn is_same(one: &Route, two: &Route) -> bool {
    let is_open = |it: &Route| !it.is_protected() && it.https.is_none();
    is_open(one)
        && is_open(two)
        && one.target == two.target
        && one.request == two.request
        && one.response == two.response
}

/// The networks that are in both lists.
pub(super) fn in_both(one: &[String], two: &[String]) -> Vec<String> {
    let mut both: Vec<String> = Vec::new();
    for (ours, theirs) in one.iter().flat_map(|one| two.iter().map(move |two| (one, two))) {
        let inner = match (network(ours), network(theirs)) {
            (Ok(one), Ok(two)) if two.contains(&one) => ours,
            (Ok(one), Ok(two)) if one.contains(&two) => theirs,
            _ => continue,
        };
        if !both.contains(inner) {
            both.push(inner.clone());
        }
    }
    both
}

/// What two conditions have in common.
pub(super) enum Overlap {
    Nothing,
    Exactly(Condition),
    /// More than that, of what the first one asks for, which comes before.
    Wider(Condition),
    /// Whether the exact path of the second one fits the expression of the first is not known.
    Unknown(Condition),
}

/// What both ask for, as `one` that comes first.
pub(super) fn meet(one: &Condition, two: &Condition) -> Overlap {
    let Some((path, meeting)) = paths(&one.path, &two.path) else { return Overlap::Nothing };
    let hosts = match (one.hosts.as_slice(), two.hosts.as_slice()) {
        ([], hosts) | (hosts, []) => hosts.to_vec(),
        (ours, theirs) => {
            let mut both: Vec<_> =
                ours.iter().flat_map(|it| theirs.iter().filter_map(|of| it.meet(of))).collect();
            both.sort();
            both.dedup();
            if both.is_empty() {
                return Overlap::Nothing;
            }
            both
        }
    };
    let method = match (&one.method, &two.method) {
        (Some(one), Some(two)) if one != two => return Overlap::Nothing,
        (one, two) => one.clone().or_else(|| two.clone()),
    };
    let (mut headers, mut query) = (one.headers.clone(), one.query.clone());
    let mut is_exact = true;
    for (ours, theirs) in [(&mut headers, &two.headers), (&mut query, &two.query)] {
        for (name, value) in theirs {
            match (ours.get(name), value) {
                (Some(Value::Exact(one)), Value::Exact(two)) if one != two => return Overlap::Nothing,
                // An HTTPRoute asks for one value of a name: that of the first.
                (Some(known), value) if known != value => is_exact = false,
                _ => drop(ours.insert(name.clone(), value.clone())),
            }
        }
    }
    let condition = Condition { hosts, path, method, headers, query };
    match meeting {
        PathOverlap::Undecided => Overlap::Unknown(condition),
        PathOverlap::Yes if is_exact => Overlap::Exactly(condition),
        _ => Overlap::Wider(condition),
    }
}

/// Whether a path is what both have in common.
enum PathOverlap {
    Yes,
    Wider,
    Undecided,
}

fn paths(one: &PathRule, two: &PathRule) -> Option<(PathRule, PathOverlap)> {
    use PathRule::{Begins, Below, Contains, Ends, Exact, Prefix, Regex};
    // As an expression, it comes before others; what it means is the same.
    let plain = |it: &PathRule| match it {
        Below(path) => Prefix(path.clone()),
        other => other.clone(),
    };
    if matches!(one, Below(_)) || matches!(two, Below(_)) {
        let (path, meeting) = paths(&plain(one), &plain(two))?;
        return Some(match path {
            Prefix(path) => (Below(path), meeting),
            path => (path, meeting),
        });
    }
    if are_apart(one, two) {
        return None;
    }
    let below = |path: &str, prefix: &str| {
        let prefix = prefix.trim_end_matches('/');
        path.strip_prefix(prefix).is_some_and(|it| it.is_empty() || it.starts_with('/'))
    };
    let sure = |it: PathRule| Some((it, PathOverlap::Yes));
    match (one, two) {
        (one, two) if one == two => sure(one.clone()),
        (Prefix(path), other) | (other, Prefix(path)) if path == "/" => sure(other.clone()),
        (Prefix(one), Prefix(two)) if below(one, two) => sure(Prefix(one.clone())),
        (Prefix(one), Prefix(two)) if below(two, one) => sure(Prefix(two.clone())),
        (Exact(path), Prefix(prefix)) | (Prefix(prefix), Exact(path)) if below(path, prefix) => {
            sure(Exact(path.clone()))
        }
        (Exact(path), Begins(text)) | (Begins(text), Exact(path)) if path.starts_with(text.as_str()) => {
            sure(Exact(path.clone()))
        }
        (Exact(path), Ends(text)) | (Ends(text), Exact(path)) if path.ends_with(text.as_str()) => {
            sure(Exact(path.clone()))
        }
        (Exact(path), Contains(text)) | (Contains(text), Exact(path)) if path.contains(text.as_str()) => {
            sure(Exact(path.clone()))
        }
        (Begins(one), Begins(two)) if one.starts_with(two.as_str()) => sure(Begins(one.clone())),
        (Begins(one), Begins(two)) if two.starts_with(one.as_str()) => sure(Begins(two.clone())),
        (Begins(text), Prefix(path)) | (Prefix(path), Begins(text))
            if path.trim_end_matches('/').starts_with(text.as_str()) =>
        {
            sure(Prefix(path.clone()))
        }
        (Begins(text), Prefix(path)) | (Prefix(path), Begins(text)) if below(text, path) => {
            sure(Begins(text.clone()))
        }
        (Begins(text), Prefix(path)) | (Prefix(path), Begins(text))
            if text.trim_end_matches('/') == path.trim_end_matches('/') =>
        {
            sure(Begins(text.clone()))
        }
        (Begins(start), Ends(end)) | (Ends(end), Begins(start)) if !overlap(start, end) => {
            sure(Regex(format!("{}{REST}{}", escaped(start), escaped(end))))
        }
        (Exact(_), Exact(_) | Prefix(_) | Begins(_) | Below(_) | Ends(_) | Contains(_)) => None,
        (Prefix(_) | Begins(_) | Below(_) | Ends(_) | Contains(_), Exact(_))
        | (Prefix(_), Prefix(_))
        | (Begins(_), Begins(_) | Prefix(_))
        | (Prefix(_), Begins(_)) => None,
        (Regex(_), Exact(_)) => Some((two.clone(), PathOverlap::Undecided)),
        // An exact path comes before expressions.
        (Exact(_), Regex(_)) => Some((one.clone(), PathOverlap::Wider)),
        // As an expression, the first one comes before the second.
        (Prefix(prefix), _) => Some((Below(prefix.clone()), PathOverlap::Wider)),
        _ => Some((one.clone(), PathOverlap::Wider)),
    }
}

/// Whether an expression begins with other letters than the other path.
fn are_apart(one: &PathRule, two: &PathRule) -> bool {
    let begins = |it: &PathRule| match it {
        PathRule::Regex(text) => literal(text).to_owned(),
        PathRule::Exact(text) | PathRule::Prefix(text) | PathRule::Begins(text) | PathRule::Below(text) => {
            text.trim_end_matches('/').to_owned()
        }
        PathRule::Ends(_) | PathRule::Contains(_) => String::new(),
    };
    let (first, second) = (begins(one), begins(two));
    let is_regex = |it: &PathRule| matches!(it, PathRule::Regex(_));
    (is_regex(one) || is_regex(two)) && !first.starts_with(&second) && !second.starts_with(&first)
}

/// The letters that every text begins with that an expression is for.
fn literal(text: &str) -> &str {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/_".contains(it);
    let end = text.find(|it| !is_plain(it)).unwrap_or(text.len());
    let (start, rest) = text.split_at(end);
    // The last one may be there any number of times; of alternatives, each begins as it likes.
    let end = if rest.starts_with(['?', '*', '{', '+']) { end.saturating_sub(1) } else { end };
    if text.contains('|') { "" } else { start.get(..end).unwrap_or_default() }
}

/// Whether the end of a text may be the beginning of another.
fn overlap(start: &str, end: &str) -> bool {
    end.char_indices()
        .skip(1)
        .map(|it| it.0)
        .chain([end.len()])
        .any(|at| start.ends_with(end.get(..at).unwrap_or_default()))
}
