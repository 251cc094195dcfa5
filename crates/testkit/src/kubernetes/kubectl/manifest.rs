//! The objects of a manifest, each with its own text: the API server reads that, as it is.

use seaway_manifests::tree::{self, Node, Value};

#[derive(Debug, PartialEq)]
pub(super) struct Object {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) text: String,
}

/// Nothing, if there is something in it that kubectl is to judge.
pub(super) fn objects(manifest: &str) -> Option<Vec<Object>> {
    let mut objects = Vec::new();
    for text in documents(manifest) {
        let nodes = tree::parse(&text).ok()?;
        match &nodes[..] {
            [] => {}
            [node] if node.value == Value::Null => {}
            [node] => objects.push(object(node, text)?),
            _ => return None,
        }
    }
    (!objects.is_empty()).then_some(objects)
}

fn documents(manifest: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in manifest.lines() {
        if line.trim_end() == "---" {
            documents.push(String::new());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    documents
}

fn object(node: &Node, text: String) -> Option<Object> {
    let word = |node: &Node, key: &str| match &node.child(key)?.value {
        Value::Text(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let about = node.child("metadata")?;
    let kind = word(node, "kind")?;
    (!kind.ends_with("List")).then_some(())?;
    Some(Object {
        api_version: word(node, "apiVersion")?,
        kind,
        name: word(about, "name")?,
        namespace: word(about, "namespace"),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_keeps_its_text_and_comments_are_none() {
        let manifest = "# why\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: team}\n---\n\
            {apiVersion: apps/v1, kind: Deployment, metadata: {name: b}}\n---\n";
        let objects = objects(manifest).expect("it is plain");
        let shown: Vec<_> = objects
            .iter()
            .map(|it| (&*it.api_version, &*it.kind, &*it.name, it.namespace.as_deref()))
            .collect();
        assert_eq!(shown, [("v1", "Service", "a", Some("team")), ("apps/v1", "Deployment", "b", None)]);
        assert_eq!(objects[1].text, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: b}}\n");
    }

    #[test]
    fn lists_and_mistakes_are_left_to_kubectl() {
        for manifest in [
            "apiVersion: v1\nkind: List\nmetadata: {name: a}\nitems: []\n",
            "apiVersion: v1\nkind: Service\nmetadata: {generateName: a-}\n",
            "apiVersion: v1\nkind: [\n",
            "# nothing\n",
        ] {
            assert_eq!(objects(manifest), None, "{manifest}");
        }
    }
}
