//! Addresses whose objects were deleted by somebody else while Services use them.
//!
//! An Address is released before it is deleted: `Held`, then `Releasing`, then gone once no host has it. One that vanishes while
//! it is held was deleted by mistake: by hand, or all at once with their definition. Hosts go on serving at it, and statuses go
//! on publishing it, as long as its Service does; who gives addresses out writes it again.

use std::{net::IpAddr, sync::Arc};

use seaway_model::{Address, AddressState, Owner, Unit, WorkItem};

use super::World;
use crate::index::ServiceKey;

impl World {
    /// Keeps an Address whose object vanished, if it is in use. Whether it does.
    pub(super) fn keep_vanished(&mut self, ip: IpAddr) -> bool {
        let kept = self.settled && self.addresses.get(&ip).is_some_and(|it| self.is_in_use(it));
        if kept {
            self.vanished.insert(ip);
            self.dirt.insert(WorkItem::Unit(Unit::Address(ip)));
        }
        kept
    }

    /// As if this process had seen how the object of what is adopted vanished: statuses go on publishing it until it is written.
    pub(super) fn note_vanished(&mut self, ip: IpAddr) {
        let Some(address) = self.ledger.address(ip).filter(|_| !self.addresses.contains_key(&ip)) else {
            return;
        };
        self.note_holders(None, Some(&address));
        self.versions.note(None, &address);
        self.addresses.insert(ip, Arc::new(address));
        self.vanished.insert(ip);
        self.dirt.insert(WorkItem::Unit(Unit::Address(ip)));
    }

    /// A Service does not publish these any more: what was kept for it ends. (Who gives addresses out first writes that it is
    /// released: hosts keep it, too.)
    pub(super) fn unpublish(&mut self, ips: &[IpAddr]) {
        if self.roles.allocate {
            return;
        }
        for ip in ips {
            let is_unused = self.addresses.get(ip).is_none_or(|it| !self.is_in_use(it));
            if is_unused && self.vanished.remove(ip) {
                self.remove_address(*ip);
            }
        }
    }

    fn is_in_use(&self, address: &Address) -> bool {
        let publishes = |owner: &Owner| match owner {
            // The configuration names it, and is the same as before.
            Owner::Config(_) => true,
            Owner::Object { object, .. } => {
                let key = ServiceKey::new(object.namespace.clone(), object.name.clone());
                self.published.get(&key).is_some_and(|it| it.contains(&address.ip))
            }
        };
        address.state == AddressState::Held && address.owners.iter().any(publishes)
    }
}
