//! Another Service that has to agree to each request (`seaway.dev/forward-auth`). It is one of the same namespace, and its members are
//! found as those of any other, so that no address can be asked that could not be a member.

use std::sync::Arc;

use seaway_model::{L4, Name, Problem, Reason, fact::Service, load_balancer::ForwardAuth};

use crate::{
    admitted,
    annotations::{FORWARD_AUTH, Wishes},
    demand::Demand,
    front_door::pool_id,
    index::{Given, ServiceKey},
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

pub(crate) fn of(service: &Service, wishes: &Wishes) -> Option<Arc<ForwardAuth>> {
    let asked = wishes.http.forward_auth.as_ref()?;
    let key = key(service, asked);
    Some(Arc::new(ForwardAuth {
        of: admitted::object(service),
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
pub(crate) fn problem(service: &Service, wishes: &Wishes, given: Given<'_>) -> Option<Problem> {
    let asked = wishes.http.forward_auth.as_ref()?;
    let key = key(service, asked);
    let (reason, message, fix) = match given.index.service(&key) {
        None => (
            Reason::NoSuchService,
            format!("there is no Service {}/{}: all requests get 503", key.namespace, key.name),
            "Write the Service, or name another.".to_owned(),
        ),
        Some(it) if !it.ports.iter().any(|it| it.protocol == L4::Tcp && it.port == asked.port) => {
            let has: Vec<String> = it.ports.iter().map(|it| format!("{}/{}", it.port, it.protocol)).collect();
            (
                Reason::NoSuchPort,
                format!(
                    "Service {}/{} has no TCP port {}: all requests get 503",
                    key.namespace, key.name, asked.port
                ),
                format!("It has: {}.", has.join(", ")),
            )
        }
        Some(_) => return None,
    };
    let problem = Problem::new(admitted::object(service), reason, message);
    Some(problem.at(wishes.field_of(FORWARD_AUTH)).fix(fix))
}

/// The same of one that a route leads to.
pub(crate) fn problem_of(service: &Service, given: Given<'_>) -> Option<Problem> {
    let mut wishes = Wishes::of(&given.config.defaults);
    // What is not understood of it is told to its owner.
    wishes.read(&admitted::object(service), &service.meta.annotations);
    problem(service, &wishes, given)
}

/// Only the front door asks: listeners of its own stay closed.
pub(crate) fn is_closed(demand: &Demand) -> bool {
    demand.wishes.http.forward_auth.is_some()
}

/// What is told of listeners of its own, and of clouds.
pub(crate) fn unprotected(demand: &Demand) -> Option<Problem> {
    demand.wishes.http.forward_auth.as_ref()?;
    let message = match demand.cloud {
        Some(_) => "load balancers of a cloud cannot ask another Service: nothing is created or changed",
        None => {
            "only the front door asks another Service: no listener is opened at the Service's own address"
        }
    };
    let problem = Problem::new(demand.owner.object(), Reason::Unsupported, message);
    let fix = "Serve the Service at the front door alone (type: ClusterIP), or remove the annotation.";
    Some(problem.at(demand.wishes.field_of(FORWARD_AUTH)).fix(fix))
}
