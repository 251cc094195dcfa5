//! Backends that serve nothing yet, for versions that cannot add one while they run.

use std::collections::BTreeMap;

use seaway_model::Name;

use super::{DocumentBuilder, about, slots};
use crate::{
    document::{Backend, Settings},
    words::Label,
};

/// So many are made beforehand.
const SPARE: usize = 8;

impl DocumentBuilder<'_> {
    /// Those of before stay, unless a new backend needs a reload anyway: then there are as many again.
    pub(super) fn fill_spares(&mut self) {
        if self.document.version.abilities().add_backend || !self.document.backends.values().any(is_pool) {
            return;
        }
        let before = self.wanted.before.map(|it| &it.backends);
        let is_new = |name: &Label| before.is_none_or(|it| !it.contains_key(name));
        let refill = self.document.backends.keys().any(is_new);
        let kept: Vec<(Label, Backend)> = (before.into_iter().flatten())
            .filter(|(name, it)| it.is_spare() && !self.document.backends.contains_key(*name))
            .map(|(name, it)| (name.clone(), it.clone()))
            .collect();
        let count = kept.len();
        self.document.backends.extend(kept);
        if !refill {
            return;
        }
        let Some(settings) = self.usual() else { return };
        let numbers = (1_u32..).map(|number| Label::of(&format!("spare-{number}")));
        let free: Vec<Label> = numbers
            .filter(|name| !self.document.backends.contains_key(name))
            .take(SPARE.saturating_sub(count))
            .collect();
        for name in free {
            let backend = Backend {
                serves: Name::default(),
                about: about("spare"),
                settings: settings.clone(),
                slots: slots::slots(Vec::new(), &[], false),
            };
            self.document.backends.insert(name, backend);
        }
    }

    /// What most pools behind HTTP have.
    fn usual(&self) -> Option<Settings> {
        let mut counts: BTreeMap<String, (usize, &Settings)> = BTreeMap::new();
        for backend in self.document.backends.values().filter(|it| is_pool(it)) {
            counts.entry(format!("{:?}", backend.settings)).or_insert((0, &backend.settings)).0 += 1;
        }
        let most = counts.into_values().max_by_key(|(count, _)| *count);
        most.map(|(_, settings)| settings.clone())
    }
}

fn is_pool(backend: &Backend) -> bool {
    backend.settings.is_http && backend.settings.answer.is_none() && backend.settings.rules.is_empty()
}
