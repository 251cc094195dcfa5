//! Members that change alone, as they do a thousand times more often than anything else: HAProxy is told of their backends, and the
//! document of all load balancers is not made again.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use seaway_haproxy::{changed_members, document::Slot, members_in_slots, words::Label};
use seaway_model::{LoadBalancer, Owner};

use super::{Part, WriterTask};

impl WriterTask {
    /// `false`: something else is different as well, or HAProxy did not take it. Then all is looked at.
    pub(super) async fn write_members(&mut self, parts: &[Part]) -> bool {
        let Some(haproxy) = self.haproxy.as_ref().filter(|_| !self.is_down()) else { return false };
        let Some(changed) = self.changed_slots(parts) else { return false };
        if !changed.is_empty() && haproxy.serve_members(changed.clone()).await.is_err() {
            return false;
        }
        self.slots.extend(changed);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::make_mut(&mut state.parts);
        for part in parts {
            let Some(wanted) = &part.load_balancer else { continue };
            known.insert(part.owner.clone(), wanted.clone());
            served.get_mut(&part.owner).into_iter().for_each(|it| it.load_balancer = Some(wanted.clone()));
        }
        true
    }

    /// Nothing, if more is different than members.
    fn changed_slots(&self, parts: &[Part]) -> Option<BTreeMap<Label, Vec<Slot>>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let document = state.document.as_ref()?;
        // Of several parts of one owner, the last one counts.
        let mut now: BTreeMap<&Owner, &Arc<LoadBalancer>> = BTreeMap::new();
        let mut changed: BTreeMap<Label, Vec<Slot>> = BTreeMap::new();
        for part in parts {
            let after = part.load_balancer.as_ref()?;
            let before = now.get(&part.owner).copied().or_else(|| state.parts.get(&part.owner))?;
            for id in changed_members(before, after)? {
                let pool = after.pools.get(&id)?;
                let names = document.origins.backends.get(&(part.owner.clone(), id));
                for name in names.into_iter().flatten() {
                    let backend = document.backends.get(name)?;
                    if backend.settings.answer.is_none() {
                        let known = changed.get(name).or_else(|| self.slots.get(name));
                        let slots = members_in_slots(pool, known.unwrap_or(&backend.slots));
                        changed.insert(name.clone(), slots);
                    }
                }
            }
            now.insert(&part.owner, after);
        }
        Some(changed)
    }

    /// The document has all members, so that the next one is made by it.
    pub(super) fn take_in_slots(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let Some(document) = state.document.as_mut().map(Arc::make_mut) else { return };
        for (name, slots) in std::mem::take(&mut self.slots) {
            document.backends.get_mut(&name).into_iter().for_each(|it| it.slots.clone_from(&slots));
        }
    }
}
