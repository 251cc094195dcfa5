//! Who has which port of hosts' own addresses. Nothing is stored of these: at a start, statuses say it.
//!
//! ```text
//!     a status says that the owner has the port there, and the owner asks for it ─► it is the owner's, however old others are
//!     no status says whose it is ───────────────────────────────────────────────► who has any of hosts' addresses comes first,
//!                                                                                  and of these the oldest
//! ```
//! Whoever gives addresses out and all hosts read the same statuses, and so decide the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use seaway_model::{ListenerId, Owner};

use super::Ledger;

impl Ledger {
    /// Who answers at which port of hosts' own addresses, as a running process says: it stays so.
    pub fn answered(&mut self, owner: Owner, at: IpAddr, port: ListenerId) {
        if !self.settled {
            self.answered.insert((at, port), owner);
        }
    }

    /// Who has which ports of hosts' own addresses, as statuses say. Of several who ask for one and are said to have it, for a
    /// status is written after another, the oldest has it.
    pub fn remember_ports(&mut self, mut said: Vec<(Owner, Vec<(IpAddr, ListenerId)>)>) {
        let claim = |owner: &Owner| self.owners.get(owner).map(|it| &it.claim);
        said.sort_by_cached_key(|(owner, _)| claim(owner).map(|it| it.age()));
        for (owner, ports) in said {
            let Some(claim) = self.owners.get(&owner).map(|it| it.claim.clone()) else { continue };
            for at in ports.into_iter().filter(|(_, port)| !self.settled && claim.ports.contains(port)) {
                self.answered.entry(at).or_insert_with(|| owner.clone());
            }
        }
    }

    /// As they are given now.
    pub fn ports_of_hosts(&self) -> impl Iterator<Item = (Owner, IpAddr, ListenerId)> + '_ {
        let granted = self.owners.iter().filter_map(|(owner, it)| Some((owner, it.grant.as_ref()?)));
        let of_hosts = granted.filter(|(_, grant)| grant.from_hosts);
        of_hosts.flat_map(|(owner, grant)| grant.ports.iter().map(|(ip, port)| (owner.clone(), *ip, *port)))
    }

    /// Whether it has any of hosts' addresses.
    pub(super) fn is_at_hosts(&self, owner: &Owner) -> bool {
        let grant = self.owners.get(owner).and_then(|it| it.grant.as_ref());
        grant.is_some_and(|it| it.from_hosts && !it.addresses.is_empty())
    }

    /// Until all were heard who answered, their ports are nobody else's.
    pub(super) fn deny_ports_of_others(&mut self) -> EarlierHolders {
        let answered = self.answered.clone();
        let mut asking: BTreeMap<ListenerId, Vec<&Owner>> = BTreeMap::new();
        for (owner, it) in &self.owners {
            it.claim.ports.iter().for_each(|port| asking.entry(*port).or_default().push(owner));
        }
        let mut denied = Vec::new();
        for ((ip, port), owner) in &answered {
            let asking = asking.get(port).map(Vec::as_slice).unwrap_or_default();
            // Where something is written, that says who has which port.
            if asking.contains(&owner) && !(self.follows && self.holdings.contains(*ip)) {
                let others = asking.iter().filter(|it| **it != owner);
                denied.extend(others.map(|other| (*ip, Owner::clone(other), *port)));
            }
        }
        denied.iter().for_each(|(ip, owner, port)| self.holdings.deny(*ip, owner.clone(), *port));
        EarlierHolders { owners: answered.into_values().collect(), denied }
    }
}

/// Who answered when this was last written down.
pub(super) struct EarlierHolders {
    pub(super) owners: BTreeSet<Owner>,
    /// Whom their ports were denied.
    pub(super) denied: Vec<(IpAddr, Owner, ListenerId)>,
}
