//! The table itself.

use std::{net::IpAddr, time::Duration};

use seaway_model::{
    config::MemberSource,
    load_balancer::{Balance, CheckKind, MemberLimit, PassiveHealthCheck, ProxyVersion},
};

use super::{PerPort, ServiceOptions};
use crate::quantity::{duration, list, network, trusted_network};

/// One option: its names, what it may say, and how it is set.
pub struct Row {
    pub names: &'static [&'static str],
    pub help: &'static str,
    pub set: fn(&mut ServiceOptions, &str) -> Result<(), String>,
}

impl Row {
    /// The name that is ours; others are those of other controllers for the same.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

/// How members share the load.
pub const BALANCE: &str = "seaway.dev/balance";
pub const TRANSPARENT: &str = "seaway.dev/transparent";
/// What kind of health check.
pub const CHECK: &str = "seaway.dev/health-check";
/// At which port.
pub const CHECK_PORT: &str = "seaway.dev/health-check-port";
/// How often.
pub const CHECK_INTERVAL: &str = "seaway.dev/health-check-interval";
/// Which clients may connect.
pub const SOURCE_RANGES: &str = "seaway.dev/source-ranges";
/// How many connections there may be.
pub const CONNECTIONS: &str = "seaway.dev/max-connections";
/// How many may come in a second.
pub const RATE: &str = "seaway.dev/max-new-connections-per-second";
/// How many one member is given at the same time.
const MEMBER_CONNECTIONS: &str = "seaway.dev/max-connections-per-member";
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// Who says by the PROXY protocol who the client is.
pub const PROXY_FROM: &str = "seaway.dev/proxy-protocol-from";
/// What members are told by.
pub const PROXY: &str = "seaway.dev/proxy-protocol";
/// Who answers, of a Service in a folder: whoever reads the folder makes endpoints of it.
pub const BACKENDS: &str = "seaway.dev/backends";
pub(super) const ADDRESS: &str = "seaway.dev/address";

/// The order matters where one row refines another: `health-check` comes before its details.
pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[BACKENDS],
        help: "the backends of a Service in a folder, for example 10.0.0.1:8080 name=a weight=3, 10.0.0.9:8080 backup. In a cluster it is ignored and reported as a Problem",
        set: |_, _| {
            Err("this annotation works in a folder only; in a cluster, write an EndpointSlice".to_owned())
        },
    },
    Row {
        names: &["seaway.dev/members"],
        help: "which members get traffic: pods, nodes (at their node ports), or auto: pods where the host is a Node, else nodes",
        set: |wishes, text| {
            wishes.members = match text {
                "auto" => MemberSource::Auto,
                "pods" => MemberSource::Pods,
                "nodes" => MemberSource::Nodes,
                _ => return Err(format!("{text:?} is not pods, nodes or auto")),
            };
            Ok(())
        },
    },
    Row {
        names: &[BALANCE, "serviceloadbalancer/lb.algorithm", "loadbalancer.openstack.org/lb-method"],
        help: "round-robin, least-connections, random-two, source-hash or first; roundrobin, leastconn, random and source of HAProxy are read as well",
        set: |wishes, text| {
            wishes.balance = match text {
                "round-robin" | "roundrobin" | "ROUND_ROBIN" | "SOURCE_IP_PORT" => Balance::RoundRobin,
                "least-connections" | "leastconn" | "LEAST_CONNECTIONS" => Balance::LeastConnections,
                "random-two" | "random" => Balance::RandomTwo,
                "source-hash" | "source" | "SOURCE_IP" => Balance::SourceHash,
                "first" => Balance::First,
                _ => return Err(format!("{text:?} is not a load balancing method")),
            };
            Ok(())
        },
    },
    Row {
        names: &[
            ADDRESS,
            "metallb.io/loadBalancerIPs",
            "metallb.universe.tf/loadBalancerIPs",
            "kube-vip.io/loadbalancerIPs",
            "lbipam.cilium.io/ips",
            "io.cilium/lb-ipam-ips",
        ],
        help: "one address of a pool, or one of each family: 192.0.2.10,2001:db8::10; in a cloud a floating IP of the project, or with \
               seaway.dev/internal an address of the subnet",
        set: |wishes, text| {
            wishes.requested =
                list(text, |it| it.parse::<IpAddr>().map_err(|_| format!("{it:?} is not an address")))?;
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/address-pool", "metallb.io/address-pool", "metallb.universe.tf/address-pool"],
        help: "the name of the AddressPool to take from",
        set: |wishes, text| {
            wishes.pool = (!text.is_empty()).then(|| text.into());
            Ok(())
        },
    },
    Row {
        names: &[
            "seaway.dev/share",
            "metallb.io/allow-shared-ip",
            "metallb.universe.tf/allow-shared-ip",
            "lbipam.cilium.io/sharing-key",
            "io.cilium/lb-ipam-sharing-key",
        ],
        help: "any word; Services with the same word may share an address, and need different ports",
        set: |wishes, text| {
            wishes.sharing = (!text.is_empty()).then(|| text.into());
            Ok(())
        },
    },
    Row {
        names: &[
            "seaway.dev/share-across-namespaces",
            "lbipam.cilium.io/sharing-cross-namespace",
            "io.cilium/lb-ipam-sharing-cross-namespace",
        ],
        help: "other namespaces whose Services may share an address with this one, or *; both Services must have this",
        set: |wishes, text| {
            wishes.share_across = list(text, |it| Ok(it.into()))?;
            Ok(())
        },
    },
    Row {
        names: &[SOURCE_RANGES, "service.beta.kubernetes.io/load-balancer-source-ranges"],
        help: "networks that may connect: 192.0.2.0/24,2001:db8::/32; spec.loadBalancerSourceRanges wins",
        set: |wishes, text| {
            wishes.sources = list(text, network)?;
            if wishes.sources.is_empty() { Err("no network is named".into()) } else { Ok(()) }
        },
    },
    Row {
        names: &[CHECK],
        help: "tcp, http, grpc, udp or none",
        set: |wishes, text| {
            let kind = match text {
                "none" | "off" => {
                    wishes.health = None;
                    return Ok(());
                }
                "tcp" => CheckKind::Tcp,
                "http" => CheckKind::http(),
                "grpc" => CheckKind::Grpc { service: "".into() },
                "udp" => CheckKind::Udp { send: "".into(), expect: None },
                _ => return Err(format!("{text:?} is not a kind of check; none turns health checks off")),
            };
            wishes.check().kind = kind;
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-path"],
        help: "a path to GET, such as /healthz",
        set: |wishes, text| {
            if !text.starts_with('/') || text.bytes().any(|byte| byte <= b' ' || byte == 127) {
                return Err(format!("{text:?} is not a path"));
            }
            *wishes.http_check().0 = text.into();
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-host"],
        help: "the host name that is sent in the request",
        set: |wishes, text| {
            if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 127) {
                return Err(format!("{text:?} is not a host name"));
            }
            *wishes.http_check().1 = Some(text.into());
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-status"],
        help: "a status or a range of them: 200 or 200-399",
        set: |wishes, text| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let status = |it: &str| it.trim().parse::<u16>().ok().filter(|it| (100..600).contains(it));
            match (status(first), status(last)) {
                (Some(first), Some(last)) if first <= last => *wishes.http_check().2 = (first, last),
                _ => {
                    return Err(format!(
                        "{text:?} is not an HTTP status: write one (200) or a range (200-399)"
                    ));
                }
            }
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-service"],
        help: "the gRPC service to check; without it, all that the member serves",
        set: |wishes, text| {
            if text.len() > 127 || text.bytes().any(|byte| byte <= b' ' || byte == 127) {
                return Err(format!("{text:?} is not a valid gRPC service name"));
            }
            wishes.check().kind = CheckKind::Grpc { service: text.into() };
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-send"],
        help: "the text of the datagram to send",
        set: |wishes, text| {
            let text = text.into();
            match &mut wishes.check().kind {
                CheckKind::Udp { send, .. } => *send = text,
                kind => *kind = CheckKind::Udp { send: text, expect: None },
            }
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-expect"],
        help: "text that the answer contains (http, udp)",
        set: |wishes, text| match &mut wishes.check().kind {
            CheckKind::Udp { expect, .. } | CheckKind::Http { expect, .. } => {
                *expect = Some(text.into());
                Ok(())
            }
            CheckKind::Tcp | CheckKind::Grpc { .. } => {
                Err("only a check with seaway.dev/health-check: http or udp expects a text".into())
            }
        },
    },
    Row {
        names: &[CHECK_PORT],
        help: "a port other than the member's; in a cluster, at a Node's address: a node port of the Service, or its healthCheckNodePort",
        set: |wishes, text| {
            let port = text.parse::<u16>().ok().filter(|port| *port > 0);
            wishes.check().port = Some(port.ok_or_else(|| format!("{text:?} is not a port"))?);
            Ok(())
        },
    },
    Row {
        names: &[CHECK_INTERVAL],
        help: "a duration, such as 2s",
        set: |wishes, text| {
            wishes.check().interval = positive(text)?;
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-timeout"],
        help: "a duration, such as 1s",
        set: |wishes, text| {
            wishes.check().timeout = positive(text)?;
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-rise"],
        help: "successes in a row after a failure, 1 to 255",
        set: |wishes, text| {
            wishes.check().rise = count(text)?;
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/health-check-fall"],
        help: "failures in a row, 1 to 255",
        set: |wishes, text| {
            wishes.check().fall = count(text)?;
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/passive-ejection"],
        help: "failures in a row until a member is ejected for a while, or off",
        set: |wishes, text| {
            wishes.passive = match text {
                "off" | "false" | "none" | "0" => None,
                "on" | "true" => Some(wishes.passive.unwrap_or_default()),
                _ => {
                    Some(PassiveHealthCheck { failures: count(text)?, ..wishes.passive.unwrap_or_default() })
                }
            };
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/passive-ejection-errors"],
        help: "5xx responses in a row until a member is ejected for a while (HTTP), or off",
        set: |wishes, text| {
            let errors = match text {
                "off" | "false" | "none" | "0" => None,
                _ => Some(count(text)?),
            };
            wishes.passive = Some(PassiveHealthCheck { errors, ..wishes.passive.unwrap_or_default() });
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/passive-ejection-share"],
        help: "largest share of the members that may be ejected at the same time, in percent, 0 to 100; one member always may be",
        set: |wishes, text| {
            let share = percent(text)?;
            wishes.passive = Some(PassiveHealthCheck { share, ..wishes.passive.unwrap_or_default() });
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/slow-start"],
        help: "slow start: how long the share of a member grows after it became healthy again; 0: no slow start",
        set: |wishes, text| {
            wishes.slow_start = Some(duration(text)?).filter(|it| !it.is_zero());
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/panic-threshold"],
        help: "percent of healthy members below which all are used, 0 to 100",
        set: |wishes, text| {
            wishes.panic_threshold = percent(text)?;
            Ok(())
        },
    },
    Row {
        names: &[PROXY, "loadbalancer.openstack.org/proxy-protocol"],
        help: "send a PROXY protocol header to members: v1, v2 or none; per port, by number or name: 443:v2,80:none",
        set: |wishes, text| {
            wishes.proxy_of = PerPort::read(text, |it| match it {
                "v1" | "1" | "true" => Ok(Some(ProxyVersion::V1)),
                "v2" | "2" => Ok(Some(ProxyVersion::V2)),
                "none" | "off" | "false" => Ok(None),
                _ => Err(format!("{it:?} is not a version of the PROXY protocol")),
            })?;
            wishes.proxy = wishes.proxy_of.others().flatten();
            Ok(())
        },
    },
    Row {
        names: &[TRANSPARENT],
        help: "true: members see the client's own address; their answers must come back through the host",
        set: |wishes, text| {
            wishes.transparent = match text {
                "true" | "on" => true,
                "false" | "off" => false,
                _ => return Err(format!("{text:?} is neither true nor false")),
            };
            Ok(())
        },
    },
    Row {
        names: &[PROXY_FROM],
        help: "networks that must send a PROXY protocol header, which is trusted: 10.1.0.0/24, without host bits",
        set: |wishes, text| {
            wishes.proxy_from = list(text, trusted_network)?;
            Ok(())
        },
    },
    Row {
        names: &[CONNECTIONS, "loadbalancer.openstack.org/connection-limit"],
        help: "how many connections may be open, of all clients together; each port, address and host counts for itself. One more is \
               reset (UDP: dropped). At the front door: how many requests may be under way; one more gets 503. 0 and -1 mean no limit",
        set: |wishes, text| {
            // Octavia says so what we say by 0.
            wishes.limits.connections = if text == "-1" { None } else { number(text)? };
            Ok(())
        },
    },
    Row {
        names: &[RATE],
        help: "how many connections may begin in a second, of all clients together; each port, address and host counts for itself. \
               One more is reset (UDP: dropped). At the front door: how many requests; one more gets 429. 0 means no limit",
        set: |wishes, text| {
            wishes.limits.new_per_second = number(text)?;
            Ok(())
        },
    },
    Row {
        names: &[MEMBER_CONNECTIONS],
        help: "how many connections of TCP, requests of HTTP, or flows of UDP a member is given at the same time, by each host; \
               further clients wait in a queue (UDP: are dropped); 0 means no limit",
        set: |wishes, text| {
            let limit = |connections| MemberLimit { connections, wait: QUEUE_TIMEOUT };
            wishes.member_limit = number(text)?.map(limit);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/queue-timeout"],
        help: "how long a client waits for a member below seaway.dev/max-connections-per-member; by default 5s. 0: it does not wait",
        set: |wishes, text| match &mut wishes.member_limit {
            Some(limit) => {
                limit.wait = duration(text)?;
                Ok(())
            }
            None => Err(format!(
                "this annotation needs {MEMBER_CONNECTIONS}, above which clients wait in a queue"
            )),
        },
    },
    Row {
        names: &["seaway.dev/timeout-connect"],
        help: "how long a member has to accept a connection, before another one is tried; by default 5s",
        set: |wishes, text| {
            wishes.timeouts.connect = positive(text)?;
            wishes.http.terms.connect = Some(wishes.timeouts.connect);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/timeout-idle"],
        help: "how long a TCP connection may be open without a byte in either direction; with HTTP, a WebSocket, or a stream of HTTP/2; by default 1h",
        set: |wishes, text| {
            wishes.timeouts.idle = positive(text)?;
            wishes.http.terms.idle = Some(wishes.timeouts.idle);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/timeout-half-closed"],
        help: "how long a TCP connection may stay open after one side has closed its direction; by default 50s",
        set: |wishes, text| {
            wishes.timeouts.half_closed = positive(text)?;
            wishes.http.terms.half_closed = Some(wishes.timeouts.half_closed);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/timeout-udp"],
        help: "how long a UDP flow lasts without a datagram in either direction; by default 60s",
        set: |wishes, text| {
            wishes.timeouts.udp_idle = positive(text)?;
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/drain"],
        help: "how long connections of a removed member may continue; by default 60s",
        set: |wishes, text| {
            wishes.timeouts.drain = duration(text)?;
            wishes.http.terms.drain = Some(wishes.timeouts.drain);
            Ok(())
        },
    },
];

pub(super) fn positive(text: &str) -> Result<std::time::Duration, String> {
    match duration(text)? {
        it if it.is_zero() => Err(format!("{text:?} must be longer than 0")),
        it => Ok(it),
    }
}

fn percent(text: &str) -> Result<u8, String> {
    let percent = text.trim_end_matches('%').parse::<u8>().ok().filter(|it| *it <= 100);
    percent.ok_or_else(|| format!("{text:?} is not a percentage"))
}

fn count(text: &str) -> Result<u8, String> {
    text.parse::<u8>()
        .ok()
        .filter(|it| *it > 0)
        .ok_or_else(|| format!("{text:?} is not a number from 1 to 255"))
}

fn number(text: &str) -> Result<Option<u32>, String> {
    let number: u32 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    Ok(Some(number).filter(|it| *it > 0))
}
