//! Whose a load balancer is, and is called after.

use seaway_model::{Desired, LbKey, LoadBalancer, Owner};

pub(super) fn first_owner(key: &LbKey, desired: &Desired) -> Option<Owner> {
    match desired {
        Desired::LoadBalancer(wish) => owner_of(key, wish),
        _ => None,
    }
}

/// Whom a load balancer is called after: its one owner, or the first of those that share it.
pub(super) fn owner_of(key: &LbKey, wish: &LoadBalancer) -> Option<Owner> {
    let of_all = || wish.listeners.values().map(|it| &it.owner).min();
    key.owner().or_else(of_all).cloned()
}
