//! Tags of Neutron's objects, which are written beside them.

use std::collections::BTreeSet;

use serde_json::json;

use crate::{
    Error, Method,
    resource::{Collection, Id, Resource},
};

/// What Neutron lets be tagged.
pub trait Tagged: Resource {}

impl<R: Tagged> Collection<R> {
    /// These and no others.
    pub async fn replace_tags(&self, id: &Id<R>, tags: &BTreeSet<String>) -> Result<(), Error> {
        let call = self.action(Method::PUT, "replace tags", id, "tags");
        self.cloud.call(call.body(json!({ "tags": tags }))).await.map(drop)
    }
}
