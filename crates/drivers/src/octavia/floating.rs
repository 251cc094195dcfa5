//! What must change so that the right address leads to a VIP. Pure.

mod external;
mod write;

use seaway_model::{LbKey, Unit};
use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange},
    resource::Edit,
};

pub(super) use self::{external::External, write::write};
use super::{
    Cluster, Octavia,
    names::replaced,
    steps::{Observed, Step},
    survey::Survey,
    tags,
    wanted::WantedFloating,
};

/// `ours`: whether a floating IP of such a description was made for this load balancer, and goes with it.
///
/// What serves is given up last: what takes its place is allocated before, and deleted is what does not serve any more.
pub(super) fn floating(
    wish: Option<&WantedFloating>,
    observed: &Observed,
    ours: &impl Fn(&str) -> bool,
) -> Vec<Step> {
    let stray = observed.stray.as_ref();
    // What is kept, or somebody else's, may lead there again; it is nobody's to delete.
    let goes = stray.filter(|it| ours(&it.description)).map(|it| Step::RemoveFloating(it.id.clone()));
    let suiting = stray.filter(|it| wish.is_some_and(|wish| suits(wish, it)));
    let mut steps = Vec::new();
    match (wish, &observed.floating) {
        (Some(wish), Some(there)) if suits(wish, there) => {
            // Whether it stays is written on it: when its Service is gone, nobody else could tell.
            if there.description != wish.description && wish.formerly.contains(&there.description) {
                steps.push(Step::Describe(there.id.clone(), wish.description.clone()));
            }
            steps.extend(observed.leftover.clone().map(Step::RemoveFloating));
        }
        (Some(wish), Some(there)) => {
            steps.extend(suiting.is_none().then(|| Step::Allocate(wish.clone())));
            let is_deleted = !wish.keep && ours(&there.description);
            let written = is_deleted.then(|| replaced(&there.description)).flatten();
            steps.push(Step::Move(there.id.clone(), written));
            steps.extend(is_deleted.then(|| Step::RemoveFloating(there.id.clone())));
            steps.extend(goes.filter(|_| suiting.is_none()));
        }
        (Some(wish), None) => match suiting {
            Some(stray) => steps.push(Step::AssociateFloating(stray.id.clone())),
            None => {
                steps.push(Step::AddFloating(wish.clone()));
                steps.extend(goes);
            }
        },
        (None, there) => {
            steps.extend(there.as_ref().map(|it| let_go(it, ours)));
            steps.extend(goes);
            steps.extend(observed.leftover.clone().map(Step::RemoveFloating));
        }
    }
    if let Some(wish) = wish {
        let is_another = steps.iter().any(|it| matches!(it, Step::Move(..)));
        steps.extend(tags::of_floating(wish, observed.floating.as_ref(), is_another));
    }
    steps
}

fn suits(wish: &WantedFloating, there: &FloatingIp) -> bool {
    let address = wish.requested.is_none_or(|it| there.floating_ip_address == Some(it));
    // Another usual network is no reason to take an address away that clients know.
    let stays = !wish.moves || wish.requested.is_some();
    address && (stays || wish.network.as_ref().is_none_or(|it| *it == there.floating_network_id))
}

/// What somebody else made, or wants to keep, is there for another use.
fn let_go(there: &FloatingIp, ours: &impl Fn(&str) -> bool) -> Step {
    match ours(&there.description) {
        true => Step::RemoveFloating(there.id.clone()),
        false => Step::Detach(there.id.clone()),
    }
}

/// A floating IP leads nowhere after this.
fn detached() -> FloatingIpChange {
    FloatingIpChange { port_id: Edit::To(None), ..FloatingIpChange::default() }
}

impl Octavia {
    /// One whose place another took, and that was not deleted then, as the lists tell. Whether that is news.
    pub(super) fn note_replaced(&self, cluster: &Cluster, unit: &Unit, key: &LbKey, survey: &Survey) -> bool {
        let Some(found) = survey.replaced(cluster, key) else { return false };
        let id = found.id.clone();
        self.past(unit, |past| past.leftover.replace(id.clone()) != Some(id))
    }
}
