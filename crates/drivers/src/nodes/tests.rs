//! What is planned of Nodes, as tables; and that no history of answers deletes a Node whose server exists.

mod doubts;
mod histories;
pub(crate) mod passes;
mod slow;

use std::{collections::BTreeMap, time::Duration};

use seaway_cluster::{NodeAddress, NodeObject, NodePatch};
use seaway_model::{Name, Reason, Time};
use serde_json::json;

use super::{
    plan::{FAILED, SHUTDOWN, UNINITIALIZED},
    server::SERVER,
    *,
};

pub(super) fn taint(key: &str) -> serde_json::Value {
    json!({"key": key, "effect": "NoSchedule"})
}

/// `s1` as Nova would write it.
pub(super) fn id(short: &str) -> Name {
    let digits: String = short.bytes().map(|it| format!("{it:02x}")).collect();
    format!("{digits:0>8}-0000-4000-8000-000000000000").into()
}

/// Of `openstack:///s1`, with the id as Nova would write it; others as they are.
pub(super) fn provider(text: &str) -> String {
    match text.strip_prefix("openstack://").and_then(|it| it.split_once('/')) {
        Some((region, short)) => format!("openstack://{region}/{}", id(short)),
        None => text.to_owned(),
    }
}

/// One whose server was found before, if it has one.
pub(super) fn node(name: &str, provider_id: Option<&str>, ready: bool) -> NodeObject {
    let status = if ready { "True" } else { "Unknown" };
    let provider_id = provider_id.map(provider);
    let found = provider_id.as_deref().and_then(|it| it.strip_prefix("openstack://")?.rsplit('/').next());
    NodeObject {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        version: "1".to_owned(),
        annotations: found.map(|it| (SERVER.to_owned(), it.to_owned())).into_iter().collect(),
        provider_id,
        addresses: vec![address()],
        conditions: [("Ready".to_owned(), (status.to_owned(), String::new()))].into(),
        ..NodeObject::default()
    }
}

pub(super) fn new_node(name: &str) -> NodeObject {
    let taints = vec![taint(UNINITIALIZED), taint("other")];
    NodeObject { taints, addresses: Vec::new(), ..node(name, None, false) }
}

/// With an address.
fn server(short: &str, name: &str, status: &str) -> Server {
    let port = ServerPort {
        is_active: true,
        ips: vec!["10.0.0.5".parse().expect("an address")],
        ..ServerPort::default()
    };
    Server {
        id: id(short),
        name: name.into(),
        status: status.to_owned(),
        ports: vec![port],
        ..Server::default()
    }
}

fn address() -> NodeAddress {
    NodeAddress::new("InternalIP", "10.0.0.5")
}

fn servers(all: &[(&str, &str, &str)]) -> BTreeMap<Name, Server> {
    all.iter().map(|(short, name, status)| (id(short), server(short, name, status))).collect()
}

pub(super) fn terms() -> NodeRules {
    NodeRules { region: Some("One".to_owned()), nodes: true, lifecycle: true, ..NodeRules::default() }
}

fn steps(nodes: &[NodeObject], servers: &BTreeMap<Name, Server>) -> Vec<(usize, Step)> {
    plan(ProjectView { nodes, servers }, &terms()).steps
}

fn problems(nodes: &[NodeObject], servers: &BTreeMap<Name, Server>) -> Vec<(Reason, String)> {
    let plan = plan(ProjectView { nodes, servers }, &terms());
    plan.problems.into_iter().map(|it| (it.reason, it.message)).collect()
}

#[test]
fn a_new_node_becomes_its_server() {
    let mut of = server("s1", "web.1", "ACTIVE");
    of.zone = "az 1".to_owned();
    of.flavor = "m1.small".to_owned();
    of.host_id = "abc".to_owned();
    // OCCM asks for a regular expression, by which this one is found, too.
    let servers = [(of.id.clone(), of), (id("s2"), server("s2", "webx1", "ACTIVE"))].into();
    let node = new_node("web.1");
    let steps = steps(std::slice::from_ref(&node), &servers);
    let [(0, Step::Addresses(addresses)), (0, initialize)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(addresses[0].address, "10.0.0.5", "addresses come before pods do");
    let patch = initialize.patch(&node, &terms());
    let Some(NodePatch::Object(patch)) = patch else { panic!("{patch:?}") };
    assert_eq!(patch.provider_id.as_deref(), Some(&*provider("openstack:///s1")));
    assert_eq!(patch.taints, Some(vec![taint("other")]));
    assert_eq!(patch.annotations[SERVER], id("s1").to_string());
    assert_eq!(
        json!(patch.labels),
        json!({
            "node.kubernetes.io/instance-type": "m1.small", "beta.kubernetes.io/instance-type": "m1.small",
            "topology.kubernetes.io/zone": "az-1", "failure-domain.beta.kubernetes.io/zone": "az-1",
            "topology.kubernetes.io/region": "One", "failure-domain.beta.kubernetes.io/region": "One",
            "topology.openstack.org/host-id": "abc",
        })
    );
    // By then its kubelet has said which server it is.
    let said = |text: &str| NodeObject { provider_id: Some(provider(text)), ..node.clone() };
    let Some(NodePatch::Object(patch)) = initialize.patch(&said("openstack://One/s1"), &terms()) else {
        panic!()
    };
    assert_eq!(patch.provider_id, None, "it is never written again");
    assert_eq!(initialize.patch(&said("openstack:///s2"), &terms()), None, "it is another server");
    assert_eq!(initialize.patch(&said("aws:///s1"), &terms()), None);
    let regional = NodeRules { regional: true, ..terms() };
    let planned = plan(ProjectView { nodes: &[node], servers: &servers }, &regional);
    assert!(
        planned
            .steps
            .iter()
            .any(|(_, it)| it.to_string() == format!("initialize as {}", provider("openstack://One/s1"))),
        "{planned:?}"
    );
}

#[test]
fn a_node_whose_server_is_not_known_waits_and_that_is_told() {
    let twice = servers(&[("s1", "a", "ACTIVE"), ("s2", "a", "ACTIVE")]);
    let one = servers(&[("s1", "a", "ACTIVE"), ("s9", "a", "SOFT_DELETED")]);
    let elsewhere = NodeObject { provider_id: Some(provider("openstack://Two/s1")), ..new_node("a") };
    let absent = NodeObject { provider_id: Some(provider("openstack:///s7")), ..new_node("a") };
    let taken = [new_node("a"), node("b", Some("openstack:///s1"), true)];
    for (nodes, servers, told) in [
        (&[new_node("a")][..], &twice, Some("2 servers of the project have the name")),
        (&[new_node("b")], &one, Some("no server of the project has the name")),
        (&[absent], &one, Some("the project has no server 00007337")),
        (&taken, &one, Some("is the Node b already")),
        (&[elsewhere], &one, None),
    ] {
        let steps = steps(nodes, servers);
        assert!(steps.is_empty(), "{steps:?}");
        let problems = problems(nodes, servers);
        assert_eq!(problems.len(), usize::from(told.is_some()), "{problems:?}");
        assert!(
            told.is_none_or(|it| problems[0].0 == Reason::NodeUninitialized && problems[0].1.contains(it)),
            "{problems:?}"
        );
    }
    assert_eq!(steps(&[new_node("a")], &one).len(), 2, "the one that is deleted does not count");
}

#[test]
fn nodes_of_others_are_left_alone() {
    let servers = servers(&[("s1", "a", "SHUTOFF"), ("s2", "b", "SHUTOFF")]);
    // A providerID of another provider made OCCM fail; one without was an error each cycle.
    let nodes = [
        node("a", Some("aws:///eu/i-1"), false),
        node("b", None, false),
        NodeObject { is_deleting: true, ..node("c", Some("openstack:///s1"), false) },
    ];
    assert!(steps(&nodes, &servers).is_empty() && problems(&nodes, &servers).is_empty());
}

#[test]
fn a_server_that_is_off_taints_its_node_until_this_is_ready() {
    for status in ["SHUTOFF", "SHELVED_OFFLOADED"] {
        let off = servers(&[("s1", "a", status)]);
        let silent = node("a", Some("openstack:///s1"), false);
        let steps_of = steps(std::slice::from_ref(&silent), &off);
        assert_eq!(steps_of, [(0, Step::Taint)], "{status}");
        let Some(NodePatch::Object(patch)) = Step::Taint.patch(&silent, &terms()) else { panic!() };
        assert_eq!(patch.taints, Some(vec![taint(SHUTDOWN)]));
        let tainted = NodeObject { taints: vec![taint("x"), taint(SHUTDOWN)], ..silent.clone() };
        assert!(steps(std::slice::from_ref(&tainted), &off).is_empty(), "once");
        let back = NodeObject { conditions: node("a", None, true).conditions, ..tainted };
        assert_eq!(steps(std::slice::from_ref(&back), &off), [(0, Step::Untaint)]);
        let Some(NodePatch::Object(patch)) = Step::Untaint.patch(&back, &terms()) else { panic!() };
        assert_eq!(patch.taints, Some(vec![taint("x")]));
        assert_eq!(Step::Taint.patch(&back, &terms()), None, "it is Ready by now");
    }
    let runs = servers(&[("s1", "a", "ACTIVE")]);
    assert!(steps(&[node("a", Some("openstack:///s1"), false)], &runs).is_empty());
}

#[test]
fn a_server_in_error_is_a_condition_and_a_problem_and_no_deletion() {
    for (status, reason) in [("ERROR", "ServerError"), ("SOFT_DELETED", "ServerSoftDeleted")] {
        let mut servers = servers(&[("s1", "a", status), ("s2", "b", "ACTIVE")]);
        servers.get_mut(&id("s1")).expect("it is there").fault = "No valid host".to_owned();
        let nodes = [node("a", Some("openstack:///s1"), false), node("b", Some("openstack:///s2"), true)];
        let planned = steps(&nodes, &servers);
        let [(0, Step::Condition { failed: true, reason: said, message })] = &planned[..] else {
            panic!("{planned:?}")
        };
        assert!(*said == reason && message.contains("No valid host"), "{message}");
        assert_eq!(problems(&nodes, &servers)[0].0, Reason::ServerFailed);
        assert!(
            MissingServers::default()
                .asks(ProjectView { nodes: &nodes, servers: &servers }, &terms())
                .ask
                .is_empty()
        );
        // It is said once, and taken back.
        let mut told = nodes.clone();
        told[0].conditions.insert(FAILED.to_owned(), ("True".to_owned(), reason.to_owned()));
        assert!(steps(&told, &servers).is_empty());
        servers.get_mut(&id("s1")).expect("it is there").status = "ACTIVE".to_owned();
        assert!(matches!(&steps(&told, &servers)[..], [(0, Step::Condition { failed: false, .. })]));
    }
}

#[test]
fn each_controller_does_its_own() {
    let servers = servers(&[("s1", "a", "SHUTOFF"), ("s2", "b", "ACTIVE")]);
    let nodes =
        [node("a", Some("openstack:///s1"), false), new_node("b"), node("c", Some("openstack:///s9"), false)];
    let seen = ProjectView { nodes: &nodes, servers: &servers };
    let of = |nodes, lifecycle| {
        let terms = NodeRules { nodes, lifecycle, ..terms() };
        (plan(seen, &terms).steps.len(), MissingServers::default().asks(seen, &terms).ask.len())
    };
    assert_eq!(
        (of(true, true), of(true, false), of(false, true), of(false, false)),
        ((3, 1), (2, 0), (1, 1), (0, 0))
    );
}

#[test]
fn labels_of_both_generations_are_the_same() {
    let servers = servers(&[("s1", "a", "ACTIVE")]);
    let mut node = node("a", Some("openstack:///s1"), true);
    node.labels = [
        ("topology.kubernetes.io/zone".to_owned(), "z".to_owned()),
        ("failure-domain.beta.kubernetes.io/zone".to_owned(), "y".to_owned()),
        ("node.kubernetes.io/instance-type".to_owned(), "m".to_owned()),
    ]
    .into();
    let planned = steps(std::slice::from_ref(&node), &servers);
    let [(0, Step::Labels(labels))] = &planned[..] else { panic!("{planned:?}") };
    assert_eq!(labels["failure-domain.beta.kubernetes.io/zone"], "z");
    node.labels.extend(labels.clone());
    assert!(steps(&[node], &servers).is_empty());
}

const fn at(seconds: u64) -> Time {
    Time(seconds * 1_000)
}

/// Asks as a pass does; what may be deleted then.
fn decide(
    suspects: &mut MissingServers,
    nodes: &[NodeObject],
    servers: &BTreeMap<Name, Server>,
    answer: ServerLookup,
    now: u64,
) -> Vec<String> {
    let terms = terms();
    let asks = suspects.asks(ProjectView { nodes, servers }, &terms);
    asks.ask
        .iter()
        .for_each(|(at_, id)| suspects.answered(&nodes[*at_], id, &answer, &terms.deletion, at(now)));
    let go = asks.ask.iter().filter(|(it, _)| suspects.may_delete(&nodes[*it], &terms, at(now)));
    go.map(|(it, _)| nodes[*it].name.to_string()).collect()
}

#[test]
fn a_node_goes_after_two_answers_a_grace_period_apart() {
    use ServerLookup::{Exists, Missing, Unknown};
    let gone = [node("a", Some("openstack:///s1"), false), node("b", Some("openstack:///s2"), true)];
    let found = servers(&[("s2", "b", "ACTIVE")]);
    let exists = || Exists("ACTIVE".to_owned());
    // Times and answers; whether it goes at the last.
    for (case, answers, goes) in [
        ("twice", vec![(0, Missing), (60, Missing)], true),
        ("once", vec![(0, Missing)], false),
        ("too early", vec![(0, Missing), (59, Missing)], false),
        ("the last is no answer", vec![(0, Missing), (60, Unknown)], false),
        ("no answer between", vec![(0, Missing), (30, Unknown), (60, Missing)], true),
        ("it was back between", vec![(0, Missing), (30, exists()), (60, Missing)], false),
        (
            "it was back, and then gone long enough",
            vec![(0, Missing), (30, exists()), (60, Missing), (120, Missing)],
            true,
        ),
        ("the clock was set back", vec![(100, Missing), (0, Missing), (60, Missing)], true),
        ("the clock was set back just now", vec![(100, Missing), (160, Unknown), (50, Missing)], false),
    ] {
        let mut suspects = MissingServers::default();
        let decided: Vec<bool> = answers
            .into_iter()
            .map(|(now, it)| !decide(&mut suspects, &gone, &found, it, now).is_empty())
            .collect();
        assert_eq!(decided.last(), Some(&goes), "{case}");
        assert!(decided.iter().rev().skip(1).all(|it| !it), "{case}: {decided:?}");
    }
    // What happens between the two.
    let ready = [node("a", Some("openstack:///s1"), true), gone[1].clone()];
    let another = [NodeObject { uid: "new".into(), ..gone[0].clone() }, gone[1].clone()];
    let moved =
        [NodeObject { provider_id: Some(provider("openstack:///s3")), ..gone[0].clone() }, gone[1].clone()];
    let listed = servers(&[("s1", "a", "ACTIVE"), ("s2", "b", "ACTIVE")]);
    for (nodes, servers) in [(&ready, &found), (&another, &found), (&moved, &found), (&gone, &listed)] {
        let mut suspects = MissingServers::default();
        assert!(decide(&mut suspects, &gone, &found, Missing, 0).is_empty());
        decide(&mut suspects, nodes, servers, Missing, 30);
        assert!(decide(&mut suspects, &gone, &found, Missing, 60).is_empty(), "{nodes:?} {servers:?}");
    }
    // The answer of a while ago is none of now.
    let mut suspects = MissingServers::default();
    decide(&mut suspects, &gone, &found, Missing, 0);
    decide(&mut suspects, &gone, &found, Missing, 60);
    assert!(
        suspects.may_delete(&gone[0], &terms(), at(65)) && !suspects.may_delete(&gone[0], &terms(), at(66))
    );
}

#[test]
fn no_node_goes_while_no_other_one_is_found() {
    // The credentials of another project: a list of others' servers, and 404 for ours.
    let nodes = [node("a", Some("openstack:///s1"), false), node("b", Some("openstack:///s2"), false)];
    let others = servers(&[("x1", "x", "ACTIVE"), ("x2", "a", "ACTIVE")]);
    let soft = servers(&[("s2", "b", "SOFT_DELETED")]);
    for servers in [others, soft, BTreeMap::new()] {
        let mut suspects = MissingServers::default();
        let asks = suspects.asks(ProjectView { nodes: &nodes, servers: &servers }, &terms());
        assert!(
            asks.ask.is_empty() && asks.problems.iter().all(|it| it.reason == Reason::NodeKept),
            "{asks:?}"
        );
    }
    let found = servers(&[("s2", "b", "ACTIVE")]);
    let asks = MissingServers::default().asks(ProjectView { nodes: &nodes, servers: &found }, &terms());
    assert_eq!((asks.ask, asks.problems.len()), (vec![(0, id("s1"))], 0));
}

#[test]
fn without_an_id_only_nodes_that_were_initialised_here_go() {
    // OCCM never deletes those.
    let initialised = NodeObject {
        annotations: [(SERVER.to_owned(), id("s1").to_string())].into(),
        ..node("a", None, false)
    };
    let nodes = [initialised, node("c", None, false), node("b", Some("openstack:///s2"), true)];
    let found = servers(&[("s2", "b", "ACTIVE")]);
    let mut suspects = MissingServers::default();
    decide(&mut suspects, &nodes, &found, ServerLookup::Missing, 0);
    assert_eq!(decide(&mut suspects, &nodes, &found, ServerLookup::Missing, 60), ["a"]);
}

#[test]
fn a_server_in_error_counts_as_gone_by_choice_alone() {
    let nodes = [node("a", Some("openstack:///s1"), false), node("b", Some("openstack:///s2"), true)];
    let servers = servers(&[("s1", "a", "ERROR"), ("s2", "b", "ACTIVE")]);
    for (chosen, goes) in [(&[][..], false), (&["SOFT_DELETED"], false), (&["ERROR"], true)] {
        let also_in = chosen.iter().map(|it: &&str| (*it).to_owned()).collect();
        let terms = NodeRules { deletion: Deletion { also_in, grace: Duration::from_secs(60) }, ..terms() };
        let mut suspects = MissingServers::default();
        let mut gone = false;
        for now in [0, 60] {
            for (node, id) in suspects.asks(ProjectView { nodes: &nodes, servers: &servers }, &terms).ask {
                let answer = ServerLookup::Exists("ERROR".to_owned());
                suspects.answered(&nodes[node], &id, &answer, &terms.deletion, at(now));
                gone = suspects.may_delete(&nodes[node], &terms, at(now));
            }
        }
        assert_eq!(gone, goes, "{chosen:?}");
    }
}
