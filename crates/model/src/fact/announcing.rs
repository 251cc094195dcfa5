//! Objects that say how addresses are announced: ours, and MetalLB's of the same names.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use serde::{Deserialize, Serialize};

use super::Selector;
use crate::{
    bgp::{Bfd, NextHops, PeerAddress, PeerDistance, PeerFamilies, RemoteAs},
    name::{Kind, Name, ObjectRef, Time},
    problem::Problem,
    reason::Reason,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncementObject {
    pub object: ObjectRef,
    /// Absent counts as oldest.
    pub created: Option<Time>,
    pub says: AnnouncementSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnnouncementSpec {
    L2Advertisement(L2Advertisement),
    BgpAdvertisement(BgpAdvertisement),
    BgpPeer(BgpPeer),
    BfdProfile(Bfd),
    Community(BTreeMap<Name, CommunityValue>),
}

/// Which addresses an advertisement is about, on which hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvertisementScope {
    /// By name or by label; without either, all that are announced in this way anyway.
    pub pools: Vec<Name>,
    pub pool_selectors: Vec<Selector>,
    /// Any of these; none means all.
    pub service_selectors: Vec<Selector>,
    pub host_selectors: Vec<Selector>,
    /// It is not understood as a whole: it announces nothing, and nothing is announced without it of which it speaks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unclear: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct L2Advertisement {
    pub scope: AdvertisementScope,
    /// None means all.
    pub interfaces: Vec<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BgpAdvertisement {
    pub scope: AdvertisementScope,
    /// By name; none means all.
    pub peers: Vec<Name>,
    pub aggregation_v4: Option<u8>,
    pub aggregation_v6: Option<u8>,
    pub local_pref: Option<u32>,
    pub med: Option<u32>,
    pub communities: Vec<CommunityRef>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommunityRef {
    Value(CommunityValue),
    /// As an object of the kind Community calls it.
    Name(Name),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CommunityValue {
    Standard(u32),
    Large([u32; 3]),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BgpPeer {
    pub to: PeerAddress,
    pub local_as: u32,
    pub remote_as: RemoteAs,
    pub router_id: Option<Ipv4Addr>,
    pub hold: Duration,
    pub keepalive: Option<Duration>,
    pub connect_retry: Duration,
    /// In Seaway's namespace; of a folder, in the namespace that is written beside it.
    pub password: Option<ObjectRef>,
    pub hops: PeerDistance,
    pub graceful_restart: Option<Duration>,
    /// The name of a BFDProfile.
    pub bfd: Option<Name>,
    pub next_hops: NextHops,
    pub families: PeerFamilies,
    pub host_selectors: Vec<Selector>,
}

/// Of an object of MetalLB itself, so once, however many Services have addresses that it is about.
pub fn unsupported_announcement_problem(object: ObjectRef) -> Problem {
    let message =
        "Seaway does not act on it: of pools of MetalLB, Seaway announces no addresses by ARP, NDP or BGP";
    Problem::new(object, Reason::Unsupported, message).fix(
        "Leave MetalLB's speaker running if it announces these addresses; or use an AddressPool with announce: l2 or bgp, and write \
         what the object says as one of the same kind with apiVersion: seaway.dev/v1alpha1. Delete the object when nothing uses it \
         any more.",
    )
}

impl Kind {
    /// Of the objects that say how addresses are announced.
    pub const ANNOUNCING: [Kind; 10] = [
        Kind::L2Advertisement,
        Kind::BGPAdvertisement,
        Kind::BGPPeer,
        Kind::BFDProfile,
        Kind::Community,
        Kind::MetallbL2Advertisement,
        Kind::MetallbBGPAdvertisement,
        Kind::MetallbBGPPeer,
        Kind::MetallbBFDProfile,
        Kind::MetallbCommunity,
    ];

    pub fn is_announcing(self) -> bool {
        Kind::ANNOUNCING.contains(&self)
    }

    /// MetalLB's, of which ours may have the same name.
    pub fn is_of_metallb(self) -> bool {
        self == Kind::IPAddressPool || Kind::ANNOUNCING[5..].contains(&self)
    }
}
