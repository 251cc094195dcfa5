//! What another controller made, how that is known later, and what of it stays as it is until its Service asks for something
//! else: that controller did not follow these fields after creation, so what they say may be old. Pure.
//!
//! ```text
//!     spec.loadBalancerIP     the floating IP that leads to its VIP stays, until seaway.dev/address asks for another
//!     spec.sessionAffinity    its pools stay as they are, until seaway.dev/follow-session-affinity says true
//!     spec.ipFamilies         it stays the only one, until seaway.dev/second-family says true         (pairs.rs)
//!     externalTrafficPolicy   local.rs
//! ```

use std::{collections::BTreeSet, net::IpAddr};

use seaway_model::{
    L4, Listener as Wished, ListenerId, LoadBalancer as Wish, Owner, Problem, Reason,
    load_balancer::{Affinity, CloudOptions},
};
use seaway_openstack::{
    octavia::{Persistence, PersistenceType, Provisioning},
    resource::Edit,
};

use super::{
    affinity::{is_as_wished, is_of_ovn, persistence},
    names::KEY,
    partial::keeps_floating,
    steps::{Branch, Observed, ObservedLoadBalancer},
    wanted::{Wanted, leads_to, requested_vip},
};

/// On a load balancer or a listener that another made and that has our key all the same.
const THEIRS: &str = "seaway.dev/made-by-another";

/// Whose it is, written with its other tags. `wish`: as we would make it; `there`: as it was.
pub(super) fn mark(tags: &mut BTreeSet<String>, wish: &BTreeSet<String>, there: &BTreeSet<String>) {
    let keys: Vec<_> = wish.iter().filter(|it| it.starts_with(KEY)).cloned().collect();
    if !keys.is_empty() && !has_key(there) {
        tags.insert(THEIRS.to_owned());
    }
    tags.extend(keys);
}

/// A listener that is taken over with its load balancer gets no key: that stays one write of the load balancer's tags.
pub(super) fn is_theirs(branch: &Branch) -> bool {
    is_marked(&branch.listener.tags)
}

/// Its listeners tell it as well: of those that were taken over before load balancers were marked, nothing else does.
pub(super) fn is_adopted(balancer: &ObservedLoadBalancer) -> bool {
    is_marked(&balancer.it.tags) || balancer.branches.values().any(is_theirs)
}

fn is_marked(tags: &BTreeSet<String>) -> bool {
    !has_key(tags) || tags.contains(THEIRS)
}

fn has_key(tags: &BTreeSet<String>) -> bool {
    tags.iter().any(|it| it.starts_with(KEY))
}

/// What is there stays, where only a field asks for something else.
pub(super) fn keep(wanted: &mut Wanted, wish: &Wish, observed: &Observed) {
    if let (Some(floating), Some(_)) = (&mut wanted.floating, other_address(wish, observed)) {
        (floating.requested, floating.moves) = (None, false);
    }
    for (id, branch) in other_affinities(wish, observed) {
        // Another listener takes the place of one of another protocol, and is ours.
        if let (Some(wanted), Some(there)) = (wanted.listeners.get_mut(&id), &branch.pool)
            && wanted.listener.protocol == branch.listener.protocol
        {
            wanted.pool.session_persistence = Edit::To(there.pool.session_persistence.clone());
        }
    }
}

/// What we would do otherwise, and how to ask for it.
pub(super) fn told(wish: &Wish, observed: &Observed) -> Vec<(Owner, Problem)> {
    let mut told = Vec::new();
    if let (Some((asked, there)), Some(owner)) =
        (other_address(wish, observed), wish.listeners.values().map(|it| &it.owner).min())
    {
        let field = wish.options.cloud.as_ref().map(|it| it.requested_field.clone()).unwrap_or_default();
        let message = format!(
            "{field} requests {asked}, and the load balancer of the Service, which another controller made, has \
                 {there}: {there} stays"
        );
        let fix = match observed.shared.guest {
            true => "Other Services share the load balancer, so it keeps its address: request this address, \
                     or none."
                .to_owned(),
            false => format!(
                "To replace {there} by {asked}, annotate the Service: seaway.dev/address: \"{asked}\". To keep it, \
                 request {there}, or none."
            ),
        };
        let problem = Problem::new(owner.object(), Reason::Unsupported, message).at(field).fix(fix);
        told.push((owner.clone(), problem));
    }
    let Some(balancer) = &observed.balancer else { return told };
    // There, that changes nothing: affinity.rs tells it.
    let is_ineffective = |it: &Wished| it.l4 == L4::Tcp && is_of_ovn(balancer);
    for (id, branch) in other_affinities(wish, observed) {
        let Some(listener) = wish.listeners.get(&id).filter(|it| !is_ineffective(it)) else { continue };
        let is_kept = branch.pool.as_ref().is_some_and(|it| it.pool.session_persistence.is_some());
        let now = match is_kept {
            true => "with the session affinity that it was created with",
            false => "without session affinity",
        };
        let message = format!(
            "port {id}: the session affinity of the Service changed after another controller made the load balancer: \
                 the port stays {now}"
        );
        let fix = "To apply the field, annotate the Service: seaway.dev/follow-session-affinity: \"true\".";
        let problem = Problem::new(listener.owner.object(), Reason::Unsupported, message);
        told.push((listener.owner.clone(), problem.at("spec.sessionAffinity").fix(fix)));
    }
    told
}

/// The address that is requested by a field alone, and the floating IP that is there instead.
fn other_address(wish: &Wish, observed: &Observed) -> Option<(IpAddr, IpAddr)> {
    let outside = wish.options.cloud.as_ref().filter(|it| !it.explicit.address)?;
    let balancer = observed.balancer.as_ref().filter(|it| is_adopted(it))?;
    if outside.internal && !keeps_floating(wish, observed) || is_called_vip(outside, observed) {
        return None;
    }
    let vip = balancer.it.vip_address;
    let there = observed.floating.as_ref().and_then(|it| it.floating_ip_address);
    let there = there.or(vip.filter(|_| observed.shared.guest))?;
    let is_there = |it: &IpAddr| *it == there || observed.shared.guest && Some(*it) == vip;
    Some((outside.requested.filter(|it| !is_there(it))?, there))
}

/// It is asked for as the VIP, which cannot be changed: born.rs tells it.
fn is_called_vip(outside: &CloudOptions, observed: &Observed) -> bool {
    !observed.shared.guest && !outside.internal && requested_vip(outside).is_some()
}

/// Ports whose pools another made, and where a field alone asks for another session affinity.
fn other_affinities<'o>(wish: &Wish, observed: &'o Observed) -> Vec<(ListenerId, &'o Branch)> {
    let is_asked = wish.options.cloud.as_ref().is_some_and(|it| it.explicit.affinity);
    let Some(balancer) = observed.balancer.as_ref().filter(|_| !is_asked) else { return Vec::new() };
    let is_other = |id: &ListenerId, branch: &Branch| {
        let listener = wish.listeners.get(id)?;
        let asked = wish.pools.get(leads_to(listener)?)?;
        // A cookie is asked for by an annotation, and one that is there was.
        if matches!(asked.affinity, Some(Affinity::Cookie { .. })) {
            return None;
        }
        let there = &branch.pool.as_ref()?.pool;
        let is_by_field = |it: &Persistence| it.kind == PersistenceType::SourceIp;
        let stays = there.session_persistence.as_ref().is_none_or(is_by_field)
            && there.provisioning_status != Provisioning::Error;
        let is_other = match (persistence(asked, listener.l4), &there.session_persistence) {
            (None, None) => false,
            (Some(asked), Some(there)) => !is_as_wished(&asked, there),
            _ => true,
        };
        (stays && is_other).then_some(())
    };
    let theirs = balancer.branches.iter().filter(|(_, it)| is_theirs(it));
    theirs.filter(|(id, it)| is_other(id, it).is_some()).map(|(id, it)| (*id, it)).collect()
}
