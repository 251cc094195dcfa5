//! Files of ours: private, and either as they were or as they shall be.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;

/// Whether a replaced file must be there after a power cut.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Durability {
    Yes,
    /// What can be had again is not worth the wait.
    No,
}

/// Writes a file whole, under another name, and renames it: nobody ever reads a half of it.
pub(crate) fn replace(
    path: &Path,
    durable: Durability,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    // Of that file alone: `a.pem` and `a.failed` may be written at the same time.
    let mut aside = path.as_os_str().to_owned();
    aside.push(".tmp");
    let aside = PathBuf::from(aside);
    let written = write_aside(&aside, durable, write).and_then(|file| {
        fs::rename(&aside, path)?;
        drop(file);
        Ok(())
    });
    if let Err(error) = &written {
        // A full disk is no place for leftovers.
        if error.kind() != io::ErrorKind::WouldBlock {
            let _ = fs::remove_file(&aside);
        }
    } else if durable == Durability::Yes
        && let Some(parent) = path.parent()
    {
        File::open(parent)?.sync_all()?;
    }
    written
}

fn write_aside(
    aside: &Path,
    durable: Durability,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<File> {
    clear_aside(aside)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(aside)?;
    // Until it has its name: another process must not take it away.
    is_locked(file.try_lock(), aside)?;
    if file.metadata()?.nlink() == 0 {
        return Err(in_use(aside));
    }
    let mut writer = BufWriter::with_capacity(64 << 10, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    if durable == Durability::Yes {
        file.sync_all()?;
    }
    Ok(file)
}

/// A file system that knows no locks is none that two processes of ours share.
fn is_locked(tried: Result<(), TryLockError>, aside: &Path) -> io::Result<()> {
    match tried {
        Err(TryLockError::WouldBlock) => Err(in_use(aside)),
        Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Unsupported => Err(error),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Takes away what is left of a write that was cut short; or somebody else's, who would read what we write, or a link to what is
/// not ours. What another process writes now stays: it would be given the name half written.
fn clear_aside(aside: &Path) -> io::Result<()> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let left = OpenOptions::new().read(true).custom_flags(flags.bits()).open(aside);
    if left.as_ref().is_ok_and(|it| matches!(it.try_lock(), Err(TryLockError::WouldBlock))) {
        return Err(in_use(aside));
    }
    match fs::remove_file(aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn in_use(aside: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, format!("another process writes {}", aside.display()))
}

/// Makes a folder, and those above it, that only we may look into.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let there = fs::metadata(path)?.permissions().mode();
    if there & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_in_the_way_of_a_file_is_taken_away_and_neither_followed_nor_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, aside, other] = ["it", "it.tmp", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "theirs").expect("is written");
        for linked in [true, false] {
            match linked {
                true => symlink(&other, &aside).expect("is linked"),
                false => fs::hard_link(&other, &aside).expect("is linked"),
            }
            replace(&path, Durability::No, |it| it.write_all(b"ours")).expect("is written");
            assert_eq!(fs::read_to_string(&other).expect("is there"), "theirs");
            assert_eq!(fs::read_to_string(&path).expect("is there"), "ours");
            let it = fs::symlink_metadata(&path).expect("is there");
            assert!(it.is_file() && it.permissions().mode() & 0o777 == 0o600, "{it:?}");
            fs::remove_file(&path).expect("is there");
        }
    }

    #[test]
    fn a_lock_that_fails_is_told_as_it_failed_and_only_one_that_is_taken_as_in_use() {
        let tried = |error| is_locked(Err(error), Path::new("it")).map_err(|it| it.raw_os_error());
        let failed = |errno| TryLockError::Error(io::Error::from_raw_os_error(errno));
        assert_eq!(tried(TryLockError::WouldBlock), Err(None), "a message of ours");
        assert_eq!(tried(failed(nix::libc::ENOLCK)), Err(Some(nix::libc::ENOLCK)));
        assert_eq!(tried(failed(nix::libc::EOPNOTSUPP)), Ok(()), "written without one, as ever");
    }

    #[test]
    fn of_two_who_write_one_file_at_once_the_second_is_refused_and_the_first_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("it");
        let first = replace(&path, Durability::No, |it| {
            it.write_all(b"the first ")?;
            let second = replace(&path, Durability::No, |it| it.write_all(b"the second"));
            assert_eq!(second.expect_err("it is refused").kind(), io::ErrorKind::WouldBlock);
            it.write_all(b"is whole")
        });
        first.expect("is written");
        assert_eq!(fs::read_to_string(&path).expect("is there"), "the first is whole");
        replace(&path, Durability::No, |it| it.write_all(b"the next")).expect("it is free again");
        assert_eq!(fs::read_to_string(&path).expect("is there"), "the next");
    }
}
