//! The text of one file, or why it cannot be had.

use std::{fs, io, path::Path};

use nix::errno::Errno;
use seaway_manifests::{
    object::{UnusedRoute, unused_route_in_text},
    tree::Position,
};

/// More than this is no manifest.
const LARGEST: u64 = 64 << 20;

pub(super) fn read(path: &Path) -> io::Result<String> {
    let size = fs::metadata(path)?.len();
    if size > LARGEST {
        let why = format!("the file has {size} bytes, and a manifest may have at most {LARGEST}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    let bytes = fs::read(path)?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|b| **b == b'\n').count().saturating_add(1);
        io::Error::new(io::ErrorKind::InvalidData, format!("not UTF-8 in line {line}"))
    })
}

/// The route that was to protect in a file of which letters are no UTF-8.
pub(super) fn read_lossy(path: &Path, error: &io::Error) -> Option<UnusedRoute> {
    let bytes = fs::read(path).ok().filter(|_| error.kind() == io::ErrorKind::InvalidData)?;
    unused_route_in_text(&String::from_utf8_lossy(&bytes), Position { line: 1, column: 1 })
}

/// Whether an error lies outside of the file, so that no event tells when reading it would succeed again.
pub(super) fn is_transient(error: &io::Error) -> bool {
    let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EIO, Errno::ESTALE, Errno::ETIMEDOUT];
    error.raw_os_error().is_some_and(|it| passing.contains(&Errno::from_raw(it)))
}
