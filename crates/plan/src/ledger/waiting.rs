//! Who waits for what others have, and when it is heard again.

use std::{net::IpAddr, ops::Bound};

use seaway_model::Owner;

use super::{Ledger, LedgerChange, claim::ClaimOrder, decide::WaitingFor};

impl Ledger {
    /// Those who wait, the oldest first: the blocked always, the hungry for as long as what became free still is.
    pub(super) fn hear_waiting(&mut self, freed: Option<IpAddr>, touched: &mut LedgerChange) {
        let mut last: Option<ClaimOrder> = None;
        loop {
            let after = (last.as_ref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let hungry = match freed {
                Some(ip) if !self.holdings.contains(ip) => self.hungry.range::<ClaimOrder, _>(after).next(),
                _ => None,
            };
            let blocked = self.blocked.range::<ClaimOrder, _>(after).next();
            let Some(next) = hungry.into_iter().chain(blocked).min().cloned() else { break };
            self.decide_again(&next.owner, touched);
            last = Some(next);
        }
        self.name_holders(touched);
    }

    /// Who is refused an address is told who has it: the same one whoever joined it first, so that a restart says so, too.
    pub(super) fn name_holders(&mut self, touched: &mut LedgerChange) {
        let mut loosened = false;
        while let Some(ip) = self.joined.pop_first() {
            for age in self.blocked_at.get(&ip).cloned().unwrap_or_default() {
                loosened |= self.decide_again(&age.owner, touched);
            }
        }
        if loosened {
            self.hear_waiting(None, touched);
        }
    }

    pub(super) fn set_waiting_for(&mut self, owner: &Owner, waits: WaitingFor) {
        let Some(standing) = self.owners.get_mut(owner) else { return };
        let before = std::mem::replace(&mut standing.waits, waits);
        if before != waits {
            let age = standing.claim.age();
            for ip in &standing.claim.requested {
                let blocked = self.blocked_at.entry(*ip).or_default();
                match waits {
                    WaitingFor::Holder => blocked.insert(age.clone()),
                    WaitingFor::Nothing | WaitingFor::Free => blocked.remove(&age),
                };
                if blocked.is_empty() {
                    self.blocked_at.remove(ip);
                }
            }
            match before {
                WaitingFor::Nothing => false,
                WaitingFor::Free => self.hungry.remove(&age),
                WaitingFor::Holder => self.blocked.remove(&age),
            };
            match waits {
                WaitingFor::Nothing => false,
                WaitingFor::Free => self.hungry.insert(age),
                WaitingFor::Holder => self.blocked.insert(age),
            };
        }
    }
}
