//! What another controller made for a Service that is deleted, or has another type, before it was adopted.
//!
//! It is found as an adoption finds it, and nothing else is. It is marked as ours before anything of it is removed: what
//! finds it (an address that leads to it) may be the first to go.

use std::collections::BTreeSet;

use seaway_engine::Failure;
use seaway_model::{Desired, LbKey, Unit, load_balancer::CloudOptions, unit::RemovedOwner};
use seaway_openstack::{
    Cloud, Error,
    neutron::SecurityGroup,
    octavia::{LoadBalancerChange, Provisioning},
    resource::{Edit, Id, Query},
};

use super::{
    Cluster, Joined, Octavia,
    service_backoffs::Requester,
    shared::Marks,
    steps::{Observed, ObservedLoadBalancer, Step},
    wanted::{descriptions_of_floating, tags},
};

impl Octavia {
    /// Once nothing else is left: until then Nodes let in what it sends.
    pub(super) async fn look_for_their_groups(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        if !awaits_groups(unit, desired) || observed.balancer.is_some() || observed.shared.left {
            return Ok(());
        }
        let found = their_groups(&joined.cloud, &joined.cluster, unit).await;
        observed.their_groups = Some(found.map_err(|error| self.failed(&Requester::of(unit), &error))?);
        Ok(())
    }
}

/// Whether groups may be there that another controller made.
pub(super) fn awaits_groups(unit: &Unit, desired: &Desired) -> bool {
    let is_first = matches!(unit, Unit::LoadBalancer(_, LbKey::Of(_)));
    is_first && matches!(desired, Desired::Removed(former) if former.by_another)
}

/// By both the name, which has the UID of the Service, and the words.
async fn their_groups(
    cloud: &Cloud,
    cluster: &Cluster,
    unit: &Unit,
) -> Result<Vec<Id<SecurityGroup>>, Error> {
    let Unit::LoadBalancer(_, LbKey::Of(owner)) = unit else { return Ok(Vec::new()) };
    let Some((name, words)) = cluster.their_group(owner) else { return Ok(Vec::new()) };
    let named = cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::named(&name)).await?;
    let theirs = named.into_iter().filter(|it| it.name == name && it.description == words);
    Ok(theirs.map(|it| it.id).collect())
}

/// Marks it as ours, then goes on `from` there.
pub(super) fn steps(
    cluster: &Cluster,
    key: &LbKey,
    former: &RemovedOwner,
    marks: &Marks,
    observed: &Observed,
    from: impl Fn(&Observed) -> Vec<Step>,
) -> Vec<Step> {
    let is_adopted = |it: &ObservedLoadBalancer| observed.shared.guest || marks.is_first(&it.it.tags);
    let (Some(owner), Some(balancer)) =
        (key.owner(), observed.balancer.as_ref().filter(|it| !is_adopted(it)))
    else {
        return from(observed);
    };
    let (mut steps, mut after) = (Vec::new(), observed.clone());
    let usual = CloudOptions::default();
    let outside = former.load_balancer.options.cloud.as_ref().unwrap_or(&usual);
    if let Some(there) = &mut after.floating {
        let (description, formerly) = descriptions_of_floating(cluster, key, owner, outside.floating.keep);
        if formerly.contains(&there.description) {
            there.description.clone_from(&description);
            steps.push(Step::Describe(there.id.clone(), description));
        }
    }
    if balancer.it.provisioning_status == Provisioning::Error {
        // It takes no tags. So it goes first: what leads to it is what finds it.
        let (last, first): (Vec<Step>, Vec<Step>) =
            from(&after).into_iter().partition(|it| matches!(it, Step::Detach(_) | Step::RemoveFloating(_)));
        steps.extend(first.into_iter().chain(last));
        return steps;
    }
    let tags = tags(cluster, key, owner);
    let both: BTreeSet<String> = balancer.it.tags.union(&tags).cloned().collect();
    let change = LoadBalancerChange { tags: Edit::To(both.clone()), ..LoadBalancerChange::default() };
    steps.push(Step::Change(Box::new(change)));
    if let Some(balancer) = &mut after.balancer {
        balancer.it.tags = both;
    }
    steps.extend(from(&after));
    steps
}
