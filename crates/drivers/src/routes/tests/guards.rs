//! What stops a write that could take something from others: tables.

use std::collections::BTreeSet;

use super::*;

#[test]
fn only_a_new_node_becomes_unavailable_and_a_wrong_router_stops_no_cluster() {
    use conditions::{NodeRouteState, due};
    let minutes = |it: u64| Time(1_000_000 + it * 60_000);
    let ours = Some(("True", "NoRouteCreated"));
    let theirs = Some(("True", "CalicoIsDown"));
    let ready = Some(("False", "RouteCreated"));
    for (routing, before, age, expected) in [
        (NodeRouteState::Incomplete, None, 0, Some(true)),
        (NodeRouteState::Incomplete, None, 9, Some(true)),
        (NodeRouteState::Incomplete, None, 11, None),
        (NodeRouteState::Incomplete, ready, 0, None),
        (NodeRouteState::Incomplete, ours, 11, None),
        (NodeRouteState::Complete, None, 11, Some(false)),
        (NodeRouteState::Complete, ours, 11, Some(false)),
        (NodeRouteState::Complete, ready, 0, None),
        (NodeRouteState::Unknown, None, 0, None),
        (NodeRouteState::Unknown, ready, 0, None),
        (NodeRouteState::Unknown, theirs, 0, None),
        (NodeRouteState::Unknown, ours, 11, Some(false)),
    ] {
        let mut node = node("a", &[], &[]);
        node.conditions.extend(before.map(|(status, reason)| {
            ("NetworkUnavailable".to_owned(), (status.to_owned(), reason.to_owned()))
        }));
        let status = due(&node, routing, minutes(age)).map(|it| it.status);
        assert_eq!(status, expected, "{routing:?} {before:?} {age}");
    }
    let unknown = NodeObject { created: None, ..node("a", &[], &[]) };
    assert_eq!(due(&unknown, NodeRouteState::Incomplete, minutes(0)), None, "its age is not known");
}

#[test]
fn a_next_hop_is_that_of_no_other_only_where_all_ports_are_listed() {
    let ip = |it: &str| it.parse::<std::net::IpAddr>().unwrap();
    let a_only = || vec![interface(), port("a", &["10.0.0.5"], &[])];
    let vip = || vec![port("a", &["10.0.0.5"], &["10.0.0.9"])];
    let wide = || vec![port("a", &["10.0.0.5"], &["10.0.0.0/24"])];
    let servers: BTreeSet<Name> = ["server-a".into()].into();
    // The ports of the network, whether they are all, the next hop; whether no port has it, and whether no port of others has it.
    for (ports, is_whole, hop, no_port, no_other) in [
        (a_only(), true, "10.0.0.9", true, true),
        (a_only(), false, "10.0.0.9", false, false),
        (a_only(), true, "10.0.0.5", false, true),
        (a_only(), false, "10.0.0.5", false, true),
        (a_only(), true, "10.0.0.1", false, false),
        (vec![port("b", &["10.0.0.6"], &[])], true, "10.0.0.6", false, false),
        (vip(), true, "10.0.0.9", false, false),
        (wide(), true, "10.0.0.9", false, true),
    ] {
        let neighbors = super::read::NetworkPorts { ports, is_whole };
        let case = format!("{neighbors:?} {hop}");
        assert_eq!(neighbors.has_no_port(ip(hop)), no_port, "{case}");
        assert_eq!(neighbors.has_no_other(ip(hop), &servers), no_other, "{case}");
    }
}

#[test]
fn a_pair_stays_at_a_port_that_is_of_no_node() {
    // A copy of the cluster: its Node was deleted there, and the server is a Node of the original.
    let mut scene = Scene::settled();
    scene.nodes.pop();
    let gone = [
        (RemovalPrecondition::NoNode("b".into()), true),
        (RemovalPrecondition::NotOfOthers("10.0.0.6".parse().unwrap()), false),
    ];
    let writes = scene.decide(&gone);
    assert!(writes.ports.is_empty() && writes.remove.is_empty(), "{writes:?}");
    assert_eq!(writes.record, scene.record, "they stay recorded");
    let messages: Vec<String> = writes.problems.iter().map(|it| it.message.to_string()).collect();
    assert!(
        messages.iter().any(|it| it.contains("the allowed address pair 10.1.2.0/24 of port port-b")),
        "{messages:?}"
    );
    assert!(
        messages.iter().any(|it| it.contains("via 10.0.0.6") && it.contains("restored backup")),
        "{messages:?}"
    );
}

#[test]
fn pairs_stay_recorded_while_ports_are_not_listed() {
    let mut scene = Scene::settled();
    scene.ports.truncate(1);
    assert_eq!(scene.decide(&[]).record.pairs, scene.record.pairs);
    let mut scene = Scene::settled();
    scene.ports.pop();
    assert_eq!(scene.decide(&[]).record.pairs.len(), 1, "the port is gone, and others are there");
}

#[test]
fn a_network_with_addresses_that_are_in_use_gets_neither_route_nor_pair() {
    for (network, why) in [
        ("10.0.0.128/25", Some("the network overlaps with the subnet 10.0.0.0/24 of the router")),
        ("172.20.0.0/24", Some("the address 172.20.0.9 of another port is in it")),
        ("128.0.0.0/1", Some("the address 172.20.0.9 of another port is in it")),
        ("172.21.0.0/24", None),
        ("172.20.1.0/24", None),
    ] {
        let mut scene = Scene::new(&[]);
        scene.ports.push(port("c", &["172.20.0.9"], &[]));
        scene.ports[1].fixed_ips.extend(port("a", &["172.21.0.9"], &[]).fixed_ips);
        scene.nodes[0].pod_cidrs = vec![network.to_owned()];
        let problems = scene.problems();
        assert_eq!(
            problems.iter().any(|it| it.contains(why.unwrap_or("gets no route"))),
            why.is_some(),
            "{network}: {problems:?}"
        );
        let has_route = scene.routes(true).0.iter().any(|it| it.ends_with(".5"));
        assert_eq!(
            (has_route, scene.decide(&[]).ports.contains_key(&1)),
            (why.is_none(), why.is_none()),
            "{network}"
        );
    }
}

#[test]
fn removals_and_corrections_are_written_before_what_may_be_too_much() {
    let theirs: Vec<(String, String)> =
        (0..28).map(|it| (format!("172.16.{it}.0/24"), "10.0.0.9".to_owned())).collect();
    for (count, limit, expected) in [
        // Added and removed by each PUT.
        (26, None, vec![(2, 1)]),
        (28, None, vec![(1, 1), (1, 0)]),
        (28, Some(31), vec![(2, 1)]),
        (28, Some(29), vec![(1, 1)]),
        (28, Some(10), vec![(1, 1)]),
    ] {
        let mut routes: Vec<(&str, &str)> =
            theirs.iter().take(count).map(|(to, hop)| (&**to, &**hop)).collect();
        routes.push(("10.1.2.0/24", "10.0.0.99"));
        if count == 28 {
            routes.push(("172.17.0.0/24", "10.0.0.9"));
        }
        let mut scene = Scene::new(&routes);
        scene.rules.max_routes = limit;
        let writes = scene.decide(&[(RemovalPrecondition::NoPort("10.0.0.99".parse().unwrap()), true)]);
        let puts: Vec<_> = act::parts(&writes).iter().map(|it| (it.add.len(), it.remove.len())).collect();
        assert_eq!(puts, expected, "{count} {limit:?}: {writes:?}");
        assert_eq!(writes.add[0].destination, net("10.1.2.0/24"), "the correction is not left out");
    }
}

#[test]
fn the_next_pass_asks_what_this_one_did_not() {
    let mut scene = Scene::settled();
    let mut routes = vec![("10.1.1.0/24".to_owned(), "10.0.0.5".to_owned())];
    for at in 10..20 {
        let (to, hop) = (format!("10.2.{at}.0/24"), format!("10.0.0.{at}"));
        scene.record.routes.insert(route(&to, &hop, &format!("gone{at}"), false));
        routes.push((to, hop));
    }
    let routes: Vec<(&str, &str)> = routes.iter().map(|(to, hop)| (&**to, &**hop)).collect();
    scene.router = router(&routes);
    let plan = plan(scene.view(), &scene.rules);
    let (mut asked, mut turn) = (BTreeSet::new(), 0);
    for pass in 1..=3 {
        let (questions, next) = plan.questions(turn, 8);
        assert_eq!(questions.len(), 8, "whole removals in pass {pass}: {questions:?}");
        asked.extend(questions);
        turn = next;
    }
    assert_eq!(asked, plan.asks());
    assert_eq!(plan.questions(3, 100), (plan.asks(), 3));
}
