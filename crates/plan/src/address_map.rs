//! Addresses by owner, and owners by address.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

#[derive(Debug)]
pub(crate) struct AddressMap<K> {
    addresses: BTreeMap<K, Vec<IpAddr>>,
    owners: HashMap<IpAddr, BTreeSet<K>>,
}

impl<K> Default for AddressMap<K> {
    fn default() -> Self {
        Self { addresses: BTreeMap::new(), owners: HashMap::new() }
    }
}

impl<K: Clone + Ord> AddressMap<K> {
    /// Replaces the addresses of an owner. Returns those that it lost or got.
    pub(crate) fn put(&mut self, owner: &K, now: Vec<IpAddr>) -> Vec<IpAddr> {
        let before = self.addresses.remove(owner).unwrap_or_default();
        let lost: Vec<IpAddr> = before.iter().filter(|ip| !now.contains(ip)).copied().collect();
        for ip in &lost {
            if let Some(owners) = self.owners.get_mut(ip) {
                owners.remove(owner);
                if owners.is_empty() {
                    self.owners.remove(ip);
                }
            }
        }
        let got: Vec<IpAddr> = now.iter().filter(|ip| !before.contains(ip)).copied().collect();
        for ip in &got {
            self.owners.entry(*ip).or_default().insert(owner.clone());
        }
        if !now.is_empty() {
            self.addresses.insert(owner.clone(), now);
        }
        lost.into_iter().chain(got).collect()
    }

    pub(crate) fn of(&self, owner: &K) -> &[IpAddr] {
        self.addresses.get(owner).map_or(&[], Vec::as_slice)
    }

    /// `None`: the address has no owner.
    pub(crate) fn owners(&self, ip: IpAddr) -> Option<&BTreeSet<K>> {
        self.owners.get(&ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_an_owner_as_long_as_any_has_it() {
        let ips = |texts: &[&str]| -> Vec<IpAddr> { texts.iter().map(|it| it.parse().unwrap()).collect() };
        let mut map = AddressMap::default();
        assert_eq!(map.put(&"a", ips(&["10.0.0.1", "10.0.0.2"])), ips(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(map.put(&"b", ips(&["10.0.0.2"])), ips(&["10.0.0.2"]));
        assert_eq!(map.put(&"a", ips(&["10.0.0.1", "10.0.0.3"])), ips(&["10.0.0.2", "10.0.0.3"]));
        assert_eq!(map.owners(ips(&["10.0.0.2"])[0]), Some(&["b"].into()));
        assert_eq!((map.put(&"b", Vec::new()), map.of(&"b")), (ips(&["10.0.0.2"]), &[][..]));
        assert_eq!(map.owners(ips(&["10.0.0.2"])[0]), None);
        assert_eq!(map.of(&"a"), ips(&["10.0.0.1", "10.0.0.3"]));
    }
}
