//! Names, help texts and labels.

use std::{collections::HashMap, fmt, hash::Hash, sync::atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text::encode},
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        info::Info,
    },
    registry::{Registry, Unit},
};
use seaway_model::{L4, bgp::BgpSessionState, layer2::Layer2Progress};

use super::{Counts, MetricsSource, allocation, drivers, objects};
use crate::{
    process::Usage,
    view::{BgpPeerView, DnsZoneView, MemberState, ProcessRole, View},
};

/// Of words that are known here, or of names.
pub(super) trait LabelSet:
    EncodeLabelSet + Clone + Hash + Eq + Send + Sync + fmt::Debug + 'static
{
}

impl<V> LabelSet for Vec<(&'static str, V)> where
    V: EncodeLabelValue + Clone + Hash + Eq + Send + Sync + fmt::Debug + 'static
{
}

pub(super) fn render(
    view: &View,
    totals: &HashMap<L4, Counts>,
    usage: Usage,
    counted: &[MetricsSource],
    objects: Option<objects::ExposedSeries>,
) -> String {
    let mut registry = Registry::default();
    traffic(&mut registry, view, totals);
    data_plane(&mut registry, view);
    state(&mut registry, view);
    allocation::expose(&mut registry, view);
    problems(&mut registry, view);
    drivers::expose(&mut registry, view);
    process(&mut registry, view, usage);
    counted.iter().for_each(|it| it(&mut registry));
    objects.into_iter().for_each(|it| registry.register_collector(Box::new(it)));
    let mut text = String::new();
    // Writing to a String cannot fail.
    _ = encode(&mut text, &registry);
    text
}

fn traffic(registry: &mut Registry, view: &View, totals: &HashMap<L4, Counts>) {
    let protocols = [L4::Tcp, L4::Udp].map(|l4| (l4, totals.get(&l4).copied().unwrap_or_default()));
    let by_protocol = |of: fn(&Counts) -> u64| {
        let series = protocols.iter().map(|(l4, counts)| (vec![protocol(*l4)], of(counts)));
        counters(series.collect())
    };
    registry.register(
        "seaway_connections",
        "Connections and UDP flows accepted",
        by_protocol(|c| c.connections),
    );
    registry.register(
        "seaway_connection_errors",
        "Connections that ended with an error of the client or of the network",
        by_protocol(|c| c.errors),
    );
    registry.register(
        "seaway_connect_errors",
        "Attempts to connect to a member that failed",
        by_protocol(|c| c.connect_errors),
    );
    registry.register(
        "seaway_retries",
        "Connections that were retried at another member",
        by_protocol(|c| c.retries),
    );
    registry.register(
        "seaway_check_failures",
        "Health checks that failed",
        by_protocol(|c| c.check_failures),
    );
    let (mut bytes, mut refused) = (Vec::new(), Vec::new());
    for (l4, counts) in protocols {
        bytes.push((vec![protocol(l4), ("direction", "in")], counts.incoming));
        bytes.push((vec![protocol(l4), ("direction", "out")], counts.outgoing));
        refused.push((vec![protocol(l4), ("reason", "source")], counts.by_source));
        refused.push((vec![protocol(l4), ("reason", "limit")], counts.by_limit));
        if l4 == L4::Tcp {
            refused.push((vec![protocol(l4), ("reason", "client-rate")], counts.by_client_rate));
        }
    }
    registry.register_with_unit(
        "seaway_traffic",
        "Bytes from clients (in) and to clients (out)",
        Unit::Bytes,
        counters(bytes),
    );
    registry.register(
        "seaway_refused",
        "Connections and requests refused by source range or by limit",
        counters(refused),
    );

    let http = totals.get(&L4::Tcp).map(|counts| counts.http).unwrap_or_default();
    registry.register("seaway_http_requests", "HTTP requests", ConstCounter::new(http.requests));
    let answers = http.answers.classes().map(|(class, count)| (vec![("status", class)], count));
    registry.register(
        "seaway_http_answers",
        "HTTP responses, by class of their status",
        counters(answers.into()),
    );

    let mut open = HashMap::from([(L4::Tcp, 0_u64), (L4::Udp, 0)]);
    for listener in view.services.iter().flat_map(|service| &service.listeners) {
        let open = open.entry(listener.protocol).or_default();
        *open = open.saturating_add(listener.sessions.current);
    }
    let open = open.into_iter().map(|(l4, count)| (vec![protocol(l4)], count));
    registry.register(
        "seaway_open_connections",
        "Connections and UDP flows open now",
        gauges(open.collect()),
    );
}

fn data_plane(registry: &mut Registry, view: &View) {
    let memory = &view.memory;
    registry.register_with_unit(
        "seaway_dataplane_memory",
        "Memory that the data plane holds for clients, without buffers of the kernel",
        Unit::Bytes,
        ConstGauge::new(memory.bytes),
    );
    registry.register_with_unit(
        "seaway_dataplane_memory_limit",
        "Limit of seaway_dataplane_memory_bytes",
        Unit::Bytes,
        ConstGauge::new(memory.limit_bytes),
    );
    registry.register(
        "seaway_dataplane_memory_refused",
        "Requests and connections refused because seaway_dataplane_memory_limit_bytes was reached",
        ConstCounter::new(memory.refused),
    );
    let evicted = [("memory", memory.evicted), ("descriptors", memory.flows_evicted)];
    registry.register(
        "seaway_dataplane_evictions",
        "Connections closed to free memory, and UDP flows closed to free file descriptors",
        counters(evicted.map(|(reason, count)| (vec![("reason", reason)], count)).into()),
    );
}

fn increment(count: &mut u64) {
    *count = count.saturating_add(1);
}

fn state(registry: &mut Registry, view: &View) {
    let ready = u64::from(view.readiness.not_ready_reason().is_none());
    registry.register(
        "seaway_ready",
        "1 while the process is ready (as /ready says), otherwise 0",
        ConstGauge::new(ready),
    );
    registry.register(
        "seaway_services",
        "Services that are load balanced",
        ConstGauge::new(view.services.len() as u64),
    );

    let mut listeners = HashMap::from([(true, 0), (false, 0)]);
    for listener in view.services.iter().flat_map(|service| &service.listeners) {
        increment(listeners.entry(listener.serving).or_default());
    }
    let listeners = listeners
        .into_iter()
        .map(|(serving, count)| (vec![("state", if serving { "serving" } else { "failed" })], count));
    registry.register(
        "seaway_listeners",
        "Listeners that should be served: serving or failed",
        gauges(listeners.collect()),
    );

    let mut members: HashMap<MemberState, u64> = MemberState::ALL.into_iter().map(|s| (s, 0)).collect();
    for pool in view.services.iter().flat_map(|service| &service.pools) {
        for member in &pool.members {
            increment(members.entry(member.state).or_default());
        }
    }
    let members = members.into_iter().map(|(state, count)| (vec![("state", state.as_str())], count));
    registry.register(
        "seaway_members",
        "Members of all pools: up, down, ejected, draining or unchecked",
        gauges(members.collect()),
    );

    let states = ["valid", "expiring", "expired", "early", "broken"];
    let count = |state: &str| view.certificates.by_state.get(state).copied().unwrap_or_default();
    registry.register(
        "seaway_certificates",
        "Certificates in use: valid, expiring (within thirty days), expired, early (not valid yet) or broken (cannot be used)",
        gauges(states.map(|state| (vec![("state", state)], count(state))).into()),
    );
    if let Some(first) = view.certificates.first_expiry {
        registry.register_with_unit(
            "seaway_certificate_expiry_timestamp",
            "When the first of all certificates expires or expired, in seconds since 1970",
            Unit::Seconds,
            ConstGauge::new(first.0 as f64 / 1000.0),
        );
    }
    if let Some(layer2) = &view.layer2 {
        let count = |state: &str| layer2.by_state.get(state).copied().unwrap_or_default();
        let states = Layer2Progress::ALL.map(Layer2Progress::as_str);
        let states = states.map(|state| (vec![("state", state)], count(state)));
        registry.register(
            "seaway_layer2_addresses",
            "Addresses that this host is to announce by ARP and NDP, by state: Announcing, Standby (another host does), or why not",
            gauges(states.into()),
        );
        registry.register(
            "seaway_layer2_moves",
            "Addresses that this host began to announce after another host had announced them",
            ConstCounter::new(layer2.moves),
        );
        registry.register(
            "seaway_layer2_conflicts",
            "Packets by which another machine claimed an address that hosts announce",
            ConstCounter::new(layer2.conflicts),
        );
        registry.register(
            "seaway_layer2_overlaps",
            "Times that two hosts announced one address, as after a network partition",
            ConstCounter::new(layer2.overlaps),
        );
    }
    if !view.bgp.is_empty() {
        let by_peer = |of: &dyn Fn(&BgpPeerView) -> Option<u64>| {
            let gauge = |it: &BgpPeerView| Some((vec![("peer", it.peer.clone())], of(it)?));
            view.bgp.iter().filter_map(gauge).collect::<Vec<_>>()
        };
        registry.register(
            "seaway_bgp_session_up",
            "Whether the BGP session of this host with a BGPPeer is established",
            gauges(by_peer(&|it| Some((it.state == BgpSessionState::Established.as_str()).into()))),
        );
        registry.register(
            "seaway_bgp_prefixes",
            "Prefixes that this host announces to a BGPPeer now",
            gauges(by_peer(&|it| Some(it.prefixes.into()))),
        );
        registry.register(
            "seaway_bgp_resets",
            "Established BGP sessions of this host with a BGPPeer that ended",
            counters(by_peer(&|it| Some(it.resets))),
        );
        registry.register(
            "seaway_bfd_session_up",
            "Whether BFD between this host and a BGPPeer is up in both directions",
            gauges(by_peer(&|it| it.bfd_up.map(u64::from))),
        );
    }
    if !view.dns.is_empty() {
        let states = |it: &DnsZoneView| {
            [("published", it.published), ("failed", it.failed), ("waiting", it.waiting)]
                .map(|(state, count)| (vec![("zone", it.zone.clone()), ("state", state.to_owned())], count))
        };
        registry.register(
            "seaway_dns_records",
            "Names of Services in DNS, by zone and state: published, failed (a Problem says why) or waiting",
            gauges(view.dns.iter().flat_map(states).collect()),
        );
        let failures = view.dns.iter().map(|it| (vec![("zone", it.zone.clone())], it.failures));
        registry.register(
            "seaway_dns_failures",
            "Failed attempts to read or change a name in DNS",
            counters(failures.collect()),
        );
    }
    if let Some(adoption) = &view.adoption {
        let states = ["unlisted", "not-chosen", "other-controller", "observed", "not-asked", "next"];
        let count = |state: &str| adoption.waiting.get(state).copied().unwrap_or_default();
        let waiting = states.map(|state| (vec![("state", state)], count(state)));
        let all = waiting.into_iter().chain([(vec![("state", "adopted")], adoption.adopted)]);
        registry.register(
            "seaway_adoption_services",
            "Services with a load balancer in a cloud, by state: adopted, or why not yet",
            gauges(all.collect()),
        );
        registry.register(
            "seaway_adoption_troubled",
            "Adopted Services whose load balancers have problems",
            ConstGauge::new(adoption.troubled),
        );
        registry.register(
            "seaway_adoption_stopped",
            "1 while Seaway begins no further adoption because seaway_adoption_troubled reached stopAfter",
            ConstGauge::new(u64::from(adoption.stopped)),
        );
    }
    registry.register(
        "seaway_unit_failures",
        "Failed attempts to apply a change to a load balancer, an address or a status",
        ConstCounter::new(view.unit_failures),
    );
    registry.register(
        "seaway_units_marked",
        "Load balancers, addresses and statuses that a change marked to be reconciled",
        ConstCounter::new(view.units_marked),
    );
    registry.register(
        "seaway_access_log_lost",
        "Lines of the access log that were lost",
        ConstCounter::new(view.lost_lines),
    );
}

/// Once in a cluster: all processes see those of Services, and the leader hears what hosts could not do.
fn problems(registry: &mut Registry, view: &View) {
    let mut problems: HashMap<&'static str, u64> = HashMap::new();
    for problem in &view.problems {
        increment(problems.entry(problem.reason.as_str()).or_default());
    }
    let problems = problems.into_iter().map(|(reason, count)| (vec![("reason", reason)], count));
    let problems = gauges(problems.collect());
    if view.part == ProcessRole::Host {
        registry.register(
            "seaway_host_problems",
            "Problems that a user can correct, as a host of a cluster sees them",
            problems,
        );
    } else if view.part.allocates() {
        let help = "Problems that a user can correct; in a cluster, those that the leader sees";
        registry.register("seaway_problems", help, problems);
    }
}

fn process(registry: &mut Registry, view: &View, usage: Usage) {
    registry.register(
        "seaway_build",
        "Version of Seaway",
        Info::new(vec![("version", view.version.clone())]),
    );
    registry.register(
        "seaway_workers",
        "Threads of the data plane",
        ConstGauge::new(u64::from(view.workers)),
    );
    // The names that every Prometheus client library uses.
    registry.register_with_unit(
        "process_cpu",
        "User and system CPU time of the process",
        Unit::Seconds,
        ConstCounter::new(usage.cpu.as_secs_f64()),
    );
    registry.register_with_unit(
        "process_resident_memory",
        "Resident memory",
        Unit::Bytes,
        ConstGauge::new(usage.resident_bytes),
    );
    registry.register("process_open_fds", "Open file descriptors", ConstGauge::new(usage.descriptors));
    registry.register(
        "process_max_fds",
        "Limit of file descriptors",
        ConstGauge::new(usage.descriptor_limit),
    );
    registry.register("process_threads", "Threads", ConstGauge::new(usage.threads));
    registry.register_with_unit(
        "process_start_time",
        "When the process started, in seconds since 1970",
        Unit::Seconds,
        ConstGauge::new(view.started.0 as f64 / 1000.0),
    );
}

fn protocol(l4: L4) -> (&'static str, &'static str) {
    let name = match l4 {
        L4::Tcp => "tcp",
        L4::Udp => "udp",
        L4::Sctp => "sctp",
    };
    ("protocol", name)
}

pub(super) fn counters<L: LabelSet>(series: Vec<(L, u64)>) -> Family<L, Counter> {
    let family = Family::<L, Counter>::default();
    for (labels, total) in series {
        family.get_or_create(&labels).inc_by(total);
    }
    family
}

pub(super) fn gauges<L: LabelSet>(series: Vec<(L, u64)>) -> Family<L, Gauge<u64, AtomicU64>> {
    let family = Family::<L, Gauge<u64, AtomicU64>>::default();
    for (labels, value) in series {
        family.get_or_create(&labels).set(value);
    }
    family
}
