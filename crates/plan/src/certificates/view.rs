//! Certificates, counted.

use seaway_model::Time;

use super::{Certificates, Expiry};

/// What metrics tell: never by name, which would have no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateCounts {
    pub valid: u64,
    pub expiring: u64,
    pub expired: u64,
    /// Not in force yet.
    pub early: u64,
    /// Of which nothing can be used.
    pub broken: u64,
    /// When the first of them expires, or did.
    pub first: Option<Time>,
}

impl Certificates {
    pub(crate) fn counts(&self) -> CertificateCounts {
        let mut counts = CertificateCounts::default();
        for known in self.known.values() {
            counts.broken = counts.broken.saturating_add(known.broken.is_some().into());
            let Some(seen) = known.seen() else { continue };
            let count = match known.age {
                Expiry::Fine => &mut counts.valid,
                Expiry::Soon => &mut counts.expiring,
                Expiry::Over => &mut counts.expired,
                Expiry::Early => &mut counts.early,
            };
            *count = count.saturating_add(1);
            counts.first = Some(counts.first.map_or(seen.until, |first| first.min(seen.until)));
        }
        counts
    }
}
