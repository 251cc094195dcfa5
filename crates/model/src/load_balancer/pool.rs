//! Pools: who answers, how one of them is chosen, and how it is known to be alive.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{BackendTls, L4, Limits};
use crate::name::{Name, Owner};

/// Unique within a load balancer: the service port, and what else makes it a pool of its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolId(pub Name);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub id: PoolId,
    pub owner: Owner,
    pub l4: L4,
    pub protocol: BackendProtocol,
    pub tls: Option<Arc<BackendTls>>,
    pub balance: Balance,
    pub affinity: Option<Affinity>,
    pub health: Option<HealthCheck>,
    pub passive: Option<PassiveHealthCheck>,
    /// A member that came back gets its share over this time.
    pub slow_start: Option<Duration>,
    /// Percent of healthy members below which all are used; 0 never.
    pub panic_threshold: u8,
    pub member_limit: Option<MemberLimit>,
    /// Of all clients together, at the front door, whose listeners many share: requests under way and new ones in a second; of TLS
    /// that is passed on, connections.
    pub limits: Limits,
    /// Say to the member who the client is.
    pub proxy: Option<ProxyVersion>,
    /// Members see the client's address as that of the connection: their answers come back through this host.
    pub transparent: bool,
    pub http: PoolHttpOptions,
    /// Sorted by address, without doubles.
    pub members: Vec<Member>,
}

/// How much each member is given at the same time, by one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberLimit {
    /// Connections of TCP, requests of HTTP, flows of UDP.
    pub connections: u32,
    /// How long a client waits in the queue for a member that has room.
    pub wait: Duration,
}

/// What holds of requests to these members, where it is not what the listener says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolHttpOptions {
    /// Bytes of a request's body; `u64::MAX` is no limit.
    pub body: Option<u64>,
    pub connect: Option<Duration>,
    pub answer: Option<Duration>,
    /// Without a byte either way: a tunnel (WebSocket, CONNECT, TLS that is passed on), or a stream of HTTP/2.
    pub idle: Option<Duration>,
    /// A tunnel of which one side has finished.
    pub half_closed: Option<Duration>,
    /// Connections of a removed member.
    pub drain: Option<Duration>,
    pub reuse: ConnectionReuse,
    /// Responses are compressed for clients that take it.
    pub compression: Option<Arc<Compression>>,
}

/// Which responses are compressed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// Media types, or `text/*`; none: those that are text.
    pub types: Vec<Name>,
    /// Those to clients that show who they are, too.
    pub private: bool,
}

/// Which connections to members of HTTP/1.1 carry a further request. Whatever it is, none does whose exchange ended
/// otherwise than its messages said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionReuse {
    /// Those on which no client can have left a request of its own for the next one.
    #[default]
    Safe,
    /// Those that have carried no body.
    Strict,
    /// All of them: the members are known to read every body.
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BackendProtocol {
    Opaque,
    Http1,
    Http2,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    pub at: SocketAddr,
    /// The name it was resolved from (SNI, Host).
    pub host_name: Option<Name>,
    pub node: Option<Name>,
    /// 0 gets nothing new.
    pub weight: u32,
    pub state: MemberState,
    /// It gets something only while no other member can serve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backup: bool,
    /// What people call it, if they named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
}

/// A member that is gone is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MemberState {
    Ready,
    /// Keeps what it has, gets nothing new while others are ready.
    Draining,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    RoundRobin,
    LeastConnections,
    /// The less loaded of two at random.
    RandomTwo,
    /// By the client's address, through a Maglev table.
    SourceHash,
    /// The first in the order of addresses, as long as it can serve: the others stand by.
    First,
}

impl Balance {
    pub fn as_str(self) -> &'static str {
        match self {
            Balance::RoundRobin => "round-robin",
            Balance::LeastConnections => "least-connections",
            Balance::RandomTwo => "random-two",
            Balance::SourceHash => "source-hash",
            Balance::First => "first",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// One client address keeps its member while it comes back within this time.
    ClientIp(Duration),
    /// A client keeps the member that a cookie of this name says (HTTP).
    Cookie { name: Name, mode: CookieMode, key: Option<CookieKey> },
}

/// What only those know who set cookies: without it, an address could be found in one by trying all.
#[derive(Clone)]
pub struct CookieKey(pub Arc<SecretString>);

impl CookieKey {
    pub fn as_bytes(&self) -> &[u8] {
        self.0.expose_secret().as_bytes()
    }
}

impl PartialEq for CookieKey {
    fn eq(&self, other: &CookieKey) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for CookieKey {}

impl Hash for CookieKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKey(…)")
    }
}

/// Whose cookie it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CookieMode {
    /// Ours: members never see it.
    Insert,
    /// The member's own, which gets our mark.
    Rewrite,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    pub kind: CheckKind,
    /// Another port than the member's.
    pub port: Option<u16>,
    pub interval: Duration,
    pub timeout: Duration,
    /// Successes in a row after a failure until it counts as healthy.
    pub rise: u8,
    pub fall: u8,
    /// It rests while nobody uses the pool. As a wish: it may, where a kubelet tells how members are.
    pub while_used: bool,
}

impl Default for HealthCheck {
    fn default() -> HealthCheck {
        HealthCheck {
            kind: CheckKind::Tcp,
            port: None,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            while_used: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// A connection is accepted.
    Tcp,
    /// A datagram is not answered by "port unreachable"; with an expected text, is answered so.
    Udp { send: Name, expect: Option<Name> },
    /// `GET path` is answered by a status within this range; with an expected text, which the answer contains.
    Http { path: Name, host: Option<Name>, status: (u16, u16), expect: Option<Name> },
    /// `grpc.health.v1.Health/Check` of this service is answered by "serving"; without a name, of all.
    Grpc { service: Name },
}

impl CheckKind {
    /// `GET /`, and no error.
    pub fn http() -> CheckKind {
        CheckKind::Http { path: "/".into(), host: None, status: (200, 399), expect: None }
    }

    /// A check that was not asked for by name follows the transport: a UDP member is not asked by TCP.
    #[must_use]
    pub fn for_transport(&self, l4: L4) -> CheckKind {
        match (self, l4) {
            (CheckKind::Tcp, L4::Udp) => CheckKind::Udp { send: "".into(), expect: None },
            (CheckKind::Udp { .. }, L4::Tcp) => CheckKind::Tcp,
            (kind, _) => kind.clone(),
        }
    }
}

/// Ejection by what the traffic itself shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PassiveHealthCheck {
    /// Failures in a row (refused, timed out, reset before an answer or amid it).
    pub failures: u8,
    /// Answers in a row that say the member is at fault (5xx, or none in time; HTTP); `None`: they are the member's own business.
    pub errors: Option<u8>,
    /// Percent of the pool that may be out at once; one always may, and the last one never.
    pub share: u8,
    /// Out for this long, times the ejections in a row, at most ten times.
    pub eject: Duration,
}

impl Default for PassiveHealthCheck {
    fn default() -> PassiveHealthCheck {
        PassiveHealthCheck { failures: 3, errors: None, share: 50, eject: Duration::from_secs(10) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProxyVersion {
    V1,
    V2,
}
