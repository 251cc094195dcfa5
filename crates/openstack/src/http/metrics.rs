//! Counts and times of calls, by service, operation and outcome: labels that are as many as our own words.

use std::time::Duration;

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::{
    call::Call,
    error::{Class, Error},
};

type Labels = Vec<(&'static str, &'static str)>;

/// Shared by all clones: several clouds may count into one.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<Labels, Counter>,
    times: Family<Labels, Histogram, fn() -> Histogram>,
    repeats: Family<Labels, Counter>,
    sign_ins: Family<Labels, Counter>,
    stuck: Gauge,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            calls: Family::default(),
            // 5 ms to 82 s: a look at a subnet, and a fully populated load balancer on a busy cloud.
            times: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.0, 15))),
            repeats: Family::default(),
            sign_ins: Family::default(),
            stuck: Gauge::default(),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("seaway_openstack_calls", "Calls to OpenStack, by outcome", self.calls.clone());
        registry.register_with_unit(
            "seaway_openstack_call_duration",
            "How long calls to OpenStack took, with their repeats and pauses",
            Unit::Seconds,
            self.times.clone(),
        );
        registry.register(
            "seaway_openstack_repeats",
            "Requests to OpenStack that repeated one before",
            self.repeats.clone(),
        );
        registry.register(
            "seaway_openstack_sign_ins",
            "Tokens requested from Keystone, by outcome",
            self.sign_ins.clone(),
        );
        registry.register(
            "seaway_openstack_stuck_load_balancers",
            "Load balancers that have been PENDING for longer than their limit: 15 minutes, or what pending-limit says",
            self.stuck.clone(),
        );
    }

    /// Sets the number of load balancers that are PENDING for too long.
    pub fn set_stuck(&self, count: usize) {
        self.stuck.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_call(&self, call: &Call, error: Option<&Error>, took: Duration) {
        let labels = labels(call);
        self.times.get_or_create(&labels).observe(took.as_secs_f64());
        self.calls.get_or_create(&with_outcome(labels, error)).inc();
    }

    pub(crate) fn count_repeat(&self, call: &Call) {
        self.repeats.get_or_create(&labels(call)).inc();
    }

    pub(crate) fn count_sign_in(&self, error: Option<&Error>) {
        self.sign_ins.get_or_create(&with_outcome(Vec::new(), error)).inc();
    }
}

fn labels(call: &Call) -> Labels {
    vec![("service", call.service.as_str()), ("operation", call.operation)]
}

fn with_outcome(mut labels: Labels, error: Option<&Error>) -> Labels {
    labels.push(("outcome", error.map(Error::class).map_or("ok", Class::label)));
    labels
}
