//! No sequence of answers deletes a Node whose server exists, or more Nodes than the limit lets go in an hour: by the controllers
//! themselves, with Nodes in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use proptest::prelude::*;
use seaway_engine::{Counted, OwnersFuture, deletion_limit};

use super::{super::act::LookupFuture, passes::InMemoryNodes, *};

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

fn server_of(at: usize) -> Name {
    id(&format!("s{at}"))
}

/// The servers, and who tells of them.
#[derive(Default)]
struct ProjectServers {
    exists: BTreeMap<Name, &'static str>,
    /// When a false 404 was told first, without a true answer since.
    lied: BTreeMap<Name, u64>,
    answers: BTreeSet<Name>,
    lies: BTreeSet<Name>,
    asked: usize,
}

impl ProjectServers {
    fn answer(&mut self, server: &Name, now: u64) -> ServerLookup {
        self.asked += 1;
        let is_lie =
            self.lies.contains(server) && self.lied.get(server).is_none_or(|first| now - first < GRACE);
        match self.exists.get(server) {
            _ if !self.answers.contains(server) => ServerLookup::Unknown,
            Some(_) if is_lie => {
                self.lied.entry(server.clone()).or_insert(now);
                ServerLookup::Missing
            }
            Some(status) => {
                self.lied.remove(server);
                ServerLookup::Exists((*status).to_owned())
            }
            None => ServerLookup::Missing,
        }
    }
}

/// As the records count: those of the last hour.
struct Hourly {
    now: Arc<AtomicU64>,
    went: Mutex<BTreeMap<String, u64>>,
}

impl DeletionLimit for Hourly {
    fn count<'a>(&'a self, what: &'a str, _: &'a ObjectRef, all: usize) -> OwnersFuture<'a, Counted> {
        let now = self.now.load(Ordering::Relaxed);
        let mut went = self.went.lock().unwrap();
        went.retain(|_, at| now - *at < 3_600_000);
        let limit = deletion_limit(all, went.len());
        let is_within = went.contains_key(what) || went.len() < limit;
        if is_within {
            went.entry(what.to_owned()).or_insert(now);
        }
        let counted = if is_within { Counted::Within } else { Counted::Beyond { limit } };
        Box::pin(std::future::ready(Ok(counted)))
    }
}

fn controllers(memory: &Arc<InMemoryNodes>, now: &Arc<AtomicU64>) -> NodeControllers<Arc<InMemoryNodes>> {
    let limit = Arc::new(Hourly { now: now.clone(), went: Mutex::default() });
    let open = || Fence::new(|| true);
    let clock = now.clone();
    let clock = Box::new(move || Time(clock.load(Ordering::Relaxed)));
    let join = Box::new(|| -> ConnectFuture { Box::pin(std::future::pending()) });
    NodeControllers::new(memory.clone(), join, (open(), open()), limit, clock)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_history_deletes_a_node_that_exists_or_too_many(events in proptest::collection::vec(event(), 1..120)) {
        let nodes =
            (0..NODES).map(|at| node(&format!("n{at}"), Some(&format!("openstack:///s{at}")), true));
        let memory = InMemoryNodes::with(nodes);
        let land = Arc::new(Mutex::new(ProjectServers::default()));
        land.lock().unwrap().exists = (0..NODES).map(|at| (server_of(at), "ACTIVE")).collect();
        let clock = Arc::new(AtomicU64::new(1_000_000));
        let mut controllers = controllers(&memory, &clock);
        let mut deleted: Vec<u64> = Vec::new();
        for event in events {
            let now = clock.load(Ordering::Relaxed) / 1_000;
            match event {
                Event::Time(seconds) => { clock.fetch_add(seconds * 1_000, Ordering::Relaxed); }
                Event::Restart => controllers.suspects = MissingServers::default(),
                Event::Deleted(of) => {
                    land.lock().unwrap().exists.remove(&server_of(of));
                    silence(&memory, of, false);
                }
                Event::Ready(of, ready) => {
                    if land.lock().unwrap().exists.contains_key(&server_of(of)) {
                        silence(&memory, of, ready);
                    }
                }
                Event::Status(of, status) => {
                    land.lock().unwrap().exists.entry(server_of(of)).and_modify(|it| *it = status);
                }
                Event::Pass { left_out, answers, lies } => {
                    let listed: BTreeMap<Name, Server> = {
                        let mut land = land.lock().unwrap();
                        land.answers = answers.into_iter().map(server_of).collect();
                        land.lies = lies.into_iter().map(server_of).collect();
                        let all = (0..NODES).filter(|it| !left_out.contains(it));
                        all.filter_map(|it| {
                            let status = land.exists.get(&server_of(it))?;
                            Some((server_of(it), super::server(&format!("s{it}"), &format!("n{it}"), status)))
                        })
                        .collect()
                    };
                    let nodes: Vec<NodeObject> = memory.names().iter().filter_map(|it| memory.node(it)).collect();
                    let ask = {
                        let land = land.clone();
                        move |id: Name| -> LookupFuture {
                            let answer = land.lock().unwrap().answer(&id, now);
                            Box::pin(std::future::ready(answer))
                        }
                    };
                    let seen = ProjectView { nodes: &nodes, servers: &listed };
                    block_on(controllers.act(seen, &terms(), &ask));
                    let left: BTreeSet<String> = memory.names().into_iter().collect();
                    let is_found = |it: &&NodeObject| listed.keys().any(|id| it.annotations.get(SERVER).map(String::as_str) == Some(&**id));
                    for gone in nodes.iter().filter(|it| !left.contains(&*it.name)) {
                        let server = &gone.annotations[SERVER];
                        prop_assert!(!land.lock().unwrap().exists.contains_key(server.as_str()), "{server} exists");
                        prop_assert!(nodes.iter().any(|it| it.name != gone.name && is_found(&it)), "no other Node is found");
                        prop_assert!(gone.is_ready() == Some(false), "it is Ready");
                        deleted.push(now);
                    }
                    let hour = deleted.iter().filter(|it| now - **it < 3_600).count();
                    prop_assert!(hour <= 3, "{hour} of {NODES} in an hour");
                }
            }
        }
    }
}

fn silence(memory: &InMemoryNodes, of: usize, ready: bool) {
    let name = format!("n{of}");
    if memory.node(&name).is_some() {
        memory.change(&name, |it| it.conditions.extend(node(&name, None, ready).conditions));
    }
}

#[test]
fn a_cloud_that_does_not_answer_is_asked_once_in_a_pass_and_behind_that_one_in_the_next() {
    let mut nodes: Vec<NodeObject> =
        (0..5).map(|at| node(&format!("n{at}"), Some(&format!("openstack:///s{at}")), false)).collect();
    nodes[4].conditions = node("x", None, true).conditions;
    let memory = InMemoryNodes::with(nodes.clone());
    let servers = servers(&[("s4", "n4", "ACTIVE")]);
    let mut controllers = controllers(&memory, &Arc::new(AtomicU64::new(1_000_000)));
    let asked = Arc::new(Mutex::new(Vec::new()));
    for pass in 1..=3 {
        let ask = {
            let asked = asked.clone();
            move |id: Name| -> LookupFuture {
                asked.lock().unwrap().push(id);
                Box::pin(std::future::ready(ServerLookup::Unreachable))
            }
        };
        let done =
            block_on(controllers.act(ProjectView { nodes: &nodes, servers: &servers }, &terms(), &ask));
        assert_eq!((asked.lock().unwrap().len(), done.next), (pass, SILENT));
        assert!(done.problems.len() == 1 && done.problems[0].reason == Reason::Unreachable, "{done:?}");
    }
    assert_eq!(*asked.lock().unwrap(), [0, 1, 2].map(server_of));
}

#[test]
fn a_cloud_that_refuses_to_say_whether_a_server_exists_keeps_its_node_and_that_is_told() {
    let nodes = [node("a", Some("openstack:///s1"), false), node("b", Some("openstack:///s2"), true)];
    let memory = InMemoryNodes::with(nodes.clone());
    let servers = servers(&[("s2", "b", "ACTIVE")]);
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let mut controllers = controllers(&memory, &clock);
    let ask = |_: Name| -> LookupFuture { Box::pin(std::future::ready(ServerLookup::Unknown)) };
    for _ in 0..3 {
        let done =
            block_on(controllers.act(ProjectView { nodes: &nodes, servers: &servers }, &terms(), &ask));
        assert!(done.problems.len() == 1 && done.problems[0].reason == Reason::NodeKept, "{done:?}");
        clock.fetch_add(60_000, Ordering::Relaxed);
    }
    assert_eq!(memory.writes(), 0);
}

/// Else the property above would hold of controllers that delete nothing.
#[test]
fn a_history_of_true_answers_deletes_three_in_an_hour() {
    let nodes: Vec<NodeObject> =
        (0..6).map(|at| node(&format!("n{at}"), Some(&format!("openstack:///s{at}")), at == 5)).collect();
    let memory = InMemoryNodes::with(nodes.clone());
    let servers = servers(&[("s5", "n5", "ACTIVE")]);
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let mut controllers = controllers(&memory, &clock);
    let ask = |_: Name| -> LookupFuture { Box::pin(std::future::ready(ServerLookup::Missing)) };
    for (after, left) in [(0, 6), (60, 3), (60, 3), (3_600, 1)] {
        clock.fetch_add(after * 1_000, Ordering::Relaxed);
        let nodes: Vec<NodeObject> = nodes.iter().filter_map(|it| memory.node(&it.name)).collect();
        block_on(controllers.act(ProjectView { nodes: &nodes, servers: &servers }, &terms(), &ask));
        assert_eq!(memory.names().len(), left);
    }
}
