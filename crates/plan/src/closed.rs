//! Listeners that stay closed: what is to protect them is not understood, was never there, or cannot be had where it is asked
//! for. A Secret that was there and vanished is no reason: it stays in use (`certificates`).

use seaway_model::{
    Kind, L4, Name, ObjectRef, Problem, Reason,
    fact::ServiceKind,
    load_balancer::{Certificate, Protocol},
};

use crate::{
    annotations::{AUTHORITIES, CLIENT_RATE, CLIENTS, TLS, TLS_PORTS, nobody},
    basic_auth,
    certificates::Certificates,
    demand::{Demand, DemandPort},
    forward_auth,
    unheeded::is_at_front_door,
};

/// Whether nothing listens at this port. Why is told where it was read, by `service::uncertified`, or by [`problem`].
pub(crate) fn is_closed(demand: &Demand, wanted: &DemandPort, certificates: &Certificates) -> bool {
    demand.cloud.is_none()
        && (demand.wishes.closed
            || demand.sources() == nobody()
            || is_uncertified(demand, wanted, certificates)
            || basic_auth::cannot_require_password(demand, wanted)
            || forward_auth::is_closed(demand, wanted)
            || is_open_to_others(demand, wanted)
            || is_unlimited(demand, wanted)
            || is_in_the_clear(demand, wanted)
            || is_open_by_mistake(demand, wanted)
            || is_only_at_entrances(demand))
}

/// It is to be at entrances of the front door and nowhere else: its own address would be open to all.
pub(crate) fn is_only_at_entrances(demand: &Demand) -> bool {
    !demand.wishes.http.entrances.is_empty() && !demand.hosts_only
}

/// TLS was to end at a port that there is not: it may be this one that was meant.
fn is_open_by_mistake(demand: &Demand, wanted: &DemandPort) -> bool {
    let is_plain = wanted.port.protocol == L4::Tcp && !demand.ends_tls(wanted);
    is_plain && !is_sent_on(demand, wanted) && !demand.unknown_tls_ports().is_empty()
}

/// Clients of this port are only sent to https.
fn is_sent_on(demand: &Demand, wanted: &DemandPort) -> bool {
    demand.wishes.tls.redirect == Some(true)
        && demand.tls_port().is_some()
        && demand.protocol(&wanted.port) == Protocol::Http
}

/// TLS ends there, and none of its certificates was ever seen, or none of those who vouch for clients.
fn is_uncertified(demand: &Demand, wanted: &DemandPort, certificates: &Certificates) -> bool {
    if !demand.ends_tls(wanted) {
        return false;
    }
    let namespace = &demand.service.meta.namespace;
    let lacks = |it: &ObjectRef, part: fn(&Certificate) -> &Name| {
        certificates.held(it).is_none_or(|it| part(it).is_empty()) && !certificates.is_withheld(it)
    };
    let clients = demand.wishes.tls.authorities.iter();
    let mut clients = clients.map(|it| ObjectRef::new(Kind::Secret, namespace.clone(), it.clone()));
    demand.secrets().iter().all(|it| lacks(it, |it| &it.chain))
        || clients.any(|it| lacks(&it, |it| &it.authorities))
}

/// Clients have to show a certificate, and nobody would ask for it there.
fn is_open_to_others(demand: &Demand, wanted: &DemandPort) -> bool {
    if demand.cloud.is_some() || option(demand).is_none() {
        return false;
    }
    let tls = &demand.wishes.tls;
    if demand.ends_tls(wanted) {
        return tls.authorities.is_none();
    }
    // Whoever names the ports means the others to be open.
    let is_left_out = !tls.ports.is_empty() && !demand.secrets().is_empty();
    !is_sent_on(demand, wanted) && !is_left_out
}

/// Requests of each client are limited, and there are none at this port. Where the configuration serves it beside the front door,
/// they are counted there.
fn is_unlimited(demand: &Demand, wanted: &DemandPort) -> bool {
    let is_limited = demand.cloud.is_none() && demand.wishes.http.rate.is_some();
    let is_elsewhere = demand.hosts_only && is_at_front_door(demand);
    is_limited && !is_elsewhere && demand.protocol(&wanted.port) != Protocol::Http
}

/// The Service has a certificate, and no port where TLS could end.
fn is_in_the_clear(demand: &Demand, wanted: &DemandPort) -> bool {
    if demand.cloud.is_some() || demand.wishes.tls.secrets.is_empty() || is_at_front_door(demand) {
        return false;
    }
    let has_own_address = demand.service.kind == ServiceKind::LoadBalancer;
    match demand.hosts_only {
        true => !has_own_address && wanted.port.protocol == L4::Tcp,
        false => demand.ports.iter().all(|it| it.port.protocol != L4::Tcp),
    }
}

/// What is told of ports where a limit, or TLS, cannot be had.
pub(crate) fn lacking(demand: &Demand) -> Vec<Problem> {
    let closed = |is_closed: fn(&Demand, &DemandPort) -> bool| {
        let ports = demand.ports.iter().filter(|it| is_closed(demand, it));
        let ports: Vec<String> = ports.map(|it| it.id().to_string()).collect();
        (!ports.is_empty()).then(|| ports.join(", "))
    };
    let problem = |option: &'static str, message: String, fix: &str| {
        let problem = Problem::new(demand.object(), Reason::Unsupported, message);
        problem.at(demand.wishes.field_of(option)).fix(fix)
    };
    let unlimited = closed(is_unlimited).map(|ports| {
        let message =
            format!("requests can be counted only where Seaway speaks HTTP: no listener is opened at port {ports}");
        let fix = "Set seaway.dev/protocol: http, or a certificate in seaway.dev/tls; give other ports a Service of their own. \
                   seaway.dev/max-connections and seaway.dev/max-new-connections-per-second limit connections.";
        problem(CLIENT_RATE, message, fix)
    });
    let in_the_clear = closed(is_in_the_clear).map(|ports| match demand.hosts_only {
        true => problem(
            TLS,
            format!(
                "TLS does not end where the configuration serves a Service (tcpServices): no listener is opened at port {ports}"
            ),
            "Set spec.type: LoadBalancer, or serve the Service at the front door with seaway.dev/host; or remove the annotation.",
        ),
        false => problem(
            TLS,
            format!("TLS ends at TCP ports, and the Service has none: no listener is opened at port {ports}"),
            "Add a TCP port, or remove the annotation.",
        ),
    });
    unlimited.into_iter().chain(in_the_clear).collect()
}

/// What says that clients have to show a certificate.
fn option(demand: &Demand) -> Option<&'static str> {
    let wishes = &demand.wishes;
    let says = |option: &&str| wishes.written.contains_key(*option);
    [AUTHORITIES, CLIENTS].into_iter().filter(|_| !wishes.tls.clients_optional).find(says)
}

/// What is told of ports of `tls-ports` that the Service does not have.
pub(crate) fn unknown_tls_ports(demand: &Demand) -> Option<Problem> {
    let unknown = demand.unknown_tls_ports();
    if unknown.is_empty() {
        return None;
    }
    let closed = demand.ports.iter().filter(|it| is_open_by_mistake(demand, it));
    let closed: Vec<String> = closed.map(|it| it.id().to_string()).collect();
    let follows = match (demand.cloud.is_some(), closed.is_empty()) {
        (true, _) => "; in a cloud nothing is created or changed until this is corrected".to_owned(),
        (false, true) => String::new(),
        (false, false) => format!(
            ": no listener is opened at port {}, where TLS may have been meant to end",
            closed.join(", ")
        ),
    };
    let message =
        format!("TLS is to end at port {}, which the Service does not have{follows}", unknown.join(", "));
    let tcp = demand.service.ports.iter().filter(|it| it.protocol == L4::Tcp);
    let has: Vec<String> = tcp.map(|it| format!("{} {}", it.port, it.name).trim_end().to_owned()).collect();
    let problem = Problem::new(demand.owner.object(), Reason::BadAnnotation, message);
    let fix = format!("Name ports of the Service, or remove the entry. Its TCP ports: {}.", has.join(", "));
    Some(problem.at(demand.wishes.field_of(TLS_PORTS)).fix(fix))
}

/// What is told of ports that would be open to clients without a certificate.
pub(crate) fn problem(demand: &Demand) -> Option<Problem> {
    let option = option(demand)?;
    let open: Vec<String> = (demand.ports.iter())
        .filter(|it| is_open_to_others(demand, it))
        .map(|it| it.id().to_string())
        .collect();
    if open.is_empty() {
        return None;
    }
    let (why, fix) = match demand.wishes.tls.authorities {
        Some(_) => (
            "TLS does not end there",
            "Name its certificate in seaway.dev/tls. For a port 80 beside others, set seaway.dev/https-redirect: \
             \"true\", or name the ports where TLS ends in seaway.dev/tls-ports.",
        ),
        None => ("no authorities are named", "Name their Secret in seaway.dev/client-authorities."),
    };
    let message = format!(
        "clients have to show a certificate, and {why}: no listener is opened at port {}",
        open.join(", ")
    );
    let problem = Problem::new(demand.owner.object(), Reason::Unsupported, message);
    Some(problem.at(demand.wishes.field_of(option)).fix(fix))
}
