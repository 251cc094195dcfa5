//! A pool that replaces one in use is made beside it, with members and monitor, before the listener switches to it. Pure.
//!
//! ```text
//!     another protocol of the pool       the new pool · its members · its monitor · the listener turns · the old pool goes
//!     no affinity any more, with ovn     the new pool · its members · the listener turns · the old pool goes · its monitor
//!     another protocol of the listener   the new pool · …               · the old listener goes · the new one comes · …
//! ```
//! Octavia changes the protocol of none, and has one listener for a port: nobody is served only between the last and the
//! new one. Who deletes first serves nobody until all is made. What a crash leaves of it leads nowhere, and goes.

use std::collections::BTreeMap;

use seaway_model::ListenerId;
use seaway_openstack::{
    octavia::{Listener, LoadBalancer, NewListener, NewPool, Pool, Provisioning},
    resource::{Edit, Id},
};

use super::{
    affinity::{is_of_ovn, lingers},
    names::after_number,
    seats::seats,
    steps::{Branch, ObservedLoadBalancer, PoolBranch, Step, listens, named, new_pool, text},
    tags,
    wanted::{Wanted, WantedListener},
};

/// Pools that no listener leads to, by their ids, with their names.
pub type UnusedPools = BTreeMap<Id<Pool>, String>;

/// Listeners without a pool at the port of another, by their ids, with their names. Octavia makes none: on OVN a late status brings
/// back one that was deleted, after another took its place.
pub type DuplicateListeners = BTreeMap<Id<Listener>, String>;

/// By what they listen at.
pub type Branches = BTreeMap<ListenerId, Branch>;

pub(super) fn by_port(all: impl IntoIterator<Item = Branch>) -> (Branches, DuplicateListeners) {
    let (mut branches, mut duplicate_listeners) = (Branches::new(), DuplicateListeners::new());
    for branch in all {
        let at = listens(&branch.listener);
        let (stays, twin) = match branches.remove(&at) {
            Some(other) if branch.pool.is_none() && other.pool.is_some() => (other, Some(branch)),
            Some(other) => (branch, Some(other).filter(|it| it.pool.is_none())),
            None => (branch, None),
        };
        // Of two without a pool, it is not known which one is to have it.
        let twin = twin.filter(|_| stays.pool.is_some());
        duplicate_listeners.extend(twin.map(|it| (it.listener.id, it.listener.name)));
        branches.insert(at, stays);
    }
    (branches, duplicate_listeners)
}

/// Those of this load balancer.
pub(super) fn unused_pools<'p>(it: &LoadBalancer, pools: impl Iterator<Item = &'p Pool>) -> UnusedPools {
    let below = |pool: &&Pool| it.pools.iter().any(|one| one.id == pool.id) && pool.listeners.is_empty();
    pools.filter(below).map(|it| (it.id.clone(), it.name.clone())).collect()
}

/// What is left of a turn that did not come to its end. Of one that is taken over just now nothing goes.
pub(super) fn clear(wanted: &Wanted, balancer: &ObservedLoadBalancer, steps: &mut Vec<Step>) {
    let own = text(&wanted.balancer.name);
    let marks = match &wanted.balancer.tags {
        Edit::To(tags) => tags::own(tags).is_subset(&balancer.it.tags),
        Edit::Leave => false,
    };
    let is_ours = |kind: &str, name: &str| {
        let whose = after_number(name);
        name.starts_with(kind) && (whose == own || marks && whose == balancer.it.name)
    };
    let duplicate_listeners =
        balancer.duplicate_listeners.iter().filter(|(_, name)| is_ours("listener_", name));
    steps.extend(duplicate_listeners.map(|(id, _)| Step::RemoveDuplicateListener(id.clone())));
    let left = balancer.unused_pools.iter().filter(|(_, name)| is_ours("pool_", name)).map(|(id, _)| id);
    let unused = balancer.spare.iter().filter(|(id, spare)| {
        let Some(wish) = wanted.listeners.get(id) else { return true };
        let there = balancer.branches.get(id);
        let turns = there.is_none_or(|it| takes_its_place(wish, it) || another_pool(wish, it, balancer));
        !turns || spare.pool.protocol != wish.pool.protocol
    });
    let unused = unused.map(|(_, spare)| &spare.pool.id);
    steps.extend(left.chain(unused).cloned().map(Step::RemoveUnusedPool));
}

/// Nothing of its own stays where a guest was.
pub(super) fn leave(balancer: &ObservedLoadBalancer, own: &str) -> impl Iterator<Item = Step> {
    let left =
        balancer.unused_pools.iter().filter(move |(_, name)| after_number(name) == own).map(|(id, _)| id);
    let spare = balancer.spare.values().map(|it| &it.pool.id);
    left.chain(spare).cloned().map(Step::RemoveUnusedPool)
}

/// The listener that is there serves until another does.
pub(super) fn takes_its_place(wish: &WantedListener, there: &Branch) -> bool {
    wish.listener.protocol != there.listener.protocol
        && there.listener.provisioning_status != Provisioning::Error
}

/// The listener may stay, its pool may not.
pub(super) fn another_pool(wish: &WantedListener, there: &Branch, balancer: &ObservedLoadBalancer) -> bool {
    let other = |it: &PoolBranch| {
        let differs = it.pool.protocol != wish.pool.protocol || lingers(&wish.pool, &it.pool, balancer);
        differs && it.pool.provisioning_status != Provisioning::Error
    };
    there.pool.as_ref().is_some_and(other)
}

/// The pool that comes, as far as it is not made yet.
fn make(
    id: ListenerId,
    wish: &WantedListener,
    spare: Option<&PoolBranch>,
    name: &impl Fn(&str) -> String,
    steps: &mut Vec<Step>,
) {
    if spare.is_none() {
        let pool = NewPool { name: name("pool").into(), ..wish.pool.clone() };
        steps.push(Step::AddSpare(id, Box::new(pool)));
    }
    let seated = spare.map(|it| it.members.clone()).unwrap_or_default();
    steps.extend(seats(id, wish, &seated));
}

/// The one that was begun, if it is what is wanted.
fn begun<'b>(
    id: ListenerId,
    wish: &WantedListener,
    balancer: &'b ObservedLoadBalancer,
) -> Option<&'b PoolBranch> {
    balancer.spare.get(&id).filter(|it| it.pool.protocol == wish.pool.protocol)
}

/// Of the pool that comes.
fn watch(
    id: ListenerId,
    wish: &WantedListener,
    spare: Option<&PoolBranch>,
    name: &impl Fn(&str) -> String,
    steps: &mut Vec<Step>,
) {
    let lacks = wish.monitor.as_ref().filter(|_| spare.is_none_or(|it| it.monitor.is_none()));
    steps.extend(lacks.map(|it| Step::AddMonitor(id, Box::new(named(it, name)))));
}

/// The listener turns from one pool to the other.
pub(super) fn turn(
    id: ListenerId,
    wish: &WantedListener,
    balancer: &ObservedLoadBalancer,
    old: &PoolBranch,
    name: &impl Fn(&str) -> String,
    steps: &mut Vec<Step>,
) {
    let spare = begun(id, wish, balancer);
    // A monitor of a pool that no listener leads to is of no VIP, and stays so.
    let is_watched_last = is_of_ovn(balancer);
    make(id, wish, spare, name, steps);
    if !is_watched_last {
        watch(id, wish, spare, name, steps);
    }
    steps.push(Step::SwitchListenerPool(id));
    steps.push(Step::RemoveUnusedPool(old.pool.id.clone()));
    if is_watched_last {
        watch(id, wish, spare, name, steps);
    }
}

/// Another listener takes the place of one, or of none that is there any more.
pub(super) fn replace(
    id: ListenerId,
    wish: &WantedListener,
    balancer: &ObservedLoadBalancer,
    name: &impl Fn(&str) -> String,
    steps: &mut Vec<Step>,
) {
    let there = balancer.branches.get(&id);
    let spare = begun(id, wish, balancer);
    let listener = NewListener { name: name("listener").into(), ..wish.listener.clone() };
    if there.is_none() && spare.is_none() {
        steps.push(Step::AddListener(id, Box::new(listener)));
        new_pool(id, wish, name, steps);
        return;
    }
    make(id, wish, spare, name, steps);
    watch(id, wish, spare, name, steps);
    steps.extend(there.map(|_| Step::RemoveListener(id)));
    steps.push(Step::AddListener(id, Box::new(listener)));
    let old = there.and_then(|it| it.pool.as_ref());
    steps.extend(old.map(|it| Step::RemoveUnusedPool(it.pool.id.clone())));
}
