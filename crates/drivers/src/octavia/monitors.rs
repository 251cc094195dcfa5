//! What must change so that members are checked as wished, and never where nobody answers. Pure.

use seaway_model::ListenerId;
use seaway_openstack::{
    octavia::{HealthMonitorChange, NewHealthMonitor, Provisioning},
    resource::Edit,
};

use super::{
    seats::terms_of,
    steps::{ObservedLoadBalancer, PoolBranch, Step, named},
    wanted::{Wanted, WantedListener},
};

/// What is to be written before members are, and after.
pub(super) fn of_monitor(
    id: ListenerId,
    wish: &WantedListener,
    there: &PoolBranch,
    name: &impl Fn(&str) -> String,
) -> (Option<Step>, Option<Step>) {
    let make = |new: &NewHealthMonitor| Step::AddMonitor(id, Box::new(named(new, name)));
    match (&wish.monitor, &there.monitor) {
        (None, None) => (None, None),
        (None, Some(_)) => (Some(Step::RemoveMonitor(id)), None),
        (Some(new), None) => (None, Some(make(new))),
        (Some(new), Some(now))
            if new.r#type != now.r#type || now.provisioning_status == Provisioning::Error =>
        {
            (Some(Step::RemoveMonitor(id)), Some(make(new)))
        }
        (Some(new), Some(now)) => {
            let mut change = HealthMonitorChange::between(now, new);
            change.name = Edit::Leave;
            (None, (!change.is_empty()).then(|| Step::ChangeMonitor(id, Box::new(change))))
        }
    }
}

/// Pools whose members' weights and ports have to be known before anything is written: a monitor is to be, or asks them
/// elsewhere than where they serve. Status trees do not tell them.
pub(super) fn to_weigh(wanted: &Wanted, balancer: &ObservedLoadBalancer) -> Vec<ListenerId> {
    let is_unknown = |(id, wish): (&ListenerId, &WantedListener)| {
        let there = balancer.branches.get(id)?.pool.as_ref()?;
        let monitor = of_monitor(*id, wish, there, &|_| String::new());
        let is_asked = monitor != (None, None) || wish.members.iter().any(|it| terms_of(it).1.is_some());
        (is_asked && there.members.values().any(|it| it.terms.is_none())).then_some(*id)
    };
    wanted.listeners.iter().filter_map(is_unknown).collect()
}
