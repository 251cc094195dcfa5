//! What an owner keeps in a cluster although no pool gives it any more.
//!
//! ```text
//!     the pool that the address is from ─┬─ cannot be seen ─────► it stays, and a Problem names the pool
//!                                        ├─ excludes it ────────► it stays for the grace period, and a Problem says
//!                                        │                        until when; a pool that allows it again cancels that
//!     the Service asks for another pool ─┴──────────────────────► it ends at once
//! ```
//! When the grace period ends is written down with the address, and read by the next leader: it does not begin again.
//!
//! An Address may be gone together with its pool, while no controller runs: then a status that Seaway wrote says who has it
//! (`adopt_own`).
//!
//! A pool may be out of sight because it was deleted, because its definition is missing, because we may not list pools,
//! or because it cannot be read: none of these says that its addresses are to be withdrawn.

use std::{collections::BTreeMap, net::IpAddr};

use seaway_model::{
    Address, AddressState, Name, Owner, Problem, Reason, Time,
    address::PLAN_VERSION,
    config::{AddressPoolRules, ReservedPorts},
    fact::AddressPool,
    load_balancer::Family,
};

use super::{
    Ledger, LedgerChange,
    claim::{Claim, ClaimOrder},
    decide::DecisionContext,
    pools::gives,
};
use crate::certificates::calendar;

/// When addresses end that their pools exclude; nothing, while nobody has told what time it is.
pub(super) type ExclusionDeadlines = BTreeMap<IpAddr, Option<Time>>;

/// Why an address stays that no pool gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RetentionReason {
    /// Its pool cannot be seen, or that which the Service asks for instead.
    Unseen(Name),
    /// Its pool excludes it, until then.
    Until(Name, Option<Time>),
}

/// The pool of an address that Services have and that no pool is seen to give; no pool can have this name.
const UNKNOWN: &str = "(unknown)";

impl Ledger {
    /// What a status says of an address that nobody wrote down: whoever has it keeps it, if a pool may give it. Who is
    /// said to have another one of its family in storage has that.
    pub fn adopt(&mut self, ip: IpAddr, owners: &[Owner]) {
        // First of all: to look for the owners of each among all takes long where there are thousands.
        if self.learned.contains_key(&ip) || self.hosts.whose(ip).is_some() {
            return;
        }
        if let Some(pool) = self.giving(ip) {
            self.learn_published(ip, pool, owners);
        }
    }

    /// As above, of those for whom Seaway itself published it, in a cluster: also where no pool is seen that gives it. The Address
    /// and its pool may have been lost together.
    pub fn adopt_own(&mut self, ip: IpAddr, owners: &[Owner]) {
        if self.learned.contains_key(&ip) || self.is_hosts_own(ip) {
            return;
        }
        let asked = || owners.iter().find_map(|it| self.owners.get(it)?.claim.pool.clone());
        let pool = self.giving(ip).or_else(asked).unwrap_or_else(|| UNKNOWN.into());
        self.learn_published(ip, pool, owners);
    }

    /// It was given before the store was set back, and is not written now. Who had it and is there has it again, unless another one of
    /// its family is written as his; else it is being released, for hosts may not have heard of that.
    pub fn reserve_lost(&mut self, lost: &Address) {
        if self.settled || self.learned.contains_key(&lost.ip) {
            return;
        }
        let owners = match lost.state {
            AddressState::Held => self.without_another(lost.ip, &lost.owners),
            AddressState::Releasing => Vec::new(),
        };
        let state = if owners.is_empty() { AddressState::Releasing } else { AddressState::Held };
        self.learned.insert(lost.ip, address(lost.ip, lost.pool.clone(), owners, state));
    }

    fn giving(&self, ip: IpAddr) -> Option<Name> {
        self.pools.ordered().find(|pool| gives(pool, ip)).map(|pool| pool.object.name.clone())
    }

    fn learn_published(&mut self, ip: IpAddr, pool: Name, owners: &[Owner]) {
        let owners = self.without_another(ip, owners);
        if self.settled || owners.is_empty() {
            return;
        }
        self.learned.insert(ip, address(ip, pool, owners, AddressState::Held));
    }

    /// Those that are there, and have no other one of its family in storage.
    fn without_another(&self, ip: IpAddr, owners: &[Owner]) -> Vec<Owner> {
        let family = Family::of(ip);
        let stored = |owner: &Owner| {
            self.learned.values().any(|it| Family::of(it.ip) == family && it.owners.contains(owner))
        };
        let may = |it: &&Owner| self.owners.contains_key(*it) && !stored(it);
        owners.iter().filter(may).cloned().collect()
    }

    /// Nobody else is given these.
    pub fn reserve(&mut self, owner: &Owner, ips: Vec<IpAddr>) -> LedgerChange {
        let mut touched = LedgerChange::default();
        for ip in self.reserved.put(owner, ips) {
            if self.settled && self.reserved.owners(ip).is_none() {
                self.hear_waiting(Some(ip), &mut touched);
            }
        }
        touched
    }

    /// Which rules hold: to be told before anything is claimed, and again when the configuration changes.
    pub fn set_rules(&mut self, rules: AddressPoolRules) -> LedgerChange {
        if std::mem::replace(&mut self.rules, rules) == rules {
            return LedgerChange::default();
        }
        self.hear_all()
    }

    /// Which ports machines need themselves: the same.
    pub fn set_machine_ports(&mut self, ports: &ReservedPorts) -> LedgerChange {
        if self.machine_ports == *ports {
            return LedgerChange::default();
        }
        self.machine_ports = ports.clone();
        self.hear_all()
    }

    /// A leader before this one wrote down when it ends.
    pub(super) fn recall_end(&mut self, address: &Address) {
        let Some(end) = address.ends else { return };
        for owner in address.owners.iter().filter(|it| self.owners.contains_key(*it)) {
            self.ending.entry(owner.clone()).or_default().insert(address.ip, Some(end));
        }
    }

    /// When this is withdrawn from the first of its owners: what is to be written down.
    pub(super) fn end_of(&self, address: &Address) -> Option<Time> {
        let ends =
            address.owners.iter().filter_map(|owner| self.ending.get(owner)?.get(&address.ip).copied());
        ends.flatten().min()
    }

    /// Addresses that are to be written by it.
    pub(super) fn set_ends(&mut self, owner: &Owner, ends: ExclusionDeadlines) -> Vec<IpAddr> {
        let before = match ends.is_empty() {
            true => self.ending.remove(owner),
            false => self.ending.insert(owner.clone(), ends.clone()),
        };
        let before = before.unwrap_or_default();
        let ips = before.keys().chain(ends.keys()).filter(|ip| before.get(*ip) != ends.get(*ip));
        ips.filter(|ip| self.holdings.contains(**ip)).copied().collect()
    }

    /// What time it is: what pools exclude ends when its time has come.
    pub fn set_time(&mut self, now: Time) -> LedgerChange {
        self.now = Some(now);
        let mut touched = LedgerChange::default();
        let is_due = |end: &Option<Time>| end.is_none_or(|end| end <= now);
        let due = self.ending.iter().filter(|(_, ends)| ends.values().any(is_due));
        let standing = due.filter_map(|(owner, _)| self.owners.get(owner));
        let mut ages: Vec<ClaimOrder> = standing.map(|it| it.claim.age()).collect();
        ages.sort();
        if !self.settled || ages.is_empty() {
            return touched;
        }
        for age in ages {
            self.decide_again(&age.owner, &mut touched);
        }
        self.hear_waiting(None, &mut touched);
        touched
    }
}

impl DecisionContext<'_> {
    /// What it has of hosts that their Nodes do not publish any more, and when that ends; not what is over.
    pub(super) fn unpublished(
        &self,
        claim: &Claim,
        pool: &AddressPool,
        had: &[IpAddr],
    ) -> BTreeMap<IpAddr, Option<Time>> {
        let is_left =
            |ip: &IpAddr| !self.holdings.contains(*ip) && self.hosts.unpublished(*ip, pool).is_some();
        let left = had.iter().copied().filter(|ip| self.publishes_nodes(claim) && is_left(ip));
        left.filter_map(|ip| self.end_after_grace(ip).map(|end| (ip, end))).collect()
    }

    /// One for all: a cluster whose Nodes get ExternalIPs has as many as hosts.
    pub(super) fn unpublished_problem(
        &self,
        claim: &Claim,
        leaving: &BTreeMap<IpAddr, Option<Time>>,
    ) -> Option<Problem> {
        let (first, end) = leaving.first_key_value()?;
        let host = self.hosts.whose(*first)?;
        let more = match leaving.len() {
            1 => String::new(),
            count => format!(" ({count} addresses in all)"),
        };
        let message = format!(
            "host {host} has {first}, which its Node does not publish any more{more}: status.addresses of the Node changed, or the Node was deleted; withdrawn from this Service {}",
            when(*end)
        );
        let problem = Problem::new(claim.owner.object(), Reason::AddressExcluded, message);
        Some(problem.fix(format!(
            "To keep it, see that the Node has it again before that time: kubectl get node {host} -o wide. Otherwise \
             have clients and DNS use the other addresses of the Service."
        )))
    }

    /// Why the owner keeps this address of its own, which none of the pools gives it that it may use.
    pub(super) fn stays(&self, claim: &Claim, ip: IpAddr) -> Option<RetentionReason> {
        self.stays_from(claim, ip, self.holdings.pool(ip)?)
    }

    /// The same, of an address that is from this pool.
    pub(super) fn stays_from(&self, claim: &Claim, ip: IpAddr, pool: &Name) -> Option<RetentionReason> {
        if !self.rules.cluster {
            return None;
        }
        let is_seen = |name: &Name| self.pools.ordered().any(|it| it.object.name == *name);
        match claim.pool.as_ref().filter(|asked| *asked != pool) {
            Some(asked) if is_seen(asked) => return None,
            Some(unseen) => return Some(RetentionReason::Unseen(unseen.clone())),
            None if !is_seen(pool) => return Some(RetentionReason::Unseen(pool.clone())),
            None => {}
        }
        self.end_after_grace(ip).map(|end| RetentionReason::Until(pool.clone(), end))
    }

    /// When an address ends that is excluded now; nothing, if that is over.
    pub(super) fn end_after_grace(&self, ip: IpAddr) -> Option<Option<Time>> {
        let known = self.ends.get(&ip).copied().flatten();
        let grace = u64::try_from(self.rules.grace.as_millis()).unwrap_or(u64::MAX);
        let end = known.or_else(|| self.now.map(|now| Time(now.0.saturating_add(grace))));
        let is_over = end.is_some_and(|end| self.now.is_some_and(|now| end <= now));
        (!is_over).then_some(end)
    }

    /// The same, of an address that it was granted.
    pub(super) fn stayed(&self, claim: &Claim, ip: IpAddr) -> Option<RetentionReason> {
        let allowed = || self.pools.candidates(claim, self.rules).into_iter().any(|pool| gives(pool, ip));
        if !self.rules.cluster || allowed() { None } else { self.stays(claim, ip) }
    }
}

impl RetentionReason {
    pub(super) fn problem(&self, claim: &Claim, ip: IpAddr) -> Problem {
        let object = claim.owner.object();
        match self {
            RetentionReason::Unseen(pool) if **pool == *UNKNOWN => {
                let message = format!(
                    "Seaway sees no pool that has {ip}; the Service keeps this address, with which it was \
                     published"
                );
                Problem::new(object, Reason::PoolMissing, message).fix(
                    "Create the pool again that has this address. To release the address, delete the \
                     Service, or name a pool that exists: seaway.dev/address-pool.",
                )
            }
            RetentionReason::Unseen(pool) => {
                let message = format!(
                    "pool {pool} cannot be seen: it was deleted, or may not be listed, or cannot be read; the Service \
                     keeps its address {ip}"
                );
                Problem::new(object, Reason::PoolMissing, message).fix(format!(
                    "Create the pool {pool} again, or another one that has {ip}. To release the address, \
                     delete the Service, or name a pool that exists: seaway.dev/address-pool."
                ))
            }
            RetentionReason::Until(pool, end) => {
                let when = when(*end);
                let message = format!(
                    "pool {pool} excludes {ip} now; the address is withdrawn from this Service {when}"
                );
                Problem::new(object, Reason::AddressExcluded, message).fix(format!(
                    "To keep it, let pool {pool} have it again for this Service before that time."
                ))
            }
        }
    }
}

fn address(ip: IpAddr, pool: Name, owners: Vec<Owner>, state: AddressState) -> Address {
    Address {
        ip,
        pool,
        sharing: None,
        owners,
        plan_version: PLAN_VERSION,
        ends: None,
        conflicts: Vec::new(),
        state,
        version: 0,
    }
}

pub(super) fn when(end: Option<Time>) -> String {
    match end {
        Some(end) => format!("at {}", calendar::second(end)),
        None => "after the grace period".to_owned(),
    }
}
