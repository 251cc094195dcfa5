//! What a Service is told of the load balancer that it shares, or may not share.

use std::net::IpAddr;

use seaway_model::{
    ListenerId, LoadBalancer as Wish, Name, Owner, Problem, Reason, load_balancer::NamedLoadBalancer,
};
use seaway_openstack::octavia::LoadBalancer;

use super::{
    super::{names::Cluster, shares, steps::Observed},
    Marks, Shared,
};

/// Why a Service may not be on this load balancer that is another's.
pub(in crate::octavia) fn unwelcome(
    owner: &Owner,
    wish: &Wish,
    it: &LoadBalancer,
    addresses: &[IpAddr],
    shared: &Shared,
    marks: &Marks,
) -> Option<Problem> {
    let outside = wish.options.cloud.as_ref()?;
    let field = outside.named.as_ref().map(|it| it.field.clone()).unwrap_or_default();
    let problem = |reason, message: String, fix: &str| {
        Some(Problem::new(owner.object(), reason, message).at(field.clone()).fix(fix))
    };
    let others = marks.names_of_others(it);
    if !marks.is_guest(&it.tags) && !it.tags.contains(&marks.name) && others >= outside.most_shared {
        let message = format!("load balancer {} has {others} Services already, the maximum", it.id);
        return problem(
            Reason::Unsupported,
            message,
            "Raise max-shared-lb of [LoadBalancer], or name another load balancer.",
        );
    }
    // It is reached from outside if another address than its VIP is.
    if outside.internal && addresses.iter().any(|ip| Some(*ip) != it.vip_address) {
        let message = format!(
            "load balancer {} belongs to another Service, which decides whether it has a floating IP",
            it.id
        );
        return problem(
            Reason::Unsupported,
            message,
            "Remove the request for an internal load balancer, or the annotation that names this load balancer.",
        );
    }
    let taken = shared.taken.iter().find(|(id, _)| wish.listeners.contains_key(id));
    if let Some((id, whose)) = taken {
        return Some(conflict(owner, it, *id, whose));
    }
    // The other controller had it there all the same, and does not look at the field.
    let is_followed = outside.explicit.address || !marks.is_named(&it.tags);
    let asked = outside.requested.filter(|ip| is_followed && !addresses.contains(ip))?;
    let message =
        format!("load balancer {} belongs to another Service, and {asked} is not its address", it.id);
    problem(
        Reason::AddressTaken,
        message,
        "Remove the requested address, or the annotation that names the load balancer.",
    )
}

/// What a Service is told of those it shares with. Nothing of theirs is changed.
pub(in crate::octavia) fn told(
    cluster: Option<&Cluster>,
    owner: &Owner,
    wish: &Wish,
    observed: &Observed,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(balancer) = &observed.balancer else { return problems };
    let internal = wish.options.cloud.as_ref().is_some_and(|it| it.internal);
    if let (true, true, Some(floating)) = (observed.shared.guest, internal, &observed.floating) {
        let at = floating.floating_ip_address.map(|it| it.to_string()).unwrap_or_default();
        let message = format!(
            "an internal load balancer is requested, but floating IP {at} is associated with the shared load balancer {}",
            balancer.it.id
        );
        problems.push(Problem::new(owner.object(), Reason::Unsupported, message).fix(
            "Name another load balancer, or remove the annotation: the Service then gets one of its own.",
        ));
    }
    let taken = observed.shared.taken.iter().filter(|(id, _)| wish.listeners.contains_key(id));
    problems.extend(taken.map(|(id, whose)| conflict(owner, &balancer.it, *id, whose)));
    let named = wish.options.cloud.as_ref().and_then(|it| it.named.as_ref());
    let is_gone = |id: &Name| observed.shared.named.as_ref().is_some_and(|(it, there)| it == id && !there);
    let is_it = |it: &NamedLoadBalancer| it.is(balancer.it.id.as_str(), &balancer.it.name);
    let elsewhere = named.filter(|it| !is_it(it) && !observed.shared.guest);
    let elsewhere = elsewhere.filter(|it| !is_gone(&it.id));
    problems.extend(shares::told(owner, wish, observed, balancer));
    problems.extend(observed.shared.refused.clone());
    let renamed = named.filter(|it| it.by_name && !is_it(it) && observed.shared.guest);
    let renamed = renamed.filter(|_| observed.shared.refused.is_none());
    problems.extend(renamed.map(|named| {
        let name =
            Some(&balancer.it.name).filter(|it| cluster.is_some_and(|cluster| cluster.may_tell(it, owner)));
        let now = name.map_or_else(|| "has another name".to_owned(), |it| format!("is called {it}"));
        let message = format!(
            "no load balancer is called {} any more: the Service stays on load balancer {}, which {now}",
            named.id, balancer.it.id
        );
        Problem::new(owner.object(), Reason::BadAnnotation, message)
            .at(named.field.clone())
            .fix("Write its current name into the annotation, or rename it back.")
    }));
    problems.extend(elsewhere.map(|named| {
        let message = format!(
            "the annotation names load balancer {}, but the Service already owns load balancer {}; the \
             annotation is ignored",
            named.id, balancer.it.id
        );
        Problem::new(owner.object(), Reason::BadAnnotation, message)
            .at(named.field.clone())
            .fix("Remove the annotation. To share the other load balancer, delete the Service and create it again.")
    }));
    problems
}

/// Of one transport: TCP and UDP of one number are two ports.
fn conflict(owner: &Owner, it: &LoadBalancer, id: ListenerId, whose: &str) -> Problem {
    let message = format!("port {id} of load balancer {} belongs to {whose}", it.id);
    Problem::new(owner.object(), Reason::PortConflict, message)
        .at("spec.ports")
        .fix("Choose another port, or give the Service a load balancer of its own.")
}
