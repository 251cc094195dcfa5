//! What is measured, against whom, and what must be reached.

pub mod alone;
pub mod cloud;
mod crowded;
pub mod held;
mod kubernetes;
pub mod loaded;
mod web;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum as _;

use crate::contender::{Contender, Programs, Role};
use crate::load::Rig;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    TcpKeepalive,
    TcpConnect,
    TcpBulk,
    Udp,
    IdleConnections,
    Latency,
    Folder,
    Idle,
    OpenstackList,
    OpenstackMembers,
    Http100,
    Http1k,
    HttpMany100,
    HttpMany1k,
    HttpBulk,
    HttpConnect,
    Http2,
    Grpc,
    TlsHandshake,
    TlsKeepalive,
    HttpIdle,
    Http2Idle,
    TlsIdle,
    Routes,
    Certificates,
    Kubernetes,
    /// Requests to a cloud, counted; it has tables of its own.
    Octavia,
    /// Honest clients beside hostile ones; it has rounds and tables of its own.
    Attacks,
}

/// A number that a run yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Microseconds that core 0 was busy, for each request: the headline.
    BusyPerRequest,
    /// Microseconds that the contender's own tasks ran, for each request: the cross-check.
    TaskPerRequest,
    /// Percent of the time that core 0 was busy.
    Load,
    RequestsPerSecond,
    /// Microseconds from when a request was due to its last byte.
    LatencyHalf,
    LatencyP99,
    /// KiB of the contender's own memory for each connection.
    MemoryPerConnection,
    /// Milliseconds.
    UntilReady,
    UntilChanged,
    /// MiB.
    Resident,
    /// Percent of one core while nothing happens.
    CpuAtRest,
    /// HTTP requests to a cloud.
    Calls,
    /// MiB, the most that was resident at once.
    Peak,
    /// Milliseconds that a command ran on a core, and until it had ended.
    CpuTime,
    UntilDone,
    /// Of a cluster that is full of Services. Seconds until all are told their addresses; CPU that the controller and the
    /// host took for it.
    Installed,
    InstallCpu,
    InstallHostCpu,
    /// Requests that change something, for each Service: by then, and until nothing more is to be told.
    InstallWrites,
    AllTold,
    AllWrites,
    /// A controller that starts again: seconds, MiB, and requests that change something.
    Restarted,
    RestartCpu,
    RestartPeak,
    RestartWrites,
    HostRestarted,
    HostRestartCpu,
    HostRestartWrites,
    HostPeak,
    /// Milliseconds from when the writing of an endpoint was acknowledged until a new connection reaches it.
    EndpointHalf,
    EndpointP99,
    /// A minute in which nothing happens: seconds of CPU, requests that change something other than a Lease, and those
    /// that renew one.
    MinuteCpu,
    MinuteHostCpu,
    MinuteWrites,
    MinuteLeases,
    /// What the heartbeats of Nodes mark, and what they cost both processes.
    HeartbeatUnits,
    HeartbeatCpu,
}

/// A figure that must not exceed a limit: times a peer's, or by itself.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Target {
    pub metric: Metric,
    pub against: Option<Contender>,
    pub at_most: f64,
}

/// One contender in one round.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Sample {
    pub figures: BTreeMap<Metric, f64>,
    pub errors: u64,
    pub complaints: Vec<String>,
    /// Why the machine was not quiet enough to trust the figures.
    pub noise: Option<String>,
}

/// The rate of a case, and where it comes from if it was measured.
#[derive(Clone, Debug)]
pub struct Settled {
    pub rate: Option<f64>,
    pub how: Option<String>,
    pub noise: Option<String>,
}

/// How long and how hard to load.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub warm_up: f64,
    pub seconds: f64,
    pub at_rest: f64,
    /// All fixed rates are multiplied by it, for machines much slower or faster than the one they were chosen on.
    pub rate_scale: f64,
    /// Load balancers of a cloud, and members of one of them.
    pub balancers: usize,
    pub members: usize,
    /// At one front door.
    pub routes: usize,
    pub certificates: usize,
    /// In a cluster.
    pub services: usize,
}

impl Effort {
    pub const FULL: Self = Self {
        warm_up: 0.5,
        seconds: 3.0,
        at_rest: 20.0,
        rate_scale: 1.0,
        balancers: 5_000,
        members: 10_000,
        routes: 5_000,
        certificates: 10_000,
        services: 10_000,
    };
    pub const QUICK: Self = Self {
        warm_up: 0.1,
        seconds: 0.4,
        at_rest: 1.0,
        rate_scale: 0.2,
        balancers: 100,
        members: 200,
        routes: 100,
        certificates: 100,
        services: 200,
    };

    /// Whether it shows no more than that the case works.
    pub fn is_a_trial(self) -> bool {
        self.seconds < 1.0
    }

    /// Endpoints that change, one after the other.
    fn changes(self) -> usize {
        if self.is_a_trial() { 20 } else { 300 }
    }

    /// From when nothing happens any more until Units look again, which they do from half of five minutes on.
    fn until_audits(self) -> Duration {
        Duration::from_secs(if self.is_a_trial() { 0 } else { 230 })
    }

    /// An idle minute.
    fn minute(self) -> Duration {
        Duration::from_secs(if self.is_a_trial() { 5 } else { 60 })
    }
}

/// What a whole run of the bench shares.
pub struct Bench {
    pub programs: Programs,
    pub effort: Effort,
    pub open_files: u64,
    /// Nobody else's sockets, rules or limits are in the network that is measured.
    pub own_network: bool,
    pub rig: Rig,
    pub crowd: Option<cloud::Crowd>,
    /// Where a control plane that was filled once is kept for later runs.
    pub kept: Option<PathBuf>,
}

impl Case {
    /// Speaks HTTP with peers beside it.
    fn is_web(self) -> bool {
        self.role() == Role::Web
    }

    /// Whether it has tables of its own, and is not among all.
    pub fn is_by_itself(self) -> bool {
        matches!(self, Self::Attacks | Self::Octavia)
    }

    /// Whether an earlier binary can be measured beside it: the others start Seaway in a way of their own.
    pub fn is_of_an_earlier_binary(self) -> bool {
        use Case::{Folder, Idle, Kubernetes, OpenstackList, OpenstackMembers};
        let alone = [Folder, Idle, Kubernetes, OpenstackList, OpenstackMembers];
        !self.is_by_itself() && !alone.contains(&self)
    }

    pub fn role(self) -> Role {
        match self {
            Self::Http100
            | Self::Http1k
            | Self::HttpMany100
            | Self::HttpMany1k
            | Self::HttpBulk
            | Self::HttpConnect
            | Self::Http2
            | Self::Grpc
            | Self::TlsHandshake
            | Self::TlsKeepalive
            | Self::HttpIdle
            | Self::Http2Idle
            | Self::TlsIdle
            | Self::Routes
            | Self::Certificates => Role::Web,
            _ => Role::Stream,
        }
    }

    /// Filling a cluster takes longer than measuring it, and most of what is measured there is a sum or a median.
    pub fn rounds(self, wanted: usize) -> usize {
        if self == Self::Kubernetes { wanted.min(1) } else { wanted }
    }

    pub fn contenders(self) -> &'static [Contender] {
        use Contender::{Haproxy, Nginx, Seaway};
        match self {
            _ if self.is_web() => web::contenders(self),
            // HAProxy does not balance UDP.
            Self::Udp => &[Seaway, Nginx],
            Self::Folder | Self::Idle | Self::OpenstackList | Self::OpenstackMembers | Self::Kubernetes => {
                &[Seaway]
            }
            _ => &[Seaway, Haproxy, Nginx],
        }
    }

    pub fn targets(self) -> Vec<Target> {
        use Contender::{Haproxy, Nginx};
        let busy =
            |against, at_most| Target { metric: Metric::BusyPerRequest, against: Some(against), at_most };
        let alone = |metric, at_most| Target { metric, against: None, at_most };
        match self {
            Self::TcpKeepalive => vec![busy(Haproxy, 1.0), busy(Nginx, 1.0)],
            Self::TcpConnect | Self::TcpBulk => vec![busy(Haproxy, 1.0)],
            Self::Udp => vec![busy(Nginx, 0.7)],
            Self::IdleConnections => vec![alone(Metric::MemoryPerConnection, 8.0)],
            Self::Latency => {
                vec![Target { metric: Metric::LatencyP99, against: Some(Haproxy), at_most: 1.3 }]
            }
            Self::Folder => vec![
                alone(Metric::UntilReady, 3_000.0),
                alone(Metric::UntilChanged, 20.0),
                alone(Metric::Resident, 120.0),
            ],
            Self::Idle => {
                vec![
                    alone(Metric::UntilReady, 200.0),
                    alone(Metric::Resident, 30.0),
                    alone(Metric::CpuAtRest, 0.1),
                ]
            }
            Self::OpenstackList => vec![
                alone(Metric::Calls, 40.0),
                alone(Metric::Peak, 120.0),
                alone(Metric::UntilDone, 5_000.0),
            ],
            Self::OpenstackMembers => vec![
                alone(Metric::Calls, 20.0),
                alone(Metric::Peak, 120.0),
                alone(Metric::UntilDone, 2_000.0),
            ],
            Self::Kubernetes => kubernetes::targets(),
            _ => web::targets(self),
        }
    }

    /// The rate that all contenders get, where it is known before the run. Chosen so that core 0 is busy by a third to
    /// two thirds: every contender keeps up, and none is measured mostly asleep.
    fn rate(self) -> Option<f64> {
        match self {
            Self::TcpKeepalive => Some(30_000.0),
            Self::TcpConnect => Some(5_000.0),
            Self::TcpBulk => Some(600.0),
            Self::Udp => Some(30_000.0),
            _ if self.is_web() => web::rate(self),
            _ => None,
        }
    }

    /// The rate that all contenders get: for `latency`, half of what HAProxy can do at most, found now.
    pub fn settle_rate(self, bench: &mut Bench) -> Result<Settled> {
        if self == Self::Latency {
            let found = loaded::highest_rate(bench, Contender::Haproxy)?;
            let how = format!(
                "HAProxy's maximum is {:.0} requests/s with core 0 busy by {:.0} %",
                found.rate, found.load
            );
            return Ok(Settled { rate: Some(found.rate / 2.0), how: Some(how), noise: found.noise });
        }
        let rate = self.rate().map(|rate| rate * bench.effort.rate_scale);
        Ok(Settled { rate, how: None, noise: None })
    }

    /// Measures one contender once.
    pub fn sample(self, bench: &mut Bench, contender: Contender, rate: Option<f64>) -> Result<Sample> {
        match self {
            Self::Routes | Self::Certificates => {
                crowded::sample(bench, self, contender, rate.unwrap_or(1_000.0))
            }
            Self::IdleConnections | Self::HttpIdle | Self::Http2Idle | Self::TlsIdle => {
                held::sample(bench, self, contender)
            }
            Self::Folder => alone::large_folder(bench),
            Self::Idle => alone::at_rest(bench),
            Self::OpenstackList => cloud::list(bench),
            Self::OpenstackMembers => cloud::members(bench),
            Self::Kubernetes => kubernetes::sample(bench),
            _ => loaded::sample(bench, self, contender, rate.unwrap_or(1_000.0)),
        }
    }

    pub fn describe(self, bench: &Bench) -> String {
        match self {
            Self::TcpKeepalive => "TCP, 1 KiB request and response, keep-alive, 64 connections".into(),
            Self::TcpConnect => "TCP, new connection per request (1 KiB each way, the backend closes)".into(),
            Self::TcpBulk => "TCP, 1 MiB responses, 16 connections".into(),
            Self::Udp => "UDP 64 B, 1,000 flows".into(),
            Self::IdleConnections => format!("{} idle TCP connections", held::connections(bench, self)),
            Self::Routes => {
                format!(
                    "{} HTTPRoutes, each with a host and a path of its own, HTTP/1.1, 1 KiB",
                    bench.effort.routes
                )
            }
            Self::Certificates => {
                format!("{} certificates, a full handshake per request, 1 KiB", bench.effort.certificates)
            }
            Self::HttpIdle => format!("{} idle connections of HTTP/1.1", held::connections(bench, self)),
            Self::Http2Idle => format!("{} idle connections of HTTP/2", held::connections(bench, self)),
            Self::TlsIdle => format!("{} idle connections through TLS", held::connections(bench, self)),
            Self::Latency => "p99 latency at half of HAProxy's maximum, 64 connections, 1 KiB".into(),
            Self::Folder => "5,000 Services × 4 endpoints in the folder, 100 of them hashing".into(),
            Self::Idle => "small folder, no traffic".into(),
            Self::OpenstackList => {
                format!(
                    "`openstack show --no-members` of a cloud with {} load balancers",
                    bench.effort.balancers
                )
            }
            Self::OpenstackMembers => {
                let Effort { balancers, members, .. } = bench.effort;
                format!(
                    "`openstack show crowded`: one of {balancers} load balancers, its pool has {members} members"
                )
            }
            Self::Kubernetes => {
                format!(
                    "a cluster with {} Services × 3 endpoints, one host that serves them",
                    bench.effort.services
                )
            }
            _ => web::describe(self),
        }
    }
}

/// As it is named on the command line.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

impl Metric {
    /// Name and unit, as a table shows them.
    pub fn label(self) -> &'static str {
        match self {
            Self::BusyPerRequest => "core 0 busy, µs/request",
            Self::TaskPerRequest => "own tasks, µs/request",
            Self::Load => "core 0 busy, %",
            Self::RequestsPerSecond => "requests/s",
            Self::LatencyHalf => "p50, µs",
            Self::LatencyP99 => "p99, µs",
            Self::MemoryPerConnection => "memory, KiB/connection",
            Self::UntilReady => "ready after, ms",
            Self::UntilChanged => "change applied after, ms",
            Self::Resident => "resident, MiB",
            Self::CpuAtRest => "CPU at rest, %",
            Self::Calls => "calls",
            Self::Peak => "peak memory, MiB",
            Self::CpuTime => "CPU, ms",
            Self::UntilDone => "done after, ms",
            Self::Installed => "first install, s",
            Self::InstallCpu => "its CPU, controller, s",
            Self::InstallHostCpu => "its CPU, host, s",
            Self::InstallWrites => "its writes for each Service",
            Self::AllTold => "events told after, s",
            Self::AllWrites => "writes by then for each Service",
            Self::Restarted => "controller again ready after, s",
            Self::RestartCpu => "its CPU, s",
            Self::RestartPeak => "its peak memory, MiB",
            Self::RestartWrites => "its writes",
            Self::HostRestarted => "host again ready after, s",
            Self::HostRestartCpu => "host's CPU of it, s",
            Self::HostRestartWrites => "writes of it, of both",
            Self::HostPeak => "host's peak memory, MiB",
            Self::EndpointHalf => "endpoint change, p50, ms",
            Self::EndpointP99 => "endpoint change, p99, ms",
            Self::MinuteCpu => "idle minute, CPU of the controller, s",
            Self::MinuteHostCpu => "idle minute, CPU of the host, s",
            Self::MinuteWrites => "idle minute, writes but Leases",
            Self::MinuteLeases => "idle minute, writes of Leases",
            Self::HeartbeatUnits => "1,000 heartbeats, Units marked",
            Self::HeartbeatCpu => "1,000 heartbeats, CPU, s",
        }
    }
}
