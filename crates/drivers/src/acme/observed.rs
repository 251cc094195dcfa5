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
    LOOK_WHILE_WAITING, ProcessPhase, SOON, attempt::Attempt, backoff::Backoff, millis, renewal::Renewal,
    schedule, seconds, stored::StoredCertificate,
};

/// Where nothing is under way: a certificate that somebody put there, or removed, is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// The process is not ready yet.
const AFTER_THE_START: Duration = Duration::from_secs(1);
/// Within so many milliseconds after it, authorities are asked when their certificates are to be renewed: not of all at once.
const FIRST_ASKED: u64 = 10_000;
/// No authority is asked more seldom: a clock that was wrong keeps nothing from being asked.
const MOST_SELDOM: u64 = 2 * 24 * 3600;

/// What is stored for a host name, and what is under way.
pub struct Observed {
    /// What is wanted.
    pub(super) order: Option<Arc<CertificateOrder>>,
    pub(super) now: SystemTime,
    pub(super) life: ProcessPhase,
    pub(super) stored: Option<StoredCertificate>,
    pub(super) attempt: Option<Attempt>,
    pub(super) failed: FailedOrders,
    /// Why the last attempt failed.
    pub(super) why: Option<(String, Duration)>,
    /// The authority is not asked now.
    pub(super) gate: Option<Backoff>,
    /// What its authority has said of a renewal.
    pub(super) renewal: Option<Renewal>,
    /// Nothing was told of it yet, and what is stored comes first.
    pub(super) is_first: bool,
}

impl Observed {
    pub(super) fn due_in(&self, order: &CertificateOrder) -> Duration {
        let Some(stored) = self.renewable() else { return Duration::ZERO };
        let id = stored.id.as_deref().unwrap_or_default();
        let due = match self.renewal.as_ref().and_then(|it| it.of(id)?.window()) {
            Some(window) => schedule::suggested(window, &stored.dates, id),
            None => schedule::due(&stored.dates, &order.host),
        };
        Duration::from_millis(due.0.saturating_sub(millis(self.now).0))
    }

    /// What is stored, if it is of the authority that is asked.
    pub(super) fn renewable(&self) -> Option<&StoredCertificate> {
        self.stored.as_ref().filter(|it| it.is_current)
    }

    /// After how long the authority may be asked when that is to be renewed.
    fn asks_in(&self, order: &CertificateOrder) -> Option<Duration> {
        let id = self.renewable()?.id.as_deref()?;
        order.challenge?;
        match &self.renewal {
            None if self.is_first => Some(Duration::from_millis(schedule::spread(&order.host, FIRST_ASKED))),
            None => Some(Duration::ZERO),
            // One that did not answer is not asked of another certificate either.
            Some(known) => {
                let wait = known.next.saturating_sub(seconds(self.now));
                let is_of_another = known.of(id).is_none() && !known.is_gated();
                let wait = if is_of_another || wait > MOST_SELDOM { 0 } else { wait };
                Some(Duration::from_secs(wait))
            }
        }
    }

    pub(super) fn may_ask(&self, order: &CertificateOrder) -> bool {
        self.life == ProcessPhase::Serving && !self.is_first && self.asks_in(order) == Some(Duration::ZERO)
    }

    /// For how long what is shown is still good, in seconds.
    pub(super) fn remaining_seconds(&self) -> Option<u64> {
        let until = self.stored.as_ref()?.dates.until;
        Some(until.0.saturating_sub(millis(self.now).0) / 1_000)
    }

    fn retry_delay(&self) -> Option<Duration> {
        schedule::retry_delay(self.failed, seconds(self.now))
    }

    pub(super) fn may_begin(&self, order: &CertificateOrder) -> bool {
        self.life == ProcessPhase::Serving
            && order.challenge.is_some()
            && !self.is_first
            && self.gate.is_none()
            && !order.answers_at.is_empty()
            && self.retry_delay().is_none()
            && self.due_in(order).is_zero()
    }

    pub(super) fn again(&self, order: &CertificateOrder) -> Duration {
        if let Some(attempt) = &self.attempt {
            return attempt.again();
        }
        let due = self.due_in(order);
        if order.challenge.is_none() {
            return LOOK_EVERY;
        }
        if !due.is_zero() {
            let asks = self.asks_in(order).map_or(LOOK_EVERY, |it| it.max(AFTER_THE_START));
            return due.min(asks).clamp(SOON, LOOK_EVERY);
        }
        let gate = self.gate.as_ref().map(|it| it.until.saturating_sub(seconds(self.now)).max(1));
        match (self.life, self.retry_delay(), gate) {
            (ProcessPhase::Serving, None, None) if self.is_first => SOON,
            // The authority has said just now that it is due.
            (ProcessPhase::Serving, None, None) if self.may_begin(order) => SOON,
            // Who opens it has this looked at again.
            (ProcessPhase::Serving, None, None) => LOOK_WHILE_WAITING,
            (ProcessPhase::Serving, wait, gate) => {
                let gate = gate.map(Duration::from_secs).unwrap_or_default();
                wait.unwrap_or_default().max(gate).min(LOOK_WHILE_WAITING)
            }
            _ => AFTER_THE_START,
        }
    }

    pub(super) fn problem(&self, order: &CertificateOrder) -> Option<Problem> {
        let interrupted =
            || ("an order was interrupted by a restart of Seaway, or failed before that".to_owned(), None);
        let (why, wait) = match (&self.attempt, &self.why, &self.gate) {
            (_, Some((why, wait)), _) => (why.clone(), Some(*wait)),
            // The first of them is under way.
            (Some(_), None, _) => return None,
            (None, None, Some(gate)) if self.due_in(order).is_zero() => (gate.why.clone(), None),
            (None, None, _) if self.failed.count > 0 => interrupted(),
            _ => return None,
        };
        let still = match &self.stored {
            Some(_) => "the certificate was not renewed, and the previous one is still served",
            None => "no certificate was issued",
        };
        let message = format!("{still}: {why}");
        let host = &order.host;
        let wait = wait.map(|it| format!(" after {}", schedule::human(it))).unwrap_or_default();
        let look = match order.challenge? {
            ChallengeType::Http01 => {
                format!(
                    "Check that {host} resolves to this machine in DNS, and that port 80 is reachable from the internet."
                )
            }
            ChallengeType::TlsAlpn01 => {
                format!(
                    "Check that {host} resolves to this machine in DNS, and that port 443 is reachable from the internet."
                )
            }
            ChallengeType::Dns01 => format!(
                "Check that the name server of frontDoor.acme.dns accepts updates of {}, and that public name servers \
                     return that record.",
                record_name(host)
            ),
        };
        let fix = format!("{look} Seaway tries again{wait}.");
        Some(Problem::new(ordered_certificate(host), Reason::CertificateOrder, message).fix(fix))
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::{Name, Time, acme::Acme};
    use seaway_plan::CertificateDates;

    use super::*;

    const HOUR: u64 = 3600 * 1000;

    fn order(challenge: Option<ChallengeType>) -> CertificateOrder {
        let acme = Acme {
            directory: "https://ca.example/dir".into(),
            email: None,
            authorities: None,
            binding: None,
            challenge: None,
            dns: None,
        };
        let answers_at = vec![([192, 0, 2, 5], 80).into()];
        CertificateOrder { host: "shop.example".into(), acme, challenge, answers_at }
    }

    /// In the hour after it was issued, for 90 days; this is hour 0 of 1970 and so many after it.
    fn at(hours: u64, renewal: Option<Renewal>) -> Observed {
        let dates = CertificateDates { names: Vec::new(), from: Time(0), until: Time(90 * 24 * HOUR) };
        let stored =
            StoredCertificate { pem: String::new(), dates, is_current: true, id: Some("key.number".into()) };
        Observed {
            order: None,
            now: SystemTime::UNIX_EPOCH + Duration::from_millis(hours * HOUR),
            life: ProcessPhase::Serving,
            stored: Some(stored),
            attempt: None,
            failed: FailedOrders::default(),
            why: None,
            gate: None,
            renewal,
            is_first: false,
        }
    }

    fn said(id: &str, window: Option<(u64, u64)>, next: u64) -> Renewal {
        let window = window.map(|(start, end)| (Time(start * HOUR), Time(end * HOUR)));
        Renewal::from_reply(Name::from(id), window, next * HOUR / 1000)
    }

    #[test]
    fn a_certificate_is_renewed_when_its_authority_says_so_or_after_two_thirds_of_its_life() {
        let order = order(Some(ChallengeType::Http01));
        for (hours, renewal, expected) in [
            (1000, None, false),
            (1441, None, true),
            // Earlier, later, and of the certificate before.
            (1000, Some(said("key.number", Some((100, 101)), 2000)), true),
            (1441, Some(said("key.number", Some((1800, 1801)), 2000)), false),
            (1802, Some(said("key.number", Some((1800, 1801)), 2000)), true),
            (1000, Some(said("key.other", Some((100, 101)), 2000)), false),
            // It says nothing, which changes nothing.
            (1441, Some(said("key.number", None, 2000)), true),
            (1000, Some(said("key.number", None, 2000)), false),
            // Just issued, and to be renewed at once.
            (2, Some(said("key.number", Some((0, 1)), 2000)), false),
            // Never, which would let it end.
            (1990, Some(said("key.number", Some((9000, 9001)), 2000)), true),
        ] {
            let observed = at(hours, renewal.clone());
            assert_eq!(observed.may_begin(&order), expected, "{hours} {renewal:?}");
        }
    }

    #[test]
    fn an_authority_is_asked_as_often_as_it_says_and_not_before_what_is_stored_is_told() {
        let order = order(Some(ChallengeType::Http01));
        let asks = |observed: &Observed| observed.may_ask(&order);
        assert!(asks(&at(10, None)));
        assert!(!asks(&Observed { is_first: true, ..at(10, None) }));
        assert!(!asks(&Observed { life: ProcessPhase::Starting, ..at(10, None) }));
        assert!(!asks(&Observed { stored: None, ..at(10, None) }));
        let known = |next| Some(said("key.number", Some((1300, 1301)), next));
        assert!(!asks(&at(10, known(11))) && asks(&at(10, known(10))));
        assert!(asks(&at(10, known(1000))), "its clock was wrong then");
        assert!(asks(&at(10, Some(said("key.other", None, 11)))), "that was another certificate");
        for (observed, seconds) in [(at(10, known(11)), 3600), (at(10, known(10)), 1)] {
            assert_eq!(observed.again(&order).as_secs(), seconds);
        }
        // It was asked, and says that it was to be renewed already: that waits for nothing else.
        let due = at(10, Some(said("key.number", Some((1, 2)), 1000)));
        assert_eq!((due.may_begin(&order), due.again(&order)), (false, Duration::from_secs(1)));
        let due = at(100, Some(said("key.number", Some((1, 2)), 1000)));
        assert_eq!((due.may_begin(&order), due.again(&order)), (true, SOON));
        let first = Observed { is_first: true, ..at(10, None) }.again(&order);
        assert!((1..=10).contains(&first.as_secs()), "{first:?}");
    }

    #[test]
    fn what_cannot_be_proven_any_more_is_neither_ordered_nor_asked_for() {
        for hours in [10, 1441, 3000] {
            let observed = at(hours, None);
            let order = order(None);
            assert!(!observed.may_begin(&order) && !observed.may_ask(&order), "{hours}");
            assert_eq!((observed.problem(&order), observed.again(&order)), (None, LOOK_EVERY));
        }
    }
}
