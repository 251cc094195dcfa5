//! Metrics by TLS, for whoever the API server says may get them.

use std::sync::Arc;

use anyhow::{Context, Result};
use seaway_admin::{Bound, CertificateError, Guard, Judge, Verdict};
use seaway_cluster::{Cluster, ReviewOutcome, TokenReviewer};
use tracing::{error, info};

use crate::settings::{Metrics, Settings};

/// Without a certificate nothing is opened; no page is worth an outage.
pub(super) fn guarded(bound: Bound, settings: &Settings, cluster: &Cluster) -> Result<Bound> {
    let Some(metrics) = &settings.metrics else { return Ok(bound) };
    match guard(metrics, settings, cluster) {
        Ok(guard) => {
            let bound = bound.also_for_metrics(&metrics.listen, guard).context("metrics cannot be shown")?;
            for at in bound.guarded_at() {
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

fn guard(metrics: &Metrics, settings: &Settings, cluster: &Cluster) -> Result<Guard, CertificateError> {
    let reviews = TokenReviewer::new(cluster, "/metrics");
    let judge: Judge = Arc::new(move |token, from| {
        let reviews = reviews.clone();
        Box::pin(async move {
            match reviews.review(&token, from).await {
                ReviewOutcome::Allowed => Verdict::Allowed,
                ReviewOutcome::Unauthenticated => Verdict::Unauthenticated,
                ReviewOutcome::Denied => Verdict::Denied,
                ReviewOutcome::Busy => Verdict::Busy,
                ReviewOutcome::Unanswered => Verdict::Unanswered,
            }
        })
    });
    match &metrics.files {
        Some((certificate, key)) => Guard::by_files(certificate, key, judge),
        None => Guard::self_made(vec![settings.host.to_string()], judge),
    }
}
