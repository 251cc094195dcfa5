//! Plan and counters, folded for people.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use seaway_admin::view::{
    Bytes, CheckView, ListenerView, MemberState as Shown, MemberView, PoolView, Refused, ServiceView,
    Sessions,
};
use seaway_model::{
    LbKey, Owner, Pool, PoolId, Time,
    load_balancer::{CheckKind, HealthCheck, MemberState},
};
use seaway_plan::Overview;
use seaway_proxy::{
    Health, HealthChanges, ListenerStatistics, MemberStatistics, PoolStatistics, Refusal, Standing,
    Statistics, Traffic,
};

pub type ServiceViews = Vec<ServiceView>;

type MemberKey = (LbKey, PoolId, SocketAddr);

/// When each member last changed, and why: the data plane tells changes, people ask for the last one.
pub(crate) struct History {
    changes: HealthChanges,
    last: Mutex<HashMap<MemberKey, Last>>,
}

#[derive(Clone, Default)]
struct Last {
    at: Option<Time>,
    reason: String,
    times_down: u64,
}

impl History {
    pub(crate) fn new(changes: HealthChanges) -> History {
        History { changes, last: Mutex::default() }
    }

    /// What happened since the last look is dated now: nobody looked in between.
    fn update(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        for change in self.changes.wait(Duration::ZERO) {
            let entry = last.entry((change.key, change.pool, change.member)).or_default();
            entry.at = Some(now());
            if change.to != Standing::Usable {
                entry.reason = change.reason;
                entry.times_down += 1;
            }
        }
    }

    fn of(&self, key: &MemberKey) -> Last {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned().unwrap_or_default()
    }

    fn keep(&self, known: impl Fn(&MemberKey) -> bool) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| known(key));
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(since.as_millis() as u64)
}

/// One view for each owner of the plan.
pub(crate) fn fold(plan: &[Overview], statistics: &Statistics, history: &History) -> ServiceViews {
    history.update();
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
        let pools = pools.get(&key).map(Vec::as_slice).unwrap_or_default();
        service(overview, &key, listeners, pools, history)
    });
    let services = services.collect();
    if statistics.pools.len() < 100_000 {
        let known: std::collections::HashSet<(&LbKey, &PoolId)> =
            statistics.pools.iter().map(|it| (&it.key, &it.id)).collect();
        history.keep(|(key, pool, _)| known.contains(&(key, pool)));
    }
    services
}

fn service(
    overview: &Overview,
    key: &LbKey,
    listeners: &[&ListenerStatistics],
    pools: &[&PoolStatistics],
    history: &History,
) -> ServiceView {
    let object = overview.status.owner.object();
    let (namespace, name) = match (&overview.status.owner, &overview.demand) {
        (Owner::Config(_), Some(demand)) => {
            (demand.service.meta.namespace.clone(), demand.service.meta.name.clone())
        }
        _ => (object.namespace.clone(), object.name.clone()),
    };
    ServiceView {
        owner: overview.status.owner.to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
        addresses: overview.status.addresses.clone(),
        listeners: listener_views(overview, listeners),
        pools: overview
            .load_balancer
            .pools
            .values()
            .map(|pool| pool_view(pool, key, pools, history))
            .collect(),
    }
}

/// Those that should be there, serving or not.
fn listener_views(overview: &Overview, statistics: &[&ListenerStatistics]) -> Vec<ListenerView> {
    let mut views = Vec::new();
    for ip in &overview.status.addresses {
        for (id, listener) in &overview.load_balancer.listeners {
            let counted = statistics.iter().find(|it| it.ip == *ip && it.id == *id && !it.closed);
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
                    limit: listener.limits.connections.map(u64::from),
                    ..sessions(&traffic)
                },
                bytes: bytes(&traffic),
                refused: Refused {
                    by_source: refused(Refusal::Source),
                    by_limit: refused(Refusal::Connections)
                        + refused(Refusal::Rate)
                        + refused(Refusal::Resources),
                },
                errors: refused(Refusal::Header) + refused(Refusal::NoMember),
                rate: None,
            });
        }
    }
    views
}

fn pool_view(pool: &Pool, key: &LbKey, statistics: &[&PoolStatistics], history: &History) -> PoolView {
    let counted = statistics.iter().find(|it| it.id == pool.id);
    let members: Vec<MemberView> = counted.map_or_else(Vec::new, |counted| {
        counted
            .members
            .iter()
            .map(|it| member_view(it, pool, &history.of(&(key.clone(), pool.id.clone(), it.at))))
            .collect()
    });
    let usable = members.iter().filter(|it| it.state.is_usable()).count();
    let listed = pool.members.len();
    PoolView {
        id: pool.id.to_string(),
        protocol: pool.l4,
        balance: pool.balance,
        panic: listed > 0 && usable * 100 < listed * usize::from(pool.panic_threshold),
        members,
    }
}

fn member_view(it: &MemberStatistics, pool: &Pool, last: &Last) -> MemberView {
    let state = match (it.state, it.standing, it.health) {
        (None | Some(MemberState::Draining), _, _) => Shown::Draining,
        (_, Standing::Failed, _) => Shown::Down,
        (_, Standing::Ejected, _) => Shown::Ejected,
        (_, Standing::Usable, Health::Unknown) if pool.health.is_none() => Shown::Unchecked,
        (_, Standing::Usable, _) => Shown::Up,
    };
    let planned = pool.members.iter().find(|member| member.at == it.at);
    let name = planned.and_then(|member| member.host_name.as_ref().or(member.node.as_ref()));
    MemberView {
        address: it.at.to_string(),
        name: name.map(ToString::to_string).unwrap_or_default(),
        state,
        weight: it.weight,
        sessions: sessions(&it.traffic),
        bytes: bytes(&it.traffic),
        connect_errors: it.connect_errors,
        retries: it.retries,
        check: check_view(pool.health.as_ref(), last),
        last_change: last.at,
        last_error: last.reason.clone(),
        rate: None,
    }
}

fn check_view(check: Option<&HealthCheck>, last: &Last) -> CheckView {
    let Some(check) = check else { return CheckView { times_down: last.times_down, ..CheckView::default() } };
    let kind = match &check.kind {
        CheckKind::Tcp => "TCP".to_owned(),
        CheckKind::Udp { .. } => "UDP".to_owned(),
        CheckKind::Http { path, .. } => format!("HTTP {path}"),
    };
    CheckView {
        description: format!("{kind} every {:?}", check.interval),
        failures: 0,
        times_down: last.times_down,
        rise: check.rise,
        fall: check.fall,
    }
}

fn sessions(traffic: &Traffic) -> Sessions {
    Sessions { current: traffic.current.into(), peak: traffic.most.into(), total: traffic.total, limit: None }
}

fn bytes(traffic: &Traffic) -> Bytes {
    Bytes { incoming: traffic.bytes_in, outgoing: traffic.bytes_out }
}
