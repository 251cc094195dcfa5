//! What is at an entrance of its own, and is open at the main one by a broader host name or path: an entrance keeps no client away from
//! what others serve.

use seaway_model::{Problem, Reason};

use super::{
    FrontDoor,
    attached_route::{AttachedRoute, RoutePrecedence},
    service::NAME,
};

/// How many places above those of one object are looked at: each change of rules asks again, also those of other namespaces.
const MOST_LOOKS: usize = 256;

impl AttachedRoute {
    /// It names entrances, and the main one is none of them.
    pub(super) fn is_elsewhere(&self) -> bool {
        !self.is_unread && !self.entrances.is_empty() && !self.is_at(None)
    }
}

impl FrontDoor {
    /// What is said of such a place. What others have there on purpose, at the same host name and path, is no mistake, and neither is what
    /// restricts access. In a cluster only those of the same namespace count: the others are not named to it.
    pub(super) fn open_elsewhere(&self, rank: &RoutePrecedence, guest: &AttachedRoute) -> Option<Problem> {
        if !guest.is_elsewhere() {
            return None;
        }
        let mut left = MOST_LOOKS;
        for (claim, field) in guest.claims.iter().filter(|(_, field)| ***field != *NAME) {
            for above in claim.above() {
                left = left.checked_sub(1)?;
                let Some(holder) = self.holder(&above) else { continue };
                let is_its_own = above == claim.place();
                let is_foreign = self.is_in_cluster && holder.namespace() != rank.namespace();
                let is_open = self.guests.get(holder).is_some_and(|it| it.is_attached() && !it.restricts());
                if is_its_own || is_foreign || !is_open {
                    break;
                }
                let (by, place) = (holder.object(), claim.place());
                let message = format!(
                    "an entrance keeps no client away from the others: {by} serves {place} at the main entrance, by {above}"
                );
                let problem =
                    Problem::new(guest.owner.object(), Reason::Unsupported, message).at(field.clone());
                return Some(problem.fix(format!(
                    "To close it there, serve it at both (seaway.dev/entrance: main,internal) and say in seaway.dev/source-ranges who may \
                     connect; or give {place} at the main entrance to a Service of its own."
                )));
            }
        }
        None
    }
}
