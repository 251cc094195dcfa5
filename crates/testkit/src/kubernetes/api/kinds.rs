//! Which kinds an API server has, and by which names people and manifests call them.

use std::collections::HashMap;

use hyper::{Request, header::ACCEPT};
use kube::Client;
use serde_json::Value;

use super::KindRef;
use crate::kubernetes::plane::{KINDS, array, text};

#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubernetes) struct Kind {
    /// `/apis/GROUP/VERSION`
    root: String,
    plural: String,
    /// `service`, `address.seaway.dev`: as kubectl prints it.
    pub(in crate::kubernetes) shown: String,
    is_namespaced: bool,
    api_version: String,
    kind: String,
}

impl Kind {
    /// In a list the API server leaves out what all of it are, and kubectl puts it in again.
    pub(super) fn complete(&self, list: &mut Value) {
        for item in list.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            for (field, value) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
                if item[field].is_null() {
                    item[field] = value.as_str().into();
                }
            }
        }
    }

    pub(super) fn folder(&self, namespace: &str) -> String {
        let Kind { root, plural, .. } = self;
        if self.is_namespaced {
            format!("{root}/namespaces/{namespace}/{plural}")
        } else {
            format!("{root}/{plural}")
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Kinds {
    words: HashMap<String, Kind>,
    manifests: HashMap<(String, String), Kind>,
}

impl Kinds {
    pub(super) async fn read(client: &Client) -> Result<Kinds, kube::Error> {
        let mut kinds = Kinds::default();
        for root in ["/api", "/apis"] {
            let request = Request::get(root).header(ACCEPT, KINDS).body(Vec::new()).expect("a request");
            let groups: Value = client.request(request).await?;
            for group in array(&groups, "items") {
                kinds.add_group(root, group);
            }
        }
        Ok(kinds)
    }

    pub(super) fn find(&self, named: &KindRef) -> Option<Kind> {
        match named {
            KindRef::Word(word) => self.words.get(&word.to_lowercase()),
            KindRef::Manifest(version, kind) => self.manifests.get(&(version.clone(), kind.clone())),
        }
        .cloned()
    }

    fn add_group(&mut self, root: &str, group: &Value) {
        let name = text(&group["metadata"]["name"]);
        for version in array(group, "versions") {
            let version_name = text(&version["version"]);
            let api_version = format!("{name}/{version_name}").trim_start_matches('/').to_owned();
            for resource in array(version, "resources") {
                let (plural, singular) = (text(&resource["resource"]), text(&resource["singularResource"]));
                let kind = Kind {
                    api_version: api_version.clone(),
                    kind: text(&resource["responseKind"]["kind"]),
                    root: format!("{root}/{api_version}"),
                    shown: format!("{singular}.{name}").trim_end_matches('.').to_owned(),
                    is_namespaced: resource["scope"] == "Namespaced",
                    plural: plural.clone(),
                };
                let of_manifests = (api_version.clone(), kind.kind.clone());
                self.manifests.entry(of_manifests).or_insert_with(|| kind.clone());
                let full = [format!("{plural}.{name}"), format!("{plural}.{version_name}.{name}")];
                let short = array(resource, "shortNames").iter().map(text);
                for word in [plural, singular].into_iter().chain(full).chain(short) {
                    // The first group and version that has it, as with kubectl.
                    self.words.entry(word).or_insert_with(|| kind.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_found_by_all_of_their_names_and_where_they_are() {
        let resource = |plural: &str, singular: &str, kind: &str, scope: &str| {
            json!({"resource": plural, "singularResource": singular, "scope": scope, "shortNames": ["x"],
                "responseKind": {"group": "", "version": "", "kind": kind}})
        };
        let mut kinds = Kinds::default();
        let core = json!({"metadata": {}, "versions": [
            {"version": "v1", "resources": [resource("events", "event", "Event", "Namespaced")]}]});
        kinds.add_group("/api", &core);
        let group = |name: &str, resource: Value| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": [resource]}]});
        kinds.add_group("/apis", &group("events.k8s.io", resource("events", "event", "Event", "Namespaced")));
        kinds
            .add_group("/apis", &group("seaway.dev", resource("addresses", "address", "Address", "Cluster")));
        let folder = |word: &str| kinds.find(&KindRef::Word(word.to_owned())).map(|it| it.folder("default"));
        assert_eq!(folder("Event").as_deref(), Some("/api/v1/namespaces/default/events"));
        let of_group = Some("/apis/events.k8s.io/v1/namespaces/default/events");
        assert_eq!(folder("events.events.k8s.io").as_deref(), of_group);
        assert_eq!(folder("events.v1.events.k8s.io").as_deref(), of_group);
        assert_eq!(folder("addresses").as_deref(), Some("/apis/seaway.dev/v1/addresses"));
        assert_eq!(folder("pods"), None);
        let address = kinds.find(&KindRef::Manifest("seaway.dev/v1".to_owned(), "Address".to_owned()));
        assert_eq!(address.map(|it| it.shown).as_deref(), Some("address.seaway.dev"));
        assert_eq!(kinds.find(&KindRef::Manifest("v1".to_owned(), "Address".to_owned())), None);
    }
}
