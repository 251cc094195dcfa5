//! Another Service that has to agree to each request (`seaway.dev/forward-auth`). It is one of the same namespace, and its members are
//! found as those of any other, so that no address can be asked that could not be a member.

use std::sync::Arc;

use seaway_model::{
    L4, Name, Problem, Reason,
    fact::Service,
    load_balancer::{ForwardAuth, Protocol},
};

use crate::{
    access_rules,
    annotations::{FORWARD_AUTH, ServiceOptions},
    demand::{Demand, DemandPort},
    front_door::pool_id,
    index::{PlanContext, ServiceKey},
};

/// What is asked of it, as the annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthService {
    pub service: Name,
    pub port: u16,
    pub path: Name,
    /// What members are told of its answer.
    pub headers: Vec<Name>,
}

pub(crate) fn of(service: &Service, wishes: &ServiceOptions) -> Option<Arc<ForwardAuth>> {
    let asked = wishes.http.forward_auth.as_ref()?;
    let key = key(service, asked);
    Some(Arc::new(ForwardAuth {
        of: access_rules::object(service),
        pool: pool_id(&key, asked.port),
        service: key.name.clone(),
        port: asked.port,
        host: format!("{}.{}.svc", key.name, key.namespace).into(),
        path: asked.path.clone(),
        headers: asked.headers.clone(),
    }))
}

fn key(service: &Service, asked: &AuthService) -> ServiceKey {
    ServiceKey::new(service.meta.namespace.clone(), asked.service.clone())
}

/// What is told where it cannot be asked.
pub(crate) fn problem(service: &Service, wishes: &ServiceOptions, given: PlanContext<'_>) -> Option<Problem> {
    let asked = wishes.http.forward_auth.as_ref()?;
    let key = key(service, asked);
    let (reason, message, fix) = match given.index.service(&key) {
        None => (
            Reason::NoSuchService,
            format!("there is no Service {}/{}: all requests get 503", key.namespace, key.name),
            "Create the Service, or name another one.".to_owned(),
        ),
        Some(it) if !it.ports.iter().any(|it| it.protocol == L4::Tcp && it.port == asked.port) => {
            let has: Vec<String> = it.ports.iter().map(|it| format!("{}/{}", it.port, it.protocol)).collect();
            (
                Reason::NoSuchPort,
                format!(
                    "Service {}/{} has no TCP port {}: all requests get 503",
                    key.namespace, key.name, asked.port
                ),
                format!("The Service has: {}.", has.join(", ")),
            )
        }
        Some(_) if key.name == service.meta.name => (
            Reason::Unsupported,
            "the Service names itself: its own members decide about its requests".to_owned(),
            "Name the Service that verifies users; or remove the annotation, if the members do so anyway."
                .to_owned(),
        ),
        Some(_) => return None,
    };
    let problem = Problem::new(access_rules::object(service), reason, message);
    Some(problem.at(wishes.field_of(FORWARD_AUTH)).fix(fix))
}

/// The same of one that a route leads to.
pub(crate) fn problem_of(service: &Service, given: PlanContext<'_>) -> Option<Problem> {
    let mut wishes = ServiceOptions::of(&given.config.defaults);
    // What is not understood of it is told to its owner.
    wishes.read(&access_rules::object(service), &service.meta.annotations);
    problem(service, &wishes, given)
}

/// Which Service listeners of its own ask, and at which port.
pub(crate) fn asked_by(demand: &Demand) -> Option<(ServiceKey, u16)> {
    let asked = demand.wishes.http.forward_auth.as_ref().filter(|_| demand.cloud.is_none())?;
    Some((key(&demand.service, asked), asked.port))
}

/// Whether it was to be asked at this port, and cannot.
pub(crate) fn is_closed(demand: &Demand, wanted: &DemandPort) -> bool {
    demand.wishes.http.forward_auth.is_some() && demand.protocol(&wanted.port) != Protocol::Http
}

/// What is told of an owner with listeners of its own.
pub(crate) fn problems(demand: &Demand, given: PlanContext<'_>) -> Vec<Problem> {
    let reachable = asked_by(demand).and_then(|_| problem(&demand.service, &demand.wishes, given));
    reachable.into_iter().chain(unprotected(demand)).collect()
}

/// What is told of ports and clouds where it cannot be asked.
fn unprotected(demand: &Demand) -> Option<Problem> {
    demand.wishes.http.forward_auth.as_ref()?;
    let closed = demand.ports.iter().filter(|it| is_closed(demand, it));
    let closed: Vec<String> = closed.map(|it| it.id().to_string()).collect();
    let (message, fix) = if demand.cloud.is_some() {
        (
            "load balancers of a cloud do not support forward-auth: nothing is created or changed".to_owned(),
            "Serve the Service with the native driver, or remove the annotation.",
        )
    } else if !closed.is_empty() {
        (
            format!(
                "forward-auth applies only to HTTP requests: no listener is opened at port {}",
                closed.join(", ")
            ),
            "Set seaway.dev/protocol: http, or a certificate in seaway.dev/tls; give other ports a Service of their own.",
        )
    } else {
        return None;
    };
    let problem = Problem::new(demand.owner.object(), Reason::Unsupported, message);
    Some(problem.at(demand.wishes.field_of(FORWARD_AUTH)).fix(fix))
}
