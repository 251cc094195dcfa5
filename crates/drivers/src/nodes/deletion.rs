//! Which Nodes may be deleted. Pure: it is told what the cloud answered, and when.
//!
//! ```text
//!     initialised, NotReady, providerID ours, server seen before, not listed now
//!         ─► asked by id: 404 ─► a grace period ─► 404 again, just now ─► deleted
//!                          │                                   │
//!         Ready, listed, or any answer but 404: forgotten ─────┘
//! ```
//! Nothing is asked for, and nothing goes, while no other Node of the cluster is found in the project: then the credentials are of
//! another project. That no answer comes is no answer. Whatever else leaves a doubt keeps the Node, and is reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use seaway_cluster::NodeObject;
use seaway_model::{Name, Problem, Reason, Time};

use super::{
    plan::{NodeRules, ProjectView, UNINITIALIZED, listed, owners},
    server::{ProviderMatch, REGION_LABEL, SERVER, Server, is_uuid},
};

/// A 404 is of this moment for so long.
const JUST_NOW: u64 = 5_000;
/// So many are asked for in one pass, and the next ones in the next pass: more than the limit lets go in an hour would be asked for in
/// vain.
const ASKED: usize = 50;

/// When Nodes are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// From the first 404 to the last.
    pub grace: Duration,
    /// States of a server that count as gone: `ERROR`, `SOFT_DELETED`.
    pub also_in: BTreeSet<String>,
}

impl Default for Deletion {
    fn default() -> Deletion {
        Deletion { grace: Duration::from_secs(60), also_in: BTreeSet::new() }
    }
}

impl Deletion {
    /// What can be chosen.
    pub const STATES: [&str; 2] = ["ERROR", "SOFT_DELETED"];
}

/// What a GET of a server by its id came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerLookup {
    /// With this status.
    Exists(String),
    /// 404.
    Missing,
    /// Another error.
    Unknown,
    /// There was no answer, or the service is overloaded: no other server is asked for in this pass.
    Unreachable,
}

/// As a sentence goes on that began with the server.
impl fmt::Display for ServerLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerLookup::Exists(status) => {
                write!(f, "is in {status}, and nodes.deleteIn counts that as gone")
            }
            ServerLookup::Missing => f.write_str("does not exist any more"),
            ServerLookup::Unknown | ServerLookup::Unreachable => f.write_str("may exist or not"),
        }
    }
}

/// Nodes whose servers were not found.
#[derive(Clone, Debug, Default)]
pub struct MissingServers {
    /// By UID.
    known: BTreeMap<Name, MissingServer>,
    /// The Node that was asked for last: those behind it come first in the next pass.
    last: Option<Name>,
}

#[derive(Clone, Debug)]
struct MissingServer {
    server: Name,
    first: Time,
    last: Time,
    answer: ServerLookup,
}

/// What to ask for, and what is reported instead.
#[derive(Debug, Default)]
pub struct PlannedLookups {
    /// Positions of Nodes, and their servers.
    pub ask: Vec<(usize, Name)>,
    pub problems: Vec<Problem>,
}

impl MissingServers {
    /// What must be asked for now. Forgets those that are Ready again, or found, or others by now.
    pub fn asks(&mut self, seen: ProjectView<'_>, terms: &NodeRules) -> PlannedLookups {
        let (owners, found) = (owners(seen, terms), found(seen, terms));
        let mut asks = PlannedLookups::default();
        for (at, node) in seen.nodes.iter().enumerate() {
            let Some(id) = server_of(node, terms) else { continue };
            let server = seen.servers.get(&id);
            if server.is_some_and(|it| !terms.deletion.also_in.contains(&it.status)) {
                continue;
            }
            let nodes = owners.get(&id).filter(|it| it.len() > 1);
            let several = || nodes.map(|it| shared(&listed(it)));
            let alone = || found.iter().all(|it| *it == at).then(alone);
            match doubt(node, &id, terms).or_else(several).or_else(alone) {
                None => asks.ask.push((at, id)),
                Some((why, fix)) => asks.problems.push(kept(node, &id, server, &why, fix)),
            }
        }
        let asked: BTreeMap<&Name, &Name> =
            asks.ask.iter().filter_map(|(at, id)| Some((&seen.nodes.get(*at)?.uid, id))).collect();
        self.known.retain(|uid, it| asked.get(uid) == Some(&&it.server));
        asks.ask.sort_by_key(|(at, _)| {
            let name = seen.nodes.get(*at).map(|it| &it.name);
            (name <= self.last.as_ref(), name)
        });
        asks.ask.truncate(ASKED);
        asks
    }

    pub fn answered(
        &mut self,
        node: &NodeObject,
        server: &Name,
        answer: &ServerLookup,
        deletion: &Deletion,
        now: Time,
    ) {
        self.last = Some(node.name.clone());
        let is_gone = match answer {
            ServerLookup::Missing => true,
            ServerLookup::Exists(status) => deletion.also_in.contains(status),
            ServerLookup::Unknown | ServerLookup::Unreachable => return,
        };
        let known = self.known.remove(&node.uid).filter(|it| it.server == *server);
        // A clock that was set back begins the grace period again.
        let known = known.filter(|it| it.last <= now);
        if is_gone {
            let first = known.map_or(now, |it| it.first);
            let (server, answer) = (server.clone(), answer.clone());
            self.known.insert(node.uid.clone(), MissingServer { server, first, last: now, answer });
        }
    }

    /// Whether this Node, as it is now, may be deleted now.
    pub fn may_delete(&self, node: &NodeObject, terms: &NodeRules, now: Time) -> bool {
        let Some(suspect) = self.known.get(&node.uid) else { return false };
        server_of(node, terms).as_ref() == Some(&suspect.server)
            && doubt(node, &suspect.server, terms).is_none()
            && self.is_over(suspect, terms, now)
            && since(suspect.last, now).is_some_and(|it| it <= JUST_NOW)
    }

    /// Those whose grace period is over, so that one more answer decides.
    pub fn is_due(&self, node: &NodeObject, terms: &NodeRules, now: Time) -> bool {
        self.known.get(&node.uid).is_some_and(|it| self.is_over(it, terms, now))
    }

    /// What was answered last of this Node's server.
    pub fn answer(&self, node: &NodeObject) -> ServerLookup {
        self.known.get(&node.uid).map_or(ServerLookup::Unknown, |it| it.answer.clone())
    }

    /// When the next grace period is over. Those that are over are none of these: they were decided in this pass, or wait for the next.
    pub fn next(&self, terms: &NodeRules, now: Time) -> Option<Time> {
        let grace = u64::try_from(terms.deletion.grace.as_millis()).unwrap_or(u64::MAX);
        let ends = self.known.values().map(|it| Time(it.first.0.saturating_add(grace)));
        ends.filter(|it| *it > now).min()
    }

    fn is_over(&self, suspect: &MissingServer, terms: &NodeRules, now: Time) -> bool {
        since(suspect.first, now).is_some_and(|it| u128::from(it) >= terms.deletion.grace.as_millis())
    }
}

pub(super) fn since(then: Time, now: Time) -> Option<u64> {
    now.0.checked_sub(then.0)
}

/// Of a Node that was initialised, and is silent by now. One that was not may say anything of itself, and is not Ready at first.
fn server_of(node: &NodeObject, terms: &NodeRules) -> Option<Name> {
    let is_silent = node.is_ready() == Some(false) && !node.has_taint(UNINITIALIZED);
    if !terms.lifecycle || node.is_deleting || !is_silent {
        return None;
    }
    match ProviderMatch::of(node, terms.region.as_deref()) {
        ProviderMatch::Ours(id) => Some(id),
        ProviderMatch::Others | ProviderMatch::Unknown => None,
    }
}

type Reasons = (String, &'static str);

/// Why the Node is kept whatever the cloud says of that server: what it says may be about another one, or another region.
fn doubt(node: &NodeObject, id: &Name, terms: &NodeRules) -> Option<Reasons> {
    let named = node.labels.get(REGION_LABEL).filter(|it| !it.is_empty());
    match named {
        Some(named) if terms.region.is_none() => Some((
            format!("the label {REGION_LABEL} of the Node is {named}, and cloud.conf names no region"),
            "Name the region in cloud.conf: [Global] region=NAME.",
        )),
        _ if terms.has_several_regions => Some((
            "the cloud has several regions, and cloud.conf names none".to_owned(),
            "Name the region in cloud.conf: [Global] region=NAME.",
        )),
        // Some databases find an id in upper case, and some do not.
        _ if !is_uuid(id) => Some((
            "the id in the providerID is not a UUID in lower case, as OpenStack writes it".to_owned(),
            "Start the kubelet with --provider-id=openstack:///ID, or delete the Node: kubectl delete node NAME.",
        )),
        _ if node.annotations.get(SERVER).map(String::as_str) != Some(id) => Some((
            "Seaway has never found that server in the project".to_owned(),
            "If cloud.conf has credentials of another project, correct it. If the server was deleted, delete the Node: kubectl delete \
             node NAME.",
        )),
        _ => None,
    }
}

fn shared(nodes: &str) -> Reasons {
    (
        format!("several Nodes have the providerID of this server: {nodes}"),
        "Delete those that are not this server: kubectl delete node NAME.",
    )
}

fn alone() -> Reasons {
    (
        "no other Node of the cluster is found in the project".to_owned(),
        "If cloud.conf has credentials of another project or region, correct it. If the server was deleted, delete the Node: kubectl \
         delete node NAME.",
    )
}

/// Nodes that are servers of the project: two are as good as all, for who looks for one beside itself.
fn found(seen: ProjectView<'_>, terms: &NodeRules) -> Vec<usize> {
    let is_found = |id: &Name| seen.servers.get(id).is_some_and(|it| !it.is_gone_soon());
    let is_ours = |node: &NodeObject| matches!(ProviderMatch::of(node, terms.region.as_deref()), ProviderMatch::Ours(id) if is_found(&id));
    seen.nodes.iter().enumerate().filter(|(_, node)| is_ours(node)).map(|(at, _)| at).take(2).collect()
}

/// `server`: one in a state that counts as gone.
fn kept(node: &NodeObject, id: &Name, server: Option<&Server>, why: &str, fix: &str) -> Problem {
    let state = match server {
        None => format!("the project has no server {id}"),
        Some(server) => {
            format!("the server {id} of the Node {}", ServerLookup::Exists(server.status.clone()))
        }
    };
    let message = format!("{state}; the Node is not deleted, because {why}");
    Problem::new(node.object(), Reason::NodeKept, message).fix(fix)
}
