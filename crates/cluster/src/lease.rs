//! Leases: who leads, and which hosts are alive, without comparing clocks of different machines.
//!
//! ```text
//!     holder:   sends a renewal ─────────► leads for four fifths of a term from when it was sent
//!     others:   see the Lease unchanged for a whole term of their own clock ─► take it, by its resourceVersion
//! ```
//! So the one before has stopped before the next begins, however long an answer took, and without being asked. Whoever
//! is stopped in the middle of it all and goes on later finds that it leads no more before it writes.
//!
//! The Lease of a host is a sign of life, and nobody is elected: a process that starts writes it over whoever ran there
//! before. One that finds it written over meanwhile has a rival of the same name, and says so.

mod host_lease;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, api::PostParams};
use seaway_model::Name;
use seaway_watchdog::{HANG_LIMIT, WatchedPart};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tracing::{info, warn};

use crate::{
    api_error::{ApiError, Cause},
    connect::Cluster,
    moment::{later, later_than},
    writer::OwnedTask,
};

/// The Lease of whoever gives addresses out.
pub const LEADER: &str = "seaway-controller";

/// How long a Lease holds, and how often it is renewed.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimings {
    pub term: Duration,
    pub renew: Duration,
}

impl LeaseTimings {
    /// For the one that leads.
    pub const LEADER: LeaseTimings =
        LeaseTimings { term: Duration::from_secs(15), renew: Duration::from_secs(5) };
    /// For each host.
    pub const HOST: LeaseTimings =
        LeaseTimings { term: Duration::from_secs(40), renew: Duration::from_secs(10) };

    /// For one that leads and is believed to for so long.
    pub fn leader(term: Duration) -> LeaseTimings {
        LeaseTimings { term, renew: part(term, 1, 3) }
    }
}

/// Whether we hold a Lease, asked at the moment of each write.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: watch::Receiver<Option<Instant>>,
    /// Who led before us gave the Lease back.
    handed_over: Arc<AtomicBool>,
}

/// Somebody who leads, or would like to, until it is dropped; [`LeaderElection::resign`] lets the next begin at once.
pub struct LeaderElection {
    pub(crate) task: OwnedTask,
    resign: watch::Sender<bool>,
    leading: Leadership,
    rival: watch::Receiver<Option<Name>>,
    yields: Arc<AtomicBool>,
}

/// What a Lease stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeasePurpose {
    /// One of many, at any time.
    Leads,
    /// The one of this name.
    Lives,
}

/// To give a Lease back may take no longer: it ends by itself.
const FAREWELL: Duration = Duration::from_secs(3);

impl Leadership {
    /// Of a process that needs no Lease, as it is the only one.
    pub fn always() -> Leadership {
        let far = later(Duration::from_secs(u64::from(u32::MAX)));
        Leadership { until: watch::channel(Some(far)).1, handed_over: Arc::default() }
    }

    pub fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Whether who led before us said that it ends, or had no Lease any more. A leader that was killed did not, nor did the one of
    /// a cluster that this one is a copy of.
    pub fn was_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Returns when it is another than `leading`.
    pub async fn changed_from(&mut self, leading: bool) {
        loop {
            let until = *self.until.borrow_and_update();
            let now = until.is_some_and(|until| Instant::now() < until);
            if now != leading {
                return;
            }
            tokio::select! {
                changed = self.until.changed() => match (changed, until) {
                    (Ok(()), _) => {}
                    // Nobody renews it any more.
                    (Err(_), Some(until)) if now => tokio::time::sleep_until(until).await,
                    (Err(_), _) => std::future::pending().await,
                },
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if now => {}
            }
        }
    }
}

impl LeaderElection {
    /// Campaigns for the Lease `name`. `who` is for people; what tells one process from another is added to it.
    pub fn start(cluster: &Cluster, name: &str, who: &str, terms: LeaseTimings) -> LeaderElection {
        LeaderElection::begin(cluster, (name, who), terms, LeasePurpose::Leads, watch::channel(true).1)
    }

    /// Of a process that takes no part: it never leads.
    pub fn never() -> LeaderElection {
        let (tell, until) = watch::channel(None);
        let (resign, mut resigned) = watch::channel(false);
        let task = OwnedTask::spawn("no Lease", async move {
            let _tell = tell;
            // Its sender goes with this task's owner.
            let _ = resigned.wait_for(|it| *it).await;
        });
        let leading = Leadership { until, handed_over: Arc::default() };
        LeaderElection { task, resign, leading, rival: watch::channel(None).1, yields: Arc::default() }
    }

    fn begin(
        cluster: &Cluster,
        (name, who): (&str, &str),
        terms: LeaseTimings,
        meaning: LeasePurpose,
        begins: watch::Receiver<bool>,
    ) -> LeaderElection {
        let (tell, leading) = watch::channel(None);
        let (tell_rival, rival) = watch::channel(None);
        let (resign, resigned) = watch::channel(false);
        let handed_over = Arc::<AtomicBool>::default();
        let yields = Arc::<AtomicBool>::default();
        let candidate = Candidate {
            cluster: cluster.clone(),
            name: name.to_owned(),
            identity: format!("{who}_{}", unique()),
            terms,
            meaning,
            had: false,
            held: None,
            seen: None,
            trouble: None,
            tell,
            handed_over: handed_over.clone(),
            yields: yields.clone(),
            rival: tell_rival,
        };
        let task = spawn_lease_task(&format!("the Lease {name}"), candidate.run_from(begins, resigned));
        LeaderElection { task, resign, leading: Leadership { until: leading, handed_over }, rival, yields }
    }

    pub fn leadership(&self) -> Leadership {
        self.leading.clone()
    }

    /// For the watchdog: a Lease that nobody even tries to renew is missed.
    pub fn part(&self) -> WatchedPart {
        self.task.part()
    }

    /// Who took it from us while we had it.
    pub fn rival(&self) -> watch::Receiver<Option<Name>> {
        self.rival.clone()
    }

    /// Writes nothing any more, and gives the Lease back, if somebody takes it soon.
    pub async fn resign(mut self) {
        // It may have ended.
        let _ = self.resign.send(true);
        let _ = timeout(FAREWELL, self.task.ended()).await;
    }
}

/// So many of so many parts of it.
fn part(of: Duration, parts: u32, all: u32) -> Duration {
    of.saturating_mul(parts).checked_div(all).unwrap_or(of)
}

/// It is woken at least this often, whatever it waits for, for as long as there is an end to that.
const BEAT: Duration = Duration::from_secs(1);

/// Missed within ten seconds: as long as it beats, a try or a pause has not taken its time.
pub(crate) fn spawn_lease_task(name: &str, task: impl Future<Output = ()> + Send + 'static) -> OwnedTask {
    OwnedTask::spawn(name, task).with_allowed_silence(BEAT.saturating_add(HANG_LIMIT))
}

/// As a time-out, awake each [`BEAT`].
async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let (end, mut work) = (later(limit), pin!(work));
    loop {
        let next = end.min(later(BEAT));
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = sleep_until(next) => if next == end { return None },
        }
    }
}

async fn rest(pause: Duration) {
    within(pause, std::future::pending::<()>()).await;
}

struct Candidate {
    cluster: Cluster,
    name: String,
    identity: String,
    terms: LeaseTimings,
    meaning: LeasePurpose,
    /// We have written it once.
    had: bool,
    /// As we wrote it last.
    held: Option<Lease>,
    /// The Lease of somebody else as it was last, and since when we know it so.
    seen: Option<(String, Instant)>,
    /// What was complained of last.
    trouble: Option<ApiError>,
    tell: watch::Sender<Option<Instant>>,
    handed_over: Arc<AtomicBool>,
    yields: Arc<AtomicBool>,
    rival: watch::Sender<Option<Name>>,
}

impl Candidate {
    async fn run(mut self, mut resigned: watch::Receiver<bool>) {
        loop {
            let pause = tokio::select! {
                pause = self.turn() => pause,
                _ = resigned.wait_for(|it| *it) => break,
            };
            tokio::select! {
                () = rest(pause) => {}
                _ = resigned.wait_for(|it| *it) => break,
            }
        }
        self.tell.send_replace(None);
        self.give_back().await;
    }

    /// Looks, and takes or renews; how long to wait until the next.
    async fn turn(&mut self) -> Duration {
        let sent = Instant::now();
        let LeaseTimings { term, renew } = self.terms;
        // One dead connection must not cost the term: there is time to try another.
        let (taken, again) = match within(renew, self.take()).await {
            Some(taken) => (taken, part(renew, 1, 4)),
            None => {
                self.cluster.reconnect().await;
                (
                    Err(ApiError::Unreachable(Cause::Connection, format!("timed out after {renew:?}"))),
                    Duration::ZERO,
                )
            }
        };
        match taken {
            Ok(true) => {
                self.is_well().await;
                let was = self.tell.send_replace(Some(later_than(sent, part(term, 4, 5))));
                self.rival.send_if_modified(|it| it.take().is_some());
                self.had = true;
                if was.is_none_or(|until| until < sent) {
                    info!(lease = self.name, identity = self.identity, "became leader");
                }
                renew
            }
            Ok(false) => {
                self.is_well().await;
                if self.tell.send_replace(None).is_some() && self.meaning == LeasePurpose::Leads {
                    warn!(lease = self.name, "lost leadership: another process is the leader");
                }
                part(term, 1, 8).max(Duration::from_millis(50))
            }
            Err(answer) => {
                // It holds until it ends by itself; whoever leads tries again soon.
                if self.trouble.as_ref() != Some(&answer) {
                    let why = match &answer {
                        ApiError::NotFound => {
                            let namespace = self.cluster.namespace();
                            format!(
                                "the namespace {namespace} does not exist: kubectl create namespace {namespace}"
                            )
                        }
                        other => other.message_with_fix(),
                    };
                    warn!(lease = self.name, why, "Lease cannot be acquired or renewed");
                    self.trouble = Some(answer);
                }
                again.max(Duration::from_millis(50))
            }
        }
    }

    /// Nobody leads, or lives, by a Lease that goes through while all else waits for nothing.
    async fn is_well(&mut self) {
        if let Some(ApiError::Unreachable(..)) = self.trouble.take() {
            self.cluster.restart_requests().await;
        }
    }

    async fn take(&mut self) -> Result<bool, ApiError> {
        if let Some(lease) = self.held.take()
            && self
                .write(
                    Some(&lease),
                    lease.spec.iter().find_map(|it| it.lease_transitions).unwrap_or_default(),
                )
                .await?
        {
            return Ok(true);
        }
        let api = self.api();
        let lease = match self.cluster.within_deadline(api.get(&self.name)).await {
            Ok(lease) => lease,
            Err(ApiError::NotFound) => {
                self.handed_over.store(true, Ordering::Relaxed);
                return self.write(None, 0).await;
            }
            Err(answer) => return Err(answer),
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let transitions = spec.lease_transitions.unwrap_or_default();
        if holder == self.identity {
            return self.write(Some(&lease), transitions).await;
        }
        if self.yields.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let term = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
        let term = term.map_or(self.terms.term, Duration::from_secs);
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => self.seen.insert((version, Instant::now())).1,
        };
        let patience = match self.meaning {
            LeasePurpose::Leads => term,
            // Whoever it was is no more, or about to end.
            LeasePurpose::Lives if !self.had => Duration::ZERO,
            // It began after us. Before anybody takes this host for dead, we say that it is not.
            LeasePurpose::Lives => part(term, 1, 2),
        };
        if !holder.is_empty() && since.elapsed() < patience {
            if self.meaning == LeasePurpose::Lives {
                self.meets(holder.into());
            }
            return Ok(false);
        }
        self.handed_over.store(holder.is_empty(), Ordering::Relaxed);
        self.write(Some(&lease), transitions.saturating_add(1)).await
    }

    fn meets(&self, rival: Name) {
        let met = self.rival.send_replace(Some(rival.clone()));
        if met.as_ref() != Some(&rival) {
            warn!(lease = self.name, %rival, us = self.identity,
                "another process uses this host's name: give each host a name of its own");
        }
    }

    /// By its version: of several who try, one does.
    async fn write(&mut self, before: Option<&Lease>, transitions: i32) -> Result<bool, ApiError> {
        let now = MicroTime(Timestamp::now());
        let spec = before.and_then(|it| it.spec.clone()).unwrap_or_default();
        let renewed = spec.holder_identity.as_deref() == Some(&self.identity);
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.cluster.namespace().to_string()),
                resource_version: before.and_then(|it| it.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                // Rounded up: a term of others is never shorter than ours.
                lease_duration_seconds: i32::try_from(self.terms.term.as_millis().div_ceil(1000)).ok(),
                acquire_time: spec.acquire_time.filter(|_| renewed).or_else(|| Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        };
        let (api, parameters) = (self.api(), PostParams::default());
        let written = match before {
            Some(_) => self.cluster.within_deadline(api.replace(&self.name, &parameters, &lease)).await,
            None => self.cluster.within_deadline(api.create(&parameters, &lease)).await,
        };
        match written {
            Ok(lease) => {
                self.held = Some(lease);
                Ok(true)
            }
            Err(ApiError::NotFound) if before.is_some() => Ok(false),
            Err(ApiError::Conflict(_)) => Ok(false),
            Err(answer) => Err(answer),
        }
    }

    async fn give_back(&self) {
        let api = self.api();
        let Ok(mut lease) = self.cluster.within_deadline(api.get(&self.name)).await else { return };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_deref() == Some(&self.identity) {
            spec.holder_identity = None;
            // Else it ends by itself.
            let _ =
                self.cluster.within_deadline(api.replace(&self.name, &PostParams::default(), &lease)).await;
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.cluster.client(), self.cluster.namespace())
    }
}

/// Two processes never have one, even on one machine and with one configuration.
fn unique() -> Name {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    match uuid.trim() {
        "" => format!("{}-{}", std::process::id(), Timestamp::now().as_nanosecond()).into(),
        uuid => uuid.into(),
    }
}

#[cfg(test)]
mod tests;
