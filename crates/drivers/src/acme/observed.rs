//! What is stored for a host name and what is under way, and what follows from that: pure.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use seaway_files::state::FailedOrders;
use seaway_model::{
    Problem, Reason,
    acme::{CertificateOrder, ChallengeType, ordered_certificate, record_name},
};

use super::{
    LOOK_WHILE_WAITING, Life, SOON, attempt::Attempt, gates::Gate, millis, schedule, seconds, stored::Stored,
};

/// Where nothing is under way: a certificate that somebody put there, or removed, is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// The process is not ready yet.
const AFTER_THE_START: Duration = Duration::from_secs(1);

/// What is stored for a host name, and what is under way.
pub struct Observed {
    /// What is wanted.
    pub(super) order: Option<Arc<CertificateOrder>>,
    pub(super) now: SystemTime,
    pub(super) life: Life,
    pub(super) stored: Option<Stored>,
    pub(super) attempt: Option<Attempt>,
    pub(super) failed: FailedOrders,
    /// Why the last attempt failed.
    pub(super) why: Option<(String, Duration)>,
    /// The authority is not asked now.
    pub(super) gate: Option<Gate>,
    /// Nothing was told of it yet, and what is stored comes first.
    pub(super) is_first: bool,
}

impl Observed {
    pub(super) fn due_in(&self, order: &CertificateOrder) -> Duration {
        let Some(stored) = self.stored.as_ref().filter(|it| it.is_current) else { return Duration::ZERO };
        let due = schedule::due(&stored.dates, &order.host);
        Duration::from_millis(due.0.saturating_sub(millis(self.now).0))
    }

    /// For how long what is shown is still good, in seconds.
    pub(super) fn left(&self) -> Option<u64> {
        let until = self.stored.as_ref()?.dates.until;
        Some(until.0.saturating_sub(millis(self.now).0) / 1_000)
    }

    fn waits(&self) -> Option<Duration> {
        schedule::waits(self.failed, seconds(self.now))
    }

    pub(super) fn may_begin(&self, order: &CertificateOrder) -> bool {
        self.life == Life::Serving
            && !self.is_first
            && self.gate.is_none()
            && !order.answers_at.is_empty()
            && self.waits().is_none()
            && self.due_in(order).is_zero()
    }

    pub(super) fn again(&self, order: &CertificateOrder) -> Duration {
        if let Some(attempt) = &self.attempt {
            return attempt.again();
        }
        let due = self.due_in(order);
        if !due.is_zero() {
            return due.clamp(SOON, LOOK_EVERY);
        }
        let gate = self.gate.as_ref().map(|it| it.until.saturating_sub(seconds(self.now)).max(1));
        match (self.life, self.waits(), gate) {
            (Life::Serving, None, None) if self.is_first => SOON,
            // Who opens it has this looked at again.
            (Life::Serving, None, None) => LOOK_WHILE_WAITING,
            (Life::Serving, wait, gate) => {
                let gate = gate.map(Duration::from_secs).unwrap_or_default();
                wait.unwrap_or_default().max(gate).min(LOOK_WHILE_WAITING)
            }
            _ => AFTER_THE_START,
        }
    }

    pub(super) fn problem(&self, order: &CertificateOrder) -> Option<Problem> {
        let interrupted = || ("an order ended with this process, or failed before it".to_owned(), None);
        let (why, wait) = match (&self.attempt, &self.why, &self.gate) {
            (_, Some((why, wait)), _) => (why.clone(), Some(*wait)),
            // The first of them is under way.
            (Some(_), None, _) => return None,
            (None, None, Some(gate)) if self.due_in(order).is_zero() => (gate.why.clone(), None),
            (None, None, _) if self.failed.count > 0 => interrupted(),
            _ => return None,
        };
        let still = match &self.stored {
            Some(_) => "the certificate was not renewed, and the previous one is still shown",
            None => "no certificate was issued",
        };
        let message = format!("{still}: {why}");
        let host = &order.host;
        let wait = wait.map(|it| format!(" after {}", schedule::human(it))).unwrap_or_default();
        let look = match order.challenge {
            ChallengeType::Http01 => {
                format!(
                    "Look whether {host} leads to this machine in DNS, and whether port 80 is reachable from outside."
                )
            }
            ChallengeType::TlsAlpn01 => {
                format!(
                    "Look whether {host} leads to this machine in DNS, and whether port 443 is reachable from outside."
                )
            }
            ChallengeType::Dns01 => format!(
                "Look whether {} may be changed at the name server of frontDoor.acme.dns, and whether public name \
                 servers answer with its records.",
                record_name(host)
            ),
        };
        let fix = format!("{look} Seaway tries again{wait}.");
        Some(Problem::new(ordered_certificate(host), Reason::CertificateOrder, message).fix(fix))
    }
}
