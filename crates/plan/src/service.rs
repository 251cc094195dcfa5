//! One owner's load balancer, from its Demand, its members and its addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Kind, Listener, ListenerId, LoadBalancer, Name, ObjectRef, Pool, PoolId, Problem, ProblemDetail, Reason,
    config::MemberSource,
    fact::{ServiceKind, ServicePort},
    group::NodeAccess,
    load_balancer::{
        Action, Affinity, BackendProtocol, BackendTls, Bind, CheckKind, CloudOptions, HealthCheck,
        HttpOptions, LoadBalancerOptions, Protocol, Redirect, Rule, TlsByName, Trust,
    },
};

use crate::{
    access_rules,
    annotations::{AUTHORITIES, BACKEND_AUTHORITIES, CHECK, TLS, TRANSPARENT},
    basic_auth,
    certificates::Certificates,
    closed,
    demand::{Demand, DemandPort},
    forbidden_members, forward_auth, guarded,
    http::protocol_of,
    index::PlanContext,
    members::{Members, members},
    own_listeners::{self, PoolOwner},
    slices, sources, tenant_limits,
    unheeded::unheeded,
};

/// What was computed for one owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlannedService {
    pub(crate) load_balancer: Arc<LoadBalancer>,
    pub(crate) problems: Vec<Problem>,
    /// DNS names that its members need.
    pub(crate) names: BTreeSet<Name>,
    pub(crate) members: usize,
    /// With `externalTrafficPolicy: Local`, none of its members is on this host, which does not serve it.
    pub(crate) nobody_here: bool,
    /// What of Nodes its load balancer in a cloud reaches.
    pub(crate) openings: Option<Arc<NodeAccess>>,
    /// Members that were left out, since we listen there ourselves, or nobody may name them.
    pub(crate) refused: Vec<IpAddr>,
}

impl PlannedService {
    /// Where its members are, those that were left out included.
    pub(crate) fn member_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let members = self.load_balancer.pools.values().flat_map(|pool| &pool.members);
        members.map(|it| it.at.ip()).chain(self.refused.iter().copied())
    }
}

/// Plans `demand` on `binds`, without the listeners in `spoiled` (their ports are somebody else's). Pools that come
/// out as they were are the very same `Arc`, so that nothing downstream looks at them.
pub(crate) fn plan(
    demand: &Demand,
    binds: Vec<Bind>,
    spoiled: &BTreeSet<ListenerId>,
    given: PlanContext<'_>,
    before: &LoadBalancer,
) -> PlannedService {
    let PlanContext { index, host, certificates, .. } = given;
    let mut planned = PlannedService { problems: demand.problems.clone(), ..PlannedService::default() };
    let mut listeners = BTreeMap::new();
    let mut pools = BTreeMap::new();
    let (mut held, mut passed_over) = (BTreeMap::new(), BTreeMap::new());
    planned.problems.extend(uncertified(demand, certificates));
    planned.problems.extend(closed::problem(demand).into_iter().chain(closed::unknown_tls_ports(demand)));
    planned.problems.extend(closed::lacking(demand));
    planned
        .problems
        .extend(unheeded(demand).into_iter().chain(basic_auth::listener_problems(demand, certificates)));
    let (who, mut too_many) = (PoolOwner::Owner(demand.owner.clone()), 0_usize);
    for wanted in &demand.ports {
        let (from, order) = (demand.members_from(), demand.address_order());
        let mut found = members(index, &demand.service, &wanted.port, host, from, order);
        let stays = demand.select(index, &mut found);
        if !stays.is_empty() {
            passed_over.insert(wanted.id(), stays);
        }
        planned.names.extend(found.names.iter().cloned());
        planned.refused.extend(found.left_out());
        planned.problems.extend(member_problems(demand, wanted, &found));
        let id = PoolId(format!("{}/{}", wanted.port.port, wanted.port.protocol).into());
        too_many =
            too_many.saturating_add(index.shares.fit(&who, demand, &mut found.list, before.pools.get(&id)));
        planned.members = planned.members.saturating_add(found.list.len());
        let protocol = match demand.protocol(&wanted.port) {
            Protocol::Http => protocol_of(&wanted.port).to_members(),
            Protocol::Opaque => BackendProtocol::Opaque,
        };
        let tls = backend_tls(demand, &wanted.port, demand.speaks_tls(wanted), certificates);
        let transparent = protocol == BackendProtocol::Opaque && returns(demand, given);
        let pool = Pool { tls, transparent, ..pool(demand, &wanted.port, id.clone(), protocol, found) };
        pools.insert(id.clone(), reuse_if_equal(before.pools.get(&id), pool));
        if !spoiled.contains(&wanted.id()) && !closed::is_closed(demand, wanted, certificates) {
            let listener = listener(demand, wanted, id, given);
            for object in listener.tls.iter().flat_map(|tls| tls.objects()) {
                held.extend(certificates.held(object).map(|it| (object.clone(), it.clone())));
            }
            let before = before.listeners.get(&listener.id());
            listeners.insert(listener.id(), reuse_if_equal(before, listener));
        }
    }
    planned.problems.extend(forward_auth::problems(demand, given));
    let open: Vec<ListenerId> = listeners.keys().copied().collect();
    planned.problems.extend(guarded::open_beside_route(demand, &open, given));
    planned.problems.extend(index.shares.problem(&who, demand, too_many));
    planned.problems.extend(local_traffic(demand));
    planned.problems.extend(astray(demand, given));
    planned.problems.extend(sources::problem(demand, given.config));
    planned.problems.extend(sources::forgeable(demand));
    let here = given.host.filter(|it| demand.service.local_only && given.index.is_outside(Some(it)));
    planned.problems.extend(beside_nodes(demand, here.as_slice()));
    if demand.service.local_only && host.is_some() && planned.members == 0 {
        // Whoever came here would be told to go away: better that nobody is sent.
        planned.nobody_here = true;
        listeners.clear();
    }
    let outside = demand.outside().map(|it| CloudOptions { passed_over, ..it });
    let options = LoadBalancerOptions {
        local_only: demand.service.local_only,
        health_check_node_port: demand.service.health_check_node_port,
        cloud: outside.map(|it| demand.beside(it, index.nodes().map(|it| &**it))),
    };
    planned.openings = demand.openings().map(Arc::new);
    // Hosts open such a listener, which lets nobody in before its certificate came. A cloud cannot.
    let secrets = demand.secrets().into_iter().filter(|it| certificates.is_withheld(it));
    let awaited = secrets.filter(|_| demand.cloud.is_some()).collect();
    let certificates = Arc::new(held);
    planned.load_balancer =
        Arc::new(LoadBalancer { binds, listeners, pools, certificates, awaited, options });
    planned
}

/// What hosts beside the Nodes cannot do for a Service: they have no pods, nor a way to any.
pub(crate) fn beside_nodes(demand: &Demand, hosts: &[&Name]) -> Vec<Problem> {
    let mut problems = Vec::new();
    if hosts.is_empty()
        || demand.hosts_only
        || demand.cloud.is_some()
        || demand.wishes.members == MemberSource::Pods
    {
        return problems;
    }
    let object = demand.owner.object();
    if demand.service.local_only {
        let hosts: Vec<&str> = hosts.iter().map(|it| it.as_str()).collect();
        let message = format!(
            "externalTrafficPolicy: Local needs pods on the serving host, and these hosts are not Nodes of the cluster: {}. Traffic goes to Nodes that run pods of the Service",
            hosts.join(", ")
        );
        let problem = Problem::new(object.clone(), Reason::Unsupported, message);
        problems.push(
            problem
                .at("spec.externalTrafficPolicy")
                .fix("Set it to Cluster, or run seaway node on Nodes of the cluster only."),
        );
    }
    if demand.wishes.members == MemberSource::Auto {
        let portless = demand.ports.iter().filter(|it| it.port.node_port.is_none());
        problems.extend(portless.map(|it| no_node_port(&object, &it.field)));
    }
    problems
}

fn no_node_port(object: &ObjectRef, field: &str) -> Problem {
    let message = "a host that is not a Node sends traffic to node ports, but this port has no nodePort";
    Problem::new(object.clone(), Reason::NoSuchPort, message).at(field).fix(
        "Set spec.allocateLoadBalancerNodePorts: true; or, if the host has routes to pods, seaway.dev/members: pods.",
    )
}

/// The client's address is to be seen by members, and their answers to it come by this host: those of its own pods, and
/// where whoever says so knows of routes that we do not.
fn returns(demand: &Demand, given: PlanContext<'_>) -> bool {
    let on_a_node = given.host.is_some_and(|host| given.index.node(host).is_some());
    let is_wanted = demand.wishes.transparent && sources::are_trusted(demand, given.config);
    is_wanted && (demand.service.local_only || !on_a_node)
}

/// Where that cannot be.
fn astray(demand: &Demand, given: PlanContext<'_>) -> Option<Problem> {
    let in_cluster = given.index.nodes().next().is_some();
    let spread = in_cluster && !demand.service.local_only && !given.index.is_outside(given.host);
    let understood = demand.ports.iter().all(|it| demand.protocol(&it.port) != Protocol::Opaque);
    let (what, fix) = match () {
        () if !demand.wishes.transparent || demand.cloud.is_some() => return None,
        () if understood => (
            "this annotation has no effect on HTTP: members see the host's address, and the client's address in \
             X-Forwarded-For",
            "Remove it.",
        ),
        () if spread => (
            "this annotation has no effect: answers of pods on other Nodes would not come back through the \
             host, so members see the host's address",
            "Set externalTrafficPolicy: Local, so that members are the host's own pods.",
        ),
        () => return None,
    };
    let problem = Problem::new(demand.owner.object(), Reason::Unsupported, what);
    Some(problem.at(demand.wishes.field_of(TRANSPARENT)).fix(fix))
}

/// What `externalTrafficPolicy: Local` promises and we cannot keep.
fn local_traffic(demand: &Demand) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !demand.service.local_only || demand.hosts_only || demand.cloud.is_some() {
        return problems;
    }
    let mut tell = |message: &str, fix: &str| {
        let problem = Problem::new(demand.owner.object(), Reason::Unsupported, message);
        problems.push(problem.at("spec.externalTrafficPolicy").fix(fix));
    };
    let passed_on = |it: &&DemandPort| demand.protocol(&it.port) == Protocol::Opaque;
    let is_silent = demand.ports.iter().filter(passed_on).any(|it| demand.proxy(&it.port).is_none());
    if is_silent && !demand.wishes.transparent {
        tell(
            "externalTrafficPolicy: Local keeps traffic on one host, but members see the address of that \
             host, not the client's",
            "Set seaway.dev/transparent: \"true\"; or, if the members understand it, seaway.dev/proxy-protocol: v2. \
             For HTTP, X-Forwarded-For has the client's address.",
        );
    }
    problems
}

pub(crate) fn reuse_if_equal<T: PartialEq>(before: Option<&Arc<T>>, now: T) -> Arc<T> {
    before.filter(|before| ***before == now).cloned().unwrap_or_else(|| Arc::new(now))
}

fn listener(demand: &Demand, wanted: &DemandPort, pool: PoolId, given: PlanContext<'_>) -> Listener {
    let (config, wishes) = (given.config, &demand.wishes);
    let protocol = demand.protocol(&wanted.port);
    let http = match protocol {
        Protocol::Http => config.front_door.http.clone(),
        Protocol::Opaque => HttpOptions::default(),
    };
    let tls = demand.ends_tls(wanted).then(|| tls(demand, given));
    let mut rule = Rule::forward_all(demand.owner.clone(), pool);
    // Clouds are asked for it elsewhere (`CloudOptions::to_https`): members of the port are to follow all the same.
    if let (None, None, Protocol::Http, Some(true), Some(port)) =
        (&demand.cloud, &tls, protocol, wishes.tls.redirect, demand.tls_port())
    {
        rule.action = to_https(port);
    }
    if protocol == Protocol::Http {
        rule.rates = wishes.http.limits_of(&access_rules::object(&demand.service));
        // Who is sent to https is asked who it is there.
        let asks = matches!(rule.action, Action::Forward(_));
        rule.auth.extend(basic_auth::of(&demand.service, wishes, given.certificates).filter(|_| asks));
        rule.asks.extend(forward_auth::of(&demand.service, wishes).filter(|_| asks));
    }
    Listener {
        owner: demand.owner.clone(),
        name: demand.name(&wanted.port),
        l4: wanted.port.protocol,
        port: wanted.listen,
        protocol,
        tls: tls.map(Arc::new),
        rules: vec![Arc::new(rule)],
        http,
        sources: demand.sources(),
        denied: demand.denied().to_vec(),
        proxy_from: wishes.proxy_from.clone(),
        limits: demand.limits(),
        timeouts: wishes.timeouts,
    }
}

/// With the certificates that the Service names.
fn tls(demand: &Demand, given: PlanContext<'_>) -> TlsByName {
    let named = demand.secrets();
    let mut tls = given.certificates.by_name(&named.iter().collect::<Vec<_>>());
    // A listener whose certificates are not there (yet) still speaks nothing but TLS.
    if tls.default.is_empty() {
        tls.default = named;
    }
    let namespace = &demand.service.meta.namespace;
    demand.wishes.tls.refine(tls, namespace, &given.config.front_door.tls.terms)
}

/// What is wrong with the Secrets that a Service names.
fn uncertified(demand: &Demand, certificates: &Certificates) -> Vec<Problem> {
    let (wishes, object) = (&demand.wishes, demand.owner.object());
    let named = demand.secrets();
    let mut problems =
        certificates.problems_at(&object, &wishes.field_of(TLS), &named, &wishes.http.all_hosts());
    problems.extend(missing_authorities(demand, certificates));
    let clients = wishes.tls.authorities.iter().filter(|_| !named.is_empty());
    let authorities =
        clients.map(|it| ObjectRef::new(Kind::Secret, demand.service.meta.namespace.clone(), it.clone()));
    let told: Vec<ObjectRef> = authorities.filter(|it| !certificates.is_withheld(it)).collect();
    problems.extend(told.iter().flat_map(|it| certificates.problems_of(it)));
    let field = wishes.field_of(AUTHORITIES);
    problems.extend(told.iter().filter_map(|it| {
        certificates.problem_of_clients((&object, field.clone()), it, ": no listener is opened")
    }));
    problems
}

/// Members whom nobody vouches for.
pub(crate) fn missing_authorities(demand: &Demand, certificates: &Certificates) -> Vec<Problem> {
    let (wishes, meta) = (&demand.wishes, &demand.service.meta);
    let Some(name) = &wishes.tls.members.authorities else { return Vec::new() };
    let object = ObjectRef::new(Kind::Secret, meta.namespace.clone(), name.clone());
    let vouches = certificates.held(&object).is_some_and(|it| !it.authorities.is_empty());
    if vouches || certificates.is_withheld(&object) {
        return certificates.problems_of(&object);
    }
    let what = format!("{object} has no ca.crt, so no TLS connection to a member is trusted");
    let problem =
        Problem::new(demand.owner.object(), Reason::NoSuchSecret, what).about(ProblemDetail::Missing(object));
    let fix = "Create the Secret with the PEM certificates of the members' authority in ca.crt.";
    vec![problem.at(wishes.field_of(BACKEND_AUTHORITIES)).fix(fix)]
}

/// How members are spoken to by TLS, if they are.
pub(crate) fn backend_tls(
    demand: &Demand,
    port: &ServicePort,
    may_be: bool,
    certificates: &Certificates,
) -> Option<Arc<BackendTls>> {
    let (wishes, meta) = (&demand.wishes.tls.members, &demand.service.meta);
    if !may_be || !demand.wants_tls_to_members(port) {
        return None;
    }
    let authorities = |name: &Name| {
        let object = ObjectRef::new(Kind::Secret, meta.namespace.clone(), name.clone());
        // Without them nobody is believed.
        Trust::CaBundle(certificates.held(&object).map(|it| it.authorities.clone()).unwrap_or_default())
    };
    let trust = match &wishes.authorities {
        _ if wishes.anybody => Trust::InsecureSkipVerify,
        Some(name) => authorities(name),
        None => Trust::SystemRoots,
    };
    let usual = format!("{}.{}.svc", meta.name, meta.namespace).into();
    Some(Arc::new(BackendTls { name: wishes.name.clone(), usual, trust }))
}

/// The same, asked for by TLS. Methods and bodies stay what they are (RFC 9110, section 15.4.9).
pub(crate) fn to_https(port: u16) -> Action {
    Action::Redirect(Redirect {
        scheme: Some("https".into()),
        port: Some(port),
        code: 308,
        ..Redirect::default()
    })
}

pub(crate) fn pool(
    demand: &Demand,
    port: &ServicePort,
    id: PoolId,
    protocol: BackendProtocol,
    found: Members,
) -> Pool {
    let wishes = &demand.wishes;
    let mut health = demand.local_check().or_else(|| demand.health_check());
    if let Some(check) = health.as_mut().filter(|_| forbidden_members::check_port(demand, &found).is_some()) {
        // What it asks is meant for that port.
        (check.kind, check.port) = (CheckKind::Tcp, None);
    }
    // kube-proxy says there which Nodes have pods, before slices do.
    let tells = demand.service.health_check_node_port.filter(|_| found.by_nodes && demand.service.local_only);
    let usual = |it: &&mut HealthCheck| {
        it.kind == CheckKind::Tcp && it.port.is_none() && !wishes.written.contains_key(CHECK)
    };
    if let (Some(check), Some(port)) = (health.as_mut().filter(usual), tells) {
        (check.kind, check.port) = (CheckKind::http(), Some(port));
    }
    if let Some(check) = &mut health {
        check.interval = tenant_limits::interval(check.interval, found.list.len(), demand.checks_per_second);
        check.kind = check.kind.for_transport(port.protocol);
        // Whoever says anything of it wants it made: all its annotations begin with this one's name.
        let asked = wishes.written.keys().any(|it| it.starts_with(CHECK));
        check.while_used &= found.vouched && !asked;
    }
    let cookie = wishes.http.cookie.clone().filter(|_| protocol != BackendProtocol::Opaque);
    let cookie = cookie.map(|(name, mode)| Affinity::Cookie { name, mode, key: wishes.cookie_key.clone() });
    Pool {
        id,
        owner: demand.owner.clone(),
        l4: port.protocol,
        protocol,
        tls: None,
        balance: demand.balance(),
        affinity: cookie.or(demand.service.affinity.map(Affinity::ClientIp)),
        health,
        passive: wishes.passive,
        slow_start: wishes.slow_start,
        panic_threshold: wishes.panic_threshold,
        member_limit: wishes.member_limit,
        limits: Default::default(),
        proxy: demand.proxy(port),
        transparent: false,
        http: wishes.http.terms.clone(),
        members: found.list,
    }
}

/// What is told about a port's members: nobody there, a port that no slice has, a name without an answer.
pub(crate) fn member_problems(demand: &Demand, wanted: &DemandPort, found: &Members) -> Vec<Problem> {
    let object = demand.owner.object();
    let service = &demand.service;
    let problem =
        |reason, message: String| Problem::new(object.clone(), reason, message).at(wanted.field.clone());
    let mut problems: Vec<Problem> = Vec::new();
    for name in &found.unresolved {
        problems.push(
            problem(Reason::NameUnresolved, format!("the name {name} has no answer yet"))
                .fix("Check the name, and that this host's resolver answers for it."),
        );
    }
    problems.extend(slices::problems(demand, wanted, found));
    problems.extend(own_listeners::problem(demand, wanted, &found.refused));
    problems.extend(forbidden_members::problem(demand, wanted, &found.barred));
    problems.extend(forbidden_members::names_problem(demand, wanted, &found.barred_names));
    problems.extend(forbidden_members::check_problem(demand, wanted, found));
    if demand.cloud.is_some() && found.by_nodes && found.list.is_empty() && !found.no_node_port {
        let message = "no Node may be a member: the members that its load balancer has stay as they are";
        problems.push(problem(Reason::NoEndpoints, message.to_owned()).fix(
            "See node-selector, the labels of Nodes (node.kubernetes.io/exclude-from-external-load-balancers), and \
             that Nodes have addresses of its family.",
        ));
        return problems;
    }
    let left_out = found.left_out().next().is_some() || !found.barred_names.is_empty();
    if !found.list.is_empty() || !found.names.is_empty() || left_out || found.awaited {
        return problems;
    }
    if matches!(service.kind, ServiceKind::ExternalName(_)) {
        problems.push(problem(Reason::NoSuchPort, "an ExternalName needs a numeric target port".into()));
    } else if found.slices == 0 {
        let whose = if service.selector.is_empty() {
            "the Service has no EndpointSlice, so it has no member"
        } else {
            "selectors are not resolved here, and the Service has no EndpointSlice, so it has no member"
        };
        let none = ObjectRef::new(Kind::EndpointSlice, object.namespace.clone(), "");
        let problem = problem(Reason::NoEndpoints, whose.into()).about(ProblemDetail::Missing(none));
        problems.push(problem.fix(slices::slice_to_write(demand)));
    } else if found.no_node_port {
        problems.push(no_node_port(&object, &wanted.field));
    } else if found.portless.len() == found.slices && found.portless.iter().any(|(_, it)| !it.is_empty()) {
        let has: Vec<String> = found
            .portless
            .iter()
            .map(|(slice, ports)| format!("{slice}: {}", slices::listed(ports)))
            .collect();
        let has = has.join("; ");
        let wants = slices::target(&wanted.port.target);
        problems.push(
            problem(
                Reason::NoSuchPort,
                format!("no EndpointSlice has port {:?} or target port {wants}", wanted.port.name.as_str()),
            )
            .fix(format!("EndpointSlices are matched by port name, then by target port. They have: {has}.")),
        );
    } else {
        let why = match (found.not_ready, found.elsewhere) {
            (0, 0) => "the EndpointSlices of the Service list no endpoint".to_owned(),
            (not_ready, 0) => format!("none of the {not_ready} endpoints is ready"),
            (0, elsewhere) => {
                format!("externalTrafficPolicy is Local, and all {elsewhere} endpoints are on other Nodes")
            }
            (not_ready, elsewhere) => {
                format!(
                    "externalTrafficPolicy is Local: {not_ready} endpoints are not ready, and {elsewhere} \
                     are on other Nodes"
                )
            }
        };
        problems.push(problem(Reason::NoEndpoints, why));
    }
    problems
}
