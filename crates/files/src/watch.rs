//! Watching: the kernel says which file changed, and only that one is looked at.
//!
//! A file is read once its writer has closed it, never half-way, and a moment after its last event, so that what is
//! written together is applied together:
//!
//! ```text
//!     event ─► PendingFileEvents (5 ms after the last, at most 40 ms after the first) ─► Folder::refresh ─► sink
//!     a folder came, a link was swapped, the queue overflowed, the folder is away ─► Folder::rescan
//! ```
//! Where the kernel grants no watch, the folder is looked at every second instead, and a Problem says so.

mod pending;

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};
use seaway_model::{Change, Kind, Name, ObjectRef, Problem, Reason};
use seaway_watchdog::{Heartbeat, WatchedPart};

use self::pending::PendingFileEvents;
use crate::{
    folder::{Folder, FolderError, listing},
    wakeup::Wakeup,
};

/// How often a folder that is away, or cannot be watched, is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LOOK_UNWATCHED: Duration = Duration::from_secs(1);

/// A folder that is being watched, until this is dropped.
pub struct Watch {
    folder: Arc<Mutex<Folder>>,
    wakeup: Arc<Wakeup>,
    part: WatchedPart,
    thread: Option<JoinHandle<()>>,
}

/// Turns objects and fields into files and lines.
#[derive(Clone)]
pub struct Locator(Arc<Mutex<Folder>>);

impl Folder {
    /// Watches from now on, telling `sink` of changes. What changed since the folder was read is told first.
    pub fn watch(self, sink: impl FnMut(Vec<Change>) + Send + 'static) -> Result<Watch, FolderError> {
        let kernel = KernelWatches::open(&self.dir);
        self.watch_by(kernel, sink)
    }

    fn watch_by(
        self,
        kernel: KernelWatches,
        sink: impl FnMut(Vec<Change>) + Send + 'static,
    ) -> Result<Watch, FolderError> {
        let (dir, wakeup) = (self.dir.clone(), self.wakeup.clone());
        let folder = Arc::new(Mutex::new(self));
        let (heartbeat, part) = Heartbeat::new("the watch of the folder of manifests");
        wakeup.set_pulse(heartbeat.pulse());
        let ring = wakeup.clone();
        let part = part.woken_by(move || ring.wake());
        let (of, by) = (folder.clone(), wakeup.clone());
        let mut watcher = Watcher { folder: of, wakeup: by, kernel, dir: dir.clone(), sink, heartbeat };
        // From when this returns, the kernel tells of everything.
        let first = watcher.look(&HashSet::new(), Instant::now());
        let thread = std::thread::Builder::new()
            .name("manifests".to_owned())
            .spawn(move || watcher.run(first))
            .map_err(|source| FolderError::Watch { dir, source })?;
        Ok(Watch { folder, wakeup, part, thread: Some(thread) })
    }
}

impl Watch {
    pub fn places(&self) -> Locator {
        Locator(self.folder.clone())
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.part.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.wakeup.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Locator {
    /// Fills in file, line and column where they are missing and known.
    pub fn locate(&self, problems: &mut [Problem]) {
        lock(&self.0).locate(problems);
    }
}

fn lock(folder: &Mutex<Folder>) -> MutexGuard<'_, Folder> {
    folder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What looking at everything came to.
struct ScanResult {
    changes: Vec<Change>,
    /// When nobody will say that it is time to look again.
    again: Option<Instant>,
}

struct Watcher<S> {
    folder: Arc<Mutex<Folder>>,
    wakeup: Arc<Wakeup>,
    kernel: KernelWatches,
    dir: PathBuf,
    sink: S,
    heartbeat: Heartbeat,
}

impl<S: FnMut(Vec<Change>)> Watcher<S> {
    fn run(mut self, first: ScanResult) {
        self.heartbeat.enter_thread();
        let mut pending = PendingFileEvents::default();
        let mut look_again = first.again;
        self.send(|_| first.changes);
        while !self.wakeup.is_stopping() {
            let deadlines = [pending.next_due(), lock(&self.folder).deadline(), look_again];
            let until = deadlines.into_iter().flatten().min();
            if let Err(error) = self.wait(until) {
                tracing::error!(%error, "the folder of manifests is not watched any more");
                return;
            }
            self.heartbeat.beat();
            self.send(|it| it.wakeup.take_problems());
            for event in self.kernel.events() {
                self.note(&event, &mut pending);
            }
            let now = Instant::now();
            if look_again.is_some_and(|at| at <= now) || lock(&self.folder).tick(now) {
                pending.note_all(now);
            }
            if pending.next_due().is_none_or(|due| due > now) {
                continue;
            }
            if pending.take_everything() {
                let look = self.look(&pending.files_in_writing(), now);
                look_again = look.again;
                self.send(|_| look.changes);
            }
            let names = pending.take_due(now);
            self.send(|it| lock(&it.folder).refresh_files(names, now));
        }
    }

    fn wait(&self, until: Option<Instant>) -> io::Result<()> {
        let timeout = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            // A millisecond more rather than a busy loop of zeros.
            Some(left) => PollTimeout::try_from(left.saturating_add(Duration::from_micros(999)))
                .unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        let mut fds = vec![PollFd::new(self.wakeup.event().as_fd(), PollFlags::POLLIN)];
        if let Some(inotify) = &self.kernel.inotify {
            fds.push(PollFd::new(inotify.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at everything, and sets watches for what there is now.
    fn look(&mut self, writing: &HashSet<Name>, now: Instant) -> ScanResult {
        let was_blind = self.kernel.is_blind();
        self.kernel.begin();
        self.kernel.watch_parent(&self.dir);
        let mut folder = lock(&self.folder);
        let mut changes = folder.rescan(now, writing, &mut |dir| self.kernel.watch(dir));
        let away = folder.is_missing();
        drop(folder);
        self.kernel.finish();
        if self.kernel.is_blind() != was_blind || (was_blind && !self.kernel.told) {
            self.kernel.told = true;
            changes.push(self.kernel.report(&self.dir));
        }
        let again = match (away, self.kernel.is_blind()) {
            (true, _) => now.checked_add(LOOK_EVERY),
            (false, true) => now.checked_add(LOOK_UNWATCHED),
            (false, false) => None,
        };
        ScanResult { changes, again }
    }

    fn send(&mut self, changes: impl FnOnce(&Self) -> Vec<Change>) {
        let changes = changes(self);
        if !changes.is_empty() {
            // Whoever takes them may be slow.
            self.heartbeat.while_waiting(|| (self.sink)(changes));
        }
    }

    fn note(&self, event: &InotifyEvent, pending: &mut PendingFileEvents) {
        let now = Instant::now();
        let lost = AddWatchFlags::IN_Q_OVERFLOW
            | AddWatchFlags::IN_IGNORED
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_UNMOUNT;
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            pending.forget();
        }
        if event.mask.intersects(lost) {
            // A watch that we took away ourselves says so, too.
            if !event.mask.contains(AddWatchFlags::IN_IGNORED) || self.kernel.knows(event.wd) {
                pending.note_all(now);
            }
            return;
        }
        let Some(name) = event.name.as_ref().and_then(|name| name.to_str()) else { return };
        for place in self.kernel.places(event.wd) {
            match place {
                WatchedPath::Parent if self.dir.file_name().and_then(|it| it.to_str()) == Some(name) => {
                    pending.note_all(now);
                }
                WatchedPath::Parent => {}
                WatchedPath::Elsewhere => pending.note_all(now),
                WatchedPath::Below(below) => {
                    let path = below.join(name);
                    if name.starts_with("..") || (!listing::is_hidden(name) && self.is_folder(event, &path)) {
                        pending.note_all(now);
                    } else if listing::is_manifest(name) {
                        pending.note_event(listing::key(&path), event.mask, now);
                    }
                }
            }
        }
    }

    /// A folder, or a link to one, that came or went.
    fn is_folder(&self, event: &InotifyEvent, below: &Path) -> bool {
        let came_or_went = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVE | AddWatchFlags::IN_DELETE;
        let path = self.dir.join(below);
        event.mask.intersects(came_or_went | AddWatchFlags::IN_ATTRIB)
            && (event.mask.contains(AddWatchFlags::IN_ISDIR) || path.is_dir() || self.kernel.has(&path))
    }
}

/// What a watched folder is to us.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchedPath {
    /// The folder or one below it, by its path below.
    Below(PathBuf),
    /// Where the folder itself comes and goes.
    Parent,
    /// Where a link of the folder leads.
    Elsewhere,
}

/// The kernel's watches.
struct KernelWatches {
    dir: PathBuf,
    inotify: Option<Inotify>,
    watches: HashMap<WatchDescriptor, Vec<WatchedPath>>,
    before: HashMap<WatchDescriptor, Vec<WatchedPath>>,
    refused: Option<Errno>,
    told: bool,
}

impl KernelWatches {
    fn open(dir: &Path) -> KernelWatches {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let refused = inotify.as_ref().err().copied();
        let (watches, before) = (HashMap::new(), HashMap::new());
        KernelWatches { dir: dir.to_owned(), inotify: inotify.ok(), watches, before, refused, told: false }
    }

    fn events(&mut self) -> Vec<InotifyEvent> {
        let mut all = Vec::new();
        if let Some(inotify) = &self.inotify {
            while let Ok(events) = inotify.read_events() {
                all.extend(events);
            }
        }
        all
    }

    /// From here to [`KernelWatches::finish`], what is watched is said anew.
    fn begin(&mut self) {
        self.before = std::mem::take(&mut self.watches);
        if self.inotify.is_some() {
            self.refused = None;
        }
    }

    fn finish(&mut self) {
        for (descriptor, _) in std::mem::take(&mut self.before) {
            if let Some(inotify) = &self.inotify
                && !self.watches.contains_key(&descriptor)
            {
                // Gone by itself if its folder is.
                let _ = inotify.rm_watch(descriptor);
            }
        }
    }

    fn watch(&mut self, path: &Path) {
        let seen = path
            .strip_prefix(&self.dir)
            .map_or(WatchedPath::Elsewhere, |below| WatchedPath::Below(below.to_owned()));
        self.add(path, seen);
    }

    fn watch_parent(&mut self, dir: &Path) {
        let parent = match dir.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return,
        };
        self.add(parent, WatchedPath::Parent);
    }

    fn add(&mut self, path: &Path, seen: WatchedPath) {
        let Some(inotify) = &self.inotify else { return };
        let what = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        match inotify.add_watch(path, what) {
            // One folder may be seen in two ways: as where a link leads, and as one below.
            Ok(descriptor) => {
                let ways = self.watches.entry(descriptor).or_default();
                if !ways.contains(&seen) {
                    ways.push(seen);
                }
            }
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => {}
            Err(error) => self.refused = Some(error),
        }
    }

    fn places(&self, descriptor: WatchDescriptor) -> &[WatchedPath] {
        self.watches.get(&descriptor).map_or(&[], Vec::as_slice)
    }

    fn knows(&self, descriptor: WatchDescriptor) -> bool {
        self.watches.contains_key(&descriptor)
    }

    fn has(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.dir) else { return false };
        self.watches.values().flatten().any(|seen| matches!(seen, WatchedPath::Below(it) if it == below))
    }

    fn is_blind(&self) -> bool {
        self.refused.is_some()
    }

    fn report(&self, dir: &Path) -> Change {
        let object = ObjectRef::new(Kind::Manifest, "", format!("watch of {}", dir.display()));
        let problems = self.refused.map(|error| {
            let message = format!(
                "the kernel grants no inotify watch ({error}); the folder is read every second instead"
            );
            Problem::new(object.clone(), Reason::NotPermitted, message)
                .fix("As root: sysctl fs.inotify.max_user_watches=65536 fs.inotify.max_user_instances=1024")
        });
        Change::Reported(object, problems.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc};

    use super::*;

    #[test]
    fn a_folder_that_the_kernel_does_not_watch_is_looked_at_and_that_is_told() {
        let root = tempfile::tempdir().expect("a folder");
        let (folder, _) = Folder::open(root.path(), None).expect("is read");
        let kernel =
            KernelWatches { inotify: None, refused: Some(Errno::EMFILE), ..KernelWatches::open(root.path()) };
        let (sender, changes) = mpsc::channel();
        let _watch = folder.watch_by(kernel, move |changes| drop(sender.send(changes))).expect("is watched");
        let next = || changes.recv_timeout(Duration::from_secs(20)).expect("is told");
        let told = next();
        assert!(
            matches!(&told[..], [Change::Reported(_, problems)] if problems[0].reason == Reason::NotPermitted)
        );
        fs::write(root.path().join("n.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
            .expect("is written");
        assert!(matches!(&next()[..], [Change::Put(_)]));
    }
}
