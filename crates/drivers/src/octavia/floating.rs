//! What must change so that the right address leads to a VIP. Pure.

use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange},
    resource::Edit,
};

use super::{
    steps::{Observed, Step},
    wanted::WantedFloating,
};

/// `ours`: whether a floating IP of such a description was made for this load balancer, and goes with it.
pub(super) fn floating(
    wish: Option<&WantedFloating>,
    observed: &Observed,
    ours: &impl Fn(&str) -> bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let stray = observed.stray.as_ref();
    // What is kept, or somebody else's, may lead there again; it is nobody's to delete.
    let goes = stray.filter(|it| ours(&it.description));
    let suiting = stray.filter(|it| wish.is_some_and(|wish| suits(wish, it)));
    let (there, lacks) = match (wish, &observed.floating) {
        (Some(wish), Some(there)) if suits(wish, there) => (Some((wish, there)), false),
        (wish, Some(there)) => {
            steps.push(let_go(there, wish.is_some_and(|it| it.keep), ours));
            (None, wish.is_some())
        }
        (wish, None) => (None, wish.is_some()),
    };
    match (wish.filter(|_| lacks), suiting) {
        (Some(_), Some(stray)) => steps.push(Step::Lead(stray.id.clone())),
        (Some(wish), None) => {
            steps.extend(goes.map(|it| Step::RemoveFloating(it.id.clone())));
            steps.push(Step::AddFloating(wish.clone()));
        }
        (None, _) => steps.extend(goes.map(|it| Step::RemoveFloating(it.id.clone()))),
    }
    // Whether it stays is written on it: when its Service is gone, nobody else could tell.
    let other = there.filter(|(wish, there)| {
        there.description != wish.description && wish.formerly.contains(&there.description)
    });
    steps.extend(other.map(|(wish, there)| Step::Describe(there.id.clone(), wish.description.clone())));
    steps
}

fn suits(wish: &WantedFloating, there: &FloatingIp) -> bool {
    let address = wish.requested.is_none_or(|it| there.floating_ip_address == Some(it));
    // Another usual network is no reason to take an address away that clients know.
    let stays = !wish.moves || wish.requested.is_some();
    address && (stays || wish.network.as_ref().is_none_or(|it| *it == there.floating_network_id))
}

/// What somebody else made, or wants to keep, is there for another use.
fn let_go(there: &FloatingIp, keep: bool, ours: &impl Fn(&str) -> bool) -> Step {
    match !keep && ours(&there.description) {
        true => Step::RemoveFloating(there.id.clone()),
        false => Step::Detach(there.id.clone()),
    }
}

/// A floating IP leads nowhere after this.
pub(super) fn detached() -> FloatingIpChange {
    FloatingIpChange { port_id: Edit::To(None), ..FloatingIpChange::default() }
}
