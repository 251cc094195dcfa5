//! Addresses as they are written: who may use them now, who gives them out, and when they are free again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{Address, AddressState, Dirt, Owner, Unit};

use super::World;

impl World {
    /// Begins to give addresses out, on what is written by then; or leaves that to another, and has what it writes.
    pub(super) fn lead(&mut self, leads: bool) {
        if self.roles.allocate == leads {
            return;
        }
        self.roles.allocate = leads;
        let before = std::mem::take(&mut self.ledger);
        let (ledger, _) = before.turned(leads, self.addresses.values().map(|it| Address::clone(it)));
        self.ledger = ledger;
        let owners: Vec<Owner> = self.owners.keys().cloned().collect();
        for owner in owners {
            self.replan(&owner);
        }
        self.replan(&crate::front_door::owner());
        self.rewrite();
        self.refresh_statuses();
        self.free_released();
    }

    /// Whatever is written otherwise than the ledger has it.
    pub(super) fn rewrite(&mut self) {
        let known: BTreeSet<IpAddr> = self.addresses.keys().copied().chain(self.ledger.addresses()).collect();
        for ip in known {
            if self.ledger.address(ip).as_ref() != self.addresses.get(&ip).map(|it| &**it) {
                self.dirt.insert(Dirt::Unit(Unit::Address(ip)));
            }
        }
    }

    /// An Address was written (or read at the start): who it belongs to may use it now.
    pub(super) fn put_address(&mut self, address: Arc<Address>) {
        let before = self.addresses.insert(address.ip, address.clone());
        if !self.settled {
            self.ledger.learn(&address);
            return;
        }
        if before.as_ref() == Some(&address) {
            return;
        }
        let touched = self.ledger.follow(address.ip, Some(&*address));
        self.regrant(touched);
        // Somebody else wrote it since; or it is what we wrote before last, and then the driver knows.
        if self.ledger.address(address.ip).as_ref() != Some(&*address) {
            self.dirt.insert(Dirt::Unit(Unit::Address(address.ip)));
        }
        let affected: BTreeSet<Owner> =
            before.iter().flat_map(|it| it.owners.clone()).chain(address.owners.iter().cloned()).collect();
        for owner in affected {
            self.replan(&owner);
        }
        self.presence_changed();
        self.free_released();
    }

    pub(super) fn remove_address(&mut self, ip: IpAddr) {
        let Some(before) = self.addresses.remove(&ip) else { return };
        self.ledger.unlearn(ip);
        let touched = self.ledger.follow(ip, None);
        self.regrant(touched);
        for owner in &before.owners {
            self.replan(owner);
        }
        self.presence_changed();
        // Somebody took it out of the ledger's storage: it is written again.
        if self.settled && self.ledger.address(ip).is_some() {
            self.dirt.insert(Dirt::Unit(Unit::Address(ip)));
        }
    }

    /// An address that was released is given again only when nobody serves it and no host holds it any more.
    pub(super) fn free_released(&mut self) {
        for ip in self.ledger.releasing() {
            let written = self.addresses.get(&ip).is_none_or(|it| it.state == AddressState::Releasing);
            let served = self.outcomes.values().any(|it| it.serving.iter().any(|at| at.ip == ip));
            if written && !served && !self.index.is_held(ip) {
                let touched = self.ledger.released(ip);
                self.regrant(touched);
                self.dirt.insert(Dirt::Unit(Unit::Address(ip)));
            }
        }
    }

    pub(super) fn present(&self) -> BTreeMap<IpAddr, Vec<Owner>> {
        let held = |it: &&Arc<Address>| it.state == AddressState::Held && !it.owners.is_empty();
        self.addresses.values().filter(held).map(|it| (it.ip, it.owners.clone())).collect()
    }

    pub(super) fn presence_changed(&mut self) {
        if let Some(host) = self.roles.host.clone().filter(|_| self.settled) {
            self.dirt.insert(Dirt::Unit(Unit::Presence(host)));
        }
    }
}
