//! Which Nodes may be deleted. Pure: it is told what the cloud answered, and when.
//!
//! ```text
//!     NotReady, providerID ours, server not listed ─► asked by id: 404 ─► a grace period ─► 404 again, just now ─► deleted
//!                                                         │                                   │
//!         Ready, listed, or any answer but 404: forgotten ┴───────────────────────────────────┘
//! ```
//! Nothing is asked for, and nothing goes, while no other Node of the cluster is found in the project: then the credentials are of
//! another project. That no answer comes is no answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use seaway_cluster::NodeObject;
use seaway_model::{Name, Problem, Reason, Time};

use super::{
    plan::{NodeRules, ProjectView},
    server::{Server, Whose},
};

/// A 404 is of this moment for so long.
const JUST_NOW: u64 = 5_000;
/// So many are asked for in one pass: more than the limit lets go in an hour would be asked for in vain.
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
pub enum Answer {
    /// With this status.
    Exists(String),
    /// 404.
    Missing,
    /// There was no answer, or another error.
    Unknown,
}

/// Nodes whose servers were not found, by UID.
#[derive(Clone, Debug, Default)]
pub struct Suspects(BTreeMap<Name, Suspect>);

#[derive(Clone, Debug)]
struct Suspect {
    server: Name,
    first: Time,
    last: Time,
}

/// What to ask for, and what is reported instead.
#[derive(Debug, Default)]
pub struct Asks {
    /// Positions of Nodes, and their servers.
    pub ask: Vec<(usize, Name)>,
    pub problems: Vec<Problem>,
}

impl Suspects {
    /// What must be asked for now. Forgets those that are Ready again, or found, or others by now.
    pub fn asks(&mut self, seen: ProjectView<'_>, terms: &NodeRules) -> Asks {
        let candidates: Vec<(usize, Name)> = candidates(seen, terms).collect();
        let kept: BTreeMap<&Name, &Name> =
            candidates.iter().filter_map(|(at, id)| Some((&seen.nodes.get(*at)?.uid, id))).collect();
        self.0.retain(|uid, it| kept.get(uid) == Some(&&it.server));
        let mut asks = Asks::default();
        let found = found(seen, terms);
        for (at, id) in candidates {
            let Some(node) = seen.nodes.get(at) else { continue };
            if found.iter().any(|it| *it != at) {
                asks.ask.push((at, id));
            } else {
                asks.problems.push(alone(node, &id));
            }
        }
        // Those that wait for their second answer come first.
        asks.ask.sort_by_key(|(at, _)| seen.nodes.get(*at).is_none_or(|it| !self.0.contains_key(&it.uid)));
        asks.ask.truncate(ASKED);
        asks
    }

    pub fn answered(
        &mut self,
        node: &NodeObject,
        server: &Name,
        answer: &Answer,
        deletion: &Deletion,
        now: Time,
    ) {
        let is_gone = match answer {
            Answer::Missing => true,
            Answer::Exists(status) => deletion.also_in.contains(status),
            Answer::Unknown => return,
        };
        let known = self.0.remove(&node.uid).filter(|it| it.server == *server);
        // A clock that was set back begins the grace period again.
        let known = known.filter(|it| it.last <= now);
        if is_gone {
            let first = known.map_or(now, |it| it.first);
            self.0.insert(node.uid.clone(), Suspect { server: server.clone(), first, last: now });
        }
    }

    /// Whether this Node, as it is now, may be deleted now.
    pub fn may_delete(&self, node: &NodeObject, terms: &NodeRules, now: Time) -> bool {
        let Some(suspect) = self.0.get(&node.uid) else { return false };
        is_candidate(node, terms) == Some(suspect.server.clone())
            && self.is_over(suspect, terms, now)
            && since(suspect.last, now).is_some_and(|it| it <= JUST_NOW)
    }

    /// Those whose grace period is over, so that one more answer decides.
    pub fn is_due(&self, node: &NodeObject, terms: &NodeRules, now: Time) -> bool {
        self.0.get(&node.uid).is_some_and(|it| self.is_over(it, terms, now))
    }

    /// When the next grace period is over.
    pub fn next(&self, terms: &NodeRules) -> Option<Time> {
        let grace = u64::try_from(terms.deletion.grace.as_millis()).unwrap_or(u64::MAX);
        self.0.values().map(|it| Time(it.first.0.saturating_add(grace))).min()
    }

    fn is_over(&self, suspect: &Suspect, terms: &NodeRules, now: Time) -> bool {
        since(suspect.first, now).is_some_and(|it| u128::from(it) >= terms.deletion.grace.as_millis())
    }
}

fn since(then: Time, now: Time) -> Option<u64> {
    now.0.checked_sub(then.0)
}

/// The server of a Node that is deleted once it is known that this is gone.
fn is_candidate(node: &NodeObject, terms: &NodeRules) -> Option<Name> {
    if !terms.lifecycle || node.is_deleting || node.is_ready() != Some(false) {
        return None;
    }
    match Whose::of(node, terms.region.as_deref()) {
        Whose::Ours(id) => Some(id),
        Whose::Others | Whose::Unknown => None,
    }
}

fn candidates<'a>(seen: ProjectView<'a>, terms: &'a NodeRules) -> impl Iterator<Item = (usize, Name)> + 'a {
    seen.nodes.iter().enumerate().filter_map(move |(at, node)| {
        let id = is_candidate(node, terms)?;
        let is_listed = |it: &Server| !terms.deletion.also_in.contains(&it.status);
        (!seen.servers.get(&id).is_some_and(is_listed)).then_some((at, id))
    })
}

/// Nodes that are servers of the project: two are as good as all, for who looks for one beside itself.
fn found(seen: ProjectView<'_>, terms: &NodeRules) -> Vec<usize> {
    let is_found = |id: &Name| seen.servers.get(id).is_some_and(|it| !it.is_gone_soon());
    let is_ours = |node: &NodeObject| matches!(Whose::of(node, terms.region.as_deref()), Whose::Ours(id) if is_found(&id));
    seen.nodes.iter().enumerate().filter(|(_, node)| is_ours(node)).map(|(at, _)| at).take(2).collect()
}

fn alone(node: &NodeObject, id: &Name) -> Problem {
    let message = format!(
        "the project has no server {id}; the Node is not deleted, because no other Node of the cluster is found in the project"
    );
    Problem::new(node.object(), Reason::NodeKept, message).fix(
        "If cloud.conf has credentials of another project or region, correct it. If the server was deleted, delete the Node: \
         kubectl delete node NAME.",
    )
}
