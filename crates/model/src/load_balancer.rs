//! The desired thing, the same for every driver: where it listens, what it decides, where it leads.
//!
//! ```text
//!     LoadBalancer ─ binds
//!          ├─ listeners: (protocol, port) ─► rules ─► action ─┐
//!          └─ pools: PoolId ─► members  ◄─────────────────────┘
//! ```
//! Layer 4 is a rule without matches.

mod auth;
mod cloud;
mod http;
mod pool;
mod rate;
mod tls;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::{auth::*, cloud::*, http::*, pool::*, rate::*, tls::*};
use crate::{
    config::{FloatingSubnet, SharedLoadBalancerScope},
    group::CloudNode,
    name::{Name, ObjectRef, Owner},
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadBalancer {
    pub binds: Vec<Bind>,
    pub listeners: BTreeMap<ListenerId, Arc<Listener>>,
    pub pools: BTreeMap<PoolId, Arc<Pool>>,
    /// By the object that they are in: what listeners name in their `tls`.
    pub certificates: Arc<BTreeMap<ObjectRef, Arc<Certificate>>>,
    /// Secrets that its listeners name and that were not read yet: nobody knows whether they are there.
    pub awaited: BTreeSet<ObjectRef>,
    pub options: LoadBalancerOptions,
}

/// An address that the listeners of a load balancer answer on, and who gives it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bind {
    /// Of our pools: made present on the host.
    Ledger(IpAddr),
    /// The host's own: present without us.
    Host(IpAddr),
    /// Chosen by a cloud from what `options.cloud` asks.
    Cloud(Family),
}

impl Bind {
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Bind::Ledger(ip) | Bind::Host(ip) => Some(*ip),
            Bind::Cloud(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    pub fn other(self) -> Family {
        if self == Family::V4 { Family::V6 } else { Family::V4 }
    }
}

/// The transport below everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum L4 {
    #[serde(rename = "TCP")]
    Tcp,
    #[serde(rename = "UDP")]
    Udp,
    #[serde(rename = "SCTP")]
    Sctp,
}

impl L4 {
    pub fn as_str(self) -> &'static str {
        match self {
            L4::Tcp => "TCP",
            L4::Udp => "UDP",
            L4::Sctp => "SCTP",
        }
    }
}

impl fmt::Display for L4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Unique within a load balancer: all its listeners share its binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListenerId {
    pub l4: L4,
    pub port: u16,
}

impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.l4)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    pub owner: Owner,
    /// What people call it, for metrics and pages: `default/shop:http`.
    pub name: Name,
    pub l4: L4,
    pub port: u16,
    pub protocol: Protocol,
    pub tls: Option<Arc<TlsByName>>,
    /// Shared, so that thousands that stay as they are cost nothing when one changes.
    pub rules: Vec<Arc<Rule>>,
    pub http: HttpOptions,
    /// Who may connect; empty means everybody.
    pub sources: Vec<IpNet>,
    /// Who may not, whatever `sources` says.
    pub denied: Vec<IpNet>,
    /// Whose PROXY protocol header is required and believed; from others none is expected.
    pub proxy_from: Vec<IpNet>,
    pub limits: Limits,
    pub timeouts: Timeouts,
}

impl Listener {
    pub fn id(&self) -> ListenerId {
        ListenerId { l4: self.l4, port: self.port }
    }

    /// Its bytes are parsed, not merely passed on: HTTP, or TLS, of which the first message is read at least.
    pub fn needs_parsing(&self) -> bool {
        self.protocol == Protocol::Http || self.tls.is_some()
    }
}

/// What a listener understands of what flows through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// Bytes or datagrams.
    Opaque,
    Http,
}

/// Over all workers of a process; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    pub connections: Option<u32>,
    pub new_per_second: Option<u32>,
}

/// For one listener. The defaults are those of the old HAProxy bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// To a member.
    pub connect: Duration,
    /// Without a byte either way (TCP): what HAProxy calls a tunnel. A peer that vanished is found out much sooner, by
    /// the kernel.
    pub idle: Duration,
    /// After one side has finished.
    pub half_closed: Duration,
    /// A UDP flow without a datagram.
    pub udp_idle: Duration,
    /// How long connections of a removed member may go on.
    pub drain: Duration,
    /// For a PROXY protocol header, or a request's head.
    pub header: Duration,
    /// Between two requests of a client (HTTP).
    pub keep_alive: Duration,
    /// Without a byte either way while a request is answered (HTTP).
    pub answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(3600),
            half_closed: Duration::from_secs(50),
            udp_idle: Duration::from_secs(60),
            drain: Duration::from_secs(60),
            header: Duration::from_secs(5),
            keep_alive: Duration::from_secs(60),
            answer: Duration::from_secs(50),
        }
    }
}

/// Options of places other than our own data plane: closed groups, filled by one table in `plan`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerOptions {
    /// Only members on the serving host are used (`externalTrafficPolicy: Local`).
    pub local_only: bool,
    pub health_check_node_port: Option<u16>,
    /// What a cloud is asked for; `None` where no cloud is involved.
    pub cloud: Option<CloudOptions>,
}

/// What is asked of a cloud. Networks, subnets and the like by id; `None`: as is usual there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudOptions {
    /// In the order in which their owner has them: what a cloud makes of each is numbered by it.
    pub ports: Vec<ListenerId>,
    /// Of its addresses, the first one's first; a second where the cloud has one.
    pub families: Vec<Family>,
    /// The second family of its owner, which the configuration takes away: what is there with both keeps both.
    pub withheld: Option<Family>,
    /// It needs one of each.
    pub both: bool,
    /// Nobody said where it is: it is where these are.
    pub beside: Vec<CloudNode>,
    /// Nodes are opened to it; who may come is said there, where the provider cannot.
    pub opened: bool,
    /// Members are Nodes.
    pub by_nodes: bool,
    /// Members are probed because somebody said so.
    pub monitored: bool,
    /// Reached from the cloud's own networks only.
    pub internal: bool,
    /// That is the configuration's word, not the Service's: a floating IP that is there stays.
    pub internal_by_default: bool,
    /// Where the VIP is: a network, a subnet of it, or a port that is there already.
    pub network: Option<Name>,
    pub subnet: Option<Name>,
    pub port: Option<Name>,
    pub member_subnet: Option<Name>,
    pub requested: Option<IpAddr>,
    /// Where that is requested, for Problems.
    pub requested_field: Name,
    pub explicit: ExplicitOptions,
    pub floating: FloatingIpOptions,
    pub flavor: Option<Name>,
    pub provider: Option<Name>,
    pub zone: Option<Name>,
    pub timeouts: CloudTimeouts,
    /// A certificate that is shown and that nobody here has.
    pub tls: Option<CloudTls>,
    pub tls_terms: CloudTlsOptions,
    /// Ports in plaintext whose clients are to be sent to https.
    pub to_https: BTreeSet<ListenerId>,
    /// Members that only the configuration of the cloud leaves out (its node-selector, its address-sort-order), of each port:
    /// those that a pool has stay.
    pub passed_over: BTreeMap<ListenerId, Vec<Member>>,
    /// The configuration of the cloud is applied to what is there, too.
    pub applies: bool,
    /// Where a scraper finds its figures.
    pub metrics: Option<u16>,
    /// It is made one object at a time.
    pub serial: bool,
    /// One in ERROR that does not come back is deleted, and made again where it was.
    pub rebuild: bool,
    /// The configuration says so, and not the Service.
    pub rebuild_by_default: bool,
    /// The same, where something else is asked for that only a new one can have.
    pub remake: bool,
    /// Nothing of it is written until it is no more.
    pub paused: bool,
    /// Paused because no setting chooses this cloud for it any more: its owner is told that already.
    pub released: bool,
    /// The same, of all in this cloud: its owner is told that already.
    pub off: bool,
    /// Its Service is not adopted: what would be done is reported, and nothing of it is written. Known when it is worked on.
    pub preview: bool,
    /// The one that it points at.
    pub named: Option<NamedLoadBalancer>,
    /// Addresses that its status has, whoever wrote them: one of them may tell which it had before. Known when it is worked
    /// on, and no reason to plan anything.
    pub published: Vec<IpAddr>,
    /// Its owner may still vanish without a word, so nothing is made for it yet. Known as late as the addresses.
    pub unheld: bool,
    /// So many Services may be on one.
    pub most_shared: usize,
    /// Which of those that are not its own it may begin to share.
    pub join: SharedLoadBalancerScope,
    pub tags: CloudTags,
    pub pending: StuckPolicy,
    pub headers: BTreeMap<ListenerId, CloudHeaders>,
    pub probe: CloudHealthMonitor,
    pub member_tls: CloudMemberTls,
    pub clients: CloudClientAuth,
    pub vip: CloudVip,
    /// Who says the same shares a load balancer: a namespace, and a word.
    pub group: Option<Name>,
}

/// What a Service asks for by an annotation of our own, and not only by a field of its spec. The load balancer that another
/// controller made for it follows these alone: that controller did not follow the field after creation either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExplicitOptions {
    /// The address, beside `spec.loadBalancerIP`.
    pub address: bool,
    /// That `spec.sessionAffinity` is followed.
    pub affinity: bool,
    /// A second load balancer for the second of `spec.ipFamilies`.
    pub second_family: bool,
}

/// A load balancer that somebody names by its id, and the field that he names it in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedLoadBalancer {
    pub id: Name,
    pub field: Name,
    /// It is no id, but what the load balancer is called.
    pub by_name: bool,
}

impl NamedLoadBalancer {
    pub fn is(&self, id: &str, name: &str) -> bool {
        *self.id == *if self.by_name { name } else { id }
    }
}

/// A certificate in the cloud's own store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudTls {
    /// The address of a container or a secret, of each port where TLS ends by one.
    pub references: BTreeMap<ListenerId, Name>,
    /// Others, for those who ask for their names.
    pub others: Vec<Name>,
    /// Where that is said.
    pub field: Name,
    /// The store is one that can be asked for it.
    pub looked_up: bool,
    /// That is the configuration's word, not the Service's: a listener that serves without TLS stays so.
    pub by_default: bool,
}

/// The address that the outside reaches a VIP by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FloatingIpOptions {
    pub network: Option<Name>,
    pub subnet: Option<FloatingSubnet>,
    /// It stays when its load balancer goes, whoever made it.
    pub keep: bool,
}

/// In milliseconds; clouds count other things than we do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloudTimeouts {
    pub client_data: Option<u32>,
    pub member_connect: Option<u32>,
    pub member_data: Option<u32>,
    pub tcp_inspect: Option<u32>,
}

impl CloudTimeouts {
    /// Each as it is here, or else as it is there.
    #[must_use]
    pub fn or(self, usual: CloudTimeouts) -> CloudTimeouts {
        CloudTimeouts {
            client_data: self.client_data.or(usual.client_data),
            member_connect: self.member_connect.or(usual.member_connect),
            member_data: self.member_data.or(usual.member_data),
            tcp_inspect: self.tcp_inspect.or(usual.tcp_inspect),
        }
    }
}
