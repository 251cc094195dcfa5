//! Places at the front door that stay closed, since what was to protect them cannot be read: without that, a broader Service would serve
//! them to all clients. Where a last good state protects, that one stays in use instead.

use std::collections::BTreeMap;

use seaway_model::{Change, Fact, Name, fact::FactRef};

use super::File;
use crate::document::UnreadPlaces;

/// What follows from a text that is not read.
pub(super) enum Followup {
    /// Requests there are answered by 503.
    Closed(String),
    /// Which places it was to protect is not known.
    Unknown,
}

#[derive(Default)]
pub(super) struct FolderClosedPlaces {
    by_file: BTreeMap<Name, BTreeMap<FactRef, Fact>>,
    put: BTreeMap<FactRef, Fact>,
    gone: Vec<FactRef>,
}

impl FolderClosedPlaces {
    pub(super) fn set_file(&mut self, name: &Name, file: Option<&File>) {
        let now = file.map(|it| facts(name, it)).unwrap_or_default();
        let before = self.by_file.remove(name).unwrap_or_default();
        for reference in before.keys().filter(|it| !now.contains_key(*it)) {
            self.put.remove(reference);
            self.gone.push(reference.clone());
        }
        let news = now.iter().filter(|(reference, fact)| before.get(*reference) != Some(*fact));
        self.put.extend(news.map(|(reference, fact)| (reference.clone(), fact.clone())));
        if !now.is_empty() {
            self.by_file.insert(name.clone(), now);
        }
    }

    /// A place is closed before anything else changes, and opened after that.
    pub(super) fn add_changes(&mut self, changes: &mut Vec<Change>) {
        let put = std::mem::take(&mut self.put);
        changes.splice(0..0, put.into_values().map(Change::Put));
        changes.extend(std::mem::take(&mut self.gone).into_iter().map(Change::Gone));
    }
}

fn facts(name: &Name, file: &File) -> BTreeMap<FactRef, Fact> {
    if is_kept(file) {
        return BTreeMap::new();
    }
    let documents = file.documents.iter().filter_map(|placed| {
        let unread = placed.document.closed.as_ref()?;
        Some((placed.line.saturating_add(unread.line), unread))
    });
    let whole = file.unread_places.iter().map(|it| (it.line, it));
    let facts = documents.chain(whole).flat_map(|(line, it)| it.places.facts(&format!("{name}:{line}")));
    facts.map(|fact| (fact.reference(), fact)).collect()
}

fn is_kept(file: &File) -> bool {
    file.kept.values().any(|it| it.object.is_protected())
}

/// What is said of such a text in a file.
pub(super) fn followup(file: &File, unread: Option<&UnreadPlaces>) -> Option<Followup> {
    let places = &unread.filter(|_| !is_kept(file))?.places;
    Some(if places.is_empty() { Followup::Unknown } else { Followup::Closed(places.listed()) })
}

impl Followup {
    pub(super) fn message(&self) -> String {
        match self {
            Followup::Closed(at) => format!(
                "; the front door answers 503 at {at}, unless another Service or HTTPRoute has the same host name and path"
            ),
            Followup::Unknown => {
                "; a broader host name or path may serve requests for what it was to protect, without that protection".to_owned()
            }
        }
    }

    pub(super) fn fix(&self) -> &'static str {
        match self {
            Followup::Closed(_) => "",
            Followup::Unknown => START_CLOSED,
        }
    }
}

/// How nothing is open before a folder is right.
pub(super) const START_CLOSED: &str = "To serve nothing before this is corrected, run seaway check first, and seaway run only if that exits with 0.";
