//! Service, as `k8s.io/kubernetes/pkg/apis/core` defaults and validates it.

mod finalizers;
pub(super) mod ports;
mod published;

use std::{net::IpAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use seaway_model::{
    Fact, Kind, Name,
    fact::{Families, FamilyPolicy, Meta, Service, ServiceKind},
    load_balancer::Family,
};

pub use self::finalizers::{FINALIZER, MANAGER, OWN_FINALIZER};
use self::{
    finalizers::{finalizer_owner, is_being_deleted, other_write},
    published::{published, published_by_us, published_ports},
};
use super::{
    formats,
    meta::{self, NameRules, check_rule},
};
use crate::decode::{Field, lenient_ip};

const NAMING: NameRules = NameRules { kind: Kind::Service, namespaced: true, rule: formats::dns1123_label };
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const AFFINITY_SECONDS: u64 = 10_800;

#[derive(Clone, Copy, PartialEq)]
enum Type {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

pub(super) fn read(root: &Field<'_>) -> Option<Vec<Fact>> {
    let meta = meta::read(root, &NAMING);
    let spec = root.child("spec");
    let kind = spec
        .child("type")
        .one_of(&[
            ("ClusterIP", Type::ClusterIp),
            ("ExternalName", Type::ExternalName),
            ("LoadBalancer", Type::LoadBalancer),
            ("NodePort", Type::NodePort),
        ])
        .unwrap_or(Type::ClusterIp);
    let (headless, cluster_ips) = cluster_ips(&spec, kind);
    let external_name = (kind == Type::ExternalName).then(|| external_name(&spec));
    let ports = ports::read(&spec.child("ports"), kind == Type::ClusterIp);
    let list = spec.child("ports");
    if list.items().len() == 0 && !headless && kind != Type::ExternalName {
        list.required("");
    }
    let selector = meta::labels(&spec.child("selector"));
    let affinity = affinity(&spec);
    let families = families(&spec);
    let local_only = local_only(&spec, kind);
    let health_check_node_port = health_check_node_port(&spec, kind, local_only);
    let class = class(&spec, kind);
    let source_ranges = source_ranges(root, &spec, kind, meta.as_ref());
    let publish_not_ready = spec.child("publishNotReadyAddresses").bool().unwrap_or(false);
    let load_balancer_ip = spec.child("loadBalancerIP").name().map(Name::from);
    let service = Service {
        meta: meta?,
        kind: match kind {
            Type::ClusterIp => ServiceKind::ClusterIp,
            Type::NodePort => ServiceKind::NodePort,
            Type::LoadBalancer => ServiceKind::LoadBalancer,
            Type::ExternalName => ServiceKind::ExternalName(external_name??),
        },
        headless,
        cluster_ips,
        selector,
        ports,
        families,
        affinity,
        local_only,
        health_check_node_port,
        load_balancer_ip,
        class,
        source_ranges,
        unclear_sources: false,
        unused_route: None,
        publish_not_ready,
        leaving: is_being_deleted(root),
        held: finalizer_owner(root),
        published: published(root),
        published_by_us: published_by_us(root),
        published_ports: published_ports(root),
        other_write: other_write(root),
    };
    Some(vec![Fact::Service(Arc::new(service))])
}

/// Whether the Service is headless, and where it is reached within the cluster.
fn cluster_ips(spec: &Field<'_>, kind: Type) -> (bool, Vec<IpAddr>) {
    let (one, many) = (spec.child("clusterIP"), spec.child("clusterIPs"));
    let mut written = Vec::new();
    for item in many.items() {
        written.extend(item.name().inspect(|ip| valid_cluster_ip(&item, ip)));
    }
    let first = match (one.name(), written.first().copied()) {
        (Some(ip), None) => {
            valid_cluster_ip(&one, ip);
            Some(ip)
        }
        (Some(ip), Some(first)) if ip != first => {
            many.invalid(first, "first value must match `clusterIP`");
            Some(ip)
        }
        (_, first) => first,
    };
    let headless = first == Some("None");
    if headless && written.len() > 1 {
        many.invalid("None", "'None' must be the first and only value");
    }
    match kind {
        Type::LoadBalancer if headless => {
            one.invalid("None", "may not be set to 'None' for LoadBalancer services")
        }
        Type::NodePort if headless => one.invalid("None", "may not be set to 'None' for NodePort services"),
        Type::ExternalName if first.is_some() => {
            let field = if many.is_set() { &many } else { &one };
            field.forbidden("may not be set for ExternalName services");
        }
        _ => {}
    }
    let mut ips: Vec<IpAddr> = written.into_iter().chain(one.name()).filter_map(lenient_ip).collect();
    ips.sort_unstable();
    ips.dedup();
    (headless, ips)
}

fn valid_cluster_ip(field: &Field<'_>, written: &str) {
    if written != "None" && lenient_ip(written).is_none() {
        field.invalid(written, "must be empty, 'None', or a valid IP address");
    }
}

fn external_name(spec: &Field<'_>) -> Option<Name> {
    for field in [spec.child("ipFamilies"), spec.child("ipFamilyPolicy")] {
        if field.is_set() {
            field.forbidden("may not be set for ExternalName services");
        }
    }
    let field = spec.child("externalName");
    if field.is_missing() {
        field.required("");
    }
    let name = field.name()?;
    // The last dot says that the name is complete; it stays, for the resolver to heed.
    check_rule(&field, name, |name| formats::dns1123_subdomain(name.strip_suffix('.').unwrap_or(name)));
    Some(name.into())
}

fn affinity(spec: &Field<'_>) -> Option<Duration> {
    let by_client =
        spec.child("sessionAffinity").one_of(&[("ClientIP", true), ("None", false)]).unwrap_or(false);
    let config = spec.child("sessionAffinityConfig");
    if !by_client {
        if config.is_set() {
            config.forbidden("must not be set when session affinity is None");
        }
        return None;
    }
    let client = config.child("clientIP");
    let timeout = client.child("timeoutSeconds");
    let seconds = match timeout.integer() {
        None => AFFINITY_SECONDS,
        Some(seconds @ 1..=86_400) => seconds.unsigned_abs(),
        Some(seconds) => {
            timeout.invalid(seconds, "must be greater than 0 and less than 86400");
            AFFINITY_SECONDS
        }
    };
    Some(Duration::from_secs(seconds))
}

fn families(spec: &Field<'_>) -> Families {
    let list = spec.child("ipFamilies");
    let mut families: Vec<Family> = Vec::new();
    for item in list.items() {
        let Some(family) = item.one_of(&[("IPv4", Family::V4), ("IPv6", Family::V6)]) else { continue };
        if families.contains(&family) {
            item.duplicate(item.name().unwrap_or_default());
        } else {
            families.push(family);
        }
    }
    let policy_field = spec.child("ipFamilyPolicy");
    let policy = policy_field
        .one_of(&[
            ("PreferDualStack", FamilyPolicy::Prefer),
            ("RequireDualStack", FamilyPolicy::Require),
            ("SingleStack", FamilyPolicy::Single),
        ])
        .unwrap_or(FamilyPolicy::Single);
    if families.len() == 2 && policy == FamilyPolicy::Single {
        let why = "must be RequireDualStack or PreferDualStack when multiple 'ipFamilies' are specified";
        policy_field.invalid(policy_field.name().unwrap_or_default(), why);
    }
    Families { policy, first: families.first().copied(), second: families.get(1).copied() }
}

fn local_only(spec: &Field<'_>, kind: Type) -> bool {
    let field = spec.child("externalTrafficPolicy");
    let reachable =
        matches!(kind, Type::LoadBalancer | Type::NodePort) || spec.child("externalIPs").items().len() > 0;
    match field.name() {
        Some(written) if !reachable => {
            field.invalid(written, "may only be set for externally-accessible services");
            false
        }
        _ => field.one_of(&[("Cluster", false), ("Local", true)]).unwrap_or(false),
    }
}

fn health_check_node_port(spec: &Field<'_>, kind: Type, local_only: bool) -> Option<u16> {
    let field = spec.child("healthCheckNodePort");
    let written = field.integer().filter(|port| *port != 0)?;
    if kind == Type::LoadBalancer && local_only {
        return field.port();
    }
    field.invalid(
        written,
        "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
    );
    None
}

fn class(spec: &Field<'_>, kind: Type) -> Option<Name> {
    let field = spec.child("loadBalancerClass");
    let class = field.text()?;
    if kind == Type::LoadBalancer {
        check_rule(&field, class, formats::qualified_name);
    } else {
        field.forbidden("may only be used when `type` is 'LoadBalancer'");
    }
    Some(class.into())
}

/// Of the field alone: the annotation that was there before it is looked at here, and read with the others.
fn source_ranges(root: &Field<'_>, spec: &Field<'_>, kind: Type, meta: Option<&Meta>) -> Vec<IpNet> {
    let field = spec.child("loadBalancerSourceRanges");
    let only_for = |field: &Field<'_>| {
        if kind != Type::LoadBalancer {
            field.forbidden("may only be used when `type` is 'LoadBalancer'");
        }
    };
    if field.items().len() > 0 {
        only_for(&field);
        return field.items().filter_map(|item| item.network()).collect();
    }
    let Some(written) = meta.and_then(|meta| meta.annotations.get(SOURCE_RANGES)) else { return Vec::new() };
    let metadata = root.child("metadata");
    let annotations = metadata.child("annotations");
    let field = annotations.key(SOURCE_RANGES);
    only_for(&field);
    for part in written.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if part.parse::<IpNet>().is_err() {
            field.invalid(part, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use seaway_model::{L4, fact::TargetPort};

    use super::*;
    use crate::object::tests::{facts, faults};

    fn text(spec: &str) -> String {
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec:\n{}", spec.replace("; ", "\n"))
            .replace("\n ", "\n  ")
    }

    fn service(spec: &str) -> Service {
        match facts(&text(spec)).remove(0) {
            Fact::Service(service) => Arc::unwrap_or_clone(service),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_service_gets_the_defaults_of_an_api_server() {
        let plain = service("  ports: [{port: 80}]");
        assert_eq!(plain.kind, ServiceKind::ClusterIp);
        assert_eq!((plain.affinity, plain.local_only, plain.publish_not_ready), (None, false, false));
        assert_eq!(plain.families, Families { policy: FamilyPolicy::Single, first: None, second: None });
        assert_eq!((plain.ports[0].protocol, &plain.ports[0].target), (L4::Tcp, &TargetPort::Number(80)));
        let sticky = service("  ports: [{port: 80}]\n  sessionAffinity: ClientIP");
        assert_eq!(sticky.affinity, Some(Duration::from_secs(10_800)));
        let external = service("  type: ExternalName\n  externalName: a.example.");
        assert_eq!(external.kind, ServiceKind::ExternalName("a.example.".into()));
    }

    #[test]
    fn a_service_dumped_from_a_cluster_is_accepted() {
        let dumped = service(
            "  type: LoadBalancer\n  allocateLoadBalancerNodePorts: true\n  clusterIP: 10.0.0.7\n  clusterIPs: [10.0.0.7]\n  \
             externalTrafficPolicy: Local\n  healthCheckNodePort: 31000\n  internalTrafficPolicy: Cluster\n  \
             ipFamilies: [IPv4]\n  ipFamilyPolicy: SingleStack\n  loadBalancerClass: seaway.dev/native\n  \
             loadBalancerSourceRanges: [' 10.1.2.3/8 ', '2001:db8::/32']\n  ports:\n  - name: http\n    nodePort: 30080\n    \
             port: 80\n    protocol: TCP\n    targetPort: web\n    appProtocol: http\n  sessionAffinity: ClientIP\n  \
             sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}\n  selector: {app: a}\nstatus:\n  \
             loadBalancer: {ingress: [{ip: 192.0.2.7, ipMode: VIP}, {hostname: a.example}, {ip: '2001:db8::7'}]}\n",
        );
        assert_eq!(dumped.health_check_node_port, Some(31000));
        let published: Vec<String> = dumped.published.iter().map(ToString::to_string).collect();
        assert_eq!(published, ["192.0.2.7", "2001:db8::7"]);
        assert!(dumped.local_only);
        assert_eq!(dumped.source_ranges[0].to_string(), "10.0.0.0/8");
        assert_eq!(dumped.ports[0].target, TargetPort::Name("web".into()));
        assert_eq!(dumped.affinity, Some(Duration::from_secs(60)));
    }

    #[test]
    fn each_fault_is_told_in_the_words_of_the_api_server() {
        let ports = "  ports: [{port: 80}]\n";
        let table: &[(&str, &[&str])] = &[
            ("  type: ClusterIP\n", &["4 spec.ports: Required value"]),
            ("  ports: []\n", &["5 spec.ports: Required value"]),
            (
                "  type: Foo\n",
                &[
                    "4 spec.ports: Required value",
                    "5 spec.type: Unsupported value: \"Foo\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
                ],
            ),
            (
                "  ports: [{port: 70000}]\n",
                &["5 spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive"],
            ),
            (
                "  ports: [{name: a}]\n",
                &["5 spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
            ),
            (
                "  ports: [{port: '80'}]\n",
                &["5 spec.ports[0].port: Invalid value: \"80\": must be an integer"],
            ),
            (
                "  ports:\n  - port: 80\n  - port: 81\n",
                &["6 spec.ports[0].name: Required value", "7 spec.ports[1].name: Required value"],
            ),
            (
                "  ports:\n  - {port: 80, name: a}\n  - {port: 81, name: a}\n",
                &["7 spec.ports[1].name: Duplicate value: \"a\""],
            ),
            (
                "  ports:\n  - {port: 80, name: a}\n  - {port: 80, name: b}\n",
                &["7 spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}"],
            ),
            (
                "  ports: [{port: 80, protocol: tcp}]\n",
                &[
                    "5 spec.ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                ],
            ),
            (
                "  ports: [{port: 80, targetPort: '80'}]\n",
                &[
                    "5 spec.ports[0].targetPort: Invalid value: \"80\": must contain at least one letter (a-z)",
                ],
            ),
            (
                "  ports: [{port: 80, targetPort: 70000}]\n",
                &["5 spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
            ),
            (
                "  ports: [{port: 80, nodePort: 30000}]\n",
                &["5 spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
            ),
            (
                "  type: NodePort\n  ports:\n  - {port: 80, name: a, nodePort: 30000}\n  - {port: 81, name: b, nodePort: 30000}\n",
                &["8 spec.ports[1].nodePort: Duplicate value: 30000"],
            ),
            (
                "  ports: [{port: 80}]\n  sessionAffinity: Maybe\n",
                &[
                    "6 spec.sessionAffinity: Unsupported value: \"Maybe\": supported values: \"ClientIP\", \"None\"",
                ],
            ),
            (
                "  ports: [{port: 80}]\n  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}\n",
                &[
                    "7 spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
                ],
            ),
            (
                "  ports: [{port: 80}]\n  sessionAffinityConfig: {}\n",
                &["6 spec.sessionAffinityConfig: Forbidden: must not be set when session affinity is None"],
            ),
            (
                "  ports: [{port: 80}]\n  type: LoadBalancer\n  clusterIP: None\n",
                &[
                    "7 spec.clusterIP: Invalid value: \"None\": may not be set to 'None' for LoadBalancer services",
                ],
            ),
            (
                "  ports: [{port: 80}]\n  clusterIP: nonsense\n",
                &[
                    "6 spec.clusterIP: Invalid value: \"nonsense\": must be empty, 'None', or a valid IP address",
                ],
            ),
            ("  type: ExternalName\n", &["4 spec.externalName: Required value"]),
            (
                "  type: ExternalName\n  externalName: a.b\n  clusterIP: 10.0.0.1\n",
                &["7 spec.clusterIP: Forbidden: may not be set for ExternalName services"],
            ),
            (
                "  ports: [{port: 80}]\n  ipFamilies: [IPv5]\n",
                &["6 spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\""],
            ),
            (
                "  ports: [{port: 80}]\n  ipFamilies: [IPv4, IPv4]\n",
                &["6 spec.ipFamilies[1]: Duplicate value: \"IPv4\""],
            ),
            (
                "  ports: [{port: 80}]\n  ipFamilyPolicy: SingleStack\n  ipFamilies: [IPv4, IPv6]\n",
                &[
                    "6 spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be RequireDualStack or PreferDualStack when multiple 'ipFamilies' are specified",
                ],
            ),
            (
                "  ports: [{port: 80}]\n  externalTrafficPolicy: Local\n",
                &[
                    "6 spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
                ],
            ),
            (
                "  ports: [{port: 80}]\n  type: NodePort\n  externalTrafficPolicy: Loco\n",
                &[
                    "7 spec.externalTrafficPolicy: Unsupported value: \"Loco\": supported values: \"Cluster\", \"Local\"",
                ],
            ),
            (
                "  ports: [{port: 80}]\n  healthCheckNodePort: 5\n",
                &[
                    "6 spec.healthCheckNodePort: Invalid value: 5: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
                ],
            ),
            (
                "  ports: [{port: 80}]\n  loadBalancerClass: x\n",
                &["6 spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"],
            ),
            (
                "  ports: [{port: 80}]\n  loadBalancerSourceRanges: [10.0.0.0/8]\n",
                &[
                    "6 spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ],
            ),
            (
                "  ports: [{port: 80}]\n  type: LoadBalancer\n  loadBalancerSourceRanges: [10.0.0.0]\n",
                &[
                    "7 spec.loadBalancerSourceRanges[0]: Invalid value: \"10.0.0.0\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                ],
            ),
        ];
        for (spec, wanted) in table {
            assert_eq!(faults(&text(spec)), *wanted, "{spec}");
        }
        let name =
            faults("apiVersion: v1\nkind: Service\nmetadata: {name: A}\nspec:\n  ports: [{port: 80}]\n");
        assert!(
            name[0].starts_with("3 metadata.name: Invalid value: \"A\": a lowercase RFC 1123 label must"),
            "{name:?}"
        );
        let protocol = faults(&text("  ports: [{port: 80, appProtocol: a/b/c}]\n"));
        assert!(
            protocol[0]
                .starts_with("5 spec.ports[0].appProtocol: Invalid value: \"a/b/c\": a qualified name must")
        );
        assert_eq!(service(ports).ports.len(), 1);
    }

    #[test]
    fn source_ranges_may_still_stand_in_the_annotation_which_is_validated() {
        let written = |ranges: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  annotations: {{{SOURCE_RANGES}: '{ranges}'}}\n\
                 spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}\n"
            )
        };
        let facts = facts(&written("10.0.0.0/8, 192.168.0.0/16"));
        let Fact::Service(service) = &facts[0] else { panic!("{facts:?}") };
        assert!(service.source_ranges.is_empty() && service.meta.annotations.contains_key(SOURCE_RANGES));
        assert!(faults(&written("10.0.0/8"))[0].contains("must be a valid CIDR value"));
    }
}
