//! Security groups that the other controller made, one for each Service. Once ours is at all Nodes, those of Services that
//! were taken over go; all others are nobody's of ours.

use std::collections::{BTreeMap, BTreeSet};

use seaway_model::{Desired, LbKey, NodeSecurityGroup, Owner, Unit};
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{Port, SecurityGroup},
    resource::Id,
};

use super::{
    neutron_ports::has,
    steps::{Observed, Step},
    write::regroup,
};
use crate::octavia::{
    Cluster, Octavia,
    belongings::close,
    names::{LONGEST, shortened},
    shared::marks,
};

/// One of theirs.
#[derive(Clone, Debug, PartialEq)]
pub struct Their {
    pub owner: Owner,
    /// We have its Service's load balancer.
    pub ours_now: bool,
}

impl Cluster {
    /// The name and the description that the other controller gives.
    pub(in crate::octavia) fn their_group(&self, owner: &Owner) -> Option<(String, String)> {
        let Owner::Object { object, uid } = owner else { return None };
        let (namespace, service) = (&object.namespace, &object.name);
        let name = format!("lb-sg-{uid}-{namespace}-{service}");
        let words =
            format!("Security Group for {namespace}/{service} Service LoadBalancer in cluster {}", self.name);
        Some((shortened(name, LONGEST), shortened(words, LONGEST)))
    }
}

/// Those among all groups that were made for these Services, by both the name and the words.
pub(super) fn theirs<'o>(
    cluster: &Cluster,
    all: &[SecurityGroup],
    owners: impl Iterator<Item = &'o Owner>,
) -> BTreeMap<Id<SecurityGroup>, Their> {
    let expected: BTreeMap<(String, String), &Owner> =
        owners.filter_map(|it| Some((cluster.their_group(it)?, it))).collect();
    let found = all.iter().filter_map(|it| {
        let owner = expected.get(&(it.name.clone(), it.description.clone()))?;
        Some((it.id.clone(), Their { owner: (*owner).clone(), ours_now: false }))
    });
    found.collect()
}

impl Octavia {
    /// Marks those of Services whose load balancers we have. One that left keeps what was known of it.
    pub(super) fn mark_ours(&self, cluster: &Cluster, theirs: &mut BTreeMap<Id<SecurityGroup>, Their>) {
        if theirs.is_empty() {
            return;
        }
        let known = self.known();
        let has_it = |(unit, known): (&Unit, &crate::octavia::LastObservation)| {
            let Unit::LoadBalancer(_, key @ LbKey::Of(owner)) = unit else { return None };
            let (tags, marks) = (&known.observed.balancer.as_ref()?.it.tags, marks(cluster, key)?);
            (marks.is_first(tags) || marks.is_guest(tags)).then(|| owner.clone())
        };
        let ours: BTreeSet<Owner> = known.iter().filter_map(has_it).collect();
        theirs.values_mut().for_each(|it| it.ours_now |= ours.contains(&it.owner));
    }
}

/// What is left to do when ours is as it should be.
pub(super) fn steps(group: &NodeSecurityGroup, there: &Observed) -> Vec<Step> {
    let mut nodes = group.nodes.iter().flat_map(|it| it.addresses.clone()).collect::<Vec<_>>();
    nodes.sort();
    // A Node that has only theirs would be closed.
    let needs = |port: &&Port| !there.has_group(&port.id) && has(port, &nodes);
    let kept: BTreeSet<&Id<SecurityGroup>> =
        there.ports.values().filter(needs).flat_map(|it| &it.security_groups).collect();
    let is_frozen = |owner: &Owner| group.openings.get(owner).is_some_and(|it| it.frozen);
    let is_ours = |it: &Their| it.ours_now && !is_frozen(&it.owner);
    let goes = |id: &&Id<SecurityGroup>| there.theirs.get(id).is_some_and(is_ours) && !kept.contains(id);
    let goes: Vec<&Id<SecurityGroup>> = there.theirs.keys().filter(goes).collect();
    let mut steps = Vec::new();
    for port in there.ports.values() {
        let from = port.security_groups.iter().filter(|it| goes.contains(it)).cloned().collect::<Vec<_>>();
        if !from.is_empty() {
            steps.push(Step::Release(port.id.clone(), from));
        }
    }
    steps.extend(goes.into_iter().cloned().map(Step::RemoveTheirs));
    steps
}

/// What these steps do not delete yet, and a later look does: once the load balancers of its Services are taken over, and ours
/// is at all Nodes.
pub fn later<'t>(
    desired: &Desired,
    there: &'t Observed,
    now: &[Step],
) -> Vec<(&'t Id<SecurityGroup>, &'t Owner)> {
    let Desired::SecurityGroup(group) = desired else { return Vec::new() };
    let is_followed = |owner: &Owner| group.openings.get(owner).is_some_and(|it| !it.frozen);
    let is_now = |id: &Id<SecurityGroup>| now.contains(&Step::RemoveTheirs(id.clone()));
    let theirs = there.theirs.iter().map(|(id, it)| (id, &it.owner));
    theirs.filter(|(id, owner)| is_followed(owner) && !is_now(id)).collect()
}

pub(super) async fn write(cloud: &Cloud, step: &Step, there: &mut Observed) -> Result<(), Error> {
    match step {
        Step::Release(port, from) => {
            regroup(cloud, port, there, |groups| groups.retain(|it| !from.contains(it))).await?;
        }
        Step::RemoveTheirs(id) => {
            let done = cloud.all::<SecurityGroup>().delete(id).await;
            match done {
                // Also at ports that are no Node's any more.
                Err(error) if matches!(error.class(), Class::InUse | Class::Conflict) => {
                    close(cloud, id).await?
                }
                done => done?,
            }
            there.theirs.remove(id);
        }
        _ => {}
    }
    Ok(())
}
