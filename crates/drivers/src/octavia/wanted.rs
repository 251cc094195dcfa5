//! What should be there, in the words of Octavia; and what its provider cannot do, before anything is touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use seaway_model::{
    L4, LbKey, Listener, ListenerId, LoadBalancer, Member, Name, Owner, Pool, Problem, Reason,
    config::FloatingSubnet,
    load_balancer::{
        Action, Affinity, Balance, CheckKind, HealthCheck, MemberState, Outside, Protocol, ProxyVersion,
    },
};
use seaway_openstack::{
    neutron::Network,
    octavia::{
        Algorithm, MonitorType, NewHealthMonitor, NewListener, NewLoadBalancer, NewMember, NewPool,
        Persistence, PersistenceType, PoolProtocol, Protocol as Spoken,
    },
    resource::{Edit, Id},
    survey::{Abilities, Ability},
};

use super::names::{Cluster, numbered};

/// A load balancer as it should be, without its children; and those.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub balancer: NewLoadBalancer,
    pub listeners: BTreeMap<ListenerId, WantedListener>,
    /// The outside reaches it, by this.
    pub floating: Option<WantedFloating>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WantedListener {
    /// How it is numbered among its siblings, if none of them has that number.
    pub number: usize,
    pub listener: NewListener,
    pub pool: NewPool,
    pub monitor: Option<NewHealthMonitor>,
    pub members: Vec<NewMember>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WantedFloating {
    pub description: String,
    pub network: Option<Id<Network>>,
    pub subnet: Option<FloatingSubnet>,
    pub requested: Option<std::net::IpAddr>,
    pub keep: bool,
}

/// `owner`: whom it is called after.
pub fn wanted(cluster: &Cluster, key: &LbKey, owner: &Owner, wish: &LoadBalancer, can: &Abilities) -> Wanted {
    let usual = Outside::default();
    let outside = wish.options.outside.as_ref().unwrap_or(&usual);
    let name = cluster.balancer(owner);
    let requested_vip = outside.requested.filter(|_| outside.internal);
    let balancer = NewLoadBalancer {
        description: cluster.description(owner).into(),
        tags: BTreeSet::from([name.clone(), cluster.tag(), cluster.tag_of(key)]).into(),
        vip_address: some(requested_vip),
        vip_network_id: some(id(&outside.network)),
        vip_subnet_id: some(id(&outside.subnet)),
        vip_port_id: some(id(&outside.port)),
        provider: some(outside.provider.as_deref().map(str::to_owned)),
        flavor_id: some(id(&outside.flavor)),
        availability_zone: some(outside.zone.as_deref().map(str::to_owned)),
        name: name.as_str().into(),
        ..NewLoadBalancer::new()
    };
    let mut listeners = BTreeMap::new();
    for (id, listener) in &wish.listeners {
        let Some(pool) = leads_to(listener).and_then(|it| wish.pools.get(it)) else { continue };
        let number = outside.ports.iter().position(|it| it == id).unwrap_or(listeners.len());
        listeners.insert(*id, of_listener(&name, number, listener, pool, outside, can));
    }
    let floating = (!outside.internal).then(|| WantedFloating {
        description: cluster.floating(owner, key),
        network: id(&outside.floating.network),
        subnet: outside.floating.subnet.clone(),
        requested: outside.requested,
        keep: outside.floating.keep,
    });
    Wanted { balancer, listeners, floating }
}

impl Wanted {
    /// All of it at once.
    pub fn whole(&self) -> NewLoadBalancer {
        let listeners = self.listeners.values().map(WantedListener::whole).collect();
        NewLoadBalancer { listeners: Edit::To(listeners), ..self.balancer.clone() }
    }
}

impl WantedListener {
    pub fn whole(&self) -> NewListener {
        NewListener { default_pool: Edit::To(self.whole_pool()), ..self.listener.clone() }
    }

    /// With its members and its monitor.
    pub fn whole_pool(&self) -> NewPool {
        NewPool {
            members: Edit::To(self.members.clone()),
            healthmonitor: told(self.monitor.clone()),
            ..self.pool.clone()
        }
    }
}

fn of_listener(
    balancer: &str,
    number: usize,
    listener: &Listener,
    pool: &Pool,
    outside: &Outside,
    can: &Abilities,
) -> WantedListener {
    let understood = listener.protocol == Protocol::Http;
    let spoken = match (listener.l4, understood) {
        (L4::Tcp, true) => Spoken::Http,
        (L4::Tcp, false) => Spoken::Tcp,
        (L4::Udp, _) => Spoken::Udp,
        (L4::Sctp, _) => Spoken::Sctp,
    };
    let headers = BTreeMap::from([("X-Forwarded-For".to_owned(), "true".to_owned())]);
    let cidrs: Vec<String> = listener.sources.iter().map(ToString::to_string).collect();
    let times = &outside.timeouts;
    let time = |it: Option<u32>| some(it.map(u64::from).filter(|_| can.has(Ability::Timeouts)));
    let new = NewListener {
        name: numbered("listener", number, balancer).into(),
        tags: BTreeSet::from([balancer.to_owned()]).into(),
        connection_limit: Edit::To(Some(listener.limits.connections.map_or(-1, i64::from))),
        insert_headers: if understood { Edit::To(headers) } else { Edit::Leave },
        allowed_cidrs: match (can.has(Ability::AllowedCidrs), cidrs.is_empty()) {
            (false, _) => Edit::Leave,
            (true, true) => Edit::To(None),
            (true, false) => Edit::To(Some(cidrs)),
        },
        timeout_client_data: time(times.client_data),
        timeout_member_connect: time(times.member_connect),
        timeout_member_data: time(times.member_data),
        timeout_tcp_inspect: time(times.tcp_inspect),
        ..NewListener::new(spoken, listener.port)
    };
    let protocol = match (pool.proxy, listener.l4, understood) {
        (Some(ProxyVersion::V1), L4::Tcp, false) => PoolProtocol::Proxy,
        (Some(ProxyVersion::V2), L4::Tcp, false) => PoolProtocol::ProxyV2,
        (_, L4::Tcp, true) => PoolProtocol::Http,
        (_, L4::Tcp, false) => PoolProtocol::Tcp,
        (_, L4::Udp, _) => PoolProtocol::Udp,
        (_, L4::Sctp, _) => PoolProtocol::Sctp,
    };
    let new_pool = NewPool {
        name: numbered("pool", number, balancer).into(),
        session_persistence: Edit::To(persistence(pool)),
        ..NewPool::new(protocol, algorithm(pool, can))
    };
    let check = pool.health.as_ref();
    let members = pool.members.iter().map(|it| of_member(it, check, outside)).collect();
    let monitor = check.map(|check| NewHealthMonitor {
        name: numbered("monitor", number, balancer).into(),
        ..of_check(check, pool.l4)
    });
    WantedListener { number, listener: new, pool: new_pool, monitor, members }
}

fn of_member(member: &Member, check: Option<&HealthCheck>, outside: &Outside) -> NewMember {
    let name = member.node.as_deref().or(member.host_name.as_deref());
    let weight = match member.state {
        MemberState::Ready => u16::try_from(member.weight.min(256)).unwrap_or(256),
        MemberState::Draining => 0,
    };
    let own_port = check.and_then(|it| it.port).filter(|port| *port != member.at.port());
    NewMember {
        name: told(name.map(str::to_owned)),
        // What is not said is 1 again, also at a member that was there.
        weight: if weight == 1 { Edit::Leave } else { Edit::To(Some(weight)) },
        subnet_id: some(id(&outside.member_subnet)),
        monitor_port: some(own_port),
        ..NewMember::new(member.at.ip(), member.at.port())
    }
}

fn of_check(check: &HealthCheck, l4: L4) -> NewHealthMonitor {
    let kind = match (check.kind.for_transport(l4), l4) {
        (_, L4::Sctp) => MonitorType::Sctp,
        (CheckKind::Http { .. }, _) => MonitorType::Http,
        (CheckKind::Udp { .. }, _) => MonitorType::UdpConnect,
        _ => MonitorType::Tcp,
    };
    let delay = seconds(check.interval);
    let retries = |it: u8| u64::from(it.clamp(1, 10));
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

fn persistence(pool: &Pool) -> Option<Persistence> {
    match &pool.affinity {
        Some(Affinity::ClientIp(_)) => {
            Some(Persistence { kind: PersistenceType::SourceIp, ..Persistence::default() })
        }
        Some(Affinity::Cookie { .. }) => {
            Some(Persistence { kind: PersistenceType::HttpCookie, ..Persistence::default() })
        }
        None => None,
    }
}

/// Round robin is what is meant by nothing in particular: a provider that does not have it takes what it has.
fn algorithm(pool: &Pool, can: &Abilities) -> Algorithm {
    match pool.balance {
        Balance::LeastConnections => Algorithm::LeastConnections,
        Balance::SourceHash => Algorithm::SourceIp,
        _ if can.has(Ability::RoundRobin) => Algorithm::RoundRobin,
        _ => Algorithm::SourceIpPort,
    }
}

/// What this provider cannot do for them.
pub fn refused(wish: &LoadBalancer, can: &Abilities) -> Vec<(Owner, Problem)> {
    let mut refused = no_ids(wish);
    for listener in wish.listeners.values() {
        let mut refuse = |what: &str, fix: &str| {
            let problem = Problem::new(
                listener.owner.object(),
                Reason::Unsupported,
                format!("port {}: this provider of load balancers has no {what}", listener.id()),
            );
            refused.push((listener.owner.clone(), problem.fix(fix)));
        };
        let mut need = |it: bool, ability: Ability| {
            if it && !can.has(ability) {
                refuse(ability.as_str(), "Choose another provider, or ask for less.");
            }
        };
        need(listener.l4 == L4::Tcp, Ability::Tcp);
        need(listener.l4 == L4::Udp, Ability::Udp);
        need(listener.l4 == L4::Sctp, Ability::Sctp);
        need(listener.protocol == Protocol::Http, Ability::Http);
        need(!listener.sources.is_empty(), Ability::AllowedCidrs);
        let Some(pool) = leads_to(listener).and_then(|it| wish.pools.get(it)) else {
            refuse("rules", "Lead all of a port to one Service, or serve it with the native driver.");
            continue;
        };
        need(pool.proxy.is_some(), Ability::Proxy);
        need(matches!(pool.affinity, Some(Affinity::ClientIp(_))), Ability::SourceIpAffinity);
        need(matches!(pool.affinity, Some(Affinity::Cookie { .. })), Ability::CookieAffinity);
        let only_one = !can.has(Ability::RoundRobin) && pool.balance != Balance::RoundRobin;
        if only_one || matches!(pool.balance, Balance::RandomTwo | Balance::First) {
            refuse(
                &format!("way to balance called {}", pool.balance.as_str()),
                "Leave the choice to the provider.",
            );
        }
        match pool.health.as_ref().map(|it| &it.kind) {
            Some(CheckKind::Grpc { .. }) => {
                refuse("health check for gRPC", "Use an HTTP or a TCP check.");
            }
            Some(CheckKind::Http { expect: Some(_), .. } | CheckKind::Udp { expect: Some(_), .. }) => {
                refuse("health check that reads answers", "Check by status alone.");
            }
            Some(CheckKind::Http { .. }) if !can.has(Ability::Http) => {
                refuse("health check by HTTP", "Use a TCP check.");
            }
            _ => {}
        }
        if listener.tls.is_some() {
            refuse("certificates of ours yet", "Serve TLS with the native driver, or at the members.");
        }
    }
    refused
}

/// What is named by something that cannot be an id, and so would be left out.
fn no_ids(wish: &LoadBalancer) -> Vec<(Owner, Problem)> {
    let Some(outside) = &wish.options.outside else { return Vec::new() };
    let named = [
        ("network", &outside.network),
        ("subnet", &outside.subnet),
        ("port", &outside.port),
        ("subnet of members", &outside.member_subnet),
        ("flavor", &outside.flavor),
        ("network of floating IPs", &outside.floating.network),
    ];
    let wrong = named.into_iter().filter_map(|(what, it)| Some((what, it.as_ref()?)));
    let wrong: Vec<_> = wrong.filter(|(_, text)| text.parse::<Id<Network>>().is_err()).collect();
    let owners: BTreeSet<&Owner> = wish.listeners.values().map(|it| &it.owner).collect();
    let of = |owner: &Owner| {
        let owner = owner.clone();
        wrong.iter().map(move |(what, text)| {
            let problem = Problem::new(
                owner.object(),
                Reason::BadAnnotation,
                format!("{text:?} is not the id of a {what}"),
            );
            (owner.clone(), problem)
        })
    };
    owners.into_iter().flat_map(of).collect()
}

/// The one pool that all of a listener goes to.
fn leads_to(listener: &Listener) -> Option<&seaway_model::PoolId> {
    let [rule] = &listener.rules[..] else { return None };
    let everything = rule.hosts.is_empty() && rule.matches.is_empty() && rule.filters.is_empty();
    match &rule.action {
        Action::Forward(pools) if everything && pools.len() == 1 => Some(&pools[0].0),
        _ => None,
    }
}

/// Where a member is, which is all that tells it from others.
pub fn spot(member: &NewMember) -> SocketAddr {
    SocketAddr::new(member.address, member.protocol_port)
}

/// Never none, and nothing is shortened.
fn seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1000).clamp(1, 3600) as u64
}

fn id<T>(text: &Option<Name>) -> Option<Id<T>> {
    text.as_ref()?.parse().ok()
}

fn some<T>(it: Option<T>) -> Edit<Option<T>> {
    told(it.map(Some))
}

fn told<T>(it: Option<T>) -> Edit<T> {
    it.map_or(Edit::Leave, Edit::To)
}
