//! The moment at which everything was told: at the start, and after the cluster's store was set back to a backup.
//!
//! What was known may then be of a time that never was: versions count from lower, addresses are others', objects are gone
//! that nobody deleted. So all is learned as at a start, and only then planned; what is served goes on meanwhile.

use std::{mem, sync::Arc};

use seaway_model::{Fact, Kind, fact::HostReport};

use super::{REQUIRED, World, hosts::NOTHING_APPLIED};
use crate::index::ChangeScope;

impl World {
    /// Once everything is told: claims in the order of age, so that all who decide alike decide the same.
    pub(super) fn settle(&mut self) {
        // Who is alone knows all of itself. A controller has to know who may hold an address, a host whether it drains; and
        // both, who claimed which name first.
        let alone = self.roles.host.is_some() && self.roles.allocate;
        let of_cluster = [Kind::LoadBalancerHost, Kind::NameOwner];
        let hosts = alone || of_cluster.iter().all(|kind| self.synced.contains(kind));
        if self.settled || !hosts || !REQUIRED.iter().all(|kind| self.synced.contains(kind)) {
            return;
        }
        self.settled = true;
        self.door.guests.on_synced();
        // What was planned for is gone before anything is given out.
        for touched in std::mem::take(&mut self.meanwhile) {
            self.follow(touched);
        }
        self.look_at_adoptions();
        self.refresh_all();
        std::mem::take(&mut self.found).into_iter().for_each(|unit| self.find(unit));
        self.end_lost_time();
        self.adopt_published();
        self.reserve_lost_addresses();
        self.remember_hosts();
        let touched = self.ledger.on_synced();
        self.regrant(touched);
        self.rewrite();
        self.presence_changed();
        self.look_at_all_released();
    }

    /// All is about to be told again, and nothing is planned before it was.
    pub(super) fn begin_again(&mut self) {
        self.was_set_back = true;
        self.announcing.begin_again();
        self.epoch = self.epoch.wrapping_add(1);
        self.lose_time();
        self.synced.clear();
        self.newest = 0;
        self.own_writes.forget_all();
        self.silent.set_back();
        self.under_way.clear();
        self.door.guests.set_back();
        let own = self.roles.host.as_ref().and_then(|host| self.index.host(host)).cloned();
        if let Some(own) = own {
            let own = self.by_versions_of_now(&own);
            self.index.put(&Fact::Host(own));
        }
        if mem::replace(&mut self.settled, false) {
            let ledger = mem::take(&mut self.ledger);
            self.ledger = ledger.turned(self.roles.allocate, std::iter::empty());
        }
    }

    /// What this host put there before the store was set back says nothing of how far it is now, whenever that is told: it begins at
    /// the lowest. (0 says that it tells all it holds.)
    pub(super) fn by_versions_of_now(&self, report: &Arc<HostReport>) -> Arc<HostReport> {
        let is_ours = self.roles.host.as_ref() == Some(&report.host);
        if !is_ours || report.epoch == self.epoch {
            return report.clone();
        }
        let applied = report.applied.min(NOTHING_APPLIED);
        Arc::new(HostReport { applied, epoch: self.epoch, ..HostReport::clone(report) })
    }

    /// What changes while all is listed again is looked at afterwards: then it is known what is gone.
    pub(super) fn unless_settling(&mut self, touched: ChangeScope) -> Option<ChangeScope> {
        let waits = !self.settled && matches!(touched, ChangeScope::Service(_) | ChangeScope::Route(_));
        if waits && self.has_planned() {
            self.meanwhile.push(touched);
            return None;
        }
        Some(touched)
    }

    fn has_planned(&self) -> bool {
        !self.owners.is_empty() || !self.door.units.is_empty()
    }
}
