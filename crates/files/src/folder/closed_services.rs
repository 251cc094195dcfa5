//! Services that are closed because something that was to protect them is not understood, or whose protected place at the front door is
//! not. Where a last good state of such a Service protects it, that one stays in use: a slip of the pen takes no client away, and lets
//! none in.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use seaway_model::ObjectRef;

use crate::document::LocatedObject;

pub(super) fn closed<'d>(written: impl Iterator<Item = &'d Arc<LocatedObject>>) -> HashSet<&'d ObjectRef> {
    written.filter(|it| it.object.lacks_protection()).map(|it| it.reference()).collect()
}

/// Takes those out of what may be kept that are written, and do not lack what protects them; or do, and were open before.
pub(super) fn take_out<'d>(
    candidates: &mut BTreeMap<ObjectRef, Arc<LocatedObject>>,
    written: impl Iterator<Item = &'d Arc<LocatedObject>>,
) {
    for found in written {
        let was_protected = candidates.get(found.reference()).is_some_and(|it| it.object.is_protected());
        if !was_protected || !found.object.lacks_protection() {
            candidates.remove(found.reference());
        }
    }
}
