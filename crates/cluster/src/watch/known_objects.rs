//! What was told of one kind, by name: so that a whole list tells what is gone.

use std::collections::{HashMap, HashSet};

use seaway_model::{Name, ObjectRef, fact::FactRef};

/// An object's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: Name,
    pub(crate) name: Name,
}

#[derive(Default)]
pub(crate) struct KnownObjects {
    /// What the World was told of each; nothing of those that were only complained of.
    told: HashMap<ObjectKey, FactRef>,
    /// What was complained of.
    broken: HashMap<ObjectKey, ObjectRef>,
    /// While a list is being read: what it has.
    listed: HashSet<ObjectKey>,
    /// As they were heard last.
    versions: HashMap<ObjectKey, u64>,
}

/// What is to be told of an object that is no more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RemovedObject {
    pub(crate) gone: Option<FactRef>,
    pub(crate) mended: Option<ObjectRef>,
}

impl KnownObjects {
    /// A list begins; whatever an earlier one had that was not read to its end is forgotten.
    pub(crate) fn begin_list(&mut self) {
        self.listed.clear();
    }

    pub(crate) fn note_listed(&mut self, key: ObjectKey) {
        self.listed.insert(key);
    }

    /// The list is complete: returns the known objects that are not on it.
    pub(crate) fn finish_list(&mut self) -> Vec<ObjectKey> {
        let listed = std::mem::take(&mut self.listed);
        let known: HashSet<&ObjectKey> = self.told.keys().chain(self.broken.keys()).collect();
        known.into_iter().filter(|key| !listed.contains(key)).cloned().collect()
    }

    /// Told as `fact`. Another fact that it was before is gone; so is what was wrong with it.
    pub(crate) fn put(&mut self, key: &ObjectKey, fact: FactRef) -> RemovedObject {
        let mended = self.broken.remove(key);
        let before = self.told.insert(key.clone(), fact);
        RemovedObject { gone: before.filter(|before| self.told.get(key) != Some(before)), mended }
    }

    /// A Problem of this object was told; what was told of the object before stays valid.
    pub(crate) fn note_problem(&mut self, key: &ObjectKey, object: ObjectRef) {
        self.broken.insert(key.clone(), object);
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> RemovedObject {
        self.versions.remove(key);
        RemovedObject { gone: self.told.remove(key), mended: self.broken.remove(key) }
    }

    /// The object was received at this version.
    pub(crate) fn note_version(&mut self, key: &ObjectKey, version: &str) {
        if let Ok(version) = version.parse() {
            self.versions.insert(key.clone(), version);
        }
    }

    /// It was newer when it was heard before, which no store makes of itself.
    pub(crate) fn was_newer(&self, key: &ObjectKey, version: &str) -> bool {
        let known = self.versions.get(key);
        known.zip(version.parse::<u64>().ok()).is_some_and(|(known, now)| now < *known)
    }

    /// All that was written until `heard` was heard, and of this nothing is known any more.
    pub(crate) fn was_recreated(&self, key: &ObjectKey, version: &str, heard: Option<u64>) -> bool {
        let is_from_before =
            heard.zip(version.parse().ok()).is_some_and(|(heard, now): (u64, u64)| now <= heard);
        is_from_before && !self.versions.contains_key(key)
    }

    /// It was heard as another object, whose versions are not this one's.
    pub(crate) fn forget_version(&mut self, key: &ObjectKey) {
        self.versions.remove(key);
    }

    /// What was changed last.
    pub(crate) fn last_changed(&self) -> Option<&ObjectKey> {
        self.versions.iter().max_by_key(|(_, version)| **version).map(|(key, _)| key)
    }

    /// Versions count from lower now.
    pub(crate) fn forget_versions(&mut self) {
        self.versions.clear();
    }

    /// Whether it was told and not taken back.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        self.told.contains_key(key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    pub(crate) fn reported_keys(&self) -> Vec<ObjectKey> {
        self.told.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::Kind;

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".into(), name: name.into() }
    }

    fn fact(name: &str) -> FactRef {
        FactRef::Object(object(name))
    }

    fn object(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Service, "default", name)
    }

    #[test]
    fn only_a_whole_list_tells_what_is_gone() {
        let mut known = KnownObjects::default();
        known.put(&key("a"), fact("a"));
        known.put(&key("b"), fact("b"));
        known.begin_list();
        known.note_listed(key("b"));
        // It breaks off here, and begins anew.
        known.begin_list();
        known.note_listed(key("a"));
        known.note_listed(key("b"));
        assert_eq!(known.finish_list(), []);
        known.begin_list();
        known.note_listed(key("b"));
        assert_eq!(known.finish_list(), [key("a")]);
        assert_eq!(known.remove(&key("a")), RemovedObject { gone: Some(fact("a")), mended: None });
        known.begin_list();
        known.note_listed(key("b"));
        assert_eq!(known.finish_list(), []);
    }

    #[test]
    fn what_cannot_be_read_any_more_stays_told_until_it_is_gone() {
        let mut known = KnownObjects::default();
        known.put(&key("a"), fact("a"));
        known.note_problem(&key("a"), object("a"));
        assert_eq!(known.reported_keys(), [key("a")]);
        assert_eq!(known.put(&key("a"), fact("a")), RemovedObject { gone: None, mended: Some(object("a")) });
        known.note_problem(&key("a"), object("a"));
        known.note_problem(&key("b"), object("b"));
        known.begin_list();
        let mut gone = known.finish_list();
        gone.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(gone, [key("a"), key("b")]);
        assert_eq!(
            known.remove(&key("a")),
            RemovedObject { gone: Some(fact("a")), mended: Some(object("a")) }
        );
        assert_eq!(known.remove(&key("b")), RemovedObject { gone: None, mended: Some(object("b")) });
    }

    #[test]
    fn an_object_that_says_something_else_takes_back_what_it_said() {
        let mut known = KnownObjects::default();
        let (one, two) = (FactRef::Name("one".into()), FactRef::Name("two".into()));
        known.put(&key("a"), one.clone());
        assert_eq!(known.put(&key("a"), two), RemovedObject { gone: Some(one), mended: None });
    }
}
