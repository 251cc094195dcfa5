//! The folder that the processes of one host share.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

/// Lines of pods that are long gone are left out beyond this.
const MOST_LINES: usize = 512;
/// A process that has retired looks so often whether one serves: clients are refused while none does.
const LOOKS_AGAIN: Duration = Duration::from_millis(250);
/// For 3 seconds: a kubelet starts a container that crashed for the first time at once. A retired process that ends meanwhile cuts its
/// connections for nothing, and its pod, which is not ready then, is deleted.
const FREE_LOOKS: u32 = 12;

#[derive(Clone)]
pub(in crate::member) struct Folder {
    path: PathBuf,
    /// Which host of which cluster.
    pub(super) of: String,
    pub(super) generation: u64,
    /// While it is here, this process works.
    lock: Arc<Mutex<Option<File>>>,
}

impl Folder {
    /// Makes it, if need be. `pod`: who is started again under that name is as old as before.
    pub(in crate::member) fn open(path: &Path, of: String, pod: Option<&str>) -> Result<Folder> {
        private(path).with_context(|| format!("--handover {}", path.display()))?;
        let generations = path.join("generations");
        let generation = register(&generations, pod)
            .with_context(|| format!("{} is not usable", generations.display()))?;
        Ok(Folder { path: path.to_owned(), of, generation, lock: Arc::default() })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("handover.sock")
    }

    /// Whether no other process has it, so that this one may work.
    pub(in crate::member) fn try_lock(&self) -> Result<bool> {
        let path = self.path.join("lock");
        let file = open(&path).with_context(|| format!("{} cannot be opened", path.display()))?;
        match file.try_lock() {
            Ok(()) => {
                *self.held() = Some(file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("{} cannot be locked", path.display()))
            }
        }
    }

    /// Returns once no process works, this one included, and none has begun for a while.
    pub(in crate::member) async fn until_free(&self) {
        let mut looks = 0;
        while looks < FREE_LOOKS {
            tokio::time::sleep(LOOKS_AGAIN).await;
            looks = if self.is_free() { looks.saturating_add(1) } else { 0 };
        }
    }

    /// Where that cannot be looked up, a process may work. Nothing is made: a folder that was removed says nothing.
    fn is_free(&self) -> bool {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
        options.open(self.path.join("lock")).is_ok_and(|file| file.try_lock().is_ok())
    }

    /// It came from the process that had it.
    pub(super) fn receive(&self, lock: OwnedFd) {
        *self.held() = Some(lock.into());
    }

    /// For the next process, which has it beside this one then.
    pub(super) fn lend(&self) -> io::Result<OwnedFd> {
        let held = self.held();
        let lock = held.as_ref().ok_or_else(|| io::Error::other("this process does not serve"))?;
        Ok(lock.try_clone()?.into())
    }

    /// This process works no more. Who was lent it has it still.
    pub(in crate::member) fn let_go(&self) {
        *self.held() = None;
    }

    fn held(&self) -> MutexGuard<'_, Option<File>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A folder that others could write to would let them serve in our place.
fn private(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).context("the folder cannot be made")?;
    let found = fs::symlink_metadata(path)?;
    ensure!(found.is_dir(), "the folder is a symbolic link: name its target");
    ensure!(
        found.uid() == nix::unistd::geteuid().as_raw(),
        "the folder belongs to user {}, and this process is user {}: name a folder that this user owns",
        found.uid(),
        nix::unistd::geteuid()
    );
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700))
            .context("the mode of the folder cannot be set to 0700")?;
    }
    Ok(())
}

/// No link is followed.
fn open(path: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NOFOLLOW.bits();
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}

/// `NUMBER POD` a line. Who has none gets the next number.
fn register(path: &Path, pod: Option<&str>) -> io::Result<u64> {
    let mut file = open(path)?;
    // Others do no more than this while they have it.
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let lines: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(number, name)| Some((number.parse().ok()?, name)))
        .collect();
    let pod = pod.map(|it| it.replace(char::is_whitespace, "-")).unwrap_or_default();
    if let Some((number, _)) = lines.iter().find(|(_, name)| !pod.is_empty() && *name == pod) {
        return Ok(*number);
    }
    let number = lines.iter().map(|it| it.0).max().unwrap_or_default().saturating_add(1);
    let added = format!("{number} {pod}\n");
    if lines.len() < MOST_LINES {
        // What was read moved the place to the end.
        file.write_all(added.as_bytes())?;
        return Ok(number);
    }
    let kept =
        lines.iter().skip(lines.len() - MOST_LINES / 2).map(|(number, name)| format!("{number} {name}\n"));
    let kept: String = kept.chain([added]).collect();
    // One that is killed in between leaves old lines behind, and no number is given twice.
    io::Seek::rewind(&mut file)?;
    file.write_all(kept.as_bytes())?;
    file.set_len(kept.len() as u64)?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(at: &Path, pod: Option<&str>) -> Folder {
        Folder::open(at, "a@b".into(), pod).expect("it is ours")
    }

    #[test]
    fn a_pod_that_starts_again_is_as_old_as_before_and_who_has_no_name_is_the_newest() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("node");
        let generation = |pod| opened(&at, pod).generation;
        assert_eq!([Some("x"), Some("y"), Some("x"), None, None].map(generation), [1, 2, 1, 3, 4]);
        assert_eq!([Some("y"), Some("z")].map(generation), [2, 5]);
        fs::write(at.join("generations"), "no number\n9 z\n").expect("is written");
        assert_eq!([Some("z"), Some("a b")].map(generation), [9, 10]);
        for _ in 0..2 * MOST_LINES {
            generation(None);
        }
        assert_eq!(generation(Some("a-b")), 2 * MOST_LINES as u64 + 11, "forgotten long after it was gone");
        let kept = fs::read_to_string(at.join("generations")).expect("is there");
        assert!(kept.lines().count() <= MOST_LINES + 1);
    }

    #[test]
    fn of_two_processes_one_may_work_and_the_other_once_the_first_has_let_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = [(); 2].map(|()| opened(folder.path(), None));
        assert!(first.try_lock().expect("it is tried"));
        assert!(!second.try_lock().expect("it is tried"));
        second.receive(first.lend().expect("it has it"));
        first.let_go();
        assert!(first.lend().is_err() && !first.try_lock().expect("it is tried"), "the second one has it");
        second.let_go();
        assert!(first.try_lock().expect("it is tried"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_retired_waits_while_another_works_and_hears_when_none_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let [retired, next] = [(); 2].map(|()| opened(folder.path(), None));
        let long = 20 * LOOKS_AGAIN;
        assert!(!retired.is_free(), "nobody has worked here: nothing is known");
        assert!(next.try_lock().expect("it is tried"));
        assert!(tokio::time::timeout(long, retired.until_free()).await.is_err(), "it works");
        next.let_go();
        let soon = LOOKS_AGAIN * (FREE_LOOKS - 1);
        assert!(tokio::time::timeout(soon, retired.until_free()).await.is_err(), "it may be started again");
        assert!(tokio::time::timeout(long, retired.until_free()).await.is_ok());
        assert!(next.try_lock().expect("it is tried"), "who only looks keeps nothing");
        fs::remove_file(folder.path().join("lock")).expect("it is there");
        assert!(!retired.is_free() && !folder.path().join("lock").exists());
    }

    #[test]
    fn a_folder_that_others_could_change_is_closed_to_them_and_a_link_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("node");
        fs::create_dir(&at).expect("it is made");
        fs::set_permissions(&at, Permissions::from_mode(0o777)).expect("it is ours");
        opened(&at, None);
        assert_eq!(fs::metadata(&at).expect("is there").mode() & 0o777, 0o700);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&at, &link).expect("it is linked");
        let refused = Folder::open(&link, String::new(), None).err().expect("it is refused");
        assert!(format!("{refused:#}").contains("the folder is a symbolic link"), "{refused:#}");
        std::os::unix::fs::symlink("/dev/null", at.join("lock")).expect("it is linked");
        assert!(opened(&at, None).try_lock().is_err(), "nor is a link in it followed");
    }
}
