//! Files of ours: private, and either as they were or as they shall be.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
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
    let aside = path.with_extension("tmp");
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
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(aside)?;
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
