//! What it means that a list or a watch failed, and when it is asked for again: the schedule is pure, so that it is tested
//! without waiting for it.

use std::{
    hash::{BuildHasher, RandomState},
    sync::OnceLock,
    time::Duration,
};

use seaway_engine::backoff;
use seaway_model::Change;
use tokio::time::sleep;
use tracing::debug;

use super::{
    reflector::{ReceiverDropped, Reflector},
    secrets::Secrets,
};
use crate::{
    api_error::ApiError,
    kinds::{Requirement, WatchTimings},
};

/// An API server that has just begun may know no definitions yet: so often in a row it has to say that there is none.
const NO_SUCH_KIND: u32 = 3;
/// Longer than anything waits.
const NEVER: Duration = Duration::from_secs(u64::MAX / 2);

/// The pause after so many failures in a row. `seed` spreads hosts, and the kinds of one host.
///
/// What is absent or forbidden stays so until an administrator acts. It is asked for soon at first, for definitions may be
/// on their way; then once in [`WatchTimings::look_for`] and up to a quarter more, never more often.
pub(super) fn pause(pace: &WatchTimings, answer: &ApiError, failures: u32, seed: u64) -> Duration {
    if !is_lasting(answer) {
        let pause = backoff(failures, pace.first_retry, pace.longest_retry, seed);
        return match answer {
            ApiError::Busy { after: Some(after), .. } => pause.max(*after),
            _ => pause,
        };
    }
    let pause = backoff(failures, pace.first_retry, NEVER, seed);
    if pause < pace.look_for { pause } else { pace.look_for.saturating_add(jitter(pace.look_for, seed)) }
}

impl Reflector {
    /// Tells what is wrong, and waits until it is worth to ask again.
    pub(super) async fn fail(&mut self, verb: &str, answer: ApiError) -> Result<(), ReceiverDropped> {
        self.fail_for(verb, answer, None).await
    }

    /// With what is to be done about it, where that is known better.
    pub(super) async fn fail_for(
        &mut self,
        verb: &str,
        answer: ApiError,
        fix: Option<String>,
    ) -> Result<(), ReceiverDropped> {
        self.failures = self.failures.saturating_add(1);
        self.missing = if answer == ApiError::NotFound { self.missing.saturating_add(1) } else { 0 };
        let watched = self.watched;
        let mut problem = answer.problem(watched, verb);
        if let Some(fix) = fix {
            problem.fix = fix;
        }
        let missing = matches!(answer, ApiError::NotFound | ApiError::Forbidden(_));
        let goes_on = matches!(answer, ApiError::Forbidden(_)) || self.required;
        if missing && goes_on && !self.known.is_empty() {
            problem.message = format!("{}; the last known state stays in use", problem.message);
        }
        if missing && self.required && !self.synced {
            problem.message =
                format!("{}; Seaway changes no Service until these objects are listed", problem.message);
        }
        let passing = answer.is_transient();
        let is_missed = match watched.need {
            Requirement::Required | Requirement::Expected => true,
            Requirement::Optional => answer != ApiError::NotFound,
            Requirement::ReportOnly => !missing,
        };
        if !is_missed {
            self.cluster.counts().forget(watched.kind);
            debug!("{}", problem.message);
            // It answers, which it may not have done before.
            let (failures, missing) = (self.failures, self.missing);
            // To be refused again is no permission, by which others would ask at once.
            self.forbidden &= !matches!(answer, ApiError::Forbidden(_));
            self.clear_trouble().await?;
            (self.failures, self.missing) = (failures, missing);
        // A watch that was cut once is begun again, and nobody need know.
        } else if self.scope.reports_whole_kind() && (self.failures > 1 || !self.synced || !passing) {
            debug!("{}", problem.message);
            self.troubled = true;
            self.troubles.send((watched.kind, Some(problem))).await.map_err(|_| ReceiverDropped)?;
        }
        // What is not there, or not for us, counts as empty. What was known once goes on where we may not look; but where
        // the kind is no more, none is left.
        let optional = missing && !self.required;
        if optional && self.refusal_confirmed {
            if self.missing >= NO_SUCH_KIND {
                self.known.begin_list();
                for key in self.known.finish_list() {
                    self.remove(&key, "").await?;
                }
            }
            // Where objects that restrict what is announced may not be seen, it is not known that there are none.
            let restricts =
                watched.kind.is_announcing() && watched.need == Requirement::Optional && !self.synced;
            match restricts && matches!(answer, ApiError::Forbidden(_)) {
                true => self.send(Change::NotWatched(watched.kind)).await?,
                false => self.sync().await?,
            }
        }
        self.forbidden = matches!(answer, ApiError::Forbidden(_));
        let absent = answer == ApiError::NotFound;
        let pause = sleep(self.pause(&answer));
        let defined = tokio::select! {
            () = self.readiness.until_ready(), if optional && !self.refusal_confirmed => {
                self.refusal_confirmed = true;
                false
            }
            () = self.crd_watch.changed(&self.cluster, self.watched), if absent => true,
            () = self.readiness.until_permission(), if self.forbidden => true,
            () = Secrets::not_needed(&self.secrets) => false,
            // All kinds are told again, those as well of which there are none.
            () = self.readiness.until_other_epoch(self.epoch) => true,
            () = pause => false,
        };
        if defined {
            self.failures = 0;
        }
        Ok(())
    }

    fn pause(&self, answer: &ApiError) -> Duration {
        // Hosts, and kinds within one, do not come back all at once.
        let seed = seed(PROCESS.get_or_init(RandomState::new), self.watched.plural, self.failures);
        pause(&self.cluster.pace(), answer, self.failures, seed)
    }
}

/// Of this process and no other: in containers all have one number, and start at one time. The standard library asks the kernel
/// for the keys.
static PROCESS: OnceLock<RandomState> = OnceLock::new();

fn seed(process: &RandomState, plural: &str, failures: u32) -> u64 {
    process.hash_one((plural, failures))
}

/// Nothing that passes by itself: an administrator has to define or to permit it.
pub(super) fn is_lasting(answer: &ApiError) -> bool {
    matches!(answer, ApiError::NotFound | ApiError::Forbidden(_))
}

/// Up to a quarter.
fn jitter(of: Duration, seed: u64) -> Duration {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    of.saturating_mul(((mixed >> 32) % 1_000) as u32).checked_div(4_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pauses(answer: &ApiError, seed: u64) -> Vec<Duration> {
        (1..40).map(|failures| pause(&WatchTimings::default(), answer, failures, seed)).collect()
    }

    #[test]
    fn what_is_absent_or_forbidden_is_asked_for_soon_at_first_and_then_once_a_minute_at_most() {
        let minute = Duration::from_secs(60);
        for answer in [ApiError::NotFound, ApiError::Forbidden("no".to_owned())] {
            for seed in [0, 7, 4711, u64::MAX] {
                let pauses = pauses(&answer, seed);
                assert!(pauses[0] < Duration::from_secs(1), "{pauses:?}");
                assert!(pauses.iter().all(|it| *it < minute * 5 / 4), "{pauses:?}");
                assert!(pauses[8..].iter().all(|it| *it >= minute), "{pauses:?}");
                assert!(pauses.windows(2).all(|it| it[0] <= it[1]), "never sooner than before: {pauses:?}");
            }
        }
    }

    #[test]
    fn hosts_that_wait_for_the_same_do_not_ask_at_the_same_moment() {
        let once = |seed| pause(&WatchTimings::default(), &ApiError::NotFound, 20, seed).as_millis();
        let different: BTreeSet<u128> = (0..100).map(once).collect();
        assert!(different.len() > 50, "{different:?}");
    }

    #[test]
    fn two_hosts_and_two_kinds_of_one_pause_differently() {
        let processes: Vec<_> = (0..100).map(|_| RandomState::new()).collect();
        let seeds = |plural| processes.iter().map(|it| seed(it, plural, 7)).collect::<BTreeSet<u64>>();
        assert_eq!(seeds("secrets").len(), 100, "one for each process");
        assert!(seeds("secrets").is_disjoint(&seeds("nodes")));
        let pauses = seeds("secrets")
            .into_iter()
            .map(|it| pause(&WatchTimings::default(), &ApiError::NotFound, 20, it));
        assert!(pauses.collect::<BTreeSet<_>>().len() > 50);
    }

    #[test]
    fn what_passes_by_itself_is_asked_for_more_often_and_as_the_server_wishes() {
        let unreachable =
            pauses(&ApiError::Unreachable(crate::api_error::Cause::Connection, "away".to_owned()), 3);
        assert!(
            unreachable.iter().all(|it| *it <= WatchTimings::default().longest_retry * 5 / 4),
            "{unreachable:?}"
        );
        let after = Some(Duration::from_secs(300));
        let busy = ApiError::Busy { code: 429, why: "later".to_owned(), after };
        assert_eq!(pause(&WatchTimings::default(), &busy, 1, 0), Duration::from_secs(300));
    }
}
