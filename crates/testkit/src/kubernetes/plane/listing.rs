//! What an API server lists: every object of every kind.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use hyper::{Request, header::ACCEPT};
use kube::Client;
use serde_json::Value;

/// Of a request for all kinds.
pub(in crate::kubernetes) const KINDS: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const OBJECTS: &str = "application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadataList";
/// What the API server makes up when it is asked, and what it and the controllers write when they like.
const VOLATILE: [&str; 2] = ["componentstatuses", "events"];
const AT_ONCE: usize = 8;

/// Every kind, and of each object its kind, namespace, name and UID. The API server lists what its watches have told it, so
/// that a listing without an object says also that its watchers will hear of the end.
pub(super) async fn listing(client: &Client) -> Result<BTreeSet<String>, kube::Error> {
    let mut listed = BTreeSet::new();
    let mut paths = Vec::new();
    for root in ["/api", "/apis"] {
        let groups = ask(client, root.to_owned(), KINDS).await?;
        for group in array(&groups, "items") {
            let name = text(&group["metadata"]["name"]);
            let mut seen = BTreeSet::new();
            for version in array(group, "versions") {
                let folder = match &*name {
                    "" => format!("/api/{}", text(&version["version"])),
                    _ => format!("/apis/{name}/{}", text(&version["version"])),
                };
                for resource in array(version, "resources") {
                    let plural = text(&resource["resource"]);
                    listed.insert(format!("{folder}/{plural}"));
                    let is_listed = array(resource, "verbs").iter().any(|it| it == "list");
                    if is_listed && !VOLATILE.contains(&&*plural) && seen.insert(plural.clone()) {
                        paths.push(format!("{folder}/{plural}"));
                    }
                }
            }
        }
    }
    let asked = paths.into_iter().map(|path| async move {
        let answer = ask(client, format!("{path}?resourceVersion=0"), OBJECTS).await?;
        Ok::<_, kube::Error>((path, answer))
    });
    let answers: Vec<_> = stream::iter(asked).buffer_unordered(AT_ONCE).try_collect().await?;
    for (path, answer) in answers {
        for about in array(&answer, "items").iter().map(|it| &it["metadata"]) {
            let [namespace, name, uid] = ["namespace", "name", "uid"].map(|it| text(&about[it]));
            listed.insert(format!("{path} {namespace}/{name} {uid}"));
        }
    }
    Ok(listed)
}

async fn ask(client: &Client, path: String, accept: &str) -> Result<Value, kube::Error> {
    let request = Request::get(path).header(ACCEPT, accept).body(Vec::new());
    client.request(request.expect("a request")).await
}

pub(in crate::kubernetes) fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

pub(in crate::kubernetes) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
