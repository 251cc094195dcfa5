//! Addresses that hosts announce by BGP: with whom a host has sessions and what it announces there, and what it says of that.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::{Name, ObjectRef, Time};

/// What a host is to announce by BGP: all of it, whatever it announced before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredBgp {
    /// In the order of their names, which differ.
    pub sessions: Vec<Session>,
    /// The host is to announce nothing any more. Routers are asked to prefer others first (RFC 8326); then all is withdrawn.
    pub is_leaving: bool,
}

/// A session with one peer. It is there though it has no routes: what is announced there later takes no time to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The BGPPeer's; of one of MetalLB's with its namespace: `metallb-system/tor`.
    pub name: Name,
    pub to: PeerAddress,
    pub local_as: u32,
    pub remote_as: RemoteAs,
    /// Otherwise the host chooses one.
    pub router_id: Option<Ipv4Addr>,
    pub hold: Duration,
    /// Otherwise a third of what is agreed on as `hold`.
    pub keepalive: Option<Duration>,
    pub connect_retry: Duration,
    pub password: Option<Password>,
    pub hops: PeerDistance,
    /// How long the peer keeps routes of a host that restarts.
    pub graceful_restart: Option<Duration>,
    pub bfd: Option<Bfd>,
    /// Otherwise the host's address in the session.
    pub next_hops: NextHops,
    pub families: PeerFamilies,
    /// In their order, each prefix once.
    pub routes: Vec<Route>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerAddress {
    Ip {
        address: IpAddr,
        port: u16,
        source: Option<IpAddr>,
    },
    /// The neighbour at this interface, by its link-local address (BGP unnumbered).
    Interface(Name),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteAs {
    Number(u32),
    /// The same as ours.
    Internal,
    /// Any other than ours.
    External,
}

/// How far away the peer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerDistance {
    /// In a network of the host: packets are sent with TTL 1.
    Direct,
    /// So many routers away: the TTL of what is sent.
    Multihop(u8),
    /// RFC 5082: both send with TTL 255, and what comes by more than so many hops is dropped.
    Security(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHops {
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

/// Routes of which families are announced in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFamilies {
    pub v4: bool,
    pub v6: bool,
}

/// Of RFC 5880, in asynchronous mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bfd {
    pub receive: Duration,
    pub transmit: Duration,
    pub multiplier: u8,
    /// Sends nothing until the peer does.
    pub passive: bool,
    /// Of a peer that is more than one hop away: packets with a lower TTL are dropped.
    pub minimum_ttl: u8,
}

/// The password of a session (TCP MD5). Without its value there is no session: never one without a password instead.
#[derive(Clone, Debug)]
pub struct Password {
    pub secret: ObjectRef,
    /// Where the plan knows Secrets; otherwise the host reads it.
    pub value: Option<SecretString>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// An address, or the network that an advertisement aggregates it to.
    pub prefix: IpNet,
    /// Towards peers of the same AS only.
    pub local_pref: Option<u32>,
    pub med: Option<u32>,
    /// Sorted, without doubles.
    pub communities: Arc<[u32]>,
    pub large: Arc<[[u32; 3]]>,
}

/// What a host says of its sessions, and of what it announces there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BgpReport {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<Name, PeerReport>,
    /// What is announced now, to which peers; of many, the first [`BgpReport::MAX_ROUTES`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub routes: BTreeMap<IpNet, BTreeSet<Name>>,
}

/// It has nothing that changes while all is well, so that nothing is written then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    pub what: BgpSessionState,
    pub since: Time,
    /// How many prefixes are announced there.
    #[serde(default)]
    pub sent: u32,
    /// How often an established session ended, since the process started.
    #[serde(default)]
    pub resets: u64,
    /// The peer's AS, once it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_as: Option<u32>,
    /// Whether BFD says that the peer is there; nothing without BFD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd_up: Option<bool>,
    /// One line: what a person needs to know, such as why there is no session.
    #[serde(default)]
    pub detail: Name,
}

/// From what is best to what is worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BgpSessionState {
    Established,
    /// It connects or agrees on the session, and nothing is known to be wrong.
    Connecting,
    /// The peer does not answer, or the session ended by a fault: the detail says which.
    Failed,
    /// There is no session: its password cannot be read.
    NoPassword,
    /// The host lacks what it takes, such as a capability.
    NotPermitted,
}

impl BgpReport {
    pub const MAX_ROUTES: usize = 1_000;

    pub fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.routes.is_empty()
    }
}

impl BgpSessionState {
    pub const ALL: [BgpSessionState; 5] = [
        BgpSessionState::Established,
        BgpSessionState::Connecting,
        BgpSessionState::Failed,
        BgpSessionState::NoPassword,
        BgpSessionState::NotPermitted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            BgpSessionState::Established => "Established",
            BgpSessionState::Connecting => "Connecting",
            BgpSessionState::Failed => "Failed",
            BgpSessionState::NoPassword => "NoPassword",
            BgpSessionState::NotPermitted => "NotPermitted",
        }
    }

    /// As a host wrote it, maybe one of a later version.
    pub fn of(text: &str) -> BgpSessionState {
        BgpSessionState::ALL.into_iter().find(|it| it.as_str() == text).unwrap_or(BgpSessionState::Failed)
    }
}

impl PartialEq for Password {
    fn eq(&self, other: &Password) -> bool {
        let shown = |it: &Password| it.value.as_ref().map(|it| it.expose_secret().to_owned());
        self.secret == other.secret && shown(self) == shown(other)
    }
}

impl Eq for Password {}
