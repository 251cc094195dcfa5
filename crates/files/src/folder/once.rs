//! A folder, or one file, that is read and not followed.

use std::path::Path;

use seaway_model::{Change, Problem};

use super::{
    Folder, FolderError,
    listing::{FileStamp, Listing},
};

/// Reads a folder, or one file whatever it is called, once, for `plan` and `check`: what it says, and what is wrong with it.
pub fn read_folder(path: &Path) -> Result<(Folder, Vec<Change>, Vec<Problem>), FolderError> {
    let (folder, changes) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if path.is_file() => {
            let listed = FileStamp::of(path).map(|stamp| Listing::of_one(Path::new(name), stamp));
            Folder::of(parent, listed, None, None)?
        }
        _ => Folder::open(path, None)?,
    };
    let problems = changes.iter().filter_map(|change| match change {
        Change::Reported(_, problems) => Some(problems),
        _ => None,
    });
    let mut problems: Vec<Problem> = problems.flatten().cloned().collect();
    problems.sort_by(|a, b| (&a.place, a).cmp(&(&b.place, b)));
    Ok((folder, changes, problems))
}
