//! What is measured, against whom, and what must be reached.

pub mod alone;
pub mod cloud;
mod crowded;
pub mod held;
mod hosts;
mod kubernetes;
pub mod loaded;
pub mod saturation;
mod web;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum as _;

use crate::case::saturation::SearchResult;
use crate::contender::{Contender, Programs, Role};
use crate::load::Rig;
use crate::metric::Metric;
use crate::pace::Rate;
use crate::target::Target;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    TcpKeepalive,
    TcpMany,
    TcpCrowd,
    /// With two workers on both cores, which the load shares.
    TcpTwoWorkers,
    TcpConnect,
    TcpBulk,
    Udp,
    UdpLarge,
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
    HttpCrowd,
    HttpTwoWorkers,
    HttpBulk,
    HttpConnect,
    Http2,
    Http2Many,
    Http2Crowd,
    Http2Bursts,
    Grpc,
    Websocket,
    TlsHandshake,
    TlsKeepalive,
    HttpIdle,
    Http2Idle,
    TlsIdle,
    Routes,
    Certificates,
    Kubernetes,
    /// A cluster with so many hosts, each in a network of its own.
    #[serde(rename = "hosts-1")]
    #[value(name = "hosts-1")]
    Hosts1,
    #[serde(rename = "hosts-10")]
    #[value(name = "hosts-10")]
    Hosts10,
    #[serde(rename = "hosts-100")]
    #[value(name = "hosts-100")]
    Hosts100,
    /// The proxies that users would choose today, at one load; they are built first, so it runs only where it is named.
    Proxies,
    /// What each policy costs, beside the same load without it; it runs only where it is named.
    Policies,
    /// Requests to a cloud, counted; it has tables of its own.
    Octavia,
    /// Honest clients beside hostile ones; it has rounds and tables of its own.
    Attacks,
}

/// One contender in one round.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    pub figures: BTreeMap<Metric, f64>,
    pub errors: u64,
    /// Of these, wrong answers and connections that broke: no noise excuses them.
    #[serde(default)]
    pub wrong: u64,
    pub complaints: Vec<String>,
    /// Why the machine was not quiet enough to trust the figures.
    pub noise: Option<String>,
}

/// The rate of a case, and where it comes from if it was measured.
#[derive(Clone, Debug)]
pub struct ChosenRate {
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
    pub crowd: Option<cloud::FullCloud>,
    /// Where a control plane that was filled once is kept for later runs.
    pub kept: Option<PathBuf>,
    /// The highest rates that were found in earlier rounds.
    pub highest: BTreeMap<(Case, Contender), SearchResult>,
    /// The versions of what is measured.
    pub versions: Vec<(Contender, String)>,
}

impl Case {
    /// Speaks HTTP with peers beside it.
    fn is_web(self) -> bool {
        self.role() == Role::Web
    }

    /// Of each contender. Two stand on both cores, where one of them has the load for a neighbour.
    pub fn workers(self) -> usize {
        if matches!(self, Self::TcpTwoWorkers | Self::HttpTwoWorkers) { 2 } else { 1 }
    }

    /// Whether it has tables of its own, and is not among all.
    pub fn is_by_itself(self) -> bool {
        matches!(self, Self::Attacks | Self::Octavia)
    }

    /// Of a cluster: how many, where that is what the case is about.
    fn hosts(self) -> Option<usize> {
        match self {
            Self::Hosts1 => Some(1),
            Self::Hosts10 => Some(10),
            Self::Hosts100 => Some(100),
            _ => None,
        }
    }

    fn has_a_cluster(self) -> bool {
        self == Self::Kubernetes || self.hosts().is_some()
    }

    /// Whether it runs where no case is named.
    pub fn is_usual(self) -> bool {
        !self.is_by_itself() && !matches!(self, Self::Proxies | Self::Policies)
    }

    /// Whether an earlier binary can be measured beside it: the others start Seaway in a way of their own.
    pub fn is_of_an_earlier_binary(self) -> bool {
        use Case::{Folder, Idle, OpenstackList, OpenstackMembers};
        let alone = [Folder, Idle, OpenstackList, OpenstackMembers];
        !self.is_by_itself() && !self.has_a_cluster() && !alone.contains(&self)
    }

    pub fn role(self) -> Role {
        match self {
            Self::Http100
            | Self::Http1k
            | Self::HttpMany100
            | Self::HttpMany1k
            | Self::HttpCrowd
            | Self::HttpTwoWorkers
            | Self::HttpBulk
            | Self::HttpConnect
            | Self::Http2
            | Self::Http2Many
            | Self::Http2Crowd
            | Self::Http2Bursts
            | Self::Grpc
            | Self::Websocket
            | Self::TlsHandshake
            | Self::TlsKeepalive
            | Self::HttpIdle
            | Self::Http2Idle
            | Self::TlsIdle
            | Self::Routes
            | Self::Certificates
            | Self::Proxies
            | Self::Policies => Role::Web,
            _ => Role::Stream,
        }
    }

    /// Filling a cluster takes longer than measuring it, and most of what is measured there is a sum or a median.
    pub fn rounds(self, wanted: usize) -> usize {
        if self.has_a_cluster() { wanted.min(1) } else { wanted }
    }

    pub fn contenders(self) -> &'static [Contender] {
        use Contender::{Haproxy, Nginx, Seaway};
        match self {
            _ if self.is_web() => web::contenders(self),
            _ if self.has_a_cluster() => &[Seaway],
            // HAProxy does not balance UDP.
            Self::Udp | Self::UdpLarge => &[Seaway, Nginx],
            Self::Folder | Self::Idle | Self::OpenstackList | Self::OpenstackMembers => &[Seaway],
            _ => &[Seaway, Haproxy, Nginx],
        }
    }

    pub fn targets(self) -> Vec<Target> {
        use Contender::Haproxy;
        let busy = |peer, at_most| Target::beside(Metric::BusyPerRequest, peer, at_most);
        let alone = Target::alone;
        match self {
            Self::TcpKeepalive | Self::TcpMany | Self::TcpCrowd => Target::at_any_rate(),
            Self::TcpTwoWorkers | Self::HttpTwoWorkers => Target::saturated(),
            Self::TcpConnect | Self::TcpBulk => vec![busy(Haproxy, 1.0)],
            Self::Udp | Self::UdpLarge => Target::at_any_rate(),
            Self::IdleConnections => vec![alone(Metric::MemoryPerConnection, 8.0)],
            Self::Latency => {
                vec![Target::beside(Metric::LatencyP99, Haproxy, 1.3)]
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
            Self::Hosts1 | Self::Hosts10 | Self::Hosts100 => hosts::targets(),
            _ => web::targets(self),
        }
    }

    /// The rate that all contenders get, where it is known before the run. Chosen so that core 0 is busy by a third to
    /// two thirds: every contender keeps up, and none is measured mostly asleep.
    fn rate(self) -> Option<f64> {
        match self {
            Self::TcpKeepalive | Self::TcpMany | Self::TcpCrowd | Self::TcpTwoWorkers => Some(30_000.0),
            Self::TcpConnect => Some(5_000.0),
            Self::TcpBulk => Some(600.0),
            Self::Udp | Self::UdpLarge => Some(30_000.0),
            _ if self.is_web() => web::rate(self),
            _ => None,
        }
    }

    /// How requests of this rate come: one after the other, or as many at once as there are streams, about nine times a
    /// second.
    pub fn spread(self, per_second: f64) -> Rate {
        let is_even = self != Self::Http2Bursts;
        let stated = self.rate().unwrap_or(per_second);
        let burst = if is_even { 1.0 } else { f64::from(web::BURST) * (per_second / stated).min(1.0) };
        Rate { per_second, burst: burst.round().max(1.0) as u32 }
    }

    /// Whether the highest rate is looked for, beside what the rate of the case costs.
    pub fn has_saturation(self) -> bool {
        self.targets().iter().any(|it| it.metric == Metric::HighestRate)
    }

    /// The rate that all contenders get: for `latency`, half of what HAProxy can do at most, found now.
    pub fn settle_rate(self, bench: &mut Bench) -> Result<ChosenRate> {
        if self == Self::Latency {
            let found = loaded::highest_rate(bench, Contender::Haproxy)?;
            let how = format!(
                "HAProxy's maximum is {:.0} requests/s with core 0 busy by {:.0} %",
                found.rate, found.load
            );
            return Ok(ChosenRate { rate: Some(found.rate / 2.0), how: Some(how), noise: found.noise });
        }
        let rate = self.rate().map(|rate| rate * bench.effort.rate_scale);
        Ok(ChosenRate { rate, how: None, noise: None })
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
            Self::Hosts1 | Self::Hosts10 | Self::Hosts100 => hosts::sample(bench, self.hosts().unwrap_or(1)),
            _ => loaded::sample(bench, self, contender, rate.unwrap_or(1_000.0)),
        }
    }

    pub fn describe(self, bench: &Bench) -> String {
        match self {
            Self::TcpKeepalive => "TCP, 1 KiB request and response, keep-alive, 64 connections".into(),
            Self::TcpMany => "TCP, 1 KiB request and response, keep-alive, 512 connections".into(),
            Self::TcpTwoWorkers => {
                "TCP, 1 KiB request and response, keep-alive, 64 connections, two workers on both cores"
                    .into()
            }
            Self::TcpCrowd => {
                let connections = held::connections(bench, Self::IdleConnections);
                format!("TCP, 1 KiB request and response, keep-alive, {connections} connections")
            }
            Self::TcpConnect => "TCP, new connection per request (1 KiB each way, the backend closes)".into(),
            Self::TcpBulk => "TCP, 1 MiB responses, 16 connections".into(),
            Self::Udp => "UDP 64 B, 1,000 flows".into(),
            Self::UdpLarge => "UDP 1,200 B, 1,000 flows".into(),
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
            Self::Hosts1 | Self::Hosts10 | Self::Hosts100 => {
                let hosts = self.hosts().unwrap_or_default();
                format!(
                    "a cluster with 100 Services on {hosts} hosts, all of which share two cores; 30 more come, 3 s apart"
                )
            }
            _ => web::describe(bench, self),
        }
    }
}

/// As it is named on the command line.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}
