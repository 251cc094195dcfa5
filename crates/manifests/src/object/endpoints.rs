//! Endpoints, the older way to say what slices say: one fact for each subset.

use std::{net::IpAddr, sync::Arc};

use seaway_model::{
    Fact, Kind, ObjectRef,
    fact::{Endpoint, EndpointAddress, EndpointPort, Endpoints},
};

use super::{
    addresses, formats,
    meta::{self, NameRules, check_rule},
    service::ports,
};
use crate::decode::Field;

const NAMING: NameRules =
    NameRules { kind: Kind::Endpoints, namespaced: true, rule: formats::dns1123_subdomain };
/// More subsets than this would not fit the number of a part.
const MOST_SUBSETS: usize = 1000;

pub(super) fn read(root: &Field<'_>) -> Option<Vec<Fact>> {
    let meta = meta::read(root, &NAMING);
    let subsets = root.child("subsets");
    if subsets.items().len() > MOST_SUBSETS {
        subsets.too_many(subsets.items().len(), MOST_SUBSETS);
    }
    let read: Vec<_> = subsets.items().take(MOST_SUBSETS).map(|item| subset(&item)).collect();
    let meta = meta?;
    let facts = read.into_iter().zip(0_u16..).map(|((ports, endpoints), part)| {
        Fact::Endpoints(Arc::new(Endpoints {
            object: ObjectRef::new(Kind::Endpoints, meta.namespace.clone(), meta.name.clone()),
            part,
            service: meta.name.clone(),
            annotations: meta.annotations.clone(),
            ports,
            endpoints,
        }))
    });
    Some(facts.collect())
}

fn subset(item: &Field<'_>) -> (Vec<EndpointPort>, Vec<Endpoint>) {
    let (ready, not_ready) = (item.child("addresses"), item.child("notReadyAddresses"));
    if ready.items().len() == 0 && not_ready.items().len() == 0 {
        item.required("must specify `addresses` or `notReadyAddresses`");
    }
    let mut endpoints: Vec<Endpoint> = ready.items().filter_map(|address| endpoint(&address, true)).collect();
    endpoints.extend(not_ready.items().filter_map(|address| endpoint(&address, false)));
    let list = item.child("ports");
    let several = list.items().len() > 1;
    let ports = list.items().filter_map(|port| {
        let name = ports::name(&port, several);
        ports::app_protocol(&port);
        let protocol = ports::protocol(&port)?;
        Some(EndpointPort { name, protocol, port: Some(ports::number(&port)?) })
    });
    (ports.collect(), endpoints)
}

fn endpoint(address: &Field<'_>, ready: bool) -> Option<Endpoint> {
    let field = address.child("ip");
    if field.is_missing() {
        field.invalid("", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
    let node_field = address.child("nodeName");
    let node = node_field.name();
    if let Some(node) = node {
        check_rule(&node_field, node, formats::dns1123_subdomain);
    }
    let written = field.name()?;
    let ip: IpAddr = field.ip()?;
    addresses::endpoint(&field, written, ip);
    let at = EndpointAddress::Ip(ip);
    Some(Endpoint {
        at,
        ready,
        serving: ready,
        terminating: false,
        node: node.map(Into::into),
        for_zones: Vec::new(),
        for_nodes: Vec::new(),
        backup: false,
        name: None,
    })
}

#[cfg(test)]
mod tests {
    use crate::object::tests::{facts, faults};
    use seaway_model::Fact;

    const HEAD: &str = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\n";

    #[test]
    fn each_subset_is_a_part_and_addresses_that_are_not_ready_are_told_so() {
        let facts = facts(&format!(
            "{HEAD}subsets:\n- {{addresses: [{{ip: 127.0.0.1}}], notReadyAddresses: [{{ip: 10.0.0.1}}], ports: [{{port: 80}}]}}\n\
             - {{addresses: [{{ip: '::1', nodeName: n1}}], ports: [{{port: 81}}]}}\n"
        ));
        let parts: Vec<_> = facts
            .iter()
            .map(|fact| match fact {
                Fact::Endpoints(it) => (it.part, it.endpoints.iter().map(|it| it.ready).collect::<Vec<_>>()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(parts, [(0, vec![true, false]), (1, vec![true])]);
        assert!(crate::object::tests::facts(HEAD).is_empty());
    }

    #[test]
    fn each_fault_is_told_in_the_words_of_the_api_server() {
        let table: &[(&str, &[&str])] = &[
            (
                "subsets: [{ports: [{port: 1}]}]\n",
                &["4 subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
            ),
            (
                "subsets: [{addresses: [{ip: x}]}]\n",
                &[
                    "4 subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ],
            ),
            (
                "subsets: [{addresses: [{ip: 1.2.3.4}], ports: [{port: 0}]}]\n",
                &["4 subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
            ),
            (
                "subsets: [{addresses: [{ip: 1.2.3.4}], ports: [{port: 1}, {port: 2, name: b}]}]\n",
                &["4 subsets[0].ports[0].name: Required value"],
            ),
        ];
        for (text, wanted) in table {
            assert_eq!(faults(&format!("{HEAD}{text}")), *wanted, "{text}");
        }
    }
}
