//! The controllers of Nodes that OpenStack's cloud controller manager has: `cloud-node` initialises Nodes and keeps their addresses,
//! `cloud-node-lifecycle` taints and deletes those whose servers are off or gone.
//!
//! ```text
//!     Nodes (one list) ───┐
//!     servers (one list) ─┼─► plan (pure) ─► steps ─► fence ─► the Node as it is now ─► patch by its version
//!     ports (one list) ───┘   deletion (pure) ─► GET by id ─► fence ─► limit ─► delete by UID and version
//! ```
//! Beside the engine: a Node has no owner, no address and no load balancer, what is done about it needs the list of all servers,
//! and its Lease is another one. What always holds for drivers holds here: the fence is asked before each write, what is deleted
//! is asked for right before that and counted, and nothing is planned by a list that failed.

mod addresses;
mod deletion;
mod plan;
mod read;
mod server;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use seaway_cluster::{NodeEvent, NodeObject, NodePatch, NodeStore, NodeWrite, RequestError};
use seaway_engine::{Counted, DeletionLimit, Fence};
use seaway_model::{Kind, Name, ObjectRef, Problem, Reason, Time, config::CloudNetworking};
use seaway_openstack::{Cloud, Error};
use tracing::{debug, info, warn};

pub use self::{
    addresses::addresses_of,
    deletion::{Answer, Asks, Deletion, Suspects},
    plan::{NodeRules, Plan, ProjectView, Step, plan},
    server::{Server, ServerAddress, ServerPort, Whose},
};

/// Addresses are compared this often.
const CYCLE: Duration = Duration::from_secs(300);
/// The same while something is wrong, or a kubelet silent: its server may be switched off, or deleted, after that.
const SILENT: Duration = Duration::from_secs(60);
/// A pass that failed is tried again after this.
const AGAIN: Duration = Duration::from_secs(10);
/// A Node that others write meanwhile is read again so often.
const TRIES: u32 = 3;

/// Who has the Nodes: an API server.
pub trait Nodes: Send + Sync + 'static {
    fn list(&self) -> impl Future<Output = Result<Vec<NodeObject>, RequestError>> + Send;
    fn read(&self, name: &str) -> impl Future<Output = Result<Option<NodeObject>, RequestError>> + Send;
    fn write(
        &self,
        node: &NodeObject,
        patch: &NodePatch,
    ) -> impl Future<Output = Result<NodeWrite, RequestError>> + Send;
    fn delete(&self, node: &NodeObject) -> impl Future<Output = Result<NodeWrite, RequestError>> + Send;
    fn record(&self, node: &NodeObject, event: NodeEvent) -> impl Future<Output = ()> + Send;
    /// The holder of the Lease of OpenStack's cloud controller manager, if it runs.
    fn running_cloud_controller(&self) -> impl Future<Output = Result<Option<Name>, RequestError>> + Send;
}

impl Nodes for NodeStore {
    async fn list(&self) -> Result<Vec<NodeObject>, RequestError> {
        self.list().await
    }

    async fn read(&self, name: &str) -> Result<Option<NodeObject>, RequestError> {
        self.read(name).await
    }

    async fn write(&self, node: &NodeObject, patch: &NodePatch) -> Result<NodeWrite, RequestError> {
        self.write(node, patch).await
    }

    async fn delete(&self, node: &NodeObject) -> Result<NodeWrite, RequestError> {
        self.delete(node).await
    }

    async fn record(&self, node: &NodeObject, event: NodeEvent) {
        self.record(node, event).await;
    }

    async fn running_cloud_controller(&self) -> Result<Option<Name>, RequestError> {
        self.running_cloud_controller().await
    }
}

/// What is configured of Nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSettings {
    /// New provider ids name the region.
    pub regional: bool,
    pub networking: CloudNetworking,
    pub deletion: Deletion,
}

pub type Joining = Pin<Box<dyn Future<Output = Result<Cloud, Error>> + Send>>;

/// Both controllers, in one task: they look at the same lists.
pub struct NodeControllers<N> {
    nodes: N,
    join: Box<dyn Fn() -> Joining + Send + Sync>,
    /// Whether this process may write as cloud-node, and as cloud-node-lifecycle.
    initializes: Fence,
    deletes: Fence,
    limit: Arc<dyn DeletionLimit>,
    names: read::Names,
    suspects: Suspects,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
}

/// What one pass came to.
#[derive(Debug, Default)]
pub struct Pass {
    pub problems: Vec<Problem>,
    /// When the next one is due at the latest.
    pub next: Duration,
}

impl Pass {
    fn idle() -> Pass {
        Pass { problems: Vec::new(), next: CYCLE }
    }

    fn failed(reason: Reason, message: String, fix: &str) -> Pass {
        Pass { problems: vec![Problem::new(about(), reason, message).fix(fix)], next: AGAIN }
    }
}

/// What Problems with Nodes as a whole are told of.
pub fn about() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "nodes")
}

impl<N: Nodes> NodeControllers<N> {
    /// No pass begins sooner after the one before.
    pub const LEAST_PAUSE: Duration = Duration::from_secs(5);

    pub fn new(
        nodes: N,
        join: Box<dyn Fn() -> Joining + Send + Sync>,
        (initializes, deletes): (Fence, Fence),
        limit: Arc<dyn DeletionLimit>,
        clock: Box<dyn Fn() -> Time + Send + Sync>,
    ) -> NodeControllers<N> {
        let (names, suspects) = (read::Names::default(), Suspects::default());
        NodeControllers { nodes, join, initializes, deletes, limit, names, suspects, clock }
    }

    /// Looks at everything once, and does what is to be done.
    pub async fn pass(&mut self, settings: &NodeSettings) -> Pass {
        if !self.initializes.is_open() && !self.deletes.is_open() {
            self.suspects = Suspects::default();
            return Pass::idle();
        }
        match self.nodes.running_cloud_controller().await {
            Ok(None) => {}
            Ok(Some(holder)) => return beside(&holder),
            Err(error) => {
                return unanswered("whether OpenStack's cloud controller manager runs is not known", &error);
            }
        }
        let nodes = match self.nodes.list().await {
            Ok(nodes) => nodes,
            Err(error) => return unanswered("Nodes cannot be listed", &error),
        };
        match self.follow(nodes, settings).await {
            Ok(pass) => pass,
            Err(error) => Pass::failed(
                Reason::Unreachable,
                format!("the servers of the project cannot be listed: {error}"),
                "Nodes stay as they are, and Seaway tries again. seaway openstack check says what is missing.",
            ),
        }
    }

    async fn follow(&mut self, nodes: Vec<NodeObject>, settings: &NodeSettings) -> Result<Pass, Error> {
        let cloud = (self.join)().await?;
        let terms = NodeRules {
            region: cloud.session().region().map(str::to_owned),
            regional: settings.regional,
            networking: settings.networking.clone(),
            nodes: self.initializes.is_open(),
            lifecycle: self.deletes.is_open(),
            deletion: settings.deletion.clone(),
        };
        let servers = read::servers(&cloud, &mut self.names, terms.nodes).await?;
        let seen = ProjectView { nodes: &nodes, servers: &servers };
        let Plan { steps, mut problems } = plan(seen, &terms);
        let mut next = CYCLE;
        for (at, step) in &steps {
            let Some(node) = nodes.get(*at) else { continue };
            if let Err(why) = self.take(node, step, &terms).await {
                let message = format!("{step} failed: {why}");
                problems.push(
                    Problem::new(node.object(), Reason::Unreachable, message).fix("Seaway tries again."),
                );
                next = AGAIN;
            }
        }
        let Asks { ask, problems: kept } = self.suspects.asks(seen, &terms);
        problems.extend(kept);
        for (at, id) in ask {
            let Some(node) = nodes.get(at) else { continue };
            let answer = read::ask(&cloud, &id).await;
            self.suspects.answered(node, &id, &answer, &terms.deletion, (self.clock)());
            if self.suspects.is_due(node, &terms, (self.clock)())
                && let Err(problem) = self.delete(node, &id, nodes.len(), &terms).await
            {
                problems.push(problem);
            }
        }
        if !problems.is_empty() || (terms.lifecycle && nodes.iter().any(|it| is_silent(it, &terms))) {
            next = next.min(SILENT);
        }
        if let Some(due) = self.suspects.next(&terms) {
            let left = due.0.saturating_sub((self.clock)().0);
            next = next.min(Duration::from_millis(left).max(AGAIN));
        }
        Ok(Pass { problems, next })
    }

    /// By the Node as it is now; one that others write at the same time is read again.
    async fn take(&self, node: &NodeObject, step: &Step, terms: &NodeRules) -> Result<(), String> {
        let fence = if step.is_of_lifecycle() { &self.deletes } else { &self.initializes };
        for _ in 0..TRIES {
            let read = self.nodes.read(&node.name).await.map_err(|it| it.to_string())?;
            let Some(now) = read.filter(|it| it.uid == node.uid && !it.is_deleting) else { return Ok(()) };
            let Some(patch) = step.patch(&now, terms) else { return Ok(()) };
            if !fence.is_open() {
                return Err("another leads".to_owned());
            }
            match self.nodes.write(&now, &patch).await.map_err(|it| it.to_string())? {
                NodeWrite::Done => {
                    info!(node = %node.name, %step, "written");
                    self.told_of(&now, step).await;
                    return Ok(());
                }
                NodeWrite::Gone => return Ok(()),
                NodeWrite::Changed => debug!(node = %node.name, %step, "the Node was written meanwhile"),
            }
        }
        Err("others keep writing the Node".to_owned())
    }

    async fn told_of(&self, node: &NodeObject, step: &Step) {
        let event = match step {
            Step::Initialize { .. } => {
                NodeEvent { is_warning: false, reason: "NodeInitialized", text: format!("Seaway: {step}.") }
            }
            Step::Condition { failed: true, message, .. } => {
                let reason = Reason::ServerFailed.as_str();
                NodeEvent { is_warning: true, reason, text: format!("The Node is kept: {message}.") }
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
        let not_now = |reason, why: String, fix: &str| {
            let message = format!("its server {id} does not exist; the Node is not deleted now: {why}");
            Err(Problem::new(node.object(), reason, message).fix(fix))
        };
        let again = "Seaway tries again.";
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
                "the last answer is too old, or another leads".to_owned(),
                again,
            );
        }
        match self.nodes.delete(&now).await {
            Ok(NodeWrite::Done) => {
                warn!(node = %now.name, server = %id, "Node deleted: its server does not exist any more");
                let text = format!("Its server {id} does not exist any more: Seaway deleted the Node.");
                self.nodes.record(&now, NodeEvent { is_warning: false, reason: "NodeDeleted", text }).await;
                Ok(())
            }
            // It was written meanwhile: it is looked at again.
            Ok(NodeWrite::Changed | NodeWrite::Gone) => Ok(()),
            Err(error) => not_now(Reason::Unreachable, error.to_string(), again),
        }
    }
}

fn is_silent(node: &NodeObject, terms: &NodeRules) -> bool {
    node.is_ready() == Some(false) && matches!(Whose::of(node, terms.region.as_deref()), Whose::Ours(_))
}

const STOP_IT: &str = "Stop it, or, if it runs other controllers alone (--controllers=route), give it a Lease of its own: \
    --leader-elect-resource-name=NAME.";

fn beside(holder: &Name) -> Pass {
    let message = format!(
        "nothing is written at Nodes: OpenStack's cloud controller manager runs ({holder} holds the Lease \
         kube-system/cloud-controller-manager)"
    );
    Pass::failed(Reason::OtherController, message, STOP_IT)
}

fn unanswered(what: &str, error: &RequestError) -> Pass {
    let message = format!("nothing is written at Nodes: {what}: {error}");
    let fix = "As an administrator: kubectl apply -f deploy/kubernetes/components/openstack-nodes/openstack-nodes.yaml";
    Pass::failed(Reason::Unreachable, message, fix)
}

#[cfg(test)]
mod tests;
