//! What a watch reports late: an Address as it was before this process wrote it.
//!
//! ```text
//!     written at version 7 ──► known at once, at 7
//!     the watch: at 5      ──► late, and put aside
//!     the watch: at 7 or 8 ──► as it is; from now on the watch is believed in all that it reports
//!     no such report for a while ──► what was put aside counts after all
//! ```
//! Only the versions of this process's own writes are compared, and only for a while: a store that was set back to a backup has
//! lower versions, and whatever it says counts in the end.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use seaway_model::{Address, Fact};

use super::World;

/// So many times the hour is told before a watch is no longer taken to be late.
const PATIENCE: u8 = 2;

/// By address: what the watch has not reported yet.
#[derive(Debug, Default)]
pub(super) struct OwnWrites(BTreeMap<IpAddr, Write>);

#[derive(Debug)]
struct Write {
    version: u64,
    /// What the watch reported last, of before.
    aside: Option<Arc<Address>>,
    age: u8,
}

impl OwnWrites {
    /// Whether this, reported by a watch, is from before the last write. It is put aside.
    pub(super) fn precede(&mut self, fact: &Fact) -> bool {
        let Fact::Address(reported) = fact else { return false };
        let Some(write) = self.0.get_mut(&reported.ip) else { return false };
        if reported.version >= write.version {
            self.0.remove(&reported.ip);
            return false;
        }
        write.aside = Some(reported.clone());
        true
    }

    pub(super) fn forget(&mut self, ip: IpAddr) {
        self.0.remove(&ip);
    }

    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// What was put aside for too long.
    fn age(&mut self) -> Vec<Arc<Address>> {
        self.0.values_mut().for_each(|it| it.age = it.age.saturating_add(1));
        let over = self.0.extract_if(.., |_, it| it.age > PATIENCE);
        over.filter_map(|(_, it)| it.aside).collect()
    }
}

impl World {
    /// What a driver reports of an Address that it has written, or knows to be written.
    pub(super) fn put_written(&mut self, fact: &Fact) {
        if let Fact::Address(it) = fact {
            let known = self.addresses.get(&it.ip).map_or(0, |it| it.version);
            // A watch was faster, and reported what somebody wrote after that.
            if it.version < known && it.version > 0 && !self.was_set_back {
                return;
            }
            if it.version > known && self.settled {
                let write = Write { version: it.version, aside: None, age: 0 };
                self.own_writes.0.insert(it.ip, write);
            }
        }
        self.put(fact);
    }

    pub(super) fn age_own_writes(&mut self) {
        for address in self.own_writes.age() {
            self.put_address(address);
        }
    }
}
