//! Values that are understood and probably not meant, as a check of a folder names them: seconds that are milliseconds elsewhere, a
//! weight that leaves no backend. What is written stays in force.

use seaway_model::{
    Name, Problem, Reason,
    fact::{Service, ServiceKind},
};

use crate::{
    annotations::{BACKENDS, FORWARD_AUTH, FRONT_DOOR, HOST, PATH, ServiceOptions},
    demand::whose,
    index::ServiceKey,
    quantity::probably_milliseconds,
    world::World,
};

/// Of one Service.
pub(crate) fn of_service(world: &World, key: &ServiceKey, service: &Service) -> Vec<Problem> {
    let mut all = milliseconds(key, service);
    all.extend(without_weight(world, key, service));
    all.extend(asked_without_a_path(world, key, service));
    all
}

fn milliseconds(key: &ServiceKey, service: &Service) -> Vec<Problem> {
    let of = |(annotation, text): (&Name, &Name)| {
        let option = annotation.strip_prefix("seaway.dev/")?;
        let number = probably_milliseconds(option, text.trim())?;
        let message = format!("{text:?} without a unit is in seconds, {number} seconds here");
        let problem = Problem::new(key.object(), Reason::Ignored, message);
        Some(
            problem
                .at(format!("metadata.annotations[{annotation}]"))
                .fix(format!("If milliseconds are meant, write {number}ms; else write {number}s.")),
        )
    };
    service.meta.annotations.iter().filter_map(of).collect()
}

fn without_weight(world: &World, key: &ServiceKey, service: &Service) -> Option<Problem> {
    let owner = whose(service);
    let pools = world.pools_of(&owner).chain(world.pools_at_door(key));
    let mut pools = pools.filter(|it| !it.members.is_empty());
    if !pools.any(|it| it.members.iter().all(|member| member.weight == 0)) {
        return None;
    }
    let message =
        "all backends have the weight 0: no connection and no request is forwarded (HTTP: status 503)";
    let problem = Problem::new(key.object(), Reason::Ignored, message);
    Some(problem.at(format!("metadata.annotations[{BACKENDS}]")).fix(
        "Give one of them a weight of 1 or more, or remove weight=0; on an EndpointSlice, seaway.dev/weight.",
    ))
}

/// `web:80`: one that answers clients as well, perhaps, and that is no longer at its name.
fn asked_without_a_path(world: &World, key: &ServiceKey, service: &Service) -> Option<Problem> {
    let text = service.meta.annotations.get(FORWARD_AUTH).filter(|it| !it.contains('/'))?;
    let mut options = ServiceOptions::by_default();
    options.read(&key.object(), &service.meta.annotations);
    let asked = ServiceKey::new(key.namespace.clone(), options.http.forward_auth?.service);
    let is_elsewhere = |it: &Service| {
        let says = |name: &&str| it.meta.annotations.contains_key(*name);
        it.kind == ServiceKind::LoadBalancer || [HOST, PATH, FRONT_DOOR].iter().any(says)
    };
    let is_out = world.index().service(&asked).is_some_and(|it| !is_elsewhere(it));
    let message = format!(
        "each request is first sent to {text} for the path /, and the front door does not serve Service {}/{} by its name for it",
        asked.namespace, asked.name
    );
    let problem = Problem::new(key.object(), Reason::Ignored, message);
    let fix = format!(
        "Write the path that verifies users: {text}/verify; or {text}/, if that is /. To serve that Service to clients as well, set \
         seaway.dev/front-door: \"true\" on it."
    );
    is_out.then(|| problem.at(format!("metadata.annotations[{FORWARD_AUTH}]")).fix(fix))
}
