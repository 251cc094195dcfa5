//! The controller `route` that OpenStack's cloud controller manager has: the pod networks of Nodes become routes of a router, and
//! allowed address pairs of the Nodes' ports.
//!
//! ```text
//!     Nodes (one list) ───┐                                         ┌─► router: mostly one PUT
//!     the router (one GET)┼─► plan (pure) ─► asks ─► decide (pure) ─► record ─► ports: one PUT each ─► conditions of Nodes
//!     ports (one list) ───┤                                           what is Seaway's, by version
//!     record (one GET) ───┘
//! ```
//! A router may be shared with other clusters, and has routes of operators. So what was not recorded as Seaway's before it was
//! written is neither changed nor removed, unless its next hop is no port at all. What was recorded goes only while no server but
//! those of this cluster's Nodes has the next hop, for a copy of the cluster has the same record. Neither is anything removed for a
//! Node that may still exist. The fence is asked before each write.

mod act;
mod conditions;
mod place;
mod plan;
mod read;

use std::{collections::BTreeMap, future::Future};

use ipnet::IpNet;
use seaway_cluster::{ReadRecord, RequestError, RouteRecord, RouteStore};
use seaway_engine::Fence;
use seaway_model::{Kind, Name, ObjectRef, Problem, Reason, Time};
use seaway_openstack::{Cloud, Error, neutron::Subnet, resource::Id};

pub use self::{
    place::PodRoute,
    plan::{
        PairRemoval, RemovalPrecondition, RouteAddition, RoutePlan, RouteRemoval, RouteRules, RouteWrites,
        RouterView, plan,
    },
};
use crate::nodes::{AGAIN, CYCLE, ConnectFuture, NodeApi, PassResult, SILENT};

/// Who has the record: an API server.
pub trait RouteRecordStore: Send + Sync + 'static {
    fn read(&self) -> impl Future<Output = Result<ReadRecord, RequestError>> + Send;
    /// As long as it has this version; its version then.
    fn write(
        &self,
        record: &RouteRecord,
        version: &str,
    ) -> impl Future<Output = Result<String, RequestError>> + Send;
}

impl RouteRecordStore for RouteStore {
    async fn read(&self) -> Result<ReadRecord, RequestError> {
        self.read().await
    }

    async fn write(&self, record: &RouteRecord, version: &str) -> Result<String, RequestError> {
        self.write(record, version).await
    }
}

/// Networks of pods, by the name of the Node.
pub type PodNetworks = BTreeMap<Name, Vec<IpNet>>;

/// What is configured of routes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteSettings {
    /// `[Route] router-id` of cloud.conf.
    pub router: Option<Name>,
    /// Pod networks by hand, instead of those that the Node has.
    pub pod_cidrs: PodNetworks,
    pub max_routes: Option<usize>,
    pub max_pairs: Option<usize>,
}

/// The controller of routes.
pub struct RouteController<N, R> {
    nodes: N,
    records: R,
    join: Box<dyn Fn() -> ConnectFuture + Send + Sync>,
    /// Whether this process may write as the controller `route`.
    leads: Fence,
    abilities: Option<read::NeutronFeatures>,
    subnets: BTreeMap<Id<Subnet>, read::AttachedSubnet>,
    /// With which removal the next pass begins to ask.
    turn: usize,
    /// With which port it begins to write.
    port_turn: usize,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
}

/// What Problems with routes as a whole are reported at.
pub fn about() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "routes")
}

/// Why a pass ended.
enum PassError {
    Cloud(Error),
    Other(Problem),
}

impl From<Error> for PassError {
    fn from(error: Error) -> PassError {
        PassError::Cloud(error)
    }
}

impl PassError {
    fn new(reason: Reason, message: impl Into<String>, fix: &str) -> PassError {
        PassError::Other(Problem::new(about(), reason, message).fix(fix))
    }

    /// Of the API server. `role`: whether the role of the component permits it.
    fn unanswered(what: &str, error: &RequestError) -> PassError {
        let fix = match error.is_forbidden() {
            true => format!("As an administrator: {ROLE}"),
            false => UNCHANGED.to_owned(),
        };
        PassError::new(Reason::Unreachable, format!("no route is written: {what}: {error}"), &fix)
    }
}

const ROLE: &str = "kubectl apply -f deploy/kubernetes/components/openstack-routes/openstack-routes.yaml";
const UNCHANGED: &str = "Routes stay as they are, and Seaway tries again.";

impl<N: NodeApi, R: RouteRecordStore> RouteController<N, R> {
    pub fn new(
        nodes: N,
        records: R,
        join: Box<dyn Fn() -> ConnectFuture + Send + Sync>,
        leads: Fence,
        clock: Box<dyn Fn() -> Time + Send + Sync>,
    ) -> RouteController<N, R> {
        RouteController {
            nodes,
            records,
            join,
            leads,
            abilities: None,
            subnets: BTreeMap::new(),
            turn: 0,
            port_turn: 0,
            clock,
        }
    }

    /// Looks at everything once, and does what is to be done.
    pub async fn pass(&mut self, settings: &RouteSettings) -> PassResult {
        if !self.leads.is_open() {
            return PassResult { problems: Vec::new(), next: CYCLE };
        }
        match self.follow(settings).await {
            Ok(problems) => {
                let next = if problems.is_empty() { CYCLE } else { SILENT };
                PassResult { problems, next }
            }
            Err(PassError::Other(problem)) => PassResult { problems: vec![problem], next: AGAIN },
            Err(PassError::Cloud(error)) => {
                let message = format!("routes are missing, or cannot be verified: {}", error.summary());
                let fix = error.fix().map_or_else(|| UNCHANGED.to_owned(), |it| format!("{it}. {UNCHANGED}"));
                let problem = Problem::new(about(), Reason::Unreachable, message).fix(&*fix);
                PassResult { problems: vec![problem], next: AGAIN }
            }
        }
    }

    async fn follow(&mut self, settings: &RouteSettings) -> Result<Vec<Problem>, PassError> {
        match self.nodes.running_route_controller().await {
            Ok(None) => {}
            Ok(Some(holder)) => return Err(beside(&holder)),
            Err(error) => {
                return Err(PassError::unanswered(
                    "cannot find out whether OpenStack's cloud controller manager runs",
                    &error,
                ));
            }
        }
        let Some(router) = &settings.router else {
            let fix = "Add it: [Route], then router-id=ID of the router that connects the subnets of Nodes.";
            return Err(PassError::new(
                Reason::RouteMissing,
                "no route is written: cloud.conf has no router-id in [Route]",
                fix,
            ));
        };
        let nodes = self
            .nodes
            .list()
            .await
            .map_err(|error| PassError::unanswered("Nodes cannot be listed", &error))?;
        let cloud = (self.join)().await?;
        let abilities = self.abilities(&cloud).await?;
        let read::RouterAndPorts { router, ports } = read::read(&cloud, router).await?;
        let segments = read::subnets(&cloud, &router, &ports, &mut self.subnets).await?;
        let subnets = segments.iter().map(|it| it.net).collect();
        let what = "the ConfigMap seaway-routes, which records Seaway's routes, cannot be read";
        let recorded = self.records.read().await.map_err(|error| PassError::unanswered(what, &error))?;
        let rules = RouteRules {
            region: cloud.session().region().map(str::to_owned),
            pod_cidrs: settings.pod_cidrs.clone(),
            pairs: abilities.pairs,
            max_routes: settings.max_routes,
            max_pairs: settings.max_pairs,
        };
        self.act(
            &cloud,
            abilities,
            &rules,
            act::RouterListing { nodes, router, ports, recorded, segments, subnets },
        )
        .await
    }

    async fn abilities(&mut self, cloud: &Cloud) -> Result<read::NeutronFeatures, PassError> {
        if let Some(known) = self.abilities {
            return Ok(known);
        }
        let found = read::abilities(cloud).await?;
        if !found.routes || !found.revisions {
            let missing = if found.routes { "revision-if-match" } else { "extraroute" };
            let fix = "Ask the operator of the cloud for it, and restart Seaway.";
            let message = format!(
                "no route is written: this Neutron has no extension {missing}, without which routes of others could be overwritten"
            );
            return Err(PassError::new(Reason::RouteMissing, message, fix));
        }
        self.abilities = Some(found);
        Ok(found)
    }
}

fn beside(holder: &Name) -> PassError {
    let message = format!(
        "no route is written: OpenStack's cloud controller manager runs ({holder} holds its Lease in kube-system)"
    );
    PassError::new(Reason::OtherController, message, "Stop it. Seaway then uses the routes that are there.")
}

#[cfg(test)]
mod tests;
