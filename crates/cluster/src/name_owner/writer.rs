//! The leader writes down who claimed a name of the front door first, and lets it go once nobody of that namespace has claimed
//! it for a while.
//!
//! Nothing is written by who does not lead at that moment, and nothing over another version than the one that was looked at;
//! and nothing before the watch has told what is there: what is written is computed from that. So of two leaders one writes,
//! and the other computes anew.

use std::{collections::BTreeMap, time::Duration};

use kube::api::{DeleteParams, Preconditions};
use seaway_engine::backoff;
use seaway_model::{Change, Fact, Kind, Name, ObjectRef, Problem, Reason, fact::NameOwner};
use seaway_watchdog::WatchedPart;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

use super::{
    plan::{DesiredNameOwner, FirstClaims, UnclaimedRecords},
    write,
};
use crate::{
    api_error::{ApiError, INSTALL},
    connect::Cluster,
    decode::{self, DecodeOutcome},
    kinds::WatchedKind,
    lease::Leadership,
    moment::later,
    writer::OwnedTask,
};

/// How patient it is; tests are less so.
#[derive(Clone, Copy, Debug)]
pub struct NameOwnerTimings {
    /// A name that its namespace claims no more is its own for so long.
    pub keep: Duration,
    /// Much may change at once: it is written at most this often.
    pub pause: Duration,
}

impl Default for NameOwnerTimings {
    fn default() -> NameOwnerTimings {
        NameOwnerTimings { keep: Duration::from_secs(600), pause: Duration::from_millis(500) }
    }
}

/// What fails is tried again after this at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// So many Problems are told one by one.
const TOLD: usize = 20;

/// Writes NameOwners, while it leads and until it is dropped.
pub struct NameOwnerWriter {
    desired: watch::Sender<Option<FirstClaims>>,
    pub(crate) writer: OwnedTask,
}

impl NameOwnerWriter {
    /// Problems are told to `changes`.
    pub fn start(
        cluster: &Cluster,
        leading: Leadership,
        pace: NameOwnerTimings,
        changes: mpsc::Sender<Change>,
    ) -> NameOwnerWriter {
        let (desired, heard) = watch::channel(None);
        let keeping = NameOwnerTask {
            cluster: cluster.clone(),
            leading,
            pace,
            unclaimed: UnclaimedRecords::default(),
            failures: 0,
            again: None,
        };
        NameOwnerWriter { desired, writer: OwnedTask::spawn("owners of names", keeping.run(heard, changes)) }
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.writer.part()
    }

    /// `None`: nobody knows, or nothing is to be recorded. What is recorded stays.
    pub fn set_claims(&self, claims: Option<FirstClaims>) {
        self.desired.send_if_modified(|before| {
            let changed = *before != claims;
            *before = claims;
            changed
        });
    }
}

struct NameOwnerTask {
    cluster: Cluster,
    leading: Leadership,
    pace: NameOwnerTimings,
    unclaimed: UnclaimedRecords,
    /// In a row.
    failures: u32,
    /// When it is looked at again, whatever happens.
    again: Option<Instant>,
}

impl NameOwnerTask {
    async fn run(mut self, mut heard: watch::Receiver<Option<FirstClaims>>, changes: mpsc::Sender<Change>) {
        let mut told = Vec::new();
        loop {
            if !self.leading.is_held() {
                // Who leads meanwhile says what is wrong. Who leads next begins to count anew.
                (self.again, self.failures) = (None, 0);
                self.unclaimed.forget();
                if report_problems(&changes, &mut told, Vec::new()).await.is_err() {
                    return;
                }
                self.leading.changed_from(false).await;
                heard.mark_changed();
            }
            let again = self.again;
            tokio::select! {
                changed = heard.changed() => if changed.is_err() { return },
                () = self.leading.changed_from(true) => continue,
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
            }
            let says = heard.borrow_and_update().clone();
            let next = later(self.pace.pause);
            let problems = match says {
                Some(desired) => self.keep(&desired).await,
                None => {
                    self.unclaimed.forget();
                    self.again = None;
                    Vec::new()
                }
            };
            if report_problems(&changes, &mut told, problems).await.is_err() {
                return;
            }
            sleep_until(next).await;
        }
    }

    /// Once: all that is to be done now.
    async fn keep(&mut self, desired: &FirstClaims) -> Vec<Problem> {
        let wanted = self.unclaimed.desired_records(desired, self.pace.keep, Instant::now());
        let mut problems: Vec<Problem> = wanted.values().filter_map(beyond).collect();
        let mut failed = false;
        for DesiredNameOwner { owner, .. } in wanted.values() {
            let recorded = desired.recorded.get(&owner.namespace).map(|it| &**it);
            if recorded.map_or(owner.is_empty(), |it| it == owner) {
                continue;
            }
            if !self.leading.is_held() {
                return problems;
            }
            match self.write(owner, recorded).await {
                Ok(()) => {
                    info!(namespace = %owner.namespace, names = owner.len(), "owners of host names recorded")
                }
                Err(answer) => {
                    debug!(
                        namespace = %owner.namespace,
                        why = answer.why(),
                        "owners of host names cannot be recorded yet; retrying"
                    );
                    failed = true;
                    // Others may have written: it is computed anew.
                    if !matches!(answer, ApiError::Conflict(_)) {
                        problems.push(unwritable(&owner.namespace, &answer));
                    }
                }
            }
        }
        self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
        let retry = failed.then(|| later(backoff(self.failures, RETRY.0, RETRY.1, self.failures.into())));
        self.again = [retry, self.unclaimed.next_expiry(self.pace.keep)].into_iter().flatten().min();
        problems
    }

    /// What is recorded of a namespace becomes this. A conflict: it is not as the watch has told it.
    async fn write(&self, owner: &NameOwner, recorded: Option<&NameOwner>) -> Result<(), ApiError> {
        let (of, name) = (WatchedKind::known(Kind::NameOwner), &owner.namespace);
        let Some(recorded) = recorded else {
            return self.cluster.create(of, "", &write(owner, None)).await.map(drop);
        };
        let told = match self.cluster.get(of, "", name).await {
            Ok(told) => told,
            Err(ApiError::NotFound) => {
                return Err(ApiError::Conflict("the NameOwner was deleted".to_owned()));
            }
            Err(answer) => return Err(answer),
        };
        match decode::read(Kind::NameOwner, &told) {
            DecodeOutcome::Fact(Fact::NameOwner(it)) if *it == *recorded => {}
            _ => return Err(ApiError::Conflict("NameOwners are not listed yet".to_owned())),
        }
        if !self.leading.is_held() {
            return Err(ApiError::Conflict("another leads".to_owned()));
        }
        if !owner.is_empty() {
            return self.cluster.replace(of, "", name, &write(owner, Some(told.version()))).await.map(drop);
        }
        let version = Preconditions { resource_version: Some(told.version().to_owned()), uid: None };
        let parameters = DeleteParams { preconditions: Some(version), ..DeleteParams::default() };
        match self.cluster.within_deadline(self.cluster.api(of).delete(name, &parameters)).await {
            Ok(_) | Err(ApiError::NotFound) => Ok(()),
            Err(answer) => Err(answer),
        }
    }
}

fn beyond(wanted: &DesiredNameOwner) -> Option<Problem> {
    let DesiredNameOwner { owner, beyond } = wanted;
    let message = format!(
        "{beyond} host names or paths of namespace {} at the front door are too many or too long to be recorded: each belongs \
         to the oldest object that claims it",
        owner.namespace
    );
    let problem = Problem::new(owner.object(), Reason::LimitReached, message);
    (*beyond > 0).then(|| problem.fix("Claim fewer names, or list them in frontDoor.hostOwners."))
}

fn unwritable(namespace: &Name, answer: &ApiError) -> Problem {
    let reason = match answer {
        ApiError::Forbidden(_) | ApiError::Unauthorized(_) => Reason::NotPermitted,
        _ => Reason::StateUnwritable,
    };
    let message = format!(
        "the names that namespace {namespace} claimed first at the front door cannot be recorded, so each \
         of them belongs to the oldest object that claims it: {}",
        answer.why()
    );
    let fix = format!("As an administrator: {INSTALL}. Seaway tries again.");
    Problem::new(owners(), reason, message).fix(fix)
}

/// The object that Problems are told of.
fn owners() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "frontDoor.hostOwners")
}

/// Tells what is wrong, by object, if it is something else than before; an error, if nobody listens.
async fn report_problems(
    changes: &mpsc::Sender<Change>,
    told: &mut Vec<Problem>,
    mut problems: Vec<Problem>,
) -> Result<(), ()> {
    problems.truncate(TOLD);
    if *told == problems {
        return Ok(());
    }
    for problem in problems.iter().filter(|it| !told.contains(it)) {
        warn!("{}", problem.message);
    }
    let mut by_object: BTreeMap<ObjectRef, Vec<Problem>> =
        told.iter().map(|it| (it.object.clone(), Vec::new())).collect();
    for problem in &problems {
        by_object.entry(problem.object.clone()).or_default().push(problem.clone());
    }
    *told = problems;
    for (object, problems) in by_object {
        changes.send(Change::Reported(object, problems)).await.map_err(drop)?;
    }
    Ok(())
}
