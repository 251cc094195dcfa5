//! What is planned of routes and pairs, as tables; whole passes against the fake OpenStack; and that no history touches what is not
//! Seaway's.

mod guards;
mod histories;
mod passes;

use serde_json::{Value, json};

use seaway_cluster::{NodeAddress, NodeObject, RecordedPair, RecordedRoute};
use seaway_openstack::{
    neutron::{RoutedPort, Router},
    resource::{Fields, View},
};

use super::{place::network, *};

const ROUTER: &str = "r0000000-0000-4000-8000-000000000001";
const SUBNET: &str = "50000000-0000-4000-8000-000000000001";

fn read<V: View>(object: Value) -> V {
    V::read(Fields::of(object).expect("an object")).expect("it is understood")
}

fn router(routes: &[(&str, &str)]) -> Router {
    let routes: Vec<Value> =
        routes.iter().map(|(to, hop)| json!({"destination": to, "nexthop": hop})).collect();
    read(json!({"id": ROUTER, "name": "r", "status": "ACTIVE", "revision_number": 1, "routes": routes}))
}

fn interface() -> RoutedPort {
    read(json!({
        "id": "interface", "device_id": ROUTER, "device_owner": "network:router_interface", "mac_address": "fa:16:3e:00:00:01",
        "fixed_ips": [{"subnet_id": SUBNET, "ip_address": "10.0.0.1"}, {"subnet_id": SUBNET, "ip_address": "fd00::1"}],
    }))
}

fn port(short: &str, ips: &[&str], pairs: &[&str]) -> RoutedPort {
    let fixed: Vec<Value> = ips.iter().map(|ip| json!({"subnet_id": SUBNET, "ip_address": ip})).collect();
    let mac = "fa:16:3e:00:00:02";
    let pairs: Vec<Value> = pairs.iter().map(|it| json!({"ip_address": it, "mac_address": mac})).collect();
    read(json!({
        "id": format!("port-{short}"), "device_id": format!("server-{short}"), "device_owner": "compute:nova", "mac_address": mac,
        "fixed_ips": fixed, "allowed_address_pairs": pairs, "port_security_enabled": true, "revision_number": 1,
    }))
}

fn node(short: &str, ips: &[&str], networks: &[&str]) -> NodeObject {
    NodeObject {
        name: short.into(),
        uid: format!("uid-{short}").into(),
        version: "1".to_owned(),
        provider_id: Some(format!("openstack:///server-{short}")),
        pod_cidrs: networks.iter().map(ToString::to_string).collect(),
        addresses: ips.iter().map(|it| NodeAddress::new("InternalIP", it)).collect(),
        created: Some(Time(1_000_000)),
        ..NodeObject::default()
    }
}

fn net(text: &str) -> IpNet {
    network(text).expect("it is a network")
}

fn route(to: &str, hop: &str, node: &str, made: bool) -> RecordedRoute {
    let nexthop = hop.parse().expect("an address");
    RecordedRoute { router: ROUTER.into(), destination: net(to), nexthop, node: node.into(), made }
}

fn pair(port: &str, address: &str, node: &str) -> RecordedPair {
    RecordedPair { port: format!("port-{port}").into(), address: net(address), node: node.into() }
}

/// A router, two Nodes and their ports, with all that two Nodes need.
struct Scene {
    router: Router,
    ports: Vec<RoutedPort>,
    nodes: Vec<NodeObject>,
    record: RouteRecord,
    rules: RouteRules,
    subnets: Vec<IpNet>,
}

impl Scene {
    fn new(routes: &[(&str, &str)]) -> Scene {
        Scene {
            router: router(routes),
            ports: vec![
                interface(),
                port("a", &["10.0.0.5", "fd00::5"], &[]),
                port("b", &["10.0.0.6", "fd00::6"], &[]),
            ],
            nodes: vec![
                node("a", &["10.0.0.5"], &["10.1.1.0/24"]),
                node("b", &["10.0.0.6"], &["10.1.2.0/24"]),
            ],
            record: RouteRecord::default(),
            rules: RouteRules { pairs: true, ..RouteRules::default() },
            subnets: vec![net("10.0.0.0/24"), net("fd00::/64")],
        }
    }

    fn settled() -> Scene {
        let mut scene = Scene::new(&[("10.1.1.0/24", "10.0.0.5"), ("10.1.2.0/24", "10.0.0.6")]);
        scene.ports[1] = port("a", &["10.0.0.5"], &["10.1.1.0/24"]);
        scene.ports[2] = port("b", &["10.0.0.6"], &["10.1.2.0/24"]);
        scene.record.routes =
            [route("10.1.1.0/24", "10.0.0.5", "a", true), route("10.1.2.0/24", "10.0.0.6", "b", true)].into();
        scene.record.pairs = [pair("a", "10.1.1.0/24", "a"), pair("b", "10.1.2.0/24", "b")].into();
        scene
    }

    fn view(&self) -> RouterView<'_> {
        let Scene { router, ports, nodes, record, subnets, .. } = self;
        RouterView { router, ports, nodes, record, subnets }
    }

    fn decide(&self, answers: &[(RemovalPrecondition, bool)]) -> RouteWrites {
        let answers = answers.iter().cloned().collect();
        plan(self.view(), &self.rules).decide(self.view(), &self.rules, &answers)
    }

    /// What is added and removed, as text; `answer` to all that is asked.
    fn routes(&self, answer: bool) -> (Vec<String>, Vec<String>) {
        let asks = plan(self.view(), &self.rules).asks();
        let answers: Vec<_> = asks.into_iter().map(|it| (it, answer)).collect();
        let writes = self.decide(&answers);
        let text = |all: &[RecordedRoute]| -> Vec<String> {
            all.iter().map(|it| format!("{} {}", it.destination, it.nexthop)).collect()
        };
        (text(&writes.add), text(&writes.remove))
    }

    fn problems(&self) -> Vec<String> {
        self.decide(&[]).problems.into_iter().map(|it| it.message.to_string()).collect()
    }
}

fn none() -> (Vec<String>, Vec<String>) {
    (Vec::new(), Vec::new())
}

#[test]
fn each_pod_network_gets_a_route_and_a_pair_once() {
    let scene = Scene::new(&[("172.16.0.0/24", "10.0.0.9")]);
    let writes = scene.decide(&[]);
    assert_eq!(
        writes.add,
        [route("10.1.1.0/24", "10.0.0.5", "a", true), route("10.1.2.0/24", "10.0.0.6", "b", true)]
    );
    assert!(writes.remove.is_empty() && writes.problems.is_empty(), "{writes:?}");
    assert_eq!(writes.ports.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(writes.ports[&1].0, [net("10.1.1.0/24")].into());
    // It is recorded before it is written.
    assert_eq!(writes.record.routes.iter().cloned().collect::<Vec<_>>(), writes.add);
    assert_eq!(writes.record.pairs, [pair("a", "10.1.1.0/24", "a"), pair("b", "10.1.2.0/24", "b")].into());
    let scene = Scene::settled();
    let writes = scene.decide(&[]);
    assert_eq!((&writes.record, writes.ports.len()), (&scene.record, 0));
    assert_eq!(
        (scene.routes(true), scene.problems()),
        (none(), vec![]),
        "nothing changed, nothing is written"
    );
}

#[test]
fn both_families_and_networks_by_hand() {
    let mut scene = Scene::new(&[]);
    scene.nodes[0] = node("a", &["10.0.0.5", "fd00::5"], &["10.1.1.0/24", "fd01:1::/64"]);
    scene.nodes[1].pod_cidrs.clear();
    // As in the seed's map: the address of the bridge.
    scene.rules.pod_cidrs = [("b".into(), vec!["10.5.2.1/24".parse().unwrap()])].into();
    let (added, _) = scene.routes(true);
    assert_eq!(added, ["10.1.1.0/24 10.0.0.5", "10.5.2.0/24 10.0.0.6", "fd01:1::/64 fd00::5"]);
    assert_eq!(scene.decide(&[]).ports[&1].0.len(), 2, "one write for both families");
    // A Node without an address of the family, or with one that the router does not reach.
    scene.nodes[0].addresses.pop();
    scene.nodes[1].addresses =
        vec![NodeAddress::new("InternalIP", "192.0.2.1"), NodeAddress::new("ExternalIP", "10.0.0.6")];
    let problems = scene.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().all(|it| it.contains("gets no route: no port of the server")), "{problems:?}");
}

#[test]
fn a_port_without_port_security_or_with_a_wider_pair_is_left_alone() {
    let mut scene = Scene::new(&[]);
    scene.ports[1] = port("a", &["10.0.0.5"], &["10.1.0.0/16"]);
    scene.ports[2].port_security_enabled = Some(false);
    assert_eq!((scene.routes(true).0.len(), scene.decide(&[]).ports.len()), (2, 0));
    // With the MAC of another port it lets nothing through.
    scene.ports[1].allowed_address_pairs[0].mac_address = Some("fa:16:3e:00:00:99".to_owned());
    assert_eq!(scene.decide(&[]).ports.len(), 1);
    scene.rules.pairs = false;
    assert_eq!(scene.decide(&[]).ports.len(), 0, "a Neutron without pairs");
}

#[test]
fn pairs_are_looked_at_again_at_each_audit() {
    // OCCM looks at them when it makes a route, and never again.
    let mut scene = Scene::settled();
    scene.ports[1].allowed_address_pairs.clear();
    let writes = scene.decide(&[]);
    assert_eq!((writes.ports[&1].0.len(), scene.routes(true)), (1, none()));
}

#[test]
fn a_wrong_next_hop_is_corrected_where_it_is_ours_or_no_port() {
    let wrong = ("10.1.1.0/24", "10.0.0.99");
    let hop = "10.0.0.99".parse().unwrap();
    let ask =
        |made| if made { RemovalPrecondition::NotOfOthers(hop) } else { RemovalPrecondition::NoPort(hop) };
    for (recorded, answer, corrected) in [
        (Some(true), Some(true), true),
        (Some(true), Some(false), false),
        (Some(true), None, false),
        (Some(false), Some(true), true),
        (Some(false), Some(false), false),
        (None, Some(true), true),
        (None, Some(false), false),
        (None, None, false),
    ] {
        let mut scene = Scene::settled();
        scene.router = router(&[wrong, ("10.1.2.0/24", "10.0.0.6"), ("172.16.0.0/24", "10.0.0.9")]);
        scene.record.routes.pop_first();
        scene.record.routes.extend(recorded.map(|made| route(wrong.0, wrong.1, "a", made)));
        let answers: Vec<_> = answer.map(|it| (ask(recorded == Some(true)), it)).into_iter().collect();
        let writes = scene.decide(&answers);
        let case = format!("{recorded:?} {answer:?}: {writes:?}");
        assert_eq!((writes.add.len(), writes.remove.len()), (corrected.into(), corrected.into()), "{case}");
        assert_eq!(writes.problems.len(), usize::from(!corrected), "{case}");
        // What is not ours does not become ours by that.
        assert_eq!(
            writes.record.routes.iter().any(|it| it.nexthop.to_string() == wrong.1 && it.made),
            recorded == Some(true)
        );
    }
}

#[test]
fn routes_of_others_stay_also_those_that_lead_nowhere() {
    // Another cluster's, an operator's, one to a network of ours that is wider, and one whose next hop nobody has.
    let scene = Scene::new(&[
        ("10.9.1.0/24", "10.0.0.77"),
        ("0.0.0.0/0", "10.0.0.254"),
        ("10.1.0.0/16", "10.0.0.9"),
        ("10.1.1.0/25", "10.0.0.9"),
    ]);
    let (added, removed) = scene.routes(true);
    assert_eq!((added.len(), removed), (2, vec![]), "OCCM removes what it takes for a blackhole");
    let mut without_nodes = Scene::new(&[("10.9.1.0/24", "10.0.0.77")]);
    without_nodes.nodes.clear();
    assert_eq!(without_nodes.routes(true), none());
}

#[test]
fn a_route_goes_with_its_node_and_no_sooner() {
    let gone = || RemovalPrecondition::NoNode("b".into());
    let mut scene = Scene::settled();
    scene.nodes.pop();
    scene.ports.pop();
    assert_eq!(scene.decide(&[(gone(), false)]).remove, [], "the list was wrong");
    assert_eq!(scene.decide(&[]).remove, [], "nobody has answered");
    assert_eq!(scene.decide(&[(gone(), true)]).remove, [], "who has the next hop is not known");
    let hop = RemovalPrecondition::NotOfOthers("10.0.0.6".parse().unwrap());
    assert_eq!(
        scene.decide(&[(gone(), true), (hop.clone(), false)]).remove,
        [],
        "the original of a copy has it"
    );
    assert_eq!(
        scene.decide(&[(gone(), true), (hop, true)]).remove,
        [route("10.1.2.0/24", "10.0.0.6", "b", true)]
    );
    // One that was there before goes if its next hop is no port, too: OCCM kept it for ever.
    scene.record.routes.pop_last();
    scene.record.routes.insert(route("10.1.2.0/24", "10.0.0.6", "b", false));
    let port = RemovalPrecondition::NoPort("10.0.0.6".parse().unwrap());
    assert_eq!(scene.decide(&[(gone(), true), (port.clone(), false)]).remove, []);
    assert_eq!(scene.decide(&[(gone(), true), (port, true)]).remove.len(), 1);
    // Without a record, it is not ours.
    scene.record.routes.pop_last();
    assert_eq!(scene.routes(true), none());
}

#[test]
fn nothing_is_removed_while_no_node_is_found_at_the_router() {
    // A list of Nodes that is empty, ports of another project, a Node that has its network no more.
    let mut scenes = [Scene::settled(), Scene::settled(), Scene::settled()];
    scenes[0].nodes.clear();
    scenes[1].ports.truncate(1);
    scenes[2].nodes[1].pod_cidrs.clear();
    for scene in &scenes {
        assert_eq!(scene.routes(true), none());
        assert!(!scene.problems().is_empty());
        assert_eq!(scene.decide(&[]).record.routes, scene.record.routes, "they stay ours");
    }
}

#[test]
fn another_network_of_a_node_replaces_the_one_before() {
    let mut scene = Scene::settled();
    scene.nodes[1].pod_cidrs = vec!["10.1.9.0/24".to_owned()];
    assert_eq!(
        scene.routes(true),
        (vec!["10.1.9.0/24 10.0.0.6".to_owned()], vec!["10.1.2.0/24 10.0.0.6".to_owned()])
    );
    let writes = scene.decide(&[]);
    assert_eq!(
        writes.ports[&2],
        ([net("10.1.9.0/24")].into(), [net("10.1.2.0/24")].into()),
        "one write of the port"
    );
    // Another Node has it by now.
    let mut scene = Scene::settled();
    scene.nodes[0].pod_cidrs = vec!["10.1.2.0/24".to_owned()];
    scene.nodes[1].pod_cidrs = vec!["10.1.3.0/24".to_owned()];
    let (added, removed) = scene.routes(true);
    assert_eq!(added, ["10.1.2.0/24 10.0.0.5", "10.1.3.0/24 10.0.0.6"]);
    assert_eq!(removed, ["10.1.2.0/24 10.0.0.6", "10.1.1.0/24 10.0.0.5"]);
}

#[test]
fn a_network_that_would_take_other_traffic_gets_no_route() {
    for (network, why) in [
        ("0.0.0.0/0", "the network contains all addresses"),
        ("10.0.0.0/8", "the address 10.0.0.5 of the Node is in it"),
        ("10.0.0.0/30", "the address 10.0.0.1 of the router is in it"),
        ("10.1.2.128/25", "the pod network overlaps with 10.1.2.0/24 of Node b"),
        ("pods", "is not a network"),
    ] {
        let mut scene = Scene::new(&[]);
        scene.nodes[0].pod_cidrs = vec![network.to_owned()];
        let problems = scene.problems();
        assert!(problems.iter().any(|it| it.contains(why)), "{network}: {problems:?}");
        assert!(!scene.routes(true).0.iter().any(|it| it.ends_with(".5")), "{network}");
    }
}

#[test]
fn limits_are_reported_before_anything_is_written() {
    let theirs: Vec<(String, String)> =
        (0..29).map(|it| (format!("172.16.{it}.0/24"), "10.0.0.9".to_owned())).collect();
    let theirs: Vec<(&str, &str)> = theirs.iter().map(|(to, hop)| (&**to, &**hop)).collect();
    let mut scene = Scene::new(&theirs);
    // Nothing is known of the limit: what Neutron has by itself.
    assert!(
        scene.problems()[0].contains("will have 31 routes. Neutron refuses more than 30"),
        "{:?}",
        scene.problems()
    );
    assert_eq!(scene.routes(true).0.len(), 2);
    scene.rules.max_routes = Some(30);
    assert_eq!(scene.routes(true).0, ["10.1.1.0/24 10.0.0.5"], "as many as there is room for");
    assert!(scene.problems()[0].contains("the limit is 30"), "{:?}", scene.problems());
    scene.rules.max_routes = Some(31);
    assert_eq!((scene.routes(true).0.len(), scene.problems()), (2, vec![]));
    let pairs: Vec<String> = (0..10).map(|it| format!("192.0.2.{it}")).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    scene.ports[1] = port("a", &["10.0.0.5"], &pairs);
    assert!(scene.problems()[0].contains("Neutron refuses more than 10"), "{:?}", scene.problems());
    scene.rules.max_pairs = Some(10);
    assert!(scene.problems()[0].contains("10.1.1.0/24 is not added"), "{:?}", scene.problems());
    assert_eq!(scene.decide(&[]).ports.keys().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn what_is_gone_is_not_ours_any_more_and_another_router_is_not_touched() {
    let mut scene = Scene::settled();
    scene.record.routes.insert(route("10.1.7.0/24", "10.0.0.7", "c", true));
    scene.record.pairs.insert(pair("gone", "10.1.7.0/24", "c"));
    let before = RecordedRoute { router: "before".into(), ..route("10.1.8.0/24", "10.0.0.8", "d", true) };
    scene.record.routes.insert(before.clone());
    let writes = scene.decide(&[]);
    assert!(writes.record.routes.contains(&before) && writes.record.routes.len() == 3, "{writes:?}");
    assert_eq!((writes.record.pairs.len(), writes.remove.len()), (2, 0));
    assert!(scene.problems()[0].contains("at another router, before, stay there"), "{:?}", scene.problems());
}

#[test]
fn nodes_of_other_clouds_have_no_routes() {
    let mut scene = Scene::new(&[]);
    scene.nodes[0].provider_id = Some("aws:///eu/i-1".to_owned());
    scene.nodes[1].provider_id = None;
    assert_eq!((scene.routes(true), scene.problems()), (none(), vec![]));
    let elsewhere =
        NodeObject { provider_id: Some("openstack://Two/server-a".to_owned()), ..scene.nodes[0].clone() };
    scene.nodes[0] = elsewhere;
    scene.rules.region = Some("One".to_owned());
    assert_eq!(scene.routes(true), none());
}
