//! NameOwner objects: which namespace claimed which host names and paths of the front door first.
//!
//! ```yaml
//! apiVersion: seaway.dev/v1alpha1
//! kind: NameOwner
//! metadata: {name: shop}            # the namespace
//! spec:
//!   hosts: [shop.example, '*.shop.example']
//!   paths: [/shop]                  # of those that are claimed without a host name
//! ```
//! One for each namespace, so that none takes the room of another. The leader writes them (writer.rs); all read them.

mod plan;
mod writer;

use std::sync::Arc;

use seaway_manifests::decode::Field;
use seaway_model::{fact::NameOwner, load_balancer::HostPattern};
use serde_json::{Value, json};

pub use self::{
    plan::FirstClaims,
    writer::{NameOwnerTimings, NameOwnerWriter},
};
use crate::kinds::{API_GROUP, API_VERSION};

/// `version`: which one it replaces.
fn write(owner: &NameOwner, version: Option<&str>) -> Value {
    let mut metadata = json!({ "name": owner.namespace });
    if let (Some(version), Some(metadata)) = (version, metadata.as_object_mut()) {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
    json!({
        "apiVersion": format!("{API_GROUP}/{API_VERSION}"),
        "kind": "NameOwner",
        "metadata": metadata,
        "spec": {
            "hosts": owner.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "paths": owner.paths,
        },
    })
}

pub(crate) fn read(root: &Field<'_>) -> Option<Arc<NameOwner>> {
    let (metadata, spec) = (root.child("metadata"), root.child("spec"));
    let (hosts, paths) = (spec.child("hosts"), spec.child("paths"));
    let host = |text: &str| match text.strip_prefix("*.") {
        Some(below) => HostPattern::Under(below.into()),
        None => HostPattern::Exact(text.into()),
    };
    let text = |field: &Field<'_>| {
        let text = field.text()?.to_owned();
        if text.is_empty() {
            field.invalid("", "must not be empty");
        }
        Some(text)
    };
    Some(Arc::new(NameOwner {
        namespace: metadata.child("name").name()?.into(),
        hosts: hosts.items().filter_map(|it| Some(host(&text(&it)?))).collect(),
        paths: paths.items().filter_map(|it| Some(text(&it)?.into())).collect(),
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use seaway_manifests::{decode::ValidationErrors, tree::Node};

    use super::*;

    /// All that an object may have.
    pub(crate) fn full() -> Value {
        write(&owner("shop", &["shop.example", "*.shop.example"], &["/shop"]), None)
    }

    pub(crate) fn owner(namespace: &str, hosts: &[&str], paths: &[&str]) -> NameOwner {
        let host = |it: &&str| match it.strip_prefix("*.") {
            Some(below) => HostPattern::Under(below.into()),
            None => HostPattern::Exact((*it).into()),
        };
        NameOwner {
            namespace: namespace.into(),
            hosts: hosts.iter().map(host).collect(),
            paths: paths.iter().map(|it| (*it).into()).collect(),
        }
    }

    fn read_back(json: Value) -> Result<Option<Arc<NameOwner>>, Vec<String>> {
        let node: Node = serde_json::from_value(json).expect("is a tree");
        let faults = ValidationErrors::default();
        let read = read(&Field::root(&node, &faults));
        let faults: Vec<String> = faults.into_sorted().iter().map(ToString::to_string).collect();
        if faults.is_empty() { Ok(read) } else { Err(faults) }
    }

    #[test]
    fn an_owner_of_names_reads_back_as_it_was_written() {
        let shop = owner("shop", &["shop.example", "*.shop.example"], &["/shop"]);
        assert_eq!(read_back(full()), Ok(Some(Arc::new(shop))));
        let written = write(&owner("shop", &[], &[]), Some("7"));
        assert_eq!(written["metadata"]["resourceVersion"], "7");
        assert_eq!(read_back(written), Ok(Some(Arc::new(owner("shop", &[], &[])))));
    }

    #[test]
    fn what_is_no_name_is_told_by_field() {
        let broken = json!({"metadata": {"name": "shop"}, "spec": {"hosts": ["", 7], "paths": "/shop"}});
        let told = read_back(broken).expect_err("is refused");
        let fields: Vec<&str> = told.iter().filter_map(|it| it.split(": ").next()).collect();
        assert_eq!(fields, ["spec.hosts[0]", "spec.hosts[1]", "spec.paths"], "{told:?}");
    }
}
