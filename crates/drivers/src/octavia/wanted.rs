//! What should be there, in the words of Octavia; and what its provider cannot do, before anything is touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use seaway_model::{
    L4, LbKey, Listener, ListenerId, LoadBalancer, Member, Name, Owner, Pool, Problem, Reason,
    config::FloatingSubnet,
    load_balancer::{
        Action, Affinity, Balance, Certificate, CheckKind, CloudOptions, Family, HealthCheck,
        LoadBalancerOptions, Protocol, ProxyVersion,
    },
};
use seaway_openstack::{
    neutron::Network,
    octavia::{
        Algorithm, NewHealthMonitor, NewListener, NewLoadBalancer, NewMember, NewPool, PoolProtocol,
        Protocol as Spoken,
    },
    resource::{Edit, Id},
    survey::{Abilities, Ability},
};

use super::{
    affinity::{self, persistence},
    asked, by_default, checks,
    groups::rules::is_transparent,
    names::{Cluster, cut_to_longest, numbered},
    timeouts, tls, vip,
};

/// A load balancer as it should be, without its children; and those.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub balancer: NewLoadBalancer,
    pub listeners: BTreeMap<ListenerId, WantedListener>,
    /// The outside reaches it, by this.
    pub floating: Option<WantedFloating>,
    /// Figures for a scraper, and no traffic.
    pub metrics: Option<(ListenerId, NewListener)>,
    /// Those that its listeners show, by the names under which they are kept.
    pub certificates: BTreeMap<String, Arc<Certificate>>,
    /// One object at a time.
    pub serial: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WantedListener {
    /// How it is numbered among its siblings, if none of them has that number.
    pub number: usize,
    pub listener: NewListener,
    pub pool: NewPool,
    pub monitor: Option<NewHealthMonitor>,
    pub members: Vec<NewMember>,
    /// One member at a time.
    pub serial: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WantedFloating {
    pub description: String,
    /// What it may say, too, if it was made for the same.
    pub formerly: Vec<String>,
    pub network: Option<Id<Network>>,
    pub subnet: Option<FloatingSubnet>,
    pub requested: Option<std::net::IpAddr>,
    /// It leaves the address that it has for one of this network.
    pub moves: bool,
    pub keep: bool,
    pub tags: BTreeSet<Name>,
}

/// `owner`: whom it is called after.
pub fn wanted(cluster: &Cluster, key: &LbKey, owner: &Owner, wish: &LoadBalancer, can: &Abilities) -> Wanted {
    let usual = CloudOptions::default();
    let outside = wish.options.cloud.as_ref().unwrap_or(&usual);
    let name = cluster.name_of(key, owner);
    let (inside, requested_vip) = (is_inside(outside), requested_vip(outside));
    let balancer = NewLoadBalancer {
        description: cluster.description(owner).into(),
        tags: tags(cluster, key, owner).into(),
        vip_address: some(requested_vip),
        vip_network_id: some(id(&outside.network)),
        vip_subnet_id: some(id(&outside.subnet)),
        vip_port_id: some(id(&outside.port)),
        provider: some(outside.provider.as_deref().map(str::to_owned)),
        flavor_id: some(id(&outside.flavor).filter(|_| can.has(Ability::Flavors))),
        availability_zone: some(
            outside.zone.as_deref().map(str::to_owned).filter(|_| can.has(Ability::Zones)),
        ),
        name: name.as_str().into(),
        ..NewLoadBalancer::new()
    };
    let mut listeners = BTreeMap::new();
    let mut certificates = BTreeMap::new();
    for (id, listener) in &wish.listeners {
        let Some(pool) = leads_to(listener).and_then(|it| wish.pools.get(it)) else { continue };
        let number = outside.ports.iter().position(|it| it == id).unwrap_or(listeners.len());
        let mut new = of_listener(&name, number, listener, pool, &wish.options, can);
        certificates.extend(tls::end_tls(&mut new, listener, wish, can, |it| cluster.certificate(key, it)));
        mark(&mut new.listener, cluster.tag_of(key));
        by_default::mark(&mut new.listener, *id, outside.tls.as_ref());
        listeners.insert(*id, new);
    }
    let (description, formerly) = descriptions_of_floating(cluster, key, owner, outside.floating.keep);
    let floating = (!inside).then(|| WantedFloating {
        description,
        formerly,
        network: id(&outside.floating.network),
        subnet: outside.floating.subnet.clone(),
        requested: outside.requested.filter(|_| requested_vip.is_none()),
        moves: outside.remake,
        keep: outside.floating.keep,
        tags: BTreeSet::new(),
    });
    let mut metrics = metrics(&name, wish, outside, can);
    metrics.iter_mut().for_each(|(_, it)| mark(it, cluster.tag_of(key)));
    let serial = outside.serial;
    let mut wanted = Wanted { balancer, listeners, floating, metrics, certificates, serial };
    asked::ask(&mut wanted, wish, outside, can);
    wanted
}

/// What tells whose a load balancer is.
pub(super) fn tags(cluster: &Cluster, key: &LbKey, owner: &Owner) -> BTreeSet<String> {
    BTreeSet::from([cluster.name_of(key, owner), cluster.tag(), cluster.tag_of(key)])
}

/// What is to be written on a floating IP, and what may be there instead if it was made for the same.
pub(super) fn descriptions_of_floating(
    cluster: &Cluster,
    key: &LbKey,
    owner: &Owner,
    keep: bool,
) -> (String, Vec<String>) {
    let formerly = vec![cluster.floating(owner, key, !keep), cluster.words_of_floating(owner)];
    (cluster.floating(owner, key, keep), formerly)
}

/// No floating IP leads to it: there are none of IPv6. One of two families has one for its IPv4, whichever is first.
pub(super) fn is_inside(outside: &CloudOptions) -> bool {
    outside.internal || !outside.families.is_empty() && !outside.families.contains(&Family::V4)
}

/// What is asked for as its VIP, and not as a floating IP.
pub(super) fn requested_vip(outside: &CloudOptions) -> Option<IpAddr> {
    let is_v6 = |ip: &IpAddr| Family::of(*ip) == Family::V6;
    let first_is_v6 = outside.families.first() == Some(&Family::V6);
    outside.requested.filter(|ip| is_inside(outside) || first_is_v6 && is_v6(ip))
}

/// Whose it is, where others have listeners, too.
fn mark(listener: &mut NewListener, key: String) {
    if let Edit::To(tags) = &mut listener.tags {
        tags.insert(key);
    }
    timeouts::mark(listener);
}

impl Wanted {
    /// All of it at once.
    pub fn whole(&self) -> NewLoadBalancer {
        let metrics = self.metrics.iter().map(|(_, it)| it.clone());
        let mut listeners: Vec<_> =
            self.listeners.values().map(WantedListener::whole).chain(metrics).collect();
        affinity::leave_out(&self.balancer.provider, &mut listeners);
        NewLoadBalancer { listeners: Edit::To(listeners), ..self.balancer.clone() }
    }
}

impl Wanted {
    /// The wanted listener with this id; that for metrics counts, too.
    pub fn find_listener(&self, id: &ListenerId) -> Option<&NewListener> {
        let metrics = self.metrics.as_ref().filter(|(it, _)| it == id).map(|(_, it)| it);
        self.listeners.get(id).map(|it| &it.listener).or(metrics)
    }
}

/// Who may come to the Service may read its figures.
fn metrics(
    balancer: &str,
    wish: &LoadBalancer,
    outside: &CloudOptions,
    can: &Abilities,
) -> Option<(ListenerId, NewListener)> {
    let port = outside.metrics?;
    let sources = wish.listeners.values().next().map(|it| it.sources.as_slice()).unwrap_or_default();
    let new = NewListener {
        name: cut_to_longest(format!("metrics_{balancer}")).into(),
        tags: BTreeSet::from([balancer.to_owned()]).into(),
        connection_limit: Edit::To(Some(-1)),
        allowed_cidrs: admitted(sources, can),
        ..NewListener::new(Spoken::Prometheus, port)
    };
    Some((ListenerId { l4: L4::Tcp, port }, new))
}

fn admitted(sources: &[IpNet], can: &Abilities) -> Edit<Option<Vec<String>>> {
    match (can.has(Ability::AllowedCidrs), sources.is_empty()) {
        (false, _) => Edit::Leave,
        (true, true) => Edit::To(None),
        (true, false) => Edit::To(Some(sources.iter().map(ToString::to_string).collect())),
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
    options: &LoadBalancerOptions,
    can: &Abilities,
) -> WantedListener {
    let usual = CloudOptions::default();
    let outside = options.cloud.as_ref().unwrap_or(&usual);
    let understood = listener.protocol == Protocol::Http;
    let spoken = match (listener.l4, understood) {
        (L4::Tcp, true) => Spoken::Http,
        (L4::Tcp, false) => Spoken::Tcp,
        (L4::Udp, _) => Spoken::Udp,
        (L4::Sctp, _) => Spoken::Sctp,
    };
    let headers = BTreeMap::from([("X-Forwarded-For".to_owned(), "true".to_owned())]);
    let times = &outside.timeouts;
    let time = |it: Option<u32>| some(it.map(u64::from).filter(|_| can.has(Ability::Timeouts)));
    let new = NewListener {
        name: numbered("listener", number, balancer).into(),
        tags: BTreeSet::from([balancer.to_owned()]).into(),
        connection_limit: Edit::To(Some(listener.limits.connections.map_or(-1, i64::from))),
        insert_headers: if understood { Edit::To(headers) } else { Edit::Leave },
        allowed_cidrs: admitted(&listener.sources, can),
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
        session_persistence: Edit::To(persistence(pool, listener.l4)),
        ..NewPool::new(protocol, algorithm(pool, can))
    };
    let check = checks::check(options, pool, can);
    let check = check.as_ref();
    let members = checks::members(options, pool, check);
    let members = members.map(|(it, weight)| of_member(it, weight, check, outside)).collect();
    let monitor = check.map(|check| NewHealthMonitor {
        name: numbered("monitor", number, balancer).into(),
        ..checks::monitor(check, pool.l4)
    });
    WantedListener { number, listener: new, pool: new_pool, monitor, members, serial: outside.serial }
}

fn of_member(member: &Member, weight: u16, check: Option<&HealthCheck>, outside: &CloudOptions) -> NewMember {
    let name = member.node.as_deref().or(member.host_name.as_deref());
    let is_first = outside.families.first().is_none_or(|it| Family::of(member.at.ip()) == *it);
    let own_port = check.and_then(|it| it.port).filter(|port| *port != member.at.port());
    NewMember {
        name: told(name.map(str::to_owned)),
        // What is not said is 1 again, also at a member that was there.
        weight: if weight == 1 { Edit::Leave } else { Edit::To(Some(weight)) },
        // That of the first family; of the second, the provider finds it.
        subnet_id: some(id(&outside.member_subnet).filter(|_| is_first)),
        monitor_port: some(own_port),
        ..NewMember::new(member.at.ip(), member.at.port())
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
    let ports = wish.listeners.keys().flat_map(|id| refused_at(wish, *id, can));
    of_all(wish, can).into_iter().chain(ports).chain(metrics_refused(wish, can)).collect()
}

/// The same, of one listener.
pub(super) fn refused_at(wish: &LoadBalancer, id: ListenerId, can: &Abilities) -> Vec<(Owner, Problem)> {
    let mut refused = Vec::new();
    // Nodes themselves let nobody else in, where they see who comes.
    let guarded = wish.options.cloud.as_ref();
    let guarded = guarded.is_some_and(|it| it.opened && is_transparent(it.provider.as_ref()));
    let Some(listener) = wish.listeners.get(&id) else { return refused };
    let mut say = |message: String, fix: &str| {
        let message = format!("port {}: {message}", listener.id());
        let problem = Problem::new(listener.owner.object(), Reason::Unsupported, message);
        refused.push((listener.owner.clone(), problem.fix(fix)));
    };
    if wish.options.cloud.as_ref().is_some_and(|it| it.to_https.contains(&id)) {
        say(
            "redirects to https are not supported on a load balancer of a cloud: no plaintext listener is created, and an \
             existing one stays"
                .to_owned(),
            "Remove the port; or use the native driver; or remove seaway.dev/https-redirect, and the port is served in plaintext.",
        );
    }
    let served = leads_to(listener).and_then(|it| wish.pools.get(it));
    if served.is_some_and(|it| it.proxy.is_some()) && listener.protocol == Protocol::Http {
        say(
            "members get either PROXY protocol or X-Forwarded-For, not both".to_owned(),
            "Remove one of the annotations proxy-protocol and x-forwarded-for.",
        );
    }
    let mut refuse =
        |what: &str, fix: &str| say(format!("this provider of load balancers has no {what}"), fix);
    let mut need = |it: bool, ability: Ability| {
        if it && !can.has(ability) {
            refuse(ability.as_str(), "Choose another provider, or remove the setting.");
        }
    };
    need(listener.l4 == L4::Tcp, Ability::Tcp);
    need(listener.l4 == L4::Udp, Ability::Udp);
    need(listener.l4 == L4::Sctp, Ability::Sctp);
    let beside = ListenerId { l4: L4::Tcp, ..id };
    need(id.l4 != L4::Tcp && wish.listeners.contains_key(&beside), Ability::SharedPorts);
    need(listener.protocol == Protocol::Http, Ability::Http);
    need(!listener.sources.is_empty() && !guarded, Ability::AllowedCidrs);
    let Some(pool) = leads_to(listener).and_then(|it| wish.pools.get(it)) else {
        refuse("rules", "Send all requests of a port to one Service, or use the native driver.");
        return refused;
    };
    need(pool.proxy.is_some(), Ability::Proxy);
    need(matches!(pool.affinity, Some(Affinity::ClientIp(_))), Ability::SourceIpAffinity);
    need(matches!(pool.affinity, Some(Affinity::Cookie { .. })), Ability::CookieAffinity);
    let only_one = !can.has(Ability::RoundRobin) && pool.balance != Balance::RoundRobin;
    if only_one || matches!(pool.balance, Balance::RandomTwo | Balance::First) {
        refuse(
            &format!("load balancing method {}", pool.balance.as_str()),
            "Leave the choice to the provider.",
        );
    }
    match checks::check(&wish.options, pool, can).as_ref().map(|it| &it.kind) {
        Some(CheckKind::Grpc { .. }) => {
            refuse("health check for gRPC", "Use an HTTP or a TCP check.");
        }
        Some(CheckKind::Http { expect: Some(_), .. } | CheckKind::Udp { expect: Some(_), .. }) => {
            refuse("health check that looks for a text in the response", "Expect a status, and no text.");
        }
        Some(CheckKind::Http { .. }) if !can.has(Ability::Http) => {
            refuse("health check by HTTP", "Use a TCP check.");
        }
        Some(CheckKind::Http { .. }) if pool.l4 == L4::Udp && !can.has(Ability::UdpByHttp) => {
            refuse(Ability::UdpByHttp.as_str(), "Use a TCP check.");
        }
        Some(CheckKind::Http { host: Some(_), .. }) if !can.has(Ability::CheckedHost) => {
            refuse(Ability::CheckedHost.as_str(), "Leave the host out.");
        }
        Some(_) if listener.l4 == L4::Sctp && !can.has(Ability::Http) => {
            refuse("health check of SCTP", "Turn it off: seaway.dev/cloud-monitor: \"false\".");
        }
        _ => {}
    }
    refused.extend(tls::refused(&alone(wish, id), can));
    refused.extend(asked::refused(wish, id, can));
    refused
}

/// Nothing else is served.
fn alone(wish: &LoadBalancer, id: ListenerId) -> LoadBalancer {
    let mut alone = wish.clone();
    alone.listeners.retain(|it, _| *it == id);
    alone
}

pub(super) fn metrics_refused(wish: &LoadBalancer, can: &Abilities) -> Vec<(Owner, Problem)> {
    let Some(port) = wish.options.cloud.as_ref().and_then(|it| it.metrics) else { return Vec::new() };
    let id = ListenerId { l4: L4::Tcp, port };
    let (message, fix) = match wish.listeners.contains_key(&id) {
        _ if !can.has(Ability::Prometheus) => (
            format!("this provider of load balancers has no {}", Ability::Prometheus.as_str()),
            "Choose another provider, or remove seaway.dev/metrics-port.",
        ),
        true => {
            (format!("port {id}: there is no free port for metrics"), "Set another seaway.dev/metrics-port.")
        }
        false => return Vec::new(),
    };
    let owner = wish.listeners.values().map(|it| &it.owner).min();
    let problem = |owner: &Owner| {
        let problem = Problem::new(owner.object(), Reason::Unsupported, message.clone());
        (owner.clone(), problem.fix(fix))
    };
    owner.into_iter().map(problem).collect()
}

/// What lets nothing of it be made.
pub(super) fn of_all(wish: &LoadBalancer, can: &Abilities) -> Vec<(Owner, Problem)> {
    let mut refused = no_ids(wish);
    refused.extend(vip::refused(wish, can));
    if !can.has(Ability::Tags) {
        let owners: BTreeSet<&Owner> = wish.listeners.values().map(|it| &it.owner).collect();
        refused.extend(owners.into_iter().map(|owner| {
            let message =
                "the API of Octavia is older than 2.5 and has no tags, so load balancers could not be marked as this \
                 cluster's";
            let problem = Problem::new(owner.object(), Reason::Unsupported, message);
            (owner.clone(), problem.fix("Ask the cloud's operator for a newer Octavia."))
        }));
    }
    refused
}

/// What is named by something that cannot be an id, and so would be left out.
fn no_ids(wish: &LoadBalancer) -> Vec<(Owner, Problem)> {
    let Some(outside) = &wish.options.cloud else { return Vec::new() };
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
pub(super) fn leads_to(listener: &Listener) -> Option<&seaway_model::PoolId> {
    let [rule] = &listener.rules[..] else { return None };
    let everything = rule.hosts.is_empty() && rule.matches.is_empty() && rule.filters.is_empty();
    match &rule.action {
        Action::Forward(pools) if everything => match &pools[..] {
            [(pool, _)] => Some(pool),
            _ => None,
        },
        _ => None,
    }
}

/// Where a member is, which is all that tells it from others.
pub fn spot(member: &NewMember) -> SocketAddr {
    SocketAddr::new(member.address, member.protocol_port)
}

/// Never none, and nothing is shortened.
pub(super) fn seconds(time: Duration) -> u64 {
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
