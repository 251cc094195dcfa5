//! The text of one file, or why it cannot be had.

use std::{fs, io, path::Path};

use nix::errno::Errno;
use seaway_manifests::{
    object::{UnusedRoute, closed_places, unused_route_in_text},
    tree::Position,
};

use crate::document::UnreadPlaces;

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

/// What a file was to protect of which letters are no UTF-8: by a route, and where.
pub(super) fn read_lossy(path: &Path, error: &io::Error) -> (Option<UnusedRoute>, Option<UnreadPlaces>) {
    let bytes = fs::read(path).ok().filter(|_| error.kind() == io::ErrorKind::InvalidData);
    let Some(bytes) = bytes else { return (None, None) };
    let text = String::from_utf8_lossy(&bytes);
    let places = closed_places(&text).map(|places| UnreadPlaces { line: 1, places });
    (unused_route_in_text(&text, Position { line: 1, column: 1 }), places)
}

/// Whether an error lies outside of the file, so that no event tells when reading it would succeed again.
pub(super) fn is_transient(error: &io::Error) -> bool {
    let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EIO, Errno::ESTALE, Errno::ETIMEDOUT];
    error.raw_os_error().is_some_and(|it| passing.contains(&Errno::from_raw(it)))
}
