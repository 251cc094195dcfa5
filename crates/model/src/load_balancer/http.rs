//! Rules: what a request must be, what is done to it, and where it goes. Layer 4 uses one rule without matches.

use std::fmt;
use std::time::Duration;

use super::pool::PoolId;
use crate::name::{Name, Owner};

/// A listener asks its rules in the precedence that `snapshot` compiles. A front door's rules have many owners.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub owner: Owner,
    /// Any of these; empty means every host.
    pub hosts: Vec<HostPattern>,
    /// Any of these; empty means everything.
    pub matches: Vec<Match>,
    pub filters: Vec<Filter>,
    pub action: Action,
    pub timeout: Option<Duration>,
    pub retries: u8,
}

impl Rule {
    /// Layer 4: everything to one pool.
    pub fn everything_to(owner: Owner, pool: PoolId) -> Rule {
        Rule {
            owner,
            hosts: Vec::new(),
            matches: Vec::new(),
            filters: Vec::new(),
            action: Action::Forward(vec![(pool, 1)]),
            timeout: None,
            retries: 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Pools by weight; all weights 0 means nobody.
    Forward(Vec<(PoolId, u32)>),
    Redirect(Redirect),
    Respond {
        code: u16,
        body: Name,
    },
}

/// `shop.example` or `*.example`, lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    Exact(Name),
    /// Any one or more labels before this suffix, which is kept without its `*.`.
    Under(Name),
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => name.fmt(f),
            HostPattern::Under(name) => write!(f, "*.{name}"),
        }
    }
}

/// All of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    pub path: Option<PathMatch>,
    pub method: Option<Name>,
    pub headers: Vec<(Name, TextMatch)>,
    pub query: Vec<(Name, TextMatch)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    Exact(Name),
    /// By whole segments: `/foo` is `/foo` and `/foo/…`, never `/foobar`.
    Prefix(Name),
    Regex(Name),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextMatch {
    Exact(Name),
    Regex(Name),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    RequestHeaders(HeaderChange),
    ResponseHeaders(HeaderChange),
    /// Replaces the matched prefix.
    RewritePrefix(Name),
    RewritePath(Name),
    RewriteHost(Name),
    Mirror {
        pool: PoolId,
        per_mille: u16,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChange {
    pub set: Vec<(Name, Name)>,
    pub add: Vec<(Name, Name)>,
    pub remove: Vec<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    pub scheme: Option<Name>,
    pub host: Option<Name>,
    pub port: Option<u16>,
    pub path: Option<PathMatch>,
    pub code: u16,
}
