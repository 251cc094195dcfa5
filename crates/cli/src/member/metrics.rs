//! Metrics by TLS, for whoever the API server says may get them.

use std::sync::Arc;

use anyhow::{Context, Result};
use seaway_admin::{Authorization, Authorizer, BoundSockets, CertificateError, MetricsGuard};
use seaway_cluster::{Cluster, ReviewOutcome, TokenReviewer};
use tracing::{error, info};

use crate::settings::{Metrics, Settings};

/// Without a certificate nothing is opened; no page is worth an outage.
pub(super) fn guarded(bound: BoundSockets, settings: &Settings, cluster: &Cluster) -> Result<BoundSockets> {
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
