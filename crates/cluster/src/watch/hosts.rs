//! What hosts said last, whether or not they live.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use seaway_model::{Change, Fact, Name, fact::FactRef, fact::HostReport};

use super::{gather::HostAddresses, pulses::Life};

#[derive(Default)]
pub(super) struct Hosts {
    said: Mutex<BTreeMap<Name, Host>>,
    pub(super) addresses: HostAddresses,
}

struct Host {
    report: Arc<HostReport>,
    told: Life,
    /// The store was set back to a time before it had an object.
    missing: bool,
}

impl Hosts {
    /// A host said something: whether that is to be told.
    pub(super) fn say(&self, report: Arc<HostReport>) -> bool {
        self.addresses.put(&report.host, &report.own());
        let mut hosts = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let told = hosts.get(&report.host).map_or(Life::Lives, |it| it.told);
        hosts.insert(report.host.clone(), Host { report, told, missing: false });
        told == Life::Lives
    }

    /// Its object is gone: whether that is to be told.
    pub(super) fn remove(&self, host: &str) -> bool {
        self.addresses.remove(host);
        let mut hosts = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.remove(host).is_some_and(|it| it.told != Life::Gone)
    }

    /// A store that was set back has no object of it: it may live, and is gone after the quarantine, unless it says something by
    /// then. Whether that is to be told.
    pub(super) fn mark_missing(&self, host: &str) -> bool {
        self.addresses.remove(host);
        let mut hosts = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = hosts.get_mut(host) else { return false };
        known.missing = true;
        match known.told {
            Life::Lives => true,
            Life::Silent => false,
            Life::Gone => {
                hosts.remove(host);
                false
            }
        }
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// What is to be told, now that it lives or does not.
    pub(super) fn live(&self, host: &str, life: Life) -> Option<Change> {
        let mut hosts = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if life == Life::Gone && hosts.get(host).is_some_and(|it| it.missing) {
            return hosts.remove(host).map(|it| Change::Gone(FactRef::Host(it.report.host.clone())));
        }
        let host = hosts.get_mut(host).filter(|it| it.told != life)?;
        // One that is gone is known by nobody, and cannot be silent.
        let told = std::mem::replace(&mut host.told, life);
        Some(match life {
            Life::Lives => Change::Put(Fact::Host(host.report.clone())),
            Life::Silent if told == Life::Gone => {
                host.told = told;
                return None;
            }
            Life::Silent => Change::Silent(host.report.host.clone()),
            Life::Gone => Change::Gone(FactRef::Host(host.report.host.clone())),
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
        assert!(hosts.say(report(1)));
        assert!(hosts.live("a", Life::Lives).is_none());
        assert!(matches!(hosts.live("a", Life::Silent), Some(Change::Silent(_))));
        assert!(!hosts.say(report(2)));
        match hosts.live("a", Life::Lives) {
            Some(Change::Put(Fact::Host(it))) => assert_eq!(it.applied, 2),
            other => panic!("{other:?}"),
        }
        assert!(hosts.live("a", Life::Silent).is_some());
        assert!(matches!(hosts.live("a", Life::Gone), Some(Change::Gone(_))));
        assert!(hosts.live("a", Life::Silent).is_none(), "nobody knows it any more");
        assert!(!hosts.remove("a"), "it was told already");
        hosts.say(report(3));
        hosts.live("a", Life::Silent);
        assert!(hosts.remove("a"), "somebody deleted it: what it held is free");
    }

    #[test]
    fn a_host_that_a_restored_backup_lacks_is_gone_after_the_quarantine_unless_it_says_something() {
        let is_gone = |it: Option<Change>| matches!(it, Some(Change::Gone(_)));
        let report = || Arc::new(HostReport { host: "a".into(), ..HostReport::default() });
        let hosts = Hosts::default();
        assert!(!hosts.mark_missing("a"), "nobody knew it");
        hosts.say(report());
        assert!(hosts.mark_missing("a"));
        assert_eq!(hosts.names(), ["a".into()], "its Lease is looked at");
        assert!(matches!(hosts.live("a", Life::Silent), Some(Change::Silent(_))));
        assert!(!hosts.mark_missing("a"), "it is told already");
        assert!(is_gone(hosts.live("a", Life::Gone)));
        assert!(hosts.names().is_empty(), "it is forgotten");
        hosts.say(report());
        hosts.mark_missing("a");
        assert!(hosts.say(report()), "it lives");
        assert!(is_gone(hosts.live("a", Life::Gone)));
        assert_eq!(hosts.names(), ["a".into()], "its object is there");
        assert!(!hosts.mark_missing("a"), "it was told as gone");
        assert!(hosts.names().is_empty());
    }
}
