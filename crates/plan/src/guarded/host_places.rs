//! Which paths of which host names objects have at the front door, and which of them let fewer clients in. Two ways past such a
//! protection are found by it: the paths of a Service's name, and a host name that comes before a path of all host names.
//!
//! All of it is within one namespace: no tenant changes where the Services of another are served.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter,
};

use seaway_model::{
    Kind, Name, ObjectRef,
    config::FrontDoor,
    fact::{HttpRoute, RouteRule, Service},
    load_balancer::{Action, HostPattern, Match, PathMatch},
};

use super::is_protected;
use crate::{
    annotations::{ENTRANCE, MAIN, ServiceOptions, may_name_place},
    front_door::path_of,
    index::ServiceKey,
};

/// What one object has at the front door.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostPlaces {
    at: BTreeSet<HostPlace>,
    /// Fewer clients are let in there.
    protects: bool,
    /// It protects paths of all host names, and has no host name.
    protects_paths: bool,
    /// Nothing, where they are not understood: then it may be at each.
    entrances: Option<Vec<Name>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HostPlace {
    host: HostPattern,
    /// Without a slash at its end; empty is the whole host name.
    path: Name,
    /// Whose members answer there; empty, where none of the namespace do.
    service: Name,
    /// For all requests below the path.
    is_whole: bool,
}

/// The object that protects a part of a Service's host names, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostGuard {
    pub(crate) by: ObjectRef,
    /// `shop.example/admin`.
    pub(crate) at: String,
}

impl HostPlaces {
    pub(crate) fn of_service(service: &Service) -> HostPlaces {
        let written = &service.meta.annotations;
        if !may_name_place(written) {
            return HostPlaces::default();
        }
        let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        let mut wishes = ServiceOptions::by_default();
        wishes.read(&key.object(), written);
        wishes.take_meant_places(service);
        let (http, protects) = (&wishes.http, is_protected(service, &wishes));
        if http.front_door == Some(false) || wishes.tls.through && !protects {
            return HostPlaces::default();
        }
        let place = |host: &HostPattern, path: &str| HostPlace {
            host: host.clone(),
            path: path.trim_end_matches('/').into(),
            service: key.name.clone(),
            is_whole: true,
        };
        let whole = http.hosts.iter().map(|host| place(host, ""));
        let below = http.placed.iter().map(|(host, path)| place(host, path));
        let at: BTreeSet<HostPlace> = whole.chain(below).collect();
        let protects_paths = protects && at.is_empty() && !http.paths.is_empty();
        let is_unclear = written.contains_key(ENTRANCE) && !wishes.written.contains_key(ENTRANCE);
        let entrances = (!is_unclear).then(|| http.entrances.clone());
        HostPlaces { at, protects, protects_paths, entrances }.or_nothing()
    }

    pub(crate) fn of_route(route: &HttpRoute) -> HostPlaces {
        if route.hosts.is_empty() {
            return HostPlaces::default();
        }
        let (written, mut wishes) = (&route.meta.annotations, ServiceOptions::by_default());
        if !written.is_empty() {
            wishes.read(&route.object(), written);
        }
        let places = |rule: &RouteRule| {
            let services = services_of(rule, &route.meta.namespace);
            let mut at = Vec::new();
            for (host, asked) in
                route.hosts.iter().flat_map(|host| rule.matches.iter().map(move |it| (host, it)))
            {
                at.extend(services.iter().map(|service| HostPlace {
                    host: host.clone(),
                    path: path_of(asked).into(),
                    service: service.clone(),
                    is_whole: is_whole(asked),
                }));
            }
            at
        };
        let at = route.rules.iter().flat_map(places).collect();
        let is_unclear = written.contains_key(ENTRANCE) && !wishes.written.contains_key(ENTRANCE);
        let entrances = (!is_unclear).then(|| wishes.http.entrances.clone());
        let protects = wishes.restricts_clients() || wishes.protection().is_some();
        HostPlaces { at, protects, protects_paths: false, entrances }.or_nothing()
    }

    fn or_nothing(self) -> HostPlaces {
        if self.at.is_empty() && !self.protects_paths { HostPlaces::default() } else { self }
    }

    /// What it protects.
    fn guarded(&self) -> BTreeSet<(&HostPattern, &Name)> {
        let at = self.at.iter().filter(|_| self.protects);
        at.map(|it| (&it.host, &it.path)).collect()
    }

    /// Whether both are at one entrance. One that is not there may mean each.
    fn meets(&self, others: &[Name], door: &FrontDoor) -> bool {
        let Some(own) = &self.entrances else { return true };
        let named = |all: &[Name]| if all.is_empty() { vec![Name::from(MAIN)] } else { all.to_vec() };
        let is_there = |it: &Name| **it == *MAIN || door.entrances.contains_key(it);
        let (own, others) = (named(own), named(others));
        own.iter().any(|it| others.contains(it) || !is_there(it)) || !others.iter().all(is_there)
    }
}

/// The Services of its namespace that a rule leads to. Without one, the rule keeps its place, too.
fn services_of(rule: &RouteRule, namespace: &Name) -> Vec<Name> {
    let Action::Forward(backends) = &rule.action else { return Vec::new() };
    let own = backends.iter().filter(|(to, _)| to.namespace == *namespace);
    let mut services: Vec<Name> = own.map(|(to, _)| to.service.clone()).collect();
    if services.is_empty() {
        services.push(Name::default());
    }
    services
}

fn is_whole(asked: &Match) -> bool {
    matches!(asked.path, None | Some(PathMatch::Prefix(_)))
        && asked.method.is_none()
        && asked.headers.is_empty()
        && asked.query.is_empty()
}

#[derive(Debug, Default)]
pub(crate) struct HostPlaceIndex {
    of: HashMap<ObjectRef, HostPlaces>,
    namespaces: HashMap<Name, NamespacePlaces>,
}

#[derive(Debug, Default)]
struct NamespacePlaces {
    by_host: BTreeMap<HostPattern, BTreeSet<(HostPlace, ObjectRef)>>,
    /// Those that protect, by [`by_labels`].
    guards: BTreeMap<String, BTreeSet<(HostPlace, ObjectRef)>>,
    /// Whose places lead to a Service.
    leading: BTreeMap<Name, BTreeSet<ObjectRef>>,
    /// Services that protect paths of all host names, and have no host name.
    of_paths: BTreeSet<Name>,
}

impl HostPlaceIndex {
    /// Takes down what an object has now. Says which other Services that concerns.
    pub(crate) fn set(&mut self, object: &ObjectRef, now: HostPlaces) -> BTreeSet<ServiceKey> {
        let before = self.of.remove(object).unwrap_or_default();
        let is_same = before == now;
        let mut concerned = BTreeSet::new();
        if !is_same {
            let places = self.namespaces.entry(object.namespace.clone()).or_default();
            let had_guards = !places.guards.is_empty();
            places.take_out(object, &before);
            places.put_in(object, &now);
            concerned = places.concerned(&before, &now, had_guards);
            if places.by_host.is_empty() && places.of_paths.is_empty() {
                self.namespaces.remove(&object.namespace);
            }
        }
        if now != HostPlaces::default() {
            self.of.insert(object.clone(), now);
        }
        let others = concerned.into_iter().filter(|it| object.kind != Kind::Service || *it != object.name);
        others.map(|it| ServiceKey::new(object.namespace.clone(), it)).collect()
    }

    /// What protects a part of the host names by which a Service is reached, at one of these entrances.
    pub(super) fn guard(
        &self,
        key: &ServiceKey,
        entrances: &[Name],
        door: &FrontDoor,
        is_used: impl Fn(&ObjectRef) -> bool,
    ) -> Option<HostGuard> {
        let places = self.namespaces.get(&key.namespace).filter(|it| !it.guards.is_empty())?;
        let leading = places.leading.get(&key.name)?.iter().filter(|it| is_used(it));
        let at = leading.filter_map(|it| self.of.get(it)).flat_map(|it| &it.at);
        let own = key.object();
        let mut guards = at.filter(|it| it.service == key.name).flat_map(|place| {
            let within = places.guards_within(&place.host);
            within.filter(move |(guarded, _)| is_below(&place.path, &guarded.path))
        });
        let is_one = |by: &ObjectRef| {
            *by != own && is_used(by) && self.of.get(by).is_some_and(|it| it.meets(entrances, door))
        };
        let (place, by) = guards.find(|(_, by)| is_one(by))?;
        Some(HostGuard { by: by.clone(), at: format!("{}{}", place.host, place.path) })
    }

    /// What serves one of these paths by its host name, without the protection that the Service has for it at all others.
    pub(super) fn open_place(
        &self,
        key: &ServiceKey,
        paths: &[Name],
        door: &FrontDoor,
        is_used: impl Fn(&ObjectRef) -> bool,
    ) -> Option<HostGuard> {
        let own = self.of.get(&key.object()).filter(|it| it.protects_paths)?;
        let paths: Vec<&str> = paths.iter().map(|it| it.trim_end_matches('/')).collect();
        let is_near = |(place, object): &(HostPlace, ObjectRef)| {
            let its = self.of.get(object).and_then(|it| it.entrances.as_ref());
            place.is_whole && is_used(object) && its.is_none_or(|it| own.meets(it, door))
        };
        let is_open = |(place, object): &(HostPlace, ObjectRef)| {
            let is_answered = !place.service.is_empty() && place.service != key.name;
            is_answered && self.of.get(object).is_some_and(|it| !it.protects)
        };
        for (host, all) in &self.namespaces.get(&key.namespace)?.by_host {
            for path in &paths {
                let near = all.iter().filter(|it| is_below(&it.0.path, path) && is_near(it));
                let nearest = near.max_by_key(|(place, _)| place.path.len());
                if let Some((_, by)) = nearest.filter(|it| *it.0.path != **path && is_open(it)) {
                    return Some(HostGuard { by: by.clone(), at: format!("{host}{path}") });
                }
            }
        }
        None
    }
}

impl NamespacePlaces {
    fn put_in(&mut self, object: &ObjectRef, now: &HostPlaces) {
        for place in &now.at {
            let entry = (place.clone(), object.clone());
            if now.protects {
                self.guards.entry(by_labels(&place.host)).or_default().insert(entry.clone());
            }
            self.by_host.entry(place.host.clone()).or_default().insert(entry);
            if !place.service.is_empty() {
                self.leading.entry(place.service.clone()).or_default().insert(object.clone());
            }
        }
        if now.protects_paths {
            self.of_paths.insert(object.name.clone());
        }
    }

    fn take_out(&mut self, object: &ObjectRef, before: &HostPlaces) {
        for place in &before.at {
            let entry = (place.clone(), object.clone());
            remove(&mut self.guards, &by_labels(&place.host), &entry);
            remove(&mut self.by_host, &place.host, &entry);
            remove(&mut self.leading, &place.service, object);
        }
        if before.protects_paths {
            self.of_paths.remove(&object.name);
        }
    }

    /// Services that may be served otherwise now.
    fn concerned(&self, before: &HostPlaces, now: &HostPlaces, had_guards: bool) -> BTreeSet<Name> {
        let (old, new) = (before.guarded(), now.guarded());
        let is_elsewhere = before.entrances != now.entrances;
        let changed = old.union(&new).filter(|it| is_elsewhere || old.contains(*it) != new.contains(*it));
        let holders = |(host, path): &(&HostPattern, &Name)| {
            let above = covering(host).filter_map(|it| self.by_host.get(&it)).flatten();
            let within = above.filter(|(place, _)| is_below(&place.path, path));
            within.map(|(place, _)| place.service.clone()).collect::<Vec<_>>()
        };
        let mut concerned: BTreeSet<Name> = changed.flat_map(holders).collect();
        if had_guards || !self.guards.is_empty() {
            concerned.extend(before.at.symmetric_difference(&now.at).map(|it| it.service.clone()));
        }
        concerned.extend(self.of_paths.iter().cloned());
        concerned.remove(&Name::default());
        concerned
    }

    /// Of that host name, and for a wildcard of all below it.
    fn guards_within<'a>(
        &'a self,
        host: &HostPattern,
    ) -> impl Iterator<Item = &'a (HostPlace, ObjectRef)> + use<'a> {
        let labels = by_labels(host);
        let is_wildcard = labels.ends_with('*');
        let from = labels.trim_end_matches('*').to_owned();
        let all = self.guards.range(from.clone()..);
        let is_within = move |it: &str| match is_wildcard {
            true => it.starts_with(from.as_str()),
            false => it == from,
        };
        // The name that a wildcard stands below is not its own.
        let is_name = move |it: &str| is_wildcard && it.len() < labels.len();
        all.take_while(move |(it, _)| is_within(it))
            .filter(move |(it, _)| !is_name(it))
            .flat_map(|(_, all)| all)
    }
}

fn remove<K: Ord, V: Ord>(all: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(its) = all.get_mut(key) {
        its.remove(value);
        if its.is_empty() {
            all.remove(key);
        }
    }
}

/// By whole segments; both without a slash at the end.
fn is_below(above: &str, path: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// `example.shop.` for `shop.example`, and `example.*` for `*.example`: what is below a wildcard stands together.
fn by_labels(host: &HostPattern) -> String {
    let (name, end) = match host {
        HostPattern::Exact(name) => (name, ""),
        HostPattern::Under(name) => (name, "*"),
    };
    let mut labels: String = name.rsplit('.').flat_map(|it| [it, "."]).collect();
    labels.push_str(end);
    labels
}

/// The host name itself, and the wildcards above it.
fn covering(host: &HostPattern) -> impl Iterator<Item = HostPattern> + use<> {
    let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
    let ends = name.match_indices('.').filter_map(|(at, _)| name.get(at.saturating_add(1)..));
    let above: Vec<HostPattern> = ends.map(|end| HostPattern::Under(end.into())).collect();
    iter::once(host.clone()).chain(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_what_is_below_it_and_nothing_else() {
        let exact = |name: &str| HostPattern::Exact(name.into());
        let under = |name: &str| HostPattern::Under(name.into());
        let hosts = [
            exact("a.b.example"),
            exact("b.example"),
            exact("xb.example"),
            under("b.example"),
            under("example"),
        ];
        let object = ObjectRef::new(Kind::Service, "default", "admin");
        let mut places = NamespacePlaces::default();
        let place = |host: &HostPattern| HostPlace {
            host: host.clone(),
            path: "/a".into(),
            service: "x".into(),
            is_whole: true,
        };
        let at = hosts.iter().map(place).collect();
        places.put_in(&object, &HostPlaces { at, protects: true, ..HostPlaces::default() });
        for (host, expected) in [
            (exact("b.example"), vec!["b.example"]),
            (under("b.example"), vec!["*.b.example", "a.b.example"]),
            (under("example"), vec!["*.example", "*.b.example", "a.b.example", "b.example", "xb.example"]),
            (exact("example"), vec![]),
        ] {
            let mut found: Vec<String> =
                places.guards_within(&host).map(|(place, _)| place.host.to_string()).collect();
            found.sort();
            let mut expected = expected;
            expected.sort_unstable();
            assert_eq!(found, expected, "{host}");
            for guarded in &hosts {
                let is_within = expected.contains(&guarded.to_string().as_str());
                assert_eq!(covering(guarded).any(|it| it == host), is_within, "{guarded} {host}");
            }
        }
        assert!(is_below("", "/a") && is_below("/a", "/a/b") && is_below("", "") && !is_below("/a", "/ab"));
    }
}
