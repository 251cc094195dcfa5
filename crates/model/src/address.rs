//! Addresses of our pools, and the ranges they come from.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{
    load_balancer::{Family, ListenerId},
    name::{Name, Owner, Time},
};

/// One address of our pools with its owners. It exists in the ledger before it is anybody's status, and is given
/// again only after every live host applied its release.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
pub struct Address {
    pub ip: IpAddr,
    pub pool: Name,
    /// Owners with one key share the address, their ports being distinct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Name>,
    pub owners: Vec<Owner>,
    pub plan_version: u32,
    pub state: AddressState,
    /// When it is withdrawn from its owners, as its pool excludes it. Nothing: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Time>,
    /// Ports that an owner asks for and another owner of the address has, sorted: a restart gives them to nobody else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<(Owner, ListenerId)>,
    /// Of its storage, where later ones are greater: by it hosts say how far they are. 0 where storage has none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub version: u64,
}

fn is_none(version: &u64) -> bool {
    *version == 0
}

/// What is written is the same; when it was written is another question.
impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        let Address { ip, pool, sharing, owners, plan_version, state, ends, conflicts, version: _ } = self;
        (ip, pool, sharing, owners, plan_version, state, ends, conflicts)
            == (
                &other.ip,
                &other.pool,
                &other.sharing,
                &other.owners,
                &other.plan_version,
                &other.state,
                &other.ends,
                &other.conflicts,
            )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressState {
    Held,
    Releasing,
}

/// The version of the rules by which hosts read an [`Address`].
pub const PLAN_VERSION: u32 = 1;

/// An inclusive range within one family; a CIDR is one too. Made by [`IpRange::new`], so it is never backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(IpAddr, IpAddr)", into = "(IpAddr, IpAddr)")]
pub struct IpRange {
    first: IpAddr,
    last: IpAddr,
}

impl IpRange {
    /// None if the families differ or the range runs backwards.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<IpRange> {
        (Family::of(first) == Family::of(last) && first <= last).then_some(IpRange { first, last })
    }

    pub fn first(&self) -> IpAddr {
        self.first
    }

    pub fn last(&self) -> IpAddr {
        self.last
    }

    pub fn family(&self) -> Family {
        Family::of(self.first)
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        Family::of(ip) == self.family() && self.first <= ip && ip <= self.last
    }
}

impl TryFrom<(IpAddr, IpAddr)> for IpRange {
    type Error = &'static str;

    fn try_from((first, last): (IpAddr, IpAddr)) -> Result<IpRange, &'static str> {
        IpRange::new(first, last).ok_or(
            "the first and the last address are of two families, or the last \
                                         is before the first",
        )
    }
}

impl From<IpRange> for (IpAddr, IpAddr) {
    fn from(range: IpRange) -> (IpAddr, IpAddr) {
        (range.first, range.last)
    }
}

impl From<ipnet::IpNet> for IpRange {
    /// Every address of the network, its first and last included, as MetalLB counts.
    fn from(net: ipnet::IpNet) -> IpRange {
        IpRange { first: net.network(), last: net.broadcast() }
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}
