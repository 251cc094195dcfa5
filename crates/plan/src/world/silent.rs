//! Hosts that stopped reporting, and what they may still hold.
//!
//! A host whose way to the API server is cut may go on serving clients at its addresses, and nobody here can tell. So what it
//! may hold is given to no other Service until it answers, is told as gone (its Node or its object was deleted, it ended in
//! order, somebody said so), or the quarantine is over, which those who listen to hosts tell as gone, too.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{Kind, Name, ObjectRef, Problem, Reason, fact::FactRef, fact::HostReport};

use super::World;

#[derive(Default)]
pub(super) struct Silent {
    hosts: BTreeMap<Name, SilentHost>,
    /// Addresses that were written for the first time while this process listened, at this version: who fell silent before
    /// never had them.
    first: HashMap<IpAddr, u64>,
}

struct SilentHost {
    /// Its last word.
    report: Arc<HostReport>,
    /// Of all that was written when its silence was noticed. It may have heard of that since its last word, and its next one may be
    /// what was lost.
    newest: u64,
}

impl Silent {
    pub(super) fn note_written(&mut self, ip: IpAddr, version: u64) {
        self.first.insert(ip, version);
    }

    pub(super) fn note_removed(&mut self, ip: IpAddr) {
        self.first.remove(&ip);
    }

    /// Versions count from lower now.
    pub(super) fn forget_versions(&mut self) {
        self.first.clear();
    }

    /// It lives, or is gone.
    pub(super) fn end(&mut self, host: &str) -> bool {
        self.hosts.remove(host).is_some()
    }

    /// As it was at `version`, which says that nobody may have it any more.
    pub(super) fn may_hold(&self, ip: IpAddr, version: u64) -> bool {
        self.hosts.values().any(|SilentHost { report, newest }| {
            let never_had = self.first.get(&ip).is_some_and(|first| first > newest);
            report.holds.contains(&ip) || report.applied != 0 && report.applied < version && !never_had
        })
    }
}

impl World {
    /// It serves nobody, as far as statuses go, and may hold what it did.
    pub(super) fn fall_silent(&mut self, host: &Name) {
        if let Some(report) = self.index.host(host).cloned() {
            self.silent.hosts.insert(host.clone(), SilentHost { report, newest: self.newest });
            self.leave(host);
        }
    }

    /// It is gone, or lives.
    pub(super) fn end_silence(&mut self, host: &str) {
        if self.silent.end(host) {
            self.look_at_all_released();
        }
    }

    fn leave(&mut self, host: &Name) {
        self.remove(&FactRef::Host(host.clone()));
    }

    /// What stays nobody's because of them, for who gives addresses out.
    pub(super) fn told_of_silent(&self) -> impl Iterator<Item = Problem> + '_ {
        let waiting = |host: &HostReport| {
            let releasing = self.ledger.releasing().into_iter();
            let version = |ip: &IpAddr| self.addresses.get(ip).map_or(0, |it| it.version);
            let single =
                |ip: &IpAddr| host.holds.contains(ip) || host.applied != 0 && host.applied < version(ip);
            releasing.filter(single).count()
        };
        let hosts = self.silent.hosts.values().map(|it| &*it.report).filter(|_| self.roles.allocate);
        hosts.map(move |it| (it, waiting(it))).filter(|(_, count)| *count > 0).map(|(host, count)| {
            let object = ObjectRef::new(Kind::LoadBalancerHost, "", host.host.clone());
            let what = format!(
                "it stopped reporting and may still answer clients: {count} addresses that were released are given to no other \
                 Service until it reports again, its Node is deleted or the quarantine ends"
            );
            let fix = format!("If that machine is off for good: kubectl seaway host forget {}", host.host);
            Problem::new(object, Reason::Unreachable, what).fix(fix)
        })
    }
}
