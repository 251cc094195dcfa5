//! The versions of Addresses as they are written, by which hosts say how far they are.

use std::{collections::BTreeMap, net::IpAddr, ops::Bound};

use seaway_model::{Address, AddressState, Owner};

#[derive(Default)]
pub(super) struct Versions {
    /// Of those that have a version.
    addresses: BTreeMap<u64, IpAddr>,
    /// Where an Address was written again, and owners of it had it before: by which version they have had it without a break.
    since: BTreeMap<IpAddr, BTreeMap<Owner, u64>>,
}

impl Versions {
    pub(super) fn note(&mut self, before: Option<&Address>, now: &Address) {
        if let Some(before) = before {
            self.addresses.remove(&before.version);
        }
        if now.version > 0 {
            self.addresses.insert(now.version, now.ip);
        }
        let earlier = self.since.remove(&now.ip).unwrap_or_default();
        let is_held = |it: &Address| it.state == AddressState::Held;
        // Versions that go back are of a store that was set back.
        let follows = |before: &&Address| is_held(before) && is_held(now) && before.version <= now.version;
        let Some(before) = before.filter(follows) else { return };
        let stayed = before.owners.iter().filter(|owner| now.owners.contains(owner));
        let since: BTreeMap<Owner, u64> = stayed
            .map(|owner| (owner.clone(), earlier.get(owner).copied().unwrap_or(before.version)))
            .collect();
        if !since.is_empty() {
            self.since.insert(now.ip, since);
        }
    }

    /// Whether an Address has this one.
    pub(super) fn has(&self, version: u64) -> bool {
        self.addresses.contains_key(&version)
    }

    pub(super) fn forget(&mut self, address: &Address) {
        self.addresses.remove(&address.version);
        self.since.remove(&address.ip);
    }

    /// The version from which on the owner has this Address: a host that has applied it serves the owner there, whoever joined it since.
    pub(super) fn since(&self, address: &Address, owner: &Owner) -> u64 {
        self.since.get(&address.ip).and_then(|it| it.get(owner)).copied().unwrap_or(address.version)
    }

    /// The same, of whichever owner has had it longest.
    pub(super) fn since_any(&self, address: &Address) -> u64 {
        let longest = self.since.get(&address.ip).and_then(|it| it.values().min());
        longest.copied().unwrap_or(address.version)
    }

    /// Addresses with a version above `least`, up to `most`.
    pub(super) fn between(&self, least: u64, most: u64) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.range((Bound::Excluded(least), Bound::Included(most))).map(|(_, ip)| *ip)
    }
}
