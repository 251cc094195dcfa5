//! Of a process of a cluster: what it asks of the API server, and what it hears.

use prometheus_client::{
    metrics::gauge::ConstGauge,
    registry::{Registry, Unit},
};

use super::{
    MetricsSource,
    expose::{counters, gauges},
    times::HistogramFamily,
};
use crate::view::ApiServerView;

type Labels = Vec<(&'static str, &'static str)>;

/// Metrics of what is looked at when they are asked for.
pub fn api_server_metrics(look: impl Fn() -> ApiServerView + Send + Sync + 'static) -> MetricsSource {
    Box::new(move |registry| expose(registry, &look()))
}

fn expose(registry: &mut Registry, view: &ApiServerView) {
    let labels = |verb, code| -> Labels { vec![("verb", verb), ("code", code)] };
    let calls = view.calls.iter().map(|it| (labels(it.verb, it.code), it.times.count()));
    registry.register(
        "seaway_api_calls",
        "Requests to the API server of Kubernetes, by class of the response's code; none: without a response. A list is a get",
        counters(calls.collect()),
    );
    let times = view.calls.iter().map(|it| (labels(it.verb, it.code), it.times));
    let (name, help) = (
        "seaway_api_call_duration",
        "Time until the response of the API server of Kubernetes began; of a watch, until it was accepted",
    );
    registry.register_collector(Box::new(HistogramFamily { name, help, series: times.collect() }));
    let ages = view.watches.iter().map(|it| (vec![("kind", it.kind)], it.age_seconds));
    registry.register_with_unit(
        "seaway_watch_age",
        "Time since the last event, bookmark or list of a watched kind arrived from the API server",
        Unit::Seconds,
        gauges(ages.collect()),
    );
    let lists = view.watches.iter().map(|it| (vec![("kind", it.kind)], it.lists));
    registry.register(
        "seaway_watch_lists",
        "Times that all objects of a kind were listed: once at the start, and again after each watch that \
         could not continue",
        counters(lists.collect()),
    );
    registry.register(
        "seaway_snapshot_in_use",
        "1 while a host serves its saved state (the snapshot), because the API server did not answer at the \
         start; otherwise 0",
        ConstGauge::new(u64::from(view.snapshot.is_some())),
    );
    if let Some(written) = view.snapshot {
        registry.register_with_unit(
            "seaway_snapshot_timestamp",
            "Time at which the saved state that a host serves was written, in seconds since 1970; absent \
             unless seaway_snapshot_in_use is 1",
            Unit::Seconds,
            ConstGauge::new(written.0 as f64 / 1000.0),
        );
    }
}
