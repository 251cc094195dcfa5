//! Members that change a thousand times more often than anything else: their own backends are looked at, and no others.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use super::{LOOK, ProcessSupervisor};
use crate::{
    difference::{Difference, leaving_of},
    document::Slot,
    words::Label,
};

impl ProcessSupervisor {
    /// HAProxy is known to have all that is wanted.
    pub(super) fn has_all(&self) -> bool {
        let is_whole = self.running.brought.as_ref().is_some_and(|it| Arc::ptr_eq(it, &self.wanted));
        is_whole && self.child.is_some() && self.reloads.is_empty() && !self.is_unsure
    }

    pub(super) async fn apply_members(&mut self, changed: BTreeMap<Label, Vec<Slot>>) {
        let difference = Difference::of_members(&self.running, &self.wanted, &changed);
        let brought = self.running.brought.take();
        self.members.extend(changed.clone());
        if !difference.reloads.is_empty() {
            return self.bring().await;
        }
        if let Err(error) = self.tell_haproxy(&difference.commands).await {
            return self.lost(error);
        }
        self.failures = 0;
        self.running.brought = brought;
        for (backend, slots) in &changed {
            let leaving = leaving_of(&self.running, backend, slots);
            self.drained.retain(|server, _| server.backend != *backend || leaving.contains(server));
            for server in leaving {
                self.drained.entry(server).or_insert_with(Instant::now);
            }
        }
        self.look_at = match self.drained.is_empty() {
            true => None,
            false => self.look_at.or(Some(Instant::now() + LOOK)),
        };
        self.answer(&Ok(()));
    }

    pub(super) fn slots_of(&self, backend: &Label) -> &[Slot] {
        let whole = || self.wanted.backends.get(backend).map(|it| &it.slots);
        self.members.get(backend).or_else(whole).map_or(&[], Vec::as_slice)
    }

    /// What is wanted is one document again; what HAProxy has of it is known as before.
    pub(super) fn merge_members(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let is_brought = self.running.brought.as_ref().is_some_and(|it| Arc::ptr_eq(it, &self.wanted));
        self.running.brought = None;
        let wanted = Arc::make_mut(&mut self.wanted);
        for (name, slots) in std::mem::take(&mut self.members) {
            if let Some(backend) = wanted.backends.get_mut(&name) {
                backend.slots = slots;
            }
        }
        self.running.brought = is_brought.then(|| self.wanted.clone());
    }
}
