//! Plan and counters, folded for people.

use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use seaway_admin::view::{
    ByteCounts, CheckView, HttpCounts, LatencySum, ListenerView, MemberState as Shown, MemberView, PoolView,
    RejectedCounts, ResponsesByClass, ServiceView, Sessions,
};
use seaway_model::{
    LbKey, Owner, Pool, PoolId, Time,
    announced::{AnnouncedReason, ConditionStatus},
    load_balancer::{BackendProtocol, CheckKind, HealthCheck, MemberState, Protocol},
};
use seaway_plan::Overview;
use seaway_proxy::{
    Health, ListenerStatistics, MemberAvailability, MemberStatistics, PoolStatistics, RefusalReason,
    Statistics, Traffic,
};

use crate::urls;

pub type ServiceViews = Vec<ServiceView>;

/// One view for each owner of the plan.
pub(crate) fn merge_views(plan: &[Overview], statistics: &Statistics) -> ServiceViews {
    let mut listeners: HashMap<&LbKey, Vec<&ListenerStatistics>> = HashMap::new();
    for listener in &statistics.listeners {
        listeners.entry(&listener.key).or_default().push(listener);
    }
    let mut pools: HashMap<&LbKey, Vec<&PoolStatistics>> = HashMap::new();
    for pool in &statistics.pools {
        pools.entry(&pool.key).or_default().push(pool);
    }
    let services = plan.iter().map(|overview| {
        let key = LbKey::Of(overview.status.owner.clone());
        let listeners = listeners.get(&key).map(Vec::as_slice).unwrap_or_default();
        service(overview, listeners, pools.get(&key).map(Vec::as_slice).unwrap_or_default())
    });
    services.collect()
}

fn service(overview: &Overview, listeners: &[&ListenerStatistics], pools: &[&PoolStatistics]) -> ServiceView {
    let object = overview.status.owner.object();
    let (namespace, name) = match (&overview.status.owner, &overview.demand) {
        (Owner::Config(_), Some(demand)) => {
            (demand.service.meta.namespace.clone(), demand.service.meta.name.clone())
        }
        _ => (object.namespace.clone(), object.name.clone()),
    };
    let lb = &overview.load_balancer;
    let is_own = |id: &PoolId| lb.pools.get(id).is_none_or(|pool| pool.owner == overview.status.owner);
    let listening = lb.listeners.values().map(AsRef::as_ref);
    let mut urls = urls::service_urls(listening, &overview.status.addresses, is_own);
    ServiceView {
        owner: overview.status.owner.to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
        addresses: overview.status.addresses.clone(),
        not_announced: (overview.status.announced.as_ref())
            .filter(|it| it.status == ConditionStatus::False)
            .map(|it| it.message.clone()),
        announced_by: (overview.status.announced.as_ref())
            .filter(|it| it.reason == AnnouncedReason::Layer2)
            .map(|it| it.message.clone()),
        urls: std::mem::take(&mut urls.own),
        history: None,
        listeners: listener_views(overview, listeners),
        pools: (overview.load_balancer.pools.values())
            .map(|pool| {
                let of = if pool.owner == overview.status.owner { None } else { Some(pool.owner.object()) };
                let (namespace, name) =
                    of.as_ref().map_or((&namespace, &name), |it| (&it.namespace, &it.name));
                let service =
                    if namespace.is_empty() { name.to_string() } else { format!("{namespace}/{name}") };
                let urls = urls.of_pools.remove(&pool.id).unwrap_or_default();
                PoolView { service, urls, ..pool_view(pool, pools) }
            })
            .collect(),
    }
}

/// Those that should be there, serving or not.
fn listener_views(overview: &Overview, statistics: &[&ListenerStatistics]) -> Vec<ListenerView> {
    let mut views = Vec::new();
    for ip in &overview.status.addresses {
        for (id, listener) in &overview.load_balancer.listeners {
            let here = || statistics.iter().filter(|it| it.ip == *ip && it.id == *id);
            let counted = here().find(|it| !it.closed);
            // Who came before it closed, as on a host that drains, is there still.
            let left: u64 = here().filter(|it| it.closed).map(|it| u64::from(it.traffic.current)).sum();
            let refused = |why| counted.map_or(0, |it| it.refused(why));
            let traffic = counted.map(|it| it.traffic).unwrap_or_default();
            views.push(ListenerView {
                address: *ip,
                port: id.port,
                protocol: id.l4,
                name: listener.name.rsplit(':').next().unwrap_or_default().to_owned(),
                serving: overview
                    .status
                    .serving
                    .iter()
                    .any(|it| (it.ip, it.protocol, it.port) == (*ip, id.l4, id.port)),
                sessions: Sessions {
                    current: u64::from(traffic.current) + left,
                    limit: listener.limits.connections.map(u64::from),
                    ..sessions(&traffic)
                },
                bytes: bytes(&traffic),
                refused: RejectedCounts {
                    by_source: refused(RefusalReason::Source),
                    by_limit: refused(RefusalReason::Connections)
                        + refused(RefusalReason::Rate)
                        + refused(RefusalReason::Resources),
                    by_client_rate: refused(RefusalReason::ClientRate),
                },
                errors: refused(RefusalReason::Header)
                    + refused(RefusalReason::NoMember)
                    + refused(RefusalReason::Loop),
                http: (listener.protocol == Protocol::Http).then(|| http(counted)),
                rate: None,
            });
        }
    }
    views
}

fn pool_view(pool: &Pool, statistics: &[&PoolStatistics]) -> PoolView {
    let counted = statistics.iter().find(|it| it.id == pool.id);
    let members: Vec<MemberView> = counted.map_or_else(Vec::new, |counted| {
        counted.members.iter().map(|it| member_view(it, pool, counted.rests)).collect()
    });
    let of = |backup: bool| members.iter().filter(move |it| it.backup == backup && it.state.is_usable());
    let usable = of(false).count();
    let listed = pool.members.iter().filter(|it| !it.backup).count();
    // Where a backup can serve, it does so before anybody who is down.
    let stands_in = usable == 0 && of(true).next().is_some();
    PoolView {
        id: pool.id.to_string(),
        protocol: pool.l4,
        service: String::new(),
        urls: Vec::new(),
        balance: pool.balance,
        no_member: counted.map_or(0, |it| it.no_member),
        latency: None,
        latencies: counted.and_then(|it| it.latency.clone()),
        panic: listed > 0 && !stands_in && usable * 100 < listed * usize::from(pool.panic_threshold),
        members,
    }
}

/// `rests`: what checks found when somebody used it tells nothing of now.
fn member_view(it: &MemberStatistics, pool: &Pool, rests: bool) -> MemberView {
    let state = match (it.state, it.standing, it.health) {
        (None | Some(MemberState::Draining), _, _) => Shown::Draining,
        (_, MemberAvailability::Failed, _) => Shown::Down,
        (_, MemberAvailability::Ejected, _) => Shown::Ejected,
        (_, MemberAvailability::Usable, Health::Unknown) if pool.health.is_none() => Shown::Unchecked,
        (_, MemberAvailability::Usable, _) if rests => Shown::Unchecked,
        (_, MemberAvailability::Usable, _) => Shown::Up,
    };
    let planned = pool.members.iter().find(|member| member.at == it.at);
    let name = planned
        .and_then(|member| member.name.as_ref().or(member.host_name.as_ref()).or(member.node.as_ref()));
    MemberView {
        address: it.at.to_string(),
        name: name.map(ToString::to_string).unwrap_or_default(),
        backup: planned.is_some_and(|member| member.backup),
        state,
        weight: it.weight,
        sessions: sessions(&it.traffic),
        bytes: bytes(&it.traffic),
        connect_errors: it.connect_errors,
        retries: it.retries,
        resets: it.resets,
        timeouts: it.timeouts,
        latency: None,
        measured: LatencySum { count: it.measured, micros: it.took },
        check: check_view(pool.health.as_ref(), it),
        last_change: it.health_history.changed.map(since_1970),
        last_error: it.health_history.reason.to_string(),
        // What goes to a member of HTTP is a request each time.
        http: (pool.protocol != BackendProtocol::Opaque).then(|| HttpCounts {
            requests: it.traffic.total,
            answers: ResponsesByClass::by_class(it.answers),
        }),
        rate: None,
    }
}

fn http(counted: Option<&&ListenerStatistics>) -> HttpCounts {
    counted.map_or_else(HttpCounts::default, |it| HttpCounts {
        requests: it.requests,
        answers: ResponsesByClass::by_class(it.answers),
    })
}

fn since_1970(at: SystemTime) -> Time {
    Time(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}

fn check_view(check: Option<&HealthCheck>, of: &MemberStatistics) -> CheckView {
    let (failures, times_down) = (of.check_failures, of.health_history.times_down.into());
    let Some(check) = check else { return CheckView { failures, times_down, ..CheckView::default() } };
    let kind = match &check.kind {
        CheckKind::Tcp => "TCP".to_owned(),
        CheckKind::Udp { .. } => "UDP".to_owned(),
        CheckKind::Http { path, .. } => format!("HTTP {path}"),
        CheckKind::Grpc { service } if service.is_empty() => "gRPC".to_owned(),
        CheckKind::Grpc { service } => format!("gRPC {service}"),
    };
    let when = if check.while_used { ", only while the member is in use" } else { "" };
    CheckView {
        description: format!("{kind} every {:?}{when}", check.interval),
        failures,
        times_down,
        rise: check.rise,
        fall: check.fall,
    }
}

fn sessions(traffic: &Traffic) -> Sessions {
    Sessions { current: traffic.current.into(), peak: traffic.most.into(), total: traffic.total, limit: None }
}

fn bytes(traffic: &Traffic) -> ByteCounts {
    ByteCounts { incoming: traffic.bytes_in, outgoing: traffic.bytes_out }
}
