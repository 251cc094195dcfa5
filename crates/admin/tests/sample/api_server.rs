//! What a host has asked of the API server, after it began with what it had saved.

use seaway_admin::view::{ApiCallsView, ApiServerView, NodeControllerView, WatchView};
use seaway_model::{
    Time,
    latency::{Histogram, LATENCY_BUCKETS},
};

/// As it looks when each was asked so often.
pub(crate) fn at(count: u64) -> ApiServerView {
    let times = Histogram { buckets: [count; LATENCY_BUCKETS], sum: 1_000_000 * count };
    let calls = [("get", "2xx"), ("watch", "429"), ("patch", "none")];
    let watches = [("Service", 12, count), ("Node", 700, 3)];
    ApiServerView {
        calls: calls.map(|(verb, code)| ApiCallsView { verb, code, times }).into(),
        watches: watches.map(|(kind, age_seconds, lists)| WatchView { kind, age_seconds, lists }).into(),
        snapshot: Some(Time(1_790_000_000_000)),
    }
}

/// Controllers of Nodes and routes, after so many passes each.
pub(crate) fn node_controllers(count: u64) -> Vec<NodeControllerView> {
    let times = Histogram { buckets: [count; LATENCY_BUCKETS], sum: 1_000_000 * count };
    ["nodes", "routes"].map(|controller| NodeControllerView { controller, problems: 1, times }).into()
}
