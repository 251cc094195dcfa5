//! What is done in a pass: steps, then questions, then deletions; each by the Node as it is right then, and by the fence.
//!
//! A pass ends early when what it knows is old, or what it asks does not answer. The next one begins behind the Node at which it ended,
//! so that one Node never keeps all others waiting.

use std::{collections::BTreeSet, future::Future, pin::Pin, time::Duration};

use seaway_cluster::{NodeEvent, NodeObject, NodeWrite, RequestError};
use seaway_engine::Counted;
use seaway_model::{Name, Problem, Reason, Time};
use tracing::{debug, info, warn};

use super::{
    AGAIN, CYCLE, NodeApi, NodeControllers, PassResult, SILENT, STOP_IT, about,
    deletion::{PlannedLookups, ServerLookup, since},
    plan::{NodeRules, Plan, ProjectView, Step, plan},
    server::ProviderMatch,
};

/// A Node that others write meanwhile is read again so often.
const TRIES: u32 = 3;
const TRIED_AGAIN: &str = "Seaway tries again.";

pub(super) type LookupFuture = Pin<Box<dyn Future<Output = ServerLookup> + Send>>;

/// How far the steps of a pass went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassOutcome {
    All,
    /// What was listed is too old by now.
    Old,
    /// The API server does not answer.
    Unreachable,
}

/// Why a step was not done.
struct StepError {
    why: String,
    is_unreachable: bool,
}

impl StepError {
    fn new(why: &str) -> StepError {
        StepError { why: why.to_owned(), is_unreachable: false }
    }
}

impl From<RequestError> for StepError {
    fn from(error: RequestError) -> StepError {
        StepError { is_unreachable: error.is_unreachable(), why: error.to_string() }
    }
}

impl<N: NodeApi> NodeControllers<N> {
    /// By what was listed just now. `ask`: for a server by its id.
    pub(super) async fn act(
        &mut self,
        seen: ProjectView<'_>,
        terms: &NodeRules,
        ask: &(dyn Fn(Name) -> LookupFuture + Send + Sync),
    ) -> PassResult {
        let began = (self.clock)();
        let Plan { steps, mut problems } = plan(seen, terms);
        let end = self.take_all(seen, steps, terms, began, &mut problems).await;
        let PlannedLookups { ask: asked, problems: kept } = self.suspects.asks(seen, terms);
        problems.extend(kept);
        let mut next = if end == PassOutcome::Old { AGAIN } else { CYCLE };
        for (at, id) in asked {
            let Some(node) = seen.nodes.get(at).filter(|_| end == PassOutcome::All) else { break };
            if self.is_old(began) {
                next = AGAIN;
                break;
            }
            let answer = ask(id.clone()).await;
            self.suspects.answered(node, &id, &answer, &terms.deletion, (self.clock)());
            match answer {
                ServerLookup::Exists(_) | ServerLookup::Missing => {}
                ServerLookup::Unknown => {
                    problems.push(refused(node, &id));
                    continue;
                }
                ServerLookup::Unreachable => {
                    let message = "cannot find out whether the servers of Nodes that are not Ready exist: Nova does not answer";
                    problems.push(Problem::new(about(), Reason::Unreachable, message).fix(TRIED_AGAIN));
                    break;
                }
            }
            if self.suspects.is_due(node, terms, (self.clock)())
                && let Err(problem) = self.delete(node, &id, seen.nodes.len(), terms).await
            {
                let is_over = problem.reason == Reason::Unreachable;
                problems.push(problem);
                if is_over {
                    break;
                }
            }
        }
        if !problems.is_empty() || (terms.lifecycle && seen.nodes.iter().any(|it| is_silent(it, terms))) {
            next = next.min(SILENT);
        }
        let now = (self.clock)();
        if let Some(due) = self.suspects.next(terms, now) {
            next = next.min(Duration::from_millis(due.0.saturating_sub(now.0)).max(AGAIN));
        }
        PassResult { problems, next }
    }

    async fn take_all(
        &mut self,
        seen: ProjectView<'_>,
        mut steps: Vec<(usize, Step)>,
        terms: &NodeRules,
        began: Time,
        problems: &mut Vec<Problem>,
    ) -> PassOutcome {
        if let Some(cut) = &self.cut {
            steps.sort_by_key(|(at, _)| {
                let name = seen.nodes.get(*at).map(|it| &it.name);
                (name <= Some(cut), name)
            });
        }
        // What follows a step needs it: a Node without addresses is not initialised.
        let mut failed = BTreeSet::new();
        for (at, step) in &steps {
            let Some(node) = seen.nodes.get(*at).filter(|_| !failed.contains(at)) else { continue };
            if self.is_old(began) {
                return PassOutcome::Old;
            }
            self.cut = Some(node.name.clone());
            if let Err(StepError { why, is_unreachable }) = self.take(node, step, terms).await {
                let message = format!("{step} failed: {why}");
                problems.push(Problem::new(node.object(), Reason::Unreachable, message).fix(TRIED_AGAIN));
                failed.insert(*at);
                if is_unreachable {
                    return PassOutcome::Unreachable;
                }
            }
        }
        self.cut = None;
        PassOutcome::All
    }

    /// A clock that was set back tells nothing of it.
    fn is_old(&self, began: Time) -> bool {
        since(began, (self.clock)()).is_none_or(|it| u128::from(it) > SILENT.as_millis())
    }

    /// By the Node as it is now; one that others write at the same time is read again.
    async fn take(&self, node: &NodeObject, step: &Step, terms: &NodeRules) -> Result<(), StepError> {
        let fence = if step.is_of_lifecycle() { &self.deletes } else { &self.initializes };
        for _ in 0..TRIES {
            let read = self.nodes.read(&node.name).await?;
            let Some(now) = read.filter(|it| it.uid == node.uid && !it.is_deleting) else { return Ok(()) };
            let Some(patch) = step.patch(&now, terms) else { return Ok(()) };
            if !fence.is_open() {
                return Err(StepError::new("another leads"));
            }
            match self.nodes.write(&now, &patch).await? {
                NodeWrite::Done => {
                    info!(node = %node.name, %step, "written");
                    self.told_of(&now, step).await;
                    return Ok(());
                }
                NodeWrite::Gone => return Ok(()),
                NodeWrite::Changed => debug!(node = %node.name, %step, "the Node was written meanwhile"),
            }
        }
        Err(StepError::new("other clients keep writing the Node"))
    }

    async fn told_of(&self, node: &NodeObject, step: &Step) {
        let event = match step {
            Step::Initialize { .. } => {
                NodeEvent { is_warning: false, reason: "NodeInitialized", text: format!("Seaway: {step}.") }
            }
            Step::Condition { failed: true, message, .. } => {
                let reason = Reason::ServerFailed.as_str();
                NodeEvent { is_warning: true, reason, text: format!("The Node is not deleted: {message}.") }
            }
            _ => return,
        };
        self.nodes.record(node, event).await;
    }

    /// The last questions: who runs, how the Node is, how many went, who leads.
    async fn delete(
        &self,
        node: &NodeObject,
        id: &Name,
        all: usize,
        terms: &NodeRules,
    ) -> Result<(), Problem> {
        let answer = self.suspects.answer(node);
        let not_now = |reason, why: String, fix: &str| {
            let message = format!("the server {id} of the Node {answer}; the Node is not deleted now: {why}");
            Err(Problem::new(node.object(), reason, message).fix(fix))
        };
        let again = TRIED_AGAIN;
        match self.nodes.running_cloud_controller().await {
            Ok(None) => {}
            Ok(Some(holder)) => {
                return not_now(
                    Reason::OtherController,
                    format!("{holder} runs a cloud controller manager"),
                    STOP_IT,
                );
            }
            Err(error) => return not_now(Reason::Unreachable, error.to_string(), again),
        }
        let now = match self.nodes.read(&node.name).await {
            Ok(Some(now)) if now.uid == node.uid => now,
            Ok(_) => return Ok(()),
            Err(error) => return not_now(Reason::Unreachable, error.to_string(), again),
        };
        let what = format!("Node {} {}", now.name, now.uid);
        let object = now.object();
        if !self.suspects.may_delete(&now, terms, (self.clock)()) {
            return Ok(());
        }
        match self.limit.count(&what, &object, all).await {
            Ok(Counted::Within) => {}
            Ok(Counted::Beyond { limit }) => {
                let fix = format!(
                    "Find out why so many servers are gone. Seaway continues within the hour. To approve this one at once: kubectl \
                     -n seaway-system annotate --overwrite configmap seaway-deletions 'seaway.dev/approved-deletions=/{} until \
                     TIME' (2026-11-22T20:00:00Z, within a day).",
                    now.name
                );
                let why =
                    format!("within the last hour, Seaway deleted {limit} Nodes, and that is the limit");
                return not_now(Reason::DeletionLimit, why, &fix);
            }
            Err(why) => {
                return not_now(
                    Reason::DeletionLimit,
                    format!("the deletion cannot be counted: {why}"),
                    again,
                );
            }
        }
        // What was asked took its time.
        if !self.deletes.is_open() || !self.suspects.may_delete(&now, terms, (self.clock)()) {
            return not_now(
                Reason::NodeKept,
                "the last reply of the cloud is too old, or another process is the leader".to_owned(),
                again,
            );
        }
        match self.nodes.delete(&now).await {
            Ok(NodeWrite::Done) => {
                warn!(node = %now.name, server = %id, "Node deleted: the server of the Node {answer}");
                let text = format!("Its server {id} {answer}: Seaway deleted the Node.");
                self.nodes.record(&now, NodeEvent { is_warning: false, reason: "NodeDeleted", text }).await;
                Ok(())
            }
            // It was written meanwhile: it is looked at again.
            Ok(NodeWrite::Changed | NodeWrite::Gone) => Ok(()),
            Err(error) => not_now(Reason::Unreachable, error.to_string(), again),
        }
    }
}

fn refused(node: &NodeObject, id: &Name) -> Problem {
    let message = format!(
        "cannot find out whether the server {id} of the Node exists: Nova answers neither with the server nor with a \
             404 of its own; the Node is not deleted"
    );
    Problem::new(node.object(), Reason::NodeKept, message)
        .fix("Seaway tries again. seaway openstack check says what is missing.")
}

fn is_silent(node: &NodeObject, terms: &NodeRules) -> bool {
    node.is_ready() == Some(false)
        && matches!(ProviderMatch::of(node, terms.region.as_deref()), ProviderMatch::Ours(_))
}
