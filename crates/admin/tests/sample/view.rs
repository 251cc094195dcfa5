//! A process with a bit of everything, for tests to look at and for people to see.

use std::{
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use seaway_admin::view::{
    AdoptionView, AllocationView, BgpPeerView, ByteCounts, CertificatesView, CheckView, ConditionView,
    DnsZoneView, DriverView, HttpCounts, Latency, LatencySum, Layer2View, ListenerView, MemberState,
    MemberView, MemoryView, PoolUseView, PoolView, ProcessRole, Readiness, RejectedCounts, ResponsesByClass,
    ServiceView, Sessions, View,
};
use seaway_model::{
    L4, Problem, Reason, Time,
    latency::{Histogram, LATENCY_BUCKETS},
    load_balancer::Balance,
    name::Kind,
    name::ObjectRef,
};

/// A name that would be markup if it were not escaped.
pub(crate) const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\">";

/// As it looks when this much has been counted.
pub(crate) fn at(count: u64) -> View {
    View {
        version: "0.1.0 (2f1c9ab)".into(),
        host: "edge-01.example.net".into(),
        started: ago(93_000),
        readiness: Readiness::Ready,
        part: ProcessRole::Controller { leads: true, changes: 3 },
        workers: 2,
        unit_failures: 1,
        units_marked: 12,
        lost_lines: 7,
        memory: MemoryView { bytes: 3 << 20, limit_bytes: 1 << 30, refused: 4, evicted: 5, flows_evicted: 6 },
        history: None,
        services: vec![shop(count), door(count), dns(count), legacy()],
        layer2: Some(Layer2View {
            by_state: [("Announcing".to_owned(), 3), ("Standby".to_owned(), 2)].into(),
            moves: 8,
            conflicts: 9,
            overlaps: 10,
        }),
        bgp: vec![
            bgp_peer("tor-a", "Established", Some(true), ""),
            bgp_peer("tor-b", "Failed", None, "the peer says that its AS is 64514, and peerASN is <64513>"),
        ],
        dns: vec![DnsZoneView {
            zone: "shop.example".into(),
            published: 3,
            failed: 1,
            waiting: 2,
            failures: 4,
        }],
        adoption: Some(AdoptionView {
            services: 9,
            adopted: 5,
            troubled: 3,
            stopped: true,
            waiting: [("next".to_owned(), 3), ("not-asked".to_owned(), 1)].into(),
        }),
        certificates: CertificatesView {
            by_state: [("valid".to_owned(), 2), ("expiring".to_owned(), 1)].into(),
            first_expiry: Some(Time(1_798_761_600_000)),
        },
        allocation: Some(AllocationView {
            pools: vec![pool_use("edge", "IPv4", 60.0, 4.0), pool_use("edge", "IPv6", 3.0, 2_f64.powi(64))],
            conditions: vec![
                condition("Ready", "True", 3),
                condition("Ready", "False", 1),
                condition("Announced", "Unknown", 1),
            ],
            waiting: 2,
            waiting_since: Some(ago(600)),
        }),
        drivers: vec![driver("status", 12, 40), driver("octavia", 0, 0)],
        problems: problems(),
    }
}

fn pool_use(pool: &str, family: &str, used: f64, free: f64) -> PoolUseView {
    PoolUseView { pool: pool.into(), family: family.into(), used, free }
}

fn driver(driver: &str, waiting: u64, oldest_seconds: u64) -> DriverView {
    let mut times = Histogram::default();
    (times.buckets[3], times.buckets[LATENCY_BUCKETS - 1], times.sum) = (6, 1, 70_000_000);
    DriverView { driver: driver.into(), waiting, oldest_seconds, working: 2, failures: 5, times }
}

fn condition(condition: &str, status: &str, services: u64) -> ConditionView {
    ConditionView { condition: condition.into(), status: status.into(), services }
}

fn bgp_peer(peer: &str, state: &str, bfd_up: Option<bool>, detail: &str) -> BgpPeerView {
    BgpPeerView {
        peer: peer.into(),
        state: state.into(),
        since: ago(90),
        prefixes: 3,
        received: 4,
        resets: 2,
        peer_asn: Some(64_513),
        bfd_up,
        detail: detail.into(),
    }
}

fn shop(count: u64) -> ServiceView {
    ServiceView {
        owner: "Service default/shop".into(),
        namespace: "default".into(),
        name: "shop".into(),
        addresses: vec![ip("203.0.113.7"), ip("2001:db8:4:17::7")],
        not_announced: None,
        announced_by: Some("203.0.113.7: host <edge-01> announces this address on eth0".into()),
        urls: vec!["https://203.0.113.7/".into(), "https://[2001:db8:4:17::7]/".into()],
        history: None,
        listeners: vec![
            listener("203.0.113.7", 443, L4::Tcp, "https", count),
            listener("2001:db8:4:17::7", 443, L4::Tcp, "https", count / 3),
        ],
        pools: vec![PoolView {
            id: "443/TCP".into(),
            service: "default/shop".into(),
            urls: vec![],
            protocol: L4::Tcp,
            balance: Balance::LeastConnections,
            panic: false,
            no_member: 0,
            latency: Some(Latency { p50: 0.4, p99: 12.5 }),
            latencies: Some(Box::default()),
            members: vec![
                member("10.42.0.17:8443", "shop-6f7c9-x2p4q", MemberState::Up, count / 2),
                member("10.42.1.9:8443", "shop-6f7c9-9wlmz", MemberState::Up, count / 2),
                MemberView {
                    last_error: "connection refused".into(),
                    connect_errors: 41,
                    retries: 41,
                    last_change: Some(ago(312)),
                    ..member("[2001:db8:42:2::1a]:8443", "shop-6f7c9-k8s7d", MemberState::Down, 88_412)
                },
                MemberView {
                    last_change: Some(ago(12)),
                    ..member("10.42.3.2:8443", "shop-59d4b-7hq2c", MemberState::Draining, 70_215)
                },
            ],
        }],
    }
}

fn door(count: u64) -> ServiceView {
    let http = |requests, failed| {
        Some(HttpCounts {
            requests,
            answers: ResponsesByClass { good: requests, refused: 7, failed, ..ResponsesByClass::default() },
        })
    };
    ServiceView {
        owner: "the front door".into(),
        name: "frontDoor".into(),
        addresses: vec![ip("203.0.113.80")],
        not_announced: None,
        announced_by: None,
        listeners: vec![ListenerView {
            http: http(count * 9, 3),
            ..listener("203.0.113.80", 80, L4::Tcp, "http", count)
        }],
        pools: vec![PoolView {
            id: "default/web:80".into(),
            service: "default/web".into(),
            urls: vec!["http://web.example/".into(), "http://shop.example/a-long-path/to/something".into()],
            protocol: L4::Tcp,
            balance: Balance::RoundRobin,
            panic: false,
            no_member: 0,
            latency: None,
            latencies: None,
            members: vec![MemberView {
                http: http(count * 9, 2),
                ..member("10.42.0.30:8080", "web-7d9f", MemberState::Up, count * 9)
            }],
        }],
        ..ServiceView::default()
    }
}

fn dns(count: u64) -> ServiceView {
    ServiceView {
        owner: "Service infra/dns".into(),
        namespace: "infra".into(),
        name: "dns".into(),
        addresses: vec![ip("203.0.113.53")],
        not_announced: Some("set <announce: static>".into()),
        announced_by: None,
        urls: vec![],
        history: None,
        listeners: vec![
            listener("203.0.113.53", 53, L4::Udp, "dns", count * 4),
            listener("203.0.113.53", 53, L4::Tcp, "dns-tcp", 12),
        ],
        pools: vec![PoolView {
            id: "53/UDP".into(),
            service: "infra/dns".into(),
            urls: vec![],
            protocol: L4::Udp,
            balance: Balance::SourceHash,
            panic: false,
            no_member: 0,
            latency: None,
            latencies: None,
            members: vec![
                MemberView {
                    check: CheckView::default(),
                    ..member("10.42.0.21:5353", "coredns-0", MemberState::Unchecked, count * 2)
                },
                MemberView {
                    last_error: "3 failures in a row: port unreachable".into(),
                    last_change: Some(ago(4)),
                    connect_errors: 3,
                    check: CheckView::default(),
                    ..member("10.42.1.22:5353", "coredns-1", MemberState::Ejected, count * 2)
                },
            ],
        }],
    }
}

fn legacy() -> ServiceView {
    ServiceView {
        owner: format!("Service default/{HOSTILE}"),
        namespace: "default".into(),
        name: HOSTILE.into(),
        addresses: vec![ip("198.51.100.20")],
        not_announced: Some("it is not even served".into()),
        announced_by: None,
        urls: vec!["javascript:alert(1)".into(), format!("http://{HOSTILE}/")],
        history: None,
        listeners: vec![ListenerView {
            serving: false,
            sessions: Sessions::default(),
            bytes: ByteCounts::default(),
            ..listener("198.51.100.20", 5432, L4::Tcp, "", 0)
        }],
        pools: vec![PoolView {
            id: "5432/TCP".into(),
            service: format!("default/{HOSTILE}"),
            urls: vec![],
            protocol: L4::Tcp,
            balance: Balance::RoundRobin,
            panic: false,
            no_member: 0,
            latency: None,
            latencies: None,
            members: vec![],
        }],
    }
}

pub(crate) fn listener(address: &str, port: u16, protocol: L4, name: &str, total: u64) -> ListenerView {
    ListenerView {
        address: ip(address),
        port,
        protocol,
        name: name.into(),
        serving: true,
        sessions: Sessions {
            current: total.min(218),
            peak: total.min(1904),
            total,
            limit: (protocol == L4::Tcp).then_some(20_000),
        },
        bytes: ByteCounts { incoming: total * 812, outgoing: total * 24_310 },
        refused: RejectedCounts { by_source: 3, by_limit: 0, by_client_rate: 0 },
        errors: 0,
        http: None,
        rate: None,
    }
}

pub(crate) fn member(address: &str, name: &str, state: MemberState, total: u64) -> MemberView {
    MemberView {
        address: address.into(),
        name: name.into(),
        backup: false,
        state,
        weight: 1,
        sessions: Sessions { current: total.min(109), peak: total.min(702), total, limit: None },
        bytes: ByteCounts { incoming: total * 812, outgoing: total * 24_310 },
        connect_errors: 0,
        retries: 0,
        resets: 0,
        timeouts: 0,
        latency: None,
        measured: LatencySum::default(),
        check: CheckView {
            description: "TCP every 2 s".into(),
            failures: u64::from(state == MemberState::Down) * 156,
            times_down: u64::from(state == MemberState::Down),
            rise: 2,
            fall: 3,
        },
        last_change: Some(ago(7200)),
        last_error: String::new(),
        http: None,
        rate: None,
    }
}

fn problems() -> Vec<Problem> {
    let service = |name: &str| ObjectRef::new(Kind::Service, "default", name);
    vec![
        Problem::new(
            service(HOSTILE),
            Reason::PortInUse,
            "198.51.100.20:5432/TCP is taken by process 812 (postgres), which is not ours.",
        )
        .at("spec.ports[0].port")
        .fix("Stop that process, or give the Service another port; it is tried again every 10 seconds.")
        .in_file("services/legacy.yaml", 14, 11),
        Problem::new(
            service("reports"),
            Reason::NoEndpoints,
            "The Service has a selector, and nobody here fills its slices.",
        )
        .at("spec.selector")
        .fix(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: reports-1\n  labels: \
             {kubernetes.io/service-name: reports}\naddressType: IPv4\nendpoints: [{addresses: \
             [\"10.0.0.1\"]}]\nports: [{name: http, port: 8080, protocol: TCP}]\n",
        )
        .in_file("services/reports.yaml", 1, 1),
    ]
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("it is an address")
}

fn ago(seconds: u64) -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis() as u64;
    Time(now - seconds * 1000)
}
