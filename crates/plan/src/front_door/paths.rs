//! Who may use which path of the front door, of those without a host name, where tenants share it: the namespace that claimed the
//! path, or one above it, first. Of a path that is not recorded (recorded.rs), that of the oldest object.
//!
//! The path of all requests is nobody's: what others claim below it is more specific, and wins. A regular expression is tried
//! before such paths, and claims the path that it begins with: `/shop` for `/shop/v[0-9]+/.*`. It is left out if others have
//! anything below that; one that begins with no path, if others have any path.

use std::collections::BTreeMap;

use seaway_model::{
    Name,
    load_balancer::{Match, PathMatch, Rule},
};

#[derive(Debug, Default)]
pub(super) struct PathOwners(BTreeMap<Name, PathOwner>);

#[derive(Clone, Debug)]
struct PathOwner {
    namespace: Name,
    is_recorded: bool,
}

impl PathOwners {
    /// `claims`: namespaces and what they ask for, the oldest first.
    pub(super) fn of<'r, 'g>(
        recorded: impl Iterator<Item = (&'r Name, &'r Name)>,
        claims: impl Iterator<Item = (&'g Name, &'g Match)>,
    ) -> PathOwners {
        let mut owners = PathOwners::default();
        for (namespace, path) in recorded {
            let owner = || PathOwner { namespace: namespace.clone(), is_recorded: true };
            owners.0.entry(path.clone()).or_insert_with(owner);
        }
        for (namespace, asked) in claims {
            let path = path_of(asked);
            if !path.is_empty() && owners.owner(path).is_none() {
                owners.0.insert(path.into(), PathOwner { namespace: namespace.clone(), is_recorded: false });
            }
        }
        owners
    }

    /// Of that path, or of the nearest one above it that somebody has.
    pub(super) fn owner(&self, path: &str) -> Option<&Name> {
        self.nearest(path).map(|it| &it.namespace)
    }

    fn nearest(&self, path: &str) -> Option<&PathOwner> {
        let above = std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0));
        above.take_while(|it| !it.is_empty()).find_map(|it| self.0.get(it))
    }

    pub(super) fn may(&self, namespace: &Name, asked: &Match) -> bool {
        self.other(namespace, asked).is_none()
    }

    /// Who else has it, or a part of what a regular expression may match.
    fn other<'a>(&'a self, namespace: &Name, asked: &'a Match) -> Option<(&'a str, &'a PathOwner)> {
        let path = path_of(asked);
        let is_others = |(_, owner): &(&str, &PathOwner)| owner.namespace != *namespace;
        let above = self.nearest(path).map(|owner| (path, owner)).filter(is_others);
        let is_below = |it: &str| it.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        let all = self.0.iter().map(|(path, owner)| (path.as_str(), owner));
        let below = || all.filter(|(it, _)| is_below(it)).find(is_others);
        above.or_else(|| if is_pattern(asked) { below() } else { None })
    }

    /// For people: whose a path is that somebody else claims.
    pub(super) fn other_owner_of(&self, namespace: &Name, asked: &Match) -> Option<String> {
        // Which namespace, and where below an expression, is not for this one's users.
        let (path, PathOwner { is_recorded, .. }) = self.other(namespace, asked)?;
        let why = if *is_recorded { "which claimed it first" } else { "whose object is older" };
        Some(match is_pattern(asked) {
            true => {
                format!("the regular expression may match a path that belongs to another namespace, {why}")
            }
            false => format!("path {path} belongs to another namespace, {why}"),
        })
    }

    /// A rule for all host names, as far as its namespace may have it.
    pub(super) fn allowed(&self, namespace: &Name, rule: &Rule) -> Vec<Match> {
        rule.matches.iter().filter(|it| self.may(namespace, it)).cloned().collect()
    }
}

pub(crate) fn path_of(asked: &Match) -> &str {
    match &asked.path {
        Some(PathMatch::Prefix(path) | PathMatch::Exact(path)) => path.trim_end_matches('/'),
        Some(PathMatch::Regex(pattern)) => begins_with(pattern),
        None => "",
    }
}

fn is_pattern(asked: &Match) -> bool {
    matches!(asked.path, Some(PathMatch::Regex(_)))
}

/// The whole segments that all texts begin with that match.
fn begins_with(pattern: &str) -> &str {
    // Another branch may begin with anything.
    if pattern.contains('|') {
        return "";
    }
    let literal = pattern.find(|it: char| !(it.is_ascii_alphanumeric() || "/-_~%!&',:;=@ ".contains(it)));
    let (literal, rest) = pattern.split_at(literal.unwrap_or(pattern.len()));
    // What it repeats may be there not at all.
    let is_repeated = rest.starts_with(['?', '*', '+', '{']);
    let literal = if is_repeated { &literal[..literal.len().saturating_sub(1)] } else { literal };
    literal.rsplit_once('/').map_or("", |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    fn prefix(path: &str) -> Match {
        Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }
    }

    #[test]
    fn the_first_to_claim_a_path_has_it_with_all_that_is_below_it() {
        let (shop, evil) = (Name::from("shop"), Name::from("evil"));
        let claims =
            [(&evil, prefix("/shop/old")), (&shop, prefix("/shop/")), (&evil, prefix("/shop/login"))];
        let owners =
            PathOwners::of(iter::empty(), claims.iter().map(|(namespace, asked)| (*namespace, asked)));
        for (path, owner) in [
            ("/shop", Some("shop")),
            ("/shop/login", Some("shop")),
            ("/shop/old/page", Some("evil")),
            ("/shopping", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(owners.owner(path_of(&prefix(path))).map(Name::as_str), owner, "{path}");
        }
        let exact = Match { path: Some(PathMatch::Exact("/shop/x".into())), ..Match::default() };
        assert!(owners.may(&shop, &exact) && !owners.may(&evil, &exact));
        assert_eq!(
            owners.other_owner_of(&evil, &exact).as_deref(),
            Some("path /shop/x belongs to another namespace, whose object is older")
        );
    }

    #[test]
    fn a_regular_expression_is_for_what_nobody_else_has() {
        for (pattern, path) in [
            ("/shop/v[0-9]+/.*", "/shop"),
            ("/shop/.*", "/shop"),
            ("/shop.*", ""),
            ("/shop/?", ""),
            ("/a/b{0}/.*", "/a"),
            ("/shop/a|/evil/.*", ""),
            ("(?i)/shop/.*", ""),
            ("", ""),
            // No regular expressions, and claims all the same.
            ("*", ""),
            ("?/shop/", ""),
        ] {
            assert_eq!(begins_with(pattern), path, "{pattern}");
        }
        let (shop, evil) = (Name::from("shop"), Name::from("evil"));
        let regex = |it: &str| Match { path: Some(PathMatch::Regex(it.into())), ..Match::default() };
        let claims = [(&shop, prefix("/shop")), (&evil, prefix("/evil")), (&shop, prefix("/evil/shop"))];
        let owners =
            PathOwners::of(iter::empty(), claims.iter().map(|(namespace, asked)| (*namespace, asked)));
        for (namespace, pattern, may) in [
            (&shop, "/shop/v[0-9]", true),
            (&evil, "/shop/v[0-9]", false),
            (&evil, "/shop/v[0-9]/more", false),
            (&evil, "/.*", false),
            (&shop, "/.*", false),
            (&shop, "/free/.*", true),
            (&evil, "/free/.*", true),
        ] {
            assert_eq!(owners.may(namespace, &regex(pattern)), may, "{namespace} {pattern}");
        }
        // The path that it begins with is claimed.
        let claims = [(&shop, regex("/shop/v[0-9]+/.*")), (&evil, prefix("/shop/v1/login"))];
        let owners =
            PathOwners::of(iter::empty(), claims.iter().map(|(namespace, asked)| (*namespace, asked)));
        assert!(!owners.may(&evil, &prefix("/shop/v1/login")));
        // Alone, it may be for everything.
        assert!(PathOwners::default().may(&evil, &regex("/.*")));
    }
}
