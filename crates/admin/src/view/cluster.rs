//! What a process is for a cluster, what the one that allocates addresses knows of them, and what drivers do.

use seaway_model::{Time, latency::Histogram};
use serde::{Deserialize, Serialize};

/// Which part of a cluster a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum ProcessRole {
    /// Of none: it allocates and serves by itself.
    #[default]
    Alone,
    /// One of several, of which one leads.
    Controller {
        leads: bool,
        /// Times that it became the leader, or ceased to be it.
        changes: u64,
    },
    /// It serves what the leader allocates.
    Host,
}

impl ProcessRole {
    /// It allocates addresses. What all processes know is counted there alone.
    pub fn allocates(self) -> bool {
        matches!(self, ProcessRole::Alone | ProcessRole::Controller { leads: true, .. })
    }
}

/// Addresses of pools, and how far Services are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocationView {
    /// In the order in which they are asked.
    pub pools: Vec<PoolUseView>,
    pub conditions: Vec<ConditionView>,
    /// Services without an address.
    pub waiting: u64,
    /// Since when the one that waits longest has none, as this process saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
}

/// How many addresses of one family a pool has. IPv6 has more than 64 bits count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolUseView {
    /// An AddressPool's name; of an IPAddressPool of MetalLB, with its namespace.
    pub pool: String,
    /// `IPv4`, `IPv6`
    pub family: String,
    pub used: f64,
    pub free: f64,
}

/// How many Services have a condition with this status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionView {
    /// `Ready`, `Announced`
    pub condition: String,
    /// `True`, `False`, `Unknown`
    pub status: String,
    pub services: u64,
}

/// What one driver of this process does, and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverView {
    /// `native`, `octavia`, `status`
    pub driver: String,
    /// Units that are dirty, and wait until it has room.
    pub waiting: u64,
    /// How long the first of them has been waiting.
    pub oldest_seconds: u64,
    /// Units that it works on.
    pub working: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// How long attempts took, for `/metrics`.
    #[serde(skip)]
    pub times: Histogram,
}

/// What a controller of OpenStack's Nodes or routes does. For `/metrics` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeControllerView {
    /// `nodes`, `routes`
    pub controller: &'static str,
    /// What its last pass found wrong.
    pub problems: u64,
    /// How long its passes took.
    pub times: Histogram,
}

/// What a process of a cluster asks of the API server, and hears. For `/metrics` alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiServerView {
    pub calls: Vec<ApiCallsView>,
    pub watches: Vec<WatchView>,
    /// When the state was saved that is served instead of the API server's.
    pub snapshot: Option<Time>,
}

/// Calls with one verb, and one class of codes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiCallsView {
    /// `get`, `patch`
    pub verb: &'static str,
    /// `2xx`, `429`, `none`
    pub code: &'static str,
    pub times: Histogram,
}

/// A kind that is watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchView {
    pub kind: &'static str,
    pub age_seconds: u64,
    pub lists: u64,
}
