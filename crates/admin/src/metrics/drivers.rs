//! Of each driver: what it has to do, how often it fails, how long its work takes.

use prometheus_client::registry::{Registry, Unit};

use super::{
    expose::{counters, gauges},
    times::HistogramFamily,
};
use crate::view::{DriverView, View};

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
        "Load balancers, addresses and statuses that a driver has to reconcile: waiting for a free worker, \
         or in progress",
        gauges(units.collect()),
    );
    let oldest = view.drivers.iter().map(|it| (labels(it), it.oldest_seconds));
    registry.register_with_unit(
        "seaway_driver_oldest",
        "Longest time that a load balancer, address or status has been waiting for its driver; 0 while none \
         waits",
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
    let (name, help) = (
        "seaway_driver_work",
        "Duration of the attempts of a driver: to read the present state, and to change what differs",
    );
    registry.register_collector(Box::new(HistogramFamily { name, help, series: times.collect() }));
}
