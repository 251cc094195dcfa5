//! What another controller made for `externalTrafficPolicy: Local`, and how it stays until its Service asks for something
//! else. Pure.
//!
//! ```text
//!     made by us        Nodes are asked whether they have pods; where that cannot be, only those with pods are members
//!     made by another   all Nodes are members, and there is a monitor if there was one or one is asked for
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    ListenerId, LoadBalancer as Wish, Owner, Problem, Reason,
    load_balancer::{CloudOptions, MemberState},
};

use super::{
    adopted::is_theirs,
    steps::{Branch, Observed},
    wanted::leads_to,
};

/// Listeners that are such, and whether their members stay without a monitor.
fn theirs(wish: &Wish, observed: &Observed) -> BTreeMap<ListenerId, bool> {
    let usual = CloudOptions::default();
    let outside = wish.options.cloud.as_ref().unwrap_or(&usual);
    let Some(balancer) = observed.balancer.as_ref().filter(|_| wish.options.local_only && outside.by_nodes)
    else {
        return BTreeMap::new();
    };
    let of = |(id, branch): (&ListenerId, &Branch)| {
        let has_none = branch.pool.as_ref().is_some_and(|it| it.monitor.is_none());
        (*id, has_none && !outside.monitored)
    };
    balancer.branches.iter().filter(|(_, branch)| is_theirs(branch)).map(of).collect()
}

pub(super) fn as_made(mut wish: Wish, observed: &Observed) -> Wish {
    for (id, is_unchecked) in theirs(&wish, observed) {
        let pool = wish.listeners.get(&id).and_then(|it| leads_to(it)).cloned();
        let Some(pool) = pool.and_then(|it| wish.pools.get_mut(&it)) else { continue };
        let pool = Arc::make_mut(pool);
        let idle = pool.members.iter_mut().filter(|it| it.state == MemberState::Ready && it.weight == 0);
        idle.for_each(|it| it.weight = 1);
        if is_unchecked {
            pool.health = None;
        }
    }
    wish
}

/// What we would do otherwise, and how to ask for it.
pub(super) fn told(wish: &Wish, observed: &Observed) -> Vec<(Owner, Problem)> {
    let theirs = theirs(wish, observed);
    let unchecked = theirs.iter().filter(|(_, is_unchecked)| **is_unchecked);
    let owners: BTreeSet<&Owner> =
        unchecked.filter_map(|(id, _)| wish.listeners.get(id)).map(|it| &it.owner).collect();
    let problem = |owner: &Owner| {
        let message = "externalTrafficPolicy is Local, and another controller made the load balancer without health \
                       monitors: Nodes without pods are members, and connections that reach these Nodes fail";
        let problem = Problem::new(owner.object(), Reason::Unsupported, message);
        let fix = "To have members checked, annotate the Service: loadbalancer.openstack.org/enable-health-monitor: \"true\".";
        (owner.clone(), problem.fix(fix))
    };
    owners.into_iter().map(problem).collect()
}
