//! Keeps one session good for all callers: one task that signs in, so that there is never more than one sign-in, and
//! whoever asks meanwhile shares what comes of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use super::{
    Session,
    sign_in::{SignInContext, sign_in},
};
use crate::{
    clock::Clock,
    credentials::{CredentialWatch, Credentials, Source},
    error::{Class, Error},
    http::TimeBudget,
};

/// How often the files of the credentials are looked at, if anybody calls at all.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How many callers may wait in line for the task; the rest wait to stand in it.
const LINE: usize = 64;

pub(crate) struct SessionKeeper {
    session: watch::Receiver<Arc<Session>>,
    warnings: watch::Receiver<Vec<String>>,
    line: mpsc::Sender<SessionRequest>,
    started: Instant,
    /// When to look at the files again, in milliseconds since the start.
    next_look: AtomicU64,
    task: JoinHandle<()>,
}

enum SessionRequest {
    /// Another session than the one of this number.
    Renew { seen: u64, reply: oneshot::Sender<Result<Arc<Session>, Error>> },
    /// The token is ageing, or the files may have changed: nobody waits for it.
    Look,
}

impl SessionKeeper {
    /// Reads the credentials and signs in for the first time.
    pub(crate) async fn start(source: Source, context: Arc<SignInContext>) -> Result<SessionKeeper, Error> {
        let (watched, reading) = CredentialWatch::start(source).await?;
        let session = Arc::new(sign_in(&context, Arc::new(reading.credentials), 1).await?);
        let started = context.settings.clock.now();
        let (publish, published) = watch::channel(session.clone());
        let (warn, warned) = watch::channel(reading.warnings);
        let (line, wishes) = mpsc::channel(LINE);
        let work = KeeperTask { context, watched, session, publish, warn, refused: None, newer: None };
        let task = tokio::spawn(work.run(wishes));
        Ok(SessionKeeper {
            session: published,
            warnings: warned,
            line,
            started,
            next_look: AtomicU64::new(millis(LOOK_EVERY)),
            task,
        })
    }

    pub(crate) fn current_session(&self) -> Arc<Session> {
        self.session.borrow().clone()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }

    /// A session whose token should be good, and now and then a look at the credentials in passing.
    pub(crate) async fn usable_session(
        &self,
        clock: &dyn Clock,
        left: &mut TimeBudget,
    ) -> Result<Arc<Session>, Error> {
        let (session, now) = (self.current_session(), clock.now());
        if session.is_expired(now) {
            return self.renew(session.number, clock, left).await;
        }
        let since = millis(now.saturating_duration_since(self.started));
        let due = self.next_look.load(Ordering::Relaxed);
        let next = since.saturating_add(millis(LOOK_EVERY));
        // One of a hundred callers wins this; a full line means that somebody is at it already.
        if since >= due
            && self.next_look.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            _ = self.line.try_send(SessionRequest::Look);
        }
        Ok(session)
    }

    /// Another session than that of number `seen`, which was refused or has expired. Whoever has no time left for it
    /// goes; the sign-in goes on for the others.
    pub(crate) async fn renew(
        &self,
        seen: u64,
        clock: &dyn Clock,
        left: &mut TimeBudget,
    ) -> Result<Arc<Session>, Error> {
        let stopped = || Error::new(Class::Unreachable, "the process is stopping: no new sign-in");
        let (begin, patience) = (clock.now(), left.0);
        let renewed = tokio::time::timeout(patience, async {
            let (reply, replied) = oneshot::channel();
            self.line.send(SessionRequest::Renew { seen, reply }).await.map_err(|_| stopped())?;
            replied.await.map_err(|_| stopped())?
        });
        let renewed = renewed.await;
        left.spend(clock.now().saturating_duration_since(begin));
        renewed.unwrap_or_else(|_| {
            let message = format!("Keystone gave no new token within {} s", patience.as_secs_f64().ceil());
            let fix = "Keystone, or a proxy in front of it, is stuck or overloaded: ask its operators";
            Err(Error::new(Class::Timeout, message).with_fix(fix))
        })
    }
}

impl Drop for SessionKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct KeeperTask {
    context: Arc<SignInContext>,
    watched: CredentialWatch,
    session: Arc<Session>,
    publish: watch::Sender<Arc<Session>>,
    warn: watch::Sender<Vec<String>>,
    /// Of the credentials in use, when they no longer work.
    refused: Option<FailedSignIn>,
    /// Credentials that are newer than those in use, and what came of them.
    newer: Option<(Arc<Credentials>, Option<FailedSignIn>)>,
}

/// A sign-in that failed, and until when nobody tries again: accounts get locked by those who do not listen.
struct FailedSignIn {
    error: Error,
    /// How many there were before it, in a row.
    before: usize,
    until: Instant,
}

impl KeeperTask {
    async fn run(mut self, mut wishes: mpsc::Receiver<SessionRequest>) {
        while let Some(wish) = wishes.recv().await {
            match wish {
                SessionRequest::Renew { seen, reply } if self.session.number > seen => {
                    _ = reply.send(Ok(self.session.clone()));
                }
                SessionRequest::Renew { reply, .. } if self.just_renewed() => {
                    // The newest there is was refused, too: it is not the token.
                    _ = reply.send(Ok(self.session.clone()));
                }
                SessionRequest::Renew { reply, .. } => {
                    let outcome = self.renew().await;
                    // Whoever came meanwhile wanted the same, and does not ask Keystone the same question.
                    for _ in 0..wishes.len() {
                        if let Ok(SessionRequest::Renew { reply, .. }) = wishes.try_recv() {
                            _ = reply.send(outcome.clone());
                        }
                    }
                    _ = reply.send(outcome);
                }
                SessionRequest::Look => self.look().await,
            }
        }
    }

    /// Not the first sign-in, but one that somebody asked for a moment ago.
    fn just_renewed(&self) -> bool {
        self.session.number > 1
            && self.now().saturating_duration_since(self.session.made) < NOT_SOONER
            && !self.session.is_expired(self.now())
    }

    /// The token is of no use any more: with what the files say now, else with what worked before.
    async fn renew(&mut self) -> Result<Arc<Session>, Error> {
        self.reread().await;
        if let Some(refused) = self.refused.as_ref().filter(|it| self.now() < it.until) {
            return Err(refused.error.clone());
        }
        let newer = if self.new_credentials_are_due() { self.enter_newer().await } else { None };
        if let Some(Ok(session)) = newer {
            return Ok(session);
        }
        let Err(older) = self.enter_again().await else { return Ok(self.session.clone()) };
        let newer = match newer {
            // The pause was for the sake of those in use, which are of no use any more.
            None => self.enter_newer().await,
            tried => tried,
        };
        // If neither works, it is the newer ones that somebody has to mend.
        let outcome = newer.unwrap_or(Err(older));
        if let (Err(error), Some(refused)) = (&outcome, &mut self.refused) {
            refused.error = error.clone();
        }
        outcome
    }

    /// In passing: newer credentials are tried while the old token still works; an ageing one is renewed ahead.
    async fn look(&mut self) {
        self.reread().await;
        if self.new_credentials_are_due()
            && let Some(Err(error)) = self.enter_newer().await
        {
            tracing::warn!(%error, "credentials changed, but the new ones do not work; the old ones stay in use");
        }
        let now = self.now();
        if self.session.is_due_for_renewal(now)
            && self.refused.as_ref().is_none_or(|it| it.until <= now)
            && let Err(error) = self.enter_again().await
        {
            tracing::warn!(%error, "token expires soon and cannot be renewed yet");
        }
    }

    /// What the files say, if that is new, becomes what is tried next.
    async fn reread(&mut self) {
        match self.watched.changed().await {
            None => {}
            Some(Ok(reading)) => {
                tracing::info!(from = %self.watched.name(), "credentials changed");
                self.warn.send_replace(reading.warnings);
                self.newer = Some((Arc::new(reading.credentials), None));
                self.refused = None;
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "credentials changed, but cannot be read; the old ones stay in use");
            }
        }
    }

    fn new_credentials_are_due(&self) -> bool {
        let setback = self.newer.as_ref().map(|(_, setback)| setback.as_ref());
        setback.is_some_and(|it| it.is_none_or(|it| it.until <= self.now()))
    }

    /// None if there are none.
    async fn enter_newer(&mut self) -> Option<Result<Arc<Session>, Error>> {
        let (newer, before) = self.newer.take()?;
        let outcome = self.enter(newer.clone()).await;
        if let Err(error) = &outcome {
            self.newer = Some((newer, Some(FailedSignIn::after(before, error, &TRY_NEWER, self.now()))));
        }
        Some(outcome)
    }

    async fn enter_again(&mut self) -> Result<Arc<Session>, Error> {
        let before = self.refused.take();
        let outcome = self.enter(self.session.credentials.clone()).await;
        if let Err(error) = &outcome {
            self.refused = Some(FailedSignIn::after(before, error, &TRY_AGAIN, self.now()));
        }
        outcome
    }

    async fn enter(&mut self, credentials: Arc<Credentials>) -> Result<Arc<Session>, Error> {
        let number = self.session.number.wrapping_add(1);
        let session = Arc::new(sign_in(&self.context, credentials, number).await?);
        self.session = session.clone();
        self.refused = None;
        self.publish.send_replace(session.clone());
        Ok(session)
    }

    fn now(&self) -> Instant {
        self.context.settings.clock.now()
    }
}

/// A service that takes no token at all must not make us ask for one after the other.
const NOT_SOONER: Duration = Duration::from_secs(1);

const MINUTE: Duration = Duration::from_secs(60);

/// Between two tries of newer credentials that Keystone refused. Each costs two failed logins (the second to learn why),
/// and the user may be the very one whose old password still works.
const TRY_NEWER: [Duration; 4] =
    [MINUTE, MINUTE.saturating_mul(5), MINUTE.saturating_mul(15), MINUTE.saturating_mul(60)];

/// Between two tries of those in use, when they no longer work: nothing else does, and somebody may mend them over there.
const TRY_AGAIN: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(15), MINUTE, MINUTE.saturating_mul(5)];

impl FailedSignIn {
    /// Pauses grow while Keystone says no. What failed for another reason locks nobody out.
    fn after(
        earlier: Option<FailedSignIn>,
        error: &Error,
        pauses: &[Duration; 4],
        now: Instant,
    ) -> FailedSignIn {
        let refused = *error.class() == Class::Credentials;
        let before = earlier.filter(|_| refused).map_or(0, |it| it.before.saturating_add(1));
        let [.., longest] = pauses;
        let pause = *pauses.get(before).unwrap_or(longest);
        FailedSignIn { error: error.clone(), before, until: now.checked_add(pause).unwrap_or(now) }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_keystone_says_no_and_only_then() {
        let now = Instant::now();
        let pauses = |classes: &[Class]| -> Vec<u64> {
            let mut setback = None;
            let pause = |class: &Class| {
                let next =
                    FailedSignIn::after(setback.take(), &Error::new(class.clone(), "no"), &TRY_NEWER, now);
                let pause = next.until.duration_since(now).as_secs() / 60;
                setback = Some(next);
                pause
            };
            classes.iter().map(pause).collect()
        };
        let (no, away) = (Class::Credentials, Class::Timeout);
        assert_eq!(pauses(&[no.clone(), no.clone(), no.clone(), no.clone(), no.clone()]), [1, 5, 15, 60, 60]);
        assert_eq!(pauses(&[away.clone(), away.clone(), no.clone(), away, no]), [1, 1, 5, 1, 5]);
    }
}
