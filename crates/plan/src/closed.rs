//! Listeners that stay closed: what is to protect them is not understood, was never there, or cannot be had where it is asked
//! for. A Secret that was there and vanished is no reason: it stays in use (`certificates`).

use seaway_model::{
    Kind, L4, Name, ObjectRef, Problem, Reason,
    load_balancer::{Certificate, Protocol},
};

use crate::{
    annotations::{AUTHORITIES, CLIENTS, TLS_PORTS, nobody},
    basic_auth,
    certificates::Certificates,
    demand::{Demand, DemandPort},
    forward_auth,
};

/// Whether nothing listens at this port. Why is told where it was read, by `service::uncertified`, or by [`problem`].
pub(crate) fn is_closed(demand: &Demand, wanted: &DemandPort, certificates: &Certificates) -> bool {
    demand.cloud.is_none()
        && (demand.wishes.closed
            || demand.sources() == nobody()
            || is_uncertified(demand, wanted, certificates)
            || basic_auth::is_closed(demand, wanted)
            || forward_auth::is_closed(demand, wanted)
            || is_open_to_others(demand, wanted)
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
    if demand.cloud.is_some() || wanted.port.protocol != L4::Tcp || option(demand).is_none() {
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
