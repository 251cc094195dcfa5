//! Rules compiled for finding one: by host, then by path, then by what else they ask for.
//!
//! The order is that of Gateway API: an exact host before a wildcard, a longer wildcard before a shorter; an exact path
//! before a pattern before a prefix, a longer prefix before a shorter; then a method, more headers, more query
//! parameters; then who comes first in the list, which a plan has sorted by age and name.
//!
//! A list that differs in a few rules from the one before is compiled by these few: hosts that they do not name share
//! what was made of them, and every rule keeps its number for as long as it stays.

mod changes;
mod expressions;
mod paths;
mod spellings;

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::Arc,
};

use seaway_model::{
    Name,
    load_balancer::{HostPattern, PathMatch, Rule},
};

use changes::RuleChanges;
use expressions::Compiler;
use paths::Paths;
use spellings::{RequestWithPath, spellings};

/// What a request asks for. Everything as it was sent; cases and escapes are dealt with here.
pub trait RequestParts {
    /// With or without a port.
    fn host(&self) -> &[u8];
    /// Without the query.
    fn path(&self) -> &[u8];
    fn method(&self) -> &[u8];
    fn query(&self) -> &[u8];
    /// The value of the first field of that name, in any case.
    fn header(&self, name: &[u8]) -> Option<&[u8]>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// By its number, which is not its place in the list.
    pub rule: usize,
    /// So many bytes of the path were the prefix; for an exact path or a pattern, all of them.
    pub prefix: usize,
}

/// Nothing is allocated to find a rule.
#[derive(Debug, Default)]
pub struct Routes {
    /// In their order.
    rules: Vec<NumberedRule>,
    /// Numbers of rules that went.
    free: Vec<u32>,
    exact: HashMap<Text, Arc<Paths>>,
    /// By the suffix after `*.`.
    under: HashMap<Text, Arc<Paths>>,
    anywhere: Arc<Paths>,
    compiler: Compiler,
    /// One of them does not serve every request.
    is_guarded: bool,
}

#[derive(Clone, Debug)]
struct NumberedRule {
    rule: Arc<Rule>,
    number: u32,
}

/// The longest name that DNS allows, and a dot.
const LONGEST_HOST: usize = 254;

impl Routes {
    /// A pattern that is no regular expression matches nothing: whoever planned it has told its owner. Numbers are
    /// places in the list.
    pub fn compile(rules: &[Arc<Rule>]) -> Routes {
        Routes::default().changed_to(rules)
    }

    /// Another list. Which rules stay is seen by their `Arc`; the others alone are compiled.
    pub fn changed_to(&self, rules: &[Arc<Rule>]) -> Routes {
        let changes = RuleChanges::between(&self.rules, &self.free, rules);
        let mut routes = Routes {
            exact: self.exact.clone(),
            under: self.under.clone(),
            anywhere: self.anywhere.clone(),
            compiler: self.compiler.clone(),
            ..Routes::default()
        };
        let compiler = &mut routes.compiler;
        for (host, change) in changes.by_host() {
            let (map, name) = match host {
                None => {
                    Arc::make_mut(&mut routes.anywhere).change(change, &changes.places, compiler);
                    continue;
                }
                Some(HostPattern::Exact(name)) => (&mut routes.exact, name),
                Some(HostPattern::Under(name)) => (&mut routes.under, name),
            };
            let paths = map.entry(Text(name.clone())).or_default();
            Arc::make_mut(paths).change(change, &changes.places, compiler);
            if paths.is_empty() {
                map.remove(name.as_bytes());
            }
        }
        routes.compiler.forget_unused();
        (routes.rules, routes.free) = (changes.rules, changes.free);
        routes.is_guarded = routes.rules.iter().any(|it| it.rule.is_guarded());
        routes
    }

    /// Every rule with its number, in order.
    pub fn rules(&self) -> impl Iterator<Item = (usize, &Arc<Rule>)> {
        self.rules.iter().map(|it| (it.number as usize, &it.rule))
    }

    /// All numbers are below.
    pub fn numbers(&self) -> usize {
        self.rules.len().saturating_add(self.free.len())
    }

    pub fn find(&self, asked: &impl RequestParts) -> Option<RouteMatch> {
        let mut room = [0; LONGEST_HOST];
        let host = plain_host(asked.host(), &mut room);
        if !host.is_empty() {
            if let Some(found) = self.exact.get(host).and_then(|paths| paths.find(asked)) {
                return Some(found);
            }
            if !self.under.is_empty() {
                let mut rest = host;
                while let Some(dot) = rest.iter().position(|byte| *byte == b'.') {
                    rest = rest.get(dot.saturating_add(1)..).unwrap_or_default();
                    if let Some(found) = self.under.get(rest).and_then(|paths| paths.find(asked)) {
                        return Some(found);
                    }
                }
            }
        }
        self.anywhere.find(asked)
    }

    /// Whether servers may take the path for another one, which a rule protects that `found` knows nothing of. `//admin` and
    /// `/%61dmin` are no `/admin` to a rule, and are it to many servers: the request would pass the protection.
    pub fn may_bypass_rule<'r>(
        &self,
        asked: &impl RequestParts,
        (found, rule): (RouteMatch, &Rule),
        by_number: impl Fn(usize) -> Option<&'r Rule>,
    ) -> bool {
        if !self.is_guarded {
            return false;
        }
        // Whoever writes a path so means it.
        let literal = if is_literal(rule, asked.path(), found.prefix) { found.prefix } else { 0 };
        let is_evaded = |path: Vec<u8>| {
            let meant = self
                .find(&RequestWithPath { request: asked, path: &path })
                .filter(|it| it.rule != found.rule);
            let Some((meant, other)) = meant.and_then(|it| Some((it, by_number(it.rule)?))) else {
                return false;
            };
            // What only refuses may be what is left for all that no rule wants.
            let is_closer = meant.prefix > found.prefix;
            (other.is_restricted() || is_closer && other.is_guarded()) && !other.is_guarded_as(rule)
        };
        spellings(asked.path(), literal).any(is_evaded)
    }
}

/// So many bytes of the path stand in a match of the rule as they are.
fn is_literal(rule: &Rule, path: &[u8], length: usize) -> bool {
    rule.matches.iter().any(|asked| match &asked.path {
        Some(PathMatch::Exact(it)) => it.as_bytes() == path,
        Some(PathMatch::Prefix(it)) => path.get(..length) == Some(it.trim_end_matches('/').as_bytes()),
        Some(PathMatch::Regex(_)) => false,
        None => length == 0,
    })
}

/// A text that is looked up by its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(Name);

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_bytes().hash(state);
    }
}

/// Lower case, without port and without the dot of the root. What is too long to be a name is nobody's.
fn plain_host<'r>(host: &[u8], room: &'r mut [u8; LONGEST_HOST]) -> &'r [u8] {
    let name = match host {
        // An address of IPv6 has colons of its own.
        [b'[', ..] => host.iter().position(|byte| *byte == b']').and_then(|end| host.get(..=end)),
        _ => host.iter().position(|byte| *byte == b':').and_then(|end| host.get(..end)),
    };
    let name = name.unwrap_or(host);
    let name = name.strip_suffix(b".").unwrap_or(name);
    let Some(lower) = room.get_mut(..name.len()) else { return &[] };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    lower
}

#[cfg(test)]
mod tests;
