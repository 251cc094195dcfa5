//! No sequence of answers deletes a Node whose server exists, or more Nodes than the limit lets go in an hour.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use seaway_engine::deletion_limit;

use super::*;

const NODES: usize = 12;
const GRACE: u64 = 60;

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    Time(u64),
    /// A server is deleted, and its Node falls silent.
    Deleted(usize),
    /// The Node falls silent, or speaks again; its server runs.
    Ready(usize, bool),
    Status(usize, &'static str),
    /// A list without some of the servers that exist, and whether answers to a GET come; a false 404 for less than a grace period.
    Pass {
        left_out: BTreeSet<usize>,
        answers: BTreeSet<usize>,
        lies: BTreeSet<usize>,
    },
    /// Another process leads from here on: it knows nothing.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let some = || proptest::collection::btree_set(0..NODES, 0..NODES);
    let status = proptest::sample::select(&["ACTIVE", "SHUTOFF", "ERROR", "SOFT_DELETED"][..]);
    prop_oneof![
        4 => (1u64..200).prop_map(Event::Time),
        3 => (0..NODES).prop_map(Event::Deleted),
        3 => (0..NODES, any::<bool>()).prop_map(|(at, ready)| Event::Ready(at, ready)),
        1 => (0..NODES, status).prop_map(|(at, status)| Event::Status(at, status)),
        10 => (some(), some(), some()).prop_map(|(left_out, answers, lies)| Event::Pass { left_out, answers, lies }),
        1 => Just(Event::Restart),
    ]
}

fn id(at: usize) -> Name {
    format!("s{at}").into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_history_deletes_a_node_that_exists_or_too_many(events in proptest::collection::vec(event(), 1..120)) {
        let mut nodes: Vec<NodeObject> =
            (0..NODES).map(|at| node(&format!("n{at}"), Some(&format!("openstack:///{}", id(at))), true)).collect();
        let mut exists: BTreeMap<Name, &str> = (0..NODES).map(|at| (id(at), "ACTIVE")).collect();
        // When a false 404 was told first, without a true answer since.
        let mut lied: BTreeMap<Name, u64> = BTreeMap::new();
        let mut deleted: Vec<u64> = Vec::new();
        let (mut suspects, mut now, terms) = (Suspects::default(), 1_000u64, terms());
        for event in events {
            match event {
                Event::Time(seconds) => now += seconds,
                Event::Restart => suspects = Suspects::default(),
                Event::Deleted(of) => {
                    exists.remove(&id(of));
                    silence(&mut nodes, of, false);
                }
                Event::Ready(of, ready) if exists.contains_key(&id(of)) => silence(&mut nodes, of, ready),
                Event::Status(of, status) => { exists.entry(id(of)).and_modify(|it| *it = status); }
                Event::Ready(..) => {}
                Event::Pass { left_out, answers, lies } => {
                    let listed = (0..NODES).filter(|it| !left_out.contains(it));
                    let listed: BTreeMap<Name, Server> = listed
                        .filter_map(|it| Some((id(it), super::server(&id(it), &format!("n{it}"), exists.get(&id(it))?))))
                        .collect();
                    let asks = suspects.asks(ProjectView { nodes: &nodes, servers: &listed }, &terms);
                    let mut go = Vec::new();
                    for (of, server) in asks.ask {
                        let number: usize = server[1..].parse().expect("a number");
                        let is_lie = lies.contains(&number)
                            && exists.contains_key(&server)
                            && lied.get(&server).is_none_or(|first| now - first < GRACE);
                        let answer = match exists.get(&server) {
                            _ if !answers.contains(&number) => Answer::Unknown,
                            Some(_) if is_lie => {
                                lied.entry(server.clone()).or_insert(now);
                                Answer::Missing
                            }
                            Some(status) => {
                                lied.remove(&server);
                                Answer::Exists((*status).to_owned())
                            }
                            None => Answer::Missing,
                        };
                        suspects.answered(&nodes[of], &server, &answer, &terms.deletion, at(now));
                        if suspects.may_delete(&nodes[of], &terms, at(now)) {
                            go.push((of, server));
                        }
                    }
                    let others = nodes.iter().filter(|it| Whose::of(it, terms.region.as_deref()) != Whose::Others);
                    let found = others.filter(|it| listed.keys().any(|id| it.provider_id.as_deref() == Some(&format!("openstack:///{id}")))).count();
                    let mut gone = BTreeSet::new();
                    for (of, server) in go {
                        prop_assert!(!exists.contains_key(&server), "{server} exists");
                        prop_assert!(found > 0, "no Node is found in the project");
                        let hour = deleted.iter().filter(|it| now - **it < 3_600).count();
                        // As the executor asks.
                        if hour < deletion_limit(nodes.len(), hour) {
                            deleted.push(now);
                            gone.insert(nodes[of].name.clone());
                        }
                    }
                    nodes.retain(|it| !gone.contains(&it.name));
                    let hour = deleted.iter().filter(|it| now - **it < 3_600).count();
                    prop_assert!(hour <= 3, "{hour} of {NODES} in an hour");
                }
            }
        }
    }
}

fn silence(nodes: &mut [NodeObject], of: usize, ready: bool) {
    let name = format!("n{of}");
    for it in nodes.iter_mut().filter(|it| *it.name == *name) {
        it.conditions = node(&name, None, ready).conditions;
    }
}
