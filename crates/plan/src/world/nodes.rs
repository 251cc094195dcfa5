//! Nodes, for whoever follows them elsewhere.

use std::collections::BTreeMap;

use seaway_model::Name;

use super::World;

impl World {
    /// Whether each is Ready, by UID: another one when a Node comes, goes, or is Ready no more.
    pub fn ready_nodes(&self) -> BTreeMap<Name, bool> {
        self.index.nodes().map(|it| (it.meta.uid.clone(), it.ready)).collect()
    }
}
