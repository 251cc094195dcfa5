//! Why this address, why these members, and why not: the plan of one Service, told to people.

mod endpoints;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::SocketAddr,
    sync::Arc,
};

use ipnet::IpNet;
use seaway_model::{
    Name, Owner, Pool, PoolId, Problem,
    dns::DnsProvider,
    fact::{Service, ServiceKind},
    load_balancer::{Affinity, Bind, Family, MemberState, RateLimit, RequestRate},
};

use crate::{
    demand::{cloud_of, is_ours},
    front_door,
    index::ServiceKey,
    world::{DnsNameView, Overview, World},
};

/// How members stand at this moment, as the process says that serves them: `up`, `down: connection refused`.
pub type MemberStatuses = BTreeMap<(PoolId, SocketAddr), String>;

/// Several lines; `Err` names what there is instead.
pub fn explain(world: &World, key: &ServiceKey) -> Result<String, String> {
    told(world, key, |_| false, None)
}

/// As above, without Problems that are none where nobody looked.
pub fn explain_but(
    world: &World,
    key: &ServiceKey,
    is_unknown: impl Fn(&Problem) -> bool,
) -> Result<String, String> {
    told(world, key, is_unknown, None)
}

/// As above, with how each member stands.
pub fn explain_running(
    world: &World,
    key: &ServiceKey,
    standings: &MemberStatuses,
) -> Result<String, String> {
    told(world, key, |_| false, Some(standings))
}

fn told(
    world: &World,
    key: &ServiceKey,
    is_unknown: impl Fn(&Problem) -> bool,
    standings: Option<&MemberStatuses>,
) -> Result<String, String> {
    let Some(service) = world.index().service(key) else { return Err(unknown(world, key)) };
    let mut text = String::new();
    let owners: Vec<Overview> = (world.overview().into_iter())
        .filter(|it| it.demand.as_ref().is_some_and(|demand| demand.service.meta == service.meta))
        .collect();
    kind(&mut text, world, service, &owners);
    front_door(&mut text, world, key, service);
    for owner in &owners {
        addresses(&mut text, owner);
        names(&mut text, world, owner);
        listeners(&mut text, owner);
    }
    members(&mut text, world, key, service, &owners, standings);
    problems(&mut text, world, key, service, &owners, is_unknown);
    Ok(text)
}

/// Where it is published in DNS.
fn names(text: &mut String, world: &World, overview: &Overview) {
    for DnsNameView { name, zone, ttl } in world.dns_names(&overview.status.owner) {
        let _ = match zone.as_deref().map(|zone| (&zone.name, &zone.by)) {
            Some((zone, DnsProvider::Updates { server, .. })) => writeln!(
                text,
                "  in DNS as {name}, with the addresses that answer: zone {zone} at {server}, TTL {ttl} s"
            ),
            Some((zone, DnsProvider::Endpoints)) => writeln!(
                text,
                "  in DNS as {name}, with the addresses that answer: zone {zone} by external-dns (DNSEndpoint), TTL {ttl} s"
            ),
            None => writeln!(text, "  not published in DNS by Seaway: {name}"),
        };
    }
}

/// So many names are listed where none is near.
const LISTED: usize = 8;

fn unknown(world: &World, key: &ServiceKey) -> String {
    let shown = |it: &ServiceKey| format!("{}/{}", it.namespace, it.name);
    let mut all: Vec<&ServiceKey> = world.index().services().map(|(it, _)| it).collect();
    all.sort();
    let is_alike =
        |it: &&&ServiceKey| it.name == key.name || crate::spelling::distance(&it.name, &key.name) <= 2;
    let alike: Vec<String> = all.iter().filter(is_alike).map(|it| shown(it)).collect();
    let listed: Vec<String> = all.iter().take(LISTED).map(|it| shown(it)).collect();
    let others = match (alike.is_empty(), all.len().saturating_sub(LISTED)) {
        (false, _) => format!("; did you mean {}?", alike.join(" or ")),
        (true, _) if all.is_empty() => ", nor any other".to_owned(),
        (true, 0) => format!("; the Services here are {}", listed.join(", ")),
        (true, more) => format!("; the Services here are {}, and {more} more", listed.join(", ")),
    };
    format!("there is no Service {}/{}{others}", key.namespace, key.name)
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
    for owner in owners {
        served_by(text, owner);
    }
    if owners.is_empty() && world.pools_at_door(&key_of(service)).is_empty() {
        let _ = writeln!(text, "  not served: {}", not_served(world, service));
    }
}

/// Whose load balancer it has.
fn served_by(text: &mut String, overview: &Overview) {
    if let Owner::Config(key) = &overview.status.owner {
        let _ = writeln!(text, "  served because {key} of the configuration names it");
    }
    let Some(demand) = &overview.demand else { return };
    let Some((class, _)) = &demand.cloud else { return };
    let _ = match (demand.released, &demand.service.class) {
        (true, Some(_)) => writeln!(
            text,
            "  not changed: its load balancer of the cloud ({class}) is left to another controller, and stays as it is"
        ),
        (true, None) => writeln!(
            text,
            "  not changed: no setting chooses the cloud ({class}) for this Service; its load balancer \
             there stays as it is"
        ),
        (false, Some(_)) => writeln!(text, "  served by a load balancer of the cloud ({class})"),
        (false, None) => writeln!(
            text,
            "  served by a load balancer of the cloud ({class}), which serves Services without a class"
        ),
    };
}

/// Why it has no load balancer of ours.
fn not_served(world: &World, service: &Service) -> String {
    let config = world.config();
    if service.kind != ServiceKind::LoadBalancer {
        return "the Service is not of type LoadBalancer, not at the front door, and neither tcpServices nor \
                udpServices names it"
            .to_owned();
    }
    let cloud = cloud_of(service, config).map(|(class, _)| class);
    if service.leaving {
        return match cloud {
            Some(class) => format!(
                "the Service is being deleted, and stays until its load balancer in the cloud ({class}) is gone"
            ),
            None => "the Service is being deleted".to_owned(),
        };
    }
    if let Some(class) = cloud {
        return format!(
            "a cloud serves the Service ({class}): seaway controller --cloud-config makes its load \
             balancer, and no host serves it"
        );
    }
    let ours = config.classes.iter().chain(config.clouds.keys());
    let ours: Vec<&str> = ours.map(Name::as_str).collect();
    let ours = ours.join(", ");
    match (&service.class, is_ours(service, config)) {
        (Some(_), false) => {
            format!(
                "the loadBalancerClass of the Service belongs to another controller; Seaway serves {ours}"
            )
        }
        (None, false) => format!(
            "the Service has no spec.loadBalancerClass, and with the defaultDriver that this command read, \
             Seaway serves no Service without a class. Set one of: {ours}"
        ),
        (_, true) => "the Service is not planned yet".to_owned(),
    }
}

/// Under which paths and host names it is there, by itself or through routes; or why not.
fn front_door(text: &mut String, world: &World, key: &ServiceKey, service: &Service) {
    let view = world.front_door();
    let own = format!("{}/{}:", key.namespace, key.name);
    let mut told = String::new();
    for entrance in view.iter().flat_map(|it| &it.entrances) {
        for lead in
            entrance.leads.iter().filter(|lead| lead.pools.iter().any(|(id, _)| id.0.starts_with(&own)))
        {
            let through = if entrance.object == key.object() {
                String::new()
            } else {
                format!(", through {}", entrance.object)
            };
            let _ = write!(told, "  {}  leads to {}{through}", lead.at, lead.to);
            only_for(&mut told, &lead.sources, &lead.denied);
            at_most(&mut told, &lead.rates);
            told.push('\n');
        }
        for lost in entrance.lost.iter().filter(|_| entrance.object == key.object()) {
            let _ = writeln!(told, "  {}  leads to {} instead", lost.claims.join(", "), lost.to);
        }
    }
    if let Some(view) = view.filter(|_| !told.is_empty()) {
        let at: Vec<String> = view.at.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "Front door, at {}:", at.join(", "));
        for (name, at) in &view.others {
            let at: Vec<String> = at.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "  entrance {name}, at {}", at.join(", "));
        }
        text.push_str(&told);
    } else if let Some(why) = front_door::why_not(service, world.given()) {
        let _ = writeln!(text, "  not at the front door: {why}");
    }
}

fn key_of(service: &Service) -> ServiceKey {
    ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone())
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
        let given = match bind {
            Bind::Cloud(family) => {
                overview.status.addresses.iter().copied().find(|it| Family::of(*it) == *family)
            }
            _ => bind.ip(),
        };
        let ip = given.map_or("pending".to_owned(), |ip| ip.to_string());
        let _ = writeln!(text, "  {ip}  {why}");
    }
    if overview.load_balancer.binds.is_empty() {
        let _ = writeln!(text, "  none; see the problems below");
    }
    if let Some(key) = wishes.and_then(|it| it.sharing.as_ref()) {
        let _ = writeln!(text, "  may be shared by Services that say {key:?} too");
    }
}

fn only_for(text: &mut String, sources: &[IpNet], denied: &[IpNet]) {
    for (says, nets) in [("only for", sources), ("not for", denied)] {
        if !nets.is_empty() {
            let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
            let _ = write!(text, ", {says} {}", nets.join(", "));
        }
    }
}

fn at_most(text: &mut String, rates: &[RateLimit]) {
    for RateLimit { rate, .. } in rates {
        let RequestRate { per_second, burst, key } = rate;
        let _ =
            write!(text, ", at most {per_second} requests a second of each client ({key}), {burst} at once");
    }
}

fn listeners(text: &mut String, overview: &Overview) {
    let _ = writeln!(text, "Listeners:");
    for (id, listener) in &overview.load_balancer.listeners {
        let answers =
            overview.status.serving.iter().filter(|it| (it.protocol, it.port) == (id.l4, id.port)).count();
        let _ = write!(text, "  {id}  {}", listener.name);
        only_for(text, &listener.sources, &listener.denied);
        listener.rules.iter().for_each(|rule| at_most(text, &rule.rates));
        if let Some(most) = listener.limits.connections {
            let _ = write!(text, ", at most {most} connections");
        }
        if let Some(most) = listener.limits.new_per_second {
            let _ = write!(text, ", at most {most} new a second");
        }
        let _ = writeln!(text, "{}", if answers > 0 { ", answering" } else { "" });
    }
}

fn members(
    text: &mut String,
    world: &World,
    key: &ServiceKey,
    service: &Service,
    owners: &[Overview],
    standings: Option<&MemberStatuses>,
) {
    let own = owners.iter().flat_map(|it| it.load_balancer.pools.values().cloned());
    let pools: Vec<Arc<Pool>> = own.chain(world.pools_at_door(key)).collect();
    for pool in &pools {
        members_of(text, pool, standings);
    }
    endpoints::describe(text, world, key, service, &pools);
}

fn members_of(text: &mut String, pool: &Pool, standings: Option<&MemberStatuses>) {
    let _ = write!(text, "Members of {}: {}", pool.id, pool.balance.as_str());
    match &pool.affinity {
        Some(Affinity::ClientIp(time)) => {
            let _ = write!(text, ", a client keeps its member for {}s", time.as_secs());
        }
        Some(Affinity::Cookie { name, .. }) => {
            let _ = write!(text, ", a client keeps its member by the cookie {name}");
        }
        None => {}
    }
    let _ = writeln!(text);
    for member in &pool.members {
        let state = match member.state {
            MemberState::Ready => "listed as ready",
            MemberState::Draining => "draining: the endpoint is terminating, and keeps its open connections",
        };
        let name = member.name.as_ref().or(member.host_name.as_ref());
        let name = name.map_or(String::new(), |it| format!(" ({it})"));
        let backup = if member.backup { ", backup: used while no other member can serve" } else { "" };
        let weight = match member.weight {
            1 => String::new(),
            0 => ", weight 0: it gets no new clients".to_owned(),
            weight => format!(", weight {weight}"),
        };
        let now = standings.map_or(String::new(), |all| {
            let its = all.get(&(pool.id.clone(), member.at)).map_or("not known to the process yet", |it| it);
            format!("; now {its}")
        });
        let _ = writeln!(text, "  {}{name}  {state}{weight}{backup}{now}", member.at);
    }
    let is_gone = |at: &SocketAddr| !pool.members.iter().any(|member| member.at == *at);
    for ((_, at), its) in
        standings.into_iter().flatten().filter(|((id, at), _)| *id == pool.id && is_gone(at))
    {
        let _ = writeln!(text, "  {at}  not a member any more; now {its}");
    }
    if pool.members.is_empty() {
        let _ = writeln!(text, "  none");
    }
}

fn problems(
    text: &mut String,
    world: &World,
    key: &ServiceKey,
    service: &Service,
    owners: &[Overview],
    is_unknown: impl Fn(&Problem) -> bool,
) {
    let itself = Owner::Object { object: key.object(), uid: service.meta.uid.clone() };
    let told = world.status(&itself).map(|it| it.problems).unwrap_or_default();
    let all = owners.iter().flat_map(|it| &it.status.problems).chain(&told);
    let all: BTreeSet<&Problem> = all.filter(|it| !is_unknown(it)).collect();
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
