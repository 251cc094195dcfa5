//! Whether the addresses of a Service are announced: whether the network sends packets for them to hosts that serve it.
//! That a host serves it is another question, which [`Status::ready`](crate::Status::ready) answers.

use serde::{Deserialize, Serialize};

/// What an AddressPool says of the way to its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AnnounceMode {
    /// A router has a route to hosts that serve them, or another program announces them.
    Static,
    /// Hosts answer for them by ARP and NDP, one at a time for each.
    Layer2,
    /// Hosts that serve them tell routers so, by BGP.
    Bgp,
    /// By ARP and NDP on a host that is in their network, by BGP on others.
    Auto,
    /// They are not to be announced.
    None,
}

/// The status of a condition, as Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    True,
    Unknown,
    False,
}

/// Whether the addresses of an owner are announced, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedCondition {
    pub status: ConditionStatus,
    pub reason: AnnouncedReason,
    pub message: String,
}

/// Stable: the reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AnnouncedReason {
    /// The hosts' own addresses: hosts answer for them anyway.
    HostAddress,
    /// The pool says that a router has a route.
    StaticRoute,
    /// The load balancer of a cloud has them.
    Cloud,
    /// A host says that it answers for each of them by ARP or NDP.
    Layer2,
    /// Hosts say that they announce each of them by BGP.
    #[serde(rename = "BGP")]
    Bgp,
    /// There is none yet.
    NoAddress,
    /// They are from a pool of MetalLB, whose speaker may announce them.
    #[serde(rename = "MetalLB")]
    Metallb,
    /// Their pool cannot be seen.
    PoolMissing,
    /// Hosts are to answer for them, and no host has said so yet.
    Layer2Pending,
    /// Hosts are to announce them by BGP, and no host has said so yet.
    #[serde(rename = "BGPPending")]
    BgpPending,
    /// The pool says that they are not to be announced.
    Disabled,
    /// Nothing that Seaway knows of announces them.
    NotAnnounced,
    /// Hosts are to answer for them, and cannot.
    Layer2Failed,
    /// Hosts are to announce them by BGP, and cannot.
    #[serde(rename = "BGPFailed")]
    BgpFailed,
}

impl AnnouncedCondition {
    pub fn new(reason: AnnouncedReason, message: impl Into<String>) -> AnnouncedCondition {
        AnnouncedCondition { status: reason.status(), reason, message: message.into() }
    }
}

impl AnnouncedReason {
    pub fn status(self) -> ConditionStatus {
        match self {
            AnnouncedReason::HostAddress
            | AnnouncedReason::StaticRoute
            | AnnouncedReason::Cloud
            | AnnouncedReason::Layer2
            | AnnouncedReason::Bgp => ConditionStatus::True,
            AnnouncedReason::NoAddress
            | AnnouncedReason::Metallb
            | AnnouncedReason::PoolMissing
            | AnnouncedReason::Layer2Pending
            | AnnouncedReason::BgpPending => ConditionStatus::Unknown,
            AnnouncedReason::Disabled
            | AnnouncedReason::NotAnnounced
            | AnnouncedReason::Layer2Failed
            | AnnouncedReason::BgpFailed => ConditionStatus::False,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            AnnouncedReason::HostAddress => "HostAddress",
            AnnouncedReason::StaticRoute => "StaticRoute",
            AnnouncedReason::Cloud => "Cloud",
            AnnouncedReason::NoAddress => "NoAddress",
            AnnouncedReason::Metallb => "MetalLB",
            AnnouncedReason::PoolMissing => "PoolMissing",
            AnnouncedReason::NotAnnounced => "NotAnnounced",
            AnnouncedReason::Layer2 => "Layer2",
            AnnouncedReason::Layer2Pending => "Layer2Pending",
            AnnouncedReason::Layer2Failed => "Layer2Failed",
            AnnouncedReason::Bgp => "BGP",
            AnnouncedReason::BgpPending => "BGPPending",
            AnnouncedReason::BgpFailed => "BGPFailed",
            AnnouncedReason::Disabled => "Disabled",
        }
    }
}

impl ConditionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }

    /// As a condition's `status` says it. What is neither `True` nor `False` is not known.
    pub fn of(text: &str) -> ConditionStatus {
        match text {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        }
    }

    pub fn is_true(self) -> bool {
        self == ConditionStatus::True
    }
}

impl From<bool> for ConditionStatus {
    fn from(is_so: bool) -> ConditionStatus {
        if is_so { ConditionStatus::True } else { ConditionStatus::False }
    }
}

impl AnnounceMode {
    /// What a pool may say.
    pub const WORDS: [(&'static str, AnnounceMode); 5] = [
        ("auto", AnnounceMode::Auto),
        ("l2", AnnounceMode::Layer2),
        ("bgp", AnnounceMode::Bgp),
        ("static", AnnounceMode::Static),
        ("none", AnnounceMode::None),
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            AnnounceMode::Static => "static",
            AnnounceMode::Layer2 => "l2",
            AnnounceMode::Bgp => "bgp",
            AnnounceMode::Auto => "auto",
            AnnounceMode::None => "none",
        }
    }
}
