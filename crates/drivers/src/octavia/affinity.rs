//! Which member a client stays with. Octavia takes a time for datagrams alone; of TCP the provider has its own.
//!
//! `ovn` needs that time, and hears it of a pool alone, never within a whole load balancer: so it keeps no client of TCP, and
//! Octavia tells that it does. What it keeps, it keeps for all pools of a load balancer and a transport at once: that is never
//! taken back by saying so, and is forgotten as soon as one of these pools goes. Pure.
//!
//! ```text
//!     a whole load balancer    pools of datagrams are made without affinity, and it is said afterwards
//!     no affinity any more     a pool without it takes the place of the one there (pool_replacement.rs)
//!     a pool goes              those that stay say theirs anew
//! ```
//! Guests of a load balancer of theirs are not asked: what one says holds for the others of its transport.

use seaway_model::{
    L4, Listener, ListenerId, LoadBalancer, Owner, Pool as Wish, Problem, Reason, load_balancer::Affinity,
};
use seaway_openstack::{
    octavia::{NewListener, NewPool, Persistence, PersistenceType, Pool, PoolChange, PoolProtocol},
    resource::Edit,
};

use super::{
    steps::{Branch, ObservedLoadBalancer, Step},
    wanted::{Wanted, leads_to},
};

pub(super) const OVN: &str = "ovn";

pub(super) fn persistence(pool: &Wish, l4: L4) -> Option<Persistence> {
    match &pool.affinity {
        Some(Affinity::ClientIp(time)) => Some(Persistence {
            kind: PersistenceType::SourceIp,
            persistence_timeout: (l4 != L4::Tcp).then_some(time.as_secs()),
            ..Persistence::default()
        }),
        Some(Affinity::Cookie { .. }) => {
            Some(Persistence { kind: PersistenceType::HttpCookie, ..Persistence::default() })
        }
        None => None,
    }
}

/// What is told of one that is there may say more than was asked for.
pub(super) fn is_as_wished(wish: &Persistence, there: &Persistence) -> bool {
    let is_timed =
        wish.persistence_timeout.is_none() || wish.persistence_timeout == there.persistence_timeout;
    wish.kind == there.kind && is_timed
}

/// What is heard of a pool alone is not said of a whole load balancer,
pub(super) fn leave_out(provider: &Edit<Option<String>>, listeners: &mut [NewListener]) {
    let pools = listeners.iter_mut().filter_map(|it| match &mut it.default_pool {
        Edit::To(pool) if is_heard_alone(provider, pool) => Some(pool),
        _ => None,
    });
    pools.for_each(|it| it.session_persistence = Edit::Leave);
}

/// but afterwards.
pub(super) fn say(wanted: &Wanted, steps: &mut Vec<Step>) {
    let of_datagrams =
        wanted.listeners.iter().filter(|it| is_heard_alone(&wanted.balancer.provider, &it.1.pool));
    steps.extend(of_datagrams.filter_map(|(id, it)| said(*id, &it.pool)));
}

fn is_heard_alone(provider: &Edit<Option<String>>, pool: &NewPool) -> bool {
    matches!(provider, Edit::To(Some(it)) if it == OVN) && is_of_datagrams(&pool.protocol)
}

fn said(at: ListenerId, wish: &NewPool) -> Option<Step> {
    let Edit::To(Some(kept)) = &wish.session_persistence else { return None };
    let change = PoolChange {
        session_persistence: Edit::To(Some(kept.clone())),
        // As of any other change (steps.rs).
        admin_state_up: Edit::To(true),
        ..PoolChange::default()
    };
    Some(Step::ChangePool(at, Box::new(change)))
}

pub(super) fn is_of_ovn(balancer: &ObservedLoadBalancer) -> bool {
    balancer.it.provider.as_deref() == Some(OVN)
}

/// It goes with its pool only.
pub(super) fn lingers(wish: &NewPool, there: &Pool, balancer: &ObservedLoadBalancer) -> bool {
    let is_unwanted = wish.session_persistence == Edit::To(None);
    is_unwanted && is_of_ovn(balancer) && is_kept(there)
}

/// A pool has gone: what the others said is of no force any more.
pub(super) fn forget(balancer: &mut ObservedLoadBalancer) {
    if is_of_ovn(balancer) {
        let is_kept = |it: &Branch| it.pool.as_ref().is_some_and(|it| is_kept(&it.pool));
        let kept = balancer.branches.iter().filter(|(_, it)| is_kept(it)).map(|(id, _)| *id);
        balancer.forgotten = kept.collect();
    }
}

pub(super) fn remind(wanted: &Wanted, balancer: &ObservedLoadBalancer, steps: &mut Vec<Step>) {
    let is_there = |id: &&ListenerId| balancer.branches.get(id).is_some_and(|it| it.pool.is_some());
    let forgotten = balancer.forgotten.iter().filter(is_there);
    steps.extend(forgotten.filter_map(|id| said(*id, &wanted.listeners.get(id)?.pool)));
}

/// Of whom no client is kept, though it is asked for and taken.
pub(super) fn told(wish: &LoadBalancer, balancer: &ObservedLoadBalancer) -> Vec<(Owner, Problem)> {
    if !is_of_ovn(balancer) {
        return Vec::new();
    }
    let is_asked = |it: &&Listener| {
        let pool = leads_to(it).and_then(|it| wish.pools.get(it));
        it.l4 == L4::Tcp && pool.is_some_and(|it| matches!(it.affinity, Some(Affinity::ClientIp(_))))
    };
    let all = wish.listeners.values().map(|it| &**it).filter(is_asked);
    let problem = |it: &Listener| {
        let message =
            format!("port {}: OVN has no session affinity for TCP; the port is served without it", it.id());
        let problem = Problem::new(it.owner.object(), Reason::Unsupported, message);
        (it.owner.clone(), problem.fix("Choose another provider, or leave sessionAffinity out."))
    };
    all.map(problem).collect()
}

fn is_kept(pool: &Pool) -> bool {
    is_of_datagrams(&pool.protocol) && pool.session_persistence.is_some()
}

fn is_of_datagrams(protocol: &PoolProtocol) -> bool {
    matches!(protocol, PoolProtocol::Udp | PoolProtocol::Sctp)
}

#[cfg(test)]
mod tests {
    use PersistenceType::{HttpCookie, SourceIp};

    use super::*;

    #[test]
    fn a_time_that_nobody_asked_for_is_no_difference() {
        let kept =
            |kind, persistence_timeout| Persistence { kind, persistence_timeout, ..Persistence::default() };
        for (wish, there, expected) in [
            (kept(SourceIp, None), kept(SourceIp, None), true),
            (kept(SourceIp, None), kept(SourceIp, Some(360)), true),
            (kept(SourceIp, Some(60)), kept(SourceIp, Some(60)), true),
            (kept(SourceIp, Some(60)), kept(SourceIp, Some(360)), false),
            (kept(SourceIp, Some(60)), kept(SourceIp, None), false),
            (kept(HttpCookie, None), kept(SourceIp, Some(360)), false),
        ] {
            assert_eq!(is_as_wished(&wish, &there), expected, "{wish:?} {there:?}");
        }
    }
}
