//! What is shown: plain data, folded by the caller. All counts are totals since the process started.

use std::{collections::BTreeMap, net::IpAddr};

use seaway_model::{L4, Problem, Time, latency::Latencies, load_balancer::Balance};
use serde::{Deserialize, Serialize};

pub use self::cluster::{
    AllocationView, ApiCallsView, ApiServerView, ConditionView, DriverView, NodeControllerView, PoolUseView,
    ProcessRole, WatchView,
};

mod cluster;

/// One look at the whole process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    pub version: String,
    pub host: String,
    pub started: Time,
    pub readiness: Readiness,
    #[serde(default)]
    pub part: ProcessRole,
    /// Threads of the data plane.
    pub workers: u32,
    /// Attempts to bring a Unit to its desired state that failed.
    pub unit_failures: u64,
    /// Units that changes have marked to be looked at again.
    #[serde(default)]
    pub units_marked: u64,
    /// Lines of the access log that came to nothing.
    pub lost_lines: u64,
    /// What the data plane holds for clients.
    #[serde(default)]
    pub memory: MemoryView,
    /// The last hour of all Services; filled in here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryView>,
    pub services: Vec<ServiceView>,
    #[serde(default)]
    pub certificates: CertificatesView,
    /// Of a host that announces addresses by ARP and NDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer2: Option<Layer2View>,
    /// Of a host that announces addresses by BGP: its sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bgp: Vec<BgpPeerView>,
    /// Of who publishes names in DNS: its zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<DnsZoneView>,
    /// Of a controller that adopts load balancers step by step.
    #[serde(default)]
    pub adoption: Option<AdoptionView>,
    /// Of whoever allocates addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<DriverView>,
    pub problems: Vec<Problem>,
}

/// Addresses of pools with `announce: l2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layer2View {
    /// How many are in each state here: `Announcing`, `Standby`, `Conflict`, …
    pub by_state: BTreeMap<String, u64>,
    /// Addresses that this host began to announce, after another host had them.
    pub moves: u64,
    /// Packets by which another machine claimed one of them.
    pub conflicts: u64,
    /// Times that another host announced one at the same time.
    pub overlaps: u64,
}

/// A BGP session with one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerView {
    /// The BGPPeer's name.
    pub peer: String,
    /// `Established`, `Connecting`, or why not.
    pub state: String,
    pub since: Time,
    /// How many this host announces there.
    pub prefixes: u32,
    /// How many the peer announced; all were dropped.
    pub received: u64,
    /// How often an established session ended.
    pub resets: u64,
    pub peer_asn: Option<u32>,
    /// Nothing without BFD.
    pub bfd_up: Option<bool>,
    pub detail: String,
}

/// How many names of Services a zone has, by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsZoneView {
    pub zone: String,
    pub published: u64,
    pub failed: u64,
    pub waiting: u64,
    /// Attempts that failed.
    pub failures: u64,
}

/// Memory of the data plane beyond the kernel's buffers, and who had to go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryView {
    pub bytes: u64,
    pub limit_bytes: u64,
    /// Requests and connections that were refused because the limit was reached.
    pub refused: u64,
    /// Connections that were ended because they held most and took nothing.
    pub evicted: u64,
    /// UDP flows that were ended for others, for want of descriptors.
    pub flows_evicted: u64,
}

/// Services that a cloud serves, or would serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionView {
    pub services: u64,
    pub adopted: u64,
    /// Adopted, and their load balancers have Problems.
    pub troubled: u64,
    /// No adoption begins until fewer are.
    pub stopped: bool,
    /// Those that are not adopted, by why.
    pub waiting: BTreeMap<String, u64>,
}

/// All certificates together: by name there would be no end of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificatesView {
    /// `valid`, `expiring` within thirty days, `expired`, `early`, `broken`.
    pub by_state: BTreeMap<String, u64>,
    /// When the first of them expires, or did.
    pub first_expiry: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Readiness {
    /// The first plan is being served.
    Ready,
    Waiting {
        why: String,
    },
    #[default]
    Starting,
    Stopping,
}

impl Readiness {
    /// Why nothing should be sent here now; none when ready.
    pub fn not_ready_reason(&self) -> Option<&str> {
        match self {
            Readiness::Ready => None,
            Readiness::Waiting { why } => Some(why),
            Readiness::Starting => Some("starting: the first plan is not being served yet"),
            Readiness::Stopping => Some("stopping: no new connections are accepted"),
        }
    }
}

/// What one Owner gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// As people say it: `Service default/shop`.
    pub owner: String,
    pub namespace: String,
    pub name: String,
    pub addresses: Vec<IpAddr>,
    /// Why nothing that is known sends clients to its addresses, and what to do; none where something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_announced: Option<String>,
    /// Which host announces its addresses by ARP and NDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced_by: Option<String>,
    /// Where a browser finds it, if that can be known: some, not all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// The last hour; filled in here, of no more Services than a bound. None where nothing happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryView>,
    pub listeners: Vec<ListenerView>,
    pub pools: Vec<PoolView>,
}

/// Sixty minutes, the oldest first; the last is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryView {
    /// Of HTTP; where it is not spoken, connections and flows.
    pub requests: Vec<u64>,
    pub errors: Vec<u64>,
}

/// One socket address that is, or should be, served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerView {
    pub address: IpAddr,
    pub port: u16,
    pub protocol: L4,
    /// The port's name in its Service; may be empty.
    pub name: String,
    pub serving: bool,
    pub sessions: Sessions,
    pub bytes: ByteCounts,
    pub refused: RejectedCounts,
    /// Connections that ended by a fault of the client or of the network.
    pub errors: u64,
    /// Of HTTP alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCounts>,
    /// Filled in here, never by the data plane.
    #[serde(default)]
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    pub current: u64,
    pub peak: u64,
    pub total: u64,
    #[serde(default)]
    pub limit: Option<u64>,
}

/// Towards the member, and back to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteCounts {
    #[serde(rename = "in")]
    pub incoming: u64,
    #[serde(rename = "out")]
    pub outgoing: u64,
}

/// Requests, and how they were answered. A listener answers some by itself, and its connections carry many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpCounts {
    pub requests: u64,
    pub answers: ResponsesByClass,
}

/// By hundreds of their status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponsesByClass {
    #[serde(rename = "1xx")]
    pub interim: u64,
    #[serde(rename = "2xx")]
    pub good: u64,
    #[serde(rename = "3xx")]
    pub elsewhere: u64,
    #[serde(rename = "4xx")]
    pub refused: u64,
    #[serde(rename = "5xx")]
    pub failed: u64,
}

impl ResponsesByClass {
    /// The first of them counts nothing: there is no status below 100.
    pub fn by_class([_, interim, good, elsewhere, refused, failed]: [u64; 6]) -> ResponsesByClass {
        ResponsesByClass { interim, good, elsewhere, refused, failed }
    }

    pub fn classes(&self) -> [(&'static str, u64); 5] {
        [
            ("1xx", self.interim),
            ("2xx", self.good),
            ("3xx", self.elsewhere),
            ("4xx", self.refused),
            ("5xx", self.failed),
        ]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedCounts {
    /// Clients outside of the allowed ranges.
    pub by_source: u64,
    /// Too many at once, or too many new ones in a second.
    pub by_limit: u64,
    /// Requests of clients that had made more than they may.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub by_client_rate: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl RejectedCounts {
    pub fn total(&self) -> u64 {
        self.by_source.saturating_add(self.by_limit).saturating_add(self.by_client_rate)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    pub id: String,
    /// Namespace and name of the Service that it is of: `default/shop`.
    #[serde(default)]
    pub service: String,
    /// Where a browser finds it, if it is behind the front door.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    pub protocol: L4,
    pub balance: Balance,
    /// Too few members are healthy, so all of them are used.
    #[serde(default)]
    pub panic: bool,
    /// Clients that were turned away because no member was usable, or none could be reached.
    #[serde(default)]
    pub no_member: u64,
    /// Of late; filled in here from `latencies`, never by the data plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// All that was measured, for `/metrics`.
    #[serde(skip)]
    pub latencies: Option<Box<Latencies>>,
    pub members: Vec<MemberView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    /// `10.0.0.7:8080`, `[fd00::7]:8080`.
    pub address: String,
    /// What its Service calls it, a pod, a node, the name it was resolved from; may be empty.
    #[serde(default)]
    pub name: String,
    /// It stands by for when no other member can serve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backup: bool,
    pub state: MemberState,
    pub weight: u32,
    pub sessions: Sessions,
    pub bytes: ByteCounts,
    pub connect_errors: u64,
    /// Connections that went on to another member after this one failed.
    pub retries: u64,
    /// Connections that it reset.
    #[serde(default)]
    pub resets: u64,
    /// Of HTTP: requests that it did not answer in time.
    #[serde(default)]
    pub timeouts: u64,
    /// Mean of the last seconds in milliseconds, until it answered (HTTP) or took a connection (TCP); filled in here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<f64>,
    /// What that is made from.
    #[serde(skip)]
    pub measured: LatencySum,
    pub check: CheckView,
    pub last_change: Option<Time>,
    /// Empty when none was seen.
    #[serde(default)]
    pub last_error: String,
    /// Of HTTP alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCounts>,
    #[serde(default)]
    pub rate: Option<Rate>,
}

/// How often it was measured how long a member takes, and microseconds in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySum {
    pub count: u64,
    pub micros: u64,
}

/// How long members of a pool took of late, in milliseconds: to answer (HTTP), or to take a connection (TCP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckView {
    /// `TCP every 2 s`; empty when nothing is checked.
    pub description: String,
    pub failures: u64,
    /// How often it went from up to down.
    pub times_down: u64,
    #[serde(default)]
    pub rise: u8,
    #[serde(default)]
    pub fall: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemberState {
    Up,
    Down,
    /// Taken out for a while because traffic to it failed.
    Ejected,
    Draining,
    /// Used, and nobody checks it.
    Unchecked,
}

impl MemberState {
    pub const ALL: [MemberState; 5] = [
        MemberState::Up,
        MemberState::Down,
        MemberState::Ejected,
        MemberState::Draining,
        MemberState::Unchecked,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            MemberState::Up => "up",
            MemberState::Down => "down",
            MemberState::Ejected => "ejected",
            MemberState::Draining => "draining",
            MemberState::Unchecked => "unchecked",
        }
    }

    /// Gets new connections.
    pub fn is_usable(self) -> bool {
        matches!(self, MemberState::Up | MemberState::Unchecked)
    }
}

impl PoolView {
    /// The id without the protocol that ends it: `443` of `443/TCP`.
    pub fn label(&self) -> &str {
        let end = self.id.strip_suffix(self.protocol.as_str());
        end.and_then(|id| id.strip_suffix('/')).unwrap_or(&self.id)
    }

    pub fn usable(&self) -> usize {
        self.members.iter().filter(|m| m.state.is_usable() && m.weight > 0).count()
    }
}

/// Per second, over the last few seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    pub connections: f64,
    /// Of HTTP.
    #[serde(default)]
    pub requests: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
}

impl std::ops::AddAssign for Rate {
    fn add_assign(&mut self, other: Rate) {
        self.connections += other.connections;
        self.requests += other.requests;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

impl std::ops::AddAssign for HttpCounts {
    fn add_assign(&mut self, other: HttpCounts) {
        self.requests = self.requests.saturating_add(other.requests);
        self.answers.interim = self.answers.interim.saturating_add(other.answers.interim);
        self.answers.good = self.answers.good.saturating_add(other.answers.good);
        self.answers.elsewhere = self.answers.elsewhere.saturating_add(other.answers.elsewhere);
        self.answers.refused = self.answers.refused.saturating_add(other.answers.refused);
        self.answers.failed = self.answers.failed.saturating_add(other.answers.failed);
    }
}

impl std::ops::AddAssign for ByteCounts {
    fn add_assign(&mut self, other: ByteCounts) {
        self.incoming = self.incoming.saturating_add(other.incoming);
        self.outgoing = self.outgoing.saturating_add(other.outgoing);
    }
}
