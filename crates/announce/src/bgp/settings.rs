//! What the speaker is told, and what it says. What is wanted is in the plan's words (`seaway_model::bgp`).

use std::{
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use ipnet::IpNet;

use crate::bfd;

/// What does not change while it runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Without it: the first IPv4 address of an interface, or a number made of an IPv6 address. A session's own goes first.
    pub router_id: Option<Ipv4Addr>,
    /// A process of before served the same, and peers may have kept its routes (RFC 4724).
    pub restarting: bool,
    pub timing: Timing,
}

/// Shorter in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Until it is tried again to connect for the first time; it doubles each time up to a session's `connect_retry`.
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

/// What became of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerState {
    pub session: SessionState,
    pub since: SystemTime,
    /// Prefixes that the peer has of us.
    pub sent: u32,
    /// Those, in their order.
    pub routes: Arc<[IpNet]>,
    /// Prefixes that the peer announced since the start; all were dropped.
    pub received: u64,
    /// One line about what is wrong, or went wrong last before the session was established.
    pub last_error: Option<String>,
    /// Sessions that were established, and ended.
    pub resets: u64,
    pub remote_as: Option<u32>,
    /// The peer keeps routes while we restart.
    pub graceful_restart: bool,
    pub bfd: Option<bfd::BfdStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Until it is tried again, or what is missing comes.
    Idle {
        why: String,
    },
    Connect,
    OpenSent,
    OpenConfirm,
    Established,
}
