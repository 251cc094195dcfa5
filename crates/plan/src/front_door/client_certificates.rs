//! Certificates that a Service asks its clients for at the front door, whose listeners it shares: by its host names alone.

use seaway_model::{Problem, Reason, config::FrontDoor as Settings, fact::Service};

use super::listeners::requires_client_certificates;
use crate::{
    access_rules,
    annotations::{AUTHORITIES, CLIENTS, Protection, ServiceOptions},
    certificates::Certificates,
};

/// Why they cannot be asked for, so that the Service is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CannotAsk {
    /// It is not said who vouches for clients.
    NoAuthorities,
    /// The handshake names a host, and no path.
    NoHost,
    /// The operator has all clients asked for certificates of other authorities.
    FrontDoorAsks,
}

impl CannotAsk {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            CannotAsk::NoAuthorities => {
                "clients have to show a certificate, and no authorities are named: the front door answers 503 for this Service"
            }
            CannotAsk::NoHost => {
                "the front door requires client certificates by host name, and this Service has none: the front door answers 503 for it"
            }
            CannotAsk::FrontDoorAsks => {
                "the front door requires client certificates of its own authorities (frontDoor.tls.clients) from all clients, and answers \
                 503 for a Service with other authorities"
            }
        }
    }

    pub(super) fn fix(self) -> &'static str {
        match self {
            CannotAsk::NoAuthorities => "Name their Secret in seaway.dev/client-authorities.",
            CannotAsk::NoHost => {
                "Give the Service host names: seaway.dev/host, or spec.hostnames of the HTTPRoute."
            }
            CannotAsk::FrontDoorAsks => {
                "Remove the annotation, or frontDoor.tls.clients; or give the Service a LoadBalancer of its own."
            }
        }
    }
}

/// `has_hosts`: it is reached by host names. `settings`: those of its entrances.
pub(crate) fn cannot_ask(
    wishes: &ServiceOptions,
    has_hosts: bool,
    settings: &[&Settings],
) -> Option<CannotAsk> {
    if !matches!(wishes.protection(), Some(Protection::Clients(_))) {
        return None;
    }
    match () {
        () if wishes.tls.authorities.is_none() => Some(CannotAsk::NoAuthorities),
        () if settings.iter().any(|it| requires_client_certificates(it)) => Some(CannotAsk::FrontDoorAsks),
        () if !has_hosts => Some(CannotAsk::NoHost),
        () => None,
    }
}

/// What says so.
pub(super) fn option(wishes: &ServiceOptions) -> &'static str {
    if wishes.written.contains_key(AUTHORITIES) { AUTHORITIES } else { CLIENTS }
}

/// What is wrong with its authorities.
pub(crate) fn problems(
    service: &Service,
    wishes: &ServiceOptions,
    certificates: &Certificates,
) -> Vec<Problem> {
    let object = access_rules::object(service);
    let Some(clients) = wishes.tls.of_rules(&object.namespace).and_then(|it| it.clients) else {
        let is_idle = wishes.written.contains_key(CLIENTS) && wishes.tls.clients_optional;
        let what = "this annotation has no effect: no authorities are named";
        let problem = Problem::new(object, Reason::Unsupported, what).at(wishes.field_of(CLIENTS));
        return is_idle.then(|| problem.fix(CannotAsk::NoAuthorities.fix())).into_iter().collect();
    };
    if certificates.is_withheld(&clients.authorities) {
        return Vec::new();
    }
    let mut problems = certificates.problems_of(&clients.authorities);
    let follows = if clients.required { ": requests get 503" } else { "" };
    let at = (&object, wishes.field_of(AUTHORITIES));
    problems.extend(certificates.problem_of_clients(at, &clients.authorities, follows));
    problems
}
