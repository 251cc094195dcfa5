//! The time that a backup lacks: what was given and said in it, after the cluster's store was set back.
//!
//! ```text
//!     backup ──── lost time: 192.0.2.10 is given to a Service ──── etcd is set back ──── all is listed again
//!                                                                                              │
//!        its owner is there, and has no other ─► it keeps it                                   │
//!        else: no Address has it, or an old one says Releasing ◄───────────────────────────────┘
//!                 └─► Releasing is written, at a version of now ─► each host has applied that, or is gone ─► free
//! ```
//! A host that is cut off, or slow to list again, serves such an address until it hears. Only a report of after the set-back says that
//! it let go: versions count from lower then, and the `applied` of before may be a version that is reached again.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{Address, AddressState, Name, Unit, WorkItem, fact::HostReport};

use super::World;

type AppliedVersions = BTreeMap<Name, BTreeSet<u64>>;

#[derive(Default)]
pub(super) struct RestoredStore {
    /// Addresses as they were known before, which hosts may still serve. Each is here until it is free or somebody has it.
    addresses: BTreeMap<IpAddr, Arc<Address>>,
    /// Those of them whose release is in the backup: somebody had them after that, so it is deleted and written again.
    to_write_again: BTreeSet<IpAddr>,
    /// What hosts had said to have applied.
    said: AppliedVersions,
    /// What they said, and perhaps by versions of before: when they say that, it says nothing.
    doubted: AppliedVersions,
    /// The highest version of before.
    newest: u64,
}

impl RestoredStore {
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.addresses.contains_key(&ip)
    }

    pub(super) fn is_to_be_written_again(&self, ip: IpAddr) -> bool {
        self.to_write_again.contains(&ip)
    }

    pub(super) fn to_write_again(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.to_write_again.iter().copied()
    }

    /// Somebody has it by what is written now, or it is free.
    pub(super) fn forget(&mut self, ip: IpAddr) {
        self.addresses.remove(&ip);
        self.to_write_again.remove(&ip);
    }

    /// Its object is not there any more. Whether the leader deletes it to write it again.
    pub(super) fn note_deleted(&mut self, ip: IpAddr) -> bool {
        self.to_write_again.remove(&ip)
    }

    pub(super) fn forget_host(&mut self, host: &str) {
        self.said.remove(host);
        self.doubted.remove(host);
    }

    /// Whether what it says to have applied may be by versions of before.
    pub(super) fn doubts(&self, report: &HostReport) -> bool {
        self.doubted.get(&report.host).is_some_and(|it| it.contains(&report.applied))
    }

    /// An Address has this version now: whoever said the same knows it, and nobody of before could say more than was written then.
    /// Whether a host is doubted no more.
    fn believe(&mut self, version: u64, newest: u64) -> bool {
        let (highest, mut believed) = (self.newest, false);
        let is_of_now = |said: u64| said == version || said > highest && said <= newest;
        self.doubted.retain(|_, all| {
            let before = all.len();
            all.retain(|said| !is_of_now(*said));
            believed |= all.len() < before;
            !all.is_empty()
        });
        believed
    }
}

impl World {
    /// The store was set back: before anything is forgotten.
    pub(super) fn lose_time(&mut self) {
        if self.roles.host.is_some() {
            return;
        }
        let given = self.ledger.addresses().filter_map(|ip| self.ledger.address(ip)).map(Arc::new);
        let known: Vec<Arc<Address>> = given.chain(self.addresses.values().cloned()).collect();
        self.lost_time.addresses.extend(known.into_iter().map(|it| (it.ip, it)));
        self.lost_time.to_write_again.clear();
        let lost = &mut self.lost_time;
        lost.newest = lost.newest.max(self.newest);
        for host in self.index.hosts().chain(self.silent.reports()) {
            lost.newest = lost.newest.max(host.applied);
            lost.said.entry(host.host.clone()).or_default().insert(host.applied);
        }
    }

    /// It is not in what is listed again.
    pub(super) fn lose_address(&mut self, address: &Arc<Address>) {
        if self.was_set_back && !self.settled && self.roles.host.is_none() {
            self.lost_time.addresses.entry(address.ip).or_insert_with(|| address.clone());
        }
    }

    /// All is listed again: what else was given before?
    pub(super) fn end_lost_time(&mut self) {
        let (addresses, newest) = (&self.addresses, self.newest);
        let is_as_it_was =
            |lost: &&Arc<Address>| addresses.get(&lost.ip).is_some_and(|it| it.version == lost.version);
        let of_both = self.lost_time.addresses.values().filter(is_as_it_was).map(|it| it.version);
        let of_both = of_both.max().unwrap_or_default();
        // One that is as it was is released to hosts as it was.
        let was_given = |lost: &Address| {
            addresses
                .get(&lost.ip)
                .is_none_or(|it| it.state == AddressState::Releasing && it.version != lost.version)
        };
        self.lost_time.addresses.retain(|_, lost| was_given(lost));
        let written = self.lost_time.addresses.keys().filter(|ip| addresses.contains_key(ip));
        self.lost_time.to_write_again = written.copied().collect();
        let before = mem::take(&mut self.lost_time.said).into_iter();
        let before = before.flat_map(|(host, all)| all.into_iter().map(move |it| (host.clone(), it)));
        let before = before.filter(|(_, said)| *said > of_both && !self.versions.has(*said));
        let ahead = self.index.hosts().filter(|it| self.was_set_back && it.applied > newest);
        let ahead = ahead.map(|it| (it.host.clone(), it.applied));
        for (host, said) in before.chain(ahead) {
            self.lost_time.doubted.entry(host).or_default().insert(said);
        }
    }

    /// Reserves the addresses of a lost store, before any address is given out: no other Service gets them.
    pub(super) fn reserve_lost_addresses(&mut self) {
        if !self.roles.allocate {
            return;
        }
        for lost in self.lost_time.addresses.values().filter(|it| !self.addresses.contains_key(&it.ip)) {
            self.ledger.reserve_lost(lost);
        }
        let again = self.lost_time.to_write_again().map(|ip| WorkItem::Unit(Unit::Address(ip)));
        self.dirt.extend(again);
    }

    /// A host that says to be further than anything that was written may tell of the time before, or have heard of more than we did
    /// by now.
    pub(super) fn doubt(&mut self, report: &HostReport) {
        if self.was_set_back && self.settled && report.applied > self.newest {
            self.lost_time.doubted.entry(report.host.clone()).or_default().insert(report.applied);
        }
    }

    /// An Address has this version: who was faster to hear of it than this process is doubted no more.
    pub(super) fn note_newest(&mut self, version: u64) {
        self.newest = self.newest.max(version);
        if self.settled && self.lost_time.believe(version, self.newest) {
            self.look_at_all_released();
        }
    }
}
