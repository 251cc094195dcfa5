//! What a file had, and what of it stays in use while something in the file is broken.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use seaway_manifests::object::Object;
use seaway_model::{Name, ObjectRef};

use super::{File, Folder, closed_services};
use crate::document::LocatedObject;

impl Folder {
    /// Objects that the file had, and has no more for no better reason than something broken in it.
    pub(super) fn to_keep(&self, name: &Name, file: &File) -> BTreeMap<ObjectRef, Arc<LocatedObject>> {
        let broken: Vec<Option<&ObjectRef>> = file
            .documents
            .iter()
            .flat_map(|placed| &placed.document.broken)
            .map(|broken| broken.reference.as_ref())
            .collect();
        let all = || file.documents.iter().flat_map(|it| &it.document.found);
        let closed = closed_services::closed(all());
        let replaced = file.documents.iter().flat_map(|placed| &placed.document.replaced_routes);
        let replaced: HashSet<&ObjectRef> = replaced.map(|(route, _)| route).collect();
        if broken.is_empty() && closed.is_empty() && replaced.is_empty() {
            return BTreeMap::new();
        }
        let mut candidates = match self.files.get(name) {
            Some(before) => {
                let found = before.documents.iter().flat_map(|placed| &placed.document.found);
                let found = found.filter(|it| !it.object.lacks_protection());
                let mut candidates = before.kept.clone();
                candidates.extend(found.map(|found| (found.reference().clone(), found.clone())));
                candidates
            }
            None => self.recall(name),
        };
        closed_services::take_out(&mut candidates, all());
        // A broken object that this file never had may be one of those it had, with a typo in its name.
        let known: HashSet<&ObjectRef> = broken.iter().copied().flatten().collect();
        let strange = broken.contains(&None) || known.iter().any(|it| !candidates.contains_key(*it));
        if !strange {
            let known: HashSet<ObjectRef> = known.into_iter().chain(closed).cloned().collect();
            // A route that protected is missed where it is of another kind now, which is not read.
            let is_replaced =
                |it: &ObjectRef, object: &Object| replaced.contains(it) && object.is_protected();
            candidates.retain(|it, found| known.contains(it) || is_replaced(it, &found.object));
        }
        candidates.into_iter().map(|(reference, found)| (reference, found.without_text())).collect()
    }

    pub(super) fn recall(&self, name: &Name) -> BTreeMap<ObjectRef, Arc<LocatedObject>> {
        let recalled = self.last_good.as_ref().map(|last_good| last_good.load(name)).unwrap_or_default();
        recalled.into_iter().map(|found| (found.reference().clone(), found)).collect()
    }
}
