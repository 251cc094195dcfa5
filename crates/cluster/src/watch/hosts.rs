//! What hosts said last, whether or not they live.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use seaway_model::{Change, Fact, Kind, Name, fact::FactRef, fact::HostReport};

use super::{host_leases::HostLeaseState, slice_writer::AllHostAddresses};

#[derive(Default)]
pub(super) struct Hosts {
    said: Mutex<BTreeMap<Name, Host>>,
    pub(super) addresses: AllHostAddresses,
    /// The version that the first whole list of Addresses was as of; 0 before.
    listed: Arc<AtomicU64>,
}

struct Host {
    report: Arc<HostReport>,
    told: HostLeaseState,
    /// The store was set back to a time before it had an object.
    missing: bool,
}

impl Hosts {
    /// Of the first list, before it is told that all were.
    pub(super) fn note_listed(&self, kind: Kind, version: &str) {
        if kind == Kind::Address {
            let version = version.parse().unwrap_or_default();
            let _ = self.listed.compare_exchange(0, version, Relaxed, Relaxed);
        }
    }

    pub(super) fn addresses_version(&self) -> Arc<AtomicU64> {
        self.listed.clone()
    }

    /// Notes what a host reports; `true` if the World is to be told.
    pub(super) fn put_report(&self, report: Arc<HostReport>) -> bool {
        self.addresses.put(&report.host, &report.own_addresses());
        let mut hosts = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let told = hosts.get(&report.host).map_or(HostLeaseState::Active, |it| it.told);
        hosts.insert(report.host.clone(), Host { report, told, missing: false });
        told == HostLeaseState::Active
    }

    /// Its object is gone: whether that is to be told.
    pub(super) fn remove(&self, host: &str) -> bool {
        self.addresses.remove(host);
        let mut hosts = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.remove(host).is_some_and(|it| it.told != HostLeaseState::Gone)
    }

    /// A store that was set back has no object of it: it may live, and is gone after the quarantine, unless it says something by
    /// then. Whether that is to be told.
    pub(super) fn mark_missing(&self, host: &str) -> bool {
        self.addresses.remove(host);
        let mut hosts = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = hosts.get_mut(host) else { return false };
        known.missing = true;
        match known.told {
            HostLeaseState::Active => true,
            HostLeaseState::Expired => false,
            HostLeaseState::Gone => {
                hosts.remove(host);
                false
            }
        }
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Notes whether a host lives; returns the change for the World, if that is one.
    pub(super) fn set_lease_state(&self, host: &str, life: HostLeaseState) -> Option<Change> {
        let mut hosts = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if life == HostLeaseState::Gone && hosts.get(host).is_some_and(|it| it.missing) {
            return hosts.remove(host).map(|it| Change::Gone(FactRef::Host(it.report.host.clone())));
        }
        let host = hosts.get_mut(host).filter(|it| it.told != life)?;
        // One that is gone is known by nobody, and cannot be silent.
        let told = std::mem::replace(&mut host.told, life);
        Some(match life {
            HostLeaseState::Active => Change::Put(Fact::Host(host.report.clone())),
            HostLeaseState::Expired if told == HostLeaseState::Gone => {
                host.told = told;
                return None;
            }
            HostLeaseState::Expired => Change::HostSilent(host.report.host.clone()),
            HostLeaseState::Gone => Change::Gone(FactRef::Host(host.report.host.clone())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_silent_host_says_is_told_once_it_lives() {
        let hosts = Hosts::default();
        let report = |applied| Arc::new(HostReport { host: "a".into(), applied, ..HostReport::default() });
        assert!(hosts.put_report(report(1)));
        assert!(hosts.set_lease_state("a", HostLeaseState::Active).is_none());
        assert!(matches!(hosts.set_lease_state("a", HostLeaseState::Expired), Some(Change::HostSilent(_))));
        assert!(!hosts.put_report(report(2)));
        match hosts.set_lease_state("a", HostLeaseState::Active) {
            Some(Change::Put(Fact::Host(it))) => assert_eq!(it.applied, 2),
            other => panic!("{other:?}"),
        }
        assert!(hosts.set_lease_state("a", HostLeaseState::Expired).is_some());
        assert!(matches!(hosts.set_lease_state("a", HostLeaseState::Gone), Some(Change::Gone(_))));
        assert!(hosts.set_lease_state("a", HostLeaseState::Expired).is_none(), "nobody knows it any more");
        assert!(!hosts.remove("a"), "it was told already");
        hosts.put_report(report(3));
        hosts.set_lease_state("a", HostLeaseState::Expired);
        assert!(hosts.remove("a"), "somebody deleted it: what it held is free");
    }

    #[test]
    fn a_host_that_a_restored_backup_lacks_is_gone_after_the_quarantine_unless_it_says_something() {
        let is_gone = |it: Option<Change>| matches!(it, Some(Change::Gone(_)));
        let report = || Arc::new(HostReport { host: "a".into(), ..HostReport::default() });
        let hosts = Hosts::default();
        assert!(!hosts.mark_missing("a"), "nobody knew it");
        hosts.put_report(report());
        assert!(hosts.mark_missing("a"));
        assert_eq!(hosts.names(), ["a".into()], "its Lease is looked at");
        assert!(matches!(hosts.set_lease_state("a", HostLeaseState::Expired), Some(Change::HostSilent(_))));
        assert!(!hosts.mark_missing("a"), "it is told already");
        assert!(is_gone(hosts.set_lease_state("a", HostLeaseState::Gone)));
        assert!(hosts.names().is_empty(), "it is forgotten");
        hosts.put_report(report());
        hosts.mark_missing("a");
        assert!(hosts.put_report(report()), "it lives");
        assert!(is_gone(hosts.set_lease_state("a", HostLeaseState::Gone)));
        assert_eq!(hosts.names(), ["a".into()], "its object is there");
        assert!(!hosts.mark_missing("a"), "it was told as gone");
        assert!(hosts.names().is_empty());
    }
}
