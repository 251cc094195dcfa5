//! Objects of a file: what they are, where, and as text again.

use std::{collections::BTreeMap, fmt::Write as _, rc::Rc};

use seaway_manifests::tree::{Entry, Node, Value};
use serde_json::Value as Json;

use super::super::{proxy::service_name, report::DirectiveLocation, write::printable};

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn file_name(&self) -> String {
        let name = service_name(&self.name);
        if self.namespace == "default" { name } else { format!("{}-{name}", service_name(&self.namespace)) }
    }
}

pub(super) struct Object<'t> {
    pub(super) place: DirectiveLocation,
    pub(super) root: &'t Node,
}

/// Those of all documents, and of lists in them.
pub(super) fn objects<'t>(roots: &'t [Node], file: &Rc<str>) -> Vec<Object<'t>> {
    let mut objects = Vec::new();
    let mut waiting: Vec<&'t Node> = roots.iter().rev().collect();
    while let Some(root) = waiting.pop() {
        let items = root.child("items").map(|it| &it.value);
        match (text(root, "kind"), items) {
            (Some(kind), Some(Value::List(items))) if kind.ends_with("List") => {
                waiting.extend(items.iter().rev())
            }
            (Some(_), _) => objects.push(Object { place: place(root, file, 0), root }),
            _ => {}
        }
    }
    objects
}

pub(super) fn place(node: &Node, file: &Rc<str>, nth: u32) -> DirectiveLocation {
    DirectiveLocation { file: file.clone(), line: node.at.line, nth }
}

pub(super) fn text<'t>(node: &'t Node, key: &str) -> Option<&'t str> {
    match &node.child(key)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// A scalar as it would be written.
pub(super) fn scalar(node: &Node) -> Option<String> {
    Some(match &node.value {
        Value::Text(text) => text.clone(),
        Value::Bool(it) => it.to_string(),
        Value::Int(it) => it.to_string(),
        Value::Float(it) => it.to_string(),
        _ => return None,
    })
}

pub(super) fn items<'t>(node: &'t Node, key: &str) -> &'t [Node] {
    match node.child(key).map(|it| &it.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

impl<'t> Object<'t> {
    pub(super) fn kind(&self) -> &'t str {
        text(self.root, "kind").unwrap_or_default()
    }

    pub(super) fn key(&self) -> Key {
        let metadata = self.root.child("metadata");
        let of = |key| metadata.and_then(|it| text(it, key)).map(str::to_owned);
        Key {
            namespace: of("namespace").unwrap_or_else(|| "default".to_owned()),
            name: of("name").unwrap_or_default(),
        }
    }

    pub(super) fn written(&self) -> String {
        let key = self.key();
        format!("{} {}/{}", self.kind(), key.namespace, key.name)
    }

    pub(super) fn annotations(&self) -> &'t [Entry] {
        self.root.child("metadata").and_then(|it| it.child("annotations")).map_or(&[], Node::entries)
    }

    pub(super) fn label(&self, name: &str) -> Option<&'t str> {
        text(self.root.child("metadata")?.child("labels")?, name)
    }

    pub(super) fn spec(&self) -> Option<&'t Node> {
        self.root.child("spec")
    }

    /// As YAML, without what a cluster wrote, and with more annotations.
    pub(super) fn text(&self, annotations: &BTreeMap<&'static str, String>) -> String {
        let mut root = self.root.clone();
        if let Value::Map(entries) = &mut root.value {
            entries.retain(|it| it.key != "status");
            for metadata in entries.iter_mut().filter(|it| it.key == "metadata") {
                annotate(&mut metadata.value, annotations);
            }
        }
        let mut text = String::new();
        write(&root, 0, &mut text);
        text
    }
}

fn annotate(metadata: &mut Node, annotations: &BTreeMap<&'static str, String>) {
    let at = metadata.at;
    let Value::Map(entries) = &mut metadata.value else { return };
    let managed = ["managedFields", "resourceVersion", "uid", "generation", "selfLink", "ownerReferences"];
    entries.retain(|it| !managed.contains(&it.key.as_str()));
    if !annotations.is_empty() && !entries.iter().any(|it| it.key == "annotations") {
        entries.push(Entry {
            key: "annotations".to_owned(),
            at,
            value: Node { at, value: Value::Map(Vec::new()) },
        });
    }
    for entry in entries.iter_mut().filter(|it| it.key == "annotations") {
        if let Value::Map(known) = &mut entry.value.value {
            known.retain(|it| it.key != "kubectl.kubernetes.io/last-applied-configuration");
            for (name, value) in annotations {
                let key = format!("seaway.dev/{name}");
                known.retain(|it| it.key != key);
                known.push(Entry { key, at, value: Node { at, value: Value::Text(value.clone()) } });
            }
        }
    }
}

/// Block style for maps, JSON for what is in lists. Quoted, whatever it is: a text stays a text.
fn write(node: &Node, indent: usize, text: &mut String) {
    for entry in node.entries() {
        let _ = write!(text, "{:indent$}{}:", "", quoted(&entry.key));
        match &entry.value.value {
            Value::Map(inner) if !inner.is_empty() => {
                text.push('\n');
                write(&entry.value, indent.saturating_add(2), text);
            }
            Value::List(items) if !items.is_empty() => {
                text.push('\n');
                for item in items {
                    let _ = writeln!(text, "{:indent$}- {}", "", printable(&json(item).to_string()));
                }
            }
            _ => {
                let _ = writeln!(text, " {}", printable(&json(&entry.value).to_string()));
            }
        }
    }
}

fn quoted(key: &str) -> String {
    let plain = key.bytes().all(|it| it.is_ascii_alphanumeric() || b"./-_".contains(&it));
    let begins = key.starts_with(|it: char| it.is_ascii_alphabetic());
    if plain && begins && key.len() > 3 { key.to_owned() } else { printable(&Json::from(key).to_string()) }
}

fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(it) => Json::from(*it),
        Value::Int(it) => Json::from(*it),
        Value::Float(it) => Json::from(*it),
        Value::Text(it) => Json::from(it.as_str()),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|it| (it.key.clone(), json(&it.value))).collect())
        }
    }
}
