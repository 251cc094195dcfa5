//! Which namespace claimed a host name or a path first, as the leader wrote it down (objects NameOwner), so that hosts, and
//! whoever leads next, decide as before.
//!
//! What was written down and is lost counts on, for as long as its namespace claims it without a break: an object that somebody
//! deletes moves no name. What was written down before a store was set back to a backup, and is nobody's in that, counts on until
//! it is written down again: whoever leads does so, and lets it go as any name that nobody claims. Nothing is ever learned from
//! the order in which this process hears of claims, so that all decide alike.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{Name, fact::NameOwner, load_balancer::HostPattern};

#[derive(Debug, Default)]
pub(super) struct RecordedOwners {
    by_namespace: BTreeMap<Name, Arc<NameOwner>>,
    /// Written down once, claimed ever since, and not written down now.
    lost: BTreeMap<Name, NameOwner>,
    /// Written down before the store was set back, claimed or not, and nobody's in what is written down now.
    before: BTreeMap<Name, NameOwner>,
}

/// What namespaces claim now.
#[derive(Debug, Default)]
pub(super) struct ClaimedNames(BTreeMap<Name, NameOwner>);

impl ClaimedNames {
    fn of(&mut self, namespace: &Name) -> &mut NameOwner {
        let new = || NameOwner { namespace: namespace.clone(), ..NameOwner::default() };
        self.0.entry(namespace.clone()).or_insert_with(new)
    }

    pub(super) fn host(&mut self, namespace: &Name, host: &HostPattern) {
        let its = &mut self.of(namespace).hosts;
        if !its.contains(host) {
            its.insert(host.clone());
        }
    }

    pub(super) fn path(&mut self, namespace: &Name, path: &str) {
        let its = &mut self.of(namespace).paths;
        if !its.contains(path) {
            its.insert(path.into());
        }
    }

    pub(super) fn into_owners(self) -> BTreeMap<Name, NameOwner> {
        self.0
    }
}

impl RecordedOwners {
    pub(super) fn of(&self, namespace: &Name) -> Option<&Arc<NameOwner>> {
        self.by_namespace.get(namespace)
    }

    pub(super) fn all(&self) -> &BTreeMap<Name, Arc<NameOwner>> {
        &self.by_namespace
    }

    pub(super) fn set(&mut self, namespace: &Name, now: Option<Arc<NameOwner>>, claimed: &ClaimedNames) {
        let before = match &now {
            Some(now) => self.by_namespace.insert(namespace.clone(), now.clone()),
            None => self.by_namespace.remove(namespace),
        };
        let mut lost = self.lost.remove(namespace).unwrap_or_default();
        lost.namespace.clone_from(namespace);
        if let Some(before) = &before {
            lost.hosts.extend(before.hosts.iter().cloned());
            lost.paths.extend(before.paths.iter().cloned());
        }
        if let Some(now) = &now {
            self.before.retain(|_, before| is_left(before, now));
        }
        lost.hosts.retain(|it| now.as_ref().is_none_or(|now| !now.hosts.contains(it)));
        lost.paths.retain(|it| now.as_ref().is_none_or(|now| !now.paths.contains(it)));
        self.lost.insert(namespace.clone(), lost);
        self.forget_unclaimed(claimed);
    }

    /// The store was set back: all is about to be told again.
    pub(super) fn set_back(&mut self) {
        for owner in self.by_namespace.values() {
            let before = self.before.entry(owner.namespace.clone()).or_default();
            before.namespace.clone_from(&owner.namespace);
            before.hosts.extend(owner.hosts.iter().cloned());
            before.paths.extend(owner.paths.iter().cloned());
        }
    }

    /// All was told: what is somebody's now is as that says.
    pub(super) fn on_synced(&mut self) {
        for now in self.by_namespace.values() {
            self.before.retain(|_, before| is_left(before, now));
        }
    }

    /// What is to be written down again.
    pub(super) fn before(&self) -> impl Iterator<Item = &NameOwner> {
        self.before.values()
    }

    /// Whether claims are to be told to `forget_unclaimed` whenever they change.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    pub(super) fn forget_unclaimed(&mut self, claimed: &ClaimedNames) {
        let (no_hosts, no_paths) = (BTreeSet::new(), BTreeSet::new());
        self.lost.retain(|namespace, lost| {
            let claims = claimed.0.get(namespace);
            let (hosts, paths) = claims.map_or((&no_hosts, &no_paths), |it| (&it.hosts, &it.paths));
            lost.hosts.retain(|it| hosts.contains(it));
            lost.paths.retain(|it| paths.contains(it));
            !lost.is_empty()
        });
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = (&Name, &HostPattern)> {
        self.owners().flat_map(|it| it.hosts.iter().map(|host| (&it.namespace, host)))
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.owners().flat_map(|it| it.paths.iter().map(|path| (&it.namespace, path)))
    }

    /// What is written down comes before what is lost, and that before what was written down in another time.
    fn owners(&self) -> impl Iterator<Item = &NameOwner> {
        self.by_namespace.values().map(|it| &**it).chain(self.lost.values()).chain(self.before.values())
    }
}

/// Whether anything is, beside what is written down now.
fn is_left(before: &mut NameOwner, now: &NameOwner) -> bool {
    before.hosts.retain(|it| !now.hosts.contains(it));
    before.paths.retain(|it| !now.paths.contains(it));
    !before.is_empty()
}
