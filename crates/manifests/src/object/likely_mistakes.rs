//! What an API server accepts, and what nearly is something that Seaway reads: in a file, a mistake rather than a choice.

use std::sync::Arc;

use seaway_model::{
    Fact, Kind, Name, ObjectRef, Problem,
    fact::{Meta, Service},
};
use seaway_plan::{
    annotations::{
        BACKENDS, ENTRANCE, HOST, INTERNAL, PATH, SOURCE_RANGES, ServiceOptions, is_internal_elsewhere,
        is_unknown, lets_clients_in, meant, name_of, other_name, protection_elsewhere, protection_of_label,
        protects, rows,
    },
    misplaced_protection,
};

use super::{
    InvalidObject, Object,
    app_protocols::app_protocols,
    known_fields::{self, MOST},
    misplaced,
};
use crate::{
    decode::ValidationError,
    tree::{Entry, Node, Value},
};

const OURS: &str = "seaway.dev/";

/// What is said of an object, and what of it closes the object: it was to protect, and would not.
#[derive(Debug, Default)]
pub(super) struct LikelyMistakes {
    pub(super) ignored: Vec<ValidationError>,
    pub(super) closing: Vec<ValidationError>,
}

pub(super) fn likely_mistakes(kind: Kind, node: &Node) -> LikelyMistakes {
    let mut misses = LikelyMistakes::default();
    for unknown in known_fields::unknown_fields(kind, node) {
        match misplaced::closing_error(kind, &unknown, node) {
            Some(fault) => misses.closing.push(fault),
            // Of an announcement, those of its spec are faults; of a route, those of its rules are told with them.
            None if kind.is_announcing() && unknown.fault.field.starts_with("spec.") => {}
            None if kind == Kind::HTTPRoute && unknown.above.starts_with("spec.rules") => {}
            None if misses.ignored.len() < MOST => misses.ignored.push(unknown.fault),
            None => {}
        }
    }
    match kind {
        Kind::Service | Kind::HTTPRoute => {
            labels(node, &mut misses);
            annotations(node, &mut misses);
        }
        // Slices are told with their Service.
        Kind::EndpointSlice | Kind::Endpoints => {}
        _ => annotations_elsewhere(kind, node, &mut misses),
    }
    let of_ports = |field: &str, at: &Node| app_protocols(field, at);
    let faults = &mut misses.ignored;
    match kind {
        Kind::Service => faults.extend(node.child("spec").iter().flat_map(|it| of_ports("spec.ports", it))),
        Kind::EndpointSlice => faults.extend(of_ports("ports", node)),
        Kind::Endpoints => faults.extend(
            items(node, "subsets")
                .enumerate()
                .flat_map(|(index, it)| of_ports(&format!("subsets[{index}].ports"), it)),
        ),
        _ => {}
    }
    misses
}

pub(super) fn items<'n>(node: &'n Node, key: &str) -> impl Iterator<Item = &'n Node> {
    let items = match node.child(key).map(|it| &it.value) {
        Some(Value::List(items)) => items.as_slice(),
        _ => &[],
    };
    items.iter()
}

pub(super) fn written_entries<'n>(node: &'n Node, field: &str) -> &'n [Entry] {
    node.child("metadata").and_then(|it| it.child(field)).map(Node::entries).unwrap_or_default()
}

/// Lets nobody in, of a Service; other objects are refused. Who writes a setting that protects, and gets its place or its prefix
/// wrong, is not to be left open. So it is in a folder: in a cluster such Services are served already, and would lose clients.
pub(super) fn close_object(mut object: Object, why: &[ValidationError]) -> Result<Object, InvalidObject> {
    let service = object.facts.iter_mut().find_map(|fact| match fact {
        Fact::Service(service) => Some(service),
        _ => None,
    });
    match service {
        Some(service) => {
            Arc::make_mut(service).unclear_sources = true;
            Ok(object)
        }
        None => Err(InvalidObject { reference: Some(object.reference), errors: why.to_vec() }),
    }
}

impl Object {
    fn service(&self) -> Option<&Service> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::Service(service) => Some(&**service),
            _ => None,
        })
    }

    /// Whether it lets nobody in, because what was to protect it is not understood.
    pub fn is_closed(&self) -> bool {
        self.service().is_some_and(|it| it.unclear_sources)
    }

    /// Whether it was to be protected, and would not be as it was meant: it is closed, or a place that is not understood leaves its
    /// requests to others.
    pub fn lacks_protection(&self) -> bool {
        self.is_closed() || !self.misplaced.is_empty()
    }

    /// Whether it has something that protects it as it was meant.
    pub fn is_protected(&self) -> bool {
        self.protections() > 0
    }

    /// How many settings protect it; none, if it lacks what was meant.
    pub fn protections(&self) -> usize {
        if self.lacks_protection() {
            return 0;
        }
        let said = |it: &Meta| it.annotations.keys().filter(|key| protects(key)).count();
        let of_fact = |fact: &Fact| match fact {
            Fact::Service(it) => said(&it.meta).saturating_add(usize::from(!it.source_ranges.is_empty())),
            Fact::HttpRoute(it) => said(&it.meta),
            _ => 0,
        };
        self.facts.iter().map(of_fact).sum()
    }
}

/// The end of a message about an object that is closed for it.
pub const UNTIL_CORRECTED: &str = ", so nothing of this object is served until it is corrected";
/// What stands before it, where it is understood what the setting was to do, and where it is not.
pub(super) const RESTRICTS: &str = ". This setting restricts access";
const MAY_RESTRICT: &str = ". It is not known whether it restricts access";

fn labels(node: &Node, misses: &mut LikelyMistakes) {
    let move_it = "settings of Seaway are annotations; move it to metadata.annotations";
    for it in written_entries(node, "labels") {
        let field = format!("metadata.labels.{}", it.key);
        if it.key.starts_with(OURS) {
            let message = format!("a label, which has no effect: {move_it}");
            let closes = protects(&it.key) || it.key == INTERNAL && is_set(it);
            misses.push(field, it, &message, closes && !is_said(node, &it.key));
        } else if let Some(ours) = protection_of_label(&it.key)
            && is_set(it)
            && !is_said(node, ours)
        {
            let message =
                format!("a label of another program, which has no effect here{}: {move_it}", hint(ours));
            misses.push(field, it, &message, true);
        }
    }
}

/// Whether one of our annotations is there, or the field that says the same.
pub(super) fn is_said(node: &Node, ours: &str) -> bool {
    written_entries(node, "annotations").iter().any(|other| *other.key == *ours)
        || ours == SOURCE_RANGES && misplaced::has_ranges(node)
}

/// Whether an annotation of a cloud asks for a load balancer that an internal network alone reaches.
pub(super) fn is_internal(it: &Entry) -> bool {
    matches!(&it.value.value, Value::Text(text) if is_internal_elsewhere(&it.key, text))
}

fn annotations(node: &Node, misses: &mut LikelyMistakes) {
    for it in written_entries(node, "annotations") {
        let field = format!("metadata.annotations[{}]", it.key);
        if let Some((ours, closes)) = nearly_ours(&it.key) {
            let message = format!("an annotation that Seaway does not know (did you mean {ours}?)");
            let is_asked = is_set(it) || ![INTERNAL, ENTRANCE].contains(&ours);
            misses.push(field, it, &message, closes && is_asked && !is_said(node, ours));
        } else if is_unknown(&it.key) {
            // What it was to do is not known: it may have been to protect.
            let message = format!(
                "an annotation that Seaway does not know (docs/annotations.md lists them all){MAY_RESTRICT}{UNTIL_CORRECTED}"
            );
            misses.closing.push(ValidationError { field, at: it.at, message });
        } else if is_internal(it) && ![SOURCE_RANGES, ENTRANCE].into_iter().any(|ours| is_said(node, ours)) {
            misses.push(field, it, OF_A_CLOUD, true);
        } else if let Some(ours) = protection_elsewhere(&it.key)
            && is_set(it)
            && !is_said(node, ours)
        {
            let message = format!("an annotation of another program, which has no effect here{}", hint(ours));
            misses.push(field, it, &message, true);
        } else if let Some(name) = it.key.strip_prefix(OF_INGRESS_NGINX) {
            let ours = other_name(name).map_or("", |it| it.ours);
            let message = format!("an annotation of ingress-nginx, which has no effect here{}", hint(ours));
            misses.push(field, it, &message, false);
        }
    }
}

fn hint(ours: &str) -> String {
    if ours.starts_with(OURS) { format!(" (did you mean {ours}?)") } else { String::new() }
}

/// Whether an annotation of another program asks for something.
pub(super) fn is_set(it: &Entry) -> bool {
    let is_off = |text: &str| ["", "false", "off", "no", "none", "0", "unlimited"].contains(&text.trim());
    !matches!(&it.value.value, Value::Text(text) if is_off(text))
}

const OF_INGRESS_NGINX: &str = "nginx.ingress.kubernetes.io/";
const OF_A_CLOUD: &str = "an annotation for load balancers of a cloud, which has no effect here: Seaway's hosts serve all clients \
                          that reach them. To restrict access, write seaway.dev/source-ranges, or, at the front door, \
                          seaway.dev/entrance";

/// Ours for a name with another prefix, or without one, and whether the object is not to be served without it: `seaway.io/host`,
/// `Seaway.dev/host`, `seawau.dev/host`, `seaway.dev.host`, `backends`.
fn nearly_ours(key: &str) -> Option<(&'static str, bool)> {
    if key.starts_with(OURS) {
        return None;
    }
    if let Some(name) = name_of(key) {
        let meant = meant(&name);
        // Without its place, a Service is at all hosts.
        let closes = meant.ours.is_some_and(|it| [HOST, PATH].contains(&it));
        let ours = meant.protection().or(meant.ours)?;
        return Some((ours, closes || meant.protection().is_some()));
    }
    // Other programs have annotations called `tls`, or `auth`, too.
    let plain = format!("{OURS}{}", key.to_ascii_lowercase());
    let ours = rows().flat_map(|row| row.names).copied().find(|it| **it == *plain)?;
    let is_ours = !key.contains('/') && (ours == BACKENDS || lets_clients_in(ours));
    is_ours.then_some((ours, lets_clients_in(ours)))
}

/// What is wrong with the annotations of an object that is refused: nobody plans from it, who would say that otherwise.
pub(super) fn wrong_annotations(kind: Kind, node: &Node) -> Vec<ValidationError> {
    if !matches!(kind, Kind::Service | Kind::HTTPRoute) {
        return Vec::new();
    }
    let text = |it: &Entry| match &it.value.value {
        Value::Text(text) => Some((Name::from(it.key.as_str()), Name::from(text.as_str()))),
        _ => None,
    };
    let all = written_entries(node, "annotations");
    // Of a Service, who reads the folder makes endpoints of it, and has said what is wrong with it.
    let is_done = |it: &&Entry| kind == Kind::Service && it.key == BACKENDS;
    let others = all.iter().filter(|it| !is_done(it)).filter_map(text).collect();
    let mut wishes = ServiceOptions::by_default();
    let problems = wishes.read(&ObjectRef::new(kind, "", ""), &others);
    problems.into_iter().filter_map(|it| fault(it, all)).collect()
}

/// What is wrong with an annotation, without what follows: that is for the object as a whole.
fn fault(problem: Problem, all: &[Entry]) -> Option<ValidationError> {
    let field = problem.field.to_string();
    let at = all.iter().find(|it| field == format!("metadata.annotations[{}]", it.key))?.at;
    let why = problem.message.rsplit_once("; ").map_or(&*problem.message, |(why, _)| why);
    Some(ValidationError { field, at, message: format!("{why} ({})", problem.fix) })
}

/// What of its place at the front door is not understood, of a Service that protects itself: a broader place would serve its requests.
pub(super) fn misplaced(object: &Object, node: &Node) -> Vec<ValidationError> {
    let all = written_entries(node, "annotations");
    let problems = object.service().map(misplaced_protection).unwrap_or_default();
    problems.into_iter().filter_map(|it| fault(it, all)).collect()
}

fn annotations_elsewhere(kind: Kind, node: &Node, misses: &mut LikelyMistakes) {
    let is_known = |key: &str| rows().any(|row| row.name() == key);
    for it in written_entries(node, "annotations").iter().filter(|it| is_known(&it.key)) {
        let message =
            format!("this annotation has no effect on an object of kind {kind}: write it on the Service");
        misses.push(format!("metadata.annotations[{}]", it.key), it, &message, false);
    }
}

impl LikelyMistakes {
    fn push(&mut self, field: String, it: &Entry, message: &str, closes: bool) {
        let mut message = message.to_owned();
        if closes {
            message.extend([RESTRICTS, UNTIL_CORRECTED]);
        }
        let list = if closes { &mut self.closing } else { &mut self.ignored };
        list.push(ValidationError { field, at: it.at, message });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::read_text, *};

    fn said(text: &str) -> Vec<String> {
        let reading = read_text(text).remove(0);
        assert!(reading.result.is_ok(), "{:?}", reading.result);
        reading.ignored.iter().map(|it| format!("{} {it}", it.at.line)).collect()
    }

    #[test]
    fn a_protocol_that_is_nearly_known_is_named() {
        let service = |protocol: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec:\n  ports:\n  - {{port: 80, appProtocol: {protocol}}}\n"
            )
        };
        for (typo, near) in [
            ("htpp", "http"),
            ("HTTP", "http"),
            ("kubernetes.io/htpps", "https"),
            ("grcp", "grpc"),
            ("http/1.1", "http"),
            ("http/2", "kubernetes.io/h2c"),
        ] {
            let said = said(&service(typo));
            assert_eq!(said.len(), 1, "{typo}: {said:?}");
            assert!(said[0].starts_with("6 spec.ports[0].appProtocol: "), "{said:?}");
            assert!(said[0].ends_with(&format!("(did you mean {near:?}?)")), "{said:?}");
        }
        for known in [
            "http",
            "kubernetes.io/h2c",
            "wss",
            "tcp",
            "h3",
            "redis",
            "mysql",
            "mongo",
            "amqp",
            "ldap",
            "smtp",
            "imap",
            "kafka",
        ] {
            assert_eq!(said(&service(known)), [""; 0], "{known}");
        }
        let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a, labels: {kubernetes.io/service-name: a}}\n\
                     addressType: IPv4\nendpoints: []\nports:\n- {port: 80, appProtocol: htpp}\n";
        assert!(said(slice)[0].starts_with("7 ports[0].appProtocol: "), "{:?}", said(slice));
    }

    #[test]
    fn a_setting_that_is_written_as_a_label_is_named() {
        let text = |label: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  labels:\n    {label}\n    app: a\nspec: {{ports: [{{port: 80}}]}}\n"
            )
        };
        let said = said(&text("seaway.dev/balance: first"));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("6 metadata.labels.seaway.dev/balance: a label, which has no effect"),
            "{said:?}"
        );
    }

    #[test]
    fn what_was_to_protect_and_does_not_lets_no_client_in() {
        let text = |below: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  {below}\nspec: {{ports: [{{port: 80}}]}}\n"
            )
        };
        for (below, is_served) in [
            ("labels: {seaway.dev/source-ranges: all}", false),
            ("labels: {seaway.dev/tls: a}", false),
            ("labels: {seaway.dev/internal: 'true'}", false),
            ("labels: {seaway.dev/internal: 'false'}", true),
            ("labels: {nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0_8}", false),
            ("labels: {traefik.http.routers.shop.middlewares: auth}", false),
            ("labels: {caddy.basic_auth: bob}", false),
            ("annotations: {caddy.basic_auth: bob}", false),
            ("annotations: {seaway.io/internal: 'true'}", false),
            ("annotations: {seaway.io/internal: 'false'}", true),
            ("annotations: {seaway.io/max-body-size: 1m}", false),
            ("annotations: {nginx.ingress.kubernetes.io/proxy-body-size: 1m}", false),
            ("annotations: {nginx.ingress.kubernetes.io/proxy-body-size: '0'}", true),
            ("annotations: {service.beta.kubernetes.io/aws-load-balancer-internal: 'true'}", false),
            ("annotations: {service.beta.kubernetes.io/aws-load-balancer-scheme: internal}", false),
            ("annotations: {networking.gke.io/load-balancer-type: Internal}", false),
            ("annotations: {alb.ingress.kubernetes.io/scheme: internal}", false),
            ("annotations: {service.beta.kubernetes.io/azure-allowed-ip-ranges: 10.0.0.0/8}", false),
            ("annotations: {projectcontour.io/ip-allow-policy: 10.0.0.0/8}", false),
            ("annotations: {konghq.com/plugins: key-auth}", false),
            ("annotations: {k8s.apisix.apache.org/plugin-config-name: auth}", false),
            ("annotations: {source-ranges: 10.0.0.0/8}", false),
            ("annotations: {seaway.io/source-ranges: 10.0.0.0/8}", false),
            ("annotations: {Seaway.dev/Source-Ranges: 10.0.0.0/8}", false),
            ("annotations: {seawau.dev/basic-auth: a}", false),
            ("annotations: {loadBalancerSourceRanges: 10.0.0.0/8}", false),
            ("annotations: {other.example/source-ranges: 10.0.0.0/8}", false),
            ("annotations: {nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8}", false),
            (
                "annotations: {traefik.ingress.kubernetes.io/router.middlewares: default-auth@kubernetescrd}",
                false,
            ),
            ("annotations: {seaway.dev/waf: strict}", false),
            ("annotations: {nginx.ingress.kubernetes.io/auth-type: none}", true),
            ("annotations: {seaway.io/balance: first}", true),
            ("annotations: {backends: '10.0.0.1:80'}", true),
            ("annotations: {nginx.ingress.kubernetes.io/ssl-redirect: 'true'}", true),
        ] {
            let reading = read_text(&text(below)).remove(0);
            let Ok(Object { facts, .. }) = reading.result else { panic!("{below}: {reading:?}") };
            let Some(Fact::Service(service)) = facts.first() else { panic!("{facts:?}") };
            assert_eq!(!service.unclear_sources, is_served, "{below}");
            let faults = reading.ignored;
            assert_eq!(faults.len(), 1, "{below}: {faults:?}");
            assert_eq!(faults[0].at.line, 5, "{faults:?}");
        }
        for nothing in [
            "annotations: {tls: a, host: b, other.example/team: c}",
            "annotations: {service.beta.kubernetes.io/aws-load-balancer-internal: 'false'}",
            "annotations: {service.beta.kubernetes.io/aws-load-balancer-scheme: internet-facing}",
            "annotations: {networking.gke.io/load-balancer-type: External}",
            "annotations: {alb.ingress.kubernetes.io/scheme: internal, seaway.dev/entrance: inside}",
            "annotations: {checksum/auth-config: a, vault.hashicorp.com/auth-path: b, seaway.dev/owner: c, seaway.dev/description: d}",
            "labels: {app: auth, app.kubernetes.io/component: auth, caddy: shop.example, firewall: internal}",
            "labels: {caddy.basic_auth: bob}\n  annotations: {seaway.dev/basic-auth: users}",
            "annotations: {seaway.dev/source-ranges: 10.0.0.0/8, haproxy.org/allow-list: 10.0.0.0/8}",
            "labels: {app: seaway.dev}",
        ] {
            let reading = read_text(&text(nothing)).remove(0);
            assert!(reading.result.is_ok() && reading.ignored.is_empty(), "{nothing}: {reading:?}");
        }
        let both =
            "labels: {seaway.dev/source-ranges: all}\n  annotations: {seaway.dev/source-ranges: 10.0.0.0/8}";
        assert!(read_text(&text(both)).remove(0).result.is_ok(), "it is protected");
    }

    #[test]
    fn a_mistake_beside_backends_is_one_fault() {
        let service = |annotations: &str, port: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  annotations: {{{annotations}}}\nspec: {{ports: [{{port: {port}}}]}}\n"
            )
        };
        for (text, field) in [
            (
                service("seaway.dev/backends: '127.0.0.1:300x'", "80"),
                "metadata.annotations[seaway.dev/backends]",
            ),
            (service("seaway.dev/backends: '127.0.0.1:3000'", "0"), "spec.ports[0].port"),
        ] {
            let faults = read_text(&text).remove(0).result.expect_err("it is refused").errors;
            let fields: Vec<&str> = faults.iter().map(|it| it.field.as_str()).collect();
            assert_eq!(fields, [field], "{faults:?}");
        }
        // What is wrong with others is still named.
        let text = service("seaway.dev/backends: '127.0.0.1:300x', seaway.dev/balance: any", "80");
        let faults = read_text(&text).remove(0).result.expect_err("it is refused").errors;
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    #[test]
    fn an_annotation_on_another_object_is_named() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    seaway.dev/source-ranges: 10.0.0.0/8\n";
        let said = said(text);
        assert!(
            said[0].starts_with(
                "6 metadata.annotations[seaway.dev/source-ranges]: this annotation has no effect"
            ),
            "{said:?}"
        );
    }
}
