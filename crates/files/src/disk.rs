//! Files of ours: private, and either as they were or as they shall be.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Whether a replaced file must be there after a power cut.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Durable {
    Yes,
    /// What can be had again is not worth the wait.
    No,
}

/// Writes a file whole, under another name, and renames it: nobody ever reads a half of it.
pub(crate) fn replace(
    path: &Path,
    durable: Durable,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    // Of that file alone: `a.pem` and `a.failed` may be written at the same time.
    let mut aside = path.as_os_str().to_owned();
    aside.push(".tmp");
    let aside = PathBuf::from(aside);
    let written = write_aside(&aside, durable, write).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // A full disk is no place for leftovers.
        let _ = fs::remove_file(&aside);
    } else if durable == Durable::Yes
        && let Some(parent) = path.parent()
    {
        File::open(parent)?.sync_all()?;
    }
    written
}

fn write_aside(
    aside: &Path,
    durable: Durable,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    // What is left of a write that was cut short; or somebody else's, who would read what we write, or a link to what is
    // not ours.
    match fs::remove_file(aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(aside)?;
    let mut writer = BufWriter::with_capacity(64 << 10, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    if durable == Durable::Yes { file.sync_all() } else { Ok(()) }
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
            replace(&path, Durable::No, |it| it.write_all(b"ours")).expect("is written");
            assert_eq!(fs::read_to_string(&other).expect("is there"), "theirs");
            assert_eq!(fs::read_to_string(&path).expect("is there"), "ours");
            let it = fs::symlink_metadata(&path).expect("is there");
            assert!(it.is_file() && it.permissions().mode() & 0o777 == 0o600, "{it:?}");
            fs::remove_file(&path).expect("is there");
        }
    }
}
