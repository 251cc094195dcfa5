//! Which load balancers a Service may begin to share.
//!
//! ```text
//!     on it by tags (cluster UID) and names     tenants.joinLoadBalancers: namespace     any
//!     Services of its own namespace alone       yes                                      yes
//!     of another namespace, or cluster          no                                       yes
//!     nobody of this cluster                    no                                       yes
//! ```
//! A Service that is on one already stays there, whatever the setting is. A name tells the namespace, and not the cluster: two
//! clusters may be called alike. So a load balancer without a tag of this cluster is nobody's here.

use std::collections::BTreeSet;

use seaway_engine::Failure;
use seaway_model::{
    Desired, LbKey, LoadBalancer as Wish, Owner, Problem, Reason, Unit, config::SharedLoadBalancerScope,
};
use seaway_openstack::octavia::LoadBalancer;

use super::{
    Joined, Octavia,
    find::cluster_of,
    names::{Cluster, THEIR_NAMES},
    shared::{GUEST, Marks, end_of_name, guests, guests_of, marks, was_left},
    shares,
    steps::Observed,
};

/// What tells that a Service is on a load balancer, beside the tags of that.
#[derive(Clone, Copy, Debug)]
pub(super) struct MembershipEvidence {
    /// It has listeners of the Service.
    pub(super) listeners: bool,
    /// The Service's status has an address of it.
    pub(super) address: bool,
}

/// Whose Services are on a load balancer, for a Service of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    OwnNamespace,
    OtherNamespace,
    /// Of both.
    SharedWithOtherNamespace,
    OtherCluster,
    Unknown,
}

impl Whose {
    fn of(cluster: &Cluster, namespace: &str, it: &LoadBalancer) -> Whose {
        if cluster_of(it).is_some_and(|uid| *uid != *cluster.uid) {
            return Whose::OtherCluster;
        }
        let first = cluster.key_of(&it.tags, &it.description).filter(|_| !was_left(it));
        let keys: Vec<LbKey> = guests(cluster, it).into_iter().chain(first).collect();
        let owners = || keys.iter().filter_map(LbKey::owner);
        let mut namespaces: BTreeSet<String> = owners().map(|it| it.object().namespace.to_string()).collect();
        // Whatever the cluster was called when they were written.
        let ends: Vec<String> = keys.iter().filter_map(end_of_name).collect();
        let own_name = Some(&it.name).filter(|_| !was_left(it));
        let names = it.tags.iter().chain(own_name).filter(|it| it.starts_with(THEIR_NAMES));
        let mut has_strangers = has_guests_of_others(cluster, it);
        for name in names {
            match cluster.namespace_in(name) {
                Some(namespace) => drop(namespaces.insert(namespace.to_owned())),
                None => has_strangers |= !ends.iter().any(|end| name.ends_with(end.as_str())),
            }
        }
        let is_own = namespaces.remove(namespace);
        match (is_own, namespaces.is_empty()) {
            (true, false) => Whose::SharedWithOtherNamespace,
            (false, false) => Whose::OtherNamespace,
            _ if has_strangers => Whose::OtherCluster,
            (true, true) if it.tags.contains(&cluster.tag()) => Whose::OwnNamespace,
            _ => Whose::Unknown,
        }
    }
}

fn has_guests_of_others(cluster: &Cluster, it: &LoadBalancer) -> bool {
    let ours = format!("{GUEST}{}/", cluster.uid);
    let all = guests_of(cluster);
    let (all_of_any, _) = all.split_at(all.len().saturating_sub(cluster.uid.len()));
    let is_of_others = |tag: &String| {
        tag.starts_with(GUEST) && !tag.starts_with(&ours) || tag.starts_with(all_of_any) && *tag != all
    };
    it.tags.iter().any(is_of_others)
}

/// Why a Service may not begin to share this load balancer; nothing where it may, or is on it.
pub(super) fn refusal(
    cluster: &Cluster,
    marks: &Marks,
    owner: &Owner,
    wish: &Wish,
    it: &LoadBalancer,
    on: MembershipEvidence,
) -> Option<Problem> {
    let outside = wish.options.cloud.as_ref()?;
    // A word is its namespace's.
    let is_of_its_word = shares::word(wish).is_some_and(|word| shares::is_of(it, word));
    if outside.join == SharedLoadBalancerScope::Any
        || is_on(cluster, marks, owner, it, on)
        || is_of_its_word && it.tags.contains(&cluster.tag())
    {
        return None;
    }
    // Names of other namespaces are not for this one's users.
    let whose = match Whose::of(cluster, &owner.object().namespace, it) {
        Whose::OwnNamespace => return None,
        Whose::OtherNamespace => "a Service of another namespace owns the load balancer",
        Whose::SharedWithOtherNamespace => "a Service of another namespace shares the load balancer",
        Whose::OtherCluster => "another cluster owns the load balancer",
        Whose::Unknown => "no tag says that the load balancer belongs to a Service of this cluster",
    };
    let field = outside.named.as_ref().map(|it| it.field.clone()).unwrap_or_default();
    let message = format!(
        "the Service may not share load balancer {}: {whose} (tenants.joinLoadBalancers: namespace)",
        it.id
    );
    let fix = "Name a load balancer of Services of this namespace, or remove the annotation: the Service then gets one of its \
               own. Or have tenants.joinLoadBalancers set to any in the configuration.";
    Some(Problem::new(owner.object(), Reason::NotAllowed, message).at(field).fix(fix))
}

/// Whether it is on it already. The other controller writes names alone.
fn is_on(cluster: &Cluster, marks: &Marks, owner: &Owner, it: &LoadBalancer, on: MembershipEvidence) -> bool {
    let object = owner.object();
    let end = format!("/{}/{}", object.namespace, object.name);
    let ours = format!("{GUEST}{}/", cluster.uid);
    // A Service of the same name is the first there, or another cluster's.
    let is_of_another = it.name == marks.name()
        || it.tags.iter().any(|it| it.starts_with(GUEST) && !it.starts_with(&ours) && it.ends_with(&end));
    marks.is_guest(&it.tags) || on.listeners || marks.is_named(&it.tags) && (on.address || !is_of_another)
}

impl Octavia {
    /// What was found may be long ago, when more was allowed: nothing is written before.
    pub(super) fn admit(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: &Observed,
    ) -> Result<(), Failure> {
        let Some(balancer) = observed.balancer.as_ref().filter(|_| observed.shared.guest) else {
            return Ok(());
        };
        let refused = refused(joined, unit, desired, &balancer.it, observed);
        refused.map_or(Ok(()), |(owner, problem)| {
            self.known().remove(unit);
            Err(Failure::User(vec![(owner, problem)]))
        })
    }
}

/// As [`refusal`], of one that is or may be there for this Unit.
pub(super) fn refused(
    joined: &Joined,
    unit: &Unit,
    desired: &Desired,
    it: &LoadBalancer,
    observed: &Observed,
) -> Option<(Owner, Problem)> {
    let (Unit::LoadBalancer(_, key @ LbKey::Of(owner)), Desired::LoadBalancer(wish)) = (unit, desired) else {
        return None;
    };
    let here = observed.balancer.as_ref().filter(|here| here.it.id == it.id);
    let floating = here.and(observed.floating.as_ref()).and_then(|it| it.floating_ip_address);
    let published = wish.options.cloud.as_ref().map(|it| &it.published[..]).unwrap_or_default();
    let on = MembershipEvidence {
        listeners: here.is_some_and(|it| !it.branches.is_empty()),
        address: it.vip_address.iter().chain(&floating).any(|ip| published.contains(ip)),
    };
    let problem = refusal(&joined.cluster, &marks(&joined.cluster, key)?, owner, wish, it, on)?;
    Some((owner.clone(), problem))
}
