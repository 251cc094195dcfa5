//! Objects: a tree becomes facts, with the defaults and the validation of an API server for the fields we read.
//!
//! Faults are told in the API server's words, so that a search engine knows them. Two things differ on purpose:
//! endpoints may be on the loopback, because here they run on this very machine, and an EndpointSlice must name its
//! Service, because here nobody else could use it.

mod accepted;
mod addresses;
mod announcing;
mod app_protocols;
mod backends;
mod closed_places;
mod cluster_scoped;
mod endpoints;
pub(crate) mod formats;
mod http_route;
mod kind_readers;
mod known_fields;
mod likely_mistakes;
mod meta;
mod misplaced;
mod pool;
mod secret;
mod service;
mod slice;
mod unserved_kinds;
mod unused_routes;

use seaway_model::{Fact, Kind, Name, ObjectRef};

use self::kind_readers::{KIND_READERS, KindReader};
pub use self::{
    accepted::{AcceptedObject, SOURCE_RANGES, read_accepted},
    closed_places::{ClosedPlaces, closed_places},
    cluster_scoped::implied_namespace,
    known_fields::known_fields,
    likely_mistakes::UNTIL_CORRECTED,
    meta::{ANNOTATION_PREFIXES, uid, uuid},
    misplaced::NOT_USED,
    service::{FINALIZER, MANAGER, OWN_FINALIZER},
    unserved_kinds::unserved_kind,
    unused_routes::{UnusedRoute, objects, replaced_route, unused_route, unused_route_in_text},
};
use crate::{
    decode::{Field, FieldReads, ValidationError, ValidationErrors, nearest},
    tree::{Node, Position, Value},
};

/// What one object of a document came to.
#[derive(Clone, Debug)]
pub struct ParsedObject {
    /// Its place in the list, if a `List` holds it.
    pub item: Option<usize>,
    pub at: Position,
    pub result: Result<Object, InvalidObject>,
    /// What is said in it, and read by nobody: the rest of the object counts.
    pub ignored: Vec<ValidationError>,
}

/// An object with what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub reference: ObjectRef,
    /// Several for Endpoints with several subsets and for a Service with `seaway.dev/backends`; none for Endpoints without any.
    pub facts: Vec<Fact>,
    /// Of a Service that protects itself, in a file: what of its place at the front door is not understood.
    pub misplaced: Vec<ValidationError>,
}

/// An object that an API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidObject {
    /// Which one it is, if as much can be told.
    pub reference: Option<ObjectRef>,
    pub errors: Vec<ValidationError>,
}

/// Reads the root of a document: an object, or a list of them. Kinds that are not ours are left out.
pub fn read(root: &Node) -> Vec<ParsedObject> {
    let mut readings = Vec::new();
    let listed = list_of(root);
    match (listed, &root.value) {
        (Some(of), Value::Map(_)) => {
            let Some(items) = root.child("items") else {
                readings.push(without_items(root));
                return readings;
            };
            let Value::List(nodes) = &items.value else {
                if items.value != Value::Null {
                    readings.extend(refuse(items, "items", "Invalid value: must be a list"));
                }
                return readings;
            };
            for (index, node) in nodes.iter().enumerate() {
                let reading = match list_of(node) {
                    Some(_) => refuse(node, "", "a list within a list"),
                    None => read_one(node, of),
                };
                readings.extend(reading.map(|reading| ParsedObject { item: Some(index), ..reading }));
            }
        }
        (None, Value::Map(_)) => readings.extend(read_one(root, None)),
        (_, Value::Null | Value::List(_)) => {}
        _ => readings.extend(refuse(root, "", "not an object: a manifest is a map with apiVersion and kind")),
    }
    readings
}

/// `List`, or `ServiceList`, whose items need not say what they are.
fn list_of(node: &Node) -> Option<Option<(&'static KindReader, &str)>> {
    let kind = word(node, "kind")?;
    let item = kind.strip_suffix("List")?;
    let version = word(node, "apiVersion").unwrap_or_default();
    if item.is_empty() {
        return Some(None);
    }
    KIND_READERS
        .iter()
        .find(|known| known.name == item && known.group() == group(version))
        .map(|known| Some((known, version)))
}

/// Reads what an API server says is an object of this kind, in the version that we asked for; the items of its lists
/// do not say so themselves. Nothing for kinds that no manifest has.
pub fn read_as(kind: Kind, node: &Node) -> Option<Result<Object, InvalidObject>> {
    let known = KIND_READERS.iter().find(|known| known.kind == kind)?;
    let faults = ValidationErrors::default();
    let root = Field::root(node, &faults);
    let facts = (known.read)(&root);
    Some(known.result(node, facts, faults))
}

fn read_one(node: &Node, listed: Option<(&'static KindReader, &str)>) -> Option<ParsedObject> {
    let version = word(node, "apiVersion").or(listed.map(|(_, version)| version));
    let kind = word(node, "kind").or(listed.map(|(known, _)| known.name));
    let (version, kind) = match (version, kind) {
        (Some(version), Some(kind)) => (version, kind),
        // A folder may hold other YAML too; only what nearly is a manifest is worth a complaint.
        (None, None) if node.child("metadata").is_none() => return None,
        (_, None) => return refuse(node, "kind", "Required value: Object 'Kind' is missing"),
        (None, _) if KIND_READERS.iter().all(|known| Some(known.name) != kind) => return None,
        (None, _) => return refuse(node, "apiVersion", "Required value: Object 'apiVersion' is missing"),
    };
    let known = KIND_READERS.iter().find(|known| known.name == kind && known.group() == group(version));
    let Some(known) = known else { return misspelt(node, version, kind) };
    let faults = ValidationErrors::default();
    let root = Field::root(node, &faults);
    let facts = if known.version == version {
        (known.read)(&root).map(|facts| backends::expand_backends(&root, facts))
    } else {
        let why = format!("no matches for kind {kind:?} in version {version:?} (known: {:?})", known.version);
        root.child("apiVersion").error(why);
        None
    };
    let misses = likely_mistakes::likely_mistakes(known.kind, node);
    let mut ignored = misses.ignored;
    let mut result = known.result(node, facts, faults);
    if let Ok(object) = &mut result {
        object.misplaced = likely_mistakes::misplaced(object, node);
    }
    if !misses.closing.is_empty() {
        result = result.and_then(|object| likely_mistakes::close_object(object, &misses.closing));
        ignored.extend(misses.closing);
    }
    Some(match result {
        // What is missing may be there under another name.
        Err(mut broken) => {
            broken.errors.retain(|fault| !is_misspelt(fault, &ignored));
            broken.errors.extend(ignored);
            broken.errors.extend(likely_mistakes::wrong_annotations(known.kind, node));
            broken.errors.sort_by_key(|fault| fault.at);
            broken.errors.dedup();
            ParsedObject { item: None, at: node.at, result: Err(broken), ignored: Vec::new() }
        }
        result => ParsedObject { item: None, at: node.at, result, ignored },
    })
}

/// A field that is missing because it stands there with a slip of the pen, which is told.
fn is_misspelt(fault: &ValidationError, ignored: &[ValidationError]) -> bool {
    let (above, name) = fault.field.rsplit_once('.').unwrap_or(("", &fault.field));
    let meant = format!("did you mean {name:?}");
    let is_beside = |it: &ValidationError| it.field.rsplit_once('.').map_or("", |(above, _)| above) == above;
    fault.message.starts_with("Required value")
        && ignored.iter().any(|it| is_beside(it) && it.message.contains(&meant))
}

/// The kinds of manifests: each with its name, its version and the fields that it may have.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str, FieldReads)> {
    KIND_READERS.iter().map(|known| {
        let read = |root: &Field<'_>| {
            let _only_what_is_asked_counts = (known.read)(root);
        };
        (known.name, known.version, known_fields::fields_read(known.kind, read))
    })
}

/// A map or a list that says neither what it is nor its name: another program's, or a manifest that lost its head.
pub fn is_unnamed(root: &Node) -> bool {
    let is_map = matches!(&root.value, Value::Map(entries) if !entries.is_empty());
    let says = |key| root.child(key).is_some();
    matches!(root.value, Value::List(_))
        || is_map && !["apiVersion", "kind", "metadata"].into_iter().any(says)
}

/// A kind that is not ours is nobody's mistake, unless it nearly is one of ours.
fn misspelt(node: &Node, version: &str, kind: &str) -> Option<ParsedObject> {
    if let Some(known) = KIND_READERS.iter().find(|known| known.name == kind)
        && is_of_kubernetes(group(version))
    {
        let known = known.version;
        let why = format!("no matches for kind {kind:?} in version {version:?} (did you mean {known:?}?)");
        return refuse(node.child("apiVersion")?, "apiVersion", &why);
    }
    if group(version).is_empty() && kind.eq_ignore_ascii_case("List") {
        let why = format!("no matches for kind {kind:?} in version {version:?} (did you mean \"List\"?)");
        return refuse(node.child("kind")?, "kind", &why);
    }
    let names: Vec<&str> =
        KIND_READERS.iter().filter(|known| known.group() == group(version)).map(|known| known.name).collect();
    if group(version) == "discovery.k8s.io"
        && ["endpoint", "endpoints"].contains(&&*kind.to_ascii_lowercase())
    {
        let why =
            format!("no matches for kind {kind:?} in version {version:?} (did you mean \"EndpointSlice\"?)");
        return refuse(node.child("kind")?, "kind", &why);
    }
    // A Pod is no Node with two letters wrong.
    let near = nearest(kind, &names).filter(|near| near.len().abs_diff(kind.len()) <= 1 && kind.len() > 4)?;
    refuse(
        node.child("kind")?,
        "kind",
        &format!("no matches for kind {kind:?} in version {version:?} (did you mean {near:?}?)"),
    )
}

/// A group in which others may not define kinds of the same name: `Service` is Knative's, too.
fn is_of_kubernetes(group: &str) -> bool {
    matches!(group, "" | "apps" | "autoscaling" | "batch" | "extensions" | "policy")
        || group.ends_with(".k8s.io")
}

fn refuse(node: &Node, field: &str, message: &str) -> Option<ParsedObject> {
    Some(refuse_at(node.at, field, message))
}

fn refuse_at(at: Position, field: &str, message: &str) -> ParsedObject {
    let fault = ValidationError { field: field.to_owned(), at, message: message.to_owned() };
    let broken = InvalidObject { reference: None, errors: vec![fault] };
    ParsedObject { item: None, at, result: Err(broken), ignored: Vec::new() }
}

/// The end of a message about a list of which nothing is read.
pub const NO_ITEMS: &str = "no object of this List is read";

/// A list whose objects stand elsewhere than in `items`: those that it had are not gone for that.
fn without_items(root: &Node) -> ParsedObject {
    let others =
        || root.entries().iter().filter(|it| !["apiVersion", "kind", "metadata"].contains(&&*it.key));
    let near = others().find(|it| nearest(&it.key, &["items"]).is_some());
    match near.or_else(|| others().next()) {
        Some(it) => {
            let message = format!("unknown field (did you mean \"items\"?): {NO_ITEMS}");
            refuse_at(it.at, &it.key, &message)
        }
        None => refuse_at(root.at, "items", &format!("Required value: {NO_ITEMS}")),
    }
}

fn word<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    match &node.child(key)?.value {
        Value::Text(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn group(version: &str) -> &str {
    version.split_once('/').map_or("", |(group, _)| group)
}

/// The Service that this object's slices belong to.
pub fn slice_service(object: &Object) -> Option<(Name, Name)> {
    match (object.reference.kind, object.facts.first()) {
        (Kind::EndpointSlice, Some(Fact::Endpoints(slice))) => {
            Some((slice.object.namespace.clone(), slice.service.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tree::parse;

    pub(crate) fn read_text(text: &str) -> Vec<ParsedObject> {
        parse(text).expect("parses").iter().flat_map(read).collect()
    }

    /// The only object's facts.
    pub(crate) fn facts(text: &str) -> Vec<Fact> {
        let mut readings = read_text(text);
        assert_eq!(readings.len(), 1, "{text}");
        readings.remove(0).result.unwrap_or_else(|broken| panic!("{:?}", broken.errors)).facts
    }

    /// The only object's faults, each with its line.
    pub(crate) fn faults(text: &str) -> Vec<String> {
        let mut readings = read_text(text);
        assert_eq!(readings.len(), 1, "{text}");
        let broken = readings.remove(0).result.expect_err("is refused");
        broken.errors.iter().map(|fault| format!("{} {fault}", fault.at.line)).collect()
    }

    #[test]
    fn what_an_api_server_tells_is_read_as_what_is_written_in_a_file() {
        let told = r#"{"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80, "targetPort": 8080}]}}"#;
        let node: Node = serde_json::from_str(told).expect("is JSON");
        let object = read_as(Kind::Service, &node).expect("is known").expect("is whole");
        let written = format!("{{\"apiVersion\": \"v1\", \"kind\": \"Service\", {}", &told[1..]);
        assert_eq!(object.facts, facts(&written));
        let node: Node = serde_json::from_str(r#"{"metadata": {"name": "a"}}"#).expect("is JSON");
        let broken = read_as(Kind::Service, &node).expect("is known").expect_err("has no ports");
        assert_eq!(broken.errors[0].field, "spec.ports");
        assert!(read_as(Kind::Config, &node).is_none());
    }

    #[test]
    fn other_kinds_are_nobodys_business() {
        for text in [
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x}\n",
            "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: x}\n",
            "replicas: 3\nimage: nginx\n",
            "- hosts: all\n",
            "",
        ] {
            assert!(read_text(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn what_nearly_is_a_manifest_is_told() {
        let missing = faults("apiVersion: v1\nmetadata: {name: x}\n");
        assert_eq!(missing, ["1 kind: Required value: Object 'Kind' is missing"]);
        let missing = faults("kind: Service\nmetadata: {name: x}\n");
        assert_eq!(missing, ["1 apiVersion: Required value: Object 'apiVersion' is missing"]);
        let old = faults("kind: EndpointSlice\napiVersion: discovery.k8s.io/v1beta1\nmetadata: {name: x}\n");
        assert!(old[0].starts_with("2 apiVersion: no matches for kind \"EndpointSlice\""), "{old:?}");
        let typo = faults("apiVersion: v1\nkind: Servise\nmetadata: {name: x}\n");
        assert_eq!(
            typo,
            ["2 kind: no matches for kind \"Servise\" in version \"v1\" (did you mean \"Service\"?)"]
        );
        for (version, kind, right) in [
            ("apps/v1", "Service", "v1"),
            ("v1", "EndpointSlice", "discovery.k8s.io/v1"),
            ("v1", "AddressPool", "seaway.dev/v1alpha1"),
        ] {
            let told = faults(&format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n"));
            let expected = format!(
                "1 apiVersion: no matches for kind {kind:?} in version {version:?} (did you mean {right:?}?)"
            );
            assert_eq!(told, [expected]);
        }
        assert!(faults("apiVersio")[0].contains("not an object"));
    }

    #[test]
    fn what_does_not_say_what_it_is_is_told_from_what_does() {
        let is = |text: &str| is_unnamed(&parse(text).expect("parses")[0]);
        assert!(is("backends: [a]\n") && is("- a: 1\n"));
        assert!(!is("kind: Pod\n") && !is("{}\n") && !is("metadata: {name: x}\n"));
    }

    #[test]
    fn annotations_of_an_object_with_an_invalid_field_are_told_with_it() {
        let text = |annotations: &str, ports: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  annotations: {{{annotations}}}\nspec: {{ports: {ports}}}\n"
            )
        };
        let annotations = "seaway.dev/healthcheck: http, seaway.dev/balance: fastest, other.example/a: b";
        let told = faults(&text(annotations, "{port: 80}"));
        let of =
            |field: &str| told.iter().find(|it| it.contains(field)).unwrap_or_else(|| panic!("{told:?}"));
        assert!(
            of("[seaway.dev/healthcheck]").starts_with("5 ") && of("health-check?").contains("Did you mean")
        );
        assert!(of("[seaway.dev/balance]").contains("source-hash"), "{told:?}");
        assert!(!of("[seaway.dev/balance]").contains("default is used"), "{told:?}");
        assert!(of("spec.ports").contains("must be a list"));
        assert!(!told.iter().any(|it| it.contains("other.example")), "{told:?}");
        let reading = read_text(&text(annotations, "[{port: 80}]")).remove(0);
        assert!(reading.result.is_ok() && reading.ignored.is_empty(), "they are told where it is planned");
    }

    #[test]
    fn an_unknown_field_is_told_and_the_rest_counts_and_one_of_a_broken_object_is_told_with_its_faults() {
        let good = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}], selektor: {a: b}}\n";
        let reading = read_text(good).remove(0);
        assert!(reading.result.is_ok());
        assert_eq!(reading.ignored[0].field, "spec.selektor");
        let broken = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: [{port: 80}]}\n";
        let told = faults(broken).join("\n");
        assert!(!told.contains("Required value") && told.contains("did you mean \"ports\"?"), "{told}");
    }

    #[test]
    fn lists_are_opened_even_if_their_items_do_not_say_what_they_are() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n\
                    - apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: b}\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: C}\n";
        let readings = read_text(text);
        assert_eq!(readings.len(), 2);
        assert!(readings[0].result.is_ok());
        assert_eq!((readings[1].item, readings[1].at.line), (Some(2), 10));
        assert!(readings[1].result.is_err());
        let text =
            "apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n";
        assert!(read_text(text).iter().all(|reading| reading.result.is_ok()));
        assert_eq!(read_text(text).len(), 2);
    }

    #[test]
    fn a_list_whose_objects_stand_elsewhere_than_in_items_is_refused() {
        let wrong = |key: &str| format!("{key}: unknown field (did you mean \"items\"?): {NO_ITEMS}");
        for (kind, body, expected) in [
            ("List", "item: [{kind: Namespace}]", format!("3 {}", wrong("item"))),
            ("List", "Items: []", format!("3 {}", wrong("Items"))),
            ("List", "objects: []", format!("3 {}", wrong("objects"))),
            ("List", "metadata: {}\nnotes: none\nitmes: []", format!("5 {}", wrong("itmes"))),
            ("ServiceList", "item: []", format!("3 {}", wrong("item"))),
            ("List", "metadata: {}", format!("1 items: Required value: {NO_ITEMS}")),
            (
                "list",
                "items: []",
                "2 kind: no matches for kind \"list\" in version \"v1\" (did you mean \"List\"?)".to_owned(),
            ),
        ] {
            assert_eq!(faults(&format!("apiVersion: v1\nkind: {kind}\n{body}\n")), [expected], "{body}");
        }
        for text in ["kind: List\nitems:\n", "kind: List\nitems: []\n", "kind: PodList\nitem: []\n"] {
            assert!(read_text(&format!("apiVersion: v1\n{text}")).is_empty(), "{text}");
        }
    }
}
