//! Places that a Service was probably meant to have, by annotations that are not understood. They answer 503, where nothing that is
//! understood is at the same place.
//!
//! A guess claims nothing: it owns no host name and no path, orders no certificate, and has what is left of its namespace's limit.

use std::{collections::HashMap, sync::Arc};

use seaway_model::{Name, load_balancer::Rule};

use super::{
    FrontDoor,
    attached_route::{AttachedRoute, RoutePrecedence},
    claims::RouteClaim,
};

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
