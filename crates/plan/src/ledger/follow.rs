//! The ledger of who gives nothing out: a host, or a controller while another leads.
//!
//! Its owners have the addresses that are written as theirs, and no others; only hosts' own, for which nothing is written,
//! follow from the same rules everywhere. Whoever begins to lead settles anew, on what was written by then.

use std::{collections::BTreeSet, net::IpAddr};

use seaway_model::{Address, AddressState, IpRange, Owner, load_balancer::Family};

use super::{
    Ledger, LedgerChange, OwnerEntry,
    claim::{Claim, ClaimOrder, Grant},
    decide::{Decision, DecisionContext, WaitingFor},
};

impl Ledger {
    pub fn following() -> Ledger {
        Ledger { follows: true, ..Ledger::default() }
    }

    /// An Address is written otherwise now, or not at all any more.
    pub fn follow(&mut self, ip: IpAddr, written: Option<&Address>) -> LedgerChange {
        let mut touched = LedgerChange::default();
        if !self.follows {
            return touched;
        }
        let before = match written {
            Some(address) => self.learned.insert(ip, address.clone()),
            None => self.learned.remove(&ip),
        };
        if !self.settled || before.as_ref() == written {
            return touched;
        }
        self.holdings.free(ip);
        if let Some(address) = written {
            self.holdings.recall(address);
        }
        let concerned = before.iter().chain(written).flat_map(|it| &it.owners);
        let standing = concerned.filter_map(|owner| self.owners.get(owner));
        let ages: BTreeSet<ClaimOrder> = standing.map(|it| it.claim.age()).collect();
        let mut loosened = false;
        for age in ages {
            loosened |= self.decide_again(&age.owner, &mut touched);
        }
        // Who lacks a port is told who has it, who may have been heard after it.
        if loosened || written.is_some_and(|it| !it.conflicts.is_empty()) {
            self.hear_waiting(None, &mut touched);
        }
        touched
    }

    /// The same pools, hosts and claims, from now on with addresses to give (or none), and what is `written`; to be
    /// settled anew.
    #[must_use]
    pub fn turned(self, leads: bool, written: impl Iterator<Item = Address>) -> Ledger {
        let waiting = |it: OwnerEntry| OwnerEntry {
            claim: it.claim,
            grant: None,
            problems: Vec::new(),
            waits: WaitingFor::Nothing,
        };
        Ledger {
            pools: self.pools,
            hosts: self.hosts,
            owners: self.owners.into_iter().map(|(owner, it)| (owner, waiting(it))).collect(),
            learned: written.map(|it| (it.ip, it)).collect(),
            follows: !leads,
            rules: self.rules,
            machine_ports: self.machine_ports,
            now: self.now,
            reserved: self.reserved,
            ..Ledger::default()
        }
    }

    /// Somebody else wrote that these owners have the address, and did not know what was decided here: a leader before this
    /// one, whose write came late. Hosts serve what is written, so its owners may keep it, and whoever was to have it here
    /// gets another. `is_written`: whether an address that one of them was given here instead is known to others; then it
    /// stays.
    pub fn give_way(&mut self, written: &Address, is_written: impl Fn(IpAddr) -> bool) -> LedgerChange {
        let mut touched = LedgerChange::default();
        if !self.settled || self.follows {
            return touched;
        }
        let displaced: Vec<Owner> = self.holdings.owners(written.ip).cloned().collect();
        for owner in &displaced {
            self.settle_on(owner, Decision::default(), &mut touched);
        }
        self.holdings.free(written.ip);
        self.holdings.recall(written);
        for owner in &written.owners {
            let given = self.owners.get(owner).map_or(&[][..], OwnerEntry::ours).to_vec();
            if given.is_empty() || given.iter().any(|ip| is_written(*ip)) {
                continue;
            }
            self.settle_on(owner, Decision::default(), &mut touched);
            // They may be on their way, and are released as if they were written.
            given.iter().for_each(|ip| self.holdings.disown(*ip, owner));
        }
        self.settling = true;
        self.hear_each(&written.owners, &mut touched);
        let denied: Vec<Owner> = self.holdings.deny_nobody().into_iter().collect();
        self.hear_each(&denied, &mut touched);
        self.settling = false;
        self.holdings.forget_absent(written.ip);
        self.hear_each(&displaced, &mut touched);
        self.hear_waiting(None, &mut touched);
        touched.addresses.insert(written.ip);
        touched
    }

    /// The oldest first.
    fn hear_each(&mut self, owners: &[Owner], touched: &mut LedgerChange) {
        let standing = owners.iter().filter_map(|owner| self.owners.get(owner));
        let ages: BTreeSet<ClaimOrder> = standing.map(|it| it.claim.age()).collect();
        for age in ages {
            self.decide_again(&age.owner, touched);
        }
    }

    pub(super) fn follow_all(&mut self) -> LedgerChange {
        for address in self.learned.values() {
            self.holdings.recall(address);
        }
        // As whoever gives addresses out does it at its own start.
        let answered = self.deny_ports_of_others();
        let had = |age: &ClaimOrder| {
            self.remembered.contains_key(&age.owner) || answered.owners.contains(&age.owner)
        };
        let is_configured = |age: &ClaimOrder| matches!(age.owner, Owner::Config(_));
        let (configured, others): (Vec<ClaimOrder>, Vec<ClaimOrder>) =
            self.ages().into_iter().partition(is_configured);
        let returning = configured.into_iter().chain(others.into_iter().filter(had)).collect::<Vec<_>>();
        let mut touched = LedgerChange::default();
        for age in &returning {
            self.decide_again(&age.owner, &mut touched);
        }
        self.holdings.deny_no_more(&answered.denied);
        self.answered.clear();
        let LedgerChange { owners, addresses, pools, withdrawn } = self.hear_all();
        touched.owners.extend(owners);
        touched.addresses.extend(addresses);
        touched.pools.extend(pools);
        touched.withdrawn.extend(withdrawn);
        touched
    }

    /// How many addresses of a range are somebody's.
    pub(super) fn followed(&self, range: IpRange) -> u128 {
        if !self.follows {
            return 0;
        }
        let written = self.learned.range(range.first()..=range.last());
        written.filter(|(_, it)| it.state == AddressState::Held).map(|_| 1).sum()
    }
}

impl DecisionContext<'_> {
    pub(super) fn follow(&self, claim: &Claim, had: Option<&Grant>) -> Decision {
        let mut ours: Vec<IpAddr> = self.holdings.formerly(&claim.owner).collect();
        if claim.hosts_only || ours.is_empty() {
            let decided = self.decide(claim, had);
            // What is not written yet is nobody's.
            return match &decided.grant {
                Some(grant) if !grant.from_hosts => Decision::refused(decided.problems),
                _ => decided,
            };
        }
        ours.sort_by_key(|ip| Family::of(*ip) != claim.families.first.unwrap_or(Family::V4));
        let pool = ours.first().and_then(|ip| self.holdings.pool(*ip)).cloned().unwrap_or_default();
        self.grant_ports(claim, ours, pool, false)
    }
}
