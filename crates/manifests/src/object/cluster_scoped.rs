//! Node and Namespace.

use std::{net::IpAddr, sync::Arc};

use seaway_model::{
    Fact, Kind,
    fact::{Namespace, Node},
};

use super::{
    formats,
    meta::{self, NameRules},
};
use crate::decode::Field;

/// The taint of a Node that the cluster autoscaler is about to remove.
const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";

pub(super) fn node(root: &Field<'_>) -> Option<Vec<Fact>> {
    let naming = NameRules { kind: Kind::Node, namespaced: false, rule: formats::dns1123_subdomain };
    let meta = meta::read(root, &naming);
    let (spec, status) = (root.child("spec"), root.child("status"));
    let list = status.child("addresses");
    let of = |kind: &str| -> Vec<IpAddr> {
        let its = list.items().filter(|item| item.child("type").name() == Some(kind));
        its.filter_map(|item| item.child("address").ip()).collect()
    };
    let (mut addresses, mut external) = (of("InternalIP"), of("ExternalIP"));
    external.retain(|ip| !addresses.contains(ip));
    addresses.extend(&external);
    let taints = spec.child("taints");
    let is_doomed = taints.items().any(|item| item.child("key").name() == Some(AUTOSCALER));
    // The older field has the first of the newer one.
    let (networks, network) = (spec.child("podCIDRs"), spec.child("podCIDR"));
    let networks = match networks.is_set() {
        true => networks.texts(),
        false => network.text().into_iter().collect(),
    };
    let conditions = status.child("conditions");
    let (mut ready, mut without_network) = (None, false);
    for item in conditions.items() {
        if item.child("type").name() == Some("Ready") {
            ready = item.child("status").name().map(|status| status == "True");
        }
        if item.child("type").name() == Some("NetworkUnavailable") {
            without_network = item.child("status").name() == Some("True");
        }
    }
    let node = Node {
        addresses,
        external,
        pod_networks: networks.iter().filter_map(|it| it.parse().ok()).collect(),
        leaving: is_doomed || root.child("metadata").child("deletionTimestamp").is_set(),
        provider_id: spec.child("providerID").name().map(Into::into),
        // One that is written down by hand says nothing of its kubelet.
        ready: ready.unwrap_or(true),
        without_network,
        unschedulable: spec.child("unschedulable").bool().unwrap_or(false),
        meta: meta?,
    };
    Some(vec![Fact::Node(Arc::new(node))])
}

pub(super) fn namespace(root: &Field<'_>) -> Option<Vec<Fact>> {
    let naming = NameRules { kind: Kind::Namespace, namespaced: false, rule: formats::dns1123_label };
    let meta = meta::read(root, &naming)?;
    let mut namespace = implied_namespace(&meta.name);
    namespace.labels.extend(meta.labels);
    namespace.labels.insert(OWN_NAME.into(), meta.name);
    Some(vec![Fact::Namespace(Arc::new(namespace))])
}

const OWN_NAME: &str = "kubernetes.io/metadata.name";

/// A namespace that no manifest defines, as an API server makes it.
pub fn implied_namespace(name: &str) -> Namespace {
    Namespace { name: name.into(), labels: [(OWN_NAME.into(), name.into())].into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::{facts, faults};

    #[test]
    fn a_node_has_its_addresses_and_is_ready_unless_it_says_otherwise() {
        let text = "apiVersion: v1\nkind: Node\nmetadata: {name: n.local}\nspec: {providerID: 'a:///b', unschedulable: true}\n\
                    status: {addresses: [{type: Hostname, address: n}, {type: InternalIP, address: 10.0.0.1}]}\n";
        let found = facts(text);
        let Fact::Node(node) = &found[0] else { panic!("{found:?}") };
        assert_eq!((node.addresses.len(), node.ready, node.unschedulable), (1, true, true));
        let found = facts(
            "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {conditions: [{type: Ready, status: 'False'}]}\n",
        );
        let Fact::Node(node) = &found[0] else { panic!("{found:?}") };
        assert!(!node.ready);
        let told = faults("apiVersion: v1\nkind: Node\nmetadata: {name: n1, namespace: x}\n");
        assert_eq!(told, ["3 metadata.namespace: Forbidden: not allowed on this type"]);
    }

    #[test]
    fn a_node_says_which_addresses_are_its_own_and_whether_it_is_about_to_go() {
        let node = |text: &str| {
            let found = facts(&format!("apiVersion: v1\nkind: Node\n{text}"));
            let Fact::Node(node) = &found[0] else { panic!("{found:?}") };
            (**node).clone()
        };
        let it = node(
            "metadata: {name: one}\nstatus: {addresses: [{type: ExternalIP, address: 192.0.2.1}, \
             {type: InternalIP, address: 10.0.0.1}, {type: ExternalIP, address: 10.0.0.1}]}\n",
        );
        let ips: Vec<String> = it.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(ips, ["10.0.0.1", "192.0.2.1"], "whatever their order");
        assert_eq!((it.external.len(), it.leaving), (1, false));
        for (spec, networks) in [
            ("podCIDR: 10.1.0.0/24", &["10.1.0.0/24"][..]),
            ("podCIDR: 10.1.0.0/24, podCIDRs: [10.1.0.0/24, 'fd00::/64']", &["10.1.0.0/24", "fd00::/64"]),
            ("podCIDRs: [10.1.0.0]", &[]),
        ] {
            let its = node(&format!("metadata: {{name: one}}\nspec: {{{spec}}}\n")).pod_networks;
            assert_eq!(its.iter().map(ToString::to_string).collect::<Vec<_>>(), networks);
        }
        let tainted = "spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}\n";
        assert!(node(&format!("metadata: {{name: one}}\n{tainted}")).leaving);
        assert!(node("metadata: {name: one, deletionTimestamp: '2026-01-01T00:00:00Z'}\n").leaving);
        assert!(!node("metadata: {name: one}\nspec: {taints: [{key: other, effect: NoSchedule}]}\n").leaving);
        for (status, is_without) in [("True", true), ("False", false), ("Unknown", false)] {
            let conditions =
                format!("status: {{conditions: [{{type: NetworkUnavailable, status: '{status}'}}]}}\n");
            let node = node(&format!("metadata: {{name: one}}\n{conditions}"));
            assert_eq!((node.without_network, node.ready), (is_without, true), "{status}");
        }
    }

    #[test]
    fn a_namespace_carries_its_own_name() {
        let found = facts("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n");
        let Fact::Namespace(namespace) = &found[0] else { panic!("{found:?}") };
        assert_eq!(namespace.labels.get(OWN_NAME).map(|name| name.as_str()), Some("shop"));
        assert_eq!(namespace.labels.len(), 2);
    }
}
