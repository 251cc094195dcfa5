//! Status of what is attached to the front door: how many hosts serve a Service or route, and its Problems.

use std::collections::{BTreeMap, BTreeSet};

use seaway_model::{Name, ObjectRef, Owner, Problem, Reason, config::FrontDoor as Settings};

use super::{
    FrontDoor,
    attached_route::{AttachedRoute, RoutePrecedence},
    listeners::requires_client_certificates,
    served::PlannedBackends,
    service,
};
use crate::index::ServiceKey;

/// What one of the guests is told.
#[derive(Debug)]
pub(crate) struct AttachedRouteStatus {
    pub(crate) members: usize,
    pub(crate) problems: Vec<Problem>,
    /// Something leads to it.
    pub(crate) leads: bool,
}

/// Claims of a guest that somebody else has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostClaims {
    pub claims: Vec<String>,
    pub field: Name,
    pub to: ObjectRef,
    /// Or only of a name that comes first, or of an object that restricts access.
    pub older: bool,
    /// It restricts access, and the one that lost does not.
    pub restricts: bool,
    /// The other way round: what was to be protected is open there.
    pub opens: bool,
}

impl FrontDoor {
    /// Everybody who is told something.
    pub(crate) fn owners(&self) -> BTreeSet<Owner> {
        let guests = self.guests.values().filter(|guest| !guest.is_unread).map(|guest| &guest.owner);
        guests.chain(self.served.values().map(|it| &it.owner)).cloned().collect()
    }

    pub(crate) fn owner_of(&self, object: &ObjectRef) -> Option<Owner> {
        self.ranks.get(object).and_then(|rank| self.guests.get(rank)).map(|guest| guest.owner.clone())
    }

    /// What an owner is told of its being here: how many answer for it, and what is wrong. Nothing, if it is not.
    pub(crate) fn status_of(&self, owner: &Owner) -> Option<AttachedRouteStatus> {
        let object = owner.object();
        let seated = self.ranks.get(&object).and_then(|rank| Some((rank, self.guests.get(rank)?)));
        let seated = seated.filter(|(_, guest)| guest.owner == *owner && !guest.is_unread);
        let served = self.served.get(&ServiceKey::new(object.namespace.clone(), object.name.clone()));
        let served = served.filter(|it| it.owner == *owner);
        if seated.is_none() && served.is_none() {
            return None;
        }
        let mut problems: BTreeSet<Problem> =
            served.iter().flat_map(|it| it.problems.iter().cloned()).collect();
        if let Some((rank, guest)) = seated {
            problems.extend(guest.problems.iter().cloned());
            let lost = self.lost(rank, guest);
            problems.extend(lost.iter().map(|lost| lost.problem(&guest.owner, self.is_in_cluster)));
            problems.extend(self.refused(rank, guest));
            problems.extend(self.shares.problem(rank, guest));
            problems.extend(self.disputed(guest));
            problems.extend(self.open_elsewhere(rank, guest));
        }
        let members = seated.map_or_else(
            || served.map_or(0, PlannedBackends::members),
            |(_, guest)| {
                guest
                    .backends
                    .keys()
                    .filter_map(|key| self.served.get(key))
                    .map(PlannedBackends::members)
                    .sum()
            },
        );
        let leads = seated.is_some_and(|(_, guest)| guest.is_attached());
        Some(AttachedRouteStatus { members, problems: problems.into_iter().collect(), leads })
    }

    /// What is said to who asks that http be redirected to https, or browsers to use that alone, while no certificate is there.
    pub(crate) fn not_redirected(&self, owner: &Owner) -> Option<Problem> {
        let object = owner.object();
        let guest = self.ranks.get(&object).and_then(|rank| self.guests.get(rank))?;
        let leads = guest.owner == *owner && guest.is_attached() && guest.is_at(None);
        match (guest.requires_certificates(), guest.redirect) {
            _ if !leads => None,
            (true, _) => {
                let what = "no client is served: client certificates need TLS, and the front door has no certificate of \
                     its own";
                let problem = Problem::new(object, Reason::NoSuchSecret, what);
                Some(problem.at(guest.clients_field.clone()).fix(NAME_A_CERTIFICATE))
            }
            (false, Some(true)) => Some(not_redirected(object, guest.redirect_field.clone())),
            (false, _) => {
                let what = "this annotation has no effect: browsers heed it only over https, and the front door has no certificate";
                let problem =
                    |field: &Name| Problem::new(object, Reason::NoSuchSecret, what).at(field.clone());
                guest.hsts_field.as_ref().map(|it| problem(it).fix(NAME_A_CERTIFICATE))
            }
        }
    }

    pub(crate) fn problems(&self) -> BTreeSet<Problem> {
        self.owners().iter().filter_map(|owner| self.status_of(owner)).flat_map(|it| it.problems).collect()
    }

    /// By who has them, and by the field that makes them.
    pub(super) fn lost(&self, rank: &RoutePrecedence, guest: &AttachedRoute) -> Vec<LostClaims> {
        let mut lost: Vec<LostClaims> = Vec::new();
        let has_hosts = guest.claims.iter().any(|(claim, _)| claim.host().is_some());
        // Who is left out is told that.
        for (claim, field) in guest.claims.iter().filter(|_| !self.shares.is_beyond(rank)) {
            let Some(holder) = self.holder(claim).filter(|holder| *holder != rank) else { continue };
            if !self.may(rank, claim) {
                continue;
            }
            // One with host names did not ask for the path of its name.
            if self.leads_to(holder, rank) || has_hosts && **field == *service::NAME {
                continue;
            }
            let to = holder.object();
            match lost.iter_mut().find(|it| it.to == to && it.field == *field) {
                Some(it) => it.claims.push(claim.to_string()),
                None => lost.push(LostClaims {
                    claims: vec![claim.to_string()],
                    field: field.clone(),
                    to,
                    older: holder.created() != rank.created(),
                    restricts: rank.is_open() && !holder.is_open(),
                    opens: guest.restricts() && self.guests.get(holder).is_some_and(|it| !it.restricts()),
                }),
            }
        }
        lost
    }

    /// Host names and paths that belong to other namespaces, by the field that claims them.
    fn refused(&self, rank: &RoutePrecedence, guest: &AttachedRoute) -> Vec<Problem> {
        let mut by_field: BTreeMap<&Name, BTreeSet<String>> = BTreeMap::new();
        for (claim, field) in guest.claims.iter().filter(|(claim, _)| !self.may(rank, claim)) {
            let told =
                self.host_names().other_owner_of(rank.namespace(), claim.host(), claim.request_match());
            by_field.entry(field).or_default().extend(told);
        }
        let problem = |(field, told): (&Name, BTreeSet<String>)| {
            let told = told.into_iter().collect::<Vec<_>>().join("; ");
            let message = format!("{told}: such requests are not sent to this object");
            let problem = Problem::new(guest.owner.object(), Reason::NotAllowed, message).at(field.clone());
            problem.fix(
                "Claim another host name or path, or have this namespace listed in frontDoor.hostOwners. Administrators see \
                 which namespace has it: kubectl get nameowners -o yaml.",
            )
        };
        by_field.into_iter().map(problem).collect()
    }

    /// Who is reached through a route by what it would have claimed by itself has lost nothing.
    fn leads_to(&self, route: &RoutePrecedence, service: &RoutePrecedence) -> bool {
        let object = service.object();
        let key = ServiceKey::new(object.namespace, object.name);
        route.is_route()
            && !service.is_route()
            && self.guests.get(route).is_some_and(|guest| guest.backends.contains_key(&key))
    }
}

/// It asks to be served over http, where clients cannot show the certificates that the operator requires.
pub(super) fn ignored_redirect_off(guest: &AttachedRoute, settings: &[&Settings]) -> Option<Problem> {
    let asks = guest.redirect == Some(false);
    let what = "requests over http are redirected to https in spite of this annotation: the front door requires client \
                certificates (frontDoor.tls.clients)";
    let of_its_own = "requests over http are redirected to https in spite of this annotation: clients have to show a certificate \
                      (seaway.dev/client-authorities)";
    let of_all = settings.iter().any(|it| requires_client_certificates(it));
    let what = if of_all { what } else { of_its_own };
    let is_refused = asks && (of_all || guest.requires_certificates());
    is_refused.then(|| {
        Problem::new(guest.owner.object(), Reason::NotAllowed, what)
            .at(guest.redirect_field.clone())
            .fix("Remove the annotation.")
    })
}

/// Clients have to show certificates, which they do by TLS alone, and there is none for it.
pub(crate) fn nobody_is_served(object: ObjectRef) -> Problem {
    let what =
        "no client is served: the front door requires client certificates and has no certificate of its own";
    Problem::new(object, Reason::NoSuchSecret, what).at("frontDoor.tls.clients").fix(NAME_A_CERTIFICATE)
}

const NAME_A_CERTIFICATE: &str =
    "Name a certificate: frontDoor.certificates, or seaway.dev/tls at a Service or an HTTPRoute.";

/// `field` asks that requests be redirected to https, and the front door has no certificate for it.
pub(crate) fn not_redirected(object: ObjectRef, field: Name) -> Problem {
    let what =
        "requests are answered over http and not redirected to https: the front door has no certificate";
    Problem::new(object, Reason::NoSuchSecret, what).at(field).fix(NAME_A_CERTIFICATE)
}

impl LostClaims {
    fn problem(&self, loser: &Owner, is_in_cluster: bool) -> Problem {
        let object = loser.object();
        let to = self.to.named_for(&object, is_in_cluster);
        let why = match (self.older, self.restricts) {
            (true, _) => "which is older",
            (false, true) => "which restricts access",
            (false, false) => "whose name comes first",
        };
        let leads = if self.claims.len() == 1 { "leads" } else { "lead" };
        let open = if self.opens { format!("; {to} is open to all clients there") } else { String::new() };
        let message = format!("{} {leads} to {to} already, {why}{open}", self.claims.join(", "));
        let problem = Problem::new(object.clone(), Reason::RouteConflict, message).at(self.field.clone());
        let own = "a path or a host name of its own: seaway.dev/path, seaway.dev/host";
        let path = format!("/{}/{}", object.namespace, object.name);
        match *self.field == *service::NAME {
            true if self.claims.contains(&path) => problem.fix(format!("Give the Service {own}.")),
            true => problem.fix(format!("Send requests for it to {path}, or give the Service {own}.")),
            false => problem.fix("Claim another path or host name, or remove one of the two."),
        }
    }
}
