//! The fields that a folder's reader knows of each kind are those of the API server, no more and no less.

use std::collections::{BTreeMap, BTreeSet};

use seaway_manifests::object::known_fields;
use seaway_model::Kind;
use serde_json::Value;

use crate::scene::Scene;

/// Where a schema says what is in it: by a name, for each item of a list, or at once.
fn resolved<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    match reference.and_then(|it| it.rsplit_once('/')) {
        Some((_, name)) => resolved(schemas, &schemas[name]),
        None if schema["items"].is_object() => resolved(schemas, &schema["items"]),
        None => schema,
    }
}

fn at<'a>(schemas: &'a Value, root: &'a Value, path: &str) -> &'a Value {
    let steps = path.split('.').filter(|it| !it.is_empty());
    steps.fold(root, |schema, step| resolved(schemas, &schema["properties"][step]))
}

#[tokio::test]
async fn known_fields_are_those_of_the_api_server() {
    let Some(scene) = Scene::up("fields") else { return };
    for (kind, group, name) in [
        (Kind::Service, "api/v1", "io.k8s.api.core.v1.Service"),
        (Kind::Endpoints, "api/v1", "io.k8s.api.core.v1.Endpoints"),
        (Kind::Secret, "api/v1", "io.k8s.api.core.v1.Secret"),
        (Kind::Namespace, "api/v1", "io.k8s.api.core.v1.Namespace"),
        (Kind::Node, "api/v1", "io.k8s.api.core.v1.Node"),
        (Kind::EndpointSlice, "apis/discovery.k8s.io/v1", "io.k8s.api.discovery.v1.EndpointSlice"),
        (Kind::AddressPool, "apis/seaway.dev/v1alpha1", "dev.seaway.v1alpha1.AddressPool"),
    ] {
        let text = scene.cluster.kubectl(&["get", "--raw", &format!("/openapi/v3/{group}")]);
        let document: Value = serde_json::from_str(&text).expect("is JSON");
        let schemas = &document["components"]["schemas"];
        let root = &schemas[name];
        assert!(
            root["properties"].is_object(),
            "{kind:?}: {name} is among {:?}",
            schemas.as_object().map(|it| it.keys())
        );
        let mut ours: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for path in known_fields(kind) {
            let (above, field) = path.rsplit_once('.').unwrap_or(("", &path));
            ours.entry(above.to_owned()).or_default().insert(field.to_owned());
        }
        for (above, fields) in ours {
            let theirs = at(schemas, root, &above)["properties"].as_object();
            let theirs: BTreeSet<String> =
                theirs.into_iter().flatten().map(|(name, _)| name.clone()).collect();
            assert_eq!(fields, theirs, "{kind:?}, at {above:?}: ours, and the API server's");
        }
    }
}
