//! Addresses that hosts announce by BGP: what this host announces to which peers, and what hosts say of it.

use seaway_model::bgp::BgpWanted;

use super::World;

impl World {
    /// What this host is to announce by BGP. Nothing, where this is no host or not all is known yet: then it stays as it was.
    pub fn bgp(&self) -> Option<BgpWanted> {
        self.roles.host.as_ref().filter(|_| self.settled)?;
        Some(BgpWanted::default())
    }
}
