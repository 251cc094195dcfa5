//! Fingerprints of what was verified.

use std::collections::{HashMap, HashSet};

use seaway_model::Name;

/// Fingerprints of passwords that were verified of late, up to [`RecentFingerprints::MOST`]. When there are more, the namespace that has most forgets one that it
/// has not needed of late: no namespace has what others need forgotten.
#[derive(Default)]
pub(super) struct RecentFingerprints {
    namespaces: HashMap<Name, Generations>,
    number: usize,
}

#[derive(Default)]
struct Generations {
    /// Needed since `old` was empty the last time.
    young: HashSet<u128>,
    old: HashSet<u128>,
}

impl RecentFingerprints {
    pub(super) const MOST: usize = 16_384;

    pub(super) fn has(&mut self, namespace: &Name, fingerprint: u128) -> bool {
        let Some(its) = self.namespaces.get_mut(namespace) else { return false };
        if its.young.contains(&fingerprint) {
            return true;
        }
        let is_old = its.old.remove(&fingerprint);
        if is_old {
            its.young.insert(fingerprint);
        }
        is_old
    }

    pub(super) fn add(&mut self, namespace: &Name, fingerprint: u128) {
        let its = self.namespaces.entry(namespace.clone()).or_default();
        if its.old.contains(&fingerprint) || !its.young.insert(fingerprint) {
            return;
        }
        self.number = self.number.saturating_add(1);
        if self.number > RecentFingerprints::MOST {
            // Of equals it is the one that has one more now.
            let largest = self.namespaces.iter_mut().max_by_key(|(name, it)| (it.len(), *name == namespace));
            let has_forgotten = largest.is_some_and(|(_, it)| it.forget_one());
            self.number = self.number.saturating_sub(usize::from(has_forgotten));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.namespaces.values().map(Generations::len).sum::<usize>(), self.number);
        self.number
    }
}

impl Generations {
    fn len(&self) -> usize {
        self.young.len().saturating_add(self.old.len())
    }

    fn forget_one(&mut self) -> bool {
        if self.old.is_empty() {
            std::mem::swap(&mut self.old, &mut self.young);
        }
        let one = self.old.iter().next().copied();
        one.is_some_and(|it| self.old.remove(&it))
    }
}
