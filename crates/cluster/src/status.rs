//! The driver that tells Services what became of them: addresses, conditions, events.
//!
//! ```text
//!     Status ─┐
//!             ├─ output: ingress, conditions ─ differs ─► Write ─► Tell: one event for each change, in its turn
//!     ObjectCache ───┘
//! ```
//! Our fields are applied under our own name (server-side apply), so that nobody else's are touched. An address is
//! published once it is served, and is not withdrawn because hosts vanish: a condition says so instead. Where another
//! controller writes after us, it is left to it; that, and its end, the watch tells as a Problem of the Service.

mod annotation;
mod content;
mod events;
mod pace;

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use seaway_engine::{Context, Driver, Effect, Effects, Failure, ProblemLog, Report};
use seaway_model::{
    Desired, Kind, Name, ObjectRef, Owner, Problem, Reason, Status, Unit, outcome::ReplacedLoadBalancer,
};
use seaway_watchdog::WatchedPart;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

pub(crate) use self::{
    annotation::{ADDRESS, BALANCER},
    content::{PREFIX, rival_problem},
};
pub use self::{content::PENDING, events::EventRecorder};
use self::{
    content::{EventText, StatusContent},
    events::EventWriter,
    pace::ReadHistory,
};
use crate::{
    api_error::{ApiError, INSTALL},
    connect::Cluster,
    decode,
    kinds::WatchedKind,
    lease::Leadership,
    object_cache::PublishedService,
};

/// Writes statuses and events of Services, while it leads; Problems of whatever has no status are logged.
pub struct StatusDriver {
    cluster: Cluster,
    events: EventWriter,
    problems: ProblemLog,
    logged: Mutex<HashMap<Owner, Arc<Status>>>,
    /// Why the last of all statuses was refused: ten thousand may be, for one reason.
    refused: Mutex<Option<ApiError>>,
    /// Services that were never told anything, since when they have an address that nobody serves.
    waiting: Mutex<HashMap<Owner, Instant>>,
    looks: Mutex<ReadHistory<Owner>>,
    /// Ids that were gone and that this process replaced in annotations: each once, for a tool may write it back for ever.
    corrected: Mutex<HashMap<Owner, Name>>,
}

/// A new Service is told once that it is served, and not before that it is not yet.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// Whoever lacks a role does not hear when he gets it.
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(10);

/// What a Service says of itself, and why it could not be made to say something else.
#[derive(Debug, Default)]
pub struct ObservedStatus {
    published: Option<PublishedService>,
    trouble: Option<ApiError>,
    /// There will be more to tell soon.
    early: bool,
    /// An id that was replaced before.
    corrected: Option<Name>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StatusStep {
    Write(StatusContent),
    /// As an event.
    RecordEvent(EventText),
    /// As an annotation.
    Annotate(IpAddr),
    /// Corrects the annotation that names its load balancer.
    FixLoadBalancerId(ReplacedLoadBalancer),
}

fn problems_of(status: Option<&Arc<Status>>) -> &[Problem] {
    status.map_or(&[], |it| &it.problems)
}

impl fmt::Display for StatusStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusStep::Write(output) => write!(f, "write {output}"),
            StatusStep::RecordEvent(note) => write!(f, "record the event {note}"),
            StatusStep::Annotate(at) => write!(f, "annotate its address {at}"),
            StatusStep::FixLoadBalancerId(it) => {
                write!(
                    f,
                    "annotate the id of its load balancer {}, because {} does not exist any more",
                    it.by, it.gone
                )
            }
        }
    }
}

impl Effects for StatusStep {
    fn effect(&self) -> Effect {
        match self {
            StatusStep::Write(output) => output.effect(),
            StatusStep::RecordEvent(_) | StatusStep::Annotate(_) | StatusStep::FixLoadBalancerId(_) => {
                Effect::CHANGES
            }
        }
    }
}

impl StatusDriver {
    /// In a runtime.
    pub fn new(cluster: Cluster, leading: Leadership, problems: ProblemLog) -> StatusDriver {
        StatusDriver {
            problems,
            events: EventWriter::start(cluster.clone(), leading),
            cluster,
            logged: Mutex::default(),
            refused: Mutex::default(),
            waiting: Mutex::default(),
            looks: Mutex::default(),
            corrected: Mutex::default(),
        }
    }

    /// For the watchdog: what writes events.
    pub fn part(&self) -> WatchedPart {
        self.events.part()
    }

    #[cfg(test)]
    pub(crate) fn writer(&self) -> &crate::writer::OwnedTask {
        self.events.task()
    }

    /// For whoever else has something to say in passing.
    pub fn event_recorder(&self) -> EventRecorder {
        self.events.event_recorder()
    }

    fn looks(&self) -> MutexGuard<'_, ReadHistory<Owner>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has a status.
    fn is_told(&self, owner: &Owner) -> bool {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).contains_key(owner)
    }

    /// Each Problem once when it comes, and once when it goes.
    fn log(&self, owner: &Owner, status: Option<&Arc<Status>>) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match status {
            Some(status) => logged.insert(owner.clone(), status.clone()),
            None => logged.remove(owner),
        };
        self.problems.log_changes(problems_of(before.as_ref()), problems_of(status));
    }

    /// Its address is being written down, or was just now.
    fn is_early(&self, owner: &Owner, desired: &Desired, published: Option<&PublishedService>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let status = match desired {
            Desired::Status(it) if !it.ready && it.problems.is_empty() && it.serving.is_empty() => it,
            _ => {
                waiting.remove(owner);
                return false;
            }
        };
        if status.pool.is_none() || published.is_none_or(|it| it.ours) {
            return false;
        }
        let early = status.addresses.is_empty()
            || waiting.entry(owner.clone()).or_insert_with(Instant::now).elapsed() < ON_ITS_WAY;
        if !early {
            waiting.remove(owner);
        }
        early
    }

    fn corrected(&self) -> MutexGuard<'_, HashMap<Owner, Name>> {
        self.corrected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn annotate(
        &self,
        object: &ObjectRef,
        body: &Value,
        said: &mut ObservedStatus,
    ) -> Result<(), Failure> {
        match self.cluster.merge_service(object, body).await {
            Ok(published) => {
                said.published = published;
                Ok(())
            }
            // A controller without a cloud may not, and its status says all that is needed.
            Err(ApiError::Forbidden(why)) => {
                debug!(%object, why, "Service is not annotated: no permission");
                Ok(())
            }
            Err(answer @ ApiError::Invalid(_)) => {
                said.trouble = Some(answer);
                Ok(())
            }
            Err(answer) => Err(answer.into()),
        }
    }

    async fn write(
        &self,
        object: &ObjectRef,
        uid: &str,
        output: &StatusContent,
        said: &mut ObservedStatus,
    ) -> Result<(), Failure> {
        let Some(before) = &said.published else { return Ok(()) };
        let body =
            output.body(object, uid, before, &Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let services = WatchedKind::known(Kind::Service);
        // Only the first time: what others wrote before us is taken over with the Service.
        let force = !before.ours;
        let (namespace, name) = (&object.namespace, &object.name);
        match self.cluster.apply_status(services, namespace, name, &body, force).await {
            Ok(told) => {
                let published = decode::published(&told);
                self.cluster.cache().put_service(namespace, name, published.clone());
                said.published = Some(published);
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
                Ok(())
            }
            // It is gone, and will be told so.
            Err(ApiError::NotFound) => {
                said.published = None;
                Ok(())
            }
            // Gone, or made again under its name: it is another.
            Err(ApiError::Invalid(why) | ApiError::Conflict(why))
                if why.contains("metadata.uid") || why.contains("uid mismatch") =>
            {
                said.published = None;
                Ok(())
            }
            Err(answer @ (ApiError::Forbidden(_) | ApiError::Invalid(_) | ApiError::Conflict(_))) => {
                let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                if refused.as_ref() != Some(&answer) {
                    // The Service itself cannot say it.
                    warn!(%object, why = answer.message_with_fix(), "status cannot be written");
                    *refused = Some(answer.clone());
                }
                said.trouble = Some(answer);
                Ok(())
            }
            Err(answer) => Err(answer.into()),
        }
    }
}

impl Driver for StatusDriver {
    type Observed = ObservedStatus;
    type Step = StatusStep;

    /// Where many events wait, a Service waits until its own is written.
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::Status(_))
    }

    fn steps(&self, desired: &Desired, observed: &ObservedStatus) -> Vec<StatusStep> {
        let Some(published) = &observed.published else { return Vec::new() };
        let output = match desired {
            Desired::Status(status) => StatusContent::of(status, published),
            _ => StatusContent::none(published),
        };
        if observed.early {
            return Vec::new();
        }
        let lacking = match desired {
            Desired::Status(status) => annotation::missing_address(status, published),
            _ => None,
        };
        let outdated = match desired {
            Desired::Status(status) => annotation::outdated_balancer(status, published),
            _ => None,
        };
        let outdated = outdated.filter(|it| observed.corrected.as_ref() != Some(&it.gone));
        let annotated = lacking.map(StatusStep::Annotate).into_iter();
        let annotated = annotated.chain(outdated.cloned().map(StatusStep::FixLoadBalancerId));
        if output.is_published(published) {
            return annotated.collect();
        }
        let notes = output.events(published).into_iter().map(StatusStep::RecordEvent);
        [StatusStep::Write(output.clone())].into_iter().chain(notes).chain(annotated).collect()
    }

    async fn observe(&self, _: &Context, unit: &Unit, desired: &Desired) -> Result<ObservedStatus, Failure> {
        let Unit::Status(owner) = unit else { return Ok(ObservedStatus::default()) };
        let status = if let Desired::Status(status) = desired { Some(status) } else { None };
        self.log(owner, status);
        if status.is_none() {
            self.looks().forget(owner);
            self.corrected().remove(owner);
        }
        let Some((object, uid)) = unit.service() else { return Ok(ObservedStatus::default()) };
        let published = self.cluster.cache().service(&object.namespace, &object.name);
        // One that was made again under its name is another.
        let published = published.filter(|it| *it.uid == *uid);
        let early = self.is_early(owner, desired, published.as_ref());
        let corrected = self.corrected().get(owner).cloned();
        Ok(ObservedStatus { published, early, corrected, ..ObservedStatus::default() })
    }

    async fn apply(
        &self,
        context: &Context,
        unit: &Unit,
        step: &StatusStep,
        observed: &mut ObservedStatus,
    ) -> Result<(), Failure> {
        let Some((object, uid)) = unit.service() else { return Ok(()) };
        context.require_lead()?;
        match step {
            StatusStep::Write(output) => self.write(object, uid, output, observed).await,
            StatusStep::RecordEvent(_) | StatusStep::Annotate(_) | StatusStep::FixLoadBalancerId(_)
                if observed.trouble.is_some() =>
            {
                Ok(())
            }
            StatusStep::Annotate(at) => self.annotate(object, &annotation::body(uid, *at), observed).await,
            StatusStep::FixLoadBalancerId(it) => {
                let Some(published) = &observed.published else { return Ok(()) };
                let body = annotation::body_of_balancer(uid, published, &it.by);
                if let Unit::Status(owner) = unit {
                    self.corrected().insert(owner.clone(), it.gone.clone());
                    observed.corrected = Some(it.gone.clone());
                }
                self.annotate(object, &body, observed).await
            }
            StatusStep::RecordEvent(note) => {
                self.events.write(object, uid, note).await;
                Ok(())
            }
        }
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &ObservedStatus) -> Report {
        let Unit::Status(owner) = unit else { return Report::default() };
        let mut problems = Vec::new();
        let mut complain = |reason, message: String, fix: String| {
            problems.push((owner.clone(), Problem::new(owner.object(), reason, message).fix(fix)));
        };
        let published = observed.published.as_ref();
        if let (Desired::Status(status), Some(published)) = (desired, published)
            && !status.left
            && content::lacks_ip_mode(status, published)
        {
            complain(
                Reason::Unsupported,
                "this cluster does not support ipMode: kube-proxy on every Node takes the traffic for the \
                 address, and no traffic reaches Seaway"
                    .to_owned(),
                "Upgrade to Kubernetes 1.31 or later.".to_owned(),
            );
        }
        if let Some(trouble) = &observed.trouble {
            let message = format!("the status of the Service cannot be written: {}", trouble.why());
            complain(Reason::StateUnwritable, message, format!("As an administrator: {INSTALL}"));
        }
        let again = observed.trouble.is_some().then_some(TRY_AGAIN);
        let again = again.or(observed.early.then_some(ON_ITS_WAY));
        Report { problems, again, ..Report::default() }
    }

    fn width(&self) -> usize {
        64
    }

    fn rest(&self, unit: &Unit, _took: Duration) -> Duration {
        match unit {
            Unit::Status(owner) if self.is_told(owner) => {
                self.looks().pause_after_read(owner, Instant::now())
            }
            _ => Duration::ZERO,
        }
    }
}

/// Writes one event, of whom no status is written.
pub(crate) async fn record(
    cluster: &Cluster,
    object: &ObjectRef,
    uid: &str,
    warning: bool,
    reason: &str,
    text: String,
) -> Result<(), ApiError> {
    let note = EventText { warning, reason: reason.into(), text };
    let (namespace, body) = (events::namespace_of(object), events::body(object, uid, &note));
    cluster.create(&WatchedKind::EVENTS, namespace, &body).await.map(drop)
}
