//! Services that are closed because something that was to protect them is not understood. Where a last good state of such a Service
//! protects it, that one stays in use: a slip of the pen takes no client away, and lets none in.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use seaway_model::ObjectRef;

use crate::document::LocatedObject;

pub(super) fn closed<'d>(written: impl Iterator<Item = &'d Arc<LocatedObject>>) -> HashSet<&'d ObjectRef> {
    written.filter(|it| it.object.is_closed()).map(|it| it.reference()).collect()
}

/// Takes those out of what may be kept that are written, and not closed; or closed, and were open before.
pub(super) fn take_out<'d>(
    candidates: &mut BTreeMap<ObjectRef, Arc<LocatedObject>>,
    written: impl Iterator<Item = &'d Arc<LocatedObject>>,
) {
    for found in written {
        let was_protected = candidates.get(found.reference()).is_some_and(|it| it.object.is_protected());
        if !was_protected || !found.object.is_closed() {
            candidates.remove(found.reference());
        }
    }
}
