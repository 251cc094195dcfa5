//! Of each driver: what it has to do, how often it fails, how long its work takes.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::MetricType,
    registry::{Registry, Unit},
};
use seaway_model::latency::Histogram;

use super::{
    expose::{counters, gauges},
    objects::encode_times,
};
use crate::view::{DriverView, View};

type Labels = Vec<(&'static str, String)>;

pub(super) fn expose(registry: &mut Registry, view: &View) {
    if view.drivers.is_empty() {
        return;
    }
    let labels = |it: &DriverView| vec![("driver", it.driver.clone())];
    let units = view.drivers.iter().flat_map(|it| {
        [("waiting", it.waiting), ("working", it.working)]
            .map(|(state, count)| ([labels(it), vec![("state", state.to_owned())]].concat(), count))
    });
    registry.register(
        "seaway_driver_units",
        "Load balancers, addresses and statuses that a driver has to reconcile: waiting until it has room, or being worked on",
        gauges(units.collect()),
    );
    let oldest = view.drivers.iter().map(|it| (labels(it), it.oldest_seconds));
    registry.register_with_unit(
        "seaway_driver_oldest",
        "How long the one that waits longest for its driver has been waiting; 0 while none waits",
        Unit::Seconds,
        gauges(oldest.collect()),
    );
    let failures = view.drivers.iter().map(|it| (labels(it), it.failures));
    registry.register(
        "seaway_driver_failures",
        "Attempts of a driver that failed",
        counters(failures.collect()),
    );
    let times = view.drivers.iter().map(|it| (labels(it), it.times));
    registry.register_collector(Box::new(WorkTimes(times.collect())));
}

/// Histograms whose buckets were counted elsewhere.
#[derive(Debug)]
struct WorkTimes(Vec<(Labels, Histogram)>);

impl Collector for WorkTimes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "How long attempts of a driver took: to look, and to change what is to be changed";
        let (name, unit) = ("seaway_driver_work", Some(&Unit::Seconds));
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        self.0.iter().try_for_each(|(labels, times)| encode_times(&mut family, labels, times))
    }
}
