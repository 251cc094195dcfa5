//! The condition `NetworkUnavailable` of Nodes, which keeps pods away from a Node whose pods cannot be reached.
//!
//! A Node that has worked without the condition must not lose its pods by a mistake in the configuration of routes. So it becomes True
//! at new Nodes only, and only while the router is that of other Nodes.

use std::time::Duration;

use seaway_cluster::{NodeObject, NodePatch, NodeWrite, RequestError};
use seaway_model::{Problem, Reason, Time};
use tracing::debug;

use super::{
    PassError, RouteController, RouteRecordStore, RouteRules,
    act::{RouterListing, TRIES, is_routed},
    plan::RoutePlan,
};
use crate::nodes::NodeApi;

const UNAVAILABLE: &str = "NetworkUnavailable";
const NO_ROUTE: &str = "NoRouteCreated";
/// A Node is new for so long.
const NEW: Duration = Duration::from_secs(600);

/// What is known of the routes of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeRouteState {
    Complete,
    Incomplete,
    /// The router reaches no Node at all: more likely, it is the wrong one.
    Unknown,
}

/// A status of the condition, with its reason and message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConditionValue {
    pub(super) status: bool,
    reason: &'static str,
    message: &'static str,
}

/// What the condition is to become. Nothing: it stays.
pub(super) fn due(node: &NodeObject, routing: NodeRouteState, now: Time) -> Option<ConditionValue> {
    let before = node.conditions.get(UNAVAILABLE);
    let is_new = node.created.is_some_and(|it| u128::from(now.0.saturating_sub(it.0)) < NEW.as_millis());
    let (is_due, status, reason, message) = match routing {
        NodeRouteState::Complete => (
            before.is_none_or(|(status, _)| status != "False"),
            false,
            "RouteCreated",
            "Seaway created a route to each pod network",
        ),
        NodeRouteState::Incomplete => (
            before.is_none() && is_new,
            true,
            NO_ROUTE,
            "Seaway has not created a route to each pod network yet",
        ),
        NodeRouteState::Unknown => (
            before.is_some_and(|(status, reason)| status == "True" && reason == NO_ROUTE),
            false,
            "RouteUnknown",
            "No Node of the cluster has a port at the router of cloud.conf",
        ),
    };
    is_due.then_some(ConditionValue { status, reason, message })
}

impl<N: NodeApi, R: RouteRecordStore> RouteController<N, R> {
    pub(super) async fn conditions(
        &self,
        plan: &RoutePlan,
        listed: &RouterListing,
        rules: &RouteRules,
    ) -> Result<Vec<Problem>, PassError> {
        let mut problems = Vec::new();
        for (at, networks) in &plan.networks {
            let Some(node) = listed.nodes.get(*at) else { continue };
            let routing = match is_routed(plan, listed, rules, *at, networks.len()) {
                true => NodeRouteState::Complete,
                false if plan.wanted.is_empty() => NodeRouteState::Unknown,
                false => NodeRouteState::Incomplete,
            };
            if let Err(error) = self.condition(node, routing).await? {
                let message = format!("the condition {UNAVAILABLE} of the Node cannot be written: {error}");
                problems.push(
                    Problem::new(node.object(), Reason::Unreachable, message).fix("Seaway tries again."),
                );
            }
        }
        Ok(problems)
    }

    async fn condition(
        &self,
        node: &NodeObject,
        routing: NodeRouteState,
    ) -> Result<Result<(), RequestError>, PassError> {
        let now = (self.clock)();
        let Some(ConditionValue { status, reason, message }) = due(node, routing, now) else {
            return Ok(Ok(()));
        };
        let patch = NodePatch::Condition { kind: UNAVAILABLE, status, reason, message: message.to_owned() };
        for _ in 0..TRIES {
            let is_same =
                |it: &NodeObject| it.uid == node.uid && !it.is_deleting && due(it, routing, now).is_some();
            let read = match self.nodes.read(&node.name).await {
                Ok(read) => read.filter(is_same),
                Err(error) => return Ok(Err(error)),
            };
            let Some(read) = read else { return Ok(Ok(())) };
            self.require_lead()?;
            match self.nodes.write(&read, &patch).await {
                Ok(NodeWrite::Done | NodeWrite::Gone) => return Ok(Ok(())),
                Ok(NodeWrite::Changed) => debug!(node = %read.name, "the Node was written meanwhile"),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }
}
