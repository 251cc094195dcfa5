//! What must be written at Nodes, by what is seen of them and of their servers. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use seaway_cluster::{NodeAddress, NodeChange, NodeObject, NodePatch};
use seaway_model::{Name, Problem, Reason, config::CloudNetworking};
use serde_json::{Value, json};

use super::{
    addresses::{INTERNAL, addresses_of, claimed, has_ip},
    server::{ProviderMatch, REGION_LABEL, SERVER, Server, as_label, provider_id},
};

pub(super) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(super) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The condition of a Node whose server is in ERROR, or about to be deleted.
pub(super) const FAILED: &str = "seaway.dev/ServerFailed";
const HOST_ID_LABEL: &str = "topology.openstack.org/host-id";
/// Each label and its predecessor, which kubelets and other controllers still read.
const LABELS: [(&str, &str); 3] = [
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    (REGION_LABEL, "failure-domain.beta.kubernetes.io/region"),
];

/// By what is decided.
#[derive(Clone, Debug, Default)]
pub struct NodeRules {
    /// The region of the cloud that is asked.
    pub region: Option<String>,
    /// None is named, and there are several.
    pub has_several_regions: bool,
    /// New provider ids name it.
    pub regional: bool,
    pub networking: CloudNetworking,
    /// This process is the leader of cloud-node.
    pub nodes: bool,
    /// This process is the leader of cloud-node-lifecycle.
    pub lifecycle: bool,
    pub deletion: super::Deletion,
}

/// All Nodes, and all servers of the project, as they were listed.
#[derive(Clone, Copy, Debug)]
pub struct ProjectView<'a> {
    pub nodes: &'a [NodeObject],
    pub servers: &'a BTreeMap<Name, Server>,
}

/// One write at a Node.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Initialize {
        server: Name,
        provider_id: String,
        labels: BTreeMap<String, String>,
    },
    Addresses(Vec<NodeAddress>),
    Labels(BTreeMap<String, String>),
    /// That this server was found: a Node of which that was never so is not deleted.
    Remember(Name),
    Taint,
    Untaint,
    Condition {
        failed: bool,
        reason: &'static str,
        message: String,
    },
}

#[derive(Debug, Default)]
pub struct Plan {
    /// In order; the position of each Node.
    pub steps: Vec<(usize, Step)>,
    pub problems: Vec<Problem>,
}

pub fn plan(seen: ProjectView<'_>, terms: &NodeRules) -> Plan {
    let mut plan = Plan::default();
    let owners = owners(seen, terms);
    let names = by_name(seen.servers);
    for (at, node) in seen.nodes.iter().enumerate().filter(|(_, it)| !it.is_deleting) {
        let found = found(node, seen, terms, &names, &owners);
        let server = match found {
            Ok(server) => server,
            Err(problem) => {
                plan.problems.extend(problem.filter(|_| terms.nodes));
                continue;
            }
        };
        if terms.nodes {
            of_node(&mut plan, at, node, server, terms);
        }
        if terms.lifecycle {
            of_lifecycle(&mut plan, at, node, server);
        }
    }
    plan
}

/// Which server a Node is; for one that waits to be initialised, why none is found, and for all, that several are one server.
fn found<'s>(
    node: &NodeObject,
    seen: ProjectView<'s>,
    terms: &NodeRules,
    names: &HashMap<&str, Vec<&'s Server>>,
    owners: &HashMap<Name, BTreeSet<&str>>,
) -> Result<&'s Server, Option<Problem>> {
    let waits = node.has_taint(UNINITIALIZED);
    let unknown = |message: String, fix: &str| {
        Some(Problem::new(node.object(), Reason::NodeUninitialized, message).fix(fix))
    };
    let wrong = |message: String, fix: &str| Err(unknown(message, fix).filter(|_| waits));
    match ProviderMatch::of(node, terms.region.as_deref()) {
        ProviderMatch::Others => Err(None),
        ProviderMatch::Ours(id) => match seen.servers.get(&id) {
            Some(server) if owners.get(&id).is_some_and(|it| it.len() > 1) => Err(unknown(
                format!("several Nodes have the providerID of the server {} ({id})", server.name),
                "Find out which Node is that server, and register the others again with the ids of their own servers.",
            )),
            Some(server) => Ok(server),
            None => wrong(
                format!("the project has no server {id}, which the Node's providerID names"),
                "Use credentials of the project of the server, or register the Node again with the id of its server.",
            ),
        },
        // Others' Nodes, of before there were ids: nothing of them is known.
        ProviderMatch::Unknown if !waits => Err(None),
        ProviderMatch::Unknown => match names.get(&*node.name).map(Vec::as_slice) {
            Some([server]) => match owners.get(&server.id) {
                None => match claimed(node).find(|it| !server.has_address(*it)) {
                    None => Ok(server),
                    Some(ip) => wrong(
                        format!(
                            "the server {} ({}) has the name of the Node, but not its address {ip}",
                            server.name, server.id
                        ),
                        "Start the kubelet with --provider-id=openstack:///ID, the id of its own server, or with an address of this \
                         server (--node-ip).",
                    ),
                },
                Some(others) => wrong(
                    format!(
                        "the server {} ({}) is the Node {} already",
                        server.name,
                        server.id,
                        listed(others)
                    ),
                    "Delete the Node that is not this server.",
                ),
            },
            Some(several) if several.len() > 1 => wrong(
                format!("{} servers of the project have the name of the Node", several.len()),
                "Give each server a name of its own, or start the kubelet with --provider-id=openstack:///ID.",
            ),
            _ => wrong(
                "no server of the project has the name of the Node".to_owned(),
                "Give the Node the name of its server (kubelet: --hostname-override), or start the kubelet with \
                 --provider-id=openstack:///ID.",
            ),
        },
    }
}

/// The Nodes that are each server.
pub(super) fn owners<'a>(seen: ProjectView<'a>, terms: &NodeRules) -> HashMap<Name, BTreeSet<&'a str>> {
    let mut all: HashMap<Name, BTreeSet<&str>> = HashMap::new();
    for node in seen.nodes {
        if let ProviderMatch::Ours(id) = ProviderMatch::of(node, terms.region.as_deref()) {
            all.entry(id).or_default().insert(&node.name);
        }
    }
    all
}

fn by_name(servers: &BTreeMap<Name, Server>) -> HashMap<&str, Vec<&Server>> {
    let mut all: HashMap<&str, Vec<&Server>> = HashMap::new();
    for server in servers.values().filter(|it| !it.is_gone_soon()) {
        all.entry(&server.name).or_default().push(server);
    }
    all
}

pub(super) fn listed(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

fn of_node(plan: &mut Plan, at: usize, node: &NodeObject, server: &Server, terms: &NodeRules) {
    let waits = node.has_taint(UNINITIALIZED);
    match wanted_addresses(node, server, waits, terms) {
        // Before pods are scheduled there.
        Ok(addresses) if !addresses.is_empty() && addresses != node.addresses => {
            plan.steps.push((at, Step::Addresses(addresses)));
        }
        Ok(_) => {}
        Err((why, fix)) => {
            let message = format!("the addresses of the Node are not written: {why}");
            plan.problems.push(Problem::new(node.object(), Reason::NodeUninitialized, message).fix(fix));
            return;
        }
    }
    if waits {
        let region = terms.region.as_deref().filter(|_| terms.regional);
        let step = Step::Initialize {
            server: server.id.clone(),
            provider_id: provider_id(&server.id, region),
            labels: labels_of(node, server, terms),
        };
        plan.steps.push((at, step));
        return;
    }
    let behind = LABELS.iter().filter_map(|(now, before)| {
        let value = node.labels.get(*now)?;
        (node.labels.get(*before) != Some(value)).then(|| ((*before).to_owned(), value.clone()))
    });
    let behind: BTreeMap<String, String> = behind.collect();
    if !behind.is_empty() {
        plan.steps.push((at, Step::Labels(behind)));
    }
}

/// What is to be written; nothing: it stays as it is. An error says why that is not known well enough.
fn wanted_addresses(
    node: &NodeObject,
    server: &Server,
    waits: bool,
    terms: &NodeRules,
) -> Result<Vec<NodeAddress>, (String, &'static str)> {
    if !server.unread_network.is_empty() {
        let why = format!("the network {} of a trunk of its server cannot be read", server.unread_network);
        return Err((why, "Seaway tries again."));
    }
    let wanted = addresses_of(node, server, &terms.networking).map_err(|why| {
        (why, "Start the kubelet with an address of its server (--node-ip), or correct [Networking] of cloud.conf.")
    })?;
    let is_internal = |it: &NodeAddress| it.kind == INTERNAL;
    if waits && !has_ip(&wanted) && !has_ip(&node.addresses) {
        return Err((
            format!(
                "the server {} ({}) of the Node has no IP address yet; the Node is not initialised",
                server.name, server.id
            ),
            "Give the server a port with an IP address. Seaway tries again.",
        ));
    }
    // All Nodes at once would lose theirs by one edit of cloud.conf. What a new Node has is its kubelet's guess.
    if !waits && node.addresses.iter().any(is_internal) && !wanted.iter().any(is_internal) {
        return Err((
            format!(
                "the Node has an {INTERNAL}, and would have none according to the server and to [Networking] of cloud.conf"
            ),
            "Correct internal-network-name and public-network-name in cloud.conf, or the ports of the server.",
        ));
    }
    Ok(wanted)
}

fn labels_of(node: &NodeObject, server: &Server, terms: &NodeRules) -> BTreeMap<String, String> {
    let region = terms.region.as_deref().map(as_label).unwrap_or_default();
    let values = [server.flavor.clone(), as_label(&server.zone), region];
    let both = LABELS.iter().zip(values).filter(|(_, value)| !value.is_empty());
    let mut labels: BTreeMap<String, String> = both
        .flat_map(|((now, before), value)| {
            [((*now).to_owned(), value.clone()), ((*before).to_owned(), value)]
        })
        .collect();
    let host = as_label(&server.host_id);
    if !host.is_empty() && !node.labels.contains_key(HOST_ID_LABEL) {
        labels.insert(HOST_ID_LABEL.to_owned(), host);
    }
    labels
}

fn of_lifecycle(plan: &mut Plan, at: usize, node: &NodeObject, server: &Server) {
    if !node.has_taint(UNINITIALIZED) && node.annotations.get(SERVER).map(String::as_str) != Some(&*server.id)
    {
        plan.steps.push((at, Step::Remember(server.id.clone())));
    }
    let is_tainted = node.has_taint(SHUTDOWN);
    let is_off = matches!(&*server.status, "SHUTOFF" | "SHELVED_OFFLOADED");
    match node.is_ready() {
        Some(true) if is_tainted => plan.steps.push((at, Step::Untaint)),
        Some(false) if is_off && !is_tainted => plan.steps.push((at, Step::Taint)),
        _ => {}
    }
    let (failed, reason, message) = match &*server.status {
        "ERROR" => (true, "ServerError", because(server, "is in ERROR")),
        "SOFT_DELETED" => {
            (true, "ServerSoftDeleted", because(server, "is deleted, and can still be restored"))
        }
        _ => (false, "ServerFound", because(server, "is neither in ERROR nor deleted")),
    };
    let said = node.conditions.get(FAILED).map(|(status, reason)| (status == "True", reason.as_str()));
    if said != Some((failed, reason)) && (failed || said.is_some()) {
        plan.steps.push((at, Step::Condition { failed, reason, message: message.clone() }));
    }
    if failed {
        let fix = "Repair or delete the server. Seaway deletes the Node if nodes.deleteIn names this state, else only once the server \
                   is gone.";
        plan.problems.push(Problem::new(node.object(), Reason::ServerFailed, message).fix(fix));
    }
}

fn because(server: &Server, what: &str) -> String {
    let fault = if server.fault.is_empty() { String::new() } else { format!(": {}", server.fault) };
    format!("the server {} ({}) of the Node {what}{fault}", server.name, server.id)
}

impl Step {
    /// What is written at the Node as it is now; nothing where that is so already, or where it became another server's.
    pub fn patch(&self, node: &NodeObject, terms: &NodeRules) -> Option<NodePatch> {
        let patch = match self {
            Step::Initialize { server, provider_id, labels } => {
                let is_other = match ProviderMatch::of(node, terms.region.as_deref()) {
                    ProviderMatch::Ours(id) => id != *server,
                    ProviderMatch::Others => true,
                    ProviderMatch::Unknown => false,
                };
                if is_other || !node.has_taint(UNINITIALIZED) {
                    return None;
                }
                NodePatch::Object(NodeChange {
                    labels: labels.clone(),
                    annotations: [(SERVER.to_owned(), server.to_string())].into(),
                    taints: Some(node.taints_without(UNINITIALIZED)),
                    provider_id: node.provider_id.is_none().then(|| provider_id.clone()),
                })
            }
            Step::Addresses(all) if *all == node.addresses => return None,
            Step::Addresses(all) => NodePatch::Addresses(all.clone()),
            Step::Labels(labels) => {
                NodePatch::Object(NodeChange { labels: labels.clone(), ..NodeChange::default() })
            }
            Step::Remember(server) => {
                let is_same =
                    ProviderMatch::of(node, terms.region.as_deref()) == ProviderMatch::Ours(server.clone());
                if !is_same || node.annotations.get(SERVER).map(String::as_str) == Some(&**server) {
                    return None;
                }
                let annotations = [(SERVER.to_owned(), server.to_string())].into();
                NodePatch::Object(NodeChange { annotations, ..NodeChange::default() })
            }
            Step::Taint if node.is_ready() != Some(false) || node.has_taint(SHUTDOWN) => return None,
            Step::Taint => {
                let mut taints = node.taints_without(SHUTDOWN);
                taints.push(json!({"key": SHUTDOWN, "effect": "NoSchedule"}));
                of_taints(taints)
            }
            Step::Untaint if !node.has_taint(SHUTDOWN) => return None,
            Step::Untaint => of_taints(node.taints_without(SHUTDOWN)),
            Step::Condition { failed, reason, message } => {
                NodePatch::Condition { kind: FAILED, status: *failed, reason, message: message.clone() }
            }
        };
        Some(patch)
    }

    /// Which of the two controllers it is of.
    pub fn is_of_lifecycle(&self) -> bool {
        matches!(self, Step::Remember(_) | Step::Taint | Step::Untaint | Step::Condition { .. })
    }
}

fn of_taints(taints: Vec<Value>) -> NodePatch {
    NodePatch::Object(NodeChange { taints: Some(taints), ..NodeChange::default() })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Initialize { provider_id, .. } => write!(f, "initialize as {provider_id}"),
            Step::Addresses(all) => {
                let all: Vec<&str> = all.iter().map(|it| it.address.as_str()).collect();
                write!(f, "write addresses {}", all.join(", "))
            }
            Step::Labels(labels) => write!(f, "write {} labels", labels.len()),
            Step::Remember(server) => write!(f, "record server {server} for the Node"),
            Step::Taint => write!(f, "add the taint {SHUTDOWN}"),
            Step::Untaint => write!(f, "remove the taint {SHUTDOWN}"),
            Step::Condition { failed, reason, .. } => {
                write!(f, "write the condition {FAILED}={failed} ({reason})")
            }
        }
    }
}
