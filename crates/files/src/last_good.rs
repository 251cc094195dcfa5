//! The last good state of manifests, kept over restarts: asked only for what cannot be read at a start.
//!
//! ```text
//!     <state-dir>/last-good/<hash of the path>.json       { folder, file, documents: [{ objects, text }] }
//!     /run/seaway/<hash of the state dir>/<…>.json        the same, for documents with Secrets: never on a disk
//! ```
//! What was good in one folder says nothing of a file of the same name in another one, nor does what names no folder, as
//! versions before this one wrote it.
//!
//! Written by a thread of its own, some time after the change. A file lost in a power cut costs no more than this
//! one comfort, so nothing waits for the disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use seaway_model::{Kind, Name, ObjectRef, Problem, Reason};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    disk::{self, Durability},
    document::{Document, LocatedObject},
    route_services::RouteServices,
    wakeup::Wakeup,
};

/// How long changes gather before they are written.
const GATHER: Duration = Duration::from_millis(250);
/// When a disk that was full is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// States of one broken file that wait for a full disk.
const MOST_WAITING: usize = 16;

pub(crate) struct LastGoodStore {
    folders: StateFolders,
    queue: Arc<WriterQueue>,
    writer: Option<JoinHandle<()>>,
}

/// What the writer finds when it looks, however long the disk kept it: nobody waits for it, and what waits does not grow.
#[derive(Default)]
struct WriterQueue {
    waiting: Mutex<WriterBacklog>,
    changed: Condvar,
}

/// Only the writer touches the folders: what it is just writing beside a file is nobody's leftover.
#[derive(Default)]
struct WriterBacklog {
    jobs: PendingSaves,
    /// Everything but the files of these names is to be forgotten.
    wanted: Option<BTreeSet<String>>,
    closing: bool,
}

/// The good documents of a file, to be saved.
pub(crate) struct SaveJob {
    pub(crate) file: Name,
    pub(crate) text: Arc<str>,
    pub(crate) documents: Vec<GoodDocument>,
    /// Objects whose last good text is the one that was kept before.
    pub(crate) kept: Vec<ObjectRef>,
    pub(crate) routes: RouteServices,
}

pub(crate) struct GoodDocument {
    pub(crate) text: Range<usize>,
    pub(crate) document: Arc<Document>,
}

impl GoodDocument {
    /// `piece` is a part of `text`.
    pub(crate) fn of(text: &str, piece: &str, document: &Arc<Document>) -> GoodDocument {
        let start = (piece.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        GoodDocument { text: start..start.saturating_add(piece.len()), document: document.clone() }
    }
}

#[derive(Clone)]
struct StateFolders {
    /// The folder of the manifests, by its canonical path.
    manifests: Name,
    plain: PathBuf,
    /// `None` where there is no memory-backed folder to put them.
    secret: Option<PathBuf>,
}

#[derive(Default, Serialize, Deserialize)]
struct LastGoodFile {
    #[serde(default)]
    folder: Name,
    file: Name,
    documents: Vec<LastGoodDocument>,
    #[serde(default, skip_serializing_if = "RouteServices::is_empty")]
    routes: RouteServices,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct LastGoodDocument {
    objects: Vec<ObjectRef>,
    text: String,
}

impl LastGoodStore {
    /// `manifests`: the folder that they are in. `runtime`: one that is emptied at a reboot and never on a disk.
    pub(crate) fn open(
        manifests: &Path,
        state: &Path,
        runtime: Option<&Path>,
        wakeup: Arc<Wakeup>,
    ) -> LastGoodStore {
        let plain = state.join("last-good");
        let canonical = |it: &Path| fs::canonicalize(it).unwrap_or_else(|_| it.to_owned());
        let manifests = canonical(manifests).to_string_lossy().into_owned().into();
        let whose = canonical(state);
        let secret = runtime.map(|runtime| runtime.join("seaway").join(short_hash(&whose.to_string_lossy())));
        let secret = secret.filter(|folder| match disk::private_folder(folder) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, folder = %folder.display(), "Secrets are not kept over restarts");
                false
            }
        });
        let folders = StateFolders { manifests, plain, secret };
        let queue = Arc::new(WriterQueue::default());
        let (writing, incoming) = (folders.clone(), queue.clone());
        let writer = std::thread::Builder::new()
            .name("last-good".to_owned())
            .spawn(move || write_on(&writing, &incoming, &wakeup))
            .inspect_err(|error| tracing::warn!(%error, "the last good state cannot be kept across restarts"))
            .ok();
        LastGoodStore { folders, queue, writer }
    }

    pub(crate) fn save(&self, job: SaveJob) {
        self.order(|waiting| waiting.jobs.add(job));
    }

    /// Forgets files that are no more.
    pub(crate) fn forget_all_but<'n>(&self, files: impl Iterator<Item = &'n Name>) {
        let wanted = files.map(|file| format!("{}.json", short_hash(file))).collect();
        self.order(|waiting| waiting.forget_all_but(wanted));
    }

    fn order(&self, order: impl FnOnce(&mut WriterBacklog)) {
        // Only a writer that could not be started does not listen.
        if self.writer.is_some() {
            order(&mut self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.queue.changed.notify_one();
        }
    }

    /// What was last good in a file.
    pub(crate) fn load(&self, file: &Name) -> Vec<Arc<LocatedObject>> {
        self.folders.iter().filter_map(|shelf| self.folders.read(shelf, file).ok()).flat_map(found).collect()
    }

    /// What was last good in files that are not there, and what was known of their routes.
    pub(crate) fn load_gone<'n>(
        &self,
        files: impl Iterator<Item = &'n Name>,
    ) -> Vec<(RouteServices, Vec<Arc<LocatedObject>>)> {
        let there: BTreeSet<String> = files.map(|file| format!("{}.json", short_hash(file))).collect();
        let all = self.folders.iter().flat_map(fs::read_dir).flatten().filter_map(Result::ok);
        let gone = all.filter(|it| it.file_name().to_str().is_some_and(|name| !there.contains(name)));
        let read =
            gone.filter_map(|it| serde_json::from_slice::<LastGoodFile>(&fs::read(it.path()).ok()?).ok());
        let its = read.filter(|it| it.folder == self.folders.manifests && !it.folder.is_empty());
        its.map(|it| (it.routes.clone(), found(it).collect())).collect()
    }

    /// What was known of its routes.
    pub(crate) fn load_routes(&self, file: &Name) -> RouteServices {
        self.folders.read(&self.folders.plain, file).unwrap_or_default().routes
    }
}

fn found(kept: LastGoodFile) -> impl Iterator<Item = Arc<LocatedObject>> {
    kept.documents.into_iter().flat_map(|document| {
        let its: BTreeSet<ObjectRef> = document.objects.into_iter().collect();
        let found = Document::read(&document.text, None).found.into_iter();
        found.filter(move |it| its.contains(it.reference()))
    })
}

impl Drop for LastGoodStore {
    /// Writes what has gathered.
    fn drop(&mut self) {
        self.order(|waiting| waiting.closing = true);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        // Only an empty folder can be removed so; whoever keeps something makes it again.
        let _ = self.folders.secret.as_ref().map(fs::remove_dir);
    }
}

impl StateFolders {
    fn iter(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.plain).chain(&self.secret)
    }

    fn read(&self, shelf: &Path, file: &Name) -> io::Result<LastGoodFile> {
        kept_of(&fs::read(path_of(shelf, file))?, &self.manifests, file)
    }
}

/// The usual place for what must not outlive a reboot.
pub fn runtime_folder() -> Option<PathBuf> {
    if nix::unistd::Uid::effective().is_root() {
        return Some(PathBuf::from("/run"));
    }
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.starts_with("/run"))
}

fn write_on(folders: &StateFolders, queue: &WriterQueue, wakeup: &Wakeup) {
    let mut healthy = true;
    let mut open = true;
    // What could not be written stays, and is tried again.
    let mut jobs = PendingSaves::default();
    while open {
        let patience = if jobs.0.is_empty() { None } else { Some(RETRY) };
        let taken = queue.take(patience);
        open = !taken.closing;
        for job in taken.jobs.0.into_values().flatten() {
            jobs.add(job);
        }
        if let Some(wanted) = taken.wanted {
            forget_all_but(&wanted, folders);
        }
        let mut outcome = Ok(());
        jobs.0.retain(|_, jobs| match jobs.iter().try_for_each(|job| write(folders, job)) {
            Ok(()) => false,
            Err(error) => {
                outcome = Err(error);
                true
            }
        });
        if outcome.is_ok() == healthy {
            continue;
        }
        healthy = outcome.is_ok();
        let object = ObjectRef::new(Kind::Config, "", "last-good");
        let problems = outcome.err().map(|error| {
            let message = format!("the last good state of manifests cannot be saved: {error}");
            Problem::new(object.clone(), Reason::StateUnwritable, message)
                .fix(
                    "Make room in the state folder, or make it writable. Until then, Seaway loses this \
                      state when it restarts.",
                )
                .in_file(folders.plain.to_string_lossy().into_owned(), 0, 0)
        });
        wakeup.queue_problems(object, problems.into_iter().collect());
    }
}

impl WriterQueue {
    /// Waits for queue, as long as there is patience, and then for those that come at once with them.
    fn take(&self, patience: Option<Duration>) -> WriterBacklog {
        let idle = |waiting: &mut WriterBacklog| {
            waiting.jobs.0.is_empty() && waiting.wanted.is_none() && !waiting.closing
        };
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = match patience {
            Some(patience) => {
                let waited = self.changed.wait_timeout_while(waiting, patience, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner),
        };
        let gathered = self.changed.wait_timeout_while(waiting, GATHER, |it| !it.closing);
        let mut waiting = gathered.unwrap_or_else(PoisonError::into_inner).0;
        std::mem::take(&mut *waiting)
    }
}

impl WriterBacklog {
    /// What a file had to say is not wanted any more once the file is gone.
    fn forget_all_but(&mut self, wanted: BTreeSet<String>) {
        self.jobs.0.retain(|file, _| wanted.contains(&format!("{}.json", short_hash(file))));
        self.wanted = Some(wanted);
    }
}

/// What is to be written of each file, in order.
#[derive(Default)]
struct PendingSaves(BTreeMap<Name, Vec<SaveJob>>);

impl PendingSaves {
    /// What keeps nothing of what was there before makes all before it superfluous.
    fn add(&mut self, job: SaveJob) {
        let jobs = self.0.entry(job.file.clone()).or_default();
        if job.kept.is_empty() {
            jobs.clear();
        }
        jobs.push(job);
        if jobs.len() > MOST_WAITING {
            // On a disk that stays full; the first has most of what the others only keep.
            jobs.remove(1);
        }
    }
}

fn forget_all_but(wanted: &BTreeSet<String>, folders: &StateFolders) {
    for shelf in folders.iter() {
        for entry in fs::read_dir(shelf).into_iter().flatten().filter_map(Result::ok) {
            if !entry.file_name().to_str().is_some_and(|name| wanted.contains(name)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn write(folders: &StateFolders, job: &SaveJob) -> io::Result<()> {
    let is_secret = |document: &Document| document.found.iter().any(|it| it.reference().kind == Kind::Secret);
    let kept: BTreeSet<&ObjectRef> = job.kept.iter().collect();
    let is_good = |it: &LocatedObject| !it.object.lacks_protection() || !kept.contains(it.reference());
    for shelf in folders.iter() {
        let secrets = Some(shelf) == folders.secret.as_ref();
        let path = path_of(shelf, &job.file);
        let before = folders.read(shelf, &job.file).unwrap_or_default();
        let mut documents: Vec<LastGoodDocument> = Vec::new();
        for good in job.documents.iter().filter(|good| is_secret(&good.document) == secrets) {
            let its = good.document.found.iter().filter(|it| is_good(it));
            let objects: Vec<ObjectRef> = its.map(|it| it.reference().clone()).collect();
            if !objects.is_empty() {
                let text = job.text.get(good.text.clone()).unwrap_or_default().to_owned();
                documents.push(LastGoodDocument { objects, text });
            }
        }
        documents.extend(still_good(&before.documents, &kept));
        let routes = if secrets { RouteServices::default() } else { job.routes.clone() };
        if documents == before.documents && routes == before.routes {
            continue;
        }
        if documents.is_empty() && routes.is_empty() {
            fs::remove_file(&path)?;
            continue;
        }
        disk::private_folder(shelf)?;
        let (folder, file) = (folders.manifests.clone(), job.file.clone());
        let kept = LastGoodFile { folder, file, documents, routes };
        disk::replace(&path, Durability::No, |writer| Ok(serde_json::to_writer(writer, &kept)?))?;
    }
    Ok(())
}

/// One text for each object whose last good text is one of these: the last, which counts when they are read.
fn still_good(documents: &[LastGoodDocument], kept: &BTreeSet<&ObjectRef>) -> Vec<LastGoodDocument> {
    let mut missing = kept.clone();
    let of_kept = |document: &LastGoodDocument| {
        let its = document.objects.iter().filter(|it| missing.remove(*it));
        let objects: Vec<ObjectRef> = its.cloned().collect();
        (!objects.is_empty()).then(|| LastGoodDocument { objects, text: document.text.clone() })
    };
    let mut still: Vec<LastGoodDocument> = documents.iter().rev().filter_map(of_kept).collect();
    still.reverse();
    still
}

/// Nothing, of what another folder, or another file of the same hash, had to say.
fn kept_of(bytes: &[u8], folder: &Name, file: &Name) -> io::Result<LastGoodFile> {
    let kept: LastGoodFile = serde_json::from_slice(bytes)?;
    let is_its = kept.file == *file && kept.folder == *folder && !folder.is_empty();
    Ok(if is_its { kept } else { LastGoodFile::default() })
}

fn path_of(shelf: &Path, file: &Name) -> PathBuf {
    shelf.join(format!("{}.json", short_hash(file)))
}

fn short_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// For the fuzz target: what was kept is recalled for its own file alone, reads back equal, and has whole objects only.
#[allow(clippy::expect_used, reason = "what is wrong ends the fuzz target")]
pub(crate) fn fuzz_recall(bytes: &[u8]) {
    let (folder, file, another) =
        (Name::from("/etc/shop"), Name::from("shop.yaml"), Name::from("another.yaml"));
    let Ok(kept) = kept_of(bytes, &folder, &file) else { return };
    let others = kept_of(bytes, &folder, &another).expect("it is as readable for everybody");
    assert!(kept.documents.is_empty() || others.documents.is_empty(), "it is of two files");
    let others = kept_of(bytes, &another, &file).expect("it is as readable for everybody");
    assert!(kept.documents.is_empty() || others.documents.is_empty(), "it is of two folders");
    let written = serde_json::to_vec(&kept).expect("it is JSON");
    let again: LastGoodFile = serde_json::from_slice(&written).expect("we wrote it");
    assert!(again.documents == kept.documents && again.file == kept.file && again.folder == kept.folder);
    assert!(again.routes == kept.routes);
    for found in found(kept) {
        assert!(!found.reference().name.is_empty(), "an object has a name");
    }
}

#[cfg(test)]
mod tests;
