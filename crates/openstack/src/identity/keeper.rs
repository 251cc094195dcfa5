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
    sign_in::{Door, PAUSE, sign_in},
};
use crate::{
    credentials::{Credentials, Source, Watched},
    error::{Class, Error},
};

/// How often the files of the credentials are looked at, if anybody calls at all.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How many callers may wait in line for the task; the rest wait to stand in it.
const LINE: usize = 64;

pub(crate) struct Keeper {
    session: watch::Receiver<Arc<Session>>,
    warnings: watch::Receiver<Vec<String>>,
    line: mpsc::Sender<Wish>,
    started: Instant,
    /// When to look at the files again, in milliseconds since the start.
    next_look: AtomicU64,
    task: JoinHandle<()>,
}

enum Wish {
    /// Another session than the one of this number.
    Renew { seen: u64, reply: oneshot::Sender<Result<Arc<Session>, Error>> },
    /// The token is ageing, or the files may have changed: nobody waits for it.
    Look,
}

impl Keeper {
    /// Reads the credentials and signs in for the first time.
    pub(crate) async fn start(source: Source, door: Arc<Door>) -> Result<Keeper, Error> {
        let (watched, reading) = Watched::start(source).await?;
        let session = Arc::new(sign_in(&door, Arc::new(reading.credentials), 1).await?);
        let started = door.settings.clock.now();
        let (publish, published) = watch::channel(session.clone());
        let (warn, warned) = watch::channel(reading.warnings);
        let (line, wishes) = mpsc::channel(LINE);
        let work = Work { door, watched, session, publish, warn, refused: None, rejected: None };
        let task = tokio::spawn(work.run(wishes));
        Ok(Keeper {
            session: published,
            warnings: warned,
            line,
            started,
            next_look: AtomicU64::new(millis(LOOK_EVERY)),
            task,
        })
    }

    pub(crate) fn current(&self) -> Arc<Session> {
        self.session.borrow().clone()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }

    /// A session whose token should be good, and now and then a look at the credentials in passing.
    pub(crate) async fn good(&self, now: Instant) -> Result<Arc<Session>, Error> {
        let session = self.current();
        if session.expired(now) {
            return self.renew(session.number).await;
        }
        let since = millis(now.saturating_duration_since(self.started));
        let due = self.next_look.load(Ordering::Relaxed);
        let next = since + millis(LOOK_EVERY);
        // One of a hundred callers wins this; a full line means that somebody is at it already.
        if since >= due
            && self.next_look.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            _ = self.line.try_send(Wish::Look);
        }
        Ok(session)
    }

    /// Another session than that of number `seen`, which was refused or has expired.
    pub(crate) async fn renew(&self, seen: u64) -> Result<Arc<Session>, Error> {
        let (reply, replied) = oneshot::channel();
        let stopped = || Error::new(Class::Unreachable, "signing in has stopped with its runtime");
        self.line.send(Wish::Renew { seen, reply }).await.map_err(|_| stopped())?;
        replied.await.map_err(|_| stopped())?
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Work {
    door: Arc<Door>,
    watched: Watched,
    session: Arc<Session>,
    publish: watch::Sender<Arc<Session>>,
    warn: watch::Sender<Vec<String>>,
    /// The last refusal, and until when nobody tries again: accounts get locked by those who do not listen.
    refused: Option<(Error, Instant)>,
    /// Credentials that are newer than those in use and did not work, and when to try them again.
    rejected: Option<(Arc<Credentials>, Instant)>,
}

impl Work {
    async fn run(mut self, mut wishes: mpsc::Receiver<Wish>) {
        while let Some(wish) = wishes.recv().await {
            match wish {
                Wish::Renew { seen, reply } if self.session.number > seen => {
                    _ = reply.send(Ok(self.session.clone()));
                }
                Wish::Renew { reply, .. } if self.just_renewed() => {
                    // The newest there is was refused, too: it is not the token.
                    _ = reply.send(Ok(self.session.clone()));
                }
                Wish::Renew { reply, .. } => {
                    let outcome = self.renew().await;
                    // Whoever came meanwhile wanted the same, and does not ask Keystone the same question.
                    for _ in 0..wishes.len() {
                        if let Ok(Wish::Renew { reply, .. }) = wishes.try_recv() {
                            _ = reply.send(outcome.clone());
                        }
                    }
                    _ = reply.send(outcome);
                }
                Wish::Look => self.look().await,
            }
        }
    }

    /// Not the first sign-in, but one that somebody asked for a moment ago.
    fn just_renewed(&self) -> bool {
        self.session.number > 1
            && self.now().saturating_duration_since(self.session.made) < NOT_SOONER
            && !self.session.expired(self.now())
    }

    /// The token is of no use any more: with what the files say now, else with what worked before.
    async fn renew(&mut self) -> Result<Arc<Session>, Error> {
        self.reread().await;
        let now = self.now();
        if let Some((error, until)) = &self.refused
            && now < *until
        {
            return Err(error.clone());
        }
        let mut outcome = match self.rejected.take() {
            Some((newer, _)) => {
                let outcome = self.enter(newer.clone()).await;
                if outcome.is_err() {
                    self.rejected = Some((newer, now + TRY_NEWER));
                }
                Some(outcome)
            }
            None => None,
        };
        if !matches!(outcome, Some(Ok(_))) {
            let older = self.enter(self.session.credentials.clone()).await;
            // If neither works, it is the newer ones that somebody has to mend.
            outcome = match (older, outcome) {
                (Ok(session), _) => Some(Ok(session)),
                (Err(_), Some(Err(newer))) => Some(Err(newer)),
                (Err(older), _) => Some(Err(older)),
            };
        }
        let outcome = outcome.unwrap_or_else(|| Ok(self.session.clone()));
        self.refused = outcome.as_ref().err().map(|error| (error.clone(), self.now() + PAUSE));
        outcome
    }

    /// In passing: newer credentials are tried while the old token still works; an ageing one is renewed ahead.
    async fn look(&mut self) {
        self.reread().await;
        let now = self.now();
        match self.rejected.take() {
            Some((newer, due)) if now < due => self.rejected = Some((newer, due)),
            Some((newer, _)) => {
                if let Err(error) = self.enter(newer.clone()).await {
                    tracing::warn!(%error, "the credentials have changed, and the new ones do not work: using the old");
                    self.rejected = Some((newer, self.now() + TRY_NEWER));
                }
            }
            None => {}
        }
        if self.session.ageing(now)
            && let Err(error) = self.enter(self.session.credentials.clone()).await
        {
            tracing::warn!(%error, "the token is about to expire and cannot be renewed yet");
        }
    }

    /// What the files say, if that is new, becomes what is tried next.
    async fn reread(&mut self) {
        match self.watched.changed().await {
            None => {}
            Some(Ok(reading)) => {
                tracing::info!(from = %self.watched.name(), "the credentials have changed");
                self.warn.send_replace(reading.warnings);
                self.rejected = Some((Arc::new(reading.credentials), self.now()));
                self.refused = None;
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the credentials have changed and cannot be read: using the old");
            }
        }
    }

    async fn enter(&mut self, credentials: Arc<Credentials>) -> Result<Arc<Session>, Error> {
        let session = Arc::new(sign_in(&self.door, credentials, self.session.number + 1).await?);
        self.session = session.clone();
        self.publish.send_replace(session.clone());
        Ok(session)
    }

    fn now(&self) -> Instant {
        self.door.settings.clock.now()
    }
}

/// A service that takes no token at all must not make us ask for one after the other.
const NOT_SOONER: Duration = Duration::from_secs(1);

/// Between two tries of newer credentials that did not work.
const TRY_NEWER: Duration = Duration::from_secs(60);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
