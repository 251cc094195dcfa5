//! `nodes`: which Nodes of a cloud are deleted, by a controller with cloud-node-lifecycle; which networks their pods have, and how
//! many routes and address pairs there may be, by one with route.

use std::time::Duration;

use seaway_drivers::{nodes::Deletion, routes::PodNetworks};
use seaway_manifests::decode::Field;

/// Less than a cloud may take to answer rightly again.
const LEAST: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(24 * 3_600);

/// What is said of Nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeKeys {
    pub(crate) deletion: Deletion,
    /// Instead of what Nodes say themselves.
    pub(crate) pod_cidrs: PodNetworks,
    pub(crate) max_routes: Option<usize>,
    pub(crate) max_pairs: Option<usize>,
}

pub(super) fn read(field: &Field<'_>) -> NodeKeys {
    let section = field.object();
    let mut keys = NodeKeys::default();
    let grace = section.take("deletionGrace");
    match grace.duration() {
        Some(time) if (LEAST..=MOST).contains(&time) => keys.deletion.grace = time,
        Some(time) => grace.invalid(&*format!("{time:?}"), "must be 10s to 24h"),
        None => {}
    }
    let (states, words) = (section.take("deleteIn"), Deletion::STATES.map(|it| (it, it)));
    keys.deletion.also_in = states.items().filter_map(|it| it.one_of(&words)).map(str::to_owned).collect();
    let by_hand = section.take("podCIDRs");
    for (node, networks) in by_hand.entries() {
        let all = keys.pod_cidrs.entry(node.into()).or_default();
        for field in networks.items() {
            match field.network() {
                // All addresses would be those of pods.
                Some(net) if net.prefix_len() == 0 => {
                    field.invalid(&*net.to_string(), "must not be all addresses")
                }
                found => all.extend(found),
            }
        }
    }
    keys.max_routes = section.take("maxRoutes").integer_within(0, 100_000);
    keys.max_pairs = section.take("maxAddressPairs").integer_within(0, 100_000);
    section.finish();
    keys
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::parse, *};

    fn keys(text: &str) -> Option<NodeKeys> {
        parse(text, Path::new("")).ok().map(|it| it.nodes)
    }

    #[test]
    fn nodes_go_by_choice_alone_where_a_server_is_still_there() {
        assert_eq!(keys("{}"), Some(NodeKeys::default()));
        let chosen = keys("nodes: {deletionGrace: 5m, deleteIn: [ERROR]}").expect("it is right").deletion;
        assert_eq!(chosen.grace, Duration::from_secs(300));
        assert_eq!(chosen.also_in, ["ERROR".to_owned()].into());
        for wrong in ["nodes: {deletionGrace: 1s}", "nodes: {deleteIn: [ACTIVE]}", "nodes: {deleteIn: ERROR}"]
        {
            assert_eq!(keys(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pod_networks_are_of_both_families_and_never_all_addresses() {
        let text = "nodes: {podCIDRs: {a: [10.1.1.1/24, 'fd00:1::/64'], b: []}, maxRoutes: 100, maxAddressPairs: 20}";
        let chosen = keys(text).expect("it is right");
        // The address of a bridge, with its prefix, is a network, too.
        let of = |node: &str| chosen.pod_cidrs[node].iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((of("a"), of("b").len()), (vec!["10.1.1.0/24".to_owned(), "fd00:1::/64".to_owned()], 0));
        assert_eq!((chosen.max_routes, chosen.max_pairs), (Some(100), Some(20)));
        for wrong in [
            "nodes: {podCIDRs: {a: [0.0.0.0/0]}}",
            "nodes: {podCIDRs: {a: 10.1.1.0/24}}",
            "nodes: {podCIDRs: [10.1.1.0/24]}",
            "nodes: {podCIDRs: {a: [node]}}",
            "nodes: {maxRoutes: -1}",
        ] {
            assert_eq!(keys(wrong), None, "{wrong}");
        }
    }
}
