//! Who has which path of which host.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use seaway_model::{
    Name,
    load_balancer::{HostPattern, Match, PathMatch, TextMatch},
};

use super::{attached_route::RoutePrecedence, paths::path_of};

/// What a request would have to be. Two claims that are equal are for the same requests, and only one can have them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RouteClaim {
    /// At which entrance of the front door; `None` is the main one.
    entrance: Option<Name>,
    host: Option<HostPattern>,
    asked: Match,
}

impl RouteClaim {
    pub(super) fn new(host: Option<&HostPattern>, asked: &Match) -> RouteClaim {
        let mut asked = asked.clone();
        asked.path = Some(match asked.path.take() {
            Some(PathMatch::Prefix(path)) => PathMatch::Prefix(path.trim_end_matches('/').into()),
            Some(other) => other,
            None => PathMatch::Prefix(Name::default()),
        });
        for (name, _) in &mut asked.headers {
            *name = name.to_ascii_lowercase().into();
        }
        asked.headers.sort();
        asked.query.sort();
        RouteClaim { entrance: None, host: host.cloned(), asked }
    }

    pub(super) fn at(self, entrance: Option<&Name>) -> RouteClaim {
        RouteClaim { entrance: entrance.cloned(), ..self }
    }

    /// The same place at the main entrance, and those above it, in the order in which requests are given to them.
    /// One by one: a long host name and a long path have a product of them.
    pub(super) fn above(&self) -> impl Iterator<Item = RouteClaim> + '_ {
        let path = path_of(&self.asked);
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let mut paths: Vec<&str> = ends.filter_map(|at| path.get(..at)).collect();
        paths.reverse();
        paths.dedup();
        let (name, mut hosts) = match &self.host {
            Some(HostPattern::Exact(name) | HostPattern::Under(name)) => {
                (name.as_str(), vec![self.host.clone()])
            }
            None => ("", Vec::new()),
        };
        let above = name.match_indices('.').filter_map(|(at, _)| name.get(at.saturating_add(1)..));
        hosts.extend(above.map(|it| Some(HostPattern::Under(it.into()))));
        hosts.push(None);
        let asked = |path: &str| Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() };
        hosts.into_iter().flat_map(move |host| {
            paths.clone().into_iter().map(move |path| RouteClaim::new(host.as_ref(), &asked(path)))
        })
    }

    /// Without the entrance.
    pub(super) fn place(&self) -> RouteClaim {
        self.clone().at(None)
    }

    pub(super) fn host(&self) -> Option<&HostPattern> {
        self.host.as_ref()
    }

    pub(super) fn request_match(&self) -> &Match {
        &self.asked
    }
}

/// `shop.example/cart`, as people would say it.
impl fmt::Display for RouteClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(method) = &self.asked.method {
            write!(f, "{method} ")?;
        }
        if let Some(host) = &self.host {
            host.fmt(f)?;
        }
        match &self.asked.path {
            Some(PathMatch::Exact(path)) => write!(f, "{path} (exactly)")?,
            Some(PathMatch::Prefix(path)) if path.is_empty() => f.write_str("/")?,
            Some(PathMatch::Prefix(path)) => path.fmt(f)?,
            Some(PathMatch::Regex(pattern)) => write!(f, " ~ {pattern}")?,
            None => {}
        }
        for (what, texts) in [("header", &self.asked.headers), ("parameter", &self.asked.query)] {
            for (name, text) in texts {
                match text {
                    TextMatch::Exact(text) => write!(f, " with {what} {name}: {text}")?,
                    TextMatch::Regex(pattern) => write!(f, " with {what} {name} ~ {pattern}")?,
                }
            }
        }
        if let Some(entrance) = &self.entrance {
            write!(f, " at entrance {entrance}")?;
        }
        Ok(())
    }
}

/// All claims, each with those who make it: the first has it.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<RouteClaim, BTreeSet<RoutePrecedence>>);

impl Claims {
    /// Says who else makes one of them.
    pub(super) fn add(
        &mut self,
        rank: &RoutePrecedence,
        claims: &BTreeMap<RouteClaim, Name>,
    ) -> Vec<RoutePrecedence> {
        let mut stirred = Vec::new();
        for claim in claims.keys() {
            let all = self.0.entry(claim.clone()).or_default();
            stirred.extend(all.iter().cloned());
            all.insert(rank.clone());
        }
        stirred
    }

    /// As [`Claims::add`].
    pub(super) fn remove(
        &mut self,
        rank: &RoutePrecedence,
        claims: &BTreeMap<RouteClaim, Name>,
    ) -> Vec<RoutePrecedence> {
        let mut stirred = Vec::new();
        for claim in claims.keys() {
            let Some(all) = self.0.get_mut(claim) else { continue };
            all.remove(rank);
            stirred.extend(all.iter().cloned());
            if all.is_empty() {
                self.0.remove(claim);
            }
        }
        stirred
    }

    /// Those who make it, in their order.
    pub(super) fn of(&self, claim: &RouteClaim) -> impl Iterator<Item = &RoutePrecedence> {
        self.0.get(claim).into_iter().flatten()
    }
}
