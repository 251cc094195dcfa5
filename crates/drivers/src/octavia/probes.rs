//! Health monitors of the kinds that Octavia has and our own data plane has not. Pure.
//!
//! With `externalTrafficPolicy: Local` Nodes are asked whether they have pods: that stays so, whatever is said.

use seaway_model::{
    L4, ListenerId, LoadBalancer as Wish, Owner, Pool, Problem, Reason,
    load_balancer::{CloudHealthMonitor, CloudHealthMonitorType, CloudOptions, HealthCheck},
};
use seaway_openstack::{
    octavia::{MonitorType, NewHealthMonitor},
    resource::Edit,
    survey::{Abilities, Ability},
};

use super::{
    checks::{self, LEAST_UDP_DELAY},
    wanted::{Wanted, leads_to},
};

/// What answers where nothing else is said.
const PATH: &str = "/";
const CODES: &str = "200";

pub(super) fn ask(wanted: &mut Wanted, wish: &Wish, outside: &CloudOptions, can: &Abilities) {
    for (id, it) in &mut wanted.listeners {
        let Some((kind, _)) = outside.probe.at(*id) else { continue };
        let pool = wish.listeners.get(id).and_then(|it| leads_to(it)).and_then(|it| wish.pools.get(it));
        if let (Some(pool), Some(monitor)) = (pool, &mut it.monitor)
            && !is_of_nodes(wish, pool, can)
            && suits(kind, pool.l4)
            && has(can, kind, pool.l4)
        {
            write(monitor, kind, &outside.probe);
        }
    }
}

fn write(monitor: &mut NewHealthMonitor, kind: CloudHealthMonitorType, probe: &CloudHealthMonitor) {
    monitor.r#type = MonitorType::from(kind.as_str());
    if kind == CloudHealthMonitorType::UdpConnect {
        monitor.delay = monitor.delay.max(LEAST_UDP_DELAY);
    }
    let or = |it: &Option<seaway_model::Name>, usual: &str| {
        Edit::To(Some(it.as_ref().map_or_else(|| usual.to_owned(), ToString::to_string)))
    };
    (monitor.http_version, monitor.domain_name) = (Edit::Leave, Edit::Leave);
    (monitor.http_method, monitor.url_path, monitor.expected_codes) = match kind {
        CloudHealthMonitorType::Http | CloudHealthMonitorType::Https => {
            (Edit::To(Some("GET".to_owned())), or(&probe.path, PATH), or(&probe.codes, CODES))
        }
        _ => (Edit::Leave, Edit::Leave, Edit::Leave),
    };
}

fn is_of_nodes(wish: &Wish, pool: &Pool, can: &Abilities) -> bool {
    let check: Option<HealthCheck> = checks::check(&wish.options, pool, can);
    check.is_some_and(|it| checks::is_of_nodes(&wish.options, &it))
}

/// What Octavia takes for pools of a transport.
fn suits(kind: CloudHealthMonitorType, l4: L4) -> bool {
    use CloudHealthMonitorType::{Http, Https, Ping, Sctp, Tcp, TlsHello, UdpConnect};
    match l4 {
        L4::Tcp => matches!(kind, Http | Https | TlsHello | Tcp | Ping),
        L4::Udp | L4::Sctp => matches!(kind, UdpConnect | Sctp | Tcp | Http),
    }
}

/// Who does not understand HTTP only connects.
fn has(can: &Abilities, kind: CloudHealthMonitorType, l4: L4) -> bool {
    match (kind, l4) {
        (CloudHealthMonitorType::UdpConnect, _) | (CloudHealthMonitorType::Tcp, L4::Tcp) => true,
        (CloudHealthMonitorType::Http | CloudHealthMonitorType::Tcp, L4::Udp) => can.has(Ability::UdpByHttp),
        _ => can.has(Ability::Http),
    }
}

/// What a Service itself asks for, and a provider or a transport does not have.
pub(super) fn refused(
    wish: &Wish,
    id: ListenerId,
    pool: &Pool,
    owner: &Owner,
    can: &Abilities,
) -> Option<Problem> {
    let probe = &wish.options.cloud.as_ref()?.probe;
    let (kind, is_own) = probe.at(id)?;
    if !is_own || pool.health.is_none() {
        return None;
    }
    if is_of_nodes(wish, pool, can) || !suits(kind, pool.l4) || has(can, kind, pool.l4) {
        return None;
    }
    let message = format!(
        "the provider of this load balancer has no health check by {}: a new port is not created, and one that serves keeps the check that it has",
        kind.as_str()
    );
    let problem = Problem::new(owner.object(), Reason::Unsupported, message);
    Some(problem.fix("Set seaway.dev/cloud-monitor-type: TCP, or remove it."))
}

/// Ports that are asked otherwise than it is said: what is said of all does not suit each.
pub(super) fn told(wish: &Wish, can: &Abilities) -> Vec<(String, &'static str)> {
    let Some(outside) = &wish.options.cloud else { return Vec::new() };
    let mut messages = Vec::new();
    for (id, listener) in &wish.listeners {
        let Some(pool) = leads_to(listener).and_then(|it| wish.pools.get(it)) else { continue };
        let Some((kind, is_own)) = outside.probe.at(*id) else { continue };
        if pool.health.is_none() || is_of_nodes(wish, pool, can) {
            continue;
        }
        let why = match (suits(kind, pool.l4), has(can, kind, pool.l4)) {
            // What the file says of all is meant of those that it suits.
            (false, _) if is_own => format!("Octavia cannot check members of a {} pool by", pool.l4),
            (true, false) if !is_own => "this provider of load balancers has no health check by".to_owned(),
            _ => continue,
        };
        let message = format!("port {id}: {why} {}; the default health check is used instead", kind.as_str());
        messages.push((
            message,
            "Set another seaway.dev/cloud-monitor-type, or give that port a Service of its own.",
        ));
    }
    messages
}
