//! A folder, a watch on it, and what the World would know.

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use seaway_files::{Folder, Locator, Watch};
use seaway_model::{
    Change, Kind, ObjectRef,
    fact::{FactRef, Service},
};
use seaway_testkit::source_reports::SourceReports;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Scene {
    pub(crate) dir: PathBuf,
    changes: Receiver<Vec<Change>>,
    watch: Option<Watch>,
    pub(crate) world: World,
    /// Goes last: whoever watches writes until it ends.
    pub(crate) root: TempDir,
}

/// What was told so far.
#[derive(Default)]
pub(crate) struct World(SourceReports);

impl Deref for World {
    type Target = SourceReports;

    fn deref(&self) -> &SourceReports {
        &self.0
    }
}

impl Scene {
    /// A folder with these files, watched.
    pub(crate) fn with(files: &[(&str, &str)]) -> Scene {
        let root = tempfile::tempdir().expect("a folder");
        let dir = root.path().join("manifests");
        fs::create_dir(&dir).expect("is made");
        for (name, text) in files {
            fs::write(dir.join(name), text).expect("is written");
        }
        Scene::of(root, dir)
    }

    pub(crate) fn of(root: TempDir, dir: PathBuf) -> Scene {
        Scene::watched_by(root, dir, |changes, sender| {
            // The test may be over already.
            let _ = sender.send(changes);
        })
    }

    pub(crate) fn watched_by(
        root: TempDir,
        dir: PathBuf,
        mut sink: impl FnMut(Vec<Change>, &mpsc::Sender<Vec<Change>>) + Send + 'static,
    ) -> Scene {
        let state = root.path().join("state");
        let runtime = root.path().join("run");
        fs::create_dir_all(&state).expect("is made");
        fs::create_dir_all(&runtime).expect("is made");
        let (folder, first) = Folder::open_with(&dir, Some(&state), Some(&runtime)).expect("a folder");
        let (sender, changes) = mpsc::channel();
        let watch = folder.watch(move |changes| sink(changes, &sender)).expect("is watched");
        let mut world = World::default();
        world.learn(first);
        Scene { dir, root, changes, watch: Some(watch), world }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join(name), text).expect("is written");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.dir.join(name)).expect("is removed");
    }

    pub(crate) fn places(&self) -> Locator {
        self.watch.as_ref().expect("is watched").places()
    }

    /// Waits until the World knows something.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(&self.world) {
            let left = until.saturating_duration_since(Instant::now());
            match self.changes.recv_timeout(left) {
                Ok(changes) => self.world.learn(changes),
                Err(_) => panic!("it never came to be that {what}: {:#?}", self.world.problems),
            }
        }
    }

    /// Makes another change and waits until it was seen: whatever came before it was seen, too.
    pub(crate) fn settle(&mut self) {
        let name = format!("settled-{}", self.world.facts.len() + self.world.gone.len());
        self.write(&format!("{name}.yaml"), &service(&name, 80));
        self.until("a later change is told", |world| world.port(&name) == Some(80));
        self.remove(&format!("{name}.yaml"));
        self.until("a later removal is told", |world| world.port(&name).is_none());
    }

    /// Stops watching, and starts again.
    pub(crate) fn restart(self) -> Scene {
        self.restart_after(|_| {})
    }

    /// The same, with another folder in between.
    pub(crate) fn restart_after(mut self, change: impl FnOnce(&Path)) -> Scene {
        self.watch = None;
        change(&self.dir);
        Scene::of(self.root, self.dir)
    }
}

impl World {
    fn learn(&mut self, changes: Vec<Change>) {
        changes.into_iter().for_each(|it| self.0.learn(it));
    }

    pub(crate) fn service(&self, name: &str) -> Option<&Service> {
        self.0.service("default", name)
    }

    pub(crate) fn port(&self, name: &str) -> Option<u16> {
        self.service(name)?.ports.first().map(|port| port.port)
    }

    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.facts.contains_key(&FactRef::Object(ObjectRef::new(Kind::Namespace, "", name)))
    }

    /// All problems, as people read them, without the folder's path.
    pub(crate) fn told(&self, dir: &Path) -> Vec<String> {
        let prefix = format!("{}/", dir.display());
        self.problems.values().flatten().map(|problem| problem.to_string().replace(&prefix, "")).collect()
    }
}

pub(crate) fn service(name: &str, port: u16) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  ports:\n  - port: {port}\n")
}
