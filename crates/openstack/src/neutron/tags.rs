//! Tags of Neutron's objects, which are written beside them.

use std::collections::BTreeSet;

use serde_json::json;

use crate::{
    Error, Method,
    resource::{Collection, Id, Resource, encoded},
};

/// What Neutron lets be tagged.
pub trait Tagged: Resource {}

impl<R: Tagged> Collection<R> {
    /// These and no others.
    pub async fn replace_tags(&self, id: &Id<R>, tags: &BTreeSet<String>) -> Result<(), Error> {
        let call = self.action(Method::PUT, "replace tags", id, "tags");
        self.cloud.call(call.body(json!({ "tags": tags }))).await.map(drop)
    }

    /// One more, whatever others are there.
    pub async fn add_tag(&self, id: &Id<R>, tag: &str) -> Result<(), Error> {
        let call = self.action(Method::PUT, "add tag", id, &format!("tags/{}", encoded(tag)));
        self.cloud.call(call).await.map(drop)
    }

    /// What is not there is removed.
    pub async fn remove_tag(&self, id: &Id<R>, tag: &str) -> Result<(), Error> {
        self.delete_by(self.action(Method::DELETE, "remove tag", id, &format!("tags/{}", encoded(tag)))).await
    }
}
