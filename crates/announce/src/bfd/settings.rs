//! Which sessions are wanted, and what became of them.

use std::{fmt, net::IpAddr, time::Duration, time::SystemTime};

/// RFC 5881, 4.
pub const SINGLE_HOP_PORT: u16 = 3784;
/// RFC 5883, 5.
pub const MULTIHOP_PORT: u16 = 4784;

/// What tells sessions apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub peer: IpAddr,
    /// From which it is spoken to; the kernel's choice if it is not given.
    pub local: Option<IpAddr>,
    /// Needed where `peer` is link-local; packets that come by another one are discarded.
    pub interface: Option<String>,
    /// Over routers: by another port, and packets may have passed some of them.
    pub is_multihop: bool,
}

impl Key {
    /// To a router in this host's own network.
    pub fn single_hop(peer: IpAddr) -> Key {
        Key { peer, local: None, interface: None, is_multihop: false }
    }

    pub fn multihop(peer: IpAddr, local: Option<IpAddr>) -> Key {
        Key { peer, local, interface: None, is_multihop: true }
    }
}

/// How soon a silent peer counts as gone. What holds is agreed with the peer: the slower of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Between packets that this host sends.
    pub transmit: Duration,
    /// Between packets that this host can take.
    pub receive: Duration,
    /// So many packets in a row that are missing.
    pub multiplier: u8,
    /// It waits for the peer to begin.
    pub is_passive: bool,
    /// What the TTL of packets over routers must be at least; 255 means that they passed none.
    pub minimum_ttl: u8,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            transmit: Duration::from_millis(300),
            receive: Duration::from_millis(300),
            multiplier: 3,
            is_passive: false,
            minimum_ttl: 254,
        }
    }
}

/// What became of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BfdStatus {
    pub what: BfdState,
    pub since: SystemTime,
    /// Why it is not up, as this host sees it.
    pub diagnostic: Diagnostic,
    /// The same, as the peer said last.
    pub told: Diagnostic,
    /// Whether the peer said that it ended the session on purpose: then nothing is known to have failed.
    pub is_peer_stopped: bool,
    /// How long the peer may be silent now, once it was heard.
    pub detection: Option<Duration>,
    /// How often it went from up to down.
    pub downs: u64,
    /// What prevents that packets are sent or received at all, such as a port that another program has.
    pub trouble: Option<String>,
}

impl BfdStatus {
    /// It is known that the peer does not hear us, or we do not hear it; not so, if the peer stopped the session on purpose.
    pub fn is_failed(&self) -> bool {
        self.what == BfdState::Down && self.downs > 0 && !self.is_peer_stopped
    }
}

/// RFC 5880, 4.1: the numbers are those of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BfdState {
    AdminDown = 0,
    #[default]
    Down = 1,
    Init = 2,
    Up = 3,
}

impl BfdState {
    pub fn as_str(self) -> &'static str {
        match self {
            BfdState::AdminDown => "AdminDown",
            BfdState::Down => "Down",
            BfdState::Init => "Init",
            BfdState::Up => "Up",
        }
    }
}

/// RFC 5880, 4.1. A number: peers may say one that nobody knows yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic(pub u8);

impl Diagnostic {
    pub(crate) const NONE: Diagnostic = Diagnostic(0);
    pub(crate) const EXPIRED: Diagnostic = Diagnostic(1);
    pub(crate) const TOLD_DOWN: Diagnostic = Diagnostic(3);
    pub(crate) const ADMINISTRATIVE: Diagnostic = Diagnostic(7);
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            0 => "no diagnostic",
            1 => "control detection time expired",
            2 => "echo function failed",
            3 => "neighbor signaled session down",
            4 => "forwarding plane reset",
            5 => "path down",
            6 => "concatenated path down",
            7 => "administratively down",
            8 => "reverse concatenated path down",
            other => return write!(f, "diagnostic {other}"),
        };
        f.write_str(text)
    }
}
