//! Where monitors of OVN find members.
//!
//! A load balancer of OVN maps each member's address to the port that it is probed through. OVN's driver adds that with a new
//! member, and deletes it with an old one, unless another pool has a member at this address: of members that are replaced by
//! others of the same addresses, as when a Service's node port changes, it makes the new ones first, and then deletes what both
//! need. No monitor reaches these any more, and nothing tells. Written once more, they have it again. Pure.

use std::net::SocketAddr;

use seaway_model::ListenerId;

use super::{
    affinity::is_of_ovn,
    steps::{Balancer, Step},
    wanted::{Wanted, WantedListener, spot},
};

/// The pool of which members stay without it after this step.
pub(super) fn lost_by(step: &Step, balancer: &Balancer) -> Option<ListenerId> {
    let (Step::SetMembers(id, _) | Step::RemoveMember(id, _)) = step else { return None };
    if balancer.spare.contains_key(id) {
        return None;
    }
    let pool = balancer.branches.get(id)?.pool.as_ref()?;
    let there = || pool.members.keys();
    let is_shared = |one: &SocketAddr, other: &SocketAddr| one != other && one.ip() == other.ip();
    let is_lost = match step {
        Step::SetMembers(_, wish) => there().any(|old| {
            let stays = wish.iter().any(|it| spot(it) == *old);
            !stays && wish.iter().any(|it| is_shared(&spot(it), old))
        }),
        Step::RemoveMember(_, old) => there().any(|it| is_shared(it, old)),
        _ => false,
    };
    (is_lost && pool.monitor.is_some() && is_of_ovn(balancer)).then_some(*id)
}

/// Once more, after all that loses it.
pub(super) fn remap(wanted: &Wanted, balancer: &Balancer, steps: &mut Vec<Step>) {
    let is_due = |(id, wish): &(&ListenerId, &WantedListener)| {
        let loses = |step: &Step| match step {
            // Those that come one by one are not there yet.
            Step::RemoveMember(of, old) => {
                of == *id && is_of_ovn(balancer) && wish.members.iter().any(|it| spot(it).ip() == old.ip())
            }
            step => lost_by(step, balancer) == Some(**id),
        };
        let pool = balancer.branches.get(id).and_then(|it| it.pool.as_ref());
        pool.is_some_and(|it| it.monitor.is_some())
            && (balancer.unmapped.contains(id) || steps.iter().any(loses))
    };
    let due: Vec<Step> = wanted
        .listeners
        .iter()
        .filter(is_due)
        .map(|(id, wish)| Step::RemapMembers(*id, wish.members.clone()))
        .collect();
    steps.extend(due);
}
