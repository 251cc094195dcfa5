//! What a cloud's metrics say, as Prometheus would read it.

use prometheus_client::{encoding::text::encode, registry::Registry};
use seaway_openstack::Metrics;

pub(crate) struct RecordedMetrics {
    registry: Registry,
    metrics: Metrics,
}

impl Default for RecordedMetrics {
    fn default() -> RecordedMetrics {
        let (mut registry, metrics) = (Registry::default(), Metrics::default());
        metrics.register(&mut registry);
        RecordedMetrics { registry, metrics }
    }
}

impl RecordedMetrics {
    pub(crate) fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Tokens asked for, with this outcome.
    pub(crate) fn sign_ins(&self, outcome: &str) -> u64 {
        self.value(&format!("seaway_openstack_sign_ins_total{{outcome=\"{outcome}\"}}"))
    }

    /// 0 of what is not there.
    pub(crate) fn value(&self, series: &str) -> u64 {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes everything");
        text
    }
}
