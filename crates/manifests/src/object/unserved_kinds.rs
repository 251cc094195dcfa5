//! Kinds that people expect to be served, and that are not: Ingresses, and the routes of other programs. A Problem at the object says
//! what to write instead.

use super::{group, is_of_kubernetes, kind_readers::KIND_READERS, word};
use crate::{decode::ValidationError, tree::Node};

const AS_ROUTE: &str = "write an HTTPRoute (apiVersion: gateway.networking.k8s.io/v1)";
const FROM_INGRESS: &str = "write an HTTPRoute; seaway import ingress FILE does";
const AS_SERVICE: &str = "write a Service of type LoadBalancer";
const AS_FRONT_DOOR: &str = "set `frontDoor:` in seaway.yaml";

/// Group, kind, and what to do.
const NOT_SERVED: &[(&str, &str, &str)] = &[
    ("networking.k8s.io", "Ingress", FROM_INGRESS),
    ("extensions", "Ingress", FROM_INGRESS),
    ("gateway.networking.k8s.io", "Gateway", AS_FRONT_DOOR),
    ("gateway.networking.k8s.io", "GRPCRoute", "write an HTTPRoute; its rules apply to gRPC as well"),
    ("gateway.networking.k8s.io", "TCPRoute", AS_SERVICE),
    ("gateway.networking.k8s.io", "UDPRoute", AS_SERVICE),
    ("gateway.networking.k8s.io", "TLSRoute", AS_SERVICE),
    ("traefik.io", "IngressRoute", AS_ROUTE),
    ("traefik.io", "IngressRouteTCP", AS_SERVICE),
    ("traefik.io", "IngressRouteUDP", AS_SERVICE),
    ("traefik.containo.us", "IngressRoute", AS_ROUTE),
    ("traefik.containo.us", "IngressRouteTCP", AS_SERVICE),
    ("traefik.containo.us", "IngressRouteUDP", AS_SERVICE),
    ("k8s.nginx.org", "VirtualServer", AS_ROUTE),
    ("k8s.nginx.org", "VirtualServerRoute", AS_ROUTE),
    ("k8s.nginx.org", "TransportServer", AS_SERVICE),
    ("projectcontour.io", "HTTPProxy", AS_ROUTE),
    ("networking.istio.io", "VirtualService", AS_ROUTE),
    ("networking.istio.io", "Gateway", AS_FRONT_DOOR),
    ("gateway.solo.io", "VirtualService", AS_ROUTE),
    ("route.openshift.io", "Route", AS_ROUTE),
    ("getambassador.io", "Mapping", AS_ROUTE),
    ("configuration.konghq.com", "TCPIngress", AS_SERVICE),
    ("configuration.konghq.com", "UDPIngress", AS_SERVICE),
];

/// What routes of requests have below `spec`.
const OF_TRAFFIC: [&str; 5] = ["rules", "routes", "virtualhost", "http", "to"];

/// A kind that people expect to be served, and that is not: left out of [`super::read`], for it is not broken.
pub fn unserved_kind(object: &Node) -> Option<ValidationError> {
    let (version, kind) = (word(object, "apiVersion")?, word(object, "kind")?);
    let is_it =
        |(of, name, _): &&(&str, &str, &str)| *of == group(version) && name.eq_ignore_ascii_case(kind);
    let instead = match NOT_SERVED.iter().find(is_it) {
        Some((.., instead)) => *instead,
        None if is_route_of_others(group(version), kind) && routes_traffic(object, kind) => AS_ROUTE,
        None => return None,
    };
    let name = object.child("metadata").and_then(|it| word(it, "name"));
    let what = name.map_or(kind.to_owned(), |name| format!("{kind} {name}"));
    let at = object.child("kind")?.at;
    let message = format!("{what} is not served here: {instead}");
    Some(ValidationError { field: "kind".to_owned(), at, message })
}

/// A route in a group that Seaway does not know. Those of Kubernetes' own groups are refused where they nearly are ours.
fn is_route_of_others(group: &str, kind: &str) -> bool {
    let is_known =
        KIND_READERS.iter().any(|it| it.group() == group || it.name == kind && is_of_kubernetes(group));
    kind.ends_with("Route") && !is_known
}

/// Whether an object of such a kind leads requests to Services. Routes of networks and of messages are other programs' concern.
fn routes_traffic(object: &Node, kind: &str) -> bool {
    let spec = object.child("spec");
    kind == "HTTPRoute" || spec.is_some_and(|spec| OF_TRAFFIC.iter().any(|it| spec.child(it).is_some()))
}

/// Whether objects of a kind lead requests to Services, as routes of other programs do.
pub(super) fn leads_to_services(kind: &str) -> bool {
    let is_it = |(_, name, instead): &(&str, &str, &str)| {
        name.eq_ignore_ascii_case(kind) && ![AS_FRONT_DOOR, AS_SERVICE].contains(instead)
    };
    NOT_SERVED.iter().any(is_it) || kind.to_ascii_lowercase().ends_with("route")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::parse;

    #[test]
    fn a_kind_that_people_expect_to_be_served_is_named_with_what_to_do() {
        let reported = |version: &str, kind: &str| {
            let text = format!(
                "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {{rules: [], forProvider: a}}\n"
            );
            unserved_kind(&parse(&text).expect("parses")[0]).map(|it| format!("{} {it}", it.at.line))
        };
        for (version, kind, instead) in [
            ("networking.k8s.io/v1", "Ingress", Some(FROM_INGRESS)),
            ("networking.k8s.io/v1", "ingress", Some(FROM_INGRESS)),
            ("gateway.networking.k8s.io/v1alpha2", "TCPRoute", Some(AS_SERVICE)),
            ("gateway.networking.x-k8s.io/v1alpha1", "HTTPRoute", Some(AS_ROUTE)),
            ("networking.x-k8s.io/v1alpha1", "HTTPRoute", Some(AS_ROUTE)),
            ("policy.linkerd.io/v1beta3", "HTTPRoute", Some(AS_ROUTE)),
            ("traefik.io/v1alpha1", "IngressRoute", Some(AS_ROUTE)),
            ("traefik.containo.us/v1alpha1", "IngressRouteTCP", Some(AS_SERVICE)),
            ("k8s.nginx.org/v1", "VirtualServer", Some(AS_ROUTE)),
            ("projectcontour.io/v1", "HTTPProxy", Some(AS_ROUTE)),
            ("networking.istio.io/v1", "VirtualService", Some(AS_ROUTE)),
            ("networking.istio.io/v1", "Gateway", Some(AS_FRONT_DOOR)),
            ("route.openshift.io/v1", "Route", Some(AS_ROUTE)),
            ("apisix.apache.org/v2", "ApisixRoute", Some(AS_ROUTE)),
            ("gateway.networking.k8s.io/v1", "HTTPRoute", None),
            // These are refused, with the version or the kind that was meant.
            ("networking.k8s.io/v1", "HTTPRoute", None),
            ("gateway.networking.k8s.io/v1", "HttpRoute", None),
            ("v1", "Pod", None),
            ("example.com/v1", "RoutePolicy", None),
        ] {
            let expected = instead.map(|it| format!("2 kind: {kind} x is not served here: {it}"));
            assert_eq!(reported(version, kind), expected, "{version} {kind}");
        }
        for (spec, is_named) in [
            ("rules: []", true),
            ("routes: [{match: /}]", true),
            ("virtualhost: {fqdn: a.example}", true),
            ("http: [{name: a}]", true),
            ("to: {kind: Service, name: a}", true),
            // Of a network, of messages, and of revisions.
            ("forProvider: {destinationCidrBlock: 0.0.0.0/0}", false),
            ("from: {uri: timer}", false),
            ("traffic: [{latestRevision: true}]", false),
        ] {
            let text = format!("apiVersion: example.com/v1\nkind: Route\nspec: {{{spec}}}\n");
            let named = unserved_kind(&parse(&text).expect("parses")[0]);
            assert_eq!(named.is_some(), is_named, "{spec}");
        }
        for other in ["kind: Ingress\n", "a: 1\n", "[]\n", "text\n"] {
            assert_eq!(unserved_kind(&parse(other).expect("parses")[0]), None, "{other}");
        }
    }
}
