//! Who has which address of our pools, and which ports are taken where.
//!
//! ```text
//!     pools, hosts ─┐                       ┌─► grant(owner): addresses, ports, Problems
//!     learn ► settle ► Ledger { holdings } ─┤
//!     claim, release┘                       └─► address(ip): what its Address should be
//!
//!     free ─ claim ─► Held ─ last owner leaves ─► Releasing ─ released() ─► free
//!                      ▲────── the same owner ────────┘
//! ```
//!
//! Nothing is decided before [`Ledger::settle`]: what storage and sources say at start may arrive in any order and
//! gives the same addresses. From then on an owner keeps what it has for as long as it may, and whoever waits gets what
//! becomes free, the oldest first. Who follows (`follow.rs`) gives nothing out: what is written is what is so.
//! The ledger knows no Service, no field paths, no clock and no storage.

mod address_ranges;
mod claim;
mod decide;
mod follow;
mod holdings;
mod hosts;
mod keep;
mod pools;
mod ports;
mod refuse;
mod reserved;
mod share;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Address, AnnounceMode, ListenerId, Name, ObjectRef, Owner, Problem, Time,
    config::{AddressPoolRules, ReservedPorts},
    fact::{AddressPool, HostReport},
    load_balancer::Family,
};

use self::{
    claim::ClaimOrder,
    decide::{Decision, DecisionContext, WaitingFor},
    holdings::Holdings,
    hosts::Hosts,
    keep::ExclusionDeadlines,
    pools::{Pools, gives, merged, size},
};
pub use self::{
    claim::{Claim, FamilyUse, Grant, LedgerChange, PoolUse},
    hosts::HostNode,
};
use crate::address_map::AddressMap;

#[derive(Default)]
pub struct Ledger {
    pools: Pools,
    hosts: Hosts,
    holdings: Holdings,
    owners: BTreeMap<Owner, OwnerEntry>,
    /// Somebody else gives addresses out, and what is written is what is so.
    follows: bool,
    /// Until it has settled: what storage said. For who follows, what it says now.
    learned: BTreeMap<IpAddr, Address>,
    settled: bool,
    /// Owners of before a restart are being heard one after the other.
    settling: bool,
    /// Who would take any address that becomes free.
    hungry: BTreeSet<ClaimOrder>,
    /// Who waits for somebody in particular to give something up.
    blocked: BTreeSet<ClaimOrder>,
    /// Those of them that ask for these addresses: each is told of one who has it.
    blocked_at: BTreeMap<IpAddr, BTreeSet<ClaimOrder>>,
    /// Addresses that have one owner more since those were heard.
    joined: BTreeSet<IpAddr>,
    rules: AddressPoolRules,
    machine_ports: ReservedPorts,
    now: Option<Time>,
    /// Owners of addresses that pools exclude.
    ending: BTreeMap<Owner, ExclusionDeadlines>,
    /// Hosts' own addresses that owners had before this process began, until they are given some: what an owner loses later is
    /// no more its than another's.
    remembered: BTreeMap<Owner, Vec<IpAddr>>,
    /// Who answered where when this was last written down.
    answered: BTreeMap<(IpAddr, ListenerId), Owner>,
    /// What another controller published for Services that may be adopted from it: others are not given it.
    reserved: AddressMap<Owner>,
}

/// An owner as it stands with us.
struct OwnerEntry {
    claim: Arc<Claim>,
    grant: Option<Grant>,
    problems: Vec<Problem>,
    waits: WaitingFor,
}

impl Ledger {
    pub fn new() -> Ledger {
        Ledger::default()
    }

    pub fn put_pool(&mut self, pool: Arc<AddressPool>) -> LedgerChange {
        let before = self.pools.problems().to_vec();
        if self.pools.put(pool) { self.pools_changed(&before) } else { LedgerChange::default() }
    }

    pub fn remove_pool(&mut self, object: &ObjectRef) -> LedgerChange {
        let before = self.pools.problems().to_vec();
        if self.pools.remove(object) { self.pools_changed(&before) } else { LedgerChange::default() }
    }

    pub fn put_host(&mut self, report: &HostReport) -> LedgerChange {
        if self.hosts.put(report) { self.hear_all() } else { LedgerChange::default() }
    }

    pub fn remove_host(&mut self, host: &str) -> LedgerChange {
        if self.hosts.remove(host) { self.hear_all() } else { LedgerChange::default() }
    }

    /// What storage holds at start. Once settled, the ledger knows better and does not listen.
    pub fn learn(&mut self, address: &Address) {
        if !self.settled {
            self.learned.insert(address.ip, address.clone());
        }
    }

    /// It went before anything was decided.
    pub fn unlearn(&mut self, ip: IpAddr) {
        if !self.settled {
            self.learned.remove(&ip);
        }
    }

    /// Storage and sources have said all they know: owners get back what they had, then everybody is served, the
    /// oldest first; what nobody claimed is released.
    pub fn on_synced(&mut self) -> LedgerChange {
        if std::mem::replace(&mut self.settled, true) {
            return LedgerChange::default();
        }
        if self.follows {
            return self.follow_all();
        }
        let learned = std::mem::take(&mut self.learned);
        for address in learned.values() {
            self.holdings.recall(address);
            self.recall_end(address);
        }
        self.settling = true;
        let mut touched = LedgerChange::default();
        let answered = self.deny_ports_of_others();
        // The configuration's ports come first: at all addresses nobody else has them but who is said to answer there.
        let (configured, others): (Vec<ClaimOrder>, Vec<ClaimOrder>) =
            self.ages().into_iter().partition(|age| matches!(age.owner, Owner::Config(_)));
        for age in &configured {
            self.decide_again(&age.owner, &mut touched);
        }
        let had = |age: &ClaimOrder| {
            self.remembered.contains_key(&age.owner)
                || answered.owners.contains(&age.owner)
                || self.holdings.formerly(&age.owner).next().is_some()
        };
        let (returning, new): (Vec<ClaimOrder>, Vec<ClaimOrder>) = others.into_iter().partition(had);
        for age in &returning {
            self.decide_again(&age.owner, &mut touched);
        }
        let denied = self.holdings.deny_nobody();
        for age in configured.iter().chain(&returning).filter(|age| denied.contains(&age.owner)) {
            self.decide_again(&age.owner, &mut touched);
        }
        self.settling = false;
        self.answered.clear();
        self.remembered.retain(|owner, _| {
            let has = |it: &OwnerEntry| it.grant.as_ref().is_some_and(|grant| grant.from_hosts);
            !self.owners.get(owner).is_some_and(has)
        });
        for ip in learned.keys() {
            self.holdings.forget_absent(*ip);
        }
        for age in &new {
            self.decide_again(&age.owner, &mut touched);
        }
        self.hear_waiting(None, &mut touched);
        touched.addresses = self.holdings.addresses().collect();
        touched.addresses.retain(|ip| self.address(*ip).as_ref() != learned.get(ip));
        for address in learned.values() {
            let lost = |owner: &&Owner| {
                let standing = self.owners.get(*owner);
                standing.is_some_and(|it| !it.ours().contains(&address.ip))
            };
            touched.withdrawn.extend(address.owners.iter().filter(lost).map(|it| (it.clone(), address.ip)));
        }
        touched
    }

    pub fn claim(&mut self, claim: Claim) -> LedgerChange {
        let mut touched = LedgerChange::default();
        let owner = claim.owner.clone();
        let claim = Arc::new(claim);
        let mut loosened = false;
        if self.owners.get(&owner).is_some_and(|standing| standing.claim == claim) {
            return touched;
        }
        // Its age may be another now, by which those who wait are sorted.
        self.set_waiting_for(&owner, WaitingFor::Nothing);
        match self.owners.get_mut(&owner) {
            Some(standing) => {
                let earlier = std::mem::replace(&mut standing.claim, claim.clone());
                loosened = (&earlier.sharing, &earlier.across, earlier.local_only, &earlier.selector)
                    != (&claim.sharing, &claim.across, claim.local_only, &claim.selector);
            }
            None => {
                let standing =
                    OwnerEntry { claim, grant: None, problems: Vec::new(), waits: WaitingFor::Nothing };
                self.owners.insert(owner.clone(), standing);
            }
        }
        if self.settled {
            loosened |= self.decide_again(&owner, &mut touched);
            match loosened {
                true => self.hear_waiting(None, &mut touched),
                false => self.name_holders(&mut touched),
            }
        }
        touched
    }

    /// The owner is gone, or wants nothing any more.
    pub fn release(&mut self, owner: &Owner) -> LedgerChange {
        let mut touched = LedgerChange::default();
        let loosened = self.settle_on(owner, Decision::default(), &mut touched);
        self.owners.remove(owner);
        self.remembered.remove(owner);
        touched.withdrawn.clear();
        if loosened {
            self.hear_waiting(None, &mut touched);
        }
        touched
    }

    /// Every host has let the address go: it is free again, and whoever waits may get it.
    pub fn released(&mut self, ip: IpAddr) -> LedgerChange {
        let mut touched = LedgerChange::default();
        if self.settled && self.holdings.free(ip) {
            touched.addresses.insert(ip);
            self.hear_waiting(Some(ip), &mut touched);
        }
        touched
    }

    /// What the owner has, and what it must be told. Nothing for owners that are not known, and for all before
    /// [`Ledger::settle`].
    pub fn grant(&self, owner: &Owner) -> (Option<Grant>, Vec<Problem>) {
        let standing = self.owners.get(owner);
        standing.map(|it| (it.grant.clone(), it.problems.clone())).unwrap_or_default()
    }

    /// What the Address object should be; `None` if it should not be there.
    pub fn address(&self, ip: IpAddr) -> Option<Address> {
        match self.settled && !self.follows {
            true => self.holdings.address(ip).map(|it| Address {
                ends: self.end_of(&it),
                conflicts: self.conflicts_at(&it),
                ..it
            }),
            false => self.learned.get(&ip).cloned(),
        }
    }

    /// Ports that its owners ask for and others of them have: what is to be written down.
    fn conflicts_at(&self, address: &Address) -> Vec<(Owner, ListenerId)> {
        let of = |owner: &Owner| {
            let grant = self.owners.get(owner).and_then(|it| it.grant.as_ref());
            let lacking = grant.into_iter().flat_map(Grant::lacking).filter(|(ip, _)| *ip == address.ip);
            lacking.map(|(_, port)| (owner.clone(), port)).collect::<BTreeSet<_>>()
        };
        address.owners.iter().flat_map(of).collect()
    }

    /// Whether the owner has the address by what was decided here.
    pub fn is_given_to(&self, ip: IpAddr, owner: &Owner) -> bool {
        self.holdings.owners(ip).any(|it| it == owner)
    }

    /// Whether one of these has the address by what was decided here, or had it last.
    pub fn knows_any(&self, ip: IpAddr, owners: &[Owner]) -> bool {
        self.holdings.knows_any(ip, owners)
    }

    /// All that [`Ledger::address`] has an answer for.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let own = self.holdings.addresses().filter(|_| !self.follows);
        own.chain(self.learned.keys().copied())
    }

    /// Addresses that wait for [`Ledger::released`].
    pub fn releasing(&self) -> Vec<IpAddr> {
        self.holdings.releasing().filter(|_| !self.follows).collect()
    }

    /// Whether it is one of those.
    pub fn is_releasing(&self, ip: IpAddr) -> bool {
        !self.follows && self.holdings.is_releasing(ip)
    }

    /// What is wrong with pools: those that overlap.
    pub fn problems(&self) -> Vec<Problem> {
        self.pools.problems().to_vec()
    }

    /// How full the pools are, in the order in which they are asked.
    /// Whether hosts may have to answer for addresses of some pool by ARP and NDP.
    pub(crate) fn has_layer2_pools(&self) -> bool {
        self.pools.ordered().any(|it| matches!(it.announce, Some(AnnounceMode::Layer2 | AnnounceMode::Auto)))
    }

    pub fn pools(&self) -> Vec<PoolUse> {
        self.pools
            .ordered()
            .map(|pool| PoolUse {
                pool: pool.object.clone(),
                hosts: pool.hosts,
                v4: self.family_use(pool, Family::V4),
                v6: self.family_use(pool, Family::V6),
            })
            .collect()
    }

    fn family_use(&self, pool: &AddressPool, family: Family) -> FamilyUse {
        let (mut assigned, mut taken) = (0_u128, 0_u128);
        for range in merged(pool, family) {
            let (owned, held) = self.holdings.count(range);
            let own = self.hosts.within(range).filter(|ip| !self.holdings.contains(*ip)).count();
            assigned = assigned.saturating_add(owned).saturating_add(self.followed(range));
            taken = taken.saturating_add(held).saturating_add(own as u128);
        }
        FamilyUse { assigned, available: size(pool, family).saturating_sub(taken) }
    }

    fn pools_changed(&mut self, before: &[Problem]) -> LedgerChange {
        let mut touched = self.hear_all();
        let before: BTreeSet<&Problem> = before.iter().collect();
        let now: BTreeSet<&Problem> = self.pools.problems().iter().collect();
        touched.pools = before.symmetric_difference(&now).map(|problem| problem.object.clone()).collect();
        touched
    }

    /// After a change that may concern everybody. A port of a new host is given as whoever starts there gives it: first to those
    /// who have hosts' addresses.
    fn hear_all(&mut self) -> LedgerChange {
        let mut touched = LedgerChange::default();
        if !self.settled {
            return touched;
        }
        let (first, others): (Vec<ClaimOrder>, Vec<ClaimOrder>) =
            self.ages().into_iter().partition(|age| self.is_at_hosts(&age.owner));
        for age in first.into_iter().chain(others) {
            self.decide_again(&age.owner, &mut touched);
        }
        self.hear_waiting(None, &mut touched);
        touched
    }

    /// Decides on one owner again. True if somebody else may get more by it.
    fn decide_again(&mut self, owner: &Owner, touched: &mut LedgerChange) -> bool {
        let Some(decision) = self.decide(owner) else { return false };
        // A shared address is from the pool that is on record for it, which may give the owner its other family as well.
        let opens = decision.waits != WaitingFor::Nothing
            && decision.places.iter().any(|(ip, pool)| self.holdings.pool(*ip).is_some_and(|it| it != pool));
        let loosened = self.settle_on(owner, decision, touched);
        match opens.then(|| self.decide(owner)).flatten() {
            Some(decision) => self.settle_on(owner, decision, touched) || loosened,
            None => loosened,
        }
    }

    fn decide(&self, owner: &Owner) -> Option<Decision> {
        let standing = self.owners.get(owner)?;
        let none = ExclusionDeadlines::new();
        let view = DecisionContext {
            pools: &self.pools,
            holdings: &self.holdings,
            hosts: &self.hosts,
            rules: self.rules,
            machine_ports: &self.machine_ports,
            now: self.now,
            ends: self.ending.get(owner).unwrap_or(&none),
            remembered: &self.remembered,
            answered: &self.answered,
            reserved: &self.reserved,
            settling: self.settling,
        };
        let had = standing.grant.as_ref();
        Some(if self.follows { view.follow(&standing.claim, had) } else { view.decide(&standing.claim, had) })
    }

    fn settle_on(&mut self, owner: &Owner, decision: Decision, touched: &mut LedgerChange) -> bool {
        if !self.owners.contains_key(owner) {
            return false;
        }
        let Decision { grant, problems, places, waits, ends } = decision;
        touched.addresses.extend(self.set_ends(owner, ends));
        if !self.settling && grant.as_ref().is_some_and(|it| it.from_hosts) {
            self.remembered.remove(owner);
        }
        let Some(standing) = self.owners.get_mut(owner) else { return false };
        if standing.grant != grant || standing.problems != problems {
            touched.owners.insert(owner.clone());
        }
        let before_ips = standing.ours().to_vec();
        let held: BTreeSet<_> = grant.iter().flat_map(|grant| &grant.ports).copied().collect();
        let lacking = |grant: &Option<Grant>| -> BTreeSet<(IpAddr, ListenerId)> {
            grant.iter().filter(|it| !it.from_hosts).flat_map(Grant::lacking).collect()
        };
        let lacks = lacking(&grant);
        let before = std::mem::replace(&mut standing.grant, grant);
        touched.addresses.extend(lacking(&before).symmetric_difference(&lacks).map(|(ip, _)| *ip));
        standing.problems = problems;
        let claim = standing.claim.clone();
        let mut loosened = false;
        for (ip, listener) in before.iter().flat_map(|grant| &grant.ports) {
            if !held.contains(&(*ip, *listener)) {
                self.holdings.drop_port(*ip, *listener);
                loosened = true;
            }
        }
        for ip in before_ips.iter().filter(|ip| places.iter().all(|(now, _)| now != *ip)) {
            self.holdings.leave(*ip, owner);
            touched.addresses.insert(*ip);
            touched.withdrawn.push((owner.clone(), *ip));
            loosened = true;
        }
        for (ip, pool) in &places {
            // Who waited under the same key may come along, when one that was let go is taken back.
            loosened |= claim.sharing.is_some() && self.holdings.is_releasing(*ip);
            let pool = self.from(*ip, pool, &claim).clone();
            if self.holdings.join(*ip, &pool, &claim) {
                touched.addresses.insert(*ip);
                self.joined.insert(*ip);
            }
            if !self.settling {
                self.holdings.forget_absent(*ip);
            }
        }
        for (ip, listener) in held {
            self.holdings.take_port(ip, listener, owner);
        }
        self.set_waiting_for(owner, waits);
        loosened
    }

    /// The pool that an address is from: several may have it, and of those who share it each may be allowed to use another.
    /// It stays from where it was given, as long as that has it and nobody who is alone there names another.
    fn from<'a>(&'a self, ip: IpAddr, pool: &'a Name, claim: &Claim) -> &'a Name {
        let (alone, held) = self.holdings.company(ip, &claim.owner);
        let stays = held && (!alone || claim.pool.is_none());
        let before = self.holdings.pool(ip).filter(|before| stays && *before != pool);
        let has_it =
            |before: &&Name| self.pools.ordered().any(|it| it.object.name == **before && gives(it, ip));
        before.filter(has_it).unwrap_or(pool)
    }

    fn ages(&self) -> Vec<ClaimOrder> {
        let mut ages: Vec<ClaimOrder> = self.owners.values().map(|standing| standing.claim.age()).collect();
        ages.sort();
        ages
    }
}

impl OwnerEntry {
    /// Its addresses of our pools.
    fn ours(&self) -> &[IpAddr] {
        self.grant.as_ref().filter(|grant| !grant.from_hosts).map_or(&[], |grant| &grant.addresses)
    }
}
