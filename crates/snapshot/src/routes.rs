//! Rules compiled for finding one: by host, then by path, then by what else they ask for.
//!
//! The order is that of Gateway API: an exact host before a wildcard, a longer wildcard before a shorter; an exact path
//! before a pattern before a prefix, a longer prefix before a shorter; then a method, more headers, more query
//! parameters; then who comes first in the list, which a plan has sorted by age and name.

mod paths;

use std::collections::HashMap;

use seaway_model::load_balancer::{HostPattern, Rule};

use paths::Paths;

/// What a request asks for. Everything as it was sent; cases and escapes are dealt with here.
pub trait Asked {
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
pub struct Found {
    /// In the list that was compiled.
    pub rule: usize,
    /// So many bytes of the path were the prefix; for an exact path or a pattern, all of them.
    pub prefix: usize,
}

/// Nothing is allocated to find a rule.
#[derive(Debug, Default)]
pub struct Routes {
    exact: HashMap<Box<[u8]>, Paths>,
    /// By the suffix after `*.`.
    under: HashMap<Box<[u8]>, Paths>,
    anywhere: Paths,
}

/// The longest name that DNS allows, and a dot.
const LONGEST_HOST: usize = 254;

impl Routes {
    /// A pattern that is no regular expression matches nothing: whoever planned it has told its owner.
    pub fn compile(rules: &[Rule]) -> Routes {
        let mut routes = Routes::default();
        for (index, rule) in rules.iter().enumerate() {
            if rule.hosts.is_empty() {
                routes.anywhere.add(index, rule);
            }
            for host in &rule.hosts {
                let (map, name) = match host {
                    HostPattern::Exact(name) => (&mut routes.exact, name),
                    HostPattern::Under(name) => (&mut routes.under, name),
                };
                map.entry(name.as_bytes().into()).or_default().add(index, rule);
            }
        }
        let all = routes.exact.values_mut().chain(routes.under.values_mut());
        all.chain([&mut routes.anywhere]).for_each(Paths::sort);
        routes
    }

    pub fn find(&self, asked: &impl Asked) -> Option<Found> {
        let mut room = [0; LONGEST_HOST];
        let host = plain_host(asked.host(), &mut room);
        if !host.is_empty() {
            if let Some(found) = self.exact.get(host).and_then(|paths| paths.find(asked)) {
                return Some(found);
            }
            if !self.under.is_empty() {
                let mut rest = host;
                while let Some(dot) = rest.iter().position(|byte| *byte == b'.') {
                    rest = &rest[dot + 1..];
                    if let Some(found) = self.under.get(rest).and_then(|paths| paths.find(asked)) {
                        return Some(found);
                    }
                }
            }
        }
        self.anywhere.find(asked)
    }
}

/// Lower case, without port and without the dot of the root. What is too long to be a name is nobody's.
fn plain_host<'r>(host: &[u8], room: &'r mut [u8; LONGEST_HOST]) -> &'r [u8] {
    let name = match host {
        // An address of IPv6 has colons of its own.
        [b'[', ..] => host.iter().position(|byte| *byte == b']').map_or(host, |end| &host[..=end]),
        _ => host.iter().position(|byte| *byte == b':').map_or(host, |end| &host[..end]),
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    let Some(lower) = room.get_mut(..name.len()) else { return &[] };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    lower
}

#[cfg(test)]
mod tests;
