//! Pauses after failures of a certificate authority. A failure of the authority itself counts once for all host names, and not as a
//! failed order of one of them.

use std::collections::HashMap;

use seaway_acme::AcmeError;
use seaway_model::acme::Acme;

use super::schedule;

/// One that says that it is asked too often is asked by nobody for so long: in seconds.
const SLOWER: u64 = 60;
/// One that cannot be reached is tried at least that often.
const MOST: u64 = 15 * 60;

#[derive(Default)]
pub(super) struct Backoffs(HashMap<Acme, Backoff>);

/// Why, and until when.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Backoff {
    failures: u32,
    /// In seconds since 1970.
    pub(super) until: u64,
    pub(super) why: String,
}

impl Backoffs {
    pub(super) fn closed(&self, acme: &Acme, now: u64) -> Option<&Backoff> {
        // A clock that was set back keeps nothing closed for longer than it may be.
        self.0.get(acme).filter(|it| now < it.until && it.until <= now.saturating_add(MOST))
    }

    /// An order could not begin. Whether that is the authority's, and not the host name's.
    pub(super) fn note_failure(&mut self, acme: &Acme, error: &AcmeError, now: u64) -> bool {
        let is_limit = error.is_rate_limit();
        if !is_limit && !error.is_transient() {
            return false;
        }
        let failures = self.0.get(acme).map_or(0, |it| it.failures).saturating_add(1);
        let wait = match is_limit {
            // It may be a limit of that name alone.
            true => SLOWER,
            false => {
                let asked = error.retry_after().map_or(0, |it| it.as_secs());
                schedule::delay_after(failures).as_secs().max(asked).min(MOST)
            }
        };
        let gate = Backoff { failures, until: now.saturating_add(wait), why: error.to_string() };
        self.0.insert(acme.clone(), gate);
        !is_limit
    }

    pub(super) fn open(&mut self, acme: &Acme) {
        self.0.remove(acme);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn acme(directory: &str) -> Acme {
        Acme {
            directory: directory.into(),
            email: None,
            authorities: None,
            binding: None,
            challenge: None,
            dns: None,
        }
    }

    fn refused(status: u16, kind: &str) -> AcmeError {
        AcmeError::Refused {
            status,
            kind: kind.into(),
            detail: String::new(),
            retry_after: Some(Duration::from_secs(7200)),
        }
    }

    #[test]
    fn an_authority_that_is_away_is_tried_once_for_all_and_its_limits_are_one_names() {
        let (mut gates, here, there) = (Backoffs::default(), acme("https://a"), acme("https://b"));
        let away = AcmeError::Unreachable { url: "https://a".into(), why: "refused".into() };
        let mut now = 1_000;
        for wait in [60, 300, 900, 900] {
            assert!(gates.note_failure(&here, &away, now), "it is not a host name's failure");
            assert!(gates.closed(&here, now + wait - 1).is_some(), "{wait}");
            assert!(gates.closed(&here, now + wait).is_none(), "{wait}");
            assert!(gates.closed(&there, now).is_none());
            now += wait;
        }
        assert!(gates.note_failure(&here, &refused(503, ""), now));
        assert!(gates.closed(&here, 10).is_none(), "the clock was set back");
        gates.open(&here);
        assert!(gates.closed(&here, now).is_none());
        let limit = refused(429, "urn:ietf:params:acme:error:rateLimited");
        assert!(!gates.note_failure(&here, &limit, now), "it may be a limit of one name");
        assert!(gates.closed(&here, now + 59).is_some() && gates.closed(&here, now + 60).is_none());
        let other = refused(403, "urn:ietf:params:acme:error:rejectedIdentifier");
        assert!(!gates.note_failure(&there, &other, now) && gates.closed(&there, now).is_none());
    }
}
