//! Addresses that hosts announce by ARP and NDP (layer 2): with whom a host agrees on them, and what a host says of them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Name, Time};

/// The part of the configuration that planning reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer2 {
    /// Other hosts, where no cluster tells of them.
    pub peers: Vec<Layer2Peer>,
}

/// Another host: exactly one of all that hear each other answers for an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layer2Peer {
    pub name: Name,
    pub addresses: Vec<IpAddr>,
}

/// What a host says of an address that it is to announce, or would if another host did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer2State {
    pub what: Layer2Progress,
    /// Empty, where none has the address's network.
    #[serde(default)]
    pub interface: Name,
    pub since: Time,
    /// What a person needs to know beside: both MAC addresses of a conflict, the host that announces it.
    #[serde(default)]
    pub detail: Name,
}

/// From what is best for clients to what is worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Layer2Progress {
    /// This host answers for it.
    Announcing,
    /// Another host does.
    Standby,
    /// It asks the network whether another machine has it.
    Probing,
    /// It hears no other host and reaches no gateway.
    Isolated,
    /// Another machine answers for it.
    Conflict,
    /// This host answers for it, and so does another machine.
    Contested,
    /// No interface of the host has its network.
    NoInterface,
    /// There are other hosts, and no key to agree with them.
    NoKey,
    /// It lacks the capability NET_RAW.
    NotPermitted,
    /// Anything else; the detail says what.
    Failed,
}

impl Layer2Progress {
    pub const ALL: [Layer2Progress; 10] = [
        Layer2Progress::Announcing,
        Layer2Progress::Standby,
        Layer2Progress::Probing,
        Layer2Progress::Isolated,
        Layer2Progress::Conflict,
        Layer2Progress::Contested,
        Layer2Progress::NoInterface,
        Layer2Progress::NoKey,
        Layer2Progress::NotPermitted,
        Layer2Progress::Failed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Layer2Progress::Announcing => "Announcing",
            Layer2Progress::Standby => "Standby",
            Layer2Progress::Probing => "Probing",
            Layer2Progress::Isolated => "Isolated",
            Layer2Progress::Conflict => "Conflict",
            Layer2Progress::Contested => "Contested",
            Layer2Progress::NoInterface => "NoInterface",
            Layer2Progress::NoKey => "NoKey",
            Layer2Progress::NotPermitted => "NotPermitted",
            Layer2Progress::Failed => "Failed",
        }
    }

    /// As a host wrote it, maybe one of a later version.
    pub fn of(text: &str) -> Layer2Progress {
        Layer2Progress::ALL.into_iter().find(|it| it.as_str() == text).unwrap_or(Layer2Progress::Failed)
    }

    pub fn is_announcing(self) -> bool {
        matches!(self, Layer2Progress::Announcing | Layer2Progress::Contested)
    }
}
