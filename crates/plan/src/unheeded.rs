//! What a Service asks for where it does nothing, as `annotations::places` says: to pass over that in silence would look like
//! a promise.

use seaway_model::{
    Name, Problem, Reason,
    fact::{Labels, ServiceKind},
    load_balancer::Protocol,
};

use crate::{
    annotations::{
        ADOPT, AUTHORITIES, BASIC_AUTH, BURST, CLIENT_RATE, CLIENTS, COMPRESS, COMPRESS_PRIVATE,
        COMPRESS_TYPES, DNS_NAMES, DNS_TTL, ENTRANCE, FORWARD_AUTH, FORWARD_AUTHORIZATION, FORWARD_HEADERS,
        OptionScope, PASSTHROUGH, PROTOCOL, RATE_KEY, REALM, REDIRECT, ServiceOptions, TLS_PORTS,
        TRANSPARENT, asks, of_clouds, places,
    },
    closed::is_only_at_entrances,
    cloud::is_told,
    demand::{Demand, DemandPort},
};

/// Annotations that are about requests and answers.
const OF_HTTP: [&str; 16] = [
    REALM,
    FORWARD_AUTHORIZATION,
    FORWARD_HEADERS,
    CLIENT_RATE,
    BURST,
    RATE_KEY,
    COMPRESS,
    COMPRESS_TYPES,
    COMPRESS_PRIVATE,
    "seaway.dev/sticky-cookie",
    "seaway.dev/sticky-cookie-mode",
    "seaway.dev/max-body-size",
    "seaway.dev/timeout-answer",
    "seaway.dev/reuse-connections",
    "seaway.dev/timeout-keep-alive",
    "seaway.dev/passive-ejection-errors",
];

pub(crate) fn unheeded(demand: &Demand) -> Vec<Problem> {
    let mut problems = Vec::new();
    if demand.cloud.is_none() {
        // A Service of another controller on bare metal is adopted by the same annotation.
        let only_there = of_clouds().filter(|option| *option != ADOPT);
        let written = only_there.filter_map(|option| demand.wishes.written.get(option));
        // What closes the Service is reported where it is read.
        let written = written.filter(|field| demand.problems.iter().all(|it| it.field != **field));
        problems.extend(written.map(|field| {
            let message = "this annotation is for load balancers of a cloud, and this Service is served by Seaway's hosts";
            let problem = Problem::new(demand.owner.object(), Reason::Unsupported, message);
            problem.at(field.clone()).fix("Remove the annotation, or set spec.loadBalancerClass to that of the cloud (docs/octavia.md).")
        }));
    }
    problems.extend(of_http(demand));
    problems.extend(of_configuration(demand));
    problems.extend(of_protocol(demand));
    problems.extend(of_entrances(demand));
    problems.extend(of_tls(demand));
    problems.extend(without_http(demand));
    problems
}

/// A redirect from http where TLS ends at each port: no port is left whose requests could be redirected.
fn without_http(demand: &Demand) -> Option<Problem> {
    let is_asked = demand.cloud.is_none() && demand.wishes.tls.redirect == Some(true);
    let to = demand.tls_port().filter(|_| is_asked && !is_at_front_door(demand))?;
    let is_http = |it: &DemandPort| !demand.ends_tls(it) && demand.protocol(&it.port) == Protocol::Http;
    if demand.ports.iter().any(is_http) {
        return None;
    }
    let ends = demand.ports.iter().filter(|it| demand.ends_tls(it)).map(|it| it.port.port.to_string());
    let ends: Vec<String> = ends.collect();
    let message = format!(
        "this annotation has no effect: TLS ends at port {}, and the Service has no port for HTTP beside it",
        ends.join(", ")
    );
    let fix = match ends.len() {
        1 => "Add the port 80, whose requests are then redirected; or remove the annotation.".to_owned(),
        _ => format!(
            "Name the ports where TLS ends, such as {TLS_PORTS}: \"{to}\"; requests to the others are then redirected."
        ),
    };
    let problem = Problem::new(demand.owner.object(), Reason::Unsupported, message);
    Some(problem.at(demand.wishes.field_of(REDIRECT)).fix(fix))
}

/// What is written and asks for something that is had at none of these places: by our name, and where it stands.
pub(crate) fn idle<'w>(
    wishes: &'w ServiceOptions,
    annotations: &'w Labels,
    at: &'w [OptionScope],
) -> impl Iterator<Item = (&'static str, &'w Name)> {
    let value = |field: &Name| {
        annotations.iter().find(|(key, _)| field.ends_with(&format!("[{key}]"))).map(|it| it.1)
    };
    let written =
        wishes.written.iter().filter(|(option, _)| !places(option).iter().any(|it| at.contains(it)));
    written
        .filter(move |(option, field)| value(field).is_none_or(|it| asks(option, it)))
        .map(|(option, field)| (*option, field))
}

/// What the configuration serves beside a Service's own address, or beside the front door, is not what its annotations are about.
fn is_about_others(demand: &Demand) -> bool {
    demand.hosts_only && (demand.service.kind == ServiceKind::LoadBalancer || is_at_front_door(demand))
}

/// Whether the Service wants to be at the front door beside its own address.
pub(crate) fn is_at_front_door(demand: &Demand) -> bool {
    let http = &demand.wishes.http;
    http.front_door == Some(true) || http.names_entrances()
}

/// What is about TLS, or about the front door, of a Service that has neither.
fn of_tls(demand: &Demand) -> Vec<Problem> {
    if is_about_others(demand) {
        return Vec::new();
    }
    let in_cloud = demand.cloud.is_some();
    let mut at: Vec<OptionScope> = Vec::new();
    for wanted in &demand.ports {
        at.extend(demand.ends_tls_anywhere(wanted).then_some(OptionScope::Tls));
        at.push(if demand.protocol(&wanted.port) == Protocol::Http {
            OptionScope::Http
        } else {
            OptionScope::Tcp
        });
    }
    if is_at_front_door(demand) {
        at.push(if demand.wishes.tls.through { OptionScope::Passthrough } else { OptionScope::FrontDoor });
    }
    // Where clients have to show a certificate, nothing is opened without TLS, and that is told.
    let told_elsewhere = |it: &str| {
        OF_HTTP.contains(&it)
            || it == AUTHORITIES && !demand.wishes.tls.clients_optional
            || [BASIC_AUTH, CLIENTS, ENTRANCE, FORWARD_AUTH, PASSTHROUGH, TRANSPARENT].contains(&it)
            || of_clouds().any(|of| of == it)
            || in_cloud && is_told(it)
    };
    let idle = idle(&demand.wishes, &demand.service.meta.annotations, &at)
        .filter(|(option, _)| !told_elsewhere(option));
    let problem = |(option, field): (&str, &Name)| {
        let (what, fix) = match places(option) {
            [OptionScope::FrontDoor, ..] => (
                "this annotation has no effect: it is about the front door, and this Service is not at the front door",
                "Set seaway.dev/front-door: \"true\"; or remove it.",
            ),
            all if all.contains(&OptionScope::Http) => (
                "this annotation has no effect: it is about TLS to members, which Seaway uses only where \
                 the Service speaks HTTP or TLS ends; this Service passes bytes on unchanged",
                "Set seaway.dev/protocol: http, or name a certificate in seaway.dev/tls; or remove it.",
            ),
            _ => (
                "this annotation has no effect: it is about TLS, which does not end at this Service's own address",
                match in_cloud {
                    true => "Name a certificate in seaway.dev/tls-container or seaway.dev/tls; or remove it.",
                    false => "Name a certificate in seaway.dev/tls; or remove it.",
                },
            ),
        };
        Problem::new(demand.owner.object(), Reason::Unsupported, what).at(field.clone()).fix(fix)
    };
    idle.map(problem).collect()
}

/// What is about an address of its own, of a Service that the configuration serves at those of hosts.
fn of_configuration(demand: &Demand) -> Vec<Problem> {
    const OF_ADDRESSES: [&str; 6] = [
        "seaway.dev/address",
        "seaway.dev/address-pool",
        "seaway.dev/share",
        "seaway.dev/share-across-namespaces",
        DNS_NAMES,
        DNS_TTL,
    ];
    if !demand.hosts_only || is_about_others(demand) {
        return Vec::new();
    }
    let written = OF_ADDRESSES.iter().filter_map(|option| demand.wishes.written.get(option));
    let problem = |field: &Name| {
        let what = "this annotation has no effect: it is about an address of the Service, and the configuration serves the \
                    Service at the addresses of hosts (tcpServices, udpServices)";
        let problem = Problem::new(demand.object(), Reason::Unsupported, what);
        problem.at(field.clone()).fix("Set spec.type: LoadBalancer, or remove the annotation.")
    };
    written.map(problem).collect()
}

/// HTTP where no port can speak it.
fn of_protocol(demand: &Demand) -> Option<Problem> {
    let is_asked = demand.cloud.is_none() && demand.wishes.http.spoken == Some(true);
    let is_spoken = demand.ports.iter().any(|it| demand.protocol(&it.port) == Protocol::Http);
    if !is_asked || is_spoken || is_about_others(demand) {
        return None;
    }
    let what = match demand.hosts_only {
        true => "this annotation has no effect: tcpServices and udpServices pass bytes on unchanged",
        false => "this annotation has no effect: no port of the Service can speak HTTP",
    };
    let problem = Problem::new(demand.object(), Reason::Unsupported, what);
    Some(problem.at(demand.wishes.field_of(PROTOCOL)).fix("Add a TCP port, or remove the annotation."))
}

/// What is at entrances alone has no listeners of its own.
fn of_entrances(demand: &Demand) -> Option<Problem> {
    let what = match demand.cloud {
        Some(_) => {
            "the Service is to be served only at entrances of the front door: in a cloud nothing is created \
             or changed"
        }
        None => {
            "the Service is to be served only at entrances of the front door: no listener is opened at its \
             own address"
        }
    };
    let problem = Problem::new(demand.owner.object(), Reason::Unsupported, what);
    let problem = problem.at(demand.wishes.field_of(ENTRANCE));
    let fix = "Set spec.type: ClusterIP and seaway.dev/front-door: \"true\"; or remove the annotation.";
    is_only_at_entrances(demand).then(|| problem.fix(fix))
}

fn of_http(demand: &Demand) -> Vec<Problem> {
    let elsewhere = is_at_front_door(demand);
    let spoken = demand.ports.iter().any(|it| demand.protocol(&it.port) == Protocol::Http);
    if elsewhere || spoken || is_about_others(demand) {
        return Vec::new();
    }
    // No listener is opened without this one, and that is told.
    let is_told = |it: &str| it == CLIENT_RATE && demand.cloud.is_none();
    let written = OF_HTTP.iter().filter(|option| !is_told(option));
    let written = written.filter_map(|option| demand.wishes.written.get(option));
    let told = written.map(|field| {
        Problem::new(
            demand.owner.object(),
            Reason::Unsupported,
            "this annotation has no effect: it is about HTTP, which this Service does not speak at its own address",
        )
        .at(field.clone())
        .fix("Set seaway.dev/protocol: http, or seaway.dev/front-door: \"true\"; or remove it.")
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seaway_model::{Config, fact::TargetPort};
    use seaway_testkit::facts;

    use super::*;

    #[test]
    fn to_ask_for_adoption_is_no_problem_on_bare_metal() {
        for (annotation, expected) in [("seaway.dev/adopt", 0), ("seaway.dev/cloud-class", 1)] {
            let mut service = facts::service("shop", &[("main", 80, TargetPort::Number(80))]);
            service.meta.annotations = [(annotation.into(), "true".into())].into();
            let demand = Demand::of_service(&Arc::new(service), &Config::default()).expect("it is ours");
            let problems = unheeded(&demand);
            assert_eq!(problems.len(), expected, "{annotation}: {problems:?}");
        }
    }

    #[test]
    fn what_is_asked_of_http_is_heeded_or_told() {
        for (say, expected) in [
            (&[("seaway.dev/sticky-cookie", "true")][..], 1),
            (&[("serviceloadbalancer/lb.cookie-sticky-session", "true")], 1),
            (&[("seaway.dev/max-body-size", "1Mi"), ("seaway.dev/timeout-answer", "5s")], 2),
            (&[("seaway.dev/reuse-connections", "strict")], 1),
            (&[("seaway.dev/sticky-cookie", "true"), ("seaway.dev/protocol", "http")], 0),
            (&[("seaway.dev/sticky-cookie", "true"), ("seaway.dev/front-door", "true")], 0),
            (&[("seaway.dev/sticky-cookie", "true"), ("seaway.dev/host", "a.example")], 0),
            (&[("seaway.dev/timeout-connect", "5s")], 0),
        ] {
            let mut service = facts::service("shop", &[("main", 80, TargetPort::Number(80))]);
            service.meta.annotations =
                say.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let demand = Demand::of_service(&Arc::new(service), &Config::default()).expect("it is ours");
            let told = unheeded(&demand);
            assert_eq!(told.len(), expected, "{say:?}: {told:?}");
        }
    }
}
