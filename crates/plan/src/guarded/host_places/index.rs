//! The places of all objects, by namespace, and the searches in them. Each search looks at every entry of a namespace a few times at most,
//! and a namespace has so many entries at most: what a tenant writes makes no search longer than that.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use seaway_model::{
    Kind, Name, ObjectRef,
    config::{FrontDoor, TenantLimits},
};

use super::{
    EntranceNames, HostGuard, HostPlaces, PlacePath, entrances,
    key::{ALL_HOSTS, Tree, below, covering, prefixes, readable, slashed},
    meet,
};
use crate::index::ServiceKey;

/// How many entries a namespace may have without a limit of its rules: about 30 MB.
const MOST: usize = 200_000;
/// How many for each rule that it may have: a rule leads to a few Services, and a host name has a few labels.
const FOR_EACH_RULE: usize = 10;
/// How many entries all Services together that protect paths of all host names look at, whenever a host name of their namespace changes.
const MOST_LOOKS: usize = 1_000_000;

#[derive(Debug)]
pub(crate) struct HostPlaceIndex {
    namespaces: HashMap<Name, NamespacePlaces>,
    most: usize,
}

impl Default for HostPlaceIndex {
    fn default() -> HostPlaceIndex {
        HostPlaceIndex { namespaces: HashMap::new(), most: MOST }
    }
}

#[derive(Debug, Default)]
struct NamespacePlaces {
    objects: BTreeMap<ObjectRef, HostPlaces>,
    /// Those that protect places.
    protecting: BTreeSet<ObjectRef>,
    /// Services that protect paths of all host names, and have no host name.
    of_paths: BTreeSet<Name>,
    /// Services that places lead to, and how many objects have these.
    led: BTreeMap<Name, usize>,
    weight: usize,
    /// It has more entries than it may: none are kept.
    is_full: bool,
    entries: Entries,
}

/// Hosts, paths and Services put together.
#[derive(Debug, Default)]
struct Entries {
    at: Tree<BTreeMap<ObjectRef, Holding>>,
    guards: Guards,
    /// Those of them that are expressions, by what these begin with.
    expressions: Guards,
    /// The places that lead to a Service, and how many there are of each.
    leading: BTreeMap<Name, Tree<usize>>,
}

/// What protects a path, by entrance: at its host and at each wildcard above that, so that a search is one look-up. What may be at each
/// entrance stands at that of no name.
type Guards = BTreeMap<Name, Tree<BTreeSet<Guard>>>;

/// And its own host.
type Guard = (ObjectRef, Name);

/// What an object has at a place.
#[derive(Debug)]
struct Holding {
    services: Arc<BTreeSet<Name>>,
    /// Those of them that answer all requests below it; nothing, where none of its rules are for all.
    whole: Option<Arc<BTreeSet<Name>>>,
}

impl HostPlaceIndex {
    /// Empty, with the limits of a configuration.
    pub(crate) fn with_limits(limits: &TenantLimits) -> HostPlaceIndex {
        let most = limits.rules.map_or(MOST, |it| (it as usize).saturating_mul(FOR_EACH_RULE));
        HostPlaceIndex { most, ..HostPlaceIndex::default() }
    }

    pub(crate) fn has_limits(&self, limits: &TenantLimits) -> bool {
        self.most == HostPlaceIndex::with_limits(limits).most
    }

    /// Takes down what an object has now. Says which other Services that concerns.
    pub(crate) fn set(&mut self, object: &ObjectRef, now: HostPlaces) -> BTreeSet<ServiceKey> {
        if now == HostPlaces::default() && !self.namespaces.contains_key(&object.namespace) {
            return BTreeSet::new();
        }
        let places = self.namespaces.entry(object.namespace.clone()).or_default();
        let concerned = places.set(object, now, self.most);
        if places.objects.is_empty() {
            self.namespaces.remove(&object.namespace);
        }
        let others = concerned.into_iter().filter(|it| object.kind != Kind::Service || *it != object.name);
        others.map(|it| ServiceKey::new(object.namespace.clone(), it)).collect()
    }

    /// What protects a part of the host names by which a Service is reached, at one of these entrances.
    pub(crate) fn guard(&self, key: &ServiceKey, named: &[Name], door: &FrontDoor) -> Option<HostGuard> {
        let places = self.namespaces.get(&key.namespace)?;
        if !places.is_full {
            return places.guard(key, &entrances(named, door));
        }
        let by = places.protecting.iter().find(|it| **it != key.object());
        let by = by.filter(|_| places.led.contains_key(&key.name))?;
        let most = self.most;
        let at =
            format!("host names of this namespace, which has too many to compare them (more than {most})");
        Some(HostGuard { by: by.clone(), at })
    }

    /// What serves one of these paths by its host name, without the protection that the Service has for it at all others. In a namespace
    /// with very many places not all are looked at.
    pub(crate) fn open_place(&self, key: &ServiceKey, paths: &[Name]) -> Option<HostGuard> {
        let places = self.namespaces.get(&key.namespace)?;
        let own = places.objects.get(&key.object()).filter(|it| it.protects_paths)?;
        let paths: BTreeMap<Name, ()> = paths.iter().map(|it| (slashed(it), ())).collect();
        let mut left = MOST_LOOKS.checked_div(places.of_paths.len()).unwrap_or(MOST_LOOKS);
        let open_at = |(host, at): (&Name, &BTreeMap<Name, BTreeMap<ObjectRef, Holding>>)| {
            let (path, by) = places.first_open(key, own, at, &paths, &mut left)?;
            Some(HostGuard { by: by.clone(), at: readable(host, path) })
        };
        places.entries.at.iter().filter(|(host, _)| host.as_str() != ALL_HOSTS).find_map(open_at)
    }
}

impl NamespacePlaces {
    /// Services that may be served otherwise now.
    fn set(&mut self, object: &ObjectRef, now: HostPlaces, most: usize) -> BTreeSet<Name> {
        let before = self.objects.remove(object).unwrap_or_default();
        if before == now {
            self.keep(object, now);
            return BTreeSet::new();
        }
        let (was_full, had_guards) = (self.is_full, !self.protecting.is_empty());
        self.weight = self.weight.saturating_sub(before.weight()).saturating_add(now.weight());
        self.is_full = self.weight > most;
        self.forget(object, &before);
        self.remember(object, &now);
        let has_guards = had_guards || !self.protecting.is_empty();
        let mut concerned: BTreeSet<Name> = self.of_paths.clone();
        if has_guards {
            concerned.extend(before.services().union(&now.services()).copied().cloned());
        }
        match (was_full, self.is_full) {
            (false, false) => {
                self.entries.remove(object, &before);
                self.entries.insert(object, &now);
                concerned.extend(self.entries.led_through(&before, &now));
            }
            (true, true) if before.guards() == now.guards() => {}
            (true, true) => concerned.extend(self.led.keys().cloned()),
            (_, true) => {
                self.entries = Entries::default();
                concerned.extend(self.led.keys().cloned());
            }
            (_, false) => {
                self.objects.iter().for_each(|(object, its)| self.entries.insert(object, its));
                self.entries.insert(object, &now);
                concerned.extend(self.led.keys().cloned());
            }
        }
        self.keep(object, now);
        concerned
    }

    fn keep(&mut self, object: &ObjectRef, now: HostPlaces) {
        if now != HostPlaces::default() {
            self.objects.insert(object.clone(), now);
        }
    }

    fn remember(&mut self, object: &ObjectRef, now: &HostPlaces) {
        for service in now.services() {
            let count = self.led.entry(service.clone()).or_default();
            *count = count.saturating_add(1);
        }
        if now.guards() {
            self.protecting.insert(object.clone());
        }
        if now.protects_paths {
            self.of_paths.insert(object.name.clone());
        }
    }

    fn forget(&mut self, object: &ObjectRef, before: &HostPlaces) {
        before.services().into_iter().for_each(|it| count_down(&mut self.led, it));
        if before.guards() {
            self.protecting.remove(object);
        }
        if before.protects_paths {
            self.of_paths.remove(&object.name);
        }
    }

    fn guard(&self, key: &ServiceKey, entrances: &EntranceNames) -> Option<HostGuard> {
        let Entries { guards, expressions, leading, .. } = &self.entries;
        let (own, object) = (leading.get(&key.name)?, key.object());
        let at = |(path, by): (&Name, &BTreeSet<Guard>)| {
            look();
            let (by, host) = by.iter().find(|(by, _)| *by != object)?;
            Some(HostGuard { by: by.clone(), at: readable(host, path) })
        };
        let below = |guards: &Tree<BTreeSet<Guard>>| {
            own.iter().find_map(|(host, paths)| {
                let all = guards.get(host)?;
                topmost(paths).flat_map(|it| below(all, it)).find_map(at)
            })
        };
        let above = |expressions: &Tree<BTreeSet<Guard>>| {
            own.iter().find_map(|(host, paths)| {
                let all = expressions.get(host)?;
                let above = paths.keys().flat_map(|it| prefixes(it));
                above.filter_map(|it| all.get_key_value(it)).find_map(at)
            })
        };
        let found = meeting(guards, entrances).find_map(below);
        found.or_else(|| meeting(expressions, entrances).find_map(above))
    }

    /// The first of these paths that an object serves at a host name without protection, as the nearest above it.
    fn first_open<'a>(
        &'a self,
        key: &ServiceKey,
        own: &HostPlaces,
        at: &BTreeMap<Name, BTreeMap<ObjectRef, Holding>>,
        paths: &'a BTreeMap<Name, ()>,
        left: &mut usize,
    ) -> Option<(&'a Name, &'a ObjectRef)> {
        // Places for all requests, at an entrance of the Service, each with the first that is open.
        let mut near: BTreeMap<&str, Option<&ObjectRef>> = BTreeMap::new();
        for (path, all) in at {
            for (object, whole) in all.iter().filter_map(|(object, it)| Some((object, it.whole.as_ref()?))) {
                *left = look_at_one_of(*left)?;
                let Some((object, its)) = self.objects.get_key_value(object) else { continue };
                if meet(&its.entrances, &own.entrances) {
                    let is_answered = whole.iter().any(|it| *it != key.name);
                    let open = near.entry(path.as_str()).or_default();
                    *open = open.or((is_answered && !its.protects).then_some(object));
                }
            }
        }
        let mut open = near.iter().filter_map(|(above, by)| Some((*above, (*by)?)));
        open.find_map(|(above, by)| Some((next_below(above, &near, paths, left)?, by)))
    }
}

impl Holding {
    fn add(&mut self, is_whole: bool, services: &Arc<BTreeSet<Name>>) {
        add(&mut self.services, services);
        if is_whole {
            add(self.whole.get_or_insert_default(), services);
        }
    }
}

fn add(to: &mut Arc<BTreeSet<Name>>, services: &Arc<BTreeSet<Name>>) {
    if to != services {
        Arc::make_mut(to).extend(services.iter().cloned());
    }
}

impl Entries {
    fn insert(&mut self, object: &ObjectRef, now: &HostPlaces) {
        for (host, path, group) in now.at() {
            let at = || (host.clone(), path.path.clone());
            let held = self.at.entry(host.clone()).or_default().entry(path.path.clone()).or_default();
            match held.get_mut(object) {
                Some(it) => it.add(path.is_whole, &group.services),
                None => {
                    let whole = path.is_whole.then(|| group.services.clone());
                    held.insert(object.clone(), Holding { services: group.services.clone(), whole });
                }
            }
            for service in &*group.services {
                let (host, path) = at();
                let all = self.leading.entry(service.clone()).or_default();
                let count = all.entry(host).or_default().entry(path).or_default();
                *count = count.saturating_add(1);
            }
        }
        for (host, (path, is_expression), guard) in guards_of(object, now) {
            for entrance in standing_at(&now.entrances) {
                let expressions = is_expression.then_some(&mut self.expressions);
                for guards in [&mut self.guards].into_iter().chain(expressions) {
                    let tree = guards.entry(entrance.clone()).or_default();
                    let paths = tree.entry(host.as_str().into()).or_default();
                    paths.entry(path.clone()).or_default().insert(guard.clone());
                }
            }
        }
    }

    fn remove(&mut self, object: &ObjectRef, before: &HostPlaces) {
        for (host, PlacePath { path, .. }, group) in before.at() {
            let leave = |held: &mut BTreeMap<ObjectRef, Holding>| {
                held.remove(object);
            };
            change_at(&mut self.at, host, path, leave, BTreeMap::is_empty);
            for service in &*group.services {
                let down = |all: &mut Tree<usize>| {
                    change_at(all, host, path, |it| *it = it.saturating_sub(1), |it| *it == 0);
                };
                change(&mut self.leading, service, down, BTreeMap::is_empty);
            }
        }
        for (host, (path, _), guard) in guards_of(object, before) {
            for entrance in standing_at(&before.entrances) {
                for guards in [&mut self.guards, &mut self.expressions] {
                    let leave = |by: &mut BTreeSet<Guard>| {
                        by.remove(&guard);
                    };
                    let of_tree = |tree: &mut Tree<BTreeSet<Guard>>| {
                        change_at(tree, &host, path, leave, BTreeSet::is_empty);
                    };
                    change(guards, &entrance, of_tree, BTreeMap::is_empty);
                }
            }
        }
    }

    /// Services that are led to through a place above what is protected now, or was, and is not both.
    fn led_through(&self, before: &HostPlaces, now: &HostPlaces) -> BTreeSet<Name> {
        let (old, new) = (before.guarded(), now.guarded());
        let is_elsewhere = before.entrances != now.entrances;
        let is_change = |it: &(&Name, &Name, bool)| is_elsewhere || old.contains(it) != new.contains(it);
        let (mut visited, mut hosts, mut services) = (HashSet::new(), HashSet::new(), BTreeSet::new());
        let mut lead = |held: &BTreeMap<ObjectRef, Holding>| {
            services.extend(held.values().flat_map(|it| it.services.iter().cloned()));
        };
        for (host, path, is_expression) in old.union(&new).filter(|it| is_change(it)) {
            for (host, all) in covering(host).filter_map(|it| self.at.get_key_value(it.as_str())) {
                // Above it or below: that of each path of the host is enough.
                if *is_expression && hosts.insert(host) {
                    all.values().for_each(&mut lead);
                }
                for (path, held) in prefixes(path).filter_map(|it| all.get_key_value(it)) {
                    look();
                    if visited.insert((host, path)) {
                        lead(held);
                    }
                }
            }
        }
        services
    }
}

/// The first path below this place that has no nearer one. What has one is skipped at once with all that is below that.
fn next_below<'p>(
    above: &str,
    near: &BTreeMap<&str, Option<&ObjectRef>>,
    paths: &'p BTreeMap<Name, ()>,
    left: &mut usize,
) -> Option<&'p Name> {
    let mut from = Excluded(above.to_owned());
    loop {
        *left = look_at_one_of(*left)?;
        let start = from.as_ref().map(String::as_str);
        let (path, ()) = paths.range::<str, _>((start, Unbounded)).next()?;
        if !path.starts_with(above) {
            return None;
        }
        let mut between = prefixes(path).filter(|it| it.len() > above.len());
        let Some(nearer) = between.find(|it| near.contains_key(it)) else { return Some(path) };
        // The first key after all that begin with it: a zero comes after a slash.
        from = Included(format!("{}0", nearer.trim_end_matches('/')));
    }
}

/// What an object protects, at its hosts and at each wildcard above them.
fn guards_of<'p>(
    object: &ObjectRef,
    its: &'p HostPlaces,
) -> impl Iterator<Item = (String, (&'p Name, bool), Guard)> {
    its.guarded().into_iter().flat_map(move |(host, path, is_expression)| {
        covering(host).map(move |above| (above, (path, is_expression), (object.clone(), host.clone())))
    })
}

/// At which entrances something stands.
fn standing_at(entrances: &EntranceNames) -> Vec<Name> {
    entrances.as_ref().map_or_else(|| vec![Name::default()], |all| all.iter().cloned().collect())
}

/// Those that something at these entrances meets.
fn meeting<'g>(guards: &'g Guards, at: &EntranceNames) -> impl Iterator<Item = &'g Tree<BTreeSet<Guard>>> {
    let is_met = |it: &Name| it.is_empty() || at.as_ref().is_none_or(|at| at.contains(it));
    guards.iter().filter(move |(entrance, _)| is_met(entrance)).map(|(_, tree)| tree)
}

/// Those paths that are below none of the others.
fn topmost<V>(paths: &BTreeMap<Name, V>) -> impl Iterator<Item = &str> {
    let mut above: Option<&str> = None;
    paths.keys().map(Name::as_str).filter(move |path| {
        look();
        let is_top = above.is_none_or(|it| !path.starts_with(it));
        if is_top {
            above = Some(path);
        }
        is_top
    })
}

/// Changes what is there under a key, and takes it away once it is empty.
fn change<V>(
    all: &mut BTreeMap<Name, V>,
    key: &str,
    with: impl FnOnce(&mut V),
    is_empty: impl Fn(&V) -> bool,
) {
    if let Some(it) = all.get_mut(key) {
        with(it);
        if is_empty(it) {
            all.remove(key);
        }
    }
}

fn change_at<V>(
    tree: &mut Tree<V>,
    host: &str,
    path: &str,
    with: impl FnOnce(&mut V),
    is_empty: impl Fn(&V) -> bool,
) {
    change(tree, host, |paths| change(paths, path, with, is_empty), BTreeMap::is_empty);
}

fn count_down(all: &mut BTreeMap<Name, usize>, key: &str) {
    change(all, key, |it| *it = it.saturating_sub(1), |it| *it == 0);
}

/// As [`look`]; nothing, if no more are left.
fn look_at_one_of(left: usize) -> Option<usize> {
    look();
    left.checked_sub(1)
}

/// A search looks at one more entry.
fn look() {
    #[cfg(test)]
    tests::LOOKS.set(tests::LOOKS.get() + 1);
}

#[cfg(test)]
mod tests;
