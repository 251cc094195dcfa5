//! PEM files that the configuration names: certificates with their keys, told as Secrets are, and told again when they
//! change.
//!
//! ```text
//!     event in a folder on the way to a file, or a look every second ─► Stamp ─► read ─► Change
//! ```
//! certbot leads to its files by links that it swaps, and so do volumes of Kubernetes: all folders on the way are
//! watched. What cannot be read any more stays in use as it was, with a Problem.

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};
use seaway_model::{
    Change, Fact, Kind, Name, ObjectRef, Problem, Reason,
    fact::{FactRef, Secret, TLS_SECRET},
};
use seaway_watchdog::{Heartbeat, WatchedPart};

use crate::{folder::listing::FileStamp, wakeup::Wakeup};

/// Where the kernel tells nothing: a folder that came later, a file system without events.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is written together is read together.
const SETTLE: Duration = Duration::from_millis(5);
/// More than this is no certificate.
const LARGEST: u64 = 1 << 20;
/// More links than this lead nowhere, says the kernel, too.
const LINKS: usize = 40;

/// What belongs together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PemFiles {
    /// How Problems call it: the path of the certificate.
    pub name: Name,
    /// By the names that a Secret has for them: `tls.crt`, `tls.key`, `ca.crt`.
    pub parts: Vec<(&'static str, PathBuf)>,
    /// An OCSP answer, in DER. It may be missing.
    pub staple: Option<PathBuf>,
}

impl PemFiles {
    pub fn object(&self) -> ObjectRef {
        ObjectRef::new(Kind::File, "", self.name.clone())
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.parts.iter().map(|(_, path)| path).chain(&self.staple)
    }

    fn stamps(&self) -> Vec<Option<FileStamp>> {
        self.paths().map(|path| FileStamp::of(path).ok().flatten()).collect()
    }

    /// `was_read`: what it was before is in use.
    fn read(&self, was_read: bool) -> Result<Secret, Problem> {
        let mut values = std::collections::BTreeMap::new();
        for (key, path) in &self.parts {
            let text = bounded(path).and_then(|bytes| {
                String::from_utf8(bytes).map_err(|not| {
                    let why = binary_form(not.as_bytes()).unwrap_or("not UTF-8");
                    io::Error::new(io::ErrorKind::InvalidData, why)
                })
            });
            let text = text.map_err(|error| {
                let convert = conversion(key, path, &error.to_string());
                self.unreadable(path, &error, convert.as_deref(), was_read)
            })?;
            values.insert(Name::from(*key), text.into());
        }
        let staple = match self.staple.as_deref().map(bounded) {
            Some(Ok(bytes)) => Some(bytes.into()),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                let path = self.staple.as_deref().unwrap_or(Path::new(""));
                return Err(self.unreadable(path, &error, None, was_read));
            }
            _ => None,
        };
        let kind = if values.contains_key("tls.crt") { TLS_SECRET } else { "Opaque" };
        Ok(Secret {
            object: self.object(),
            created: None,
            kind: kind.into(),
            values,
            staple,
            withheld: false,
        })
    }

    fn unreadable(&self, path: &Path, error: &io::Error, fix: Option<&str>, was_read: bool) -> Problem {
        let shown = path.display().to_string();
        let first = fix.unwrap_or("Make the file readable.");
        let then = match was_read {
            true => "What was read from it before stays in use.",
            false => "Until it can be read, nothing that needs it is served.",
        };
        Problem::new(self.object(), Reason::Unreadable, format!("{shown} cannot be read: {error}"))
            .fix(format!("{first} {then}"))
            .in_file(shown, 0, 0)
    }

    fn tell(&self, was_read: bool) -> Vec<Change> {
        let (fact, problems) = match self.read(was_read) {
            Ok(secret) => (Some(Change::Put(Fact::Secret(Arc::new(secret)))), Vec::new()),
            Err(problem) => (None, vec![problem]),
        };
        fact.into_iter().chain([Change::Reported(self.object(), problems)]).collect()
    }
}

const DER: &str = "it is DER, and PEM is needed";
const PKCS12: &str = "it is PKCS #12, and PEM is needed";

/// What a file of a certificate or a key is that is no text: by the first bytes of its SEQUENCE. PKCS #12 begins with version 3.
fn binary_form(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x30, 0x82, _, _, 2, 1, 3, ..] => Some(PKCS12),
        [0x30, 0x81..=0x84, ..] => Some(DER),
        _ => None,
    }
}

/// The command that makes PEM of it.
fn conversion(key: &str, path: &Path, why: &str) -> Option<String> {
    let (file, kind) = (path.display(), if key == "tls.key" { "pkey" } else { "x509" });
    match why {
        DER => Some(format!(
            "Convert it, and name the new file: openssl {kind} -inform der -in {file} -out {file}.pem."
        )),
        PKCS12 => Some(format!(
            "Convert it, and name the new file: (umask 077; openssl pkcs12 -in {file} -nodes -out {file}.pem)."
        )),
        _ => None,
    }
}

/// All of them, once.
pub fn read(files: &[PemFiles]) -> Vec<Change> {
    files.iter().flat_map(|it| it.tell(false)).filter(|it| !is_well(it)).collect()
}

/// Nobody needs to hear that there is no Problem where there was none.
fn is_well(change: &Change) -> bool {
    matches!(change, Change::Reported(_, problems) if problems.is_empty())
}

fn bounded(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large for a certificate"));
    }
    fs::read(path)
}

/// Whether these changes bring what stands in the files.
fn is_among(changes: &[Change], files: &PemFiles) -> bool {
    let is_it =
        |it: &Change| matches!(it, Change::Put(Fact::Secret(secret)) if secret.object == files.object());
    changes.iter().any(is_it)
}

/// Files that are watched, until this is dropped.
pub struct PemWatch {
    shared: Arc<Shared>,
    /// What was named last.
    files: Mutex<Vec<PemFiles>>,
    part: WatchedPart,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    wakeup: Wakeup,
    wanted: Mutex<Option<Vec<PemFiles>>>,
}

impl PemWatch {
    /// Reads them, and tells `sink` of every change from then on.
    pub fn start(
        files: &[PemFiles],
        sink: impl FnMut(Vec<Change>) + Send + 'static,
    ) -> io::Result<(PemWatch, Vec<Change>)> {
        let shared = Arc::new(Shared { wakeup: Wakeup::new()?, wanted: Mutex::default() });
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let (heartbeat, part) = Heartbeat::new("the watcher of certificate files");
        let ring = shared.clone();
        let part = part.woken_by(move || ring.wakeup.wake());
        let mut watcher = Watcher { shared: shared.clone(), inotify, known: Vec::new(), sink, heartbeat };
        watcher.follow(files.to_vec());
        let first = read(files);
        watcher.known.iter_mut().for_each(|it| it.was_read = is_among(&first, &it.files));
        let thread =
            std::thread::Builder::new().name("certificates".to_owned()).spawn(move || watcher.run())?;
        Ok((PemWatch { shared, files: Mutex::new(files.to_vec()), part, thread: Some(thread) }, first))
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.part.clone()
    }

    /// Which of these are not watched yet. The others are read by the watcher alone: what another reader sends could be older than
    /// what the watcher sent, and would stay.
    pub fn added<'a>(&self, files: &'a [PemFiles]) -> impl Iterator<Item = &'a PemFiles> {
        let watched = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        files.iter().filter(move |it| !watched.contains(it))
    }

    /// Other files from now on.
    pub fn set(&self, files: Vec<PemFiles>) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&files);
        *self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(files);
        self.shared.wakeup.wake();
    }
}

impl Drop for PemWatch {
    fn drop(&mut self) {
        self.shared.wakeup.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct WatchedFiles {
    files: PemFiles,
    stamps: Vec<Option<FileStamp>>,
    /// What stood in them at some time is in use.
    was_read: bool,
}

struct Watcher<S> {
    shared: Arc<Shared>,
    inotify: Option<Inotify>,
    known: Vec<WatchedFiles>,
    sink: S,
    heartbeat: Heartbeat,
}

impl WatchedFiles {
    fn tell(&mut self) -> Vec<Change> {
        let changes = self.files.tell(self.was_read);
        self.was_read |= is_among(&changes, &self.files);
        changes
    }
}

impl<S: FnMut(Vec<Change>)> Watcher<S> {
    fn run(mut self) {
        self.heartbeat.enter_thread();
        while !self.shared.wakeup.is_stopping() {
            self.heartbeat.beat();
            if self.wait() {
                std::thread::sleep(SETTLE);
                self.drain();
            }
            self.shared.wakeup.take_problems();
            let wanted = self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut changes = wanted.map(|files| self.replace(files)).unwrap_or_default();
            changes.extend(self.look());
            if !changes.is_empty() {
                // Whoever takes them may be slow.
                self.heartbeat.while_waiting(|| (self.sink)(changes));
            }
        }
    }

    /// Whether the kernel told something about a file.
    fn wait(&self) -> bool {
        let mut fds = vec![PollFd::new(self.shared.wakeup.event().as_fd(), PollFlags::POLLIN)];
        fds.extend(self.inotify.as_ref().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)));
        let patience = match self.known.is_empty() {
            true => PollTimeout::NONE,
            false => PollTimeout::try_from(LOOK_EVERY).unwrap_or(PollTimeout::MAX),
        };
        if poll(&mut fds, patience).is_err() {
            return false;
        }
        fds.get(1).and_then(PollFd::any).unwrap_or(false)
    }

    fn drain(&self) {
        while let Some(Ok(_)) = self.inotify.as_ref().map(Inotify::read_events) {}
    }

    /// Stamps are taken before anything is read: what changes meanwhile is read again.
    fn follow(&mut self, files: Vec<PemFiles>) {
        let before: BTreeSet<PemFiles> =
            self.known.drain(..).filter(|it| it.was_read).map(|it| it.files).collect();
        for file in &files {
            self.watch(file);
        }
        let watched = |files: PemFiles| {
            let (stamps, was_read) = (files.stamps(), before.contains(&files));
            WatchedFiles { files, stamps, was_read }
        };
        self.known = files.into_iter().map(watched).collect();
    }

    fn replace(&mut self, files: Vec<PemFiles>) -> Vec<Change> {
        let before: BTreeSet<PemFiles> = self.known.iter().map(|it| it.files.clone()).collect();
        let now: BTreeSet<ObjectRef> = files.iter().map(PemFiles::object).collect();
        let gone = before.iter().map(PemFiles::object).filter(|it| !now.contains(it));
        let mut changes: Vec<Change> = gone
            .flat_map(|it| [Change::Reported(it.clone(), Vec::new()), Change::Gone(FactRef::Object(it))])
            .collect();
        self.follow(files);
        for it in self.known.iter_mut().filter(|it| !before.contains(&it.files)) {
            changes.extend(it.tell());
        }
        changes
    }

    fn look(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut stirred = Vec::new();
        for it in &mut self.known {
            let now = it.files.stamps();
            if it.stamps != now {
                it.stamps = now;
                changes.extend(it.tell());
                stirred.push(it.files.clone());
            }
        }
        // Links may lead through other folders now.
        stirred.iter().for_each(|file| self.watch(file));
        changes
    }

    fn watch(&self, files: &PemFiles) {
        let Some(inotify) = &self.inotify else { return };
        let what = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_ONLYDIR;
        for folder in files.paths().flat_map(|path| folders(path)) {
            // One that is not there, or cannot be watched, is looked at every second all the same.
            let _ = inotify.add_watch(&folder, what);
        }
    }
}

/// All that lie on the way to a file, over all links.
fn folders(path: &Path) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        let parent = at.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        // A folder's own link may be swapped as well.
        folders.extend(parent.parent().filter(|_| parent.is_symlink()).map(Path::to_owned));
        folders.insert(parent.clone());
        match fs::read_link(&at) {
            Ok(target) => at = parent.join(target),
            Err(_) => break,
        }
    }
    // What `..` and links among the folders make of it.
    folders.extend(fs::canonicalize(path).ok().and_then(|it| it.parent().map(Path::to_owned)));
    folders
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, sync::mpsc};

    use secrecy::ExposeSecret;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn pair(folder: &Path, name: &str) -> PemFiles {
        let parts = vec![("tls.crt", folder.join("cert.pem")), ("tls.key", folder.join("key.pem"))];
        PemFiles { name: name.into(), parts, staple: Some(folder.join("staple.der")) }
    }

    fn write(folder: &Path, cert: &str, key: &str) {
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("key.pem"), key).expect("written");
        fs::write(folder.join("cert.pem"), cert).expect("written");
    }

    /// Waits for a Secret that says this.
    fn until(changes: &mpsc::Receiver<Vec<Change>>, cert: &str, key: &str) -> Secret {
        loop {
            for change in changes.recv_timeout(PATIENCE).expect("it is told") {
                let Change::Put(Fact::Secret(secret)) = change else { continue };
                let value = |key: &str| secret.values.get(key).map(|it| it.expose_secret().to_owned());
                if (value("tls.crt"), value("tls.key")) == (Some(cert.into()), Some(key.into())) {
                    return (*secret).clone();
                }
            }
        }
    }

    #[test]
    fn files_are_told_when_they_change_are_swapped_by_links_or_vanish() {
        let root = tempfile::tempdir().expect("a folder");
        let (one, two, live) = (root.path().join("1"), root.path().join("2"), root.path().join("live"));
        write(&one, "a", "b");
        symlink("1", &live).expect("linked");
        let files = pair(&live, "shop");
        let (sender, changes) = mpsc::channel();
        let (watch, first) =
            PemWatch::start(std::slice::from_ref(&files), move |it| drop(sender.send(it))).expect("watched");
        assert!(matches!(&first[..], [Change::Put(Fact::Secret(it))] if *it.kind == *TLS_SECRET));
        write(&one, "c", "d");
        assert_eq!(until(&changes, "c", "d").staple, None);
        write(&two, "e", "f");
        fs::write(two.join("staple.der"), [0xff]).expect("written");
        symlink("2", root.path().join("next")).expect("linked");
        fs::rename(root.path().join("next"), &live).expect("swapped");
        assert_eq!(until(&changes, "e", "f").staple.as_deref(), Some(&[0xff][..]));
        fs::remove_file(two.join("key.pem")).expect("removed");
        let told = loop {
            let all = changes.recv_timeout(PATIENCE).expect("it is told");
            assert!(!all.iter().any(|it| matches!(it, Change::Gone(_))), "what was read goes on: {all:?}");
            if let Some(Change::Reported(_, problems)) = all.into_iter().find(|it| !is_well(it)) {
                break problems;
            }
        };
        assert!(told[0].message.contains("key.pem cannot be read"), "{told:?}");
        assert!(told[0].fix.contains("What was read from it before stays in use"), "{told:?}");
        write(&two, "g", "h");
        until(&changes, "g", "h");
        watch.set(Vec::new());
        loop {
            let all = changes.recv_timeout(PATIENCE).expect("it is told");
            if all
                .iter()
                .any(|it| matches!(it, Change::Gone(FactRef::Object(object)) if *object == files.object()))
            {
                return;
            }
        }
    }

    #[test]
    fn files_that_are_watched_already_are_not_added() {
        let file = |name: &str| PemFiles { name: name.into(), parts: Vec::new(), staple: None };
        let (watch, _) = PemWatch::start(&[file("a")], |_| {}).expect("it starts");
        let both = [file("a"), file("b")];
        assert!(watch.added(&both).eq([&both[1]]));
        watch.set(both.to_vec());
        assert_eq!(watch.added(&both).count(), 0);
    }

    #[test]
    fn what_is_not_there_yet_is_a_problem_and_read_when_it_comes() {
        let root = tempfile::tempdir().expect("a folder");
        let files = pair(&root.path().join("later"), "shop");
        let (sender, changes) = mpsc::channel();
        let (_watch, first) = PemWatch::start(&[files], move |it| drop(sender.send(it))).expect("watched");
        let [Change::Reported(_, problems)] = &first[..] else { panic!("{first:?}") };
        assert_eq!(problems[0].reason, Reason::Unreadable);
        assert!(problems[0].fix.contains("nothing that needs it is served"), "{problems:?}");
        write(&root.path().join("later"), "a", "b");
        until(&changes, "a", "b");
    }
}
