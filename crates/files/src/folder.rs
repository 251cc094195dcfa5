//! The folder: its files as they were last read, and what the World was told of them.
//!
//! ```text
//!     listing ─► File { stamp, documents } ─► claims ─► Change
//!                  │        └ by the hash of their text: only what changed is parsed
//!                  └ kept: what was good and is broken now; a typo takes nothing away
//! ```
//! A file that cannot be read, or that has a document which does not parse, loses no object: what it said last goes
//! on. If all its documents are good, what is no longer in it is gone. What a file is, is decided when its writer
//! closes it: see [`crate::watch`].

mod closed_places;
mod closed_services;
mod content;
mod kept_objects;
mod led_services;
pub(crate) mod listing;
mod object_sources;
mod once;
mod problems;
#[cfg(test)]
mod tests;
mod unused_routes;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    hash::RandomState,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_manifests::object::UnusedRoute;
use seaway_model::{Change, Kind, Name, ObjectRef, Problem};

pub use self::once::read_folder;
use self::{
    closed_places::FolderClosedPlaces,
    listing::{FileStamp, Listing},
    object_sources::{ObjectSource, ObjectSources},
    unused_routes::UnusedRoutes,
};
use crate::{
    document::{self, Document, DocumentText, Hashes, LocatedObject, MapByTextHash, TextHash, UnreadPlaces},
    last_good::{self, GoodDocument, LastGoodStore, SaveJob},
    route_services::{LedServices, RouteServices},
    wakeup::Wakeup,
};

/// How long an emptied file, or a folder that came back without its files, is believed to be on its way.
const PATIENCE: Duration = Duration::from_secs(1);
const KINDS: [Kind; 9] = [
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Endpoints,
    Kind::Node,
    Kind::Namespace,
    Kind::Secret,
    Kind::AddressPool,
    Kind::IPAddressPool,
    Kind::HTTPRoute,
];

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("cannot read the folder of manifests {}", dir.display())]
    Unreadable {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a folder: name the folder that the manifests are in", dir.display())]
    NotAFolder { dir: PathBuf },
    #[error("cannot watch the folder of manifests {}", dir.display())]
    Watch {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A folder of manifests, read.
pub struct Folder {
    pub(crate) dir: PathBuf,
    hasher: RandomState,
    files: BTreeMap<Name, File>,
    /// Beside them when the folder was opened: names that went wrong.
    unread: BTreeSet<Name>,
    claims: ObjectSources,
    unused_routes: UnusedRoutes,
    closed_places: FolderClosedPlaces,
    reported: HashMap<ObjectRef, Vec<Problem>>,
    /// Which files have something to say against an object.
    accused: HashMap<ObjectRef, BTreeSet<Name>>,
    /// Objects that are written twice.
    doubled: BTreeSet<ObjectRef>,
    away: bool,
    returning: Option<Instant>,
    emptied: BTreeMap<Name, Instant>,
    /// When to look again at files that could not be read for a reason that passes by itself.
    read_again: Option<Instant>,
    last_good: Option<LastGoodStore>,
    pub(crate) wakeup: Arc<Wakeup>,
}

#[derive(Default)]
struct File {
    stamp: Option<FileStamp>,
    documents: Vec<FileDocument>,
    kept: BTreeMap<ObjectRef, Arc<LocatedObject>>,
    /// Why it cannot be read.
    trouble: Option<Trouble>,
    /// What may have been to protect in a text that cannot be read.
    unread_route: Option<UnusedRoute>,
    unread_places: Option<UnreadPlaces>,
    led: LedServices,
    problems: BTreeMap<ObjectRef, Vec<Problem>>,
}

/// Why, and what to do.
#[derive(Clone, Default)]
struct Trouble {
    why: String,
    fix: &'static str,
}

#[derive(Clone)]
struct FileDocument {
    /// Lines before it.
    line: u32,
    hash: TextHash,
    document: Arc<Document>,
}

impl Folder {
    /// Reads all of a folder. `state`: where the last good state is kept, if it is to be.
    pub fn open(dir: &Path, state: Option<&Path>) -> Result<(Folder, Vec<Change>), FolderError> {
        Folder::open_with(dir, state, last_good::runtime_folder().as_deref())
    }

    /// As [`Folder::open`], with another folder than /run for what must not outlive a reboot.
    pub fn open_with(
        dir: &Path,
        state: Option<&Path>,
        runtime: Option<&Path>,
    ) -> Result<(Folder, Vec<Change>), FolderError> {
        Folder::of(dir, listing::walk(dir, &mut |_| {}), state, runtime)
    }

    /// Reads what was listed there.
    fn of(
        dir: &Path,
        listing: io::Result<Listing>,
        state: Option<&Path>,
        runtime: Option<&Path>,
    ) -> Result<(Folder, Vec<Change>), FolderError> {
        let fail = |source: io::Error| match source.kind() {
            io::ErrorKind::NotADirectory => FolderError::NotAFolder { dir: dir.to_owned() },
            _ => FolderError::Unreadable { dir: dir.to_owned(), source },
        };
        let wakeup = Arc::new(Wakeup::new().map_err(|error| fail(error.into()))?);
        let mut folder = Folder {
            dir: dir.to_owned(),
            hasher: RandomState::new(),
            files: BTreeMap::new(),
            unread: BTreeSet::new(),
            claims: ObjectSources::default(),
            unused_routes: UnusedRoutes::default(),
            closed_places: FolderClosedPlaces::default(),
            reported: HashMap::new(),
            accused: HashMap::new(),
            doubled: BTreeSet::new(),
            away: false,
            returning: None,
            emptied: BTreeMap::new(),
            read_again: None,
            last_good: state.map(|state| LastGoodStore::open(dir, state, runtime, wakeup.clone())),
            wakeup,
        };
        let mut listing = listing.map_err(fail)?;
        folder.unread = std::mem::take(&mut listing.unread);
        folder.recall_led_of_gone(&listing);
        let mut changes = Vec::new();
        folder.claims.report_default_namespace(&mut changes);
        let touched = folder.take_in(listing, Instant::now(), &HashSet::new());
        changes.extend(folder.settle(touched));
        changes.extend(KINDS.into_iter().chain(Kind::ANNOUNCING).map(Change::Synced));
        if let Some(last_good) = &folder.last_good {
            last_good.forget_all_but(folder.files.keys());
        }
        Ok((folder, changes))
    }

    /// Fills in file, line and column of problems with objects of this folder that have none.
    pub fn locate(&self, problems: &mut [Problem]) {
        let mut by_file = BTreeMap::<Name, Vec<_>>::new();
        for problem in problems.iter_mut().filter(|problem| problem.place.is_none()) {
            let (object, field) = problems::subject(problem);
            if let Some(claim) = self.claims.served(&object) {
                by_file.entry(claim.file.clone()).or_default().push((problem, field, claim.found.clone()));
            }
        }
        for (file, problems) in by_file {
            let text = fs::read_to_string(self.dir.join(&*file)).unwrap_or_default();
            let pieces: MapByTextHash<DocumentText<'_>> = document::split(&text)
                .into_iter()
                .map(|piece| (TextHash::of(piece.text, &self.hasher), piece))
                .collect();
            let shown = self.shown(&file);
            for (problem, field, found) in problems {
                let piece = found.document.and_then(|hash| pieces.get(&hash));
                let at = piece.and_then(|piece| Some((piece.line, found.place_of(piece.text, &field)?)));
                let (line, column) =
                    at.map_or((0, 0), |(before, at)| (at.line.saturating_add(before), at.column));
                *problem = problem.clone().in_file(shown.clone(), line, column);
            }
        }
    }

    /// Looks at everything, except for files that are being written. `enter` is told each folder before it is read.
    pub(crate) fn rescan(
        &mut self,
        now: Instant,
        writing: &HashSet<Name>,
        enter: &mut dyn FnMut(&Path),
    ) -> Vec<Change> {
        let listing = match listing::walk(&self.dir, enter) {
            Ok(listing) => listing,
            Err(error) => return self.set_missing(&error),
        };
        if std::mem::take(&mut self.away) {
            self.returning = now.checked_add(PATIENCE);
        }
        let mut changes = self.report(self.folder_object(), Vec::new());
        let touched = self.take_in(listing, now, writing);
        changes.extend(self.settle(touched));
        changes
    }

    /// Looks at some files.
    pub(crate) fn refresh_files(&mut self, all: impl IntoIterator<Item = Name>, now: Instant) -> Vec<Change> {
        let mut touched = BTreeSet::new();
        if self.returning.is_some() {
            self.returning = now.checked_add(PATIENCE);
        }
        for name in all {
            match FileStamp::of(&self.dir.join(&*name)) {
                // Its folder went with it, or came back without it: that is not how people remove a file.
                Ok(None) if self.away || self.returning.is_some() || !self.dir.is_dir() => {}
                Ok(None) => self.update(&name, None, &mut touched),
                Ok(stamp) => self.look_at(&name, stamp, now, &mut touched),
                Err(_) => self.look_at(&name, None, now, &mut touched),
            }
        }
        self.settle(touched)
    }

    /// When [`Folder::tick`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.emptied.values().copied().chain(self.returning).chain(self.read_again).min()
    }

    /// Believes what it did not want to believe before. Says whether everything has to be looked at.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        let read_again = self.read_again.take_if(|until| *until <= now).is_some();
        self.returning.take_if(|until| *until <= now).is_some()
            || read_again
            || self.emptied.values().any(|until| *until <= now)
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.away
    }

    fn take_in(&mut self, listing: Listing, now: Instant, writing: &HashSet<Name>) -> BTreeSet<ObjectRef> {
        let mut touched = BTreeSet::new();
        if self.returning.is_none() {
            let gone: Vec<Name> =
                self.files.keys().filter(|file| !listing.files.contains_key(*file)).cloned().collect();
            for file in gone {
                self.update(&file, None, &mut touched);
            }
        }
        for (file, stamp) in listing.files {
            if !writing.contains(&file) {
                self.look_at(&file, stamp, now, &mut touched);
            }
        }
        touched
    }

    /// Reads a file again, if it is not the one that was read.
    fn look_at(
        &mut self,
        name: &Name,
        stamp: Option<FileStamp>,
        now: Instant,
        touched: &mut BTreeSet<ObjectRef>,
    ) {
        self.wakeup.beat();
        let before = self.files.get(name);
        if stamp.is_some() && before.is_some_and(|file| file.stamp == stamp && file.trouble.is_none()) {
            return;
        }
        // Many writers empty a file first; nobody means to say nothing by it for long.
        let emptied =
            stamp.is_some_and(|it| it.size == 0) && before.is_some_and(|file| !file.documents.is_empty());
        let later = now.checked_add(PATIENCE).unwrap_or(now);
        if emptied && now < *self.emptied.entry(name.clone()).or_insert(later) {
            return;
        }
        self.emptied.remove(name);
        let file = match content::read(&self.dir.join(&**name)) {
            // A writer that failed, or a full disk: nothing asks for its objects to go.
            Ok(text) if text.trim().is_empty() => self.without(name, problems::empty()),
            Ok(text) => self.parse(name, &text, stamp),
            // Gone since it was listed; its event comes.
            Err(error) if error.kind() == io::ErrorKind::NotFound && before.is_none() && stamp.is_some() => {
                return;
            }
            Err(error) => {
                if content::is_transient(&error) {
                    self.read_again = Some(later);
                }
                let mut file = self.without(name, problems::unreadable(&error));
                let (route, places) = content::read_lossy(&self.dir.join(&**name), &error);
                (file.unread_route, file.unread_places) = (route.or(file.unread_route), places);
                file
            }
        };
        self.update(name, Some(file), touched);
    }

    /// The file's documents; those whose text is as it was are not parsed again.
    fn parse(&self, name: &Name, text: &str, stamp: Option<FileStamp>) -> File {
        let before = self.files.get(name);
        let known: MapByTextHash<&Arc<Document>> = before
            .map_or(&[][..], |file| &file.documents)
            .iter()
            .map(|placed| (placed.hash, &placed.document))
            .collect();
        let pieces = document::split(text);
        let mut file = File { stamp, ..File::default() };
        file.documents.reserve_exact(pieces.len());
        let mut good = Vec::new();
        for DocumentText { line, text: piece } in pieces {
            let hash = TextHash::of(piece, &self.hasher);
            let document = match known.get(&hash) {
                Some(document) => (*document).clone(),
                None => Arc::new(Document::read(piece, Some(hash))),
            };
            if self.last_good.is_some() && !document.found.is_empty() {
                good.push(GoodDocument::of(text, piece, &document));
            }
            file.documents.push(FileDocument { line, hash, document });
        }
        file.kept = self.to_keep(name, &file);
        file.led = self.led_before(name, &file);
        if let Some(last_good) = &self.last_good {
            let (kept, routes) = (file.kept.keys().cloned().collect(), file.route_services());
            last_good.save(SaveJob { file: name.clone(), text: text.into(), documents: good, kept, routes });
        }
        file
    }

    /// What the file said last, now that it cannot be read.
    fn without(&self, name: &Name, trouble: Trouble) -> File {
        let trouble = Some(trouble);
        match self.files.get(name) {
            Some(before) => File {
                documents: before.documents.clone(),
                kept: before.kept.clone(),
                unread_route: before.unread_route.clone(),
                led: before.led.clone(),
                stamp: None,
                trouble,
                ..File::default()
            },
            None => File {
                kept: self.recall(name),
                unread_route: self.recall_unused_route(name),
                led: self.recall_led(name),
                trouble,
                ..File::default()
            },
        }
    }

    /// Puts a file's new state in the place of its old one.
    fn update(&mut self, name: &Name, file: Option<File>, touched: &mut BTreeSet<ObjectRef>) {
        let before = self.files.remove(name).unwrap_or_default();
        if file.is_none()
            && let Some(last_good) = &self.last_good
        {
            last_good.save(SaveJob {
                file: name.clone(),
                text: "".into(),
                documents: Vec::new(),
                kept: Vec::new(),
                routes: RouteServices::default(),
            });
        }
        let present = file.is_some();
        let mut after = file.unwrap_or_default();
        let hashes = |file: &File| file.documents.iter().map(|placed| placed.hash).collect::<Hashes>();
        let (old, new) = (hashes(&before), hashes(&after));
        for found in before.kept.values() {
            self.claims.remove(name, found);
        }
        for placed in before.documents.iter().filter(|placed| !new.contains(&placed.hash)) {
            placed.document.found.iter().for_each(|found| self.claims.remove(name, found));
        }
        let mut fresh = old;
        for placed in &after.documents {
            // The same text twice in one file says nothing more than once.
            if fresh.insert(placed.hash) {
                for found in &placed.document.found {
                    self.claims.add(ObjectSource { file: name.clone(), found: found.clone(), kept: false });
                }
            }
        }
        for found in after.kept.values() {
            self.claims.add(ObjectSource { file: name.clone(), found: found.clone(), kept: true });
        }
        after.problems = problems::of_file(self.shown(name), name, &after);
        for reference in before.problems.keys() {
            if let Some(files) = self.accused.get_mut(reference) {
                files.remove(name);
            }
            touched.insert(reference.clone());
        }
        for reference in after.problems.keys() {
            self.accused.entry(reference.clone()).or_default().insert(name.clone());
            touched.insert(reference.clone());
        }
        self.unused_routes.set_file(name, &self.shown(name), present.then_some(&after));
        self.closed_places.set_file(name, present.then_some(&after));
        if present {
            self.files.insert(name.clone(), after);
        }
    }

    /// Tells what came of updates; `touched`: whose problems may have changed.
    fn settle(&mut self, mut touched: BTreeSet<ObjectRef>) -> Vec<Change> {
        let files = &self.files;
        let order = |claim: &ObjectSource| (claim.file.clone(), line_of(files, claim));
        let (mut changes, dirty) = self.claims.take_changes(order);
        let place = |route: &ObjectRef| {
            let (file, line) = self.claims.served(route).map(order).unwrap_or_default();
            format!("{}:{line}", self.dir.join(&*file).display()).into()
        };
        if let Some(services) = self.unused_routes.take_changes(&dirty, &self.claims, place) {
            self.claims.set_unused_routes(services);
            changes.extend(self.claims.take_changes(order).0);
        }
        for reference in dirty {
            let rivals = self.claims.other_sources(&reference).next().is_some();
            if rivals {
                self.doubled.insert(reference.clone());
            } else {
                self.doubled.remove(&reference);
            }
            touched.insert(reference);
        }
        self.closed_places.add_changes(&mut changes);
        touched.extend(self.doubled.iter().cloned());
        for reference in touched {
            let problems = self.problems_of(&reference);
            changes.extend(self.report(reference, problems));
        }
        changes
    }

    fn report(&mut self, object: ObjectRef, problems: Vec<Problem>) -> Vec<Change> {
        if self.reported.get(&object).map_or(&[][..], Vec::as_slice) == problems {
            return Vec::new();
        }
        if problems.is_empty() {
            self.reported.remove(&object);
        } else {
            self.reported.insert(object.clone(), problems.clone());
        }
        vec![Change::Reported(object, problems)]
    }

    /// How a file is shown to people: as they would open it.
    fn shown(&self, name: &str) -> Name {
        self.dir.join(name).to_string_lossy().into_owned().into()
    }
}

/// Where a claim stands in its file; 0 if it is only kept.
fn line_of(files: &BTreeMap<Name, File>, claim: &ObjectSource) -> u32 {
    let Some(hash) = claim.found.document else { return 0 };
    let placed =
        files.get(&claim.file).and_then(|file| file.documents.iter().find(|placed| placed.hash == hash));
    placed.map_or(0, |placed| placed.line.saturating_add(claim.found.at.line))
}
