//! Objects that an API server has accepted: it has judged them, and they are not judged again.
//!
//! A newer Kubernetes accepts more than this reader knows. What is not understood is left out and reported, and the rest
//! of the object is followed: an object that was refused here as a whole would stay as it was before, for ever.
//!
//! Strict all the same:
//! - who may connect: source ranges that are not understood would open what they are to close;
//! - kinds whose definitions are no part of Kubernetes: what is left out of a pool would be withdrawn from Services.

use seaway_model::Kind;

use super::{Broken, KNOWN, Object};
use crate::{
    decode::{Fault, Faults, Field},
    tree::Node,
};

/// What of an object is understood, and what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub object: Object,
    pub left_out: Vec<Fault>,
}

/// Fields that protect.
const STRICT: [&str; 2] = ["spec.loadBalancerSourceRanges", "load-balancer-source-ranges"];

/// As [`read_as`](super::read_as), without judging what an API server has judged.
pub fn read_accepted(kind: Kind, node: &Node) -> Option<Result<Accepted, Broken>> {
    let known = KNOWN.iter().find(|known| known.kind == kind)?;
    let faults = Faults::default();
    let root = Field::root(node, &faults);
    let facts = (known.read)(&root);
    let faults = faults.into_sorted();
    let lenient = matches!(kind, Kind::Service | Kind::EndpointSlice | Kind::Node | Kind::Namespace);
    let protects = |fault: &Fault| STRICT.iter().any(|it| fault.field.contains(it));
    let usable = faults.is_empty() || lenient && !faults.iter().any(protects);
    let reference = known.reference(node);
    Some(match (facts.filter(|_| usable), reference) {
        (Some(facts), Some(reference)) => {
            Ok(Accepted { object: Object { reference, facts }, left_out: faults })
        }
        (_, reference) => Err(Broken { reference, faults }),
    })
}

#[cfg(test)]
mod tests {
    use seaway_model::{Fact, L4, fact::Service};

    use super::*;

    fn accepted(kind: Kind, json: &str) -> Result<Accepted, Broken> {
        let node: Node = serde_json::from_str(json).expect("is JSON");
        read_accepted(kind, &node).expect("is known")
    }

    fn service(spec: &str) -> (Service, Vec<String>) {
        let json = format!(r#"{{"metadata": {{"name": "a", "namespace": "x"}}, "spec": {spec}}}"#);
        let read = accepted(Kind::Service, &json).expect("is followed");
        let Some(Fact::Service(it)) = read.object.facts.first() else { panic!("{read:?}") };
        (Service::clone(it), read.left_out.iter().map(|it| it.field.clone()).collect())
    }

    #[test]
    fn what_is_not_understood_of_a_service_is_left_out_and_the_rest_is_followed() {
        let (it, left_out) = service(
            r#"{"type": "LoadBalancer", "sessionAffinity": "Cookie", "ports": [
                {"name": "web", "port": 80, "appProtocol": "a/b/c"}, {"name": "quic", "port": 443, "protocol": "QUIC"}]}"#,
        );
        let ports: Vec<_> = it.ports.iter().map(|port| (port.port, port.protocol)).collect();
        assert_eq!(ports, [(80, L4::Tcp)], "a protocol that is not known is not served as another");
        for field in ["spec.sessionAffinity", "spec.ports[0].appProtocol", "spec.ports[1].protocol"] {
            assert!(left_out.iter().any(|it| it == field), "{field} is reported: {left_out:?}");
        }
        let (_, left_out) = service(
            r#"{"ports": [{"name": "1-relaxed-name-of-more-than-is-allowed-today-1-relaxed-name-of-more-than-is", "port": 80}]}"#,
        );
        assert_eq!(left_out.len(), 1, "{left_out:?}");
    }

    #[test]
    fn source_ranges_that_are_not_understood_open_nothing() {
        for (annotations, spec) in [
            (
                "{}",
                r#"{"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": ["10.0.0/8"]}"#,
            ),
            (
                r#"{"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0/8"}"#,
                r#"{"type": "LoadBalancer", "ports": [{"port": 80}]}"#,
            ),
        ] {
            let json =
                format!(r#"{{"metadata": {{"name": "a", "annotations": {annotations}}}, "spec": {spec}}}"#);
            assert!(accepted(Kind::Service, &json).is_err(), "{json}");
        }
    }

    #[test]
    fn an_endpoint_that_is_not_understood_is_no_reason_to_keep_those_that_are_gone() {
        let json = r#"{"metadata": {"name": "a-1", "labels": {"kubernetes.io/service-name": "a"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["169.254.169.254"]}, {"addresses": ["one.two"]}]}"#;
        let read = accepted(Kind::EndpointSlice, json).expect("is followed");
        let Some(Fact::Endpoints(slice)) = read.object.facts.first() else { panic!("{read:?}") };
        assert_eq!(slice.endpoints.len(), 1, "neither a link-local one, nor what is no address: {slice:?}");
        assert_eq!(read.left_out.len(), 2);
        let many: Vec<String> = (0..1001).map(|_| r#"{"addresses": ["10.0.0.1"]}"#.to_owned()).collect();
        let json = json.replace(r#"[{"addresses": ["10.0.0.1"]}, {"addresses": ["169.254.169.254"]}, {"addresses": ["one.two"]}]"#, &format!("[{}]", many.join(",")));
        let read = accepted(Kind::EndpointSlice, &json).expect("is followed");
        let Some(Fact::Endpoints(slice)) = read.object.facts.first() else { panic!("{read:?}") };
        assert_eq!(slice.endpoints.len(), 1001);
    }

    #[test]
    fn a_pool_of_which_something_is_not_understood_stays_as_it_was() {
        let json = r#"{"metadata": {"name": "p"}, "spec": {"addresses": ["10.0.0.0/24", "10.1.0.0%24"]}}"#;
        assert!(accepted(Kind::AddressPool, json).is_err());
    }
}
