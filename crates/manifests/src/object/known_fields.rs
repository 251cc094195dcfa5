//! Which fields an API server knows of the kinds that are read here, and which of a manifest it would not: `kubectl apply`
//! refuses those. A name that is misspelt is otherwise a setting that is silently absent.
//!
//! A test holds the tables against the OpenAPI document of a real API server.

use std::{collections::BTreeMap, sync::LazyLock};

use seaway_model::Kind;

use crate::{
    decode::{Field, FieldReads, FieldType, PathPart, ValidationError, ValidationErrors, nearest},
    tree::{self, Entry, Node, Value},
};

/// More of one object than this teach nobody anything.
pub(super) const MOST: usize = 20;

/// `name`: whatever is in it. `name{…}`: a map that has these fields. `name[…]`: a list of such maps.
const META: &str = "apiVersion kind metadata{annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp \
    finalizers generateName generation labels managedFields name namespace ownerReferences resourceVersion selfLink uid}";
const SERVICE: &str = "spec{allocateLoadBalancerNodePorts clusterIP clusterIPs externalIPs externalName \
    externalTrafficPolicy healthCheckNodePort internalTrafficPolicy ipFamilies ipFamilyPolicy loadBalancerClass \
    loadBalancerIP loadBalancerSourceRanges ports[appProtocol name nodePort port protocol targetPort] \
    publishNotReadyAddresses selector sessionAffinity sessionAffinityConfig{clientIP{timeoutSeconds}} trafficDistribution \
    type} status";
const ENDPOINT_SLICE: &str = "addressType endpoints[addresses conditions{ready serving terminating} \
    deprecatedTopology hints{forNodes[name] forZones[name]} hostname nodeName targetRef zone] \
    ports[appProtocol name port protocol]";
const ENDPOINTS: &str = "subsets[addresses[hostname ip nodeName targetRef] notReadyAddresses[hostname ip nodeName \
    targetRef] ports[appProtocol name port protocol]]";
const SECRET: &str = "data immutable stringData type";
const NAMESPACE: &str = "spec status";
const NODE: &str = "spec status";
/// Of Gateway API's experimental channel, which has all that the standard one has.
const HTTP_ROUTE: &str = "spec{hostnames parentRefs[group kind name namespace port sectionName] rules[backendRefs[FILTERS \
    group kind name namespace port weight] FILTERS matches[headers[name type value] method path{type value} \
    queryParams[name type value]] name retry{attempts backoff codes} sessionPersistence timeouts{backendRequest request}] \
    useDefaultGateways} status";
const FILTERS: &str = "filters[cors{allowCredentials allowHeaders allowMethods allowOrigins exposeHeaders maxAge} \
    extensionRef{group kind name} externalAuth requestHeaderModifier{add[name value] remove set[name value]} \
    requestMirror{backendRef{group kind name namespace port} fraction{denominator numerator} percent} \
    requestRedirect{hostname path{replaceFullPath replacePrefixMatch type} port scheme statusCode} \
    responseHeaderModifier{add[name value] remove set[name value]} type \
    urlRewrite{hostname path{replaceFullPath replacePrefixMatch type}}]";
const ADDRESS_POOL: &str = "spec{addresses announce autoAssign avoidBuggyIPs controlPlanes hosts namespaceSelectors \
    namespaces priority reservedPorts serviceSelectors} status";
const IP_ADDRESS_POOL: &str = "spec{addresses autoAssign avoidBuggyIPs serviceAllocation{namespaceSelectors namespaces \
    priority serviceSelectors}} status";

const SELECTOR: &str = "matchLabels matchExpressions[key operator values]";
const L2_ADVERTISEMENT: &str = "spec{addressPools addressPoolSelectors[SELECTOR] serviceSelectors[SELECTOR] \
    hostSelectors[SELECTOR] interfaces} status";
const BGP_ADVERTISEMENT: &str = "spec{addressPools addressPoolSelectors[SELECTOR] serviceSelectors[SELECTOR] \
    hostSelectors[SELECTOR] peers aggregationLength aggregationLengthV6 localPref med communities} status";
const BGP_PEER: &str = "spec{myASN peerASN dynamicASN peerAddress interface peerPort sourceAddress holdTime keepaliveTime \
    connectTime passwordSecret{name} ebgpMultiHop gtsmHops bfdProfile enableGracefulRestart hostSelectors[SELECTOR] routerID \
    nextHops{ipv4 ipv6} families} status";
const BFD_PROFILE: &str =
    "spec{receiveInterval transmitInterval detectMultiplier passiveMode minimumTtl echoMode} status";
const COMMUNITY: &str = "spec{communities[name value]} status";
const METALLB_L2_ADVERTISEMENT: &str = "spec{ipAddressPools ipAddressPoolSelectors[SELECTOR] serviceSelectors[SELECTOR] \
    nodeSelectors[SELECTOR] interfaces} status";
const METALLB_BGP_ADVERTISEMENT: &str = "spec{ipAddressPools ipAddressPoolSelectors[SELECTOR] serviceSelectors[SELECTOR] \
    nodeSelectors[SELECTOR] peers aggregationLength aggregationLengthV6 localPref communities} status";
const METALLB_BGP_PEER: &str = "spec{myASN peerASN dynamicASN localASN peerAddress interface peerPort sourceAddress holdTime \
    keepaliveTime connectTime password passwordSecret{name namespace} ebgpMultiHop bfdProfile enableGracefulRestart \
    nodeSelectors[SELECTOR] routerID vrf disableMP dualStackAddressFamily} status";
const METALLB_BFD_PROFILE: &str = "spec{receiveInterval transmitInterval detectMultiplier echoInterval echoMode passiveMode \
    minimumTtl} status";

static TABLES: LazyLock<BTreeMap<Kind, FieldSchema>> = LazyLock::new(|| {
    let table = |fields: &str| {
        let mut words = format!("{META} {fields}")
            .replace("FILTERS", FILTERS)
            .replace("SELECTOR]", &format!("{SELECTOR}]"));
        words = words.replace('{', " { ").replace('[', " [ ").replace(['}', ']'], " } ");
        FieldSchema::read(&mut words.split_whitespace().peekable())
    };
    BTreeMap::from([
        (Kind::Service, table(SERVICE)),
        (Kind::EndpointSlice, table(ENDPOINT_SLICE)),
        (Kind::Endpoints, table(ENDPOINTS)),
        (Kind::Secret, table(SECRET)),
        (Kind::Namespace, table(NAMESPACE)),
        (Kind::Node, table(NODE)),
        (Kind::HTTPRoute, table(HTTP_ROUTE)),
        (Kind::AddressPool, table(ADDRESS_POOL)),
        (Kind::IPAddressPool, table(IP_ADDRESS_POOL)),
        (Kind::L2Advertisement, table(L2_ADVERTISEMENT)),
        (Kind::BGPAdvertisement, table(BGP_ADVERTISEMENT)),
        (Kind::BGPPeer, table(BGP_PEER)),
        (Kind::BFDProfile, table(BFD_PROFILE)),
        (Kind::Community, table(COMMUNITY)),
        (Kind::MetallbL2Advertisement, table(METALLB_L2_ADVERTISEMENT)),
        (Kind::MetallbBGPAdvertisement, table(METALLB_BGP_ADVERTISEMENT)),
        (Kind::MetallbBGPPeer, table(METALLB_BGP_PEER)),
        (Kind::MetallbBFDProfile, table(METALLB_BFD_PROFILE)),
        (Kind::MetallbCommunity, table(COMMUNITY)),
    ])
});

/// Where a field belongs that stands in another place, or is called so by other programs.
fn elsewhere(path: &str, key: &str, known: &[&str]) -> Option<&'static str> {
    let is_route = known.contains(&"hostnames");
    Some(match (path, key) {
        ("" | "spec", "annotations") => "metadata.annotations: indent it below metadata",
        ("" | "spec", "labels") => "metadata.labels: indent it below metadata",
        ("", "name" | "namespace") => "metadata.name and metadata.namespace",
        ("", "ports" | "type" | "selector" | "rules" | "hostnames" | "externalName") => "the same below spec",
        ("spec", "host" | "hosts" | "hostname") if is_route => "\"hostnames\"",
        ("spec", "host" | "hosts" | "hostname") if known.contains(&"ports") => {
            "the annotation seaway.dev/host"
        }
        ("spec", "backends" | "servers" | "endpoints") => "the annotation seaway.dev/backends",
        ("spec", "tls" | "certificate") => "the annotation seaway.dev/tls",
        ("spec", "port") => "\"ports\"",
        (path, "targetPort") if path.starts_with("ports[") && known.contains(&"port") => {
            "\"port\": of an EndpointSlice, it is that of the members"
        }
        ("" | "spec", "weight") if known.contains(&"endpoints") => "the annotation seaway.dev/weight",
        (path, "weight") if path.starts_with("endpoints[") => {
            "the annotation seaway.dev/weight: it is of all endpoints of a slice"
        }
        _ => return None,
    })
}

/// Fields of a map, or of each map of a list; without any, whatever there is.
#[derive(Debug, Default)]
struct FieldSchema(BTreeMap<String, FieldSchema>, IsList);

type IsList = bool;

impl FieldSchema {
    fn read<'w>(words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>) -> FieldSchema {
        let mut shape = FieldSchema::default();
        while let Some(word) = words.next().filter(|it| *it != "}") {
            let below = match words.next_if(|it| matches!(*it, "{" | "[")) {
                Some(opening) => FieldSchema(FieldSchema::read(words).0, opening == "["),
                None => FieldSchema::default(),
            };
            shape.0.insert(word.to_owned(), below);
        }
        shape
    }

    fn look<'n>(&self, node: &'n Node, path: &str, faults: &mut Vec<UnknownField<'n>>) {
        match &node.value {
            _ if self.0.is_empty() => {}
            Value::Map(entries) => {
                for entry in entries {
                    let field =
                        if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
                    if let Some(below) = self.0.get(&entry.key) {
                        below.look(&entry.value, &field, faults);
                        continue;
                    }
                    let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
                    let hint = match (elsewhere(path, &entry.key, &names), nearest(&entry.key, &names)) {
                        (Some(place), _) => format!(" (did you mean {place}?)"),
                        (None, Some(name)) => format!(" (did you mean {name:?}?)"),
                        (None, None) => String::new(),
                    };
                    let message = format!("unknown field, which is ignored{hint}");
                    let fault = ValidationError { field, at: entry.at, message };
                    faults.push(UnknownField { above: path.to_owned(), entry, fault });
                }
            }
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.look(item, &format!("{path}[{index}]"), faults);
                }
            }
            // Of another type than it should be, which is told elsewhere.
            _ => {}
        }
    }

    /// A text with all maps and lists in it, and a map in each list.
    fn sample(&self) -> String {
        let inner = self.0.iter().filter(|(_, below)| !below.0.is_empty());
        let inner: Vec<String> = inner.map(|(name, below)| format!("{name:?}: {}", below.sample())).collect();
        let map = format!("{{{}}}", inner.join(", "));
        if self.1 { format!("[{map}]") } else { map }
    }

    fn take_down(&self, above: &[PathPart], reads: &mut FieldReads) {
        for (name, below) in &self.0 {
            let mut path = [above, &[PathPart::Field(name.clone())]].concat();
            let expected = reads.entry(path.clone()).or_default();
            if !below.0.is_empty() {
                expected.insert(if below.1 { FieldType::List } else { FieldType::Map });
            }
            path.extend(below.1.then_some(PathPart::Item));
            below.take_down(&path, reads);
        }
    }

    fn paths(&self, above: &str, paths: &mut Vec<String>) {
        for (name, below) in &self.0 {
            let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
            below.paths(&path, paths);
            paths.push(path);
        }
    }
}

/// A field that no API server knows, and what is said of it.
#[derive(Debug)]
pub(super) struct UnknownField<'n> {
    /// The path of the map that it is in.
    pub(super) above: String,
    pub(super) entry: &'n Entry,
    pub(super) fault: ValidationError,
}

/// All of an object of this kind.
pub(super) fn unknown_fields(kind: Kind, node: &Node) -> Vec<UnknownField<'_>> {
    let mut faults = Vec::new();
    if let Some(table) = TABLES.get(&kind) {
        table.look(node, "", &mut faults);
    }
    faults
}

/// As [`unknown`] of a part of an object: what is below the fields `above`, and is at `path`.
pub(super) fn unknown_fields_at(kind: Kind, above: &[&str], node: &Node, path: &str) -> Vec<ValidationError> {
    let mut faults = Vec::new();
    let mut shape = TABLES.get(&kind);
    for name in above {
        shape = shape.and_then(|it| it.0.get(*name));
    }
    if let Some(shape) = shape {
        shape.look(node, path, &mut faults);
    }
    faults.into_iter().map(|it| it.fault).take(MOST).collect()
}

/// All fields that are known of a kind, with those above them: `spec`, `spec.ports`, `spec.ports.port`.
pub fn known_fields(kind: Kind) -> Vec<String> {
    let mut paths = Vec::new();
    if let Some(table) = TABLES.get(&kind) {
        table.paths("", &mut paths);
    }
    paths
}

/// The same, with what is read of each, as [`ValidationErrors::recording`] tells it of an object that has all of them.
pub(super) fn fields_read(kind: Kind, read: impl Fn(&Field<'_>)) -> FieldReads {
    let Some(table) = TABLES.get(&kind) else { return FieldReads::new() };
    let faults = ValidationErrors::recording();
    if let Some(node) = tree::parse(&table.sample()).ok().and_then(|it| it.into_iter().next()) {
        read(&Field::root(&node, &faults));
    }
    let mut reads = faults.into_reads();
    table.take_down(&[], &mut reads);
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::parse;

    fn unknown_of(kind: Kind, text: &str) -> Vec<String> {
        let node = &parse(text).expect("parses")[0];
        unknown_fields(kind, node).iter().map(|it| format!("{} {}", it.fault.at.line, it.fault)).collect()
    }

    #[test]
    fn a_misspelt_field_is_named_with_the_nearest_one() {
        let text = "metadata: {name: a, annotations: {any: thing}}\nspec:\n  ports:\n  - port: 80\n    targetport: 8080\n\
                    \x20 selector: {what: ever}\n  prots: []\nstatus: {some: thing}\nwhat: 1\n";
        assert_eq!(
            unknown_of(Kind::Service, text),
            [
                "5 spec.ports[0].targetport: unknown field, which is ignored (did you mean \"targetPort\"?)",
                "7 spec.prots: unknown field, which is ignored (did you mean \"ports\"?)",
                "9 what: unknown field, which is ignored",
            ]
        );
        let text = "endpoints: [{addresses: [192.0.2.1], conditions: {redy: false}}]\n";
        assert_eq!(
            unknown_of(Kind::EndpointSlice, text),
            ["1 endpoints[0].conditions.redy: unknown field, which is ignored (did you mean \"ready\"?)"]
        );
    }

    #[test]
    fn a_misspelt_field_of_a_route_is_named_wherever_it_stands() {
        let text = "spec:\n  hostname: [a.example]\n  rules:\n  - backendRef: [{name: a}]\n    backendRefs: [{nmae: a}]\n\
                    \x20   filters: [{type: URLRewrite, urlRewrite: {pth: {}}}]\n    matches: [{path: {tpye: Exact}}]\n";
        assert_eq!(
            unknown_of(Kind::HTTPRoute, text),
            [
                "2 spec.hostname: unknown field, which is ignored (did you mean \"hostnames\"?)",
                "4 spec.rules[0].backendRef: unknown field, which is ignored (did you mean \"backendRefs\"?)",
                "5 spec.rules[0].backendRefs[0].nmae: unknown field, which is ignored (did you mean \"name\"?)",
                "6 spec.rules[0].filters[0].urlRewrite.pth: unknown field, which is ignored (did you mean \"path\"?)",
                "7 spec.rules[0].matches[0].path.tpye: unknown field, which is ignored (did you mean \"type\"?)",
            ]
        );
        // Fields that Seaway does not follow are known all the same.
        let text = "spec: {rules: [{name: a, sessionPersistence: {type: Cookie}, retry: {codes: [500]}}], useDefaultGateways: All}\n";
        assert!(unknown_of(Kind::HTTPRoute, text).is_empty());
    }

    #[test]
    fn what_is_of_another_type_is_left_to_whoever_reads_it() {
        assert!(unknown_of(Kind::Service, "spec: {ports: 80, type: [a]}\nmetadata: text\n").is_empty());
    }

    #[test]
    fn each_kind_has_a_table() {
        for kind in [Kind::Service, Kind::EndpointSlice, Kind::Endpoints, Kind::Secret, Kind::AddressPool] {
            let fields = known_fields(kind);
            assert!(fields.contains(&"metadata.name".to_owned()), "{kind:?}: {fields:?}");
        }
        assert!(known_fields(Kind::Service).contains(&"spec.ports.targetPort".to_owned()));
    }
}
