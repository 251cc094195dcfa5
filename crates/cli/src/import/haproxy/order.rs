//! HAProxy takes the first rule that fits; an HTTPRoute, the most exact one. So each rule is also written for what it has in
//! common with every later rule, before that.

use anyhow::{Result, bail};

use super::super::{
    proxy::{Condition, PathRule, Route},
    write::{REST, escaped},
};

/// As many routes as all combinations may come to.
const MOST: usize = 2_000;

/// What a rule does with requests that it is for.
pub(super) enum Effect {
    /// They go nowhere else.
    Ends(Box<Route>),
    /// Only clients of these networks go on.
    Restricts(Vec<String>),
    ToHttps(bool),
}

/// Puts a rule before all of `routes`.
pub(super) fn put_before(condition: &Condition, effect: &Effect, routes: &mut Vec<Route>) -> Result<()> {
    let protects = match effect {
        Effect::Ends(route) => route.closed.is_some(),
        Effect::Restricts(_) => true,
        Effect::ToHttps(_) => false,
    };
    let mut before: Vec<Route> = Vec::new();
    let mut after: Vec<Route> = Vec::new();
    if let Effect::Ends(route) = effect {
        before.push(Route { condition: condition.clone(), ..(**route).clone() });
    }
    for route in routes.drain(..) {
        let common = meet(condition, &route.condition)
            .map(|common| match (effect, &condition.path, &route.condition.path) {
                // A route that stays what it is must not get paths of others: all of it is meant then.
                (Effect::Ends(_), ..) => common,
                (_, PathRule::Prefix(path), PathRule::Regex(_)) if path != "/" => Condition { path: route.condition.path.clone(), ..common },
                (_, PathRule::Regex(one), PathRule::Regex(two)) if one != two => Condition { path: route.condition.path.clone(), ..common },
                (_, PathRule::Regex(_), PathRule::Prefix(path)) if path != "/" => Condition { path: route.condition.path.clone(), ..common },
                _ => common,
            })
            // An expression may fit the exact path: what protects does so then.
            .or_else(|| (protects && is_undecided(&condition.path, &route.condition.path)).then(|| route.condition.clone()));
        let Some(common) = common else {
            after.push(route);
            continue;
        };
        let is_covered = common == route.condition;
        if is_covered && matches!(effect, Effect::Ends(_)) {
            // The rule itself gets these requests.
            continue;
        }
        let mut made = match effect {
            Effect::Ends(first) => Route { made: true, ..(**first).clone() },
            Effect::Restricts(sources) => {
                let mut made = route.clone();
                if made.sources.is_empty() || made.sources == *sources {
                    made.sources.clone_from(sources);
                } else {
                    let both: Vec<String> = made.sources.iter().filter(|it| sources.contains(it)).cloned().collect();
                    if both.is_empty() {
                        made.close("two lists of networks that have none in common");
                    }
                    made.sources = both;
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
    if before.len().saturating_add(after.len()) > MOST {
        bail!("the rules come to more than {MOST} combinations of hosts, paths and headers: split the configuration");
    }
    // The rule itself comes last of those that it makes: what it has in common with others is more exact.
    routes.extend(before);
    routes.extend(after);
    Ok(())
}

/// What both ask for, as `one` that comes first; `None`: no request, or it cannot be said.
pub(super) fn meet(one: &Condition, two: &Condition) -> Option<Condition> {
    let hosts = match (one.hosts.as_slice(), two.hosts.as_slice()) {
        ([], hosts) | (hosts, []) => hosts.to_vec(),
        (ours, theirs) => {
            let mut both: Vec<_> = ours.iter().flat_map(|it| theirs.iter().filter_map(|of| it.meet(of))).collect();
            both.sort();
            both.dedup();
            if both.is_empty() {
                return None;
            }
            both
        }
    };
    let method = match (&one.method, &two.method) {
        (Some(one), Some(two)) if one != two => return None,
        (one, two) => one.clone().or_else(|| two.clone()),
    };
    let (mut headers, mut query) = (one.headers.clone(), one.query.clone());
    for (ours, theirs) in [(&mut headers, &two.headers), (&mut query, &two.query)] {
        for (name, value) in theirs {
            if ours.get(name).is_some_and(|it| it != value) {
                return None;
            }
            ours.insert(name.clone(), value.clone());
        }
    }
    Some(Condition { hosts, path: paths(&one.path, &two.path)?, method, headers, query })
}

fn paths(one: &PathRule, two: &PathRule) -> Option<PathRule> {
    use PathRule::{Exact, Prefix, Regex};
    let below = |path: &str, prefix: &str| {
        let prefix = prefix.trim_end_matches('/');
        path.strip_prefix(prefix).is_some_and(|it| it.is_empty() || it.starts_with('/'))
    };
    Some(match (one, two) {
        (one, two) if one == two => one.clone(),
        (Prefix(path), other) | (other, Prefix(path)) if path == "/" => other.clone(),
        (Prefix(one), Prefix(two)) if below(one, two) => Prefix(one.clone()),
        (Prefix(one), Prefix(two)) if below(two, one) => Prefix(two.clone()),
        (Exact(path), Prefix(prefix)) | (Prefix(prefix), Exact(path)) if below(path, prefix) => Exact(path.clone()),
        // The first rule is for all of it, and comes before.
        (Regex(_), Prefix(_) | Regex(_)) | (Exact(_), Regex(_)) => one.clone(),
        (Prefix(prefix), Regex(_)) => {
            let prefix = prefix.trim_end_matches('/');
            Regex(format!("{}(?:/{REST})?", escaped(prefix)))
        }
        _ => return None,
    })
}

/// Whether it is not known what both have in common.
pub(super) fn is_undecided(one: &PathRule, two: &PathRule) -> bool {
    matches!((one, two), (PathRule::Regex(_), PathRule::Exact(_)))
}
