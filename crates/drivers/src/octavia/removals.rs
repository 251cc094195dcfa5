//! What steps take away from a load balancer that is wanted, and put nothing in the place of: the engine counts it, unless its
//! Service's own change asked for it (`seaway_engine::Removal`). Pure.
//!
//! Not counted is what serves nobody: a pool that no listener leads to, a floating IP whose place another took, a load balancer
//! that never was ready, or one in ERROR that the Service's own words have made again. One in ERROR may forward traffic all the
//! same, and an outage of Octavia sets many to it: those that are rebuilt because the configuration says so are counted.

use std::collections::BTreeSet;

use seaway_engine::Removal;
use seaway_model::ListenerId;
use seaway_openstack::octavia::Provisioning;

use super::{
    mend::Mend,
    steps::{Observed, Step},
};

const REMADE: &str = "present load balancer";

pub(super) fn removals(observed: &Observed, steps: &[Step]) -> Vec<Removal> {
    let at = |is: &dyn Fn(&Step) -> bool| -> Vec<usize> {
        steps.iter().enumerate().filter(|(_, it)| is(it)).map(|(at, _)| at).collect()
    };
    let mut removals = Vec::new();
    let mut push = |what: String, listener: Option<ListenerId>, steps: Vec<usize>| {
        removals.push(Removal { what: what.into(), listener, steps });
    };
    let id = observed.balancer.as_ref().map(|it| it.it.id.to_string()).unwrap_or_default();
    let ends = |it: &Step| matches!(it, Step::Delete(_) | Step::Leave(..));
    if steps.iter().any(ends) {
        // Another takes its place; until then all that it has is gone.
        let status = observed.balancer.as_ref().map(|it| &it.it.provisioning_status);
        let is_left = steps.iter().any(|it| matches!(it, Step::Leave(..)));
        let what = if is_left { "place on load balancer" } else { REMADE };
        let by_default = matches!(observed.mend, Some(Mend::Remake { by_default: true, .. }));
        if status == Some(&Provisioning::Active) || by_default {
            push(format!("{what} {id}"), None, at(&takes_away));
        }
    } else {
        for listener in gone(steps) {
            let whose = |it: &Step| matches!(it, Step::RemoveListener(at) | Step::RemovePool(at) | Step::RemoveMonitor(at) if *at == listener);
            push(format!("listener {listener}"), Some(listener), at(&whose));
        }
        let is_replaced = |it: &Step| matches!(it, Step::Move(..) | Step::AddFloating(_) | Step::Lead(_));
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
        let goes = at(&|it| matches!(it, Step::RemoveDouble(id) if id == double));
        if !goes.is_empty() {
            push(format!("second load balancer {double}"), None, goes);
        }
    }
    removals
}

/// Stays until the limit lets it go: without it, its load balancer is followed as ever.
pub(super) fn keep(observed: &mut Observed, removals: &[Removal]) {
    if removals.iter().any(|it| it.what.starts_with(REMADE)) {
        observed.mend = None;
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

fn takes_away(step: &Step) -> bool {
    matches!(
        step,
        Step::Delete(_)
            | Step::Leave(..)
            | Step::RemoveListener(_)
            | Step::RemovePool(_)
            | Step::RemoveMonitor(_)
            | Step::RemoveLoose(_)
    )
}
