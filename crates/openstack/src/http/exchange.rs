//! As many attempts as are safe, fit the time, and make sense.

use std::time::Duration;

use super::{
    attempt_error::AttemptError,
    backoff::{Backoff, RandomSource},
    limits::RequestLimiter,
    transport::{HttpReply, HttpRequest, Transport},
};
use crate::{
    clock::Clock,
    cloud::Timing,
    error::{Class, Error},
};

/// How one exchange is done.
pub(crate) struct ExchangeOptions {
    /// How long one attempt may take.
    pub(crate) attempt: Duration,
    pub(crate) backoff: Backoff,
    /// Whether doing it twice comes to the same as once.
    pub(crate) repeatable: bool,
}

/// What is left of a call's time, for all its exchanges, the pauses between them, and a new token. Queueing for our own
/// limits is no delay of the cloud's and does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeBudget(pub(crate) Duration);

/// What all exchanges of one cloud share.
pub(crate) struct Exchange<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) gate: &'a RequestLimiter,
    pub(crate) random: &'a RandomSource,
    /// Asked right before each attempt.
    pub(crate) may: &'a (dyn Fn() -> bool + Send + Sync),
    /// Told of each attempt but the first.
    pub(crate) repeated: &'a (dyn Fn() + Send + Sync),
}

impl Exchange<'_> {
    /// The last answer, be it a refusal, or the last trouble.
    pub(crate) async fn run(
        &self,
        transport: &Transport,
        ask: &HttpRequest<'_>,
        terms: &ExchangeOptions,
        left: &mut TimeBudget,
    ) -> Result<HttpReply, AttemptError> {
        let mut attempts = 0;
        loop {
            let place = self.gate.acquire(self.clock).await;
            // It may have waited for its place, or slept, for longer than a lead lasts.
            if !(self.may)() {
                let error = Error::new(Class::Fenced, "not written: another process is the leader");
                return Err(AttemptError::unsent(error));
            }
            let within = terms.attempt.min(left.0).max(Duration::from_millis(1));
            let begin = self.clock.now();
            let outcome = transport.attempt(ask, within, self.clock).await;
            // No attempt takes longer than it may, whatever a clock says that jumps.
            left.spend(self.clock.now().saturating_duration_since(begin).min(within));
            drop(place);
            attempts = u32::saturating_add(attempts, 1);
            let Some(asked) = again(&outcome, terms.repeatable) else { return outcome };
            let chance = self.random.chance();
            let pause = terms.backoff.pause_asked(asked, attempts, chance);
            if attempts >= terms.backoff.attempts || pause >= left.0 {
                return outcome;
            }
            left.spend(pause);
            tracing::debug!(attempts, ?pause, outcome = %outcome_text(&outcome), "once more");
            self.clock.sleep(pause).await;
            (self.repeated)();
        }
    }
}

impl TimeBudget {
    /// Of a call that begins now.
    pub(crate) fn of(timing: Timing) -> TimeBudget {
        TimeBudget(timing.call)
    }

    pub(crate) fn spend(&mut self, time: Duration) {
        self.0 = self.0.saturating_sub(time);
    }
}

/// Whether it should be tried again, and after what time if somebody said so.
fn again(outcome: &Result<HttpReply, AttemptError>, repeatable: bool) -> Option<Option<Duration>> {
    match outcome {
        Ok(answer) if answer.is_from_gateway() && !repeatable => None,
        // Nothing was done: whoever is too busy says so before.
        Ok(HttpReply { status: 429 | 503, retry_after, .. }) => Some(*retry_after),
        Ok(HttpReply { status: 413, retry_after: Some(after), .. }) => Some(Some(*after)),
        Ok(HttpReply { status: 502 | 504, retry_after, .. }) => repeatable.then_some(*retry_after),
        Ok(_) => None,
        Err(trouble) => {
            let passes =
                matches!(trouble.error.class(), Class::Unreachable | Class::Timeout | Class::CutShort);
            (passes && (repeatable || !trouble.sent)).then_some(None)
        }
    }
}

fn outcome_text(outcome: &Result<HttpReply, AttemptError>) -> String {
    match outcome {
        Ok(answer) => format!("status {}", answer.status),
        Err(trouble) => trouble.error.to_string(),
    }
}
