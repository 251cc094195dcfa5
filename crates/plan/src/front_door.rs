//! The front door: one listener that many share, each by its paths and host names.
//!
//! ```text
//!     Service ──► service::guest ─┐
//!                                 ├─► Guest { rules, claims, backends } ─► rules in the order of age ─► Listener
//!     HTTPRoute ─► route::guest ──┘            │          └──────────────► pools of the Services led to
//!                                              └─► Claims: who has which path and host, and who came too late
//! ```
//!
//! Everything is kept up by what changed alone, but for the list of rules, which is put together when somebody asks
//! for it: a thousand changes told at once make one list. The order of the list decides between equal claims, so that
//! whoever plans from the same facts decides alike.

mod attached_route;
mod attached_status;
mod claims;
pub(crate) mod client_certificates;
mod entrances;
mod guessed;
mod host_tls;
mod listeners;
mod namespace_quotas;
mod not_attached;
mod open_elsewhere;
mod orders;
mod owners;
mod paths;
mod patterns;
mod recorded;
mod remember;
mod route;
mod served;
mod service;
#[cfg(test)]
mod tests;
mod two_places;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, OnceLock},
};

use seaway_model::{
    Config, Listener, Name, ObjectRef, Owner, Pool, PoolId,
    config::{HostOwners, OpenPolicy},
    load_balancer::{Certificate, HostPattern, Rule, TlsByName},
};

pub(crate) use self::{attached_route::pool_id, route::is_here};
use self::{
    attached_route::{AttachedRoute, RoutePrecedence},
    claims::{Claims, RouteClaim},
    host_tls::RequestedTlsByHost,
    namespace_quotas::{NamespaceQuotas, RouteCost},
    owners::HostOwnership,
    patterns::PatternCache,
    recorded::{ClaimedNames, RecordedOwners},
};
pub use self::{
    attached_status::LostClaims,
    remember::FirstClaims,
    view::{AttachedRouteView, FrontDoorView, PathView},
};
pub(crate) use self::{
    attached_status::{nobody_is_served, not_redirected},
    entrances::{entrance_of, owner_of},
    listeners::requires_client_certificates,
    orders::{ChallengeEffect, ChallengeProblem, Entrances, OrderableHosts},
    paths::path_of,
    served::PlannedBackends,
    view::why_not,
};
use crate::{
    demand::Demand,
    index::{PlanContext, ServiceKey},
};

/// What the configuration calls it.
pub const FRONT_DOOR: &str = "frontDoor";

pub(crate) fn owner() -> Owner {
    owner_of(None)
}

/// What a change came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FrontDoorChange {
    /// Rules, or which pools there are.
    pub(crate) shape: bool,
    /// Pools whose members alone are others now.
    pub(crate) pools: BTreeSet<PoolId>,
    /// Who is told something else than before.
    pub(crate) told: BTreeSet<Owner>,
    /// DNS names that are wanted now, or no more.
    pub(crate) names: BTreeSet<Name>,
    /// Services whose members are others now, or that are led to no more.
    pub(crate) served: BTreeSet<ServiceKey>,
}

#[derive(Debug, Default)]
pub(crate) struct FrontDoor {
    /// In the order of their rules.
    guests: BTreeMap<RoutePrecedence, AttachedRoute>,
    ranks: HashMap<ObjectRef, RoutePrecedence>,
    /// Those who pass on TLS.
    passing: BTreeSet<RoutePrecedence>,
    /// Those whose rules ask something of TLS with their clients.
    asking: BTreeSet<RoutePrecedence>,
    /// Those who are at other entrances than the main one.
    elsewhere: BTreeSet<RoutePrecedence>,
    asked_by_host: OnceLock<BTreeMap<Option<Name>, RequestedTlsByHost>>,
    last_tls: Mutex<BTreeMap<Option<Name>, Arc<TlsByName>>>,
    claims: Claims,
    shares: NamespaceQuotas,
    patterns: PatternCache,
    /// Namespaces have users of their own.
    is_in_cluster: bool,
    /// What the configuration says of host names.
    host_owners: HostOwners,
    /// Who claimed names first.
    recorded: RecordedOwners,
    /// Which ports of a Service are led to, and by whom.
    uses: HashMap<ServiceKey, BTreeMap<RoutePrecedence, BTreeSet<u16>>>,
    served: BTreeMap<ServiceKey, PlannedBackends>,
    pools: BTreeMap<PoolId, Arc<Pool>>,
    names: BTreeMap<Name, BTreeSet<ServiceKey>>,
    /// Secrets that guests name, and who does; and certificates that are ordered, which none of them names.
    certificates: BTreeMap<ObjectRef, BTreeSet<RoutePrecedence>>,
    /// Host names for which none is ordered, and the one that is stored is shown.
    unordered: BTreeSet<Name>,
    /// The entrances of host names whose certificates are ordered, or were.
    ordered_at: BTreeMap<Name, Entrances>,
    /// What a certificate authority asks for, by host name.
    challenges: BTreeMap<Name, Vec<Arc<Rule>>>,
    /// What authorities are shown that check a name by TLS.
    validations: BTreeMap<Name, Arc<Certificate>>,
    /// Of host names; put together when they are asked for, as are the next three.
    owners: OnceLock<HostOwnership>,
    /// Those of the last listeners.
    guards: Mutex<BTreeMap<HostPattern, Arc<Rule>>>,
    listeners: OnceLock<Vec<Arc<Listener>>>,
    /// Names and what they lead to, but for those that are passed on.
    tls: OnceLock<Arc<TlsByName>>,
    /// All that are shown.
    shown: OnceLock<Arc<BTreeMap<ObjectRef, Arc<Certificate>>>>,
}

impl FrontDoor {
    /// A Service or its endpoints changed, came or went.
    pub(crate) fn refresh_service(&mut self, key: &ServiceKey, given: PlanContext<'_>) -> FrontDoorChange {
        let mut effects = FrontDoorChange::default();
        let service = given.index.service(key);
        let seated = service.and_then(|it| service::seated(it, given));
        let mut touched = self.seat(&key.object(), seated, &mut effects);
        let routes: Vec<RoutePrecedence> = self
            .uses
            .get(key)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .filter(|it| it.is_route() || it.object() != key.object())
            .cloned()
            .collect();
        for rank in routes {
            touched.extend(self.seat_again(&rank, given, &mut effects));
        }
        touched.insert(key.clone());
        self.serve(touched, given, &mut effects);
        effects
    }

    /// A route came, changed or went.
    pub(crate) fn refresh_route(&mut self, object: &ObjectRef, given: PlanContext<'_>) -> FrontDoorChange {
        let mut effects = FrontDoorChange::default();
        let touched = self.seat_route(object, given, &mut effects);
        self.serve(touched, given, &mut effects);
        effects
    }

    /// A name has another answer.
    pub(crate) fn refresh_name(&mut self, name: &Name, given: PlanContext<'_>) -> FrontDoorChange {
        let mut effects = FrontDoorChange::default();
        let touched = self.names.get(name).cloned().unwrap_or_default();
        self.serve(touched, given, &mut effects);
        effects
    }

    /// Its members are to be looked at again.
    pub(crate) fn serve_again(&mut self, key: &ServiceKey, given: PlanContext<'_>) -> FrontDoorChange {
        let mut effects = FrontDoorChange::default();
        self.serve([key.clone()].into(), given, &mut effects);
        effects
    }

    /// What is wanted of a Service that something leads to.
    pub(crate) fn demand(&self, key: &ServiceKey, given: PlanContext<'_>) -> Option<Demand> {
        let ports = self.ports_of(key);
        let service = given.index.service(key).filter(|_| !ports.is_empty())?;
        Some(Demand::at_front_door(service, &ports, given.config))
    }

    fn ports_of(&self, key: &ServiceKey) -> BTreeSet<u16> {
        self.uses.get(key).into_iter().flat_map(BTreeMap::values).flatten().copied().collect()
    }

    /// Where the members of a Service are, those that were left out included.
    pub(crate) fn member_addresses(&self, key: &ServiceKey) -> impl Iterator<Item = IpAddr> + '_ {
        self.served.get(key).into_iter().flat_map(PlannedBackends::member_addresses)
    }

    fn forget_listeners(&mut self) {
        (self.listeners, self.asked_by_host) = (OnceLock::new(), OnceLock::new());
    }

    /// The configuration changed, or which certificates there are: nothing that was put together holds.
    pub(crate) fn forget_certificates(&mut self) {
        self.forget_listeners();
        (self.tls, self.shown) = (OnceLock::new(), OnceLock::new());
    }

    /// Who is sent to TLS may be sent elsewhere, and host names may belong to others.
    pub(crate) fn configure(&mut self, config: &Config) {
        let settings = &config.front_door;
        self.is_in_cluster = config.pools.cluster;
        self.shares.set_limits(config.tenants.limits);
        self.guests.values_mut().for_each(AttachedRoute::forget_where);
        if self.host_owners != settings.owners {
            if !self.host_owners.are_enforced() {
                // Nobody has watched whether what was lost was claimed all the time.
                self.recorded.forget_unclaimed(&ClaimedNames::default());
            }
            self.host_owners = settings.owners.clone();
            self.owners = OnceLock::new();
            self.forget_certificates();
        }
        self.forget_listeners();
    }

    /// Another one under the same names.
    pub(crate) fn renew(&mut self, object: &ObjectRef, certificate: Option<&Arc<Certificate>>) {
        if let (Some(shown), Some(certificate)) = (self.shown.get_mut(), certificate)
            && let Some(place) = Arc::make_mut(shown).get_mut(object)
        {
            *place = certificate.clone();
        }
    }

    /// A Service or a route that leads to another Service, or asks it.
    fn seat_again(
        &mut self,
        rank: &RoutePrecedence,
        given: PlanContext<'_>,
        effects: &mut FrontDoorChange,
    ) -> BTreeSet<ServiceKey> {
        let object = rank.object();
        if rank.is_route() {
            return self.seat_route(&object, given, effects);
        }
        let service = given.index.service(&ServiceKey::new(object.namespace.clone(), object.name.clone()));
        let seated = service.and_then(|it| service::seated(it, given));
        self.seat(&object, seated, effects)
    }

    fn seat_route(
        &mut self,
        object: &ObjectRef,
        given: PlanContext<'_>,
        effects: &mut FrontDoorChange,
    ) -> BTreeSet<ServiceKey> {
        let route = given.index.route(object).filter(|it| is_here(it, &given.config.front_door));
        let seated = route.map(|it| {
            let guest = route::guest(it, given, &mut self.patterns);
            (RoutePrecedence::of_route(it, &guest), guest)
        });
        self.seat(object, seated, effects)
    }

    /// Puts a guest in the place of what it was before. Says which Services are led to by others, or by other ports.
    fn seat(
        &mut self,
        object: &ObjectRef,
        seated: Option<(RoutePrecedence, AttachedRoute)>,
        effects: &mut FrontDoorChange,
    ) -> BTreeSet<ServiceKey> {
        let before = self.ranks.get(object).cloned();
        if let (Some(rank), Some((now, guest))) = (&before, &seated)
            && rank == now
            && self.guests.get(rank) == Some(guest)
        {
            return BTreeSet::new();
        }
        let owned = self.owned_before(before.as_ref(), seated.as_ref());
        let mut touched = BTreeSet::new();
        let asks = |guest: Option<&AttachedRoute>| guest.is_some_and(AttachedRoute::asks_of_tls);
        let is_asking = asks(seated.as_ref().map(|it| &it.1));
        let is_asking = is_asking || asks(before.as_ref().and_then(|rank| self.guests.get(rank)));
        let left = before.and_then(|rank| Some((self.guests.remove(&rank)?, rank)));
        let mut stirred: BTreeSet<RoutePrecedence> = BTreeSet::new();
        let weight = seated.as_ref().map(|(rank, guest)| (rank, RouteCost::of(guest)));
        let gone = left.as_ref().filter(|(_, rank)| weight.is_none_or(|(now, _)| now != rank));
        let mut shares = gone.map(|(_, rank)| self.shares.set(rank, None)).unwrap_or_default();
        shares.extend(weight.into_iter().flat_map(|(rank, weight)| self.shares.set(rank, Some(weight))));
        if let Some((guest, rank)) = &left {
            self.ranks.remove(object);
            for group in [&mut self.passing, &mut self.asking, &mut self.elsewhere] {
                group.remove(rank);
            }
            stirred.extend(self.claims.remove(rank, &guest.claims));
            for key in guest.backends.keys() {
                if let Some(users) = self.uses.get_mut(key) {
                    users.remove(rank);
                    if users.is_empty() {
                        self.uses.remove(key);
                    }
                }
                touched.insert(key.clone());
            }
            for object in &guest.certificates {
                if let Some(users) = self.certificates.get_mut(object) {
                    users.remove(rank);
                    if users.is_empty() {
                        self.certificates.remove(object);
                    }
                }
            }
            effects.told.insert(guest.owner.clone());
        }
        let same_rules = match (&left, &seated) {
            (Some((before, old)), Some((rank, now))) => {
                old == rank
                    && before.rules == now.rules
                    && before.redirect == now.redirect
                    && before.entrances == now.entrances
                    && before.closed_at == now.closed_at
                    && before.guessed == now.guessed
                    && before.through == now.through
                    && before.certificates == now.certificates
            }
            (None, Some((_, only))) | (Some((only, _)), None) => {
                !only.has_rules() && only.certificates.is_empty()
            }
            (None, None) => true,
        };
        if let Some((rank, mut guest)) = seated {
            if let Some((before, _)) = &left {
                guest.reuse_rules_of(before);
            }
            let (passes, asks, elsewhere) =
                (guest.through.is_some(), guest.asks_of_tls(), guest.is_elsewhere());
            self.passing.extend(passes.then(|| rank.clone()));
            self.asking.extend(asks.then(|| rank.clone()));
            self.elsewhere.extend(elsewhere.then(|| rank.clone()));
            stirred.extend(self.claims.add(&rank, &guest.claims));
            for (key, ports) in &guest.backends {
                self.uses.entry(key.clone()).or_default().insert(rank.clone(), ports.clone());
                touched.insert(key.clone());
            }
            for object in &guest.certificates {
                self.certificates.entry(object.clone()).or_default().insert(rank.clone());
            }
            effects.told.insert(guest.owner.clone());
            self.ranks.insert(object.clone(), rank.clone());
            self.guests.insert(rank, guest);
        }
        if !shares.is_empty() {
            // Others may have what they claim, and lose it to them.
            let guests = shares.iter().filter_map(|rank| self.guests.get(rank));
            let claims = guests.flat_map(|guest| guest.claims.keys());
            let others: Vec<RoutePrecedence> =
                claims.flat_map(|claim| self.claims.of(claim).cloned()).collect();
            stirred.extend(shares.into_iter().chain(others));
            effects.shape = true;
            self.forget_certificates();
        }
        effects.told.extend(stirred.iter().filter_map(|rank| Some(self.guests.get(rank)?.owner.clone())));
        let named = self.ranks.get(object).and_then(|rank| self.guests.get(rank));
        let named = named.map_or(&[][..], |guest| &guest.certificates);
        if left.as_ref().map_or(&[][..], |(guest, _)| &guest.certificates) != named {
            self.forget_certificates();
        }
        if let Some(owned) = owned {
            self.forget_unclaimed();
            effects.told.extend(self.owned_otherwise(&owned));
            effects.shape = true;
            self.forget_certificates();
        }
        if is_asking || !same_rules && !self.asking.is_empty() {
            // Who came first at a host name may be another one now.
            let others = self.asking.iter().filter_map(|rank| self.guests.get(rank));
            effects.told.extend(others.map(|guest| guest.owner.clone()));
            self.forget_certificates();
        }
        if !same_rules {
            // What is open at the main one may be another place now.
            let owners = self.elsewhere.iter().filter_map(|it| Some(self.guests.get(it)?.owner.clone()));
            effects.told.extend(owners);
            effects.shape = true;
            match self.host_owners.are_enforced() {
                // Names that are passed on are not shown by wildcards of others.
                true => self.forget_certificates(),
                false => self.forget_listeners(),
            }
        }
        touched
    }

    /// Works out anew who answers for these Services.
    fn serve(&mut self, keys: BTreeSet<ServiceKey>, given: PlanContext<'_>, effects: &mut FrontDoorChange) {
        for key in keys {
            let ports = self.ports_of(&key);
            let service = given.index.service(&key).filter(|_| !ports.is_empty());
            let now = service.map(|it| PlannedBackends::new(it, &ports, given, &self.pools));
            let before = self.served.get(&key);
            if before == now.as_ref() {
                continue;
            }
            effects.told.extend(before.iter().chain(&now.as_ref()).map(|it| it.owner.clone()));
            effects.served.insert(key.clone());
            let (old, new) = (before.map(PlannedBackends::pools), now.as_ref().map(PlannedBackends::pools));
            let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
            for id in old.keys().filter(|id| !new.contains_key(*id)) {
                self.pools.remove(id);
                effects.shape = true;
            }
            for (id, pool) in new {
                match self.pools.insert(id.clone(), pool.clone()) {
                    None => effects.shape = true,
                    Some(known) if !Arc::ptr_eq(&known, &pool) => {
                        effects.pools.insert(id);
                    }
                    Some(_) => {}
                }
            }
            let wanted = |it: Option<&PlannedBackends>| it.map(|it| it.names.clone()).unwrap_or_default();
            let (old, new) = (wanted(before), wanted(now.as_ref()));
            for name in old.symmetric_difference(&new) {
                let users = self.names.entry(name.clone()).or_default();
                if new.contains(name) {
                    users.insert(key.clone());
                } else {
                    users.remove(&key);
                }
                if users.is_empty() {
                    self.names.remove(name);
                }
                effects.names.insert(name.clone());
            }
            match now {
                Some(now) => self.served.insert(key, now),
                None => self.served.remove(&key),
            };
        }
    }

    /// Whether a guest may have what it claims.
    fn may(&self, rank: &RoutePrecedence, claim: &RouteClaim) -> bool {
        self.host_names().may_ask(rank.namespace(), claim.host(), claim.request_match())
    }

    /// The first who claims it and may have it.
    fn holder(&self, claim: &RouteClaim) -> Option<&RoutePrecedence> {
        self.claims.of(claim).find(|rank| self.may(rank, claim) && !self.shares.is_beyond(rank))
    }

    /// Whether it is to be open.
    pub(crate) fn is_to_open(&self, config: &Config) -> bool {
        let settings = &config.front_door;
        match settings.opens {
            OpenPolicy::Never => false,
            _ if !config.may_listen(&settings.addresses) => false,
            OpenPolicy::Always => true,
            OpenPolicy::WhenNeeded => self.leads_at(None),
        }
    }

    pub(crate) fn pools(&self) -> &BTreeMap<PoolId, Arc<Pool>> {
        &self.pools
    }

    /// By guests.
    pub(crate) fn certificates_named(&self) -> impl Iterator<Item = &ObjectRef> {
        self.certificates.keys()
    }

    pub(crate) fn wants_name(&self, name: &Name) -> bool {
        self.names.contains_key(name)
    }
}
