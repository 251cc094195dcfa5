//! What the speaker is told, and what it says.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use ipnet::IpNet;
use secrecy::SecretString;

/// As the object is called that describes the peer.
pub type PeerName = String;

/// What does not change while it runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Without it: the first IPv4 address of an interface, or a number made of an IPv6 address.
    pub router_id: Option<Ipv4Addr>,
    /// A process of before served the same, and peers may have kept its routes (RFC 4724).
    pub restarting: bool,
    pub timing: Timing,
}

/// Shorter in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Until it is tried again to connect for the first time; it doubles each time up to a peer's `connect_retry`.
    pub first_retry: Duration,
    /// Until a connection that is not answered is given up.
    pub connect: Duration,
    /// Until a peer that accepted the connection must have said who it is.
    pub open: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            first_retry: Duration::from_secs(1),
            connect: Duration::from_secs(5),
            open: Duration::from_secs(60),
        }
    }
}

/// All that is wanted now; replaces what was wanted before. Nothing is connected before the first one, which must have all routes
/// that a process of before announced: those that are not in it are withdrawn.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub peers: Vec<Peer>,
}

#[derive(Clone, Debug)]
pub struct Peer {
    /// Another peer of the same name replaces it.
    pub name: PeerName,
    pub to: PeerAddress,
    pub local_as: u32,
    pub remote_as: RemoteAs,
    pub hold: Duration,
    /// A third of what was agreed on as hold time, without it.
    pub keepalive: Option<Duration>,
    /// The longest pause between two attempts.
    pub connect_retry: Duration,
    /// TCP MD5 (RFC 2385); 80 bytes at most.
    pub password: Option<SecretString>,
    pub hops: Hops,
    /// How long the peer keeps our routes while we restart (RFC 4724); up to 4,095 seconds.
    pub graceful_restart: Option<Duration>,
    pub next_hop: NextHops,
    pub families: Families,
    pub routes: Vec<Route>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    Ip {
        address: IpAddr,
        port: u16,
        /// An address of this host.
        source: Option<IpAddr>,
    },
    /// The one router behind this interface, by its link-local address ("unnumbered").
    Interface(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAs {
    Number(u32),
    /// Ours.
    Internal,
    /// Any but ours.
    External,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hops {
    /// On our network: packets to a peer of another AS have a TTL of 1.
    Direct,
    /// So many hops away at most.
    Multihop(u8),
    /// So many hops away at most, and packets that came a longer way are dropped (RFC 5082).
    Security(u8),
}

/// Without one: our address of the session, or one of its interface in the other family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHops {
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

/// Which routes are announced to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    pub v4: bool,
    pub v6: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub prefix: IpNet,
    /// Told to peers of our AS alone; 100 without it.
    pub local_pref: Option<u32>,
    pub med: Option<u32>,
    pub communities: Arc<[u32]>,
    pub large: Arc<[[u32; 3]]>,
}

/// What became of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerState {
    pub session: Session,
    pub since: SystemTime,
    /// Prefixes that the peer has of us.
    pub sent: u32,
    /// Prefixes that the peer announced since the start; all were dropped.
    pub received: u64,
    /// One line, about what happened last that was wrong; none after a session that came up again.
    pub last_error: Option<String>,
    /// Sessions that were established, and ended.
    pub resets: u64,
    pub remote_as: Option<u32>,
    /// The peer keeps routes while we restart.
    pub graceful_restart: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session {
    /// Waits until it is tried again, or for what it says.
    Idle {
        why: String,
    },
    Connect,
    OpenSent,
    OpenConfirm,
    Established,
}
