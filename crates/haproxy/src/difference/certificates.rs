//! Certificates, and which names they are for.

use std::collections::{BTreeMap, BTreeSet};

use super::{DiffBuilder, ReloadReason};
use crate::{
    document::{CrtEntry, CrtList, FileKind},
    print::tls_terms,
    runtime::commands::{Command, CrtListEntry, fits},
    words::{Folder, Key, Label},
};

impl DiffBuilder<'_> {
    /// What is set, what is added to lists, and what goes.
    pub(super) fn certificates(&mut self) -> (Vec<Command>, Vec<Command>, Vec<Command>) {
        let loaded = self.running.document.clone();
        let folder = &loaded.global.folder;
        let (mut fresh, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        let mut wanted = BTreeSet::new();
        for (name, pem) in &self.wanted.certificates {
            let file = FileKind::Certificates.path(folder, name);
            let now = self.running.certificates.get(&file);
            if now != Some(pem) {
                match fits(pem) {
                    true => fresh.push(Command::SetCertificate {
                        file: file.clone(),
                        pem: pem.clone(),
                        is_new: now.is_none(),
                    }),
                    false => self.reload(ReloadReason::CertificateSize),
                }
            }
            wanted.insert(file);
        }
        for (name, list) in &self.wanted.crt_lists {
            let path = FileKind::CrtLists.path(folder, name);
            match self.running.crt_lists.get(&path).cloned() {
                None => self.reload(ReloadReason::CrtList),
                Some(now) if now != list.entries => {
                    let commands = self.list(&path, name, &now, list, folder);
                    added.extend(commands.0);
                    removed.extend(commands.1);
                }
                Some(_) => {}
            }
        }
        for file in self.running.certificates.keys().filter(|it| !wanted.contains(*it)) {
            removed.push(Command::RemoveCertificate { file: file.clone() });
        }
        (fresh, added, removed)
    }

    fn list(
        &mut self,
        path: &str,
        name: &Label,
        now: &[CrtEntry],
        wanted: &CrtList,
        folder: &Folder,
    ) -> (Vec<Command>, Vec<Command>) {
        let is_wanted = |it: &&CrtEntry| wanted.entries.contains(it);
        let fresh: Vec<&CrtEntry> = wanted.entries.iter().filter(|it| !now.contains(it)).collect();
        let after: Vec<&CrtEntry> = now.iter().filter(is_wanted).chain(fresh.iter().copied()).collect();
        // The first one is for clients that ask for a name which no other has. HAProxy does not let go of it, unless nothing is
        // for them; and what a certificate without names is for depends on its place.
        let is_strict = self.running.document.frontends.values().filter_map(|it| it.tls.as_ref());
        let is_strict = is_strict.filter(|it| it.crt_list == *name).all(|it| it.strict);
        if !is_strict && now.first() != wanted.entries.first() || fresh.iter().any(|it| it.names.is_empty()) {
            self.reload(ReloadReason::DefaultCertificate);
        } else if order(after.iter().copied()) != order(&wanted.entries) {
            self.reload(ReloadReason::CertificateOrder);
        }
        let entry = |it: &CrtEntry| CrtListEntry {
            file: FileKind::Certificates.path(folder, &it.certificate),
            entry: it.clone(),
            terms: tls_terms(&it.tls, folder),
        };
        let list = || path.to_owned();
        let added = fresh.into_iter().map(|it| Command::AddToList { list: list(), entry: entry(it) });
        let gone = now.iter().filter(|it| !is_wanted(it));
        let removed = gone.map(|it| Command::RemoveFromList { list: list(), entry: entry(it) });
        (added.collect(), removed.collect())
    }
}

/// Which certificates a name has: where two have it, the first of a kind is shown.
fn order<'a>(entries: impl IntoIterator<Item = &'a CrtEntry>) -> BTreeMap<&'a Key, Vec<&'a CrtEntry>> {
    let mut order: BTreeMap<&Key, Vec<&CrtEntry>> = BTreeMap::new();
    for entry in entries {
        entry.names.iter().for_each(|name| order.entry(name).or_default().push(entry));
    }
    order
}
