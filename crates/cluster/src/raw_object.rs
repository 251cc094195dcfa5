//! An object as the API server tells it: a tree, and as much of its metadata as a watch needs.

use std::borrow::Cow;

use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope, ObjectMeta},
};
use seaway_manifests::tree::{Node, Value};
use serde::{Deserialize, Deserializer};

/// Never printed whole: it may be a Secret.
#[derive(Clone)]
pub(crate) struct RawObject {
    pub(crate) tree: Node,
    meta: ObjectMeta,
}

impl RawObject {
    pub(crate) fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    /// Gives the object another namespace and name.
    pub(crate) fn set_name(&mut self, namespace: &str, name: &str) {
        (self.meta.namespace, self.meta.name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    }

    pub(crate) fn version(&self) -> &str {
        self.meta.resource_version.as_deref().unwrap_or_default()
    }
}

impl std::fmt::Debug for RawObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} at {}", self.namespace(), self.name(), self.version())
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawObject, D::Error> {
        let tree = Node::deserialize(deserializer)?;
        let metadata = tree.child("metadata");
        let word = |key: &str| match metadata.and_then(|it| it.child(key)).map(|it| &it.value) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let meta = ObjectMeta {
            name: word("name"),
            namespace: word("namespace"),
            uid: word("uid"),
            resource_version: word("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(RawObject { tree, meta })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
