//! What the watches saw of the objects that drivers write, as little as tells whether there is something to write.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use seaway_model::{Address, Kind, Name, announced::ConditionStatus};

/// Written by watches before they tell the World, and by drivers after they wrote: a driver never knows less than the
/// plan that it works for.
#[derive(Default)]
pub(crate) struct ObjectCache {
    addresses: Mutex<HashMap<IpAddr, AddressObject>>,
    services: Mutex<HashMap<(Name, Name), PublishedService>>,
    /// Of a time before the store was set back: whatever is told of them is newer.
    old_addresses: Mutex<HashSet<IpAddr>>,
    old_services: Mutex<HashSet<(Name, Name)>>,
}

/// An Address object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AddressObject {
    pub(crate) address: Arc<Address>,
    pub(crate) object: Name,
    pub(crate) version: Version,
}

/// What a Service says of itself to its readers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PublishedService {
    pub(crate) uid: Name,
    pub(crate) version: Version,
    pub(crate) ingress: Vec<Ingress>,
    /// Those with our prefix.
    pub(crate) conditions: Vec<Condition>,
    /// We have written there before.
    pub(crate) ours: bool,
    /// It stays until its load balancer is gone.
    pub(crate) held: ServiceFinalizers,
    /// Its address, as an annotation says it.
    pub(crate) address: Option<Name>,
    /// The id of its load balancer, as an annotation says it.
    pub(crate) balancer: Option<Name>,
    /// Who else has written its addresses.
    pub(crate) other: Option<Name>,
    /// We wrote the same addresses as that one, and both own them now: had it written others, we would own none.
    pub(crate) shared: bool,
}

/// What a Service says of its finalizers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceFinalizers {
    /// By the one that is ours alone.
    pub(crate) own: bool,
    /// By the one that cloud controller managers use.
    pub(crate) common: bool,
    /// That we wrote.
    pub(crate) common_is_ours: bool,
    /// It has a class: no cloud controller manager serves it.
    pub(crate) class: bool,
    /// It is being deleted: no finalizer can be added.
    pub(crate) leaving: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ingress {
    /// An address or a host name.
    pub(crate) at: Name,
    /// Absent in clusters that do not know it.
    pub(crate) mode: Option<Name>,
    /// Of hosts' own addresses alone.
    pub(crate) ports: Vec<Port>,
}

/// A port of the Service at one of its addresses, as the API writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) port: i64,
    pub(crate) protocol: Name,
    /// Why the Service does not have it there: `seaway.dev/PortConflict`.
    pub(crate) error: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: Name,
    pub(crate) status: ConditionStatus,
    pub(crate) reason: Name,
    pub(crate) message: Name,
    /// As it is written.
    pub(crate) since: Name,
}

impl PublishedService {
    /// Who writes the addresses after we did.
    pub(crate) fn rival(&self) -> Option<&Name> {
        self.other.as_ref().filter(|_| self.ours && !self.shared)
    }
}

/// A resourceVersion. Later ones are greater, which Kubernetes promises since 1.35 and etcd always did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) Name);

impl Version {
    pub(crate) fn number(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Not older, as far as can be told.
    pub(crate) fn is_not_older_than(&self, other: &Version) -> bool {
        match (self.number(), other.number()) {
            (Some(this), Some(other)) => this >= other,
            _ => true,
        }
    }
}

impl PublishedService {
    fn says_as(&self, other: &PublishedService) -> bool {
        let said =
            |it: &PublishedService| (it.ingress.clone(), it.conditions.clone(), it.other.clone(), it.shared);
        said(self) == said(other)
    }
}

impl ObjectCache {
    pub(crate) fn address(&self, ip: IpAddr) -> Option<AddressObject> {
        lock(&self.addresses).get(&ip).cloned()
    }

    /// A backup of the API server's store was restored: versions of objects of this kind that were seen before are no longer
    /// compared with new ones.
    pub(crate) fn forget_versions(&self, kind: Kind) {
        match kind {
            Kind::Address => lock(&self.old_addresses).extend(lock(&self.addresses).keys()),
            Kind::Service => lock(&self.old_services).extend(lock(&self.services).keys().cloned()),
            _ => {}
        }
    }

    /// A watch may tell what a driver has overwritten meanwhile.
    pub(crate) fn put_address(&self, object: AddressObject) {
        let mut addresses = lock(&self.addresses);
        let before = addresses.get(&object.address.ip);
        let before = before.filter(|_| !lock(&self.old_addresses).remove(&object.address.ip));
        if before.is_none_or(|before| object.version.is_not_older_than(&before.version)) {
            addresses.insert(object.address.ip, object);
        }
    }

    /// Deleted at this version; not if it was made again since.
    pub(crate) fn remove_address(&self, ip: IpAddr, at: &Version) {
        let mut addresses = lock(&self.addresses);
        let was_old = lock(&self.old_addresses).remove(&ip);
        if addresses.get(&ip).is_some_and(|it| was_old || at.is_not_older_than(&it.version)) {
            addresses.remove(&ip);
        }
    }

    /// The API server says that it is not there.
    pub(crate) fn forget_address(&self, ip: IpAddr) {
        lock(&self.addresses).remove(&ip);
    }

    pub(crate) fn service(&self, namespace: &Name, name: &Name) -> Option<PublishedService> {
        lock(&self.services).get(&(namespace.clone(), name.clone())).cloned()
    }

    /// True if it says something else of itself than what was known.
    pub(crate) fn put_service(&self, namespace: &Name, name: &Name, published: PublishedService) -> bool {
        let mut services = lock(&self.services);
        let key = (namespace.clone(), name.clone());
        let before = services.get(&key);
        let was_old = lock(&self.old_services).remove(&key);
        if before.is_some_and(|before| !was_old && !published.version.is_not_older_than(&before.version)) {
            return false;
        }
        let as_before = before.is_none_or(|it| it.uid != published.uid || published.says_as(it));
        services.insert(key, published);
        !as_before
    }

    pub(crate) fn remove_service(&self, namespace: &Name, name: &Name) {
        lock(&self.services).remove(&(namespace.clone(), name.clone()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use seaway_model::AddressState;

    use super::*;

    fn object(version: &str, pool: &str) -> AddressObject {
        let address = Address {
            ip: [192, 0, 2, 1].into(),
            pool: pool.into(),
            sharing: None,
            owners: Vec::new(),
            plan_version: 1,
            ends: None,
            conflicts: Vec::new(),
            state: AddressState::Held,
            version: 0,
        };
        AddressObject {
            address: Arc::new(address),
            object: "192-0-2-1".into(),
            version: Version(version.into()),
        }
    }

    #[test]
    fn what_a_watch_tells_late_does_not_undo_what_was_written_since() {
        let seen = ObjectCache::default();
        let ip = [192, 0, 2, 1].into();
        seen.put_address(object("9", "a"));
        seen.put_address(object("10", "b"));
        seen.put_address(object("9", "a"));
        assert_eq!(seen.address(ip), Some(object("10", "b")));
        seen.remove_address(ip, &Version("9".into()));
        assert!(seen.address(ip).is_some());
        seen.remove_address(ip, &Version("11".into()));
        assert!(seen.address(ip).is_none());
    }

    #[test]
    fn what_is_told_after_a_store_was_set_back_counts_though_its_version_is_lower() {
        let seen = ObjectCache::default();
        let ip = [192, 0, 2, 1].into();
        seen.put_address(object("500", "b"));
        seen.forget_versions(Kind::Address);
        seen.put_address(object("80", "a"));
        assert_eq!(seen.address(ip), Some(object("80", "a")));
        seen.put_address(object("79", "late"));
        assert_eq!(seen.address(ip), Some(object("80", "a")), "and from then on as always");
        seen.put_address(object("500", "b"));
        seen.forget_versions(Kind::Address);
        seen.remove_address(ip, &Version("81".into()));
        assert_eq!(seen.address(ip), None, "no list has it any more");

        let published = |version: &str, uid: &str| PublishedService {
            version: Version(version.into()),
            uid: uid.into(),
            ..PublishedService::default()
        };
        let (namespace, name) = ("default".into(), "shop".into());
        seen.put_service(&namespace, &name, published("500", "u"));
        seen.forget_versions(Kind::Service);
        seen.put_service(&namespace, &name, published("80", "u"));
        let version = seen.service(&namespace, &name).map(|it| it.version);
        assert_eq!(version, Some(Version("80".into())), "what it said since is said again");
    }
}
