//! AddressPool (ours) and IPAddressPool (MetalLB's), which say the same in slightly different words.
//!
//! ```yaml
//! apiVersion: seaway.dev/v1alpha1
//! kind: AddressPool
//! metadata: {name: public}
//! spec:
//!   addresses: [192.0.2.0/28, 198.51.100.7-198.51.100.9, 2001:db8::5]   # or `hosts: true`
//!   controlPlanes: false      # with `hosts`, in a cluster: those of control planes, too
//!   reservedPorts: []         # in a cluster: ports of the machines that Services may have
//!   announce: l2              # not with `hosts`: hosts answer by ARP and NDP; bgp, auto; static: a router has a route; none
//!   autoAssign: true          # used by Services that name no pool
//!   avoidBuggyIPs: false      # leave out .0 and .255
//!   priority: 0               # lower is asked first; 0 comes last
//!   namespaces: []            # who may use it; with the selectors, any of these
//!   namespaceSelectors: []
//!   serviceSelectors: []
//! ```

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;
use seaway_model::{
    AnnounceMode, Fact, IpRange, Kind, Name, ObjectRef,
    fact::{AddressPool, LabelRequirement, Meta, Selector},
};

use super::{
    formats,
    meta::{self, NameRules, check_rule},
};
use crate::decode::{Field, lenient_ip};

pub(super) fn address_pool(root: &Field<'_>) -> Option<Vec<Fact>> {
    let naming = NameRules { kind: Kind::AddressPool, namespaced: false, rule: formats::dns1123_subdomain };
    let meta = meta::read(root, &naming);
    let spec = root.child("spec");
    let hosts = spec.child("hosts").bool().unwrap_or(false);
    let addresses = spec.child("addresses");
    let ranges = ranges(&addresses, true);
    match (hosts, addresses.items().len()) {
        (false, 0) => addresses.required("addresses, or `hosts: true` for the serving hosts' own"),
        (true, 1..) => addresses.forbidden("may not be set when `hosts` is true"),
        _ => {}
    }
    let (control_planes, reserved_ports) = (spec.child("controlPlanes"), spec.child("reservedPorts"));
    if !hosts && control_planes.is_set() {
        control_planes.forbidden("may only be set when `hosts` is true");
    }
    let announce = announce(&spec.child("announce"), hosts);
    let read = pool(&spec, &spec, naming.kind, meta, ranges)?;
    let control_planes = control_planes.bool().unwrap_or(false);
    let reserved_ports = reserved_ports.items().filter_map(|item| item.port()).collect();
    Some(vec![Fact::AddressPool(Arc::new(AddressPool {
        hosts,
        control_planes,
        reserved_ports,
        announce,
        ..read
    }))])
}

/// Hosts answer for their own addresses: there is nothing to say.
fn announce(field: &Field<'_>, hosts: bool) -> Option<AnnounceMode> {
    let word = field.name()?;
    if hosts {
        field.forbidden("may not be set when `hosts` is true: hosts answer for their own addresses");
        return None;
    }
    let found = AnnounceMode::WORDS.iter().find(|(name, _)| *name == word);
    if found.is_none() {
        let words: Vec<&str> = AnnounceMode::WORDS.iter().map(|(name, _)| *name).collect();
        field.unsupported_with_suggestion(word, &words);
    }
    found.map(|(_, announce)| *announce)
}

pub(super) fn ip_address_pool(root: &Field<'_>) -> Option<Vec<Fact>> {
    let naming = NameRules { kind: Kind::IPAddressPool, namespaced: true, rule: formats::dns1123_subdomain };
    let meta = meta::read(root, &naming);
    let spec = root.child("spec");
    let addresses = spec.child("addresses");
    let ranges = ranges(&addresses, false);
    if addresses.items().len() == 0 {
        addresses.required("pool has no prefixes defined");
    }
    let read = pool(&spec, &spec.child("serviceAllocation"), naming.kind, meta, ranges)?;
    Some(vec![Fact::AddressPool(Arc::new(read))])
}

/// `allocation`: where the fields stand that say who may use it.
fn pool(
    spec: &Field<'_>,
    allocation: &Field<'_>,
    kind: Kind,
    meta: Option<Meta>,
    ranges: Vec<IpRange>,
) -> Option<AddressPool> {
    let auto_assign = spec.child("autoAssign").bool().unwrap_or(true);
    let avoid_buggy = spec.child("avoidBuggyIPs").bool().unwrap_or(false);
    let priority = allocation.child("priority").integer_within(0, i64::from(i32::MAX)).unwrap_or(0);
    let listed = allocation.child("namespaces");
    let mut namespaces: Vec<Name> = Vec::new();
    for item in listed.items() {
        let Some(name) = item.text() else { continue };
        check_rule(&item, name, formats::dns1123_label);
        if namespaces.iter().any(|other| **other == *name) {
            item.duplicate(name);
        }
        namespaces.push(name.into());
    }
    let namespace_selectors = selectors(&allocation.child("namespaceSelectors"));
    let service_selectors = selectors(&allocation.child("serviceSelectors"));
    let meta = meta?;
    Some(AddressPool {
        object: ObjectRef::new(kind, meta.namespace, meta.name),
        created: meta.created,
        labels: meta.labels,
        ranges,
        hosts: false,
        control_planes: false,
        reserved_ports: BTreeSet::new(),
        announce: None,
        auto_assign,
        avoid_buggy,
        priority,
        namespaces,
        namespace_selectors,
        service_selectors,
    })
}

fn ranges(list: &Field<'_>, single: bool) -> Vec<IpRange> {
    let mut ranges = Vec::new();
    for item in list.items() {
        let Some(text) = item.text() else { continue };
        match range(text, single) {
            Some(range) => ranges.push(range),
            None if single => {
                item.invalid(text, "must be a CIDR, a range or an address (e.g. 192.0.2.0/28, 192.0.2.5-192.0.2.9 or 2001:db8::5)");
            }
            None => {
                item.invalid(text, "must be a CIDR or a range (e.g. 192.0.2.0/28 or 192.0.2.5-192.0.2.9)")
            }
        }
    }
    ranges
}

fn range(text: &str, single: bool) -> Option<IpRange> {
    let text = text.trim();
    if let Some((first, last)) = text.split_once('-') {
        return IpRange::new(lenient_ip(first.trim())?, lenient_ip(last.trim())?);
    }
    if text.contains('/') {
        return text.parse::<IpNet>().ok().map(IpRange::from);
    }
    let ip = lenient_ip(text).filter(|_| single)?;
    IpRange::new(ip, ip)
}

pub(super) fn selectors(list: &Field<'_>) -> Vec<Selector> {
    list.items().map(|item| selector(&item)).collect()
}

fn selector(field: &Field<'_>) -> Selector {
    let labels = meta::labels(&field.child("matchLabels"));
    let mut terms: Vec<LabelRequirement> =
        labels.into_iter().map(|(key, value)| LabelRequirement::Is(key, value)).collect();
    let expressions = field.child("matchExpressions");
    terms.extend(expressions.items().filter_map(|item| term(&item)));
    Selector(terms)
}

fn term(item: &Field<'_>) -> Option<LabelRequirement> {
    let (key_field, operator, values_field) =
        (item.child("key"), item.child("operator"), item.child("values"));
    let key = key_field.text().unwrap_or_default();
    check_rule(&key_field, key, formats::qualified_name);
    let values: Vec<Name> = values_field.texts().into_iter().map(Name::from).collect();
    let written = operator.text().unwrap_or_default();
    match written {
        "In" | "NotIn" if values.is_empty() => {
            values_field.required("must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values_field.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        _ => {}
    }
    let key = Name::from(key);
    match written {
        "In" => Some(LabelRequirement::In(key, values)),
        "NotIn" => Some(LabelRequirement::NotIn(key, values)),
        "Exists" => Some(LabelRequirement::Exists(key)),
        "DoesNotExist" => Some(LabelRequirement::Missing(key)),
        _ => {
            operator.invalid(written, "not a valid selector operator");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::{facts, faults};

    fn pool(text: &str) -> AddressPool {
        match facts(text).remove(0) {
            Fact::AddressPool(pool) => Arc::unwrap_or_clone(pool),
            other => panic!("{other:?}"),
        }
    }

    const OURS: &str = "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: p}\n";
    const METALLB: &str = "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: p, namespace: metallb-system}\n";

    #[test]
    fn a_pool_of_ours_takes_networks_ranges_and_single_addresses() {
        let read = pool(&format!(
            "{OURS}spec: {{addresses: [192.0.2.0/30, 198.51.100.7 - 198.51.100.9, '2001:db8::5']}}\n"
        ));
        let told: Vec<String> = read.ranges.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["192.0.2.0-192.0.2.3", "198.51.100.7-198.51.100.9", "2001:db8::5"]);
        assert_eq!((read.auto_assign, read.avoid_buggy, read.hosts, read.priority), (true, false, false, 0));
        assert!(pool(&format!("{OURS}spec: {{hosts: true, autoAssign: no}}\n")).hosts);
        let open =
            pool(&format!("{OURS}spec: {{hosts: true, controlPlanes: true, reservedPorts: [22, 6443]}}\n"));
        assert_eq!((open.control_planes, open.reserved_ports), (true, [22, 6443].into()));
        let tunnels = pool(&format!("{OURS}spec: {{addresses: [10.0.0.1], reservedPorts: [51820]}}\n"));
        assert_eq!(tunnels.reserved_ports, [51_820].into());
        let routed = pool(&format!("{OURS}spec: {{addresses: [10.0.0.1], announce: static}}\n"));
        assert_eq!((routed.announce, read.announce), (Some(AnnounceMode::Static), None));
        for (word, announce) in [
            ("l2", AnnounceMode::Layer2),
            ("bgp", AnnounceMode::Bgp),
            ("auto", AnnounceMode::Auto),
            ("none", AnnounceMode::None),
        ] {
            let of = pool(&format!("{OURS}spec: {{addresses: [10.0.0.1], announce: {word}}}\n"));
            assert_eq!(of.announce, Some(announce), "{word}");
        }
    }

    #[test]
    fn metallbs_pool_is_read_as_it_is() {
        let read = pool(&format!(
            "{METALLB}spec:\n  addresses: [10.0.0.0/24]\n  avoidBuggyIPs: true\n  serviceAllocation:\n    priority: 5\n    namespaces: [a]\n    \
             serviceSelectors: [{{matchLabels: {{x: z}}, matchExpressions: [{{key: z, operator: In, values: [a, b]}}]}}]\n"
        ));
        assert_eq!((read.priority, read.avoid_buggy, read.namespaces.len()), (5, true, 1));
        assert_eq!(read.service_selectors[0].0.len(), 2);
        assert_eq!(read.object.namespace.as_str(), "metallb-system");
    }

    #[test]
    fn each_fault_of_a_pool_is_told() {
        let table: &[(&str, &str, &str)] = &[
            (
                OURS,
                "spec: {}\n",
                "4 spec.addresses: Required value: addresses, or `hosts: true` for the serving hosts' own",
            ),
            (
                OURS,
                "spec: {hosts: true, addresses: [10.0.0.1]}\n",
                "4 spec.addresses: Forbidden: may not be set when `hosts` is true",
            ),
            (
                OURS,
                "spec: {addresses: [10.0.0.1], controlPlanes: true}\n",
                "4 spec.controlPlanes: Forbidden: may only be set when `hosts` is true",
            ),
            (
                OURS,
                "spec: {addresses: [10.0.0.1], announce: statc}\n",
                "4 spec.announce: Unsupported value: \"statc\": supported values: \"auto\", \"l2\", \"bgp\", \"static\", \"none\" (did you mean \"static\"?)",
            ),
            (
                OURS,
                "spec: {addresses: [10.0.0.1], announce: ospf}\n",
                "4 spec.announce: Unsupported value: \"ospf\": supported values: \"auto\", \"l2\", \"bgp\", \"static\", \"none\"",
            ),
            (
                OURS,
                "spec: {hosts: true, announce: static}\n",
                "4 spec.announce: Forbidden: may not be set when `hosts` is true: hosts answer for their own addresses",
            ),
            (
                OURS,
                "spec: {hosts: true, reservedPorts: [0]}\n",
                "4 spec.reservedPorts[0]: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
            (
                OURS,
                "spec: {addresses: [10.0.0.9-10.0.0.1]}\n",
                "4 spec.addresses[0]: Invalid value: \"10.0.0.9-10.0.0.1\": must be a CIDR, a range or an address (e.g. 192.0.2.0/28, 192.0.2.5-192.0.2.9 or 2001:db8::5)",
            ),
            (
                METALLB,
                "spec: {addresses: [10.0.0.1]}\n",
                "4 spec.addresses[0]: Invalid value: \"10.0.0.1\": must be a CIDR or a range (e.g. 192.0.2.0/28 or 192.0.2.5-192.0.2.9)",
            ),
            (
                OURS,
                "spec: {hosts: true, serviceSelectors: [{matchExpressions: [{key: a, operator: Of}]}]}\n",
                "4 spec.serviceSelectors[0].matchExpressions[0].operator: Invalid value: \"Of\": not a valid selector operator",
            ),
            (
                OURS,
                "spec: {hosts: true, serviceSelectors: [{matchExpressions: [{key: a, operator: In}]}]}\n",
                "4 spec.serviceSelectors[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
        ];
        for (head, text, wanted) in table {
            assert_eq!(faults(&format!("{head}{text}")), [*wanted], "{text}");
        }
    }
}
