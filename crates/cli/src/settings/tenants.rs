//! `tenants`, and what of `frontDoor` is between tenants: keys whose defaults are open in a folder, which has one owner, and
//! closed in a cluster.

use std::ops::RangeInclusive;

use seaway_manifests::{
    decode::{Field, IntOrString},
    tree::Value,
};
use seaway_model::{
    Config, Name,
    config::{
        AddressPoolRules, FrontDoor, FrontDoorRoutes, FrontDoorServices, HostOwners, ReservedPorts,
        SharedLoadBalancerScope, TenantLimits, Tenants, TlsSecrets, UnlistedHosts,
    },
    fact::Gateway,
};
use seaway_plan::{host_pattern, quantity::trusted_network};

use super::trusted_networks;

/// Which keys the configuration sets, of those whose defaults depend on something else: mostly on whether it is of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExplicitKeys {
    members_by_name: bool,
    transparent_from: bool,
    pub(super) services: bool,
    pub(super) secrets: bool,
    /// `frontDoor.addresses`, whose default does not follow `host.addresses`.
    pub(super) door_addresses: bool,
    parent: bool,
    other_hosts: bool,
    pub(super) per_namespace: bool,
    limits: ExplicitLimits,
}

/// Of `tenants.limits`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ExplicitLimits {
    rules: bool,
    expressions: bool,
    listeners: bool,
    members: bool,
    certificate_bytes: bool,
    check_interval: bool,
    checks_per_second: bool,
    new_per_worker: bool,
}

pub(super) fn read(field: &Field<'_>, tenants: &mut Tenants, said: &mut ExplicitKeys) {
    let section = field.object();
    if let Some(names) = section.take("membersByName").bool() {
        (tenants.members.names, said.members_by_name) = (names, true);
    }
    let sources = section.take("transparentFrom");
    if sources.is_set() {
        said.transparent_from = true;
        let read = |it: Field<'_>| trusted_network(trusted_networks::written(&it)?).ok();
        tenants.sources = Some(sources.items().filter_map(read).collect());
    }
    let joins = [("namespace", SharedLoadBalancerScope::Namespace), ("any", SharedLoadBalancerScope::Any)];
    if let Some(join) = section.take("joinLoadBalancers").one_of(&joins) {
        tenants.join = join;
    }
    limits(&section.take("limits"), &mut tenants.limits, &mut said.limits);
    let ports = section.take("reservedPorts");
    tenants.reserved_ports =
        ReservedPorts::with_additional(ports.items().filter_map(|it| port_range(&it)).collect());
    section.finish();
}

/// `9345`, or `9000-9010`.
fn port_range(item: &Field<'_>) -> Option<RangeInclusive<u16>> {
    let text = match item.int_or_string()? {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::Text(text) => text.to_owned(),
    };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let port = |text: &str| text.trim().parse().ok().filter(|it: &u16| *it > 0);
    let range = port(first).zip(port(last)).filter(|(first, last)| first <= last);
    if range.is_none() {
        item.invalid(&*text, "must be a port from 1 to 65535, or a range of them, such as 9000-9010");
    }
    range.map(|(first, last)| first..=last)
}

/// `tenants.limits`; 0 is no limit.
fn limits(field: &Field<'_>, limits: &mut TenantLimits, said: &mut ExplicitLimits) {
    let section = field.object();
    let number = |key: &'static str| {
        let number: u32 = section.take(key).integer_within(0, u32::MAX.into())?;
        Some(Some(number).filter(|it| *it > 0))
    };
    if let Some(most) = number("rules") {
        (limits.rules, said.rules) = (most, true);
    }
    if let Some(most) = number("expressions") {
        (limits.expressions, said.expressions) = (most, true);
    }
    if let Some(most) = number("listeners") {
        (limits.listeners, said.listeners) = (most, true);
    }
    if let Some(most) = number("members") {
        (limits.members, said.members) = (most, true);
    }
    if let Some(most) = section.take("certificateBytes").size() {
        (limits.certificate_bytes, said.certificate_bytes) = (Some(most).filter(|it| *it > 0), true);
    }
    if let Some(shortest) = section.take("checkInterval").duration() {
        (limits.check_interval, said.check_interval) = (shortest, true);
    }
    if let Some(most) = number("checksPerSecond") {
        (limits.checks_per_second, said.checks_per_second) = (most, true);
    }
    if let Some(most) = number("newConnectionsPerWorker") {
        (limits.new_per_worker, said.new_per_worker) = (most, true);
    }
    limits.connections = number("connections").flatten();
    limits.new_per_second = number("newConnectionsPerSecond").flatten();
    section.finish();
}

/// `frontDoor.parentRef`: `namespace/name` of a Gateway.
pub(super) fn parent(field: &Field<'_>, door: &mut FrontDoor, said: &mut ExplicitKeys) {
    let Some(text) = field.name() else { return };
    said.parent = true;
    match text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty()) {
        Some((namespace, name)) => {
            door.routes = FrontDoorRoutes::Of(Gateway { namespace: namespace.into(), name: name.into() });
        }
        None => field.invalid(text, "must be NAMESPACE/NAME of a Gateway"),
    }
}

/// `frontDoor.hostOwners`
pub(super) fn owners(field: &Field<'_>, owners: &mut HostOwners, said: &mut ExplicitKeys) {
    let section = field.object();
    for (host, namespaces) in section.take("names").entries() {
        let pattern = host_pattern(host);
        let listed: Vec<Name> = match namespaces.node().map(|it| &it.value) {
            Some(Value::List(_)) => namespaces.texts().into_iter().map(Name::from).collect(),
            _ => namespaces.name().into_iter().map(Name::from).collect(),
        };
        match pattern {
            Err(_) => namespaces.invalid(host, "must be a host name, such as shop.example or *.shop.example"),
            Ok(_) if listed.is_empty() => namespaces.required("a namespace, or a list of them"),
            Ok(pattern) => {
                owners.names.insert(pattern, listed);
            }
        }
    }
    let others = [
        ("shared", UnlistedHosts::Shared),
        ("first", UnlistedHosts::First),
        ("refuse", UnlistedHosts::Refused),
    ];
    if let Some(others) = section.take("others").one_of(&others) {
        (owners.others, said.other_hosts) = (others, true);
    }
    section.finish();
}

/// In a cluster, sets what the configuration leaves out to the value that permits least.
pub(crate) fn close_by_default(config: &mut Config, said: ExplicitKeys) {
    let (tenants, door) = (&mut config.tenants, &mut config.front_door);
    tenants.members.machines = false;
    if !said.members_by_name {
        tenants.members.names = false;
    }
    if !said.transparent_from {
        tenants.sources = Some(Vec::new());
    }
    let usual = TenantLimits::CLUSTER;
    if !said.limits.rules {
        tenants.limits.rules = usual.rules;
    }
    if !said.limits.expressions {
        tenants.limits.expressions = usual.expressions;
    }
    if !said.limits.listeners {
        tenants.limits.listeners = usual.listeners;
    }
    if !said.limits.members {
        tenants.limits.members = usual.members;
    }
    if !said.limits.certificate_bytes {
        tenants.limits.certificate_bytes = usual.certificate_bytes;
    }
    if !said.limits.check_interval {
        // What the configuration itself asks for all Services is allowed.
        let asked = config.defaults.health.as_ref().map(|it| it.interval);
        tenants.limits.check_interval = usual.check_interval.min(asked.unwrap_or(usual.check_interval));
    }
    if !said.limits.checks_per_second {
        tenants.limits.checks_per_second = usual.checks_per_second;
    }
    if !said.limits.new_per_worker {
        tenants.limits.new_per_worker = usual.new_per_worker;
    }
    if !said.per_namespace {
        config.pools.per_namespace = AddressPoolRules::CLUSTER.per_namespace;
    }
    if !said.services {
        door.services = FrontDoorServices::Annotated;
    }
    if !said.secrets {
        door.tls.secrets = TlsSecrets::Named;
    }
    for entrance in door.entrances.values_mut() {
        entrance.tls.secrets = door.tls.secrets;
    }
    if !said.parent {
        door.routes = FrontDoorRoutes::Never;
    }
    if !said.other_hosts {
        door.owners.others = UnlistedHosts::First;
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::super::{Settings, parse};
    use super::*;

    fn read(text: &str) -> Settings {
        parse(text, Path::new("")).expect("it is right")
    }

    const ALL: &str = "tenants:\n  membersByName: true\n  reservedPorts: [9345, 9000-9010]\n  transparentFrom: [192.0.2.0/24]\n  joinLoadBalancers: any\n  limits: {rules: 10, \
                       expressions: 0, listeners: 4, members: 3, certificateBytes: 2Ki, checkInterval: 5ms, checksPerSecond: 7, connections: 8, newConnectionsPerSecond: \
                       9, newConnectionsPerWorker: 6}\npools: {perNamespace: 0}\nfrontDoor:\n  services: all\n  \
                       tls: {secrets: all}\n  parentRef: infra/public\n  hostOwners:\n    names: {shop.example: shop, \
                       '*.Shop.example': [shop, cart]}\n    others: refuse\n";

    #[test]
    fn a_folder_is_open_and_a_cluster_is_closed_where_nothing_is_said() {
        let folder = read("").config;
        assert!(folder.tenants.members.machines && folder.tenants.members.names);
        assert_eq!(
            (folder.tenants.sources.clone(), folder.front_door.routes.clone()),
            (None, FrontDoorRoutes::All)
        );
        assert!(!folder.front_door.owners.are_enforced());
        assert_eq!((folder.tenants.limits, folder.pools.per_namespace), (TenantLimits::default(), None));
        let mut cluster = folder;
        close_by_default(&mut cluster, ExplicitKeys::default());
        assert_eq!((cluster.tenants.limits, cluster.pools.per_namespace), (TenantLimits::CLUSTER, Some(256)));
        assert!(!cluster.tenants.members.machines && !cluster.tenants.members.names);
        assert_eq!(cluster.tenants.sources, Some(Vec::new()));
        assert_eq!(cluster.tenants.join, SharedLoadBalancerScope::Namespace);
        let door = cluster.front_door;
        assert_eq!((door.services, door.tls.secrets), (FrontDoorServices::Annotated, TlsSecrets::Named));
        assert_eq!((door.routes, door.owners.others), (FrontDoorRoutes::Never, UnlistedHosts::First));
    }

    #[test]
    fn what_is_said_holds_in_a_cluster_too() {
        let settings = read(ALL);
        let mut cluster = settings.config.clone();
        close_by_default(&mut cluster, settings.said);
        assert!(!cluster.tenants.members.machines, "nothing opens that");
        assert_eq!(cluster.tenants.join, SharedLoadBalancerScope::Any);
        cluster.tenants.members.machines = true;
        assert_eq!(cluster, settings.config);
        assert_eq!(
            cluster.front_door.routes,
            FrontDoorRoutes::Of(Gateway { namespace: "infra".into(), name: "public".into() })
        );
        let reserved = &cluster.tenants.reserved_ports;
        assert_eq!(
            [22, 9345, 9346, 8999, 9000, 9010, 9011].map(|it| reserved.contains(it)),
            [true, true, false, false, true, true, false]
        );
        let limits = TenantLimits {
            rules: Some(10),
            expressions: None,
            listeners: Some(4),
            members: Some(3),
            certificate_bytes: Some(2 << 10),
            held_certificate_bytes: None,
            check_interval: Duration::from_millis(5),
            checks_per_second: Some(7),
            connections: Some(8),
            new_per_second: Some(9),
            new_per_worker: Some(6),
        };
        assert_eq!((cluster.tenants.limits, cluster.pools.per_namespace), (limits, None));
        let owners: Vec<String> = (cluster.front_door.owners.names.iter())
            .map(|(host, its)| {
                format!("{host} {}", its.iter().map(Name::as_str).collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(owners, ["shop.example shop", "*.shop.example shop cart"]);
        assert_eq!(cluster.front_door.owners.others, UnlistedHosts::Refused);
    }

    #[test]
    fn an_interval_that_the_configuration_asks_for_all_services_is_allowed_to_each() {
        let settings = read("defaults: {healthCheck: {kind: tcp, interval: 100ms}}");
        let mut cluster = settings.config.clone();
        close_by_default(&mut cluster, settings.said);
        assert_eq!(cluster.tenants.limits.check_interval, Duration::from_millis(100));
    }

    #[test]
    fn mistakes_are_told_at_their_places() {
        for (text, expected) in [
            ("tenants: {membersByNames: true}", "tenants.membersByNames: unknown field"),
            ("tenants: {limits: {rule: 1}}", "tenants.limits.rule: unknown field"),
            (
                "tenants: {reservedPorts: [0]}",
                "tenants.reservedPorts[0]: Invalid value: \"0\": must be a port",
            ),
            ("tenants: {reservedPorts: [9010-9000]}", "tenants.reservedPorts[0]: Invalid value"),
            ("tenants: {reservedPorts: [1, 65536]}", "tenants.reservedPorts[1]: Invalid value"),
            ("tenants: {reservedPorts: [ssh]}", "tenants.reservedPorts[0]: Invalid value"),
            ("tenants: {limits: {rules: -1}}", "tenants.limits.rules: Invalid value"),
            ("tenants: {limits: {certificateBytes: much}}", "tenants.limits.certificateBytes: Invalid value"),
            ("pools: {perNamespace: many}", "pools.perNamespace: Invalid value"),
            ("tenants: {transparentFrom: [everybody]}", "tenants.transparentFrom[0]: Invalid value"),
            ("tenants: {joinLoadBalancers: all}", "tenants.joinLoadBalancers: Unsupported value"),
            ("frontDoor: {parentRef: public}", "frontDoor.parentRef: Invalid value"),
            (
                "frontDoor: {hostOwners: {names: {'a b': shop}}}",
                "frontDoor.hostOwners.names[a b]: Invalid value",
            ),
            (
                "frontDoor: {hostOwners: {names: {a.example: []}}}",
                "frontDoor.hostOwners.names[a.example]: Required",
            ),
            ("frontDoor: {hostOwners: {others: some}}", "frontDoor.hostOwners.others: Unsupported value"),
        ] {
            let faults = parse(text, Path::new("")).expect_err("it is wrong");
            assert!(faults[0].to_string().starts_with(expected), "{text}: {}", faults[0]);
        }
    }
}
