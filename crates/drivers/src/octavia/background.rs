//! What is done in the cloud beside Units, while this process leads: everything there is read at the start of each lead and once
//! in each period, what was refused is tried again once that may be granted, and the heartbeat is sent that tells copies of the
//! cluster that this one writes.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use seaway_engine::{Background, Event, Failure, HeartbeatRecord};
use seaway_model::Problem;
use tokio::time::sleep;
use tracing::debug;

use super::{Audited, InCloud, Octavia, groups::Groups, sole};

/// After a look that failed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Whether somebody has mended something.
const WAKE: Duration = Duration::from_secs(2);

/// What is audited, and how often.
pub struct Audits {
    pub of: InCloud,
    pub period: Duration,
}

/// What a heartbeat needs of the cluster.
pub struct Heartbeats {
    pub record: Arc<dyn HeartbeatRecord>,
    /// A term for each lead, which no other lead of any process has.
    pub term: fn() -> String,
    /// Whether who led before this process said that it ends.
    pub is_handed_over: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Octavia {
    /// From the first lead on, all that is there is audited.
    #[must_use]
    pub fn auditing(self, audits: Audits) -> Octavia {
        Octavia { audits: Some(audits), ..self }
    }

    /// Copies of the cluster are noticed by heartbeats: see [`alone`](Octavia::alone).
    #[must_use]
    pub fn beating(self, heartbeats: Heartbeats) -> Octavia {
        Octavia { heartbeats: Some(heartbeats), ..self }
    }

    /// Everything that is there of a cloud and a class.
    pub async fn audit_of(self: &Arc<Self>, of: &InCloud) -> Result<Audited, Failure> {
        let mut audited = self.audit(&of.cloud).await?;
        let group = Groups::new(self.clone()).survey(&of.cloud, &of.class).await?;
        audited.there.extend(group.clone());
        audited.found.extend(group);
        Ok(audited)
    }

    /// Everything is looked at again, for another process may have changed it.
    pub(super) fn forget_all(&self) {
        self.known().clear();
        self.closed.forget();
        self.groups().clear();
        self.past.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.surveyed.forget();
        if let Some(joined) = self.joined.get() {
            joined.stored.doubt();
        }
    }

    pub(super) async fn work_beside(self: Arc<Self>, background: Background) {
        tokio::join!(
            self.audit_in_periods(background.clone()),
            self.wake(&background),
            self.beat_while_leading(background.clone()),
        );
    }

    /// For what others changed, and for what Services left behind that were deleted while no controller led.
    async fn audit_in_periods(self: &Arc<Self>, mut background: Background) {
        let Some(Audits { of, period }) = &self.audits else { return };
        loop {
            background.until_leading().await;
            let pause = match self.audit_of(of).await {
                Ok(Audited { found, there, again }) => {
                    let events = [Event::Listed(there)].into_iter();
                    let events = events.chain(found.into_iter().map(Event::Found));
                    for event in events.chain(again.into_iter().map(Event::Drifted)) {
                        background.tell(event).await;
                    }
                    *period
                }
                Err(error) => {
                    debug!(%error, "the state of the cloud cannot be read");
                    LOOK_AGAIN.min(*period)
                }
            };
            tokio::select! {
                () = background.until_deposed() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Units that the cloud refused something try again once that may be granted.
    async fn wake(&self, background: &Background) {
        loop {
            sleep(WAKE).await;
            if self.audits.is_none() || !background.leads() {
                continue;
            }
            for unit in self.due() {
                background.tell(Event::Drifted(unit)).await;
            }
        }
    }

    async fn beat_while_leading(&self, mut background: Background) {
        let (Some(sole), Some(beats)) = (&self.sole, &self.heartbeats) else { return };
        let mut told = None::<Problem>;
        loop {
            background.until_leading().await;
            sole.begin(&(beats.term)(), (beats.is_handed_over)());
            loop {
                let pause = self.beat(&*beats.record).await;
                let problem = sole.problem();
                if problem != told {
                    told.clone_from(&problem);
                    let problems = problem.into_iter().collect();
                    background.tell(Event::Troubled(sole::about(), problems)).await;
                }
                tokio::select! {
                    () = background.until_deposed() => break,
                    () = sleep(pause) => {}
                }
            }
            sole.end();
        }
    }
}
