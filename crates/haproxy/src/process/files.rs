//! The files that HAProxy reads: written whole or not at all, for its own eyes, and never over a file of others.

use std::{
    collections::BTreeSet,
    fs, io,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use secrecy::{ExposeSecret as _, SecretString};

use super::ProcessError;
use crate::document::FileKind;

/// A file by its path, with what is in it.
pub(super) type Files = Vec<(PathBuf, SecretString)>;

/// Says that a folder is ours.
const OURS: &str = ".made-by-seaway";

/// Locked by the process that uses the folder, and never removed.
const LOCK: &str = ".lock";

/// Makes the folder, or finds that it is ours. No other process uses it until what is returned is dropped.
pub(super) fn claim(folder: &Path) -> Result<Flock<fs::File>, ProcessError> {
    let failed = |source| ProcessError::Write { path: folder.to_owned(), source };
    make(folder).map_err(failed)?;
    let mark = folder.join(OURS);
    let is_ours = mark.exists();
    let is_empty = fs::read_dir(folder).map_err(failed)?.next().is_none();
    if !is_ours && !is_empty {
        return Err(ProcessError::Foreign { path: folder.to_owned() });
    }
    write(&mark, "").map_err(failed)?;
    let mut options = fs::OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600);
    let lock = lock.open(folder.join(LOCK)).map_err(failed)?;
    Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => ProcessError::InUse { path: folder.to_owned() },
        errno => failed(errno.into()),
    })
}

/// A configuration of others stays as it is.
pub(super) fn check_ownership(config: &Path) -> Result<(), ProcessError> {
    match fs::read(config) {
        Ok(bytes) if crate::is_ours(&String::from_utf8_lossy(&bytes)) => Ok(()),
        Ok(_) => Err(ProcessError::Foreign { path: config.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(ProcessError::Write { path: config.to_owned(), source }),
    }
}

/// Writes those that differ.
pub(super) fn write_all(files: &Files) -> Result<(), ProcessError> {
    for (path, content) in files {
        let content = content.expose_secret();
        let same = fs::read(path).is_ok_and(|it| it == content.as_bytes());
        if !same {
            write(path, content).map_err(|source| ProcessError::Write { path: path.clone(), source })?;
        }
    }
    Ok(())
}

/// Removes what is in our folders, and in no list: keys of before, above all. A folder of others, and what a link leads to, stay.
pub(super) fn sweep(folder: &Path, files: &Files) {
    let kept: BTreeSet<&Path> = files.iter().map(|it| it.0.as_path()).collect();
    let ours = FileKind::ALL.map(|it| folder.join(it.name()));
    let ours = ours.iter().filter(|it| fs::symlink_metadata(it).is_ok_and(|it| it.is_dir()));
    let inside = ours.flat_map(fs::read_dir).flatten().flatten().map(|it| it.path());
    inside.filter(|it| !kept.contains(it.as_path())).for_each(|it| remove(&it));
}

/// A file of ours that HAProxy no longer reads.
pub(super) fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a file that HAProxy no longer reads cannot be removed");
        }
        _ => {}
    }
}

/// Whoever reads it sees all of it, or what was there before. A key is for its owner alone from its first byte on.
fn write(path: &Path, content: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        make(folder)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let _ = fs::remove_file(&unfinished);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let written = file.write_all(content.as_bytes()).and_then(|()| fs::rename(&unfinished, path));
    // On a full disk, part of a key would stay.
    written.inspect_err(|_| remove(&unfinished))
}

fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_swept_is_ours_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, others) = (folder.path().join("ours"), folder.path().join("others"));
        let put = |path: &Path| write(path, "text").expect("written");
        let (kept, gone) = (ours.join("maps/kept.map"), ours.join("certificates/gone.pem"));
        // By the name of a folder of ours, but a link; and a folder of another name.
        let (linked, beside) = (others.join("linked"), ours.join("mine/beside"));
        [&kept, &gone, &linked, &beside].into_iter().for_each(|it| put(it));
        symlink(&others, ours.join("pages")).expect("a link");
        sweep(&ours, &vec![(kept.clone(), String::new().into())]);
        let left = [&kept, &gone, &linked, &beside].map(|it| it.exists());
        assert_eq!(left, [true, false, true, true]);
    }

    #[test]
    fn what_cannot_be_written_leaves_no_part_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("certificates/a.pem");
        fs::create_dir_all(&path).expect("a folder in its place");
        write(&path, "a key").expect_err("it is a folder");
        let left = fs::read_dir(folder.path().join("certificates")).expect("a folder").count();
        assert_eq!(left, 1, "the folder alone");
    }
}
