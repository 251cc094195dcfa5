//! Addresses as they are written: who may use them now, who gives them out, and when they are free again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Address, AddressState, Config, Kind, ObjectRef, Owner, Problem, Reason, Time, Unit, WorkItem,
    address::PLAN_VERSION,
    fact::{FinalizerOwner, Service},
    outcome::UnitState,
    unit::{HostAddresses, Place},
};

use super::World;
use crate::index::ServiceKey;

impl World {
    /// Begins to give addresses out, on what is written by then; or leaves that to another, and has what it writes.
    pub(super) fn lead(&mut self, leads: bool) {
        if self.roles.allocate == leads {
            return;
        }
        self.roles.allocate = leads;
        self.counts.leads = self.counts.leads.saturating_add(1);
        self.forget_survey();
        self.under_way.clear();
        // Whoever leads takes them as they read.
        for address in std::mem::take(&mut self.unknown).into_values() {
            self.put_address(address);
        }
        let before = std::mem::take(&mut self.ledger);
        self.ledger = before.turned(leads, self.addresses.values().map(|it| Address::clone(it)));
        self.hear_everybody_anew();
        self.look_at_names_anew();
    }

    /// Services that become ours by it may have an address of before: everybody has what he had before anything is
    /// given out.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        let whose = |it: &Config| {
            let clouds: Vec<_> = it.clouds.iter().map(|(class, it)| (class.clone(), it.classless)).collect();
            (it.classes.clone(), it.classless, clouds)
        };
        let same = whose(&self.config) == whose(&config);
        self.config = config;
        self.look_at_all_names();
        self.index.configure(&self.config);
        self.door.guests.configure(&self.config);
        self.limit_certificates();
        self.give_up_vanished();
        self.ask_by_name();
        let touched = self.ledger.set_rules(self.config.pools);
        self.regrant(touched);
        let touched = self.ledger.set_machine_ports(&self.config.tenants.reserved_ports);
        self.regrant(touched);
        if same || !self.settled || !self.roles.allocate {
            return self.refresh_all();
        }
        let before = std::mem::take(&mut self.ledger);
        let given: Vec<Address> = before.addresses().filter_map(|ip| before.address(ip)).collect();
        let ports: Vec<_> = before.ports_of_hosts().collect();
        self.ledger = before.turned(true, given.into_iter());
        ports.into_iter().for_each(|(owner, ip, port)| self.ledger.answered(owner, ip, port));
        self.refresh_all();
        self.hear_everybody_anew();
    }

    /// What pools exclude ends when its time has come.
    pub(super) fn age_addresses(&mut self, now: Time) {
        let touched = self.ledger.set_time(now);
        self.regrant(touched);
    }

    fn hear_everybody_anew(&mut self) {
        if self.settled {
            self.adopt_published();
            self.reserve_lost_addresses();
            self.remember_hosts();
            self.ledger.on_synced();
        }
        let owners: Vec<Owner> = self.owners.keys().cloned().collect();
        for owner in owners {
            self.replan(&owner);
        }
        // Whoever led before may have left something half done.
        let in_clouds =
            self.unit_owners.keys().filter(|it| matches!(it, Unit::LoadBalancer(Place::Cloud { .. }, _)));
        self.dirt.extend(in_clouds.cloned().map(WorkItem::Unit));
        self.mark_holds();
        self.nodes_changed();
        self.replan(&crate::front_door::owner());
        self.rewrite();
        self.refresh_statuses();
        self.look_at_all_released();
    }

    /// Keeps what its status says apart from the rest. (So is who holds it.)
    pub(super) fn note_published(&mut self, service: &Arc<Service>) -> Arc<Service> {
        let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        match service.published_by_us {
            true => self.published_by_us.insert(key.clone(), service.published_ports.clone()),
            false => self.published_by_us.remove(&key),
        };
        let before = match service.published.is_empty() {
            true => self.published.remove(&key),
            false => self.published.insert(key.clone(), service.published.clone()),
        };
        self.unpublish(&before.unwrap_or_default());
        self.look_at_adoption(&key);
        if service.published.is_empty()
            && service.published_ports.is_empty()
            && !service.published_by_us
            && service.held == FinalizerOwner::No
            && service.other_write.is_none()
        {
            return service.clone();
        }
        Arc::new(Service {
            published: Vec::new(),
            published_ports: Vec::new(),
            published_by_us: false,
            held: FinalizerOwner::No,
            other_write: None,
            ..Service::clone(service)
        })
    }

    /// Somebody else wrote our part of its status, perhaps one who led before us and was slow.
    pub(super) fn say_again(&mut self, object: &ObjectRef) {
        let owners = self.owners_of(object).into_iter();
        self.dirt.extend(owners.map(|owner| WorkItem::Unit(Unit::Status(owner))));
    }

    /// Addresses that statuses have and nobody wrote down, ours or of whoever was here before us.
    pub(super) fn adopt_published(&mut self) {
        if !self.roles.allocate {
            return;
        }
        let (mut said, mut by_us) = (BTreeMap::<_, Vec<Owner>>::new(), BTreeMap::<_, Vec<Owner>>::new());
        for (key, ips) in &self.published {
            let owners = self.of_service.get(key).into_iter().flatten();
            let is_ours = self.had_address_of_pool(key);
            for owner in owners.filter(|it| self.owners.get(*it).is_some_and(|it| it.claim.is_some())) {
                for ip in ips {
                    said.entry(*ip).or_default().push(owner.clone());
                    if is_ours {
                        by_us.entry(*ip).or_default().push(owner.clone());
                    }
                }
            }
        }
        for (ip, mut owners) in said {
            owners.sort();
            self.ledger.adopt(ip, &owners);
        }
        for (ip, mut owners) in by_us {
            owners.sort();
            self.ledger.adopt_own(ip, &owners);
            self.note_vanished(ip);
        }
    }

    /// Whether Seaway published an address for it that is of no host. (What is held until its load balancer is gone has its address
    /// from a cloud.)
    fn had_address_of_pool(&self, key: &ServiceKey) -> bool {
        self.config.pools.cluster
            && self.published_by_us.contains_key(key)
            && !self.had_hosts_addresses(key)
            && self.held(key) == FinalizerOwner::No
    }

    /// Whatever is written otherwise than the ledger has it.
    pub(super) fn rewrite(&mut self) {
        let known: BTreeSet<IpAddr> = self.addresses.keys().copied().chain(self.ledger.addresses()).collect();
        for ip in known {
            if self.ledger.address(ip).as_ref() != self.addresses.get(&ip).map(|it| &**it) {
                self.dirt.insert(WorkItem::Unit(Unit::Address(ip)));
            }
        }
    }

    /// An Address was written (or read at the start): who it belongs to may use it now.
    pub(super) fn put_address(&mut self, address: Arc<Address>) {
        self.note_newest(address.version);
        if !self.roles.allocate && address.plan_version > PLAN_VERSION {
            self.unknown.insert(address.ip, address);
            return;
        }
        self.unknown.remove(&address.ip);
        self.vanished.remove(&address.ip);
        let before = self.addresses.insert(address.ip, address.clone());
        self.note_holders(before.as_deref(), Some(&*address));
        let was_lost = self.lost_time.has(address.ip);
        if address.state == AddressState::Held && self.settled {
            self.lost_time.forget(address.ip);
        }
        if before.is_none() && self.settled && !was_lost {
            self.silent.note_written(address.ip, address.version);
        }
        self.versions.note(before.as_deref(), &address);
        if !self.settled {
            self.ledger.learn(&address);
            return;
        }
        if let Some(before) = before.as_ref().filter(|it| **it == address) {
            if before.version != address.version {
                self.presence_changed();
            }
            return;
        }
        let touched = match self.is_of_another_leader(&address, before.as_deref()) {
            true => self.ledger.give_way(&address, |ip| self.addresses.contains_key(&ip)),
            false => self.ledger.follow(address.ip, Some(&*address)),
        };
        self.regrant(touched);
        // Somebody else wrote it since; or it is what we wrote before last, and then the driver knows.
        if self.ledger.address(address.ip).as_ref() != Some(&*address) {
            self.dirt.insert(WorkItem::Unit(Unit::Address(address.ip)));
        }
        let affected: BTreeSet<Owner> =
            before.iter().flat_map(|it| it.owners.clone()).chain(address.owners.iter().cloned()).collect();
        for owner in affected {
            self.note_taken_over(&owner);
            self.replan(&owner);
        }
        self.presence_changed();
        self.freed.look_at([address.ip]);
    }

    /// Whether it is written as somebody's of whom nothing is known here: it was given out by a leader before this one, whose
    /// write came late. What was known to be written as its owner's here is no other's because somebody edits it.
    fn is_of_another_leader(&self, address: &Address, before: Option<&Address>) -> bool {
        let is_ours = |it: &Address| {
            it.state == AddressState::Held
                && it.owners.iter().any(|owner| self.ledger.is_given_to(it.ip, owner))
        };
        self.roles.allocate
            && address.state == AddressState::Held
            && !address.owners.is_empty()
            && !self.ledger.knows_any(address.ip, &address.owners)
            && !before.is_some_and(is_ours)
    }

    pub(super) fn remove_address(&mut self, ip: IpAddr) {
        self.unknown.remove(&ip);
        self.own_writes.forget(ip);
        if self.keep_vanished(ip) {
            return;
        }
        self.vanished.remove(&ip);
        let Some(before) = self.addresses.remove(&ip) else { return };
        self.lose_address(&before);
        let is_written_again = self.lost_time.note_deleted(ip);
        if self.settled && !self.roles.allocate && !is_written_again {
            // The leader has freed it.
            self.lost_time.forget(ip);
        }
        self.note_holders(Some(&*before), None);
        self.silent.note_removed(ip);
        self.versions.forget(&before);
        self.ledger.unlearn(ip);
        let touched = self.ledger.follow(ip, None);
        self.regrant(touched);
        for owner in &before.owners {
            self.replan(owner);
        }
        self.presence_changed();
        self.freed.look_at([ip]);
        // Somebody took it out of the ledger's storage: it is written again.
        if self.settled && self.ledger.address(ip).is_some() {
            self.dirt.insert(WorkItem::Unit(Unit::Address(ip)));
        }
    }

    /// From now on somebody may read them as they are wanted now.
    pub(super) fn send_on_the_way(&mut self, dirt: &BTreeSet<WorkItem>) {
        for it in dirt {
            if let Unit::Address(ip) = it.unit()
                && !self.addresses.contains_key(ip)
                && self.ledger.address(*ip).is_some_and(|it| it.state == AddressState::Held)
            {
                self.under_way.insert(*ip);
            }
        }
    }

    /// A write that failed may have been done all the same.
    pub(super) fn arrived(&mut self, ip: IpAddr, state: &UnitState) {
        if !matches!(state, UnitState::Failed { .. } | UnitState::Pending(_) | UnitState::PendingChange) {
            self.under_way.remove(&ip);
            self.freed.look_at([ip]);
        }
    }

    /// It is served by other hosts alone, whose pods it has.
    pub(super) fn is_away(&self, owner: &Owner) -> bool {
        self.owners.get(owner).is_some_and(|it| it.planned.nobody_here)
    }

    pub(super) fn present(&self) -> HostAddresses {
        let held = |it: &&Arc<Address>| {
            it.state == AddressState::Held && !it.owners.iter().all(|owner| self.is_away(owner))
        };
        let addresses = self.addresses.values().filter(held).map(|it| (it.ip, it.owners.clone())).collect();
        // What is not understood is not applied, nor is what came after it known to be.
        let unknown = self.unknown.values().map(|it| it.version.saturating_sub(1)).min();
        HostAddresses {
            addresses,
            as_of: unknown.map_or(self.newest, |it| it.min(self.newest)),
            epoch: self.epoch,
        }
    }

    /// Up to which version this host knows Addresses, if all of version `listed` were told first.
    pub fn known_addresses(&self, listed: u64) -> u64 {
        // Of another store, or not understood: what was listed says nothing.
        if self.unknown.is_empty() && self.epoch == 0 {
            self.newest.max(listed)
        } else {
            self.present().as_of
        }
    }

    /// Addresses that a newer Seaway wrote.
    pub(super) fn newer(&self) -> impl Iterator<Item = Problem> + '_ {
        self.unknown.values().map(|it| {
            let object = ObjectRef::new(Kind::Address, "", it.ip.to_string());
            let what = format!(
                "spec.planVersion is {}, and this host understands up to {PLAN_VERSION}; the previous \
                 content of the Address stays in use on this host",
                it.plan_version
            );
            Problem::new(object, Reason::NewerPlan, what)
                .at("spec.planVersion")
                .fix("Upgrade Seaway on this host.")
        })
    }

    pub(super) fn presence_changed(&mut self) {
        if let Some(host) = self.roles.host.clone().filter(|_| self.settled) {
            self.dirt.insert(WorkItem::Unit(Unit::HostAddresses(host)));
        }
    }
}
