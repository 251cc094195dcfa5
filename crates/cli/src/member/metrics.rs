//! Metrics of the API server, and all metrics by TLS for clients that the API server permits.

use std::sync::Arc;

use anyhow::{Context, Result};
use seaway_admin::{
    Authorization, Authorizer, BoundSockets, CertificateError, MetricsGuard, api_server_metrics,
    view::{ApiCallsView, ApiServerView, WatchView},
};
use seaway_cluster::{ApiServerMetrics, Cluster, ReviewOutcome, TokenReviewer};
use tracing::{error, info};

use crate::settings::{Metrics, Settings};

/// With metrics of what this process asks of the API server and hears, for all that show them.
pub(super) fn shown(bound: BoundSockets, settings: &Settings, cluster: &Cluster) -> Result<BoundSockets> {
    let counts = cluster.counts().clone();
    guarded(bound.with_metrics_source(api_server_metrics(move || api_server(&counts))), settings, cluster)
}

fn api_server(counts: &ApiServerMetrics) -> ApiServerView {
    let calls = counts.calls().into_iter();
    let watches = counts.watches().into_iter();
    ApiServerView {
        calls: calls.map(|it| ApiCallsView { verb: it.verb, code: it.code, times: it.times }).collect(),
        watches: watches
            .map(|it| WatchView { kind: it.kind.as_str(), age_seconds: it.age.as_secs(), lists: it.lists })
            .collect(),
        snapshot: counts.snapshot(),
    }
}

/// Without a certificate nothing is opened; no page is worth an outage.
fn guarded(bound: BoundSockets, settings: &Settings, cluster: &Cluster) -> Result<BoundSockets> {
    let Some(metrics) = &settings.metrics else { return Ok(bound) };
    match guard(metrics, settings, cluster) {
        Ok(guard) => {
            let bound =
                bound.with_metrics_listeners(&metrics.listen, guard).context("metrics cannot be shown")?;
            for at in bound.metrics_addresses() {
                info!("metrics at https://{at}/metrics, for clients with permission");
            }
            Ok(bound)
        }
        Err(why) => {
            error!(
                "metrics are not served (admin.metrics), everything else runs: {:#}",
                anyhow::Error::from(why)
            );
            Ok(bound)
        }
    }
}

fn guard(
    metrics: &Metrics,
    settings: &Settings,
    cluster: &Cluster,
) -> Result<MetricsGuard, CertificateError> {
    let reviews = TokenReviewer::new(cluster, "/metrics");
    let judge: Authorizer = Arc::new(move |token, from| {
        let reviews = reviews.clone();
        Box::pin(async move {
            match reviews.review(&token, from).await {
                ReviewOutcome::Allowed => Authorization::Allowed,
                ReviewOutcome::Unauthenticated => Authorization::Unauthenticated,
                ReviewOutcome::Denied => Authorization::Denied,
                ReviewOutcome::Busy => Authorization::Busy,
                ReviewOutcome::Unanswered => Authorization::Unanswered,
            }
        })
    });
    match &metrics.files {
        Some((certificate, key)) => MetricsGuard::from_files(certificate, key, judge),
        None => MetricsGuard::self_signed(vec![settings.host.to_string()], judge),
    }
}
