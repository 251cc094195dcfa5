//! What the announcer is told, and what it says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
    time::Duration,
    time::SystemTime,
};

use aws_lc_rs::hmac;
use seaway_model::Name;

/// What does not change while it runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This host, as its peers call it.
    pub host: Name,
    /// Shared by all hosts. Without it nothing is announced where there are peers.
    pub key: Option<HeartbeatKey>,
    /// The UDP port of heartbeats, here and at peers.
    pub port: u16,
    pub timing: Timing,
}

impl Settings {
    pub const PORT: u16 = 1939;
}

/// Derived from the secret that all hosts share.
#[derive(Clone)]
pub struct HeartbeatKey(Arc<[hmac::Key]>);

/// So that what another program signs with the same secret is nothing here.
const PURPOSE: &[u8] = b"seaway layer2 1";

impl HeartbeatKey {
    /// Of several lines each is a secret: the first signs, and all are accepted, so that one replaces another without hosts that
    /// do not hear each other.
    pub fn new(secret: &str) -> HeartbeatKey {
        let lines = secret.lines().map(str::trim).filter(|it| !it.is_empty());
        let derived = |secret: &str| {
            let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, PURPOSE).as_ref())
        };
        HeartbeatKey(lines.map(derived).collect())
    }

    /// Nothing, without a secret.
    pub(crate) fn sign(&self, said: &[u8]) -> Option<hmac::Tag> {
        self.0.first().map(|key| hmac::sign(key, said))
    }

    pub(crate) fn verifies(&self, said: &[u8], tag: &[u8]) -> bool {
        self.0.iter().any(|key| hmac::verify(key, said, tag).is_ok())
    }
}

impl fmt::Debug for HeartbeatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// How soon a host that is silent counts as gone. All hosts must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats to a peer.
    pub interval: Duration,
    /// A host stops answering so long after it last sent a heartbeat that a peer acknowledged.
    pub lease: Duration,
    /// A peer that was silent for so long counts as gone. Longer than `lease`.
    pub dead: Duration,
    /// Between three probes whether another machine has an address.
    pub probe: Duration,
    /// Until an address that another machine has is probed again.
    pub conflict: Duration,
    /// A host that came back must have been well for so long before addresses move to it.
    pub settle: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            interval: Duration::from_millis(25),
            lease: Duration::from_millis(400),
            dead: Duration::from_millis(425),
            probe: Duration::from_millis(100),
            conflict: Duration::from_secs(10),
            settle: Duration::from_secs(1),
        }
    }
}

/// All that is wanted now; replaces what was wanted before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredAnnouncements {
    /// Hosts to exchange heartbeats with. This host is left out of it, if it is named.
    pub peers: Vec<Peer>,
    /// Only those which this host serves now.
    pub addresses: Vec<WantedAddress>,
    /// Of those that may be announced on some interfaces only: on which.
    pub interfaces: BTreeMap<IpAddr, BTreeSet<Name>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: Name,
    pub addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedAddress {
    pub address: IpAddr,
    /// The hosts that may announce it: this one only if it is among them. Which others could now, they say themselves.
    pub candidates: Arc<[Name]>,
}

/// What became of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressStatus {
    pub what: AddressState,
    pub since: SystemTime,
    /// Whose subnet has the address.
    pub interface: Option<String>,
    /// Whether this host answers for it now. With [`AddressState::Conflict`] it may: an address that was held before is defended.
    pub answering: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Listening for peers, or asking whether another machine has it.
    Probing,
    Announcing,
    Standby {
        owner: Name,
    },
    /// No interface that is up has a subnet with this address.
    NoInterface,
    /// Another machine answers for it.
    Conflict {
        ours: Mac,
        theirs: Mac,
    },
    /// This host hears neither a peer nor its gateway.
    Isolated,
    /// There are peers, and no key.
    NoKey,
    /// The process lacks the capability NET_RAW, or its port for heartbeats cannot be bound.
    NotPermitted,
    /// This host is no candidate.
    NotServed,
}

/// The address of an Ethernet interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Addresses that this host began to announce, after another host had them.
    pub moves: u64,
    /// Packets by which another machine claimed an address of ours.
    pub conflicts: u64,
    /// Times that another host of ours announced an address at the same time.
    pub overlaps: u64,
}
