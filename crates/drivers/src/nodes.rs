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

mod act;
mod addresses;
mod deletion;
mod plan;
mod read;
mod server;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use seaway_cluster::{NodeEvent, NodeObject, NodePatch, NodeStore, NodeWrite, RequestError};
use seaway_engine::{DeletionLimit, Fence};
use seaway_model::{Kind, Name, ObjectRef, Problem, Reason, Time, config::CloudNetworking};
use seaway_openstack::{Cloud, Error, identity::Catalog};

use self::act::LookupFuture;
pub use self::{
    addresses::addresses_of,
    deletion::{Deletion, MissingServers, PlannedLookups, ServerLookup},
    plan::{NodeRules, Plan, ProjectView, Step, plan},
    server::{ProviderMatch, Server, ServerAddress, ServerPort},
};

/// Addresses are compared this often.
pub(crate) const CYCLE: Duration = Duration::from_secs(300);
/// The same while something is wrong, or a kubelet silent: its server may be switched off, or deleted, after that. So old is what was
/// listed when nothing is done by it any more.
pub(crate) const SILENT: Duration = Duration::from_secs(60);
/// A pass that could not begin, or was not finished, is tried again after this.
pub(crate) const AGAIN: Duration = Duration::from_secs(10);

/// No pass begins sooner after the one before.
pub const LEAST_PAUSE: Duration = Duration::from_secs(5);

/// Who has the Nodes: an API server.
pub trait NodeApi: Send + Sync + 'static {
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
    /// The same of one that writes routes: it may have a Lease of its own.
    fn running_route_controller(&self) -> impl Future<Output = Result<Option<Name>, RequestError>> + Send;
}

impl NodeApi for NodeStore {
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

    async fn running_route_controller(&self) -> Result<Option<Name>, RequestError> {
        self.running_route_controller().await
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

pub type ConnectFuture = Pin<Box<dyn Future<Output = Result<Cloud, Error>> + Send>>;

/// Both controllers, in one task: they look at the same lists.
pub struct NodeControllers<N> {
    nodes: N,
    join: Box<dyn Fn() -> ConnectFuture + Send + Sync>,
    /// Whether this process may write as cloud-node, and as cloud-node-lifecycle.
    initializes: Fence,
    deletes: Fence,
    limit: Arc<dyn DeletionLimit>,
    names: read::CloudNameCache,
    suspects: MissingServers,
    /// The Node at which the last pass ended early: those behind it come first.
    cut: Option<Name>,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
}

/// What one pass came to.
#[derive(Debug, Default)]
pub struct PassResult {
    pub problems: Vec<Problem>,
    /// When the next one is due at the latest.
    pub next: Duration,
}

impl PassResult {
    fn idle() -> PassResult {
        PassResult { problems: Vec::new(), next: CYCLE }
    }

    fn failed(reason: Reason, message: String, fix: &str) -> PassResult {
        PassResult { problems: vec![Problem::new(about(), reason, message).fix(fix)], next: AGAIN }
    }
}

/// What Problems with Nodes as a whole are told of.
pub fn about() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "nodes")
}

impl<N: NodeApi> NodeControllers<N> {
    pub fn new(
        nodes: N,
        join: Box<dyn Fn() -> ConnectFuture + Send + Sync>,
        (initializes, deletes): (Fence, Fence),
        limit: Arc<dyn DeletionLimit>,
        clock: Box<dyn Fn() -> Time + Send + Sync>,
    ) -> NodeControllers<N> {
        let (names, suspects) = (read::CloudNameCache::default(), MissingServers::default());
        NodeControllers { nodes, join, initializes, deletes, limit, names, suspects, cut: None, clock }
    }

    /// Looks at everything once, and does what is to be done.
    pub async fn pass(&mut self, settings: &NodeSettings) -> PassResult {
        if !self.initializes.is_open() && !self.deletes.is_open() {
            self.suspects = MissingServers::default();
            return PassResult::idle();
        }
        match self.nodes.running_cloud_controller().await {
            Ok(None) => {}
            Ok(Some(holder)) => return beside(&holder),
            Err(error) => {
                let what = "cannot find out whether OpenStack's cloud controller manager runs";
                return unanswered(what, &error, LEASE_ROLE);
            }
        }
        let nodes = match self.nodes.list().await {
            Ok(nodes) => nodes,
            Err(error) => return unanswered("Nodes cannot be listed", &error, NODES_ROLE),
        };
        match self.follow(nodes, settings).await {
            Ok(pass) => pass,
            Err(error) => PassResult::failed(
                Reason::Unreachable,
                format!("the servers of the project cannot be listed: {error}"),
                "Nodes stay as they are, and Seaway tries again. seaway openstack check says what is missing.",
            ),
        }
    }

    async fn follow(&mut self, nodes: Vec<NodeObject>, settings: &NodeSettings) -> Result<PassResult, Error> {
        let cloud = (self.join)().await?;
        let session = cloud.session();
        let region = session.region().map(str::to_owned);
        let terms = NodeRules {
            has_several_regions: region.is_none() && has_several_regions(&session.catalog),
            region,
            regional: settings.regional,
            networking: settings.networking.clone(),
            nodes: self.initializes.is_open(),
            lifecycle: self.deletes.is_open(),
            deletion: settings.deletion.clone(),
        };
        let waiting = read::waiting(&nodes);
        let servers = read::servers(&cloud, &mut self.names, &waiting, terms.nodes).await?;
        let ask = |id: Name| -> LookupFuture {
            let cloud = cloud.clone();
            Box::pin(async move { read::ask(&cloud, &id).await })
        };
        Ok(self.act(ProjectView { nodes: &nodes, servers: &servers }, &terms, &ask).await)
    }
}

fn has_several_regions(catalog: &Catalog) -> bool {
    let endpoints = catalog.entries().iter().flat_map(|it| &it.endpoints);
    let mut regions = endpoints.filter_map(|it| it.region.as_ref().or(it.region_id.as_ref()));
    let first = regions.next();
    regions.any(|it| Some(it) != first)
}

const LEASE_ROLE: &str =
    "bind the ClusterRole seaway-cloud: kubectl apply -f deploy/kubernetes/openstack/binding.yaml";
const NODES_ROLE: &str = "bind the ClusterRole seaway-cloud-nodes: kubectl apply -f \
    deploy/kubernetes/components/openstack-nodes/openstack-nodes.yaml";
const STOP_IT: &str = "Stop it, or, if it runs other controllers alone (--controllers=route), give it a Lease of its own: \
    --leader-elect-resource-name=NAME.";

fn beside(holder: &Name) -> PassResult {
    let message = format!(
        "Nodes are not changed: OpenStack's cloud controller manager runs ({holder} holds the Lease \
         kube-system/cloud-controller-manager)"
    );
    PassResult::failed(Reason::OtherController, message, STOP_IT)
}

/// `role`: what lets us ask.
fn unanswered(what: &str, error: &RequestError, role: &str) -> PassResult {
    let message = format!("Nodes are not changed: {what}: {error}");
    let fix = match error.is_forbidden() {
        true => format!("As an administrator: {role}"),
        false => "Nodes stay as they are, and Seaway tries again.".to_owned(),
    };
    PassResult::failed(Reason::Unreachable, message, &fix)
}

#[cfg(test)]
pub(crate) mod tests;
