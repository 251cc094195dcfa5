//! Security groups and a QoS policy of a VIP. Pure.
//!
//! Octavia opens a VIP to all that its listeners let in, unless it has groups of the user: then those alone say who may come, and
//! source ranges of listeners say nothing. So neither is asked for beside the other, and nothing is made that would be open.

use std::collections::BTreeSet;

use seaway_model::{LoadBalancer as Wish, Name, Owner, Problem, Reason, load_balancer::CloudOptions};
use seaway_openstack::{
    neutron::SecurityGroup,
    octavia::{LoadBalancer, LoadBalancerChange, NewLoadBalancer},
    resource::{Edit, Id},
    survey::{Abilities, Ability},
};

use super::{steps::Observed, wanted::Wanted};

/// What was given by us has these. What an operator gave, nobody takes back.
const GROUPS: &str = "seaway.dev/vip-security-groups";
const QOS: &str = "seaway.dev/vip-qos-policy";

/// Whether a tag is one of these: one that another of the same Service lacks makes it no other.
pub(super) fn is_mark(tag: &str) -> bool {
    tag == GROUPS || tag == QOS
}

pub(super) fn ask(wanted: &mut Wanted, wish: &Wish, outside: &CloudOptions, can: &Abilities) {
    let mut marks = Vec::new();
    if !outside.vip.groups.is_empty() {
        marks.push(GROUPS);
        // Else those that are there stay: without them it would be open.
        if can.has(Ability::VipGroups) && !has_sources(wish) {
            wanted.balancer.vip_sg_ids = Edit::To(groups(outside));
        }
    }
    if let Some(qos) = &outside.vip.qos {
        wanted.balancer.vip_qos_policy_id = Edit::To(Some(qos.to_string()));
        marks.push(QOS);
    }
    if let Edit::To(tags) = &mut wanted.balancer.tags {
        tags.extend(marks.into_iter().map(str::to_owned));
    }
}

fn groups(outside: &CloudOptions) -> Vec<Id<SecurityGroup>> {
    outside.vip.groups.iter().filter_map(|it| it.parse().ok()).collect()
}

fn has_sources(wish: &Wish) -> bool {
    wish.listeners.values().any(|it| !it.sources.is_empty())
}

/// What is there in another order is the same, and what was asked for and is not any more goes.
pub(super) fn keep(change: &mut LoadBalancerChange, wish: &NewLoadBalancer, there: &LoadBalancer) {
    let is_asked = |mark: &str| matches!(&wish.tags, Edit::To(tags) if tags.contains(mark));
    let set =
        |all: &[Id<SecurityGroup>]| all.iter().map(|it| it.as_str().to_owned()).collect::<BTreeSet<_>>();
    match &wish.vip_sg_ids {
        Edit::To(groups) if set(groups) == set(&there.vip_sg_ids) => change.vip_sg_ids = Edit::Leave,
        Edit::Leave if there.tags.contains(GROUPS) && !is_asked(GROUPS) => {
            change.vip_sg_ids = Edit::To(Vec::new()).unless_equal(&there.vip_sg_ids);
        }
        _ => {}
    }
    if wish.vip_qos_policy_id.is_left() && there.tags.contains(QOS) {
        change.vip_qos_policy_id = Edit::To(None).unless_equal(&there.vip_qos_policy_id);
    }
    let mut tags = match &change.tags {
        Edit::To(tags) => tags.clone(),
        Edit::Leave => there.tags.clone(),
    };
    for (is_given, mark) in [(!wish.vip_sg_ids.is_left(), GROUPS), (!wish.vip_qos_policy_id.is_left(), QOS)] {
        if is_given {
            tags.insert(mark.to_owned());
        } else if !is_asked(mark) {
            tags.remove(mark);
        }
    }
    change.tags = Edit::To(tags).unless_equal(&there.tags);
}

/// Octavia takes no source ranges where groups say who may come.
pub(super) fn lessen(wanted: &mut Wanted, observed: &Observed) {
    if observed.balancer.as_ref().is_none_or(|it| it.it.vip_sg_ids.is_empty()) {
        return;
    }
    let metrics = wanted.metrics.iter_mut().map(|(_, it)| it);
    for it in wanted.listeners.values_mut().map(|it| &mut it.listener).chain(metrics) {
        if matches!(&it.allowed_cidrs, Edit::To(Some(_))) {
            it.allowed_cidrs = Edit::Leave;
        }
    }
}

/// It would be open, or is no group.
pub(super) fn refused(wish: &Wish, can: &Abilities) -> Vec<(Owner, Problem)> {
    let Some(outside) = &wish.options.cloud else { return Vec::new() };
    let asked = &outside.vip.groups;
    let mut messages = Vec::new();
    if !asked.is_empty() && !can.has(Ability::VipGroups) {
        let what = Ability::VipGroups.as_str();
        let message = format!(
            "this provider of load balancers, or its API, has no {what}: the VIP would be open to \
            every client"
        );
        messages.push((
            Reason::Unsupported,
            message,
            "Remove seaway.dev/vip-security-groups, or choose another.",
        ));
    }
    if !asked.is_empty() && has_sources(wish) {
        let message =
            "the VIP has security groups, which decide who may connect: source ranges would have no effect"
                .to_owned();
        let fix = "Set only one of the two: loadBalancerSourceRanges, or seaway.dev/vip-security-groups.";
        messages.push((Reason::Unsupported, message, fix));
    }
    let named = asked.iter().map(|it| ("security group", it));
    let named = named.chain(outside.vip.qos.iter().map(|it| ("QoS policy", it)));
    let is_wrong = |(_, it): &(&str, &Name)| it.parse::<Id<SecurityGroup>>().is_err();
    messages.extend(named.filter(is_wrong).map(|(what, it)| {
        (Reason::BadAnnotation, format!("{it:?} is not the id of a {what}"), "Name the subnet by its id.")
    }));
    let owner = wish.listeners.values().map(|it| &it.owner).min();
    let problem = |owner: &Owner, (reason, message, fix): &(Reason, String, &str)| {
        (owner.clone(), Problem::new(owner.object(), *reason, message.clone()).fix(*fix))
    };
    owner.into_iter().flat_map(|owner| messages.iter().map(move |it| problem(owner, it))).collect()
}

/// A load balancer of another stays as it is; and groups that somebody else gave count, and source ranges do not.
pub(super) fn told(wish: &Wish, observed: &Observed) -> Option<(Owner, Problem)> {
    let vip = &wish.options.cloud.as_ref()?.vip;
    let is_asked = !vip.groups.is_empty() || vip.qos.is_some();
    let there = &observed.balancer.as_ref()?.it;
    let (id, owner) = (&there.id, wish.listeners.values().map(|it| &it.owner).min()?);
    if vip.groups.is_empty() && !there.vip_sg_ids.is_empty() && has_sources(wish) {
        let message = format!(
            "the VIP of load balancer {id} has security groups, which decide who may connect: source ranges have no \
             effect"
        );
        let problem = Problem::new(owner.object(), Reason::Unsupported, message);
        return Some((
            owner.clone(),
            problem.fix("Remove the security groups from the VIP, or remove the source ranges."),
        ));
    }
    if !observed.shared.guest || !is_asked {
        return None;
    }
    let message = format!(
        "load balancer {id} belongs to another Service, which decides the security groups and the QoS \
         policy of the VIP"
    );
    let problem = Problem::new(owner.object(), Reason::Unsupported, message);
    Some((owner.clone(), problem.fix("Remove the annotation that names the load balancer (seaway.dev/load-balancer-id, -name or -group): the \
         Service then gets one of its own.")))
}
