//! Places that a Service was probably meant to have, by annotations that are not understood. They answer 503, where nothing that is
//! understood is at the same place.
//!
//! A guess claims nothing: it owns no host name and no path, orders no certificate, and has what is left of its namespace's limit.

use std::{collections::HashMap, sync::Arc};

use seaway_model::{Name, fact::HttpRoute, load_balancer::Rule};

use super::{
    FrontDoor,
    attached_route::{AttachedRoute, RoutePrecedence, plain_rule, unavailable},
    claims::RouteClaim,
};
use crate::index::PlanContext;

/// What a text was probably meant to protect that cannot be read. Which entrance it names is not known: it is closed at each.
pub(super) fn guest(route: &HttpRoute, given: PlanContext<'_>) -> AttachedRoute {
    let mut guest = AttachedRoute::new(route.object(), &route.meta.uid);
    (guest.is_closed, guest.is_unread) = (true, true);
    guest.closed_at = given.config.front_door.entrances.keys().cloned().map(Some).collect();
    for written in &route.rules {
        let (hosts, matches) = (route.hosts.clone(), written.matches.clone());
        guest.guess(&plain_rule(&guest.owner.clone(), hosts, matches, unavailable()));
    }
    guest
}

impl AttachedRoute {
    /// Adds a rule that closes guessed places, in parts: one for each host name and match, as any of them may be another's.
    pub(super) fn guess(&mut self, rule: &Rule) {
        let hosts = rule.hosts.iter().map(|host| vec![host.clone()]);
        for hosts in hosts.chain(rule.hosts.is_empty().then(Vec::new)) {
            for asked in &rule.matches {
                let (hosts, matches) = (hosts.clone(), vec![asked.clone()]);
                self.guessed.push(Arc::new(Rule { hosts, matches, ..rule.clone() }));
            }
        }
    }

    /// It may be meant for an entrance that is not there, and then for each.
    fn is_guessed_at(&self, entrance: Option<&Name>) -> bool {
        let mut closed_at = self.closed_at.iter();
        !self.guessed.is_empty() && (self.is_at(entrance) || closed_at.any(|it| it.as_ref() == entrance))
    }
}

impl FrontDoor {
    /// The guessed places of an entrance that no rule has.
    pub(super) fn guessed_at(&self, entrance: Option<&Name>) -> Vec<(&RoutePrecedence, Arc<Rule>)> {
        let (mut all, mut room) = (Vec::new(), HashMap::new());
        for (rank, guest) in self.within_limits().filter(|(_, guest)| guest.is_guessed_at(entrance)) {
            let namespace = rank.namespace();
            let room = room.entry(namespace).or_insert_with(|| self.shares.room(namespace));
            let free = guest.guessed.iter().filter(|rule| self.is_free(rank, rule, entrance));
            let free = free.take(*room).map(|rule| (rank, rule.clone()));
            let before = all.len();
            all.extend(free);
            *room = room.saturating_sub(all.len().saturating_sub(before));
        }
        all
    }

    /// Whether its namespace may have that place, and no rule is for the same requests.
    fn is_free(&self, rank: &RoutePrecedence, rule: &Rule, entrance: Option<&Name>) -> bool {
        rule.matches.iter().all(|asked| {
            let claim = RouteClaim::new(rule.hosts.first(), asked).at(entrance);
            self.may(rank, &claim) && self.holder(&claim).is_none()
        })
    }
}
