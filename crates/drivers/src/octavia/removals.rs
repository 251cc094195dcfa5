//! What steps take away from a load balancer that is wanted, and put nothing in the place of: the engine counts it, unless its
//! Service's own change asked for it (`seaway_engine::Removal`). Pure.
//!
//! Not counted is what serves nobody: a pool that no listener leads to, a floating IP whose place another took, a load balancer
//! that never was ready, or one in ERROR that the Service's own words have made again. One in ERROR may forward traffic all the
//! same, and an outage of Octavia sets many to it: those that are rebuilt because the configuration says so are counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use seaway_engine::Removal;
use seaway_model::ListenerId;
use seaway_openstack::octavia::Provisioning;

use super::{
    repair::RepairAction,
    steps::{Observed, Step},
    wanted::spot,
};

/// What stays though it is not wanted, until it is known that it may go.
#[derive(Clone, Debug, Default)]
pub struct DeferredRemovals {
    /// Members, of which pools.
    pub members: BTreeMap<ListenerId, BTreeSet<IpAddr>>,
    /// Listeners in whose place others would come.
    pub listeners: BTreeSet<ListenerId>,
}

const REMADE: &str = "current load balancer";

pub(super) fn removals(observed: &Observed, steps: &[Step]) -> Vec<Removal> {
    let at = |is: &dyn Fn(&Step) -> bool| -> Vec<usize> {
        steps.iter().enumerate().filter(|(_, it)| is(it)).map(|(at, _)| at).collect()
    };
    let mut removals = Vec::new();
    let mut push = |what: String, listener: Option<ListenerId>, steps: Vec<usize>| {
        removals.push(Removal { what: what.into(), listener, steps, ..Removal::default() });
    };
    let id = observed.balancer.as_ref().map(|it| it.it.id.to_string()).unwrap_or_default();
    let ends = |it: &Step| matches!(it, Step::Delete(_) | Step::Leave(..));
    if steps.iter().any(ends) {
        // Another takes its place; until then all that it has is gone.
        let status = observed.balancer.as_ref().map(|it| &it.it.provisioning_status);
        let is_left = steps.iter().any(|it| matches!(it, Step::Leave(..)));
        let what = if is_left { "listeners on the shared load balancer" } else { REMADE };
        let by_default = matches!(observed.repair, Some(RepairAction::Remake { by_default: true, .. }));
        if status == Some(&Provisioning::Active) || by_default {
            push(format!("{what} {id}"), None, at(&takes_away));
        }
    } else {
        for listener in gone(steps) {
            let whose = |it: &Step| matches!(it, Step::RemoveListener(at) | Step::RemovePool(at) | Step::RemoveMonitor(at) if *at == listener);
            push(format!("listener {listener}"), Some(listener), at(&whose));
        }
        for listener in replaced(observed, steps) {
            let whose = |it: &Step| matches!(it, Step::RemoveListener(at) | Step::AddListener(at, _) if *at == listener);
            push(format!("listener {listener}, which another replaces"), Some(listener), at(&whose));
        }
        let is_replaced =
            |it: &Step| matches!(it, Step::Move(..) | Step::AddFloating(_) | Step::AssociateFloating(_));
        if let Some(floating) = &observed.floating
            && !steps.iter().any(is_replaced)
        {
            let goes = at(&|it| matches!(it, Step::RemoveFloating(id) if *id == floating.id));
            if !goes.is_empty() {
                let address = floating.floating_ip_address.map(|it| it.to_string()).unwrap_or_default();
                push(format!("floating IP {address}"), None, goes);
            }
        }
    }
    for double in observed.doubles.iter().filter(|it| observed.given_up.as_ref() != Some(it)) {
        let goes = at(&|it| matches!(it, Step::RemoveDuplicateLoadBalancer(id) if id == double));
        if !goes.is_empty() {
            push(format!("second load balancer {double}"), None, goes);
        }
    }
    removals.extend(members(observed, steps));
    removals.extend(Removal::of_the_rest(&removals, steps));
    removals
}

/// Stays until the limit lets it go: without it, its load balancer is followed as ever.
pub(super) fn keep(observed: &mut Observed, removals: &[Removal]) {
    for it in removals {
        match (&it.node[..], it.listener) {
            ([], Some(id)) => _ = observed.held.listeners.insert(id),
            (node, Some(id)) => observed.held.members.entry(id).or_default().extend(node),
            _ => {}
        }
    }
    if removals.iter().any(|it| it.what.starts_with(REMADE)) {
        observed.repair = None;
        observed.stays = Some("the deletion limit is reached".to_owned());
    }
}

/// Listeners that go, and none comes to their place.
fn gone(steps: &[Step]) -> BTreeSet<ListenerId> {
    let comes = |id: ListenerId| steps.iter().any(|it| matches!(it, Step::AddListener(at, _) if *at == id));
    let goes = steps.iter().filter_map(|it| match it {
        Step::RemoveListener(id) => Some(*id),
        _ => None,
    });
    goes.filter(|it| !comes(*it)).collect()
}

/// Listeners that serve, and that another of another protocol replaces.
fn replaced(observed: &Observed, steps: &[Step]) -> BTreeSet<ListenerId> {
    let is_replaced = |id: &ListenerId| {
        let comes = steps.iter().any(|it| matches!(it, Step::AddListener(at, _) if at == id));
        let there = observed.balancer.as_ref().and_then(|it| it.branches.get(id));
        comes && there.is_some_and(|it| it.listener.provisioning_status != Provisioning::Error)
    };
    let goes = steps.iter().filter_map(|it| match it {
        Step::RemoveListener(id) => Some(*id),
        _ => None,
    });
    goes.filter(is_replaced).collect()
}

/// Nodes that a pool has, and that it is not to have any more.
fn members(observed: &Observed, steps: &[Step]) -> Vec<Removal> {
    let Some(balancer) = observed.balancer.as_ref().filter(|_| observed.by_nodes) else { return Vec::new() };
    let there = |id: &ListenerId| {
        let pool = balancer.branches.get(id).and_then(|it| it.pool.as_ref());
        pool.into_iter().flat_map(|it| it.members.keys().copied())
    };
    let removal = |id: &ListenerId, at: SocketAddr, step: usize| Removal {
        what: format!("member {} of {id}", at.ip()).into(),
        listener: Some(*id),
        node: vec![at.ip()],
        steps: vec![step],
        ..Removal::default()
    };
    let of = |(step, it): (usize, &Step)| -> Vec<Removal> {
        match it {
            Step::SetMembers(id, members) => {
                let goes = there(id).filter(|at| members.iter().all(|it| spot(it) != *at));
                goes.map(|at| removal(id, at, step)).collect()
            }
            Step::RemoveMember(id, at) => vec![removal(id, *at, step)],
            _ => Vec::new(),
        }
    };
    steps.iter().enumerate().flat_map(of).collect()
}

fn takes_away(step: &Step) -> bool {
    matches!(
        step,
        Step::Delete(_)
            | Step::Leave(..)
            | Step::RemoveListener(_)
            | Step::RemovePool(_)
            | Step::RemoveMonitor(_)
            | Step::RemoveUnusedPool(_)
            | Step::RemoveDuplicateListener(_)
    )
}

#[cfg(test)]
mod tests {
    use seaway_openstack::{
        octavia::{LoadBalancer, NewLoadBalancer},
        resource::{Fields, View},
    };

    use super::{super::steps::ObservedLoadBalancer, *};

    #[test]
    fn a_load_balancer_that_goes_is_counted_if_it_serves_or_the_configuration_has_it_made_again() {
        for (status, by_default, is_counted) in [
            ("ACTIVE", None, true),
            ("ACTIVE", Some(false), true),
            ("ERROR", Some(true), true),
            ("ERROR", Some(false), false),
            ("ERROR", None, false),
        ] {
            let object = serde_json::json!({ "id": "one", "provisioning_status": status });
            let it = LoadBalancer::read(Fields::of(object).expect("an object")).expect("a load balancer");
            let balancer = Some(ObservedLoadBalancer::new(it, Default::default(), Default::default()));
            let repair = by_default.map(|by_default| RepairAction::Remake { why: "a test", by_default });
            let observed = Observed { balancer, repair, ..Observed::default() };
            // What makes the next one, or forgets a certificate, may be done before.
            let steps = [
                Step::Forget("spare".to_owned()),
                Step::Delete("one".parse().expect("an id")),
                Step::Create(Box::new(NewLoadBalancer::new())),
            ];
            let found = removals(&observed, &steps);
            let found = found.iter().filter(|it| !it.is_unused);
            let found: Vec<_> = found.map(|it| (it.what.as_str(), &it.steps[..])).collect();
            let expected = is_counted.then_some(("current load balancer one", &[1][..]));
            assert_eq!(found, Vec::from_iter(expected), "{status} {by_default:?}");
        }
    }
}
