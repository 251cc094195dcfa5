//! Who says what each object is: claims of files, the one that is served, and what the World was told.
//!
//! ```text
//!     file ─ claims ─► Entry { claims, served } ─► told ─► Change
//! ```
//! Three things are settled here that an API server does between a manifest and its readers: one object has one
//! content, a namespace exists as soon as something is in it, and Endpoints give way to slices of the same Service
//! (in a cluster the slices are made from them; here only one of the two may speak, or members would count twice).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use seaway_manifests::object::{implied_namespace, slice_service};
use seaway_model::{Change, Fact, Kind, Name, ObjectRef, fact::FactRef};

use crate::document::LocatedObject;

#[derive(Default)]
pub(crate) struct ObjectSources {
    entries: HashMap<ObjectRef, Entry>,
    /// How many slices each Service has.
    slices: HashMap<ObjectRef, usize>,
    /// How many objects are in each namespace.
    inhabited: HashMap<Name, usize>,
    namespaces: HashMap<Name, Fact>,
    /// Services that a route was to protect which cannot be used, and where it stands.
    unused_routes: BTreeMap<ObjectRef, Name>,
    dirty: BTreeSet<ObjectRef>,
}

#[derive(Default)]
struct Entry {
    claims: Vec<ObjectSource>,
    served: Option<ObjectSource>,
    told: Option<Arc<LocatedObject>>,
    /// What was told of a route that cannot be used.
    told_route: Option<Name>,
}

#[derive(Clone)]
pub(crate) struct ObjectSource {
    pub(crate) file: Name,
    pub(crate) found: Arc<LocatedObject>,
    /// No longer written: the last good state of something that is broken now.
    pub(crate) kept: bool,
}

impl ObjectSource {
    /// Of several descriptions of an object, no client is let in by one that lacks what another says. Else what is written wins over
    /// what is kept.
    fn precedence(&self) -> (u8, usize) {
        let protections = self.found.object.protections();
        let rank = match (self.kept, protections) {
            (false, 1..) => 0,
            (true, 1..) => 1,
            (false, 0) if self.found.object.lacks_protection() => 2,
            (false, 0) => 3,
            (true, 0) => 4,
        };
        // Of two, the one that says more of who may connect.
        (rank, usize::MAX.saturating_sub(protections))
    }

    fn is(&self, other: &ObjectSource) -> bool {
        Arc::ptr_eq(&self.found, &other.found) && self.file == other.file
    }
}

impl ObjectSources {
    pub(crate) fn add(&mut self, claim: ObjectSource) {
        let reference = claim.found.reference().clone();
        self.entries.entry(reference.clone()).or_default().claims.push(claim);
        self.dirty.insert(reference);
    }

    pub(crate) fn remove(&mut self, file: &Name, found: &Arc<LocatedObject>) {
        if let Some(entry) = self.entries.get_mut(found.reference()) {
            entry.claims.retain(|claim| !(claim.file == *file && Arc::ptr_eq(&claim.found, found)));
            self.dirty.insert(found.reference().clone());
        }
    }

    pub(crate) fn served(&self, reference: &ObjectRef) -> Option<&ObjectSource> {
        self.entries.get(reference)?.served.as_ref()
    }

    /// All objects of a kind that are served.
    pub(crate) fn references(&self, kind: Kind) -> impl Iterator<Item = &ObjectRef> {
        let served = self.entries.iter().filter(move |(it, entry)| it.kind == kind && entry.served.is_some());
        served.map(|(it, _)| it)
    }

    /// These Services, and no others, lack the protection of a route that cannot be used.
    pub(crate) fn set_unused_routes(&mut self, now: BTreeMap<ObjectRef, Name>) {
        let before = std::mem::take(&mut self.unused_routes);
        let is_other = |it: &&ObjectRef| before.get(*it) != now.get(*it);
        self.dirty.extend(before.keys().chain(now.keys()).filter(is_other).cloned());
        self.unused_routes = now;
    }

    /// What claims this object beside the one that is served.
    pub(crate) fn other_sources(&self, reference: &ObjectRef) -> impl Iterator<Item = &ObjectSource> {
        self.entries.get(reference).into_iter().flat_map(|entry| {
            let served = entry.served.as_ref();
            entry
                .claims
                .iter()
                .filter(move |claim| !claim.kept && served.is_some_and(|served| !served.is(claim)))
                // It is the same one, as it is written now.
                .filter(move |claim| !served.is_some_and(|it| it.kept && it.file == claim.file))
        })
    }

    /// Settles what was added and removed: what the World has to be told, and of which objects.
    pub(crate) fn take_changes(
        &mut self,
        order: impl Fn(&ObjectSource) -> (Name, u32),
    ) -> (Vec<Change>, BTreeSet<ObjectRef>) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut changes = Vec::new();
        let mut again = BTreeSet::new();
        for reference in &dirty {
            self.choose(reference, &order, &mut again);
        }
        let mut namespaces = BTreeSet::new();
        for reference in dirty.iter().chain(again.difference(&dirty)) {
            match reference.kind {
                Kind::Namespace => namespaces.insert(reference.name.clone()),
                _ => self.tell(reference, &mut changes) && namespaces.insert(reference.namespace.clone()),
            };
        }
        for name in namespaces {
            self.tell_namespace(name, &mut changes);
        }
        for reference in dirty.iter().chain(&again) {
            let empty =
                |entry: &Entry| entry.claims.is_empty() && entry.served.is_none() && entry.told.is_none();
            if self.entries.get(reference).is_some_and(empty) {
                self.entries.remove(reference);
            }
        }
        (changes, dirty)
    }

    /// The one that is served goes on; else the first in the order of files.
    fn choose(
        &mut self,
        reference: &ObjectRef,
        order: impl Fn(&ObjectSource) -> (Name, u32),
        again: &mut BTreeSet<ObjectRef>,
    ) {
        let Some(entry) = self.entries.get_mut(reference) else { return };
        let served_in = entry.served.as_ref().map(|claim| claim.file.clone());
        let rank = |claim: &&ObjectSource| {
            (claim.precedence(), Some(&claim.file) != served_in.as_ref(), order(claim))
        };
        let choice = match entry.claims.as_slice() {
            [only] => Some(only.clone()),
            several => several.iter().min_by_key(rank).cloned(),
        };
        let before = std::mem::replace(&mut entry.served, choice);
        let after = entry.served.clone();
        for (claim, there) in [(&before, false), (&after, true)] {
            let Some(claim) = claim else { continue };
            if let Some((namespace, service)) = slice_service(&claim.found.object) {
                let endpoints = ObjectRef::new(Kind::Endpoints, namespace, service);
                count(&mut self.slices, endpoints.clone(), there);
                again.insert(endpoints);
            }
            if !reference.namespace.is_empty() {
                count(&mut self.inhabited, reference.namespace.clone(), there);
            }
        }
    }

    /// Whether it came or went.
    fn tell(&mut self, reference: &ObjectRef, changes: &mut Vec<Change>) -> bool {
        let Some(entry) = self.entries.get_mut(reference) else { return false };
        let silenced = reference.kind == Kind::Endpoints && self.slices.contains_key(reference);
        let now = entry.served.as_ref().filter(|_| !silenced).map(|claim| claim.found.clone());
        let before = std::mem::replace(&mut entry.told, now.clone());
        let route = self.unused_routes.get(reference).cloned();
        let route_before = std::mem::replace(&mut entry.told_route, route.clone());
        let facts = |found: &Option<Arc<LocatedObject>>, route: &Option<Name>| {
            let mut facts = found.as_ref().map_or(Vec::new(), |found| found.object.facts.clone());
            for fact in &mut facts {
                if let (Fact::Service(service), Some(_)) = (fact, route) {
                    Arc::make_mut(service).unused_route.clone_from(route);
                }
            }
            facts
        };
        let (old, new) = (facts(&before, &route_before), facts(&now, &route));
        let stays: Vec<FactRef> = new.iter().map(Fact::reference).collect();
        changes.extend(old.iter().map(Fact::reference).filter(|it| !stays.contains(it)).map(Change::Gone));
        changes.extend(new.into_iter().filter(|fact| !old.contains(fact)).map(Change::Put));
        before.is_some() != now.is_some()
    }

    fn tell_namespace(&mut self, name: Name, changes: &mut Vec<Change>) {
        let written = self.entries.get(&ObjectRef::new(Kind::Namespace, "", name.clone()));
        let written = written.and_then(|entry| entry.served.as_ref()?.found.object.facts.first().cloned());
        let exists = *name == *"default" || self.inhabited.contains_key(&name);
        let now = written.or_else(|| exists.then(|| Fact::Namespace(Arc::new(implied_namespace(&name)))));
        match now {
            Some(fact) if self.namespaces.get(&name) == Some(&fact) => {}
            Some(fact) => {
                self.namespaces.insert(name, fact.clone());
                changes.push(Change::Put(fact));
            }
            None => changes.extend(self.namespaces.remove(&name).map(|fact| Change::Gone(fact.reference()))),
        }
    }

    /// The namespace that is there when nothing else is.
    pub(crate) fn report_default_namespace(&mut self, changes: &mut Vec<Change>) {
        self.tell_namespace("default".into(), changes);
    }
}

fn count<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K, up: bool) {
    if up {
        let count = counts.entry(key).or_default();
        *count = count.saturating_add(1);
    } else if let Some(left) = counts.get_mut(&key) {
        *left = left.saturating_sub(1);
        if *left == 0 {
            counts.remove(&key);
        }
    }
}
