//! When authorities want certificates to be renewed (RFC 9773): asked of those that say it, for each certificate of theirs, as often
//! as they say. What is not known, or not answered, changes nothing: then a certificate is renewed after two thirds of its life.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use seaway_acme::{AcmeError, Directory};
use seaway_model::{
    Name, Time,
    acme::{Acme, CertificateOrder},
};
use tracing::{debug, info};

use super::{Certificates, backoff::Backoffs, observed::Observed, seconds};

/// One that says nothing of it may do so later.
const WHERE_NONE: u64 = 24 * 3600;
/// What it offered is believed for so long.
pub(super) const OFFERS_FOR: Duration = Duration::from_secs(WHERE_NONE);
/// After an answer that is none.
const AFTER_REFUSAL: Duration = Duration::from_secs(6 * 3600);

/// What an authority offered when it was asked.
pub(super) struct CachedDirectory {
    pub(super) directory: Arc<Directory>,
    /// Then it is asked again.
    pub(super) until: Instant,
}

/// What is known of one certificate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Renewal {
    /// Of the certificate.
    id: Name,
    window: Option<(Time, Time)>,
    /// Before that it is not asked again, in seconds since 1970.
    pub(super) next: u64,
    /// Since its authority did not answer, of whatever certificate.
    is_gated: bool,
}

#[derive(Default)]
pub(super) struct Renewals {
    of: HashMap<Name, Renewal>,
    /// Authorities that did not answer.
    gates: Backoffs,
}

impl Renewal {
    pub(super) fn from_reply(id: Name, window: Option<(Time, Time)>, next: u64) -> Renewal {
        Renewal { id, window, next, is_gated: false }
    }

    /// Of that certificate, and of none before it.
    pub(super) fn of(&self, id: &str) -> Option<&Renewal> {
        Some(self).filter(|it| *it.id == *id)
    }

    pub(super) fn is_gated(&self) -> bool {
        self.is_gated
    }

    pub(super) fn window(&self) -> Option<(Time, Time)> {
        self.window
    }
}

impl Renewals {
    pub(super) fn forget(&mut self, host: &Name) {
        self.of.remove(host);
    }

    /// What is known of the host name's certificate. Where its authority does not answer, it is asked when that is tried again.
    pub(super) fn renewal_of(&self, order: &CertificateOrder, now: u64) -> Option<Renewal> {
        let known = self.of.get(&order.host).cloned();
        let Some(gate) = self.gates.closed(&order.acme, now) else { return known };
        let unknown = || Renewal { id: Name::default(), window: None, next: 0, is_gated: true };
        let mut known = known.unwrap_or_else(unknown);
        (known.next, known.is_gated) = (known.next.max(gate.until), true);
        Some(known)
    }
}

impl Certificates {
    /// Asked what it offers, again each day: it may begin to say when certificates are to be renewed. As long as it offers the same,
    /// or does not answer, it is the one that is known.
    pub(super) async fn directory(&self, acme: &Acme) -> Result<Arc<Directory>, AcmeError> {
        let mut directories = self.directories.lock().await;
        let known = match directories.get(acme) {
            Some(offer) if Instant::now() < offer.until => return Ok(offer.directory.clone()),
            known => known.map(|it| it.directory.clone()),
        };
        let opened = Directory::open(&acme.directory, acme.authorities.as_deref()).await;
        let directory = match (opened, known) {
            (Ok(now), Some(known)) if known.is_as(&now) => known,
            (Ok(now), _) | (Err(_), Some(now)) => now,
            (Err(error), None) => return Err(error),
        };
        // Those of configurations that are gone.
        directories.retain(|_, it| it.until.elapsed() < OFFERS_FOR);
        let now = Instant::now();
        let until = now.checked_add(OFFERS_FOR).unwrap_or(now);
        directories.insert(acme.clone(), CachedDirectory { directory: directory.clone(), until });
        Ok(directory)
    }

    /// Asks the authority when the certificate that is stored is to be renewed. That it does not say is nobody's failure.
    pub(super) async fn ask_when(&self, order: &CertificateOrder, observed: &mut Observed) {
        let CertificateOrder { host, acme, .. } = order;
        let Some(id) = observed.renewable().and_then(|it| it.id.clone()) else { return };
        let asked = match self.directory(acme).await {
            Ok(directory) => directory.renewal_info(&id).await,
            Err(error) => Err(error),
        };
        let now = seconds(SystemTime::now());
        let before = observed.renewal.as_ref().and_then(|it| it.of(&id)?.window());
        let after = |wait: u64| now.saturating_add(wait);
        let mut attempts = self.attempts();
        let (window, next) = match asked {
            Ok(Some(said)) => {
                let window = Some((Time(said.start), Time(said.end)));
                if before != window {
                    let explanation = said.explanation.as_deref().unwrap_or_default();
                    info!(%host, start = said.start / 1000, end = said.end / 1000, explanation, "the authority says when the certificate is to be renewed");
                }
                attempts.renewals.gates.open(acme);
                (window, after(said.again.as_secs()))
            }
            Ok(None) => (None, after(WHERE_NONE)),
            Err(error) => {
                debug!(%host, %error, "cannot find out when the authority wants the certificate to be renewed");
                attempts.renewals.gates.note_failure(acme, &error, now);
                let is_gated = attempts.renewals.gates.closed(acme, now).is_some();
                (before, if is_gated { now } else { after(AFTER_REFUSAL.as_secs()) })
            }
        };
        attempts.renewals.of.insert(host.clone(), Renewal::from_reply(id, window, next));
        observed.renewal = attempts.renewals.renewal_of(order, now);
    }
}
