//! Of the controllers of OpenStack's Nodes and routes: how long their passes take, and what is wrong.

use prometheus_client::registry::Registry;

use super::{MetricsSource, expose::gauges, times::HistogramFamily};
use crate::view::NodeControllerView;

/// Metrics of what is looked at when they are asked for.
pub fn node_controller_metrics(
    look: impl Fn() -> Vec<NodeControllerView> + Send + Sync + 'static,
) -> MetricsSource {
    Box::new(move |registry| expose(registry, &look()))
}

fn expose(registry: &mut Registry, views: &[NodeControllerView]) {
    let labels = |it: &NodeControllerView| vec![("controller", it.controller)];
    let problems = views.iter().map(|it| (labels(it), it.problems));
    registry.register(
        "seaway_node_controller_problems",
        "What the last pass of a controller of OpenStack's Nodes (nodes) or routes (routes) found wrong",
        gauges(problems.collect()),
    );
    let times = views.iter().map(|it| (labels(it), it.times));
    let (name, help) = (
        "seaway_node_controller_pass",
        "How long passes of a controller of OpenStack's Nodes or routes took: to look at all Nodes, and to change what is to be changed",
    );
    registry.register_collector(Box::new(HistogramFamily { name, help, series: times.collect() }));
}
