//! When an address that was released is free again.
//!
//! Where thousands go at once, each of their Addresses, Outcomes and reports of hosts comes by itself: only those addresses
//! are looked at that it is about.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use seaway_model::{AddressState, Outcome, Unit, WorkItem, fact::HostReport, outcome::ServingSocket};

use super::World;

#[derive(Default)]
pub(super) struct ReleaseTracker {
    /// Something about them is another: they may be free now.
    perhaps: BTreeSet<IpAddr>,
    /// How many sockets Outcomes tell at each.
    served: HashMap<IpAddr, usize>,
}

impl ReleaseTracker {
    pub(super) fn look_at(&mut self, ips: impl IntoIterator<Item = IpAddr>) {
        self.perhaps.extend(ips);
    }

    /// A Unit serves otherwise than before.
    pub(super) fn serve(&mut self, before: Option<&Outcome>, now: Option<&Outcome>) {
        let (before, now) = (sockets(before), sockets(now));
        if before == now {
            return;
        }
        for at in now {
            let count = self.served.entry(at.ip).or_default();
            *count = count.saturating_add(1);
        }
        for at in before {
            if let Some(count) = self.served.get_mut(&at.ip) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.served.remove(&at.ip);
                    self.perhaps.insert(at.ip);
                }
            }
        }
    }
}

impl World {
    /// Given again only when nobody serves it and no host holds it any more.
    pub(super) fn free_released(&mut self) {
        while let Some(ip) = self.freed.perhaps.pop_first() {
            if self.ledger.is_releasing(ip)
                && self.is_written_as_released(ip)
                && !self.freed.served.contains_key(&ip)
                && !self.may_be_held(ip)
            {
                self.lost_time.forget(ip);
                let touched = self.ledger.released(ip);
                self.regrant(touched);
                self.dirt.insert(WorkItem::Unit(Unit::Address(ip)));
            }
        }
    }

    /// Whoever counted before may have counted otherwise.
    pub(super) fn look_at_all_released(&mut self) {
        self.freed.look_at(self.ledger.releasing());
    }

    /// What a host may have held by what it said before, and may no longer.
    pub(super) fn let_go(&mut self, before: &HostReport, now: &HostReport) {
        if self.tells_all(now) && !self.tells_all(before) {
            return self.look_at_all_released();
        }
        self.freed.look_at(before.holds.difference(&now.holds).copied());
        if self.was_set_back && (now.applied < before.applied || self.lost_time.doubts(before)) {
            // What it said before was by versions of before.
            self.look_at_all_released();
        } else if before.applied < now.applied {
            let applied: Vec<IpAddr> = self.written_between(before.applied, now.applied).collect();
            self.freed.look_at(applied);
        }
    }

    /// Addresses with a version above `least`, up to `most`.
    pub(super) fn written_between(&self, least: u64, most: u64) -> impl Iterator<Item = IpAddr> + '_ {
        self.versions.between(least, most)
    }

    fn is_written_as_released(&self, ip: IpAddr) -> bool {
        match self.addresses.get(&ip) {
            Some(address) => {
                address.state == AddressState::Releasing && !self.lost_time.is_to_be_written_again(ip)
            }
            None => !self.under_way.contains(&ip) && !self.lost_time.has(ip),
        }
    }

    /// Some host has it, or has not heard yet that it should not. (Those that are not alive were told as gone.)
    fn may_be_held(&self, ip: IpAddr) -> bool {
        let version = self.addresses.get(&ip).map_or(0, |it| it.version);
        if self.silent.may_hold(ip, version) {
            return true;
        }
        self.index
            .hosts()
            .any(|host| host.holds.contains(&ip) || !self.tells_all(host) && self.applied(host) < version)
    }

    /// Of what may be of the time before the store was set back, it has applied nothing.
    fn applied(&self, host: &HostReport) -> u64 {
        if self.lost_time.doubts(host) { 0 } else { host.applied }
    }
}

fn sockets(outcome: Option<&Outcome>) -> &[ServingSocket] {
    outcome.map_or(&[], |it| &it.serving)
}
