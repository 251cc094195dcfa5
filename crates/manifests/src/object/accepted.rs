//! Objects that an API server has accepted: it has judged them, and they are not judged again.
//!
//! A newer Kubernetes accepts more than this reader knows. What is not understood is left out and reported, and the rest
//! of the object is followed: an object that was refused here as a whole would stay as it was before, for ever.
//!
//! A rule of an HTTPRoute of which something is not understood answers 500, and of its matches those that are not understood take
//! no request: neither is more let through than is written, nor is a request taken from another rule.
//!
//! Source ranges that are not all understood close the Service: what is left of them may be more than is to be let in.
//!
//! An advertisement of which something is not understood announces nothing, and is there all the same: pools of which it speaks are
//! not announced as if nothing spoke of them. It stays as it was, if it is not known of which pools it speaks.
//!
//! Pools, and other kinds whose definitions are no part of Kubernetes, stay as they were: of a pool of which a part is left out,
//! the addresses of that part would be withdrawn from Services.

use std::sync::Arc;

use seaway_model::{Fact, Kind, fact::AnnouncementSpec};

use super::{InvalidObject, KIND_READERS, Object, announcing, http_route};
use crate::{
    decode::{Field, ValidationError, ValidationErrors},
    tree::Node,
};

/// What of an object is understood, and what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedObject {
    pub object: Object,
    pub left_out: Vec<ValidationError>,
}

/// Who may connect.
pub const SOURCE_RANGES: &str = "spec.loadBalancerSourceRanges";
/// The same, as it was said before that field: read with all annotations, and a fault of it is reported there.
const OF_BEFORE: &str = "load-balancer-source-ranges";

/// As [`read_as`](super::read_as), without judging what an API server has judged.
pub fn read_accepted(kind: Kind, node: &Node) -> Option<Result<AcceptedObject, InvalidObject>> {
    let known = KIND_READERS.iter().find(|known| known.kind == kind)?;
    let faults = ValidationErrors::default();
    let root = Field::root(node, &faults);
    let mut facts = match kind {
        Kind::HTTPRoute => http_route::read_accepted(&root),
        _ => (known.read)(&root),
    };
    let mut faults = faults.into_sorted();
    let lenient =
        matches!(kind, Kind::Service | Kind::EndpointSlice | Kind::HTTPRoute | Kind::Node | Kind::Namespace);
    if kind == Kind::Service {
        faults.retain(|it| !it.field.contains(OF_BEFORE));
        if faults.iter().any(|it| it.field.starts_with(SOURCE_RANGES)) {
            facts.iter_mut().flatten().for_each(close);
        }
    }
    let unclear = !faults.is_empty() && !faults.iter().any(|it| announcing::is_about_pools(&it.field));
    let unclear = unclear && facts.iter_mut().flatten().all(announce_nothing);
    let usable = faults.is_empty() || lenient || unclear;
    let reference = known.reference(node);
    Some(match (facts.filter(|_| usable), reference) {
        (Some(facts), Some(reference)) => Ok(AcceptedObject {
            object: Object { reference, facts, misplaced: Vec::new() },
            left_out: faults,
        }),
        (_, reference) => Err(InvalidObject { reference, errors: faults }),
    })
}

/// Whether it is an advertisement.
fn announce_nothing(fact: &mut Fact) -> bool {
    let Fact::Announcing(it) = fact else { return false };
    match &mut Arc::make_mut(it).says {
        AnnouncementSpec::L2Advertisement(it) => it.scope.unclear = true,
        AnnouncementSpec::BgpAdvertisement(it) => it.scope.unclear = true,
        _ => return false,
    }
    true
}

fn close(fact: &mut Fact) {
    if let Fact::Service(service) = fact {
        Arc::make_mut(service).unclear_sources = true;
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::{
        L4,
        fact::{HttpRoute, Service},
    };

    use super::*;

    fn accepted(kind: Kind, json: &str) -> Result<AcceptedObject, InvalidObject> {
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
    fn a_service_whose_source_ranges_are_not_understood_is_followed_and_closed() {
        for ranges in [r#"["10.0.0/8"]"#, r#"["192.0.2.0/24", "10.0.0/8"]"#, r#"["192.0.2.0/24", 7]"#] {
            let spec =
                r#"{"type": "LoadBalancer", "ports": [{"port": 81}], "loadBalancerSourceRanges": RANGES}"#;
            let (it, left_out) = service(&spec.replace("RANGES", ranges));
            assert!(it.unclear_sources && it.ports[0].port == 81, "{ranges}: {it:?}");
            assert!(left_out.len() == 1 && left_out[0].starts_with(SOURCE_RANGES), "{ranges}: {left_out:?}");
        }
        let spec = r#"{"type": "LoadBalancer", "ports": [{"port": 81}], "loadBalancerSourceRanges": [" 10.0.0.0/8"]}"#;
        assert!(!service(spec).0.unclear_sources);
        // It is read with the other annotations.
        let json = r#"{"metadata": {"name": "a", "annotations": {"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0/8"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}"#;
        let read = accepted(Kind::Service, json).expect("is followed");
        assert!(read.left_out.is_empty(), "{read:?}");
    }

    #[test]
    fn an_endpoint_that_is_not_understood_is_no_reason_to_keep_those_that_are_gone() {
        let json = r#"{"metadata": {"name": "a-1", "labels": {"kubernetes.io/service-name": "a"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["169.254.169.254"]}, {"addresses": ["one.two"]}]}"#;
        let read = accepted(Kind::EndpointSlice, json).expect("is followed");
        let Some(Fact::Endpoints(slice)) = read.object.facts.first() else { panic!("{read:?}") };
        assert_eq!(
            slice.endpoints.len(),
            1,
            "neither a link-local one, nor what is not an address: {slice:?}"
        );
        assert_eq!(read.left_out.len(), 2);
        let many: Vec<String> = (0..1001).map(|_| r#"{"addresses": ["10.0.0.1"]}"#.to_owned()).collect();
        let json = json.replace(r#"[{"addresses": ["10.0.0.1"]}, {"addresses": ["169.254.169.254"]}, {"addresses": ["one.two"]}]"#, &format!("[{}]", many.join(",")));
        let read = accepted(Kind::EndpointSlice, &json).expect("is followed");
        let Some(Fact::Endpoints(slice)) = read.object.facts.first() else { panic!("{read:?}") };
        assert_eq!(slice.endpoints.len(), 1001);
    }

    fn route(spec: &str) -> (HttpRoute, Vec<String>) {
        let json = format!(r#"{{"metadata": {{"name": "a", "namespace": "x"}}, "spec": {spec}}}"#);
        let read = accepted(Kind::HTTPRoute, &json).expect("is followed");
        let Some(Fact::HttpRoute(it)) = read.object.facts.first() else { panic!("{read:?}") };
        (HttpRoute::clone(it), read.left_out.iter().map(|it| it.field.clone()).collect())
    }

    const WEB: &str = r#""backendRefs": [{"name": "web", "port": 80}]"#;

    /// Of one rule among two: what is not understood of it, and how many matches are left.
    #[test]
    fn a_rule_that_cannot_be_read_is_not_followed_and_the_others_are() {
        for (rule, field, left) in [
            // A filter of a type, or with a field, that came later.
            (r#""filters": [{"type": "Auth", "auth": {}}]"#, "filters[0].type", 1),
            (
                r#""filters": [{"type": "URLRewrite", "urlRewrite": {"hostname": "A_b"}}]"#,
                "filters[0].urlRewrite.hostname",
                1,
            ),
            (r#""filters": [{"type": "CORS", "cors": {"strict": true}}]"#, "filters[0].cors.strict", 1),
            (r#""authentication": {"name": "a"}"#, "authentication", 1),
            (r#""timeouts": {"request": "1 day"}"#, "timeouts.request", 1),
            (r#""backendRefs": [{"name": "web", "port": "http"}]"#, "backendRefs[0].port", 1),
            (r#""retry": {"attempts": "many"}"#, "retry.attempts", 1),
            // A match that would be for more if what is not understood of it were left out.
            (r#""matches": [{"path": {"type": "Glob", "value": "/a*"}}]"#, "matches[0].path.type", 0),
            (
                r#""matches": [{"path": {"value": "/b"}}, {"path": {"value": "/a"}, "cookies": [{}]}]"#,
                "matches[1].cookies",
                1,
            ),
            (
                r#""matches": [{"headers": [{"name": "x", "value": "y", "type": "Glob"}]}]"#,
                "matches[0].headers[0].type",
                0,
            ),
            (r#""matches": [{"method": "QUERY"}]"#, "matches[0].method", 0),
            (r#""matches": {"path": "/a"}"#, "matches", 0),
        ] {
            let (it, left_out) = route(&format!(r#"{{"rules": [{{{rule}}}, {{{WEB}}}]}}"#));
            let [broken, whole] = &it.rules[..] else { panic!("{rule}: {it:?}") };
            let told: Vec<&str> = broken.unsupported.iter().map(|it| it.field.as_str()).collect();
            assert!(told.contains(&format!("spec.rules[0].{field}").as_str()), "{rule}: {told:?}");
            assert_eq!(broken.matches.len(), left, "{rule}: {broken:?}");
            assert!(whole.unsupported.is_empty() && whole.matches.len() == 1, "{rule}: {whole:?}");
            assert!(left_out.is_empty(), "the plan tells it, if the route is ours: {left_out:?}");
        }
        assert!(accepted(Kind::HTTPRoute, r#"{"metadata": {"name": "A b"}, "spec": {}}"#).is_ok());
    }

    #[test]
    fn more_of_a_route_than_this_version_allows_is_followed() {
        let matches: Vec<String> = (0..70).map(|it| format!(r#"{{"path": {{"value": "/{it}"}}}}"#)).collect();
        let rule = format!(r#"{{"matches": [{}], {WEB}}}"#, matches.join(","));
        let hosts: Vec<String> = (0..20).map(|it| format!(r#""h{it}.example""#)).collect();
        let (it, left_out) = route(&format!(
            r#"{{"hostnames": [{}], "rules": [{}]}}"#,
            hosts.join(","),
            vec![rule; 20].join(",")
        ));
        assert!(it.rules.iter().all(|it| it.unsupported.is_empty() && it.matches.len() == 70), "{it:?}");
        assert_eq!((it.hosts.len(), it.rules.len(), left_out.len()), (20, 20, 0), "{left_out:?}");
    }

    #[test]
    fn a_route_whose_host_names_cannot_be_read_is_not_for_all_of_them() {
        for (hosts, read, rules) in [
            (r#"["a.example", "b_c.example"]"#, 1, 1),
            (r#"["b_c.example"]"#, 0, 0),
            (r#"[7]"#, 0, 0),
            (r#"{"of": "a"}"#, 0, 0),
            ("[]", 0, 1),
        ] {
            let (it, left_out) = route(&format!(r#"{{"hostnames": {hosts}, "rules": [{{{WEB}}}]}}"#));
            assert_eq!((it.hosts.len(), it.rules.len()), (read, rules), "{hosts}: {it:?}");
            assert_eq!(left_out.is_empty(), hosts == "[]", "{hosts}: {left_out:?}");
        }
        assert!(route(r#"{"rules": {"a": 1}}"#).0.rules.is_empty(), "what is not a list is not everything");
    }

    #[test]
    fn a_pool_of_which_something_is_not_understood_stays_as_it_was() {
        let json = r#"{"metadata": {"name": "p"}, "spec": {"addresses": ["10.0.0.0/24", "10.1.0.0%24"]}}"#;
        assert!(accepted(Kind::AddressPool, json).is_err());
    }
}
