//! Histograms of times whose buckets were counted elsewhere.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder},
    metrics::MetricType,
    registry::Unit,
};
use seaway_model::latency::{Histogram, LATENCY_BOUNDS};

/// A family with all of its series.
#[derive(Debug)]
pub(super) struct HistogramFamily<L> {
    /// Without its unit.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) series: Vec<(L, Histogram)>,
}

impl<L: EncodeLabelSet + fmt::Debug + Send + Sync + 'static> Collector for HistogramFamily<L> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor(self.name, self.help, unit, MetricType::Histogram)?;
        self.series.iter().try_for_each(|(labels, times)| encode_times(&mut family, labels, times))
    }
}

/// One series of such a family, in seconds.
pub(super) fn encode_times(
    family: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    times: &Histogram,
) -> fmt::Result {
    let bounds = LATENCY_BOUNDS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(times.buckets).collect();
    let (sum, count) = (times.sum as f64 / 1e6, times.count());
    family.encode_family(labels)?.encode_histogram::<Vec<(&str, &str)>>(sum, count, &buckets, None)
}
