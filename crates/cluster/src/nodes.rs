//! Nodes, for who writes what a cloud says of them: read as far as that needs it, and written by their version.
//!
//! A write names the UID and the version that it was computed from, so that nothing that a kubelet or an operator wrote meanwhile
//! is lost, and a Node that came back under its name is another one.

use std::{collections::BTreeMap, sync::Mutex};

use kube::api::{DeleteParams, ListParams, Preconditions};
use seaway_model::{Kind, Name, ObjectRef, Time};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::warn;

use crate::{
    api_error::ApiError,
    connect::{Cluster, RequestError},
    kinds::WatchedKind,
    other_signs::{LEASE, SeenRenewals},
    raw_object::RawObject,
    status,
};

/// The Leases of those who follow what a cloud says of Nodes.
pub const CLOUD_NODE: &str = "seaway-cloud-node";
pub const CLOUD_NODE_LIFECYCLE: &str = "seaway-cloud-node-lifecycle";
pub const CLOUD_ROUTE: &str = "seaway-cloud-route";
/// What the docs call the Lease of a cloud controller manager that writes routes alone.
const ROUTE_LEASE: &str = "openstack-routes";
/// So many come with one answer.
const PAGE: u32 = 500;

/// A Node as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeObject {
    pub name: Name,
    pub uid: Name,
    pub version: String,
    pub provider_id: Option<String>,
    /// The networks of its pods, as they are written.
    pub pod_cidrs: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// As they are: a write replaces all of them.
    pub taints: Vec<Value>,
    pub addresses: Vec<NodeAddress>,
    /// Status and reason by type.
    pub conditions: BTreeMap<String, (String, String)>,
    pub is_deleting: bool,
    pub created: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`.
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

/// What is to be merged into a Node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodePatch {
    Object(NodeChange),
    /// All its addresses.
    Addresses(Vec<NodeAddress>),
    /// One condition, beside those of others.
    Condition {
        kind: &'static str,
        status: bool,
        reason: &'static str,
        message: String,
    },
}

/// Of its metadata and spec: what is empty stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeChange {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// All of them.
    pub taints: Option<Vec<Value>>,
    pub provider_id: Option<String>,
}

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeWrite {
    Done,
    /// It has another version by now.
    Changed,
    /// It is not there any more, or another one is.
    Gone,
}

/// An event of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    pub is_warning: bool,
    pub reason: &'static str,
    pub text: String,
}

impl NodeAddress {
    pub fn new(kind: &str, address: impl ToString) -> NodeAddress {
        NodeAddress { kind: kind.to_owned(), address: address.to_string() }
    }
}

impl NodeObject {
    /// `None`: its kubelet has not said anything yet.
    pub fn is_ready(&self) -> Option<bool> {
        self.conditions.get("Ready").map(|(status, _)| status == "True")
    }

    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|it| is_taint(it, key))
    }

    pub fn taints_without(&self, key: &str) -> Vec<Value> {
        self.taints.iter().filter(|it| !is_taint(it, key)).cloned().collect()
    }

    pub fn object(&self) -> ObjectRef {
        ObjectRef::new(Kind::Node, "", self.name.clone())
    }
}

/// Reads and writes the Nodes of a cluster.
pub struct NodeStore {
    cluster: Cluster,
    /// Of the Lease of OpenStack's cloud controller manager, and of the one that its controller of routes may have.
    renewals: Mutex<SeenRenewals>,
    route_renewals: Mutex<SeenRenewals>,
}

impl NodeStore {
    pub fn new(cluster: Cluster) -> NodeStore {
        NodeStore { cluster, renewals: Mutex::default(), route_renewals: Mutex::default() }
    }

    pub async fn list(&self) -> Result<Vec<NodeObject>, RequestError> {
        let (mut all, mut params) = (Vec::new(), ListParams { limit: Some(PAGE), ..ListParams::default() });
        loop {
            let page: NodeList = self.cluster.list_as(nodes(), &params).await.map_err(RequestError)?;
            all.extend(page.items.into_iter().map(NodeObject::from));
            params.continue_token = page.metadata.more.filter(|it| !it.is_empty());
            if params.continue_token.is_none() {
                return Ok(all);
            }
        }
    }

    /// `None`: it is not there.
    pub async fn read(&self, name: &str) -> Result<Option<NodeObject>, RequestError> {
        match self.cluster.read_as::<NodeReply>(nodes(), "", name).await {
            Ok(told) => Ok(Some(told.into())),
            Err(ApiError::NotFound) => Ok(None),
            Err(answer) => Err(RequestError(answer)),
        }
    }

    pub async fn write(&self, node: &NodeObject, patch: &NodePatch) -> Result<NodeWrite, RequestError> {
        let same = json!({"uid": node.uid, "resourceVersion": node.version});
        let written: Result<RawObject, ApiError> = match patch {
            NodePatch::Object(change) => {
                let NodeChange { labels, annotations, taints, provider_id } = change;
                let metadata = json!({"uid": node.uid, "resourceVersion": node.version, "labels": labels,
                    "annotations": annotations});
                let taints = taints.as_ref().map(|it| ("taints".to_owned(), json!(it)));
                let id = provider_id.as_ref().map(|it| ("providerID".to_owned(), json!(it)));
                let spec: serde_json::Map<String, Value> = taints.into_iter().chain(id).collect();
                let patch = json!({"metadata": metadata, "spec": spec});
                self.cluster.merge_custom(nodes(), "", &node.name, &patch).await
            }
            NodePatch::Addresses(all) => {
                let all: Vec<Value> =
                    all.iter().map(|it| json!({"type": it.kind, "address": it.address})).collect();
                let patch = json!({"metadata": same, "status": {"addresses": all}});
                self.cluster.merge_status(nodes(), &node.name, &patch, false).await
            }
            NodePatch::Condition { kind, status, reason, message } => {
                let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let status = if *status { "True" } else { "False" };
                let condition = json!({"type": kind, "status": status, "reason": reason, "message": message,
                    "lastHeartbeatTime": now, "lastTransitionTime": now});
                let patch = json!({"metadata": same, "status": {"conditions": [condition]}});
                self.cluster.merge_status(nodes(), &node.name, &patch, true).await
            }
        };
        came_of(written.map(drop))
    }

    /// Only this Node, and only as it was read.
    pub async fn delete(&self, node: &NodeObject) -> Result<NodeWrite, RequestError> {
        let of =
            Preconditions { resource_version: Some(node.version.clone()), uid: Some(node.uid.to_string()) };
        let parameters = DeleteParams { preconditions: Some(of), ..DeleteParams::default() };
        let api = self.cluster.api(nodes());
        came_of(self.cluster.within_deadline(api.delete(&node.name, &parameters)).await.map(drop))
    }

    /// One that is lost is no loss: a Problem says the same.
    pub async fn record(&self, node: &NodeObject, event: NodeEvent) {
        let NodeEvent { is_warning, reason, text } = event;
        let object = node.object();
        if let Err(answer) = status::record(&self.cluster, &object, &node.uid, is_warning, reason, text).await
        {
            warn!(%object, why = answer.message_with_fix(), "event cannot be written");
        }
    }

    /// The holder of the Lease of OpenStack's cloud controller manager, if it runs.
    pub async fn running_cloud_controller(&self) -> Result<Option<Name>, RequestError> {
        self.cluster.running_cloud_controller(LEASE, &self.renewals).await.map_err(RequestError)
    }

    /// The same of one that may write routes: alone, with a Lease of its own, as docs/openstack-nodes.md names it.
    pub async fn running_route_controller(&self) -> Result<Option<Name>, RequestError> {
        match self.running_cloud_controller().await? {
            Some(holder) => Ok(Some(holder)),
            None => {
                let of_routes =
                    self.cluster.running_cloud_controller(ROUTE_LEASE, &self.route_renewals).await;
                of_routes.map_err(RequestError)
            }
        }
    }
}

fn is_taint(taint: &Value, key: &str) -> bool {
    taint.get("key").and_then(Value::as_str) == Some(key)
}

fn nodes() -> &'static WatchedKind {
    WatchedKind::known(Kind::Node)
}

fn came_of(written: Result<(), ApiError>) -> Result<NodeWrite, RequestError> {
    match written {
        Ok(()) => Ok(NodeWrite::Done),
        Err(ApiError::NotFound) => Ok(NodeWrite::Gone),
        Err(ApiError::Conflict(_)) => Ok(NodeWrite::Changed),
        Err(answer) => Err(RequestError(answer)),
    }
}

#[derive(Deserialize)]
struct NodeList {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<NodeReply>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(rename = "continue", default)]
    more: Option<String>,
}

/// What is read of a Node.
#[derive(Deserialize)]
struct NodeReply {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: Name,
    uid: Name,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    creation_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "providerID", default)]
    provider_id: Option<String>,
    #[serde(rename = "podCIDRs", default)]
    pod_cidrs: Vec<String>,
    /// As old API servers write it, without the list.
    #[serde(rename = "podCIDR", default)]
    pod_cidr: String,
    #[serde(default)]
    taints: Vec<Value>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    addresses: Vec<NodeAddress>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
}

impl From<NodeReply> for NodeObject {
    fn from(told: NodeReply) -> NodeObject {
        let NodeReply { metadata, spec, status } = told;
        let first = spec.pod_cidrs.is_empty().then_some(spec.pod_cidr).filter(|it| !it.is_empty());
        NodeObject {
            name: metadata.name,
            uid: metadata.uid,
            version: metadata.resource_version,
            provider_id: spec.provider_id.filter(|it| !it.is_empty()),
            pod_cidrs: spec.pod_cidrs.into_iter().chain(first).collect(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            taints: spec.taints,
            addresses: status.addresses,
            conditions: status.conditions.into_iter().map(|it| (it.kind, (it.status, it.reason))).collect(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp.as_deref().and_then(moment),
        }
    }
}

fn moment(text: &str) -> Option<Time> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_node_is_read_what_says_who_it_is_and_how() {
        let told: NodeReply = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"},
                         "creationTimestamp": "1970-01-01T00:01:00Z"},
            "spec": {"providerID": "openstack:///s", "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "t"}]},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0"}
            }
        }))
        .expect("it is a Node");
        let node = NodeObject::from(told);
        assert_eq!((&*node.name, &*node.uid, &*node.version), ("a", "u", "7"));
        assert_eq!((node.provider_id.as_deref(), node.created), (Some("openstack:///s"), Some(Time(60_000))));
        assert_eq!((node.is_ready(), node.has_taint("k"), node.is_deleting), (Some(false), true, false));
        assert_eq!(node.addresses, [NodeAddress::new("InternalIP", "10.0.0.1")]);
        assert_eq!(node.taints[0]["timeAdded"], "t", "a write must not lose it");
        let bare: NodeReply =
            serde_json::from_value(json!({"metadata": {"name": "a", "uid": "u"}})).expect("it is");
        assert_eq!(NodeObject::from(bare).is_ready(), None);
    }
}
