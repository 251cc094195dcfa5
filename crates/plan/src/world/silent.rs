//! Hosts that stopped reporting, and what they may still hold.
//!
//! A host whose way to the API server is cut may go on serving clients at its addresses, and nobody here can tell. So what it
//! may hold is given to no other Service until it answers, is told as gone (its Node or its object was deleted, it ended in
//! order, somebody said so), or the quarantine is over, which those who listen to hosts tell as gone, too.
//!
//! A host that began and has not reported yet counts as well: it serves before it reports, and it may be cut off before its first
//! word. Of it nothing is known but that it lived.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Kind, Name, ObjectRef, Problem, Reason, UnreportedHostState, fact::FactRef, fact::HostReport,
};

use super::{World, hosts::NOTHING_APPLIED};

#[derive(Default)]
pub(super) struct Silent {
    hosts: BTreeMap<Name, SilentHost>,
    /// Addresses that were written for the first time while this process listened, at this version: who fell silent before
    /// never had them.
    first: HashMap<IpAddr, u64>,
}

struct SilentHost {
    /// Its last word; nothing, if it never said any.
    report: Option<Arc<HostReport>>,
    /// Of all that was written when its silence was noticed. It may have heard of that since its last word, and its next one may be
    /// what was lost. Of one that lives and has not said anything yet, there is no end.
    newest: u64,
}

impl SilentHost {
    /// By what it said: it has this, or has not heard that it should not.
    fn may_hold(&self, ip: IpAddr, version: u64) -> bool {
        let Some(report) = &self.report else { return true };
        report.holds.contains(&ip) || report.applied != 0 && report.applied < version
    }
}

impl Silent {
    pub(super) fn note_written(&mut self, ip: IpAddr, version: u64) {
        self.first.insert(ip, version);
    }

    pub(super) fn note_removed(&mut self, ip: IpAddr) {
        self.first.remove(&ip);
    }

    /// The store was set back, and versions count from lower now. They may hold what they did, and have heard of nothing that is
    /// written from now on; but one that lives may.
    pub(super) fn set_back(&mut self) {
        self.first.clear();
        for host in self.hosts.values_mut() {
            if host.newest != u64::MAX {
                host.newest = 0;
            }
            host.report = host.report.take().map(nothing_applied);
        }
    }

    /// What they said last.
    pub(super) fn reports(&self) -> impl Iterator<Item = &Arc<HostReport>> {
        self.hosts.values().filter_map(|it| it.report.as_ref())
    }

    /// It lives, or is gone.
    pub(super) fn end(&mut self, host: &str) -> bool {
        self.hosts.remove(host).is_some()
    }

    /// As it was at `version`, which says that nobody may have it any more.
    pub(super) fn may_hold(&self, ip: IpAddr, version: u64) -> bool {
        self.hosts.values().any(|host| {
            let never_had = self.first.get(&ip).is_some_and(|first| *first > host.newest);
            let says_so = host.report.as_ref().is_some_and(|it| it.holds.contains(&ip));
            says_so || host.may_hold(ip, version) && !never_had
        })
    }
}

fn nothing_applied(report: Arc<HostReport>) -> Arc<HostReport> {
    let applied = report.applied.min(NOTHING_APPLIED);
    Arc::new(HostReport { applied, ..HostReport::clone(&report) })
}

impl World {
    /// It serves nobody, as far as statuses go, and may hold what it did.
    pub(super) fn fall_silent(&mut self, host: &Name) {
        match self.silent.hosts.get_mut(host).filter(|it| it.report.is_some()) {
            Some(missing) => missing.newest = missing.newest.min(self.newest),
            None => self.keep_silent(host, self.newest),
        }
    }

    /// A list lacks it. If the store was set back, it may have begun after the backup was made: it may live, and hold what it did,
    /// until it reports or is told as gone.
    pub(super) fn miss_host(&mut self, host: &Name) {
        match self.was_set_back && self.roles.host.is_none() {
            true => self.keep_silent(host, u64::MAX),
            false => self.remove(&FactRef::Host(host.clone())),
        }
    }

    fn keep_silent(&mut self, host: &Name, newest: u64) {
        if let Some(report) = self.index.host(host).cloned() {
            let is_of_before = self.lost_time.doubts(&report) || self.was_set_back && !self.settled;
            let report = if is_of_before { nothing_applied(report) } else { report };
            self.silent.hosts.insert(host.clone(), SilentHost { report: Some(report), newest });
            self.leave(host);
        }
    }

    /// Of one that has reported meanwhile, its report tells.
    pub(super) fn note_unreported(&mut self, host: &Name, life: UnreportedHostState) {
        if self.index.host(host).is_some() {
            return;
        }
        let newest = match life {
            UnreportedHostState::Lives => u64::MAX,
            UnreportedHostState::Silent => self.newest,
            UnreportedHostState::Gone => return self.end_silence_without_report(host),
        };
        let unknown = || SilentHost { report: None, newest };
        let known = self.silent.hosts.entry(host.clone()).or_insert_with(unknown);
        if known.report.is_none() {
            known.newest = newest;
        }
    }

    /// Its Node may be deleted: one that reported has an object that goes with it, and is told as gone by itself.
    pub(super) fn end_silence_without_report(&mut self, host: &str) {
        if self.silent.hosts.get(host).is_some_and(|it| it.report.is_none()) {
            self.end_silence(host);
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
        let waiting = |host: &SilentHost| {
            let releasing = self.ledger.releasing().into_iter();
            let version = |ip: &IpAddr| self.addresses.get(ip).map_or(0, |it| it.version);
            releasing.filter(|ip| host.may_hold(*ip, version(ip))).count()
        };
        let hosts = self.silent.hosts.iter().filter(|_| self.roles.allocate);
        hosts.map(move |(name, it)| (name, it, waiting(it))).filter(|(.., count)| *count > 0).map(
            |(name, host, count)| {
                let object = ObjectRef::new(Kind::LoadBalancerHost, "", name.clone());
                let (what, until) = match host.report {
                    Some(_) => ("the host stopped reporting and may still answer clients", "reports again"),
                    None => ("the host started, has not reported yet and may answer clients", "reports"),
                };
                let what = format!(
                    "{what}: {count} released addresses are given to no other Service until the host \
                     {until}, its Node is deleted or the quarantine ends"
                );
                let fix = format!("If that machine is off for good: kubectl seaway host forget {name}");
                Problem::new(object, Reason::Unreachable, what).fix(fix)
            },
        )
    }
}
