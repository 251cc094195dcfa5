//! What others changed behind our back: what was known, held against what is there. Pure.

use std::collections::BTreeMap;

use seaway_model::ListenerId;
use seaway_openstack::{
    octavia::{
        HealthMonitorChange, ListenerChange, NewHealthMonitor, NewListener, NewPool, Operating, PoolChange,
        Provisioning,
    },
    resource::Edit,
};

use super::{
    names::after_number,
    steps::{Branch, Observed, ObservedLoadBalancer, PoolBranch},
};

/// One line for each thing that is another, as a human reads it. Whether any of it matters, the steps tell.
pub(super) fn found(known: &Observed, now: &Observed) -> Vec<String> {
    let mut found = Vec::new();
    match (&known.balancer, &now.balancer) {
        (Some(was), None) => found.push(format!("load balancer {} was deleted", was.it.id)),
        (Some(was), Some(is)) => of_balancer(was, is, &mut found),
        (None, _) => {}
    }
    if now.unasked && !known.unasked {
        found.push("members are OFFLINE, or are new and in ERROR: OVN may not be probing them".to_owned());
    }
    // It went with its load balancer, which says enough.
    if now.balancer.is_some() {
        match (&known.floating, &now.floating) {
            (Some(was), None) => {
                let address = was.floating_ip_address.map(|it| it.to_string());
                let address = address.unwrap_or_else(|| was.id.to_string());
                found
                    .push(format!("floating IP {address} is not associated with the load balancer any more"));
            }
            (Some(was), Some(is)) if was.id != is.id => {
                found.push(format!(
                    "floating IP {} is associated with the load balancer instead of {}",
                    is.id, was.id
                ));
            }
            (Some(was), Some(is)) if !was.tags.is_subset(&is.tags) => {
                found.push(format!("tags of floating IP {} were removed", is.id));
            }
            _ => {}
        }
    }
    found
}

fn of_balancer(was: &ObservedLoadBalancer, is: &ObservedLoadBalancer, found: &mut Vec<String>) {
    if is.it.provisioning_status == Provisioning::Error {
        found.push(format!("load balancer {} is in ERROR", is.it.id));
    }
    // Others may come, and mark it.
    if !was.it.tags.is_subset(&is.it.tags) {
        found.push("tags of the load balancer were removed".to_owned());
    }
    let own = |name: &str| name.starts_with("pool_") && after_number(name) == is.it.name;
    for (id, name) in
        is.unused_pools.iter().filter(|(id, name)| !was.unused_pools.contains_key(id) && own(name))
    {
        found.push(format!("pool {id} ({name}) exists, and no listener uses it"));
    }
    let own = |name: &str| name.starts_with("listener_") && after_number(name) == is.it.name;
    for (id, name) in is
        .duplicate_listeners
        .iter()
        .filter(|(id, name)| !was.duplicate_listeners.contains_key(id) && own(name))
    {
        found.push(format!("listener {id} ({name}) is a duplicate at its port, and has no pool"));
    }
    for (id, was) in &was.branches {
        match is.branches.get(id) {
            Some(is) => of_branch(*id, was, is, found),
            None => found.push(format!("the listener of {id} was deleted")),
        }
    }
    for id in is.branches.keys().filter(|it| !was.branches.contains_key(it)) {
        found.push(format!("a listener of {id} was made by another client of the cloud"));
    }
}

fn of_branch(id: ListenerId, was: &Branch, is: &Branch, found: &mut Vec<String>) {
    let mut change = ListenerChange::between(&is.listener, &NewListener::like(&was.listener));
    // It is told by its pool; and while it was made there was none.
    change.default_pool_id = Edit::Leave;
    match is.listener.provisioning_status {
        Provisioning::Error => found.push(format!("the listener of {id} is in ERROR")),
        _ if was.listener.protocol != is.listener.protocol || !change.is_empty() => {
            found.push(format!("the listener of {id} was changed"));
        }
        _ => {}
    }
    match (&was.pool, &is.pool) {
        (Some(was), Some(is)) => of_pool(id, was, is, found),
        (Some(_), None) => found.push(format!("the pool of {id} was deleted")),
        (None, _) => {}
    }
}

fn of_pool(id: ListenerId, was: &PoolBranch, is: &PoolBranch, found: &mut Vec<String>) {
    let change = PoolChange::between(&is.pool, &NewPool::like(&was.pool));
    match is.pool.provisioning_status {
        Provisioning::Error => found.push(format!("the pool of {id} is in ERROR")),
        _ if was.pool.protocol != is.pool.protocol || !change.is_empty() => {
            found.push(format!("the pool of {id} was changed"));
        }
        _ => {}
    }
    match (&was.monitor, &is.monitor) {
        (Some(_), None) => found.push(format!("the health monitor of {id} was deleted")),
        (Some(_), Some(is)) if is.provisioning_status == Provisioning::Error => {
            found.push(format!("the health monitor of {id} is in ERROR"));
        }
        (Some(was), Some(is))
            if was.r#type != is.r#type
                || !HealthMonitorChange::between(is, &NewHealthMonitor::like(was)).is_empty() =>
        {
            found.push(format!("the health monitor of {id} was changed"));
        }
        (None, Some(_)) => {
            found.push(format!("a health monitor of {id} was made by another client of the cloud"))
        }
        _ => {}
    }
    for (at, seat) in &was.members {
        match is.members.get(at) {
            None => found.push(format!("member {at} of {id} was removed")),
            Some(now) if seat.terms.is_some() && now.terms.is_some() && seat.terms != now.terms => {
                found.push(format!("member {at} of {id} was changed"));
            }
            _ => {}
        }
    }
    for at in is.members.keys().filter(|at| !was.members.contains_key(at)) {
        found.push(format!("member {at} of {id} was added by another client of the cloud"));
    }
}

/// Those that fail their probes, by the port that they serve; and how many there are.
pub(super) fn down(balancer: &ObservedLoadBalancer) -> BTreeMap<ListenerId, (Vec<String>, usize)> {
    let pools = balancer.branches.iter().filter_map(|(id, it)| Some((*id, it.pool.as_ref()?)));
    pools
        .map(|(id, pool)| {
            let failed = pool.members.iter().filter(|(_, it)| it.operating == Operating::Error);
            (id, (failed.map(|(at, _)| at.to_string()).collect::<Vec<_>>(), pool.members.len()))
        })
        .filter(|(_, (failed, _))| !failed.is_empty())
        .collect()
}
