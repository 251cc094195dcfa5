//! Why this address, why these members, and why not: the plan of one Service, told to people.

use std::fmt::Write;

use seaway_model::{
    Name, Owner, Problem,
    fact::{EndpointAddress, Service, ServiceKind, TargetPort},
    load_balancer::{Affinity, Bind, MemberState},
};

use crate::{
    demand::is_ours,
    index::ServiceKey,
    world::{Overview, World},
};

/// Several lines; `Err` names what there is instead.
pub fn explain(world: &World, key: &ServiceKey) -> Result<String, String> {
    let Some(service) = world.index().service(key) else { return Err(unknown(world, key)) };
    let mut text = String::new();
    let owners: Vec<Overview> = (world.overview().into_iter())
        .filter(|it| it.demand.as_ref().is_some_and(|demand| demand.service.meta == service.meta))
        .collect();
    kind(&mut text, world, service, &owners);
    for owner in &owners {
        addresses(&mut text, owner);
        listeners(&mut text, owner);
    }
    members(&mut text, world, key, service, &owners);
    problems(&mut text, &owners);
    Ok(text)
}

fn unknown(world: &World, key: &ServiceKey) -> String {
    let alike: Vec<String> = (world.index().services())
        .filter(|(it, _)| it.name == key.name || crate::spelling::distance(&it.name, &key.name) <= 2)
        .map(|(it, _)| format!("{}/{}", it.namespace, it.name))
        .collect();
    let near =
        if alike.is_empty() { String::new() } else { format!("; did you mean {}?", alike.join(" or ")) };
    format!("there is no Service {}/{}{near}", key.namespace, key.name)
}

fn kind(text: &mut String, world: &World, service: &Service, owners: &[Overview]) {
    let kind = match &service.kind {
        ServiceKind::ClusterIp => "ClusterIP".to_owned(),
        ServiceKind::NodePort => "NodePort".to_owned(),
        ServiceKind::LoadBalancer => "LoadBalancer".to_owned(),
        ServiceKind::ExternalName(name) => format!("ExternalName {name}"),
    };
    let class = service.class.as_ref().map_or("no class".to_owned(), |it| format!("class {it}"));
    let _ = writeln!(text, "Service {}/{}: {kind}, {class}", service.meta.namespace, service.meta.name);
    if service.kind == ServiceKind::LoadBalancer && !is_ours(service, world.config()) {
        let ours: Vec<&str> = world.config().classes.iter().map(Name::as_str).collect();
        let _ = writeln!(text, "  not served: its class is somebody else's; ours are {}", ours.join(", "));
    } else if owners.is_empty() {
        let _ = writeln!(
            text,
            "  not served: it is no LoadBalancer, and neither tcpServices nor udpServices names it"
        );
    }
    for owner in owners {
        if let Owner::Config(key) = &owner.status.owner {
            let _ = writeln!(text, "  served because {key} of the configuration names it");
        }
    }
}

fn addresses(text: &mut String, overview: &Overview) {
    let _ = writeln!(text, "Addresses:");
    let pool = overview.status.pool.as_ref().map_or("?", Name::as_str);
    let wishes = overview.demand.as_ref().map(|it| &it.wishes);
    for bind in &overview.load_balancer.binds {
        let why = match bind {
            Bind::Host(_) => "this host's own".to_owned(),
            Bind::Ledger(ip) if wishes.is_some_and(|it| it.requested.contains(ip)) => {
                format!(
                    "from pool {pool}, requested by {}",
                    wishes.map_or("", |it| it.requested_field.as_str())
                )
            }
            Bind::Ledger(_) => format!("from pool {pool}"),
            Bind::Cloud(_) => "given by the cloud".to_owned(),
        };
        let ip = bind.ip().map_or("pending".to_owned(), |ip| ip.to_string());
        let _ = writeln!(text, "  {ip}  {why}");
    }
    if overview.load_balancer.binds.is_empty() {
        let _ = writeln!(text, "  none; see the problems below");
    }
    if let Some(key) = wishes.and_then(|it| it.sharing.as_ref()) {
        let _ = writeln!(text, "  may be shared by Services that say {key:?} too");
    }
}

fn listeners(text: &mut String, overview: &Overview) {
    let _ = writeln!(text, "Listeners:");
    for (id, listener) in &overview.load_balancer.listeners {
        let answers =
            overview.status.serving.iter().filter(|it| (it.protocol, it.port) == (id.l4, id.port)).count();
        let _ = write!(text, "  {id}  {}", listener.name);
        if !listener.sources.is_empty() {
            let nets: Vec<String> = listener.sources.iter().map(ToString::to_string).collect();
            let _ = write!(text, ", only for {}", nets.join(", "));
        }
        if let Some(most) = listener.limits.connections {
            let _ = write!(text, ", at most {most} connections");
        }
        if let Some(most) = listener.limits.new_per_second {
            let _ = write!(text, ", at most {most} new a second");
        }
        let _ = writeln!(text, "{}", if answers > 0 { ", answering" } else { "" });
    }
}

fn members(text: &mut String, world: &World, key: &ServiceKey, service: &Service, owners: &[Overview]) {
    for overview in owners {
        for (id, pool) in &overview.load_balancer.pools {
            let _ = write!(text, "Members of {id}: {}", pool.balance.as_str());
            if let Some(Affinity::ClientIp(time)) = pool.affinity {
                let _ = write!(text, ", a client keeps its member for {}s", time.as_secs());
            }
            let _ = writeln!(text);
            for member in &pool.members {
                let state = match member.state {
                    MemberState::Ready => "ready",
                    MemberState::Draining => "draining: it is terminating, and still serves what it has",
                };
                let name = member.host_name.as_ref().map_or(String::new(), |it| format!(" ({it})"));
                let weight =
                    if member.weight == 1 { String::new() } else { format!(", weight {}", member.weight) };
                let _ = writeln!(text, "  {}{name}  {state}{weight}", member.at);
            }
            if pool.members.is_empty() {
                let _ = writeln!(text, "  nobody");
            }
        }
    }
    for port in &service.ports {
        let target = match &port.target {
            TargetPort::Number(number) => number.to_string(),
            TargetPort::Name(name) => format!("{:?}", name.as_str()),
        };
        let _ =
            writeln!(text, "Port {}/{} {:?} leads to {target}", port.port, port.protocol, port.name.as_str());
    }
    for slice in world.index().endpoints(key) {
        let _ = writeln!(text, "{}: {} endpoints", slice.object, slice.endpoints.len());
        for endpoint in slice.endpoints.iter().filter(|it| !it.ready || it.terminating) {
            let at = match &endpoint.at {
                EndpointAddress::Ip(ip) => ip.to_string(),
                EndpointAddress::Name(name) => name.to_string(),
            };
            let why = match (endpoint.terminating, endpoint.serving) {
                (true, true) => "terminating, still serving: it drains",
                (true, false) => "terminating: left out",
                (false, _) if service.publish_not_ready => {
                    "not ready, used because of publishNotReadyAddresses"
                }
                (false, _) => "not ready: left out",
            };
            let _ = writeln!(text, "  {at}  {why}");
        }
    }
}

fn problems(text: &mut String, owners: &[Overview]) {
    let all: Vec<&Problem> = owners.iter().flat_map(|it| &it.status.problems).collect();
    if all.is_empty() {
        return;
    }
    let _ = writeln!(text, "Problems:");
    for problem in all {
        let _ = writeln!(text, "  {problem}");
        for line in problem.fix.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
}
