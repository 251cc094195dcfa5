//! At which addresses Nodes are members of load balancers in a cloud, and those that are about to go.

use std::sync::Arc;

use seaway_model::{
    Change, Fact,
    config::{CloudDefaults, CloudNetworking},
    fact::{Families, FamilyPolicy, Meta, Node, Service},
    load_balancer::{Family, MemberState},
};
use seaway_testkit::facts::{ip, put};

use super::clouds::{clouded, planned, usual, world};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

fn node(name: &str, internal: &[&str], external: &[&str]) -> Node {
    let addresses = internal.iter().chain(external).map(|it| ip(it)).collect();
    let meta = Meta { name: name.into(), ..Meta::default() };
    let external = external.iter().map(|it| ip(it)).collect();
    Node { meta, addresses, external, ready: true, ..Node::default() }
}

fn put_node(node: Node) -> Change {
    Change::Put(Fact::Node(Arc::new(node)))
}

/// Without the Node that each world has.
fn members(usual: CloudDefaults, shop: &Service, nodes: Vec<Node>) -> Vec<(String, MemberState)> {
    let nodes = nodes.into_iter().map(put_node);
    let zero = Change::Gone(seaway_model::fact::FactRef::Object(seaway_model::ObjectRef::new(
        seaway_model::Kind::Node,
        "",
        "zero",
    )));
    let mut world = world(usual, [put(shop)].into_iter().chain(nodes).collect());
    world.apply(zero);
    let it = planned(&world, shop);
    it.pools.values().flat_map(|it| &it.members).map(|it| (it.at.ip().to_string(), it.state)).collect()
}

fn addresses(usual: CloudDefaults, shop: &Service, nodes: Vec<Node>) -> Vec<String> {
    members(usual, shop, nodes).into_iter().map(|(at, _)| at).collect()
}

#[test]
fn a_node_is_a_member_at_its_own_address_before_one_of_the_outside() {
    let two = || vec![node("a", &["10.0.0.1"], &["192.0.2.1"]), node("b", &[], &["192.0.2.2"])];
    assert_eq!(addresses(usual(), &clouded(&[]), two()), ["10.0.0.1", "192.0.2.2"]);
    // Told in this order, whatever their types.
    let mut outside_first = node("a", &["10.0.0.1"], &["192.0.2.1"]);
    outside_first.addresses.reverse();
    assert_eq!(addresses(usual(), &clouded(&[]), vec![outside_first]), ["10.0.0.1"]);
}

#[test]
fn address_sort_order_says_which_of_its_own_addresses_it_is() {
    let node = || vec![node("a", &["10.0.0.1", "172.16.0.1", "192.168.0.1"], &["172.16.9.9"])];
    let sorted = |order: &[&str]| {
        let order = order.iter().map(|it| it.parse().expect("a network")).collect();
        CloudDefaults { networking: CloudNetworking { order, ..CloudNetworking::default() }, ..usual() }
    };
    for (order, expected) in [
        (&[][..], "10.0.0.1"),
        (&["192.168.0.0/16", "10.0.0.0/8"], "192.168.0.1"),
        (&["172.16.0.0/12"], "172.16.0.1"),
        (&["fd00::/8"], "10.0.0.1"),
    ] {
        assert_eq!(addresses(sorted(order), &clouded(&[]), node()), [expected], "{order:?}");
    }
}

#[test]
fn a_node_without_an_address_of_its_family_is_no_member() {
    let mut shop = clouded(&[]);
    shop.families = Families { first: Some(Family::V6), second: None, policy: FamilyPolicy::Single };
    let nodes = vec![node("a", &["10.0.0.1", "fd00::1"], &[]), node("b", &["10.0.0.2"], &[])];
    assert_eq!(addresses(usual(), &shop, nodes), ["fd00::1"]);
}

#[test]
fn a_node_that_is_about_to_go_drains_unless_it_would_be_the_last() {
    use MemberState::{Draining, Ready};
    let leaving = |name: &str, at: &str| Node { leaving: true, ..node(name, &[at], &[]) };
    let shop = clouded(&[]);
    let found = members(usual(), &shop, vec![leaving("a", "10.0.0.1"), node("b", &["10.0.0.2"], &[])]);
    assert_eq!(found, [("10.0.0.1".into(), Draining), ("10.0.0.2".into(), Ready)]);
    let found = members(usual(), &shop, vec![leaving("a", "10.0.0.1"), leaving("b", "10.0.0.2")]);
    assert_eq!(found, [("10.0.0.1".into(), Ready), ("10.0.0.2".into(), Ready)]);
}

#[test]
fn the_label_that_excludes_a_node_is_read_as_kubernetes_reads_it() {
    for (value, is_member) in [("", false), ("true", false), ("maybe", false), ("false", true), ("0", true)] {
        let mut labelled = node("a", &["10.0.0.1"], &[]);
        labelled.meta.labels.insert(EXCLUDE.into(), value.into());
        let found = addresses(usual(), &clouded(&[]), vec![labelled]);
        assert_eq!(found.len(), usize::from(is_member), "{value:?}: {found:?}");
    }
}
