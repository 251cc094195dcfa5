//! Entrances of the front door: the main one, and further ones that the configuration names, each with its own addresses, ports and
//! certificates. A guest is at the entrances that it names (`seaway.dev/entrance`) and nowhere else; without a name, at the main one.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    Config, L4, Listener, ListenerId, Name, ObjectRef, Owner, Pool, PoolId, Problem, Reason,
    config::FrontDoor as Settings,
    fact::Labels,
    load_balancer::{Certificate, Rule, TlsByName},
};

use super::{
    FRONT_DOOR, FrontDoor,
    attached_route::{AttachedRoute, RoutePrecedence, pool_id},
    host_tls::closed,
};
use crate::{
    annotations::{ENTRANCE, MAIN, ServiceOptions},
    index::{PlanContext, ServiceKey},
};

/// What an entrance listens at, and what it shows.
type ListenersAndCertificates =
    (BTreeMap<ListenerId, Arc<Listener>>, Arc<BTreeMap<ObjectRef, Arc<Certificate>>>);

/// `None` is the main one.
pub(crate) fn owner_of(entrance: Option<&Name>) -> Owner {
    Owner::Config(label(entrance).into())
}

/// As people call it: `frontDoor`, `frontDoor.internal`.
pub(super) fn label(entrance: Option<&Name>) -> String {
    entrance.map_or_else(|| FRONT_DOOR.to_owned(), |name| format!("{FRONT_DOOR}.{name}"))
}

/// Whether that is an entrance of the front door, and which.
pub(crate) fn entrance_of(owner: &Owner) -> Option<Option<Name>> {
    let Owner::Config(key) = owner else { return None };
    match key.strip_prefix(FRONT_DOOR)? {
        "" => Some(None),
        rest => Some(Some(rest.strip_prefix('.')?.into())),
    }
}

/// The settings of those at which a Service or a route is to be.
pub(super) fn settings_of<'c>(wishes: &ServiceOptions, config: &'c Config) -> Vec<&'c Settings> {
    let door = &config.front_door;
    match wishes.http.entrances.is_empty() {
        true => vec![door],
        false => wishes.http.entrances.iter().filter_map(|name| settings(named(name), door)).collect(),
    }
}

fn named(name: &Name) -> Option<&Name> {
    Some(name).filter(|name| ***name != *MAIN)
}

pub(super) fn settings<'c>(entrance: Option<&Name>, door: &'c Settings) -> Option<&'c Settings> {
    entrance.map_or(Some(door), |name| door.entrances.get(name))
}

fn all(door: &Settings) -> impl Iterator<Item = Option<Name>> {
    std::iter::once(None).chain(door.entrances.keys().cloned().map(Some))
}

impl AttachedRoute {
    /// Where it is to be. What is not known is no entrance, and nothing of it is anywhere else instead.
    pub(super) fn enter(&mut self, wishes: &ServiceOptions, annotations: &Labels, config: &Config) {
        let door = &config.front_door;
        if annotations.contains_key(ENTRANCE) && !wishes.written.contains_key(ENTRANCE) {
            // It is not understood, which is told where it was read.
            self.entrances = Vec::new();
            self.closed_at = all(door).collect();
            return;
        }
        if wishes.http.entrances.is_empty() {
            return;
        }
        let wanted = wishes.http.entrances.iter();
        let (known, unknown): (Vec<&Name>, Vec<&Name>) =
            wanted.partition(|name| settings(named(name), door).is_some());
        self.entrances = known.into_iter().map(|name| named(name).cloned()).collect();
        if unknown.is_empty() {
            return;
        }
        self.closed_at = all(door).filter(|it| !self.is_at(it.as_ref())).collect();
        let unknown: Vec<&str> = unknown.into_iter().map(Name::as_str).collect();
        let what = format!(
            "the front door has no entrance {}: this object is not served there, nor at another one instead",
            unknown.join(", ")
        );
        let has: Vec<&str> = [MAIN].into_iter().chain(door.entrances.keys().map(Name::as_str)).collect();
        let fix = format!(
            "Name one of: {}; or add it to frontDoor.entrances in the configuration.",
            has.join(", ")
        );
        let problem = Problem::new(self.owner.object(), Reason::Unsupported, what);
        self.problems.push(problem.at(wishes.field_of(ENTRANCE)).fix(fix));
    }

    pub(super) fn is_at(&self, entrance: Option<&Name>) -> bool {
        self.entrances.iter().any(|it| it.as_ref() == entrance)
    }

    /// Whether all of these are entrances of a Service that names its own. `None`: it names none.
    pub(super) fn is_only_at(&self, entrances: &[Name]) -> bool {
        let its = |it: &Option<Name>| entrances.iter().any(|name| named(name) == it.as_ref());
        entrances.is_empty() || self.entrances.iter().all(its)
    }
}

impl FrontDoor {
    /// In the order of their rules.
    pub(super) fn guests_at(
        &self,
        entrance: Option<&Name>,
    ) -> impl Iterator<Item = (&RoutePrecedence, &AttachedRoute)> {
        self.within_limits().filter(move |(_, guest)| guest.is_at(entrance))
    }

    /// Of guests that name an entrance which is not there, what protects them: it answers 503 wherever no rule of another is for the
    /// same, as it would otherwise be served by a broader rule, without protection. Guessed places come last.
    pub(super) fn closed_at(&self, entrance: Option<&Name>) -> impl Iterator<Item = Arc<Rule>> {
        let misplaced = self.within_limits();
        let misplaced = misplaced
            .filter(move |(_, guest)| guest.closed_at.iter().any(|it| it.as_ref() == entrance))
            .flat_map(|(rank, guest)| guest.rules.iter().map(move |rule| (rank, rule)));
        let misplaced = misplaced.filter(|(_, rule)| rule.is_guarded()).filter_map(|(rank, rule)| {
            let closed = Arc::new(closed(rule, rule.hosts.clone()));
            self.host_names().allowed(rank.namespace(), &closed)
        });
        misplaced.chain(self.guessed_at(entrance).into_iter().map(|(_, rule)| rule))
    }

    pub(crate) fn leads_at(&self, entrance: Option<&Name>) -> bool {
        self.guests.values().any(|guest| guest.is_at(entrance) && guest.is_attached())
    }

    /// The entrances at which an owner is.
    pub(crate) fn entrances_of(&self, owner: &Owner) -> Vec<Option<Name>> {
        let guest = self.ranks.get(&owner.object()).and_then(|rank| self.guests.get(rank));
        let guest = guest.filter(|guest| guest.owner == *owner && guest.is_attached());
        guest.map_or_else(|| vec![None], |guest| guest.entrances.clone())
    }

    /// Secrets that guests there name, and certificates that are ordered.
    pub(super) fn named_at<'a>(
        &'a self,
        entrance: Option<&Name>,
        door: &Settings,
    ) -> Cow<'a, BTreeMap<ObjectRef, BTreeSet<RoutePrecedence>>> {
        if door.entrances.is_empty() {
            return Cow::Borrowed(&self.certificates);
        }
        let is_there =
            |rank: &RoutePrecedence| self.guests.get(rank).is_some_and(|guest| guest.is_at(entrance));
        let named = self.certificates.iter();
        let named = named.filter(|(_, ranks)| ranks.is_empty() || ranks.iter().any(is_there));
        Cow::Owned(named.map(|(object, ranks)| (object.clone(), ranks.clone())).collect())
    }

    /// Pools that guests there lead to.
    pub(crate) fn pools_at(&self, entrance: Option<&Name>, door: &Settings) -> BTreeMap<PoolId, Arc<Pool>> {
        if door.entrances.is_empty() && entrance.is_none() {
            return self.pools.clone();
        }
        let guests = self.guests.values().filter(|guest| guest.is_at(entrance));
        let backends = guests.flat_map(|guest| &guest.backends);
        let ids = backends.flat_map(|(key, ports)| ports.iter().map(move |port| pool_id(key, *port)));
        ids.filter_map(|id| self.pools.get(&id).map(|pool| (id.clone(), pool.clone()))).collect()
    }

    pub(crate) fn leads_to_pool(&self, entrance: Option<&Name>, id: &PoolId, door: &Settings) -> bool {
        if door.entrances.is_empty() && entrance.is_none() {
            return true;
        }
        let Some(pool) = self.pools.get(id) else { return false };
        let ObjectRef { namespace, name, .. } = pool.owner.object();
        let key = ServiceKey::new(namespace, name);
        let users = self.uses.get(&key).into_iter().flatten();
        let mut leading = users.filter(|(_, ports)| ports.iter().any(|port| pool_id(&key, *port) == *id));
        leading.any(|(rank, _)| self.guests.get(rank).is_some_and(|guest| guest.is_at(entrance)))
    }

    /// The ports of a further entrance.
    pub(crate) fn ids_at(
        &self,
        entrance: &Name,
        settings: &Settings,
        given: PlanContext<'_>,
    ) -> Vec<ListenerId> {
        let named = self.named_at(Some(entrance), &given.config.front_door);
        let passes = self.passing.iter().filter_map(|rank| self.guests.get(rank));
        let tls = given.certificates.any_at_front_door(&settings.tls, named.keys())
            || passes.into_iter().any(|guest| guest.is_at(Some(entrance)))
            || !self.validations_at(Some(entrance)).is_empty();
        let tls = tls.then_some(settings.tls.port).filter(|it| *it != settings.port);
        [Some(settings.port), tls]
            .into_iter()
            .flatten()
            .map(|port| ListenerId { l4: L4::Tcp, port })
            .collect()
    }

    pub(crate) fn lacks_certificates_at(
        &self,
        entrance: &Name,
        settings: &Settings,
        given: PlanContext<'_>,
    ) -> bool {
        let named = self.named_at(Some(entrance), &given.config.front_door);
        given.certificates.lacks_any_at_front_door(&settings.tls, named.keys())
    }

    /// A rule there serves nobody without a certificate.
    pub(crate) fn requires_certificates_at(&self, entrance: &Name) -> bool {
        self.guests_at(Some(entrance)).any(|(_, guest)| guest.requires_certificates())
    }

    /// What a further entrance listens at, and what it shows.
    pub(crate) fn listeners_at(
        &self,
        entrance: &Name,
        settings: &Settings,
        given: PlanContext<'_>,
    ) -> ListenersAndCertificates {
        let named = self.named_at(Some(entrance), &given.config.front_door);
        let objects = given.certificates.at_front_door(&settings.tls, &named);
        let names = match self.host_names().are_kept() {
            true => {
                let chosen: Vec<ObjectRef> =
                    settings.tls.certificates.iter().cloned().chain(self.ordered().cloned()).collect();
                let through = self.passthrough(Some(entrance));
                self.host_names().certify(given.certificates, &objects, &chosen, through.keys().cloned())
            }
            false => given.certificates.by_name(&objects),
        };
        let names: TlsByName = super::listeners::tls(names, settings);
        let made = self.build_listeners(Some(entrance), settings, &Arc::new(names), given);
        let shown = self.shown_at(Some(entrance), settings, objects, given);
        (made.into_iter().map(|it| (it.id(), it)).collect(), shown)
    }

    pub(super) fn shown_at(
        &self,
        entrance: Option<&Name>,
        settings: &Settings,
        objects: Vec<&ObjectRef>,
        given: PlanContext<'_>,
    ) -> Arc<BTreeMap<ObjectRef, Arc<Certificate>>> {
        let of_all = settings.tls.terms.clients.iter().map(|it| &it.authorities);
        let asked = of_all.chain(self.authorities_asked_for(entrance)).filter(|_| !objects.is_empty());
        let all = objects.iter().copied().chain(asked);
        let held = |it: &ObjectRef| Some((it.clone(), given.certificates.held(it)?.clone()));
        Arc::new(all.filter_map(held).collect())
    }
}
