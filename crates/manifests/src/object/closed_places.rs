//! The places that something was meant to have at the front door and to protect, in a text that cannot be read or is not served. What is
//! understood of such a text are its words, line by line: what it meant is closed where nothing that is understood is at the same place.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    Fact, Name,
    fact::{HttpRoute, Meta, RouteRule},
    load_balancer::{Action, HostPattern, Match, PathMatch},
};
use seaway_plan::{annotations::place_option, host_pattern, meant_place};

use super::unused_routes::{DEFAULT, is_protecting_text, lines_of, pairs};

/// Of a text that names more, these count: it is no object of a person.
const MOST: usize = 64;
/// Keys of routes below which host names stand.
const HOSTS: [&str; 6] = ["hostnames", "hostname", "hosts", "host", "fqdn", "virtualhost"];
/// Keys of routes that say a path.
const PATHS: [&str; 8] = ["value", "path", "pathPrefix", "prefix", "exact", "uri", "Exact", "PathPrefix"];

/// What such a text was probably meant to protect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedPlaces {
    namespaces: BTreeSet<Name>,
    /// Each with the paths of its own; `/` is all of the host name.
    by_host: BTreeMap<HostPattern, BTreeSet<Name>>,
    /// Of all host names.
    paths: BTreeSet<Name>,
}

/// The places in a text with words that protect; nothing, where it has none. Where no place is understood, there is none in it.
pub fn closed_places(text: &str) -> Option<ClosedPlaces> {
    if !is_protecting_text(text) {
        return None;
    }
    let mut found = Words::default();
    for line in lines_of(text) {
        found.read(line);
    }
    Some(found.places())
}

#[derive(Default)]
struct Words<'t> {
    /// Items of a list follow, of these.
    list: Option<List>,
    namespaces: BTreeSet<&'t str>,
    hosts: BTreeSet<HostPattern>,
    paths: BTreeSet<Name>,
    /// Of the annotations of a Service: each entry is a place.
    placed: BTreeSet<(Option<HostPattern>, Option<Name>)>,
}

#[derive(Clone, Copy)]
enum List {
    Hosts,
    Places,
}

impl<'t> Words<'t> {
    fn read(&mut self, line: &'t str) {
        let item = line.strip_prefix('-').map(str::trim).filter(|it| !it.contains(": "));
        if let (Some(list), Some(item)) = (self.list, item) {
            return self.take(list, item);
        }
        self.list = None;
        for (key, value, rest) in pairs(line) {
            let key_of_place = if key.contains(['/', '.']) { place_option(key) } else { None };
            match (key, key_of_place) {
                ("namespace", _) if !value.is_empty() && self.namespaces.len() < MOST_NAMESPACES => {
                    self.namespaces.insert(value);
                }
                (_, Some(_)) => self.list_or_text(List::Places, rest),
                (key, _) if HOSTS.contains(&key) => self.list_or_text(List::Hosts, rest),
                (key, _) if PATHS.contains(&key) => self.path(first_word(rest)),
                _ => {}
            }
        }
        self.functions(line);
    }

    fn list_or_text(&mut self, list: List, rest: &str) {
        let text = whole_value(rest);
        if text.is_empty() {
            self.list = Some(list);
        }
        self.take(list, text);
    }

    fn take(&mut self, list: List, text: &str) {
        for entry in text.split(',').take(MOST).map(unquoted).filter(|it| !it.is_empty()) {
            match list {
                List::Hosts => self.host(entry),
                List::Places if self.placed.len() < MOST => self.placed.extend(meant_place(entry)),
                List::Places => {}
            }
        }
    }

    /// A single word is no host name that anybody meant, but the name of something else.
    fn host(&mut self, text: &str) {
        if self.hosts.len() < MOST && (text.contains('.') || text == "localhost") {
            self.hosts.extend(host_pattern(text).ok());
        }
    }

    fn path(&mut self, text: &str) {
        if self.paths.len() < MOST && text.starts_with('/') {
            self.paths.extend(meant_place(text).and_then(|(_, path)| path));
        }
    }

    /// Traefik's ``Host(`shop.example`) && PathPrefix(`/admin`)``.
    fn functions(&mut self, line: &str) {
        for (name, is_host) in [("Host(", true), ("PathPrefix(", false), ("Path(", false)] {
            for (at, _) in line.match_indices(name).take(MOST) {
                let rest = line.get(at.saturating_add(name.len())..).unwrap_or_default();
                let inside = rest.split(')').next().unwrap_or_default();
                for text in inside.split(',').take(MOST).map(unquoted) {
                    if is_host { self.host(text) } else { self.path(text) }
                }
            }
        }
    }

    fn places(self) -> ClosedPlaces {
        let mut by_host: BTreeMap<HostPattern, BTreeSet<Name>> = BTreeMap::new();
        let mut paths: BTreeSet<Name> = self.paths.clone();
        let mut hosts = self.hosts;
        for (host, path) in self.placed {
            match (host, path) {
                (Some(host), Some(path)) => drop(by_host.entry(host).or_default().insert(path)),
                // A host name and a path in two annotations may have been meant as one place, or as two.
                (Some(host), None) => {
                    by_host.entry(host.clone()).or_default().insert("/".into());
                    hosts.insert(host);
                }
                (None, Some(path)) => drop(paths.insert(path)),
                (None, None) => {}
            }
        }
        for host in hosts {
            let its = by_host.entry(host).or_default();
            its.extend(paths.iter().cloned());
            if its.is_empty() {
                its.insert("/".into());
            }
        }
        if !by_host.is_empty() {
            paths.clear();
        }
        // A guess never closes all paths of all host names.
        paths.remove("/");
        let mut namespaces: BTreeSet<Name> = self.namespaces.into_iter().map(Name::from).collect();
        if namespaces.is_empty() {
            namespaces.insert(DEFAULT.into());
        }
        ClosedPlaces { namespaces, by_host, paths }
    }
}

/// More are no text of one object.
const MOST_NAMESPACES: usize = 4;

/// The value up to what ends it in any style: a comment, the end of a flow map.
fn whole_value(rest: &str) -> &str {
    let rest = rest.trim();
    let rest = rest.find(" #").map_or(rest, |at| rest.get(..at).unwrap_or(rest)).trim();
    match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            rest.get(1..).unwrap_or_default().split(quote).next().unwrap_or_default()
        }
        Some('[') => rest.get(1..).unwrap_or_default().split(']').next().unwrap_or_default(),
        _ => {
            let end = rest.find(", ").or_else(|| rest.find(['}', ']'])).unwrap_or(rest.len());
            rest.get(..end).unwrap_or(rest)
        }
    }
}

fn first_word(rest: &str) -> &str {
    unquoted(whole_value(rest))
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'', '`']).trim()
}

impl ClosedPlaces {
    /// No place is understood.
    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty() && self.paths.is_empty()
    }

    /// `shop.example/admin`, a few of them.
    pub fn listed(&self) -> String {
        const LISTED: usize = 5;
        let of_host = |(host, paths): (&HostPattern, &BTreeSet<Name>)| {
            let host = host.to_string();
            paths.iter().map(|path| format!("{host}{path}")).collect::<Vec<_>>()
        };
        let mut all: Vec<String> = self.by_host.iter().flat_map(of_host).collect();
        all.extend(self.paths.iter().map(ToString::to_string));
        let more = all.len().saturating_sub(LISTED);
        all.truncate(LISTED);
        if more > 0 {
            all.push(format!("{more} more"));
        }
        all.join(", ")
    }

    /// What closes them. `at`: what people look for, such as `shop.yaml:3`; no object has such a name.
    pub fn facts(&self, at: &str) -> Vec<Fact> {
        if self.is_empty() {
            return Vec::new();
        }
        let of = |namespace: &Name, hosts: Vec<HostPattern>, paths: &BTreeSet<Name>, part: usize| {
            let matches = paths
                .iter()
                .map(|path| Match { path: Some(PathMatch::Prefix(path.clone())), ..Match::default() });
            let rule = RouteRule {
                matches: matches.collect(),
                filters: Vec::new(),
                action: Action::Respond { code: 503, body: Name::default() },
                timeout: None,
                attempt_timeout: None,
                retries: None,
                unsupported: Vec::new(),
            };
            let name = if part == 0 { at.into() } else { format!("{at}.{part}").into() };
            let meta = Meta { namespace: namespace.clone(), name, ..Meta::default() };
            Fact::HttpRoute(Arc::new(HttpRoute {
                meta,
                parents: Vec::new(),
                hosts,
                rules: vec![rule],
                guessed: true,
            }))
        };
        let mut by_paths: BTreeMap<&BTreeSet<Name>, Vec<HostPattern>> = BTreeMap::new();
        for (host, paths) in &self.by_host {
            by_paths.entry(paths).or_default().push(host.clone());
        }
        if !self.paths.is_empty() {
            by_paths.entry(&self.paths).or_default();
        }
        let mut facts = Vec::new();
        for namespace in &self.namespaces {
            for (part, (paths, hosts)) in by_paths.iter().enumerate() {
                facts.push(of(namespace, hosts.clone(), paths, part));
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests;
