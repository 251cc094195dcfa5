//! How members are asked how they are; and which of them are left where nobody can ask.
//!
//! With `externalTrafficPolicy: Local` a Node without pods answers nobody. kube-proxy says so on a port of its own, by HTTP.
//! A provider that does not speak it gets only those Nodes that have pods.

use seaway_model::{
    L4, Member, Pool,
    load_balancer::{CheckKind, Family, HealthCheck, LoadBalancerOptions, MemberState},
};
use seaway_openstack::{
    octavia::{MonitorType, NewHealthMonitor},
    resource::Edit,
    survey::{Abilities, Ability},
};

use super::{groups::rules::is_transparent, wanted::seconds};

/// Octavia refuses less for UDP-CONNECT.
pub(super) const LEAST_UDP_DELAY: u64 = 3;
pub(super) const MOST_RETRIES: u64 = 10;
pub(super) const MOST_WEIGHT: u32 = 256;

/// As this provider can.
pub(super) fn check(options: &LoadBalancerOptions, pool: &Pool, can: &Abilities) -> Option<HealthCheck> {
    let check = pool.health.clone()?;
    let by_http = can.has(if pool.l4 == L4::Udp { Ability::UdpByHttp } else { Ability::Http });
    if !is_of_nodes(options, &check) || by_http {
        return Some(check);
    }
    let asked = options.cloud.as_ref().is_some_and(|it| it.monitored);
    asked.then(|| HealthCheck { kind: CheckKind::Tcp.for_transport(pool.l4), port: None, ..check })
}

/// Those who are worth asking, with their weights.
pub(super) fn members<'p>(
    options: &LoadBalancerOptions,
    pool: &'p Pool,
    check: Option<&HealthCheck>,
) -> impl Iterator<Item = (&'p Member, u16)> {
    let all = check.is_some_and(|it| is_of_nodes(options, it));
    pool.members.iter().filter(|it| is_reached(options, it)).filter_map(move |it| {
        match (it.state, it.weight) {
            (MemberState::Draining, _) => Some((it, 0)),
            (MemberState::Ready, 0) => all.then_some((it, 1)),
            (MemberState::Ready, weight) => {
                Some((it, u16::try_from(weight.min(MOST_WEIGHT)).unwrap_or(u16::MAX)))
            }
        }
    })
}

/// Who takes connections itself reaches members by one family; who passes packets on needs members of each.
fn is_reached(options: &LoadBalancerOptions, member: &Member) -> bool {
    let Some(outside) = &options.cloud else { return true };
    let [first, _, ..] = outside.families[..] else { return true };
    is_transparent(outside.provider.as_ref()) || Family::of(member.at.ip()) == first
}

pub(super) fn is_of_nodes(options: &LoadBalancerOptions, check: &HealthCheck) -> bool {
    let http = matches!(check.kind, CheckKind::Http { .. });
    options.local_only && http && check.port.is_some() && check.port == options.health_check_node_port
}

pub(super) fn monitor(check: &HealthCheck, l4: L4) -> NewHealthMonitor {
    let kind = match (check.kind.for_transport(l4), l4) {
        (CheckKind::Http { .. }, _) => MonitorType::Http,
        (_, L4::Sctp) => MonitorType::Sctp,
        (CheckKind::Udp { .. }, _) => MonitorType::UdpConnect,
        _ => MonitorType::Tcp,
    };
    let least = if kind == MonitorType::UdpConnect { LEAST_UDP_DELAY } else { 1 };
    let delay = seconds(check.interval).max(least);
    let retries = |it: u8| u64::from(it).clamp(1, MOST_RETRIES);
    let mut monitor = NewHealthMonitor {
        max_retries_down: Edit::To(Some(retries(check.fall))),
        // A probe that lasts longer than the pause to the next is refused.
        ..NewHealthMonitor::new(kind, delay, seconds(check.timeout).min(delay), retries(check.rise))
    };
    if let CheckKind::Http { path, host, status: (first, last), .. } = &check.kind {
        monitor.http_method = Edit::To(Some("GET".to_owned()));
        monitor.url_path = Edit::To(Some(path.to_string()));
        monitor.expected_codes =
            Edit::To(Some(if first == last { first.to_string() } else { format!("{first}-{last}") }));
        if let Some(host) = host {
            monitor.http_version = Edit::To(Some(1.1));
            monitor.domain_name = Edit::To(Some(host.to_string()));
        }
    }
    monitor
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nodes_are_asked_for_pods_by_http_at_the_port_of_kube_proxy_and_only_where_traffic_is_local() {
        let http = CheckKind::http;
        for (local_only, kind, port, of_kube_proxy, expected) in [
            (true, http(), Some(31_000), Some(31_000), true),
            (false, http(), Some(31_000), Some(31_000), false),
            (true, CheckKind::Tcp, Some(31_000), Some(31_000), false),
            (true, http(), Some(8_080), Some(31_000), false),
            (true, http(), None, Some(31_000), false),
            // It has no such port yet.
            (true, http(), None, None, false),
            (true, http(), Some(8_080), None, false),
        ] {
            let check = HealthCheck { kind: kind.clone(), port, ..HealthCheck::default() };
            let options = LoadBalancerOptions {
                local_only,
                health_check_node_port: of_kube_proxy,
                ..LoadBalancerOptions::default()
            };
            let case = format!("{local_only} {kind:?} {port:?} {of_kube_proxy:?}");
            assert_eq!(is_of_nodes(&options, &check), expected, "{case}");
        }
    }

    #[test]
    fn members_are_asked_in_the_words_of_their_transport() {
        let http = CheckKind::http();
        let udp = CheckKind::Udp { send: "".into(), expect: None };
        let often = Duration::from_secs(1);
        for (kind, l4, expected, delay) in [
            (CheckKind::Tcp, L4::Tcp, MonitorType::Tcp, 1),
            (CheckKind::Tcp, L4::Udp, MonitorType::UdpConnect, 3),
            (udp, L4::Udp, MonitorType::UdpConnect, 3),
            (CheckKind::Tcp, L4::Sctp, MonitorType::Sctp, 1),
            (http.clone(), L4::Tcp, MonitorType::Http, 1),
            (http.clone(), L4::Udp, MonitorType::Http, 1),
            (http, L4::Sctp, MonitorType::Http, 1),
        ] {
            let check = HealthCheck { kind: kind.clone(), interval: often, ..HealthCheck::default() };
            let new = monitor(&check, l4);
            assert_eq!((new.r#type, new.delay), (expected, delay), "{kind:?} {l4}");
        }
    }
}
