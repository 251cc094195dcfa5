//! EndpointSlice (`discovery.k8s.io/v1`).

use std::{net::IpAddr, sync::Arc};

use seaway_model::{
    Fact, Kind, Name, ObjectRef,
    fact::{Endpoint, EndpointAddress, EndpointPort, Endpoints},
};

use super::{
    addresses, formats,
    meta::{self, NameRules, check_rule},
    service::ports,
};
use crate::decode::{Field, lenient_ip};

const NAMING: NameRules =
    NameRules { kind: Kind::EndpointSlice, namespaced: true, rule: formats::dns1123_subdomain };
const SERVICE: &str = "kubernetes.io/service-name";
const MOST_PORTS: usize = 100;
const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;

#[derive(Clone, Copy, PartialEq)]
enum Type {
    V4,
    V6,
    DomainName,
}

pub(super) fn read(root: &Field<'_>) -> Option<Vec<Fact>> {
    let meta = meta::read(root, &NAMING);
    let kind_field = root.child("addressType");
    if kind_field.is_missing() {
        kind_field.required("");
    }
    let kind = kind_field.one_of(&[("FQDN", Type::DomainName), ("IPv4", Type::V4), ("IPv6", Type::V6)]);
    let ports = read_ports(&root.child("ports"));
    let endpoints = read_endpoints(&root.child("endpoints"), kind);
    let meta = meta?;
    let service = meta.labels.get(SERVICE).filter(|name| !name.is_empty()).cloned();
    if service.is_none() {
        let metadata = root.child("metadata");
        metadata.child("labels").key(SERVICE).required(
            "this label names the Service that the slice \
                                                        belongs to",
        );
    }
    Some(vec![Fact::Endpoints(Arc::new(Endpoints {
        object: ObjectRef::new(Kind::EndpointSlice, meta.namespace, meta.name),
        part: 0,
        service: service?,
        annotations: meta.annotations,
        ports,
        endpoints,
    }))])
}

fn read_ports(list: &Field<'_>) -> Vec<EndpointPort> {
    if list.items().len() > MOST_PORTS {
        list.too_many(list.items().len(), MOST_PORTS);
    }
    let mut ports: Vec<EndpointPort> = Vec::new();
    for item in list.items() {
        let name = ports::name(&item, false);
        if ports.iter().any(|other| other.name == name) {
            item.child("name").duplicate(name.as_str());
        }
        ports::app_protocol(&item);
        let Some(protocol) = ports::protocol(&item) else { continue };
        ports.push(EndpointPort { name, protocol, port: item.child("port").port() });
    }
    ports
}

fn read_endpoints(list: &Field<'_>, kind: Option<Type>) -> Vec<Endpoint> {
    if list.items().len() > MOST_ENDPOINTS {
        list.too_many(list.items().len(), MOST_ENDPOINTS);
    }
    list.items().filter_map(|item| endpoint(&item, kind)).collect()
}

fn endpoint(item: &Field<'_>, kind: Option<Type>) -> Option<Endpoint> {
    let addresses = item.child("addresses");
    let written = addresses.items().len();
    if written == 0 {
        addresses.required("must contain at least 1 address");
    } else if written > MOST_ADDRESSES {
        addresses.too_many(written, MOST_ADDRESSES);
    }
    let read = addresses.items().map(|address| address_of(&address, kind)).collect::<Vec<_>>();
    let conditions = item.child("conditions");
    // Unknown counts as ready, and serving as what ready is, whatever its termination.
    let ready = conditions.child("ready").bool().unwrap_or(true);
    let serving = conditions.child("serving").bool().unwrap_or(ready);
    let terminating = conditions.child("terminating").bool().unwrap_or(false);
    let node = item.child("nodeName").name().map(Into::into);
    // Several addresses are the same endpoint.
    let at = read.into_iter().next()??;
    let hints = item.child("hints");
    let (for_zones, for_nodes) = (names(&hints.child("forZones")), names(&hints.child("forNodes")));
    Some(Endpoint { at, ready, serving, terminating, node, for_zones, for_nodes, backup: false, name: None })
}

fn names(list: &Field<'_>) -> Vec<Name> {
    list.items().filter_map(|item| Some(item.child("name").name()?.into())).collect()
}

fn address_of(field: &Field<'_>, kind: Option<Type>) -> Option<EndpointAddress> {
    let text = field.text()?;
    let ip = match (kind?, lenient_ip(text)) {
        (Type::DomainName, _) => {
            check_rule(field, text, formats::domain_name);
            return Some(EndpointAddress::Name(text.into()));
        }
        (Type::V4, Some(ip @ IpAddr::V4(_))) | (Type::V6, Some(ip @ IpAddr::V6(_))) => ip,
        (Type::V4, _) => {
            field.invalid(text, "must be a valid IPv4 address");
            return None;
        }
        (Type::V6, _) => {
            field.invalid(text, "must be a valid IPv6 address");
            return None;
        }
    };
    addresses::endpoint(field, text, ip).then_some(EndpointAddress::Ip(ip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::{facts, faults};

    const HEAD: &str = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1, labels: {kubernetes.io/service-name: a}}\n";

    #[test]
    fn conditions_that_are_not_told_count_as_ready() {
        let facts = facts(&format!(
            "{HEAD}addressType: IPv4\nports: [{{port: 80}}, {{name: any}}]\nendpoints:\n- addresses: [127.0.0.1, 127.0.0.2]\n\
             - {{addresses: [10.0.0.1], conditions: {{ready: false}}, nodeName: n1}}\n\
             - {{addresses: [10.0.0.2], conditions: {{ready: false, serving: true, terminating: true}}, hints: {{forZones: [{{name: z}}], forNodes: [{{name: n2}}]}}}}\n"
        ));
        let Fact::Endpoints(slice) = &facts[0] else { panic!("{facts:?}") };
        assert_eq!(slice.service.as_str(), "a");
        assert_eq!(slice.ports[1].port, None);
        let told: Vec<_> = slice.endpoints.iter().map(|it| (it.ready, it.serving, it.terminating)).collect();
        assert_eq!(told, [(true, true, false), (false, false, false), (false, true, true)]);
        let hints = |it: &Endpoint| (it.for_zones.clone(), it.for_nodes.clone());
        assert_eq!(hints(&slice.endpoints[1]), (vec![], vec![]));
        assert_eq!(hints(&slice.endpoints[2]), (vec!["z".into()], vec!["n2".into()]));
        assert_eq!(slice.endpoints[0].at, EndpointAddress::Ip("127.0.0.1".parse().expect("an address")));
    }

    #[test]
    fn each_fault_is_told_in_the_words_of_the_api_server() {
        let table: &[(&str, &[&str])] = &[
            ("endpoints: []\n", &["1 addressType: Required value"]),
            (
                "addressType: IP\n",
                &["4 addressType: Unsupported value: \"IP\": supported values: \"FQDN\", \"IPv4\", \"IPv6\""],
            ),
            (
                "addressType: IPv4\nendpoints: [{}]\n",
                &["5 endpoints[0].addresses: Required value: must contain at least 1 address"],
            ),
            (
                "addressType: IPv4\nendpoints: [{addresses: ['::1']}]\n",
                &["5 endpoints[0].addresses[0]: Invalid value: \"::1\": must be a valid IPv4 address"],
            ),
            (
                "addressType: IPv6\nendpoints: [{addresses: [1.2.3.4]}]\n",
                &["5 endpoints[0].addresses[0]: Invalid value: \"1.2.3.4\": must be a valid IPv6 address"],
            ),
            (
                "addressType: IPv4\nendpoints: [{addresses: [0.0.0.0]}]\n",
                &[
                    "5 endpoints[0].addresses[0]: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0 or ::)",
                ],
            ),
            (
                "addressType: IPv4\nendpoints: [{addresses: [169.254.0.1]}]\n",
                &[
                    "5 endpoints[0].addresses[0]: Invalid value: \"169.254.0.1\": may not be in the link-local range (169.254.0.0/16, fe80::/10)",
                ],
            ),
            (
                "addressType: IPv4\nendpoints: [{addresses: [224.0.0.1]}]\n",
                &[
                    "5 endpoints[0].addresses[0]: Invalid value: \"224.0.0.1\": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
                ],
            ),
            (
                "addressType: FQDN\nendpoints: [{addresses: [localhost]}]\n",
                &[
                    "5 endpoints[0].addresses[0]: Invalid value: \"localhost\": should be a domain with at least two segments separated by dots",
                ],
            ),
            (
                "addressType: IPv4\nports: [{name: a, port: 1}, {name: a, port: 2}]\n",
                &["5 ports[1].name: Duplicate value: \"a\""],
            ),
            (
                "addressType: IPv4\nports: [{port: 1, protocol: X}]\n",
                &[
                    "5 ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                ],
            ),
        ];
        for (text, wanted) in table {
            assert_eq!(faults(&format!("{HEAD}{text}")), *wanted, "{text}");
        }
        assert_eq!(
            faults(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1}\naddressType: IPv4\n"
            ),
            ["3 metadata.labels[kubernetes.io/service-name]: Required value: this label names the \
                 Service that the slice belongs to"]
        );
    }
}
