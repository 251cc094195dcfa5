//! What another controller made, how that is known later, and what of it stays as it is until its Service asks for something
//! else: that controller did not follow these fields after creation, so what they say may be old. Pure.
//!
//! ```text
//!     spec.loadBalancerIP     the floating IP that leads to its VIP stays, until seaway.dev/address asks for another
//!     externalTrafficPolicy   local.rs
//! ```

use std::{collections::BTreeSet, net::IpAddr};

use seaway_model::{LoadBalancer as Wish, Owner, Problem, Reason, load_balancer::Outside};

use super::{
    names::KEY,
    partial::keeps_floating,
    steps::{Balancer, Branch, Observed},
    wanted::{Wanted, requested_vip},
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
pub(super) fn is_adopted(balancer: &Balancer) -> bool {
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
}

/// What we would do otherwise, and how to ask for it.
pub(super) fn told(wish: &Wish, observed: &Observed) -> Vec<(Owner, Problem)> {
    let mut told = Vec::new();
    if let (Some((asked, there)), Some(owner)) =
        (other_address(wish, observed), wish.listeners.values().map(|it| &it.owner).min())
    {
        let field = wish.options.outside.as_ref().map(|it| it.requested_field.clone()).unwrap_or_default();
        let message = format!(
            "{field} requests {asked}, and its load balancer, which another controller made, has {there}: {there} stays"
        );
        let fix = match observed.shared.guest {
            true => "Other Services share it, and it keeps its address: request that, or none.".to_owned(),
            false => format!(
                "To give {there} up for {asked}, annotate the Service: seaway.dev/address: \"{asked}\". To keep it, \
                 request {there}, or none."
            ),
        };
        let problem = Problem::new(owner.object(), Reason::Unsupported, message).at(field).fix(fix);
        told.push((owner.clone(), problem));
    }
    told
}

/// The address that is requested by a field alone, and the floating IP that is there instead.
fn other_address(wish: &Wish, observed: &Observed) -> Option<(IpAddr, IpAddr)> {
    let outside = wish.options.outside.as_ref().filter(|it| !it.explicit.address)?;
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
fn is_called_vip(outside: &Outside, observed: &Observed) -> bool {
    !observed.shared.guest && !outside.internal && requested_vip(outside).is_some()
}
