//! Where there is a doubt, a Node is kept, or stays as it is, and that is told.

use seaway_model::config::CloudNetworking;

use super::*;

type Change = fn(&mut NodeObject);

fn found() -> BTreeMap<Name, Server> {
    servers(&[("s2", "b", "ACTIVE")])
}

/// Whose server is gone, and one whose server is there.
fn nodes() -> [NodeObject; 2] {
    [node("a", Some("openstack:///s1"), false), node("b", Some("openstack:///s2"), true)]
}

fn be(node: &mut NodeObject, id: &str) {
    node.provider_id = Some(format!("openstack:///{id}"));
    node.annotations = [(SERVER.to_owned(), id.to_owned())].into();
}

#[test]
fn a_node_of_which_something_is_in_doubt_is_not_even_asked_for() {
    let somewhere = |region: Option<&str>, has_several_regions| NodeRules {
        region: region.map(str::to_owned),
        has_several_regions,
        ..terms()
    };
    let label: Change =
        |it| drop(it.labels.insert("topology.kubernetes.io/region".to_owned(), "One".to_owned()));
    let cases: [(&str, Change, NodeRules, Option<&str>); 10] = [
        ("nothing", |_| (), terms(), None),
        ("it says that it is of this region", label, terms(), None),
        ("no region at all", |_| (), somewhere(None, false), None),
        ("never found", |it| it.annotations.clear(), terms(), Some("has never found that server")),
        (
            "another one was found",
            |it| drop(it.annotations.insert(SERVER.to_owned(), id("s3").to_string())),
            terms(),
            Some("has never found that server"),
        ),
        (
            "upper case",
            |it| be(it, "C3B1A5E0-2F5B-4D55-9A0B-8F1B0C0E0001"),
            terms(),
            Some("not a UUID in lower case, as OpenStack"),
        ),
        ("no id", |it| be(it, "web-1"), terms(), Some("not a UUID in lower case, as OpenStack")),
        (
            "a region, and none is configured",
            label,
            somewhere(None, false),
            Some("cloud.conf names no region"),
        ),
        ("several regions", |_| (), somewhere(None, true), Some("the cloud has several regions")),
        // What a Node says of itself that nothing has checked yet is told by the plan.
        ("not initialised", |it| it.taints.push(taint(UNINITIALIZED)), terms(), Some("")),
    ];
    for (case, change, terms, told) in cases {
        let mut nodes = nodes();
        change(&mut nodes[0]);
        let servers = found();
        let seen = ProjectView { nodes: &nodes, servers: &servers };
        let PlannedLookups { ask, problems } = MissingServers::default().asks(seen, &terms);
        assert_eq!(ask.is_empty(), told.is_some(), "{case}: {ask:?}");
        let wanted = told.filter(|it| !it.is_empty());
        assert_eq!(problems.len(), usize::from(wanted.is_some()), "{case}: {problems:?}");
        if let Some(wanted) = wanted {
            let Problem { reason, message, .. } = &problems[0];
            assert!(*reason == Reason::NodeKept && message.contains(wanted), "{case}: {message}");
        }
        // It becomes so after the last answer.
        let mut suspects = MissingServers::default();
        let before = self::nodes();
        for now in [0, 60] {
            decide(&mut suspects, &before, &servers, ServerLookup::Missing, now);
        }
        assert!(suspects.may_delete(&before[0], &super::terms(), at(60)));
        assert_eq!(suspects.may_delete(&nodes[0], &terms, at(60)), told.is_none(), "{case}");
    }
}

#[test]
fn nodes_that_are_one_server_are_kept_and_stay_as_they_are() {
    let nodes = [
        node("a", Some("openstack:///s1"), false),
        node("b", Some("openstack:///s2"), true),
        node("c", Some("openstack:///s1"), false),
    ];
    let gone = found();
    let asks = MissingServers::default().asks(ProjectView { nodes: &nodes, servers: &gone }, &terms());
    assert!(asks.ask.is_empty(), "{asks:?}");
    assert!(asks.problems.len() == 2 && asks.problems[0].message.contains("several Nodes"), "{asks:?}");
    assert!(asks.problems[0].message.contains("a, c"), "{asks:?}");
    // None of them waits to be initialised.
    let there = servers(&[("s1", "a", "SHUTOFF"), ("s2", "b", "ACTIVE")]);
    assert!(steps(&nodes, &there).is_empty());
    let told = problems(&nodes, &there);
    assert!(told.len() == 2 && told.iter().all(|it| it.1.contains("several Nodes")), "{told:?}");
}

#[test]
fn a_node_that_another_initialised_is_deleted_once_its_server_was_found() {
    let mut nodes = nodes();
    nodes[0].annotations.clear();
    let there = servers(&[("s1", "a", "ACTIVE"), ("s2", "b", "ACTIVE")]);
    assert_eq!(steps(&nodes, &there), [(0, Step::Remember(id("s1")))]);
    let step = Step::Remember(id("s1"));
    let Some(NodePatch::Object(patch)) = step.patch(&nodes[0], &terms()) else { panic!() };
    assert_eq!(patch.annotations[SERVER], id("s1").to_string());
    assert_eq!((patch.taints, patch.provider_id), (None, None));
    let other = NodeObject { provider_id: Some(provider("openstack:///s3")), ..nodes[0].clone() };
    assert_eq!(step.patch(&other, &terms()), None, "it is another server by now");
    nodes[0].annotations.extend(patch.annotations);
    assert!(steps(&nodes, &there).is_empty(), "once");
    let asks = MissingServers::default().asks(ProjectView { nodes: &nodes, servers: &found() }, &terms());
    assert_eq!(asks.ask, [(0, id("s1"))]);
    // One that says of itself which server it is was not found by that.
    let waits = NodeObject { provider_id: Some(provider("openstack:///s1")), ..new_node("a") };
    assert!(steps(&[waits], &there).iter().all(|(_, it)| !matches!(it, Step::Remember(_))));
}

#[test]
fn no_edit_of_cloud_conf_takes_the_internal_address_away() {
    let mut of = server("s1", "a", "ACTIVE");
    let at = ServerAddress { ip: "10.0.0.5".parse().expect("an address"), is_floating: false };
    of.addresses = [("net".to_owned(), vec![at])].into();
    let servers = [(of.id.clone(), of)].into();
    let internal = CloudNetworking { internal: vec!["other".into()], ..CloudNetworking::default() };
    let public = CloudNetworking { public: vec!["net".into()], ..CloudNetworking::default() };
    let planned = |node: NodeObject, networking: &CloudNetworking| {
        let terms = NodeRules { networking: networking.clone(), ..terms() };
        plan(ProjectView { nodes: &[node], servers: &servers }, &terms)
    };
    for networking in [&internal, &public] {
        for ready in [true, false] {
            let Plan { steps, problems } = planned(node("a", Some("openstack:///s1"), ready), networking);
            assert!(steps.is_empty(), "{steps:?}");
            assert!(problems.len() == 1 && problems[0].message.contains("InternalIP"), "{problems:?}");
        }
    }
    // One that has none may have another.
    let external = NodeObject {
        addresses: vec![NodeAddress::new("ExternalIP", "192.0.2.1")],
        ..node("a", Some("openstack:///s1"), true)
    };
    let Plan { steps, problems } = planned(external, &public);
    assert!(matches!(&steps[..], [(0, Step::Addresses(_))]) && problems.is_empty(), "{steps:?} {problems:?}");
}

#[test]
fn a_node_without_an_address_is_not_initialised() {
    let bare = Server { ports: Vec::new(), host_name: "a.example".into(), ..server("s1", "a", "ACTIVE") };
    let unread = Server { unread_network: "n1".into(), ..server("s1", "a", "ACTIVE") };
    for (server, told) in [(&bare, "has no IP address yet"), (&unread, "the network n1")] {
        let servers = [(server.id.clone(), server.clone())].into();
        assert!(steps(&[new_node("a")], &servers).is_empty(), "{told}");
        let all = problems(&[new_node("a")], &servers);
        assert!(all.len() == 1 && all[0].1.contains(told), "{all:?}");
        assert!(steps(&[node("a", Some("openstack:///s1"), true)], &servers).is_empty(), "{told}");
    }
    // It has what its kubelet said, and says which server it is.
    let said = NodeObject {
        provider_id: Some(provider("openstack:///s1")),
        addresses: vec![address()],
        ..new_node("a")
    };
    let servers = [(bare.id.clone(), bare)].into();
    assert!(matches!(&steps(&[said], &servers)[..], [(0, Step::Initialize { .. })]));
}

#[test]
fn a_server_of_the_same_name_with_another_address_is_another_one() {
    let servers = servers(&[("s1", "a", "ACTIVE")]);
    let cases: [(&str, Change, bool); 5] = [
        ("it says nothing", |_| (), true),
        ("its own", |it| it.addresses = vec![address()], true),
        ("another", |it| it.addresses = vec![NodeAddress::new("InternalIP", "10.0.0.9")], false),
        ("one of two", |it| it.addresses = vec![address(), NodeAddress::new("InternalIP", "fd00::9")], false),
        (
            "started with another",
            |it| {
                drop(it.annotations.insert("alpha.kubernetes.io/provided-node-ip".into(), "10.0.0.9".into()))
            },
            false,
        ),
    ];
    for (case, change, is_it) in cases {
        let mut node = new_node("a");
        change(&mut node);
        let nodes = [node];
        assert_eq!(!steps(&nodes, &servers).is_empty(), is_it, "{case}");
        let told = problems(&nodes, &servers);
        assert_eq!(told.iter().any(|it| it.1.contains("but not its address")), !is_it, "{case}: {told:?}");
    }
}

#[test]
fn a_region_that_is_no_label_is_written_as_one() {
    let servers = servers(&[("s1", "a", "ACTIVE")]);
    let terms = NodeRules { region: Some("One (east)".to_owned()), ..terms() };
    let planned = plan(ProjectView { nodes: &[new_node("a")], servers: &servers }, &terms);
    let labels = planned.steps.iter().find_map(|(_, it)| match it {
        Step::Initialize { labels, .. } => Some(labels),
        _ => None,
    });
    let labels = labels.expect("it is initialised");
    assert_eq!(labels["topology.kubernetes.io/region"], "One-east");
    assert_eq!(labels["failure-domain.beta.kubernetes.io/region"], "One-east");
}

#[test]
fn those_that_are_not_answered_do_not_starve_the_others() {
    let mut nodes: Vec<NodeObject> =
        (0..120).map(|it| node(&format!("n{it:03}"), Some(&format!("openstack:///g{it}")), false)).collect();
    nodes.push(node("b", Some("openstack:///s2"), true));
    let (mut suspects, servers, terms) = (MissingServers::default(), found(), terms());
    let mut asked = std::collections::BTreeSet::new();
    for answer in [ServerLookup::Unknown, ServerLookup::Unreachable, ServerLookup::Missing] {
        let asks = suspects.asks(ProjectView { nodes: &nodes, servers: &servers }, &terms);
        assert_eq!(asks.ask.len(), 50);
        for (of, id) in asks.ask {
            suspects.answered(&nodes[of], &id, &answer, &terms.deletion, at(0));
            asked.insert(of);
        }
    }
    assert_eq!(asked.len(), 120);
}

#[test]
fn a_grace_period_that_is_over_is_waited_for_no_more() {
    let (mut suspects, nodes, servers, terms) = (MissingServers::default(), nodes(), found(), terms());
    decide(&mut suspects, &nodes, &servers, ServerLookup::Missing, 10);
    assert_eq!(suspects.next(&terms, at(10)), Some(at(70)));
    assert_eq!(suspects.next(&terms, at(69)), Some(at(70)));
    assert_eq!(suspects.next(&terms, at(70)), None);
    assert_eq!(suspects.next(&terms, at(700)), None);
}

#[test]
fn a_server_that_counts_as_gone_is_not_said_to_be_missing() {
    let nodes = nodes();
    let deletion = Deletion { also_in: ["ERROR".to_owned()].into(), ..Deletion::default() };
    for (answer, told) in [
        (ServerLookup::Missing, "does not exist any more"),
        (ServerLookup::Exists("ERROR".to_owned()), "is in ERROR, and nodes.deleteIn counts that as gone"),
    ] {
        let mut suspects = MissingServers::default();
        suspects.answered(&nodes[0], &id("s1"), &answer, &deletion, at(0));
        assert_eq!(suspects.answer(&nodes[0]).to_string(), told);
    }
    // The same where it is kept.
    let error = servers(&[("s1", "a", "ERROR")]);
    let terms = NodeRules { deletion, ..terms() };
    let asks = MissingServers::default().asks(ProjectView { nodes: &nodes[..1], servers: &error }, &terms);
    assert!(asks.problems[0].message.contains("is in ERROR, and"), "{asks:?}");
}
