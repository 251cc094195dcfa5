//! `status.json`: what each Service got, for people and scripts. Who serves never reads it back; who checks a folder does, to
//! know what is served beside it, and who explains one, to know whom to ask.

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use seaway_model::{Kind, ObjectRef, Owner, Problem, Reason, Status, Time, outcome::ServingSocket};
use serde::{Deserialize, Serialize};

use super::StateDir;
use crate::disk::{self, Durability};

const FILE: &str = "status.json";
/// Changes of this time are written together; a file that takes long to write is written less often.
const GATHER: Duration = Duration::from_millis(50);
/// The writer may work this share of the time.
const SHARE: u32 = 20;
/// A file that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The process that writes the file, and where it can be asked for more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// The folder that it serves, as [`absolute`] says it.
    pub manifests: String,
    /// As its status page says it, too: another process at the same port is not this one.
    pub started: Time,
    pub status_page: Vec<SocketAddr>,
}

/// One name for a folder, whatever it was called by.
pub fn absolute(folder: &Path) -> String {
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()).to_string_lossy().into_owned()
}

/// Writes statuses from a thread of its own, until this is dropped.
pub struct StatusFile {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    pending: Mutex<PendingStatuses>,
    stirred: Condvar,
}

#[derive(Default)]
struct PendingStatuses {
    statuses: BTreeMap<Owner, Arc<Status>>,
    changed: bool,
    closing: bool,
}

impl StatusFile {
    /// `trouble` is told when the file cannot be written, and by an empty list when it can again.
    pub fn open(
        state: &StateDir,
        server: Option<ServerInfo>,
        trouble: impl Fn(ObjectRef, Vec<Problem>) + Send + 'static,
    ) -> io::Result<StatusFile> {
        let pending = PendingStatuses { changed: true, ..PendingStatuses::default() };
        let shared = Arc::new(Shared { pending: Mutex::new(pending), stirred: Condvar::new() });
        let (writing, path) = (shared.clone(), state.path().join(FILE));
        let writer = std::thread::Builder::new()
            .name("status".to_owned())
            .spawn(move || writing.write_on(&path, server.as_ref(), &trouble))?;
        Ok(StatusFile { shared, writer: Some(writer) })
    }

    pub fn put(&self, owner: Owner, status: Arc<Status>) {
        let mut pending = self.shared.pending();
        if pending.statuses.get(&owner) != Some(&status) {
            pending.statuses.insert(owner, status);
            pending.changed = true;
            self.shared.stirred.notify_one();
        }
    }

    pub fn remove(&self, owner: &Owner) {
        let mut pending = self.shared.pending();
        if pending.statuses.remove(owner).is_some() {
            pending.changed = true;
            self.shared.stirred.notify_one();
        }
    }
}

impl Drop for StatusFile {
    /// Writes what has changed last.
    fn drop(&mut self) {
        self.shared.pending().closing = true;
        self.shared.stirred.notify_one();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Where each owner is served by the process that has this state folder, or had it last. Nothing, where that cannot be read.
pub fn stored_serving(state: &Path) -> Vec<(Owner, ServingSocket)> {
    #[derive(Deserialize)]
    struct Served {
        owner: Owner,
        serving: Vec<ServingSocket>,
    }
    #[derive(Deserialize)]
    struct Page {
        services: BTreeMap<String, Served>,
    }
    let page = fs::read(state.join(FILE)).ok().and_then(|text| serde_json::from_slice::<Page>(&text).ok());
    let services = page.into_iter().flat_map(|it| it.services.into_values());
    services.flat_map(|it| it.serving.into_iter().map(move |at| (it.owner.clone(), at))).collect()
}

/// The process that has this state folder, or had it last. Nothing, where that cannot be read.
pub fn stored_server(state: &Path) -> Option<ServerInfo> {
    #[derive(Deserialize)]
    struct Page {
        server: Option<ServerInfo>,
    }
    let text = fs::read(state.join(FILE)).ok()?;
    serde_json::from_slice::<Page>(&text).ok()?.server
}

/// `{"server": {…}, "services": {"Service default/shop": {…}}}`
#[derive(Serialize)]
struct Page<'s> {
    server: Option<&'s ServerInfo>,
    services: BTreeMap<String, &'s Status>,
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, PendingStatuses> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_on(&self, path: &Path, server: Option<&ServerInfo>, trouble: &dyn Fn(ObjectRef, Vec<Problem>)) {
        let mut healthy = true;
        let mut pause = Duration::ZERO;
        let mut pending = self.pending();
        loop {
            pending = self.rest(pending, pause);
            while !pending.changed && !pending.closing {
                pending = self.stirred.wait(pending).unwrap_or_else(PoisonError::into_inner);
            }
            let last = pending.closing;
            if std::mem::take(&mut pending.changed) {
                let statuses = pending.statuses.clone();
                drop(pending);
                let begun = Instant::now();
                let services =
                    statuses.iter().map(|(owner, status)| (owner.to_string(), &**status)).collect();
                let outcome = disk::replace(path, Durability::No, |writer| {
                    serde_json::to_writer_pretty(&mut *writer, &Page { server, services })?;
                    writer.write_all(b"\n")
                });
                pause = GATHER.max(begun.elapsed().saturating_mul(SHARE));
                if outcome.is_ok() != healthy {
                    healthy = outcome.is_ok();
                    let object = ObjectRef::new(Kind::Config, "", FILE);
                    let problem = outcome.as_ref().err().map(|error| unwritable(&object, path, error));
                    trouble(object, problem.into_iter().collect());
                }
                pending = self.pending();
                if outcome.is_err() {
                    pending.changed = true;
                    pause = RETRY;
                }
            }
            if last {
                return;
            }
        }
    }

    /// Lets changes gather; cut short only by the end.
    fn rest<'d>(
        &self,
        mut pending: MutexGuard<'d, PendingStatuses>,
        pause: Duration,
    ) -> MutexGuard<'d, PendingStatuses> {
        let began = Instant::now();
        while !pending.closing {
            let left = pause.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            pending = self.stirred.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        pending
    }
}

fn unwritable(object: &ObjectRef, path: &Path, error: &io::Error) -> Problem {
    let file: PathBuf = path.to_owned();
    Problem::new(object.clone(), Reason::StateUnwritable, format!("cannot be written: {error}"))
        .fix("Make room in the state folder, or make it writable. Seaway tries again every second.")
        .in_file(file.to_string_lossy().into_owned(), 0, 0)
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc};

    use super::*;

    /// Scripts read it.
    #[test]
    fn the_form_of_a_status_is_the_golden_one() {
        seaway_testkit::golden::round_trips(include_str!("../../golden/status.jsonl"), |line| {
            serde_json::from_str::<Status>(line).and_then(|it| serde_json::to_string(&it))
        });
    }

    #[test]
    fn the_page_has_a_status_for_each_service() {
        let (owner, status) = status("shop");
        let page = Page { server: None, services: [(owner.to_string(), &*status)].into() };
        let page = serde_json::to_value(&page).expect("is JSON");
        assert_eq!(page["services"]["Service default/shop"]["members"], 2, "{page}");
    }

    fn status(name: &str) -> (Owner, Arc<Status>) {
        let object = ObjectRef::new(Kind::Service, "default", name);
        let owner = Owner::Object { object, uid: "u".into() };
        let status = Status {
            owner: owner.clone(),
            addresses: vec![[192, 0, 2, 1].into()],
            serving: Vec::new(),
            members: 2,
            ready: true,
            problems: Vec::new(),
            pool: None,
            announced: None,
            shown: seaway_model::outcome::PublishedAs::default(),
            waits: None,
            takes_over: true,
            unreported: false,
            replaced: None,
            ports: Vec::new(),
            left: false,
        };
        (owner, Arc::new(status))
    }

    fn wait_for(path: &Path, holds: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let read = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if let Some(value) = read.filter(&holds) {
                return value;
            }
            assert!(Instant::now() < until, "{} does not become what it should", path.display());
            std::thread::yield_now();
        }
    }

    #[test]
    fn statuses_come_and_go() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = StateDir::open(dir.path()).expect("a state folder");
        let file = StatusFile::open(&state, None, |_, _| {}).expect("a status file");
        let ((a, one), (b, two)) = (status("a"), status("b"));
        file.put(a.clone(), one);
        file.put(b, two);
        let path = dir.path().join(FILE);
        let page = wait_for(&path, |page| page["services"].as_object().is_some_and(|it| it.len() == 2));
        assert_eq!(page["services"]["Service default/a"]["addresses"][0], "192.0.2.1");
        file.remove(&a);
        drop(file);
        let page = wait_for(&path, |page| page["services"].as_object().is_some_and(|it| it.len() == 1));
        assert!(page["services"]["Service default/b"].is_object());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_and_tried_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = StateDir::open(dir.path()).expect("a state folder");
        // Root writes everywhere, but nowhere over a folder.
        let path = dir.path().join(FILE);
        fs::create_dir(&path).expect("is made");
        fs::write(path.join("x"), "").expect("is written");
        let (told, tells) = mpsc::channel();
        let file = StatusFile::open(&state, None, move |_, problems| told.send(problems).expect("is heard"))
            .expect("opens");
        let wait = Duration::from_secs(10);
        let problems = tells.recv_timeout(wait).expect("is told");
        assert_eq!(problems[0].reason, Reason::StateUnwritable);
        fs::remove_dir_all(&path).expect("is removed");
        assert_eq!(tells.recv_timeout(wait).expect("is told"), []);
        assert!(path.is_file());
        drop(file);
    }
}
